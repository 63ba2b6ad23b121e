/* select.c — choosing and repeating: triangles, masks, slopes, tiles.  All are compositions: one pointwise launch, or views and a copy. */
#include "kernels/lanes.h"
#include "ops/ops.h"

/* ---- triangles ---- */

/* x where column - row is at least (upper) or at most `diagonal`, else 0. */
static clef_tensor *triangle(clef_tensor *x, int64_t diagonal, bool upper, const char *op) {
    if (!CLEF__GIVEN(op, "x", x)) return NULL;
    clef_context *ctx = clef_tensor_context(x);
    clef_shape shape = clef_tensor_shape(x);
    if (shape.rank < 2)
        return clef__refuse(ctx, op, CLEF_SHAPE, "x %s needs two dimensions at least; clef_unsqueeze adds one",
                            clef__shape_text(shape));
    if (clef_numel(x) == 0) return x;
    int64_t m = shape.dim[shape.rank - 2], n = shape.dim[shape.rank - 1], most = clef__larger(m, n);
    diagonal = clef__larger(-m, clef__smaller(diagonal, n)); /* beyond these nothing changes, nor overflows */
    clef_tensor *count = clef__count_beside(x, most, most < 1 << 30 ? CLEF_I32 : CLEF_I64);
    clef_tensor *row = clef_unsqueeze(clef_slice(count, 0, 0, m, 1), 1), *column = clef_slice(count, 0, 0, n, 1);
    clef_tensor *edge = clef_add_scalar(row, (double)diagonal);
    return clef_where(upper ? clef_ge(column, edge) : clef_le(column, edge), x, clef__number(ctx, clef_tensor_dtype(x), 0));
}

clef_tensor *clef_tril(clef_tensor *x, int64_t diagonal) { return triangle(x, diagonal, false, "tril"); }
clef_tensor *clef_triu(clef_tensor *x, int64_t diagonal) { return triangle(x, diagonal, true, "triu"); }

/* ---- a number in the place of some elements ---- */

/* `value` as a tensor of x's dtype holds it: a constant, so that another value is no new plan. */
static clef_tensor *number_like(clef_tensor *x, clef_shape shape, double value) {
    clef_dtype dtype = clef_tensor_dtype(x);
    return clef__constant(clef_tensor_context(x), shape, dtype, clef_tensor_device(x), clef__held(dtype, value));
}

/* Whole numbers have no place for a fraction. */
static clef_tensor *with_place_for(clef_tensor *x, double value) { return clef__is_fraction(value) ? clef__to_float(x) : x; }

clef_tensor *clef_where_scalar(clef_tensor *condition, clef_tensor *x, double value) {
    if (!CLEF__GIVEN("where_scalar", "condition x", condition, x)) return NULL;
    clef_shape both;
    if (!clef__broadcast(clef_tensor_shape(condition), clef_tensor_shape(x), &both))
        return clef__refuse(clef_tensor_context(x), "where_scalar", CLEF_SHAPE, "condition %s and x %s do not broadcast",
                            clef__shape_text(clef_tensor_shape(condition)), clef__shape_text(clef_tensor_shape(x)));
    x = with_place_for(x, value);
    if (!x) return NULL;
    return clef_where(condition, x, number_like(x, CLEF_SCALAR, value));
}

clef_tensor *clef_masked_fill(clef_tensor *x, clef_tensor *mask, double value) {
    if (!CLEF__GIVEN("masked_fill", "x mask", x, mask)) return NULL;
    clef_shape shape = clef_tensor_shape(x), both;
    clef_dtype dtype = clef_tensor_dtype(mask);
    if (dtype != CLEF_BOOL && dtype != CLEF_U8)
        return clef__refuse(clef_tensor_context(x), "masked_fill", CLEF_DTYPE, "mask is %s, not bool or u8; compare first",
                            clef_dtype_name(dtype));
    if (!clef__broadcast(shape, clef_tensor_shape(mask), &both) || !clef_shape_equal(shape, both))
        return clef__refuse(clef_tensor_context(x), "masked_fill", CLEF_SHAPE, "mask %s does not broadcast to x %s",
                            clef__shape_text(clef_tensor_shape(mask)), clef__shape_text(shape));
    x = with_place_for(x, value);
    return x ? clef_where(mask, number_like(x, CLEF_SCALAR, value), x) : NULL;
}

clef_tensor *clef_scatter_value(clef_tensor *x, int dim, clef_tensor *index, double value) {
    if (!CLEF__GIVEN("scatter_value", "x index", x, index) || !(x = with_place_for(x, value))) return NULL;
    return clef__scatter("scatter_value", x, dim, index, number_like(x, clef_tensor_shape(index), value));
}

/* ---- learned slopes ---- */

/* Each part sees 0 where the other counts, so that a gradient is 0 there whatever x is; at 0 it is the slope's, as PyTorch's is. */
clef_tensor *clef_prelu(clef_tensor *x, clef_tensor *weight) {
    if (!CLEF__GIVEN("prelu", "x weight", x, weight)) return NULL;
    x = clef__autocast(x, CLEF__LOW_PRECISION), weight = clef__autocast(weight, CLEF__LOW_PRECISION);
    if (!x || !weight) return NULL;
    clef_shape shape = clef_tensor_shape(x), slopes = clef_tensor_shape(weight);
    bool one = slopes.rank == 0 || (slopes.rank == 1 && slopes.dim[0] == 1);
    if (!one && (shape.rank < 2 || slopes.rank != 1 || slopes.dim[0] != shape.dim[1]))
        return clef__refuse(clef_tensor_context(x), "prelu", CLEF_SHAPE,
                            "weight %s is neither one number nor one for each channel of x %s", clef__shape_text(slopes),
                            clef__shape_text(shape));
    clef_tensor *wide = clef__to_wide(x), *above = clef_gt_scalar(wide, 0);
    clef_tensor *slope = one ? clef_reshape(weight, CLEF_SCALAR) : clef__per_channel(weight, shape.rank);
    clef_tensor *low = clef_mul(slope, clef_where_scalar(clef_logical_not(above), wide, 0));
    return clef_to(clef_add(clef_where_scalar(above, wide, 0), low), clef_tensor_dtype(clef__to_float(x)));
}

/* ---- tiles ---- */

static void append(clef_shape *shape, int64_t dim) { shape->dim[shape->rank++] = dim; }

/* x, seen in shape `from`, broadcast to `to` and seen as `as`. */
static clef_tensor *spread(clef_tensor *x, clef_shape from, clef_shape to, clef_shape as) {
    return clef_reshape(clef_expand(clef_reshape(x, from), to), as);
}

/* The shape of the result, or false after refusing. */
static bool repeated_shape(clef_tensor *x, const int64_t *repeats, int n, clef_shape *out) {
    clef_shape shape = clef_tensor_shape(x);
    if (n < shape.rank || n > CLEF_MAX_RANK) {
        clef__refuse(clef_tensor_context(x), "repeat", CLEF_INVALID, "x %s needs %d to %d repeats, not %d", clef__shape_text(shape),
                     shape.rank, CLEF_MAX_RANK, n);
        return false;
    }
    if (n && !repeats) return clef__refuse(clef_tensor_context(x), "repeat", CLEF_INVALID, "repeats is NULL"), false;
    for (int i = 0; i < n; i++) {
        if (repeats[i] >= 0) continue;
        clef__refuse(clef_tensor_context(x), "repeat", CLEF_INVALID, "repeats[%d] = %lld is negative", i, (long long)repeats[i]);
        return false;
    }
    *out = (clef_shape){.rank = n};
    for (int i = 0; i < n; i++) out->dim[i] = clef__times(repeats[i], i < n - shape.rank ? 1 : shape.dim[i - n + shape.rank]);
    return clef__check_type(clef_tensor_context(x), "repeat", *out, clef_tensor_dtype(x), clef_tensor_device(x));
}

/* Each repeated dimension d becomes [1,d], which broadcasts to [r,d] and is joined again.  One copy does it as far as eight
   dimensions go; then the dimensions so far become one, and the rest follows. */
clef_tensor *clef_repeat(clef_tensor *x, const int64_t *repeats, int n) {
    clef_shape out;
    if (!CLEF__GIVEN("repeat", "x", x) || !repeated_shape(x, repeats, n, &out)) return NULL;
    clef_shape shape = clef_tensor_shape(x), from = {0}, to = {0};
    int64_t rest = clef_shape_numel(shape), done = 1; /* elements of a slice of what is left; of what is finished */
    for (int i = 0; i < n; i++) {
        int64_t d = i < n - shape.rank ? 1 : shape.dim[i - n + shape.rank];
        if (from.rank + (repeats[i] != 1) + 1 + (i + 1 < n) > CLEF_MAX_RANK) { /* the last for what would be left */
            append(&from, rest), append(&to, rest);
            x = spread(x, from, to, CLEF_SHAPE(done, rest));
            from = to = CLEF_SHAPE(done);
        }
        if (repeats[i] != 1) append(&from, 1), append(&to, repeats[i]);
        append(&from, d), append(&to, d);
        done = clef__times(done, out.dim[i]);
        rest = d > 0 ? rest / d : 0;
    }
    return spread(x, from, to, out);
}

clef_tensor *clef_repeat_interleave(clef_tensor *x, int64_t repeats, int dim) {
    if (!CLEF__GIVEN("repeat_interleave", "x", x)) return NULL;
    clef_shape shape = clef_tensor_shape(x), out = shape;
    int d = dim;
    if (!clef__normalize_dim(shape.rank, &d)) return clef__refuse_dim(x, "repeat_interleave", dim);
    if (repeats < 0)
        return clef__refuse(clef_tensor_context(x), "repeat_interleave", CLEF_INVALID, "%lld repeats", (long long)repeats);
    clef__axes a = clef__axes_around(shape, d);
    out.dim[d] = clef__times(a.n, repeats);
    if (!clef__check_type(clef_tensor_context(x), "repeat_interleave", out, clef_tensor_dtype(x), clef_tensor_device(x)))
        return NULL;
    return spread(x, CLEF_SHAPE(a.outer, a.n, 1, a.inner), CLEF_SHAPE(a.outer, a.n, repeats, a.inner), out);
}

clef_tensor *clef_upsample_nearest2d(clef_tensor *x, int fh, int fw) {
    if (!CLEF__GIVEN("upsample_nearest2d", "x", x) || !(x = clef__autocast(x, CLEF__FULL_PRECISION))) return NULL;
    clef_context *ctx = clef_tensor_context(x);
    clef_shape s = clef_tensor_shape(x);
    if (s.rank != 4) return clef__refuse(ctx, "upsample_nearest2d", CLEF_SHAPE, "x %s is not [n,c,h,w]", clef__shape_text(s));
    if (fh < 1 || fw < 1)
        return clef__refuse(ctx, "upsample_nearest2d", CLEF_INVALID, "the factors %d and %d must be positive", fh, fw);
    int64_t planes = s.dim[0] * s.dim[1], h = s.dim[2], w = s.dim[3];
    clef_shape out = CLEF_SHAPE(s.dim[0], s.dim[1], clef__times(h, fh), clef__times(w, fw));
    if (!clef__check_type(ctx, "upsample_nearest2d", out, clef_tensor_dtype(x), clef_tensor_device(x))) return NULL;
    return spread(x, CLEF_SHAPE(planes, h, 1, w, 1), CLEF_SHAPE(planes, h, fh, w, fw), out);
}
