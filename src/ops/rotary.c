/* rotary.c — positions in attention: rotary embeddings, and the slopes of ALiBi. */
#include "ops/ops.h"
#include <math.h>

/* ---- rotary (Su et al. 2021) ---- */

/* Angles of halves are f32: their numbers of steps are large. */
static clef_dtype angle_dtype(const clef_tensor *x) { return clef_tensor_dtype(x) == CLEF_F64 ? CLEF_F64 : CLEF_F32; }

/* Positions of the t rows, as floats [1 or b,1,t,1]; NULL after a refusal. */
static clef_tensor *places_of(clef_tensor *x, clef_tensor *position) {
    clef_shape shape = clef_tensor_shape(x);
    int64_t b = shape.dim[0], t = shape.dim[2];
    clef_tensor *count = clef_reshape(clef__count_beside(x, t, angle_dtype(x)), CLEF_SHAPE(1, 1, t, 1));
    if (position == CLEF_NONE) return count;
    clef_shape p = clef_tensor_shape(position);
    clef_dtype dtype = clef_tensor_dtype(position);
    bool whole = !clef__is_float(dtype) && dtype != CLEF_BOOL;
    clef_tensor *f = clef_to(position, angle_dtype(x));
    if (whole && p.rank == 2 && p.dim[0] == b && p.dim[1] == t) return clef_reshape(f, CLEF_SHAPE(b, 1, t, 1));
    if (whole && p.rank <= 1 && clef_numel(position) == 1) return clef_add(count, clef_reshape(f, CLEF_SHAPE(1, 1, 1, 1)));
    if (whole && p.rank == 1 && p.dim[0] == t) return clef_reshape(f, CLEF_SHAPE(1, 1, t, 1));
    return clef__refuse(clef_tensor_context(x), "rotary", whole ? CLEF_SHAPE : CLEF_DTYPE,
                        "position is whole numbers [1] (of the first row), [t] or [b,t], not %s %s (x %s)", clef_dtype_name(dtype),
                        clef__shape_text(p), clef__shape_text(shape));
}

/* What each pair turns by from one position to the next: [dims/2]. */
static clef_tensor *frequencies_of(clef_tensor *x, int64_t pairs, double base, double scaling) {
    clef_tensor *i = clef__count_beside(x, pairs, angle_dtype(x));
    clef_tensor *f = clef_exp(clef_mul_scalar(i, -log(base) / (double)pairs));
    return scaling == 1 ? f : clef_div_scalar(f, scaling);
}

/* The first dims columns of x, of which pair i is columns 2i and 2i + 1 where interleaved, else i and dims/2 + i. */
static clef_tensor *turned(clef_tensor *x, clef_tensor *angle, int64_t dims, bool interleaved) {
    clef_shape s = clef_tensor_shape(x), paired = s;
    paired.rank = 5;
    paired.dim[3] = interleaved ? dims / 2 : 2;
    paired.dim[4] = interleaved ? 2 : dims / 2;
    int along = interleaved ? 4 : 3;
    clef_tensor *wide = clef__to_wide(clef_reshape(x, paired));
    clef_tensor *a = clef_squeeze(clef_slice(wide, along, 0, 1, 1), along);
    clef_tensor *b = clef_squeeze(clef_slice(wide, along, 1, 2, 1), along);
    clef_tensor *c = clef_to(clef_cos(angle), clef_tensor_dtype(wide)), *n = clef_to(clef_sin(angle), clef_tensor_dtype(wide));
    clef_tensor *both[] = {clef_sub(clef_mul(a, c), clef_mul(b, n)), clef_add(clef_mul(b, c), clef_mul(a, n))};
    return clef_to(clef_reshape(clef_stack(both, 2, along), s), clef_tensor_dtype(x));
}

clef_tensor *clef_rotary(clef_tensor *x, clef_tensor *position, const clef_rotary_options *options) {
    if (!CLEF__GIVEN("rotary", "x position?", x, position)) return NULL;
    clef_rotary_options o = options ? *options : (clef_rotary_options){0};
    clef_context *ctx = clef_tensor_context(x);
    clef_shape s = clef_tensor_shape(x);
    if (s.rank != 4) return clef__refuse(ctx, "rotary", CLEF_SHAPE, "x %s is not [b,h,t,d]", clef__shape_text(s));
    if (!clef__is_float(clef_tensor_dtype(x)))
        return clef__refuse(ctx, "rotary", CLEF_DTYPE, "x is %s, not a float", clef_dtype_name(clef_tensor_dtype(x)));
    int64_t dims = o.dims ? o.dims : s.dim[3];
    double base = o.base != 0 ? o.base : 10000, scaling = o.scaling != 0 ? o.scaling : 1;
    if (dims < 0 || dims % 2 || dims > s.dim[3] || !(base > 0) || !(scaling > 0))
        return clef__refuse(ctx, "rotary", CLEF_INVALID, "%lld dims of %lld must be even, base %g and scaling %g positive",
                            (long long)dims, (long long)s.dim[3], base, scaling);
    clef_tensor *f = o.frequencies && o.frequencies != CLEF_NONE ? clef_to(o.frequencies, angle_dtype(x))
                                                                 : frequencies_of(x, dims / 2, base, scaling);
    if (f && (clef_tensor_shape(f).rank != 1 || clef_numel(f) != dims / 2))
        return clef__refuse(ctx, "rotary", CLEF_SHAPE, "frequencies %s are not [dims/2] = [%lld]",
                            clef__shape_text(clef_tensor_shape(f)), (long long)(dims / 2));
    clef_tensor *place = places_of(x, position);
    if (!place || !f || dims == 0 || clef_numel(x) == 0) return place && f ? x : NULL;
    clef_tensor *y = turned(clef_slice(x, 3, 0, dims, 1), clef_mul(place, f), dims, o.interleaved);
    if (dims == s.dim[3]) return y;
    return clef_concat((clef_tensor *[]){y, clef_slice(x, 3, dims, s.dim[3], 1)}, 2, 3);
}

/* ---- ALiBi (Press et al. 2021) ---- */

clef_tensor *clef_alibi_slopes(clef_context *ctx, int64_t heads) {
    if (!ctx) return NULL;
    if (heads < 1 || heads > 1 << 20) return clef__refuse(ctx, "alibi_slopes", CLEF_INVALID, "%lld heads", (long long)heads);
    int64_t whole = 1;
    while (whole * 2 <= heads) whole *= 2;
    /* Of the first power of two: 2^(-8 i / n); the rest are every other one of twice as many. */
    clef_tensor *i = clef_arange(ctx, 1, (double)whole + 1, 1, CLEF_F32);
    clef_tensor *first = clef_exp(clef_mul_scalar(i, -8 * 0.693147180559945309 / (double)whole));
    if (whole == heads) return first;
    clef_tensor *odd = clef_arange(ctx, 1, 2 * (double)(heads - whole), 2, CLEF_F32);
    clef_tensor *rest = clef_exp(clef_mul_scalar(odd, -4 * 0.693147180559945309 / (double)whole));
    return clef_concat((clef_tensor *[]){first, rest}, 2, 0);
}
