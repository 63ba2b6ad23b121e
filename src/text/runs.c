/* runs.c — see runs.h. */
#include "text/runs.h"
#include <stdlib.h>

static int compare(const void *code, const void *row) {
    const clef__run *run = row;
    uint32_t c = *(const uint32_t *)code;
    return c < run->first ? -1 : c > run->last;
}

const void *clef__find_run(const void *rows, size_t n, size_t size, uint32_t code) {
    return bsearch(&code, rows, n, size, compare);
}
