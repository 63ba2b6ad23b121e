/* metrics.c — the loss and the number of right answers, summed on the device.

   Each sum is a kept scalar that every step assigns anew, so a training step computes it along with the parameters and
   nothing is read until somebody wants to see it.  They lie where the loss is computed.  f32 counts exactly up to 2^24 items of
   an epoch.

   Of several ranks each has the sums of all: the parts of a batch are added up on the devices, in a collective operation of two numbers that
   runs beside backward.  So all ranks see the same bits, know of each other's losses that are no numbers before the step, and save what any
   number of ranks continues with. */
#include "graph/graph.h"
#include "nn/module.h"
#include "ops/ops.h"
#include "train/train_internal.h"
#include <float.h>
#include <math.h>

static clef_tensor *kept_zero(clef_context *ctx) {
    float zero = 0;
    clef_tensor *t = clef_from_host(ctx, CLEF_SCALAR, CLEF_F32, &zero);
    return t ? clef_keep(t) : NULL;
}

bool clef__meters_open(clef__meters *meters, clef_context *ctx, clef_group *group) {
    *meters = (clef__meters){ctx, group, kept_zero(ctx), kept_zero(ctx), kept_zero(ctx)};
    if (meters->loss && meters->correct && meters->good) return true;
    clef__meters_close(meters);
    return false;
}

void clef__meters_close(clef__meters *meters) {
    clef_release(meters->loss);
    clef_release(meters->correct);
    clef_release(meters->good);
    *meters = (clef__meters){0};
}

clef_status clef__meters_set(clef__meters *meters, clef__meter_values values) {
    clef_status status = clef_write(meters->loss, &values.loss, sizeof(float));
    if (!status) status = clef_write(meters->correct, &values.correct, sizeof(float));
    if (!status) status = clef_write(meters->good, &values.good, sizeof(float));
    return status;
}

clef_status clef__meters_read(clef__meters *meters, clef__meter_values *values) {
    clef_status status = clef_read(meters->loss, &values->loss, sizeof(float));
    if (!status) status = clef_read(meters->correct, &values->correct, sizeof(float));
    if (!status) status = clef_read(meters->good, &values->good, sizeof(float));
    return status;
}

clef_status clef__meters_follow(clef__meters *meters, clef_tensor *loss) {
    clef_tensor *const all[] = {meters->loss, meters->correct, meters->good};
    return clef__move(clef_tensor_context(loss), all, 3, clef_tensor_device(loss));
}

static bool is_whole(clef_tensor *t) {
    clef_dtype dtype = t ? clef_tensor_dtype(t) : CLEF_F32;
    return dtype == CLEF_I64 || dtype == CLEF_I32 || dtype == CLEF_U8;
}

/* Has x the shape of t, and classes behind it? */
static bool has_classes_behind(clef_shape x, clef_shape t) {
    if (x.rank != t.rank + 1 || x.dim[t.rank] == 0) return false;
    x.rank = t.rank;
    return clef_shape_equal(x, t);
}

clef__answers clef__answers_of(const clef__loss *loss, clef_tensor *const *outputs, const clef_batch *batch) {
    clef__answers none = {0};
    if (loss->n_outputs != 1 || batch->n_targets != 1 || !is_whole(batch->y)) return none;
    clef_shape x = clef_tensor_shape(outputs[0]), t = clef_tensor_shape(batch->y);
    if (!has_classes_behind(x, t) || !(loss->sequences || t.rank == 1)) return none;
    int64_t n = clef_shape_numel(t);
    if (t.rank == 1) return (clef__answers){outputs[0], batch->y, 0};
    return (clef__answers){clef_reshape(outputs[0], CLEF_SHAPE(n, x.dim[t.rank])), clef_reshape(batch->y, CLEF_SHAPE(n)), t.dim[0]};
}

static int count_targets(const clef_loader *loader) {
    const clef_dataset *data = clef_loader_dataset(loader);
    int n = 0;
    for (int i = 0; i < clef_dataset_field_count(data); i++) n += clef_dataset_field(data, i).target;
    return n;
}

/* Has each item several classes as its target? */
static bool is_of_sequences(const clef_loader *loader) {
    const clef_dataset *data = clef_loader_dataset(loader);
    for (int i = 0; i < clef_dataset_field_count(data); i++) {
        clef_field f = clef_dataset_field(data, i);
        if (f.target) return f.classes > 0 && f.shape.rank > 0;
    }
    return false;
}

bool clef__is_single(const clef__loss *loss, const clef_loader *loader) {
    return loss->n_outputs == 1 && count_targets(loader) == 1;
}

clef_status clef__loss_check(clef__loss *loss, const clef_module *module, const clef_loader *loader) {
    if (loss->n_outputs < 0 || loss->n_outputs > CLEF_CALL_MOST)
        return clef__fail(loss->ctx, CLEF_INVALID, "%s: n_outputs is %d; give 1 to %d, or 0 for what the module says", loss->op,
                          loss->n_outputs, CLEF_CALL_MOST);
    if (loss->n_outputs == 0) loss->n_outputs = module->n_outputs ? module->n_outputs : 1;
    if (loss->call && loss->fn) return clef__fail(loss->ctx, CLEF_INVALID, "%s: both loss and loss_call; give one", loss->op);
    int targets = count_targets(loader);
    loss->sequences = clef__is_single(loss, loader) && is_of_sequences(loader);
    if (loss->call || (loss->n_outputs == 1 && targets <= 1)) return CLEF_OK;
    return clef__fail(loss->ctx, CLEF_INVALID, "%s: a loss takes one output and one target, not %d and %d; give loss_call",
                      loss->op, loss->n_outputs, targets);
}

clef_dtype clef__loss_autocast(const clef__loss *loss) {
    clef_dtype now = clef_get_autocast(loss->ctx);
    return clef_set_autocast(loss->ctx, loss->autocast == CLEF_F32 ? now : loss->autocast);
}

static clef_status call_where_it_is(const clef__loss *loss, clef_module *module, const clef_batch *batch, clef_tensor **outputs) {
    clef_tensor *inputs[CLEF_CALL_MOST];
    int n = batch->n_inputs;
    if (n > CLEF_CALL_MOST || clef_module_tensors(module) == 0)
        return clef_call(module, batch->inputs, n, outputs, loss->n_outputs);
    int device = clef_tensor_device(clef_module_tensor(module, 0).tensor);
    for (int i = 0; i < n; i++) inputs[i] = clef_to_device(batch->inputs[i], device);
    return clef_call(module, inputs, n, outputs, loss->n_outputs);
}

clef_status clef__batch_outputs(const clef__loss *loss, clef_module *module, const clef_batch *batch, clef_tensor **outputs) {
    clef_dtype was = clef__loss_autocast(loss);
    clef_status status = call_where_it_is(loss, module, batch, outputs);
    clef_set_autocast(loss->ctx, was);
    return status;
}

clef_loss_options clef__loss_options(const clef__loss *loss) {
    clef_loss_options o = loss->options ? *loss->options : (clef_loss_options){0};
    if (!loss->sequences || loss->fn || loss->call) return o;
    o.classes_last = true;
    if (!o.has_ignore_index) o.ignore_index = CLEF_NO_TARGET;
    o.has_ignore_index = true;
    return o;
}

/* Of one output with the batch's y; NULL without a line where that makes no sense. */
static clef_tensor *loss_of(const clef__loss *loss, clef_tensor *output, const clef_batch *batch) {
    clef_shape shape = clef_tensor_shape(output);
    clef_tensor *target = batch->y ? clef_to_device(batch->y, clef_tensor_device(output)) : NULL;
    if (loss->fn) return loss->fn(output, target, loss->options);
    clef_loss_options o = clef__loss_options(loss);
    bool one_class = shape.rank > 1 && shape.dim[o.classes_last ? shape.rank - 1 : 1] == 1;
    return target && !one_class ? clef_cross_entropy(output, target, &o) : NULL;
}

/* A mistake that would go by without a word: NULL that is nobody's error, or a loss that is always 0. */
static void complain(const clef__loss *loss, const clef_batch *batch) {
    const char *fact = "the loss function gave no tensor";
    if (!loss->fn && !loss->call && !batch->y) fact = "the data has no targets, which the default loss, clef_cross_entropy, needs";
    else if (!loss->fn && !loss->call)
        fact = "the default loss, clef_cross_entropy, is always 0 of one output per item; choose another, such as "
               "clef_mse_loss for numbers or clef_bce_with_logits for yes and no";
    clef__fail(loss->ctx, CLEF_INVALID, "%s: %s", loss->op, fact);
}

clef_tensor *clef__batch_loss(const clef__loss *loss, clef_tensor *const *outputs, const clef_batch *batch, double *weight) {
    clef_reduction reduction = loss->options ? loss->options->reduction : CLEF_REDUCE_MEAN;
    clef_dtype was = clef__loss_autocast(loss);
    clef_tensor *value = loss->call ? loss->call(outputs, loss->n_outputs, batch->targets, batch->n_targets, loss->user)
                                    : loss_of(loss, outputs[0], batch);
    if (value && clef_tensor_shape(value).rank > 0) value = clef_mean(value, NULL, 0, false);
    clef_set_autocast(loss->ctx, was);
    if (!value && clef_error_status(loss->ctx) == CLEF_OK) complain(loss, batch);
    *weight = reduction == CLEF_REDUCE_SUM && batch->size > 0 ? 1 : (double)batch->size;
    return value;
}

int64_t clef__batch_items(clef_context *ctx, const clef_batch *batch) {
    clef__share share = clef__share_of(ctx);
    return share.all > 0 ? share.all : batch->size;
}

static clef_tensor *count(clef_tensor *mask) { return clef_sum(clef_to(mask, CLEF_F32), NULL, 0, false); }

/* Sequences weigh as they do in the mean loss, whose places without a target do not count either. */
clef_tensor *clef__right_answers(const clef__answers *a, int device) {
    clef_tensor *target = clef_to_device(clef_to(a->target, CLEF_I64), clef_tensor_device(a->output));
    clef_tensor *right = count(clef_eq(clef_argmax(a->output, 1, false), target));
    if (a->sequences > 0) {
        clef_tensor *answers = clef_clamp(count(clef_ge_scalar(target, 0)), 1, INFINITY);
        right = clef_div(clef_mul_scalar(right, (double)a->sequences), answers);
    }
    return clef_to_device(right, device);
}

/* Replaces the n scalars of this rank by the sums over all. */
static bool sum_over_ranks(const clef__meters *meters, clef_tensor **value, int n) {
    clef_tensor *row[2];
    if (clef_group_size(meters->group) == 1) return true;
    for (int i = 0; i < n; i++) row[i] = clef_reshape(value[i], CLEF_SHAPE(1));
    clef_tensor *sum = clef_all_reduce(clef_concat(row, n, 0), meters->group, CLEF_GROUP_SUM);
    for (int i = 0; i < n; i++) value[i] = clef_reshape(clef_slice(sum, 0, i, i + 1, 1), CLEF_SCALAR);
    return sum != NULL;
}

/* Without recording. */
static clef_tensor *add_sums(clef__meters *meters, clef_tensor *loss, clef_tensor *right) {
    clef_tensor *sum = clef_add(meters->loss, loss);
    clef_tensor *finite = clef_lt_scalar(clef_abs(sum), FLT_MAX);
    clef_tensor *good = clef_add(meters->good, clef_to(finite, CLEF_F32));
    clef_status status = clef_assign(meters->loss, sum);
    if (!status) status = clef_assign(meters->good, good);
    if (!status && right) status = clef_assign(meters->correct, clef_add(meters->correct, right));
    return status ? NULL : finite;
}

clef_tensor *clef__meters_add(clef__meters *meters, const clef__answers *answers, clef_tensor *loss, double weight) {
    clef_tensor *finite = NULL;
    int device = clef_tensor_device(loss);
    bool classes = answers->output != NULL;
    for (CLEF_NO_GRAD(meters->ctx)) {
        clef_status status = clef__meters_follow(meters, loss);
        clef_tensor *value[2] = {weight > 0 ? clef_mul_scalar(clef_to(loss, CLEF_F32), weight)
                                            : clef__constant(meters->ctx, CLEF_SCALAR, CLEF_F32, device, 0)};
        if (classes) value[1] = clef__right_answers(answers, device);
        if (!status && sum_over_ranks(meters, value, 1 + classes)) finite = add_sums(meters, value[0], value[1]);
    }
    return finite;
}

clef_tensor *clef__meters_add_parts(clef__meters *meters, clef_tensor *loss, double weight, clef_tensor *right) {
    clef_tensor *finite = NULL;
    int device = clef_tensor_device(loss);
    for (CLEF_NO_GRAD(meters->ctx))
        if (clef__meters_follow(meters, loss) == CLEF_OK)
            finite = add_sums(meters, clef_mul_scalar(clef_to(loss, CLEF_F32), weight),
                              right ? clef_to_device(clef_to(right, CLEF_F32), device) : NULL);
    return finite;
}
