/* fit.c — the training run: epochs, validation, early stop, callbacks, history.

   A run depends on nothing but the module, the loaders' and the context's seeds and the options: when and how often the
   meters are read changes no bit of the result. */
#include "nn/module.h"
#include "optim/optimizer.h"
#include "train/train_internal.h"
#include <math.h>

static clef_status append(clef__fit *f, clef__train_room *room, const clef_epoch *epoch) {
    if (!clef__grow(&room->epoch, room->history.n, &room->capacity, sizeof *room->epoch))
        return clef__fail(f->ctx, CLEF_MEMORY, "fit: no memory for the history of %d epochs", room->history.n + 1);
    room->epoch[room->history.n++] = *epoch;
    room->history.epoch = room->epoch;
    return CLEF_OK;
}

/* What would end the run after an epoch's work. */
static clef_status check_files(clef_module *module, const clef_fit_options *o) {
    clef_context *ctx = clef_module_context(module);
    for (int i = 0; i < clef_module_tensors(module); i++)
        if (clef__has_average(ctx, clef_module_tensor(module, i).tensor)) return clef__refuse_averages(ctx, "fit");
    return clef__check_extra(ctx, o);
}

static clef_status check(clef_module *module, const clef_fit_options *o) {
    clef_context *ctx = clef_module_context(module);
    if (!o || !o->train || !o->optimizer) return clef__fail(ctx, CLEF_INVALID, "fit: options need a train loader and an optimizer");
    if (clef_dataset_context(clef_loader_dataset(o->train)) != ctx || clef_optimizer_context(o->optimizer) != ctx ||
        (o->test && clef_dataset_context(clef_loader_dataset(o->test)) != ctx))
        return clef__fail(ctx, CLEF_INVALID, "fit: module, loaders and optimizer belong to different contexts");
    if (!(o->clip_norm >= 0)) return clef__fail(ctx, CLEF_INVALID, "fit: clip_norm %g is no norm; 0 means none", o->clip_norm);
    if (o->epochs < 0 || o->accumulate < 0 || o->early_stop_patience < 0 || o->keep < 0 || o->checkpoint_every < 0)
        return clef__fail(ctx, CLEF_INVALID, "fit: a count in the options is negative");
    if (o->averaged ? clef_averaged_context(o->averaged) != ctx : o->test_averaged)
        return clef__fail(ctx, CLEF_INVALID, "fit: %s",
                          o->averaged ? "the averages belong to another context" : "test_averaged needs averaged");
    if (o->scaler && clef__scaler_context(o->scaler) != ctx)
        return clef__fail(ctx, CLEF_INVALID, "fit: the grad scaler belongs to another context");
    if (o->autocast != CLEF_F32 && o->autocast != CLEF_F16 && o->autocast != CLEF_BF16)
        return clef__fail(ctx, CLEF_DTYPE, "fit: autocast is %s; give CLEF_F16 or CLEF_BF16, or nothing for the context's setting",
                          clef_dtype_name(o->autocast));
    if ((o->resume || o->keep || o->checkpoint_every) && !o->checkpoint_dir)
        return clef__fail(ctx, CLEF_INVALID, "fit: resume, keep and checkpoint_every need checkpoint_dir");
    if (o->schedule && o->schedule->o.kind == CLEF_SCHEDULE_PLATEAU && o->schedule->o.maximize)
        return clef__fail(ctx, CLEF_INVALID,
                          "fit: the schedule is a plateau that maximizes, and fit tells it a loss; leave it out and call "
                          "clef_schedule_metric in on_epoch");
    clef_status status = check_files(module, o);
    return status ? status : clef_error_status(ctx);
}

/* The loss, which fits the module and both loaders. */
static clef_status choose_loss(clef__fit *f) {
    const clef_fit_options *o = f->o;
    f->loss = (clef__loss){.ctx = f->ctx,
                           .op = "fit",
                           .fn = o->loss,
                           .options = o->loss_options,
                           .call = o->loss_call,
                           .user = o->user,
                           .n_outputs = o->n_outputs,
                           .autocast = o->autocast};
    clef_status status = o->test ? clef__loss_check(&f->loss, f->module, o->test) : CLEF_OK;
    if (!status) status = clef__loss_check(&f->loss, f->module, o->train); /* last: it notes what the data is like */
    f->has_classes = clef_dataset_classes(clef_loader_dataset(o->train)) > 0 && clef__is_single(&f->loss, o->train);
    return status;
}

static void on_compile(void *user, int done, int total) {
    clef__fit *f = user;
    f->progress.compiling = done;
    f->progress.to_compile = total;
    clef__bar_progress(&f->bar, &f->progress);
    if (!pthread_equal(pthread_self(), f->thread))
        return; /* kernels are compiled by several threads, callbacks come from this one */
    if (f->o->on_progress && !f->o->on_progress(f->o->user, &f->progress)) f->wants_stop = true;
}

static clef_status check_optimizer(clef__fit *f) {
    int own = 0, averaged = 0;
    for (int i = 0; i < f->n_leaves; i++) {
        own += clef__optimizer_has(f->o->optimizer, f->leaf[i]);
        averaged += f->o->averaged && clef__averaged_has(f->o->averaged, f->leaf[i]);
    }
    f->others = own < f->n_leaves;
    if (f->o->averaged && averaged == 0)
        return clef__fail(f->ctx, CLEF_INVALID,
                          "fit: the averages are of none of the module's parameters; make them of this module");
    if (own > 0) return CLEF_OK;
    return clef__fail(f->ctx, CLEF_INVALID, "fit: the optimizer trains none of the module's parameters; make one for this module");
}

static void forget_leaves(clef__fit *f) {
    for (int i = 0; i < f->n_leaves; i++) clef_release(f->leaf[i]);
    clef__free(f->leaf);
    f->leaf = NULL;
    f->n_leaves = 0;
}

/* Anew for every epoch, as a callback may have replaced, frozen or thawed some. */
static clef_status collect_leaves(clef__fit *f) {
    int n = clef_module_tensors(f->module);
    forget_leaves(f);
    f->leaf = clef__calloc((size_t)(n ? n : 1), sizeof *f->leaf);
    if (!f->leaf) return clef__fail(f->ctx, CLEF_MEMORY, "fit: no memory for a list of %d parameters", n);
    for (int i = 0; i < n; i++) {
        clef_tensor *t = clef_module_tensor(f->module, i).tensor;
        if (clef_requires_grad(t)) f->leaf[f->n_leaves++] = clef_keep(t);
    }
    return f->n_leaves ? check_optimizer(f) : clef__fail(f->ctx, CLEF_INVALID, "fit: the module has no parameter to train");
}

static clef_status begin_fit(clef__fit *f) {
    const clef_fit_options *o = f->o;
    f->epochs = o->epochs > 0 ? o->epochs : 1;
    f->best_metric = INFINITY;
    f->first_loss = NAN;
    f->thread = pthread_self();
    f->progress = (clef_progress){
        .epoch = 1, .epochs = f->epochs, .batches = clef_loader_batches(o->train), .loss = NAN, .accuracy = NAN, .eta = NAN};
    clef_status status = clef__begin_together(f);
    clef__bar_init(&f->bar, clef__speaks(f) ? o->bar : NULL);
    clef_on_compile(f->ctx, on_compile, f);
    if (!status) status = choose_loss(f);
    if (!status) status = collect_leaves(f);
    if (!status && !clef__meters_open(&f->meters, f->ctx, f->parts ? NULL : f->data)) status = clef_error_status(f->ctx);
    if (!status && o->checkpoint_dir) status = clef__by_first(f, clef__checkpoint_begin); /* not after an epoch's work */
    if (!status && o->resume) status = clef__checkpoint_resume(f);
    if (!status) status = clef__by_first(f, clef__csv_begin);
    return status;
}

clef_status clef__as_tested(clef__fit *f, clef_status (*act)(clef__fit *f)) {
    if (!f->o->test_averaged) return act(f);
    clef_status status = clef_averaged_use(f->o->averaged, true);
    f->as_averaged = true;
    if (!status) status = act(f);
    f->as_averaged = false;
    clef_status back = clef_averaged_use(f->o->averaged, false); /* also after a failure: callers may go on */
    return status ? status : back;
}

static clef_status validate(clef__fit *f, clef_epoch *epoch) {
    clef__score score;
    if (!f->o->test) return CLEF_OK;
    clef_status status = clef__score_loader(f->module, f->o->test, &f->loss, 1, NULL, &score);
    if (!status) status = clef__share_score(f, &score);
    epoch->test_loss = score.loss;
    epoch->test_accuracy = score.accuracy;
    return status;
}

static bool patience_is_over(const clef__fit *f) {
    return f->o->early_stop_patience > 0 && f->bad_epochs >= f->o->early_stop_patience;
}

/* Is this the best epoch so far?  By test loss, or training loss where there is no test. */
static bool judge(clef__fit *f, const clef_epoch *epoch) {
    double metric = f->o->test ? epoch->test_loss : epoch->loss;
    bool improved = metric < f->best_metric;
    if (improved) f->best_metric = metric;
    f->bad_epochs = improved ? 0 : f->bad_epochs + 1;
    return improved;
}

static clef_status tick_schedule(clef__fit *f, const clef_epoch *epoch) {
    if (!f->o->schedule) return CLEF_OK;
    clef_status status = clef_schedule_metric(f->o->schedule, f->o->test ? epoch->test_loss : epoch->loss);
    return status || f->o->schedule_per_step ? status : clef_schedule_tick(f->o->schedule);
}

static clef_status write_line(clef__fit *f) { return f->o->csv ? clef__csv_line(f) : CLEF_OK; }

/* Of an epoch that is over. */
static clef_status write_files(clef__fit *f) {
    clef_status told = clef__by_first(f, write_line); /* first: a resumed run would not write it again */
    clef_status status = f->o->checkpoint_dir ? clef__checkpoint_epoch(f) : CLEF_OK;
    return status ? status : told;
}

static clef_status test_epoch(clef__fit *f) {
    clef_status status = validate(f, f->ended);
    if (status) return status;
    f->improved = judge(f, f->ended);
    return f->improved && f->o->early_stop_patience > 0 ? clef__best_remember(f) : CLEF_OK;
}

static void tell_epoch(clef__fit *f) {
    if (f->o->on_epoch && !f->o->on_epoch(f->o->user, f->ended)) f->wants_stop = true;
}

/* What follows the batches of an epoch. */
static clef_status end_epoch(clef__fit *f, clef__train_room *room, clef_epoch *epoch) {
    f->ended = epoch;
    clef_status status = clef__share_module(f);
    if (!status) status = clef__as_tested(f, test_epoch);
    if (status) return status;
    f->done++;
    f->batch = 0;
    status = tick_schedule(f, epoch);
    bool early = f->o->n_extra > 0; /* the program's own values lie in the files as the callback left them */
    if (!status && early) tell_epoch(f);
    if (!status) status = write_files(f);
    if (!status) status = append(f, room, epoch);
    if (status) return status;
    clef__bar_epoch(&f->bar, epoch, f->epochs);
    if (!early) tell_epoch(f);
    status = clef__agree_on_end(f);
    f->stopped |= f->must_stop;
    f->interrupted |= f->must_interrupt;
    return status;
}

static clef_status run_epochs(clef__fit *f, clef__train_room *room) {
    clef_status status = begin_fit(f);
    while (!status && f->done < f->epochs && !f->stopped && !f->interrupted && !patience_is_over(f)) {
        clef_epoch epoch = {0};
        clef__module_lead(f->module, true);
        if (f->done > 0) status = collect_leaves(f);
        if (!status) status = clef__train_epoch(f, &epoch);
        bool whole = f->batch == clef_loader_batches(f->o->train);
        if (!status && whole) status = end_epoch(f, room, &epoch);
        else if (!status && f->o->pipeline) status = clef__share_module(f); /* the end, within an epoch */
    }
    if (!status) status = clef_error_status(f->ctx); /* of a callback after the last batch */
    if (status || f->interrupted || !patience_is_over(f)) return status;
    room->history.stopped_early = true;
    return clef__best_restore(f);
}

static void finish(clef__fit *f) {
    clef_on_compile(f->ctx, NULL, NULL);
    clef__bar_close(&f->bar);
    clef__meters_close(&f->meters);
    clef__best_forget(f);
    clef__checkpoint_unlock(f);
    forget_leaves(f);
}

/* Of all epochs together; where every interval had something to compile, that of the last one. */
static double overall_speed(const clef__fit *f, const clef__train_room *room) {
    if (f->busy_items > 0 && f->busy_seconds > 0) return f->busy_items / f->busy_seconds;
    return room->history.n > 0 ? room->epoch[room->history.n - 1].items_per_second : 0;
}

clef_status clef_fit(clef_module *module, const clef_fit_options *options, const clef_history **history) {
    if (history) *history = NULL;
    if (!module) return CLEF_INVALID;
    clef_context *ctx = clef_module_context(module);
    clef_status status = check(module, options);
    if (status) return status;
    clef__train_room *room = clef__train_room_of(ctx);
    if (!room) return clef__fail(ctx, CLEF_MEMORY, "fit: no memory for the history");
    room->history = (clef_history){.epoch = room->epoch};
    double start = clef__now(), compiled = clef_counters_get(ctx).compile_seconds;
    bool training = clef__module_lead(module, true);
    clef__fit f = {.module = module, .o = options, .ctx = ctx, .lock = -1};
    status = run_epochs(&f, room);
    finish(&f);
    clef__module_lead(module, training);
    room->history.seconds = clef__now() - start;
    room->history.compile_seconds = clef_counters_get(ctx).compile_seconds - compiled;
    room->history.items_per_second = overall_speed(&f, room);
    room->history.interrupted = f.interrupted;
    room->history.resumed_at = f.resumed_at;
    if (history) *history = &room->history;
    return status ? status : f.interrupted ? CLEF_INTERRUPTED : CLEF_OK;
}
