/* stages.c — where a net is cut into stages, and which tensors are whose. */
#include "nn/chain.h"
#include "nn/module.h"
#include "ops/ops.h"
#include "parallel/parallel.h"
#include <math.h>
#include <string.h>

static clef_status no_memory(const clef_pipeline *p) {
    return clef__fail(p->ctx, CLEF_MEMORY, "pipeline_new: no host memory for %d layers", p->layers);
}

/* ---- where ---- */

static clef_status use_cut(clef_pipeline *p) {
    for (int s = 1; s < p->stages; s++) {
        p->first[s] = p->options.cut[s - 1];
        if (p->first[s] <= p->first[s - 1] || p->first[s] >= p->layers)
            return clef__fail(
                p->ctx, CLEF_INVALID,
                "pipeline_new: cut[%d] is %d; %d stages of %d layers want %d numbers from 1 to %d, each above the last", s - 1,
                p->first[s], p->stages, p->layers, p->stages - 1, p->layers - 1);
    }
    return CLEF_OK;
}

/* What each layer costs, in any unit. */
static clef_status weigh(const clef_pipeline *p, double *cost) {
    if (p->options.input) return clef__layer_seconds(p->net, p->options.input, cost);
    for (int i = 0; i < p->layers; i++) cost[i] = (double)clef_parameter_count(p->layer[i]);
    return CLEF_OK;
}

/* A layer without tensors stays with the one before it, and at the net's start with the first that has some.  unit: the first layer
   of each; cost: of layers, and then of units. */
static int make_units(const clef_pipeline *p, int *unit, double *cost) {
    int n = 0;
    bool owner = false;
    for (int i = 0; i < p->layers; i++) {
        bool owns = clef_module_tensors(p->layer[i]) > 0;
        if (i == 0 || (owns && owner)) {
            unit[n] = i;
            cost[n++] = cost[i];
        } else cost[n - 1] += cost[i];
        owner |= owns;
    }
    return n;
}

/* Stages that got nothing take one unit of a neighbour: no stage gets slower than the slowest is. */
static void fill_stages(int *end, int stages, int units) {
    end[stages - 1] = units;
    for (int s = stages - 1; s > 0; s--)
        if (end[s - 1] >= end[s]) end[s - 1] = end[s] - 1;
    for (int s = 0; s < stages; s++)
        if (end[s] <= s) end[s] = s + 1;
}

/* end: of each stage, in units. */
static clef_status cut_units(const clef_pipeline *p, const double *cost, int units, int *end) {
    size_t stages = (size_t)p->stages, n = (size_t)units;
    double *numbers = clef__calloc(n * stages + 2 * n + stages, sizeof *numbers);
    if (!numbers) return no_memory(p);
    double *zeros = numbers + n * stages, *limit = zeros + 2 * n;
    for (size_t i = 0; i < n * stages; i++) numbers[i] = cost[i / stages];
    for (size_t s = 0; s < stages; s++) limit[s] = INFINITY;
    clef__chain chain = {.units = units,
                         .devices = p->stages,
                         .seconds = numbers,
                         .bytes = zeros,
                         .work = zeros,
                         .border = zeros,
                         .limit = limit,
                         .home = -1,
                         .transfer = 1};
    clef__cut found = clef__chain_cut(&chain, end);
    clef__free(numbers);
    if (found != CLEF__CUT) return no_memory(p);
    fill_stages(end, p->stages, units);
    return CLEF_OK;
}

static clef_status cut_by_cost(clef_pipeline *p) {
    double *cost = clef__calloc((size_t)p->layers, sizeof *cost);
    int *unit = clef__calloc((size_t)p->layers + (size_t)p->stages, sizeof *unit), *end = unit + p->layers;
    clef_status status = cost && unit ? weigh(p, cost) : no_memory(p);
    uint64_t failures = clef__failures(p->ctx);
    int units = status ? 0 : make_units(p, unit, cost);
    if (!status) status = clef__failed_since(p->ctx, failures);
    if (!status && units < p->stages)
        status =
            clef__fail(p->ctx, CLEF_INVALID, "pipeline_new: %d layers with tensors cannot be cut into %d stages; take fewer ranks",
                       units, p->stages);
    if (!status) status = cut_units(p, cost, units, end);
    for (int s = 1; s < p->stages && !status; s++) p->first[s] = unit[end[s - 1]];
    clef__free(cost);
    clef__free(unit);
    return status;
}

/* ---- whose ---- */

static clef__pipeline_tensor *find(const clef_pipeline *p, const clef_tensor *t) {
    for (int i = 0; i < p->tensors; i++)
        if (p->tensor[i].tensor == t) return &p->tensor[i];
    return NULL;
}

static clef_status note(clef_pipeline *p, int stage, const clef_named_tensor *named) {
    clef__pipeline_tensor *t = find(p, named->tensor);
    if (!t) {
        t = &p->tensor[p->tensors++];
        *t = (clef__pipeline_tensor){.tensor = named->tensor, .is_buffer = named->is_buffer, .owner = stage};
    }
    if (!t->where || stage != t->last) t->where = 31 * t->where + (uint64_t)stage + 1;
    t->last = stage;
    t->own |= stage == p->stage;
    t->tied |= stage != t->owner;
    if (!t->tied || !t->is_buffer) return CLEF_OK;
    return clef__fail(p->ctx, CLEF_INVALID,
                      "pipeline_new: stages %d and %d share the buffer \"%s\"; give a cut that keeps its layers together", t->owner,
                      stage, named->name);
}

/* The number of a module's tensors is 0 too where memory for their names was short; then there is a failure. */
static clef_status find_tensors(clef_pipeline *p) {
    uint64_t failures = clef__failures(p->ctx);
    int most = clef_module_tensors(p->net);
    if (clef__failed_since(p->ctx, failures)) return CLEF_MEMORY;
    p->tensor = clef__calloc((size_t)most + 1, sizeof *p->tensor);
    p->list = clef__calloc(2 * (size_t)most + 8, sizeof *p->list);
    if (!p->tensor || !p->list) return no_memory(p);
    clef_status status = CLEF_OK;
    for (int s = 0; s < p->stages; s++)
        for (int i = p->first[s]; i < p->first[s + 1]; i++)
            for (int k = 0, n = clef_module_tensors(p->layer[i]); k < n && !status; k++) {
                clef_named_tensor named = clef_module_tensor(p->layer[i], k);
                status = note(p, s, &named);
            }
    return status ? status : clef__failed_since(p->ctx, failures);
}

/* The layers as they are now, the tensors of each stage. */
static clef_status list_layers(clef_pipeline *p) {
    p->version = clef__nn_of(p->ctx)->version;
    p->layer = clef__calloc((size_t)p->layers + 1, sizeof *p->layer);
    if (!p->layer) return no_memory(p);
    clef__sequential_layers(p->net, p->layer);
    return CLEF_OK;
}

/* ---- what was replaced since the pipeline was made ---- */

/* Only all ranks together can make a group, and a replacement is each one's own: so stages share what they shared at the begin. */
static clef_status take_groups(clef_pipeline *now, const clef_pipeline *before) {
    for (int i = 0; i < now->tensors; i++) {
        clef__pipeline_tensor *t = &now->tensor[i];
        const clef__pipeline_tensor *old = find(before, t->tensor);
        if (old ? old->where != t->where : t->tied)
            return clef__fail(
                now->ctx, CLEF_STATE,
                "pipeline: other stages have a parameter %s than before; clef_pipeline_gather, then make a new pipeline",
                clef__shape_text(clef_tensor_shape(t->tensor)));
        if (t->tied) t->group = old->group;
    }
    return CLEF_OK;
}

clef_status clef__pipeline_follow(clef_pipeline *p) {
    if (p->version == clef__nn_of(p->ctx)->version) return CLEF_OK;
    int layers = clef__sequential_layers(p->net, NULL);
    if (layers != p->layers)
        return clef__fail(
            p->ctx, CLEF_STATE,
            "pipeline: the net has %d layers, and had %d when the pipeline was made; clef_pipeline_gather, then make a new one",
            layers, p->layers);
    clef_pipeline now = *p;
    now.tensor = NULL;
    now.list = NULL;
    now.tensors = 0;
    clef_status status = list_layers(&now);
    if (!status) status = find_tensors(&now);
    if (!status) status = take_groups(&now, p);
    if (!status) clef__pipeline_leave(p, false); /* those that are no longer of the net are nobody else's */
    clef_pipeline drop = status ? now : *p;
    if (!status) *p = now;
    clef__free(drop.layer);
    clef__free(drop.tensor);
    clef__free(drop.list);
    return status;
}

/* All ranks split, for one tied parameter after the other. */
static clef_status make_groups(clef_pipeline *p) {
    for (int i = 0; i < p->tensors && p->group; i++)
        if (p->tensor[i].tied) p->tensor[i].group = clef_group_split(p->group, p->tensor[i].own ? 0 : -1, 0);
    return clef_error_status(p->ctx);
}

clef_status clef__pipeline_cut(clef_pipeline *p) {
    p->layers = clef__sequential_layers(p->net, NULL);
    p->first = clef__calloc((size_t)p->stages + 1, sizeof *p->first);
    if (!p->first || list_layers(p)) return no_memory(p);
    p->first[p->stages] = p->layers;
    if (p->layers < p->stages)
        return clef__fail(p->ctx, CLEF_INVALID, "pipeline_new: %d layers cannot be cut into %d stages; take fewer ranks", p->layers,
                          p->stages);
    clef_status status = p->options.cut ? use_cut(p) : p->stages > 1 ? cut_by_cost(p) : CLEF_OK;
    if (!status) status = find_tensors(p);
    return status ? status : make_groups(p);
}

clef_tensor *clef__stage_forward(const clef_pipeline *p, int stage, clef_tensor *x) {
    clef__frame frame;
    clef__enter(p->net, &frame);
    for (int i = p->first[stage]; i < p->first[stage + 1]; i++) x = clef__forward_there(p->layer[i], x);
    clef__leave(&frame);
    return x;
}
