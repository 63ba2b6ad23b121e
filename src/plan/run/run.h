/* run.h — plans: built, kept, replayed, and their results read. */
#ifndef CLEF_RUN_H
#define CLEF_RUN_H
#include "plan/lower/launches.h"
#include "plan/lower/select.h"
#include "plan/schedule/schedule.h"

/* What is kept beside weights: made once from a value, by whichever plan, and found by its recipe. */
enum { CLEF__DERIVED_BUCKETS = 64 };
typedef struct clef__derived {
    struct clef__derived *next;
    uint64_t value; /* that it was made from */
    int64_t offset; /* where in its buffer */
    uint8_t recipe[32];
    clef__buffer *buffer;
    uint64_t used; /* by which run, last */
    bool filled;
} clef__derived;
typedef struct clef__derived_values {
    clef__derived *bucket[CLEF__DERIVED_BUCKETS];
    size_t bytes;
    uint64_t run; /* the number of this one, or of the last */
    bool running;
} clef__derived_values;

/* What a context keeps: its plans, and for each device the arena they share, as large as the largest of them needs.  Only one
   plan runs at a time, and its queues are in order. */
typedef struct clef__plans {
    clef__plan *first; /* most recently used first */
    int n;
    uint64_t made;
    clef__derived_values derived;
    size_t weight_bytes, host_bytes; /* of the plan with the most; of all plans together */
    clef__graph_view view;           /* of the last evaluation: a replay finds its memory there and allocates none */
    clef__arena arena[CLEF__MAX_DEVICES];
    clef__selection selection;
} clef__plans;

/* build.c: from the graph to a plan with everything placed; NULL with the error set.  clef__plan_ready makes what it needs to
   run: kernels and arguments. */
clef__plan *clef__plan_build(clef_context *ctx, clef__graph_view *g);
clef_status clef__plan_ready(clef_context *ctx, clef__plan *plan);
/* measure.c: what it takes on this device. */
clef_plan_size clef__plan_size(const clef__plan *plan, const clef__graph_view *g, int device);
/* Tells clef_on_planned_launch's callback of its launches. */
void clef__plan_tell(clef_context *ctx, const clef__plan *plan);
void clef__plan_free(clef__plan *plan);
/* Makes a work-group no larger than `most`. */
void clef__fit_group(size_t local[3], size_t most);
/* run.c: sets one kernel argument (g may be NULL for those that never change); one replay. */
clef_status clef__plan_set(clef__plan *plan, const clef__graph_view *g, int launch, int arg);
/* Where a tensor lies now, and the offset (elements of arg's dtype) of its first element. */
clef__buffer *clef__place_of(const clef__plan *plan, const clef__graph_view *g, const clef__arg *arg, int64_t *offset);
/* issue.c: queues all launches.  `launched`: how many were, all unless it fails. */
clef_status clef__plan_issue(clef__plan *plan, clef_context *ctx, const clef__graph_view *g, int *launched);
/* chain.c: whether this replay's launches go as chains; then clef__chain_from queues those from i on that go as one, and returns the
   first behind them: i where there are none. */
typedef struct clef__plan_chain clef__plan_chain;
bool clef__plan_chains(clef__plan *plan, clef_context *ctx);
int clef__chain_from(clef__plan *plan, int i, clef_status *status);
void clef__plan_unchain(clef__plan *plan);
/* As if it had run: results have memory, but nothing was written. */
clef_status clef__plan_skip(clef__plan *plan, clef_context *ctx, clef__graph_view *g);
clef_status clef__plan_run(clef__plan *plan, clef_context *ctx, clef__arena *arena, clef__graph_view *g);
/* derived.c: finds what replays may leave as it is.  Before each replay says which launches are idle as what they would write is
   kept; binds arguments to that; afterwards notes which of the `launched` have filled theirs, while the graph's leaves are there. */
clef_status clef__derived_find(clef_context *ctx, clef__plan *plan);
void clef__derived_begin(clef_context *ctx, clef__plan *plan, const clef__graph_view *g);
clef_status clef__derived_bind(clef__plan *plan);
void clef__derived_note(clef__plan *plan, const clef__graph_view *g, int launched);
void clef__derived_end(clef_context *ctx, clef__plan *plan);
/* Gives all of it back. */
void clef__derived_forget(clef_context *ctx, clef__plans *plans);
/* eval.c: the graph's evaluator. */
clef_status clef__compute(clef_context *ctx, clef__output *const *roots, int n);
/* What the context keeps, made at first need (NULL without host memory); forgets all plans, as tuning results have changed. */
clef__plans *clef__plans_of(clef_context *ctx);
void clef__plans_forget(clef_context *ctx);
/* read.c: t evaluated into row-major memory: its buffer and the byte offset; NULL on failure. */
clef__buffer *clef__row_major_buffer(clef_tensor *t, size_t *offset);
/* Element i of host memory. */
double clef__number_of(const void *data, clef_dtype dtype, int64_t i);
#endif
