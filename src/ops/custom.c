/* custom.c — pointwise ops from the user's text: descriptors made once per clef_custom_op and context. */
#include "ops/ops.h"
#include <ctype.h>
#include <string.h>

typedef struct custom_op {
    clef_op op, backward[3];
    char *backward_name; /* owned */
    const clef_custom_op *user;
    struct custom_op *next;
} custom_op;

static void free_customs(clef_context *ctx, void *state) {
    (void)ctx;
    for (custom_op *c = *(custom_op **)state, *next; c; c = next) {
        next = c->next;
        clef__free(c->backward_name);
        clef__free(c);
    }
    clef__free(state);
}

static void custom_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                            clef_tensor **dx) {
    const custom_op *c = (const custom_op *)clef__node_of(y[0])->op;
    int n = clef__node_of(y[0])->n_inputs;
    clef_tensor *input[4];
    memcpy(input, x, (size_t)n * sizeof *input);
    input[n] = g[0];
    for (int i = 0; i < n; i++)
        if (wanted[i] && c->user->backward[i])
            dx[i] = clef__sum_to(clef__apply(&c->backward[i], input, n + 1, NULL, 0), clef_tensor_shape(x[i]));
}

static void no_second(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted, clef_tensor **dx) {
    (void)x, (void)g, (void)wanted, (void)dx;
    clef__refuse(clef_tensor_context(y[0]), clef__node_of(y[0])->op->name, CLEF_UNSUPPORTED,
                 "a custom op has no second derivative");
}

static bool is_identifier(const char *name) {
    if (!name || !(isalpha((unsigned char)*name) || *name == '_')) return false;
    while (isalnum((unsigned char)*name) || *name == '_') name++;
    return *name == 0;
}

/* The descriptors of this user's op, made at its first use; NULL when out of memory. */
static custom_op *custom_of(clef_context *ctx, const clef_custom_op *user, int n) {
    static const char *const forward_params[] = {"", "x", "xy", "xyz"}, *const backward_params[] = {"", "xg", "xyg", "xyzg"};
    custom_op **list = clef__make_room_state(ctx, CLEF__ROOM_OPS, sizeof *list, free_customs);
    if (!list) return NULL;
    for (custom_op *c = *list; c; c = c->next)
        if (c->user == user && c->op.params == forward_params[n]) return c;
    custom_op *c = clef__calloc(1, sizeof *c);
    if (!c) return NULL;
    c->backward_name = clef__asprintf("%s_backward", user->name);
    if (!c->backward_name) {
        clef__free(c);
        return NULL;
    }
    c->user = user;
    c->op = (clef_op){.name = user->name,
                      .kind = CLEF__POINTWISE,
                      .params = forward_params[n],
                      .text = user->forward,
                      .gradient = custom_gradient};
    for (int i = 0; i < n; i++)
        c->backward[i] = (clef_op){.name = c->backward_name,
                                   .kind = CLEF__POINTWISE,
                                   .params = backward_params[n],
                                   .text = user->backward[i],
                                   .gradient = no_second};
    c->next = *list;
    return *list = c;
}

clef_tensor *clef_custom(const clef_custom_op *op, clef_tensor *const *x, int n) {
    if (n > 3)
        return clef__refuse(x ? clef_tensor_context(x[0]) : NULL, "custom", CLEF_INVALID, "%d inputs; at most 3 (x, y, z)", n);
    if (!clef__given_array(NULL, "custom", "x", x, n)) return NULL;
    clef_dtype dtype = CLEF_F32;
    for (int i = 0; i < n; i++) {
        clef_dtype own = clef_tensor_dtype(clef__to_float(x[i]));
        dtype = i ? clef__promote(dtype, own) : own;
    }
    clef_context *ctx = clef_tensor_context(x[0]);
    if (!op || !is_identifier(op->name) || !op->forward)
        return clef__refuse(ctx, "custom", CLEF_INVALID, "needs a name that is a C identifier, and a forward text");
    custom_op *c = custom_of(ctx, op, n);
    if (!c) return clef__refuse(ctx, op->name, CLEF_MEMORY, "no host memory");
    clef_tensor *input[3];
    for (int i = 0; i < n; i++) input[i] = clef_to(x[i], dtype);
    return clef__apply(&c->op, input, n, NULL, 0);
}
