/* Every update rule against double-precision loops written from the papers' and PyTorch's pseudo-code.
   ctest: cost=20 together */
#include "support/device.h"

enum { PARAMETERS = 3, STEPS = 12, MOST = 1031, SKIPPED = 4 /* step at which the last parameter has no gradient */ };
static const int size_of[PARAMETERS] = {21, MOST, 5};
static const char *const name_of[PARAMETERS] = {"weight", "table", "bias"};

static clef_context *ctx;

static void open_context(void) { ctx = open_seeded(5); }
static void close_context(void) { clef_close(ctx); }
TestSuite(rules, .init = open_context, .fini = close_context);

/* One parameter of the oracle: its values, up to three states, and how often it was updated. */
typedef struct reference {
    int n, count;
    double p[MOST], s[3][MOST];
    double lr, decay;
} reference;

typedef void oracle(reference *r, const void *options, const double *g);

/* ---- the oracles: one update; r->count is already that of this update, r->lr and r->decay are the group's ---- */
static void sgd(reference *r, const void *options, const double *g) {
    const clef_sgd_options *o = options;
    for (int i = 0; i < r->n; i++) {
        double d = g[i] + r->decay * r->p[i];
        if (o->momentum > 0) {
            r->s[0][i] = r->count == 1 ? d : o->momentum * r->s[0][i] + (1 - o->dampening) * d;
            d = o->nesterov ? d + o->momentum * r->s[0][i] : r->s[0][i];
        }
        r->p[i] -= r->lr * d;
    }
}

static double or_default(double option, double otherwise) { return option > 0 ? option : signbit(option) ? 0 : otherwise; }

static void adam_core(reference *r, double b1, double b2, double eps, bool amsgrad, int i, double d) {
    r->s[0][i] = b1 * r->s[0][i] + (1 - b1) * d;
    r->s[1][i] = b2 * r->s[1][i] + (1 - b2) * d * d;
    r->s[2][i] = fmax(r->s[2][i], r->s[1][i]);
    double m = r->s[0][i] / (1 - pow(b1, r->count));
    double v = (amsgrad ? r->s[2][i] : r->s[1][i]) / (1 - pow(b2, r->count));
    r->p[i] -= r->lr * m / (sqrt(v) + eps);
}

static void adam(reference *r, const void *options, const double *g) {
    const clef_adam_options *o = options;
    double b1 = or_default(o->beta1, 0.9), b2 = or_default(o->beta2, 0.999), eps = or_default(o->eps, 1e-8);
    for (int i = 0; i < r->n; i++) adam_core(r, b1, b2, eps, o->amsgrad, i, g[i] + r->decay * r->p[i]);
}

static void adamw(reference *r, const void *options, const double *g) {
    const clef_adamw_options *o = options;
    double b1 = or_default(o->beta1, 0.9), b2 = or_default(o->beta2, 0.999), eps = or_default(o->eps, 1e-8);
    for (int i = 0; i < r->n; i++) {
        r->p[i] *= 1 - r->lr * r->decay;
        adam_core(r, b1, b2, eps, false, i, g[i]);
    }
}

static void rmsprop(reference *r, const void *options, const double *g) {
    const clef_rmsprop_options *o = options;
    double alpha = or_default(o->alpha, 0.99), eps = or_default(o->eps, 1e-8);
    for (int i = 0; i < r->n; i++) {
        double d = g[i] + r->decay * r->p[i];
        r->s[0][i] = alpha * r->s[0][i] + (1 - alpha) * d * d;
        r->s[1][i] = alpha * r->s[1][i] + (1 - alpha) * d;
        double v = r->s[0][i] - (o->centered ? r->s[1][i] * r->s[1][i] : 0), move = d / (sqrt(v) + eps);
        r->s[2][i] = o->momentum * r->s[2][i] + move;
        r->p[i] -= r->lr * (o->momentum > 0 ? r->s[2][i] : move);
    }
}

static void adagrad(reference *r, const void *options, const double *g) {
    const clef_adagrad_options *o = options;
    double eps = or_default(o->eps, 1e-10);
    for (int i = 0; i < r->n; i++) {
        double d = g[i] + r->decay * r->p[i];
        if (r->count == 1) r->s[0][i] = o->initial;
        r->s[0][i] += d * d;
        r->p[i] -= r->lr / (1 + (r->count - 1) * o->lr_decay) * d / (sqrt(r->s[0][i]) + eps);
    }
}

/* ---- the comparison ---- */
static clef_module *make_module(clef_dtype dtype) {
    clef_module *m = clef_module_new(ctx, "parameters", NULL, NULL);
    clef_shape shape[PARAMETERS] = {CLEF_SHAPE(7, 3), CLEF_SHAPE(MOST), CLEF_SHAPE(5)};
    for (int i = 0; i < PARAMETERS; i++)
        cr_assert_eq(clef_module_add_parameter(m, name_of[i], clef_to(noise_tensor(ctx, shape[i], (uint64_t)(100 + i)), dtype)),
                     CLEF_OK);
    return m;
}

static double gradient(int parameter, int step, int i) {
    return noise((uint64_t)i, (uint64_t)(1000 * step + parameter)) * (parameter == 1 ? 3 : 0.1) + 0.02;
}

static void set_gradient(clef_module *m, int parameter, int step) {
    float g[MOST];
    clef_tensor *p = clef_parameter(m, name_of[parameter]);
    for (int i = 0; i < size_of[parameter]; i++) g[i] = (float)gradient(parameter, step, i);
    clef_set_grad(p, clef_to(clef_from_host(ctx, clef_tensor_shape(p), CLEF_F32, g), clef_tensor_dtype(p)));
}

static void expect_close(clef_module *m, int parameter, const reference *r, double tolerance, const char *what) {
    float *v = values(clef_to(clef_parameter(m, name_of[parameter]), CLEF_F32));
    int worst = 0;
    for (int i = 0; i < r->n; i++)
        if (!(fabs(v[i] - r->p[i]) <= fabs(v[worst] - r->p[worst]))) worst = i;
    cr_expect(fabs(v[worst] - r->p[worst]) <= tolerance * (1 + fabs(r->p[worst])), "%s: %s[%d] is %.9g, not %.9g", what,
              name_of[parameter], worst, v[worst], r->p[worst]);
    free(v);
}

/* `decay`: what the rule applies when no group says otherwise.  The last parameter is in a group: half the rate, own decay. */
static void compare(const char *what, clef_module *m, clef_optimizer *opt, oracle *update, const void *options, double decay,
                    double tolerance) {
    static reference r[PARAMETERS];
    cr_assert(opt, "%s: %s", what, clef_error(ctx));
    cr_assert_eq(clef_optimizer_group(opt, "bias", 0.5, 0.003), CLEF_OK);
    double lr = clef_learning_rate(opt);
    for (int p = 0; p < PARAMETERS; p++) {
        r[p] = (reference){.n = size_of[p]};
        float *start = values(clef_to(clef_parameter(m, name_of[p]), CLEF_F32));
        for (int i = 0; i < r[p].n; i++) r[p].p[i] = start[i];
        free(start);
    }
    for (int step = 0; step < STEPS; step++) {
        double now = lr * (1 + 0.1 * step);
        clef_set_learning_rate(opt, now);
        for (int p = 0; p < PARAMETERS; p++) {
            if (p == PARAMETERS - 1 && step == SKIPPED) continue;
            double g[MOST];
            for (int i = 0; i < r[p].n; i++) g[i] = (float)gradient(p, step, i);
            r[p].lr = p == 2 ? now / 2 : now;
            r[p].decay = p == 2 ? 0.003 : decay;
            r[p].count++;
            update(&r[p], options, g);
            set_gradient(m, p, step);
        }
        cr_assert_eq(clef_step(opt), CLEF_OK, "%s: %s", what, clef_error(ctx));
        cr_expect_null(clef_grad_of(clef_parameter(m, "weight")), "%s: gradients must be cleared", what);
    }
    for (int p = 0; p < PARAMETERS; p++) expect_close(m, p, &r[p], tolerance, what);
    cr_expect_eq(clef_optimizer_steps(opt), STEPS);
}

static const double fine = 3e-6;

static void compare_sgd(const char *what, clef_sgd_options o) {
    clef_module *m = make_module(CLEF_F32);
    compare(what, m, clef_sgd(m, &o), sgd, &o, o.weight_decay, fine);
}

Test(rules, sgd) {
    compare_sgd("sgd", (clef_sgd_options){.lr = 0.05});
    compare_sgd("sgd decay", (clef_sgd_options){.lr = 0.05, .weight_decay = 0.1});
    compare_sgd("sgd momentum", (clef_sgd_options){.lr = 0.05, .momentum = 0.9, .weight_decay = 0.01});
    compare_sgd("sgd dampening", (clef_sgd_options){.lr = 0.05, .momentum = 0.9, .dampening = 0.4});
    compare_sgd("sgd nesterov", (clef_sgd_options){.lr = 0.05, .momentum = 0.8, .weight_decay = 0.1, .nesterov = true});
}

static void compare_adam(const char *what, clef_adam_options o) {
    clef_module *m = make_module(CLEF_F32);
    compare(what, m, clef_adam(m, &o), adam, &o, o.weight_decay, fine);
}

Test(rules, adam) {
    compare_adam("adam", (clef_adam_options){0});
    compare_adam("adam options", (clef_adam_options){.lr = 0.02, .beta1 = 0.5, .beta2 = 0.9, .eps = 1e-3, .weight_decay = 0.1});
    compare_adam("adam without momentum", (clef_adam_options){.lr = 0.02, .beta1 = CLEF_ZERO});
    compare_adam("adam of signs", (clef_adam_options){.lr = 0.02, .beta1 = CLEF_ZERO, .beta2 = CLEF_ZERO, .eps = CLEF_ZERO});
    compare_adam("adam amsgrad", (clef_adam_options){.lr = 0.02, .beta2 = 0.8, .amsgrad = true});
}

Test(rules, adamw) {
    clef_adamw_options o = {.lr = 0.02}, strong = {.lr = 0.02, .weight_decay = 0.3, .beta1 = 0.8}, none = {.no_decay = true};
    clef_module *a = make_module(CLEF_F32), *b = make_module(CLEF_F32), *c = make_module(CLEF_F32);
    compare("adamw", a, clef_adamw(a, &o), adamw, &o, 0.01, fine);
    compare("adamw strong", b, clef_adamw(b, &strong), adamw, &strong, 0.3, fine);
    clef_adamw_options zero = {.weight_decay = CLEF_ZERO};
    clef_module *d = make_module(CLEF_F32);
    compare("adamw of a decay of 0", d, clef_adamw(d, &zero), adamw, &zero, 0, fine);
    compare("adamw none", c, clef_adamw(c, &none), adamw, &none, 0, fine);
}

static void compare_rmsprop(const char *what, clef_rmsprop_options o) {
    clef_module *m = make_module(CLEF_F32);
    compare(what, m, clef_rmsprop(m, &o), rmsprop, &o, o.weight_decay, fine);
}

Test(rules, rmsprop) {
    compare_rmsprop("rmsprop", (clef_rmsprop_options){0});
    compare_rmsprop("rmsprop centered", (clef_rmsprop_options){.lr = 1e-3, .alpha = 0.9, .eps = 1e-2, .centered = true});
    compare_rmsprop("rmsprop all",
                    (clef_rmsprop_options){.lr = 1e-3, .momentum = 0.7, .weight_decay = 0.1, .eps = 1e-2, .centered = true});
    compare_rmsprop("rmsprop momentum", (clef_rmsprop_options){.lr = 1e-3, .momentum = 0.7});
}

Test(rules, adagrad) {
    clef_adagrad_options plain = {0}, full = {.lr = 0.1, .lr_decay = 0.05, .weight_decay = 0.1, .initial = 0.3, .eps = 1e-6};
    clef_module *a = make_module(CLEF_F32), *b = make_module(CLEF_F32);
    compare("adagrad", a, clef_adagrad(a, &plain), adagrad, &plain, 0, fine);
    compare("adagrad full", b, clef_adagrad(b, &full), adagrad, &full, 0.1, fine);
}

/* f16 parameters: f32 states, each step rounds to the parameter's dtype. */
Test(rules, half_precision) {
    clef_module *m = make_module(CLEF_F16);
    clef_adam_options o = {.lr = 0.02};
    clef_optimizer *opt = clef_adam(m, &o);
    compare("adam f16", m, opt, adam, &o, 0, STEPS * 0x1p-11);
    cr_expect_eq(clef_tensor_dtype(clef_parameter(m, "weight")), CLEF_F16);
    cr_expect_eq(clef_tensor_dtype(clef_optimizer_tensor(opt, 1).tensor), CLEF_F32);
}

Test(rules, double_precision) {
    clef_device_info info;
    if (!clef_context_device(ctx, 0, &info) || !info.f64) cr_skip_test("the device has no f64");
    clef_module *m = make_module(CLEF_F64);
    clef_adam_options o = {.lr = 0.1};
    clef_optimizer *opt = clef_adam(m, &o);
    cr_expect_eq(clef_tensor_dtype(clef_optimizer_tensor(opt, 1).tensor), CLEF_F64);
    compare("adam f64", m, opt, adam, &o, 0, 1e-7);
}
