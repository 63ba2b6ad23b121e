/* generator.h — a generator's state, for reading (generator.c) and choosing (sampling.c). */
#ifndef CLEF_NN_GENERATOR_H
#define CLEF_NN_GENERATOR_H
#include "nn/language.h"

/* A token that may be next. */
typedef struct clef__candidate {
    double p; /* first a logit, then a weight of which the largest is 1 */
    int64_t token;
} clef__candidate;

struct clef_generator {
    clef_context *ctx;
    clef_module *net;
    clef_language_sizes sizes;
    int device; /* where the net lies */
    int64_t batch, capacity;
    bool slide, ready; /* ready: the logits are those of the present text */
    clef__past past;
    int64_t *text;              /* [batch,capacity]: the tokens in their columns; before start, 0 */
    int64_t *start;             /* [batch]: the column of each sequence's first token */
    int64_t length;             /* columns that were read */
    int64_t tokens;             /* those that were dropped, too */
    float *logits;              /* [batch,vocabulary] */
    clef__candidate *candidate; /* [vocabulary] */
    int64_t *block;             /* the tokens of a block */
    int64_t *found;             /* the tokens of the last search's results */
    clef_generator *next;       /* in the context's list */
};

/* Every logit of the sequence is a number or -inf, which excludes a token; else one line says where not. */
clef_status clef__check_logits(const clef_generator *g, int64_t sequence);
#endif
