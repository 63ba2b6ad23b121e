/* train_internal.h — what the files of this room share: the state of one fit and the pieces it is made of. */
#ifndef CLEF_TRAIN_INTERNAL_H
#define CLEF_TRAIN_INTERNAL_H
#include "clef/train.h"
#include "runtime/runtime.h"
#include <pthread.h>

/* ---- evaluate.c: what this room hangs on a context ---- */
typedef struct clef__train_room {
    clef_history history;
    clef_epoch *epoch;
    int capacity;
    int64_t *confusion;
    double *rates; /* precision, then recall */
} clef__train_room;
clef__train_room *clef__train_room_of(clef_context *ctx); /* NULL: out of memory */

/* What accuracy is of: outputs [n,c] and classes [n]; for sequences, views of [b,t,c] and [b,t].  NULL: there is none. */
typedef struct clef__answers {
    clef_tensor *output, *target;
    int64_t sequences; /* b; 0: each item has one class */
} clef__answers;

/* ---- metrics.c: sums kept on the device, so that nobody waits for them ---- */
typedef struct clef__meters {
    clef_context *ctx;
    clef_group *group;                  /* over whose ranks batches are summed; NULL: this one alone */
    clef_tensor *loss, *correct, *good; /* kept f32 scalars: Σ loss·weight, Σ right answers, batches before the first bad one */
} clef__meters;
typedef struct clef__meter_values {
    float loss, correct, good;
} clef__meter_values;
bool clef__meters_open(clef__meters *meters, clef_context *ctx, clef_group *group);
void clef__meters_close(clef__meters *meters);
clef_status clef__meters_set(clef__meters *meters, clef__meter_values values);
clef_status clef__meters_read(clef__meters *meters, clef__meter_values *values); /* waits */
/* Brings the sums to where this loss is; clef__meters_add does so itself. */
clef_status clef__meters_follow(clef__meters *meters, clef_tensor *loss);
/* Adds a batch, of all ranks; a weight of 0 leaves the loss out, whatever it is.  Returns "every loss so far is finite" as an expression, or NULL after an error. */
clef_tensor *clef__meters_add(clef__meters *meters, const clef__answers *answers, clef_tensor *loss, double weight);
/* The same of a batch in parts, whose sums over all ranks are there: the loss, which weighs so much, and right answers (NULL: none). */
clef_tensor *clef__meters_add_parts(clef__meters *meters, clef_tensor *loss, double weight, clef_tensor *right);
/* How many, in items, as a scalar on that device: sequences count as many as they are, times the share that is right of their targets that
   are a class. */
clef_tensor *clef__right_answers(const clef__answers *answers, int device);
/* Who wants a loss, and which. */
typedef struct clef__loss {
    clef_context *ctx;
    const char *op;  /* for error lines */
    clef_loss_fn fn; /* NULL: clef_cross_entropy */
    const clef_loss_options *options;
    clef_loss_call_fn call; /* NULL, or what takes all outputs and targets, in place of fn */
    void *user;
    int n_outputs;       /* of the module; 0 until clef__loss_check: as many as it says, or 1 */
    bool sequences;      /* after clef__loss_check: one output [b,...,c] answers one target of classes [b,...] */
    clef_dtype autocast; /* outputs and loss are computed under it; F32: as the context has it */
} clef__loss;
/* Sets the loss's autocast; returns what clef_set_autocast puts back. */
clef_dtype clef__loss_autocast(const clef__loss *loss);
/* Fills n_outputs.  CLEF_INVALID unless the loss can take the module's outputs and the loader's targets. */
clef_status clef__loss_check(clef__loss *loss, const clef_module *module, const clef_loader *loader);
/* Is there one output and one target of it? */
bool clef__is_single(const clef__loss *loss, const clef_loader *loader);
/* The module's outputs, n_outputs of them, for a batch. */
clef_status clef__batch_outputs(const clef__loss *loss, clef_module *module, const clef_batch *batch, clef_tensor **outputs);
/* Where accuracy is defined, of a batch. */
clef__answers clef__answers_of(const clef__loss *loss, clef_tensor *const *outputs, const clef_batch *batch);
/* The loss function's options; for sequences the default loss takes classes last and leaves CLEF_NO_TARGET out. */
clef_loss_options clef__loss_options(const clef__loss *loss);
/* The loss of a batch as a scalar, and what the batch weighs in the sum over all; NULL never without an error. */
clef_tensor *clef__batch_loss(const clef__loss *loss, clef_tensor *const *outputs, const clef_batch *batch, double *weight);

/* Items of the batch that was fetched last, of all ranks. */
int64_t clef__batch_items(clef_context *ctx, const clef_batch *batch);

/* ---- labels.c ---- */
typedef struct clef__bad_label {
    int64_t label, item, classes;
} clef__bad_label;
/* Is a label no class of [n,classes,…] outputs, or [n,…,classes] with classes_last, and not one to ignore?  Waits. */
bool clef__find_bad_label(clef_tensor *output, clef_tensor *target, const clef_loss_options *options, clef__bad_label *found);
#define CLEF__BAD_LABEL "is no class of the module's %lld outputs (0 to %lld; has_ignore_index lets one label count for nothing)"

/* ---- evaluate.c ---- */
/* Means over a loader, `top` being the share within the top_k largest; confusion (the dataset's classes² counts) may be NULL. */
typedef struct clef__score {
    int64_t items, classes, answers;
    double loss, accuracy, top, perplexity, seconds;
} clef__score;
clef_status clef__score_loader(clef_module *module, clef_loader *loader, const clef__loss *loss, int top_k, int64_t *confusion,
                               clef__score *score);

/* ---- progress.c ---- */
typedef struct clef__bar {
    FILE *out; /* NULL: silent */
    bool terminal, color, open;
    double last;
} clef__bar;
void clef__bar_init(clef__bar *bar, FILE *out);
void clef__bar_progress(clef__bar *bar, const clef_progress *progress);
void clef__bar_epoch(clef__bar *bar, const clef_epoch *epoch, int64_t epochs);
void clef__bar_close(clef__bar *bar);

/* ---- fit.c: one training run ---- */
typedef struct clef__fit {
    clef_module *module;
    const clef_fit_options *o;
    clef_context *ctx;
    pthread_t thread;  /* that called fit */
    clef_group *group; /* NULL: one rank */
    clef_group *data;  /* those of them that share batches; the same unless the module is spread over ranks */
    int parts;         /* of each batch; 0: it is computed whole */
    bool shards;       /* layers of the module are cut over ranks */
    clef__meters meters;
    clef__bar bar;
    clef_progress progress;
    clef__loss loss;
    clef_tensor **leaf; /* the parameters that want gradients */
    int n_leaves;
    bool others;        /* some of them the optimizer does not train */
    bool has_classes;   /* accuracy means something */
    clef_tensor **best; /* every parameter and buffer, then copies of them at the best epoch; NULL until needed */
    int n_best;
    bool best_in_memory;
    double best_metric;
    double first_loss;                             /* of the first batch that was looked at; NaN before it */
    int64_t epochs, done, bad_epochs;              /* epochs wanted, finished, since the best one */
    int64_t batch, items;                          /* of the current epoch */
    int64_t first_batch;                           /* where the loader stood as it began */
    int pending;                                   /* batches whose gradients wait for a step */
    int64_t sync_every, since_sync;                /* steps between two readings of the meters */
    int64_t first_item, sync_items, compile_items; /* items at the epoch's start, at the last reading, while compiling */
    double sync_time, epoch_start, compile_wall, compiled;
    double busy_items, busy_seconds; /* of all epochs, without intervals of compiling */
    double lr;                       /* of the last step */
    int64_t resumed_at;              /* batches of this run that lay behind it when it was resumed */
    bool wants_stop;                 /* this rank's callbacks do */
    bool must_stop, must_interrupt;  /* some rank's callbacks or signals do: */
    bool stopped, interrupted;       /* it ends, after a whole step */
    bool improved, resumed_inside;
    bool as_averaged;  /* the module has the averaged weights just now */
    clef_epoch *ended; /* the last one that did */
    int lock;          /* the directory of checkpoints; -1: none */
} clef__fit;

/* together.c: what ranks tell each other.  All ranks call each of these at the same step; alone they do nothing. */
clef_status clef__begin_together(clef__fit *f); /* finds the group; CLEF_INVALID, CLEF_GROUP where options do not fit */
bool clef__is_alone(const clef__fit *f);
bool clef__speaks(const clef__fit *f); /* is it rank 0, which alone writes files and the bar? */
/* Rank 0 acts; all get its status and line. */
clef_status clef__by_first(clef__fit *f, clef_status (*act)(clef__fit *f));
/* Sets must_stop and must_interrupt where a rank wants it, and sync_every to rank 0's. */
clef_status clef__agree_on_end(clef__fit *f);
/* The module's buffers become those of rank 0, such as running statistics of batch norm.  Of a pipeline all ranks get all parameters and states
   first. */
clef_status clef__share_module(clef__fit *f);
/* Layers that are cut get their whole weights and states, for a file, or the parts come back. */
clef_status clef__whole_module(clef__fit *f, bool whole);
/* Reads the meters; where layers are cut, of rank 0, as all decide by them. */
clef_status clef__read_sums(clef__fit *f, clef__meter_values *values);
/* The score becomes that of rank 0 where each rank scored the whole test data. */
clef_status clef__share_score(clef__fit *f, clef__score *score);
/* Is there such a file?  CLEF_IO where not all ranks see the same. */
clef_status clef__is_there(clef__fit *f, const char *path, bool *there);

/* fit.c: acts while the module has the weights that are tested, with test_averaged the averages. */
clef_status clef__as_tested(clef__fit *f, clef_status (*act)(clef__fit *f));

/* epoch.c: the training half of an epoch. */
clef_status clef__train_epoch(clef__fit *f, clef_epoch *result);

/* checkpoints.c */
clef_status clef__check_extra(clef_context *ctx, const clef_fit_options *o); /* the program's own values */
clef_status clef__checkpoint_begin(clef__fit *f); /* makes the directory and locks it: CLEF_STATE where another run has it */
void clef__checkpoint_unlock(clef__fit *f);
/* The line that a checkpoint's note begins with: where a run is, and the sums of an epoch under way. */
typedef struct clef__place {
    int64_t batch, items, bad_epochs;
    double loss, correct, good;
} clef__place;
bool clef__place_parse(const char *line, clef__place *place); /* any numbers; false for another line */
clef_status clef__checkpoint_inside(clef__fit *f);            /* last.ckpt in mid-epoch */
clef_status clef__checkpoint_epoch(clef__fit *f);             /* last, best, epoch-N */
clef_status clef__checkpoint_resume(clef__fit *f);
clef_status clef__best_remember(clef__fit *f);
clef_status clef__best_restore(clef__fit *f);
void clef__best_forget(clef__fit *f);

/* csvlog.c: one line per epoch; lines of epochs after `done` are dropped when a run is resumed. */
clef_status clef__csv_begin(clef__fit *f); /* nothing where no such file is wanted */
clef_status clef__csv_line(clef__fit *f);  /* of the epoch that ended */

/* diagnose.c: after a loss that is no number: names the batch, which `good` ones came before in this epoch, and the first bad layer. */
clef_status clef__diagnose(clef__fit *f, int64_t good);
/* epoch.c: the same, of these meters, and what was not taken since counts no more. */
clef_status clef__refuse_loss(clef__fit *f, const clef__meter_values *values);
#endif
