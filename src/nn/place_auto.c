/* place_auto.c — clef_place_auto: what the layers of a net cost, and where they go.

   Layers are the children of the net, and those of sequentials inside.  A cut lies only before a layer that has tensors of its own:
   one without follows its input.  Layers that share a tensor stay together, with all that lies between them.  What cannot be parted is
   a unit; chain.c cuts the chain of units. */
#include "graph/graph.h"
#include "nn/chain.h"
#include "nn/module.h"
#include "ops/ops.h"
#include "plan/lower/cost.h"
#include "runtime/text.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BACKWARD = 2 }; /* so many times a layer's work are its two gradients */
_Static_assert((int)CLEF_PLACEMENT_MOST == CLEF__MAX_DEVICES, "all devices of a context");

typedef struct layer {
    clef_module *module;
    bool begins;                         /* a unit */
    bool works;                          /* does more than pointwise ops, which are fused with what comes before or after */
    double seconds[CLEF_PLACEMENT_MOST]; /* forward, on each device */
    double tensors;                      /* bytes of its tensors, with what training adds to them */
    double input, made, kept;            /* bytes of values; kept: those of made that backward reads */
    uint64_t after;                      /* what it makes is younger than this node */
} layer;

/* A tensor, and the first layer that has it. */
typedef struct owned {
    clef_tensor *tensor;
    int layer;
} owned;

typedef struct placing {
    clef_module *net;
    clef_place_options options;
    int device[CLEF_PLACEMENT_MOST], devices;
    double limit[CLEF_PLACEMENT_MOST];
    layer *layer;
    int n;
    owned *owned;
    int n_owned, owned_capacity;
    int *first; /* layer of each unit, and the number of layers */
    clef__chain chain;
    double *numbers;   /* the chain's */
    uint64_t mark;     /* of the nodes that were counted */
    uint64_t failures; /* of the context, before this */
} placing;

static clef_status no_memory(const placing *p) {
    return clef__fail(p->net->ctx, CLEF_MEMORY, "place_auto: no host memory for %d layers", p->n);
}

/* ---- options ---- */

/* Parts of one device share its memory. */
static double memory_of(clef_context *ctx, int device) {
    const clef_device_info *info = clef__device_info(clef__device_at(ctx, device));
    int parts = 0;
    for (int i = 0; i < clef__context_devices(ctx); i++) {
        const clef_device_info *other = clef__device_info(clef__device_at(ctx, i));
        parts += i == device || (info->index >= 0 && other->index == info->index);
    }
    return (double)info->global_bytes / parts;
}

static clef_status choose_devices(placing *p) {
    clef_context *ctx = p->net->ctx;
    const clef_place_options *o = &p->options;
    int there = clef__context_devices(ctx);
    p->devices = o->devices ? o->n_devices : there;
    if (p->devices < 1 || p->devices > there)
        return clef__fail(ctx, CLEF_INVALID, "place_auto: n_devices is %d; the context has %d", o->n_devices, there);
    for (int i = 0; i < p->devices; i++) {
        int device = p->device[i] = o->devices ? o->devices[i] : i;
        if (!clef__check_device(ctx, "place_auto", device)) return CLEF_INVALID;
        for (int j = 0; j < i; j++)
            if (p->device[j] == device) return clef__fail(ctx, CLEF_INVALID, "place_auto: device %d is listed twice", device);
        p->limit[i] = o->memory && o->memory[i] ? (double)o->memory[i] : memory_of(ctx, device);
    }
    return CLEF_OK;
}

static clef_status read_options(placing *p) {
    clef_place_options *o = &p->options;
    if (o->micro_batches < 0 || !(o->transfer_gb_per_second >= 0))
        return clef__fail(p->net->ctx, CLEF_INVALID,
                          "place_auto: micro_batches is %d and transfer_gb_per_second %g; none may be below 0", o->micro_batches,
                          o->transfer_gb_per_second);
    if (o->optimizer_states == 0) o->optimizer_states = 2;
    if (o->optimizer_states < 0) o->optimizer_states = 0;
    if (o->transfer_gb_per_second == 0) o->transfer_gb_per_second = 8;
    return choose_devices(p);
}

/* ---- layers ---- */

static bool gather(placing *p) {
    int n = clef__sequential_layers(p->net, NULL);
    clef_module **module = clef__calloc((size_t)n + 1, sizeof *module);
    p->layer = clef__calloc((size_t)n + 1, sizeof *p->layer);
    bool room = module && p->layer;
    if (room) p->n = clef__sequential_layers(p->net, module);
    for (int i = 0; i < p->n; i++) p->layer[i].module = module[i];
    clef__free(module);
    return room;
}

/* With gradient and optimizer's states, where it is trained. */
static double tensor_bytes(const placing *p, const clef_named_tensor *t) {
    double bytes = (double)clef_numel(t->tensor) * (double)clef_dtype_size(clef_tensor_dtype(t->tensor));
    bool trained = !p->options.inference && !t->is_buffer && clef_requires_grad(t->tensor);
    return trained ? bytes * (2 + p->options.optimizer_states) : bytes;
}

static int owner_of(const placing *p, const clef_tensor *t) {
    for (int i = 0; i < p->n_owned; i++)
        if (p->owned[i].tensor == t) return p->owned[i].layer;
    return -1;
}

/* Counts the tensors of layer i, each with its first owner, and joins both where that is another. */
static bool own_tensors(placing *p, int i) {
    int n = clef_module_tensors(p->layer[i].module);
    p->layer[i].begins = n > 0;
    for (int k = 0; k < n; k++) {
        clef_named_tensor t = clef_module_tensor(p->layer[i].module, k);
        int owner = owner_of(p, t.tensor);
        for (int j = owner + 1; owner >= 0 && j <= i; j++) p->layer[j].begins = false;
        if (owner >= 0) continue;
        if (!clef__grow(&p->owned, p->n_owned, &p->owned_capacity, sizeof *p->owned)) return false;
        p->owned[p->n_owned++] = (owned){t.tensor, i};
        p->layer[i].tensors += tensor_bytes(p, &t);
    }
    return true;
}

static clef_status find_layers(placing *p) {
    clef_context *ctx = p->net->ctx;
    if (!clef__is_sequential(p->net))
        return clef__fail(
            ctx, CLEF_INVALID,
            "place_auto: the %s has a forward of its own, which no cut can follow; make a clef_sequential of its parts",
            p->net->type);
    if (!gather(p)) return no_memory(p);
    for (int i = 0; i < p->n; i++)
        if (!own_tensors(p, i)) return no_memory(p);
    if (clef__failed_since(ctx, p->failures)) return clef__failed_since(ctx, p->failures);
    if (p->n_owned == 0)
        return clef__fail(ctx, CLEF_INVALID, "place_auto: the net has no parameters; its layers run where their input lies");
    return CLEF_OK;
}

/* ---- what they take ---- */

/* Of what pointwise ops make, only the layer's result is memory. */
static void count_node(const placing *p, layer *l, const clef__node *node, const clef__node *result) {
    double flops, bytes;
    clef__node_cost(node, &flops, &bytes);
    for (int i = 0; i < p->devices; i++)
        l->seconds[i] += clef__nominal_seconds(clef__device_at(p->net->ctx, p->device[i]), flops, bytes);
    bool fused = node->op->kind == CLEF__POINTWISE;
    if (!fused) l->works = true;
    for (int k = 0; k < node->n_outputs; k++)
        if (!fused || node == result) l->made += clef__output_bytes(&node->out[k]);
}

/* Counts what the layer made. */
static void count(const placing *p, layer *l, clef__node *node, const clef__node *result) {
    if (node->made <= l->after || node->mark == p->mark) return;
    node->mark = p->mark;
    clef__kind kind = node->op->kind;
    if (kind == CLEF__POINTWISE || kind == CLEF__KERNEL || kind == CLEF__COPY) count_node(p, l, node, result);
    for (int i = 0; i < node->n_inputs; i++) count(p, l, node->input[i]->node, result);
}

/* The net's result; NULL if a layer fails. */
static clef_tensor *run_layers(placing *p, clef_tensor *x) {
    x = clef_detach(x); /* younger than all that the net has made */
    for (int i = 0; x && i < p->n; i++) {
        layer *l = &p->layer[i];
        l->after = clef__node_of(x)->made;
        l->input = clef__output_bytes(clef__output_of(x));
        x = clef__forward_there(l->module, x);
        p->mark = clef__traversal(p->net->ctx) << 32;
        if (x) count(p, l, clef__node_of(x), clef__viewed(clef__output_of(x))->node);
    }
    return x;
}

/* Backward reads this value of the forward: the layer that made it keeps it. */
static void keep(placing *p, clef__output *value) {
    if (value->leaf || value->mark == p->mark || value->node->op->kind == CLEF__CONSTANT) return;
    value->mark = p->mark;
    int i = p->n;
    while (i > 0 && p->layer[i - 1].after >= value->node->made) i--;
    if (i > 0) p->layer[i - 1].kept += clef__output_bytes(value);
}

/* Nodes of backward whose inputs were not looked at. */
typedef struct waiting {
    clef__node **node;
    int n, capacity;
} waiting;

static bool wait_for(const placing *p, waiting *w, clef__node *node) {
    if (node->mark == p->mark) return true;
    node->mark = p->mark;
    if (!clef__grow(&w->node, w->n, &w->capacity, sizeof *w->node)) return false;
    w->node[w->n++] = node;
    return true;
}

/* Finds what these gradients read of the nodes up to `last`, which are the forward's. */
static bool walk_backward(placing *p, clef_tensor *const *gradient, int n, uint64_t last) {
    waiting w = {0};
    bool room = true;
    p->mark = clef__traversal(p->net->ctx) << 32;
    for (int i = 0; i < n && room; i++) room = wait_for(p, &w, clef__node_of(gradient[i]));
    while (room && w.n > 0) {
        clef__node *node = w.node[--w.n];
        for (int i = 0; i < node->n_inputs && room; i++) {
            clef__output *value = clef__viewed(node->input[i]);
            if (value->node->made > last) room = wait_for(p, &w, value->node);
            else keep(p, value);
        }
    }
    clef__free(w.node);
    return room;
}

/* The parameters' gradients are built, and not computed. */
static bool run_backward(placing *p, clef_tensor *y) {
    if (p->options.inference || !clef_requires_grad(y)) return true;
    clef_tensor **t = clef__calloc(2 * (size_t)p->n_owned, sizeof *t);
    if (!t) return false;
    int n = 0;
    for (int i = 0; i < p->n_owned; i++)
        if (clef_requires_grad(p->owned[i].tensor)) t[n++] = p->owned[i].tensor;
    uint64_t last = clef__node_of(y)->made;
    bool done = n == 0 || clef_grad(y, clef_ones_like(y), t, n, false, t + n) == CLEF_OK;
    done = done && walk_backward(p, t + n, n, last);
    clef__free(t);
    return done;
}

/* In a dry run, which leaves no trace: modes, random numbers and kept tensors come back.  Recorded for gradients, as nodes then
   remember their inputs in eager mode too. */
static clef_status measure(placing *p, clef_tensor *input) {
    clef_context *ctx = p->net->ctx;
    clef_random_state random = clef_random_get(ctx);
    bool dry = clef_set_dry_run(ctx, true), inference = clef__nn_inference(ctx, p->options.inference);
    bool recorded = clef_set_grad_enabled(ctx, true);
    clef_tensor *y = run_layers(p, input);
    bool done = y && run_backward(p, y);
    clef_set_grad_enabled(ctx, recorded);
    clef__nn_inference(ctx, inference);
    clef_set_dry_run(ctx, dry);
    clef_random_set(ctx, random);
    clef_status status = clef__failed_since(ctx, p->failures);
    return done || status ? status : no_memory(p);
}

/* ---- the chain ---- */

/* Layers without tensors belong to the one before; at the net's start, to the first that has some. */
static int mark_units(placing *p) {
    int units = 0;
    for (int i = 0; i < p->n; i++) {
        if (!p->layer[i].begins) continue;
        p->first[units] = units ? i : 0;
        units++;
    }
    p->first[units] = p->n;
    return units;
}

static void add_layer(const placing *p, const layer *l, int unit, double *seconds, double *bytes, double *work) {
    bool trained = !p->options.inference;
    double again = trained && l->module->recompute ? l->made : 0; /* beside the gradients of the same values */
    double values = l->works ? l->input + l->made + again : fmax(l->input, l->made);
    for (int d = 0; d < p->devices; d++) seconds[unit * p->devices + d] += l->seconds[d] * (trained ? 1 + BACKWARD : 1);
    bytes[unit] += l->tensors + l->kept;
    work[unit] = fmax(work[unit], values);
}

static clef_status make_chain(placing *p, int input_device) {
    p->first = clef__calloc((size_t)p->n + 1, sizeof *p->first);
    p->numbers = clef__calloc((size_t)p->n * (size_t)(p->devices + 3), sizeof *p->numbers);
    if (!p->first || !p->numbers) return no_memory(p);
    int units = mark_units(p);
    double *seconds = p->numbers, *bytes = seconds + units * p->devices, *work = bytes + units, *border = work + units;
    for (int u = 0; u < units; u++) {
        border[u] = p->layer[p->first[u]].input;
        for (int i = p->first[u]; i < p->first[u + 1]; i++) add_layer(p, &p->layer[i], u, seconds, bytes, work);
    }
    p->chain = (clef__chain){.units = units,
                             .devices = p->devices,
                             .seconds = seconds,
                             .bytes = bytes,
                             .work = work,
                             .border = border,
                             .limit = p->limit,
                             .home = -1,
                             .both_ways = !p->options.inference,
                             .transfer = p->options.transfer_gb_per_second * 1e9,
                             .parts = p->options.micro_batches};
    for (int d = 0; d < p->devices; d++)
        if (p->device[d] == input_device) p->chain.home = d;
    return CLEF_OK;
}

static void layer_name(const placing *p, int i, char *name, size_t size) {
    name[0] = 0;
    clef__module_path(p->net, p->layer[i].module, name, size);
}

/* The first unit that has room on no device; -1: there is none. */
static int too_large(const placing *p) {
    double most = 0;
    for (int d = 0; d < p->devices; d++) most = fmax(most, p->limit[d]);
    for (int u = 0; u < p->chain.units; u++)
        if (clef__run_bytes(&p->chain, u, u + 1) > most) return u;
    return -1;
}

/* One line: what the net needs, what the devices have, and the layer that is to blame if there is one. */
static clef_status refuse_size(const placing *p) {
    clef__text t = {0};
    char bytes[40], name[128];
    clef__text_add(&t, "place_auto: the net needs %s in %s, but", clef__human(bytes, clef__run_bytes(&p->chain, 0, p->chain.units)),
                   p->options.inference ? "inference" : "training");
    for (int d = 0; d < p->devices; d++)
        clef__text_add(&t, "%s device %d has %s", d ? "," : "", p->device[d], clef__human(bytes, p->limit[d]));
    int u = too_large(p);
    if (u >= 0) {
        layer_name(p, p->first[u], name, sizeof name);
        clef__text_add(&t, "; layer %s", name);
        layer_name(p, p->first[u + 1] - 1, name, sizeof name);
        if (p->first[u + 1] - p->first[u] > 1) clef__text_add(&t, " to %s", name);
        clef__text_add(&t, " alone needs %s", clef__human(bytes, clef__run_bytes(&p->chain, u, u + 1)));
    } else clef__text_append(&t, ", and no cut fits");
    clef_status status = clef__fail(p->net->ctx, CLEF_MEMORY, "%s", t.failed ? "place_auto: the net does not fit" : t.data);
    clef__free(t.data);
    return status;
}

/* ---- the result ---- */

static void report(const placing *p, const int *end, clef_placement *placement) {
    double sum = 0, most = 0;
    *placement = (clef_placement){.n = p->devices};
    for (int d = 0; d < p->devices; d++) {
        clef_placement_part *part = &placement->part[d];
        int from = d ? end[d - 1] : 0;
        part->device = p->device[d];
        part->memory = (int64_t)p->limit[d];
        part->bytes = (int64_t)clef__run_bytes(&p->chain, from, end[d]);
        part->seconds = clef__run_seconds(&p->chain, d, from, end[d]);
        part->layers = p->first[end[d]] - p->first[from];
        if (part->layers) {
            layer_name(p, p->first[from], part->first, sizeof part->first);
            layer_name(p, p->first[end[d]] - 1, part->last, sizeof part->last);
        }
        sum += part->seconds;
        most = fmax(most, part->seconds);
    }
    placement->seconds = clef__chain_seconds(&p->chain, sum, most);
}

static clef_status move_layers(const placing *p, const int *end) {
    clef_status status = CLEF_OK;
    for (int d = 0, u = 0; d < p->devices; d++)
        for (; u < end[d]; u++)
            for (int i = p->first[u]; i < p->first[u + 1] && !status; i++)
                status = clef_module_to(p->layer[i].module, p->device[d]);
    return status;
}

static clef_status cut(placing *p) {
    int end[CLEF_PLACEMENT_MOST];
    switch (clef__chain_cut(&p->chain, end)) {
    case CLEF__NO_HOST_MEMORY: return no_memory(p);
    case CLEF__NONE_FITS: return refuse_size(p);
    case CLEF__CUT: break;
    }
    clef_status status = move_layers(p, end);
    if (!status && p->options.placement) report(p, end, p->options.placement);
    return status;
}

clef_status clef_place_auto(clef_module *net, clef_tensor *input, const clef_place_options *options) {
    placing p = {.net = net};
    if (options) p.options = *options;
    if (p.options.placement) *p.options.placement = (clef_placement){0};
    if (!net || !clef__given(net->ctx, "place_auto", "input", &input, 1)) return CLEF_INVALID;
    p.failures = clef__failures(net->ctx);
    clef_status status = CLEF_OK;
    if (clef_tensor_context(input) != net->ctx)
        status = clef__fail(net->ctx, CLEF_INVALID, "place_auto: the input belongs to another context");
    if (!status) status = read_options(&p);
    if (!status) status = find_layers(&p);
    if (!status) status = measure(&p, input);
    if (!status) status = make_chain(&p, clef_tensor_device(input));
    if (!status) status = cut(&p);
    clef__free(p.layer);
    clef__free(p.owned);
    clef__free(p.first);
    clef__free(p.numbers);
    return status;
}

clef_status clef__layer_seconds(clef_module *net, clef_tensor *input, double *seconds) {
    placing p = {.net = net, .devices = 1, .failures = clef__failures(net->ctx)};
    p.device[0] = clef_tensor_device(input);
    clef_status status = find_layers(&p);
    if (!status) status = measure(&p, input);
    for (int i = 0; i < p.n && !status; i++) seconds[i] = p.layer[i].seconds[0] * (1 + BACKWARD);
    clef__free(p.layer);
    clef__free(p.owned);
    return status;
}
