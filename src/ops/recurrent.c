/* recurrent.c — recurrent layers over whole sequences: RNN, LSTM, GRU.  The products with the input are one product for all steps; what
   depends on the step before is one op where its kernels know all that is asked for, else other ops (recurrent.h). */
#include "ops/recurrent.h"
#include <string.h>

/* What a public function was called with. */
typedef struct request {
    const char *name;
    clef_context *ctx;
    clef__cell cell;
    clef_recurrent_options o;
    int layers, directions;
    int64_t batch, steps, hidden, width; /* units, and columns of h */
    clef_tensor *x, *h0, *c0, *lengths;  /* NULL where absent */
    const clef_recurrent_weights *weights;
} request;

static clef_tensor *or_null(clef_tensor *t) { return t == CLEF_NONE ? NULL : t; }

static clef_tensor *low(clef_tensor *t) { return clef__autocast(or_null(t), CLEF__LOW_PRECISION); }

/* ---- one layer in one direction ---- */

/* All biases that meet outside of the nonlinear functions: the sum of both, but for the hidden one of GRU's new gate where the reset gate
   comes after the product. */
static clef_tensor *joint_bias(const clef__direction *d) {
    clef_tensor *in = d->w.b_ih, *own = d->w.b_hh;
    int64_t h = d->hidden;
    if (own && d->cell == CLEF__CELL_GRU && !d->reset_before)
        own = clef_pad(clef_slice(own, 0, 0, 2 * h, 1), (int64_t[]){0}, (int64_t[]){h}, 0);
    clef_tensor *sum = in && own ? clef_add(in, own) : in ? in : own;
    return sum ? sum : CLEF_NONE;
}

static clef_tensor *initial_of(const request *r, clef_tensor *all, int at, int64_t width) {
    return all ? clef_reshape(clef_slice(all, 0, at, at + 1, 1), CLEF_SHAPE(r->batch, width)) : NULL;
}

/* x + first where an item's first step is. */
static clef_tensor *add_at_first(const clef__direction *d, clef_tensor *x, clef_tensor *first) {
    clef_shape along = d->batch_first ? CLEF_SHAPE(1, d->steps, 1) : CLEF_SHAPE(d->steps, 1, 1),
               across = d->batch_first ? CLEF_SHAPE(d->batch, 1, 1) : CLEF_SHAPE(1, d->batch, 1);
    clef_tensor *time = clef_reshape(clef__count_beside(x, d->steps, CLEF_I32), along), *here;
    double last = (double)d->steps - 1;
    if (d->backwards && d->lengths) here = clef_eq(time, clef_clamp(clef_sub_scalar(clef_reshape(d->lengths, across), 1), 0, last));
    else here = clef_eq_scalar(time, d->backwards ? last : 0);
    return clef_add(x, clef_where_scalar(here, clef_unsqueeze(first, d->batch_first ? 1 : 0), 0));
}

/* o tanh(c) goes through as many steps as h, and h is W_hr of it: with W_hh W_hr in place of W_hh these are an LSTM's steps without a
   projection, and all outputs are projected at once.  h0, which is projected already, joins the products with the input. */
static bool run_projected(const clef__direction *d, clef_tensor **out) {
    clef__direction plain = *d;
    plain.w.w_hh = clef_matmul(d->w.w_hh, d->w.w_hr);
    plain.h0 = NULL;
    if (d->h0) plain.gates = add_at_first(d, d->gates, clef_linear(d->h0, d->w.w_hh, CLEF_NONE));
    if (!plain.gates || !clef__recurrent_fused(&plain, out)) return false;
    for (int k = 0; k < 2; k++) out[k] = clef_linear(out[k], d->w.w_hr, CLEF_NONE);
    if (d->h0 && d->lengths)
        out[1] = clef_where(clef_reshape(clef_gt_scalar(d->lengths, 0), CLEF_SHAPE(d->batch, 1)), out[1], d->h0);
    return out[0] && out[1];
}

static bool is_fused(const clef__direction *d) {
    return !d->w.w_peep && !(d->clip > 0) && !d->reset_before && !d->coupled && !d->apply[0].name && !d->apply[1].name &&
           !d->apply[2].name;
}

/* Those that are not the cell's own. */
static void read_activations(const request *r, int direction, clef__direction *d) {
    for (int k = 0; k < 3; k++) {
        const clef_recurrent_activation *of = r->o.activations[direction];
        d->apply[k] = of[k].name ? of[k] : r->o.activations[0][k];
        const char *name = d->apply[k].name;
        if (k == 0 && name && d->cell <= CLEF__CELL_RELU)
            d->cell = strcmp(name, "Relu") == 0 ? CLEF__CELL_RELU : strcmp(name, "Tanh") == 0 ? CLEF__CELL_TANH : d->cell;
        if (name && strcmp(name, clef__usual_activation(d->cell, k)) == 0) d->apply[k].name = NULL;
    }
}

/* y, h and of an LSTM c into out. */
static bool run_direction(const request *r, clef_tensor *x, int at, bool backwards, clef_tensor **out) {
    const clef_recurrent_weights *w = &r->weights[at];
    clef__direction d = {.cell = r->cell,
                         .batch_first = r->o.batch_first,
                         .backwards = backwards,
                         .batch = r->batch,
                         .steps = r->steps,
                         .hidden = r->hidden,
                         .w = {low(w->w_ih), low(w->w_hh), low(w->b_ih), low(w->b_hh), low(w->w_hr), low(w->w_peep)},
                         .h0 = initial_of(r, r->h0, at, r->width),
                         .c0 = initial_of(r, r->c0, at, r->hidden),
                         .lengths = r->lengths,
                         .clip = r->o.clip,
                         .reset_before = r->o.reset_before,
                         .coupled = r->o.coupled};
    read_activations(r, at % r->directions, &d);
    d.gates = clef_linear(x, d.w.w_ih, joint_bias(&d));
    if (!d.gates) return false;
    clef_dtype was = clef_set_autocast(r->ctx, CLEF_F32); /* every step gives the next one its own dtype */
    bool ok = !is_fused(&d) ? clef__recurrent_composed(&d, out)
              : d.w.w_hr    ? run_projected(&d, out)
                            : clef__recurrent_fused(&d, out);
    clef_set_autocast(r->ctx, was);
    return ok;
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

static bool is_there(clef_tensor *t) { return t && t != CLEF_NONE; }

static bool check_weights(const request *r) {
    int64_t gates = clef__cell_gates(r->cell) * r->hidden, in = clef_tensor_shape(r->x).dim[2];
    bool projects = is_there(r->weights->w_hr);
    for (int i = 0; i < r->layers * r->directions; i++) {
        const clef_recurrent_weights *w = &r->weights[i];
        if (!CLEF__GIVEN(r->name, "w_ih w_hh", w->w_ih, w->w_hh)) return false;
        int64_t columns = i < r->directions ? in : r->width * r->directions;
        if (r->cell != CLEF__CELL_LSTM && (is_there(w->w_hr) || is_there(w->w_peep))) {
            clef__refuse(r->ctx, r->name, CLEF_INVALID,
                         "w_hr and w_peep are an LSTM's only; they must be NULL or CLEF_NONE here (x %s)",
                         clef__shape_text(clef_tensor_shape(r->x)));
            return false;
        }
        if (is_there(w->w_hr) != projects) {
            clef__refuse(r->ctx, r->name, CLEF_INVALID, "w_hr must be in all of the %d weights or in none (x %s)",
                         r->layers * r->directions, clef__shape_text(clef_tensor_shape(r->x)));
            return false;
        }
        if (!has_shape(r, "w_ih", w->w_ih, CLEF_SHAPE(gates, columns)) ||
            !has_shape(r, "w_hh", w->w_hh, CLEF_SHAPE(gates, r->width)) ||
            !has_shape(r, "b_ih", or_null(w->b_ih), CLEF_SHAPE(gates)) ||
            !has_shape(r, "b_hh", or_null(w->b_hh), CLEF_SHAPE(gates)) ||
            !has_shape(r, "w_hr", or_null(w->w_hr), CLEF_SHAPE(r->width, r->hidden)) ||
            !has_shape(r, "w_peep", or_null(w->w_peep), CLEF_SHAPE(3 * r->hidden)))
            return false;
    }
    return true;
}

static bool check_activations(const request *r) {
    for (int k = 0; k < 6; k++) {
        const char *name = r->o.activations[k / 3][k % 3].name;
        if (!name || clef__is_recurrent_activation(name)) continue;
        clef__refuse(r->ctx, r->name, CLEF_INVALID, "no activation is called \"%.32s\"; there is %s (x %s)", name,
                     clef__recurrent_activation_names, clef__shape_text(clef_tensor_shape(r->x)));
        return false;
    }
    return true;
}

static bool check_tensors(request *r) {
    int64_t runs = (int64_t)r->layers * r->directions;
    if (!has_shape(r, "h0", r->h0, CLEF_SHAPE(runs, r->batch, r->width)) ||
        !has_shape(r, "c0", r->c0, CLEF_SHAPE(runs, r->batch, r->hidden)) ||
        !has_shape(r, "lengths", r->lengths, CLEF_SHAPE(r->batch)))
        return false;
    if (r->lengths && clef__is_float(clef_tensor_dtype(r->lengths))) {
        clef__refuse(r->ctx, r->name, CLEF_DTYPE, "lengths must be whole numbers, not %s",
                     clef_dtype_name(clef_tensor_dtype(r->lengths)));
        return false;
    }
    if (r->lengths && clef_tensor_dtype(r->lengths) == CLEF_I64) r->lengths = clef_clamp(r->lengths, 0, (double)r->steps);
    if (r->lengths) r->lengths = clef_to(r->lengths, CLEF_I32);
    return !r->o.lengths || r->o.lengths == CLEF_NONE || r->lengths;
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
    else if (r->o.bidirectional && r->o.backwards) wrong = "backwards does not go with bidirectional, which has both directions";
    else if (!(r->o.clip >= 0)) wrong = "clip must be positive, or 0 for none";
    else if (x.dim[r->o.batch_first ? 1 : 0] == 0) wrong = "a sequence has at least one step";
    if (wrong) {
        clef__refuse(r->ctx, r->name, x.rank != 3 ? CLEF_SHAPE : CLEF_INVALID, "%s (x %s, %d weights, %d layers, %d directions)",
                     wrong, clef__shape_text(x), n, r->layers, r->directions);
        return false;
    }
    if (!CLEF__GIVEN(r->name, "w_ih w_hh", r->weights->w_ih, r->weights->w_hh)) return false;
    bool projects = is_there(r->weights->w_hr);
    clef_shape w = clef_tensor_shape(r->weights->w_hh), to = projects ? clef_tensor_shape(r->weights->w_hr) : w;
    r->width = w.rank == 2 ? w.dim[1] : 0;
    r->hidden = to.rank == 2 ? to.dim[1] : 0;
    r->batch = x.dim[r->o.batch_first ? 0 : 1];
    r->steps = x.dim[r->o.batch_first ? 1 : 0];
    return check_weights(r) && check_activations(r) && check_tensors(r);
}

/* ---- all layers ---- */

/* The outputs y, h, c of all layers; false with the error set. */
static bool run_layers(const request *r, clef_tensor **y, clef_tensor **state) {
    int states = r->cell == CLEF__CELL_LSTM ? 2 : 1, runs = r->layers * r->directions;
    clef_tensor **last = clef__calloc((size_t)runs * 2, sizeof *last), *x = r->x;
    if (!last) return clef__fail(r->ctx, CLEF_MEMORY, "%s: no host memory", r->name), false;
    bool ok = true;
    for (int layer = 0; ok && layer < r->layers; layer++) {
        clef_tensor *side[2] = {NULL, NULL}, *out[CLEF__MOST_STATES];
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
    r->x = low(r->x), r->h0 = low(r->h0), r->c0 = low(r->c0);
    bool ok = r->x && read_request(r, n, options) && run_layers(r, &out, state);
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
