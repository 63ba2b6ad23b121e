// 08_cpp.cpp — the training loop of 02_loop from C++17.
// The headers are the same; three macros take the place of C's compound literals:
//     C     &(clef_adam_options){.lr = 2e-3}           (int[]){1}             CLEF_LAYERS(a, b)
//     C++   CLEF_OPTIONS(clef_adam_options, o.lr = 2e-3)   CLEF_ARRAY(int, 1)     CLEF_LAYERS(a, b)
#include <clef.h>
#include <cstdio>
#include <memory>

int main() {
    std::unique_ptr<clef_context, decltype(&clef_close)> owner(clef_open(nullptr), clef_close);
    clef_context *ctx = owner.get();
    if (!ctx) return std::fprintf(stderr, "skipped: %s\n", clef_error(nullptr)), 77;

    clef_loader *data = clef_loader_open(clef_digits(ctx, CLEF_TRAIN),
                                         CLEF_OPTIONS(clef_loader_options, o.batch = 32, o.shuffle = true, o.drop_last = true));
    clef_module *net = clef_sequential(
        ctx, CLEF_LAYERS(clef_nn_conv2d(ctx, 1, 32, 3, CLEF_OPTIONS(clef_nn_conv2d_options, o.conv.same = true, o.no_bias = true)),
                         clef_nn_batch_norm2d(ctx, 32, nullptr), clef_nn_relu(ctx), clef_nn_max_pool2d(ctx, 2, nullptr),
                         clef_nn_flatten(ctx), clef_nn_linear(ctx, 32 * 4 * 4, 10, nullptr)));
    clef_optimizer *opt = clef_adamw(net, CLEF_OPTIONS(clef_adamw_options, o.lr = 2e-3));

    double first = 0, last = 0;
    for (int epoch = 1; epoch <= 3; epoch++) {
        clef_tensor *sum = clef_zeros(ctx, CLEF_SCALAR, CLEF_F32);
        for (clef_batch b; clef_next(data, &b);) {
            clef_tensor *loss =
                clef_cross_entropy(clef_forward(net, b.x), b.y, CLEF_OPTIONS(clef_loss_options, o.label_smoothing = 0.1));
            clef_backward(loss);
            clef_step(opt);
            sum = loss;
        }
        last = clef_item(sum);
        if (epoch == 1) first = last;
        std::printf("epoch %d  last loss %.4f\n", epoch, last);
    }

    clef_evaluation_result result;
    clef_evaluate(net, data, nullptr, nullptr, &result);
    std::printf("accuracy %.2f %%\n", 100 * result.accuracy);
    for (CLEF_NO_GRAD(ctx)) {
        clef_tensor *x = clef_reshape(clef_arange(ctx, 0, 6, 1, CLEF_F32), CLEF_SHAPE(2, 3));
        clef_print(clef_sum(x, CLEF_ARRAY(int, 1), 1, false), stdout);
    }

    bool failed = clef_error_status(ctx) != CLEF_OK || !(last < first) || result.accuracy < 0.8;
    if (clef_error_status(ctx)) std::fprintf(stderr, "%s\n", clef_error(ctx));
    return failed;
}
