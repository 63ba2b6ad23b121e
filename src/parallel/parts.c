/* parts.c — clef_backward_parts: the loss and the gradients of a batch, part by part. */
#include "clef/pointwise.h"
#include "group/group.h"
#include "ops/ops.h"
#include "parallel/parallel.h"
#include "parallel/parts.h"

/* ---- what may be asked ---- */

static clef_status refuse(clef_context *ctx, const char *what, int64_t is, const char *remedy) {
    return clef__fail(ctx, CLEF_INVALID, "backward_parts: %s is %lld; %s", what, (long long)is, remedy);
}

static clef_status check_parts(clef_context *ctx, const clef_batch *b, const clef_parts_options *o) {
    int parts = o->parts ? o->parts : b->parts, ranks = clef_group_size(o->group);
    if (o->group && o->group->ctx != ctx)
        return clef__fail(ctx, CLEF_INVALID, "backward_parts: the group belongs to another context; each rank has its own");
    if (parts < 1 || (parts & (parts - 1)) || parts % ranks)
        return clef__fail(
            ctx, CLEF_INVALID,
            "backward_parts: parts is %d; it must be a power of two that the number of ranks, %d, divides (give it to "
            "the loader)",
            parts, ranks);
    if (b->parts && b->parts != parts) return refuse(ctx, "parts", parts, "the batch's loader cut it into another number");
    return CLEF_OK;
}

/* Are these this rank's parts of the batch? */
static clef_status check_share(clef_context *ctx, const clef_batch *b, int64_t all, int64_t from, int64_t to) {
    if (all < 1) return refuse(ctx, "the size of the batch of all ranks", all, "it must be 1 or more (clef_batch.all)");
    if (b->first == from && b->size == to - from) return CLEF_OK;
    return clef__fail(
        ctx, CLEF_INVALID,
        "backward_parts: the batch has items %lld to %lld of %lld, and the parts of this rank are %lld to %lld; give the "
        "loader the same group, and parts",
        (long long)b->first, (long long)(b->first + b->size), (long long)all, (long long)from, (long long)to);
}

static clef_status check_tensors(clef_context *ctx, const char *what, clef_tensor *const *t, int n, int64_t items) {
    if (n && !clef__given_array(ctx, "backward_parts", what, t, n)) return clef_error_status(ctx);
    for (int i = 0; i < n; i++) {
        clef_shape shape = clef_tensor_shape(t[i]);
        if (shape.rank < 1 || shape.dim[0] != items)
            return clef__fail(ctx, CLEF_SHAPE, "backward_parts: %s[%d] is %s; its first dimension must be the %lld items", what, i,
                              clef__shape_text(shape), (long long)items);
    }
    return CLEF_OK;
}

/* ---- one part ---- */

typedef struct job {
    clef_batch batch; /* with its tensors as inputs and targets */
    clef_part_loss_fn loss;
    void *user;
    int parts;
    clef_random_state random; /* at the first part */
    clef_tensor **own;        /* the part's inputs, then its targets */
    clef_tensor **count;      /* NULL, or where the loss leaves a number of its part */
} job;

/* As memory of their own, whatever rank they are on. */
static clef_status cut_tensors(clef_context *ctx, const clef_batch *whole, int64_t from, int64_t to, clef_tensor **own) {
    int n = whole->n_inputs + whole->n_targets;
    clef_status status = CLEF_OK;
    for (CLEF_NO_GRAD(ctx))
        for (int i = 0; i < n && !status; i++) {
            clef_tensor *t = i < whole->n_inputs ? whole->inputs[i] : whole->targets[i - whole->n_inputs];
            own[i] = clef_copy(clef_slice(t, 0, from - whole->first, to - whole->first, 1));
            if (!own[i]) status = clef_error_status(ctx);
        }
    return status || !n ? status : clef_eval_all(own, n);
}

clef_status clef__part_of(clef_context *ctx, const clef_batch *whole, int parts, int p, clef_tensor **own, clef_batch *part) {
    int64_t from = clef__part_start(whole->all, parts, p), to = clef__part_start(whole->all, parts, p + 1);
    *part = *whole;
    part->size = to - from, part->first = from, part->parts = parts;
    part->inputs = own, part->targets = own + whole->n_inputs;
    clef_status status = from == to ? CLEF_OK : cut_tensors(ctx, whole, from, to, own);
    part->x = whole->n_inputs && from < to ? own[0] : NULL;
    part->y = whole->n_targets && from < to ? part->targets[0] : NULL;
    return status;
}

static clef_status differentiate(clef__parts *parts, clef_tensor *loss) {
    if (!loss) {
        clef_status status = clef_error_status(parts->ctx);
        return status ? status
                      : clef__fail(parts->ctx, CLEF_INVALID, "backward_parts: the loss is NULL though nothing failed before");
    }
    return clef__grad_where_any(loss, parts->parameter, parts->n_gradients, parts->gradient);
}

/* Random numbers are drawn from the part's own counters. */
static clef_status compute_part(clef__parts *parts, const job *j, int p, const clef_batch *part) {
    clef_random_state start = {.seed = j->random.seed, .offset = j->random.offset + (uint64_t)p * CLEF__COUNTERS_EACH};
    clef_random_set(parts->ctx, start);
    if (j->count) *j->count = NULL;
    clef_tensor *loss = j->loss(parts->net, part, j->user);
    parts->count = j->count ? *j->count : NULL;
    clef_status status = differentiate(parts, loss);
    if (!status && clef_random_get(parts->ctx).offset - start.offset > CLEF__COUNTERS_EACH)
        status = clef__fail(parts->ctx, CLEF_INVALID,
                            "backward_parts: part %d drew more than 2^34 random numbers; cut the batch into more", p);
    return status ? status : clef__parts_add(parts, loss, (double)part->size / (double)part->all, p == 0);
}

static clef_status run_part(clef__parts *parts, const job *j, int p) {
    clef_batch part;
    clef_status status = clef__part_of(parts->ctx, &j->batch, j->parts, p, j->own, &part);
    if (status || !part.size) return status ? status : clef__parts_add(parts, NULL, 0, p == 0);
    status = compute_part(parts, j, p, &part);
    clef_status restored = clef__parts_restore(parts);
    return status ? status : restored;
}

/* ---- all ---- */

static clef_status run_all(clef__parts *parts, job *j, int from, int to) {
    clef__share share = clef__share_of(parts->ctx);
    clef_status status = CLEF_OK;
    j->random = clef__random_take(parts->ctx, (uint64_t)j->parts * CLEF__COUNTERS_EACH);
    clef_random_state after = clef_random_get(parts->ctx);
    clef__set_share(parts->ctx, (clef__share){0}); /* a part stands for itself */
    for (int p = from; p < to && !status; p++) status = run_part(parts, j, p);
    clef__set_share(parts->ctx, share);
    clef_random_set(parts->ctx, after);
    return status ? status : clef__parts_take(parts);
}

static clef_status backward_parts(clef_module *net, job *j, const clef_parts_options *o, clef_tensor **mean) {
    clef_context *ctx = clef_module_context(net);
    clef_batch *b = &j->batch;
    clef_status status = check_parts(ctx, b, o);
    if (status) return status;
    int ranks = clef_group_size(o->group), rank = clef_group_rank(o->group);
    j->parts = o->parts ? o->parts : b->parts;
    if (!b->all && ranks == 1) b->all = b->size;
    int from = rank * (j->parts / ranks), to = from + j->parts / ranks;
    status = check_share(ctx, b, b->all, clef__part_start(b->all, j->parts, from), clef__part_start(b->all, j->parts, to));
    if (!status) status = check_tensors(ctx, "inputs", b->inputs, b->n_inputs, b->size);
    if (!status) status = check_tensors(ctx, "targets", b->targets, b->n_targets, b->size);
    if (status) return status;
    clef__parts parts;
    status = clef__parts_begin(&parts, net, o->group);
    if (!status) status = run_all(&parts, j, from, to);
    if (!status && mean) status = clef__want_result(*mean = parts.loss);
    if (j->count) *j->count = status ? NULL : parts.count;
    clef__parts_free(&parts);
    return status;
}

/* A batch made by hand may have x and y alone. */
static clef_batch complete(const clef_batch *given) {
    clef_batch b = *given;
    if (!b.n_inputs) b.inputs = &given->x, b.n_inputs = given->x != NULL;
    if (!b.n_targets) b.targets = &given->y, b.n_targets = given->y != NULL;
    return b;
}

clef_status clef__backward_parts(clef_module *net, const clef_batch *batch, clef_part_loss_fn loss, void *user,
                                 const clef_parts_options *options, clef_tensor **mean, clef_tensor **count) {
    static const clef_parts_options defaults;
    if (mean) *mean = NULL;
    if (!net) return CLEF_INVALID;
    clef_context *ctx = clef_module_context(net);
    if (!clef__usable(ctx) || clef_error_status(ctx)) return clef_error_status(ctx);
    if (!batch || !loss) return clef__fail(ctx, CLEF_INVALID, "backward_parts: the %s is NULL", batch ? "loss" : "batch");
    job j = {.batch = complete(batch), .loss = loss, .user = user, .count = count};
    j.own = clef__calloc((size_t)(j.batch.n_inputs + j.batch.n_targets) + 1, sizeof(clef_tensor *));
    if (!j.own) return clef__fail(ctx, CLEF_MEMORY, "backward_parts: no host memory");
    clef_status status = backward_parts(net, &j, options ? options : &defaults, mean);
    clef__free(j.own);
    return status;
}

clef_status clef_backward_parts(clef_module *net, const clef_batch *batch, clef_part_loss_fn loss, void *user,
                                const clef_parts_options *options, clef_tensor **mean) {
    return clef__backward_parts(net, batch, loss, user, options, mean, NULL);
}
