/* runs.h — tables of what Unicode says of code points, in rows for runs of them. */
#ifndef CLEF_TEXT_RUNS_H
#define CLEF_TEXT_RUNS_H
#include <stddef.h>
#include <stdint.h>

typedef struct clef__run {
    uint32_t first, last;
} clef__run;
/* The row whose run has this code point, or NULL.  Each of n rows of `size` bytes begins with its clef__run; they are in order. */
const void *clef__find_run(const void *rows, size_t n, size_t size, uint32_t code);
#define CLEF__FIND_RUN(table, code) clef__find_run(table, sizeof table / sizeof *table, sizeof *table, code)
#endif
