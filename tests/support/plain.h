/* plain.h — what plain-main tests share. */
#ifndef CLEF_TESTS_PLAIN_H
#define CLEF_TESTS_PLAIN_H
#include "clef.h"
#include "support/whole.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* The exit code of a test that clef_open gave no context: 77 where there is no device, else 1; says why. */
static inline int without_context(void) {
    bool absent = clef_error_status(NULL) == CLEF_NO_DEVICE;
    printf("%s: %s\n", absent ? "skipped" : "FAILED", clef_error(NULL));
    return absent ? 77 : 1;
}

/* Under sanitizers cases take long, and all of them are tried without sanitizers: a share will do.  CLEF_TEST_WHOLE=1: all. */
static inline bool some_cases_only(void) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return !whole_form();
#else
    return false;
#endif
}
#endif
