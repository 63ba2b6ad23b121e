/* Averages of weights: by their definition, in every dtype, moved, taken and given back, saved.
   ctest: plain together */
#include "clef/io.h"
#include "support/device.h"
#include "support/io_files.h"
#include "support/numbers.h"

static clef_context *ctx;
static void open_context(void) { ctx = open_seeded(5); }
static void close_context(void) { close_clean(ctx); }
TestSuite(averaged, .init = open_context, .fini = close_context);

enum { N = 6, STEPS = 7 };

/* A module of one parameter of these values, which the tests set as they like. */
static clef_module *one(clef_dtype dtype) {
    clef_module *m = clef_nn_linear(ctx, N, 1, &(clef_nn_options){.no_bias = true});
    clef_module *own = clef_nn_batch_norm2d(ctx, 2, NULL);
    clef_module *all = clef_sequential(ctx, CLEF_LAYERS(m, own));
    if (dtype != CLEF_F32) clef_module_add_parameter(m, "other", clef_to(clef_ones(ctx, CLEF_SHAPE(1, N), CLEF_F32), dtype));
    return all;
}

static clef_tensor *parameter_of(clef_module *m, clef_dtype dtype) {
    return clef_parameter(m, dtype == CLEF_F32 ? "0.weight" : "0.other");
}

static clef_tensor *average_of(const clef_averaged *a, const char *name) {
    for (int i = 0; i < clef_averaged_tensors(a); i++)
        if (!strcmp(clef_averaged_tensor(a, i).name, name)) return clef_averaged_tensor(a, i).tensor;
    return NULL;
}

static void read_f64(clef_tensor *t, double *out) {
    float narrow[N];
    if (clef_tensor_dtype(t) == CLEF_F64) {
        cr_assert_eq(clef_read(t, out, N * sizeof *out), CLEF_OK, "%s", clef_error(ctx));
        return;
    }
    cr_assert_eq(clef_read(clef_to(t, CLEF_F32), narrow, sizeof narrow), CLEF_OK, "%s", clef_error(ctx));
    for (int i = 0; i < N; i++) out[i] = narrow[i];
}

static void set(clef_tensor *p, int step) {
    clef_tensor *value = clef_to(noise_tensor(ctx, CLEF_SHAPE(1, N), 100 + (uint64_t)step), clef_tensor_dtype(p));
    for (CLEF_NO_GRAD(ctx)) clef_assign(p, value);
}

/* decay 0: the mean of all; else the recurrence, both in double. */
static void follow_definition(clef_dtype dtype, double decay, double tolerance) {
    clef_module *m = one(dtype);
    clef_tensor *p = parameter_of(m, dtype);
    clef_averaged *a = clef_averaged_new(m, &(clef_averaged_options){.decay = decay});
    cr_assert_not_null(a, "%s", clef_error(ctx));
    clef_tensor *mean = average_of(a, dtype == CLEF_F32 ? "0.weight" : "0.other");
    cr_assert_not_null(mean);
    cr_expect_eq(clef_tensor_dtype(mean), dtype == CLEF_F64 ? CLEF_F64 : CLEF_F32);
    double want[N] = {0}, sum[N] = {0}, value[N], got[N];
    for (int step = 0; step < STEPS; step++) {
        set(p, step);
        cr_assert_eq(clef_averaged_update(a), CLEF_OK, "%s", clef_error(ctx));
        read_f64(p, value);
        read_f64(mean, got);
        for (int i = 0; i < N; i++) {
            sum[i] += value[i];
            want[i] = decay == 0 ? sum[i] / (step + 1) : step == 0 ? value[i] : decay * want[i] + (1 - decay) * value[i];
            cr_expect_float_eq(got[i], want[i], tolerance, "%s, decay %g, step %d: %.17g, not %.17g", clef_dtype_name(dtype), decay,
                               step, got[i], want[i]);
            if (step == 0) cr_expect_eq(got[i], value[i]);
        }
        clef_end_step(ctx);
    }
    cr_expect_eq(clef_averaged_updates(a), STEPS);
}

Test(averaged, is_what_it_is_defined_to_be) {
    static const double decay[] = {0, 0.5, 0.9, 0.999};
    for (int i = 0; i < 4; i++) {
        follow_definition(CLEF_F32, decay[i], 1e-6);
        if (few_kernels()) continue;
        follow_definition(CLEF_F16, decay[i], 1e-6);
        follow_definition(CLEF_BF16, decay[i], 1e-6);
    }
    if (has_f64(ctx)) follow_definition(CLEF_F64, 0.9, 1e-14), follow_definition(CLEF_F64, 0, 1e-14);
}

/* What does not move is its own average, to the bit, and rounding does not carry it away. */
Test(averaged, of_what_rests_is_itself) {
    clef_module *m = one(CLEF_F32);
    clef_averaged *a = clef_averaged_new(m, &(clef_averaged_options){.decay = 0.9});
    double before[N], after[N];
    read_f64(clef_parameter(m, "0.weight"), before);
    for (int i = 0; i < 20; i++) cr_assert_eq(clef_averaged_update(a), CLEF_OK);
    read_f64(average_of(a, "0.weight"), after);
    cr_expect_arr_eq(before, after, sizeof before);
}

Test(averaged, buffers_are_averaged_when_asked) {
    clef_module *m = one(CLEF_F32);
    clef_averaged *without = clef_averaged_new(m, NULL), *with = clef_averaged_new(m, &(clef_averaged_options){.buffers = true});
    cr_expect_eq(clef_averaged_tensors(without), 3);
    cr_expect_eq(clef_averaged_tensors(with), 5, "weight, weight, bias, running_mean, running_var");
    clef_tensor *running = clef_parameter(m, "1.running_mean");
    float value[2] = {1, 3}, got[2];
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(clef_assign(running, clef_full(ctx, CLEF_SHAPE(2), CLEF_F32, value[i])), CLEF_OK);
        cr_assert(clef_averaged_update(with) == CLEF_OK && clef_averaged_update(without) == CLEF_OK);
    }
    cr_assert_eq(clef_read(average_of(with, "1.running_mean"), got, sizeof got), CLEF_OK);
    cr_expect(got[0] == 2 && got[1] == 2, "%g %g", got[0], got[1]);
    cr_assert_eq(clef_averaged_use(with, true), CLEF_OK);
    cr_assert_eq(clef_read(running, got, sizeof got), CLEF_OK);
    cr_expect(got[0] == 2 && got[1] == 2);
    cr_assert_eq(clef_averaged_use(with, false), CLEF_OK);
    cr_assert_eq(clef_read(running, got, sizeof got), CLEF_OK);
    cr_expect(got[0] == 3 && got[1] == 3);
}

/* A half parameter holds the rounded average and then its own value again, of which not a bit was lost; the average stays as it was. */
Test(averaged, are_taken_and_given_back) {
    clef_module *m = one(CLEF_F16);
    clef_tensor *p = parameter_of(m, CLEF_F16);
    clef_averaged *a = clef_averaged_new(m, &(clef_averaged_options){.decay = 0.9});
    clef_tensor *mean = average_of(a, "0.other");
    double own[N], average[N], now[N];
    for (int step = 0; step < 3; step++) {
        set(p, step);
        cr_assert_eq(clef_averaged_update(a), CLEF_OK);
    }
    read_f64(p, own), read_f64(mean, average);
    for (int round = 0; round < 2; round++) {
        cr_assert_eq(clef_averaged_use(a, true), CLEF_OK, "%s", clef_error(ctx));
        cr_assert_eq(clef_averaged_use(a, true), CLEF_OK, "twice is once");
        read_f64(p, now);
        for (int i = 0; i < N; i++) cr_expect_float_eq(now[i], average[i], 1e-3);
        cr_expect_neq(now[0], own[0]);
        cr_expect_eq(clef_averaged_update(a), CLEF_STATE);
        expect_error(ctx, CLEF_STATE, "averaged_update: the module has the averaged weights; give it back its own first");
        cr_assert_eq(clef_averaged_use(a, false), CLEF_OK);
        read_f64(p, now);
        cr_expect_arr_eq(now, own, sizeof own);
        read_f64(mean, now);
        cr_expect_arr_eq(now, average, sizeof own);
        cr_expect(clef_requires_grad(p));
    }
    cr_expect_eq(clef_averaged_updates(a), 3);
}

Test(averaged, memory_does_not_grow_within_a_step) {
    clef_module *m = one(CLEF_F32);
    clef_averaged *a = clef_averaged_new(m, NULL);
    size_t used = 0;
    for (int i = 0; i < 40; i++) {
        cr_assert_eq(clef_averaged_update(a), CLEF_OK);
        cr_assert(clef_averaged_use(a, true) == CLEF_OK && clef_averaged_use(a, false) == CLEF_OK);
        if (i == 3) used = (size_t)clef_memory(ctx).used;
    }
    cr_expect_leq((size_t)clef_memory(ctx).used, used);
}

static clef_tensor *no_loss(void *user) {
    (void)user;
    return NULL;
}

/* All but the first, where parameters and averages still share their memory, have the same plan. */
Test(averaged, updates_have_one_plan) {
    clef_module *m = one(CLEF_F32);
    clef_averaged *a = clef_averaged_new(m, NULL);
    uint64_t plans = 0;
    for (int step = 0; step < 5; step++) {
        set(clef_parameter(m, "0.weight"), step);
        cr_assert_eq(clef_end_step(ctx), CLEF_OK);
        cr_assert_eq(clef_averaged_update(a), CLEF_OK);
        if (step == 1) plans = clef_counters_get(ctx).plans;
    }
    cr_expect_eq(clef_counters_get(ctx).plans, plans);
}

Test(averaged, refusals) {
    clef_module *m = one(CLEF_F32);
    cr_expect_null(clef_averaged_new(m, &(clef_averaged_options){.decay = 1}));
    expect_error(ctx, CLEF_INVALID, "averaged: decay is 1; it must be at least 0 and below 1");
    cr_expect_null(clef_averaged_new(m, &(clef_averaged_options){.decay = NAN}));
    expect_error(ctx, CLEF_INVALID, "averaged: decay is nan");
    cr_expect_null(clef_averaged_new(m, &(clef_averaged_options){.decay = 1 - 1e-8}));
    expect_error(ctx, CLEF_INVALID, "averaged: decay is 1 - 1e-08, which is 1 in f32");
    cr_expect_not_null(clef_averaged_new(m, &(clef_averaged_options){.decay = 1 - 6e-8}));
    cr_expect_null(clef_averaged_new(clef_nn_relu(ctx), NULL));
    expect_error(ctx, CLEF_INVALID, "averaged: the relu has no floating parameter to average");
    cr_expect_null(clef_averaged_new(NULL, NULL));
    cr_expect_eq(clef_averaged_update(NULL), CLEF_INVALID);
    cr_expect_eq(clef_averaged_use(NULL, true), CLEF_INVALID);
    cr_expect(clef_averaged_tensors(NULL) == 0 && clef_averaged_updates(NULL) == 0 && !clef_averaged_context(NULL));
    cr_expect_null(clef_averaged_tensor(clef_averaged_new(m, NULL), 99).tensor);
}

/* Whatever would take averages for the module's own weights, or lose these, is refused. */
Test(averaged, of_one_module_are_in_use_one_at_a_time) {
    clef_module *m = one(CLEF_F32), *other = one(CLEF_F32);
    clef_tensor *p = parameter_of(m, CLEF_F32);
    clef_averaged *x = clef_averaged_new(m, NULL), *y = clef_averaged_new(m, &(clef_averaged_options){.decay = 0.5});
    clef_averaged *of_part = clef_averaged_new(clef_module_child(m, "0"), NULL), *apart = clef_averaged_new(other, NULL);
    clef_optimizer *opt = clef_sgd(m, &(clef_sgd_options){.lr = 1});
    clef_lbfgs *lbfgs = clef_lbfgs_new(m, NULL);
    double own[N], now[N];
    set(p, 1);
    read_f64(p, own);
    cr_assert_eq(clef_averaged_use(x, true), CLEF_OK);
    cr_assert_eq(clef_averaged_use(x, true), CLEF_OK, "it is so already");
    clef_averaged *others[] = {y, of_part};
    for (int i = 0; i < 2; i++) {
        cr_expect_eq(clef_averaged_use(others[i], true), CLEF_STATE);
        expect_error(ctx, CLEF_STATE, "averaged_use: the module has the averaged weights; give it back its own first");
        cr_expect_eq(clef_averaged_update(others[i]), CLEF_STATE);
        expect_error(ctx, CLEF_STATE, "averaged_update: the module has the averaged weights");
    }
    cr_expect_eq(clef_checkpoint_save(ctx, "nowhere.ckpt", &(clef_checkpoint){.module = m, .averaged = y}), CLEF_STATE);
    expect_error(ctx, CLEF_STATE, "checkpoint_save: the module has the averaged weights");
    cr_expect_eq(clef_checkpoint_load(ctx, "nowhere.ckpt", &(clef_checkpoint){.module = m}), CLEF_STATE);
    expect_error(ctx, CLEF_STATE, "checkpoint_load: the module has the averaged weights");
    cr_expect_eq(clef_step(opt), CLEF_STATE);
    expect_error(ctx, CLEF_STATE, "step: the module has the averaged weights");
    cr_expect_eq(clef_lbfgs_step(lbfgs, no_loss, NULL, NULL), CLEF_STATE);
    expect_error(ctx, CLEF_STATE, "lbfgs_step: the module has the averaged weights");
    cr_expect(clef_averaged_use(apart, true) == CLEF_OK && clef_averaged_use(apart, false) == CLEF_OK, "of another module");
    cr_assert_eq(clef_averaged_use(x, false), CLEF_OK);
    read_f64(p, now);
    cr_expect_arr_eq(now, own, sizeof own);
    cr_expect(clef_averaged_use(y, true) == CLEF_OK && clef_averaged_use(y, false) == CLEF_OK && clef_step(opt) == CLEF_OK);
}

/* ---- checkpoints ---- */
static void run(clef_module *m, clef_averaged *a, int from, int to) {
    for (int step = from; step < to; step++) {
        set(clef_parameter(m, "0.weight"), step);
        cr_assert_eq(clef_averaged_update(a), CLEF_OK, "%s", clef_error(ctx));
    }
}

Test(averaged, come_back_from_a_checkpoint_with_the_same_bits) {
    char dir[512], path[600];
    snprintf(dir, sizeof dir, "%s", io_scratch());
    snprintf(path, sizeof path, "%s/a.ckpt", dir);
    for (int ema = 0; ema < 2; ema++) {
        clef_averaged_options o = {.decay = ema ? 0.9 : 0};
        clef_module *m = one(CLEF_F32), *again = one(CLEF_F32);
        clef_averaged *a = clef_averaged_new(m, &o), *b = clef_averaged_new(again, &o);
        run(m, a, 0, 3);
        cr_assert_eq(clef_checkpoint_save(ctx, path, &(clef_checkpoint){.module = m, .averaged = a}), CLEF_OK, "%s",
                     clef_error(ctx));
        cr_assert_eq(clef_checkpoint_load(ctx, path, &(clef_checkpoint){.module = again, .averaged = b}), CLEF_OK, "%s",
                     clef_error(ctx));
        cr_expect_eq(clef_averaged_updates(b), 3);
        run(m, a, 3, 6);
        run(again, b, 3, 6);
        double x[N], y[N];
        read_f64(average_of(a, "0.weight"), x), read_f64(average_of(b, "0.weight"), y);
        cr_expect_arr_eq(x, y, sizeof x);
        cr_expect_eq(clef_load(again, path), CLEF_OK, "a model in it: %s", clef_error(ctx));
    }
    io_remove(dir);
}

Test(averaged, are_not_saved_as_themselves_nor_missed) {
    char dir[512], path[600];
    snprintf(dir, sizeof dir, "%s", io_scratch());
    snprintf(path, sizeof path, "%s/a.ckpt", dir);
    clef_module *m = one(CLEF_F32);
    clef_averaged *a = clef_averaged_new(m, NULL);
    run(m, a, 0, 2);
    cr_assert_eq(clef_averaged_use(a, true), CLEF_OK);
    clef_checkpoint what = {.module = m, .averaged = a};
    cr_expect_eq(clef_checkpoint_save(ctx, path, &what), CLEF_STATE);
    expect_error(ctx, CLEF_STATE, "checkpoint_save: the module has the averaged weights; give it back its own first");
    what.averaged = NULL;
    cr_expect_eq(clef_checkpoint_save(ctx, path, &what), CLEF_OK);
    cr_assert_eq(clef_averaged_use(a, false), CLEF_OK);
    what.averaged = a;
    cr_expect_eq(clef_checkpoint_load(ctx, path, &what), CLEF_FORMAT);
    expect_error(ctx, CLEF_FORMAT, "was saved without averaged.updates");
    io_remove(dir);
}

/* ---- several devices ---- */
Test(averaged, follow_a_module_that_moves) {
    clef_context *own = open_or_skip(&(clef_options){.device = "0/2", .seed = 3});
    clef_module *m = clef_sequential(own, CLEF_LAYERS(clef_nn_linear(own, 4, 4, NULL), clef_nn_linear(own, 4, 2, NULL)));
    if (clef_context_device_count(own) < 2) {
        clef_close(own);
        cr_skip_test("one device only");
    }
    clef_averaged *a = clef_averaged_new(m, &(clef_averaged_options){.decay = 0.5});
    float before[8], after[8];
    cr_assert_eq(clef_read(clef_parameter(m, "1.weight"), before, sizeof before), CLEF_OK);
    cr_assert_eq(clef_averaged_update(a), CLEF_OK, "%s", clef_error(own));
    cr_assert_eq(clef_module_to(clef_module_child(m, "1"), 1), CLEF_OK);
    cr_assert_eq(clef_averaged_update(a), CLEF_OK, "%s", clef_error(own));
    for (int i = 0; i < clef_averaged_tensors(a); i++) {
        clef_named_tensor t = clef_averaged_tensor(a, i);
        cr_expect_eq(clef_tensor_device(t.tensor), t.name[0] - '0', "%s", t.name);
    }
    cr_assert_eq(clef_averaged_use(a, true), CLEF_OK);
    cr_expect_eq(clef_tensor_device(clef_parameter(m, "1.weight")), 1);
    cr_assert_eq(clef_read(clef_parameter(m, "1.weight"), after, sizeof after), CLEF_OK);
    cr_expect_arr_eq(before, after, sizeof before);
    cr_assert_eq(clef_averaged_use(a, false), CLEF_OK);
    close_clean(own);
}
