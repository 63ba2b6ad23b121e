/* train_model.c — what clef train trains: data, model, optimizer and schedule. */
#include "train_run.h"
#include <stdarg.h>
#include <stdlib.h>

static clef_optimizer *make_optimizer(clef_module *net, clef_group *all) {
    const train_options *o = &chosen;
    int zero = o->ranks.zero ? atoi(o->ranks.zero) : 0;
    if (is(o->optimizer, "sgd"))
        return clef_sgd(
            net,
            &(clef_sgd_options){.lr = o->lr, .momentum = o->momentum, .weight_decay = o->weight_decay, .group = all, .zero = zero});
    if (is(o->optimizer, "adam"))
        return clef_adam(
            net, &(clef_adam_options){.lr = o->lr, .beta2 = o->beta2, .weight_decay = o->weight_decay, .group = all, .zero = zero});
    return clef_adamw(net, &(clef_adamw_options){.lr = o->lr,
                                                 .beta2 = o->beta2,
                                                 .weight_decay = o->weight_decay,
                                                 .no_decay = o->weight_decay == 0,
                                                 .group = all,
                                                 .zero = zero});
}

/* Does the schedule move with every step?  The others move with every epoch, unless they have to warm up. */
static bool is_smooth(void) { return is(chosen.schedule, "cosine") || is(chosen.schedule, "one-cycle"); }

static clef_schedule_kind schedule_kind(void) {
    static const struct {
        const char *name;
        clef_schedule_kind kind;
    } kinds[] = {
        {"step", CLEF_SCHEDULE_STEP},     {"multistep", CLEF_SCHEDULE_MULTISTEP}, {"exponential", CLEF_SCHEDULE_EXPONENTIAL},
        {"cosine", CLEF_SCHEDULE_COSINE}, {"one-cycle", CLEF_SCHEDULE_ONE_CYCLE}, {"plateau", CLEF_SCHEDULE_PLATEAU}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (is(kinds[i].name, chosen.schedule)) return kinds[i].kind;
    return CLEF_SCHEDULE_CONSTANT;
}

/* A language model's rate rises in 100 steps, or in a tenth of all. */
static int64_t warmup_of(const train_run *r, int64_t steps) {
    if (chosen.warmup || !r->data.text || !is(chosen.schedule, "cosine")) return chosen.warmup;
    return steps < 1000 ? steps / 10 : 100;
}

/* With warm-up the schedule counts steps and begins after it; milestones stay at their epochs and the end where it is. */
static clef_schedule *make_schedule(train_run *r, int64_t steps_per_epoch) {
    int64_t steps = chosen.epochs * steps_per_epoch, warmup = warmup_of(r, steps), total = steps - warmup;
    int64_t milestone[MOST_MILESTONES];
    r->per_step = is_smooth() || warmup > 0;
    int64_t ticks = r->per_step ? steps_per_epoch : 1; /* per epoch */
    int n = train_milestones(milestone);
    for (int i = 0; i < n; i++) {
        milestone[i] = milestone[i] * ticks - warmup;
        if (milestone[i] < 0) milestone[i] = 0;
    }
    clef_schedule_options s = {.kind = schedule_kind(),
                               .total = total > 0 ? total : 1,
                               .max_lr = chosen.lr,
                               .min_lr = chosen.min_lr,
                               .patience = 3,
                               .step_size = (chosen.epochs / 3 > 0 ? chosen.epochs / 3 : 1) * ticks,
                               .warmup = warmup,
                               .milestones = milestone,
                               .n_milestones = n};
    if (s.kind == CLEF_SCHEDULE_EXPONENTIAL && r->per_step) { /* the same stairs, counted in steps */
        s.kind = CLEF_SCHEDULE_STEP;
        s.step_size = steps_per_epoch;
        s.gamma = 0.95;
    }
    return clef_schedule_new(r->optimizer, &s);
}

bool train_open_data(train_run *r) {
    if (r->data.text && !language_read(&r->data, r->ctx, &chosen.language, chosen.common.seed)) return false;
    r->train = source_open(&r->data, r->ctx, CLEF_TRAIN, chosen.limit);
    r->test = r->train ? source_open(&r->data, r->ctx, CLEF_TEST, chosen.limit) : NULL;
    if (!r->test) return false;
    int64_t n = clef_dataset_size(r->train), batch = chosen.batch < n ? chosen.batch : n;
    clef_loader_options options = {.batch = batch,
                                   .shuffle = true,
                                   .workers = (int)chosen.threads,
                                   .seed = chosen.common.seed,
                                   .mean = r->data.mean,
                                   .std = r->data.std,
                                   .drop_last = true,
                                   .group = r->data_group,
                                   .shares = chosen.ranks.n_shares ? chosen.ranks.share : NULL,
                                   .shares_auto = chosen.ranks.shares_auto,
                                   .rebalance_every = chosen.ranks.rebalance,
                                   .parts = (int)chosen.ranks.parts};
    if (chosen.augment) options.augment = r->data.augment;
    r->train_loader = clef_loader_open(r->train, &options);
    int64_t test_batch = !r->data.text ? 0 : chosen.batch < clef_dataset_size(r->test) ? chosen.batch : clef_dataset_size(r->test);
    r->test_loader =
        source_test_loader(&r->data, r->test, test_batch, chosen.threads, train_test_group(r), (int)chosen.ranks.parts);
    return r->train_loader && r->test_loader;
}

bool train_open_model(train_run *r) {
    int64_t classes = clef_dataset_classes(r->train);
    r->net = r->data.text ? language_make(chosen.model, r->ctx, classes, &chosen.language)
                          : model_make(chosen.model, r->ctx, clef_dataset_item(r->train), classes);
    if (chosen.recompute) model_recompute(chosen.model, r->net);
    if (!r->net || clef_replicate(r->net, r->all) || !train_spread_model(r)) return false;
    r->optimizer = make_optimizer(r->net, r->data_group);
    if (clef_get_autocast(r->ctx) == CLEF_F16 && !(r->scaler = clef_grad_scaler_new(r->ctx, NULL))) return false;
    if (!r->optimizer || (r->data.text && language_spare_decay(r->optimizer, r->net))) return false;
    if (is(chosen.schedule, "constant") && !chosen.warmup) return true;
    r->schedule = make_schedule(r, clef_loader_batches(r->train_loader));
    return r->schedule;
}

clef_status train_save(const train_run *r) {
    return r->data.text ? language_save(r->net, r->data.windows.tokenizer, chosen.out) : clef_save(r->net, chosen.out);
}

static size_t add_note(char *note, size_t size, size_t used, const char *fmt, ...) {
    va_list arguments;
    if (used >= size) return used;
    va_start(arguments, fmt);
    int n = vsnprintf(note + used, size - used, fmt, arguments);
    va_end(arguments);
    return n > 0 ? used + (size_t)n : used;
}

static size_t describe_language(const train_run *r, char *note, size_t size, size_t used) {
    const language_options *l = &chosen.language;
    used = add_note(note, size, used, " tokens=%lld layers=%lld heads=%lld,%lld width=%lld context=%lld windows=%lld dropout=%.9g",
                    (long long)clef_dataset_classes(r->train), (long long)l->layers, (long long)l->heads, (long long)l->kv_heads,
                    (long long)l->width, (long long)l->context, (long long)l->windows, l->dropout);
    if (l->no_bias) used = add_note(note, size, used, " no_bias=1");
    return l->activation ? add_note(note, size, used, " activation=%s", l->activation) : used;
}

void train_describe(const train_run *r, char *note, size_t size) {
    bool fixed_length = is_smooth() || is(chosen.schedule, "step") || is(chosen.schedule, "multistep");
    size_t n =
        add_note(note, size, 0,
                 "data=%s model=%s batch=%lld optimizer=%s lr=%.9g momentum=%.9g weight_decay=%.9g "
                 "schedule=%s milestones=%s warmup=%lld epochs=%lld label_smoothing=%.9g clip_norm=%.9g augment=%d limit=%lld "
                 "seed=%llu",
                 r->data.name, chosen.model, (long long)chosen.batch, chosen.optimizer, chosen.lr, chosen.momentum,
                 chosen.weight_decay, chosen.schedule, chosen.milestones ? chosen.milestones : "", (long long)chosen.warmup,
                 (long long)(fixed_length ? chosen.epochs : 0), chosen.label_smoothing, chosen.clip_norm, chosen.augment,
                 (long long)chosen.limit, (unsigned long long)chosen.common.seed);
    if ((chosen.beta2 > 0 && chosen.beta2 != 0.999) || chosen.min_lr > 0)
        n = add_note(note, size, n, " beta2=%.9g min_lr=%.9g", chosen.beta2, chosen.min_lr);
    if (clef_get_autocast(r->ctx) != CLEF_F32) n = add_note(note, size, n, " dtype=%s", chosen.common.dtype);
    if (r->data.text) n = describe_language(r, note, size, n);
    if (chosen.ranks.parts) add_note(note, size, n, " parts=%d", (int)chosen.ranks.parts);
}
