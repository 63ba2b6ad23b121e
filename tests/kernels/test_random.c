/* test_random.c — Philox against the published answers, device against host bit for bit, and the moments of what comes out; draws by
   weight against their definition and by their frequencies. */
#include "ops/philox.h"
#include "support/numbers.h"

/* From the Random123 distribution's known-answer file (philox4x32, 10 rounds). */
Test(random, known_answers) {
    static const struct {
        uint32_t counter[4], key[2], want[4];
    } rows[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (int i = 0; i < 3; i++) {
        philox_block b;
        memcpy(b.v, rows[i].counter, sizeof b.v);
        b = philox_rounds(b, rows[i].key[0], rows[i].key[1]);
        for (int k = 0; k < 4; k++) cr_expect(b.v[k] == rows[i].want[k], "answer %d, word %d: %08x", i, k, b.v[k]);
    }
}

static uint32_t bits_of(float f) { return float_bits(f); }

Test(random, device_equals_host) {
    clef_context *ctx = open_seeded(0x123456789abcdef0u);
    enum { N = 1003 };
    int n = test_small() ? 41 : N;
    float u[N], z[N];
    clef_tensor *tu = clef_rand(ctx, CLEF_SHAPE(n)), *tz = clef_randn(ctx, CLEF_SHAPE(n));
    cr_assert(clef_read(tu, u, (size_t)n * 4) == CLEF_OK && clef_read(tz, z, (size_t)n * 4) == CLEF_OK, "%s", clef_error(ctx));
    uint64_t first = ((uint64_t)n + 3) / 4; /* where the second tensor begins */
    for (int i = 0; i < n; i++) {
        float want = philox_uniform(philox(0x123456789abcdef0u, (uint64_t)i / 4).v[i % 4]);
        cr_expect(bits_of(u[i]) == bits_of(want), "rand[%d] is %a, not %a", i, (double)u[i], (double)want);
        want = philox_normal(philox(0x123456789abcdef0u, first + (uint64_t)i / 4)).v[i % 4];
        cr_expect(bits_of(z[i]) == bits_of(want), "randn[%d] is %a, not %a", i, (double)z[i], (double)want);
    }
    clef_close(ctx);
}

/* Tensors that end within a vector, a block or before the first whole one; counters whose lower half overflows within a vector. */
Test(random, ends_equal_host) {
    const uint64_t seed = 99, first = 0xfffffff9u;
    clef_context *ctx = open_seeded(seed);
    for (int n = 1; n <= 81; n += test_small() ? 16 : 1) {
        float u[81], z[81];
        clef_random_set(ctx, (clef_random_state){seed, first});
        clef_tensor *tu = clef_rand(ctx, CLEF_SHAPE(n));
        clef_random_set(ctx, (clef_random_state){seed, first});
        clef_tensor *tz = clef_randn(ctx, CLEF_SHAPE(n));
        cr_assert(clef_read(tu, u, (size_t)n * 4) == CLEF_OK && clef_read(tz, z, (size_t)n * 4) == CLEF_OK, "%s", clef_error(ctx));
        for (int i = 0; i < n; i++) {
            philox_block b = philox(seed, first + (uint64_t)i / 4);
            cr_expect(bits_of(u[i]) == bits_of(philox_uniform(b.v[i % 4])), "rand[%d] of %d is %a", i, n, (double)u[i]);
            cr_expect(bits_of(z[i]) == bits_of(philox_normal(b).v[i % 4]), "randn[%d] of %d is %a", i, n, (double)z[i]);
        }
    }
    clef_close(ctx);
}

/* Box and Muller's formula in double, at the ends of its range too. */
Test(random, normal_is_accurate) {
    static const uint32_t words[] = {0,           1u << 8,     0xffffff00u, 0xfffffe00u, 0x80000000u,
                                     0x20000000u, 0x5fffff00u, 0xe0000000u, 0x12345678u};
    for (int i = 0; i < 9; i++)
        for (int k = 0; k < 9; k++) {
            float x, y;
            philox_pair(words[i], words[k], &x, &y);
            double r = sqrt(-2 * log(((words[i] >> 8) + 1) * 0x1p-24)),
                   a = 2 * 3.14159265358979323846 * ((words[k] >> 8) * 0x1p-24);
            cr_expect(fabs((double)x - r * cos(a)) < 1e-6 && fabs((double)y - r * sin(a)) < 1e-6, "words %x %x: %g %g", words[i],
                      words[k], (double)x, (double)y);
        }
}

Test(random, moments) {
    clef_context *ctx = open_seeded(3);
    int64_t n = test_small() ? 4096 : 400000;
    clef_tensor *u = clef_rand(ctx, CLEF_SHAPE(n)), *z = clef_randn(ctx, CLEF_SHAPE(n));
    double s = 1 / sqrt((double)n);
    cr_expect(fabs(clef_item(clef_mean(u, NULL, 0, false)) - 0.5) < 2 * s);
    cr_expect(fabs(clef_item(clef_var(u, NULL, 0, false, 1)) - 1.0 / 12) < 2 * s);
    cr_expect(clef_item(clef_min(u, NULL, 0, false)) >= 0 && clef_item(clef_max(u, NULL, 0, false)) < 1);
    cr_expect(fabs(clef_item(clef_mean(z, NULL, 0, false))) < 5 * s);
    cr_expect(fabs(clef_item(clef_var(z, NULL, 0, false, 1)) - 1) < 8 * s);
    clef_tensor *fourth = clef_square(clef_square(z));
    cr_expect(fabs(clef_item(clef_mean(fourth, NULL, 0, false)) - 3) < 60 * s);
    clef_close(ctx);
}

/* Seeds repeat, steps differ, and the state can be put back. */
Test(random, stream) {
    clef_context *ctx = open_seeded(5);
    float a[6], b[6], c[6];
    clef_read(clef_rand(ctx, CLEF_SHAPE(6)), a, sizeof a);
    clef_random_state at = clef_random_get(ctx);
    cr_expect(at.offset == 2, "six numbers take two blocks of four");
    clef_read(clef_rand(ctx, CLEF_SHAPE(6)), b, sizeof b);
    cr_expect(memcmp(a, b, sizeof a) != 0, "the next numbers are others");
    clef_random_set(ctx, at);
    clef_read(clef_rand(ctx, CLEF_SHAPE(6)), c, sizeof c);
    cr_expect(memcmp(b, c, sizeof b) == 0, "the state put back");
    clef_seed(ctx, 5);
    clef_read(clef_rand(ctx, CLEF_SHAPE(6)), c, sizeof c);
    cr_expect(memcmp(a, c, sizeof a) == 0, "the seed put back");
    clef_tensor *two = clef_sub(clef_rand(ctx, CLEF_SHAPE(6)), clef_rand(ctx, CLEF_SHAPE(6)));
    cr_expect(clef_item(clef_sum(clef_abs(two), NULL, 0, false)) > 0, "two calls in one expression differ");
    clef_close(ctx);
}

Test(random, arange_and_eye) {
    clef_context *ctx = open_seeded(1);
    expect_numbers(clef_arange(ctx, 0, 5, 1, CLEF_I64), (double[]){0, 1, 2, 3, 4}, 0, 0, "i64");
    expect_numbers(clef_arange(ctx, 5, -1, -2, CLEF_I32), (double[]){5, 3, 1}, 0, 0, "i32");
    expect_numbers(clef_arange(ctx, 0.5, 2, 0.5, CLEF_F32), (double[]){0.5, 1, 1.5}, 0, 0, "f32");
    expect_numbers(clef_arange(ctx, 0, 3, 1, CLEF_F16), (double[]){0, 1, 2}, 0, 0, "f16");
    if (has_f64(ctx)) expect_numbers(clef_arange(ctx, 0.1, 0.35, 0.1, CLEF_F64), (double[]){0.1, 0.2, 0.3}, 1e-15, 0, "f64");
    expect_shape(clef_arange(ctx, 3, 3, 1, CLEF_F32), CLEF_SHAPE(0));
    expect_numbers(clef_eye(ctx, 2, CLEF_F32), (double[]){1, 0, 0, 1}, 0, 0, "eye");
    clef_tensor *two = clef_add(clef_arange(ctx, 0, 3, 1, CLEF_I32), clef_arange(ctx, 10, 13, 1, CLEF_I32));
    expect_numbers(two, (double[]){10, 12, 14}, 0, 0, "two ranges stay two");
    cr_expect(!clef_arange(ctx, 0, 1, 0, CLEF_F32));
    expect_error(ctx, CLEF_INVALID, "arange");
    cr_expect(!clef_arange(ctx, 0, 1, 0.5, CLEF_I32));
    expect_error(ctx, CLEF_INVALID, "whole");
    clef_close(ctx);
}

/* ---- whole numbers ---- */
static uint64_t bits64(uint64_t seed, uint64_t first, uint64_t i) {
    philox_block b = philox(seed, first + i / 2);
    return (uint64_t)b.v[i % 2 * 2] << 32 | b.v[i % 2 * 2 + 1];
}

/* ⌊range · r / 2^64⌋ by hand, in halves. */
static uint64_t share(uint64_t range, uint64_t r) {
    uint64_t low = (range & 0xffffffff) * (r & 0xffffffff), a = (range >> 32) * (r & 0xffffffff),
             b = (range & 0xffffffff) * (r >> 32);
    uint64_t middle = (low >> 32) + (a & 0xffffffff) + (b & 0xffffffff);
    return (range >> 32) * (r >> 32) + (a >> 32) + (b >> 32) + (middle >> 32);
}

Test(random, randint_equals_host) {
    clef_context *ctx = open_seeded(77);
    static const int64_t ends[][2] = {{0, 6}, {-3, -2}, {-1000, 1000}, {INT64_MIN, INT64_MAX}, {INT64_MIN, 0}, {5, INT64_MAX}};
    uint64_t first = 0;
    for (int e = 0; e < 6; e++) {
        int64_t have[41];
        clef_tensor *t = clef_randint(ctx, ends[e][0], ends[e][1], CLEF_SHAPE(41));
        cr_assert(t && clef_read(t, have, sizeof have) == CLEF_OK, "%s", clef_error(ctx));
        for (uint64_t i = 0; i < 41; i++) {
            uint64_t range = (uint64_t)ends[e][1] - (uint64_t)ends[e][0];
            int64_t want = (int64_t)((uint64_t)ends[e][0] + share(range, bits64(77, first, i)));
            cr_expect(have[i] == want && have[i] >= ends[e][0] && have[i] < ends[e][1], "range %d, element %d", e, (int)i);
        }
        first += 21;
    }
    expect_shape(clef_randint(ctx, 0, 2, CLEF_SHAPE(3, 0)), CLEF_SHAPE(3, 0));
    cr_expect(!clef_randint(ctx, 4, 4, CLEF_SHAPE(3)));
    expect_error(ctx, CLEF_INVALID, "randint: there is no whole number in [4, 4)");
    cr_expect(!clef_randint(ctx, 0, 4, CLEF_SHAPE(-3)));
    expect_error(ctx, CLEF_SHAPE, "randint");
    cr_expect(!clef_randint(NULL, 0, 4, CLEF_SHAPE(3)));
    clef_close(ctx);
}

/* ---- draws by weight ---- */
Test(random, exponential_is_accurate) {
    static const uint64_t words[] = {0,
                                     1,
                                     2,
                                     1000,
                                     1u << 31,
                                     1ull << 40,
                                     1ull << 61,
                                     (1ull << 62) - 1,
                                     1ull << 62,
                                     3ull << 61,
                                     1ull << 63,
                                     (1ull << 63) + (1ull << 62),
                                     ~0ull - (1ull << 42),
                                     ~0ull << 40,
                                     ~0ull};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        double v = (double)(words[i] | 1) * 0x1p-64, want = -log1p(-fmin(v, 1 - 0x1p-24)),
               have = (double)philox_exponential(words[i]);
        cr_expect(fabs(have - want) <= 1e-6 * want || (v > 0.999 && fabs(have - want) < 0.7), "%llx: %g, not %g",
                  (unsigned long long)words[i], have, want);
        double inverse = (double)philox_reciprocal((float)have);
        cr_expect(fabs(inverse * have - 1) < 4e-7, "1 / %g is %g", have, inverse);
    }
}

/* Whole weights whose sum is a power of two: what is drawn is known exactly. */
Test(random, draws_equal_host) {
    clef_context *ctx = open_seeded(9);
    enum { ROWS = 3, K = 5, N = 37 };
    static const float w[ROWS][K] = {{1, 0, 2, 4, 1}, {0, 0, 16, 0, 0}, {4, 4, 4, 3, 1}};
    int64_t have[ROWS * N];
    clef_tensor *y = clef_multinomial(clef_from_host(ctx, CLEF_SHAPE(ROWS, K), CLEF_F32, w), N, true);
    expect_shape(y, CLEF_SHAPE(ROWS, N));
    cr_assert(clef_tensor_dtype(y) == CLEF_I64 && clef_read(y, have, sizeof have) == CLEF_OK, "%s", clef_error(ctx));
    for (uint64_t i = 0; i < ROWS * N; i++) {
        double sum = 0, at = 0;
        for (int k = 0; k < K; k++) sum += (double)w[i / N][k];
        int want = 0;
        for (at = (double)w[i / N][0]; at <= floor(sum * (double)(bits64(9, 0, i) >> 32) * 0x1p-32);
             at += (double)w[i / N][++want]) {
        }
        cr_expect(have[i] == want, "draw %d is %d, not %d", (int)i, (int)have[i], want);
    }
    clef_close(ctx);
}

/* The order of w/e by its definition in double; draws that are too close to tell are none here. */
Test(random, draws_without_replacement_equal_host) {
    clef_context *ctx = open_seeded(11);
    enum { ROWS = 4, K = 29 };
    float w[ROWS * K];
    int64_t have[ROWS * K];
    for (int i = 0; i < ROWS * K; i++) w[i] = i % 5 == 2 ? 0 : 1e-3f + (float)i * (i % 3 ? 1e10f : 1.0f);
    clef_tensor *y = clef_multinomial(clef_from_host(ctx, CLEF_SHAPE(2, 2, K), CLEF_F32, w), K, false);
    cr_assert(y && clef_read(y, have, sizeof have) == CLEF_OK, "%s", clef_error(ctx));
    for (int r = 0; r < ROWS; r++) {
        bool taken[K] = {false};
        for (int j = 0; j < K; j++) {
            int best = -1;
            double highest = 0, score;
            for (int k = 0; k < K; k++) {
                score = (double)w[r * K + k] / -log1p(-(double)(bits64(11, 0, (uint64_t)(r * K + k)) | 1) * 0x1p-64);
                if (!taken[k] && score > highest) highest = score, best = k;
            }
            cr_expect(have[r * K + j] == best, "row %d, draw %d is %d, not %d", r, j, (int)have[r * K + j], best);
            if (best >= 0) taken[best] = true;
        }
    }
    clef_close(ctx);
}

/* Counts of n draws with probabilities p: Σ (count - n·p)² / (n·p) beyond 60 has a chance below 1e-9 for up to ten classes. */
static void expect_frequencies(clef_tensor *drawn, const double *p, int classes, const char *what) {
    double *at = numbers(drawn), count[16] = {0}, distance = 0;
    int64_t n = clef_numel(drawn);
    for (int64_t i = 0; i < n; i++) {
        cr_assert(at[i] >= 0 && at[i] < classes, "%s: %g", what, at[i]);
        count[(int)at[i]]++;
    }
    for (int k = 0; k < classes; k++) {
        double mean = (double)n * p[k];
        if (p[k] > 0) distance += (count[k] - mean) * (count[k] - mean) / mean;
        else cr_expect(count[k] == 0, "%s: %g of weight 0", what, count[k]);
    }
    cr_expect(distance < 60, "%s: %g", what, distance);
    free(at);
}

Test(random, frequencies) {
    clef_context *ctx = open_seeded(13);
    static const float w[6] = {0.1f, 0, 3, 0.5f, 0, 1.4f};
    static const double p[6] = {0.02, 0, 0.6, 0.1, 0, 0.28}, dice[6] = {1 / 6., 1 / 6., 1 / 6., 1 / 6., 1 / 6., 1 / 6.};
    int64_t n = test_small() ? 2000 : 100000;
    clef_tensor *t = clef_keep(clef_from_host(ctx, CLEF_SHAPE(6), CLEF_F32, w));
    for (int d = 0; d < float_dtypes_here(ctx); d++)
        expect_frequencies(clef_multinomial(clef_to(t, float_dtypes[d]), n, true), p, 6, clef_dtype_name(float_dtypes[d]));
    clef_tensor *rows = clef_expand(t, CLEF_SHAPE(n, 6));
    expect_frequencies(clef_multinomial(rows, 1, true), p, 6, "rows");
    expect_frequencies(clef_multinomial(rows, 1, false), p, 6, "rows, without replacement");
    double second[6] = {0};
    for (int a = 0; a < 6; a++)
        for (int b = 0; b < 6; b++)
            if (a != b) second[b] += p[a] * p[b] / (1 - p[a]);
    expect_frequencies(clef_slice(clef_multinomial(rows, 3, false), 1, 1, 2, 1), second, 6, "the second without replacement");
    expect_frequencies(clef_randint(ctx, 0, 6, CLEF_SHAPE(n)), dice, 6, "dice");
    clef_close(ctx);
}

/* Weights as they should not be; and one small beside others. */
Test(random, odd_weights) {
    clef_context *ctx = open_seeded(15);
    static const float w[6][3] = {{0, 0, 0}, {-1, NAN, 0}, {NAN, 2, -3}, {0, INFINITY, 1e30f}, {0, 1e-37f, 0}, {3e38f, 0, 0}};
    static const int64_t want[6] = {-1, -1, 1, 1, 1, 0};
    clef_tensor *t = clef_keep(clef_from_host(ctx, CLEF_SHAPE(6, 3), CLEF_F32, w));
    for (int replacement = 0; replacement < 2; replacement++) {
        int64_t have[6 * 3];
        cr_assert(clef_read(clef_multinomial(t, 3, replacement), have, sizeof have) == CLEF_OK, "%s", clef_error(ctx));
        for (int i = 0; i < 18; i++) {
            int64_t one = i % 3 == 0 || replacement ? want[i / 3] : i == 10 ? 2 : -1;
            cr_expect(have[i] == one, "replacement %d, row %d, draw %d: %d", replacement, i / 3, i % 3, (int)have[i]);
        }
    }
    clef_close(ctx);
}

/* The same plan draws other numbers in each step, and a seed repeats them. */
Test(random, draws_follow_the_stream) {
    clef_context *ctx = open_seeded(17);
    clef_tensor *t = clef_keep(clef_copy(clef_ones(ctx, CLEF_SHAPE(50), CLEF_F32)));
    int64_t a[20], b[20], c[20];
    for (int replacement = 0; replacement < 2; replacement++) {
        clef_seed(ctx, 3);
        clef_read(clef_multinomial(t, 20, replacement), a, sizeof a);
        clef_end_step(ctx);
        clef_read(clef_multinomial(t, 20, replacement), b, sizeof b);
        clef_seed(ctx, 3);
        clef_read(clef_multinomial(t, 20, replacement), c, sizeof c);
        cr_expect(memcmp(a, b, sizeof a) != 0 && memcmp(a, c, sizeof a) == 0, "replacement %d", replacement);
    }
    clef_tensor *x = clef_keep(clef_require_grad(clef_keep(clef_copy(t)), true));
    cr_expect(clef_numel(clef_multinomial(x, 0, false)) == 0 &&
              clef_numel(clef_multinomial(clef_slice(t, 0, 0, 1, 1), 1, false)) == 1);
    expect_shape(clef_multinomial(clef_zeros(ctx, CLEF_SHAPE(0, 4), CLEF_F32), 2, true), CLEF_SHAPE(0, 2));
    expect_shape(clef_multinomial(x, 4, true), CLEF_SHAPE(4));
    clef_close(ctx);
}

Test(random, refused_draws) {
    clef_context *ctx = open_seeded(19);
    clef_tensor *t = clef_ones(ctx, CLEF_SHAPE(2, 3), CLEF_F32);
    cr_expect(!clef_multinomial(t, 4, false));
    expect_error(ctx, CLEF_INVALID, "multinomial: 4 draws from 3 weights; more need replacement");
    cr_expect(!clef_multinomial(t, -1, true));
    expect_error(ctx, CLEF_INVALID, "multinomial: -1 draws");
    cr_expect(!clef_multinomial(clef_ones(ctx, CLEF_SCALAR, CLEF_F32), 1, true));
    expect_error(ctx, CLEF_SHAPE, "multinomial: weights [] is not [..., k] with k > 0");
    cr_expect(!clef_multinomial(clef_ones(ctx, CLEF_SHAPE(2, 0), CLEF_F32), 1, true));
    expect_error(ctx, CLEF_SHAPE, "multinomial: weights [2,0]");
    cr_expect(!clef_multinomial(NULL, 1, true));
    clef_close(ctx);
}
