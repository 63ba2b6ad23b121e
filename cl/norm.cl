/* norm.cl — layer normalisation of rows x [rows, n]:  y = x̂ w + b,  x̂ = (x − mean) / √(var + eps),  or, not centred, by their root
   mean square:  y = x̂ w,  x̂ = x / √(Σx²/n + eps);  and the gradients.  The epilogue of y, or of
   the gradient dx, is done in the same store (epilogue.h).

   A row comes from memory once, and is held by the members of a team (HELD, lanes.h) or read again from the cache: its mean; then, about that, its variance and what the mean's
   rounding left out; then the results.  So neither a mean far from zero nor a first element far from the rest costs digits.
   Knobs: DT: f32 f16 bf16 f64, of x and y.  CENTRED.  AFFINE: 1: w is there, 2: and b, in the computing type AT.
   SUMS: which sums the gradients want (1: of the weight, 2: of the bias).  W.
   A team (lanes.h) shares a row.
   Checked with: CENTRED=0; AFFINE=0; AFFINE=2; CENTRED=0 AFFINE=0; SUMS=0; SUMS=1; SUMS=3 W=1 TEAM=64;
   AFFINE=2 SUMS=3 W=1 TEAM=64 HELD=4; CENTRED=0 W=1 TEAM=256 HELD=32. */
#ifndef DT
#define DT f32
#endif
#ifndef AT
#define AT CAT(WIDE_, DT)
#endif
#ifndef AFFINE
#define AFFINE 1
#endif
#ifndef CENTRED
#define CENTRED 1
#endif
#ifndef SUMS
#define SUMS 0
#endif
#ifndef W
#define W CLEF_LANES
#endif
#define CALLS_MATH
#include "common.h"
#define IN_PLACE
#include "args.h"
#include "norm.args"

#define A COMPUTE(DT)
#define V VEC(A, W)
/* Told even where an option limits registers: so a layer norm of 4096 x 4096 takes 65 µs of an H100, else 84. */
#define ROWS_SIZE(items) __attribute__((reqd_work_group_size(items, 1, 1)))
#include "lanes.h"
#define RESULT DT
#include "epilogue.h"

DEFINE_TEAM_FOLD(sum, PLUS)

/* Σ a and Σ a (x − m) of a row: a = g w, or x − m itself where g is NULL. */
typedef struct { A plain, far; } pair;
#define LOAD_W(lanes, i) LOAD(AT, lanes, w, i)
#if AFFINE
#define WEIGHTED(lanes, v, i) ((v) * LOAD_W(lanes, i))
#else
#define WEIGHTED(lanes, v, i) (v)
#endif
typedef struct { A mean, scale; } moments; /* scale: 1 / √(var + eps) */

#if HELD
/* Elements that are not there count as the mean. */
#define HOLD_X(k) A x##k = HAS(k) ? LOAD(DT, 1, x, PLACE(k)) : (A)0;
#define ADD_HELD(k) about += x##k;
#define ADD_HELD_PAIR(k)                                                                         \
    {                                                                                            \
        A far = HAS(k) ? x##k - about : (A)0;                                                    \
        s.plain += far;                                                                          \
        s.far = fma(far, far, s.far);                                                            \
    }
#if CENTRED
#define HELD_MEAN                                                                                \
    EACH_HELD(ADD_HELD)                                                                          \
    about = OF_TEAM(sum, about) / (A)n;
#define OFF OF_TEAM(sum, s.plain) / (A)n
#else
#define HELD_MEAN
#define OFF 0
#endif
/* moments r of the row, which stands in the variables then. */
#define HOLD_ROW                                                                                 \
    A about = 0;                                                                                 \
    moments r;                                                                                   \
    EACH_HELD(HOLD_X)                                                                            \
    HELD_MEAN                                                                                    \
    {                                                                                            \
        pair s = {0, 0};                                                                         \
        EACH_HELD(ADD_HELD_PAIR)                                                                 \
        A off = OFF, var = OF_TEAM(sum, s.far) / (A)n - off * off;                               \
        r.mean = about + off;                                                                    \
        r.scale = rsqrt((var < 0 ? (A)0 : var) + REAL(eps));                                     \
    }
#else
DEFINE_FOLD(add_lanes, PLUS)
#define OWN(lanes, i, far) far
#define GIVEN(lanes, i, far) WEIGHTED(lanes, LOAD(DT, lanes, g, i), i)
#define ADD(lanes, i, s0, s1, FACTOR)                                                            \
    {                                                                                            \
        VEC(A, lanes) far = LOAD(DT, lanes, x, i) - (VEC(A, lanes))(m), a = FACTOR(lanes, i, far); \
        s0 += a;                                                                                 \
        s1 = fma(a, far, s1);                                                                    \
    }
#define ROW_PAIR(FACTOR)                                                                         \
    {                                                                                            \
        V s0 = (V)((A)0), s1 = s0, t0 = s0, t1 = s0;                                             \
        A r0 = 0, r1 = 0;                                                                        \
        long i = MEMBER;                                                                         \
        for (; i + PACE + W <= n; i += 2 * PACE) {                                               \
            ADD(W, i, s0, s1, FACTOR)                                                            \
            ADD(W, i + PACE, t0, t1, FACTOR)                                                     \
        }                                                                                        \
        for (; i + W <= n; i += PACE) ADD(W, i, s0, s1, FACTOR)                                  \
        PLAIN_LOOP for (; i < n; i++) ADD(1, i, r0, r1, FACTOR)                                  \
        pair p = {OF_TEAM(sum, add_lanes(s0 + t0) + r0), OF_TEAM(sum, add_lanes(s1 + t1) + r1)}; \
        return p;                                                                                \
    }
static pair own_pair(__global const MEMORY(DT) *x, A m, long n TEAM_PARAMETER) ROW_PAIR(OWN)
static pair given_pair(__global const MEMORY(DT) *x, __global const MEMORY(DT) *g, __global const MEMORY(AT) *w, A m,
                       long n TEAM_PARAMETER) ROW_PAIR(GIVEN)

#if CENTRED
static A row_sum(__global const MEMORY(DT) *x, long n) {
    V s0 = (V)((A)0), s1 = s0, s2 = s0, s3 = s0;
    long i = MEMBER;
    for (; i + 3 * PACE + W <= n; i += 4 * PACE) {
        s0 += LOAD(DT, W, x, i);
        s1 += LOAD(DT, W, x, i + PACE);
        s2 += LOAD(DT, W, x, i + 2 * PACE);
        s3 += LOAD(DT, W, x, i + 3 * PACE);
    }
    PLAIN_LOOP for (; i + W <= n; i += PACE) s0 += LOAD(DT, W, x, i);
    A rest = 0;
    PLAIN_LOOP for (; i < n; i++) rest += LOAD(DT, 1, x, i);
    return add_lanes((s0 + s1) + (s2 + s3)) + rest;
}

static moments row_moments(__global const MEMORY(DT) *x, long n, A eps TEAM_PARAMETER) {
    A about = OF_TEAM(sum, row_sum(x, n)) / (A)n;
    pair s = own_pair(x, about, n TEAM_ARGUMENT);
    A off = s.plain / (A)n, var = s.far / (A)n - off * off; /* rounding may go below 0 */
    moments r = {about + off, rsqrt((var < 0 ? (A)0 : var) + eps)};
    return r;
}
#else
static moments row_moments(__global const MEMORY(DT) *x, long n, A eps TEAM_PARAMETER) {
    moments r = {0, rsqrt(own_pair(x, 0, n TEAM_ARGUMENT).far / (A)n + eps)};
    return r;
}
#endif
#endif

#if AFFINE > 1
#define AFFINELY(lanes, i, s) fma(s, LOAD_W(lanes, i), LOAD(AT, lanes, b, i))
#elif AFFINE
#define AFFINELY(lanes, i, s) ((s) * LOAD_W(lanes, i))
#else
#define AFFINELY(lanes, i, s) (s)
#endif
#define NORMALISE(lanes, i)                                                                      \
    {                                                                                            \
        VEC(A, lanes) s = (LOAD(DT, lanes, x, i) - (VEC(A, lanes))(r.mean)) * (VEC(A, lanes))(r.scale); \
        STORE(DT, lanes, y, i, EPILOGUE(lanes, AFFINELY(lanes, i, s), with, i));                 \
    }
#if HELD
#define PUT_HELD(k)                                                                              \
    if (HAS(k)) {                                                                                \
        A s = (x##k - r.mean) * r.scale;                                                         \
        STORE(DT, 1, y, PLACE(k), EPILOGUE(1, AFFINELY(1, PLACE(k), s), with, PLACE(k)));        \
    }
#endif
ROWS_KERNEL(normalise_rows, NORMALISE_ROWS_ARGS) {
    UNPACK(NORMALISE_ROWS_ARGS)
    TEAM_CELLS
    long u = FIRST_ROW, last = min(units, u + per);
    __attribute__((unused)) __global const MEMORY(AT) *w = w_base + w_offset, *b = b_base + b_offset;
    for (; u < last; u++) {
        __global const MEMORY(DT) *x = x_base + x_offset + u * n;
        __global MEMORY(DT) *y = y_base + y_offset + u * n;
        __global const MEMORY(DT) *with = extra + extra_offset + u * n;
#if HELD
        HOLD_ROW
        EACH_HELD(PUT_HELD)
#else
        moments r = row_moments(x, n, REAL(eps) TEAM_ARGUMENT);
        ALONG(i, 0, n, NORMALISE)
#endif
    }
}

/* dx = (a − Σa/n − x̂ Σ(a x̂)/n) / √(var + eps) with a = g w; without Σa/n where not centred. */
#define DIFFERENTIATE(lanes, i)                                                                  \
    {                                                                                            \
        VEC(A, lanes) far = LOAD(DT, lanes, x, i) - (VEC(A, lanes))(r.mean), a = GIVEN(lanes, i, far); \
        a = (VEC(A, lanes))(r.scale) * fma(far, (VEC(A, lanes))(slope), a - (VEC(A, lanes))(shift)); \
        STORE(DT, lanes, dx, i, EPILOGUE(lanes, a, with, i));                                    \
    }
/* Sums of g x̂ (SUMS & 1: those of the weight) and of g (SUMS & 2: of the bias) go on from row to row of a part; the first row
   begins them. */
#define GO_ON_WITH(lanes, i)                                                                     \
    if (!first) {                                                                                \
        if (SUMS & 1) s += LOAD(AT, lanes, dw, i);                                               \
        if (SUMS & 2) v += LOAD(AT, lanes, db, i);                                               \
    }                                                                                            \
    if (SUMS & 1) STORE(AT, lanes, dw, i, s);                                                    \
    if (SUMS & 2) STORE(AT, lanes, db, i, v);
#define GO_ON(lanes, i)                                                                          \
    {                                                                                            \
        VEC(A, lanes) v = LOAD(DT, lanes, g, i);                                                 \
        VEC(A, lanes) s = v * ((LOAD(DT, lanes, x, i) - (VEC(A, lanes))(r.mean)) * (VEC(A, lanes))(r.scale)); \
        GO_ON_WITH(lanes, i)                                                                     \
    }

#if HELD
#define HOLD_G(k)                                                                                \
    A g##k = HAS(k) ? LOAD(DT, 1, g, PLACE(k)) : (A)0;                                           \
    if (HAS(k)) {                                                                                \
        A a = WEIGHTED(1, g##k, PLACE(k));                                                       \
        s.plain += a;                                                                            \
        s.far = fma(a, x##k - r.mean, s.far);                                                    \
    }
#define PUT_HELD_SLOPE(k)                                                                        \
    if (HAS(k)) {                                                                                \
        A a = WEIGHTED(1, g##k, PLACE(k));                                                       \
        a = r.scale * fma(x##k - r.mean, slope, a - shift);                                      \
        STORE(DT, 1, dx, PLACE(k), EPILOGUE(1, a, with, PLACE(k)));                              \
    }
#define GO_ON_HELD(k)                                                                            \
    if (HAS(k)) {                                                                                \
        A v = g##k, s = v * ((x##k - r.mean) * r.scale);                                         \
        GO_ON_WITH(1, PLACE(k))                                                                  \
    }
#endif

/* A unit is a part: `part` rows, and their own sums dw and db, each [parts, n]. */
ROWS_KERNEL(differentiate_rows, DIFFERENTIATE_ROWS_ARGS) {
    UNPACK(DIFFERENTIATE_ROWS_ARGS)
    TEAM_CELLS
    long u = FIRST_ROW, last = min(units, u + per);
    __global const MEMORY(AT) *w = w_base + w_offset;
    for (; u < last; u++) {
        __global MEMORY(AT) *dw = dw_base + dw_offset + u * n, *db = db_base + db_offset + u * n;
        for (long row = u * part; row < min(rows, (u + 1) * part); row++) {
            __global const MEMORY(DT) *x = x_base + x_offset + row * n, *g = g_base + g_offset + row * n;
            __global MEMORY(DT) *dx = dx_base + dx_offset + row * n;
            __global const MEMORY(DT) *with = extra + extra_offset + row * n;
#if HELD
            HOLD_ROW
            pair s = {0, 0};
            EACH_HELD(HOLD_G)
            s.plain = OF_TEAM(sum, s.plain), s.far = OF_TEAM(sum, s.far);
#else
            moments r = row_moments(x, n, REAL(eps) TEAM_ARGUMENT);
            pair s = given_pair(x, g, w, r.mean, n TEAM_ARGUMENT);
#endif
            A shift = CENTRED ? s.plain / (A)n : (A)0, slope = -s.far * r.scale * r.scale / (A)n;
            bool first = row == u * part;
#if HELD
            EACH_HELD(PUT_HELD_SLOPE)
            if (SUMS) { EACH_HELD(GO_ON_HELD) }
#else
            ALONG(i, 0, n, DIFFERENTIATE)
            if (SUMS) ALONG(i, 0, n, GO_ON)
#endif
        }
    }
}
