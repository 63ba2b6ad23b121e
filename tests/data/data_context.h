/* data_context.h — a context for the tests that need one; without any device they are skipped. */
#ifndef CLEF_TESTS_DATA_CONTEXT_H
#define CLEF_TESTS_DATA_CONTEXT_H
#include "data_support.h"
#include "support/device.h"

static clef_context *ctx;

static void open_context(void) { ctx = open_seeded(0); }

static void close_context(void) { clef_close(ctx); }
#endif
