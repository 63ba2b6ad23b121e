/* suite_rnn.h — recurrent layers over a whole sequence, of bench_clef.c: dir = forward, whose weights stay as those of a model do, or both
   for the gradients of x and all weights too, which change from call to call. */
#ifndef CLEF_BENCH_SUITE_RNN_H
#define CLEF_BENCH_SUITE_RNN_H
#include "job.h"

enum { WEIGHTS = 4, MOST_LAYERS = (MAX_INPUTS - 2) / WEIGHTS }; /* w_ih, w_hh, b_ih, b_hh of each, behind x and y's gradient */

static clef_tensor *run_layers(const job *j, clef_tensor *x, clef_tensor *const *w) {
    clef_recurrent_weights weights[MOST_LAYERS];
    int layers = (j->n_inputs - 2) / WEIGHTS;
    clef_recurrent_options o = {.layers = layers, .batch_first = number(j->line, "first", 0) != 0};
    clef_tensor *y = NULL;
    char cell[16] = "";
    for (int i = 0; i < layers; i++)
        weights[i] = (clef_recurrent_weights){.w_ih = w[4 * i], .w_hh = w[4 * i + 1], .b_ih = w[4 * i + 2], .b_hh = w[4 * i + 3]};
    word(j->line, "cell", cell, sizeof cell);
    if (strcmp(cell, "lstm") == 0) clef_lstm(x, CLEF_NONE, CLEF_NONE, weights, layers, &o, &y, NULL, NULL);
    else if (strcmp(cell, "gru") == 0) clef_gru(x, CLEF_NONE, weights, layers, &o, &y, NULL);
    else clef_rnn(x, CLEF_NONE, weights, layers, &o, &y, NULL);
    return y;
}

static clef_tensor *run_rnn(const job *j, clef_tensor *const *x) {
    char dir[16] = "forward";
    clef_tensor *of[MAX_INPUTS], *d[MAX_INPUTS];
    int n = j->n_inputs - 1;
    word(j->line, "dir", dir, sizeof dir);
    if (strcmp(dir, "both") != 0) return run_layers(j, x[0], j->input[0] + 2);
    of[0] = x[0];
    for (int i = 1; i < n; i++) of[i] = x[i + 1];
    bool was = clef_set_grad_enabled(ctx, true);
    for (int i = 0; i < n; i++) clef_require_grad(of[i], true);
    clef_status status = clef_grad(run_layers(j, x[0], x + 2), x[1], of, n, false, d);
    for (int i = 0; i < n; i++) clef_require_grad(of[i], false);
    clef_set_grad_enabled(ctx, was);
    if (status == CLEF_OK) clef_eval_all(d, n);
    return status == CLEF_OK ? d[0] : NULL;
}

/* As a layer begins: within about ±1/√hidden, so that gates are not at their ends. */
static void shrink_weights(job *j, double by) {
    for (int c = 0; c < j->copies; c++)
        for (int i = 2; i < j->n_inputs; i++) {
            clef_tensor *small = clef_keep(clef_mul_scalar(j->input[c][i], by));
            clef_eval(small);
            clef_release(j->input[c][i]);
            j->input[c][i] = small;
        }
    clef_end_step(ctx);
}

static void rnn(const char *line) {
    int64_t steps = (int64_t)number(line, "steps", 1), batch = (int64_t)number(line, "batch", 1),
            in = (int64_t)number(line, "in", 1), hidden = (int64_t)number(line, "hidden", 1);
    int layers = (int)number(line, "layers", 1);
    bool first = number(line, "first", 0) != 0;
    char cell[16] = "";
    word(line, "cell", cell, sizeof cell);
    if (layers < 1 || layers > MOST_LAYERS) {
        printf("skip %d layers\n", layers);
        return;
    }
    int64_t gates = hidden * (strcmp(cell, "lstm") == 0  ? 4
                              : strcmp(cell, "gru") == 0 ? 3
                                                         : 1),
            outer = first ? batch : steps, inner = first ? steps : batch;
    clef_shape shape[MAX_INPUTS] = {CLEF_SHAPE(outer, inner, in), CLEF_SHAPE(outer, inner, hidden)};
    for (int i = 0; i < layers; i++) {
        clef_shape *at = shape + 2 + WEIGHTS * i;
        at[0] = CLEF_SHAPE(gates, i ? hidden : in);
        at[1] = CLEF_SHAPE(gates, hidden);
        at[2] = at[3] = CLEF_SHAPE(gates);
    }
    job j = {.line = line, .run = run_rnn};
    make_inputs(&j, 2 + WEIGHTS * layers, shape);
    shrink_weights(&j, 0.5 / sqrt((double)hidden));
    answer(&j);
}
#endif
