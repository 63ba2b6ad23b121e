/* epoch.c — the training half of an epoch.

   The host runs ahead of the device: a step is queued, not waited for.  The meters are read (which waits) only every
   `sync_every` steps, a number that adapts so that readings are about a quarter of a second apart: often enough for a
   progress bar, Ctrl-C and the check for NaN, and rare enough to keep the queue full.

   From the first loss that is no finite number on, no step changes anything, which the device sees to (clef__step_if): by the time the
   host notices, the parameters are still those that produced it, and the culprit can be found.

   Several ranks do all of this at the same steps: how many of them lie between two readings is rank 0's to say. */
#include "train/train_internal.h"
#include "optim/optimizer.h"
#include "parallel/parts.h"
#include <math.h>

static const double read_interval = 0.25;

static int accumulation(const clef__fit *f) { return f->o->accumulate > 1 ? f->o->accumulate : 1; }

/* Parameters of the module that the optimizer does not train: their gradients would add up for ever, and count in the norm. */
static void drop_gradients_of_others(clef__fit *f) {
    for (int i = 0; i < f->n_leaves; i++)
        if (!clef__optimizer_has(f->o->optimizer, f->leaf[i])) clef_set_grad(f->leaf[i], CLEF_NONE);
}

/* By the norm of all gradients of the module, wherever they are. */
static void clip(clef__fit *f) {
    double most = f->o->clip_norm;
    if (f->o->scaler) clef_grad_scaler_clip_norm(f->o->scaler, f->module, most);
    else if (f->o->pipeline) clef_pipeline_clip_grad_norm(f->o->pipeline, most);
    else if (f->shards) clef_shard_clip_grad_norm(f->module, most);
    else clef_clip_grad_norm(f->module, most);
}

/* The gradients are waited for, so the host may ask for the losses, too: a step is left out because of gradients, after which
   the next one is tried, or because of a loss, after which nothing changes any more, the scale neither.  Whether it was taken: *taken. */
static clef_status scaled_step(clef__fit *f, clef_tensor *finite, bool *taken) {
    clef_grad_scaler *scaler = f->o->scaler;
    double all = 0;
    for (CLEF_NO_GRAD(f->ctx)) all = clef_item(finite);
    *taken = all == 1;
    if (clef_error_status(f->ctx)) return clef_error_status(f->ctx);
    if (!*taken) return clef__skip_step(f->o->optimizer);
    clef_status status = clef_grad_scaler_step(scaler, f->o->optimizer);
    *taken = !clef__scaler_skipped(scaler);
    if (!status) clef_grad_scaler_update(scaler);
    return status;
}

static clef_status optimizer_step(clef__fit *f, clef_tensor *finite) {
    bool taken = true;
    if (f->others) drop_gradients_of_others(f);
    if (f->o->clip_norm > 0) clip(f);
    f->pending = 0;
    f->lr = clef_learning_rate(f->o->optimizer);
    clef_status status = f->o->scaler ? scaled_step(f, finite, &taken)
                                      : clef__step_if(f->o->optimizer, finite); /* `finite` is that of all ranks' losses */
    if (!status && taken && f->o->averaged) status = clef__averaged_update_if(f->o->averaged, finite);
    if (!status && f->o->schedule && f->o->schedule_per_step) status = clef_schedule_tick(f->o->schedule);
    return status;
}

/* What backward begins with.  Gradients of ranks are averaged, weighted by items: of a loss that is a sum, that gives the sum over all once
   it is divided by this weight. */
static clef_tensor *part_of_step(const clef__fit *f, const clef_batch *batch, clef_tensor *loss, int accumulate) {
    const clef_loss_options *o = f->loss.options;
    if (accumulate > 1) loss = clef_mul_scalar(loss, 1.0 / accumulate);
    if (clef_group_size(f->data) == 1 || f->loss.call || !o || o->reduction != CLEF_REDUCE_SUM || batch->size == 0) return loss;
    return clef_mul_scalar(loss, (double)clef__batch_items(f->ctx, batch) / (double)batch->size);
}

/* Forward, loss, meters and backward of a batch; *finite: all losses so far are. */
static clef_status whole_batch(clef__fit *f, const clef_batch *batch, clef_tensor **finite) {
    double weight;
    clef_tensor *output[CLEF_CALL_MOST];
    clef_status status = clef__batch_outputs(&f->loss, f->module, batch, output);
    clef_tensor *loss = status ? NULL : clef__batch_loss(&f->loss, output, batch, &weight);
    if (!loss) return clef_error_status(f->ctx);
    clef__answers answers = clef__answers_of(&f->loss, output, batch);
    *finite = clef__meters_add(&f->meters, &answers, loss, weight);
    if (!*finite) return clef_error_status(f->ctx);
    loss = part_of_step(f, batch, loss, accumulation(f));
    return clef_backward(f->o->scaler ? clef_grad_scaler_scale(f->o->scaler, loss) : loss);
}

/* Through the stages: the loss is that of all of them, on all ranks. */
static clef_status batch_in_stages(clef__fit *f, const clef_batch *batch, clef_tensor **finite) {
    clef_tensor *loss;
    clef_loss_options options = clef__loss_options(&f->loss);
    clef_dtype was = clef__loss_autocast(&f->loss);
    clef_status status =
        clef_pipeline_step(f->o->pipeline, batch->x, batch->y, f->o->loss ? f->o->loss : clef_cross_entropy, &options, &loss);
    clef_set_autocast(f->ctx, was);
    if (status) return status;
    *finite = clef__meters_add(&f->meters, &(clef__answers){0}, loss, (double)batch->size);
    return *finite ? CLEF_OK : clef_error_status(f->ctx);
}

/* ---- a batch in parts ---- */

typedef struct parted {
    clef__fit *f;
    clef_tensor *right; /* answers of the part, then of all */
} parted;

/* Is the loss of a batch the sum of its parts' losses, and not a mean over their items? */
static bool is_sum(const clef__fit *f) {
    const clef_loss_options *o = f->loss.options;
    return !f->loss.call && o && o->reduction == CLEF_REDUCE_SUM;
}

/* Parts are weighted by items: that gives a sum once it is divided by this weight. */
static clef_tensor *part_loss(clef_module *net, const clef_batch *part, void *user) {
    parted *p = user;
    clef__fit *f = p->f;
    double weight;
    clef_tensor *output[CLEF_CALL_MOST];
    if (clef__batch_outputs(&f->loss, net, part, output)) return NULL;
    clef_tensor *loss = clef__batch_loss(&f->loss, output, part, &weight);
    if (!loss) return NULL;
    for (CLEF_NO_GRAD(f->ctx)) {
        clef__answers answers = clef__answers_of(&f->loss, output, part);
        p->right = answers.output ? clef__right_answers(&answers, clef_tensor_device(loss)) : NULL;
    }
    double scale = is_sum(f) ? (double)part->all / (double)part->size : 1;
    return clef_mul_scalar(loss, scale / accumulation(f));
}

static clef_status batch_in_parts(clef__fit *f, const clef_batch *batch, clef_tensor **finite) {
    parted p = {.f = f};
    clef_tensor *loss;
    clef_parts_options o = {.group = f->group, .parts = f->parts};
    clef_status status = clef__backward_parts(f->module, batch, part_loss, &p, &o, &loss, &p.right);
    if (status) return status;
    *finite = clef__meters_add_parts(&f->meters, loss, (is_sum(f) ? 1 : (double)batch->all) * accumulation(f),
                                     f->has_classes ? p.right : NULL);
    return *finite ? CLEF_OK : clef_error_status(f->ctx);
}

/* One batch, and a step when enough gradients are gathered. */
static clef_status train_batch(clef__fit *f, const clef_batch *batch) {
    int accumulate = accumulation(f);
    clef_tensor *finite;
    clef_status status = f->o->pipeline ? batch_in_stages(f, batch, &finite)
                         : f->parts     ? batch_in_parts(f, batch, &finite)
                                        : whole_batch(f, batch, &finite);
    if (status) return status;
    bool last = batch->index + 1 == clef_loader_batches(f->o->train);
    /* The whole batch is evaluated before the meters may be read, at times that depend on the clock: else the forward half would be
       a plan of its own then, and round otherwise. */
    return ++f->pending == accumulate || last ? optimizer_step(f, finite) : clef_end_step(f->ctx);
}

/* Closes the interval since the last reading.  One in which kernels were compiled says nothing about speed. */
static void close_interval(clef__fit *f, double now) {
    double compiled = clef_counters_get(f->ctx).compile_seconds;
    if (compiled > f->compiled) {
        f->compile_wall += now - f->sync_time;
        f->compile_items += f->items - f->sync_items;
    }
    f->compiled = compiled;
    f->sync_time = now;
    f->sync_items = f->items;
    f->since_sync = 0;
}

/* Sets how many steps make about one reading interval, at most twice as many as before. */
static void adapt(clef__fit *f, double now) {
    double per_step = (now - f->sync_time) / (double)f->since_sync;
    int64_t wanted = per_step > 0 ? (int64_t)fmin(read_interval / per_step, 1e6) : 1000000;
    int64_t limit = f->sync_every * 2;
    f->sync_every = wanted < 1 ? 1 : wanted > limit ? limit : wanted;
}

/* Items per second of the epoch so far, without the intervals of compiling; 0 if there was nothing else yet. */
static double speed(const clef__fit *f, double now) {
    double seconds = now - f->epoch_start - f->compile_wall;
    return seconds > 0 ? (double)(f->items - f->first_item - f->compile_items) / seconds : 0;
}

/* Outputs of a pipeline are those of its last stage. */
static bool has_accuracy(const clef__fit *f) { return f->has_classes && !f->o->pipeline; }

static bool report(clef__fit *f, const clef__meter_values *values, double now) {
    clef_progress *p = &f->progress;
    int64_t left = p->batches - f->batch;
    double rate = speed(f, now);
    p->epoch = f->done + 1;
    p->epochs = f->epochs;
    p->batch = f->batch;
    p->items = f->items;
    p->loss = values->loss / (double)f->items;
    p->accuracy = has_accuracy(f) ? values->correct / (double)f->items : NAN;
    p->items_per_second = rate;
    p->eta = rate > 0 ? (double)f->items / (double)f->batch * (double)left / rate : NAN;
    p->compiling = p->to_compile = 0;
    clef__bar_progress(&f->bar, p);
    return !f->o->on_progress || f->o->on_progress(f->o->user, p);
}

/* A loss that has grown beyond every reason is still a finite number, and will not come back. */
static clef_status check_growth(clef__fit *f, double loss) {
    static const double beyond_reason = 1e6;
    if (isnan(f->first_loss)) f->first_loss = loss;
    if (loss <= beyond_reason * (1 + fabs(f->first_loss))) return CLEF_OK;
    return clef__fail(f->ctx, CLEF_INVALID,
                      "fit: training diverges: the mean loss of epoch %lld is %.3g after batch %lld, and was "
                      "%.3g at first; try a lower learning rate (now %g) or clip_norm",
                      (long long)f->done + 1, loss, (long long)f->batch, f->first_loss, f->lr);
}

/* Behind `good` batches of this epoch no step changed anything: updates of averages that were not taken do not count.  With a scaler
   none was begun. */
static void forget_updates(clef__fit *f, int64_t good) {
    if (!f->o->averaged || f->o->scaler) return;
    int64_t each = accumulation(f), batches = f->batch - f->first_batch;
    bool whole = f->batch == clef_loader_batches(f->o->train);
    int64_t steps = (whole ? batches + each - 1 : batches) / each;
    clef_averaged_set(f->o->averaged, clef_averaged_updates(f->o->averaged) - (steps - good / each));
}

clef_status clef__refuse_loss(clef__fit *f, const clef__meter_values *values) {
    forget_updates(f, (int64_t)values->good);
    return clef__diagnose(f, (int64_t)values->good);
}

/* Reads the meters and checks them. */
static clef_status read_meters(clef__fit *f, clef__meter_values *values) {
    clef_status status = clef__read_sums(f, values);
    if (status) return status;
    if (!isfinite(values->loss)) return clef__refuse_loss(f, values);
    return check_growth(f, values->loss / (double)f->items);
}

/* Reads the meters and tells whoever listens. */
static clef_status look(clef__fit *f, clef__meter_values *values) {
    clef_status status = read_meters(f, values);
    if (status) return status;
    double now = clef__now();
    adapt(f, now);
    close_interval(f, now);
    if (!report(f, values, now)) f->wants_stop = true;
    return CLEF_OK;
}

/* Ranks meet when all of them read the meters, one alone asks itself after every batch. */
static clef_status read_and_agree(clef__fit *f) {
    clef__meter_values values;
    bool due = ++f->since_sync >= f->sync_every;
    clef_status status = due ? look(f, &values) : CLEF_OK;
    return !status && (due || clef__is_alone(f)) ? clef__agree_on_end(f) : status;
}

/* Steps lie `accumulate` batches apart, so that one may pass the batch at which a checkpoint is due. */
static bool is_checkpoint_due(const clef__fit *f) {
    int64_t every = f->o->checkpoint_every;
    return every > 0 && f->batch / every > (f->batch - accumulation(f)) / every;
}

static clef_status between_batches(clef__fit *f) {
    bool inside = f->batch < clef_loader_batches(f->o->train);
    clef_status status = read_and_agree(f);
    if (status || f->pending > 0 || !inside) return status;
    f->stopped |= f->must_stop;
    f->interrupted |= f->must_interrupt;
    if (f->o->checkpoint_dir && (f->interrupted || f->stopped || is_checkpoint_due(f))) status = clef__checkpoint_inside(f);
    return status;
}

/* A resumed epoch goes on with the sums it had; any other starts from zero. */
static clef_status begin_epoch(clef__fit *f) {
    clef_status status = CLEF_OK;
    if (!f->resumed_inside) {
        f->batch = f->items = 0;
        f->first_batch = clef_loader_get(f->o->train).batch; /* the program may have taken some of the first epoch */
        status = clef__meters_set(&f->meters, (clef__meter_values){0});
    }
    f->resumed_inside = false;
    f->pending = 0;
    f->since_sync = f->compile_items = 0;
    f->sync_every = f->sync_every > 1 ? f->sync_every : 1;
    f->first_item = f->sync_items = f->items;
    f->compile_wall = 0;
    f->lr = clef_learning_rate(f->o->optimizer);
    f->compiled = clef_counters_get(f->ctx).compile_seconds;
    f->epoch_start = f->sync_time = clef__now();
    return status;
}

static void fill_result(clef__fit *f, const clef__meter_values *values, clef_epoch *result) {
    double now = clef__now();
    close_interval(f, now);
    *result = (clef_epoch){.epoch = f->done + 1, .test_loss = NAN, .test_accuracy = NAN, .seconds = now - f->epoch_start};
    result->loss = values->loss / (double)f->items;
    result->accuracy = has_accuracy(f) ? values->correct / (double)f->items : NAN;
    result->items_per_second = speed(f, now);
    if (result->items_per_second <= 0) result->items_per_second = (double)(f->items - f->first_item) / result->seconds;
    result->lr = f->lr;
    f->busy_items += (double)(f->items - f->first_item - f->compile_items);
    f->busy_seconds += result->seconds - f->compile_wall;
}

clef_status clef__train_epoch(clef__fit *f, clef_epoch *result) {
    clef_batch batch;
    clef__meter_values values;
    clef_status status = begin_epoch(f);
    while (!status && !f->interrupted && !f->stopped && clef_next(f->o->train, &batch)) {
        status = train_batch(f, &batch);
        f->batch = batch.index + 1;
        f->items += clef__batch_items(f->ctx, &batch);
        if (!status) status = between_batches(f);
    }
    if (!status) status = clef_error_status(f->ctx);
    bool cut = (f->interrupted || f->stopped) && f->batch < clef_loader_batches(f->o->train);
    if (status || cut) return status;
    if (f->items == 0)
        return clef__fail(f->ctx, CLEF_INVALID,
                          "fit: the training loader gives no batch; is drop_last "
                          "set with fewer items than a batch?");
    status = read_meters(f, &values);
    if (!status) fill_result(f, &values, result);
    return status;
}
