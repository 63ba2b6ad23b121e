/* timing.h — the clock, and the median of what it measured. */
#ifndef CLEF_BENCH_TIMING_H
#define CLEF_BENCH_TIMING_H
#include <stdlib.h>
#include <time.h>

static inline double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts them. */
static inline double median(double *seconds, int n) {
    qsort(seconds, (size_t)n, sizeof *seconds, by_value);
    return seconds[n / 2];
}
#endif
