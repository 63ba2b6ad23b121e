/* ranks.h — what tests of groups share: ranks on one device, numbers of a seed, and complaints. */
#ifndef CLEF_TESTS_RANKS_H
#define CLEF_TESTS_RANKS_H
#include "support/plain.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 8 };

static atomic_int complaints;

#define COMPLAIN(...)                                \
    do {                                             \
        if (atomic_fetch_add(&complaints, 1) < 20) { \
            printf("FAILED: " __VA_ARGS__);          \
            printf("\n");                            \
        }                                            \
    } while (0)

/* "0,0,0": n ranks on the first device. */
static inline const char *ranks_on_one(int n, char text[2 * MOST_RANKS]) {
    for (int i = 0; i < n; i++) memcpy(text + 2 * i, "0,", 2);
    text[2 * n - 1] = 0;
    return text;
}

/* Is there a device at all?  If not, the exit code is in *code.  It stays open, so that what all runs have in common is compiled once. */
static clef_context *held;
static void let_go(void) {
    clef_close(held);
    held = NULL;
}
static inline bool have_device(int *code) {
    clef_device_info info;
    held = clef_open(NULL);
    *code = held ? 0 : without_context();
    if (!clef_context_device(held, 0, &info)) return false;
    atexit(let_go);
    clef_device_events(held, info.index, info.index, true);
    return true;
}

/* splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014) */
static inline uint64_t next_random(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}
static inline int random_below(uint64_t *state, int n) { return (int)(next_random(state) % (uint64_t)n); }

/* [rows, columns]: numbers of no seed, the same for every rank; from: where in their sequence. */
static inline clef_tensor *rows_of_numbers(clef_context *ctx, int rows, int columns, int from) {
    enum { MOST_NUMBERS = 1024 };
    float x[MOST_NUMBERS];
    if (rows * columns > MOST_NUMBERS) abort();
    for (int i = 0; i < rows * columns; i++) x[i] = (float)(((from + i) * 7919 + 13) % 1009) / 1009 - 0.5f;
    return clef_from_host(ctx, CLEF_SHAPE(rows, columns), CLEF_F32, x);
}

static inline long number_from_env(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text && *text ? atol(text) : otherwise;
}

/* How many cases to try: `usual`, or a third of them (some_cases_only), unless the environment says. */
static inline long cases_from_env(const char *name, long usual) {
    return number_from_env(name, some_cases_only() ? (usual + 2) / 3 : usual);
}
#endif
