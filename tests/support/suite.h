/* suite.h — one context for each test of a suite: TestSuite(name, .init = open_device, .fini = close_device). */
#ifndef CLEF_TESTS_SUITE_H
#define CLEF_TESTS_SUITE_H
#include "support/device.h"
#include "support/whole.h"

static clef_context *ctx;
static void open_device(void) { ctx = open_seeded(1); }
static void close_device(void) { close_clean(ctx); }
#endif
