/* whole.h — is a test to try all that it knows (check.sh --all, CLEF_TEST_WHOLE=1), or what its brief form does? */
#ifndef CLEF_TESTS_WHOLE_H
#define CLEF_TESTS_WHOLE_H
#include <stdbool.h>
#include <stdlib.h>

static inline bool whole_form(void) {
    const char *whole = getenv("CLEF_TEST_WHOLE");
    return whole && *whole == '1';
}
#endif
