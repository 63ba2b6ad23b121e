/* train_run.h — the parts of clef train: what was asked for, data and model, what is told. */
#ifndef CLEF_TOOL_TRAIN_RUN_H
#define CLEF_TOOL_TRAIN_RUN_H
#include "tool.h"
#include <string.h>

enum { MOST_MILESTONES = 16, MILESTONES_TEXT = 100 };

typedef struct train_options {
    common_options common;
    const char *data, *model, *optimizer, *schedule, *milestones, *out, *checkpoint, *csv, *parallel;
    int64_t epochs, batch, threads, limit, checkpoint_every, keep, early_stop, warmup;
    /* below 0: the default */
    double lr, momentum, weight_decay, clip_norm, beta2, min_lr;
    double label_smoothing;
    language_options language;
    bool augment, resume, dry_run, recompute;
    ranks ranks;
    int64_t micro_batches; /* 0: four for each stage */
    int way[3];            /* found: of --parallel, copies of the model, stages, parts of layers; 0: as many as there are devices */
} train_options;
extern train_options chosen; /* of all ranks; only read while they run */

/* ---- train_options.c ---- */
static inline bool is(const char *a, const char *b) { return !strcmp(a, b); }
void train_defaults(const source *s);
/* Do the options go together?  False after one line on stderr. */
bool train_options_fit(bool text);
/* Found out before the work is done that would be lost. */
bool train_outputs_fit(bool text);
/* The numbers of --milestones, or of what it defaults to; 0 where they are not ascending numbers from 1. */
int train_milestones(int64_t milestone[MOST_MILESTONES]);

/* ---- one rank ---- */
typedef struct train_run {
    source data;
    clef_context *ctx;
    clef_group *all;                                   /* NULL: one rank */
    clef_group *data_group, *stage_group, *part_group; /* those that share batches, a model's stages, a layer's parts */
    clef_dataset *train, *test;
    clef_loader *train_loader, *test_loader;
    clef_module *net;
    clef_pipeline *pipeline; /* NULL: none */
    clef_optimizer *optimizer;
    clef_schedule *schedule;
    clef_grad_scaler *scaler; /* with --dtype f16 */
    bool per_step, stepped;
    double begun;
    clef_epoch last;
} train_run;

/* Is it rank 0, which alone prints and writes? */
static inline bool train_speaks(const train_run *r) { return clef_group_rank(r->all) == 0; }
/* Of several ranks the first error is printed when all have ended. */
static inline int train_failed(const train_run *r) { return r->all ? EXIT_FAILED : tool_failed("train", r->ctx); }

/* ---- train_model.c: loaders, then net, optimizer and schedule; false with the context's error ---- */
bool train_open_data(train_run *r);
bool train_open_model(train_run *r);
/* Writes what --out names: weights, or the directory of a language model. */
clef_status train_save(const train_run *r);
/* What must be alike for a run to be resumed. */
void train_describe(const train_run *r, char *note, size_t size);

/* ---- train_spread.c: --parallel ---- */
/* Reads it, and finds what does not go with it: a line, or NULL. */
const char *train_spread_fits(bool text);
/* How many devices a grid is for; 0: any number. */
int train_grid_wants(void);
/* Splits the group; false with the context's error. */
bool train_make_grid(train_run *r);
/* Cuts layers and makes the pipeline; false with the context's error. */
bool train_spread_model(train_run *r);
/* The ranks that share test data. */
clef_group *train_test_group(const train_run *r);
/* Brings whole layers to all ranks, at the end. */
clef_status train_gather_model(train_run *r);

/* ---- train_report.c ---- */
void train_say_start(const train_run *r);
bool train_on_progress(void *run, const clef_progress *p);
bool train_on_epoch(void *run, const clef_epoch *e);
/* What each rank has for itself, one after another. */
clef_status train_say_ranks(const train_run *r);
void train_say_done(const train_run *r, const clef_history *h);
/* Prints the model, and what a step takes; returns the exit code. */
int train_dry_run(train_run *r);

#endif
