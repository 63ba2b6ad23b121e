/* attention.c — scaled dot-product attention: options, checks, and its composition of products and a softmax. */
#include "ops/attention.h"
#include <math.h>

/* ---- composition: the definition, and the way that has gradients of any order ---- */

/* One number, or one for each item, as [n,1,1,1]. */
static clef_tensor *per_item(clef_tensor *x) { return clef_reshape(clef_to(x, CLEF_I32), CLEF_SHAPE(clef_numel(x), 1, 1, 1)); }

/* A query that stands farther away than this stands there: places are added up in i32. */
static const double FARTHEST = 1 << 30;

/* Of every query, the key that it stands at: [1 or b,1,tq,1]. */
static clef_tensor *query_places(clef_tensor *q, const clef__attention *a) {
    clef_tensor *i = clef_reshape(clef__count_beside(q, a->tq, CLEF_I32), CLEF_SHAPE(1, 1, a->tq, 1));
    return a->offset ? clef_add(i, clef_clamp(per_item(a->offset), -FARTHEST, FARTHEST)) : clef_add_scalar(i, (double)a->shift);
}

static clef_tensor *both(clef_tensor *a, clef_tensor *b) { return a ? clef_logical_and(a, b) : b; }

/* Which keys are seen, to be broadcast to [b,h,tq,tk]; NULL: all. */
static clef_tensor *seen_keys(clef_tensor *place, clef_tensor *j, const clef__attention *a) {
    clef_tensor *seen = NULL;
    if (a->causal) seen = both(seen, clef_le(j, place));
    if (a->window) seen = both(seen, clef_lt_scalar(clef_sub(place, j), (double)a->window));
    if (a->window && !a->causal) seen = both(seen, clef_lt_scalar(clef_sub(j, place), (double)a->window));
    if (a->lengths) seen = both(seen, clef_lt(j, per_item(a->lengths)));
    if (a->mask && !clef__is_float(clef_tensor_dtype(a->mask))) seen = both(seen, clef_to(a->mask, CLEF_BOOL));
    return seen;
}

/* scale·q·kᵀ [b,h,tq,tk].  Heads of q that share one of k lie one behind the other. */
static clef_tensor *scores_of(clef_tensor *q, clef_tensor *k, const clef__attention *a) {
    clef_tensor *grouped = clef_reshape(clef_mul_scalar(q, a->scale), CLEF_SHAPE(a->b, a->hk, a->h / a->hk * a->tq, a->d));
    clef_tensor *s = clef_reshape(clef_matmul(grouped, clef_transpose(k, 2, 3)), CLEF_SHAPE(a->b, a->h, a->tq, a->tk));
    return a->softcap > 0 ? clef_mul_scalar(clef_tanh(clef_div_scalar(s, a->softcap)), a->softcap) : s;
}

/* What is added to scores. */
static clef_tensor *biased(clef_tensor *s, clef_tensor *place, clef_tensor *j, const clef__attention *a) {
    clef_dtype dtype = clef_tensor_dtype(s);
    if (a->slopes) {
        clef_tensor *away = clef_to(clef_abs(clef_sub(place, j)), dtype);
        s = clef_sub(s, clef_mul(clef_reshape(clef_to(a->slopes, dtype), CLEF_SHAPE(a->h, 1, 1)), away));
    }
    return a->mask && clef__is_float(clef_tensor_dtype(a->mask)) ? clef_add(s, clef_to(a->mask, dtype)) : s;
}

/* softmax(s) along the keys, and 0 in rows where no key is seen. */
static clef_tensor *softmax_of_seen(clef_tensor *s) {
    clef_tensor *none = clef__number(clef_tensor_context(s), clef_tensor_dtype(s), 0);
    clef_tensor *blind = clef_eq_scalar(clef_max(clef_detach(s), (int[]){3}, 1, true), -INFINITY);
    return clef_where(blind, none, clef_softmax(clef_where(blind, none, s), 3));
}

clef_tensor *clef__attention_composed(clef_tensor *q, clef_tensor *k, clef_tensor *v, const clef__attention *a) {
    clef_dtype dtype = clef_tensor_dtype(q);
    q = clef__to_wide(q), k = clef__to_wide(k), v = clef__to_wide(v);
    clef_tensor *place = query_places(q, a), *j = clef__count_beside(q, a->tk, CLEF_I32);
    clef_tensor *s = biased(scores_of(q, k, a), place, j, a), *seen = seen_keys(place, j, a);
    clef_tensor *unseen = clef__number(clef_tensor_context(q), clef_tensor_dtype(q), -INFINITY);
    clef_tensor *p = seen || a->mask ? softmax_of_seen(seen ? clef_where(seen, s, unseen) : s) : clef_softmax(s, 3);
    if (a->dropout > 0) p = clef_dropout(p, a->dropout);
    clef_tensor *grouped = clef_reshape(p, CLEF_SHAPE(a->b, a->hk, a->h / a->hk * a->tq, a->tk));
    return clef_to(clef_reshape(clef_matmul(grouped, v), CLEF_SHAPE(a->b, a->h, a->tq, a->dv)), dtype);
}

/* ---- checks ---- */

static bool refuse(clef_tensor *q, clef_status status, const char *fact, clef_tensor *t) {
    clef__refuse(clef_tensor_context(q), "attention", status, "%s (%s %s, q %s)", fact, clef__shape_text(clef_tensor_shape(t)),
                 clef_dtype_name(clef_tensor_dtype(t)), clef__shape_text(clef_tensor_shape(q)));
    return false;
}

static bool shapes_fit(clef_tensor *q, clef_tensor *k, clef_tensor *v, clef__attention *a) {
    clef_shape sq = clef_tensor_shape(q), sk = clef_tensor_shape(k), sv = clef_tensor_shape(v);
    bool fits = sq.rank == 4 && sk.rank == 4 && sv.rank == 4 && sk.dim[0] == sq.dim[0] && sv.dim[0] == sq.dim[0] &&
                sk.dim[1] == sv.dim[1] && sk.dim[2] == sv.dim[2] && sk.dim[3] == sq.dim[3];
    fits = fits && (sk.dim[1] == sq.dim[1] || (sk.dim[1] > 0 && sq.dim[1] % sk.dim[1] == 0));
    if (!fits) {
        clef__refuse(clef_tensor_context(q), "attention", CLEF_SHAPE,
                     "q [b,h,tq,d], k [b,hk,tk,d] and v [b,hk,tk,dv] do not fit; h is a multiple of hk (q %s, k %s, v %s)",
                     clef__shape_text(sq), clef__shape_text(sk), clef__shape_text(sv));
        return false;
    }
    *a = (clef__attention){
        .b = sq.dim[0], .h = sq.dim[1], .hk = sk.dim[1], .tq = sq.dim[2], .tk = sk.dim[2], .d = sq.dim[3], .dv = sv.dim[3]};
    return true;
}

static bool dtypes_fit(clef_tensor *q, clef_tensor *k, clef_tensor *v) {
    clef_dtype dtype = clef_tensor_dtype(q);
    if (clef__is_float(dtype) && clef_tensor_dtype(k) == dtype && clef_tensor_dtype(v) == dtype) return true;
    clef__refuse(clef_tensor_context(q), "attention", CLEF_DTYPE,
                 "q, k and v need one floating dtype, not %s, %s and %s; use clef_to", clef_dtype_name(dtype),
                 clef_dtype_name(clef_tensor_dtype(k)), clef_dtype_name(clef_tensor_dtype(v)));
    return false;
}

/* NULL for an option that is not given. */
static clef_tensor *option(clef_tensor *t) { return t == CLEF_NONE ? NULL : t; }

static bool whole_numbers_fit(clef_tensor *q, clef_tensor *t, bool one, const char *fact, int64_t b) {
    if (!t) return true;
    clef_dtype dtype = clef_tensor_dtype(t);
    if (clef__is_float(dtype) || dtype == CLEF_BOOL) return refuse(q, CLEF_DTYPE, fact, t);
    clef_shape shape = clef_tensor_shape(t);
    int64_t n = clef_numel(t);
    return (shape.rank <= 1 && (n == b || (one && n == 1))) || refuse(q, CLEF_SHAPE, fact, t);
}

static bool mask_fits(clef_tensor *q, const clef__attention *a) {
    if (!a->mask) return true;
    clef_shape all = CLEF_SHAPE(a->b, a->h, a->tq, a->tk), both_shapes;
    clef_dtype dtype = clef_tensor_dtype(a->mask);
    if (!clef__is_float(dtype) && dtype != CLEF_BOOL && dtype != CLEF_U8)
        return refuse(q, CLEF_DTYPE, "mask is bool (true: seen) or a float that is added", a->mask);
    if (!clef__broadcast(all, clef_tensor_shape(a->mask), &both_shapes) || !clef_shape_equal(all, both_shapes))
        return refuse(q, CLEF_SHAPE, "mask does not broadcast to [b,h,tq,tk]", a->mask);
    return true;
}

static bool numbers_fit(clef_tensor *q, const clef__attention *a) {
    const char *fact = !(a->dropout >= 0 && a->dropout <= 1)        ? "dropout is no probability"
                       : a->window < 0                              ? "window is negative; 0 means none"
                       : !(a->softcap >= 0 && isfinite(a->softcap)) ? "softcap is negative or not finite; 0 means none"
                       : !isfinite(a->scale)                        ? "scale is not finite"
                                                                    : NULL;
    return !fact || refuse(q, CLEF_INVALID, fact, q);
}

/* As i32, without wrapping around. */
static clef_tensor *narrow(clef_tensor *t, double low, double high) {
    return t && clef_tensor_dtype(t) == CLEF_I64 ? clef_to(clef_clamp(t, low, high), CLEF_I32) : t;
}

static bool read_options(clef_tensor *q, const clef_attention_options *o, clef__attention *a) {
    clef_attention_options none = {0};
    if (!o) o = &none;
    a->causal = o->causal;
    a->shift = o->top_left ? 0 : a->tk - a->tq;
    a->window = o->window;
    a->scale = o->scale != 0 ? (double)o->scale : a->d > 0 ? 1 / sqrt((double)a->d) : 1;
    a->softcap = (double)o->softcap, a->dropout = (double)o->dropout;
    a->mask = option(o->mask), a->lengths = option(o->lengths), a->offset = option(o->offset), a->slopes = option(o->slopes);
    clef_tensor *given[] = {a->mask, a->lengths, a->offset, a->slopes};
    for (int i = 0; i < 4; i++)
        if (given[i] && !clef__given(clef_tensor_context(q), "attention", "option", &given[i], 1)) return false;
    if (a->slopes && (clef_tensor_shape(a->slopes).rank != 1 || clef_numel(a->slopes) != a->h))
        return refuse(q, CLEF_SHAPE, "slopes are [h], one for each head", a->slopes);
    if (!numbers_fit(q, a) || !mask_fits(q, a) || !whole_numbers_fit(q, a->lengths, false, "lengths are whole numbers [b]", a->b) ||
        !whole_numbers_fit(q, a->offset, true, "offset is whole numbers [1] or [b]", a->b))
        return false;
    clef_tensor *lengths = narrow(a->lengths, 0, INT32_MAX), *offset = narrow(a->offset, -FARTHEST, FARTHEST);
    bool made = !lengths == !a->lengths && !offset == !a->offset;
    a->lengths = lengths, a->offset = offset;
    return made;
}

static clef_tensor *attend(clef_tensor *q, clef_tensor *k, clef_tensor *v, const clef_attention_options *options) {
    clef__attention a;
    if (!q || !k || !v || !shapes_fit(q, k, v, &a) || !dtypes_fit(q, k, v) || !read_options(q, options, &a)) return NULL;
    return clef__attention_fits(q, &a) ? clef__attention_fused(q, k, v, &a) : clef__attention_composed(q, k, v, &a);
}

clef_tensor *clef_attention(clef_tensor *q, clef_tensor *k, clef_tensor *v, const clef_attention_options *options) {
    if (!CLEF__GIVEN("attention", "q k v", q, k, v)) return NULL;
    clef_context *ctx = clef_tensor_context(q);
    q = clef__autocast(q, CLEF__LOW_PRECISION), k = clef__autocast(k, CLEF__LOW_PRECISION);
    v = clef__autocast(v, CLEF__LOW_PRECISION);
    clef_dtype was = clef_set_autocast(ctx, CLEF_F32); /* scores are f32 */
    clef_tensor *y = attend(q, k, v, options);
    clef_set_autocast(ctx, was);
    return y;
}
