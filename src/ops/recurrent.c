/* recurrent.c — recurrent layers over whole sequences: RNN, LSTM, GRU.  The products with the input are one product for all steps; what
   depends on the step before is one op (kernels/recurrent.h), of which backward is another. */
#include "kernels/recurrent.h"
#include "ops/ops.h"
#include <string.h>

enum { MOST_OPTIONAL = 4, MOST_OUTPUTS = 4 };

static const clef_op op_recurrent, op_recurrent_back;

/* ---- infer ---- */

static clef_shape sequence_shape(clef_shape like, int64_t columns) {
    like.dim[2] = columns;
    return like;
}

static bool is_sequence_of(clef__call *call) {
    clef_shape x = call->input[0]->shape, w = call->input[1]->shape;
    const clef__recurrence *a = call->attributes;
    return clef__infer_takes(call, x.rank == 3 && w.rank == 2 && w.dim[0] == clef__cell_gates(a->cell) * w.dim[1],
                             "input 0 is a sequence, and w [gates·H,H]");
}

static int count_given(int64_t given) {
    int n = 0;
    for (; given; given &= given - 1) n++;
    return n;
}

static bool infer_recurrent(clef__call *call) {
    const clef__recurrence *a = call->attributes;
    if (!is_sequence_of(call)) return false;
    clef_shape x = call->input[0]->shape, w = call->input[1]->shape;
    int64_t hidden = w.dim[1], batch = x.dim[a->batch_first ? 0 : 1], steps = x.dim[a->batch_first ? 1 : 0];
    if (!clef__infer_takes(call, x.dim[2] == w.dim[0] && call->n_inputs == 2 + count_given(a->given), "x has w's rows"))
        return false;
    clef_shape state = CLEF_SHAPE(batch, hidden), shape[MOST_OUTPUTS] = {sequence_shape(x, hidden), state, state};
    shape[a->cell == CLEF__CELL_LSTM ? 3 : 2] = CLEF_SHAPE(steps, batch, clef__cell_saved(a->cell) * hidden);
    for (int k = 0; k < call->n_outputs; k++) call->out[k] = (clef__type){shape[k], call->input[0]->dtype};
    return true;
}

static bool infer_recurrent_back(clef__call *call) {
    const clef__recurrence *a = call->attributes;
    if (!is_sequence_of(call)) return false;
    clef_shape y = call->input[0]->shape, w = call->input[1]->shape, state = CLEF_SHAPE(y.dim[a->batch_first ? 0 : 1], w.dim[1]);
    if (!clef__infer_takes(call, y.dim[2] == w.dim[1] && call->n_inputs == 2 + count_given(a->given), "y has w's columns"))
        return false;
    clef_shape dx = sequence_shape(y, w.dim[0]), shape[] = {dx, state, a->cell == CLEF__CELL_GRU ? dx : state};
    for (int k = 0; k < call->n_outputs; k++) call->out[k] = (clef__type){shape[k], call->input[0]->dtype};
    return true;
}

static void cost_recurrent(const clef__node *node, double *flops, double *bytes) {
    clef_shape w = node->input[1]->shape;
    double rows = (double)clef_shape_numel(node->out->shape) / (double)node->out->shape.dim[2], all = 0;
    for (int i = 0; i < node->n_inputs; i++) all += clef__output_bytes(node->input[i]);
    for (int k = 0; k < node->n_outputs; k++) all += clef__output_bytes(&node->out[k]);
    *flops = 2 * rows * (double)w.dim[0] * (double)w.dim[1];
    *bytes = all;
}

/* ---- gradient ---- */

static clef_tensor *rows_of(clef_tensor *x) {
    clef_shape s = x ? clef_tensor_shape(x) : CLEF_SHAPE(0, 0, 0);
    return clef_reshape(x, CLEF_SHAPE(s.dim[0] * s.dim[1], s.dim[2]));
}

static clef_tensor *product_of_rows(clef_tensor *g, clef_tensor *h) { return clef_matmul(clef_transpose(g, 0, 1), h); }

/* The gates' gradients [b,gates·H] at each item's first step. */
static clef_tensor *at_first_step(clef_tensor *dg, const clef__recurrence *a, clef_tensor *lengths) {
    int along = a->batch_first ? 1 : 0;
    clef_shape s = clef_tensor_shape(dg), one = s;
    one.dim[along] = 1;
    int64_t first = a->backwards ? s.dim[along] - 1 : 0;
    if (!lengths || !a->backwards) return rows_of(clef_slice(dg, along, first, first + 1, 1));
    clef_tensor *index = clef_clamp(clef_sub_scalar(lengths, 1), 0, (double)first);
    index = clef_reshape(index, along ? CLEF_SHAPE(s.dim[0], 1, 1) : CLEF_SHAPE(1, s.dim[1], 1));
    return rows_of(clef_gather(dg, along, clef_expand(index, one)));
}

/* dw = Σ dg(t)ᵀ h(t − 1): one product over all steps but the first, and one of that with h0. */
static clef_tensor *gradient_of_w(clef_tensor *dg, clef_tensor *y, const clef__recurrence *a, clef_tensor *h0,
                                  clef_tensor *lengths) {
    int along = a->batch_first ? 1 : 0, late = a->backwards ? 0 : 1;
    int64_t steps = clef_tensor_shape(y).dim[along];
    clef_tensor *dw = NULL;
    if (steps > 1)
        dw = product_of_rows(rows_of(clef_slice(dg, along, late, steps - 1 + late, 1)),
                             rows_of(clef_slice(y, along, 1 - late, steps - late, 1)));
    if (!h0) return dw;
    clef_tensor *first = product_of_rows(at_first_step(dg, a, lengths), h0);
    return dw ? clef_add(dw, first) : first;
}

/* Inputs behind the first two, in the order of their bits. */
typedef struct optional_inputs {
    clef_tensor *bias, *h0, *c0, *lengths;
    int bias_at, h0_at, c0_at;
} optional_inputs;

static optional_inputs find_optional(const clef__recurrence *a, clef_tensor *const *x) {
    optional_inputs o = {0};
    int at = 2;
    if (a->given & CLEF__HAS_BIAS) o.bias = x[o.bias_at = at++];
    if (a->given & CLEF__HAS_H0) o.h0 = x[o.h0_at = at++];
    if (a->given & CLEF__HAS_C0) o.c0 = x[o.c0_at = at++];
    if (a->given & CLEF__HAS_LENGTHS) o.lengths = x[at];
    return o;
}

static bool differentiate_steps(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const clef__recurrence *a,
                                const optional_inputs *o, clef_tensor **out) {
    bool lstm = a->cell == CLEF__CELL_LSTM, gru = a->cell == CLEF__CELL_GRU;
    clef_tensor *first = lstm ? o->c0 : gru ? o->h0 : NULL, *saved = lstm ? y[3] : gru ? y[2] : NULL;
    clef_tensor *maybe[] = {saved, first, o->lengths, g[0], g[1], lstm ? g[2] : NULL}, *in[8] = {y[0], x[1]};
    static const int bit[] = {CLEF__HAS_SAVED, CLEF__HAS_H0, CLEF__HAS_LENGTHS, CLEF__HAS_GY, CLEF__HAS_GH, CLEF__HAS_GC};
    clef__recurrence back = *a;
    int n = 2;
    back.given = 0;
    for (int i = 0; i < 6; i++) {
        if (!maybe[i]) continue;
        back.given |= bit[i];
        in[n++] = maybe[i];
    }
    return clef__apply_all(&op_recurrent_back, in, n, &back, sizeof back, out, lstm || gru ? 3 : 2);
}

static void gradient_recurrent(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                               clef_tensor **dx) {
    const clef__recurrence *a = clef__attributes(clef__node_of(y[0]));
    optional_inputs o = find_optional(a, x);
    clef_tensor *out[3];
    if (!differentiate_steps(x, y, g, a, &o, out)) return;
    clef_tensor *dg = a->cell == CLEF__CELL_GRU ? out[2] : out[0];
    int64_t hidden = clef_tensor_shape(x[1]).dim[1];
    if (wanted[0]) dx[0] = out[0];
    if (wanted[1]) dx[1] = gradient_of_w(dg, y[0], a, o.h0, o.lengths);
    if (o.bias && wanted[o.bias_at])
        dx[o.bias_at] = clef__sum_to(rows_of(clef_slice(dg, 2, 2 * hidden, 3 * hidden, 1)), CLEF_SHAPE(hidden));
    if (o.h0 && wanted[o.h0_at]) dx[o.h0_at] = out[1];
    if (o.c0 && wanted[o.c0_at]) dx[o.c0_at] = out[2];
    for (int k = 0; k < (a->cell >= CLEF__CELL_LSTM ? 3 : 2); k++) { /* nobody else is to have them computed */
        bool given = false;
        for (int i = 0; i < clef__node_of(y[0])->n_inputs; i++) given |= dx[i] == out[k];
        if (!given) clef__tensor_drop(out[k]);
    }
}

/* A second derivative would need what these steps computed on the way. */
static void refuse_second(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                          clef_tensor **dx) {
    (void)y, (void)g, (void)wanted, (void)dx;
    clef__refuse(clef_tensor_context(x[0]), "recurrent", CLEF_UNSUPPORTED,
                 "gradients of recurrent layers cannot be differentiated again; write the steps in other ops");
}

static const clef_op op_recurrent = {.name = "recurrent",
                                     .kind = CLEF__KERNEL,
                                     .infer = infer_recurrent,
                                     .gradient = gradient_recurrent,
                                     .strategies = clef__recurrent_strategies,
                                     .cost = cost_recurrent};
static const clef_op op_recurrent_back = {.name = "recurrent_back",
                                          .kind = CLEF__KERNEL,
                                          .infer = infer_recurrent_back,
                                          .gradient = refuse_second,
                                          .strategies = clef__recurrent_back_strategies,
                                          .cost = cost_recurrent};

/* ---- one layer in one direction ---- */

/* What a public function was called with. */
typedef struct request {
    const char *name;
    clef_context *ctx;
    clef__cell cell;
    clef_recurrent_options o;
    int layers, directions;
    int64_t batch, steps, hidden;
    clef_tensor *x, *h0, *c0, *lengths; /* NULL where absent */
    const clef_recurrent_weights *weights;
} request;

static clef_tensor *or_null(clef_tensor *t) { return t == CLEF_NONE ? NULL : t; }

/* All biases that meet outside of the nonlinear functions: the sum of both, but for the hidden one of GRU's new gate. */
static clef_tensor *joint_bias(const clef_recurrent_weights *w, clef__cell cell, int64_t hidden) {
    clef_tensor *in = or_null(w->b_ih), *own = or_null(w->b_hh);
    if (own && cell == CLEF__CELL_GRU) own = clef_pad(clef_slice(own, 0, 0, 2 * hidden, 1), (int64_t[]){0}, (int64_t[]){hidden}, 0);
    clef_tensor *sum = in && own ? clef_add(in, own) : in ? in : own;
    return sum ? sum : CLEF_NONE;
}

static clef_tensor *initial_of(const request *r, clef_tensor *all, int at) {
    return all ? clef_reshape(clef_slice(all, 0, at, at + 1, 1), CLEF_SHAPE(r->batch, r->hidden)) : NULL;
}

/* y, h and of an LSTM c into out. */
static bool run_direction(const request *r, clef_tensor *x, int at, bool backwards, clef_tensor **out) {
    const clef_recurrent_weights *w = &r->weights[at];
    bool lstm = r->cell == CLEF__CELL_LSTM, gru = r->cell == CLEF__CELL_GRU;
    clef_tensor *gates = clef_linear(x, w->w_ih, joint_bias(w, r->cell, r->hidden)), *own = gru ? or_null(w->b_hh) : NULL;
    if (own) own = clef_slice(own, 0, 2 * r->hidden, 3 * r->hidden, 1);
    clef_tensor *maybe[] = {own, initial_of(r, r->h0, at), initial_of(r, r->c0, at), r->lengths}, *in[6] = {gates, w->w_hh};
    static const int bit[] = {CLEF__HAS_BIAS, CLEF__HAS_H0, CLEF__HAS_C0, CLEF__HAS_LENGTHS};
    clef__recurrence a = {.cell = r->cell, .backwards = backwards, .batch_first = r->o.batch_first};
    int n = 2, outputs = lstm ? 4 : gru ? 3 : 2;
    for (int i = 0; i < MOST_OPTIONAL; i++) {
        if (!maybe[i]) continue;
        a.given |= bit[i];
        in[n++] = maybe[i];
    }
    if (!clef__apply_all(&op_recurrent, in, n, &a, sizeof a, out, outputs)) return false;
    if (lstm || gru) clef__tensor_drop(out[outputs - 1]); /* what backward needs is for nobody else */
    return true;
}

/* ---- checks ---- */

static bool refuse(const request *r, const char *what, clef_tensor *t, clef_shape wanted) {
    clef__refuse(r->ctx, r->name, CLEF_SHAPE, "%s is %s but must be %s (x %s)", what, clef__shape_text(clef_tensor_shape(t)),
                 clef__shape_text(wanted), clef__shape_text(clef_tensor_shape(r->x)));
    return false;
}

static bool has_shape(const request *r, const char *what, clef_tensor *t, clef_shape wanted) {
    return !t || clef_shape_equal(clef_tensor_shape(t), wanted) || refuse(r, what, t, wanted);
}

static bool check_weights(const request *r) {
    int64_t gates = clef__cell_gates(r->cell) * r->hidden, in = clef_tensor_shape(r->x).dim[2];
    for (int i = 0; i < r->layers * r->directions; i++) {
        const clef_recurrent_weights *w = &r->weights[i];
        if (!CLEF__GIVEN(r->name, "w_ih w_hh", w->w_ih, w->w_hh)) return false;
        int64_t columns = i < r->directions ? in : r->hidden * r->directions;
        if (!has_shape(r, "w_ih", w->w_ih, CLEF_SHAPE(gates, columns)) ||
            !has_shape(r, "w_hh", w->w_hh, CLEF_SHAPE(gates, r->hidden)) ||
            !has_shape(r, "b_ih", or_null(w->b_ih), CLEF_SHAPE(gates)) ||
            !has_shape(r, "b_hh", or_null(w->b_hh), CLEF_SHAPE(gates)))
            return false;
    }
    return true;
}

static bool check_tensors(request *r) {
    clef_shape state = CLEF_SHAPE((int64_t)r->layers * r->directions, r->batch, r->hidden);
    if (!has_shape(r, "h0", r->h0, state) || !has_shape(r, "c0", r->c0, state) ||
        !has_shape(r, "lengths", r->lengths, CLEF_SHAPE(r->batch)))
        return false;
    if (r->lengths && clef__is_float(clef_tensor_dtype(r->lengths))) {
        clef__refuse(r->ctx, r->name, CLEF_DTYPE, "lengths must be whole numbers, not %s",
                     clef_dtype_name(clef_tensor_dtype(r->lengths)));
        return false;
    }
    if (r->lengths) r->lengths = clef_to(r->lengths, CLEF_I32);
    return true;
}

static bool read_request(request *r, int n, const clef_recurrent_options *options) {
    if (options) r->o = *options;
    r->layers = r->o.layers ? r->o.layers : 1;
    r->directions = r->o.bidirectional ? 2 : 1;
    r->lengths = or_null(r->o.lengths);
    clef_shape x = clef_tensor_shape(r->x);
    const char *wrong = NULL;
    if (x.rank != 3) wrong = "x must be [t,b,in], or [b,t,in] with batch_first";
    else if (!clef__is_float(clef_tensor_dtype(r->x))) wrong = "x must be floating";
    else if (r->layers < 1 || !r->weights || n != r->layers * r->directions)
        wrong = "as many weights as layers times directions are needed";
    else if (r->o.dropout < 0 || r->o.dropout > 1) wrong = "dropout must be within 0 and 1";
    else if (x.dim[r->o.batch_first ? 1 : 0] == 0) wrong = "a sequence has at least one step";
    if (wrong) {
        clef__refuse(r->ctx, r->name, x.rank != 3 ? CLEF_SHAPE : CLEF_INVALID, "%s (x %s, %d weights, %d layers, %d directions)",
                     wrong, clef__shape_text(x), n, r->layers, r->directions);
        return false;
    }
    if (!CLEF__GIVEN(r->name, "w_ih w_hh", r->weights->w_ih, r->weights->w_hh)) return false;
    clef_shape w = clef_tensor_shape(r->weights->w_hh);
    r->hidden = w.rank == 2 ? w.dim[1] : 0;
    r->batch = x.dim[r->o.batch_first ? 0 : 1];
    r->steps = x.dim[r->o.batch_first ? 1 : 0];
    return check_weights(r) && check_tensors(r);
}

/* ---- all layers ---- */

/* The outputs y, h, c of all layers; false with the error set. */
static bool run_layers(const request *r, clef_tensor **y, clef_tensor **state) {
    int states = r->cell == CLEF__CELL_LSTM ? 2 : 1, runs = r->layers * r->directions;
    clef_tensor **last = clef__calloc((size_t)runs * 2, sizeof *last), *x = r->x;
    if (!last) return clef__fail(r->ctx, CLEF_MEMORY, "%s: no host memory", r->name), false;
    bool ok = true;
    for (int layer = 0; ok && layer < r->layers; layer++) {
        clef_tensor *side[2] = {NULL, NULL}, *out[MOST_OUTPUTS];
        if (layer && r->o.dropout > 0) x = clef_dropout(x, r->o.dropout);
        for (int way = 0; ok && way < r->directions; way++) {
            int at = layer * r->directions + way;
            ok = run_direction(r, x, at, way == 1 || r->o.backwards, out);
            side[way] = ok ? out[0] : NULL;
            for (int k = 0; ok && k < states; k++) last[k * runs + at] = out[1 + k];
        }
        x = r->directions == 2 ? clef_concat(side, 2, 2) : side[0];
        ok = ok && x;
    }
    *y = x;
    for (int k = 0; ok && k < states; k++) ok = (state[k] = clef_stack(last + k * runs, runs, 0)) != NULL;
    clef__free(last);
    return ok;
}

static clef_status run_request(request *r, int n, const clef_recurrent_options *options, clef_tensor **y, clef_tensor **h,
                               clef_tensor **c) {
    clef_tensor *out = NULL, *state[2] = {NULL, NULL}, **const asked[] = {y, h, c};
    r->ctx = clef_tensor_context(r->x);
    bool ok = read_request(r, n, options) && run_layers(r, &out, state);
    clef_tensor *all[] = {out, state[0], state[1]};
    for (int k = 0; k < 3; k++) {
        if (asked[k]) *asked[k] = ok ? all[k] : NULL;
        else if (k) clef__tensor_drop(all[k]);
    }
    return ok ? CLEF_OK : clef_error_status(r->ctx);
}

static void forget_outputs(clef_tensor **y, clef_tensor **h, clef_tensor **c) {
    clef_tensor **const asked[] = {y, h, c};
    for (int k = 0; k < 3; k++)
        if (asked[k]) *asked[k] = NULL;
}

clef_status clef_rnn(clef_tensor *x, clef_tensor *h0, const clef_recurrent_weights *weights, int n,
                     const clef_recurrent_options *options, clef_tensor **y, clef_tensor **h) {
    forget_outputs(y, h, NULL);
    if (!CLEF__GIVEN("rnn", "x h0?", x, h0)) return CLEF_INVALID;
    request r = {.name = "rnn",
                 .cell = options && options->relu ? CLEF__CELL_RELU : CLEF__CELL_TANH,
                 .x = x,
                 .h0 = or_null(h0),
                 .weights = weights};
    return run_request(&r, n, options, y, h, NULL);
}

clef_status clef_lstm(clef_tensor *x, clef_tensor *h0, clef_tensor *c0, const clef_recurrent_weights *weights, int n,
                      const clef_recurrent_options *options, clef_tensor **y, clef_tensor **h, clef_tensor **c) {
    forget_outputs(y, h, c);
    if (!CLEF__GIVEN("lstm", "x h0? c0?", x, h0, c0)) return CLEF_INVALID;
    request r = {.name = "lstm", .cell = CLEF__CELL_LSTM, .x = x, .h0 = or_null(h0), .c0 = or_null(c0), .weights = weights};
    return run_request(&r, n, options, y, h, c);
}

clef_status clef_gru(clef_tensor *x, clef_tensor *h0, const clef_recurrent_weights *weights, int n,
                     const clef_recurrent_options *options, clef_tensor **y, clef_tensor **h) {
    forget_outputs(y, h, NULL);
    if (!CLEF__GIVEN("gru", "x h0?", x, h0)) return CLEF_INVALID;
    request r = {.name = "gru", .cell = CLEF__CELL_GRU, .x = x, .h0 = or_null(h0), .weights = weights};
    return run_request(&r, n, options, y, h, NULL);
}

/* ---- other libraries' weights ---- */

static clef_tensor *refuse_order(clef_tensor *t, const char *from, const char *to, const char *why) {
    clef__refuse(clef_tensor_context(t), "reorder_gates", CLEF_INVALID, "from \"%.16s\" to \"%.16s\": %s (t %s)", from ? from : "",
                 to ? to : "", why, clef__shape_text(clef_tensor_shape(t)));
    return NULL;
}

clef_tensor *clef_reorder_gates(clef_tensor *t, const char *from, const char *to) {
    enum { MOST_GATES = 8 };
    clef_tensor *part[MOST_GATES];
    if (!CLEF__GIVEN("reorder_gates", "t", t)) return NULL;
    size_t n = from ? strlen(from) : 0;
    if (n < 1 || n > MOST_GATES || !to || strlen(to) != n) return refuse_order(t, from, to, "one letter for each of 1 to 8 gates");
    clef_shape shape = clef_tensor_shape(t);
    if (shape.rank < 1 || shape.dim[0] % (int64_t)n) return refuse_order(t, from, to, "the gates are equal parts of dimension 0");
    int64_t rows = shape.dim[0] / (int64_t)n;
    for (size_t k = 0; k < n; k++) {
        const char *at = strchr(from, to[k]);
        if (!at || strchr(to, to[k]) != to + k) return refuse_order(t, from, to, "both have the same letters, each once");
        part[k] = clef_slice(t, 0, (at - from) * rows, (at - from + 1) * rows, 1);
    }
    return clef_concat(part, (int)n, 0);
}
