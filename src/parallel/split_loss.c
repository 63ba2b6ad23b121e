/* split_loss.c — cross-entropy of logits that are split along their classes. */
#include "clef/pointwise.h"
#include "group/group.h"
#include "ops/ops.h"
#include "parallel/parallel.h"
#include <math.h>

typedef struct split {
    clef_tensor *x; /* logits, wide */
    clef_tensor *target;
    clef_group *group;
    double smoothing;
    int64_t classes; /* of all ranks */
} split;

static clef_tensor *over_classes(clef_tensor *x) { return clef_sum(x, (int[]){1}, 1, true); }

/* Of all classes, for each target: a number that no gradient goes through, as it cancels. */
static clef_tensor *maximum(const split *s) {
    clef_tensor *own = clef_max(clef_detach(s->x), (int[]){1}, 1, true);
    return clef_all_reduce(own, s->group, CLEF_GROUP_MAX);
}

/* [n,3,...]: of all classes Σ exp(x - m), x[t] - m, and Σ (x - m). */
static clef_tensor *three_sums(const split *s) {
    clef_tensor *x = clef_sub(s->x, maximum(s));
    clef_shape shape = clef_tensor_shape(s->x);
    int64_t first = shape.dim[1] * clef_group_rank(s->group);
    clef_tensor *own = clef_sub(clef_to(s->target, CLEF_I64), clef_integer(clef_tensor_context(s->x), first));
    clef_tensor *none = clef__number(clef_tensor_context(s->x), clef_tensor_dtype(s->x), 0);
    clef_tensor *picked = own ? clef_where(clef__is_target(shape, own), x, none) : NULL;
    clef_tensor *part[] = {over_classes(clef_exp(x)), over_classes(picked), over_classes(x)};
    return clef_reduce_from_group(clef_concat(part, 3, 1), s->group);
}

/* -log p[t], smoothed: [n,...]. */
static clef_tensor *each_loss(const split *s) {
    clef_tensor *sum[3];
    if (clef_split(three_sums(s), 1, (int64_t[]){1, 1, 1}, 3, sum) != CLEF_OK) return NULL;
    clef_tensor *loss = clef_sub(clef_log(sum[0]), clef_mul_scalar(sum[1], 1 - s->smoothing));
    if (s->smoothing > 0) loss = clef_sub(loss, clef_mul_scalar(sum[2], s->smoothing / (double)s->classes));
    return clef_squeeze(loss, 1);
}

clef_tensor *clef_parallel_cross_entropy(clef_tensor *logits, clef_tensor *target, clef_group *group,
                                         const clef_loss_options *options) {
    clef_loss_options o = options ? *options : (clef_loss_options){0};
    if (!CLEF__GIVEN("parallel_cross_entropy", "logits target", logits, target)) return NULL;
    clef_context *ctx = clef_tensor_context(logits);
    if (clef_group_size(group) == 1) return clef_cross_entropy(logits, target, options);
    if (o.classes_last) logits = clef__classes_second(logits);
    clef_shape shape = clef_tensor_shape(logits), other = clef_tensor_shape(target);
    if (!(o.label_smoothing >= 0 && o.label_smoothing < 1))
        return clef__refuse(ctx, "parallel_cross_entropy", CLEF_INVALID, "label_smoothing = %g is not in [0,1)", o.label_smoothing);
    if (clef__is_float(clef_tensor_dtype(target)))
        return clef__refuse(ctx, "parallel_cross_entropy", CLEF_DTYPE, "target is %s; give class indices, as whole numbers",
                            clef_dtype_name(clef_tensor_dtype(target)));
    if (shape.rank < 2 || !clef__is_class_shape(shape, other))
        return clef__refuse(ctx, "parallel_cross_entropy", CLEF_SHAPE,
                            "target %s does not fit to logits %s; it is [n,...] of [n,c,...]", clef__shape_text(other),
                            clef__shape_text(shape));
    split s = {.x = clef__to_wide(logits), .target = target, .group = group, .smoothing = o.label_smoothing};
    s.classes = shape.dim[1] * clef_group_size(group);
    return s.x ? clef__finish_class_losses(each_loss(&s), target, s.classes, &o) : NULL;
}
