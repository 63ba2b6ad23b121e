/* test_torch_layers.c — layers beside PyTorch's: output, gradients and running statistics (tests/expectations/layers.py).
   ctest: plain */
#include "support/device.h"
#include "clef/pointwise.h"

static clef_tensor *number(clef_context *ctx, clef_shape shape, int salt) {
    static float data[256];
    for (int i = 0; i < (int)clef_shape_numel(shape); i++) data[i] = (float)((i * 37 + salt * 11) % 61 - 30) / 16;
    return clef_from_host(ctx, shape, CLEF_F32, data);
}

/* Compares t with `want`, and returns what follows it there. */
static const double *expect(clef_tensor *t, const double *want, const char *layer, const char *what) {
    cr_assert(t, "%s: no %s: %s", layer, what, clef_error(NULL));
    float *have = values(t);
    int64_t n = clef_numel(t);
    for (int64_t i = 0; i < n; i++)
        cr_expect_float_eq(have[i], want[i], 2e-5 * (1 + fabs(want[i])), "%s: %s[%d] = %.9g, not %.9g", layer, what, (int)i,
                           have[i], want[i]);
    free(have);
    return want + n;
}

static void check(clef_module *m, const char *layer, clef_shape shape, const double *y, const double *dx, const double *dp,
                  const double *running) {
    cr_assert(m, "%s", layer);
    clef_context *ctx = clef_module_context(m);
    int parameters = 0, n = clef_module_tensors(m);
    clef_tensor *leaf[3], *d[3];
    leaf[0] = clef_require_grad(clef_keep(number(ctx, shape, 1)), true);
    for (int i = 0; i < n; i++) {
        clef_named_tensor t = clef_module_tensor(m, i);
        if (t.is_buffer) continue;
        cr_assert_eq(clef_assign(t.tensor, number(ctx, clef_tensor_shape(t.tensor), 2 + parameters)), CLEF_OK);
        leaf[++parameters] = t.tensor;
    }
    clef_tensor *have = clef_forward(m, leaf[0]);
    cr_assert(have, "%s: %s", layer, clef_error(ctx));
    cr_assert_eq(clef_grad(have, number(ctx, clef_tensor_shape(have), 5), leaf, 1 + parameters, false, d), CLEF_OK, "%s: %s", layer,
                 clef_error(ctx));
    expect(have, y, layer, "y");
    expect(d[0], dx, layer, "dx");
    for (int i = 1; i <= parameters; i++) dp = expect(d[i], dp, layer, "gradient of a parameter");
    cr_expect_eq(*dp, 1, "%s: as many parameters as PyTorch's", layer);
    for (int i = 0; i < n; i++)
        if (clef_module_tensor(m, i).is_buffer && clef_tensor_shape(clef_module_tensor(m, i).tensor).rank)
            running = expect(clef_module_tensor(m, i).tensor, running, layer, "running statistics");
    cr_expect_eq(*running, 1, "%s: as many buffers as PyTorch's", layer);
    cr_assert_eq(clef_end_step(ctx), CLEF_OK);
    clef_release(leaf[0]);
}

#define NUMBERS(...) ((const double[]){__VA_ARGS__})
#define LAYER(make, shape, ...) check(make, #make, shape, __VA_ARGS__);

Test(torch_layers, values_and_gradients) {
    clef_context *ctx = open_seeded(1);
#include "expectations/layers.def"
    close_clean(ctx);
}
