/* clef/parallel.h — training over ranks in ways that need module, optimizer and loader together. */
#ifndef CLEF_PARALLEL_H
#define CLEF_PARALLEL_H
#include "data.h"
#include "nn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the same bits, whatever the number of ranks ---- */

/* The loss of one part of a batch: a mean over its items, of one element; NULL fails.  part: its inputs and targets, size, first and all. */
typedef clef_tensor *(*clef_part_loss_fn)(clef_module *net, const clef_batch *part, void *user);

typedef struct clef_parts_options {
    clef_group *group; /* that shares the batch; NULL: this rank alone */
    int parts;         /* P, a power of two that the number of ranks divides; 0: the batch's (clef_loader_options.parts) */
} clef_parts_options;

/* In place of forward, loss and backward: cuts the batch of all ranks into P parts of n_p items each, whatever the number of ranks, and
   computes each apart.  With w_p = n_p / Σ n_q, and every sum Σ a balanced binary tree over the parts in order:
       gradient of a parameter:  g = Σ w_p · dL_p/dθ,    *mean (if not NULL; a temporary) = Σ w_p · L_p,
       floating buffer that a part changed, such as batch norm's running statistics:  b = Σ w_p · b_p,  each b_p made from the b before the call;
       other buffers: as part 0 leaves them.
   1, 2, 4, … P ranks, as threads or processes, so end with the same bits, on devices of one type and driver, with no_tuning; where they differ in
   compute units, with one clef_options.sum_units.  It costs what P small batches cost, on one rank one after the other.
   Random numbers: part p draws from counters of its own, 2³² of them (CLEF_INVALID where that is too few).  Batch norm normalises by part.  A part
   without items is left out: it counts as zeros.
   Gradients are added to those that are there, and are those of all ranks: clipping follows as ever, and optimizers, with or without their
   `.group`, take them as they are.  clef_group_weight is not looked at.  A parameter that no part used gets no gradient; that is known at once
   unless this rank's parts did not use one, and then this rank waits for the others.
   Computes what is pending of the net, and on failure changes neither gradients nor buffers.  Every rank calls it.  CLEF_INVALID: P does not
   fit, the batch has no items or is not this rank's share; CLEF_STATE: a part's loss depends on no parameter.
       static clef_tensor *loss(clef_module *net, const clef_batch *b, void *user) {
           return clef_cross_entropy(clef_forward(net, b->x), b->y, NULL);
       }
       for (clef_batch b; clef_next(data, &b);) {
           clef_backward_parts(net, &b, loss, NULL, &(clef_parts_options){.group = all}, NULL);
           clef_step(opt);
       }  */
CLEF_API clef_status clef_backward_parts(clef_module *net, const clef_batch *batch, clef_part_loss_fn loss, void *user,
                                         const clef_parts_options *options, clef_tensor **mean);

#ifdef __cplusplus
}
#endif
#endif
