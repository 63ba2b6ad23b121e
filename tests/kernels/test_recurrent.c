/* test_recurrent.c — recurrent layers of half types beside f32, what their gradients keep in memory, and what they say of wrong input.
   Values and gradients are checked in main_recurrent.c. ctest: cost=110 */
#include "support/device.h"

enum { RNN, LSTM, GRU, CELLS, IN = 5, HIDDEN = 21, ITEMS = 5, STEPS = 6, RUNS = 2 };
enum { X, H0, C0, WEIGHTS, INPUTS = WEIGHTS + 4 * RUNS, OUTPUTS = 3 };

static clef_context *ctx;
static const char *const names[] = {"rnn", "lstm", "gru"};

/* ---- half types ---- */

/* Numbers that all types hold: n/64 within ±0.5. */
static clef_tensor *exact_numbers(clef_shape shape, int salt, clef_dtype dtype) {
    int64_t n = clef_shape_numel(shape);
    float *v = malloc((size_t)n * sizeof *v);
    for (int64_t i = 0; i < n; i++) v[i] = (float)((i * 37 + salt * 11) % 61 - 30) / 64;
    clef_tensor *t = clef_keep(clef_to(clef_from_host(ctx, shape, CLEF_F32, v), dtype));
    free(v);
    return t;
}

static void make_inputs(int cell, clef_dtype dtype, clef_tensor **in) {
    int gates = cell == LSTM ? 4 : cell == GRU ? 3 : 1;
    clef_shape state = CLEF_SHAPE(RUNS, ITEMS, HIDDEN), row = CLEF_SHAPE(gates * HIDDEN);
    in[X] = exact_numbers(CLEF_SHAPE(STEPS, ITEMS, IN), 1, dtype);
    in[H0] = exact_numbers(state, 2, dtype);
    in[C0] = exact_numbers(state, 3, dtype);
    for (int i = 0; i < 4 * RUNS; i++) {
        clef_shape shape[] = {CLEF_SHAPE(gates * HIDDEN, IN), CLEF_SHAPE(gates * HIDDEN, HIDDEN), row, row};
        in[WEIGHTS + i] = exact_numbers(shape[i % 4], 4 + i, dtype);
    }
    for (int i = 0; i < INPUTS; i++) clef_require_grad(in[i], true);
}

static clef_status run_cell(int cell, clef_tensor *const *in, const clef_recurrent_options *o, int runs, clef_tensor **y) {
    clef_recurrent_weights w[RUNS];
    for (int r = 0; r < RUNS; r++) {
        clef_tensor *const *of = in + WEIGHTS + 4 * r;
        w[r] = (clef_recurrent_weights){.w_ih = of[0], .w_hh = of[1], .b_ih = of[2], .b_hh = of[3]};
    }
    y[2] = NULL;
    if (cell == LSTM) return clef_lstm(in[X], in[H0], in[C0], w, runs, o, &y[0], &y[1], &y[2]);
    if (cell == GRU) return clef_gru(in[X], in[H0], w, runs, o, &y[0], &y[1]);
    return clef_rnn(in[X], in[H0], w, runs, o, &y[0], &y[1]);
}

/* Outputs, then gradients of the sum of y times numbers and h, as f32 on the host; lengths[k] elements each. */
static int compute(int cell, clef_dtype dtype, bool with_lengths, float **out, int64_t *lengths) {
    static const int32_t steps[ITEMS] = {6, 2, 0, 5, 1};
    clef_tensor *in[INPUTS], *y[OUTPUTS], *all[OUTPUTS + INPUTS] = {NULL};
    clef_recurrent_options o = {.bidirectional = true};
    if (with_lengths) o.lengths = clef_from_host(ctx, CLEF_SHAPE(ITEMS), CLEF_I32, steps);
    make_inputs(cell, dtype, in);
    cr_assert_eq(run_cell(cell, in, &o, RUNS, y), CLEF_OK, "%s", clef_error(ctx));
    clef_tensor *g = exact_numbers(clef_tensor_shape(y[0]), 99, dtype);
    clef_tensor *loss =
        clef_add(clef_sum(clef_to(clef_mul(y[0], g), CLEF_F32), NULL, 0, false), clef_sum(clef_to(y[1], CLEF_F32), NULL, 0, false));
    int n = 0, outputs = cell == LSTM ? 3 : 2;
    for (int k = 0; k < outputs; k++) all[n++] = y[k];
    cr_expect_eq(clef_tensor_dtype(y[0]), dtype);
    cr_assert_eq(clef_grad(loss, CLEF_NONE, in, INPUTS, false, all + n), CLEF_OK, "%s", clef_error(ctx));
    n += INPUTS;
    for (int k = 0; k < n; k++) {
        lengths[k] = clef_numel(all[k]);
        out[k] = malloc((size_t)lengths[k] * sizeof **out);
        cr_assert_eq(clef_read(clef_to(all[k], CLEF_F32), out[k], (size_t)lengths[k] * sizeof **out), CLEF_OK, "%s",
                     clef_error(ctx));
    }
    for (int i = 0; i < INPUTS; i++) clef_release(in[i]);
    clef_release(g);
    clef_end_step(ctx);
    return n;
}

static void expect_alike(int cell, clef_dtype dtype, bool with_lengths) {
    float *have[OUTPUTS + INPUTS], *want[OUTPUTS + INPUTS];
    int64_t size[OUTPUTS + INPUTS], same[OUTPUTS + INPUTS];
    int n = compute(cell, dtype, with_lengths, have, size), outputs = n - INPUTS;
    compute(cell, CLEF_F32, with_lengths, want, same);
    for (int k = 0; k < n; k++) {
        double most = 1, worst = 0, near = dtype == CLEF_F16 ? 4e-3 : 3e-2;
        cr_assert_eq(size[k], same[k]);
        for (int64_t i = 0; i < size[k]; i++) {
            most = fmax(most, fabs((double)want[k][i]));
            worst = fmax(worst, fabs((double)(have[k][i] - want[k][i])));
        }
        cr_expect(worst <= near * most, "%s in %s%s, %s %d: off by %g of %g", names[cell], clef_dtype_name(dtype),
                  with_lengths ? " with lengths" : "", k < outputs ? "output" : "gradient", k < outputs ? k : k - outputs, worst,
                  most);
        free(have[k]);
        free(want[k]);
    }
}

/* In all ways to launch them; by products of their own only where a device's profile has tiles: that of a GPU, unless another one is
   forced.  Storage rounds, sums do not: so many steps later results are as near as one rounding. */
Test(recurrent, half_types_are_near_f32) {
    static const char *const ways[] = {"sequence", "steps", "products"};
    int n = fewest_kernels() ? 2 : 3; /* tiles take Oclgrind many minutes */
    for (int w = 0; w < n; w++) {
        setenv("CLEF_ROWS", ways[w], 1);
        ctx = open_or_skip(&(clef_options){.seed = 1, .profile = w < 2 || getenv("CLEF_PROFILE") ? NULL : "gpu"});
        for (int cell = few_kernels() ? GRU : RNN; cell < CELLS; cell++)
            for (int lengths = fewest_kernels(); lengths < 2; lengths++) {
                /* A GPU's tiles take pocl's optimizer long: the last cell's show what it makes of them. */
                if (w == 2) setenv("POCL_EXTRA_BUILD_FLAGS", cell + 1 < CELLS || lengths ? "-cl-opt-disable" : "", 1);
                if (w == 0 || !fewest_kernels()) expect_alike(cell, CLEF_F16, lengths);
                if (w == 1 || !fewest_kernels()) expect_alike(cell, CLEF_BF16, lengths);
            }
        clef_close(ctx);
    }
}

/* ---- options in half types, and on another device ---- */

enum { PROJECTED = 8 };
typedef struct variant {
    int cell;
    bool projects, peeps;
    clef_recurrent_options o;
} variant;
static const variant variants[] = {
    {.cell = LSTM, .projects = true},
    {.cell = LSTM, .peeps = true, .o.coupled = true},
    {.cell = LSTM, .projects = true, .peeps = true, .o.clip = 0.5},
    {.cell = GRU, .o = {.reset_before = true, .clip = 0.5}},
    {.cell = RNN, .o.activations[0][0].name = "Softsign"},
    {.cell = LSTM, .o.activations[0] = {{.name = "HardSigmoid"}, {.name = "Elu"}, {.name = "Softsign"}}}};
enum { VARIANTS = sizeof variants / sizeof *variants };

/* One layer on a device: y, then the gradients of x, w_ih, w_hh and where they are w_hr and w_peep, as f32 on the host, one after the other. */
static int64_t compute_variant(const variant *v, clef_dtype dtype, int device, float **out) {
    int64_t gates = (v->cell == LSTM ? 4 : v->cell == GRU ? 3 : 1) * HIDDEN, width = v->projects ? PROJECTED : HIDDEN, n = 0;
    const clef_shape shape[] = {CLEF_SHAPE(STEPS, ITEMS, IN), CLEF_SHAPE(gates, IN), CLEF_SHAPE(gates, width),
                                CLEF_SHAPE(width, HIDDEN), CLEF_SHAPE(3 * HIDDEN)};
    const bool there[] = {true, true, true, v->projects, v->peeps};
    clef_tensor *in[5], *given[5], *d[6], *y;
    int count = 0;
    for (int i = 0; i < 5; i++) {
        in[i] = there[i] ? clef_keep(clef_to_device(exact_numbers(shape[i], i + 1, dtype), device)) : CLEF_NONE;
        if (there[i]) given[count++] = clef_require_grad(in[i], true);
    }
    clef_recurrent_weights w = {.w_ih = in[1], .w_hh = in[2], .w_hr = in[3], .w_peep = in[4]};
    clef_status status = v->cell == LSTM  ? clef_lstm(in[0], CLEF_NONE, CLEF_NONE, &w, 1, &v->o, &y, NULL, NULL)
                         : v->cell == GRU ? clef_gru(in[0], CLEF_NONE, &w, 1, &v->o, &y, NULL)
                                          : clef_rnn(in[0], CLEF_NONE, &w, 1, &v->o, &y, NULL);
    cr_assert_eq(status, CLEF_OK, "%s", clef_error(ctx));
    cr_expect(clef_tensor_dtype(y) == dtype && clef_tensor_device(y) == device, "%s", names[v->cell]);
    clef_tensor *loss = clef_sum(clef_square(clef_to(y, CLEF_F32)), NULL, 0, false);
    cr_assert_eq(clef_grad(loss, CLEF_NONE, given, count, false, d + 1), CLEF_OK, "%s", clef_error(ctx));
    d[0] = y;
    *out = malloc(sizeof(float) * (size_t)(STEPS * ITEMS * (IN + HIDDEN) + gates * (IN + HIDDEN) + HIDDEN * (PROJECTED + 3)));
    for (int k = 0; k <= count; n += clef_numel(d[k++]))
        cr_assert_eq(clef_read(clef_to(d[k], CLEF_F32), *out + n, (size_t)clef_numel(d[k]) * sizeof(float)), CLEF_OK, "%s",
                     clef_error(ctx));
    for (int i = 0; i < 5; i++)
        if (there[i]) clef_release(in[i]);
    clef_end_step(ctx);
    return n;
}

/* Each step's states are rounded: a few roundings of the largest number. */
static void expect_variant(const variant *v, clef_dtype dtype, int device, double near) {
    float *have, *want;
    int64_t n = compute_variant(v, dtype, device, &have), same = compute_variant(v, CLEF_F32, 0, &want);
    double most = 1, worst = 0;
    cr_assert_eq(n, same);
    for (int64_t i = 0; i < n; i++) {
        most = fmax(most, fabs((double)want[i]));
        worst = fmax(worst, fabs((double)(have[i] - want[i])));
    }
    cr_expect(worst <= near * most, "variant %d in %s on device %d: off by %g of %g", (int)(v - variants), clef_dtype_name(dtype),
              device, worst, most);
    free(have);
    free(want);
}

Test(recurrent, options_in_half_types_are_near_f32) {
    unsetenv("CLEF_ROWS");
    ctx = open_or_skip(&(clef_options){.seed = 1});
    for (int i = few_kernels() ? VARIANTS - 1 : 0; i < VARIANTS; i++) {
        expect_variant(&variants[i], CLEF_F16, 0, 8e-3);
        if (!fewest_kernels()) expect_variant(&variants[i], CLEF_BF16, 0, 6e-2);
    }
    clef_close(ctx);
}

Test(recurrent, options_on_another_device_give_the_same_bits) {
    unsetenv("CLEF_ROWS");
    ctx = clef_open(&(clef_options){.device = "0/2", .seed = 1});
    if (!ctx) cr_skip_test("no device in two halves here: %s", clef_error(NULL));
    for (int i = few_kernels() ? VARIANTS - 1 : 0; i < VARIANTS; i++) expect_variant(&variants[i], CLEF_F32, 1, 0);
    clef_close(ctx);
}

/* ---- gradients that are differentiated again ---- */

/* The gradients of the sum of squares of all inputs' gradients, n numbers of each input. */
static void differentiate_twice(int cell, const clef_recurrent_options *o, clef_dtype dtype, float **out, int64_t *lengths) {
    clef_tensor *in[INPUTS], *y[OUTPUTS], *slope[INPUTS], *penalty = NULL;
    make_inputs(cell, dtype, in);
    cr_assert_eq(run_cell(cell, in, o, RUNS, y), CLEF_OK, "%s", clef_error(ctx));
    clef_tensor *loss = clef_sum(clef_sin(y[0]), NULL, 0, false);
    for (int k = 1; k < (cell == LSTM ? 3 : 2); k++) loss = clef_add(loss, clef_sum(clef_sin(y[k]), NULL, 0, false));
    cr_assert_eq(clef_grad(loss, CLEF_NONE, in, INPUTS, true, slope), CLEF_OK, "%s", clef_error(ctx));
    for (int i = 0; i < INPUTS; i++) {
        clef_tensor *square = clef_sum(clef_square(clef_to(slope[i], CLEF_F32)), NULL, 0, false);
        penalty = penalty ? clef_add(penalty, square) : square;
    }
    cr_assert_eq(clef_grad(penalty, CLEF_NONE, in, INPUTS, false, slope), CLEF_OK, "%s", clef_error(ctx));
    for (int i = 0; i < INPUTS; i++) {
        lengths[i] = clef_numel(in[i]);
        out[i] = malloc((size_t)lengths[i] * sizeof **out);
        clef_read(clef_to(slope[i], CLEF_F32), out[i], (size_t)lengths[i] * sizeof **out);
        clef_release(in[i]);
    }
    clef_end_step(ctx);
}

static void compare_twice(int cell, bool with_lengths, clef_dtype dtype, double bound) {
    static const int32_t steps[ITEMS] = {6, 2, 0, 5, 1};
    clef_tensor *length = clef_keep(clef_from_host(ctx, CLEF_SHAPE(ITEMS), CLEF_I32, steps));
    clef_recurrent_options o = {.bidirectional = true, .lengths = with_lengths ? length : NULL}, by_steps = o;
    by_steps.clip = 1e30; /* which no kernel knows */
    float *have[INPUTS], *want[INPUTS];
    int64_t lengths[INPUTS];
    differentiate_twice(cell, &o, dtype, have, lengths);
    differentiate_twice(cell, &by_steps, CLEF_F32, want, lengths);
    for (int i = 0; i < INPUTS; i++) {
        double largest = 0, error = 0;
        for (int64_t k = 0; k < lengths[i]; k++) {
            largest = fmax(largest, fabs(want[i][k]));
            error = fmax(error, fabs(have[i][k] - want[i][k]));
        }
        cr_expect(error <= bound * largest && (largest > 0 || (i == C0 && cell != LSTM)), "%s of %s, input %d: %g away of %g",
                  names[cell], clef_dtype_name(dtype), i, error, largest);
        free(have[i]);
        free(want[i]);
    }
    clef_release(length);
}

/* ---- gates far from 0 ---- */

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* One step of one LSTM from c = 1, h = 0: units of which one gate gets these numbers, the others 1/2. */
Test(recurrent, gates_saturate) {
    static const float far[] = {NAN, -INFINITY, -1e30f, -200, -89, -88, -87, -20, 20, 87, 88, 89, 200, 1e30f, INFINITY};
    enum { N = sizeof far / sizeof *far };
    float one = 1, w[4 * N], first[N];
    ctx = open_or_skip(&(clef_options){.seed = 1});
    for (int gate = 0; gate < 4; gate++) {
        for (int i = 0; i < 4 * N; i++) w[i] = i / N == gate ? far[i % N] : 0.5f;
        for (int i = 0; i < N; i++) first[i] = 1;
        clef_recurrent_weights of = {.w_ih = clef_from_host(ctx, CLEF_SHAPE(4 * N, 1), CLEF_F32, w),
                                     .w_hh = clef_zeros(ctx, CLEF_SHAPE(4 * N, N), CLEF_F32)};
        clef_tensor *x = clef_from_host(ctx, CLEF_SHAPE(1, 1, 1), CLEF_F32, &one),
                    *c0 = clef_from_host(ctx, CLEF_SHAPE(1, 1, N), CLEF_F32, first), *y, *h, *c;
        float h_of[N], c_of[N];
        cr_assert_eq(clef_lstm(x, CLEF_NONE, c0, &of, 1, NULL, &y, &h, &c), CLEF_OK, "%s", clef_error(ctx));
        cr_assert_eq(clef_read(h, h_of, sizeof h_of), CLEF_OK);
        cr_assert_eq(clef_read(c, c_of, sizeof c_of), CLEF_OK);
        for (int i = 0; i < N; i++) {
            double in[4] = {0.5, 0.5, 0.5, 0.5};
            in[gate] = far[i];
            double want_c = sigmoid(in[1]) + sigmoid(in[0]) * tanh(in[2]), want_h = sigmoid(in[3]) * tanh(want_c);
            bool right = isnan(far[i]) ? isnan(h_of[i]) && (isnan(c_of[i]) || gate == 3)
                                       : fabs(c_of[i] - want_c) <= 4e-7 && fabs(h_of[i] - want_h) <= 4e-7;
            cr_expect(right, "gate %d at %g: c %g h %g, not %g %g", gate, (double)far[i], (double)c_of[i], (double)h_of[i], want_c,
                      want_h);
        }
        clef_end_step(ctx);
    }
    close_clean(ctx);
}

Test(recurrent, second_derivatives_are_those_of_steps) {
    if (few_kernels())
        cr_skip_test("steps of single ops, eagerly: a quarter of an hour in Oclgrind, whose kernels other tests run there");
    ctx = open_or_skip(&(clef_options){.seed = 1, .eager = true}); /* kernels of single ops, which all cells share */
    for (int cell = 0; cell < CELLS; cell++) compare_twice(cell, cell != RNN, CLEF_F32, 1e-5);
    compare_twice(LSTM, false, CLEF_F16, 1e-2);
    close_clean(ctx);
}

/* ---- memory ---- */

static clef_plan_size training_size(clef_module *net, int64_t steps) {
    clef_plan_size size;
    clef_tensor *x = clef_keep(clef_zeros(ctx, CLEF_SHAPE(steps, 4, 32), CLEF_F32));
    clef_eval(x);
    clef_set_dry_run(ctx, true);
    clef_backward(clef_mean(clef_square(clef_forward(net, x)), NULL, 0, false));
    clef_end_step(ctx);
    cr_assert_eq(clef_plan_memory(ctx, &size), CLEF_OK, "%s", clef_error(ctx));
    clef_zero_grad(net);
    clef_set_dry_run(ctx, false);
    clef_release(x);
    return size;
}

/* Twice the steps are twice the memory, of a few rows of all gates for each step. */
Test(recurrent, memory_grows_as_steps_do) {
    static clef_module *(*const make[])(clef_context *, int64_t, int64_t,
                                        const clef_nn_recurrent_options *) = {clef_nn_rnn, clef_nn_lstm, clef_nn_gru};
    unsetenv("CLEF_ROWS");
    ctx = open_or_skip(&(clef_options){.seed = 1});
    for (int cell = RNN; cell < CELLS; cell++) {
        clef_module *net = make[cell](ctx, 32, 64, NULL);
        double a = (double)training_size(net, 256).temporary_bytes, b = (double)training_size(net, 512).temporary_bytes,
               c = (double)training_size(net, 1024).temporary_bytes, of_row = 4 * 64 * sizeof(float);
        int gates = cell == LSTM ? 4 : cell == GRU ? 3 : 1;
        cr_expect(fabs(c - b - 2 * (b - a)) <= 0.05 * (c - b), "%s: %g, %g and %g bytes", names[cell], a, b, c);
        cr_expect_leq(c - b, 512 * of_row * (3 * gates + 6), "%s: %g rows for each step", names[cell], (c - b) / 512 / of_row);
    }
    clef_close(ctx);
}

/* ---- wrong input ---- */

static void expect_refusal(int cell, clef_tensor *const *in, const clef_recurrent_options *o, int runs, clef_status status,
                           const char *says) {
    clef_tensor *y[OUTPUTS] = {in[0], in[0], in[0]};
    clef_status had = run_cell(cell, in, o, runs, y);
    const char *line = clef_error(ctx);
    cr_expect_eq(had, status, "%s: \"%s\", wanted \"%s\"", names[cell], line, says);
    cr_expect(strstr(line, says) && strstr(line, names[cell]) == line && !strchr(line, '\n'), "\"%s\" without \"%s\"", line, says);
    cr_expect(!y[0] && !y[1], "outputs after \"%s\"", line);
    clef_clear_error(ctx);
}

/* The input at one place is another tensor. */
static void expect_refusal_of(int cell, clef_tensor *const *in, int at, clef_tensor *wrong, clef_status status, const char *says) {
    clef_tensor *all[INPUTS];
    memcpy(all, in, sizeof all);
    all[at] = wrong;
    expect_refusal(cell, all, NULL, 1, status, says);
}

/* A projection and peepholes that do not fit, or that the cell does not have. */
static void expect_refusal_of_extra(int cell, clef_tensor *const *in, clef_tensor *wrong) {
    clef_tensor *y[OUTPUTS], *const *of = in + WEIGHTS;
    clef_recurrent_weights w = {.w_ih = of[0], .w_hh = of[1], .w_hr = wrong}, p = {.w_ih = of[0], .w_hh = of[1], .w_peep = wrong};
    const char *says = cell == LSTM ? " but must be [" : "w_hr and w_peep are an LSTM's only";
    for (int k = 0; k < 2; k++) {
        clef_recurrent_weights *at = k ? &p : &w;
        if (cell == LSTM) clef_lstm(in[X], in[H0], in[C0], at, 1, NULL, &y[0], &y[1], &y[2]);
        if (cell == GRU) clef_gru(in[X], in[H0], at, 1, NULL, &y[0], &y[1]);
        if (cell == RNN) clef_rnn(in[X], in[H0], at, 1, NULL, &y[0], &y[1]);
        cr_expect(!y[0] && strstr(clef_error(ctx), says), "\"%s\" without \"%s\"", clef_error(ctx), says);
        clef_clear_error(ctx);
    }
}

Test(recurrent, wrong_input_is_named) {
    clef_tensor *in[INPUTS], *y[OUTPUTS];
    unsetenv("CLEF_ROWS");
    ctx = open_or_skip(&(clef_options){.seed = 1});
    for (int cell = RNN; cell < CELLS; cell++) {
        make_inputs(cell, CLEF_F32, in);
        for (int i = H0; i <= C0; i++) {
            clef_release(in[i]);
            in[i] = CLEF_NONE;
        }
        clef_tensor *two = clef_ones(ctx, CLEF_SHAPE(2, 3), CLEF_F32), *none = clef_ones(ctx, CLEF_SHAPE(0, ITEMS, IN), CLEF_F32);
        expect_refusal_of(cell, in, X, two, CLEF_SHAPE, "x must be [t,b,in]");
        expect_refusal_of(cell, in, X, none, CLEF_INVALID, "at least one step");
        expect_refusal_of(cell, in, X, clef_ones(ctx, CLEF_SHAPE(STEPS, ITEMS, IN), CLEF_I32), CLEF_INVALID, "x must be floating");
        expect_refusal_of(cell, in, X, clef_ones(ctx, CLEF_SHAPE(STEPS, ITEMS, IN + 1), CLEF_F32), CLEF_SHAPE, "w_ih is [");
        expect_refusal_of(cell, in, H0, two, CLEF_SHAPE, "h0 is [2,3] but must be [1,5,21]");
        if (cell == LSTM) expect_refusal_of(cell, in, C0, two, CLEF_SHAPE, "c0 is [2,3] but must be [1,5,21]");
        expect_refusal_of(cell, in, WEIGHTS + 1, two, CLEF_SHAPE, "but must be [");
        expect_refusal_of(cell, in, WEIGHTS + 2, two, CLEF_SHAPE, "b_ih is [2,3] but must be [");
        expect_refusal_of(cell, in, WEIGHTS + 3, two, CLEF_SHAPE, "b_hh is [2,3] but must be [");
        expect_refusal(cell, in, NULL, 2, CLEF_INVALID, "as many weights as layers times directions");
        expect_refusal(cell, in, &(clef_recurrent_options){.layers = -1}, 1, CLEF_INVALID, "as many weights");
        expect_refusal(cell, in, &(clef_recurrent_options){.dropout = 1.5}, 1, CLEF_INVALID, "dropout must be within 0 and 1");
        expect_refusal(cell, in, &(clef_recurrent_options){.lengths = two}, 1, CLEF_SHAPE, "lengths is [2,3] but must be [5]");
        expect_refusal(cell, in, &(clef_recurrent_options){.lengths = clef_ones(ctx, CLEF_SHAPE(ITEMS), CLEF_F32)}, 1, CLEF_DTYPE,
                       "lengths must be whole numbers, not f32");
        expect_refusal(cell, in, &(clef_recurrent_options){.bidirectional = true, .backwards = true}, 2, CLEF_INVALID,
                       "backwards does not go with bidirectional");
        expect_refusal(cell, in, &(clef_recurrent_options){.clip = -1}, 1, CLEF_INVALID, "clip must be positive");
        expect_refusal(cell, in, &(clef_recurrent_options){.activations[1][2].name = "tanh"}, 1, CLEF_INVALID,
                       "no activation is called \"tanh\"; there is Affine, ");
        expect_refusal_of_extra(cell, in, two);
        cr_expect_eq(run_cell(cell, in, NULL, 1, y), CLEF_OK, "%s", clef_error(ctx)); /* and goes on */
        cr_expect_eq(clef_eval(y[0]), CLEF_OK, "%s", clef_error(ctx));
        for (int i = 0; i < INPUTS; i++)
            if (in[i] != CLEF_NONE) clef_release(in[i]);
        clef_end_step(ctx);
    }
    clef_close(ctx);
}

/* ---- weights of other libraries ---- */

/* An LSTM with its gates in ONNX's order, and the same one; a gradient goes back to its rows. */
Test(recurrent, gates_in_another_order) {
    enum { ROWS = 3, COLUMNS = 2 };
    static const int place[] = {0, 2, 3, 1}; /* of i, f, c, o in iofc */
    float v[4 * ROWS * COLUMNS], have[4 * ROWS * COLUMNS], slope[4 * ROWS * COLUMNS];
    ctx = open_or_skip(&(clef_options){.seed = 1});
    for (int i = 0; i < 4 * ROWS * COLUMNS; i++) v[i] = (float)i;
    clef_tensor *t = clef_require_grad(clef_keep(clef_from_host(ctx, CLEF_SHAPE(4 * ROWS, COLUMNS), CLEF_F32, v)), true), *d;
    clef_tensor *y = clef_reorder_gates(t, "iofc", "ifco");
    cr_assert_eq(clef_read(y, have, sizeof have), CLEF_OK, "%s", clef_error(ctx));
    cr_assert_eq(clef_grad(y, clef_from_host(ctx, CLEF_SHAPE(4 * ROWS, COLUMNS), CLEF_F32, v), &t, 1, false, &d), CLEF_OK);
    cr_assert_eq(clef_read(d, slope, sizeof slope), CLEF_OK, "%s", clef_error(ctx));
    for (int i = 0; i < 4 * ROWS * COLUMNS; i++) {
        int gate = i / (ROWS * COLUMNS), there = place[gate] * ROWS * COLUMNS + i % (ROWS * COLUMNS);
        cr_expect_eq(have[i], v[there], "element %d", i);
        cr_expect_eq(slope[there], v[i], "gradient %d", there);
    }
    clef_tensor *bias = clef_from_host(ctx, CLEF_SHAPE(3 * COLUMNS), CLEF_F32, v);
    static const float want[] = {2, 3, 0, 1, 4, 5};
    cr_assert_eq(clef_read(clef_reorder_gates(bias, "zrh", "rzh"), have, sizeof want), CLEF_OK, "%s", clef_error(ctx));
    cr_expect_arr_eq(have, want, sizeof want);
    static const char *const bad[][2] = {{"zrh", "rz"}, {"zrh", "rzz"}, {"zrh", "rzo"}, {"", ""}, {"zrho", "orzh"}, {"zzr", "zrh"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cr_expect(!clef_reorder_gates(bias, bad[i][0], bad[i][1]) && clef_error_status(ctx) == CLEF_INVALID, "%zu", i);
        cr_expect(strstr(clef_error(ctx), "reorder_gates: ") == clef_error(ctx), "%s", clef_error(ctx));
        clef_clear_error(ctx);
    }
    cr_expect(!clef_reorder_gates(bias, NULL, "zrh") && clef_error_status(ctx) == CLEF_INVALID);
    clef_clear_error(ctx);
    clef_release(t);
    clef_close(ctx);
}

/* Where part k of ONNX's gates lies here. */
static void expect_parts(clef_tensor *t, int parts, int64_t rows, float first, const int *place) {
    float have[256];
    int64_t n = clef_numel(t), one = n / parts;
    cr_assert_eq(clef_read(t, have, (size_t)n * sizeof *have), CLEF_OK, "%s", clef_error(ctx));
    cr_expect_eq(clef_tensor_shape(t).dim[0], rows);
    for (int64_t i = 0; i < n; i++) cr_expect_eq(have[i], first + (float)(place[i / one] * one + i % one), "element %d", (int)i);
}

Test(recurrent, weights_of_onnx) {
    enum { H = 3, COLUMNS = 2, WAYS = 2 };
    static const int lstm[] = {0, 2, 3, 1}, gru[] = {1, 0, 2}, peep[] = {0, 2, 1}, rnn[] = {0};
    static const struct {
        int gates;
        const int *place;
    } cells[] = {{4, lstm}, {3, gru}, {1, rnn}};
    ctx = open_or_skip(&(clef_options){.seed = 1});
    for (size_t c = 0; c < 3; c++) {
        int64_t rows = cells[c].gates * H;
        clef_recurrent_weights at[WAYS];
        clef_tensor *w =
            clef_reshape(clef_arange(ctx, 0, (double)(WAYS * rows * COLUMNS), 1, CLEF_F32), CLEF_SHAPE(WAYS, rows, COLUMNS));
        clef_tensor *r = clef_reshape(clef_arange(ctx, 0, (double)(WAYS * rows * H), 1, CLEF_F32), CLEF_SHAPE(WAYS, rows, H));
        clef_tensor *b = clef_reshape(clef_arange(ctx, 0, (double)(WAYS * 2 * rows), 1, CLEF_F32), CLEF_SHAPE(WAYS, 2 * rows));
        clef_tensor *p = clef_reshape(clef_arange(ctx, 0, WAYS * 3 * H, 1, CLEF_F32), CLEF_SHAPE(WAYS, 3 * H));
        bool has_p = cells[c].gates == 4;
        cr_assert_eq(clef_recurrent_from_onnx(w, r, b, has_p ? p : CLEF_NONE, at, WAYS), CLEF_OK, "%s", clef_error(ctx));
        for (int k = 0; k < WAYS; k++) {
            expect_parts(at[k].w_ih, cells[c].gates, rows, (float)(k * rows * COLUMNS), cells[c].place);
            expect_parts(at[k].w_hh, cells[c].gates, rows, (float)(k * rows * H), cells[c].place);
            expect_parts(at[k].b_ih, cells[c].gates, rows, (float)(k * 2 * rows), cells[c].place);
            expect_parts(at[k].b_hh, cells[c].gates, rows, (float)((k * 2 + 1) * rows), cells[c].place);
            if (has_p) expect_parts(at[k].w_peep, 3, 3 * H, (float)(k * 3 * H), peep);
            else cr_expect_eq(at[k].w_peep, CLEF_NONE);
        }
        cr_assert_eq(clef_recurrent_from_onnx(w, r, CLEF_NONE, CLEF_NONE, at, WAYS), CLEF_OK, "%s", clef_error(ctx));
        cr_expect_eq(at[0].b_ih, CLEF_NONE);
        cr_expect_eq(clef_recurrent_from_onnx(w, r, b, CLEF_NONE, at, 1), CLEF_SHAPE);
        cr_expect(strstr(clef_error(ctx), "recurrent_from_onnx: W must be [n") == clef_error(ctx) && !at[0].w_ih, "%s",
                  clef_error(ctx));
        clef_clear_error(ctx);
        cr_expect_eq(clef_recurrent_from_onnx(w, r, p, CLEF_NONE, at, WAYS), CLEF_SHAPE);
        clef_clear_error(ctx);
        cr_expect_eq(clef_recurrent_from_onnx(w, r, b, has_p ? b : p, at, WAYS), CLEF_SHAPE);
        clef_clear_error(ctx);
        cr_expect_eq(clef_recurrent_from_onnx(w, r, b, CLEF_NONE, NULL, WAYS), CLEF_INVALID);
        cr_expect(strstr(clef_error(ctx), "recurrent_from_onnx: weights is NULL, for 2 directions"), "%s", clef_error(ctx));
        clef_clear_error(ctx);
        cr_expect_eq(clef_recurrent_from_onnx(w, r, b, CLEF_NONE, at, 0), CLEF_INVALID);
        clef_clear_error(ctx);
    }
    clef_close(ctx);
}
