/* attention_block.h — a transformer block that takes images: rows are the sequence; softmax attention with dropout, and a perceptron. */
#ifndef CLEF_TESTS_ATTENTION_BLOCK_H
#define CLEF_TESTS_ATTENTION_BLOCK_H
#include <clef.h>
#include <math.h>
#include <stdio.h>

/* Layers: queries, keys, values, projection, two norms, two of the perceptron, the head. */
static inline clef_module *attention_block(clef_context *ctx, int64_t side, int64_t classes) {
    return clef_sequential(ctx,
                           CLEF_LAYERS(clef_nn_linear(ctx, side, side, NULL), clef_nn_linear(ctx, side, side, NULL),
                                       clef_nn_linear(ctx, side, side, NULL), clef_nn_linear(ctx, side, side, NULL),
                                       clef_nn_layer_norm(ctx, CLEF_SHAPE(side), NULL),
                                       clef_nn_layer_norm(ctx, CLEF_SHAPE(side), NULL), clef_nn_linear(ctx, side, 4 * side, NULL),
                                       clef_nn_linear(ctx, 4 * side, side, NULL), clef_nn_linear(ctx, side * side, classes, NULL)));
}

/* Layer i of a sequential, of x. */
static inline clef_tensor *layer(clef_module *net, int i, clef_tensor *x) {
    char name[8];
    snprintf(name, sizeof name, "%d", i);
    return clef_forward(clef_module_child(net, name), x);
}

static inline clef_tensor *attend(clef_module *net, int64_t side, clef_tensor *x) {
    x = clef_reshape(x, CLEF_SHAPE(-1, side, side));
    clef_tensor *h = layer(net, 4, x), *q = layer(net, 0, h), *k = layer(net, 1, h), *v = layer(net, 2, h);
    clef_tensor *scores = clef_mul_scalar(clef_matmul(q, clef_transpose(k, 1, 2)), 1 / sqrt((double)side));
    x = clef_add(x, layer(net, 3, clef_matmul(clef_dropout(clef_softmax(scores, -1), 0.1), v)));
    x = clef_add(x, layer(net, 7, clef_gelu(layer(net, 6, layer(net, 5, x)))));
    return layer(net, 8, clef_reshape(x, CLEF_SHAPE(-1, side * side)));
}
#endif
