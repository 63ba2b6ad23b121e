/* average.c — gradients averaged over the ranks of a group.

     g = Σ s_r·g_r / Σ d_r        s_r·g_r: rank r's part (graph/averaging.c), d_r: what the parts of 1 of rank r would be

   The parts of all parameters go in buckets, the last parameters first, as backward makes them in that order; what bucket a parameter is in
   follows from sizes and order alone.  Each takes a quarter of what is left: nothing is computed beside the last one, whose parameters
   are the last to get a gradient, so it should be small.  Before them go d_r and a flag for each parameter that has a gradient on this rank.

   A gradient that is missing here is sent as zeros.  Whether others have it is known without asking only where it is not missing: so a
   rank that lacks some reads the sum of the flags, which waits for the ranks; the others need not know of that. */
#include "clef/pointwise.h"
#include "group/group.h"
#include "ops/ops.h"
#include "optim/optimizer.h"

enum { OF_WHAT_IS_LEFT = 4 };
static const int64_t bucket_most = (int64_t)32 << 20, bucket_least = (int64_t)1 << 20; /* bytes */

typedef struct part {
    clef__slot *slot;
    clef_dtype dtype; /* in which it is sent */
    int device;
    int64_t n, bytes;
    clef_tensor *sum; /* of all ranks; with cut gradients, of this rank's part */
} part;

/* One averaging. */
typedef struct round_of {
    clef_optimizer *o;
    part *part; /* the last parameter first */
    int n, missing;
    double scale, weight; /* of parts that backward left; d_r */
    clef_tensor **piece;  /* of one bucket */
    const char **name;
    clef_tensor *total, *present; /* Σ d_r [1], the sums of the flags [n] */
} round_of;

/* ---- what is sent ---- */

static clef_tensor *zeros(const part *p) {
    return clef__constant(clef_tensor_context(p->slot->parameter), clef_tensor_shape(p->slot->parameter), p->dtype, p->device, 0);
}

/* A factor of 0 leaves zeros, whatever the gradient is. */
static clef_tensor *scale(clef__averaging *a, clef_tensor *g, double factor) {
    (void)a;
    clef_context *ctx = clef_tensor_context(g);
    if (factor == 0) return clef__constant(ctx, clef_tensor_shape(g), clef_tensor_dtype(g), clef_tensor_device(g), 0);
    return factor == 1 ? g : clef_mul(g, clef__number(ctx, clef_tensor_dtype(g), factor));
}

/* What makes this rank's part of its gradient. */
static double factor_of(const round_of *r, const part *p) {
    const clef__tensor *leaf = clef__get(p->slot->parameter);
    return r->scale * (leaf->weighted ? leaf->factor : clef__group_share(r->o->group));
}

/* The part, but for `factor`, with which all of its bucket are multiplied as they are summed. */
static clef_tensor *part_of(const round_of *r, const part *p, double factor) {
    clef_tensor *g = clef__unaveraged(p->slot->parameter);
    if (!g) return zeros(p);
    g = clef_to(g, p->dtype);
    return factor == factor_of(r, p) ? g : scale(&r->o->averaging, g, factor_of(r, p));
}

/* The factor of all of them, or 1, if they have several. */
static double common_factor(const round_of *r, int from, int end) {
    double factor = 1;
    for (int i = from, found = 0; i < end; i++) {
        if (!clef__unaveraged(r->part[i].slot->parameter)) continue;
        if (found++ && factor_of(r, &r->part[i]) != factor) return 1;
        factor = factor_of(r, &r->part[i]);
    }
    return factor;
}

static double share(const clef__averaging *a) { return clef__group_share(clef__optimizer_of(a)->group); }

static clef_tensor *flags(const round_of *r, const part *first) {
    if (!r->missing) return clef__constant(r->o->ctx, CLEF_SHAPE(r->n), first->dtype, first->device, 1);
    float *flag = clef__alloc((size_t)r->n * sizeof *flag);
    if (!flag) return clef__refuse(r->o->ctx, r->o->rule->name, CLEF_MEMORY, "no memory for %d flags", r->n);
    for (int i = 0; i < r->n; i++) flag[i] = clef__unaveraged(r->part[i].slot->parameter) != NULL;
    clef_tensor *t = clef_from_host_on(r->o->ctx, first->device, CLEF_SHAPE(r->n), CLEF_F32, flag);
    clef__free(flag);
    return clef_to(t, first->dtype);
}

/* ---- buckets ---- */

/* Meetings from now on are about the gradients of these parameters, so that ranks whose models differ are told where; from == end: about
   nothing. */
static bool about(const round_of *r, int from, int end) {
    for (int i = from; i < end; i++) r->name[i - from] = r->part[i].slot->name;
    if (clef__group_about(r->o->group, r->name, end - from)) return true;
    clef__fail(r->o->ctx, CLEF_MEMORY, "%s: no memory for the names of %d parameters", r->o->rule->name, end - from);
    return false;
}

static int64_t bucket_bytes(const round_of *r, int from) {
    int64_t left = 0;
    for (int i = from; i < r->n; i++) left += r->part[i].bytes;
    return clef__smaller(bucket_most, clef__larger(bucket_least, left / OF_WHAT_IS_LEFT));
}

/* Where the bucket ends that begins with part `from`: it has one dtype and device, and ends with the part that fills it, or as there are
   no more in one sum. */
static int bucket_end(const round_of *r, int from) {
    const part *p = r->part;
    int64_t bytes = bucket_bytes(r, from);
    int end = from, most = from + CLEF__MOST_SUMMED;
    for (int64_t had = 0;
         end < r->n && end < most && had < bytes && p[end].dtype == p[from].dtype && p[end].device == p[from].device; end++)
        had += p[end].bytes;
    return end;
}

static bool send_counts(round_of *r) {
    clef_tensor *count[2] = {clef__constant(r->o->ctx, CLEF_SHAPE(1), r->part->dtype, r->part->device, r->weight),
                             flags(r, r->part)};
    if (!about(r, 0, r->n) || !clef__sum_several(count, 2, r->o->group, 1, true, count)) return false;
    r->total = count[0];
    r->present = count[1];
    return true;
}

static bool send_bucket(round_of *r, int from, int end) {
    double factor = common_factor(r, from, end);
    for (int i = from; i < end; i++) r->piece[i - from] = part_of(r, &r->part[i], factor);
    if (!about(r, from, end) || !clef__sum_several(r->piece, end - from, r->o->group, factor, false, r->piece)) return false;
    for (int i = from; i < end; i++) r->part[i].sum = r->piece[i - from];
    return true;
}

/* With cut gradients: the sums of this rank's parts alone. */
static bool scatter_bucket(round_of *r, int from, int end) {
    clef_group *group = r->o->group;
    for (int i = from; i < end; i++) r->piece[i - from] = clef__shards(group, part_of(r, &r->part[i], 1));
    if (!about(r, from, end)) return false;
    clef_tensor *sums = clef_reduce_scatter(clef_concat(r->piece, end - from, 1), group, 0, CLEF_GROUP_SUM); /* [1, of all parts] */
    int64_t at = 0;
    for (int i = from; i < end; i++) {
        int64_t n = clef__shard_size(group, r->part[i].slot->parameter);
        r->part[i].sum = clef_reshape(clef_slice(sums, 1, at, at + n, 1), CLEF_SHAPE(n));
        if (!r->part[i].sum) return false;
        at += n;
    }
    return true;
}

static bool send_all(round_of *r) {
    if (!send_counts(r)) return false;
    for (int from = 0, end; from < r->n; from = end)
        if (!(r->o->zero == 2 ? scatter_bucket : send_bucket)(r, from, end = bucket_end(r, from))) return false;
    return true;
}

/* ---- what comes back ---- */

/* The total has no dimensions, which any parameter may lack. */
static clef_status take(const round_of *r, const part *p) {
    clef_tensor *parameter = p->slot->parameter;
    clef_tensor *total = clef_to(clef_to_device(clef_reshape(r->total, (clef_shape){0}), p->device), p->dtype);
    clef_tensor *g = clef_to(clef_div(p->sum, total), clef_tensor_dtype(parameter));
    if (!g) return clef_error_status(r->o->ctx);
    return r->o->zero == 2 ? clef__set_gradient_shard(parameter, &r->o->averaging, g) : clef_set_grad(parameter, g);
}

/* Forgets the sums of parameters without a gradient on any rank. */
static clef_status drop_absent(round_of *r) {
    if (!r->missing || clef__dry_run(r->o->ctx)) return CLEF_OK;
    float *count = clef__alloc((size_t)r->n * sizeof *count);
    if (!count) return clef__fail(r->o->ctx, CLEF_MEMORY, "%s: no memory for %d flags", r->o->rule->name, r->n);
    clef_status status = clef_read(clef_to(r->present, CLEF_F32), count, (size_t)r->n * sizeof *count);
    for (int i = 0; i < r->n && !status; i++)
        if (count[i] == 0) r->part[i].sum = NULL;
    clef__free(count);
    return status;
}

static clef_status average_parts(round_of *r) {
    bool sent = send_all(r);
    about(r, 0, 0);
    if (!sent) return clef_error_status(r->o->ctx);
    clef_status status = drop_absent(r);
    r->o->averaging.state = CLEF__AVERAGING_DONE;
    for (int i = 0; i < r->n && !status; i++)
        if (r->part[i].sum) status = take(r, &r->part[i]);
    return status;
}

/* ---- which ---- */

static void list_parts(round_of *r) {
    clef_optimizer *o = r->o;
    for (int i = o->n - 1; i >= 0; i--) {
        clef_tensor *t = o->slot[i].parameter;
        if (clef__get(t)->averaging != &o->averaging || !clef_requires_grad(t) || clef_numel(t) == 0) continue;
        part *p = &r->part[r->n++];
        *p = (part){.slot = &o->slot[i], .n = clef_numel(t), .device = clef_tensor_device(t)};
        p->dtype = clef_tensor_dtype(t) == CLEF_F64 ? CLEF_F64 : CLEF_F32;
        p->bytes = p->n * (int64_t)clef_dtype_size(p->dtype);
        r->missing += !clef__unaveraged(t);
    }
}

static clef_status average(clef__averaging *a) {
    clef_optimizer *o = clef__optimizer_of(a);
    if (!clef__usable(o->ctx) || clef_error_status(o->ctx)) return clef_error_status(o->ctx);
    round_of r = {.o = o};
    r.part = clef__calloc((size_t)o->n, sizeof *r.part);
    r.piece = clef__calloc((size_t)o->n, sizeof(clef_tensor *));
    clef_status status = CLEF_OK;
    bool was = clef_set_grad_enabled(o->ctx, false);
    r.name = clef__calloc((size_t)o->n, sizeof(const char *));
    if (!r.part || !r.piece || !r.name)
        status = clef__fail(o->ctx, CLEF_MEMORY, "%s: no memory to average %d gradients", o->rule->name, o->n);
    else {
        double share = clef__group_share(o->group);
        bool given = clef__group_weight_given(o->group, &r.weight);
        if (!given) r.weight = share;
        r.scale = given && share != 0 ? r.weight / share : 1;
        list_parts(&r);
        status = average_parts(&r);
    }
    clef_set_grad_enabled(o->ctx, was);
    clef__free(r.part);
    clef__free(r.piece);
    clef__free((void *)r.name);
    return status;
}

/* ---- from when to when ---- */

bool clef__average_over(clef_optimizer *o, clef_group *group) {
    if (group && group->ctx != o->ctx) {
        clef__fail(o->ctx, CLEF_INVALID, "%s: the group belongs to another context; each rank has its own", o->rule->name);
        return false;
    }
    if (clef_group_size(group) == 1) return true;
    o->group = group;
    o->averaging = (clef__averaging){.average = average, .share = share, .scale = scale, .whole = clef__whole_gradient};
    for (int i = 0; i < o->n; i++) clef__average_by(o->slot[i].parameter, &o->averaging);
    return true;
}

void clef__end_averaging(clef_optimizer *o) {
    if (!o->group) return;
    o->averaging.state = CLEF__AVERAGING_IDLE;
    clef__group_forget_weight(o->group);
}
