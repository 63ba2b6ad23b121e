/* verb_train.c — clef train: a known model on known data, from one command. */
#include "tool.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_MILESTONES = 16, MILESTONES_TEXT = 100 };

typedef struct train_options {
    common_options common;
    const char *data, *model, *optimizer, *schedule, *milestones, *out, *checkpoint, *csv;
    int64_t epochs, batch, threads, limit, checkpoint_every, keep, early_stop, warmup;
    double lr, momentum, weight_decay, clip_norm, label_smoothing; /* lr, momentum, weight_decay < 0: the default */
    bool augment, resume, dry_run, recompute;
    ranks ranks;
} train_options;
static train_options o = {.lr = -1, .momentum = -1, .weight_decay = -1, .threads = 1}; /* of all ranks; only read while they run */

#define OPTIONS train_options
static const arg args[] = {
    OPTION("data", ARG_TEXT, "NAME[:DIR]", data, DATA_META " (default digits)"),
    OPTION("model", ARG_CHOICE, MODEL_META, model, "default: lenet for mnist, else cnn"),
    OPTION("epochs", ARG_COUNT, "N", epochs, "default: 20 for digits, 2 for mnist, 3 for cifar10"),
    OPTION("batch", ARG_COUNT, "N", batch, "images per step; default: 32, 100, 50"),
    OPTION("optimizer", ARG_CHOICE, "sgd|adam|adamw", optimizer, "default: sgd for lenet and resnet18, else adam"),
    OPTION("lr", ARG_NUMBER, "X", lr, "learning rate; default: 0.05 for sgd, else 0.001 (digits: 0.003)"),
    OPTION("momentum", ARG_NUMBER, "X", momentum, "of sgd; default 0.9"),
    OPTION("weight-decay", ARG_NUMBER, "X", weight_decay, "default: 0.01 for adamw, else 0"),
    OPTION("schedule", ARG_CHOICE, "constant|step|multistep|exponential|cosine|one-cycle|plateau", schedule,
           "of the learning rate; default cosine"),
    OPTION("milestones", ARG_TEXT, "A,B,...", milestones,
           "of multistep: a tenth after so many epochs; default: half and three quarters of them"),
    OPTION("warmup", ARG_COUNT, "N", warmup, "steps in which the rate rises from 0 first; not for one-cycle, plateau"),
    OPTION("label-smoothing", ARG_NUMBER, "X", label_smoothing, "below 1; default 0"),
    OPTION("clip-norm", ARG_NUMBER, "X", clip_norm, "limit of the gradients' norm; default: none"),
    OPTION("augment", ARG_FLAG, NULL, augment, "vary the training images (shifts, turns, flips as fits the data)"),
    OPTION("recompute", ARG_FLAG, NULL, recompute, "compute what blocks hold once more in backward, for less memory: resnet18"),
    OPTION("limit", ARG_COUNT, "N", limit, "only the first N images of each split (training and test)"),
    OPTION("threads", ARG_COUNT, "N", threads, "that prepare batches; default 1"),
    OPTION("out", ARG_TEXT, "FILE", out, "write the trained weights as safetensors"),
    OPTION("checkpoint", ARG_TEXT, "DIR", checkpoint, "write best.ckpt and last.ckpt there after every epoch"),
    OPTION("checkpoint-every", ARG_COUNT, "N", checkpoint_every, "and last.ckpt after every N batches"),
    OPTION("keep", ARG_COUNT, "N", keep, "and keep the last N epochs' checkpoints"),
    OPTION("resume", ARG_FLAG, NULL, resume, "continue from DIR/last.ckpt where it exists"),
    OPTION("early-stop", ARG_COUNT, "N", early_stop, "stop after N epochs without a better test loss"),
    OPTION("csv", ARG_TEXT, "FILE", csv, "write one line per epoch"),
    OPTION("dry-run", ARG_FLAG, NULL, dry_run, "only print the model's summary, and memory, work and launches of a step"),
    OPTION("devices", ARG_TEXT, "D,E,...", ranks.devices,
           "several devices, each with a part of every batch: 0,1, or 0/2 for two halves of device 0"),
    OPTION("shares", ARG_TEXT, "A:B:...", ranks.shares, "how large each one's part is, beside the others; default: equal"),
    OPTION("mpi", ARG_FLAG, NULL, ranks.mpi, "the same with a process for each device, started by mpirun"),
    COMMON_ARGS};

/* Set by the first Ctrl-C, which asks for a checkpoint and an orderly end. */
static volatile int interrupted;

/* ---- defaults and the optimizer ---- */
static bool is(const char *a, const char *b) { return !strcmp(a, b); }

static void fill_defaults(const source *s) {
    if (!o.model) o.model = s->model;
    if (!o.epochs) o.epochs = s->epochs;
    if (!o.batch) o.batch = s->batch;
    if (!o.schedule) o.schedule = "cosine";
    if (!o.optimizer) o.optimizer = is(o.model, "lenet") || is(o.model, "resnet18") ? "sgd" : "adam";
    if (o.lr < 0) o.lr = is(o.optimizer, "sgd") ? 0.05 : s->adam_lr;
    if (o.momentum < 0) o.momentum = is(o.optimizer, "sgd") ? 0.9 : 0;
    if (o.weight_decay < 0) o.weight_decay = is(o.optimizer, "adamw") ? 0.01 : 0;
}

/* The numbers of --milestones, or of what it defaults to; 0 where they are not ascending numbers from 1. */
static int read_milestones(int64_t milestone[MOST_MILESTONES]) {
    if (!o.milestones) {
        milestone[0] = (o.epochs + 1) / 2;
        milestone[1] = (3 * o.epochs + 3) / 4;
        return 2;
    }
    int n = 0;
    char *end;
    if (strlen(o.milestones) > MILESTONES_TEXT) return 0;
    for (const char *p = o.milestones;; p = end + 1) {
        if (n == MOST_MILESTONES || *p < '0' || *p > '9') return 0;
        milestone[n] = strtoll(p, &end, 10);
        if (milestone[n] <= (n > 0 ? milestone[n - 1] : 0) || milestone[n] > 1000000) return 0;
        n++;
        if (!*end) return n;
        if (*end != ',') return 0;
    }
}

static bool options_fit(void) {
    int64_t milestone[MOST_MILESTONES];
    const char *wrong = NULL;
    if ((o.resume || o.checkpoint_every || o.keep) && !o.checkpoint)
        wrong = "--resume, --checkpoint-every and --keep need --checkpoint DIR";
    else if (o.label_smoothing >= 1) wrong = "--label-smoothing wants a number below 1";
    else if (o.lr == 0) wrong = "--lr wants a number above 0";
    else if (o.momentum > 0 && !is(o.optimizer, "sgd"))
        wrong = is(o.optimizer, "adam") ? "--momentum belongs to --optimizer sgd; this run has adam"
                                        : "--momentum belongs to --optimizer sgd; this run has adamw";
    else if (o.milestones && !is(o.schedule, "multistep")) wrong = "--milestones belongs to --schedule multistep";
    else if (!read_milestones(milestone)) wrong = "--milestones wants up to 16 ascending whole numbers from 1, as in 10,15";
    else if (o.warmup && (is(o.schedule, "one-cycle") || is(o.schedule, "plateau")))
        wrong = "--warmup does not go with --schedule one-cycle or plateau";
    else if (o.recompute && !model_recompute(o.model, NULL)) wrong = "--recompute wants a model of blocks: --model resnet18";
    else if (o.threads > 256 || o.batch > 1000000) wrong = "--threads or --batch is far too large";
    if (wrong) tool_usage("train", "%s", wrong);
    return !wrong && ranks_parse("train", &o.common, &o.ranks);
}

static clef_optimizer *make_optimizer(clef_module *net, clef_group *all) {
    if (is(o.optimizer, "sgd"))
        return clef_sgd(net, &(clef_sgd_options){.lr = o.lr, .momentum = o.momentum, .weight_decay = o.weight_decay, .group = all});
    if (is(o.optimizer, "adam"))
        return clef_adam(net, &(clef_adam_options){.lr = o.lr, .weight_decay = o.weight_decay, .group = all});
    return clef_adamw(
        net, &(clef_adamw_options){.lr = o.lr, .weight_decay = o.weight_decay, .no_decay = o.weight_decay == 0, .group = all});
}

/* Does the schedule move with every step?  The others move with every epoch, unless they have to warm up. */
static bool is_smooth(void) { return is(o.schedule, "cosine") || is(o.schedule, "one-cycle"); }

static clef_schedule_kind schedule_kind(void) {
    static const struct {
        const char *name;
        clef_schedule_kind kind;
    } kinds[] = {
        {"step", CLEF_SCHEDULE_STEP},     {"multistep", CLEF_SCHEDULE_MULTISTEP}, {"exponential", CLEF_SCHEDULE_EXPONENTIAL},
        {"cosine", CLEF_SCHEDULE_COSINE}, {"one-cycle", CLEF_SCHEDULE_ONE_CYCLE}, {"plateau", CLEF_SCHEDULE_PLATEAU}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (is(kinds[i].name, o.schedule)) return kinds[i].kind;
    return CLEF_SCHEDULE_CONSTANT;
}

/* With warm-up the schedule counts steps and begins after it; milestones stay at their epochs and the end where it is. */
static clef_schedule *make_schedule(clef_optimizer *opt, int64_t steps_per_epoch, bool *per_step) {
    int64_t milestone[MOST_MILESTONES], total = o.epochs * steps_per_epoch - o.warmup;
    *per_step = is_smooth() || o.warmup > 0;
    int64_t ticks = *per_step ? steps_per_epoch : 1; /* per epoch */
    int n = read_milestones(milestone);
    for (int i = 0; i < n; i++) {
        milestone[i] = milestone[i] * ticks - o.warmup;
        if (milestone[i] < 0) milestone[i] = 0;
    }
    clef_schedule_options s = {.kind = schedule_kind(),
                               .total = total > 0 ? total : 1,
                               .max_lr = o.lr,
                               .patience = 3,
                               .step_size = (o.epochs / 3 > 0 ? o.epochs / 3 : 1) * ticks,
                               .warmup = o.warmup,
                               .milestones = milestone,
                               .n_milestones = n};
    if (s.kind == CLEF_SCHEDULE_EXPONENTIAL && *per_step) { /* the same stairs, counted in steps */
        s.kind = CLEF_SCHEDULE_STEP;
        s.step_size = steps_per_epoch;
        s.gamma = 0.95;
    }
    return clef_schedule_new(opt, &s);
}

/* ---- the run ---- */
typedef struct run {
    source data;
    clef_context *ctx;
    clef_group *all; /* NULL: one rank */
    clef_dataset *train, *test;
    clef_loader *train_loader, *test_loader;
    clef_module *net;
    clef_optimizer *optimizer;
    clef_schedule *schedule;
    bool per_step, stepped;
    double begun;
    clef_epoch last;
} run;

/* Is it rank 0, which alone prints and writes? */
static bool speaks(const run *r) { return clef_group_rank(r->all) == 0; }

/* Of several ranks the first error is printed when all have ended. */
static int failed(const run *r) { return r->all ? EXIT_FAILED : tool_failed("train", r->ctx); }

static bool open_data(run *r) {
    r->train = source_open(&r->data, r->ctx, CLEF_TRAIN, o.limit);
    r->test = r->train ? source_open(&r->data, r->ctx, CLEF_TEST, o.limit) : NULL;
    if (!r->test) return false;
    int64_t n = clef_dataset_size(r->train), batch = o.batch < n ? o.batch : n;
    clef_loader_options options = {.batch = batch,
                                   .shuffle = true,
                                   .workers = (int)o.threads,
                                   .seed = o.common.seed,
                                   .mean = r->data.mean,
                                   .std = r->data.std,
                                   .drop_last = true,
                                   .group = r->all,
                                   .shares = o.ranks.n_shares ? o.ranks.share : NULL};
    if (o.augment) options.augment = r->data.augment;
    r->train_loader = clef_loader_open(r->train, &options);
    r->test_loader = source_test_loader(&r->data, r->test, 0, o.threads, r->all);
    return r->train_loader && r->test_loader;
}

static bool open_model(run *r) {
    r->net = model_make(o.model, r->ctx, clef_dataset_item(r->train), clef_dataset_classes(r->train));
    if (o.recompute) model_recompute(o.model, r->net);
    if (!r->net || clef_replicate(r->net, r->all)) return false;
    r->optimizer = make_optimizer(r->net, r->all);
    if (!r->optimizer) return false;
    if (is(o.schedule, "constant") && !o.warmup) return true;
    r->schedule = make_schedule(r->optimizer, clef_loader_batches(r->train_loader), &r->per_step);
    return r->schedule;
}

static void event_start(const run *r) {
    json j = json_begin(stdout);
    json_text(&j, "event", "start");
    json_text(&j, "version", clef_version());
    json_text(&j, "device", tool_device_name(r->ctx));
    json_whole(&j, "ranks", clef_group_size(r->all));
    json_text(&j, "data", r->data.name);
    json_text(&j, "model", o.model);
    json_whole(&j, "parameters", clef_parameter_count(r->net));
    json_whole(&j, "train_images", clef_dataset_size(r->train));
    json_whole(&j, "test_images", clef_dataset_size(r->test));
    json_whole(&j, "epochs", o.epochs);
    json_whole(&j, "batch", o.batch);
    json_text(&j, "optimizer", o.optimizer);
    json_number(&j, "lr", o.lr);
    json_number(&j, "momentum", o.momentum);
    json_number(&j, "weight_decay", o.weight_decay);
    json_text(&j, "schedule", o.schedule);
    json_bool(&j, "augment", o.augment);
    json_bool(&j, "recompute", o.recompute);
    json_whole(&j, "seed", (int64_t)o.common.seed);
    json_end(&j);
}

static void say_start(const run *r) {
    tool_line(stderr, "%s on %s: %lld parameters, %lld images to train, %lld to test", o.model, r->data.name,
              (long long)clef_parameter_count(r->net), (long long)clef_dataset_size(r->train),
              (long long)clef_dataset_size(r->test));
    if (!r->all) tool_line(stderr, "device %s", tool_device_name(r->ctx));
    for (int i = 0; r->all && i < clef_group_size(r->all); i++) tool_line(stderr, "%s", clef_group_rank_name(r->all, i));
}

/* The first reading follows the first step: how long a user waits for it, kernels and data included. */
static bool on_progress(void *user, const clef_progress *p) {
    run *r = user;
    if (!o.common.json || !speaks(r) || r->stepped || p->batch == 0) return true;
    r->stepped = true;
    json j = json_begin(stdout);
    json_text(&j, "event", "first_step");
    json_number(&j, "seconds", tool_seconds() - r->begun);
    json_number(&j, "compile_seconds", clef_counters_get(r->ctx).compile_seconds);
    json_end(&j);
    return true;
}

static bool on_epoch(void *user, const clef_epoch *e) {
    run *r = user;
    r->last = *e;
    if (!o.common.json || !speaks(r)) return true;
    json j = json_begin(stdout);
    json_text(&j, "event", "epoch");
    json_whole(&j, "epoch", e->epoch);
    json_number(&j, "loss", e->loss);
    json_number(&j, "accuracy", e->accuracy);
    json_number(&j, "test_loss", e->test_loss);
    json_number(&j, "test_accuracy", e->test_accuracy);
    json_number(&j, "images_per_second", e->items_per_second);
    json_number(&j, "lr", e->lr);
    json_number(&j, "seconds", e->seconds);
    json_end(&j);
    return true;
}

static void event_done(const run *r, const clef_history *h) {
    if (!o.common.json) {
        tool_line(stdout, "test accuracy %.2f %%, %.0f images/s, %.1f s (%.1f s of them compiling)", 100 * r->last.test_accuracy,
                  h->items_per_second, h->seconds, h->compile_seconds);
        return;
    }
    json j = json_begin(stdout);
    json_text(&j, "event", "done");
    json_number(&j, "test_accuracy", r->last.test_accuracy);
    json_number(&j, "test_loss", r->last.test_loss);
    json_number(&j, "seconds", h->seconds);
    json_number(&j, "compile_seconds", h->compile_seconds);
    json_number(&j, "images_per_second", h->items_per_second);
    json_bool(&j, "stopped_early", h->stopped_early);
    json_whole(&j, "resumed_at", h->resumed_at);
    json_text(&j, "out", o.out);
    json_end(&j);
}

/* What each rank has for itself, one after another. */
static clef_status event_ranks(const run *r) {
    clef_status status = CLEF_OK;
    for (int i = 0; r->all && o.common.json && i < clef_group_size(r->all) && !status; i++) {
        status = clef_group_barrier(r->all);
        if (status || i != clef_group_rank(r->all)) continue;
        json j = json_begin(stdout);
        json_text(&j, "event", "rank");
        json_whole(&j, "rank", i);
        json_text(&j, "name", clef_group_rank_name(r->all, i));
        json_text(&j, "device", tool_device_name(r->ctx));
        json_whole(&j, "batch", ranks_items(&o.ranks, r->all, o.batch));
        json_number(&j, "compile_seconds", clef_counters_get(r->ctx).compile_seconds);
        json_end(&j);
    }
    return status ? status : clef_group_barrier(r->all);
}

/* After an early stop the best weights are back, and a run that was complete has no epoch: look once more. */
static clef_status final_score(run *r, const clef_history *h) {
    clef_evaluation_result e;
    if (h->n > 0 && !h->stopped_early) return CLEF_OK;
    clef_status status = clef_evaluate(r->net, r->test_loader, NULL, NULL, &e);
    r->last.test_accuracy = e.accuracy;
    r->last.test_loss = e.loss;
    return status;
}

/* Ctrl-C: with --checkpoint last.ckpt is there; without, the weights go to --out as they are. */
static int stopped_by_hand(const run *r) {
    if (!speaks(r)) return EXIT_FAILED;
    if (o.checkpoint) fprintf(stderr, "clef train: interrupted; --resume continues from %s/last.ckpt\n", o.checkpoint);
    else if (!o.out) fprintf(stderr, "clef train: interrupted; nothing was saved (--checkpoint DIR or --out FILE would)\n");
    else if (clef_save(r->net, o.out)) return failed(r);
    else fprintf(stderr, "clef train: interrupted; the weights so far are in %s\n", o.out);
    return EXIT_FAILED;
}

/* What must be alike for a run to be resumed. */
static void describe(const run *r, char *note, size_t size) {
    bool fixed_length = is_smooth() || is(o.schedule, "step") || is(o.schedule, "multistep");
    snprintf(note, size,
             "data=%s model=%s batch=%lld optimizer=%s lr=%.9g momentum=%.9g weight_decay=%.9g "
             "schedule=%s milestones=%s warmup=%lld epochs=%lld label_smoothing=%.9g clip_norm=%.9g augment=%d limit=%lld "
             "seed=%llu",
             r->data.name, o.model, (long long)o.batch, o.optimizer, o.lr, o.momentum, o.weight_decay, o.schedule,
             o.milestones ? o.milestones : "", (long long)o.warmup, (long long)(fixed_length ? o.epochs : 0), o.label_smoothing,
             o.clip_norm, o.augment, (long long)o.limit, (unsigned long long)o.common.seed);
}

/* Worse than guessing by far: a rate that is too high, most likely, yet somebody may want to see just that. */
static void warn_of_loss(const run *r, const clef_history *h) {
    double guessing = log((double)clef_dataset_classes(r->train)), loss = h->n > 0 ? h->epoch[h->n - 1].loss : 0;
    if (!(loss <= 2 * guessing))
        fprintf(stderr, "clef train: warning: the loss, %.4g, is worse than guessing (%.4g); try a --lr below %g\n", loss, guessing,
                o.lr);
}

static int fit(run *r) {
    char note[600];
    const clef_history *history;
    describe(r, note, sizeof note);
    clef_loss_options loss = {.label_smoothing = o.label_smoothing};
    clef_fit_options options = {.train = r->train_loader,
                                .test = r->test_loader,
                                .optimizer = r->optimizer,
                                .schedule = r->schedule,
                                .schedule_per_step = r->per_step,
                                .loss_options = &loss,
                                .epochs = o.epochs,
                                .clip_norm = o.clip_norm,
                                .early_stop_patience = (int)o.early_stop,
                                .checkpoint_dir = o.checkpoint,
                                .keep = (int)o.keep,
                                .checkpoint_every = o.checkpoint_every,
                                .resume = o.resume,
                                .checkpoint_note = note,
                                .csv = o.csv,
                                .bar = o.common.quiet ? NULL : stderr,
                                .on_epoch = on_epoch,
                                .on_progress = on_progress,
                                .user = r,
                                .interrupt = &interrupted,
                                .group = r->all};
    clef_status status = clef_fit(r->net, &options, &history);
    if (status == CLEF_INTERRUPTED) return stopped_by_hand(r);
    if (status || final_score(r, history) || event_ranks(r)) return failed(r);
    if (!speaks(r)) return EXIT_OK;
    if (o.out && clef_save(r->net, o.out)) return failed(r);
    event_done(r, history);
    warn_of_loss(r, history);
    return EXIT_OK;
}

static bool print_summary(const run *r) {
    static char text[1 << 16];
    clef_shape item = clef_dataset_item(r->train), input = {.rank = item.rank + 1, .dim = {o.batch}};
    memcpy(input.dim + 1, item.dim, (size_t)item.rank * sizeof item.dim[0]);
    if (clef_summary(r->net, input, text, sizeof text) <= 0) return false;
    if (!o.common.json) fputs(text, stdout);
    return true;
}

/* Each rank's step is of its part of the batch. */
static int dry_run(run *r) {
    forecast f = {.ctx = r->ctx,
                  .net = r->net,
                  .optimizer = r->optimizer,
                  .item = clef_dataset_item(r->train),
                  .batch = ranks_items(&o.ranks, r->all, o.batch),
                  .group = r->all};
    if ((speaks(r) && !print_summary(r)) || !forecast_make(&f)) return failed(r);
    clef_status status = CLEF_OK;
    for (int i = 0; i < clef_group_size(r->all) && !status; i++) {
        if (i == clef_group_rank(r->all)) forecast_print(&f, o.common.json), fflush(stdout);
        status = clef_group_barrier(r->all);
    }
    return status ? failed(r) : EXIT_OK;
}

/* Found out before the work is done that would be lost. */
static bool outputs_fit(void) {
    return (!o.out || tool_new_file_fits("train", "out", o.out)) &&
           (!o.checkpoint || tool_directory_fits("train", "checkpoint", o.checkpoint)) &&
           (!o.csv || tool_file_fits("train", "csv", o.csv));
}

/* On one device, or as one rank of several; `begun` is when the command began. */
static int train_on(clef_context *ctx, clef_group *all, void *begun) {
    run r = {.ctx = ctx, .all = all, .begun = *(const double *)begun};
    if (!source_parse("train", o.data, &r.data)) return EXIT_USAGE;
    if (!open_data(&r) || !open_model(&r)) return failed(&r);
    if (o.dry_run) return dry_run(&r);
    if (o.common.json && speaks(&r)) event_start(&r);
    if (!o.common.quiet && speaks(&r)) say_start(&r);
    return fit(&r);
}

static int train(const char *const *operands) {
    (void)operands;
    double begun = tool_seconds();
    source data;
    int code = EXIT_OK;
    if (!o.data) o.data = "digits";
    if (!source_parse("train", o.data, &data)) return EXIT_USAGE;
    fill_defaults(&data);
    if (!options_fit()) return EXIT_USAGE;
    if (!o.dry_run && !outputs_fit()) return EXIT_FAILED;
    tool_catch_signals(&interrupted);
    if (ranks_wanted(&o.ranks)) return ranks_run("train", &o.common, &o.ranks, train_on, &begun);
    clef_context *ctx = tool_open("train", &o.common, &code);
    if (!ctx) return code;
    code = train_on(ctx, NULL, &begun);
    clef_close(ctx);
    return code;
}

const verb verb_train = {"train", NULL, "Train a model and print its accuracy on the test images.", args, &o, train};
