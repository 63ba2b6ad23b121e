/* data_context.h — a context for the tests that need one; without any device they are skipped. */
#ifndef CLEF_TESTS_DATA_CONTEXT_H
#define CLEF_TESTS_DATA_CONTEXT_H
#include "data_support.h"
#include <criterion/criterion.h>

static clef_context *ctx;

static void open_context(void) {
    ctx = clef_open(NULL);
    if (!ctx && clef_error_status(NULL) == CLEF_NO_DEVICE)
        cr_skip_test("no OpenCL device");
    cr_assert_not_null(ctx, "%s", clef_error(NULL));
}

static void close_context(void) { clef_close(ctx); }

/* The context holds an error of this status that says `part`; forgets it. */
static inline void expect_error(clef_status status, const char *part) {
    cr_assert_eq(clef_error_status(ctx), status, "%s: %s", clef_status_name(clef_error_status(ctx)),
                 clef_error(ctx));
    cr_assert(strstr(clef_error(ctx), part), "\"%s\" does not say \"%s\"", clef_error(ctx), part);
    clef_clear_error(ctx);
}
#endif
