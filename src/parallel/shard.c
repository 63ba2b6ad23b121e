/* shard.c — layers whose weights are cut over the ranks of a group, and made whole again.

   A layer stays the module that it is, with the same parameters under the same names: their values become parts, and its forward
   function is another as long as they are. */
#include "clef/pointwise.h"
#include "group/group.h"
#include "nn/module.h"
#include "ops/ops.h"
#include "optim/optimizer.h"
#include "parallel/parallel.h"
#include <string.h>

typedef clef__shard shard;

/* ---- forward ---- */

/* Weights of a language model may be of a half type. */
static clef_tensor *as(clef_tensor *t, clef_tensor *x) { return t == CLEF_NONE ? t : clef_to(t, clef_tensor_dtype(x)); }

static clef_tensor *product(const shard *s, clef_tensor *x, clef_tensor *bias) {
    if (s->layer.kind == CLEF__CONV2D) return clef_conv2d(x, s->layer.weight, bias, &s->layer.conv);
    clef_tensor *w = as(s->layer.weight, x);
    return clef_linear(x, s->layer.transposed ? clef_transpose(w, 0, 1) : w, as(bias, x));
}

/* The dimension of inputs and outputs that is split. */
static int split_dim(const shard *s) { return s->layer.kind == CLEF__CONV2D ? 1 : -1; }

static clef_tensor *split_output(const shard *s, clef_tensor *y) {
    return s->options.gather_output ? clef_gather_from_group(y, s->group, split_dim(s)) : y;
}

static clef_tensor *add_bias(const shard *s, clef_tensor *y) {
    clef_tensor *b = s->layer.bias;
    if (b == CLEF_NONE) return y;
    return clef_add(y, s->layer.kind == CLEF__CONV2D ? clef_reshape(b, CLEF_SHAPE(-1, 1, 1)) : as(b, y));
}

static clef_tensor *forward_product(const shard *s, clef_tensor *x) {
    if (s->dim == 0) return split_output(s, product(s, clef_copy_to_group(x, s->group), s->layer.bias));
    if (s->options.whole_input) x = clef_scatter_to_group(x, s->group, split_dim(s));
    return add_bias(s, clef_reduce_from_group(product(s, x, CLEF_NONE), s->group));
}

/* Entries of other ranks are zeros here. */
static clef_tensor *forward_embedding(const shard *s, clef_tensor *x) {
    if (s->dim == 1) return split_output(s, clef_embedding(s->layer.weight, x));
    clef_tensor *own = clef_sub(clef_to(x, CLEF_I64), clef_integer(clef_tensor_context(x), s->first));
    return clef_reduce_from_group(clef_embedding(s->layer.weight, own), s->group);
}

static clef_tensor *forward_shard(clef_module *module, clef_tensor *x, void *user) {
    (void)user;
    const shard *s = module->shard;
    return s->layer.kind == CLEF__EMBEDDING ? forward_embedding(s, x) : forward_product(s, x);
}

/* ---- values ---- */

/* t, a parameter, becomes another value, computed, without a gradient. */
static clef_status become(clef_tensor *t, clef_tensor *value) {
    clef_status status = value ? clef_eval(value) : clef_error_status(clef_tensor_context(t));
    if (!status) status = clef_set_grad(t, CLEF_NONE);
    if (!status) clef__tensor_set(clef__get(t), clef__output_of(value));
    return status;
}

/* The same, where the value becomes a part of what the group's ranks have together, or with group NULL the whole again. */
static clef_status become_of(clef_tensor *t, clef_tensor *value, clef_group *group) {
    clef_status status = become(t, value);
    clef__get(t)->cut_over = group;
    return status;
}

/* The dimension of the weight, as it is stored, that has a layer's outputs (0) or inputs (1). */
static int stored_dim(const clef__layer *l, int dim) { return l->transposed ? 1 - dim : dim; }

/* t with the blocks of its outputs, along `dim`, as a dimension of their own before it. */
static clef_tensor *blocks_apart(clef_tensor *t, int dim, int blocks) {
    clef_shape s = clef_tensor_shape(t), apart = {.rank = s.rank + 1};
    for (int d = 0; d < s.rank; d++) apart.dim[d + (d > dim)] = s.dim[d];
    apart.dim[dim] = blocks;
    apart.dim[dim + 1] = s.dim[dim] / blocks;
    return clef_reshape(t, apart);
}

static clef_tensor *blocks_together(clef_tensor *t, int dim) {
    if (!t) return NULL;
    clef_shape s = clef_tensor_shape(t), whole = {.rank = s.rank - 1};
    for (int d = 0; d < s.rank; d++)
        if (d != dim) whole.dim[d - (d > dim)] = s.dim[d];
    whole.dim[dim] *= s.dim[dim];
    return clef_reshape(t, whole);
}

/* This rank's part of a whole value, cut as the layer's outputs are along `dim`, or the whole of the ranks' parts. */
static clef_tensor *part_of(const shard *s, clef_tensor *t, int dim) {
    if (s->dim != 0 || s->layer.blocks < 2) return clef_copy(clef_scatter_to_group(t, s->group, dim));
    clef_tensor *part = clef_scatter_to_group(blocks_apart(t, dim, s->layer.blocks), s->group, dim + 1);
    return clef_copy(blocks_together(part, dim));
}

static clef_tensor *whole_of(const shard *s, clef_tensor *t, int dim) {
    if (s->dim != 0 || s->layer.blocks < 2) return clef_all_gather(t, s->group, dim);
    return clef_copy(blocks_together(clef_all_gather(blocks_apart(t, dim, s->layer.blocks), s->group, dim + 1), dim));
}

static bool cuts_bias(const shard *s) { return s->layer.bias != CLEF_NONE && s->dim == 0; }

/* ---- which layers ---- */

/* Does a dotted name match? */
static bool matches(const char *pattern, const char *name) {
    if (*pattern == '*') return matches(pattern + 1, name) || (*name && *name != '.' && matches(pattern, name + 1));
    if (!*pattern || !*name) return *pattern == *name;
    return (*pattern == *name || (*pattern == '?' && *name != '.')) && matches(pattern + 1, name + 1);
}

typedef clef_status visitor(clef_module *module, const char *name, void *user);

/* Calls visit on all modules of the tree with their dotted names, until one fails. */
static clef_status walk(clef_module *module, const char *name, visitor *visit, void *user) {
    clef_status status = visit(module, name, user);
    for (int i = 0; i < module->n && !status; i++) {
        if (module->entry[i].kind != CLEF__CHILD) continue;
        char *below = clef__asprintf("%s%s%s", name, *name ? "." : "", module->entry[i].name);
        status = below ? walk(module->entry[i].child, below, visit, user)
                       : clef__fail(module->ctx, CLEF_MEMORY, "module_shard: no host memory for the names of layers");
        clef__free(below);
    }
    return status;
}

/* What clef_module_shard was asked for. */
typedef struct order {
    const char *pattern;
    shard like;
    int found;
} order;

static clef_status check_size(const order *o, const clef__layer *l, const char *type, const char *name, clef_context *ctx) {
    clef_shape shape = clef_tensor_shape(l->weight);
    int size = clef_group_size(o->like.group);
    if (l->kind == CLEF__CONV2D && l->conv.groups > 1)
        return clef__fail(ctx, CLEF_INVALID, "module_shard: the conv2d \"%s\" has %d groups; only those without groups can be cut",
                          name, l->conv.groups);
    int dim = stored_dim(l, o->like.dim), blocks = o->like.dim == 0 && l->blocks > 1 ? l->blocks : 1;
    if (shape.dim[dim] % ((int64_t)size * blocks))
        return clef__fail(ctx, CLEF_SHAPE,
                          "module_shard: dimension %d of the weight %s of the %s \"%s\" cannot be cut into %d equal parts", dim,
                          clef__shape_text(shape), type, name, size * blocks);
    if (blocks > 1 && o->like.options.gather_output)
        return clef__fail(ctx, CLEF_INVALID,
                          "module_shard: \"%s\" has %d outputs in one, each cut by itself; leave gather_output out", name, blocks);
    return CLEF_OK;
}

/* Another layer of this context that has the weight, and is cut: NULL if there is none. */
static clef_module *cut_before(const clef_module *module, const clef_tensor *weight) {
    for (clef_module *m = clef__nn_of(module->ctx)->first; m; m = m->next) {
        const shard *s = m->shard;
        if (s && s->layer.weight == weight) return m;
    }
    return NULL;
}

static clef_status check_layer(clef_module *module, const char *name, void *user) {
    order *o = user;
    clef__layer l;
    if (!matches(o->pattern, name)) return CLEF_OK;
    o->found++;
    if (module->shard)
        return clef__fail(module->ctx, CLEF_INVALID, "module_shard: the %s \"%s\" is cut already; clef_module_unshard it first",
                          module->type, name);
    if (!clef__layer_of(module, &l))
        return clef__fail(module->ctx, CLEF_INVALID, "module_shard: \"%s\" is a %s; linear, conv2d and embedding can be cut", name,
                          module->type);
    const clef_module *tied = cut_before(module, l.weight);
    const shard *other = tied ? tied->shard : NULL;
    if (!other) return check_size(o, &l, module->type, name, module->ctx);
    if (other->dim == o->like.dim && other->group == o->like.group) return CLEF_OK;
    return clef__fail(module->ctx, CLEF_INVALID, "module_shard: the weight of \"%s\" is cut in another way for another layer",
                      name);
}

/* Layers that are named twice are cut once. */
static clef_status cut_layer(clef_module *module, const char *name, void *user) {
    const order *o = user;
    if (!matches(o->pattern, name) || module->shard) return CLEF_OK;
    shard *s = clef__alloc(sizeof *s);
    if (!s) return clef__fail(module->ctx, CLEF_MEMORY, "module_shard: no host memory for \"%s\"", name);
    *s = o->like;
    s->whole = module->forward;
    clef__layer_of(module, &s->layer);
    bool cut = cut_before(module, s->layer.weight) != NULL;
    clef_tensor *weight = s->layer.weight, *bias = s->layer.bias;
    clef_status status = cut ? CLEF_OK : become_of(weight, part_of(s, weight, stored_dim(&s->layer, s->dim)), s->group);
    if (!status && cuts_bias(s)) status = become_of(bias, part_of(s, bias, 0), s->group);
    s->first = clef_tensor_shape(s->layer.weight).dim[0] * clef_group_rank(s->group);
    module->shard = s;
    module->forward = forward_shard;
    return status;
}

static clef_status check_order(const clef_module *net, const char *pattern, const clef_group *group, int dim) {
    if (!pattern) return clef__fail(net->ctx, CLEF_INVALID, "module_shard: the pattern is NULL; give the name of a layer");
    if (dim != 0 && dim != 1)
        return clef__fail(net->ctx, CLEF_INVALID, "module_shard: dim is %d; weights are cut along 0 or 1", dim);
    if (group && group->ctx != net->ctx)
        return clef__fail(net->ctx, CLEF_INVALID, "module_shard: the group belongs to another context; each rank has its own");
    return CLEF_OK;
}

clef_status clef_module_shard(clef_module *net, const char *pattern, clef_group *group, int dim,
                              const clef_shard_options *options) {
    if (!net) return CLEF_INVALID;
    order o = {.pattern = pattern, .like = {.group = group, .dim = dim}};
    if (options) o.like.options = *options;
    clef_status status = check_order(net, pattern, group, dim);
    if (!status) status = walk(net, "", check_layer, &o);
    if (!status && o.found == 0)
        status =
            clef__fail(net->ctx, CLEF_INVALID, "module_shard: no layer's name matches \"%s\"; clef_summary shows them", pattern);
    if (status || clef_group_size(group) == 1) return status;
    bool was = clef_set_grad_enabled(net->ctx, false);
    status = walk(net, "", cut_layer, &o);
    clef_set_grad_enabled(net->ctx, was);
    return status;
}

/* ---- whole for a while ---- */

typedef clef_tensor *value_fn(const shard *s, clef_tensor *t, int dim);

/* A parameter and its states. */
static clef_status move_one(const shard *s, clef_optimizer *opt, clef_tensor *t, int dim, value_fn *value) {
    clef_status status = become(t, value(s, t, dim));
    for (int i = 0; opt && i < opt->n; i++)
        for (int j = 0; j < opt->n_states && opt->slot[i].parameter == t && !status; j++)
            status = become(opt->slot[i].state[j], value(s, opt->slot[i].state[j], dim));
    return status;
}

/* What clef__shards_whole wants. */
typedef struct passing {
    clef_optimizer *opt;
    bool whole;
} passing;

/* With the layers that share its weight, as in join_layer. */
static clef_status pass_layer(clef_module *module, const char *name, void *user) {
    (void)name;
    const passing *p = user;
    const shard *s = module->shard;
    value_fn *value = p->whole ? whole_of : part_of;
    if (!s || s->is_whole == p->whole) return CLEF_OK;
    clef_status status = move_one(s, p->opt, s->layer.weight, stored_dim(&s->layer, s->dim), value);
    for (clef_module *m = clef__nn_of(module->ctx)->first; m && !status; m = m->next) {
        shard *other = m->shard;
        if (!other || other->layer.weight != s->layer.weight) continue;
        other->is_whole = p->whole;
        if (cuts_bias(other)) status = move_one(other, p->opt, other->layer.bias, 0, value);
    }
    return status;
}

clef_status clef__shards_whole(clef_module *net, clef_optimizer *opt, bool whole) {
    passing p = {opt, whole};
    bool was = clef_set_grad_enabled(net->ctx, false);
    clef_status status = walk(net, "", pass_layer, &p);
    clef_set_grad_enabled(net->ctx, was);
    return status;
}

clef_group *clef__cut_over(const clef_tensor *parameter) {
    const clef__tensor *t = clef__get(parameter);
    return t ? t->cut_over : NULL;
}

bool clef__has_shards(const clef_module *net) {
    bool found = false;
    for (int i = 0, n = clef_module_tensors(net); i < n && !found; i++)
        found = clef__cut_over(clef_module_tensor(net, i).tensor) != NULL;
    return found;
}

/* ---- whole again ---- */

static clef_status join_one(clef_module *module) {
    shard *s = module->shard;
    module->shard = NULL;
    module->forward = s->whole;
    clef_tensor *weight = s->layer.weight, *bias = s->layer.bias;
    clef_status status = CLEF_OK;
    if (!cut_before(module, weight)) /* else the last that has it brings it back */
        status = become_of(weight, whole_of(s, weight, stored_dim(&s->layer, s->dim)), NULL);
    if (!status && cuts_bias(s)) status = become_of(bias, whole_of(s, bias, 0), NULL);
    clef__free(s);
    return status;
}

/* With the layers that share its weight, which may be outside of the net: a weight is whole for all of them or for none. */
static clef_status join_layer(clef_module *module, const char *name, void *user) {
    (void)name, (void)user;
    const shard *s = module->shard;
    if (!s) return CLEF_OK;
    const clef_tensor *weight = s->layer.weight;
    clef_status status = CLEF_OK;
    for (clef_module *m = module; m && !status; m = cut_before(m, weight)) status = join_one(m);
    return status;
}

clef_status clef_module_unshard(clef_module *net) {
    if (!net) return CLEF_INVALID;
    bool was = clef_set_grad_enabled(net->ctx, false);
    clef_status status = walk(net, "", join_layer, NULL);
    clef_set_grad_enabled(net->ctx, was);
    return status;
}
