/* clef/train.h — fit, evaluate, callbacks, metrics.

   Everything here stands on the public step-level API (clef_next, clef_forward, clef_backward, clef_step) and
   can be written by hand where it does not fit.  Loss and right answers are summed on the device and read a
   few times a second at most, so the queue stays full. */
#ifndef CLEF_TRAIN_H
#define CLEF_TRAIN_H
#include "io.h"
#include "parallel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A loss of all outputs of a module and all targets of a batch: a scalar, or what is averaged to one; NULL is a failure. */
typedef clef_tensor *(*clef_loss_call_fn)(clef_tensor *const *outputs, int n_outputs, clef_tensor *const *targets, int n_targets,
                                          void *user);

typedef struct clef_epoch {
    int64_t epoch;                    /* from 1 */
    double loss, accuracy;            /* training means; accuracy NaN unless one output answers one target of classes */
    double test_loss, test_accuracy;  /* NaN without test data */
    double seconds, items_per_second; /* of the training part; speed without the time of compiling */
    double lr;                        /* of the last step */
} clef_epoch;
/* The epochs of one call of clef_fit (after resuming: those since then).  items_per_second counts training
   only, without compiling and validation.  resumed_at: batches that lay behind this run when it was resumed;
   0: from the start. */
typedef struct clef_history {
    const clef_epoch *epoch;
    int n;
    double compile_seconds, seconds, items_per_second;
    bool stopped_early, interrupted;
    int64_t resumed_at;
} clef_history;

/* Return false to stop training.  What it freezes, thaws or replaces in the module holds from the next epoch on.  The optimizer trains
   what it was made with: a part that is new stays as it is.  CLEF_INVALID if nothing is left to train. */
typedef bool (*clef_epoch_fn)(void *user, const clef_epoch *epoch);
/* Means of the epoch so far.  While kernels are compiled, compiling < to_compile and the rest stands still;
   what other threads compile meanwhile is told with the next call, which is always by the thread that called clef_fit.
   eta is in seconds, to the end of the epoch. */
typedef struct clef_progress {
    int64_t epoch, epochs, batch, batches, items;
    double loss, accuracy, items_per_second, eta;
    int compiling, to_compile;
} clef_progress;
/* Return false to stop training. */
typedef bool (*clef_progress_fn)(void *user, const clef_progress *progress);

typedef struct clef_fit_options {
    clef_loader *train, *test; /* test may be NULL */
    clef_optimizer *optimizer;
    clef_schedule *schedule; /* ticked per step (schedule_per_step) or per epoch */
    bool schedule_per_step;
    clef_loss_fn loss; /* NULL: clef_cross_entropy */
    const clef_loss_options *loss_options;
    int64_t epochs;   /* 0: 1 */
    int accumulate;   /* batches per optimizer step, each of weight 1/accumulate, also where an epoch ends with fewer; 0: 1 */
    double clip_norm; /* limit of the norm of all gradients; 0: none */
    int early_stop_patience;     /* epochs without a better test loss; 0: off.  Puts the best back */
    const char *checkpoint_dir;  /* writes best.ckpt, last.ckpt, epoch-N.ckpt */
    int keep;                    /* epoch-N files to keep; 0: none */
    int64_t checkpoint_every;    /* also every so many batches; 0: off */
    bool resume;                 /* continue from checkpoint_dir/last.ckpt where it exists */
    const char *checkpoint_note; /* at most 600 bytes */
    const char *csv;             /* one line per epoch */
    FILE *bar;                   /* a bar on a terminal, else a line every few seconds; NULL: none */
    clef_epoch_fn on_epoch;
    clef_progress_fn on_progress;
    void *user;
    const volatile int *interrupt; /* non-zero (from a signal handler): leave a checkpoint and return */
    clef_loss_call_fn loss_call;   /* in place of loss, for several outputs or targets; called with user */
    int n_outputs;                 /* of the module; 0: as many as clef_module_new_call was told, or 1 */
    clef_group *group;             /* ranks that train together; NULL: those that share the training loader's batches */
    int parts;                     /* of each batch (clef_backward_parts); 0: the training loader's .parts */
    clef_pipeline *pipeline;       /* of the module: batches go through its stages; NULL: none */
    clef_averaged *averaged;       /* updated after every step of the optimizer; NULL: none */
    bool test_averaged;            /* the averages are what is tested, what best.ckpt has and what early stop puts back */
    clef_grad_scaler *scaler; /* scales the loss of nets of f16, and leaves out steps whose gradients are not finite; NULL: none */
    clef_dtype autocast; /* of training and tests: CLEF_F16, CLEF_BF16, or 0 (CLEF_F32) for the context's own (clef_set_autocast) */
    const clef_extra *extra; /* n_extra values of the program's own in all checkpoints, which on_epoch may change */
    int n_extra;
} clef_fit_options;

/* Trains the module's parameters with the optimizer, which must have been made for it or for a part of it.  *history (may be NULL)
   belongs to the context and lives until its next fit.  The module is in training mode meanwhile, and in its
   former mode afterwards; parts of it on which a mode was set by itself, and frozen ones, stay in theirs
   (clef/nn.h).  It is given all inputs of a batch (clef_call), and the loss its output and the batch's target, or loss_call all
   outputs and targets.  The default loss of data whose targets are sequences of classes takes outputs [b,t,c] (classes_last), and
   CLEF_NO_TARGET counts for nothing, in the accuracy neither: both are means over a batch's targets, and batches count by their items.

   Exact resuming: with checkpoint_dir and resume, a run that was killed at any moment continues from
   last.ckpt and ends with the same bits as one that was not, on the same device, driver, compute units and options
   (checkpoint_note is compared before anything changes; put what matters there).  One run at a time has a
   checkpoint_dir: CLEF_STATE for a second one, until the first ends or is killed.  CSV lines of repeated epochs are replaced.
   "Best" is the lowest test loss, or training loss without test data.

   CLEF_INVALID: the options do not fit, or the loss became infinite or NaN: the line then names epoch, batch
   and the first module (the innermost one, by its dotted name) whose output is not finite, or the label that is
   no class, and the parameters are those from before that batch moved them; or the loss grew a million times
   beyond the first batch's, which is divergence too.  CLEF_INTERRUPTED: *interrupt was set; last.ckpt is written.
   An error that was there before the call, or that a callback caused, is returned as it is.
       clef_fit(net, &(clef_fit_options){.train = batches, .optimizer = adam, .epochs = 5}, NULL);

   The program's own values (.extra) are read when a checkpoint is written and filled when a run is resumed.  With them, on_epoch comes before
   the epoch's files are written: what it makes of them lies in last.ckpt, and a run that is killed before that repeats the epoch and the call.
   CLEF_INVALID, before anything begins, for one without a name or with not just one of real, whole and text.
       int64_t games = 0;
       clef_extra own[] = {{.name = "games", .whole = &games}};

   Averages of weights (clef_averaged_new of the same module) are in last.ckpt and epoch-N.ckpt and resumed with them.  With test_averaged the
   model in best.ckpt is the averages, and that file has no others; the module has its own weights while it is trained, in callbacks, and
   afterwards, unless an early stop puts the best back: clef_averaged_use gives it the last averages.  CLEF_INVALID with a module that is spread
   over ranks, CLEF_STATE with one that has averages already (clef_averaged_use).  After a loss that is not finite, averages and their count
   are those from before it.
       clef_averaged *mean = clef_averaged_new(net, &(clef_averaged_options){.decay = 0.999});
       clef_fit(net, &(clef_fit_options){.train = batches, .optimizer = adam, .averaged = mean, .test_averaged = true}, NULL);

   With a grad scaler (clef_grad_scaler_new) gradients are those of loss·scale, clip_norm is of the gradients without it, and a step whose gradients
   are not all finite is left out; it changes neither weights nor averages, but schedules go on.  The scale is updated after every step, is in
   last.ckpt, epoch-N.ckpt and best.ckpt, and is resumed.  Each step waits for its gradients.  A loss that is not finite is an error as
   without a scaler.  CLEF_INVALID with a module that is spread over ranks and with batches in parts.
       clef_grad_scaler *scaler = clef_grad_scaler_new(ctx, NULL);
       clef_fit(net, &(clef_fit_options){.train = batches, .optimizer = adam, .scaler = scaler}, NULL);

   With autocast the module and the loss run under clef_set_autocast of that dtype, in training, in tests and where a batch is looked at once more
   after an error; callbacks and optimizer do not, and the context has its own setting afterwards.  Parameters, their gradients, averages and
   files are those of f32.  bf16 needs no more; f16 wants a scaler.  Checkpoints say it: resumed with another one, the log has a warning.
       clef_fit(net, &(clef_fit_options){.train = batches, .optimizer = adam, .autocast = CLEF_BF16}, NULL);

   Ranks of a group each call it with equal options, a loader and an optimizer that have the group (CLEF_INVALID, CLEF_GROUP otherwise) and the
   same module (clef_replicate).  It is then the run of one rank on whole batches: with parts of nᵣ items and mean losses lᵣ

       loss = Σ nᵣ·lᵣ / Σ nᵣ,    accuracy = Σ right answersᵣ / Σ nᵣ

   over the ranks, the same bits on all of them, and so are all decisions: schedules, early stop, which epoch is best, an end because of a loss
   that is no number; the line names the rank where it began.  Test data are scored in parts where their loader has the group, else whole by
   every rank, and rank 0's score counts.  Before that, and before a checkpoint, the module's buffers become those of rank 0.  Rank 0 alone
   shows the bar and writes files; what it cannot write fails on all ranks with one line.  All read the files, which must be seen by all.
   nᵣ are items where the loss is a mean over fewer (has_ignore_index), too; its own weights are for your own loop (clef_group_weight).
   Callbacks run on every rank; one that wants to stop, and an interrupt, ends all ranks after the same step, about a quarter of a second
   later.  A run can be resumed with another number of ranks.
       clef_fit(net, &(clef_fit_options){.train = batches, .optimizer = adam, .epochs = 5, .group = all}, NULL);

   The module itself may be spread over ranks: as a pipeline, by layers that are cut (clef_module_shard), or both.  Then .group has all ranks, and the
   loaders and the optimizer have the group of those ranks that have the same part of the module and share batches, or none where there are no others.
   Gradients are clipped by the norm of the whole module.  Validation, checkpoints, the copy of the best weights and the end have whole weights, and
   a checkpoint is that of one rank, which any number of ranks continues, spread in any way.  With a pipeline all ranks have the whole module behind
   the call, accuracy is NaN but for test data, and the loss is one function of one output and target, a mean (CLEF_INVALID otherwise, and
   with accumulate: take more micro-batches).  Test data of a pipeline may be shared by all ranks, with cut layers by those that share batches.
   CLEF_INVALID with parts, and with optimizers that have .zero.
       clef_pipeline *pipe = clef_pipeline_new(net, all, NULL);
       clef_fit(net, &(clef_fit_options){.train = batches, .optimizer = adam, .epochs = 5, .group = all, .pipeline = pipe}, NULL);

   With parts (of the training loader; of the test loader too, if it has a group) every step is one of clef_backward_parts, and every number
   above has the same bits on 1, 2, 4, … ranks: losses, decisions, parameters, files.  A run that was ended on some ranks is continued exactly
   by another number of them.  The loss of a part counts by its items; CLEF_REDUCE_SUM is the sum over all.  CLEF_INVALID where a loader cuts
   batches into another number of parts.
       clef_fit(net, &(clef_fit_options){.train = in_parts, .optimizer = adam, .epochs = 5, .group = all, .parts = 4}, NULL);  */
CLEF_API clef_status clef_fit(clef_module *module, const clef_fit_options *options, const clef_history **history);

enum { CLEF_MAX_CLASSES = 1024 };
typedef struct clef_evaluation_result {
    int64_t items, classes;
    int top_k;
    double loss, accuracy, top_k_accuracy, seconds; /* top_k: share whose class is among k largest outputs */
    const int64_t *confusion;                       /* [classes,classes], row = truth; the context's, until the next call */
    const double *precision, *recall;               /* per class; 0 where nothing was guessed, or nothing is */
    int64_t answers;                                /* targets that are a class: of sequences many for each item */
    double perplexity;                              /* exp(loss) of sequences with the default loss; else NaN */
} clef_evaluation_result;
/* Loss (mean over the items), accuracy, top-k accuracy (k = 5) and the confusion matrix in inference mode,
   without gradients, over the loader's first epoch; afterwards it stands where it stood, so that a training loader goes on there.  Accuracies are NaN and confusion NULL where the
   targets are no classes; confusion is NULL above CLEF_MAX_CLASSES.  loss NULL: clef_cross_entropy.  Mode and
   recording are put back; the context's autocast holds (clef_set_autocast).  CLEF_INVALID if the loader gives no batch, or
   the loss is no number because of a label that is no class.  Of sequences (targets [b,t] of classes, outputs [b,t,c]: language models) loss and accuracies are means over all targets
   but those that are CLEF_NO_TARGET, and perplexity is exp(loss).  Ranks that share the loader's batches all call it; each scores its part, and all get what one rank would: sums of losses
   are added up in f64, counts as whole numbers.  A loader with .parts has each part scored by itself: then all numbers have the same bits on any
   number of ranks.
       clef_evaluation_result r; clef_evaluate(net, tests, NULL, NULL, &r);  */
CLEF_API clef_status clef_evaluate(clef_module *module, clef_loader *data, clef_loss_fn loss, const clef_loss_options *loss_options,
                                   clef_evaluation_result *result);
/* The same with another k; 0: 5; CLEF_INVALID below 0. */
CLEF_API clef_status clef_evaluate_top_k(clef_module *module, clef_loader *data, clef_loss_fn loss,
                                         const clef_loss_options *loss_options, int top_k, clef_evaluation_result *result);
typedef struct clef_evaluate_options {
    clef_loss_fn loss; /* NULL: clef_cross_entropy */
    const clef_loss_options *loss_options;
    clef_loss_call_fn loss_call; /* in place of loss, for several outputs or targets */
    void *user;                  /* of loss_call */
    int n_outputs;               /* of the module; 0: as many as clef_module_new_call was told, or 1 */
    int top_k;                   /* 0: 5 */
} clef_evaluate_options;
/* The same for any module and any data.  Accuracies are NaN and confusion NULL too where there are several outputs or targets.
   Options NULL: all defaults.
       clef_evaluate_with(net, tests, &(clef_evaluate_options){.loss_call = both, .n_outputs = 2}, &r);  */
CLEF_API clef_status clef_evaluate_with(clef_module *module, clef_loader *data, const clef_evaluate_options *options,
                                        clef_evaluation_result *result);
/* The confusion matrix as a table with recall and precision per class, at most `size` bytes with the final 0;
   class names are those of a dataset (NULL: numbers).  Returns the length it needs like snprintf; 0 without a
   matrix. */
CLEF_API int clef_confusion_text(const clef_evaluation_result *result, const clef_dataset *names, char *text, size_t size);
/* The confusion matrix as an SVG picture in a file, which appears whole or not at all.  CLEF_INVALID without
   a matrix, CLEF_IO if the file cannot be written. */
CLEF_API clef_status clef_confusion_svg(clef_context *ctx, const clef_evaluation_result *result, const clef_dataset *names,
                                        const char *path);

#ifdef __cplusplus
}
#endif
#endif
