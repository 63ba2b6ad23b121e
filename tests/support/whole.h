/* whole.h — is a test to try all that it knows (check.sh --all, CLEF_TEST_WHOLE=1), or what its brief form does? */
#ifndef CLEF_TESTS_WHOLE_H
#define CLEF_TESTS_WHOLE_H
#include <stdbool.h>
#include <stdlib.h>

static inline bool whole_form(void) {
    const char *whole = getenv("CLEF_TEST_WHOLE");
    return whole && *whole == '1';
}

/* Is case `number` of a sweep left out in the brief form, which tries one of `of`?  With the sum of three counters as number, each of `of` or
   more values in a row, each pair of values is still met. */
static inline bool left_out(int number, int of) { return !whole_form() && number % of != 0; }
#endif
