/* Gradients of a whole net (two residual blocks with batch norm) against float64: on the device in f64, where it has that, they
   agree with a plain C program in double; in f32 they are no further off than twice the same program in float.
   CLEF_TEST_VERBOSE=1 prints the distances.
   ctest: cost=25 */
#include "support/numbers.h"

enum { BATCH = 64, SIDE = 8, WIDTH = 8, CLASSES = 10, CONVS = 5, SLOTS = 3 * CONVS + 2 };

/* Per convolution: its weight, and weight and bias of its batch norm; then those of the linear layer. */
static int slot_size(int s) {
    if (s >= 3 * CONVS) return s == 3 * CONVS ? CLASSES * WIDTH : CLASSES;
    return s % 3 ? WIDTH : WIDTH * 9 * (s ? WIDTH : 1);
}

static clef_shape slot_shape(int s) {
    if (s >= 3 * CONVS) return s == 3 * CONVS ? CLEF_SHAPE(CLASSES, WIDTH) : CLEF_SHAPE(CLASSES);
    return s % 3 ? CLEF_SHAPE(WIDTH) : CLEF_SHAPE(WIDTH, s ? WIDTH : 1, 3, 3);
}

#define REAL float
#define NAMED(name) name##_float
#include "nn/reference_net.h"
#undef REAL
#undef NAMED
#define REAL double
#define NAMED(name) name##_double
#include "nn/reference_net.h"

typedef struct problem {
    float *weights, *pixels;
    int64_t label[BATCH];
    int n;
} problem;

static problem make_problem(void) {
    problem p = {.pixels = malloc(BATCH * SIDE * SIDE * sizeof(float))};
    for (int s = 0; s < SLOTS; s++) p.n += slot_size(s);
    p.weights = malloc((size_t)p.n * sizeof(float));
    for (int s = 0, at = 0; s < SLOTS; s++)
        for (int i = 0; i < slot_size(s); i++, at++)
            p.weights[at] =
                s < 3 * CONVS && s % 3 == 1 ? 1 + 0.2f * noise((uint64_t)i, (uint64_t)s) : 0.3f * noise((uint64_t)i, (uint64_t)s);
    for (int i = 0; i < BATCH * SIDE * SIDE; i++) p.pixels[i] = noise((uint64_t)i, 99);
    for (int i = 0; i < BATCH; i++) p.label[i] = i * 7 % CLASSES;
    return p;
}

/* The same net of ops on the device; loss and gradients as doubles. */
static double on_device(clef_context *ctx, const problem *p, clef_dtype dtype, double *gradients) {
    clef_tensor *w[SLOTS];
    for (int s = 0, at = 0; s < SLOTS; at += slot_size(s), s++)
        w[s] = parameter(clef_to(clef_from_host(ctx, slot_shape(s), CLEF_F32, p->weights + at), dtype));
    clef_tensor *y = clef_to(clef_from_host(ctx, CLEF_SHAPE(BATCH, 1, SIDE, SIDE), CLEF_F32, p->pixels), dtype), *block = NULL;
    clef_tensor *mean = clef_keep(clef_zeros(ctx, CLEF_SHAPE(WIDTH), dtype)),
                *var = clef_keep(clef_ones(ctx, CLEF_SHAPE(WIDTH), dtype));
    for (int l = 0; l < CONVS; l++) {
        if (l % 2 == 1) block = y;
        y = clef_conv2d(y, w[3 * l], CLEF_NONE, &(clef_conv2d_options){.padding = {1, 1}});
        y = clef_batch_norm(y, w[3 * l + 1], w[3 * l + 2], mean, var, true, 0.1, 1e-5);
        y = clef_relu(l && l % 2 == 0 ? clef_add(y, block) : y);
    }
    y = clef_linear(clef_global_avg_pool2d(y), w[3 * CONVS], w[3 * CONVS + 1]);
    clef_tensor *loss = clef_cross_entropy(y, clef_from_host(ctx, CLEF_SHAPE(BATCH), CLEF_I64, p->label), NULL);
    cr_assert(clef_backward(loss) == CLEF_OK, "%s", clef_error(ctx));
    double value = clef_item(loss);
    for (int s = 0, at = 0; s < SLOTS; at += slot_size(s), s++) {
        double *g = numbers(clef_grad_of(w[s]));
        memcpy(gradients + at, g, (size_t)slot_size(s) * sizeof *g);
        free(g);
    }
    return value;
}

/* ‖a - b‖ / ‖b‖ of one slot. */
static double distance(const double *a, const double *b, int n) {
    double d = 0, size = 0;
    for (int i = 0; i < n; i++) d += (a[i] - b[i]) * (a[i] - b[i]), size += b[i] * b[i];
    return sqrt(d / size);
}

/* Tensor by tensor within `least`, or twice what plain float is off where that is more (but never 2e-5). */
static void expect_near(const double *have, const double *plain, const double *want, double least, const char *what) {
    for (int s = 0, at = 0; s < SLOTS; at += slot_size(s), s++) {
        double here = distance(have + at, want + at, slot_size(s));
        double there = plain ? distance(plain + at, want + at, slot_size(s)) : 0;
        double bound = fmax(least, fmin(2 * there, 2e-5));
        if (getenv("CLEF_TEST_VERBOSE")) printf("%s, tensor %2d: %.2e, plain float %.2e\n", what, s, here, there);
        cr_expect(here <= bound, "%s: the gradient of tensor %d is %.2e off, more than %.2e", what, s, here, bound);
    }
}

Test(precision, gradients_of_a_residual_net) {
    clef_context *ctx = open_seeded(1);
    problem p = make_problem();
    double *g[4];
    for (int i = 0; i < 4; i++) g[i] = calloc((size_t)p.n, sizeof(double));
    double want = reference_double(p.weights, p.pixels, p.label, g[0]);
    reference_float(p.weights, p.pixels, p.label, g[1]);
    double have = on_device(ctx, &p, CLEF_F32, g[2]);
    cr_expect(fabs(have - want) < 2e-6 * want, "a loss of %.9g, not %.9g", have, want);
    expect_near(g[2], g[1], g[0], 2e-6, "f32");
    if (has_f64(ctx)) {
        have = on_device(ctx, &p, CLEF_F64, g[3]);
        cr_expect(fabs(have - want) < 1e-13 * want, "f64: a loss of %.17g, not %.17g", have, want);
        expect_near(g[3], NULL, g[0], 1e-12, "f64");
    }
    for (int i = 0; i < 4; i++) free(g[i]);
    free(p.weights), free(p.pixels);
    clef_close(ctx);
}
