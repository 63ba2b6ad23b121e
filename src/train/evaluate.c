/* evaluate.c — loss, accuracy, top-k accuracy and the confusion matrix over a loader.

   One batch's outputs are read while the next batch is already queued, so the device does not wait for the host.  Every
   evaluation starts at the loader's first epoch: the same module gives the same digits. */
#include "graph/graph.h"
#include "group/group.h"
#include "nn/module.h"
#include "parallel/parts.h"
#include "train/train_internal.h"
#include "clef/pointwise.h"
#include <math.h>

/* A batch whose outputs are queued but not yet looked at: logits, or for sequences, which have many, what is counted of them. */
typedef struct pending_batch {
    clef_tensor *output, *guess, *in_top, *target;
    int64_t size, classes; /* size: answers */
} pending_batch;

typedef struct evaluation {
    clef_context *ctx;
    clef__meters *meters; /* of the batches; where they are in parts, one for each part that is this rank's */
    int n_meters, parts;  /* 0 parts: batches are scored whole */
    clef_tensor **own;    /* the tensors of a part */
    clef_group *group;    /* that shares the loader's batches; NULL: one rank */
    int64_t *confusion, classes, items, answers, right, among_top; /* answers: targets that are a class */
    bool has_classes, sequences;
    int top;
    float *logits; /* room for one batch on the host */
    int64_t *truth, *guess;
    uint8_t *in_top;
    size_t logits_size, truth_size, guess_size, in_top_size;
} evaluation;

static bool grow(void **memory, size_t *size, size_t wanted) {
    if (wanted <= *size) return true;
    void *grown = clef__realloc(*memory, wanted);
    if (!grown) return false;
    *memory = grown;
    *size = wanted;
    return true;
}

/* Index of the first largest; NaN is larger than any number, as on the device. */
static int64_t argmax(const float *x, int64_t n) {
    int64_t best = 0;
    for (int64_t i = 1; i < n && !isnan(x[best]); i++)
        if (x[i] > x[best] || isnan(x[i])) best = i;
    return best;
}

/* Is class c among the `top` largest?  Equal values rank by index. */
static bool in_top(const float *x, int64_t n, int64_t c, int top) {
    int above = 0;
    if (isnan(x[c])) return false;
    for (int64_t i = 0; i < n && above < top; i++) above += x[i] > x[c] || (x[i] == x[c] && i < c);
    return above < top;
}

/* Reads an array, once there is room for it. */
static clef_status read_into(evaluation *e, clef_tensor *from, void **memory, size_t *size) {
    size_t bytes = (size_t)clef_numel(from) * clef_dtype_size(clef_tensor_dtype(from));
    if (!grow(memory, size, bytes))
        return clef__fail(e->ctx, CLEF_MEMORY, "evaluate: no memory for the %zu bytes of a batch's answers", bytes);
    return clef_read(from, *memory, bytes);
}

static clef_status read_batch(evaluation *e, const pending_batch *p) {
    clef_status status = read_into(e, p->target, (void **)&e->truth, &e->truth_size);
    if (!status && p->output) return read_into(e, p->output, (void **)&e->logits, &e->logits_size);
    if (!status) status = read_into(e, p->guess, (void **)&e->guess, &e->guess_size);
    return status ? status : read_into(e, p->in_top, (void **)&e->in_top, &e->in_top_size);
}

static clef_status count_batch(evaluation *e, const pending_batch *p) {
    clef_status status = read_batch(e, p);
    for (int64_t i = 0; i < p->size && !status; i++) {
        const float *x = p->output ? e->logits + i * p->classes : NULL;
        int64_t y = e->truth[i], guess = x ? argmax(x, p->classes) : e->guess[i];
        if (y < 0 || y >= p->classes) continue;
        e->answers++;
        e->right += guess == y;
        e->among_top += x ? in_top(x, p->classes, y, e->top) : e->in_top[i];
        if (e->confusion && y < e->classes && guess < e->classes) e->confusion[y * e->classes + guess]++;
    }
    return status;
}

/* in_top on the device, of x [n,c] and classes y [n]; NaN is above nothing and below nothing, here too. */
static clef_tensor *among_top(clef_tensor *x, clef_tensor *y, int top) {
    clef_shape shape = clef_tensor_shape(x);
    y = clef_reshape(clef_clamp(y, 0, (double)(shape.dim[1] - 1)), CLEF_SHAPE(shape.dim[0], 1));
    clef_tensor *own = clef_gather(x, 1, y), *k = clef_arange(clef_tensor_context(x), 0, (double)shape.dim[1], 1, CLEF_I64);
    k = clef_reshape(clef_to_device(k, clef_tensor_device(x)), CLEF_SHAPE(1, shape.dim[1]));
    clef_tensor *above = clef_logical_or(clef_gt(x, own), clef_logical_and(clef_eq(x, own), clef_lt(k, y)));
    clef_tensor *n_above = clef_sum(clef_to(above, CLEF_I64), (int[]){1}, 1, true);
    return clef_logical_and(clef_lt_scalar(n_above, top), clef_eq(own, own));
}

/* What is to be read of a batch. */
static void queue_answers(const evaluation *e, const clef__answers *a, pending_batch *p) {
    p->size = clef_tensor_shape(a->output).dim[0];
    p->classes = clef_tensor_shape(a->output).dim[1];
    p->target = clef_to(a->target, CLEF_I64);
    if (!e->sequences) {
        p->output = clef_to(a->output, CLEF_F32);
        return;
    }
    p->guess = clef_argmax(a->output, 1, false);
    p->in_top = among_top(a->output, clef_to_device(p->target, clef_tensor_device(a->output)), e->top);
}

static clef_status queue_batch(evaluation *e, clef_module *module, const clef_batch *batch, const clef__loss *loss,
                               clef__meters *meters, pending_batch *p) {
    double weight;
    clef_tensor *outputs[CLEF_CALL_MOST];
    clef_status status = clef__batch_outputs(loss, module, batch, outputs);
    clef_tensor *value = status ? NULL : clef__batch_loss(loss, outputs, batch, &weight);
    if (!value) return clef_error_status(e->ctx);
    status = clef__meters_follow(meters, value);
    if (!status && weight > 0) status = clef_assign(meters->loss, clef_add(meters->loss, clef_mul_scalar(value, weight)));
    *p = (pending_batch){0};
    clef__answers answers = clef__answers_of(loss, outputs, batch);
    e->has_classes = answers.output != NULL;
    if (e->has_classes) queue_answers(e, &answers, p);
    clef_tensor *wanted[] = {meters->loss, p->target, p->output ? p->output : p->guess, p->in_top};
    return status ? status : clef_eval_all(wanted, !e->has_classes ? 1 : p->in_top ? 4 : 3);
}

/* Queues a batch and counts the one before it. */
static clef_status score_batch(evaluation *e, clef_module *module, const clef_batch *batch, const clef__loss *loss,
                               clef__meters *meters, pending_batch *before) {
    pending_batch now;
    clef_status status = queue_batch(e, module, batch, loss, meters, &now);
    if (!status && before->size > 0) status = count_batch(e, before);
    *before = now;
    return status;
}

/* Nothing waits for the next batch, which may have no items for this rank: outputs end with the step after theirs. */
static clef_status score_parts(evaluation *e, clef_module *module, const clef_batch *batch, const clef__loss *loss,
                               pending_batch *before) {
    clef_batch part;
    clef_status status = CLEF_OK;
    int first = clef_group_rank(e->group) * e->n_meters;
    for (int i = 0; i < e->n_meters && !status; i++) {
        status = clef__part_of(e->ctx, batch, e->parts, first + i, e->own, &part);
        if (!status && part.size > 0) status = score_batch(e, module, &part, loss, &e->meters[i], before);
    }
    if (!status && before->size > 0) status = count_batch(e, before);
    before->size = 0;
    return status;
}

static clef_status over_batches(evaluation *e, clef_module *module, clef_loader *loader, const clef__loss *loss) {
    pending_batch before = {0};
    clef_batch batch;
    clef_status status = CLEF_OK;
    while (!status && clef_next(loader, &batch)) {
        status =
            e->parts ? score_parts(e, module, &batch, loss, &before) : score_batch(e, module, &batch, loss, e->meters, &before);
        e->items += clef__batch_items(e->ctx, &batch);
    }
    if (!status) status = clef_error_status(e->ctx);
    return !status && before.size > 0 ? count_batch(e, &before) : status;
}

/* ---- the ranks that share the batches: each scored its part ---- */
typedef struct counts {
    int64_t answers, right, among_top;
} counts;

static clef_status no_memory(const evaluation *e) {
    return clef__fail(e->ctx, CLEF_MEMORY, "evaluate: no memory for the counts of %d ranks", clef_group_size(e->group));
}

/* The sum of all meters of all ranks, in their order. */
static clef_status add_losses(const evaluation *e, double *sum) {
    int n = e->n_meters, all = n * clef_group_size(e->group);
    double *loss = clef__calloc((size_t)(n + all), sizeof *loss);
    clef_status status = loss ? CLEF_OK : no_memory(e);
    for (int i = 0; i < n && !status; i++) {
        clef__meter_values values;
        status = clef__meters_read(&e->meters[i], &values);
        loss[i] = values.loss;
    }
    if (!status) status = clef_group_gather_bytes(e->group, loss, loss + n, (size_t)n * sizeof *loss);
    *sum = 0;
    for (int i = 0; i < all && !status; i++) *sum += loss[n + i];
    clef__free(loss);
    return status;
}

static clef_status add_counts(evaluation *e) {
    counts own = {e->answers, e->right, e->among_top}, *all = clef__calloc((size_t)clef_group_size(e->group), sizeof *all);
    if (!all) return no_memory(e);
    clef_status status = clef_group_gather_bytes(e->group, &own, all, sizeof own);
    e->answers = e->right = e->among_top = 0;
    for (int r = 0; r < clef_group_size(e->group); r++) {
        e->answers += all[r].answers;
        e->right += all[r].right;
        e->among_top += all[r].among_top;
    }
    clef__free(all);
    return status;
}

static clef_status add_confusions(evaluation *e) {
    size_t n = (size_t)(e->classes * e->classes), ranks = (size_t)clef_group_size(e->group);
    int64_t *all = clef__calloc(ranks * n, sizeof *all);
    if (!all) return no_memory(e);
    clef_status status = clef_group_gather_bytes(e->group, e->confusion, all, n * sizeof *all);
    for (size_t i = 0; i < n && !status; i++) {
        e->confusion[i] = 0;
        for (size_t r = 0; r < ranks; r++) e->confusion[i] += all[r * n + i];
    }
    clef__free(all);
    return status;
}

/* Makes the sums those of all ranks. */
static clef_status add_up(evaluation *e, double *loss) {
    clef_status status = add_losses(e, loss);
    if (!e->group) return status;
    if (!status) status = add_counts(e);
    return !status && e->confusion ? add_confusions(e) : status;
}

/* summed: the loss is a sum over answers, not over items. */
static void fill_score(const evaluation *e, double loss, bool summed, clef__score *score) {
    double answers = (double)(e->sequences ? e->answers : e->items);
    score->items = e->items;
    score->answers = e->answers;
    score->classes = e->has_classes ? e->classes : 0;
    score->loss = loss / (summed ? answers : (double)e->items);
    score->perplexity = summed && e->has_classes ? exp(score->loss) : NAN;
    score->accuracy = e->has_classes ? (double)e->right / answers : NAN;
    score->top = e->has_classes ? (double)e->among_top / answers : NAN;
}

static clef_status rewind_loader(clef_loader *loader) {
    clef_loader_state state = clef_loader_get(loader);
    if (state.epoch == 0 && state.batch == 0) return CLEF_OK;
    state.epoch = state.batch = 0;
    return clef_loader_set(loader, state);
}

/* Where a loader stood, and what part of which batch was at work: evaluating comes between them and goes. */
typedef struct standing {
    clef_loader_state place;
    clef__share share;
    int64_t items, all;
} standing;

static standing stand(const evaluation *e, const clef_loader *loader) {
    standing s = {.place = clef_loader_get(loader), .share = clef__share_of(e->ctx)};
    if (e->group) s.items = e->group->items, s.all = e->group->all_items;
    return s;
}

static clef_status stand_again(const evaluation *e, clef_loader *loader, const standing *s) {
    clef_loader_state now = clef_loader_get(loader);
    bool moved = now.epoch != s->place.epoch || now.batch != s->place.batch;
    clef_status status = moved ? clef_loader_set(loader, s->place) : CLEF_OK;
    clef__set_share(e->ctx, s->share);
    if (e->group) clef__group_set_items(e->group, s->items, s->all);
    return status;
}

/* A loss that is no number: is a label to blame?  The outputs are not computed again. */
static clef_status look_at_labels(const evaluation *e, clef_module *module, clef_loader *loader, const clef__loss *loss) {
    clef__bad_label bad;
    clef_tensor *outputs[CLEF_CALL_MOST];
    clef_loss_options options = clef__loss_options(loss);
    int64_t items = 0;
    if (loss->call) return CLEF_OK; /* which target is a label of which output is its own affair */
    clef_status status = rewind_loader(loader);
    for (clef_batch b; !status && clef_next(loader, &b); items += clef__batch_items(e->ctx, &b)) {
        int64_t first = items + clef__share_of(e->ctx).first;
        if (!clef__batch_outputs(loss, module, &b, outputs) && clef__find_bad_label(outputs[0], b.y, &options, &bad))
            status = clef__fail(e->ctx, CLEF_INVALID, "evaluate: label %lld of item %lld " CLEF__BAD_LABEL, (long long)bad.label,
                                (long long)(first + bad.item), (long long)bad.classes, (long long)bad.classes - 1);
    }
    return clef__group_agree(e->group, status ? status : clef_error_status(e->ctx));
}

static clef_status begin(evaluation *e, const clef_loader *loader) {
    const clef_dataset *data = clef_loader_dataset(loader);
    e->parts = clef_loader_parts(loader);
    e->n_meters = e->parts ? e->parts / clef_group_size(e->group) : 1;
    e->meters = clef__calloc((size_t)e->n_meters, sizeof *e->meters);
    e->own = clef__calloc((size_t)clef_dataset_field_count(data) + 1, sizeof *e->own);
    if (!e->meters || !e->own) return clef__fail(e->ctx, CLEF_MEMORY, "evaluate: no memory for %d parts", e->parts);
    for (int i = 0; i < e->n_meters; i++)
        if (!clef__meters_open(&e->meters[i], e->ctx, NULL)) return clef_error_status(e->ctx);
    return CLEF_OK;
}

static void end(evaluation *e) {
    for (int i = 0; e->meters && i < e->n_meters; i++) clef__meters_close(&e->meters[i]);
    clef__free(e->meters);
    clef__free(e->own);
    clef__free(e->logits);
    clef__free(e->truth);
    clef__free(e->guess);
    clef__free(e->in_top);
}

clef_status clef__score_loader(clef_module *module, clef_loader *loader, const clef__loss *of, int top_k, int64_t *confusion,
                               clef__score *score) {
    clef_context *ctx = clef_module_context(module);
    clef__loss loss = *of;
    clef_status status = clef__loss_check(&loss, module, loader);
    /* Sequences may have places that do not count, so batches have means over more or less: sums are added up, of the default loss. */
    clef_loss_options options = clef__loss_options(&loss);
    bool summed = loss.sequences && !loss.fn && !loss.call && options.reduction == CLEF_REDUCE_MEAN;
    if (summed) options.reduction = CLEF_REDUCE_SUM;
    if (summed) loss.options = &options;
    evaluation e = {.ctx = ctx,
                    .group = clef_loader_group(loader),
                    .confusion = confusion,
                    .top = top_k,
                    .sequences = loss.sequences,
                    .classes = clef_dataset_classes(clef_loader_dataset(loader))};
    double total = 0, start = clef__now();
    bool inference = clef__nn_inference(ctx, true), grad = clef_set_grad_enabled(ctx, false);
    *score = (clef__score){.loss = NAN, .accuracy = NAN, .top = NAN, .perplexity = NAN};
    standing stood = stand(&e, loader);
    if (!status) status = begin(&e, loader);
    if (!status) status = rewind_loader(loader);
    if (!status) status = over_batches(&e, module, loader, &loss);
    if (!status && e.items == 0) status = clef__fail(ctx, CLEF_INVALID, "evaluate: the loader gives no batch");
    if (!status) status = add_up(&e, &total);
    if (!status && !isfinite(total)) status = look_at_labels(&e, module, loader, &loss);
    if (!status) fill_score(&e, total, summed, score);
    clef_status returned = stand_again(&e, loader, &stood);
    if (!status) status = returned;
    clef__nn_inference(ctx, inference);
    clef_set_grad_enabled(ctx, grad);
    end(&e);
    score->seconds = clef__now() - start;
    return status;
}

/* ---- what this room hangs on a context ---- */
static void close_room(clef_context *ctx, void *state) {
    (void)ctx;
    clef__train_room *room = state;
    clef__free(room->epoch);
    clef__free(room->confusion);
    clef__free(room->rates);
    clef__free(room);
}

clef__train_room *clef__train_room_of(clef_context *ctx) {
    return clef__make_room_state(ctx, CLEF__ROOM_TRAIN, sizeof(clef__train_room), close_room);
}

/* ---- clef_evaluate ---- */
static bool make_arrays(clef__train_room *room, int64_t classes) {
    clef__free(room->confusion);
    clef__free(room->rates);
    room->confusion = clef__calloc((size_t)(classes * classes), sizeof *room->confusion);
    room->rates = clef__calloc((size_t)(2 * classes), sizeof *room->rates);
    return room->confusion && room->rates;
}

/* precision[c] = right guesses of c / guesses of c; recall[c] = right guesses of c / items of c; 0 where nothing is. */
static void rates(const int64_t *confusion, int64_t classes, double *precision, double *recall) {
    for (int64_t c = 0; c < classes; c++) {
        int64_t guessed = 0, present = 0, right = confusion[c * classes + c];
        for (int64_t i = 0; i < classes; i++) {
            guessed += confusion[i * classes + c];
            present += confusion[c * classes + i];
        }
        precision[c] = guessed ? (double)right / (double)guessed : 0;
        recall[c] = present ? (double)right / (double)present : 0;
    }
}

clef_status clef_evaluate(clef_module *module, clef_loader *data, clef_loss_fn loss, const clef_loss_options *loss_options,
                          clef_evaluation_result *result) {
    return clef_evaluate_with(module, data, &(clef_evaluate_options){.loss = loss, .loss_options = loss_options}, result);
}

clef_status clef_evaluate_top_k(clef_module *module, clef_loader *data, clef_loss_fn loss, const clef_loss_options *loss_options,
                                int top_k, clef_evaluation_result *result) {
    clef_evaluate_options options = {.loss = loss, .loss_options = loss_options, .top_k = top_k};
    return clef_evaluate_with(module, data, &options, result);
}

/* The score as a result, with what the confusion matrix says. */
static void fill_result(const clef__train_room *room, const clef__score *score, int64_t classes, int top_k,
                        clef_evaluation_result *result) {
    *result = (clef_evaluation_result){.items = score->items,
                                       .classes = score->classes,
                                       .loss = score->loss,
                                       .accuracy = score->accuracy,
                                       .top_k = top_k,
                                       .answers = score->answers,
                                       .perplexity = score->perplexity,
                                       .top_k_accuracy = score->top,
                                       .seconds = score->seconds};
    if (classes == 0 || score->classes == 0) return;
    rates(room->confusion, classes, room->rates, room->rates + classes);
    result->confusion = room->confusion;
    result->precision = room->rates;
    result->recall = room->rates + classes;
}

clef_status clef_evaluate_with(clef_module *module, clef_loader *data, const clef_evaluate_options *options,
                               clef_evaluation_result *result) {
    static const clef_evaluate_options defaults;
    const clef_evaluate_options *o = options ? options : &defaults;
    if (!module) return CLEF_INVALID;
    clef_context *ctx = clef_module_context(module);
    if (!result) return clef__fail(ctx, CLEF_INVALID, "evaluate: result is NULL; give a clef_evaluation_result");
    *result = (clef_evaluation_result){.loss = NAN, .accuracy = NAN, .top_k_accuracy = NAN, .perplexity = NAN};
    if (!data) return clef__fail(ctx, CLEF_INVALID, "evaluate: no loader");
    if (o->top_k < 0) return clef__fail(ctx, CLEF_INVALID, "evaluate: top_k is %d; it wants 1 or more, or 0 for 5", o->top_k);
    int top_k = o->top_k ? o->top_k : 5;
    if (clef_error_status(ctx)) return clef_error_status(ctx);
    clef__loss loss = {.ctx = ctx,
                       .op = "evaluate",
                       .fn = o->loss,
                       .options = o->loss_options,
                       .call = o->loss_call,
                       .user = o->user,
                       .n_outputs = o->n_outputs};
    clef_status status = clef__loss_check(&loss, module, data);
    if (status) return status;
    int64_t classes = clef_dataset_classes(clef_loader_dataset(data));
    if (classes > CLEF_MAX_CLASSES || !clef__is_single(&loss, data)) classes = 0;
    clef__train_room *room = clef__train_room_of(ctx);
    if (!room || (classes > 0 && !make_arrays(room, classes)))
        return clef__fail(ctx, CLEF_MEMORY, "evaluate: no memory for a confusion matrix of %lld classes", (long long)classes);
    clef__score score;
    status = clef__score_loader(module, data, &loss, top_k, classes ? room->confusion : NULL, &score);
    if (!status) fill_result(room, &score, classes, top_k, result);
    return status;
}
