/* attention_fused.c — attention without the matrix of weights in memory: the ops of kernels/attention.h.

   All compute in f32.  The forward op gives y and log Σ exp of each query; the gradients are an op
   that computes the weights from it again.  Options that are tensors are inputs behind q, k, v in a fixed order. */
#include "kernels/attention.h"
#include "ops/attention.h"

/* ---- infer ---- */

static bool infer_forward(clef__call *call) {
    clef_shape q = call->input[0]->shape, k = call->input[1]->shape, v = call->input[2]->shape;
    bool fits = q.rank == 4 && k.rank == 4 && v.rank == 4 && k.dim[3] == q.dim[3] && k.dim[2] == v.dim[2] && k.dim[1] > 0 &&
                k.dim[1] == v.dim[1] && q.dim[1] % k.dim[1] == 0 && k.dim[0] == q.dim[0] && v.dim[0] == q.dim[0];
    call->out[0] = (clef__type){CLEF_SHAPE(q.dim[0], q.dim[1], q.dim[2], v.dim[3]), CLEF_F32};
    call->out[1] = (clef__type){CLEF_SHAPE(q.dim[0], q.dim[1], q.dim[2]), CLEF_F32};
    return clef__infer_takes(call, fits && call->input[0]->dtype == CLEF_F32, "q, k and v are heads of f32 that fit");
}

static bool infer_gradients(clef__call *call) {
    for (int i = 0; i < 3; i++) call->out[i] = (clef__type){call->input[i]->shape, CLEF_F32};
    return true;
}

/* ---- ops ---- */

static double products(const clef__node *node) {
    clef__attention_sizes s = clef__attention_sizes_of(node);
    return (double)s.b * (double)s.h * (double)s.tq * (double)s.tk;
}
static double memory(const clef__node *node) {
    double bytes = 0;
    for (int i = 0; i < node->n_inputs; i++) bytes += clef__output_bytes(node->input[i]);
    for (int i = 0; i < node->n_outputs; i++) bytes += clef__output_bytes(&node->out[i]);
    return bytes;
}
static void cost_forward(const clef__node *node, double *flops, double *bytes) {
    clef__attention_sizes s = clef__attention_sizes_of(node);
    *flops = 2 * products(node) * (double)(s.d + s.dv), *bytes = memory(node);
}
/* As if all three were wanted. */
static void cost_gradients(const clef__node *node, double *flops, double *bytes) {
    clef__attention_sizes s = clef__attention_sizes_of(node);
    *flops = 2 * products(node) * (double)(3 * s.d + 2 * s.dv), *bytes = memory(node);
}

#define ATTENTION_OP(part, slopes)                                                       \
    static const clef_op op_##part = {.name = "attention_" #part,                        \
                                      .kind = CLEF__KERNEL,                              \
                                      .infer = infer_##part,                             \
                                      .gradient = slopes,                                \
                                      .strategies = clef__attention_##part##_strategies, \
                                      .cost = cost_##part};
ATTENTION_OP(gradients, NULL)

/* The call again, from a node of op_forward. */
static clef__attention call_of(clef_tensor *const *x, const clef__node *node) {
    const clef__attending *a = clef__attributes(node);
    clef__attention_sizes s = clef__attention_sizes_of(node);
    clef_tensor *given[CLEF__ATTENTION_OPTIONS];
    for (int i = 0; i < CLEF__ATTENTION_OPTIONS; i++) given[i] = a->at[i] < 0 ? NULL : x[a->at[i]];
    return (clef__attention){.b = s.b,
                             .h = s.h,
                             .hk = s.hk,
                             .tq = s.tq,
                             .tk = s.tk,
                             .d = s.d,
                             .dv = s.dv,
                             .causal = a->causal != 0,
                             .shift = a->shift,
                             .window = a->window,
                             .scale = a->scale,
                             .softcap = a->softcap,
                             .mask = given[CLEF__ATTENTION_MASK],
                             .lengths = given[CLEF__ATTENTION_LENGTHS],
                             .offset = given[CLEF__ATTENTION_PLACES],
                             .slopes = given[CLEF__ATTENTION_SLOPES]};
}

/* Gradients that are to be differentiated again are those of the composition, each by one input alone, also where one was made from another,
   or is the same. */
static void slopes_of_composed(clef_tensor *const *x, const clef__node *node, clef_tensor *g, clef_tensor **dx) {
    const clef__attending *a = clef__attributes(node);
    if (a->at[CLEF__ATTENTION_KEY] >= 0) {
        clef__refuse(node->ctx, "attention", CLEF_UNSUPPORTED,
                     "no second derivative with dropout; write it with clef_matmul, clef_softmax and clef_dropout");
        return;
    }
    clef__attention call = call_of(x, node);
    clef_tensor *own[] = {clef__apart(x[0]), clef__apart(x[1]), clef__apart(x[2])};
    if (!own[0] || !own[1] || !own[2]) return;
    clef_tensor *y = clef__attention_composed(own[0], own[1], own[2], &call);
    if (y) clef__grad_between(y, g, own, 3, dx);
}

static void gradient_forward(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                             clef_tensor **dx) {
    const clef__node *node = clef__node_of(y[0]);
    clef_tensor *in[3 + CLEF__ATTENTION_OPTIONS + 3], *all[3];
    if (!g[0]) return;
    if (clef_grad_enabled(node->ctx)) {
        slopes_of_composed(x, node, g[0], dx);
        return;
    }
    int n = node->n_inputs;
    for (int i = 0; i < n; i++) in[i] = x[i];
    in[n++] = g[0], in[n++] = y[1], in[n++] = clef_sum(clef_mul(g[0], y[0]), (int[]){3}, 1, false);
    if (!clef__apply_all(&op_gradients, in, n, clef__attributes(node), sizeof(clef__attending), all, 3)) return;
    for (int i = 0; i < 3; i++)
        if (wanted[i]) dx[i] = all[i];
}
ATTENTION_OP(forward, gradient_forward)

/* ---- the call ---- */

static bool wants_gradient(clef_tensor *t) {
    return t && clef_grad_enabled(clef_tensor_context(t)) && clef__output_of(t)->requires_grad;
}

bool clef__attention_fits(clef_tensor *q, const clef__attention *a) {
    const clef__profile *profile = clef__device_profile(clef__device_at(clef_tensor_context(q), clef_tensor_device(q)));
    bool empty = a->b * a->h * a->tq * a->tk * a->d * a->dv == 0, mask_learns = a->mask && wants_gradient(a->mask);
    return clef__attention_on(profile) && !empty && !mask_learns && clef_tensor_dtype(q) != CLEF_F64 &&
           a->d <= CLEF__ATTENTION_COLUMNS && a->dv <= CLEF__ATTENTION_COLUMNS && clef__larger(a->tq, a->tk) < 1 << 29 &&
           a->window < 1 << 29;
}

/* Dropout's key, and in *first the number of this rank's first weight among those of the whole batch. */
static clef_tensor *dropout_key(clef_tensor *q, const clef__attention *a, int64_t *first) {
    clef__share share = clef__window_of(clef_tensor_context(q));
    if (share.all != share.items && a->b == share.items) *first = share.first * a->h * a->tq * a->tk;
    return clef__random_bits_beside(q, CLEF_SHAPE(1));
}

clef_tensor *clef__attention_fused(clef_tensor *q, clef_tensor *k, clef_tensor *v, const clef__attention *a) {
    clef__attending at = {a->causal,  clef__larger(-(1 << 30), clef__smaller(a->shift, 1 << 30)),
                          a->window,  0,
                          a->scale,   a->softcap,
                          a->dropout, {-1, -1, -1, -1, -1}};
    clef_dtype dtype = clef_tensor_dtype(q);
    clef_tensor *in[3 + CLEF__ATTENTION_OPTIONS] = {clef_to(q, CLEF_F32), clef_to(k, CLEF_F32), clef_to(v, CLEF_F32)}, *out[2];
    clef_tensor *given[CLEF__ATTENTION_OPTIONS] = {[CLEF__ATTENTION_LENGTHS] = a->lengths ? clef_to(a->lengths, CLEF_I32) : NULL,
                                                   [CLEF__ATTENTION_PLACES] = a->offset ? clef_to(a->offset, CLEF_I32) : NULL,
                                                   [CLEF__ATTENTION_SLOPES] =
                                                       a->slopes ? clef_to(clef_detach(a->slopes), CLEF_F32) : NULL};
    if (a->mask) given[CLEF__ATTENTION_MASK] = clef_to(a->mask, clef__is_float(clef_tensor_dtype(a->mask)) ? CLEF_F32 : CLEF_BOOL);
    if (a->dropout > 0) given[CLEF__ATTENTION_KEY] = dropout_key(q, a, &at.first);
    int n = 3;
    for (int i = 0; i < CLEF__ATTENTION_OPTIONS; i++)
        if (given[i]) in[at.at[i] = n++] = given[i];
    return clef__apply_all(&op_forward, in, n, &at, sizeof at, out, 2) ? clef_to(out[0], dtype) : NULL;
}
