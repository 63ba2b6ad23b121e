/* together.c — what the ranks of one run tell each other.

   Losses and right answers are summed over the ranks on the devices (metrics.c), so that they have the same bits on all of them, and so has all
   that is decided by them.  What remains is what the host of one rank alone knows: that somebody wants to stop, how fast the run is, and how
   the files are that rank 0 writes for all.  It travels when the meters are read anyway. */
#include "group/group.h"
#include "nn/module.h"
#include "optim/optimizer.h"
#include "parallel/parallel.h"
#include "train/train_internal.h"
#include <unistd.h>

bool clef__is_alone(const clef__fit *f) { return clef_group_size(f->group) == 1; }

bool clef__speaks(const clef__fit *f) { return clef_group_rank(f->group) == 0; }

clef_status clef__by_first(clef__fit *f, clef_status (*act)(clef__fit *f)) {
    return clef__group_agree(f->group, clef__speaks(f) ? act(f) : CLEF_OK);
}

/* ---- the group itself ---- */

static clef_status refuse(const clef__fit *f, const char *what) {
    return clef__fail(f->ctx, CLEF_INVALID, "fit: %s; give fit, loaders and optimizer one .group", what);
}

static clef_status check_groups(const clef__fit *f) {
    const clef_fit_options *o = f->o;
    clef_group *test = clef_loader_group(o->test);
    if (f->group && f->group->ctx != f->ctx)
        return clef__fail(f->ctx, CLEF_INVALID, "fit: the group belongs to another context; each rank has its own");
    if (clef_loader_group(o->train) != f->data) return refuse(f, "the training loader shares its batches among other ranks");
    if (test && test != f->data && (test != f->group || f->shards))
        return refuse(f, "the test loader shares its batches among other ranks");
    if (o->optimizer->group != f->data) return refuse(f, "the optimizer averages its gradients over other ranks");
    return CLEF_OK;
}

static bool is_spread(const clef__fit *f) { return f->shards || (f->o->pipeline && f->o->pipeline->stages > 1); }

static clef_status refuse_spread(const clef__fit *f, const char *what) {
    return clef__fail(f->ctx, CLEF_INVALID, "fit: a module that is spread over ranks %s", what);
}

/* A module that ranks have parts of. */
static clef_status check_spread(const clef__fit *f) {
    const clef_fit_options *o = f->o;
    if (!o->pipeline && !f->shards) return CLEF_OK;
    if (is_spread(f) && (!f->group || f->group == f->data))
        return refuse_spread(f, "wants .group, all of them, and loaders whose group has fewer");
    if (clef_loader_parts(o->train) || o->parts) return refuse_spread(f, "does not go with parts");
    if (o->averaged) return refuse_spread(f, "has no averages of its weights; leave .averaged out");
    if (o->scaler) return refuse_spread(f, "has no scale of its loss; leave .scaler out");
    if (o->optimizer->zero) return refuse_spread(f, "does not go with an optimizer whose states are cut (.zero)");
    if (!o->pipeline) return CLEF_OK;
    if (!clef__pipeline_is_of(o->pipeline, f->module))
        return refuse_spread(f, "is not the one of .pipeline; make a pipeline of it");
    if (o->loss_call || o->n_outputs > 1) return refuse_spread(f, "as a pipeline takes .loss, of one output and one target");
    if (o->loss_options && o->loss_options->reduction != CLEF_REDUCE_MEAN)
        return refuse_spread(f, "as a pipeline wants a loss that is a mean");
    if (o->accumulate > 1) return refuse_spread(f, "as a pipeline has no accumulate; take larger batches and more micro-batches");
    return CLEF_OK;
}

static clef_status refuse_parts(const clef__fit *f, const char *whose, int has) {
    return clef__fail(f->ctx, CLEF_INVALID, "fit: parts is %d, and the %s loader has %d; give both the same", f->o->parts, whose,
                      has);
}

/* Scores would have other bits on another number of ranks, where these share the test data in another way. */
static clef_status check_parts(const clef__fit *f) {
    int train = clef_loader_parts(f->o->train), test = clef_loader_parts(f->o->test);
    if (train && f->o->scaler)
        return clef__fail(f->ctx, CLEF_INVALID, "fit: a batch in parts has no scale of its loss; leave .scaler out");
    if (f->o->parts && f->o->parts != train) return refuse_parts(f, "training", train);
    if (train && clef_loader_group(f->o->test) && test != train)
        return clef__fail(f->ctx, CLEF_INVALID,
                          "fit: the training loader has %d parts, and the test loader, with a group, has %d; "
                          "give both the same",
                          train, test);
    return CLEF_OK;
}

/* Options on which it depends when ranks meet. */
enum { NUMBERS = 16 };
static const char *const number_name[NUMBERS] = {
    "epochs",           "accumulate", "clip_norm above 0", "early_stop_patience", "keep",     "checkpoint_every", "resume",
    "a checkpoint_dir", "test data",  "schedule_per_step", "a pipeline",          "averages", "test_averaged",    "n_extra",
    "a scaler",         "autocast"};

static clef_status check_options(const clef__fit *f) {
    const clef_fit_options *o = f->o;
    int size = clef_group_size(f->group);
    int64_t own[NUMBERS] = {o->epochs,        o->accumulate,        o->clip_norm > 0,    o->early_stop_patience,
                            o->keep,          o->checkpoint_every,  o->resume,           o->checkpoint_dir != NULL,
                            o->test != NULL,  o->schedule_per_step, o->pipeline != NULL, o->averaged != NULL,
                            o->test_averaged, o->n_extra,           o->scaler != NULL,   o->autocast};
    int64_t(*all)[NUMBERS] = clef__calloc((size_t)size, sizeof *all);
    if (!all) return clef__fail(f->ctx, CLEF_MEMORY, "fit: no memory for the options of %d ranks", size);
    clef_status status = clef_group_gather_bytes(f->group, own, all, sizeof own);
    for (int k = 0; k < NUMBERS && !status; k++)
        for (int r = 1; r < size && !status; r++)
            if (all[r][k] != all[0][k])
                status = clef__fail(f->ctx, CLEF_GROUP, "fit: %s has %lld as %s, %s has %lld; all ranks give the same",
                                    clef_group_rank_name(f->group, 0), (long long)all[0][k], number_name[k],
                                    clef_group_rank_name(f->group, r), (long long)all[r][k]);
    clef__free(all);
    return status;
}

clef_status clef__begin_together(clef__fit *f) {
    f->group = f->o->group ? f->o->group : clef_loader_group(f->o->train);
    if (clef_group_size(f->group) == 1) f->group = NULL;
    f->shards = clef__has_shards(f->module);
    f->data = is_spread(f) ? clef_loader_group(f->o->train) : f->group;
    clef_status status = check_groups(f);
    if (!status) status = check_spread(f);
    if (!status) status = check_parts(f);
    f->parts = clef_loader_parts(f->o->train);
    return status || clef__is_alone(f) ? status : check_options(f);
}

/* ---- when to end, and when to meet again ---- */

typedef struct wishes {
    int64_t stop, interrupt, steps; /* steps: until the next reading; rank 0's counts */
} wishes;

clef_status clef__agree_on_end(clef__fit *f) {
    wishes own = {f->wants_stop, f->o->interrupt && *f->o->interrupt, f->sync_every};
    int size = clef_group_size(f->group);
    wishes *all = size > 1 ? clef__calloc((size_t)size, sizeof *all) : &own;
    if (!all) return clef__fail(f->ctx, CLEF_MEMORY, "fit: no memory for what %d ranks want", size);
    clef_status status = size > 1 ? clef_group_gather_bytes(f->group, &own, all, sizeof own) : CLEF_OK;
    for (int r = 0; r < size && !status; r++) {
        f->must_stop |= all[r].stop != 0;
        f->must_interrupt |= all[r].interrupt != 0;
    }
    if (!status) f->sync_every = all[0].steps;
    if (all != &own) clef__free(all);
    return status;
}

/* ---- what differs from rank to rank ---- */

clef_status clef__share_module(clef__fit *f) {
    if (clef__is_alone(f)) return CLEF_OK;
    clef_status status = f->o->pipeline ? clef_pipeline_gather(f->o->pipeline, f->o->optimizer) : CLEF_OK;
    for (CLEF_NO_GRAD(f->ctx))
        for (int i = 0; i < clef_module_tensors(f->module) && !status; i++) {
            clef_named_tensor t = clef_module_tensor(f->module, i);
            clef_tensor *first = t.is_buffer ? clef_broadcast(t.tensor, f->group, 0) : NULL;
            if (t.is_buffer) status = first ? clef_assign(t.tensor, first) : clef_error_status(f->ctx);
        }
    return status ? status : clef_end_step(f->ctx);
}

clef_status clef__whole_module(clef__fit *f, bool whole) {
    return f->shards ? clef__shards_whole(f->module, f->o->optimizer, whole) : CLEF_OK;
}

clef_status clef__read_sums(clef__fit *f, clef__meter_values *values) {
    clef_status status = clef__meters_read(&f->meters, values);
    return !status && f->shards ? clef_group_broadcast_bytes(f->group, 0, values, sizeof *values) : status;
}

clef_status clef__share_score(clef__fit *f, clef__score *score) {
    if (clef__is_alone(f) || clef_loader_group(f->o->test) == f->group) return CLEF_OK;
    return clef_group_broadcast_bytes(f->group, 0, score, sizeof *score);
}

clef_status clef__is_there(clef__fit *f, const char *path, bool *there) {
    char own = access(path, F_OK) == 0, *all = clef__calloc((size_t)clef_group_size(f->group), 1);
    if (!all) return clef__fail(f->ctx, CLEF_MEMORY, "fit: no memory for what %d ranks see", clef_group_size(f->group));
    clef_status status = clef_group_gather_bytes(f->group, &own, all, 1);
    *there = all[0];
    for (int r = 1; r < clef_group_size(f->group) && !status; r++)
        if (all[r] != all[0])
            status =
                clef__fail(f->ctx, CLEF_IO, "fit: resume: %s sees a file %s, and %s does not; give a directory that all ranks see",
                           clef_group_rank_name(f->group, all[0] ? 0 : r), path, clef_group_rank_name(f->group, all[0] ? r : 0));
    clef__free(all);
    return status;
}
