// consumer.cpp — the same from C++: every public header, shapes, layers, options and arrays without compound literals.
#include <clef.h>
#include <clef/opencl.h>
#include <cstdio>

int main() {
    clef_context *ctx = clef_open(nullptr);
    if (!ctx) {
        std::puts(clef_error(nullptr));
        return clef_error_status(nullptr) == CLEF_NO_DEVICE ? 0 : 1;
    }
    const float values[4] = {-1, 2, -3, 4};
    float result[4] = {};
    clef_tensor *x = clef_from_host(ctx, CLEF_SHAPE(2, 2), CLEF_F32, values);
    clef_status status = clef_read(clef_relu(clef_add_scalar(x, 1.0)), result, sizeof result);
    clef_module *net = clef_sequential(
        ctx, CLEF_LAYERS(clef_nn_flatten(ctx), clef_nn_linear(ctx, 4, 3, CLEF_OPTIONS(clef_nn_options, o.no_bias = true))));
    static clef_tensor *const absent = CLEF_NONE;
    if (clef_numel(clef_linear(x, x, absent)) != 4) return std::puts("no product without a bias"), 1;
    clef_tensor *sum = clef_sum(clef_forward(net, clef_ones(ctx, CLEF_SHAPE(1, 2, 2), CLEF_F32)), CLEF_ARRAY(int, 1), 1, false);
    if (clef_module_tensors(net) != 1 || clef_numel(sum) != 1) return std::puts("no layers"), 1;
    if (status != CLEF_OK) std::fprintf(stderr, "%s\n", clef_error(ctx));
    clef_close(ctx);
    std::printf("relu(x + 1) = %g %g %g %g\n", result[0], result[1], result[2], result[3]);
    return !(status == CLEF_OK && result[0] == 0 && result[1] == 3 && result[2] == 0 && result[3] == 5);
}
