/* NULL arrays, and counts and numbers out of range, wherever the public API takes them: refused with a line, never read.
   ctest: cost=3 */
#include "support/plain.h"
#include "clef/opencl.h"

#include <limits.h>
#include <math.h>
#include <string.h>

static clef_context *ctx;
static int failures;

/* `refused`: the call said no.  Then there is a line, which is cleared for the next. */
static void expect(bool refused, const char *call) {
    if (!refused || clef_error_status(ctx) == CLEF_OK || !*clef_error(ctx)) {
        printf("FAILED: %s: %s, \"%s\"\n", call, refused ? "without a line" : "is not refused", clef_error(ctx));
        failures++;
    }
    clef_clear_error(ctx);
}
/* Actions say CLEF_INVALID. */
#define INVALID(call) expect((call) == CLEF_INVALID && clef_error_status(ctx) == CLEF_INVALID, #call)
#define REFUSED(call) expect(!(call), #call)
/* Without a context there is nowhere to put a line. */
static void expect_equal(bool equal, const char *call) {
    if (!equal) printf("FAILED: %s\n", call);
    failures += !equal;
}
#define WITHOUT(call, result) expect_equal((call) == (result), #call)

static clef_module *net;
static clef_dataset *data;
static clef_loader *loader;
static clef_optimizer *optimizer;

static bool fetch(void *user, int64_t i, float *x, int64_t *y) { return (void)user, *x = (float)i, *y = 0, true; }
static bool fetch_fields(void *user, int64_t i, void *const *out) { return (void)user, (void)i, (void)out, false; }
static clef_status no_call(clef_module *m, clef_tensor *const *in, int n, clef_tensor **out, int k, void *user) {
    return (void)m, (void)in, (void)n, (void)out, (void)k, (void)user, CLEF_OK;
}
static clef_status no_work(clef_context *c, void *user) { return (void)c, (void)user, CLEF_OK; }

static void contexts(void) {
    clef_device_info info;
    WITHOUT(clef_context_device(ctx, -1, &info), false);
    WITHOUT(clef_context_device(ctx, INT_MAX, &info), false);
    WITHOUT(clef_context_device(ctx, 0, NULL), false);
    WITHOUT(clef_context_device(NULL, 0, &info), false);
    WITHOUT(clef_device_get(-1, &info), false);
    WITHOUT(clef_device_get(INT_MAX, &info), false);
    WITHOUT(clef_device_get(0, NULL), false);
    WITHOUT(clef_cache_inspect(NULL, false, NULL), CLEF_INVALID);
    WITHOUT(clef_synchronize(NULL), CLEF_INVALID);
    clef_set_allocator(NULL);
    clef_on_compile(ctx, NULL, NULL);
}

static void plans(void) {
    clef_tensor *x = clef_ones(ctx, CLEF_SHAPE(2), CLEF_F32);
    INVALID(clef_print_plan(x, CLEF_PLAN_TEXT, NULL));
    INVALID(clef_print_plan(x, (clef_plan_format)99, stdout));
    INVALID(clef_print_plan(x, (clef_plan_format)-1, stdout));
    WITHOUT(clef_print_plan(NULL, CLEF_PLAN_TEXT, stdout), CLEF_INVALID);
    clef_set_dry_run(ctx, true);
    INVALID(clef_plan_memory(ctx, NULL));
    clef_set_dry_run(ctx, false);
    WITHOUT(clef_plan_memory(NULL, &(clef_plan_size){0}), CLEF_INVALID);
}

static bool no_infer(clef_kernel_call *call) { return (void)call, true; }
static void customs(void) {
    static const clef_custom_op cube = {.name = "cube", .forward = "x*x*x"}, unnamed = {.forward = "x"}, empty = {.name = "empty"};
    clef_tensor *x = clef_ones(ctx, CLEF_SHAPE(2), CLEF_F32), *one[1] = {x};
    REFUSED(clef_custom(&cube, one, 99));
    REFUSED(clef_custom(&cube, one, INT_MAX));
    expect(!clef_custom(NULL, one, 1), "clef_custom(NULL, one, 1)");
    REFUSED(clef_custom(&unnamed, one, 1));
    REFUSED(clef_custom(&empty, one, 1));
    WITHOUT(clef_custom(&cube, one, 0), NULL); /* nothing says which context */
    WITHOUT(clef_custom(&cube, one, -1), NULL);
    WITHOUT(clef_custom(&cube, NULL, 1), NULL);
    WITHOUT(clef_custom(&cube, NULL, 99), NULL);
    static const clef_kernel_op copy = {.name = "copy", .inputs = "x", .outputs = "y", .body = "", .infer = no_infer};
    clef_tensor *out[CLEF_KERNEL_MOST];
    INVALID(clef_kernel(&copy, one, 99, NULL, 0, out, 1));
    INVALID(clef_kernel(&copy, one, INT_MAX, NULL, 0, out, 1));
    INVALID(clef_kernel(&copy, one, 1, NULL, 0, out, -1));
    INVALID(clef_kernel(&copy, one, 1, NULL, 0, out, INT_MAX));
    INVALID(clef_kernel(&copy, one, 1, NULL, 0, NULL, 1));
    INVALID(clef_kernel(&copy, one, 1, NULL, -1, out, 1));
    INVALID(clef_kernel(&copy, one, 1, NULL, INT_MAX, out, 1));
    INVALID(clef_kernel(NULL, one, 1, NULL, 0, out, 1));
    WITHOUT(clef_kernel(&copy, one, 0, NULL, 0, out, 1), CLEF_INVALID);
    WITHOUT(clef_kernel(&copy, NULL, 1, NULL, 0, out, 1), CLEF_INVALID);
}

static void orders(void) {
    clef_tensor *x = clef_ones(ctx, CLEF_SHAPE(2, 3), CLEF_F32), *i = clef_zeros(ctx, CLEF_SHAPE(2), CLEF_I64), *a, *b;
    INVALID(clef_sort(x, INT_MIN, false, &a, &b));
    INVALID(clef_sort(x, INT_MAX, false, &a, NULL));
    INVALID(clef_sort(x, 0, false, NULL, NULL));
    INVALID(clef_topk(x, INT64_MAX, 0, true, &a, &b));
    INVALID(clef_topk(x, INT64_MIN, 0, true, NULL, &b));
    INVALID(clef_topk(x, 1, 0, true, NULL, NULL));
    INVALID(clef_topk(x, 1, 5, true, &a, &b));
    REFUSED(clef_argsort(x, INT_MIN, true));
    REFUSED(clef_cumsum(x, INT_MAX));
    REFUSED(clef_cumprod(x, INT_MIN));
    REFUSED(clef_index_add(x, INT_MIN, i, x));
    REFUSED(clef_scatter_reduce(x, INT_MAX, i, i, CLEF_SCATTER_MEAN, false));
    REFUSED(clef_scatter_reduce(x, 0, i, i, (clef_scatter_reduction)-1, true));
    REFUSED(clef_cosine_similarity(x, x, INT_MIN, 1e-8));
    REFUSED(clef_cosine_similarity(x, x, 0, -INFINITY));
    REFUSED(clef_one_hot(i, -1));
    REFUSED(clef_one_hot(i, INT64_MIN));
    REFUSED(clef_one_hot(i, INT64_MAX));
    REFUSED(clef_one_hot(x, 3));
    REFUSED(clef_multinomial(x, INT64_MIN, true));
    REFUSED(clef_multinomial(x, INT64_MAX, true));
    REFUSED(clef_multinomial(x, INT64_MAX, false));
    REFUSED(clef_randint(ctx, 1, 0, CLEF_SHAPE(2)));
    REFUSED(clef_randint(ctx, 0, 1, CLEF_SHAPE(INT64_MAX, 2)));
    REFUSED(clef_randint(ctx, 0, 1, ((clef_shape){.rank = 99})));
    WITHOUT(clef_sort(NULL, 0, false, &a, &b), CLEF_INVALID);
    WITHOUT(clef_topk(NULL, 1, 0, false, NULL, NULL), CLEF_INVALID);
    WITHOUT(clef_randint(NULL, 0, 1, CLEF_SHAPE(2)), NULL);
    WITHOUT(clef_multinomial(NULL, 1, true), NULL);
}

static void windows(void) {
    clef_tensor *x = clef_ones(ctx, CLEF_SHAPE(4), CLEF_F32), *one = clef_ones(ctx, CLEF_SHAPE(1), CLEF_F32);
    clef_tensor *first = clef_integer(ctx, 0), *far = clef_integer(ctx, INT64_MAX), *below = clef_integer(ctx, INT64_MIN);
    REFUSED(clef_slice_at(x, 0, first, -1));
    REFUSED(clef_slice_at(x, 0, first, INT64_MAX));
    REFUSED(clef_slice_at(x, INT_MAX, first, 1));
    REFUSED(clef_slice_at(x, INT_MIN, first, 1));
    REFUSED(clef_slice_at(x, 0, far, 1));
    REFUSED(clef_slice_at(x, 0, below, 1));
    REFUSED(clef_slice_at(x, 0, CLEF_NONE, 1));
    REFUSED(clef_slice_update(x, 0, far, one));
    REFUSED(clef_slice_update(x, 99, first, one));
    REFUSED(clef_slice_update(x, 0, first, CLEF_NONE));
    INVALID(clef_assign_at(x, 0, below, one));
    INVALID(clef_assign_at(x, -99, first, one));
    INVALID(clef_assign_at(x, 0, CLEF_NONE, one));
    WITHOUT(clef_integer(NULL, 1), NULL);
    WITHOUT(clef_slice_at(NULL, 0, NULL, 1), NULL);
    WITHOUT(clef_slice_update(NULL, 0, NULL, NULL), NULL);
    WITHOUT(clef_assign_at(NULL, 0, NULL, NULL), CLEF_INVALID);
}

static void tuning(void) {
    int n;
    INVALID(clef_tune(ctx, NULL, NULL));
    INVALID(clef_tune(ctx, &(clef_tune_options){0}, NULL));
    INVALID(clef_tune(ctx, &(clef_tune_options){.work = no_work, .budget = -1}, NULL));
    INVALID(clef_tune(ctx, &(clef_tune_options){.work = no_work, .budget = NAN}, NULL));
    INVALID(clef_tune_export(ctx, NULL, &n));
    INVALID(clef_tune_import(ctx, NULL, &n));
    WITHOUT(clef_tune(NULL, NULL, NULL), CLEF_INVALID);
    WITHOUT(clef_tune_export(NULL, "x", NULL), CLEF_INVALID);
}

static void datasets(void) {
    const float x[4] = {0};
    const int64_t y[2] = {0, 1};
    clef_shape item = CLEF_SHAPE(2), deep = {.rank = 99}, below = {.rank = -1};
    REFUSED(clef_dataset_arrays(ctx, NULL, item, y, 2));
    REFUSED(clef_dataset_arrays(ctx, NULL, item, y, INT64_MAX));
    REFUSED(clef_dataset_arrays(ctx, NULL, item, y, -1));
    REFUSED(clef_dataset_arrays(ctx, x, item, NULL, -1));
    REFUSED(clef_dataset_arrays(ctx, x, item, y, INT64_MIN));
    REFUSED(clef_dataset_arrays(ctx, x, item, NULL, INT64_MAX));
    REFUSED(clef_dataset_arrays(ctx, x, item, y, INT64_MAX));
    REFUSED(clef_dataset_arrays(ctx, x, deep, y, 2));
    REFUSED(clef_dataset_arrays(ctx, x, below, y, 2));
    REFUSED(clef_dataset_pairs(ctx, NULL, item, x, item, 2));
    REFUSED(clef_dataset_pairs(ctx, x, item, NULL, item, 2));
    REFUSED(clef_dataset_pairs(ctx, x, item, x, item, -1));
    REFUSED(clef_dataset_pairs(ctx, x, item, x, item, INT64_MAX));
    REFUSED(clef_dataset_pairs(ctx, x, item, x, deep, 2));
    REFUSED(clef_dataset_callback(ctx, item, 4, 1, NULL, NULL));
    REFUSED(clef_dataset_callback(ctx, item, -1, 1, fetch, NULL));
    REFUSED(clef_dataset_callback(ctx, item, 4, -1, fetch, NULL));
    REFUSED(clef_dataset_callback(ctx, deep, 4, 1, fetch, NULL));
    const clef_field field = {.shape = item, .data = x}, sunk = {.shape = deep, .data = x};
    REFUSED(clef_dataset_fields(ctx, NULL, 1, 2));
    REFUSED(clef_dataset_fields(ctx, &field, -1, 2));
    REFUSED(clef_dataset_fields(ctx, &field, INT_MAX, 2));
    REFUSED(clef_dataset_fields(ctx, &field, 1, -1));
    REFUSED(clef_dataset_fields(ctx, &field, 1, INT64_MAX));
    REFUSED(clef_dataset_fields(ctx, &sunk, 1, 2));
    REFUSED(clef_dataset_fields(ctx, &(clef_field){.shape = item, .dtype = (clef_dtype)-1, .data = x}, 1, 2));
    REFUSED(clef_dataset_fields(ctx, &(clef_field){.shape = item, .data = x, .classes = -1}, 1, 2));
    REFUSED(clef_dataset_fields_callback(ctx, &field, 1, 2, NULL, NULL));
    REFUSED(clef_dataset_fields_callback(ctx, NULL, 1, 2, fetch_fields, NULL));
    WITHOUT(clef_dataset_fields(NULL, &field, 1, 2), NULL);
    WITHOUT(clef_dataset_field(data, -1).name, NULL);
    WITHOUT(clef_dataset_field(data, INT_MAX).name, NULL);
    WITHOUT(clef_dataset_field_count(NULL), 0);
    INVALID(clef_dataset_get_fields(data, 0, NULL));
    INVALID(clef_dataset_get_fields(data, INT64_MIN, (void *[2]){NULL, NULL}));
    WITHOUT(clef_dataset_get_fields(NULL, 0, NULL), CLEF_INVALID);
    REFUSED(clef_dataset_take(data, -1));
    REFUSED(clef_dataset_take(data, INT64_MIN));
    REFUSED(clef_idx(ctx, NULL, NULL));
    REFUSED(clef_digits(ctx, (clef_split_name)99));
    WITHOUT(*clef_dataset_class_name(data, -1), 0);
    WITHOUT(*clef_dataset_class_name(data, INT64_MAX), 0);
    float out[2];
    int64_t label;
    INVALID(clef_dataset_get(data, -1, out, &label));
    INVALID(clef_dataset_get(data, INT64_MAX, out, &label));
    INVALID(clef_dataset_get(data, 0, NULL, &label));
}

static void loaders(void) {
    REFUSED(clef_loader_open(data, &(clef_loader_options){.batch = -1}));
    REFUSED(clef_loader_open(data, &(clef_loader_options){.workers = INT_MAX}));
    REFUSED(clef_loader_open(data, &(clef_loader_options){.prefetch = INT_MIN}));
    clef_loader *whole = clef_loader_open(data, &(clef_loader_options){.batch = INT64_MAX}); /* a batch of all there are */
    WITHOUT(clef_loader_batches(whole), 1);
    clef_loader_close(whole);
    expect(!clef_next(loader, NULL), "clef_next(loader, NULL)");
    INVALID(clef_loader_set(loader, (clef_loader_state){.epoch = -1, .batch = -1}));
    INVALID(clef_loader_set(loader, (clef_loader_state){.batch = INT64_MAX}));
    WITHOUT(clef_loader_open(NULL, NULL), NULL);
    WITHOUT(clef_next(NULL, NULL), false);
}

static void files(void) {
    const char *const odd[] = {"key", NULL};
    clef_checkpoint nothing = {0};
    INVALID(clef_save(net, NULL));
    INVALID(clef_load(net, NULL));
    INVALID(clef_load_with(net, NULL, NULL, NULL));
    WITHOUT(clef_load_with(NULL, "x", NULL, NULL), CLEF_INVALID);
    INVALID(clef_safetensors_write(ctx, "x", NULL, 1, NULL));
    INVALID(clef_safetensors_write(ctx, "x", NULL, -1, NULL));
    INVALID(clef_safetensors_write(ctx, "x", NULL, INT_MAX, NULL));
    INVALID(clef_safetensors_write(ctx, NULL, NULL, 0, NULL));
    INVALID(clef_safetensors_write(ctx, "x", NULL, 0, odd));
    INVALID(clef_safetensors_write(ctx, "x", &(clef_named_tensor){0}, 1, NULL));
    REFUSED(clef_safetensors_open(ctx, NULL));
    REFUSED(clef_npy_read(ctx, NULL));
    INVALID(clef_npy_write(clef_ones(ctx, CLEF_SHAPE(1), CLEF_F32), NULL));
    INVALID(clef_checkpoint_save(ctx, NULL, &nothing));
    INVALID(clef_checkpoint_save(ctx, "x", NULL));
    INVALID(clef_checkpoint_save(ctx, "x", &(clef_checkpoint){.n_extra = 1}));
    INVALID(clef_checkpoint_save(ctx, "x", &(clef_checkpoint){.n_extra = INT_MIN}));
    INVALID(clef_checkpoint_load(ctx, NULL, &nothing));
    INVALID(clef_checkpoint_load(ctx, "x", NULL));
    WITHOUT(clef_safetensors_name(NULL, 0), NULL);
    WITHOUT(clef_safetensors_count(NULL), 0);
    WITHOUT(clef_safetensors_tensor(NULL, 0), NULL);
}

static void optimizers(void) {
    INVALID(clef_optimizer_group(optimizer, NULL, 1, 0));
    INVALID(clef_optimizer_group(optimizer, "bias", -1, 0));
    INVALID(clef_optimizer_group(optimizer, "bias", NAN, 0));
    REFUSED(clef_schedule_new(optimizer, &(clef_schedule_options){.kind = (clef_schedule_kind)99}));
    REFUSED(clef_clip_grad_norm(net, NAN));
    REFUSED(clef_clip_grad_norm(net, -1));
    INVALID(clef_clip_grad_value(net, -1));
    REFUSED(clef_averaged_new(net, &(clef_averaged_options){.decay = -1}));
    REFUSED(clef_averaged_new(net, &(clef_averaged_options){.decay = NAN}));
    WITHOUT(clef_averaged_tensor(clef_averaged_new(net, NULL), INT_MIN).tensor, NULL);
    REFUSED(clef_lbfgs_new(net, &(clef_lbfgs_options){.lr = NAN}));
    REFUSED(clef_lbfgs_new(net, &(clef_lbfgs_options){.history = INT_MIN}));
    REFUSED(clef_lbfgs_new(net, &(clef_lbfgs_options){.max_iter = INT_MIN}));
    INVALID(clef_lbfgs_step(clef_lbfgs_new(net, &(clef_lbfgs_options){.history = INT_MAX, .max_iter = INT_MAX}), NULL, NULL, NULL));
    REFUSED(clef_grad_scaler_new(ctx, &(clef_grad_scaler_options){.scale = NAN}));
    REFUSED(clef_grad_scaler_new(ctx, &(clef_grad_scaler_options){.interval = INT64_MIN}));
    WITHOUT(clef_optimizer_tensor(optimizer, -1).tensor, NULL);
    WITHOUT(clef_optimizer_tensor(optimizer, INT_MAX).tensor, NULL);
    WITHOUT(clef_optimizer_tensor(NULL, 0).tensor, NULL);
    WITHOUT(clef_step(NULL), CLEF_INVALID);
}

static void modules(void) {
    clef_shape deep = {.rank = 99};
    REFUSED(clef_sequential(ctx, NULL, 1));
    REFUSED(clef_sequential(ctx, NULL, INT_MAX));
    REFUSED(clef_sequential(ctx, NULL, -1));
    REFUSED(clef_nn_residual(ctx, NULL, NULL, false));
    REFUSED(clef_module_new(ctx, NULL, NULL, NULL));
    REFUSED(clef_module_new_call(ctx, "m", NULL, 1, 1, NULL));
    REFUSED(clef_module_new_call(ctx, NULL, no_call, 1, 1, NULL));
    REFUSED(clef_module_new_call(ctx, "m", no_call, INT_MAX, 1, NULL));
    REFUSED(clef_module_new_call(ctx, "m", no_call, 1, INT_MIN, NULL));
    clef_module *any = clef_module_new_call(ctx, "m", no_call, 0, 0, NULL);
    clef_tensor *x = clef_ones(ctx, CLEF_SHAPE(2), CLEF_F32), *out[2];
    INVALID(clef_call(any, &x, INT_MAX, out, 1));
    INVALID(clef_call(any, &x, 1, out, INT_MAX));
    INVALID(clef_call(any, &x, -1, out, 1));
    INVALID(clef_call(any, &x, 1, out, 0));
    INVALID(clef_call(any, NULL, 1, out, 1));
    INVALID(clef_call(any, &x, 1, NULL, 1));
    INVALID(clef_call(any, &x, 1, &x, 1));
    INVALID(clef_call(any, &x, 1, out, 2)); /* which its function leaves NULL */
    WITHOUT(clef_call(NULL, NULL, -1, NULL, -1), CLEF_INVALID);
    WITHOUT(clef_call(NULL, &x, 1, out, INT_MAX), CLEF_INVALID);
    REFUSED(clef_module_hook(net, NULL));
    REFUSED(clef_module_hook(net, &(clef_hook){0}));
    WITHOUT(clef_module_hook(NULL, NULL), 0);
    INVALID(clef_module_unhook(net, 0));
    INVALID(clef_module_unhook(net, -1));
    WITHOUT(clef_module_unhook(NULL, 1), CLEF_INVALID);
    INVALID(clef_module_replace(net, NULL, net));
    INVALID(clef_module_replace(net, "0", NULL));
    INVALID(clef_module_replace(net, "0", net));
    INVALID(clef_module_remove(net, NULL));
    INVALID(clef_module_remove(net, "weight"));
    WITHOUT(clef_module_remove(NULL, "0"), CLEF_INVALID);
    WITHOUT(clef_module_replace(NULL, "0", net), CLEF_INVALID);
    expect(clef_summary_call(any, &x, INT_MAX, 1, NULL, 0) < 0, "clef_summary_call of INT_MAX inputs");
    expect(clef_summary_call(any, &x, 1, INT_MAX, NULL, 0) < 0, "clef_summary_call of INT_MAX outputs");
    expect(clef_summary_call(any, NULL, 1, 1, NULL, 0) < 0, "clef_summary_call of NULL");
    WITHOUT(clef_summary_call(NULL, &x, 1, 1, NULL, 0), -1);
    INVALID(clef_place_auto(net, x, &(clef_place_options){.devices = (int[]){INT_MAX}, .n_devices = 1}));
    INVALID(clef_place_auto(net, x, &(clef_place_options){.devices = (int[]){0}, .n_devices = INT_MAX}));
    INVALID(clef_place_auto(net, x, &(clef_place_options){.micro_batches = INT_MIN}));
    INVALID(clef_place_auto(net, x, &(clef_place_options){.transfer_gb_per_second = -INFINITY}));
    INVALID(clef_place_auto(net, CLEF_NONE, NULL));
    INVALID(clef_place_auto(any, x, NULL));
    WITHOUT(clef_place_auto(NULL, x, NULL), CLEF_INVALID);
    INVALID(clef_module_add(net, NULL, net));
    INVALID(clef_module_add(net, "child", NULL));
    INVALID(clef_module_add_parameter(net, NULL, NULL));
    REFUSED(clef_nn_linear(ctx, -1, 2, NULL));
    REFUSED(clef_nn_linear(ctx, INT64_MAX, INT64_MAX, NULL));
    REFUSED(clef_nn_conv2d(ctx, -1, 2, 3, NULL));
    REFUSED(clef_nn_conv2d(ctx, 1, 2, INT_MIN, NULL));
    REFUSED(clef_nn_conv2d(ctx, INT64_MAX, INT64_MAX, INT_MAX, NULL));
    REFUSED(clef_nn_batch_norm2d(ctx, -1, NULL));
    REFUSED(clef_nn_layer_norm(ctx, deep, NULL));
    REFUSED(clef_nn_rms_norm(ctx, deep, NULL));
    REFUSED(clef_nn_rms_norm(ctx, CLEF_SHAPE(4), &(clef_nn_norm_options){.eps = NAN}));
    REFUSED(clef_nn_batch_norm1d(ctx, INT64_MIN, NULL));
    REFUSED(clef_nn_conv1d(ctx, 4, INT64_MAX, 3, NULL));
    REFUSED(clef_nn_conv1d(ctx, 4, 4, INT_MIN, NULL));
    REFUSED(clef_nn_conv_transpose2d(ctx, INT64_MAX, INT64_MAX, INT_MAX, NULL));
    REFUSED(clef_nn_conv_transpose2d(ctx, 4, 4, 3, &(clef_nn_conv_transpose2d_options){.conv.groups = INT_MIN}));
    REFUSED(clef_nn_instance_norm2d(ctx, INT64_MIN, NULL));
    REFUSED(clef_nn_prelu(ctx, INT64_MAX, 0.25));
    REFUSED(clef_nn_prelu(ctx, 0, 0.25));
    REFUSED(clef_nn_upsample_nearest2d(ctx, INT_MIN));
    REFUSED(clef_forward(clef_nn_upsample_nearest2d(ctx, INT_MAX), clef_zeros(ctx, CLEF_SHAPE(1, 1, 4, 4), CLEF_U8)));
    REFUSED(clef_nn_activation_with(ctx, NULL, clef_elu, 1));
    REFUSED(clef_nn_group_norm(ctx, 0, 4, NULL));
    REFUSED(clef_nn_group_norm(ctx, 3, 4, NULL));
    REFUSED(clef_nn_group_norm(ctx, INT64_MIN, INT64_MAX, NULL));
    REFUSED(clef_nn_embedding(ctx, INT64_MAX, INT64_MAX));
    REFUSED(clef_nn_dropout(ctx, NAN));
    REFUSED(clef_nn_max_pool2d(ctx, INT_MIN, NULL));
    REFUSED(clef_nn_adaptive_avg_pool2d(ctx, -1, INT_MAX));
    REFUSED(clef_nn_activation(ctx, "a", NULL));
    REFUSED(clef_model_mlp(ctx, deep, 10));
    REFUSED(clef_model_lenet(ctx, deep, 10));
    REFUSED(clef_model_cnn(ctx, CLEF_SHAPE(1, 8, 8), -1));
    REFUSED(clef_model_resnet18(ctx, deep, INT64_MAX));
    WITHOUT(clef_module_tensor(net, -1).tensor, NULL);
    WITHOUT(clef_module_tensor(net, INT_MAX).tensor, NULL);
    WITHOUT(clef_module_child(net, NULL), NULL);
    WITHOUT(clef_parameter(net, NULL), NULL);
    expect(clef_summary(net, deep, NULL, 0) < 0, "clef_summary(net, deep, NULL, 0)");
    WITHOUT(clef_summary(net, CLEF_SHAPE(2), NULL, 99) > 0, true); /* how long it would be */
}

static void training(void) {
    clef_evaluation_result result = {0};
    INVALID(clef_fit(net, NULL, NULL));
    INVALID(clef_fit(net, &(clef_fit_options){.train = loader}, NULL));
    INVALID(clef_fit(net, &(clef_fit_options){.train = loader, .optimizer = optimizer, .epochs = -1}, NULL));
    WITHOUT(clef_fit(NULL, &(clef_fit_options){.train = loader, .optimizer = optimizer, .epochs = 1}, NULL), CLEF_INVALID);
    INVALID(clef_evaluate(net, loader, NULL, NULL, NULL));
    INVALID(clef_evaluate(net, NULL, NULL, NULL, &result));
    INVALID(clef_evaluate_top_k(net, loader, NULL, NULL, -1, &result));
    INVALID(clef_fit(net, &(clef_fit_options){.train = loader, .optimizer = optimizer, .n_outputs = INT_MAX}, NULL));
    INVALID(clef_fit(net, &(clef_fit_options){.train = loader, .optimizer = optimizer, .n_outputs = 2}, NULL));
    INVALID(clef_evaluate_with(net, loader, NULL, NULL));
    INVALID(clef_evaluate_with(net, NULL, NULL, &result));
    INVALID(clef_evaluate_with(net, loader, &(clef_evaluate_options){.n_outputs = INT_MIN}, &result));
    INVALID(clef_evaluate_with(net, loader, &(clef_evaluate_options){.top_k = INT_MIN}, &result));
    WITHOUT(clef_evaluate_with(NULL, loader, NULL, &result), CLEF_INVALID);
    INVALID(clef_confusion_svg(ctx, NULL, NULL, "x.svg"));
    INVALID(clef_confusion_svg(ctx, &result, NULL, NULL));
    WITHOUT(clef_confusion_text(NULL, NULL, NULL, 0), 0);
    WITHOUT(clef_confusion_text(&result, NULL, NULL, 99), 0);
}

static void interop(void) {
    REFUSED(clef_from_opencl(ctx, NULL, 0, CLEF_SHAPE(2), CLEF_F32));
    REFUSED(clef_from_opencl(ctx, NULL, SIZE_MAX, CLEF_SHAPE(INT64_MAX), CLEF_F32));
    size_t offset;
    WITHOUT(clef_opencl_buffer(NULL, &offset), NULL);
    WITHOUT(clef_open_opencl(NULL, NULL, NULL, NULL), NULL);
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0); /* a crash swallows no line */
    if (!(ctx = clef_open(&(clef_options){.seed = 1}))) return without_context();
    net = clef_sequential(ctx, CLEF_LAYERS(clef_nn_linear(ctx, 2, 2, NULL)));
    data = clef_dataset_arrays(ctx, (float[8]){0}, CLEF_SHAPE(2), (int64_t[4]){0, 1, 0, 1}, 4);
    loader = clef_loader_open(data, &(clef_loader_options){.batch = 2});
    optimizer = clef_sgd(net, &(clef_sgd_options){.lr = 0.1});
    void (*const rooms[])(void) = {contexts, plans, customs,    orders,  windows,  tuning, datasets,
                                   loaders,  files, optimizers, modules, training, interop};
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++) rooms[i]();
    clef_close(ctx);
    printf(failures ? "%d calls FAILED\n" : "all refused\n", failures);
    return failures > 0;
}
