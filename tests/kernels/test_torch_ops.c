/* test_torch_ops.c — ops beside PyTorch's: values, gradients and second gradients (tests/expectations/ops.py). */
#include "support/numbers.h"
#include "clef/pointwise.h"

enum { MOST = 64 };

static clef_tensor *number(clef_context *ctx, clef_shape shape, int salt, bool whole) {
    static float data[MOST];
    for (int i = 0; i < (int)clef_shape_numel(shape); i++)
        data[i] = whole ? (float)((i * 37 + salt * 11) % 7 - 3) : (float)((i * 37 + salt * 11) % 61 - 30) / 16;
    return clef_from_host(ctx, shape, CLEF_F32, data);
}

static clef_tensor *indices(clef_context *ctx, clef_shape shape, int top) {
    static int32_t data[MOST];
    for (int i = 0; i < (int)clef_shape_numel(shape); i++) data[i] = (i * i * 5 + 3) % top;
    return clef_from_host(ctx, shape, CLEF_I32, data);
}

/* y and da still to be computed. */
static void check(const char *op, clef_tensor *y, clef_tensor *a, clef_tensor *b, const double *const *want) {
    clef_context *ctx = clef_tensor_context(a);
    clef_tensor *d[2], *second;
    cr_assert(y, "%s: %s", op, clef_error(ctx));
    cr_assert(clef_grad(y, number(ctx, clef_tensor_shape(y), 5, false), (clef_tensor *[]){a, b}, 2, true, d) == CLEF_OK, "%s: %s",
              op, clef_error(ctx));
    clef_tensor *sum = clef_sum(clef_mul(d[0], number(ctx, clef_tensor_shape(a), 4, false)), NULL, 0, false);
    if (!clef_requires_grad(sum)) second = clef_zeros_like(a);
    else cr_assert(clef_grad(sum, CLEF_NONE, &a, 1, false, &second) == CLEF_OK, "%s: %s", op, clef_error(ctx));
    clef_tensor *have[] = {y, d[0], d[1], second};
    static const char *const name[] = {"y", "da", "db", "second"};
    for (int i = 0; i < 4; i++) {
        char what[256];
        snprintf(what, sizeof what, "%s: %s", op, name[i]);
        expect_numbers(have[i], want[i], 2e-5, 2e-5, what);
    }
    clef_end_step(ctx);
}

/* All rows; some where every instruction is interpreted. */
static bool taken(void) {
    static int row;
    return row++ % 6 == 0 || !test_small();
}

#define NUMBERS(...) ((const double[]){__VA_ARGS__})
#define OP(expression, whole, shape_a, shape_b, shape_i, top, ...)                                    \
    if (taken()) {                                                                                    \
        a = parameter(number(ctx, shape_a, 1, whole)), b = parameter(number(ctx, shape_b, 2, whole)); \
        i = indices(ctx, shape_i, top);                                                               \
        check(#expression, expression, a, b, (const double *const[]){__VA_ARGS__});                   \
        clef_release(a), clef_release(b);                                                             \
    }

Test(torch_ops, values_and_gradients) {
    clef_context *ctx = open_seeded(1);
    clef_tensor *a, *b, *i;
#include "expectations/ops.def"
    close_clean(ctx);
}
