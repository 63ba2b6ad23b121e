/* layers_attention.c — multi-head attention as a layer.  Tensors are named and begin as PyTorch's MultiheadAttention's. */
#include "nn/language.h"
#include "nn/module.h"

typedef struct attention {
    int64_t width, heads, head;
    clef_nn_attention_options o; /* with defaults filled in */
    clef_tensor *joined,
        *separate[3];  /* the weight of q, k and v one below the other; or three, where keys or values have other widths */
    clef_tensor *bias; /* of q, k and v; CLEF_NONE where there is none */
} attention;

static int64_t rows_of(const attention *a, int part) { return a->head * (part ? a->o.kv_heads : a->heads); }

/* The rows of part 0 q, 1 k or 2 v in what has those of all. */
static clef_tensor *part_of(const attention *a, clef_tensor *all, int part) {
    int64_t first = 0;
    for (int p = 0; p < part; p++) first += rows_of(a, p);
    return all == CLEF_NONE ? all : clef_slice(all, 0, first, first + rows_of(a, part), 1);
}

/* Self-attention is one product, others are three; each [b,t,heads·head]. */
static bool project(const attention *a, clef_tensor *const *x, clef_tensor **y) {
    if (a->joined && x[1] == x[0] && x[2] == x[0])
        return clef_split(clef_linear(x[0], a->joined, a->bias), 2, (int64_t[]){rows_of(a, 0), rows_of(a, 1), rows_of(a, 2)}, 3,
                          y) == CLEF_OK;
    for (int p = 0; p < 3; p++)
        y[p] = clef_linear(x[p], a->joined ? part_of(a, a->joined, p) : a->separate[p], part_of(a, a->bias, p));
    return y[0] && y[1] && y[2];
}

static bool inputs_fit(const clef_module *m, const attention *a, clef_tensor *const *x) {
    static const char *const name[] = {"q", "k", "v"};
    const int64_t width[] = {a->width, a->o.kdim, a->o.vdim};
    char text[96];
    for (int p = 0; p < 3; p++) {
        clef_shape s = clef_tensor_shape(x[p]);
        if (s.rank == 3 && s.dim[2] == width[p]) continue;
        clef__fail(m->ctx, CLEF_SHAPE, "attention: %s %s is not [b,t,%lld]", name[p], clef_shape_format(s, text, sizeof text),
                   (long long)width[p]);
        return false;
    }
    return true;
}

static clef_status call_attention(clef_module *m, clef_tensor *const *in, int n, clef_tensor **out, int n_out, void *user) {
    const attention *a = user;
    clef_tensor *given[5] = {CLEF_NONE, CLEF_NONE, CLEF_NONE, CLEF_NONE, CLEF_NONE}, *part[3];
    if (n > 5 || n_out > 1 || in[0] == CLEF_NONE)
        return clef__fail(m->ctx, CLEF_INVALID,
                          "attention: %d inputs and %d outputs; it takes q, k, v, mask and lengths and gives one", n, n_out);
    for (int i = 0; i < n; i++) given[i] = in[i];
    if (given[1] == CLEF_NONE) given[1] = given[0];
    if (given[2] == CLEF_NONE) given[2] = given[1];
    if (!inputs_fit(m, a, given) || !project(a, given, part)) return clef_error_status(m->ctx);
    clef_attention_options o = {.causal = a->o.causal, .window = a->o.window, .mask = given[3], .lengths = given[4]};
    if (clef_is_training(m)) o.dropout = (float)a->o.dropout;
    for (int p = 0; p < 3; p++) part[p] = clef__heads_apart(part[p], p ? a->o.kv_heads : a->heads);
    clef_tensor *y = clef_attention(part[0], part[1], part[2], &o);
    out[0] = y ? clef__forward_child(m, "out_proj", clef__heads_together(y)) : NULL;
    return out[0] ? CLEF_OK : clef_error_status(m->ctx);
}

/* ---- making ---- */

static clef_tensor *new_weight(clef_module *m, const char *name, int64_t out, int64_t in) {
    clef_tensor *t = clef__new_parameter(m, name, CLEF_SHAPE(out, in));
    return t && clef_init_xavier_uniform(t, 1) == CLEF_OK ? t : NULL;
}

static bool make_weights(clef_module *m, attention *a) {
    static const char *const name[] = {"q_proj_weight", "k_proj_weight", "v_proj_weight"};
    const int64_t in[] = {a->width, a->o.kdim, a->o.vdim}, all = rows_of(a, 0) + 2 * rows_of(a, 1);
    bool joined = a->o.kdim == a->width && a->o.vdim == a->width, made = true;
    if (joined) made = (a->joined = new_weight(m, "in_proj_weight", all, a->width)) != NULL;
    for (int p = 0; p < 3 && !joined && made; p++) made = (a->separate[p] = new_weight(m, name[p], rows_of(a, p), in[p])) != NULL;
    a->bias = a->o.no_bias ? CLEF_NONE : clef__new_parameter(m, "in_proj_bias", CLEF_SHAPE(all));
    clef_module *out =
        clef__attach(m, "out_proj", clef_nn_linear(m->ctx, rows_of(a, 0), a->width, &(clef_nn_options){.no_bias = a->o.no_bias}));
    return made && a->bias && out && (a->o.no_bias || clef_init_constant(clef_parameter(out, "bias"), 0) == CLEF_OK);
}

clef_module *clef_nn_attention(clef_context *ctx, int64_t width, int64_t heads, const clef_nn_attention_options *options) {
    if (!ctx) return NULL;
    attention like = {.width = width, .heads = heads, .o = options ? *options : (clef_nn_attention_options){0}};
    clef_nn_attention_options *o = &like.o;
    if (!o->kv_heads) o->kv_heads = heads;
    if (!o->kdim) o->kdim = width;
    if (!o->vdim) o->vdim = width;
    if (width < 1 || heads < 1 || width % heads || o->kv_heads < 1 || heads % o->kv_heads || o->kdim < 1 || o->vdim < 1)
        return clef__module_refuse(
            ctx, "attention: width %lld, %lld heads, %lld of keys; heads must divide the width, and those of keys the heads",
            (long long)width, (long long)heads, (long long)o->kv_heads);
    if (!(o->dropout >= 0 && o->dropout <= 1) || o->window < 0)
        return clef__module_refuse(ctx, "attention: dropout %g, window %lld; a probability and no negative number are wanted",
                                   o->dropout, (long long)o->window);
    like.head = width / heads;
    clef_module *m = clef__module_make_call(ctx, "attention", call_attention, &like, sizeof like);
    return m && make_weights(m, m->user) ? m : NULL;
}
