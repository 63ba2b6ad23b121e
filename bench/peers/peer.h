/* peer.h — the protocol of bench/compare.py for programs in C; what is said stands in bench/bench_clef.c. */
#ifndef CLEF_BENCH_PEER_H
#define CLEF_BENCH_PEER_H
#include "timing.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline double number(const char *line, const char *key, double fallback) {
    char pattern[32];
    snprintf(pattern, sizeof pattern, " %s=", key);
    const char *at = strstr(line, pattern);
    return at ? strtod(at + strlen(pattern), NULL) : fallback;
}

/* Random numbers in [-1,1), never zeros: some processors are faster with those. */
static inline float *random_floats(size_t n) {
    float *x = aligned_alloc(64, (n * sizeof *x + 63) / 64 * 64);
    unsigned state = 1;
    for (size_t i = 0; x && i < n; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (float)(state >> 8) / (1 << 23) - 1;
    }
    return x;
}

/* Copies that fill 128 MiB, at most 16, so that no operand is still in a cache. */
static inline int copies_of(double floats) {
    double n = (128 << 20) / (4 * floats);
    return n < 1 ? 1 : n > 16 ? 16 : (int)n;
}

/* Answers every line of standard input; run returns seconds of one call, or a negative number for "not mine". */
static inline void serve(const char *name, double (*run)(const char *line)) {
    printf("ready %s\n", name);
    fflush(stdout);
    for (char line[512]; fgets(line, sizeof line, stdin);) {
        line[strcspn(line, "\n")] = 0;
        double seconds = run(line);
        if (seconds < 0) printf("skip not measured here\n");
        else printf("seconds %.9g\n", seconds);
        fflush(stdout);
    }
}
#endif
