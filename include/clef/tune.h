/* clef/tune.h — fitting Clef to a device by measuring.

   A kernel has knobs: tile sizes, blocks, splits, which of several algorithms.  Rules set them well for most devices.  clef_tune
   measures other configurations of the work a program really does and saves those that are faster, in tuning.jsonl beside the
   compiled kernels (clef_options.cache_dir), where every later context finds them when it opens.  A result belongs to its device,
   driver, profile, kernel source, dtype and a bucket of similar sizes, and counts for nothing else.

   Products of plain matrices, f32 and f64, are also tried by CLBlast, where this machine has it (libclblast.so.1, or the file that
   CLEF_CLBLAST names; 0: none).  It is loaded for that, or when a result names it, and never otherwise, as its first call compiles
   for seconds: tried only within a budget of 30 seconds or more (on a CPU 120), and paid by each process that uses a result that
   names it.  Where such a result is and CLBlast is not, Clef's own kernels do it.  CLBlast takes memory of its own, which no figure
   of Clef's counts, and may print when it fails.

   Tuning may change the order in which a sum is added, and so the last bits of results: the same device, driver, seed, program
   and tuning results give the same bits (and the same CLBlast, or none).  CLEF_TUNING=0 or clef_options.no_tuning leaves all
   results aside. */
#ifndef CLEF_TUNE_H
#define CLEF_TUNE_H
#include "context.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How far clef_tune is; strings are valid during the call. */
typedef struct clef_tune_progress {
    int done, total;                 /* benchmarks */
    const char *benchmark;           /* the one being measured: "gemm f32 1024,1024,…" */
    const char *best;                /* the fastest for it so far, "rows=8 vectors=3"; "": the rules' own */
    double seconds, default_seconds; /* of one run, with that and by the rules */
    int tried, wrong;                /* configurations measured; those whose numbers were wrong, which are never used */
    bool finished;                   /* with this benchmark */
    double spent;                    /* seconds since clef_tune began */
} clef_tune_progress;

typedef struct clef_tune_options {
    /* Queues what is to become fast, such as a training step, ending with clef_eval, clef_step or clef_end_step.  It is called
       once, within a dry run: it computes nothing and changes no kept tensor (see clef_set_dry_run). */
    clef_status (*work)(clef_context *ctx, void *user);
    bool (*on_progress)(void *user, const clef_tune_progress *progress); /* may be NULL; false stops */
    void *user;                                                          /* for both */
    double budget; /* seconds; 0: 60.  What has begun is finished, so it can take a little longer */
    bool again;    /* also measure what has a result already */
} clef_tune_options;

typedef struct clef_tune_result {
    int benchmarks; /* kernels of the work, for a dtype and sizes, that have knobs */
    int known;      /* had a result and were left alone */
    int tuned;      /* measured now; those not reached are benchmarks - known - tuned */
    int improved;   /* of these, where another configuration is faster than that of the rules */
    int wrong; /* configurations with wrong numbers, that of the rules too: a fault of the driver or of Clef, also in the log */
    const char
        *no_library; /* why CLBlast was not among what was tried, valid as long as the context; NULL: it was, or nobody wanted it */
    double seconds;
} clef_tune_result;

/* Measures the benchmarks in `work`, those with most arithmetic first: 8 to 12 configurations known to be good on such devices
   (fewer kernels on CPUs, whose compilers are slow), then one pass over each single knob; each is checked on whole numbers before
   it is timed, dropped when far behind, else the best of three counts.  The configuration of the rules is checked first, by
   elements computed anew on the host; once one is right, all others must be the same, bit for bit.  Where none is, nothing is kept.
   What is found is kept at once, and this context uses it from then on.  *result may be NULL.  CLEF_INTERRUPTED if on_progress
   stopped it, CLEF_STATE where tuning is switched off or a dry run is on, else what `work` or the device reports. clef_tune(ctx,
   &(clef_tune_options){.work = training_step, .user = &net, .budget = 30}, NULL);  */
CLEF_API clef_status clef_tune(clef_context *ctx, const clef_tune_options *options, clef_tune_result *result);
/* Writes all results, of all devices, as lines of JSON, by a temporary that is renamed; files can be merged by putting them
   behind one another.  *n (may be NULL): how many.  CLEF_IO if it cannot be written.
       clef_tune_export(ctx, "tuning.jsonl", NULL);  */
CLEF_API clef_status clef_tune_export(clef_context *ctx, const char *path, int *n);
/* Takes over the results in such a file, which count before those there are; damaged lines are left out, and results of other
   devices wait for these.  *n (may be NULL): how many.  CLEF_IO if it cannot be read, CLEF_FORMAT if it holds none. */
CLEF_API clef_status clef_tune_import(clef_context *ctx, const char *path, int *n);

#ifdef __cplusplus
}
#endif
#endif
