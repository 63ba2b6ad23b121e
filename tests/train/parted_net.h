/* parted_net.h — a net whose two parts lie where a test says, on the halves of a device. */
#ifndef CLEF_TESTS_PARTED_NET_H
#define CLEF_TESTS_PARTED_NET_H
#include "support/device.h"

enum { CLASSES = 10 };
typedef enum place { FIRST, SECOND, BOTH, MOVING, PLACES } place; /* MOVING: from the first to both, half-way */

static clef_context *ctx;

/* ---- a net of two parts; what comes from the first is brought to where the second lies ---- */

static clef_tensor *forward_parts(clef_module *net, clef_tensor *x, void *user) {
    (void)user;
    clef_tensor *between = clef_forward(clef_module_child(net, "head"), x);
    clef_module *tail = clef_module_child(net, "tail");
    return clef_forward(tail, clef_to_device(between, clef_tensor_device(clef_module_tensor(tail, 0).tensor)));
}

static inline void put(clef_module *net, place where) {
    if (where == MOVING) where = FIRST;
    int head = where == SECOND, tail = where != FIRST;
    cr_assert_eq(clef_module_to(clef_module_child(net, "head"), head), CLEF_OK, "%s", clef_error(ctx));
    cr_assert_eq(clef_module_to(clef_module_child(net, "tail"), tail), CLEF_OK, "%s", clef_error(ctx));
    for (int i = 0; i < clef_module_tensors(net); i++) {
        clef_named_tensor t = clef_module_tensor(net, i);
        cr_assert_eq(clef_tensor_device(t.tensor), t.name[0] == 'h' ? head : tail, "%s", t.name);
    }
}

static inline clef_module *new_net(void) {
    clef_module *net = clef_module_new(ctx, "parts", forward_parts, NULL);
    clef_module *head = clef_sequential(ctx, CLEF_LAYERS(clef_nn_conv2d(ctx, 1, 4, 3, NULL), clef_nn_batch_norm2d(ctx, 4, NULL),
                                                         clef_nn_relu(ctx), clef_nn_dropout(ctx, 0.3)));
    clef_module *tail = clef_sequential(ctx, CLEF_LAYERS(clef_nn_flatten(ctx), clef_nn_linear(ctx, 4 * 6 * 6, CLASSES, NULL)));
    clef_module_add(net, "head", head);
    clef_module_add(net, "tail", tail);
    cr_assert(net && head && tail, "%s", clef_error(ctx));
    return net;
}

/* Parameters and running statistics one after another; for free(). */
static inline float *weights_of(clef_module *net, size_t *n) {
    size_t room = 4096;
    float *all = malloc(room * sizeof *all);
    *n = 0;
    for (int i = 0; i < clef_module_tensors(net); i++) {
        clef_tensor *t = clef_module_tensor(net, i).tensor;
        size_t here = clef_tensor_dtype(t) == CLEF_F32 ? (size_t)clef_numel(t) : 0;
        cr_assert_leq(*n + here, room);
        if (here) cr_assert_eq(clef_read(t, all + *n, here * sizeof *all), CLEF_OK, "%s", clef_error(ctx));
        *n += here;
    }
    return all;
}
#endif
