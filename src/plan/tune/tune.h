/* tune.h — measuring: what is measured, which configurations are tried, and whether their numbers are right. */
#ifndef CLEF_PLAN_TUNE_H
#define CLEF_PLAN_TUNE_H
#include "clef/tune.h"
#include "plan/run/run.h"

/* ---- benchmark.c: nodes to measure ---- */
enum { CLEF__BENCHMARK_INPUTS = 4 };
/* A benchmark: one node that asks for knobs, as the plan saw it, to be made again alone. */
typedef struct clef__benchmark {
    clef__tuning_key key;
    const clef_op *op;
    void *attributes;
    size_t attribute_bytes;
    clef_shape shape;
    clef_dtype dtype;
    int n_inputs;
    clef__operand input[CLEF__BENCHMARK_INPUTS]; /* how it lies */
    double work, once;                           /* operations, of all the nodes with its key; of this one */
    double products;                             /* added for each element */
} clef__benchmark;
typedef struct clef__benchmarks {
    clef__benchmark *benchmark;
    int n, capacity;
    bool failed; /* host memory was out */
} clef__benchmarks;
/* user: clef__benchmarks */
void clef__benchmark_note(void *user, const clef__lowering *lw, const clef__tuning_key *key);
void clef__benchmark_free(clef__benchmarks *benchmarks);
/* Seconds it takes at least, with all units of its device at their peak; 0 where that is not known. */
double clef__benchmark_floor(clef_context *ctx, const clef__benchmark *benchmark);
/* A pending node like it, over inputs full of small whole numbers, whose sums are exact in any order; NULL after clef__fail. */
clef__node *clef__benchmark_node(clef_context *ctx, const clef__benchmark *benchmark);

/* The numbers that its input i is full of, and where they lie; a block of them repeats.  block: NULL without host memory, else
   the caller frees it. */
struct clef__numbers {
    const clef__operand *x;
    signed char *block;
    int64_t length, origin;
};
clef__numbers clef__benchmark_numbers(const clef__benchmark *benchmark, int i);
static inline double clef__number_at(const clef__numbers *n, const int64_t *at) {
    int64_t index = n->origin;
    for (int d = 0; d < n->x->rank; d++) index += at[d] * n->x->stride[d];
    return n->block[index % n->length];
}

/* ---- check.c: are a node's numbers right? ---- */
typedef struct clef__check {
    const clef__benchmark *benchmark;
    const clef__output *value;
    clef__numbers input[CLEF__BENCHMARK_INPUTS];
    unsigned char *right; /* the first right value, as it lies */
    clef__layout layout;
    bool unread; /* the last value could not be read at all */
} clef__check;
void clef__check_begin(clef__check *c, const clef__benchmark *benchmark, const clef__output *value);
/* Is the node's present value right?  Not if it cannot be read. */
bool clef__check_value(clef__check *c);
void clef__check_end(clef__check *c);

enum { CLEF__LEAST_RUNS = 4 }; /* that a search makes: the standard and one more, each checked and timed */

/* ---- search.c: one benchmark's configurations, made, checked and timed ---- */
typedef struct clef__candidate {
    clef__knobs knobs;
    clef__plan *plan; /* NULL: none */
    clef__graph_view g;
    double seconds;
} clef__candidate;
typedef struct clef__search {
    clef_context *ctx;
    clef__plans *plans;
    const clef__benchmark *benchmark;
    clef__node *node;
    clef__candidate standard, best; /* without any knobs; the fastest, where it is another */
    clef__check check;
    bool standard_right; /* else it is used only as a measure of time */
    uint64_t *seen;      /* fingerprints of plans */
    int n_seen, seen_capacity;
    clef__knobs *variant; /* of kernels */
    int n_variants, variant_capacity, most_variants;
    int tried, wrong;
    bool library;    /* may be loaded for a candidate: the budget allows for its first call */
    double deadline; /* by clef__now */
    bool (*report)(void *user, const struct clef__search *search); /* after each; false: stop */
    void *user;
    bool stopped;
} clef__search;
/* Measures the standard; CLEF_OK, or why it cannot be had.  One that takes too long for a search is run once only, and stops
   it. */
clef_status clef__search_begin(clef__search *s);
/* Seeds, one pass of coordinate descent, and a last look at the winner. */
void clef__search_run(clef__search *s);
void clef__search_end(clef__search *s);
/* The fastest so far. */
const clef__candidate *clef__search_best(const clef__search *s);
#endif
