/* gemm.h — the one product behind matmul, convolution and its two gradients:

       C[z][m][n] = Σ_k A[z][m][k] · B[z][k][n], and the epilogue of the node, with its bias[n]

   told as addresses.  A row of A (and of C) is m in three levels, k in three levels, the batch z in two; every level has a
   size and a stride, so that an image is read as a matrix without being copied.  Sizes are outermost first; unused levels
   have size 1.  Only memory and offset of the operands a, b and c are looked at. */
#ifndef CLEF_GEMM_H
#define CLEF_GEMM_H
#include "epilogue_ops.h"
#include "plan/lower/lower.h"

typedef struct clef__gemm {
    int64_t m[3], k[3], z[2], n;
    /* a: of the type clef__gemm_a_type tells; b: any storage, also a half type beside floats; c: of the node's dtype */
    clef__operand a, b, c;
    int64_t a_m[3], a_k[3], a_z[2];
    int64_t b_k[3], b_n, b_z[2];
    int64_t c_m[3], c_n, c_z[2];
    clef__epilogue epilogue;
    bool overlapping;  /* rows of A share elements (a convolution): packing it would multiply it */
    clef__knobs knobs; /* what tuning results say of it (gemm_table.c) */
} clef__gemm;

/* What tuning results may say of a product (gemm.c, tile.c). */
enum {
    CLEF__GEMM_ROWS,
    CLEF__GEMM_VECTORS,
    CLEF__GEMM_PACKING,
    CLEF__GEMM_SPLITS,
    CLEF__GEMM_BLOCK,
    CLEF__GEMM_GRAIN,
    CLEF__GEMM_LIBRARY
};
enum { CLEF__TILE_SHAPE, CLEF__TILE_SPLITS, CLEF__TILE_LIBRARY };
extern const clef__family clef__gemm_family, clef__tile_family, clef__matrix_family, clef__tf32_family;

/* product.c: strategies for matmul and linear */
void clef__product_matmul(const clef__lowering *lw);
void clef__product_linear(const clef__lowering *lw);
/* gemm_table.c: emits the launches, by the cheapest algorithm that applies; the seconds it takes, by sizes, strides and dtypes. */
void clef__gemm_lower(const clef__lowering *lw, clef__gemm g);
double clef__gemm_seconds(const clef__lowering *lw, clef__gemm g);

/* Algorithms for products, each in a file of its own that knows none of the others, unless it is made of one.  They are asked about
   clef__lower_product, which their `lower` may change. */
extern const clef__strategy clef__product_by_library; /* plain matrices by a BLAS library, where this machine has it */
extern const clef__strategy clef__product_by_dot;     /* few columns, or few rows, along which k lies */
extern const clef__strategy clef__product_by_lines;   /* few rows, or few columns, and lines across them */
extern const clef__strategy clef__product_by_tiles;   /* on a device that likes tiles in local memory */
extern const clef__strategy clef__product_transposed; /* few rows by a matrix whose columns lie along k: the transpose, by gemm */
extern const clef__strategy clef__product_by_gemm;    /* all */

/* ---- what they share (gemm_shared.c) ---- */
/* C := zero, or the bias. */
void clef__gemm_begin(const clef__lowering *lw, const clef__gemm *g);
/* One level of rows, and one of depths once those that can be joined are. */
bool clef__gemm_is_plain(clef__gemm *g);
/* The same product, transposed: of a plain one, whose bias would go along rows then. */
clef__gemm clef__gemm_transposed(const clef__gemm *g);
/* The same product into parts, of which each split writes one: [z][split][m][n], dense, without the epilogue. */
clef__gemm clef__gemm_in_parts(const clef__gemm *g, clef__operand part, int64_t splits);
/* Then C := the sum of the parts, with what belongs into the last store. */
void clef__gemm_finish(const clef__lowering *lw, const clef__gemm *g, clef__operand part);
/* Joins neighbouring levels that are one level in both strides, and moves what is left to the inner end. */
void clef__merge_levels(int64_t size[3], int64_t s[3], int64_t t[3]);
/* The type sums are made in: f32 for the half types. */
clef_dtype clef__gemm_type(clef_dtype dtype);
/* Lanes of a vector of this type. */
int clef__gemm_lanes(const clef__lowering *lw, clef_dtype type);
/* The type that A is wanted in for a node of this dtype: that of its sums, or any where tiles are made, which take it as it is. */
clef_dtype clef__gemm_a_type(const clef__lowering *lw, clef_dtype dtype);
/* x as gemm's A wants it: itself, or a row-major copy in that type. */
clef__operand clef__gemm_operand(const clef__lowering *lw, clef__operand x);
#endif
