/* parts.h — one batch in fixed parts: what the parts leave, and its sum as a tree over all of them (clef_backward_parts). */
#ifndef CLEF_PARALLEL_PARTS_H
#define CLEF_PARALLEL_PARTS_H
#include "clef/parallel.h"
#include "graph/graph.h"

typedef enum clef__piece_kind {
    CLEF__GRADIENT,  /* of a parameter; weighted by items */
    CLEF__STATISTIC, /* the value of a floating buffer; weighted by items */
    CLEF__COUNT      /* the value of another buffer; part 0 counts alone */
} clef__piece_kind;

/* What a part leaves of one tensor of the net. */
typedef struct clef__piece {
    clef__piece_kind kind;
    clef_tensor *tensor;
    clef_tensor *before; /* of a buffer: its value before the first part */
    int pack;
    int64_t n;          /* elements */
    bool present;       /* has a part of this rank such a gradient, or changed the buffer? */
    bool absent;        /* a gradient that no part of any rank has */
    clef_tensor *taken; /* what becomes the gradient or the value */
} clef__piece;

enum { CLEF__PART_LEVELS = 31 };

/* All pieces of one dtype and device travel as one flat tensor.  Behind those of pack 0 lie a flag for each piece, the loss and the
   count. */
typedef struct clef__pack {
    clef_dtype dtype; /* in which it is summed: f32, f64 or i64 */
    int device;
    int64_t n;                             /* elements */
    clef_tensor *level[CLEF__PART_LEVELS]; /* level[i]: the tree of 2^i parts that waits for the next 2^i */
    clef_tensor *sum;
} clef__pack;

typedef struct clef__parts {
    clef_context *ctx;
    clef_module *net;
    clef_group *group;
    int n_pieces, n_gradients, n_packs, done; /* gradients come first; done: parts of this rank that were summed */
    clef__piece *piece;
    clef__pack *pack;
    clef_tensor **parameter, **gradient; /* of the pieces that are gradients */
    clef_tensor **list;                  /* room for all pieces, and three more */
    clef_tensor *loss;                   /* mean over all parts */
    clef_tensor *count;                  /* a number of the present part (NULL: 0), then its sum over all parts */
} clef__parts;

/* Lists the net's pieces, and computes their tensors.  Free it in any case. */
clef_status clef__parts_begin(clef__parts *parts, clef_module *net, clef_group *group);
void clef__parts_free(clef__parts *parts);
/* The buffers have the values again that they had before the first part. */
clef_status clef__parts_restore(const clef__parts *parts);
/* This rank's next part, which is `first` if it is the batch's first.  loss NULL: it has no items.  Else parts->gradient has its gradients, and
   the buffers have its values; weight: its share of the batch's items. */
clef_status clef__parts_add(clef__parts *parts, clef_tensor *loss, double weight, bool first);
/* Sums over the ranks, and gives gradients, buffers, parts->loss and parts->count what they are to have; on failure nothing. */
clef_status clef__parts_take(clef__parts *parts);

/* ---- parts.c, for rooms above ---- */
/* Part p of a batch that was cut into so many: what lies in it of the tensors of `whole`, copied and computed, in `own`, which has room for
   all.  Its inputs and targets are those. */
clef_status clef__part_of(clef_context *ctx, const clef_batch *whole, int parts, int p, clef_tensor **own, clef_batch *part);
/* clef_backward_parts where each part counts something, too: `loss` may leave a scalar in *count, and its sum over all parts of all ranks is
   there in the end. */
clef_status clef__backward_parts(clef_module *net, const clef_batch *batch, clef_part_loss_fn loss, void *user,
                                 const clef_parts_options *options, clef_tensor **mean, clef_tensor **count);
#endif
