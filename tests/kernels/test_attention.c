/* test_attention.c — attention with every option, at random sizes, and its gradients, against the definition in double.
   ctest: cost=80 */
#include "support/numbers.h"

/* ---- a random case ---- */

typedef enum { NO_MASK, BOOL_MASK, FLOAT_MASK } mask_kind;
typedef struct trial {
    int b, h, hk, tq, tk, d, dv;
    mask_kind mask;
    bool mask_of_rows, causal, top_left, lengths, slopes, forward_only;
    int offsets, window; /* 0, 1 or b numbers */
    double scale, softcap;
    clef_dtype dtype;
} trial;

/* What the case computes with, as stored; and gradients, in double. */
typedef struct host {
    double *q, *k, *v, *g, *mask, *lengths, *offset, *slopes;
    double *y, *dq, *dk, *dv, *dmask;
} host;

static uint64_t dice = 1;
static int roll(int n) {
    dice = dice * 6364136223846793005u + 1442695040888963407u;
    return (int)((dice >> 33) % (uint64_t)n);
}

static trial random_trial(clef_dtype dtype, int longest) {
    trial c = {.b = 1 + roll(3), .hk = 1 + roll(3), .dtype = dtype};
    c.h = c.hk * (1 + roll(3));
    c.tq = roll(4) ? 1 + roll(longest) : 1;
    c.tk = roll(3) ? 1 + roll(longest) : c.tq;
    c.d = roll(3) ? 1 + roll(40) : 8 << roll(4);
    c.dv = roll(2) ? c.d : 1 + roll(40);
    c.mask = (mask_kind)roll(3), c.mask_of_rows = roll(2);
    c.causal = roll(2), c.top_left = roll(4) == 0;
    c.lengths = roll(3) == 0, c.slopes = roll(4) == 0;
    c.offsets = roll(4) == 0 ? (roll(2) ? 1 : c.b) : 0;
    c.window = roll(4) == 0 ? 1 + roll(12) : 0;
    c.scale = roll(3) ? 0 : 0.3, c.softcap = roll(4) == 0 ? 1.5 : 0;
    return c;
}

/* ---- the definition ---- */

static int64_t mask_at(const trial *c, int b, int h, int i, int j) {
    return c->mask_of_rows ? (int64_t)i * c->tk + j : (((int64_t)b * c->h + h) * c->tq + i) * c->tk + j;
}

/* The score before what is added, and with it; -inf where the key is not seen. */
static double score(const trial *c, const host *x, int b, int h, int i, int j, double *slope) {
    const double *q = x->q + (((int64_t)b * c->h + h) * c->tq + i) * c->d;
    const double *k = x->k + (((int64_t)b * c->hk + h / (c->h / c->hk)) * c->tk + j) * c->d;
    double s = 0, scale = c->scale != 0 ? (double)(float)c->scale : 1 / sqrt(c->d);
    for (int e = 0; e < c->d; e++) s += q[e] * k[e];
    s *= scale;
    *slope = scale;
    if (c->softcap > 0) {
        double t = tanh(s / c->softcap);
        s = t * c->softcap;
        *slope *= 1 - t * t;
    }
    double place = i + (c->offsets ? x->offset[c->offsets > 1 ? b : 0] : c->top_left ? 0 : c->tk - c->tq);
    bool seen = (!c->causal || j <= place) && (!c->window || fabs(place - j) < c->window) && (!c->lengths || j < x->lengths[b]);
    if (c->mask == BOOL_MASK) seen = seen && x->mask[mask_at(c, b, h, i, j)] != 0;
    if (c->slopes) s -= x->slopes[h] * fabs(place - j);
    if (c->mask == FLOAT_MASK) s += x->mask[mask_at(c, b, h, i, j)];
    return seen ? s : -INFINITY;
}

/* One row: its weights p, its output, and what it adds to the gradients. */
static void reference_row(const trial *c, host *x, int b, int h, int i, double *p, double *slope) {
    int64_t row = ((int64_t)b * c->h + h) * c->tq + i, head = (int64_t)b * c->hk + h / (c->h / c->hk);
    double top = -INFINITY, sum = 0, dot = 0, *y = x->y + row * c->dv;
    const double *g = x->g + row * c->dv;
    for (int j = 0; j < c->tk; j++) top = fmax(top, p[j] = score(c, x, b, h, i, j, &slope[j]));
    for (int j = 0; j < c->tk; j++) sum += p[j] = top == -INFINITY ? 0 : exp(p[j] - top);
    for (int j = 0; j < c->tk; j++) p[j] = sum > 0 ? p[j] / sum : 0;
    for (int e = 0; e < c->dv; e++) {
        y[e] = 0;
        for (int j = 0; j < c->tk; j++) y[e] += p[j] * x->v[(head * c->tk + j) * c->dv + e];
        dot += y[e] * g[e];
    }
    for (int j = 0; j < c->tk; j++) {
        double dp = 0;
        for (int e = 0; e < c->dv; e++) {
            dp += g[e] * x->v[(head * c->tk + j) * c->dv + e];
            x->dv[(head * c->tk + j) * c->dv + e] += p[j] * g[e];
        }
        double ds = p[j] * (dp - dot);
        x->dmask[mask_at(c, b, h, i, j)] += ds;
        for (int e = 0; e < c->d; e++) {
            x->dq[row * c->d + e] += ds * slope[j] * x->k[(head * c->tk + j) * c->d + e];
            x->dk[(head * c->tk + j) * c->d + e] += ds * slope[j] * x->q[row * c->d + e];
        }
    }
}

static void reference(const trial *c, host *x) {
    double *p = malloc((size_t)c->tk * 2 * sizeof *p);
    for (int b = 0; b < c->b; b++)
        for (int h = 0; h < c->h; h++)
            for (int i = 0; i < c->tq; i++) reference_row(c, x, b, h, i, p, p + c->tk);
    free(p);
}

/* ---- the library ---- */

static clef_tensor *wanted(clef_context *ctx, clef_shape shape, clef_dtype dtype, double **x, uint64_t salt) {
    *x = spread(clef_shape_numel(shape), -1.5, 1.5, salt);
    return parameter(tensor_of(ctx, shape, dtype, *x));
}

static clef_tensor *mask_of(clef_context *ctx, const trial *c, host *x) {
    clef_shape shape = c->mask_of_rows ? CLEF_SHAPE(c->tq, c->tk) : CLEF_SHAPE(c->b, c->h, c->tq, c->tk);
    int64_t n = clef_shape_numel(shape);
    x->mask = spread(n, -2, 2, 9);
    for (int64_t i = 0; i < n; i++) {
        bool hidden = roll(3) == 0;
        if (c->mask == BOOL_MASK) x->mask[i] = !hidden;
        else if (hidden) x->mask[i] = -INFINITY;
    }
    clef_tensor *t = tensor_of(ctx, shape, c->mask == BOOL_MASK ? CLEF_BOOL : CLEF_F32, x->mask);
    return c->mask == BOOL_MASK ? clef_keep(t) : parameter(t);
}

static clef_tensor *whole(clef_context *ctx, int n, int low, int high, double **x) {
    *x = malloc((size_t)n * sizeof **x);
    for (int i = 0; i < n; i++) (*x)[i] = low + roll(high - low + 1);
    return tensor_of(ctx, CLEF_SHAPE(n), roll(2) ? CLEF_I32 : CLEF_I64, *x);
}

static clef_attention_options options_of(clef_context *ctx, const trial *c, host *x) {
    clef_attention_options o = {
        .causal = c->causal, .top_left = c->top_left, .scale = (float)c->scale, .softcap = (float)c->softcap, .window = c->window};
    if (c->mask) o.mask = mask_of(ctx, c, x);
    if (c->lengths) o.lengths = whole(ctx, c->b, 0, c->tk, &x->lengths);
    if (c->offsets) o.offset = whole(ctx, c->offsets, -2, c->tk, &x->offset);
    if (c->slopes) {
        x->slopes = spread(c->h, 0, 0.5, 4);
        o.slopes = tensor_of(ctx, CLEF_SHAPE(c->h), CLEF_F32, x->slopes);
    }
    return o;
}

static const char *text_of(const trial *c) {
    static char text[256];
    snprintf(text, sizeof text, "%s b%d h%d/%d t%d,%d d%d,%d mask %d%s%s%s%s offsets %d window %d scale %g cap %g",
             clef_dtype_name(c->dtype), c->b, c->h, c->hk, c->tq, c->tk, c->d, c->dv, (int)c->mask,
             c->mask_of_rows ? " of rows" : "", c->causal ? " causal" : "", c->top_left ? " top left" : "",
             c->lengths ? " lengths" : "", c->offsets, c->window, c->scale, c->softcap);
    return text;
}

static void release(host *x) {
    double *all[] = {x->q, x->k, x->v, x->g, x->mask, x->lengths, x->offset, x->slopes, x->y, x->dq, x->dk, x->dv, x->dmask};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

/* Twice: planned, and replayed. */
static void check(clef_context *ctx, const trial *c) {
    host x = {0};
    clef_shape sq = CLEF_SHAPE(c->b, c->h, c->tq, c->d), sk = CLEF_SHAPE(c->b, c->hk, c->tk, c->d);
    clef_shape sv = CLEF_SHAPE(c->b, c->hk, c->tk, c->dv), sy = CLEF_SHAPE(c->b, c->h, c->tq, c->dv);
    clef_tensor *in[4] = {wanted(ctx, sq, c->dtype, &x.q, 1), wanted(ctx, sk, c->dtype, &x.k, 2),
                          wanted(ctx, sv, c->dtype, &x.v, 3)};
    x.g = spread(clef_shape_numel(sy), -1, 1, 5);
    clef_tensor *g = clef_keep(tensor_of(ctx, sy, c->dtype, x.g));
    clef_attention_options o = options_of(ctx, c, &x);
    if (o.lengths) clef_keep(o.lengths);
    if (o.offset) clef_keep(o.offset);
    if (o.slopes) clef_keep(o.slopes);
    in[3] = o.mask;
    x.y = calloc((size_t)clef_shape_numel(sy) + 1, sizeof(double)), x.dq = calloc((size_t)clef_shape_numel(sq) + 1, sizeof(double));
    x.dk = calloc((size_t)clef_shape_numel(sk) + 1, sizeof(double)),
    x.dv = calloc((size_t)clef_shape_numel(sv) + 1, sizeof(double));
    x.dmask = calloc((size_t)c->b * (size_t)c->h * (size_t)c->tq * (size_t)c->tk + 1, sizeof(double));
    reference(c, &x);
    double store = c->dtype == CLEF_F32 || c->dtype == CLEF_F64 ? 0 : rounding_of(c->dtype);
    for (int again = 0; again < 2; again++) {
        clef_tensor *y = clef_attention(in[0], in[1], in[2], &o), *dx[4];
        int n = c->mask == FLOAT_MASK ? 4 : 3;
        expect_numbers(y, x.y, 2e-6 + store / 4, 4e-6 + 2 * store, text_of(c));
        clef_end_step(ctx);
        if (c->forward_only) continue;
        y = clef_attention(in[0], in[1], in[2], &o);
        cr_assert(clef_grad(y, g, in, n, false, dx) == CLEF_OK, "%s", clef_error(ctx));
        cr_assert(clef_eval_all(dx, n) == CLEF_OK, "%s", clef_error(ctx)); /* in one plan */
        const double *want[] = {x.dq, x.dk, x.dv, x.dmask};
        for (int i = 0; i < n; i++) expect_numbers(dx[i], want[i], 2e-5 + 16 * store, 2e-5 + 4 * store, text_of(c));
        clef_end_step(ctx);
    }
    clef_tensor *kept[] = {in[0], in[1], in[2], g, o.mask, o.lengths, o.offset, o.slopes};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (kept[i]) clef_release(kept[i]);
    release(&x);
    clef_end_step(ctx);
}

Test(attention, random_cases) {
    clef_context *ctx = open_seeded(1);
    const char *all = getenv("CLEF_TEST_ALL");
    int n = fewest_kernels() ? 1 : few_kernels() ? 2 : test_small() ? 6 : all ? 400 : 16;
    for (int i = 0; i < n; i++) {
        trial c = random_trial(float_dtypes[i % 4 ? 0 : i / 4 % float_dtypes_here(ctx)], test_small() ? 9 : 40);
        check(ctx, &c);
    }
    clef_close(ctx);
}

/* Where not all gradients are wanted, those that are have the same bits. */
Test(attention, some_gradients) {
    if (fewest_kernels()) return;
    clef_context *ctx = open_seeded(1);
    enum { H = 4, HK = 2, TQ = 21, TK = 37, D = 10 };
    clef_shape sq = CLEF_SHAPE(1, H, TQ, D), sk = CLEF_SHAPE(1, HK, TK, D);
    clef_attention_options o = {.causal = true, .window = 9};
    clef_tensor *in[] = {parameter(clef_randn(ctx, sq)), parameter(clef_randn(ctx, sk)), parameter(clef_randn(ctx, sk))};
    double *of[8][3] = {{NULL}}; /* of[i]: where those of the bits of i are wanted */
    clef_tensor *g = clef_keep(clef_randn(ctx, sq));
    for (int wanted = few_kernels() ? 6 : 1; wanted < 8; wanted++) {
        clef_tensor *some[3], *dx[3];
        int at[3], n = 0;
        for (int i = 0; i < 3; i++)
            if (wanted >> i & 1) at[n] = i, some[n++] = in[i];
        cr_assert(clef_grad(clef_attention(in[0], in[1], in[2], &o), g, some, n, false, dx) == CLEF_OK, "%s", clef_error(ctx));
        cr_assert(clef_eval_all(dx, n) == CLEF_OK, "%s", clef_error(ctx)); /* in one plan */
        for (int i = 0; i < n; i++) of[wanted][at[i]] = numbers(dx[i]);
        clef_end_step(ctx);
    }
    for (int i = 0; i < 3 * 8; i++) {
        double *some = of[i / 3][i % 3], *all = of[7][i % 3];
        size_t bytes = (size_t)clef_numel(in[i % 3]) * sizeof *all;
        cr_expect(!some || memcmp(some, all, bytes) == 0, "gradient %d where %d are wanted", i % 3, i / 3);
    }
    for (int i = 0; i < 3 * 8; i++) free(of[i / 3][i % 3]);
    clef_close(ctx);
}

/* Few queries beside many keys, whose pieces are added up afterwards; every option. */
Test(attention, few_queries) {
    setenv("CLEF_ROWS", "split", 1);
    clef_context *ctx = open_seeded(1);
    int n = few_kernels() ? 1 : test_small() ? 4 : getenv("CLEF_TEST_ALL") ? 100 : 10;
    for (int i = 0; i < n; i++) {
        trial c = random_trial(CLEF_F32, 3);
        c.b = 1 + roll(2), c.hk = 1 + i % 2, c.h = c.hk * (1 + roll(5)), c.tq = 1 + i % 3;
        c.tk = test_small() ? 300 + roll(100) : 700 + roll(1500);
        if (c.window) c.window *= 20;
        if (i < 3) c.d = c.dv = 64 << (i % 2);
        c.forward_only = fewest_kernels(); /* only that is split */
        check(ctx, &c);
    }
    clef_close(ctx);
}

Test(attention, empty) {
    clef_context *ctx = open_seeded(1);
    trial none[] = {{.b = 2, .h = 2, .hk = 1, .tq = 3, .tk = 0, .d = 4, .dv = 4, .causal = true},
                    {.b = 2, .h = 2, .hk = 1, .tq = 0, .tk = 3, .d = 4, .dv = 4},
                    {.b = 0, .h = 2, .hk = 1, .tq = 3, .tk = 3, .d = 4, .dv = 4},
                    {.b = 1, .h = 2, .hk = 2, .tq = 3, .tk = 3, .d = 4, .dv = 0}};
    for (size_t i = 0; i < (fewest_kernels() ? 1 : sizeof none / sizeof *none); i++) check(ctx, &none[i]);
    clef_close(ctx);
}

Test(attention, refuses) {
    clef_context *ctx = open_seeded(1);
    clef_tensor *q = clef_zeros(ctx, CLEF_SHAPE(1, 4, 5, 8), CLEF_F32), *k = clef_zeros(ctx, CLEF_SHAPE(1, 3, 5, 8), CLEF_F32);
    cr_expect(!clef_attention(q, k, k, NULL) && clef_error_status(ctx) == CLEF_SHAPE && strstr(clef_error(ctx), "multiple of hk"));
    clef_clear_error(ctx);
    clef_attention_options wrong[] = {{.mask = clef_zeros(ctx, CLEF_SHAPE(5, 6), CLEF_F32)},
                                      {.mask = clef_zeros(ctx, CLEF_SHAPE(5, 5), CLEF_I32)},
                                      {.lengths = clef_zeros(ctx, CLEF_SHAPE(2), CLEF_I32)},
                                      {.offset = clef_zeros(ctx, CLEF_SHAPE(1), CLEF_F32)},
                                      {.slopes = clef_zeros(ctx, CLEF_SHAPE(3), CLEF_F32)},
                                      {.dropout = 2},
                                      {.window = -1},
                                      {.softcap = -1},
                                      {.softcap = INFINITY}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        cr_expect(!clef_attention(q, q, q, &wrong[i]) && strstr(clef_error(ctx), "attention: "), "%zu", i);
        clef_clear_error(ctx);
    }
    clef_close(ctx);
}

/* Lengths and offsets beyond i32 are as far as can be, not somewhere else. */
Test(attention, far_lengths_and_offsets) {
    clef_context *ctx = open_seeded(1);
    static const clef_dtype dtypes[] = {CLEF_F32, CLEF_F64};
    int64_t all[] = {(int64_t)1 << 32, INT64_MAX}, far = (int64_t)1 << 32;
    int32_t wide = INT32_MAX;
    for (int i = 0; i < (few_kernels() ? 1 : 2); i++) {
        clef_tensor *q = clef_keep(clef_to(clef_rand(ctx, CLEF_SHAPE(2, 2, 3, 8)), dtypes[i]));
        if (!q) break; /* no f64 here */
        double *plain = numbers(clef_attention(q, q, q, NULL));
        for (int j = 0; j < (few_kernels() ? 1 : 3); j++) {
            clef_attention_options o = {0};
            if (j == 0) o.lengths = clef_from_host(ctx, CLEF_SHAPE(2), CLEF_I64, all);
            else
                o.causal = true, o.offset = j == 1 ? clef_from_host(ctx, CLEF_SHAPE(1), CLEF_I64, &far)
                                                   : clef_from_host(ctx, CLEF_SHAPE(1), CLEF_I32, &wide);
            double *y = numbers(clef_attention(q, q, q, &o));
            for (int k = 0; k < 96; k++) cr_expect_float_eq(y[k], plain[k], 1e-6, "%s %d", clef_dtype_name(dtypes[i]), j);
            free(y);
        }
        free(plain);
        clef_release(q);
    }
    clef_clear_error(ctx);
    clef_close(ctx);
}

/* By x, which are released: of the sum of the squares of the gradients of Σ y². */
static void gradients_of_gradients(clef_context *ctx, clef_tensor *y, clef_tensor *x[3], double *all[3]) {
    clef_tensor *dx[3], *ddx[3];
    cr_assert_eq(clef_grad(clef_sum(clef_square(y), NULL, 0, false), CLEF_NONE, x, 3, true, dx), CLEF_OK, "%s", clef_error(ctx));
    clef_tensor *sum = clef_sum(clef_square(dx[0]), NULL, 0, false);
    for (int i = 1; i < 3; i++) sum = clef_add(sum, clef_sum(clef_square(dx[i]), NULL, 0, false));
    cr_assert_eq(clef_grad(sum, CLEF_NONE, x, 3, false, ddx), CLEF_OK, "%s", clef_error(ctx));
    for (int i = 0; i < 3; i++) all[i] = numbers(ddx[i]), clef_release(x[i]);
}

/* Where the kernel of gradients is differentiated again: what the composition has.  one: q, k and v are not independent. */
static void second_derivatives(clef_context *ctx, bool composed, bool one, double *all[3]) {
    clef_tensor *x[3];
    for (int i = 0; i < 3; i++) {
        double *v = spread(24, -1, 1, 3 + (uint64_t)i);
        x[i] = clef_require_grad(clef_keep(tensor_of(ctx, CLEF_SHAPE(1, 1, 3, 8), CLEF_F32, v)), true);
        free(v);
    }
    clef_tensor *q = x[0], *k = one ? x[0] : x[1], *v = one ? clef_add(clef_mul_scalar(x[0], 1.5), x[2]) : x[2];
    clef_tensor *scores = clef_mul_scalar(clef_matmul(q, clef_transpose(k, 2, 3)), 1 / sqrt(8));
    clef_tensor *y = composed ? clef_matmul(clef_softmax(scores, 3), v) : clef_attention(q, k, v, NULL);
    y = clef_add(y, clef_mul(x[1], y));
    gradients_of_gradients(ctx, y, x, all);
}
Test(attention, differentiates_twice) {
    if (few_kernels()) cr_skip_test("many kernels: not where each takes long to compile");
    clef_context *ctx = open_seeded(1);
    double *fused[3], *composed[3];
    for (int one = 0; one < 2; one++) { /* q, k and v of their own, or one made from the other */
        second_derivatives(ctx, false, one, fused);
        second_derivatives(ctx, true, one, composed);
        for (int i = 0; i < 3; i++) {
            for (int k = 0; k < 24; k++)
                cr_expect_float_eq(fused[i][k], composed[i][k], 2e-4 * (1 + fabs(composed[i][k])), "%d %d %d", one, i, k);
            free(fused[i]), free(composed[i]);
        }
    }
    clef_close(ctx);
}

enum { SECOND_B = 2, SECOND_H = 2, SECOND_Q = 3, SECOND_K = 5, SECOND_SCORES = SECOND_B * SECOND_H * SECOND_Q * SECOND_K };
typedef enum second { CAUSAL, TOP_LEFT, MASK, ADDED, LENGTHS, WINDOW, OFFSET, SLOPES, SOFTCAP, SCALE, SHARED_KEYS, SECONDS } second;

/* What the option adds to a score; far below all others where the key is not seen. */
static double second_bias(second what, int b, int h, int i, int j) {
    const double unseen = -1e30;
    int shift = SECOND_K - SECOND_Q;
    switch (what) {
    case CAUSAL: return j > i + shift ? unseen : 0;
    case TOP_LEFT: return j > i ? unseen : 0;
    case MASK: return (i + j) % 3 == 1 ? unseen : 0;
    case ADDED: return 0.3 * i - 0.1 * j * j;
    case LENGTHS: return j >= 3 + b ? unseen : 0;
    case WINDOW: return abs(i + shift - j) >= 2 ? unseen : 0;
    case OFFSET: return j > i + 1 + b ? unseen : 0;
    case SLOPES: return -(h + 1) * 0.25 * abs(i + shift - j);
    default: return 0;
    }
}

static clef_attention_options second_options(clef_context *ctx, second what) {
    clef_attention_options o = {.causal = what == CAUSAL || what == TOP_LEFT || what == OFFSET, .top_left = what == TOP_LEFT};
    double mask[SECOND_Q * SECOND_K], lengths[] = {3, 4}, offset[] = {1, 2}, slopes[] = {0.25, 0.5};
    for (int n = 0; n < SECOND_Q * SECOND_K; n++) {
        double bias = second_bias(what, 0, 0, n / SECOND_K, n % SECOND_K);
        mask[n] = what == MASK ? bias == 0 : bias;
    }
    if (what == MASK || what == ADDED)
        o.mask = tensor_of(ctx, CLEF_SHAPE(SECOND_Q, SECOND_K), what == MASK ? CLEF_BOOL : CLEF_F32, mask);
    if (what == LENGTHS) o.lengths = tensor_of(ctx, CLEF_SHAPE(2), CLEF_I64, lengths);
    if (what == OFFSET) o.offset = tensor_of(ctx, CLEF_SHAPE(2), CLEF_I32, offset);
    if (what == SLOPES) o.slopes = tensor_of(ctx, CLEF_SHAPE(2), CLEF_F32, slopes);
    if (what == WINDOW) o.window = 2;
    if (what == SOFTCAP) o.softcap = 0.7f;
    if (what == SCALE) o.scale = 1.3f;
    return o;
}

/* By hand, with keys of all heads. */
static clef_tensor *second_by_hand(clef_context *ctx, second what, clef_tensor *q, clef_tensor *k, clef_tensor *v) {
    double bias[SECOND_SCORES];
    for (int n = 0; n < SECOND_SCORES; n++)
        bias[n] = second_bias(what, n / (SECOND_H * SECOND_Q * SECOND_K), n / (SECOND_Q * SECOND_K) % SECOND_H,
                              n / SECOND_K % SECOND_Q, n % SECOND_K);
    clef_tensor *s = clef_mul_scalar(clef_matmul(q, clef_transpose(k, 2, 3)), what == SCALE ? (double)1.3f : 1 / sqrt(8));
    if (what == SOFTCAP) s = clef_mul_scalar(clef_tanh(clef_div_scalar(s, (double)0.7f)), (double)0.7f);
    s = clef_add(s, tensor_of(ctx, CLEF_SHAPE(SECOND_B, SECOND_H, SECOND_Q, SECOND_K), CLEF_F32, bias));
    return clef_matmul(clef_softmax(s, 3), v);
}

static void second_with(clef_context *ctx, second what, bool by_hand, double *all[3]) {
    const int heads[] = {SECOND_H, what == SHARED_KEYS ? 1 : SECOND_H, what == SHARED_KEYS ? 1 : SECOND_H};
    clef_tensor *x[3], *wide[3];
    for (int i = 0; i < 3; i++) {
        int rows = i ? SECOND_K : SECOND_Q;
        double *v = spread(SECOND_B * heads[i] * rows * 8, -1, 1, 3 + (uint64_t)i);
        x[i] = clef_require_grad(clef_keep(tensor_of(ctx, CLEF_SHAPE(SECOND_B, heads[i], rows, 8), CLEF_F32, v)), true);
        wide[i] = clef_expand(x[i], CLEF_SHAPE(SECOND_B, SECOND_H, rows, 8));
        free(v);
    }
    clef_attention_options o = second_options(ctx, what);
    clef_tensor *y = by_hand ? second_by_hand(ctx, what, wide[0], wide[1], wide[2]) : clef_attention(x[0], x[1], x[2], &o);
    gradients_of_gradients(ctx, y, x, all);
}

Test(attention, differentiates_twice_with_options) {
    if (few_kernels()) cr_skip_test("many kernels: not where each takes long to compile");
    clef_context *ctx = open_seeded(1);
    double *fused[3], *by_hand[3];
    for (int what = 0; what < SECONDS; what++) {
        second_with(ctx, (second)what, false, fused);
        second_with(ctx, (second)what, true, by_hand);
        for (int i = 0; i < 3; i++) {
            int n = SECOND_B * (i && what == SHARED_KEYS ? 1 : SECOND_H) * (i ? SECOND_K : SECOND_Q) * 8;
            for (int k = 0; k < n; k++)
                cr_expect_float_eq(fused[i][k], by_hand[i][k], 2e-4 * (1 + fabs(by_hand[i][k])), "option %d, input %d, %d: %g %g",
                                   what, i, k, fused[i][k], by_hand[i][k]);
            free(fused[i]), free(by_hand[i]);
        }
    }
    clef_close(ctx);
}

/* ---- positions ---- */

Test(attention, rotary) {
    clef_context *ctx = open_seeded(1);
    enum { B = 2, H = 3, T = 7, D = 10 };
    for (int kind = 0; kind < 8; kind++) {
        bool interleaved = kind & 1;
        int dims = kind & 2 ? 6 : D, places = kind / 2 % 4, first = 5;
        double *x = spread(B * H * T * D, -1, 1, 3), want[B * H * T * D], place[B * T];
        for (int i = 0; i < B * T; i++) place[i] = places == 0 ? i % T : places == 1 ? first + i % T : (i * 7) % 23;
        if (places == 2)
            for (int i = T; i < B * T; i++) place[i] = place[i - T];
        clef_tensor *t = tensor_of(ctx, CLEF_SHAPE(B, H, T, D), CLEF_F32, x), *at = CLEF_NONE;
        double one = first;
        if (places == 1) at = tensor_of(ctx, CLEF_SHAPE(1), CLEF_I64, &one);
        if (places == 2) at = tensor_of(ctx, CLEF_SHAPE(T), CLEF_I32, place);
        if (places == 3) at = tensor_of(ctx, CLEF_SHAPE(B, T), CLEF_I32, place);
        for (int r = 0; r < B * H * T; r++)
            for (int e = 0; e < D; e++) {
                int half = dims / 2, pair = interleaved ? e / 2 : e % half;
                bool second = interleaved ? e % 2 : e >= half;
                int other = interleaved ? e ^ 1 : second ? e - half : e + half;
                double turn = place[r / (H * T) * T + r % T] * pow(500, -2.0 * pair / dims);
                want[r * D + e] =
                    e >= dims ? x[r * D + e] : x[r * D + e] * cos(turn) + (second ? 1 : -1) * x[r * D + other] * sin(turn);
            }
        clef_rotary_options o = {.base = 500, .dims = dims, .interleaved = interleaved};
        expect_numbers(clef_rotary(t, at, &o), want, 4e-6, 0, "rotary");
        clef_tensor *fine = kind < 2 && !few_kernels() && has_f64(ctx) ? tensor_of(ctx, CLEF_SHAPE(B, H, T, D), CLEF_F64, x) : NULL;
        if (fine) expect_numbers(clef_rotary(fine, at, &o), want, 1e-13, 0, "rotary in f64");
        free(x);
    }
    clef_close(ctx);
}

/* The slopes that the paper's own function gives for 6 heads. */
Test(attention, alibi) {
    clef_context *ctx = open_seeded(1);
    const double want[] = {0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125};
    expect_numbers(clef_alibi_slopes(ctx, 6), want, 0, 1e-6, "slopes");
    clef_close(ctx);
}

/* ---- dropout: the op's own mask is read off with the identity as values ---- */

enum { DROP_Q = 37, DROP_K = 8 };
static double *weights_of(clef_context *ctx, clef_tensor *const *in, float dropout) {
    clef_seed(ctx, 7);
    return numbers(clef_attention(in[0], in[1], in[2], &(clef_attention_options){.dropout = dropout}));
}

Test(attention, dropout) {
    if (fewest_kernels()) return; /* three minutes of rusticl's compiler; test_random.c has the numbers */
    clef_context *ctx = open_seeded(1);
    double *q = spread(DROP_Q * 4, -1, 1, 1), *k = spread(DROP_K * 4, -1, 1, 2), one[DROP_K * DROP_K] = {0}, rate = 0.25;
    double *g = spread(DROP_Q * DROP_K, -1, 1, 3), dv[DROP_K * DROP_K] = {0}, dq[DROP_Q * 4] = {0};
    for (int i = 0; i < DROP_K; i++) one[i * DROP_K + i] = 1;
    clef_tensor *in[] = {parameter(tensor_of(ctx, CLEF_SHAPE(1, 1, DROP_Q, 4), CLEF_F32, q)),
                         parameter(tensor_of(ctx, CLEF_SHAPE(1, 1, DROP_K, 4), CLEF_F32, k)),
                         parameter(tensor_of(ctx, CLEF_SHAPE(1, 1, DROP_K, DROP_K), CLEF_F32, one))};
    double *p = weights_of(ctx, in, 0), *dropped = weights_of(ctx, in, (float)rate);
    int none = 0;
    for (int i = 0; i < DROP_Q; i++) {
        double dot = 0;
        for (int j = 0; j < DROP_K; j++) dot += dropped[i * DROP_K + j] * g[i * DROP_K + j];
        for (int j = 0; j < DROP_K; j++) {
            int at = i * DROP_K + j;
            none += dropped[at] == 0;
            cr_expect(dropped[at] == 0 || fabs(dropped[at] - p[at] / (1 - rate)) < 1e-5, "%d: %g of %g", at, dropped[at], p[at]);
            double ds = dropped[at] * g[at] - p[at] * dot;
            for (int e = 0; e < 4; e++) dq[i * 4 + e] += 0.5 * ds * k[j * 4 + e];
            for (int e = 0; e < DROP_K; e++) dv[j * DROP_K + e] += dropped[at] * g[i * DROP_K + e];
        }
    }
    cr_expect(none > DROP_Q * DROP_K / 8 && none < DROP_Q * DROP_K / 2, "%d of %d", none, DROP_Q * DROP_K);
    clef_tensor *seed = clef_keep(tensor_of(ctx, CLEF_SHAPE(1, 1, DROP_Q, DROP_K), CLEF_F32, g)), *dx[3];
    clef_seed(ctx, 7);
    clef_tensor *y = clef_attention(in[0], in[1], in[2], &(clef_attention_options){.dropout = (float)rate});
    cr_assert(clef_grad(y, seed, in, 3, false, dx) == CLEF_OK, "%s", clef_error(ctx));
    expect_numbers(dx[0], dq, 1e-5, 0, "dq");
    expect_numbers(dx[2], dv, 1e-5, 1e-5, "dv");
    free(q), free(k), free(g), free(p), free(dropped);
    clef_close(ctx);
}

/* Twice the length takes twice the memory, forward and backward, where work-items own long runs. */
static int64_t training_bytes(clef_context *ctx, int64_t t) {
    clef_tensor *x = parameter(clef_zeros(ctx, CLEF_SHAPE(1, 2, t, 32), CLEF_F32)), *dx;
    clef_plan_size size = {0};
    clef_set_dry_run(ctx, true);
    clef_tensor *y = clef_attention(x, x, x, &(clef_attention_options){.causal = true});
    cr_expect(clef_grad(y, clef_ones_like(y), &x, 1, false, &dx) == CLEF_OK && clef_eval(dx) == CLEF_OK, "%s", clef_error(ctx));
    clef_plan_memory(ctx, &size);
    clef_set_dry_run(ctx, false);
    clef_release(x);
    return size.peak_bytes;
}

Test(attention, memory) {
    clef_context *ctx = open_seeded(1);
    clef_device_info info;
    const char *forced = getenv("CLEF_PROFILE");
    bool as_gpu = forced && strncmp(forced, "gpu", 3) == 0;
    if (as_gpu || (clef_context_device(ctx, 0, &info) && strcmp(info.type, "cpu") != 0))
        cr_skip_test("the matrix is in memory on this device");
    int64_t at_1024 = training_bytes(ctx, 1024), at_4096 = training_bytes(ctx, 4096);
    cr_expect(at_4096 < 5 * at_1024, "%lld, %lld", (long long)at_1024, (long long)at_4096);
    clef_close(ctx);
}
