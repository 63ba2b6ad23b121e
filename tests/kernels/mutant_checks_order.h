/* mutant_checks_order.h — the checks of mutant_checks.h for sorting, prefix sums and draws by weight. */
#ifndef CLEF_TESTS_MUTANT_CHECKS_ORDER_H
#define CLEF_TESTS_MUTANT_CHECKS_ORDER_H

/* ---- sort, topk ---- */
static int by_number(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The first k of whole numbers in -50 … 50, as f32 and as i64; with the gradient of Σ g·values. */
static void check_order(int64_t outer, int64_t n, int64_t inner, int64_t k, bool largest) {
    enum { MOST = 16384 };
    static uint64_t row[MOST];
    int64_t count = outer * k * inner;
    float *x = whole(outer * n * inner, 1, -50, 50), *g = whole(count, 2, 1, 9), *value = zeros(count), *index = zeros(count),
          *dx = zeros(outer * n * inner);
    for (int64_t r = 0; r < outer * inner; r++) {
        int64_t at = r / inner * n * inner + r % inner, to = r / inner * k * inner + r % inner;
        for (int64_t j = 0; j < n; j++) row[j] = (uint64_t)(50 + (largest ? -1 : 1) * (int)x[at + j * inner]) << 32 | (uint64_t)j;
        qsort(row, (size_t)n, sizeof *row, by_number);
        for (int64_t j = 0; j < k; j++) {
            int64_t from = (int64_t)(row[j] & 0xffffffff);
            value[to + j * inner] = x[at + from * inner], index[to + j * inner] = (float)from;
            dx[at + from * inner] = g[to + j * inner];
        }
    }
    clef_shape shape = CLEF_SHAPE(outer, n, inner);
    clef_tensor *t = leaf(shape, x), *values, *indices, *d;
    for (int wide = 1; wide >= 0; wide--) {
        wrong += clef_topk(wide ? clef_to(put(shape, x), CLEF_I64) : t, k, 1, largest, &values, &indices) != CLEF_OK;
        expect(clef_to(values, CLEF_F32), value, count);
        expect(clef_to(indices, CLEF_F32), index, count);
    }
    differentiate(values, put(CLEF_SHAPE(outer, k, inner), g), &t, 1, &d);
    expect(d, dx, outer * n * inner);
    clef_release(t);
}

static void ordered(void) {
    check_order(2, 75, 3, 75, false); /* three runs, the last of them shorter */
    check_order(2, 700, 3, 7, true);
    check_order(1, 9001, 1, 7, true);    /* several long blocks */
    check_order(2, 9001, 1, 9001, true); /* chunks of a merge */
}

/* Few of long rows, whose other elements are left out in groups. */
static void grouped(void) {
    check_order(40, 1003, 1, 20, true);
    check_order(5, 1003, 1, 3, false);
}

/* NaN, infinities, both zeros. */
static void keys(void) {
    static const uint32_t bits[] = {0xffc00001, 0, 0x7f800000, 0x80000000, 0xff800000, 0x3f800000, 0x80000000, 0};
    static const float up[] = {4, 1, 3, 6, 7, 5, 2, 0};
    expect(clef_to(clef_argsort(clef_from_host(ctx, CLEF_SHAPE(8), CLEF_F32, bits), 0, false), CLEF_F32), up, 8);
}

/* ---- cumsum ---- */
static void check_scanned(int64_t outer, int64_t n, int64_t inner) {
    int64_t all = outer * n * inner;
    float *x = whole(all, 1, -9, 9), *y = zeros(all), *g = whole(all, 2, -3, 4), *dx = zeros(all);
    for (int64_t i = 0; i < all; i++) y[i] = x[i] + (i / inner % n ? y[i - inner] : 0);
    for (int64_t i = all - 1; i >= 0; i--) dx[i] = g[i] + (i / inner % n < n - 1 ? dx[i + inner] : 0);
    clef_tensor *t = leaf(CLEF_SHAPE(outer, n, inner), x), *sums = clef_cumsum(t, 1), *d;
    expect(sums, y, all);
    differentiate(sums, put(CLEF_SHAPE(outer, n, inner), g), &t, 1, &d);
    expect(d, dx, all);
    clef_release(t);
}

/* Columns side by side, fewer and more than a vector has lanes, and rows, of which several go on in turn. */
static void scanned(void) {
    check_scanned(2, 2500, 3);
    check_scanned(2, 2500, 37);
    check_scanned(9, 2500, 1);
}

/* Signs, and few twos, so that every product is exact; across chunks and chunks of chunks. */
static void multiplied(void) {
    enum { OUTER = 2, N = 2500, INNER = 3, ALL = OUTER * N * INNER };
    float *x = whole(ALL, 1, 0, 2), *y = zeros(ALL);
    for (int i = 0; i < ALL; i++) {
        int at = i / INNER % N;
        x[i] = (x[i] > 0 ? 1 : -1) * (at % 200 == 7 ? 2.0f : 1.0f);
        y[i] = x[i] * (at ? y[i - INNER] : 1);
    }
    expect(clef_cumprod(put(CLEF_SHAPE(OUTER, N, INNER), x), 1), y, ALL);
}

/* ---- whole numbers and draws ---- */
static uint64_t random_bits(clef_random_state at, int64_t i) {
    philox_block b = philox(at.seed, at.offset + (uint64_t)i / 2);
    return (uint64_t)b.v[i % 2 * 2] << 32 | b.v[i % 2 * 2 + 1];
}

static void dice(void) {
    clef_random_state at = clef_random_get(ctx);
    float *want = zeros(1003);
    for (int i = 0; i < 1003; i++) want[i] = (float)(3 + (int)((random_bits(at, i) >> 32) * 1000 >> 32));
    expect(clef_to(clef_randint(ctx, 3, 1003, CLEF_SHAPE(1003)), CLEF_F32), want, 1003);
    clef_random_set(ctx, at);
}

/* Weights of which each row's sum is 16, so that what is drawn is known exactly; the last row has none. */
static void draws(void) {
    enum { ROWS = 4, K = 5, N = 37 };
    static const float w[ROWS][K] = {{3, 0, 5, 8, 0}, {0, 0, 16, 0, 0}, {4, 4, 4, 3, 1}, {0}};
    clef_random_state at = clef_random_get(ctx);
    float *want = zeros(ROWS * N);
    for (int i = 0; i < ROWS * N; i++) {
        int k = 0;
        for (float sum = w[i / N][0]; k < K - 1 && sum <= (float)(random_bits(at, i) >> 60); sum += w[i / N][++k]) {
        }
        want[i] = i / N == ROWS - 1 ? -1 : (float)k;
    }
    expect(clef_to(clef_multinomial(put(CLEF_SHAPE(ROWS, K), (const float *)w), N, true), CLEF_F32), want, ROWS * N);
    clef_random_set(ctx, at);
}

static void races(void) {
    enum { ROWS = 5, K = 29 };
    clef_random_state at = clef_random_get(ctx);
    float *w = whole(ROWS * K, 1, 0, 9), *want = zeros(ROWS * K);
    for (int r = 0; r < ROWS; r++) {
        bool taken[K] = {false};
        for (int j = 0; j < K; j++) {
            int best = -1;
            double highest = 0;
            for (int k = 0; k < K; k++) {
                double score = (double)w[r * K + k] / -log1p(-(double)(random_bits(at, r * K + k) | 1) * 0x1p-64);
                if (!taken[k] && score > highest) highest = score, best = k;
            }
            want[r * K + j] = (float)best;
            if (best >= 0) taken[best] = true;
        }
    }
    expect(clef_to(clef_multinomial(put(CLEF_SHAPE(ROWS, K), w), K, false), CLEF_F32), want, ROWS * K);
    clef_random_set(ctx, at);
}
#endif
