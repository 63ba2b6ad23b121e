/* bench_sequences.c — what clef bench measures of sequences: attention, recurrent layers, and GPTs that are trained and asked.  How FLOPs and bytes
   are counted: bench_suites.c. */
#include "bench.h"
#include <math.h>

/* ---- attention: q, k, v and the gradient of the result; v: causal, with gradients ---- */
static bool attention_once(const bench_case *c, clef_tensor *const *x) {
    clef_attention_options o = {.causal = c->v[0]};
    clef_tensor *dx[3];
    if (!c->v[1]) return bench_queue(clef_attention(x[0], x[1], x[2], &o));
    bench_want_gradients(x, 3, true);
    bool ok = clef_grad(clef_attention(x[0], x[1], x[2], &o), x[3], x, 3, false, dx) == CLEF_OK && clef_eval_all(dx, 3) == CLEF_OK;
    bench_want_gradients(x, 3, false);
    return ok;
}

/* Two products forward, five more for the gradients: what a mask leaves out is not counted. */
void bench_attention(bench_list *l, bool gpu) {
    enum { FOR_GPUS = 1 };
    static const struct {
        int b, h, queries, keys, d;
        bool causal;
    } s[] = {{8, 8, 64, 64, 64, true},
             {2, 8, 256, 256, 64, false},
             {1, 8, 1024, 1024, 64, true},
             {1, 8, 1, 4096, 64, false},
             {4, 16, 2048, 2048, 64, true}};
    for (size_t i = 0; i < sizeof s / sizeof *s - (gpu ? 0 : FOR_GPUS); i++)
        for (int with = 0; with < (s[i].queries > 1 ? 2 : 1); with++) {
            clef_shape q = CLEF_SHAPE(s[i].b, s[i].h, s[i].queries, s[i].d), k = CLEF_SHAPE(s[i].b, s[i].h, s[i].keys, s[i].d);
            double forward = 2 * bench_numel(q) + 2 * bench_numel(k), gradients = bench_numel(q) + 2 * bench_numel(k);
            bench_case *c =
                bench_append(l, (bench_case){.suite = "attention",
                                             .name = with ? "attention_gradient" : "attention",
                                             .unit = "GFLOP/s",
                                             .flops = 2 * (with ? 7 : 2) * bench_numel(q) * s[i].keys / (s[i].causal ? 2 : 1),
                                             .bytes = 4 * (forward + (with ? gradients : 0)),
                                             .input = {q, k, k, q},
                                             .n_inputs = 4,
                                             .v = {s[i].causal, with},
                                             .once = attention_once});
            snprintf(c->shape, sizeof c->shape, "%dx%dx%dx%d%s", s[i].b, s[i].h, s[i].queries, s[i].d,
                     s[i].causal ? ", causal" : "");
            if (s[i].keys != s[i].queries)
                snprintf(c->shape, sizeof c->shape, "%d heads of %d beside %d keys", s[i].h, s[i].d, s[i].keys);
        }
}

/* ---- recurrent layers over a whole sequence: x, the result's gradient, weights and biases; v: LSTM or GRU, with gradients ---- */
enum { HIDDEN = 512, BATCH = 16, STEPS = 25, X = 0, G, WEIGHTS, INPUTS = WEIGHTS + 4 };

static clef_tensor *layer(const bench_case *c, clef_tensor *const *x) {
    const clef_recurrent_weights w = {.w_ih = x[WEIGHTS], .w_hh = x[WEIGHTS + 1], .b_ih = x[WEIGHTS + 2], .b_hh = x[WEIGHTS + 3]};
    clef_tensor *y = NULL;
    if (c->v[0]) clef_gru(x[X], CLEF_NONE, &w, 1, NULL, &y, NULL);
    else clef_lstm(x[X], CLEF_NONE, CLEF_NONE, &w, 1, NULL, &y, NULL, NULL);
    return y;
}

static bool layer_once(const bench_case *c, clef_tensor *const *x) {
    clef_tensor *of[] = {x[X], x[WEIGHTS], x[WEIGHTS + 1], x[WEIGHTS + 2], x[WEIGHTS + 3]}, *dx[5];
    if (!c->v[1]) return bench_queue(layer(c, x));
    bench_want_gradients(of, 5, true);
    bool ok = clef_grad(layer(c, x), x[G], of, 5, false, dx) == CLEF_OK && clef_eval_all(dx, 5) == CLEF_OK;
    bench_want_gradients(of, 5, false);
    return ok;
}

/* The gradients take twice the products again. */
void bench_rnn(bench_list *l) {
    static const char *const name[2][2] = {{"lstm", "lstm_gradient"}, {"gru", "gru_gradient"}};
    for (int gru = 0; gru < 2; gru++)
        for (int with = 0; with < 2; with++) {
            clef_shape x = CLEF_SHAPE(STEPS, BATCH, HIDDEN), w = CLEF_SHAPE((gru ? 3 : 4) * HIDDEN, HIDDEN),
                       b = CLEF_SHAPE(w.dim[0]);
            bench_case *c =
                bench_append(l, (bench_case){.suite = "rnn",
                                             .name = name[gru][with],
                                             .unit = "GFLOP/s",
                                             .flops = 2 * (with ? 3 : 1) * 2 * bench_numel(w) * STEPS * BATCH,
                                             .bytes = 4 * (with ? 2 : 1) * 2 * (bench_numel(w) + bench_numel(b) + bench_numel(x)),
                                             .input = {x, x, w, w, b, b},
                                             .n_inputs = INPUTS,
                                             .v = {gru, with},
                                             .small = 0.5 / sqrt(HIDDEN),
                                             .once = layer_once});
            snprintf(c->shape, sizeof c->shape, "%d steps, batch %d, hidden %d", STEPS, BATCH, HIDDEN);
        }
}

/* ---- GPTs: a training step with AdamW and clipping, and a token with a cache of keys and values ---- */
static clef_module *new_gpt(clef_context *ctx, int64_t context, int64_t vocabulary, int layers, int heads, int width) {
    return clef_nn_gpt(
        ctx, &(clef_gpt_options){
                 .vocabulary = vocabulary, .context = context, .layers = layers, .heads = heads, .width = width, .no_bias = true});
}

static clef_module *small_gpt(clef_context *ctx, clef_shape text, int64_t vocabulary) {
    return new_gpt(ctx, text.dim[0], vocabulary, 4, 4, 128);
}
static clef_module *wide_gpt(clef_context *ctx, clef_shape text, int64_t vocabulary) {
    return new_gpt(ctx, text.dim[0], vocabulary, 8, 8, 512);
}
static clef_module *gpt2(clef_context *ctx, clef_shape text, int64_t vocabulary) {
    return new_gpt(ctx, text.dim[0], vocabulary, 12, 12, 768);
}

/* A token reads every weight once, but those of positions and of other tokens. */
void bench_language(bench_list *l, bool gpu) {
    enum { FOR_GPUS = 1 };
    const double weights = 12.0 * 8 * 512 * 512 + 512.0 * 8192;
    const bench_case each[] = {
        {.name = "gpt_step",
         .shape = "4 layers of 128, 12 texts of 64",
         .items = 12 * 64,
         .vocabulary = 65,
         .input = {CLEF_SHAPE(12, 64)},
         .model = small_gpt},
        {.name = "gpt_token",
         .shape = "8 layers of 512",
         .items = 1,
         .flops = 2 * weights,
         .bytes = 4 * weights,
         .vocabulary = 8192,
         .input = {CLEF_SHAPE(1, 256)},
         .model = wide_gpt,
         .generates = true},
        {.name = "gpt_step",
         .shape = "GPT-2, 4 texts of 64",
         .items = 4 * 64,
         .vocabulary = 50257,
         .input = {CLEF_SHAPE(4, 64)},
         .model = gpt2},
    };
    for (size_t i = 0; i < sizeof each / sizeof *each - (gpu ? 0 : FOR_GPUS); i++) {
        bench_case *c = bench_append(l, each[i]);
        c->suite = "lm";
        c->unit = "tokens/s";
        c->n_inputs = 1;
    }
}
