/* shared.c — what stages have or know together: tied parameters, the norm of all gradients, all values on all ranks. */
#include "clef/pointwise.h"
#include "ops/memory_order.h"
#include "ops/ops.h"
#include "optim/optimizer.h"
#include "parallel/parallel.h"

/* ---- tied parameters ---- */

static bool sums(const clef__pipeline_tensor *t) { return t->tied && t->own && clef_requires_grad(t->tensor); }

void clef__tied_put_aside(clef_pipeline *p) {
    for (int i = 0; i < p->tensors; i++)
        if (sums(&p->tensor[i])) clef__gradient_aside(p->tensor[i].tensor, &p->tensor[i].before);
}

/* What the stages made together, as this rank's part of an average over copies of the net. */
static clef_tensor *total(const clef__pipeline_tensor *t) {
    clef_tensor *g = clef__unaveraged(t->tensor);
    return clef_all_reduce(g ? g : clef_zeros_like(t->tensor), t->group, CLEF_GROUP_SUM);
}

clef_status clef__tied_add(clef_pipeline *p, bool sum) {
    clef_status status = CLEF_OK;
    bool was = clef_set_grad_enabled(p->ctx, false);
    for (int i = 0; i < p->tensors; i++) {
        clef__pipeline_tensor *t = &p->tensor[i];
        if (!sums(t)) continue;
        clef_tensor *all = sum && !status ? total(t) : NULL;
        if (sum && !status && !all) status = clef_error_status(p->ctx);
        clef_status back = clef__gradient_back(t->tensor, &t->before);
        if (!status) status = back;
        if (!status && all) status = clef__add_gradient(t->tensor, all);
    }
    clef_set_grad_enabled(p->ctx, was);
    return status;
}

/* ---- the norm ---- */

/* The parameters whose gradients count as this rank's, or all that it scales. */
static int list_own(const clef_pipeline *p, bool counted) {
    int n = 0;
    for (int i = 0; i < p->tensors; i++) {
        const clef__pipeline_tensor *t = &p->tensor[i];
        if (!t->is_buffer && (counted ? t->owner == p->stage : t->own)) p->list[n++] = t->tensor;
    }
    return n;
}

clef_tensor *clef_pipeline_clip_grad_norm(clef_pipeline *p, double max_norm) {
    if (!p) return NULL;
    if (!clef__check_max_norm(p->ctx, "pipeline_clip_grad_norm", max_norm)) return NULL;
    bool was = clef_set_grad_enabled(p->ctx, false);
    int n = list_own(p, true);
    clef_tensor *norm = clef_sqrt(clef_all_reduce(clef__sum_of_squares(p->ctx, p->list, n), p->group, CLEF_GROUP_SUM));
    clef_tensor *factor = clef__clip_factor(norm, max_norm);
    n = list_own(p, false);
    bool done = factor && clef__scale_gradients(p->list, n, factor) == CLEF_OK && clef__want_result(norm) == CLEF_OK;
    clef_set_grad_enabled(p->ctx, was);
    return done ? norm : NULL;
}

/* ---- all values on all ranks ---- */

void clef__pipeline_leave(const clef_pipeline *p, bool elsewhere) {
    for (int i = 0; i < p->tensors; i++) {
        const clef__pipeline_tensor *t = &p->tensor[i];
        if (!t->is_buffer) clef__get(t->tensor)->elsewhere = elsewhere && !t->own;
    }
}

/* How t lies at its owner, for all; false: row-major. */
static bool agree_on_order(const clef_pipeline *p, clef_tensor *t, int owner, int *order, clef_status *status) {
    signed char said[CLEF_MAX_RANK + 1] = {0};
    if (owner == p->stage) *status = clef_eval(t);
    if (owner == p->stage && !*status && (said[CLEF_MAX_RANK] = clef__memory_order_of(t, order)))
        for (int d = 0; d < clef_tensor_shape(t).rank; d++) said[d] = (signed char)order[d];
    if (!*status) *status = clef_group_broadcast_bytes(p->group, owner, said, sizeof said);
    for (int d = 0; d < CLEF_MAX_RANK; d++) order[d] = said[d];
    return !*status && said[CLEF_MAX_RANK];
}

/* Messages and no broadcast, for which those that have no value would compute one first.  It comes to lie as it does at its owner. */
static clef_status bring(const clef_pipeline *p, clef_tensor *t, int owner) {
    int order[CLEF_MAX_RANK];
    clef_status status = CLEF_OK;
    bool ordered = agree_on_order(p, t, owner, order, &status);
    if (owner == p->stage) {
        for (int r = 0; r < p->stages && !status; r++)
            if (r != owner) status = clef_send(ordered ? clef_permute(t, order) : t, p->group, r);
        return status;
    }
    if (status) return status;
    clef_shape shape = clef_tensor_shape(t), lies = shape;
    for (int d = 0; d < shape.rank && ordered; d++) lies.dim[d] = shape.dim[order[d]];
    clef_tensor *value = clef_to_device(clef_recv(p->ctx, p->group, owner, lies, clef_tensor_dtype(t)), clef_tensor_device(t));
    if (value && ordered) value = clef__from_memory_order(value, order);
    return value ? clef_assign(t, value) : clef_error_status(p->ctx);
}

static int owner_of(const clef_pipeline *p, const clef_tensor *t) {
    for (int i = 0; i < p->tensors; i++)
        if (p->tensor[i].tensor == t) return p->tensor[i].owner;
    return 0;
}

/* Each parameter's count comes from its owner. */
static clef_status bring_counts(const clef_pipeline *p, clef_optimizer *opt) {
    size_t n = (size_t)opt->n, bytes = n * sizeof(int64_t);
    clef_tensor *counts = clef_optimizer_tensor(opt, 0).tensor;
    int64_t *own = clef__calloc(n * ((size_t)p->stages + 1) + 1, sizeof *own), *all = own + n;
    clef_status status = own ? clef_read(counts, own, bytes)
                             : clef__fail(p->ctx, CLEF_MEMORY, "pipeline_gather: no host memory for %d counts", opt->n);
    if (!status) status = clef_group_gather_bytes(p->group, own, all, bytes);
    for (size_t i = 0; i < n && !status; i++) own[i] = all[(size_t)owner_of(p, opt->slot[i].parameter) * n + i];
    if (!status) status = clef_write(counts, own, bytes);
    if (!status) clef_optimizer_set(opt, (clef_optimizer_state){.steps = opt->steps, .lr = opt->lr});
    clef__free(own);
    return status;
}

static clef_status bring_states(const clef_pipeline *p, clef_optimizer *opt) {
    clef_status status = CLEF_OK;
    for (int i = 0; i < opt->n; i++)
        for (int j = 0; j < opt->n_states && !status; j++) {
            clef__get(opt->slot[i].state[j])->elsewhere = false;
            status = bring(p, opt->slot[i].state[j], owner_of(p, opt->slot[i].parameter));
        }
    return status ? status : bring_counts(p, opt);
}

clef_status clef_pipeline_gather(clef_pipeline *p, clef_optimizer *opt) {
    if (!p) return CLEF_INVALID;
    if (opt && opt->ctx != p->ctx)
        return clef__fail(p->ctx, CLEF_INVALID, "pipeline_gather: the optimizer belongs to another context");
    bool was = clef_set_grad_enabled(p->ctx, false);
    clef_status status = CLEF_OK;
    clef__pipeline_leave(p, false); /* by the list of the last step: what was trained, and where */
    for (int i = 0; i < p->tensors && !status; i++) status = bring(p, p->tensor[i].tensor, p->tensor[i].owner);
    if (!status && opt) status = bring_states(p, opt);
    clef_set_grad_enabled(p->ctx, was);
    return status;
}
