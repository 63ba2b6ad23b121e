/* What training has besides steps, with a net on another device than the first or on two: modes of the context, dtypes, recomputing,
   dry runs, retained forms of weights, figures of memory, saved files, callbacks; and three devices.  All give the bits of one device
   of that kind.
   ctest: cost=60 apart plain */
#include "train/parted_net.h"
#include "train/train_support.h"

enum { BATCH = 16, STEPS = 3 };

static void open_with(clef_options o) {
    o.device = "0/2";
    o.seed = 3;
    ctx = clef_open(&o);
    if (!ctx) cr_skip_test("no device in two halves here: %s", clef_error(NULL));
}
static void open_halves(void) { open_with((clef_options){0}); }
static void close_halves(void) {
    if (ctx) close_clean(ctx);
}
TestSuite(spread, .init = open_halves, .fini = close_halves, .timeout = 300);

static void expect_bits(const void *got, const void *wanted, size_t bytes, const char *what, int where) {
    cr_assert_eq(memcmp(got, wanted, bytes), 0, "%s, place %d: other bits", what, where);
}

/* ---- modes of the context, and recomputing ---- */

static clef_tensor *digits(int device, int64_t **labels) {
    static float pixels[BATCH * 64];
    static int64_t label[BATCH];
    for (int i = 0; i < BATCH * 64; i++) pixels[i] = noise((uint64_t)i, 1);
    for (int i = 0; i < BATCH; i++) label[i] = i * 7 % CLASSES;
    *labels = label;
    return clef_from_host_on(ctx, device, CLEF_SHAPE(BATCH, 1, 8, 8), CLEF_F32, pixels);
}

static void step(clef_module *net, clef_optimizer *opt, place where) {
    int64_t *label;
    clef_tensor *x = digits(where == SECOND, &label), *y = clef_forward(net, x);
    clef_tensor *target = clef_from_host_on(ctx, clef_tensor_device(y), CLEF_SHAPE(BATCH), CLEF_I64, label);
    cr_assert_eq(clef_backward(clef_cross_entropy(y, target, NULL)), CLEF_OK, "%s", clef_error(ctx));
    cr_assert_eq(clef_step(opt), CLEF_OK, "%s", clef_error(ctx));
}

static clef_optimizer *adam(clef_module *net) { return clef_adam(net, &(clef_adam_options){.lr = 0.01}); }

/* segments: modules that recompute, as bits: head, tail, the whole. */
static float *trained(place where, int segments, size_t *n) {
    clef_seed(ctx, 7);
    clef_module *net = new_net();
    put(net, where);
    clef_recompute(clef_module_child(net, "head"), segments & 1);
    clef_recompute(clef_module_child(net, "tail"), segments & 2);
    clef_recompute(net, segments & 4);
    clef_optimizer *opt = adam(net);
    for (int i = 0; i < STEPS; i++) step(net, opt, where);
    return weights_of(net, n);
}

static void train_everywhere(const char *what, const float *wanted, int segments) {
    for (place where = FIRST; where <= BOTH; where++) {
        size_t n;
        float *got = trained(where, segments, &n);
        expect_bits(got, wanted, n * sizeof *got, what, where);
        free(got);
    }
}

Test(spread, modules_recompute) {
    size_t n;
    float *wanted = trained(FIRST, 0, &n);
    for (int segments = 0; segments < 8; segments++) train_everywhere("recomputed", wanted, segments);
    free(wanted);
}

/* Each mode has its own plans, and so its own bits. */
static void train_in_mode(const char *what, clef_options o) {
    clef_close(ctx);
    open_with(o);
    for (int segments = 0; segments < 8; segments += 7) {
        size_t n;
        float *wanted = trained(FIRST, segments, &n);
        train_everywhere(what, wanted, segments);
        free(wanted);
    }
}

Test(spread, eager) { train_in_mode("eager", (clef_options){.eager = true}); }
Test(spread, debug_memory) { train_in_mode("debug memory", (clef_options){.debug_memory = true}); }

/* ---- parameters of other dtypes, with a loss that is scaled by hand ---- */

static clef_tensor *forward_matrices(clef_module *net, clef_tensor *x, void *user) {
    clef_tensor *first = clef_parameter(net, "first"), *second = clef_parameter(net, "second");
    (void)user;
    clef_tensor *y = clef_relu(clef_linear(x, first, CLEF_NONE));
    return clef_linear(clef_to_device(y, clef_tensor_device(second)), second, CLEF_NONE);
}

static void add_matrix(clef_module *net, const char *name, clef_shape shape, clef_dtype dtype) {
    clef_tensor *t = clef_to(clef_mul_scalar(clef_randn(ctx, shape), 0.2), dtype);
    cr_assert_eq(clef_module_add_parameter(net, name, t), CLEF_OK, "%s", clef_error(ctx));
}

/* Both matrices after STEPS steps, for free(). */
static char *trained_in(clef_dtype dtype, place where, size_t *bytes) {
    static const double scale = 128;
    float pixels[BATCH * 12];
    for (int i = 0; i < BATCH * 12; i++) pixels[i] = noise((uint64_t)i, 2);
    clef_seed(ctx, 5);
    clef_module *net = clef_module_new(ctx, "matrices", forward_matrices, NULL);
    add_matrix(net, "first", CLEF_SHAPE(20, 12), dtype);
    add_matrix(net, "second", CLEF_SHAPE(8, 20), dtype);
    clef_optimizer *opt = clef_adamw(net, &(clef_adamw_options){.lr = 0.01});
    if (where == SECOND) cr_assert_eq(clef_module_to(net, 1), CLEF_OK);
    if (where == BOTH) {
        clef_module *other = clef_module_new(ctx, "second", forward_matrices, NULL); /* moves one tensor of the net */
        cr_assert_eq(clef_module_add_parameter(other, "second", clef_parameter(net, "second")), CLEF_OK, "%s", clef_error(ctx));
        cr_assert_eq(clef_module_to(other, 1), CLEF_OK, "%s", clef_error(ctx));
    }
    for (int i = 0; i < STEPS; i++) {
        clef_tensor *x = clef_to(clef_from_host_on(ctx, where == SECOND, CLEF_SHAPE(BATCH, 12), CLEF_F32, pixels), dtype);
        clef_tensor *loss = clef_mean(clef_square(clef_to(clef_forward(net, x), CLEF_F32)), NULL, 0, false);
        cr_assert_eq(clef_backward(clef_mul_scalar(loss, scale)), CLEF_OK, "%s", clef_error(ctx));
        for (int k = 0; k < clef_module_tensors(net); k++) {
            clef_tensor *p = clef_module_tensor(net, k).tensor;
            cr_assert_eq(clef_set_grad(p, clef_mul_scalar(clef_grad_of(p), 1 / scale)), CLEF_OK, "%s", clef_error(ctx));
        }
        cr_assert(clef_clip_grad_norm(net, 0.1), "%s", clef_error(ctx));
        cr_assert_eq(clef_step(opt), CLEF_OK, "%s", clef_error(ctx));
    }
    size_t first = 20 * 12 * clef_dtype_size(dtype), second = 8 * 20 * clef_dtype_size(dtype);
    char *all = malloc(*bytes = first + second);
    cr_assert_eq(clef_read(clef_parameter(net, "first"), all, first), CLEF_OK, "%s", clef_error(ctx));
    cr_assert_eq(clef_read(clef_parameter(net, "second"), all + first, second), CLEF_OK, "%s", clef_error(ctx));
    return all;
}

Test(spread, parameters_of_every_floating_dtype) {
    static const clef_dtype dtypes[] = {CLEF_F32, CLEF_F16, CLEF_BF16, CLEF_F64};
    clef_device_info info;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        if (dtypes[i] == CLEF_F64 && (!clef_context_device(ctx, 0, &info) || !info.f64)) continue;
        size_t bytes;
        char *wanted = trained_in(dtypes[i], FIRST, &bytes);
        for (place where = SECOND; where <= BOTH; where++) {
            char *got = trained_in(dtypes[i], where, &bytes);
            expect_bits(got, wanted, bytes, clef_dtype_name(dtypes[i]), where);
            free(got);
        }
        free(wanted);
    }
}

/* ---- dry runs, and figures of memory ---- */

static clef_plan_size add_sizes(clef_plan_size a, clef_plan_size b) {
    return (clef_plan_size){.peak_bytes = a.peak_bytes + b.peak_bytes,
                            .input_bytes = a.input_bytes + b.input_bytes,
                            .temporary_bytes = a.temporary_bytes + b.temporary_bytes,
                            .least_temporary_bytes = a.least_temporary_bytes + b.least_temporary_bytes,
                            .launches = a.launches + b.launches,
                            .flops = a.flops + b.flops};
}

/* of[d]: the sizes of a step on device d; of[2]: on both. */
static void dry_step(clef_module *net, clef_optimizer *opt, place where, clef_plan_size of[3]) {
    clef_set_dry_run(ctx, true);
    step(net, opt, where);
    cr_assert_eq(clef_plan_memory(ctx, &of[2]), CLEF_OK, "%s", clef_error(ctx));
    for (int d = 0; d < 2; d++) cr_assert_eq(clef_plan_memory_of(ctx, d, &of[d]), CLEF_OK, "%s", clef_error(ctx));
    clef_set_dry_run(ctx, false);
}

Test(spread, a_dry_run_speaks_of_every_device) {
    clef_plan_size first[3], of[3];
    for (place where = FIRST; where <= BOTH; where++) {
        clef_module *net = new_net();
        put(net, where);
        clef_optimizer *opt = adam(net);
        step(net, opt, where);
        size_t n;
        float *before = weights_of(net, &n);
        dry_step(net, opt, where, of);
        clef_plan_size sum = add_sizes(of[0], of[1]);
        cr_expect(sum.peak_bytes == of[2].peak_bytes && sum.input_bytes == of[2].input_bytes && sum.launches == of[2].launches &&
                  sum.temporary_bytes == of[2].temporary_bytes && sum.least_temporary_bytes == of[2].least_temporary_bytes &&
                  sum.flops == of[2].flops);
        for (int d = 0; d < 2; d++) {
            bool used = where == BOTH || (where == SECOND) == d;
            cr_expect_eq(of[d].peak_bytes > 0, used, "place %d, device %d: %lld bytes", where, d, (long long)of[d].peak_bytes);
            cr_expect(of[d].temporary_bytes >= of[d].least_temporary_bytes && (of[d].launches > 0) == used);
        }
        if (where == FIRST) memcpy(first, of, sizeof first);
        if (where == SECOND) cr_expect(of[1].peak_bytes == first[0].peak_bytes && of[1].flops == first[0].flops);
        float *after = weights_of(net, &n);
        expect_bits(after, before, n * sizeof *after, "after a dry run", where);
        free(before), free(after);
    }
    cr_expect_eq(clef_plan_memory_of(ctx, 0, of), CLEF_STATE);
    clef_clear_error(ctx);
    clef_set_dry_run(ctx, true);
    for (int d = -1; d <= 2; d += 3) {
        cr_expect_eq(clef_plan_memory_of(ctx, d, of), CLEF_INVALID);
        expect_error(ctx, CLEF_INVALID, "plan_memory_of: device");
    }
    clef_set_dry_run(ctx, false);
}

Test(spread, memory_is_counted_for_each_device) {
    static float data[100000];
    clef_memory_info before[2], now[2];
    for (int d = 0; d < 2; d++) before[d] = clef_memory_of(ctx, d);
    clef_tensor *t = clef_keep(clef_from_host_on(ctx, 1, CLEF_SHAPE(100000), CLEF_F32, data));
    for (int d = 0; d < 2; d++) now[d] = clef_memory_of(ctx, d);
    cr_expect(now[1].used - before[1].used >= sizeof data && now[1].buffers == before[1].buffers + 1);
    cr_expect(now[0].used == before[0].used && now[0].buffers == before[0].buffers);
    cr_expect_eq(clef_memory(ctx).used, now[0].used + now[1].used);
    cr_expect_eq(clef_memory(ctx).buffers, now[0].buffers + now[1].buffers);
    clef_release(t);
    for (int i = 0; i < 3; i++) clef_eval(clef_copy(clef_from_host_on(ctx, 0, CLEF_SCALAR, CLEF_F32, data))), clef_end_step(ctx);
    cr_expect_eq(clef_memory_of(ctx, 1).used, before[1].used);
    cr_expect_geq(clef_memory_of(ctx, 1).cached, sizeof data);
    cr_expect_eq(clef_memory(ctx).cached, clef_memory_of(ctx, 0).cached + clef_memory_of(ctx, 1).cached);
    cr_expect_geq(clef_memory_of(ctx, 1).peak, before[1].used + sizeof data);
    clef_memory_reset_peak(ctx);
    cr_expect_eq(clef_memory_of(ctx, 1).peak, before[1].used);
    cr_expect(clef_memory_of(ctx, 2).used == 0 && clef_memory_of(ctx, -1).buffers == 0 && clef_memory_of(NULL, 0).peak == 0);
}

Test(spread, a_plan_names_the_devices) {
    clef_tensor *x = clef_from_host_on(ctx, 1, CLEF_SHAPE(4), CLEF_F32, (float[]){1, 2, 3, 4});
    const char *text = plan_text(clef_exp(clef_to_device(clef_cumsum(x, 0), 0)));
    cr_expect(strstr(text, "alive at once, on 1\n"), "%s", text);
    cr_expect(strstr(text, "bytes, launches 0 … 1, on 1") || strstr(text, ", on 1, at "), "%s", text);
    cr_expect(strstr(text, "] on 1\n") || strstr(text, " on 1\n"), "%s", text);
}

/* ---- weights that stay as they are ---- */

/* Answers with weights that do not change: their packed form is made once, where they lie. */
Test(spread, forms_of_weights_are_retained_where_they_lie) {
    enum { WIDE = 128, ROWS = 32, ASKED = 5 };
    static float first[ROWS * WIDE], y[ROWS * WIDE];
    for (int device = 0; device < 2; device++) {
        clef_seed(ctx, 9);
        clef_module *net = clef_nn_linear(ctx, WIDE, WIDE, NULL);
        cr_assert_eq(clef_module_to(net, device), CLEF_OK);
        clef_seed(ctx, 10);
        clef_tensor *x = clef_keep(clef_to_device(clef_randn(ctx, CLEF_SHAPE(ROWS, WIDE)), device));
        uint64_t launches[ASKED], other = 0;
        for (int i = 0; i < ASKED; i++) {
            uint64_t before = clef_counters_get(ctx).launches;
            if (i == 3) other = clef_memory_of(ctx, !device).used; /* what was made before the loop is gone by now */
            for (CLEF_NO_GRAD(ctx)) cr_assert_eq(clef_read(clef_forward(net, x), y, sizeof y), CLEF_OK, "%s", clef_error(ctx));
            clef_end_step(ctx);
            launches[i] = clef_counters_get(ctx).launches - before;
            if (i == 0 && device == 0) memcpy(first, y, sizeof y);
            expect_bits(y, first, sizeof y, "answered again", device);
        }
        cr_expect_leq(launches[ASKED - 1], launches[1], "device %d", device);
        cr_expect_eq(clef_memory_of(ctx, !device).used, other, "device %d", device);
        clef_release(x);
    }
}

/* ---- evaluation ---- */

Test(spread, evaluation_where_the_output_lies) {
    clef_evaluation_result wanted = {0}, r;
    int64_t confusion[CLASSES * CLASSES];
    for (place where = FIRST; where <= BOTH; where++) {
        clef_seed(ctx, 4);
        clef_module *net = new_net();
        put(net, where);
        clef_loader *data = clef_loader_open(clef_digits(ctx, CLEF_TEST), &(clef_loader_options){.batch = 60});
        cr_assert_eq(clef_evaluate_top_k(net, data, NULL, NULL, 3, &r), CLEF_OK, "%s", clef_error(ctx));
        if (where == FIRST) {
            wanted = r;
            memcpy(confusion, r.confusion, sizeof confusion);
        }
        cr_expect(r.loss == wanted.loss && r.accuracy == wanted.accuracy && r.top_k_accuracy == wanted.top_k_accuracy);
        expect_bits(r.confusion, confusion, sizeof confusion, "confusion", where);
        cr_assert_eq(clef_evaluate(net, data, clef_mse_loss, NULL, &r), CLEF_SHAPE, "%s", clef_error(ctx));
        clef_clear_error(ctx);
    }
}

/* What stands before the lines of devices, which differ. */
static void expect_the_same_layers(char *text, const char *wanted) {
    char *devices = strstr(text, "device 0:");
    cr_assert(devices, "%s", text);
    *devices = 0;
    cr_expect_str_eq(text, wanted);
}

Test(spread, summaries_tell_the_same) {
    static char wanted[2][1 << 14], text[2][1 << 14];
    for (place where = FIRST; where <= BOTH; where++) {
        clef_module *net = new_net();
        put(net, where);
        clef_tensor *x = clef_zeros(ctx, CLEF_SHAPE(2, 1, 8, 8), CLEF_F32);
        cr_assert_gt(clef_summary(net, CLEF_SHAPE(2, 1, 8, 8), text[0], sizeof *text), 0, "%s", clef_error(ctx));
        cr_assert_gt(clef_summary_call(net, &x, 1, 1, text[1], sizeof *text), 0, "%s", clef_error(ctx));
        for (int i = 0; i < 2; i++) {
            if (where == FIRST) snprintf(wanted[i], sizeof *wanted, "%.*s", (int)(strstr(text[i], "device 0:") - text[i]), text[i]);
            expect_the_same_layers(text[i], wanted[i]);
        }
    }
}

/* ---- a weight that is read on both devices ---- */

static clef_tensor *two_products(clef_tensor *w, clef_tensor *x, clef_tensor *y, int other) {
    clef_tensor *second = clef_linear(clef_to_device(y, other), clef_to_device(w, other), CLEF_NONE);
    return clef_add(clef_tanh(clef_linear(x, w, CLEF_NONE)), clef_to_device(clef_gelu(second), clef_tensor_device(x)));
}

/* Its gradients from both, of two losses on different devices, and that of an input which lies elsewhere than the loss. */
Test(spread, a_weight_is_read_on_two_devices) {
    float wanted[2][64], got[2][64];
    for (int other = 0; other < 2; other++) {
        clef_seed(ctx, 6);
        clef_tensor *w = clef_require_grad(clef_keep(clef_randn(ctx, CLEF_SHAPE(8, 8))), true);
        clef_tensor *x = clef_randn(ctx, CLEF_SHAPE(8, 8));
        clef_tensor *y = clef_require_grad(clef_keep(clef_to_device(clef_randn(ctx, CLEF_SHAPE(8, 8)), other)), true), *dy;
        clef_tensor *sum = clef_sum(clef_square(two_products(w, x, y, other)), NULL, 0, false);
        clef_tensor *mean = clef_to_device(clef_mean(two_products(w, x, y, other), NULL, 0, false), other);
        cr_assert_eq(clef_backward(sum), CLEF_OK, "%s", clef_error(ctx));
        cr_assert_eq(clef_grad(mean, CLEF_NONE, &y, 1, false, &dy), CLEF_OK, "%s", clef_error(ctx));
        cr_assert_eq(clef_backward(mean), CLEF_OK, "%s", clef_error(ctx));
        cr_expect(clef_tensor_device(clef_grad_of(w)) == 0 && clef_tensor_device(dy) == other);
        cr_assert_eq(clef_read(clef_grad_of(w), got[0], sizeof got[0]), CLEF_OK, "%s", clef_error(ctx));
        cr_assert_eq(clef_read(dy, got[1], sizeof got[1]), CLEF_OK, "%s", clef_error(ctx));
        if (other == 0) memcpy(wanted, got, sizeof got);
        for (int i = 0; i < 128; i++) /* sums over other devices may be fused otherwise */
            cr_expect_float_eq(got[i / 64][i % 64], wanted[i / 64][i % 64], 1e-5f);
        clef_release(w), clef_release(y);
        clef_end_step(ctx);
    }
}

/* ---- assignment ---- */

Test(spread, assigned_from_another_device) {
    float data[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, y[12];
    for (int device = 0; device < 2; device++) {
        clef_tensor *t = clef_keep(clef_from_host_on(ctx, device, CLEF_SHAPE(3, 4), CLEF_F32, data));
        clef_tensor *value = clef_from_host_on(ctx, !device, CLEF_SHAPE(3, 1), CLEF_F16, (uint16_t[]){0x4000, 0x4200, 0x4400});
        clef_tensor *start = clef_from_host_on(ctx, !device, CLEF_SCALAR, CLEF_I64, &(int64_t){2});
        cr_assert_eq(clef_assign_at(t, 1, start, value), CLEF_OK, "%s", clef_error(ctx));
        cr_assert_eq(clef_read(t, y, sizeof y), CLEF_OK, "%s", clef_error(ctx));
        for (int i = 0; i < 12; i++) cr_expect_eq(y[i], i % 4 == 2 ? 2 + i / 4 : i);
        cr_expect_eq(clef_tensor_device(t), device);
        cr_assert_eq(clef_assign(t, clef_to_device(clef_add_scalar(t, 1), !device)), CLEF_OK, "%s", clef_error(ctx));
        cr_assert_eq(clef_read(t, y, sizeof y), CLEF_OK, "%s", clef_error(ctx));
        cr_expect(y[0] == 1 && clef_tensor_device(t) == device);
        clef_release(t);
    }
}

/* ---- files ---- */

/* STEPS steps, a checkpoint, and STEPS more by another net elsewhere. */
static float *resumed(place from, place to, const char *path, size_t *n) {
    clef_seed(ctx, 7);
    clef_module *net = new_net(), *next = new_net();
    put(net, from), put(next, to);
    clef_optimizer *opt = adam(net), *later = adam(next);
    clef_schedule *schedule =
        clef_schedule_new(opt, &(clef_schedule_options){.kind = CLEF_SCHEDULE_COSINE, .total = 2 * STEPS, .warmup = 2});
    for (int i = 0; i < STEPS; i++) step(net, opt, from), clef_schedule_tick(schedule);
    clef_checkpoint what = {.module = net, .optimizer = opt, .schedule = schedule};
    cr_assert_eq(clef_checkpoint_save(ctx, path, &what), CLEF_OK, "%s", clef_error(ctx));
    what.module = next;
    what.optimizer = later;
    what.schedule =
        clef_schedule_new(later, &(clef_schedule_options){.kind = CLEF_SCHEDULE_COSINE, .total = 2 * STEPS, .warmup = 2});
    cr_assert_eq(clef_checkpoint_load(ctx, path, &what), CLEF_OK, "%s", clef_error(ctx));
    for (int i = 0; i < clef_module_tensors(next); i++) {
        clef_named_tensor t = clef_module_tensor(next, i);
        cr_assert_eq(clef_tensor_device(t.tensor), to == SECOND || (to == BOTH && t.name[0] == 't'), "%s", t.name);
    }
    for (int i = 0; i < STEPS; i++) step(next, later, to), clef_schedule_tick(what.schedule);
    return weights_of(next, n);
}

Test(spread, checkpoints_of_one_place_resume_in_another) {
    char folder[64], path[96];
    fresh_directory(folder);
    snprintf(path, sizeof path, "%s/c.ckpt", folder);
    size_t n;
    float *wanted = resumed(FIRST, FIRST, path, &n);
    for (place from = FIRST; from <= BOTH; from++)
        for (place to = FIRST; to <= BOTH; to++) {
            float *got = resumed(from, to, path, &n);
            expect_bits(got, wanted, n * sizeof *got, "resumed", (int)(from * PLACES + to));
            free(got);
        }
    free(wanted);
    remove_directory(folder);
}

/* A file's tensors come to their devices straight from the host. */
Test(spread, saved_modules_load_anywhere) {
    char folder[64], path[96];
    fresh_directory(folder);
    snprintf(path, sizeof path, "%s/net.safetensors", folder);
    clef_module *net = new_net();
    put(net, BOTH);
    size_t n;
    float *wanted = weights_of(net, &n);
    cr_assert_eq(clef_save(net, path), CLEF_OK, "%s", clef_error(ctx));
    for (place where = FIRST; where <= BOTH; where++) {
        clef_module *other = new_net();
        put(other, where);
        cr_assert_eq(clef_load(other, path), CLEF_OK, "%s", clef_error(ctx));
        cr_expect(!strstr(plan_text(clef_module_tensor(other, 0).tensor), "transfer"));
        float *got = weights_of(other, &n);
        expect_bits(got, wanted, n * sizeof *got, "loaded", where);
        put(other, BOTH); /* as it was where it was saved, and that is where it is asked */
        free(got);
    }
    free(wanted);
    remove_directory(folder);
}

/* ---- fit with callbacks ---- */

typedef struct traveller {
    clef_module *net;
    bool moves;
    int epochs;
} traveller;

static bool move_on(void *user, const clef_epoch *epoch) {
    static const place route[] = {BOTH, SECOND, FIRST};
    traveller *t = user;
    (void)epoch;
    if (t->moves) put(t->net, route[t->epochs % 3]);
    t->epochs++;
    return true;
}

/* The best weights come back at the end, and lie where the module is by then. */
static float *fitted(place where, bool moves, size_t *n) {
    clef_seed(ctx, 9);
    clef_module *net = new_net();
    put(net, where);
    clef_optimizer *opt = clef_adam(net, &(clef_adam_options){.lr = 0.05});
    traveller t = {net, moves, 0};
    clef_fit_options o = {.train = clef_loader_open(clef_dataset_take(clef_digits(ctx, CLEF_TRAIN), 96),
                                                    &(clef_loader_options){.batch = BATCH, .shuffle = true, .seed = 5}),
                          .test = clef_loader_open(clef_dataset_take(clef_digits(ctx, CLEF_TEST), 48),
                                                   &(clef_loader_options){.batch = 24, .device = 1}),
                          .optimizer = opt,
                          .schedule = clef_schedule_new(opt, &(clef_schedule_options){.kind = CLEF_SCHEDULE_STEP, .step_size = 1}),
                          .epochs = 4,
                          .accumulate = 2,
                          .clip_norm = 1,
                          .early_stop_patience = 3,
                          .on_epoch = move_on,
                          .user = &t};
    cr_assert_eq(clef_fit(net, &o, NULL), CLEF_OK, "%s", clef_error(ctx));
    cr_assert_geq(t.epochs, 1);
    return weights_of(net, n);
}

Test(spread, fit_with_a_module_that_moves) {
    size_t n;
    float *wanted = fitted(FIRST, false, &n);
    for (place where = FIRST; where <= BOTH; where++)
        for (int moves = 0; moves < 2; moves++) {
            float *got = fitted(where, moves, &n);
            expect_bits(got, wanted, n * sizeof *got, moves ? "moving" : "staying", where);
            free(got);
        }
    free(wanted);
}

/* A loss that is no number is found, and the layer is named, wherever it lies. */
Test(spread, fit_names_a_layer_on_any_device) {
    for (place where = FIRST; where <= BOTH; where++) {
        clef_module *net = new_net();
        put(net, where);
        clef_tensor *w = clef_parameter(net, "tail.1.weight");
        cr_assert_eq(clef_assign(w, clef_full_like(w, (double)INFINITY)), CLEF_OK);
        clef_fit_options o = {.train = clef_loader_open(clef_digits(ctx, CLEF_TRAIN), &(clef_loader_options){.batch = 64}),
                              .optimizer = adam(net)};
        cr_assert_eq(clef_fit(net, &o, NULL), CLEF_INVALID);
        expect_error(ctx, CLEF_INVALID, "tail.1");
    }
}

/* ---- three devices ---- */

/* Drivers but pocl show what they have. */
static void open_three(void) {
    clef_device_info a, b;
    setenv("POCL_DEVICES", "pthread pthread pthread", 1);
    bool three = clef_device_get(0, &a) && clef_device_get(2, &b) && strcmp(a.name, b.name) == 0 && strcmp(a.driver, b.driver) == 0;
    ctx = three ? clef_open(&(clef_options){.device = "0,1,2", .seed = 3}) : NULL;
    if (!ctx) cr_skip_test("no three devices of one kind here");
}
TestSuite(three, .init = open_three, .fini = close_halves, .timeout = 300);

static clef_tensor *forward_layers(clef_module *net, clef_tensor *x, void *user) {
    (void)user;
    for (int i = 0; i < 3; i++) {
        char name[] = {(char)('a' + i), 0};
        clef_module *layer = clef_module_child(net, name);
        x = clef_forward(layer, clef_to_device(x, clef_tensor_device(clef_module_tensor(layer, 0).tensor)));
    }
    return x;
}

static float *trained_on(const int device[3], int recomputed, size_t *n) {
    float pixels[BATCH * 24];
    for (int i = 0; i < BATCH * 24; i++) pixels[i] = noise((uint64_t)i, 6);
    clef_seed(ctx, 8);
    clef_module *net = clef_module_new(ctx, "three", forward_layers, NULL);
    for (int i = 0; i < 3; i++) {
        char name[] = {(char)('a' + i), 0};
        clef_module *layer =
            clef_sequential(ctx, CLEF_LAYERS(clef_nn_linear(ctx, 24, 24, NULL), clef_nn_gelu(ctx), clef_nn_dropout(ctx, 0.1)));
        cr_assert_eq(clef_module_add(net, name, layer), CLEF_OK, "%s", clef_error(ctx));
        cr_assert_eq(clef_module_to(layer, device[i]), CLEF_OK, "%s", clef_error(ctx));
    }
    clef_recompute(net, recomputed);
    clef_optimizer *opt = adam(net);
    for (int i = 0; i < STEPS; i++) {
        clef_tensor *x = clef_from_host_on(ctx, i, CLEF_SHAPE(BATCH, 24), CLEF_F32, pixels);
        cr_assert_eq(clef_backward(clef_mean(clef_square(clef_forward(net, x)), NULL, 0, false)), CLEF_OK, "%s", clef_error(ctx));
        cr_assert(clef_clip_grad_norm(net, 0.5));
        cr_assert_eq(clef_step(opt), CLEF_OK, "%s", clef_error(ctx));
    }
    return weights_of(net, n);
}

Test(three, layers_on_three_devices) {
    static const int route[][3] = {{0, 0, 0}, {0, 1, 2}, {2, 1, 0}, {1, 2, 1}, {2, 2, 0}};
    size_t n;
    float *wanted = trained_on(route[0], false, &n);
    for (int r = 0; r < (int)(sizeof route / sizeof *route); r++)
        for (int recomputed = 0; recomputed < 2; recomputed++) {
            float *got = trained_on(route[r], recomputed, &n);
            expect_bits(got, wanted, n * sizeof *got, "three devices", r);
            free(got);
        }
    free(wanted);
}
