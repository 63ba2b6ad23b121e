/* clef__combine against sums done another way: in the order of a recursive tree, one element at a time, and exactly where numbers are whole.
   ctest: plain */
#include "group/group.h"
#include "runtime/half.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 9, LARGE = 5000 };
static int failures;

#define EXPECT(true_of, ...)                        \
    do {                                            \
        if (!(true_of) && failures++ < 20) {        \
            printf("FAILED (line %d): ", __LINE__); \
            printf(__VA_ARGS__);                    \
            printf("\n");                           \
        }                                           \
    } while (0)

static uint64_t seed = 88172645463325252u;
static uint64_t any(void) { /* xorshift64 (Marsaglia, 2003) */
    seed ^= seed << 13, seed ^= seed >> 7;
    return seed ^= seed << 17;
}

typedef union number {
    float f32;
    double f64;
    uint16_t half;
    int32_t i32;
    int64_t i64;
} number;

/* Numbers of all sizes, now and then a special one; wholes are small when `whole`, so that any order gives the same. */
static double special(int i) {
    static const double list[] = {NAN, INFINITY, -INFINITY, 0.0, -0.0, 1.0};
    return list[i % 6];
}

static number make(clef_dtype dtype, bool whole) {
    uint64_t r = any();
    double real =
        whole ? (double)(int64_t)(r % 7) - 3 : ((double)(r >> 11) / 4503599627370496.0 - 1) * exp2((double)(int)(r % 9) - 4);
    if (!whole && r % 4 == 0) real = special((int)(r / 4 % 6));
    switch (dtype) {
    case CLEF_F32: return (number){.f32 = (float)real};
    case CLEF_F64: return (number){.f64 = real};
    case CLEF_F16: return (number){.half = clef__to_f16(real)};
    case CLEF_BF16: return (number){.half = clef__to_bf16(real)};
    case CLEF_I32: return (number){.i32 = whole ? (int32_t)real : (int32_t)(uint32_t)r};
    default: return (number){.i64 = whole ? (int64_t)real : (int64_t)r};
    }
}

/* ---- the oracle: one element; floats in f32 or f64, integers in 128 bits, cut at the end ---- */
static double smaller(double a, double b) {
    if (isnan(a) || isnan(b)) return NAN;
    if (a == b) return signbit(a) ? a : b;
    return a < b ? a : b;
}

static double two(double a, double b, clef_group_reduction how, bool f64) {
    double r = how == CLEF_GROUP_MIN   ? smaller(a, b)
               : how == CLEF_GROUP_MAX ? -smaller(-a, -b)
               : how == CLEF_GROUP_PRODUCT
                   ? a * b
                   : a + b; /* of two f32, exact in f64 or rounded alike (innocuous double rounding: Figueroa, 1995) */
    return f64 ? r : (double)(float)r;
}

static double real_tree(const double *x, int n, clef_group_reduction how, bool f64) {
    if (n == 1) return x[0];
    int left = 1 << (int)(ceil(log2(n)) - 1);
    return two(real_tree(x, left, how, f64), real_tree(x + left, n - left, how, f64), how, f64);
}

static uint64_t whole_of(const int64_t *x, int n, clef_group_reduction how) {
    uint64_t r = (uint64_t)x[0];
    for (int i = 1; i < n; i++)
        if (how == CLEF_GROUP_PRODUCT) r *= (uint64_t)x[i];
        else if (how == CLEF_GROUP_MIN) r = (uint64_t)(x[i] < (int64_t)r ? x[i] : (int64_t)r);
        else if (how == CLEF_GROUP_MAX) r = (uint64_t)(x[i] > (int64_t)r ? x[i] : (int64_t)r);
        else r += (uint64_t)x[i];
    return r;
}

static number load(const void *array, int64_t i, clef_dtype dtype) {
    number x = {0};
    memcpy(&x, (const char *)array + (size_t)i * clef_dtype_size(dtype), clef_dtype_size(dtype));
    return x;
}

static double real_of(number x, clef_dtype dtype) {
    switch (dtype) {
    case CLEF_F32: return (double)x.f32;
    case CLEF_F64: return x.f64;
    case CLEF_F16: return clef__from_f16(x.half);
    default: return clef__from_bf16(x.half);
    }
}

static double rounded(double x, bool f64) { return f64 ? x : (double)(float)x; }

static number expected(const void *const *in, const double *weight, int n, int64_t i, clef_dtype dtype, clef_group_reduction how,
                       int of) {
    double real[MOST];
    int64_t whole[MOST];
    bool f64 = dtype == CLEF_F64;
    for (int r = 0; r < n; r++) {
        number x = load(in[r], i, dtype);
        if (dtype == CLEF_I32) whole[r] = x.i32;
        else if (dtype == CLEF_I64) whole[r] = x.i64;
        else real[r] = !weight ? real_of(x, dtype) : weight[r] == 0 ? 0 : rounded(real_of(x, dtype) * rounded(weight[r], f64), f64);
    }
    if (dtype == CLEF_I32) return (number){.i32 = (int32_t)(uint32_t)whole_of(whole, n, how)};
    if (dtype == CLEF_I64) return (number){.i64 = (int64_t)whole_of(whole, n, how)};
    double sum = real_tree(real, n, how, f64);
    if (how == CLEF_GROUP_MEAN) sum = f64 ? sum / of : (double)((float)sum / (float)of);
    if (dtype == CLEF_F32) return (number){.f32 = (float)sum};
    if (f64) return (number){.f64 = sum};
    return (number){.half = dtype == CLEF_F16 ? clef__to_f16(sum) : clef__to_bf16(sum)};
}

/* Equal bits; any NaN is as good as another. */
static bool same(number a, number b, clef_dtype dtype) {
    if (dtype == CLEF_I32) return a.i32 == b.i32;
    if (dtype == CLEF_I64) return a.i64 == b.i64;
    double x = real_of(a, dtype), y = real_of(b, dtype);
    return isnan(x) ? isnan(y) : x == y && !signbit(x) == !signbit(y);
}

/* ---- all of them ---- */
static unsigned char memory[MOST + 1][LARGE * 8 + 64];

static void check(clef_dtype dtype, clef_group_reduction how, int n, int64_t elements, bool whole, int into, const double *weight) {
    const void *in[MOST];
    static unsigned char kept[MOST][LARGE * 8];
    const void *before[MOST];
    size_t bytes = clef_dtype_size(dtype);
    for (int r = 0; r < n; r++) {
        in[r] = memory[r];
        before[r] = kept[r];
        for (int64_t i = 0; i < elements; i++) {
            number x = make(dtype, whole);
            memcpy(memory[r] + (size_t)i * bytes, &x, bytes);
        }
        memcpy(kept[r], memory[r], (size_t)elements * bytes);
    }
    unsigned char *out = into < n ? memory[into] : memory[MOST];
    memset(memory[MOST], 0xa5, sizeof memory[MOST]);
    unsigned char behind[64];
    memcpy(behind, out + (size_t)elements * bytes, sizeof behind);
    clef__combine(out, in, weight, n, elements, dtype, how, n);
    EXPECT(memcmp(behind, out + (size_t)elements * bytes, sizeof behind) == 0, "wrote behind its %lld elements",
           (long long)elements);
    for (int64_t i = 0; i < elements; i++)
        EXPECT(same(load(out, i, dtype), expected(before, weight, n, i, dtype, how, n), dtype),
               "%s, reduction %d of %d, element %lld of %lld", clef_dtype_name(dtype), (int)how, n, (long long)i,
               (long long)elements);
    for (int r = 0; r < n; r++)
        EXPECT(r == into || memcmp(kept[r], memory[r], (size_t)elements * bytes) == 0, "changed what rank %d gave", r);
}

int main(void) {
    static const clef_dtype dtypes[] = {CLEF_F32, CLEF_F64, CLEF_F16, CLEF_BF16, CLEF_I32, CLEF_I64};
    static const int64_t sizes[] = {0, 1, 7, 511, 512, 513, 1030};
    static const double weights[MOST] = {0.5, 0, 1, 0.25, -2, 0.1, 0, 3, 1};
    int runs = 0;
    for (int d = 0; d < 6; d++)
        for (clef_group_reduction how = CLEF_GROUP_SUM; how <= CLEF_GROUP_MAX; how++)
            for (int n = 1; n <= MOST; n++) {
                if (how == CLEF_GROUP_MEAN && d >= 4) continue;
                for (int s = 0; s < 7; s++, runs++)
                    check(dtypes[d], how, n, sizes[s], s % 2, n % 3 == 0 ? (s + n) % n : MOST, NULL);
                if (how == CLEF_GROUP_SUM && d < 4)
                    for (int s = 0; s < 7; s++, runs++) check(dtypes[d], how, n, sizes[s], s % 2, MOST, weights);
            }
    for (int n = 1; n <= MOST; n += 2) check(CLEF_F32, CLEF_GROUP_SUM, n, LARGE, false, MOST, NULL), runs++;
    printf("combine: %d arrays, %d failures\n", runs, failures);
    return failures != 0;
}
