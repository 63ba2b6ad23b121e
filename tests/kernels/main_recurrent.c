/* Recurrent layers in random modes: values against the definition in double precision, one element after the other; gradients against its
   central differences along random directions; each way to launch them against both.  A plain program, for the sanitizers.
   ctest: cost=70 plain */
#include "recurrent_definition.h"
#include "support/small.h"

static clef_context *ctx;
static int failures;
static bool has_f64;
static char what[512];

static void expect(bool good, const char *part) {
    if (good) return;
    failures++;
    fprintf(stderr, "%s: %s: %s\n", what, part, clef_error(ctx));
    clef_clear_error(ctx);
}

static uint64_t seed = 2;
static int below(int n) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (int)((seed >> 33) % (uint64_t)n);
}
static double unit(void) { return (below(2001) - 1000) / 1000.0; }

static double loss_of(const problem *p, double *const *out) {
    double sum = 0;
    define(p, out);
    for (int k = 0; k < 3; k++)
        for (int64_t i = 0; p->g[k] && i < p->out[k]; i++) sum += p->g[k][i] * out[k][i];
    return sum;
}

static double *numbers(int64_t n, double scale) {
    double *x = malloc((size_t)(n ? n : 1) * sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = (double)(float)(unit() * scale);
    return x;
}

static void add_input(problem *p, int i, clef_shape shape, double scale, bool there) {
    p->shape[i] = shape;
    p->size[i] = clef_shape_numel(shape);
    p->data[i] = there ? numbers(p->size[i], scale) : NULL;
    p->wanted[i] = there && below(4) > 0;
}

/* Of an LSTM a projection and peepholes, of a GRU its order, clip and activations; sometimes those that are the cell's own.  Returns
   whether there are peepholes. */
static bool make_options(problem *p) {
    static const char *const names[] = {NULL,         "Affine",  "Elu",      "HardSigmoid", "LeakyRelu", "Relu",
                                        "ScaledTanh", "Sigmoid", "Softplus", "Softsign",    "Tanh",      "ThresholdedRelu"};
    if (p->cell == LSTM && below(2)) p->width = 1 + below(p->h);
    p->coupled = p->cell == LSTM && below(3) == 0;
    p->reset_before = p->cell == GRU && below(2);
    p->clip = below(2) ? 0.25 + below(4) / 4.0 : 0;
    for (int k = 0; k < 6 && below(2); k++) {
        p->apply[k / 3][k % 3] = (clef_recurrent_activation){.name = names[below(12)]};
        if (below(2)) continue;
        p->apply[k / 3][k % 3].has_alpha_beta = true;
        p->apply[k / 3][k % 3].alpha = 0.125 + below(8) / 8.0;
        p->apply[k / 3][k % 3].beta = below(8) / 8.0;
    }
    return p->cell == LSTM && below(2);
}

static void describe(const problem *p, bool given, bool bias, bool peepholes, int which) {
    int n = snprintf(what, sizeof what,
                     "cell %d, t %d, b %d, in %d, h %d of %d, %d layers, %d ways%s%s%s%s%s%s, loss of %d, %s, clip %g%s%s", p->cell,
                     p->t, p->b, p->in, p->width, p->h, p->layers, p->ways, p->backwards ? ", backwards" : "",
                     p->batch_first ? ", batch first" : "", p->lengths ? ", lengths" : "", given ? ", states" : "",
                     bias ? ", biases" : "", peepholes ? ", peepholes" : "", which, clef_dtype_name(p->dtype), p->clip,
                     p->reset_before ? ", reset before" : "", p->coupled ? ", coupled" : "");
    for (int k = 0; k < 6 && n < (int)sizeof what; k++)
        if (p->apply[k / 3][k % 3].name)
            n += snprintf(what + n, sizeof what - (size_t)n, ", %d %s", k, p->apply[k / 3][k % 3].name);
}

static void add_weights(problem *p, int run, bool bias, bool peepholes) {
    int at = 3 + OF_RUN * run, rows = p->gates * p->h;
    double scale = 1 / sqrt(p->h);
    add_input(p, at + W_IH, CLEF_SHAPE(rows, run < p->ways ? p->in : p->ways * p->width), scale, true);
    add_input(p, at + W_HH, CLEF_SHAPE(rows, p->width), scale, true);
    add_input(p, at + B_IH, CLEF_SHAPE(rows), scale, bias);
    add_input(p, at + B_HH, CLEF_SHAPE(rows), scale, bias);
    add_input(p, at + W_HR, CLEF_SHAPE(p->width, p->h), scale, p->width < p->h);
    add_input(p, at + W_PEEP, CLEF_SHAPE(3 * p->h), 1, peepholes);
}

/* With options mostly LSTMs, which have most of them. */
static problem make(bool options) {
    static const int batches[] = {1, 2, 3, 5, 13, 0}, widths[] = {1, 3, 4, 8, 16, 17, 33, 40, 64};
    problem p = {.cell = options && below(2) ? LSTM : below(4),
                 .t = 1 + below(6),
                 .b = batches[below(options ? 5 : 6)],
                 .in = 1 + below(9),
                 .h = widths[below(options ? 6 : 9)],
                 .layers = 1 + below(options ? 2 : 3)};
    p.width = p.h;
    p.ways = 1 + below(2);
    p.backwards = p.ways == 1 && below(3) == 0;
    p.batch_first = below(2);
    p.gates = p.cell == LSTM ? 4 : p.cell == GRU ? 3 : 1;
    p.dtype = below(4) == 0 && has_f64 ? CLEF_F64 : CLEF_F32;
    int runs = p.layers * p.ways;
    bool given = below(2), bias = below(3) > 0, peepholes = options && make_options(&p);
    add_input(&p, 0, p.batch_first ? CLEF_SHAPE(p.b, p.t, p.in) : CLEF_SHAPE(p.t, p.b, p.in), 1, true);
    add_input(&p, 1, CLEF_SHAPE(runs, p.b, p.width), 1, given);
    add_input(&p, 2, CLEF_SHAPE(runs, p.b, p.h), 1, given && p.cell == LSTM);
    for (int r = 0; r < runs; r++) add_weights(&p, r, bias, peepholes);
    if (below(2)) {
        p.lengths = malloc((size_t)(p.b + 1) * sizeof *p.lengths);
        for (int i = 0; i < p.b; i++) p.lengths[i] = below(p.t + 1);
    }
    p.out[0] = (int64_t)p.t * p.b * p.ways * p.width;
    p.out[1] = (int64_t)runs * p.b * p.width;
    p.out[2] = (int64_t)runs * p.b * p.h;
    int which = 1 + below(7);
    for (int k = 0; k < 3; k++)
        if (which >> k & 1 && (k < 2 || p.cell == LSTM)) p.g[k] = numbers(p.out[k], 1);
    describe(&p, given, bias, peepholes, which);
    return p;
}

static void drop(problem *p) {
    for (int i = 0; i < MOST_INPUTS; i++) free(p->data[i]);
    for (int k = 0; k < 3; k++) free(p->g[k]);
    free(p->lengths);
}

static clef_tensor *tensor_of(const problem *p, clef_shape shape, const double *data) {
    if (p->dtype == CLEF_F64) return clef_from_host(ctx, shape, CLEF_F64, data);
    int64_t n = clef_shape_numel(shape);
    float *x = malloc((size_t)(n + 1) * sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = (float)data[i];
    clef_tensor *t = clef_from_host(ctx, shape, CLEF_F32, x);
    free(x);
    return t;
}

static double *read_doubles(clef_tensor *t, int64_t n) {
    double *x = calloc((size_t)n + 1, sizeof *x);
    bool wide = clef_tensor_dtype(t) == CLEF_F64;
    expect(!n || clef_read(t, x, (size_t)n * (wide ? sizeof(double) : sizeof(float))) == CLEF_OK, "reading");
    for (int64_t i = n - 1; !wide && i >= 0; i--) x[i] = (double)((float *)(void *)x)[i];
    return x;
}

static bool applies(const problem *p, const char *names) {
    for (int k = 0; k < 6; k++)
        if (p->apply[k / 3][k % 3].name && strstr(names, p->apply[k / 3][k % 3].name)) return true;
    return false;
}

/* Is a difference of losses that of two slopes where a unit passes a bend? */
static bool bends(const problem *p) {
    return p->cell == RELU || p->clip > 0 || applies(p, "HardSigmoid LeakyRelu ThresholdedRelu");
}

static void compare(const problem *p, clef_tensor *t, const double *want, int64_t n, const char *name) {
    char text[96];
    if (!t) return expect(false, name);
    double *have = read_doubles(t, n), near = p->dtype == CLEF_F64 ? 1e-12 : 4e-6;
    for (int64_t i = 0; i < n; i++) {
        if (fabs(have[i] - want[i]) <= near * (1 + fabs(want[i])) * (bends(p) ? 10 : 1)) continue;
        snprintf(text, sizeof text, "%s[%d] is %.9g, not %.9g", name, (int)i, have[i], want[i]);
        expect(false, text);
        break;
    }
    free(have);
}

static clef_status run(const problem *p, clef_tensor *const *in, clef_tensor **y) {
    clef_recurrent_weights w[2 * MOST_LAYERS];
    clef_recurrent_options o = {.layers = p->layers,
                                .bidirectional = p->ways == 2,
                                .backwards = p->backwards,
                                .batch_first = p->batch_first,
                                .relu = p->cell == RELU,
                                .reset_before = p->reset_before,
                                .coupled = p->coupled,
                                .clip = p->clip};
    memcpy(o.activations, p->apply, sizeof o.activations);
    if (p->lengths) o.lengths = clef_from_host(ctx, CLEF_SHAPE(p->b), CLEF_I32, p->lengths);
    int runs = p->layers * p->ways;
    for (int r = 0; r < runs; r++) {
        clef_tensor *const *of = in + 3 + OF_RUN * r;
        w[r] = (clef_recurrent_weights){of[W_IH], of[W_HH], of[B_IH], of[B_HH], of[W_HR], of[W_PEEP]};
    }
    if (p->cell == LSTM) return clef_lstm(in[0], in[1], in[2], w, runs, &o, &y[0], &y[1], &y[2]);
    if (p->cell == GRU) return clef_gru(in[0], in[1], w, runs, &o, &y[0], &y[1]);
    return clef_rnn(in[0], in[1], w, runs, &o, &y[0], &y[1]);
}

/* g · d against the difference of losses along d, which moves input i alone. */
static void check_gradient(problem *p, int i, clef_tensor *dx, double *const *out) {
    char text[96];
    double eps = 1e-5, *d = numbers(p->size[i], 1), *was = p->data[i], *moved = numbers(p->size[i], 0), along = 0, side[2],
           size = 1e-3;
    if (!dx) return expect(false, "no gradient");
    double *g = read_doubles(dx, p->size[i]);
    for (int64_t k = 0; k < p->size[i]; k++) {
        along += g[k] * d[k];
        size += fabs(g[k] * d[k]);
    }
    p->data[i] = moved;
    for (int s = 0; s < 2; s++) {
        for (int64_t k = 0; k < p->size[i]; k++) moved[k] = was[k] + (s ? eps : -eps) * d[k];
        side[s] = loss_of(p, out);
    }
    p->data[i] = was;
    double want = (side[1] - side[0]) / (2 * eps), near = p->dtype == CLEF_F64 ? 1e-6 : 1e-5;
    snprintf(text, sizeof text, "gradient of input %d along a direction is %.9g, not %.9g", i, along, want);
    expect(fabs(along - want) <= near * (size + 1) * (bends(p) ? 100 : 1), text);
    free(d), free(moved), free(g);
}

static void check(problem *p) {
    clef_tensor *in[MOST_INPUTS], *y[3] = {NULL, NULL, NULL}, *loss = NULL;
    int inputs = 3 + OF_RUN * p->layers * p->ways;
    for (int i = 0; i < inputs; i++) {
        in[i] = p->data[i] ? clef_keep(tensor_of(p, p->shape[i], p->data[i])) : CLEF_NONE;
        if (p->wanted[i]) clef_require_grad(in[i], true);
    }
    expect(run(p, in, y) == CLEF_OK, "running");
    bool early = below(2);
    if (early) clef_eval(y[0]); /* then backward needs what nobody wanted before */
    bool any = false;
    for (int i = 0; i < inputs; i++) any |= p->wanted[i];
    clef_shape shape[] = {y[0] ? clef_tensor_shape(y[0]) : CLEF_SCALAR, CLEF_SHAPE(p->layers * p->ways, p->b, p->width),
                          CLEF_SHAPE(p->layers * p->ways, p->b, p->h)};
    for (int k = 0; k < 3; k++) {
        if (!p->g[k]) continue;
        clef_tensor *part = clef_sum(clef_mul(y[k], tensor_of(p, shape[k], p->g[k])), NULL, 0, false);
        loss = loss ? clef_add(loss, part) : part;
    }
    for (int k = 0; k < 3; k++) clef_keep(y[k]);
    if (any && loss) expect(clef_backward(loss) == CLEF_OK, "backward");
    double *out[3] = {numbers(p->out[0], 0), numbers(p->out[1], 0), p->cell == LSTM ? numbers(p->out[2], 0) : NULL};
    define(p, out);
    for (int k = 0; k < 3; k++)
        if (out[k]) compare(p, y[k], out[k], p->out[k], k == 0 ? "y" : k == 1 ? "h" : "c");
    for (int i = 0; i < inputs; i++)
        if (p->wanted[i] && p->b && loss && clef_grad_of(in[i]) && !applies(p, "ThresholdedRelu")) /* which jumps */
            check_gradient(p, i, clef_grad_of(in[i]), out);
        else if (p->wanted[i] && p->b && p->g[0] && !p->lengths && (i != 4 || p->t > 1))
            expect(clef_grad_of(in[i]) || p->t == 1, "a gradient is missing");
    for (int k = 0; k < 3; k++) free(out[k]), clef_release(y[k]);
    for (int i = 0; i < inputs; i++) clef_release(in[i]);
    clef_end_step(ctx);
}

/* By products of their own only where a device's profile has tiles: that of a GPU, unless another one is forced. */
static const struct { const char *row, *profile; } ways[] = {{"sequence", NULL}, {"steps", NULL}, {"products", "gpu"}};
enum { WAYS = sizeof ways / sizeof *ways };

int main(void) {
    int cases = few_kernels() ? 3 : test_small() ? 15 : getenv("CLEF_TEST_ALL") ? 1500 : 50;
    for (int w = 0; w < WAYS; w++) {
        setenv("CLEF_ROWS", ways[w].row, 1);
        ctx = clef_open(&(clef_options){.profile = getenv("CLEF_PROFILE") ? NULL : ways[w].profile});
        if (!ctx) return without_context();
        clef_device_info info;
        has_f64 = clef_context_device(ctx, 0, &info) && info.f64;
        for (int i = 0; i < cases && failures < 20; i++) {
            problem p = make(i % 3 == 2);
            check(&p);
            drop(&p);
        }
        clef_close(ctx);
    }
    return failures != 0;
}
