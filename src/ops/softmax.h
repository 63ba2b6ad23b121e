/* softmax.h — what losses build on. */
#ifndef CLEF_SOFTMAX_H
#define CLEF_SOFTMAX_H
#include "ops/ops.h"

/* Is target x's shape without dimension 1? */
bool clef__is_class_shape(clef_shape x, clef_shape target);

/* -log softmax(x)[target] along dimension 1, smoothed, of x [n,c,...] with whole-number targets [n,...]: each of the losses, in
   f32 (f64 for f64).  0 where the target is `ignored` (and `ignores` is set), NaN where it is no class. */
clef_tensor *clef__class_losses(clef_tensor *x, clef_tensor *target, double smoothing, bool ignores, int64_t ignored);
/* true where dimension 1's index is the target: [n,c,...]. */
clef_tensor *clef__is_target(clef_shape shape, clef_tensor *target);
#endif
