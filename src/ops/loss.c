/* loss.c — losses; that of class indices has kernels of its own (softmax.c), the others are written in other expressions. */
#include "ops/ops.h"
#include <float.h>
#include <math.h>

static clef_loss_options options_or_default(const clef_loss_options *options) {
    return options ? *options : (clef_loss_options){0};
}

static clef_tensor *reduced(clef_tensor *each, clef_reduction reduction) {
    if (reduction == CLEF_REDUCE_NONE) return each;
    return reduction == CLEF_REDUCE_SUM ? clef_sum(each, NULL, 0, false) : clef_mean(each, NULL, 0, false);
}

/* ---- classes ---- */

static clef_tensor *refuse_target(const char *op, clef_tensor *x, clef_tensor *target) {
    return clef__refuse(clef_tensor_context(x), op, CLEF_SHAPE,
                        "target %s %s does not fit to x %s; it is [n,...] of whole numbers%s",
                        clef_dtype_name(clef_tensor_dtype(target)), clef__shape_text(clef_tensor_shape(target)),
                        clef__shape_text(clef_tensor_shape(x)), op[0] == 'c' ? " or [n,c,...] of probabilities" : "");
}

/* Losses of the ignored become 0; those of targets that are no class NaN, so that they are seen. */
static clef_tensor *checked(clef_tensor *each, clef_tensor *target, int64_t classes, clef_tensor *counts) {
    if (!each || !target) return NULL;
    clef_dtype dtype = clef_tensor_dtype(each);
    clef_tensor *good = clef_logical_and(clef_ge_scalar(target, 0), clef_lt_scalar(target, (double)classes));
    each = clef_where(good, each, clef__number(clef_tensor_context(each), dtype, NAN));
    return counts ? clef_where(counts, each, clef__number(clef_tensor_context(each), dtype, 0)) : each;
}

/* Of those that count.  each: 0 where they do not. */
static clef_tensor *reduced_counted(clef_tensor *each, clef_tensor *target, const clef_loss_options *o) {
    if (!each || !o->has_ignore_index || o->reduction != CLEF_REDUCE_MEAN || clef__is_of_empty_share(each))
        return reduced(each, o->reduction);
    clef_tensor *counts = clef_ne_scalar(target, (double)o->ignore_index);
    return clef_div(clef_sum(each, NULL, 0, false), clef_sum(clef_to(counts, clef_tensor_dtype(each)), NULL, 0, false));
}

clef_tensor *clef__finish_class_losses(clef_tensor *each, clef_tensor *target, int64_t classes, const clef_loss_options *o) {
    clef_tensor *counts = o->has_ignore_index ? clef_ne_scalar(target, (double)o->ignore_index) : NULL;
    return reduced_counted(checked(each, target, classes, counts), target, o);
}

/* -log_probs at the target's class. */
static clef_tensor *picked_loss(clef_tensor *log_probs, clef_tensor *target, const clef_loss_options *o) {
    if (!log_probs) return NULL;
    clef_shape shape = clef_tensor_shape(log_probs);
    int one = 1;
    clef_tensor *none = clef__number(clef_tensor_context(log_probs), clef_tensor_dtype(log_probs), 0);
    clef_tensor *each = clef_neg(clef_sum(clef_where(clef__is_target(shape, target), log_probs, none), &one, 1, false));
    return clef__finish_class_losses(each, target, shape.dim[1], o);
}

clef_tensor *clef__classes_second(clef_tensor *x) {
    int order[CLEF_MAX_RANK] = {0}, rank = clef_tensor_shape(x).rank;
    for (int d = 2; d < rank; d++) order[d] = d - 1;
    order[1] = rank - 1;
    return rank > 2 ? clef_permute(x, order) : x;
}

clef_tensor *clef_nll_loss(clef_tensor *log_probs, clef_tensor *target, const clef_loss_options *options) {
    clef_loss_options o = options_or_default(options);
    if (!CLEF__GIVEN("nll_loss", "log_probs target", log_probs, target)) return NULL;
    if (o.classes_last) log_probs = clef__classes_second(log_probs);
    if (clef__is_float(clef_tensor_dtype(target)) || !clef__is_class_shape(clef_tensor_shape(log_probs), clef_tensor_shape(target)))
        return refuse_target("nll_loss", log_probs, target);
    return picked_loss(clef__to_wide(log_probs), target, &o);
}

/* -Σ t·log_probs over classes; the mean is over the other dimensions. */
static clef_tensor *probability_loss(clef_tensor *log_probs, clef_tensor *target, const clef_loss_options *o) {
    if (!log_probs) return NULL;
    double classes = (double)clef_tensor_shape(log_probs).dim[1];
    if (o->label_smoothing > 0)
        target = clef_add_scalar(clef_mul_scalar(clef__to_wide(target), 1 - o->label_smoothing), o->label_smoothing / classes);
    return reduced(clef_neg(clef_sum(clef_mul(target, log_probs), (int[]){1}, 1, false)), o->reduction);
}

clef_tensor *clef_cross_entropy(clef_tensor *logits, clef_tensor *target, const clef_loss_options *options) {
    clef_loss_options o = options_or_default(options);
    if (!CLEF__GIVEN("cross_entropy", "logits target", logits, target)) return NULL;
    if (!(o.label_smoothing >= 0 && o.label_smoothing < 1))
        return clef__refuse(clef_tensor_context(logits), "cross_entropy", CLEF_INVALID, "label_smoothing = %g is not in [0,1)",
                            o.label_smoothing);
    bool probabilities = clef__is_float(clef_tensor_dtype(target));
    if (o.classes_last && probabilities) target = clef__classes_second(target);
    if (o.classes_last) logits = clef__classes_second(logits);
    clef_shape shape = clef_tensor_shape(logits), other = clef_tensor_shape(target);
    if (shape.rank < 2 || (probabilities ? !clef_shape_equal(shape, other) : !clef__is_class_shape(shape, other)))
        return refuse_target("cross_entropy", logits, target);
    if (probabilities) return probability_loss(clef_log_softmax(clef__to_wide(logits), 1), target, &o);
    clef_tensor *x = clef__to_float(logits);
    return reduced_counted(clef__class_losses(x, target, o.label_smoothing, o.has_ignore_index, o.ignore_index), target, &o);
}

/* ---- distances ---- */

static bool same_shape(const char *op, clef_tensor *x, clef_tensor *target) {
    if (!CLEF__GIVEN(op, "x target", x, target)) return false;
    if (clef_shape_equal(clef_tensor_shape(x), clef_tensor_shape(target))) return true;
    clef__refuse(clef_tensor_context(x), op, CLEF_SHAPE, "x %s and target %s differ; clef_reshape or clef_expand one",
                 clef__shape_text(clef_tensor_shape(x)), clef__shape_text(clef_tensor_shape(target)));
    return false;
}

static clef_tensor *difference(const char *op, clef_tensor *x, clef_tensor *target) {
    return same_shape(op, x, target) ? clef_sub(clef__to_wide(x), clef__to_wide(target)) : NULL;
}

clef_tensor *clef_mse_loss(clef_tensor *x, clef_tensor *target, const clef_loss_options *options) {
    return reduced(clef_square(difference("mse_loss", x, target)), options_or_default(options).reduction);
}

clef_tensor *clef_l1_loss(clef_tensor *x, clef_tensor *target, const clef_loss_options *options) {
    return reduced(clef_abs(difference("l1_loss", x, target)), options_or_default(options).reduction);
}

/* c·(d - c/2), where c is d within ±delta: no distance is too large, no derivative is lost at 0, and NaN stays NaN. */
clef_tensor *clef_huber_loss(clef_tensor *x, clef_tensor *target, const clef_loss_options *options) {
    clef_loss_options o = options_or_default(options);
    double delta = o.delta == 0 ? 1 : o.delta;
    clef_tensor *d = difference("huber_loss", x, target);
    if (!d) return NULL;
    if (!(delta > 0)) return clef__refuse(clef_tensor_context(x), "huber_loss", CLEF_INVALID, "delta = %g is not positive", delta);
    double most = clef_tensor_dtype(d) == CLEF_F64 ? DBL_MAX : (double)FLT_MAX;
    if (delta > most) return reduced(clef_mul_scalar(clef_square(d), 0.5), o.reduction);
    clef_tensor *c = clef_clamp(d, -delta, delta);
    return reduced(clef_mul(c, clef_sub(d, clef_mul_scalar(c, 0.5))), o.reduction);
}

/* p·(log p - x).  Where p is 0 it is taken for 1 and x for 0: the loss is 0 there, and no gradient is, even of infinities. */
clef_tensor *clef_kl_div(clef_tensor *log_probs, clef_tensor *target, const clef_loss_options *options) {
    clef_loss_options o = options_or_default(options);
    if (!same_shape("kl_div", log_probs, target)) return NULL;
    clef_tensor *t = clef__to_wide(target), *some = clef_ne_scalar(o.log_target ? clef_exp(t) : t, 0);
    clef_tensor *x = clef_where_scalar(some, clef__to_wide(log_probs), 0);
    t = clef_where_scalar(some, t, o.log_target ? 0 : 1);
    clef_tensor *p = o.log_target ? clef_exp(t) : t, *log_p = o.log_target ? t : clef_log(t);
    return reduced(clef_mul(p, clef_sub(log_p, x)), o.reduction);
}

/* w·t·softplus(-x) + (1 - t)·softplus(x); NULL after refusing. */
static clef_tensor *weighted_bce(clef_tensor *x, clef_tensor *t, clef_tensor *weight) {
    if (!CLEF__GIVEN("bce_with_logits", "logits pos_weight", x, weight)) return NULL;
    clef_shape shape = clef_tensor_shape(x), both;
    if (!clef__broadcast(shape, clef_tensor_shape(weight), &both) || !clef_shape_equal(shape, both))
        return clef__refuse(clef_tensor_context(x), "bce_with_logits", CLEF_SHAPE, "pos_weight %s does not broadcast to logits %s",
                            clef__shape_text(clef_tensor_shape(weight)), clef__shape_text(shape));
    weight = clef_to(weight, clef_tensor_dtype(x));
    return clef_add(clef_mul(clef_mul(weight, t), clef_softplus(clef_neg(x))),
                    clef_mul(clef_neg(clef_sub_scalar(t, 1)), clef_softplus(x)));
}

/* softplus(x) - x·t is softplus(-x) + x·(1 - t): of these the one whose terms do not cancel where x says what t is. */
clef_tensor *clef_bce_with_logits(clef_tensor *logits, clef_tensor *target, const clef_loss_options *options) {
    if (!same_shape("bce_with_logits", logits, target)) return NULL;
    clef_loss_options o = options_or_default(options);
    clef_tensor *x = clef__to_wide(logits), *t = clef__to_wide(target);
    if (o.pos_weight && o.pos_weight != CLEF_NONE) return reduced(weighted_bce(x, t, o.pos_weight), o.reduction);
    clef_tensor *above = clef_gt_scalar(x, 0);
    clef_tensor *tail = clef_softplus(clef_where(above, clef_neg(x), x));
    clef_tensor *line = clef_mul(x, clef_where(above, clef_neg(clef_sub_scalar(t, 1)), clef_neg(t)));
    return reduced(clef_add(tail, line), o.reduction);
}
