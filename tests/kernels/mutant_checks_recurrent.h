/* mutant_checks_recurrent.h — checks of recurrent layers, in each way to launch them: values by the definition in double precision,
   gradients by its central differences, element for element. */
#ifndef CLEF_TESTS_MUTANT_CHECKS_RECURRENT_H
#define CLEF_TESTS_MUTANT_CHECKS_RECURRENT_H

enum {
    STEPS = 3,
    ITEMS = 13,
    UNITS = 27,
    WIDTH = 2
}; /* two groups of items, tiles that are not full, rows that end in a vector, sums in parts */
enum { TANH_CELL, RELU_CELL, LSTM_CELL, GRU_CELL };
enum { SEQUENCE, HIDDEN_BIAS, FIRST_H, FIRST_C, INPUT_KINDS };
enum { OF_Y, OF_H, OF_C, LOSS_PARTS };

typedef struct recurrence {
    int cell, gates;
    bool backwards, batch_first;
    const int32_t *lengths;
    float *w_ih, *w_hh, *bias, *in[INPUT_KINDS], *loss[LOSS_PARTS], *out[LOSS_PARTS];
    int64_t size[INPUT_KINDS];
} recurrence;

static float *fractions(int64_t n, uint32_t salt, float scale) {
    float *v = whole(n, salt, -99, 99);
    for (int64_t i = 0; i < n; i++) v[i] *= scale / 99;
    return v;
}

static double squash(double x) { return 1 / (1 + exp(-x)); }

/* One item's states after a step. */
static void advance(const recurrence *r, double *const *in, const double *x, double *h, double *c) {
    double of_x[4 * UNITS], of_h[4 * UNITS];
    for (int k = 0; k < r->gates * UNITS; k++) {
        of_x[k] = (double)r->bias[k];
        of_h[k] = in[HIDDEN_BIAS][k];
        for (int i = 0; i < WIDTH; i++) of_x[k] += (double)r->w_ih[k * WIDTH + i] * x[i];
        for (int i = 0; i < UNITS; i++) of_h[k] += (double)r->w_hh[k * UNITS + i] * h[i];
    }
    for (int j = 0; j < UNITS; j++) {
        double gate[4];
        for (int g = 0; g < r->gates; g++) gate[g] = of_x[g * UNITS + j] + of_h[g * UNITS + j];
        if (r->cell == LSTM_CELL) {
            c[j] = squash(gate[1]) * c[j] + squash(gate[0]) * tanh(gate[2]);
            h[j] = squash(gate[3]) * tanh(c[j]);
        } else if (r->cell == GRU_CELL) {
            double fresh = tanh(of_x[2 * UNITS + j] + squash(gate[0]) * of_h[2 * UNITS + j]);
            h[j] += (1 - squash(gate[1])) * (fresh - h[j]);
        } else h[j] = r->cell == TANH_CELL ? tanh(gate[0]) : fmax(gate[0], 0);
    }
}

static int place(const recurrence *r, int t, int b) { return r->batch_first ? b * STEPS + t : t * ITEMS + b; }

/* Of one item: what its outputs add to the loss; they go to r->out where `keeps`. */
static double follow(const recurrence *r, double *const *in, int b, bool keeps) {
    double h[UNITS], c[UNITS] = {0}, sum = 0;
    for (int j = 0; j < UNITS; j++) {
        h[j] = in[FIRST_H][b * UNITS + j];
        if (r->cell == LSTM_CELL) c[j] = in[FIRST_C][b * UNITS + j];
    }
    for (int s = 0; s < r->lengths[b]; s++) {
        int at = place(r, r->backwards ? r->lengths[b] - 1 - s : s, b);
        advance(r, in, in[SEQUENCE] + at * WIDTH, h, c);
        for (int j = 0; j < UNITS; j++) sum += (double)r->loss[OF_Y][at * UNITS + j] * h[j];
        for (int j = 0; keeps && j < UNITS; j++) r->out[OF_Y][at * UNITS + j] = (float)h[j];
    }
    for (int j = 0; j < UNITS; j++) {
        sum += (double)r->loss[OF_H][b * UNITS + j] * h[j] + (double)r->loss[OF_C][b * UNITS + j] * c[j];
        if (!keeps) continue;
        r->out[OF_H][b * UNITS + j] = (float)h[j];
        r->out[OF_C][b * UNITS + j] = (float)c[j];
    }
    return sum;
}

static double follow_all(const recurrence *r, double *const *in, bool keeps) {
    double sum = 0;
    for (int b = 0; b < ITEMS; b++) sum += follow(r, in, b, keeps);
    return sum;
}

static float *slopes(const recurrence *r, double *const *in, int kind) {
    float *slope = zeros(r->size[kind]);
    for (int64_t i = 0; i < r->size[kind]; i++) {
        double was = in[kind][i], side[2];
        for (int k = 0; k < 2; k++) {
            in[kind][i] = was + (2 * k - 1) * 1e-5;
            side[k] = follow_all(r, in, false);
        }
        in[kind][i] = was;
        slope[i] = (float)((side[1] - side[0]) / 2e-5);
    }
    return slope;
}

static void run_recurrent(const recurrence *r, clef_tensor *const *x, clef_tensor **y) {
    int rows = r->gates * UNITS;
    clef_recurrent_options o = {.backwards = r->backwards,
                                .batch_first = r->batch_first,
                                .relu = r->cell == RELU_CELL,
                                .lengths = clef_from_host(ctx, CLEF_SHAPE(ITEMS), CLEF_I32, r->lengths)};
    clef_recurrent_weights w = {.w_ih = put(CLEF_SHAPE(rows, WIDTH), r->w_ih),
                                .w_hh = put(CLEF_SHAPE(rows, UNITS), r->w_hh),
                                .b_ih = put(CLEF_SHAPE(rows), r->bias),
                                .b_hh = x[HIDDEN_BIAS]};
    if (r->cell == LSTM_CELL) wrong += clef_lstm(x[SEQUENCE], x[FIRST_H], x[FIRST_C], &w, 1, &o, &y[0], &y[1], &y[2]) != CLEF_OK;
    else if (r->cell == GRU_CELL) wrong += clef_gru(x[SEQUENCE], x[FIRST_H], &w, 1, &o, &y[0], &y[1]) != CLEF_OK;
    else wrong += clef_rnn(x[SEQUENCE], x[FIRST_H], &w, 1, &o, &y[0], &y[1]) != CLEF_OK;
}

static clef_tensor *weighed(clef_tensor *y, const float *by) {
    return clef_sum(clef_mul(y, put(clef_tensor_shape(y), by)), NULL, 0, false);
}

static void compare_recurrent(const recurrence *r, double *const *in, int kinds, int outputs) {
    clef_shape sequence = r->batch_first ? CLEF_SHAPE(ITEMS, STEPS, WIDTH) : CLEF_SHAPE(STEPS, ITEMS, WIDTH),
               state = CLEF_SHAPE(1, ITEMS, UNITS), shape[] = {sequence, CLEF_SHAPE(r->gates * UNITS), state, state};
    clef_tensor *x[INPUT_KINDS], *y[LOSS_PARTS] = {NULL, NULL, NULL}, *d[INPUT_KINDS];
    for (int k = 0; k < kinds; k++) x[k] = leaf(shape[k], r->in[k]);
    run_recurrent(r, x, y);
    clef_tensor *loss = clef_add(weighed(y[OF_Y], r->loss[OF_Y]), weighed(y[OF_H], r->loss[OF_H]));
    if (outputs > OF_C) loss = clef_add(loss, weighed(y[OF_C], r->loss[OF_C]));
    for (int k = 0; k < outputs; k++) clef_keep(y[k]);
    differentiate(loss, CLEF_NONE, x, kinds, d);
    follow_all(r, in, true);
    for (int k = 0; k < outputs; k++) expect_near(y[k], r->out[k], k ? ITEMS * UNITS : STEPS * ITEMS * UNITS, 1e-5);
    for (int k = 0; k < kinds; k++) expect_near(d[k], slopes(r, in, k), r->size[k], 2e-4);
    for (int k = 0; k < outputs; k++) clef_release(y[k]);
    for (int k = 0; k < kinds; k++) clef_release(x[k]);
}

static void check_recurrent(int cell, const int32_t *lengths, bool backwards, bool batch_first) {
    int gates = cell == LSTM_CELL ? 4 : cell == GRU_CELL ? 3 : 1, kinds = cell == LSTM_CELL ? INPUT_KINDS : FIRST_C;
    recurrence r = {.cell = cell,
                    .gates = gates,
                    .backwards = backwards,
                    .batch_first = batch_first,
                    .lengths = lengths,
                    .size = {STEPS * ITEMS * WIDTH, gates * UNITS, ITEMS * UNITS, ITEMS * UNITS}};
    double *in[INPUT_KINDS] = {NULL};
    r.w_ih = fractions(gates * UNITS * WIDTH, 1, 0.5f);
    r.w_hh = fractions(gates * UNITS * UNITS, 2, 0.3f);
    r.bias = fractions(gates * UNITS, 3, 0.5f);
    for (int k = 0; k < LOSS_PARTS; k++) {
        r.loss[k] = k == OF_C && cell != LSTM_CELL ? zeros(ITEMS * UNITS) : fractions(STEPS * ITEMS * UNITS, 4 + (uint32_t)k, 1);
        r.out[k] = zeros(STEPS * ITEMS * UNITS);
    }
    for (int k = 0; k < kinds; k++) {
        r.in[k] = fractions(r.size[k], 7 + (uint32_t)k, 1);
        in[k] = malloc((size_t)r.size[k] * sizeof **in);
        for (int64_t i = 0; i < r.size[k]; i++) in[k][i] = (double)r.in[k][i];
    }
    compare_recurrent(&r, in, kinds, kinds - 1);
    for (int k = 0; k < kinds; k++) free(in[k]);
}

static const int32_t all_steps[ITEMS] = {3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3},
                     some_steps[ITEMS] = {3, 1, 2, 3, 0, 2, 1, 3, 2, 1, 0, 3, 2};

static void tanh_steps(void) { check_recurrent(TANH_CELL, some_steps, true, false); }
static void relu_steps(void) { check_recurrent(RELU_CELL, all_steps, false, true); }
static void lstm_steps(void) { check_recurrent(LSTM_CELL, some_steps, false, true); }
static void gru_steps(void) { check_recurrent(GRU_CELL, some_steps, true, false); }
static void gru_together(void) { check_recurrent(GRU_CELL, some_steps, false, true); } /* as on a GPU: all gates in one product */
static void lstm_products(void) { check_recurrent(LSTM_CELL, some_steps, false, true); }
static void gru_products(void) { check_recurrent(GRU_CELL, some_steps, true, false); }
static void lstm_sequence(void) { check_recurrent(LSTM_CELL, all_steps, true, false); }
static void gru_sequence(void) { check_recurrent(GRU_CELL, some_steps, false, true); }
#endif
