/* Fusion changes nothing: a value kept in a register holds no more than the same value in memory.
   ctest: cost=40 apart together */
#include "support/modes.h"

enum { N = 37 }; /* whole vectors and a rest */

static const double numbers[] = {0, 1, -1, 0.1, 200, 300, -5.5, 1e5, 3e9, -3e9, 65519, 1e-7, 70000};
enum { NUMBERS = sizeof numbers / sizeof *numbers };

/* x in a dtype, from f32 values that none of the narrow dtypes holds exactly. */
static clef_tensor *some(clef_context *ctx, clef_dtype dtype, uint64_t salt) {
    float data[N];
    for (int i = 0; i < N; i++) data[i] = 3 + 2.7f * noise((uint64_t)i, salt) + (dtype == CLEF_U8 ? 190 : 0);
    return clef_to(clef_from_host(ctx, CLEF_SHAPE(N), CLEF_F32, data), dtype);
}

typedef clef_tensor *expression(clef_context *ctx, clef_dtype dtype);

static void expect_same_bits(expression *make, clef_dtype dtype, const char *what) {
    static char wanted[1 << 16], got[1 << 16];
    for (mode m = 0; m < EXACT; m++) {
        clef_context *ctx = open_mode(m, NULL);
        clef_tensor *y = make(ctx, dtype);
        cr_assert(y, "%s", clef_error(ctx));
        size_t bytes = (size_t)clef_numel(y) * clef_dtype_size(clef_tensor_dtype(y));
        cr_assert_eq(clef_read(y, m ? got : wanted, bytes), CLEF_OK, "%s", clef_error(ctx));
        if (m)
            cr_expect(memcmp(got, wanted, bytes) == 0, "%s of %s: %s differs from fused", what, clef_dtype_name(dtype),
                      mode_names[m]);
        clef_close(ctx);
    }
}
#define EXPECT_SAME_BITS(make, dtype) expect_same_bits(make, dtype, #make)

/* Sums, products and differences whose exact values the dtype does not hold, made visible in f32. */
static clef_tensor *arithmetic(clef_context *ctx, clef_dtype dtype) {
    clef_tensor *x = some(ctx, dtype, 1), *y = some(ctx, dtype, 2);
    clef_tensor *a = clef_sub(clef_mul(clef_add(x, y), y), x), *b = clef_square(clef_neg(clef_maximum(x, y)));
    return clef_add(clef_to(clef_add(a, b), CLEF_F32), clef_square(clef_to(clef_sub(clef_add(a, b), a), CLEF_F32)));
}

static clef_tensor *functions(clef_context *ctx, clef_dtype dtype) {
    clef_tensor *x = some(ctx, dtype, 1), *y = clef_sub(clef_gelu(clef_sin(x)), clef_sqrt(clef_abs(x)));
    return clef_to(clef_where(clef_gt(y, x), y, clef_mul_scalar(y, 0.3)), CLEF_F32);
}

/* Functions that compilers know how to compute together, of one argument: sine and cosine, and
   those that want the same exponential. */
static clef_tensor *of_one_argument(clef_context *ctx, clef_dtype dtype) {
    clef_tensor *x = some(ctx, dtype, 1);
    return clef_add(clef_mul(clef_sin(x), clef_cos(x)), clef_mul(clef_add(clef_sinh(x), clef_cosh(x)), clef_sigmoid(x)));
}

/* Numbers that the dtype cannot hold, as operands of kernels. */
static clef_tensor *constants(clef_context *ctx, clef_dtype dtype) {
    clef_tensor *row[NUMBERS];
    for (int i = 0; i < NUMBERS; i++) {
        clef_tensor *k = clef_full(ctx, CLEF_SHAPE(1), dtype, numbers[i]);
        row[i] = clef_to(clef_maximum(k, clef_copy(k)), CLEF_F32);
    }
    return clef_concat(row, NUMBERS, 0);
}

Test(modes, narrow_values_are_rounded_or_wrapped_in_registers) {
    const clef_dtype dtypes[] = {CLEF_F16, CLEF_BF16, CLEF_U8};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        EXPECT_SAME_BITS(arithmetic, dtypes[i]);
        EXPECT_SAME_BITS(constants, dtypes[i]);
    }
    EXPECT_SAME_BITS(functions, CLEF_F16);
}

Test(modes, functions_of_one_argument) { EXPECT_SAME_BITS(of_one_argument, CLEF_F32); }

/* A number as its dtype holds it, used as a kernel's argument and after lying in memory. */
Test(modes, constants_hold_what_their_dtype_can) {
    const struct {
        clef_dtype dtype;
        double number, held;
    } row[] = {
        {CLEF_F16, 0.1, 0x1.998p-4}, {CLEF_F16, 65519, 65504},     {CLEF_BF16, 0.1, 0x1.9ap-4},
        {CLEF_U8, 300, 44},          {CLEF_U8, -1, 255},           {CLEF_U8, 2.9, 2},
        {CLEF_BOOL, 2, 1},           {CLEF_BOOL, 0.5, 1},          {CLEF_BOOL, 0, 0},
        {CLEF_I32, 1e10, INT32_MAX}, {CLEF_I32, -1e10, INT32_MIN}, {CLEF_I32, -2.9, -2},
        {CLEF_I64, -1e30, -0x1p63},  {CLEF_I32, NAN, 0},           {CLEF_U8, NAN, 0},
    };
    clef_context *ctx = open_mode(FUSED, NULL);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        clef_tensor *number = clef_full(ctx, CLEF_SCALAR, row[i].dtype, row[i].number);
        clef_dtype wide = row[i].dtype == CLEF_I64 ? CLEF_I64 : row[i].dtype == CLEF_I32 ? CLEF_I64 : CLEF_F32;
        double argument = clef_item(clef_to(number, wide)), memory = clef_item(number);
        cr_expect(argument == row[i].held, "%s %g as an argument is %.9g", clef_dtype_name(row[i].dtype), row[i].number, argument);
        cr_expect(memory == row[i].held, "%s %g in memory is %.9g", clef_dtype_name(row[i].dtype), row[i].number, memory);
    }
    clef_close(ctx);
}
