/* owners.c — how places are partitioned.  Every unit reads the indices of its chunk, so parts read them again and copies do not; copies
   have to be cleared and added up. */
#include "kernels/owners.h"
#include "plan/lower/cost.h"
#include "runtime/arithmetic.h"

/* LEAST_COPIED: fewer indices are read sooner than copies are made.  MOST_COPIES: one work-item adds those of a place. */
enum { LINE = 2048, LEAST_COPIED = 4096, MOST_COPIES = 64 };

static int64_t copies_of(int64_t wanted, clef__axes places, int64_t m, bool adds) {
    int64_t most = clef__smaller(2 * m / clef__larger(places.n, 1), MOST_COPIES);
    return adds && m >= LEAST_COPIED ? clef__larger(clef__smaller(wanted, most), 1) : 1;
}

/* Few units, each of which has long stretches of memory to itself, and places that its cache holds. */
static void partition_widely(const clef__lowering *lw, clef__owners *o, clef__axes places, int64_t m, int64_t bytes, bool each,
                             bool adds) {
    const int64_t items = clef__lower_items(lw, places.outer * m * places.inner, 1024), cached = clef__cached_bytes(lw);
    const int64_t cores = clef__ceil_div(items, clef__lower_profile(lw)->items_per_unit), lanes = clef__lower_profile(lw)->vector;
    int64_t fitting = cached / clef__larger(places.n * bytes, 1) / lanes * lanes;
    int64_t even = clef__ceil_div(places.inner, clef__ceil_div(items, places.outer) * lanes) * lanes;
    int64_t wanted = each ? clef__smaller(fitting, even) : LINE;
    o->block = clef__smaller(clef__larger(wanted, lanes), places.inner);
    o->blocks = clef__ceil_div(places.inner, o->block);
    int64_t columns = places.outer * o->blocks, parts = clef__ceil_div(places.n * o->block * bytes, cached);
    int64_t affordable = (each ? 0 : o->block) * (m + places.n) / (8 * m); /* what reading indices again may cost */
    parts = clef__larger(clef__smaller(parts, affordable), 1);
    if (columns * parts < cores) o->copies = copies_of(clef__ceil_div(items, columns * parts), places, m, adds);
    if (columns * parts * o->copies < cores) parts = clef__ceil_div(cores, columns * o->copies);
    o->rows = clef__ceil_div(places.n, clef__smaller(parts, places.n));
}

/* As many units as there may be, of one vector each. */
static void partition_finely(const clef__lowering *lw, clef__owners *o, clef__axes places, int64_t m, bool each, bool adds) {
    o->block = each ? 1 : clef__lower_lanes(lw, places.inner);
    o->blocks = clef__ceil_div(places.inner, o->block);
    int64_t columns = places.outer * o->blocks, items = clef__lower_items(lw, places.outer * m * places.inner, 1024) / columns;
    o->copies = copies_of(items, places, m, adds);
    int64_t parts = clef__smaller(clef__larger(items / o->copies, 1), places.n);
    o->rows = clef__ceil_div(places.n, parts);
}

clef__owners clef__lower_owners(const clef__lowering *lw, clef__axes places, int64_t m, int64_t bytes, bool each, bool adds) {
    clef__owners o = {.copies = 1};
    if (clef__lower_profile(lw)->wide_items) partition_widely(lw, &o, places, m, bytes, each, adds);
    else partition_finely(lw, &o, places, m, each, adds);
    o.parts = clef__ceil_div(places.n, o.rows);
    o.chunk = clef__ceil_div(m, o.copies);
    o.copies = clef__ceil_div(m, o.chunk);
    return o;
}
