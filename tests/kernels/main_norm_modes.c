/* Batch, layer, RMS and group norm in all their modes, with every choice of gradients, against values computed elsewhere
   (tests/expectations/norms.py).  A plain program, for the sanitizers.
   ctest: cost=30 plain */
#include "support/plain.h"
#include <math.h>
#include <stdlib.h>

static clef_context *ctx;
static int failures;
static char what[160];

static void expect(bool good, const char *part) {
    if (good) return;
    failures++;
    fprintf(stderr, "%s: %s: %s\n", what, part, clef_error(ctx));
    clef_clear_error(ctx);
}

/* As in norms.py; every one is exact in f32. */
static double number(int64_t i, int salt) { return (double)((i * 37 + salt * 11) % 61 - 30) / 8; }

static clef_tensor *filled(clef_shape shape, int salt, double low) {
    int64_t n = clef_shape_numel(shape);
    float data[64];
    for (int64_t i = 0; i < n; i++) data[i] = (float)(low > 0 ? fabs(number(i, salt)) + low : number(i, salt));
    return clef_keep(clef_from_host(ctx, shape, CLEF_F32, data));
}

/* Sums about zero come with the size of what was summed. */
static void compare(clef_tensor *t, clef_shape shape, const double *want, const char *part) {
    float have[64];
    int64_t n = clef_shape_numel(shape);
    char text[96];
    bool same = t && clef_shape_equal(clef_tensor_shape(t), shape);
    expect(same, t ? clef_shape_format(clef_tensor_shape(t), text, sizeof text) : part);
    if (!same || (n && clef_read(t, have, (size_t)n * sizeof *have) != CLEF_OK)) return expect(!same, part);
    for (int64_t i = 0; i < n; i++) {
        if (fabs((double)have[i] - want[i]) <= 4e-5 + 2e-5 * fabs(want[i])) continue;
        snprintf(text, sizeof text, "%s[%d] is %.9g, not %.9g", part, (int)i, (double)have[i], want[i]);
        return expect(false, text);
    }
}

/* What is normalised, and what should come of it: y, dx, dweight, dbias. */
typedef struct problem {
    clef_shape shape, last; /* of x, and of weight and bias */
    bool batch, training, affine;
    clef_tensor *mean, *var;
    const double *want[4];
    bool rms;
    int groups; /* 0: none */
} problem;

static clef_tensor *forward(const problem *p, clef_tensor *const *in) {
    if (p->batch) return clef_batch_norm(in[0], in[1], in[2], p->mean, p->var, p->training, 0.1, 1e-5);
    if (p->groups) return clef_group_norm(in[0], p->groups, in[1], in[2], 1e-5);
    if (p->rms) return clef_rms_norm(in[0], p->last.rank, in[1], 1e-5);
    return clef_layer_norm(in[0], p->last.rank, in[1], in[2], 1e-5);
}

/* wanted: bit i is set where input i wants a gradient, as a parameter does; again: such that it could be differentiated again. */
static void run(const problem *p, int wanted, bool again) {
    static const char *const part[] = {"y", "dx", "dweight", "dbias"};
    const clef_shape shapes[] = {p->shape, p->last, p->last};
    clef_tensor *in[3] = {filled(p->shape, 1, 0), CLEF_NONE, CLEF_NONE}, *leaf[3], *d[3];
    int which[3], n = 0;
    if (p->affine) in[1] = filled(p->last, 2, 0), in[2] = filled(p->last, 3, 0);
    for (int i = 0; i < 3; i++)
        if (wanted >> i & 1) which[n] = i, leaf[n++] = clef_require_grad(in[i], true);
    clef_tensor *g = filled(p->shape, 5, 0), *y = forward(p, in);
    compare(y, p->shape, p->want[0], part[0]);
    if (y && n) expect(clef_grad(y, g, leaf, n, again, d) == CLEF_OK, "clef_grad");
    for (int i = 0; y && i < n; i++) compare(d[i], shapes[which[i]], p->want[1 + which[i]], part[1 + which[i]]);
    clef_release(g);
    for (int i = 0; i < 3; i++)
        if (p->affine || i == 0) clef_release(in[i]);
    clef_end_step(ctx);
}

static void all_choices(const problem *p) {
    int choices = !p->affine ? 2 : p->rms ? 4 : 8;
    for (int wanted = 0; wanted < choices; wanted++) run(p, wanted, false);
    run(p, choices - 1, true);
}

static void batch(clef_shape shape, bool training, bool affine, const double *y, const double *dx, const double *dw,
                  const double *db, const double *mean, const double *var) {
    char text[64];
    problem p = {.shape = shape,
                 .last = CLEF_SHAPE(shape.dim[1]),
                 .batch = true,
                 .training = training,
                 .affine = affine,
                 .want = {y, dx, dw, db}};
    snprintf(what, sizeof what, "batch_norm of %s%s%s", clef_shape_format(shape, text, sizeof text), training ? ", training" : "",
             affine ? "" : ", not affine");
    p.mean = filled(p.last, 4, 0), p.var = filled(p.last, 6, 0.5);
    clef_tensor *first = clef_keep(clef_copy(p.mean)), *spread = clef_keep(clef_copy(p.var));
    for (int wanted = 0; wanted < (affine ? 8 : 2); wanted++) {
        clef_assign(p.mean, first), clef_assign(p.var, spread);
        run(&p, wanted, false);
        compare(p.mean, p.last, mean, "running mean");
        compare(p.var, p.last, var, "running variance");
    }
    clef_assign(p.mean, first), clef_assign(p.var, spread);
    run(&p, affine ? 7 : 1, true);
    clef_release(p.mean), clef_release(p.var), clef_release(first), clef_release(spread);
}

static void layer(clef_shape shape, int dims, bool affine, const double *y, const double *dx, const double *dw, const double *db) {
    char text[64];
    problem p = {.shape = shape, .last = {.rank = dims}, .affine = affine, .want = {y, dx, dw, db}};
    for (int i = 0; i < dims; i++) p.last.dim[i] = shape.dim[shape.rank - dims + i];
    snprintf(what, sizeof what, "layer_norm of %s over %d%s", clef_shape_format(shape, text, sizeof text), dims,
             affine ? "" : ", not affine");
    all_choices(&p);
}

static void rms(clef_shape shape, int dims, bool affine, const double *y, const double *dx, const double *dw) {
    char text[64];
    problem p = {.shape = shape, .last = {.rank = dims}, .affine = affine, .want = {y, dx, dw}, .rms = true};
    for (int i = 0; i < dims; i++) p.last.dim[i] = shape.dim[shape.rank - dims + i];
    snprintf(what, sizeof what, "rms_norm of %s over %d%s", clef_shape_format(shape, text, sizeof text), dims,
             affine ? "" : ", not affine");
    all_choices(&p);
}

static void group(clef_shape shape, int groups, bool affine, const double *y, const double *dx, const double *dw,
                  const double *db) {
    char text[64];
    problem p = {.shape = shape, .last = CLEF_SHAPE(shape.dim[1]), .affine = affine, .want = {y, dx, dw, db}, .groups = groups};
    snprintf(what, sizeof what, "group_norm of %s in %d%s", clef_shape_format(shape, text, sizeof text), groups,
             affine ? "" : ", not affine");
    all_choices(&p);
}

/* An empty batch has no statistics to take: nothing changes, and gradients are 0. */
static void empty(void) {
    static const double none[4] = {0};
    problem p = {
        .shape = CLEF_SHAPE(0, 3, 2, 2), .last = CLEF_SHAPE(3), .batch = true, .affine = true, .want = {none, none, none, none}};
    p.mean = filled(p.last, 4, 0), p.var = filled(p.last, 6, 0.5);
    double mean[3], var[3];
    for (int i = 0; i < 3; i++) mean[i] = number(i, 4), var[i] = fabs(number(i, 6)) + 0.5;
    for (int training = 0; training < 2; training++) {
        snprintf(what, sizeof what, "batch_norm of nothing%s", training ? ", training" : "");
        p.training = training;
        all_choices(&p);
        compare(p.mean, p.last, mean, "running mean");
        compare(p.var, p.last, var, "running variance");
    }
    clef_release(p.mean), clef_release(p.var);
    snprintf(what, sizeof what, "layer_norm of nothing");
    p = (problem){.shape = CLEF_SHAPE(0, 3), .last = CLEF_SHAPE(3), .affine = true, .want = {none, none, none, none}};
    all_choices(&p);
    p.shape = CLEF_SHAPE(3, 0), p.last = CLEF_SHAPE(0);
    all_choices(&p);
    p.rms = true;
    all_choices(&p);
    snprintf(what, sizeof what, "group_norm of nothing");
    p = (problem){.shape = CLEF_SHAPE(0, 4, 2), .last = CLEF_SHAPE(4), .affine = true, .want = {none, none, none, none}};
    p.groups = 2;
    all_choices(&p);
}

/* What ordinary fine-tuning does: statistics frozen, weight and bias trained, one step. */
static void fine_tuning(void) {
    snprintf(what, sizeof what, "fine-tuning");
    clef_tensor *x = clef_zeros(ctx, CLEF_SHAPE(4, 3, 5, 5), CLEF_F32);
    clef_tensor *w = clef_require_grad(clef_keep(clef_copy(clef_ones(ctx, CLEF_SHAPE(3), CLEF_F32))), true);
    clef_tensor *b = clef_require_grad(clef_keep(clef_copy(clef_zeros(ctx, CLEF_SHAPE(3), CLEF_F32))), true);
    clef_tensor *mean = clef_keep(clef_zeros(ctx, CLEF_SHAPE(3), CLEF_F32)),
                *var = clef_keep(clef_ones(ctx, CLEF_SHAPE(3), CLEF_F32));
    expect(clef_backward(clef_sum(clef_batch_norm(x, w, b, mean, var, false, 0.1, 1e-5), NULL, 0, false)) == CLEF_OK, "backward");
    compare(clef_grad_of(b), CLEF_SHAPE(3), (double[]){100, 100, 100}, "bias");
    compare(clef_grad_of(w), CLEF_SHAPE(3), (double[]){0, 0, 0}, "weight");
    expect(clef_end_step(ctx) == CLEF_OK, "end of the step");
    clef_release(w), clef_release(b), clef_release(mean), clef_release(var);
}

#define NUMBERS(...) \
    (const double[]) { __VA_ARGS__ }
#define BATCH batch
#define LAYER layer
#define RMS rms
#define GROUP group
static void expectations(void) {
#include "expectations/norms.def"
}

int main(void) {
    ctx = clef_open(&(clef_options){.seed = 1});
    if (!ctx) return without_context();
    expectations();
    empty();
    fine_tuning();
    clef_close(ctx);
    printf("%d failed\n", failures);
    return failures != 0;
}
