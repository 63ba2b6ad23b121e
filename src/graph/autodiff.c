/* autodiff.c — reverse mode: walks the tape back once; every op's gradient adds nodes, so backward is more graph.

   The tape is the graph itself: nodes with requires_grad, ending at nodes that are or were a parameter's value.  Present
   values (leaves) collect gradients; of those that a parameter left behind nobody wants any. */
#include "graph/core.h"
#include "graph/graph_internal.h"

#include <string.h>

/* Gradients that reach one node by several ways add up. */
static clef_tensor *add(clef_tensor *a, clef_tensor *b) {
    if (!a || !b) return a ? a : b;
    return clef__apply(&clef__op_add, (clef_tensor *[]){a, b}, 2, NULL, 0);
}

/* ---- the walk ---- */

/* A gradient that waits until all that reach its output are known (clef_op.sum). */
typedef struct term {
    clef_tensor *t;
    int next; /* of the same output; -1: none */
} term;

/* The nodes that gradients go through, and the outputs that they come to: what is on the tape below the result. */
typedef struct walk {
    clef_context *ctx;
    clef__node **order; /* inputs before consumers */
    int n, capacity;
    clef__output **out;
    uint64_t *former;   /* out[i]'s place in the walk around this one */
    clef_tensor **grad; /* of out[i]; NULL: none yet */
    int n_out, out_capacity, former_capacity;
    term *term;
    int *first_term, *last_term; /* of each output; -1: none */
    int n_terms, term_capacity;
    clef_tensor *const *end; /* the walk goes no farther than these */
    int n_ends;
    uint64_t mark;
    bool recompute, within; /* an op's gradient, which another walk has asked for, walks itself */
    clef__copies copies;
} walk;

static bool on_tape(const clef__output *out) { return out->requires_grad; }

static int index_in(const walk *w, const clef__output *out) { return out->tape >> 32 == w->mark ? (int)(uint32_t)out->tape : -1; }

static bool add_output(walk *w, clef__output *out) {
    if (!clef__grow(&w->out, w->n_out, &w->out_capacity, sizeof *w->out)) return false;
    if (w->within && !clef__grow(&w->former, w->n_out, &w->former_capacity, sizeof *w->former)) return false;
    if (w->within) w->former[w->n_out] = out->tape;
    out->tape = w->mark << 32 | (uint32_t)w->n_out;
    w->out[w->n_out++] = out;
    return true;
}

/* A node, and which of its inputs comes next. */
typedef struct frame {
    clef__node *node;
    int next;
} frame;
typedef struct frames {
    frame *frame;
    int depth, capacity;
} frames;

static bool is_end(const walk *w, const clef__output *out) {
    bool end = out->tape_end;
    for (int i = 0; i < w->n_ends && !end; i++) end = clef__output_of(w->end[i]) == out;
    return end;
}

/* The walk comes to an output for the first time.  A parameter's value may have a history (an assignment not yet computed), which is
   not part of the tape. */
static bool reach(walk *w, frames *stack, clef__output *out) {
    if (!add_output(w, out)) return false;
    if (is_end(w, out) || out->node->tape == w->mark) return true;
    if (!clef__grow(&stack->frame, stack->depth, &stack->capacity, sizeof *stack->frame)) return false;
    out->node->tape = w->mark;
    stack->frame[stack->depth++] = (frame){out->node, 0};
    return true;
}

/* Depth first without recursion. */
static bool walk_collect(walk *w, clef__output *root) {
    frames stack = {0};
    bool ok = reach(w, &stack, root);
    while (ok && stack.depth) {
        frame *top = &stack.frame[stack.depth - 1];
        if (top->next == top->node->n_inputs) {
            ok = clef__grow(&w->order, w->n, &w->capacity, sizeof *w->order);
            if (ok) w->order[w->n++] = top->node;
            stack.depth--;
            continue;
        }
        clef__output *input = top->node->input[top->next++];
        if (on_tape(input) && index_in(w, input) < 0) ok = reach(w, &stack, input);
    }
    clef__free(stack.frame);
    return ok;
}

/* A handle of ours, unless the op gave it back as a result.  (A handle on a parameter forbids updating it in place.) */
static void drop_handle(clef_tensor *t, clef_tensor *const *dx, int n) {
    for (int i = 0; i < n; i++)
        if (dx[i] == t) return;
    clef__tensor_drop(t);
}

/* What node's gradient is to see of an output or an input of it: a copy made for backward if that is not to be kept. */
static clef_tensor *handle(walk *w, clef__output *seen, const clef__node *node) {
    if (w->recompute) seen = clef__copies_get(&w->copies, seen, node);
    return seen ? clef__tensor_new(seen) : NULL;
}

/* Is g of input i's shape?  Anything else would be a wrong number, or a write out of bounds, much later. */
static bool gradient_fits(const clef__node *node, int i, const clef_tensor *g) {
    clef_shape have = clef_tensor_shape(g), want = node->input[i]->shape;
    if (clef_shape_equal(have, want)) return true;
    clef__fail(node->ctx, CLEF_INTERNAL, "%s: clef bug, please report it: the gradient of input %d is %s, not %s", node->op->name,
               i, clef__shape_text(have), clef__shape_text(want));
    return false;
}

/* ---- adding up ---- */

/* One more gradient of output `at`.  Those that can be summed together wait for each other. */
static void receive(walk *w, int at, clef_tensor *g) {
    if (!clef__node_of(g)->op->sum || !clef__grow(&w->term, w->n_terms, &w->term_capacity, sizeof *w->term)) {
        w->grad[at] = add(w->grad[at], g);
        return;
    }
    w->term[w->n_terms] = (term){g, -1};
    if (w->first_term[at] < 0) w->first_term[at] = w->n_terms;
    else w->term[w->last_term[at]].next = w->n_terms;
    w->last_term[at] = w->n_terms++;
}

/* Up to `most` terms from `*next` on that are of one op, moved on; returns how many. */
static int take_terms(const walk *w, int *next, clef_tensor **t, int most) {
    int n = 0;
    const clef_op *op = clef__node_of(w->term[*next].t)->op;
    for (; *next >= 0 && n < most && clef__node_of(w->term[*next].t)->op == op; *next = w->term[*next].next)
        t[n++] = w->term[*next].t;
    return n;
}

/* The whole gradient of output `at`; NULL: none came to it. */
static clef_tensor *total(walk *w, int at) {
    for (int next = w->first_term[at]; next >= 0;) {
        clef_tensor *t[CLEF__MAX_INPUTS];
        int n = take_terms(w, &next, t, CLEF__MAX_INPUTS);
        clef_tensor *sum = n > 1 ? clef__node_of(t[0])->op->sum(t, n) : NULL;
        if (sum) w->grad[at] = add(w->grad[at], sum);
        for (int i = 0; !sum && i < n; i++) w->grad[at] = add(w->grad[at], t[i]);
    }
    w->first_term[at] = w->last_term[at] = -1;
    return w->grad[at];
}

/* The gradients that came to the node's outputs, NULL where none did; false: none at all. */
static bool gradients_of(walk *w, clef__node *node, clef_tensor **g) {
    bool any = false;
    for (int k = 0; k < node->n_outputs; k++) {
        int at = node->out[k].tape_end ? -1 : index_in(w, &node->out[k]);
        g[k] = at >= 0 ? total(w, at) : NULL;
        if (g[k] && !any && w->recompute) clef__copies_reach(&w->copies, node, clef__output_of(g[k]));
        any |= g[k] != NULL;
    }
    return any;
}

/* dL/dy is known: asks the op for the gradients of its inputs and hands them on. */
static void propagate(walk *w, clef__node *node) {
    clef_tensor *x[CLEF__MAX_INPUTS], *dx[CLEF__MAX_INPUTS], *y[CLEF__MAX_OUTPUTS], *g[CLEF__MAX_OUTPUTS];
    bool wanted[CLEF__MAX_INPUTS], complete = true;
    int n = node->n_inputs;
    if (!gradients_of(w, node, g)) return;
    for (int k = 0; k < node->n_outputs; k++) complete &= (y[k] = handle(w, &node->out[k], node)) != NULL;
    for (int i = 0; i < n; i++) {
        complete &= (x[i] = handle(w, node->input[i], node)) != NULL;
        dx[i] = NULL;
        wanted[i] = on_tape(node->input[i]);
    }
    if (n && complete && node->op->gradient) node->op->gradient(x, y, g, wanted, dx);
    for (int i = 0; i < n; i++) {
        if (!wanted[i] || !dx[i] || !gradient_fits(node, i, dx[i])) continue;
        receive(w, index_in(w, node->input[i]), dx[i]);
    }
    for (int i = 0; i < n; i++) drop_handle(x[i], dx, n);
    for (int k = 0; k < node->n_outputs; k++) drop_handle(y[k], dx, n);
}

/* Can the value depend on one of the n tensors x, which is asked for?  Not on what was made after it.  n 0: all parameters are asked for. */
static bool may_depend(const clef__output *out, clef_tensor *const *x, int n) {
    bool may = n == 0;
    for (int k = 0; k < n; k++) {
        if (clef__output_of(x[k]) == out) return false; /* it is the one */
        may |= clef__node_of(x[k])->made < out->node->made;
    }
    return may;
}

/* A value of an earlier step is as good as any, but what it was made from has gone: a gradient that came to it would be left out. */
static clef_status check_history(const walk *w, const char *op, clef_tensor *const *x, int n) {
    for (int i = 0; i < w->n_out; i++) {
        const clef__output *out = w->out[i];
        if (!w->grad[i] || !out->node->ended || out->tape_end || clef_shape_numel(out->shape) == 0 || !may_depend(out, x, n))
            continue;
        return clef__fail(w->ctx, CLEF_STATE,
                          "%s: the result depends on the %s %s of a step that has ended, and its history with it; "
                          "compute it in this step, or clef_detach it",
                          op, out->node->op->name, clef__shape_text(out->shape));
    }
    return CLEF_OK;
}

/* Fills w->grad for everything between y and its leaves.  g NULL: making it failed. */
static clef_status differentiate(walk *w, clef_tensor *y, clef_tensor *g, bool create_graph) {
    clef_context *ctx = w->ctx = clef_tensor_context(y);
    w->mark = w->copies.mark = clef__traversal(ctx);
    w->within = clef__graph_of(ctx)->differentiating;
    w->recompute = !create_graph; /* what is to be differentiated again is on the tape, and stays */
    if (!g) return CLEF_MEMORY;
    if (!walk_collect(w, clef__output_of(y))) return clef__fail(ctx, CLEF_MEMORY, "backward: no host memory");
    w->grad = clef__calloc((size_t)w->n_out, sizeof *w->grad);
    w->first_term = clef__alloc((size_t)w->n_out * sizeof *w->first_term);
    w->last_term = clef__alloc((size_t)w->n_out * sizeof *w->last_term);
    if (!w->grad || !w->first_term || !w->last_term) return clef__fail(ctx, CLEF_MEMORY, "backward: no host memory");
    for (int i = 0; i < w->n_out; i++) w->first_term[i] = w->last_term[i] = -1;
    uint64_t failures = clef__failures(ctx); /* an op that leaves a gradient out has failed, or means zero */
    clef__graph *graph = clef__graph_of(ctx);
    bool was = clef_set_grad_enabled(ctx, create_graph);
    graph->differentiating = true;
    w->grad[0] = g; /* the first output that the walk came to */
    for (int i = w->n - 1; i >= 0; i--) propagate(w, w->order[i]);
    for (int i = 0; i < w->n_out; i++) total(w, i);
    graph->differentiating = w->within;
    clef_set_grad_enabled(ctx, was);
    return clef__failed_since(ctx, failures);
}

/* The walk around this one finds its places again. */
static void walk_free(walk *w) {
    for (int i = 0; w->within && i < w->n_out; i++) w->out[i]->tape = w->former[i];
    clef__free(w->order);
    clef__free(w->out);
    clef__free(w->former);
    clef__free(w->grad);
    clef__free(w->term);
    clef__free(w->first_term);
    clef__free(w->last_term);
    clef__copies_free(&w->copies);
}

static clef_tensor *constant_like(clef_tensor *t, double value) {
    const clef__output *out = clef__output_of(t);
    return clef__constant(out->node->ctx, out->shape, out->dtype, out->device, value);
}

static clef_tensor *or_one(clef_tensor *grad, clef_tensor *y) { return grad == CLEF_NONE ? constant_like(y, 1) : grad; }

/* What backward and grad ask of y and of the gradient that they begin with. */
static clef_status check_seed(const char *op, clef_tensor *y, clef_tensor *grad) {
    if (!CLEF__GIVEN(op, "y grad?", y, grad)) return CLEF_INVALID;
    const clef__output *out = clef__output_of(y);
    if (!out->requires_grad)
        return clef__fail(out->node->ctx, CLEF_STATE,
                          "%s: the result depends on no tensor that wants a gradient "
                          "(clef_require_grad, or recording is off)",
                          op);
    if (grad != CLEF_NONE) return clef__check_gradient(op, clef__get(y), clef__get(grad));
    if (clef_shape_numel(out->shape) != 1)
        return clef__fail(out->node->ctx, CLEF_SHAPE, "%s: %s is not a scalar; reduce it, or give the gradient of the result", op,
                          clef__shape_text(out->shape));
    return CLEF_OK;
}

/* ---- leaves' gradients: all of them or none ---- */

/* What leaf's gradient is with another; under a handle that nobody else has. */
static clef_tensor *added(clef__tensor *leaf, clef_tensor *gradient) {
    clef_tensor *sum = leaf->averaging ? clef__add_part(leaf, gradient, add) : add(clef__handle(leaf->grad), gradient);
    if (sum && clef_requires_grad(sum)) sum = clef_detach(sum); /* whose step may end before the gradient's */
    return sum ? clef__tensor_new(clef__output_of(sum)) : NULL;
}

/* Puts what each leaf's gradient is to be into w->grad. */
static clef_status prepare_deposits(walk *w) {
    bool was = clef_set_grad_enabled(w->ctx, false);
    uint64_t failures = clef__failures(w->ctx);
    int leaves = 0;
    for (int i = 0; i < w->n_out; i++) {
        clef__tensor *leaf = w->out[i]->leaf;
        leaves += leaf != NULL;
        if (!leaf || !w->grad[i]) continue;
        w->grad[i] = added(leaf, w->grad[i]);
    }
    clef_set_grad_enabled(w->ctx, was);
    if (leaves) return clef__failed_since(w->ctx, failures);
    return clef__fail(w->ctx, CLEF_STATE,
                      "backward: the parameters that the result was made from have another value by now; "
                      "call it before they are assigned");
}

clef_status clef__add_gradient(clef_tensor *parameter, clef_tensor *gradient) {
    clef__tensor *leaf = clef__get(parameter);
    bool was = clef_set_grad_enabled(leaf->ctx, false);
    uint64_t failures = clef__failures(leaf->ctx);
    clef_tensor *sum = added(leaf, gradient);
    clef_set_grad_enabled(leaf->ctx, was);
    if (!sum) return clef__failed_since(leaf->ctx, failures);
    clef__take_gradient(leaf, sum);
    clef__note_gradient(leaf, true);
    return CLEF_OK;
}

static void deposit(walk *w) {
    for (int i = 0; i < w->n_out; i++) {
        if (!w->out[i]->leaf || !w->grad[i]) continue;
        clef__take_gradient(w->out[i]->leaf, w->grad[i]);
        clef__note_gradient(w->out[i]->leaf, true);
    }
}

/* ---- public ---- */

clef_status clef_backward_from(clef_tensor *y, clef_tensor *grad) {
    clef_status status = check_seed("backward", y, grad);
    if (status != CLEF_OK) return status;
    walk w = {0};
    status = differentiate(&w, y, or_one(grad, y), false);
    if (status == CLEF_OK) status = check_history(&w, "backward", NULL, 0);
    if (status == CLEF_OK) status = prepare_deposits(&w);
    if (status == CLEF_OK) status = clef__want_result(y);
    if (status == CLEF_OK) deposit(&w);
    walk_free(&w);
    return status;
}

clef_status clef_backward(clef_tensor *loss) { return clef_backward_from(loss, CLEF_NONE); }

static clef_status check_sources(clef_tensor *y, clef_tensor *const *x, int n, clef_tensor **dx) {
    clef_context *ctx = clef_tensor_context(y);
    if (!clef__given_array(ctx, "grad", "x", x, n)) return CLEF_INVALID;
    if (!dx) return clef__fail(ctx, CLEF_INVALID, "grad: dx is NULL, not an array of %d tensors", n);
    for (int i = 0; i < n; i++)
        if (clef_tensor_context(x[i]) != ctx) return clef__fail(ctx, CLEF_INVALID, "grad: x[%d] belongs to another context", i);
    return CLEF_OK;
}

/* NULL where y does not depend on x[i].  between: what lies behind the x is none of the walk's. */
static clef_status gradients(clef_tensor *y, clef_tensor *grad, clef_tensor *const *x, int n, bool create_graph, bool between,
                             clef_tensor **dx) {
    walk w = {.end = x, .n_ends = between ? n : 0};
    clef_status status = check_seed("grad", y, grad);
    if (status == CLEF_OK) status = check_sources(y, x, n, dx);
    if (status == CLEF_OK) status = differentiate(&w, y, or_one(grad, y), create_graph);
    if (status == CLEF_OK) status = check_history(&w, "grad", x, n);
    for (int i = 0; status == CLEF_OK && i < n; i++) {
        int at = index_in(&w, clef__output_of(x[i]));
        dx[i] = at >= 0 ? w.grad[at] : NULL;
    }
    walk_free(&w);
    return status;
}

clef_status clef__grad_where_any(clef_tensor *y, clef_tensor *const *x, int n, clef_tensor **dx) {
    return gradients(y, CLEF_NONE, x, n, false, false, dx);
}

clef_status clef__grad_between(clef_tensor *y, clef_tensor *grad, clef_tensor *const *x, int n, clef_tensor **dx) {
    return gradients(y, grad, x, n, true, true, dx);
}

clef_status clef_grad(clef_tensor *y, clef_tensor *grad, clef_tensor *const *x, int n, bool create_graph, clef_tensor **dx) {
    clef_status status = gradients(y, grad, x, n, create_graph, false, dx);
    for (int i = 0; status == CLEF_OK && i < n; i++) {
        if (!dx[i]) dx[i] = constant_like(x[i], 0);
        if (!dx[i]) status = CLEF_MEMORY;
    }
    for (int i = 0; dx && status != CLEF_OK && i < n; i++) dx[i] = NULL;
    return status;
}
