/* tile.h — what tile.cl and matrix.cl share: where the elements of a block lie, and how a work-item walks along k.

   A tile of C is TILE_M × TILE_N, made by ITEMS work-items from blocks of A and B that are TK deep.  An element's address is that of
   its row plus that of its depth, and both stand in tables in local memory.  Rows are found once; each of TK work-items walks
   with one depth through the three levels of k, by addition with carry.  Rows beyond M and columns beyond N read the first one and
   are not stored. */
#include "tile.args"

/* Where in a block a work-item's i-th load of `width` elements begins: row (of A's rows or B's columns) and depth. */
#define ROW_AT(along, width, tile, i) ((along) ? item / (TK / width) + (i) * (ITEMS * width / TK) : item % (tile / width) * width)
#define DEPTH_AT(along, width, tile, i) ((along) ? item % (TK / width) * width : item / (tile / width) + (i) * (ITEMS * width / tile))

/* A row of three levels, in elements. */
#define ROW_ADDRESS(m, s1, s2, s3) ((m) / m3 / m2 * (s1) + (m) / m3 % m2 * (s2) + (m) % m3 * (s3))

/* A depth on its way along k: its two inner levels, and where it lies in A and B. */
typedef struct { int r2, r3, a, b; } walk;
typedef struct { int k2, k3, a1, a2, a3, b1, b2, b3; } levels;
static walk walk_from(int k, levels s) {
    int r3 = k % s.k3, r2 = k / s.k3 % s.k2, r1 = k / s.k3 / s.k2;
    walk w = {r2, r3, r1 * s.a1 + r2 * s.a2 + r3 * s.a3, r1 * s.b1 + r2 * s.b2 + r3 * s.b3};
    return w;
}
/* On by `by`, which is a walk from zero. */
static walk walk_on(walk w, walk by, levels s) {
    w.a += by.a;
    w.b += by.b;
    w.r3 += by.r3;
    w.r2 += by.r2;
    if (w.r3 >= s.k3) {
        w.r3 -= s.k3;
        w.r2++;
        w.a += s.a2 - s.k3 * s.a3;
        w.b += s.b2 - s.k3 * s.b3;
    }
    if (w.r2 >= s.k2) {
        w.r2 -= s.k2;
        w.a += s.a1 - s.k2 * s.a2;
        w.b += s.b1 - s.k2 * s.b2;
    }
    return w;
}
