/* shard.c — optimizer states, and gradients, cut over the ranks of a group.

   Each parameter of n elements is cut into `size` equal parts of its flat elements, ⌈n/size⌉ each, the last ones filled up with zeros; rank r
   owns part r.  So who owns what follows from sizes alone, whichever parameters are frozen, and is as even as can be in nets where one
   parameter is most of the whole, too.

     zero 1   gradients are averaged whole; a rank updates its parts, of which alone it has states; the new parts go to all
     zero 2   a rank also has averaged gradients of its parts alone: buckets are reduced and scattered (average.c)

   Rajbhandari, Rasley, Ruwase and He, "ZeRO: Memory optimizations toward training trillion parameter models", 2020. */
#include "clef/pointwise.h"
#include "group/group.h"
#include "ops/ops.h"
#include "optim/optimizer.h"

static const int64_t bucket_most = (int64_t)32 << 20; /* bytes of a gather */

/* ---- one tensor ---- */

int64_t clef__shard_size(const clef_group *group, const clef_tensor *parameter) {
    return (clef_numel(parameter) + clef_group_size(group) - 1) / clef_group_size(group);
}

static clef_tensor *flat(clef_tensor *t) { return clef_reshape(t, CLEF_SHAPE(clef_numel(t))); }

static clef_tensor *fill_up(clef_tensor *x, int64_t n) {
    int64_t before = 0, after = n - clef_numel(x);
    return after > 0 ? clef_pad(x, &before, &after, 0) : x;
}

clef_tensor *clef__shards(const clef_group *group, clef_tensor *t) {
    int64_t size = clef_group_size(group), n = clef__shard_size(group, t);
    return clef_reshape(fill_up(flat(t), size * n), CLEF_SHAPE(size, n));
}

clef_tensor *clef__own_shard(const clef_group *group, clef_tensor *t) {
    int64_t all = clef_numel(t), n = clef__shard_size(group, t), from = clef__smaller(all, n * clef_group_rank(group));
    return fill_up(clef_slice(flat(t), 0, from, clef__smaller(all, from + n), 1), n);
}

/* [size, n] → the tensor. */
static clef_tensor *join(clef_tensor *shards, clef_shape shape) {
    return clef_reshape(clef_slice(flat(shards), 0, 0, clef_shape_numel(shape), 1), shape);
}

clef_tensor *clef__whole(clef_group *group, clef_tensor *shard, clef_shape shape) {
    return join(clef_all_gather(clef_unsqueeze(shard, 0), group, 0), shape);
}

/* ---- new values of parameters ---- */

typedef struct gathering {
    clef_optimizer *o;
    clef__slot **slot; /* with an update, the last first */
    clef_tensor **shard;
    int n;
} gathering;

static void list_updated(gathering *g) {
    for (int i = g->o->n - 1; i >= 0; i--) {
        clef__slot *s = &g->o->slot[i];
        if (!s->updated || clef_numel(s->updated) == 0) continue;
        g->slot[g->n] = s;
        g->shard[g->n++] = s->updated;
    }
}

/* A bucket has one dtype and device. */
static int bucket_end(const gathering *g, int from) {
    const clef_tensor *first = g->shard[from];
    int end = from;
    for (int64_t bytes = 0; end < g->n && bytes < bucket_most; end++) {
        const clef_tensor *next = g->shard[end];
        if (clef_tensor_dtype(next) != clef_tensor_dtype(first) || clef_tensor_device(next) != clef_tensor_device(first)) break;
        bytes += clef_numel(next) * clef_group_size(g->o->group) * (int64_t)clef_dtype_size(clef_tensor_dtype(next));
    }
    return end;
}

static clef_status gather_bucket(const gathering *g, int from, int end) {
    clef_tensor *own = clef_concat(g->shard + from, end - from, 0);
    clef_tensor *all = clef_all_gather(clef_unsqueeze(own, 0), g->o->group, 0); /* [size, of all parameters] */
    clef_status status = all ? CLEF_OK : clef_error_status(g->o->ctx);
    int64_t at = 0;
    for (int i = from; i < end && !status; i++) {
        clef_tensor *parameter = g->slot[i]->parameter;
        int64_t n = clef_numel(g->shard[i]);
        clef_tensor *value = join(clef_slice(all, 1, at, at + n, 1), clef_tensor_shape(parameter));
        status = value ? clef_assign(parameter, value) : clef_error_status(g->o->ctx);
        at += n;
    }
    return status;
}

clef_status clef__gather_parameters(clef_optimizer *o) {
    gathering g = {.o = o};
    clef_status status = CLEF_OK;
    g.slot = clef__calloc((size_t)o->n, sizeof(clef__slot *));
    g.shard = clef__calloc((size_t)o->n, sizeof(clef_tensor *));
    if (!g.slot || !g.shard) status = clef__fail(o->ctx, CLEF_MEMORY, "%s: no memory for %d parameters", o->rule->name, o->n);
    else list_updated(&g);
    for (int from = 0, end; from < g.n && !status; from = end) status = gather_bucket(&g, from, end = bucket_end(&g, from));
    clef__free(g.slot);
    clef__free(g.shard);
    return status;
}

/* ---- gradients ---- */

clef_optimizer *clef__optimizer_of(const clef__averaging *a) {
    return (clef_optimizer *)((const char *)a - offsetof(clef_optimizer, averaging));
}

clef_tensor *clef__whole_gradient(clef__averaging *a, const clef_tensor *parameter, clef_tensor *shard) {
    clef_context *ctx = clef_tensor_context(parameter);
    bool was = clef_set_grad_enabled(ctx, false);
    clef_tensor *whole = clef__whole(clef__optimizer_of(a)->group, shard, clef_tensor_shape(parameter));
    clef_set_grad_enabled(ctx, was);
    return whole;
}

clef_tensor *clef__own_gradient(const clef_optimizer *o, clef_tensor *parameter) {
    clef__averaging *cut;
    clef_tensor *shard = clef__gradient_shard(parameter, &cut);
    if (shard && cut == &o->averaging) return shard;
    clef_tensor *g = clef_grad_of(parameter);
    return g ? clef__own_shard(o->group, g) : NULL;
}

/* ---- states, for checkpoints ---- */

static const clef__slot *slot_of_tensor(const clef_optimizer *o, int i) {
    bool is_cut = o->zero && i > 0 && i < clef_optimizer_tensors(o);
    return is_cut ? &o->slot[(i - 1) / o->n_states] : NULL;
}

clef_named_tensor clef__optimizer_whole(const clef_optimizer *o, int i, bool gather) {
    clef_named_tensor t = clef_optimizer_tensor(o, i);
    const clef__slot *s = slot_of_tensor(o, i);
    if (!s || !t.tensor) return t;
    clef_shape shape = clef_tensor_shape(s->parameter);
    if (gather && clef_numel(s->parameter)) t.tensor = clef__whole(o->group, t.tensor, shape);
    else t.tensor = clef__constant(o->ctx, shape, clef_tensor_dtype(t.tensor), clef_tensor_device(t.tensor), 0);
    return t;
}

clef_tensor *clef__optimizer_part(const clef_optimizer *o, int i, clef_tensor *whole) {
    return slot_of_tensor(o, i) ? clef__own_shard(o->group, whole) : whole;
}

bool clef__optimizer_is_cut(const clef_optimizer *o) { return o->zero != 0; }
clef_group *clef__optimizer_group(const clef_optimizer *o) { return o->group; }
