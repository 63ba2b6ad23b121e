/* text_suite.h — a suite of tests of text: a context, and a folder that goes with all that is in it. */
#ifndef CLEF_TESTS_TEXT_SUITE_H
#define CLEF_TESTS_TEXT_SUITE_H
#include "data/data_support.h"
#include "support/device.h"

static clef_context *ctx;
static char folder[256];

static void open_all(void) {
    ctx = open_seeded(0);
    new_folder(folder);
}

static void close_all(void) {
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    cr_expect(system(command) == 0);
    close_clean(ctx);
}
#endif
