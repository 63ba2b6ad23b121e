/* clef/group.h — ranks that work together: groups, and collective operations on tensors.

   A rank is one context, used by one thread of a program (clef_run_ranks) or by one process of several (clef/mpi.h).  A group is n ranks,
   numbered from 0.  The same program runs on every rank.  A NULL group, or one of a single rank, makes every operation here what it
   is for one rank alone: a sum of one, a copy of what is there, nothing to wait for.

   Every rank must create the same collective operations of a group in the same order: they get numbers as they are created, and run in
   the order of these numbers, whatever is read first.  Ranks whose programs differ all get one line that names the first
   difference (CLEF_GROUP) instead of waiting for each other.

   The host runs ahead of a rank's device, but not without end: a call may wait for operations made long before, and so for other ranks.
   Where threads meet by means of their own (a barrier, a lock), each should have read what it computed, or called clef_synchronize.

   A rank that fails, or returns early, fails the group: what the others do with it next gives CLEF_GROUP with that rank's name and
   line.  Sums are made in an order that depends on the number of ranks alone. */
#ifndef CLEF_GROUP_API_H
#define CLEF_GROUP_API_H
#include "context.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct clef_group clef_group; /* lives as long as its context */

/* ---- ranks as threads ---- */

/* What a rank does.  `all` is the group of all ranks.  Anything but CLEF_OK fails the group. */
typedef clef_status (*clef_rank_fn)(clef_context *ctx, clef_group *all, void *user);

/* Puts a transport of the caller's own in front of Clef's, `of` (clef/transport.h): to count, to record, or to delay what goes through it.
   Called once for each rank, before its function runs.  Both live until all ranks have ended; `begin_sharing` and `meet` may be left
   NULL in the one that it returns.  NULL fails the rank with CLEF_MEMORY. */
struct clef_transport;
typedef const struct clef_transport *(*clef_wrap_fn)(const struct clef_transport *of, void *user);

typedef struct clef_ranks_options {
    clef_options context;    /* of every rank; `device` is not looked at */
    double timeout;          /* seconds that a rank waits for another before the group fails; 0: 300, below 0: for ever */
    const char *const *name; /* what error lines call each rank; NULL: "rank 0 (DEVICE)" */
    clef_wrap_fn wrap;       /* NULL: Clef uses its transport as it is */
    void *wrap_user;
} clef_ranks_options;

/* Runs `fn` once for each device of the list, each in a thread and with a context of its own, all opened first; "0,1", "0/2" as for
   clef_options.device.  "0,0" is device 0 for two ranks.  Waits for all.  Returns the first failure; clef_error(NULL) then has its line.
   The calling thread runs none of them.
       static clef_status train(clef_context *ctx, clef_group *all, void *user) { … return clef_error_status(ctx); }
       if (clef_run_ranks("0/2", train, NULL) != CLEF_OK) fprintf(stderr, "%s\n", clef_error(NULL));  */
CLEF_API clef_status clef_run_ranks(const char *devices, clef_rank_fn fn, void *user);
CLEF_API clef_status clef_run_ranks_with(const char *devices, const clef_ranks_options *options, clef_rank_fn fn, void *user);

/* ---- a group ---- */

CLEF_API int clef_group_rank(const clef_group *group); /* of the caller; 0 for NULL */
CLEF_API int clef_group_size(const clef_group *group); /* 1 for NULL */
/* What error lines call rank `rank` of it: "rank 1 (device 1 (cpu))"; "rank 0" for NULL.  Lives as long as the group. */
CLEF_API const char *clef_group_rank_name(const clef_group *group, int rank);
/* The ranks that give the same `color`, ordered by `key` and then by their rank here.  Every rank of `group` calls it; a negative color gets
   no group: NULL without an error.  Of a NULL group: NULL.
       clef_group *row = clef_group_split(all, rank / 2, 0), *column = clef_group_split(all, rank % 2, 0);   a grid two wide  */
CLEF_API clef_group *clef_group_split(clef_group *group, int color, int key);
/* Returns on all ranks once all have called it.  It evaluates no tensors. */
CLEF_API clef_status clef_group_barrier(clef_group *group);
/* Bytes of host memory from rank `root` to all. */
CLEF_API clef_status clef_group_broadcast_bytes(clef_group *group, int root, void *bytes, size_t n);
/* n bytes from every rank to all: those of rank r at all + r·n. */
CLEF_API clef_status clef_group_gather_bytes(clef_group *group, const void *own, void *all, size_t n);

/* How much this rank counts in the averages of the present step's gradients (clef_adam_options.group and others): the average is
   Σ weight·g / Σ weight over the ranks, where g is what backward gave on a rank in this step.  Every rank gives one, before the
   gradients are first used; clef_step forgets it: with several optimizers give it before each.  For losses that are means of something
   else than items: give how many.  Not given, a rank counts by its part of the last batch (clef_loader_options.group), else like the
   others.  Does nothing for NULL.  CLEF_INVALID unless weight ≥ 0.
       clef_group_weight(all, tokens_that_count);  */
CLEF_API clef_status clef_group_weight(clef_group *group, double weight);

/* ---- collective operations ----
   Expressions like any other, with gradients where it says so; shapes and dtypes must be equal on all ranks unless it says otherwise.
   NULL inputs give NULL outputs; then the group waits for a call that never comes, and ends with this rank's error as soon as the
   rank returns.  Half types are summed in f32 and rounded once. */

typedef enum clef_group_reduction {
    CLEF_GROUP_SUM,
    CLEF_GROUP_MEAN, /* the sum divided by the number of ranks; floating dtypes */
    CLEF_GROUP_PRODUCT,
    CLEF_GROUP_MIN, /* of NaN and a number: NaN */
    CLEF_GROUP_MAX
} clef_group_reduction;

/* y = x₀ ⊕ x₁ ⊕ … over the ranks, the same bits on each, combined as a balanced binary tree over the ranks in order.  Of f32, f64, f16,
   bf16, i32, i64.  Gradient of sum and mean: the same reduction of the outputs' gradients.  (MPI 4.0, 6.9: MPI_Allreduce)
       clef_tensor *mean = clef_all_reduce(loss, all, CLEF_GROUP_MEAN);  */
CLEF_API clef_tensor *clef_all_reduce(clef_tensor *x, clef_group *group, clef_group_reduction reduction);
/* x [n, …] of every rank, one behind the other along `dim` in rank order: [n·size, …].  Gradient: reduce_scatter of sums. */
CLEF_API clef_tensor *clef_all_gather(clef_tensor *x, clef_group *group, int dim);
/* The part that is this rank's of the reduction of x [n·size, …], cut along `dim` into `size` equal parts: [n, …].  CLEF_SHAPE where
   it cannot be cut so.  Gradient of sum and mean: all_gather. */
CLEF_API clef_tensor *clef_reduce_scatter(clef_tensor *x, clef_group *group, int dim, clef_group_reduction reduction);
/* x of rank `root`, on all.  The others give an x of the same shape and dtype, whose numbers are not looked at.  Gradient: the sum, at
   the root. */
CLEF_API clef_tensor *clef_broadcast(clef_tensor *x, clef_group *group, int root);
/* x [n·size, …] is cut along `dim`; part r goes to rank r; what came from the ranks lies in rank order along the same dim.  Gradient:
   the same of the gradient. */
CLEF_API clef_tensor *clef_all_to_all(clef_tensor *x, clef_group *group, int dim);
/* Sends x to rank `to`, which calls clef_recv; an action that is done with the step, behind the group's earlier operations.  It never waits
   for the receiver, and stays there until that asks for it, whatever ranks do together in between.  A message that nobody has asked for when
   its receiver ends is an error there (CLEF_GROUP), as in MPI.  No gradient: what comes back is sent by whoever cut the graph here. */
CLEF_API clef_status clef_send(clef_tensor *x, clef_group *group, int to);
/* What rank `from` sends: a tensor of this shape and dtype on the context's device `device`. */
CLEF_API clef_tensor *clef_recv(clef_context *ctx, clef_group *group, int from, clef_shape shape, clef_dtype dtype);

#ifdef __cplusplus
}
#endif
#endif
