/* train_options.c — what clef train was asked for: defaults, and what does not go together. */
#include "train_run.h"
#include <stdlib.h>

train_options chosen = {.lr = -1, .momentum = -1, .weight_decay = -1, .threads = 1};

void train_defaults(const source *s) {
    if (!chosen.model) chosen.model = s->model;
    if (!chosen.epochs) chosen.epochs = s->epochs;
    if (!chosen.batch) chosen.batch = s->batch;
    if (!chosen.schedule) chosen.schedule = "cosine";
    if (!chosen.optimizer) chosen.optimizer = is(chosen.model, "lenet") || is(chosen.model, "resnet18") ? "sgd" : "adam";
    if (chosen.lr < 0) chosen.lr = is(chosen.optimizer, "sgd") ? 0.05 : s->adam_lr;
    if (chosen.momentum < 0) chosen.momentum = is(chosen.optimizer, "sgd") ? 0.9 : 0;
    if (chosen.weight_decay < 0) chosen.weight_decay = is(chosen.optimizer, "adamw") ? 0.01 : 0;
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

bool train_options_fit(void) {
    int64_t milestone[MOST_MILESTONES];
    const char *wrong = NULL;
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
    if (wrong) tool_usage("train", "%s", wrong);
    return !wrong && ranks_parse("train", &chosen.common, &chosen.ranks);
}

bool train_outputs_fit(void) {
    return (!chosen.out || tool_new_file_fits("train", "out", chosen.out)) &&
           (!chosen.checkpoint || tool_directory_fits("train", "checkpoint", chosen.checkpoint)) &&
           (!chosen.csv || tool_file_fits("train", "csv", chosen.csv));
}
