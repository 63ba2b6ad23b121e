/* tensor.c — nodes and handles: counting, lists of temporaries and kept tensors, the end of a step. */
#include "graph/graph_internal.h"

#include <string.h>

/* ---- nodes ---- */

clef__checkpointed_segment *clef__checkpointed_segment_retain(clef__checkpointed_segment *segment) {
    if (segment) segment->refs++;
    return segment;
}

void clef__checkpointed_segment_release(clef__checkpointed_segment *segment) {
    while (segment && --segment->refs == 0) {
        clef__checkpointed_segment *outer = segment->outer;
        clef__free(segment);
        segment = outer;
    }
}

void clef__output_retain(clef__output *out) {
    if (out->refs++ == 0) out->node->refs++;
}

/* One reference less: memory that nobody asks for goes.  Is the node dead then? */
static bool let_go(clef__output *out) {
    if (--out->refs > 0) return false;
    clef__buffer_release(out->buffer);
    out->buffer = NULL;
    return --out->node->refs == 0;
}

/* Iterative, as a chain of thousands of nodes may die at once. */
static void free_dead(clef__node *dead) {
    clef__graph *graph = clef__graph_of(dead->ctx);
    dead->next_dead = NULL;
    while (dead) {
        clef__node *next = dead->next_dead;
        for (int i = -1; i < dead->n_inputs; i++) {
            clef__output *input = i < 0 ? dead->after : dead->input[i];
            if (!input || !let_go(input)) continue;
            input->node->next_dead = next;
            next = input->node;
        }
        for (int k = 0; k < dead->n_outputs; k++) clef__buffer_release(dead->out[k].buffer);
        clef__checkpointed_segment_release(dead->segment);
        clef__node_free(graph, dead);
        dead = next;
    }
}

void clef__node_release(clef__node *node) {
    if (node && --node->refs == 0) free_dead(node);
}

void clef__output_release(clef__output *out) {
    if (out && let_go(out)) free_dead(out->node);
}

void clef__node_cut(clef__node *node) {
    for (int k = 0; k < node->n_outputs; k++)
        if (node->out[k].refs > 0 && !clef__computed(&node->out[k])) return;
    for (int i = 0; i < node->n_inputs; i++) clef__output_release(node->input[i]);
    clef__output_release(node->after);
    node->n_inputs = 0;
    node->after = NULL;
}

clef__layout clef__dense(clef_shape shape, const int *order) {
    clef__layout layout = {0};
    int64_t stride = 1;
    for (int i = shape.rank - 1; i >= 0; i--) {
        int d = order ? order[i] : i;
        layout.stride[d] = stride;
        stride *= shape.dim[d];
    }
    return layout;
}

bool clef__same_strides(clef_shape shape, const int64_t *a, const int64_t *b) {
    for (int i = 0; i < shape.rank; i++)
        if (shape.dim[i] != 1 && a[i] != b[i]) return false;
    return true;
}

bool clef__is_dense(clef_shape shape, const int64_t *stride, const int *order) {
    clef__layout dense = clef__dense(shape, order);
    return clef__same_strides(shape, stride, dense.stride);
}

/* ---- the graph's state ---- */

static bool is_kept(const clef__tensor *t) { return t->keeps > 0 || t->owned; }

static void unlink_tensor(clef__graph *graph, clef__tensor *t) {
    clef__tensor **head = is_kept(t) ? &graph->kept : &graph->temporaries;
    if (t->previous) t->previous->next = t->next;
    else *head = t->next;
    if (t->next) t->next->previous = t->previous;
    t->previous = t->next = NULL;
}

static void link_tensor(clef__graph *graph, clef__tensor *t) {
    clef__tensor **head = is_kept(t) ? &graph->kept : &graph->temporaries;
    t->previous = NULL;
    t->next = *head;
    if (t->next) t->next->previous = t;
    *head = t;
}

static void drop_value(clef__tensor *t) {
    if (t->out->leaf == t) t->out->leaf = NULL;
    t->out->passing -= !is_kept(t);
    clef__output_release(t->out);
}

static void free_tensor(clef__graph *graph, clef__tensor *t, bool released);

/* Who holds t changes.  One whom nobody holds any more is what it was before: a temporary until its time is over, as other code
   may have it as such. */
static void hold(clef__tensor *t, int keeps, bool owned) {
    clef__graph *graph = clef__graph_of(t->ctx);
    bool moves = is_kept(t) != (keeps > 0 || owned);
    if (moves) unlink_tensor(graph, t);
    t->keeps = keeps;
    t->owned = owned;
    if (moves) {
        link_tensor(graph, t);
        t->out->passing += is_kept(t) ? -1 : 1;
    }
    if (!is_kept(t) && t->until < graph->step) free_tensor(graph, t, true);
}

static clef__ended ended_of(const clef__graph *graph, const clef__tensor *t, bool released) {
    if (graph->closing) return (clef__ended){0}; /* nobody can ask any more */
    return (clef__ended){.op = t->out->node->op->name, .shape = t->out->shape, .step = t->until, .released = released};
}

void clef__forget_before(clef__tensor *t) {
    clef__output *before = t->before;
    if (!before) return;
    t->before = NULL;
    before->remembered--;
    clef__output_release(before);
}

static void free_tensor(clef__graph *graph, clef__tensor *t, bool released) {
    clef__ended ended = ended_of(graph, t, released);
    if (t->grad) hold(t->grad, t->grad->keeps, false);
    clef__forget_before(t);
    unlink_tensor(graph, t);
    drop_value(t);
    clef__slot_free(&graph->slots, t, ended);
}

static void close_graph(clef_context *ctx, void *state) {
    (void)ctx;
    clef__graph *graph = state;
    graph->closing = true;
    clef__output_release(graph->ordered);
    for (int i = 0; i < graph->n_wanted; i++) clef__output_release(graph->wanted[i]);
    for (clef__tensor *t = graph->kept; t; t = t->next) t->grad = NULL; /* gradients are in the list themselves */
    while (graph->temporaries) free_tensor(graph, graph->temporaries, true);
    while (graph->kept) free_tensor(graph, graph->kept, true);
    clef__slots_close(&graph->slots);
    clef__free_spare_nodes(graph);
    clef__free(graph->wanted);
    clef__free(graph->roots);
    clef__free(graph);
}

clef__graph *clef__graph_of(clef_context *ctx) {
    clef__graph *graph = clef__make_room_state(ctx, CLEF__ROOM_GRAPH, sizeof *graph, close_graph);
    if (graph && graph->step == 0) graph->step = 1;
    return graph;
}

bool clef__dry_run(clef_context *ctx) {
    const clef__graph *graph = clef__graph_of(ctx);
    return graph && graph->dry;
}

bool clef__graph_open(clef_context *ctx, clef__evaluator evaluate) {
    clef__graph *graph = clef__graph_of(ctx);
    if (graph) graph->evaluate = evaluate;
    return graph != NULL;
}

double clef__output_bytes(const clef__output *out) {
    return (double)clef_shape_numel(out->shape) * (double)clef_dtype_size(out->dtype);
}

clef__output *clef__viewed(clef__output *out) {
    while (out->node->op->kind == CLEF__VIEW && out->node->n_inputs && !out->leaf) out = out->node->input[0];
    return out;
}

void clef__node_cost(const clef__node *node, double *flops, double *bytes) {
    *flops = (double)clef_shape_numel(node->out->shape);
    *bytes = 0;
    for (int k = 0; k < node->n_outputs; k++) *bytes += clef__output_bytes(&node->out[k]);
    for (int i = 0; i < node->n_inputs; i++) *bytes += clef__output_bytes(node->input[i]);
    if (node->op->cost) node->op->cost(node, flops, bytes);
}

uint64_t clef__traversal(clef_context *ctx) { return ++clef__graph_of(ctx)->traversal; }

/* ---- tensors ---- */

enum { MANY = 100000 }; /* temporaries: more than any step has that was not forgotten to end */

clef_tensor *clef__tensor_new(clef__output *out) {
    clef_context *ctx = out->node->ctx;
    clef__graph *graph = clef__graph_of(ctx);
    clef__tensor *t = graph ? clef__slot_take(&graph->slots, ctx) : NULL;
    if (!t) {
        clef__fail(ctx, CLEF_MEMORY, "tensor: no host memory");
        return NULL;
    }
    t->out = out;
    t->until = graph->step + 1;
    t->number = ++graph->handles;
    clef__output_retain(out);
    out->passing++;
    link_tensor(graph, t);
    if (++graph->made == MANY)
        clef__log_line(ctx, CLEF_LOG_WARNING,
                       "tensor: %d temporaries in one step, and none is freed before it ends; call "
                       "clef_end_step(ctx) in a loop that does not train",
                       MANY);
    return clef__handle(t);
}

/* The value becomes this parameter's present one: a leaf of the tape. */
static void mark_leaf(clef__tensor *t) {
    t->out->leaf = t->requires_grad ? t : NULL;
    t->out->requires_grad = t->requires_grad;
    t->out->tape_end |= t->requires_grad; /* stays, for expressions made from this value, when the parameter has another */
}

void clef__tensor_set(clef__tensor *t, clef__output *out) {
    clef__output_retain(out);
    out->passing += !is_kept(t);
    drop_value(t);
    t->out = out;
    if (t->requires_grad) mark_leaf(t);
}

clef_context *clef_tensor_context(const clef_tensor *handle) {
    const clef__tensor *t = clef__get(handle);
    return t ? t->ctx : NULL;
}
clef_shape clef_tensor_shape(const clef_tensor *handle) {
    const clef__output *out = clef__output_of(handle);
    return out ? out->shape : (clef_shape){0};
}
clef_dtype clef_tensor_dtype(const clef_tensor *handle) {
    const clef__output *out = clef__output_of(handle);
    return out ? out->dtype : CLEF_F32;
}
int64_t clef_numel(const clef_tensor *handle) {
    const clef__output *out = clef__output_of(handle);
    return out ? clef_shape_numel(out->shape) : 0;
}
int clef_tensor_device(const clef_tensor *handle) {
    const clef__output *out = clef__output_of(handle);
    return out ? out->device : -1;
}

/* ---- who holds them ---- */

clef_tensor *clef_keep(clef_tensor *handle) {
    if (!CLEF__GIVEN("keep", "t", handle)) return NULL;
    clef__tensor *t = clef__get(handle);
    hold(t, t->keeps + 1, t->owned);
    return handle;
}

void clef_release(clef_tensor *handle) {
    if (!handle || handle == CLEF_NONE || !CLEF__GIVEN("release", "t", handle)) return;
    clef__tensor *t = clef__get(handle);
    if (t->keeps > 0) hold(t, t->keeps - 1, t->owned);
}

clef_tensor *clef__own(clef_tensor *handle) {
    clef__tensor *t = clef__get(handle);
    if (t) hold(t, t->keeps, true);
    return t ? handle : NULL;
}

void clef__never_temporary(clef_tensor *handle) {
    clef__tensor *t = clef__get(handle);
    if (t) t->until = 0;
}

void clef__tensor_drop(clef_tensor *handle) {
    clef__tensor *t = clef__get(handle);
    if (t && !is_kept(t)) free_tensor(clef__graph_of(t->ctx), t, true);
}

void clef__release_now(clef_tensor *handle) {
    clef_release(handle);
    clef__tensor_drop(handle);
}

uint64_t clef__handles_made(clef_context *ctx) { return clef__graph_of(ctx)->handles; }

void clef__drop_since(clef_context *ctx, uint64_t made) {
    clef__graph *graph = clef__graph_of(ctx);
    for (clef__tensor *t = graph->temporaries, *next; t; t = next) {
        next = t->next;
        if (t->number > made) free_tensor(graph, t, true);
    }
}

/* ---- gradients of leaves ---- */

clef_tensor *clef_require_grad(clef_tensor *handle, bool wanted) {
    if (!CLEF__GIVEN("require_grad", "t", handle)) return NULL;
    clef__tensor *t = clef__get(handle);
    if (wanted && !clef__is_float(t->out->dtype))
        return clef__refuse(t->ctx, "require_grad", CLEF_DTYPE, "only floating tensors have gradients, this one is %s",
                            clef_dtype_name(t->out->dtype));
    if (wanted && t->out->leaf && t->out->leaf != t)
        return clef__refuse(t->ctx, "require_grad", CLEF_STATE,
                            "another tensor with the same value is a parameter; "
                            "use clef_copy");
    if (wanted && t->out->requires_grad && !t->requires_grad && !is_kept(t))
        return clef__refuse(
            t->ctx, "require_grad", CLEF_STATE,
            "this %s is a temporary that is computed from parameters, which no "
            "gradient would reach through it any more; clef_grad gives its gradient, clef_keep makes it a parameter",
            t->out->node->op->name);
    t->requires_grad = wanted;
    mark_leaf(t);
    return handle;
}

bool clef_requires_grad(const clef_tensor *handle) {
    const clef__output *out = clef__output_of(handle);
    return out && out->requires_grad;
}

/* NULL is a good answer of a leaf; an expression never has one, so whoever asks is mistaken. */
clef_tensor *clef_grad_of(const clef_tensor *leaf) {
    const clef__tensor *t = clef__get(leaf);
    if (t && !t->grad && t->out->requires_grad && !t->requires_grad)
        return clef__refuse(t->ctx, "grad_of", CLEF_STATE,
                            "this %s is an expression, and backward leaves gradients with parameters "
                            "only; clef_grad gives that of any tensor",
                            t->out->node->op->name);
    if (t && t->averaging && t->averaging->state == CLEF__AVERAGING_OPEN && clef__average_gradient(leaf) != CLEF_OK) return NULL;
    return t ? clef__visible_gradient(t) : NULL;
}

clef_status clef__check_gradient(const char *op, const clef__tensor *t, const clef__tensor *grad) {
    const clef__output *x = t->out, *g = grad->out;
    if (grad->ctx != t->ctx) return clef__fail(t->ctx, CLEF_INVALID, "%s: the gradient belongs to another context", op);
    if (!clef_shape_equal(g->shape, x->shape))
        return clef__fail(t->ctx, CLEF_SHAPE, "%s: the gradient's shape %s is not the tensor's %s", op, clef__shape_text(g->shape),
                          clef__shape_text(x->shape));
    if (g->dtype != x->dtype)
        return clef__fail(t->ctx, CLEF_DTYPE, "%s: the gradient is %s and the tensor %s; convert it with clef_to", op,
                          clef_dtype_name(g->dtype), clef_dtype_name(x->dtype));
    if (g->device != x->device)
        return clef__fail(t->ctx, CLEF_INVALID,
                          "%s: the gradient lies on device %d and the tensor on %d; bring it there with "
                          "clef_to_device",
                          op, g->device, x->device);
    return CLEF_OK;
}

void clef__take_gradient(clef__tensor *leaf, clef_tensor *own) {
    if (leaf->grad) { /* the handle that clef_grad_of gave stays good */
        clef__tensor_set(leaf->grad, clef__output_of(own));
        clef__tensor_drop(own);
    } else {
        clef__never_temporary(own); /* it goes when the leaf lets it go, unless it was kept */
        clef__own(own);
        leaf->grad = clef__get(own);
    }
}

static clef_status replace_gradient(clef__tensor *leaf, clef_tensor *grad) {
    clef_status status = clef__check_gradient("set_grad", leaf, clef__get(grad));
    if (status != CLEF_OK) return status;
    if (clef_requires_grad(grad)) grad = clef_detach(grad); /* it may be on a tape, which ends with its step */
    clef_tensor *own = grad ? clef__tensor_new(clef__output_of(grad)) : NULL;
    if (!own) return CLEF_MEMORY;
    clef__take_gradient(leaf, own);
    clef__note_gradient(leaf, false);
    return CLEF_OK;
}

clef_status clef_set_grad(clef_tensor *handle, clef_tensor *grad) {
    if (!CLEF__GIVEN("set_grad", "leaf grad?", handle, grad)) return CLEF_INVALID;
    clef__tensor *leaf = clef__get(handle), *old = leaf->grad;
    if (clef__handle(old) == grad) return CLEF_OK;
    if (grad != CLEF_NONE) return replace_gradient(leaf, grad);
    leaf->grad = NULL;
    leaf->weighted = false;
    leaf->sharded = NULL;
    if (old) hold(old, old->keeps, false);
    return CLEF_OK;
}

/* ---- the end of a step ---- */

clef_status clef__want_result(clef_tensor *handle) {
    clef__tensor *t = clef__get(handle);
    clef__graph *graph = clef__graph_of(t->ctx);
    clef__output *out = t->out;
    clef_context *ctx = t->ctx;
    if (!clef__grow(&graph->wanted, graph->n_wanted, &graph->wanted_capacity, sizeof *graph->wanted))
        return clef__fail(ctx, CLEF_MEMORY, "backward: no host memory");
    clef__output_retain(out);
    graph->wanted[graph->n_wanted++] = out;
    if (clef_shape_numel(out->shape) <= 1 && t->until) t->until = graph->step + CLEF_RESULT_STEPS;
    return CLEF_OK;
}

int clef__results_wanted(const clef_context *ctx) { return clef__graph_of((clef_context *)ctx)->n_wanted; }

void clef__want_first(clef_context *ctx, int n) {
    clef__graph *graph = clef__graph_of(ctx);
    while (graph->n_wanted > n) clef__output_release(graph->wanted[--graph->n_wanted]);
}

static bool add_root(clef__graph *graph, int *n, clef__output *out) {
    if (!clef__grow(&graph->roots, *n, &graph->roots_capacity, sizeof *graph->roots)) return false;
    graph->roots[(*n)++] = out;
    return true;
}

/* A value that stays ends its tape with the step, so what can still be read of its node is computed with it.  One that a failure left
   without what it is made from cannot be: reading it says so, and other steps go on. */
static bool add_pending(clef__graph *graph, int *n, const clef__output *out) {
    bool ok = true;
    for (int k = 0; ok && k < out->node->n_outputs; k++) {
        clef__output *each = &out->node->out[k];
        if (each->refs > 0 && !each->lost && (each == out || !each->donated) && !clef__computed(each))
            ok = add_root(graph, n, each);
    }
    return ok;
}

/* Computes every kept tensor that is not elsewhere and every wanted output in one plan. */
static clef_status settle(clef_context *ctx, clef__graph *graph) {
    int n = 0;
    bool ok = true;
    for (int i = 0; ok && i < graph->n_wanted; i++) ok = add_pending(graph, &n, graph->wanted[i]);
    for (clef__tensor *t = graph->kept; ok && t; t = t->next) {
        clef__fetch_next(t);
        ok = t->elsewhere || add_pending(graph, &n, t->out);
    }
    clef__sequence_settle(graph);
    if (ok && graph->ordered) ok = add_root(graph, &n, graph->ordered);
    if (!ok) return clef__fail(ctx, CLEF_MEMORY, "end_step: no host memory");
    return n ? graph->evaluate(ctx, graph->roots, n) : CLEF_OK;
}

/* Frees the temporaries whose time is over when the present step ends. */
static void drop_temporaries(clef__graph *graph) {
    clef__tensor *next;
    for (clef__tensor *t = graph->temporaries; t; t = next) {
        next = t->next;
        clef__fetch_next(t);
        if (t->until <= graph->step) free_tensor(graph, t, false);
    }
}

/* The tape ends with the step; that of other outputs which somebody has ends with theirs. */
static void end_tape(clef__output *out) {
    clef__node *node = out->node;
    if (!clef__computed(out)) return;
    for (int k = 0; !out->requires_grad && k < node->n_outputs; k++)
        if (node->out[k].requires_grad && node->out[k].refs > 0) return;
    int inputs = node->n_inputs;
    clef__node_cut(node);
    node->ended |= inputs > 0 && node->n_inputs == 0;
}

clef_status clef_end_step(clef_context *ctx) {
    if (!ctx) return CLEF_INVALID;
    clef__graph *graph = clef__graph_of(ctx);
    if (!graph) return CLEF_MEMORY;
    bool counts = graph->made > 0;
    if (counts) drop_temporaries(graph); /* first, as a handle on a parameter's old value forbids updating in place */
    clef_status status = settle(ctx, graph);
    for (int i = 0; i < graph->n_wanted; i++) {
        if (!graph->dry) end_tape(graph->wanted[i]); /* as its handle may live for many steps */
        clef__output_release(graph->wanted[i]);
    }
    graph->n_wanted = 0;
    clef__sequence_settle(graph);
    for (clef__tensor *t = graph->kept; t && !graph->dry; t = t->next) end_tape(t->out);
    if (counts) {
        graph->step++;
        graph->made = 0;
    }
    return status;
}
