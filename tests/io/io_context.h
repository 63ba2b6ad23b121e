/* io_context.h — a context and a directory of its own for each test of files. */
#ifndef CLEF_TESTS_IO_CONTEXT_H
#define CLEF_TESTS_IO_CONTEXT_H
#include "support/device.h"
#include "support/io_files.h"

static clef_context *ctx;
static char dir[512];

static void setup(void) {
    ctx = open_seeded(0);
    snprintf(dir, sizeof dir, "%s", io_scratch());
}

static void teardown(void) {
    clef_close(ctx);
    io_remove(dir);
}
#endif
