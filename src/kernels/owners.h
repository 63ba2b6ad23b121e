/* owners.h — places of [outer, n, inner] to which elements of [outer, m, inner] go, partitioned among work-items without atomics: each
   owns places, and takes what goes there in the order of the indices. */
#ifndef CLEF_OWNERS_H
#define CLEF_OWNERS_H
#include "kernels/lanes.h"

/* A unit owns `rows` of the n in a block of `block` of the inner columns: parts · blocks of them cover all.  Sums may go to several copies
   of the places, of which each takes `chunk` of the m; copies add up in their order.  One copy is the result itself. */
typedef struct clef__owners {
    int64_t rows, parts, block, blocks, copies, chunk;
} clef__owners;

/* Places for what each element of a line of `block` elements has an index of its own for (`each`), or for such lines with one index each.
   bytes: of a place.  adds: what comes is added, so that copies may be made. */
clef__owners clef__lower_owners(const clef__lowering *lw, clef__axes places, int64_t m, int64_t bytes, bool each, bool adds);
#endif
