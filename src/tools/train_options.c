/* train_options.c — what clef train was asked for: defaults, and what does not go together. */
#include "train_run.h"
#include <stdlib.h>

train_options chosen = {.lr = -1, .momentum = -1, .weight_decay = -1, .clip_norm = -1, .beta2 = -1, .min_lr = -1, .threads = 1};

void train_defaults(const source *s) {
    if (!chosen.model) chosen.model = s->model;
    if (!chosen.epochs) chosen.epochs = s->epochs;
    if (!chosen.batch) chosen.batch = s->batch;
    if (!chosen.schedule) chosen.schedule = "cosine";
    if (!chosen.optimizer)
        chosen.optimizer = is(chosen.model, "lenet") || is(chosen.model, "resnet18") ? "sgd" : s->text ? "adamw" : "adam";
    if (chosen.lr < 0) chosen.lr = is(chosen.optimizer, "sgd") ? 0.05 : s->adam_lr;
    if (chosen.momentum < 0) chosen.momentum = is(chosen.optimizer, "sgd") ? 0.9 : 0;
    if (chosen.weight_decay < 0) chosen.weight_decay = !is(chosen.optimizer, "adamw") ? 0 : s->text ? 0.1 : 0.01;
    if (chosen.clip_norm < 0) chosen.clip_norm = s->text ? 1 : 0;
    if (chosen.min_lr < 0) chosen.min_lr = s->text && is(chosen.schedule, "cosine") ? chosen.lr / 10 : 0;
    if (chosen.beta2 < 0) chosen.beta2 = is(chosen.optimizer, "sgd") ? 0 : s->text ? 0.99 : 0.999;
}

int train_milestones(int64_t milestone[MOST_MILESTONES]) {
    if (!chosen.milestones) {
        milestone[0] = (chosen.epochs + 1) / 2;
        milestone[1] = (3 * chosen.epochs + 3) / 4;
        return 2;
    }
    int n = 0;
    char *end;
    if (strlen(chosen.milestones) > MILESTONES_TEXT) return 0;
    for (const char *p = chosen.milestones;; p = end + 1) {
        if (n == MOST_MILESTONES || *p < '0' || *p > '9') return 0;
        milestone[n] = strtoll(p, &end, 10);
        if (milestone[n] <= (n > 0 ? milestone[n - 1] : 0) || milestone[n] > 1000000) return 0;
        n++;
        if (!*end) return n;
        if (*end != ',') return 0;
    }
}

static const char *wrong_language(bool text) {
    bool sgd = is(chosen.optimizer, "sgd"), ends = is(chosen.schedule, "cosine") || is(chosen.schedule, "plateau");
    const char *wrong = language_mismatch(&chosen.language, chosen.model, text);
    if (wrong) return wrong;
    if (text && chosen.augment) return "--augment is for images";
    if (sgd && chosen.beta2 > 0) return "--beta2 belongs to --optimizer adam or adamw";
    if (!sgd && (chosen.beta2 <= 0 || chosen.beta2 >= 1)) return "--beta2 wants a number above 0 and below 1";
    if (chosen.min_lr > 0 && !ends) return "--min-lr belongs to --schedule cosine or plateau";
    return chosen.min_lr > chosen.lr ? "--min-lr wants a number that is not above --lr" : NULL;
}

bool train_options_fit(bool text) {
    int64_t milestone[MOST_MILESTONES];
    const char *wrong = wrong_language(text);
    if (wrong) return tool_usage("train", "%s", wrong), false;
    if ((chosen.resume || chosen.checkpoint_every || chosen.keep) && !chosen.checkpoint)
        wrong = "--resume, --checkpoint-every and --keep need --checkpoint DIR";
    else if (chosen.label_smoothing >= 1) wrong = "--label-smoothing wants a number below 1";
    else if (chosen.lr == 0) wrong = "--lr wants a number above 0";
    else if (chosen.momentum > 0 && !is(chosen.optimizer, "sgd"))
        wrong = is(chosen.optimizer, "adam") ? "--momentum belongs to --optimizer sgd; this run has adam"
                                             : "--momentum belongs to --optimizer sgd; this run has adamw";
    else if (chosen.milestones && !is(chosen.schedule, "multistep")) wrong = "--milestones belongs to --schedule multistep";
    else if (!train_milestones(milestone)) wrong = "--milestones wants up to 16 ascending whole numbers from 1, as in 10,15";
    else if (chosen.warmup && (is(chosen.schedule, "one-cycle") || is(chosen.schedule, "plateau")))
        wrong = "--warmup does not go with --schedule one-cycle or plateau";
    else if (chosen.recompute && !model_recompute(chosen.model, NULL))
        wrong = "--recompute wants a model of blocks: --model resnet18";
    else if (chosen.threads > 256 || chosen.batch > 1000000) wrong = "--threads or --batch is far too large";
    else if (chosen.keep > 1000000 || chosen.early_stop > 1000000) wrong = "--keep or --early-stop is far too large";
    if (!wrong) wrong = train_spread_fits(text);
    if (wrong) tool_usage("train", "%s", wrong);
    chosen.ranks.wanted = train_grid_wants();
    return !wrong && ranks_parse("train", &chosen.common, &chosen.ranks);
}

bool train_outputs_fit(bool text) {
    return (!chosen.out || (text ? tool_directory_fits : tool_new_file_fits)("train", "out", chosen.out)) &&
           (!chosen.checkpoint || tool_directory_fits("train", "checkpoint", chosen.checkpoint)) &&
           (!chosen.csv || tool_file_fits("train", "csv", chosen.csv));
}
