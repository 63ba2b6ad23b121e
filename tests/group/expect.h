/* expect.h — what must hold, whichever thread finds that it does not. */
#ifndef CLEF_TESTS_EXPECT_H
#define CLEF_TESTS_EXPECT_H
#include <stdatomic.h>
#include <stdio.h>

static atomic_int failures;

#define EXPECT(true_of, ...)                                     \
    do {                                                         \
        if (!(true_of) && atomic_fetch_add(&failures, 1) < 20) { \
            printf("FAILED (line %d): ", __LINE__);              \
            printf(__VA_ARGS__);                                 \
            printf("\n");                                        \
        }                                                        \
    } while (0)
#endif
