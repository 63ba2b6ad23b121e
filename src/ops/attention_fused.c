/* attention_fused.c — attention without the matrix of weights in memory: the ops of cl/attention.cl.

   All compute in f32.  The forward op gives y and log Σ exp of each query; the gradients of queries, and of keys and values, are two
   ops that compute the weights from it again.  Options that are tensors are inputs behind q, k, v in a fixed order. */
#include "attention.args"
#include "kernels/args.h"
#include "kernels/lanes.h"
#include "ops/attention.h"
#include "plan/lower/cost.h"

CLEF__ARGS(attention_forward, ATTENTION_FORWARD_ARGS)
CLEF__ARGS(attention_queries, ATTENTION_QUERIES_ARGS)
CLEF__ARGS(attention_keys, ATTENTION_KEYS_ARGS)

enum { MASK, LENGTHS, PLACES, SLOPES, KEY, OPTIONS };
enum { MOST_COLUMNS = 256 };
typedef struct attributes {
    int64_t causal, shift, window, first; /* first: dropout's number of the first weight */
    double scale, softcap, dropout;
    int64_t at[OPTIONS]; /* the input that is this option; -1: none */
} attributes;

/* ---- infer ---- */

static bool infer_forward(clef__call *call) {
    clef_shape q = call->input[0]->shape, k = call->input[1]->shape, v = call->input[2]->shape;
    bool fits = q.rank == 4 && k.rank == 4 && v.rank == 4 && k.dim[3] == q.dim[3] && k.dim[2] == v.dim[2] && k.dim[1] > 0 &&
                k.dim[1] == v.dim[1] && q.dim[1] % k.dim[1] == 0 && k.dim[0] == q.dim[0] && v.dim[0] == q.dim[0];
    call->out[0] = (clef__type){CLEF_SHAPE(q.dim[0], q.dim[1], q.dim[2], v.dim[3]), CLEF_F32};
    call->out[1] = (clef__type){CLEF_SHAPE(q.dim[0], q.dim[1], q.dim[2]), CLEF_F32};
    return clef__infer_takes(call, fits && call->input[0]->dtype == CLEF_F32, "q, k and v are heads of f32 that fit");
}

static bool infer_queries(clef__call *call) {
    call->out[0] = (clef__type){call->input[0]->shape, CLEF_F32};
    return true;
}

static bool infer_keys(clef__call *call) {
    call->out[0] = (clef__type){call->input[1]->shape, CLEF_F32};
    call->out[1] = (clef__type){call->input[2]->shape, CLEF_F32};
    return true;
}

/* ---- lowering ---- */

typedef struct sizes {
    int64_t b, h, hk, tq, tk, d, dv;
} sizes;
static sizes sizes_of(const clef__node *node) {
    clef_shape q = node->input[0]->shape, k = node->input[1]->shape, v = node->input[2]->shape;
    return (sizes){q.dim[0], q.dim[1], k.dim[1], q.dim[2], k.dim[2], q.dim[3], v.dim[3]};
}

/* Input i with its columns contiguous; else a copy. */
static clef__operand rows_of(const clef__lowering *lw, int i) {
    clef__operand x = clef__lower_in(lw, i);
    return x.stride[3] == 1 || x.dim[3] == 1 ? x : clef__lower_in_dense(lw, i, NULL);
}

/* Output k in the order in which `like` lies: [b,t,h,d] where a layer's heads are a view of that, else [b,h,t,d]. */
static clef__operand output_like(const clef__lowering *lw, int k, const clef__operand *like) {
    static const int by_head[] = {0, 1, 2, 3}, by_row[] = {0, 2, 1, 3};
    return clef__lower_output(lw, k, like->stride[1] < like->stride[2] ? by_row : by_head);
}

/* What all three kernels read: q, k and v, and the operands of options; q stands in for those that are not there, which no kernel reads. */
typedef struct inputs {
    const clef__node *node;
    const attributes *a;
    sizes s;
    clef__operand q, k, v, x[OPTIONS];
} inputs;

static inputs inputs_of(const clef__lowering *lw) {
    const clef__node *node = clef__lower_node(lw);
    inputs in = {.node = node, .a = clef__attributes(node), .s = sizes_of(node)};
    in.q = rows_of(lw, 0), in.k = rows_of(lw, 1), in.v = rows_of(lw, 2);
    for (int i = 0; i < OPTIONS; i++) {
        int at = (int)in.a->at[i];
        if (at < 0) in.x[i] = in.q;
        else if (i != MASK) in.x[i] = clef__lower_in_dense(lw, at, NULL);
        else in.x[i] = clef__broadcast_operand(clef__lower_in(lw, at), CLEF_SHAPE(in.s.b, in.s.h, in.s.tq, in.s.tk));
    }
    return in;
}

/* The largest tile of a register's rows that divides so many columns. */
static int tile_of(int64_t columns, int most) {
    int tile = most;
    while (columns % tile) tile--;
    return tile;
}

static int lanes_of(const clef__profile *profile) { return (int)clef__larger(profile->vector, 4) * 2; }

static void begin(const clef__lowering *lw, const inputs *in, const char *kernel) {
    const clef__profile *profile = clef__lower_profile(lw);
    const attributes *a = in->a;
    sizes s = in->s;
    bool has_mask = a->at[MASK] >= 0, added = has_mask && in->node->input[a->at[MASK]]->dtype == CLEF_F32;
    clef__launch_begin(lw, "attention.cl", kernel);
    clef__launch_define(lw, "D", "%d", (int)s.d);
    clef__launch_define(lw, "DV", "%d", (int)s.dv);
    clef__launch_define(lw, "MR", "%d", profile->tile_m);
    clef__launch_define(lw, "TD", "%d", tile_of(s.d, profile->tile_m));
    clef__launch_define(lw, "TV", "%d", tile_of(s.dv, profile->tile_m));
    clef__launch_define(lw, "W", "%d", (int)clef__larger(profile->vector, 4));
    clef__launch_define(lw, "MASKED", "%d", !has_mask ? 0 : added ? 2 : 1);
    clef__launch_define(lw, "MASK_DT", "%s", added ? "f32" : "u8");
    clef__launch_define(lw, "SLOPES", "%d", a->at[SLOPES] >= 0);
    clef__launch_define(lw, "CAP", "%d", a->softcap > 0);
    clef__launch_define(lw, "DROP", "%d", a->at[KEY] >= 0);
}

/* clang-format off */
#define STRIDES(x) {(x).stride[0], (x).stride[1], (x).stride[2]}
/* Arguments that all three have, of `in`. */
#define INPUTS .q = in.q, .k = in.k, .v = in.v, .qs = STRIDES(in.q), .ks = STRIDES(in.k), .vs = STRIDES(in.v), \
    .heads = in.s.h, .shared = in.s.h / in.s.hk, .tq = in.s.tq, .tk = in.s.tk, \
    .mask = in.x[MASK], .lengths = in.x[LENGTHS], .places = in.x[PLACES], .slopes = in.x[SLOPES], .key = in.x[KEY], \
    .mask_outer = {in.x[MASK].stride[0], in.x[MASK].stride[1]}, .mask_inner = {in.x[MASK].stride[2], in.x[MASK].stride[3]}, \
    .causal = in.a->causal, .has_lengths = in.a->at[LENGTHS] >= 0, .has_places = places_of(&in), .shift = in.a->shift, \
    .window = in.a->window, .scale = (float)in.a->scale, .cap = (float)in.a->softcap, .dropout = (float)in.a->dropout, \
    .first = in.a->first
/* clang-format on */

/* 0: none; 1: one for all items; 2: one for each. */
static int places_of(const inputs *in) {
    int64_t at = in->a->at[PLACES];
    return at < 0 ? 0 : clef_shape_numel(in->node->input[at]->shape) > 1 ? 2 : 1;
}

static clef__units units_of(const clef__lowering *lw, const sizes *s, int64_t heads, int64_t rows, int64_t others) {
    int64_t lanes = lanes_of(clef__lower_profile(lw));
    return clef__lower_units(lw, s->b * heads * clef__ceil_div(rows, lanes), clef__times(lanes * (s->d + s->dv) / 8, others));
}

static void lower_forward(const clef__lowering *lw) {
    inputs in = inputs_of(lw);
    clef__operand y = output_like(lw, 0, &in.q), sums = clef__lower_output(lw, 1, NULL);
    begin(lw, &in, "attention_forward");
    attention_forward_args args = {INPUTS, .y = y, .sums = sums, .ys = STRIDES(y),
                                   .units = units_of(lw, &in.s, in.s.h, in.s.tq, in.s.tk)};
    pass_attention_forward(lw, &args);
    clef__launch_end_units(lw, args.units);
}

/* The inputs of gradients end with g, sums, dots. */
static clef__operand gradient_input(const clef__lowering *lw, int i) {
    int at = clef__lower_node(lw)->n_inputs - 3 + i;
    return i == 0 ? rows_of(lw, at) : clef__lower_in_dense(lw, at, NULL);
}

static void lower_queries(const clef__lowering *lw) {
    inputs in = inputs_of(lw);
    clef__operand g = gradient_input(lw, 0), sums = gradient_input(lw, 1), dots = gradient_input(lw, 2);
    clef__operand dq = output_like(lw, 0, &in.q);
    begin(lw, &in, "attention_queries");
    clef__units units = units_of(lw, &in.s, in.s.h, in.s.tq, 2 * in.s.tk);
    attention_queries_args args = {INPUTS,   .g = g,           .sums = sums,      .dots = dots,
                                   .dq = dq, .gs = STRIDES(g), .ds = STRIDES(dq), .units = units};
    pass_attention_queries(lw, &args);
    clef__launch_end_units(lw, args.units);
}

static void lower_keys(const clef__lowering *lw) {
    inputs in = inputs_of(lw);
    clef__operand g = gradient_input(lw, 0), sums = gradient_input(lw, 1), dots = gradient_input(lw, 2);
    clef__operand dk = output_like(lw, 0, &in.k), dv = output_like(lw, 1, &in.v);
    begin(lw, &in, "attention_keys");
    clef__units units = units_of(lw, &in.s, in.s.hk, in.s.tk, 2 * in.s.tq * (in.s.h / in.s.hk));
    attention_keys_args args = {INPUTS,   .g = g,           .sums = sums,       .dots = dots,       .dk = dk,
                                .dv = dv, .gs = STRIDES(g), .dks = STRIDES(dk), .dvs = STRIDES(dv), .units = units};
    pass_attention_keys(lw, &args);
    clef__launch_end_units(lw, args.units);
}

/* ---- ops ---- */

static double products(const clef__node *node) {
    sizes s = sizes_of(node);
    return (double)s.b * (double)s.h * (double)s.tq * (double)s.tk;
}
static double memory(const clef__node *node) {
    double bytes = 0;
    for (int i = 0; i < node->n_inputs; i++) bytes += clef__output_bytes(node->input[i]);
    for (int i = 0; i < node->n_outputs; i++) bytes += clef__output_bytes(&node->out[i]);
    return bytes;
}
static void cost_forward(const clef__node *node, double *flops, double *bytes) {
    sizes s = sizes_of(node);
    *flops = 2 * products(node) * (double)(s.d + s.dv), *bytes = memory(node);
}
static void cost_queries(const clef__node *node, double *flops, double *bytes) {
    sizes s = sizes_of(node);
    *flops = 2 * products(node) * (double)(2 * s.d + s.dv), *bytes = memory(node);
}
static void cost_keys(const clef__node *node, double *flops, double *bytes) {
    sizes s = sizes_of(node);
    *flops = 4 * products(node) * (double)(s.d + s.dv), *bytes = memory(node);
}

#define ATTENTION_OP(part, slopes)                                                                                             \
    static const clef__strategy *const part##_strategies[] = {&(const clef__strategy){.name = "tiles", .lower = lower_##part}, \
                                                              NULL};                                                           \
    static const clef_op op_##part = {.name = "attention_" #part,                                                              \
                                      .kind = CLEF__KERNEL,                                                                    \
                                      .infer = infer_##part,                                                                   \
                                      .gradient = slopes,                                                                      \
                                      .strategies = part##_strategies,                                                         \
                                      .cost = cost_##part};
ATTENTION_OP(queries, NULL)
ATTENTION_OP(keys, NULL)

/* The call again, from a node of op_forward. */
static clef__attention call_of(clef_tensor *const *x, const clef__node *node) {
    const attributes *a = clef__attributes(node);
    sizes s = sizes_of(node);
    clef_tensor *given[OPTIONS];
    for (int i = 0; i < OPTIONS; i++) given[i] = a->at[i] < 0 ? NULL : x[a->at[i]];
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
                             .mask = given[MASK],
                             .lengths = given[LENGTHS],
                             .offset = given[PLACES],
                             .slopes = given[SLOPES]};
}

/* Gradients that are to be differentiated again are those of the composition. */
static void slopes_of_composed(clef_tensor *const *x, const clef__node *node, clef_tensor *g, clef_tensor **dx) {
    const attributes *a = clef__attributes(node);
    if (a->at[KEY] >= 0) {
        clef__refuse(node->ctx, "attention", CLEF_UNSUPPORTED, "no second derivative with dropout");
        return;
    }
    clef__attention call = call_of(x, node);
    clef_tensor *y = clef__attention_composed(x[0], x[1], x[2], &call);
    clef_grad(y, g, x, 3, true, dx);
}

static void gradient_forward(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                             clef_tensor **dx) {
    const clef__node *node = clef__node_of(y[0]);
    clef_tensor *in[3 + OPTIONS + 3], *of_keys[2];
    if (!g[0]) return;
    if (clef_grad_enabled(node->ctx)) {
        slopes_of_composed(x, node, g[0], dx);
        return;
    }
    int n = node->n_inputs;
    for (int i = 0; i < n; i++) in[i] = x[i];
    in[n++] = g[0], in[n++] = y[1], in[n++] = clef_sum(clef_mul(g[0], y[0]), (int[]){3}, 1, false);
    if (wanted[0]) dx[0] = clef__apply(&op_queries, in, n, clef__attributes(node), sizeof(attributes));
    if (!wanted[1] && !wanted[2]) return;
    if (!clef__apply_all(&op_keys, in, n, clef__attributes(node), sizeof(attributes), of_keys, 2)) return;
    if (wanted[1]) dx[1] = of_keys[0];
    if (wanted[2]) dx[2] = of_keys[1];
}
ATTENTION_OP(forward, gradient_forward)

/* ---- the call ---- */

static bool wants_gradient(clef_tensor *t) {
    return t && clef_grad_enabled(clef_tensor_context(t)) && clef__output_of(t)->requires_grad;
}

bool clef__attention_fits(clef_tensor *q, const clef__attention *a) {
    const clef__profile *profile = clef__device_profile(clef__device_at(clef_tensor_context(q), clef_tensor_device(q)));
    bool empty = a->b * a->h * a->tq * a->tk * a->d * a->dv == 0, mask_learns = a->mask && wants_gradient(a->mask);
    return profile->wide_items && !empty && !mask_learns && clef_tensor_dtype(q) != CLEF_F64 && a->d <= MOST_COLUMNS &&
           a->dv <= MOST_COLUMNS && clef__larger(a->tq, a->tk) < 1 << 29 && a->window < 1 << 29 &&
           (a->tq > 1 || a->offset || a->lengths);
}

/* Dropout's key, and in *first the number of this rank's first weight among those of the whole batch. */
static clef_tensor *dropout_key(clef_tensor *q, const clef__attention *a, int64_t *first) {
    clef__share share = clef__share_of(clef_tensor_context(q));
    if (share.all != share.items && a->b == share.items) *first = share.first * a->h * a->tq * a->tk;
    return clef__random_bits_beside(q, CLEF_SHAPE(1));
}

clef_tensor *clef__attention_fused(clef_tensor *q, clef_tensor *k, clef_tensor *v, const clef__attention *a) {
    attributes at = {a->causal,  clef__larger(-(1 << 30), clef__smaller(a->shift, 1 << 30)),
                     a->window,  0,
                     a->scale,   a->softcap,
                     a->dropout, {-1, -1, -1, -1, -1}};
    clef_dtype dtype = clef_tensor_dtype(q);
    clef_tensor *in[3 + OPTIONS] = {clef_to(q, CLEF_F32), clef_to(k, CLEF_F32), clef_to(v, CLEF_F32)}, *out[2];
    clef_tensor *given[OPTIONS] = {[LENGTHS] = a->lengths ? clef_to(a->lengths, CLEF_I32) : NULL,
                                   [PLACES] = a->offset ? clef_to(a->offset, CLEF_I32) : NULL,
                                   [SLOPES] = a->slopes ? clef_to(clef_detach(a->slopes), CLEF_F32) : NULL};
    if (a->mask) given[MASK] = clef_to(a->mask, clef__is_float(clef_tensor_dtype(a->mask)) ? CLEF_F32 : CLEF_BOOL);
    if (a->dropout > 0) given[KEY] = dropout_key(q, a, &at.first);
    int n = 3;
    for (int i = 0; i < OPTIONS; i++)
        if (given[i]) in[at.at[i] = n++] = given[i];
    return clef__apply_all(&op_forward, in, n, &at, sizeof at, out, 2) ? clef_to(out[0], dtype) : NULL;
}
