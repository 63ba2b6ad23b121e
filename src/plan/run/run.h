/* run.h — plans: built, kept, replayed, and their results read. */
#ifndef CLEF_RUN_H
#define CLEF_RUN_H
#include "plan/lower/launches.h"
#include "plan/lower/select.h"
#include "plan/schedule/schedule.h"

/* What a context keeps: its plans, and for each device the arena they share, as large as the largest of them needs.  Only one
   plan runs at a time, and its queues are in order. */
typedef struct clef__plans {
    clef__plan *first; /* most recently used first */
    int n;
    uint64_t made;
    size_t prepacked_bytes, weight_bytes; /* of all plans together; of the one with the most */
    clef__graph_view view;                /* of the last evaluation: a replay finds its memory there and allocates none */
    clef__arena arena[CLEF__MAX_DEVICES];
    clef__selection selection;
} clef__plans;

/* build.c: from the graph to a plan with everything placed; NULL with the error set.  clef__plan_ready makes what it needs to
   run: kernels and arguments. */
clef__plan *clef__plan_build(clef_context *ctx, clef__graph_view *g);
clef_status clef__plan_ready(clef_context *ctx, clef__plan *plan);
/* measure.c */
clef_plan_size clef__plan_size(const clef__plan *plan, const clef__graph_view *g);
void clef__plan_free(clef__plan *plan);
/* Makes a work-group no larger than `most`. */
void clef__fit_group(size_t local[3], size_t most);
/* run.c: sets one kernel argument (g may be NULL for those that never change); one replay. */
clef_status clef__plan_set(clef__plan *plan, const clef__graph_view *g, int launch, int arg);
clef_status clef__plan_run(clef__plan *plan, clef_context *ctx, clef__arena *arena, clef__graph_view *g);
/* prepack.c: finds what replays may leave as it is, and how many bytes that will be; before each replay says which launches are
   idle, and afterwards notes which of the `launched` have filled theirs. */
clef_status clef__prepack_find(clef_context *ctx, clef__plan *plan);
size_t clef__prepack_most(const clef__plan *plan);
clef_status clef__prepack_begin(clef_context *ctx, clef__plan *plan, const clef__graph_view *g);
void clef__prepack_end(clef__plan *plan, const clef__graph_view *g, int launched);
/* eval.c: the graph's evaluator. */
clef_status clef__compute(clef_context *ctx, clef__output *const *roots, int n);
/* What the context keeps, made at first need (NULL without host memory); forgets all plans, as tuning results have changed. */
clef__plans *clef__plans_of(clef_context *ctx);
void clef__plans_forget(clef_context *ctx);
/* read.c: t evaluated into row-major memory: its buffer and the byte offset; NULL on failure. */
clef__buffer *clef__row_major_buffer(clef_tensor *t, size_t *offset);
/* Element i of host memory. */
double clef__number_of(const void *data, clef_dtype dtype, int64_t i);
/* print.c */
clef_status clef__plan_print(const clef__plan *plan, const clef__graph_view *g, clef_plan_format format, FILE *stream);
#endif
