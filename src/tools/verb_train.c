/* verb_train.c — clef train: a known model on known data, from one command. */
#include "train_run.h"

#define OPTIONS train_options
static const arg args[] = {
    OPTION("data", ARG_TEXT, "NAME[:DIR]", data, DATA_META " | " TEXT_META " (default digits)"),
    OPTION("model", ARG_CHOICE, MODEL_META "|" LANGUAGE_META, model, "default: lenet for mnist, gpt for text, else cnn"),
    OPTION("epochs", ARG_COUNT, "N", epochs, "default: 20 for digits, 2 for mnist, 3 for cifar10, 1 for text"),
    OPTION("batch", ARG_COUNT, "N", batch, "images or windows of text per step; default: 32, 100, 50, 12"),
    OPTION("optimizer", ARG_CHOICE, "sgd|adam|adamw", optimizer, "default: sgd for lenet and resnet18, adamw for text, else adam"),
    OPTION("lr", ARG_NUMBER, "X", lr, "learning rate; default: 0.05 for sgd, else 0.001 (digits: 0.003)"),
    OPTION("momentum", ARG_NUMBER, "X", momentum, "of sgd; default 0.9"),
    OPTION("weight-decay", ARG_NUMBER, "X", weight_decay,
           "default: 0.01 for adamw, with text 0.1, else 0; of text not on biases and norms"),
    OPTION("beta2", ARG_NUMBER, "X", beta2, "of adam and adamw; default 0.999, with text 0.99"),
    OPTION("schedule", ARG_CHOICE, "constant|step|multistep|exponential|cosine|one-cycle|plateau", schedule,
           "of the learning rate; default cosine"),
    OPTION("milestones", ARG_TEXT, "A,B,...", milestones,
           "of multistep: a tenth after so many epochs; default: half and three quarters of them"),
    OPTION("min-lr", ARG_NUMBER, "X", min_lr, "where cosine ends, and plateau at last; default 0, with text and cosine lr/10"),
    OPTION("warmup", ARG_COUNT, "N", warmup,
           "steps in which the rate rises from 0 first; not for one-cycle, plateau; with text 100"),
    OPTION("label-smoothing", ARG_NUMBER, "X", label_smoothing, "below 1; default 0"),
    OPTION("clip-norm", ARG_NUMBER, "X", clip_norm, "limit of the gradients' norm; default: none, with text 1"),
    OPTION("augment", ARG_FLAG, NULL, augment, "vary the training images (shifts, turns, flips as fits the data)"),
    OPTION("layers", ARG_COUNT, "N", language.layers, "of a model of text; default 4, of lstm 2"),
    OPTION("heads", ARG_COUNT, "N", language.heads, "of gpt and llama, of attention; default 4"),
    OPTION("kv-heads", ARG_COUNT, "N", language.kv_heads, "of llama: heads of keys and values; default: as many"),
    OPTION("width", ARG_COUNT, "N", language.width, "of a model of text, a multiple of the heads; default 128, of lstm 256"),
    OPTION("context", ARG_COUNT, "N", language.context, "tokens that the model sees at once; default 64"),
    OPTION("dropout", ARG_NUMBER, "X", language.dropout, "of a model of text, below 1; default 0"),
    OPTION("no-bias", ARG_FLAG, NULL, language.no_bias, "of gpt: neither linear layers nor norms have a bias, as nanoGPT's"),
    OPTION("activation", ARG_CHOICE, "gelu|gelu_tanh", language.activation,
           "of gpt: x times the normal CDF, or GPT-2's approximation of it (default)"),
    OPTION("windows", ARG_COUNT, "N", language.windows, "of the text in an epoch; default: as many as cover it once"),
    OPTION("tokenizer", ARG_TEXT, "T", language.tokenizer,
           "of text: characters (default), bytes, or a tokenizer.json or its folder"),
    OPTION("recompute", ARG_FLAG, NULL, recompute, "compute what blocks hold once more in backward, for less memory: resnet18"),
    OPTION("limit", ARG_COUNT, "N", limit, "only the first N images or windows of each split (training and test)"),
    OPTION("threads", ARG_COUNT, "N", threads, "that prepare batches; default 1"),
    OPTION("out", ARG_TEXT, "FILE|DIR", out, "write the trained weights as safetensors; of text a directory for clef generate"),
    OPTION("checkpoint", ARG_TEXT, "DIR", checkpoint, "write best.ckpt and last.ckpt there after every epoch"),
    OPTION("checkpoint-every", ARG_COUNT, "N", checkpoint_every, "and last.ckpt after every N batches"),
    OPTION("keep", ARG_COUNT, "N", keep, "and keep the last N epochs' checkpoints"),
    OPTION("resume", ARG_FLAG, NULL, resume, "continue from DIR/last.ckpt where it exists"),
    OPTION("early-stop", ARG_COUNT, "N", early_stop, "stop after N epochs without a better test loss"),
    OPTION("csv", ARG_TEXT, "FILE", csv, "write one line per epoch"),
    OPTION("dry-run", ARG_FLAG, NULL, dry_run, "only print the model's summary, and memory, work and launches of a step"),
    OPTION("devices", ARG_TEXT, "D,E,...", ranks.devices,
           "several devices, each with a part of every batch: 0,1, or 0/2 for two halves of device 0"),
    OPTION("shares", ARG_TEXT, "auto|A:B:...", ranks.shares,
           "how large each one's part is, beside the others; auto: by measured speed; default: equal"),
    OPTION("rebalance-every", ARG_COUNT, "N", ranks.rebalance, "of --shares auto: measure again after every N batches"),
    OPTION("parallel", ARG_TEXT, "data|pipeline|tensor|RxPxT", parallel,
           "what devices have: parts of batches, stages of the model, parts of layers, or a grid; default: data"),
    OPTION("micro-batches", ARG_COUNT, "N", micro_batches, "of --parallel pipeline; default: four for each stage"),
    OPTION("parts", ARG_COUNT, "P", ranks.parts, "compute every batch in P fixed parts: the same bits on 1, 2, 4, ... P devices"),
    OPTION("sum-units", ARG_COUNT, "N", ranks.sum_units, "of --parts: partition work as for so many compute units; default 1"),
    OPTION("zero", ARG_CHOICE, "1|2", ranks.zero, "cut optimizer states (2: gradients too) over the devices"),
    OPTION("timeout", ARG_COUNT, "N", ranks.timeout,
           "end after so many seconds without a sign of life of another device's process or thread; default 300"),
    OPTION("mpi", ARG_FLAG, NULL, ranks.mpi, "the same with a process for each device, started by mpirun"),
    DTYPE_ARG,
    PRECISION_ARG,
    COMMON_ARGS};

/* Set by the first Ctrl-C, which asks for a checkpoint and an orderly end. */
static volatile int interrupted;

/* After an early stop the best weights are back, and a run that was complete has no epoch: look once more. */
static clef_status final_score(train_run *r, const clef_history *h) {
    clef_evaluation_result e;
    if (h->n > 0 && !h->stopped_early) return CLEF_OK;
    clef_status status = clef_evaluate(r->net, r->test_loader, NULL, NULL, &e);
    r->last.test_accuracy = e.accuracy;
    r->last.test_loss = e.loss;
    return status;
}

/* Ctrl-C: with --checkpoint last.ckpt is there; without, the weights go to --out as they are. */
static int stopped_by_hand(const train_run *r) {
    if (!train_speaks(r)) return EXIT_FAILED;
    if (chosen.checkpoint) fprintf(stderr, "clef train: interrupted; --resume continues from %s/last.ckpt\n", chosen.checkpoint);
    else if (!chosen.out) fprintf(stderr, "clef train: interrupted; nothing was saved (--checkpoint DIR or --out FILE would)\n");
    else if (train_save(r)) return train_failed(r);
    else fprintf(stderr, "clef train: interrupted; the weights so far are in %s\n", chosen.out);
    return EXIT_FAILED;
}

static int fit(train_run *r) {
    char note[600];
    const clef_history *history;
    train_describe(r, note, sizeof note);
    clef_loss_options loss = {.label_smoothing = chosen.label_smoothing};
    clef_fit_options options = {.train = r->train_loader,
                                .test = r->test_loader,
                                .optimizer = r->optimizer,
                                .schedule = r->schedule,
                                .schedule_per_step = r->per_step,
                                .loss_options = &loss,
                                .epochs = chosen.epochs,
                                .clip_norm = chosen.clip_norm,
                                .early_stop_patience = (int)chosen.early_stop,
                                .checkpoint_dir = chosen.checkpoint,
                                .keep = (int)chosen.keep,
                                .checkpoint_every = chosen.checkpoint_every,
                                .resume = chosen.resume,
                                .checkpoint_note = note,
                                .csv = chosen.csv,
                                .bar = chosen.common.quiet ? NULL : stderr,
                                .on_epoch = train_on_epoch,
                                .on_progress = train_on_progress,
                                .user = r,
                                .interrupt = &interrupted,
                                .group = r->all,
                                .pipeline = r->pipeline,
                                .scaler = r->scaler};
    clef_status status = clef_fit(r->net, &options, &history);
    if ((!status || status == CLEF_INTERRUPTED) && train_gather_model(r)) return train_failed(r);
    if (status == CLEF_INTERRUPTED) return stopped_by_hand(r);
    if (status || final_score(r, history) || train_say_ranks(r)) return train_failed(r);
    if (!train_speaks(r)) return EXIT_OK;
    if (chosen.out && train_save(r)) return train_failed(r);
    train_say_done(r, history);
    return EXIT_OK;
}

/* On one device, or as one rank of several; `begun` is when the command began. */
static int train_on(clef_context *ctx, clef_group *all, void *begun) {
    train_run r = {.ctx = ctx, .all = all, .begun = *(const double *)begun};
    if (!source_parse_any("train", chosen.data, &r.data)) return EXIT_USAGE;
    tool_autocast(ctx, &chosen.common);
    if (!train_make_grid(&r) || !train_open_data(&r) || !train_open_model(&r)) return train_failed(&r);
    if (chosen.dry_run) return train_dry_run(&r);
    train_say_start(&r);
    return fit(&r);
}

static int train(const char *const *operands) {
    (void)operands;
    double begun = tool_seconds();
    source data;
    int code = EXIT_OK;
    if (!chosen.data) chosen.data = "digits";
    if (!source_parse_any("train", chosen.data, &data)) return EXIT_USAGE;
    train_defaults(&data);
    if (!train_options_fit(data.text)) return EXIT_USAGE;
    if (!chosen.dry_run && !train_outputs_fit(data.text)) return EXIT_FAILED;
    tool_catch_signals(&interrupted);
    if (ranks_wanted(&chosen.ranks)) return ranks_run("train", &chosen.common, &chosen.ranks, train_on, &begun);
    clef_options options = ranks_context("train", &chosen.common, &chosen.ranks);
    clef_context *ctx = tool_open_with("train", &chosen.common, &options, &code);
    if (!ctx) return code;
    code = train_on(ctx, NULL, &begun);
    clef_close(ctx);
    return code;
}

const verb verb_train = {"train", NULL,    "Train a model of images or text and print how good it is on test data.",
                         args,    &chosen, train};
