/* test_random.c — Philox against the published answers, device against host bit for bit, and the moments of what comes out. */
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
