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

typedef struct walk {
    clef_context *ctx;
    clef__node **order; /* inputs before consumers */
    clef_tensor **grad; /* of order[i]; NULL: none yet */
    int n, capacity;
    uint64_t mark;
    bool recompute;
    clef__copies copies;
} walk;

static bool on_tape(const clef__node *node) { return node->requires_grad; }

static int index_in(const walk *w, const clef__node *node) { return node->tape >> 32 == w->mark ? (int)(uint32_t)node->tape : -1; }

static bool walk_push(walk *w, clef__node *node) {
    if (!clef__grow(&w->order, w->n, &w->capacity, sizeof *w->order)) return false;
    node->tape = w->mark << 32 | (uint32_t)w->n;
    w->order[w->n++] = node;
    return true;
}

/* A parameter's value may have a history (an assignment not yet computed), which is not part of the tape. */
static int tape_inputs(const clef__node *node) { return node->tape_end ? 0 : node->n_inputs; }

/* Depth first without recursion: a stack of (node, next input). */
static bool walk_collect(walk *w, clef__node *root) {
    typedef struct frame {
        clef__node *node;
        int next;
    } frame;
    frame *stack = NULL;
    int depth = 0, capacity = 0;
    bool ok = clef__grow(&stack, depth, &capacity, sizeof *stack);
    if (ok) stack[depth++] = (frame){root, 0};
    while (ok && depth) {
        frame *top = &stack[depth - 1];
        if (top->next == tape_inputs(top->node)) {
            if (index_in(w, top->node) < 0) ok = walk_push(w, top->node);
            depth--;
            continue;
        }
        clef__node *input = top->node->input[top->next++];
        if (!on_tape(input) || index_in(w, input) >= 0) continue;
        ok = clef__grow(&stack, depth, &capacity, sizeof *stack);
        if (ok) stack[depth++] = (frame){input, 0};
    }
    clef__free(stack);
    return ok;
}

/* A handle of ours, unless the op gave it back as a result.  (A handle on a parameter forbids updating it in place.) */
static void drop_handle(clef_tensor *t, clef_tensor *const *dx, int n) {
    for (int i = 0; i < n; i++)
        if (dx[i] == t) return;
    clef__tensor_drop(t);
}

/* What node's gradient is to see of itself or of an input: a copy made for backward if that is not to be kept. */
static clef_tensor *handle(walk *w, clef__node *seen, const clef__node *node) {
    return clef__tensor_new(w->ctx, w->recompute ? clef__copies_get(&w->copies, seen, node) : seen);
}

/* Is g of input i's shape?  Anything else would be a wrong number, or a write out of bounds, much later. */
static bool gradient_fits(const clef__node *node, int i, const clef_tensor *g) {
    clef_shape have = clef_tensor_shape(g), want = node->input[i]->shape;
    if (clef_shape_equal(have, want)) return true;
    clef__fail(node->ctx, CLEF_INTERNAL, "%s: clef bug, please report it: the gradient of input %d is %s, not %s", node->op->name,
               i, clef__shape_text(have), clef__shape_text(want));
    return false;
}

/* dL/dy is known: asks the op for the gradients of its inputs and hands them on. */
static void propagate(walk *w, clef__node *node, clef_tensor *g) {
    if (w->recompute) clef__copies_reach(&w->copies, node, clef__node_of(g));
    clef_tensor *x[CLEF__MAX_INPUTS], *dx[CLEF__MAX_INPUTS], *y = handle(w, node, node);
    bool wanted[CLEF__MAX_INPUTS];
    int n = tape_inputs(node);
    for (int i = 0; i < n; i++) {
        x[i] = handle(w, node->input[i], node);
        dx[i] = NULL;
        wanted[i] = on_tape(node->input[i]);
    }
    bool complete = y != NULL;
    for (int i = 0; i < n; i++) complete &= x[i] != NULL;
    if (n && complete && node->op->gradient) node->op->gradient(x, y, g, wanted, dx);
    for (int i = 0; i < n; i++) {
        if (!wanted[i] || !dx[i] || !gradient_fits(node, i, dx[i])) continue;
        int at = index_in(w, node->input[i]);
        w->grad[at] = add(w->grad[at], dx[i]);
    }
    for (int i = 0; i < n; i++) drop_handle(x[i], dx, n);
    drop_handle(y, dx, n);
}

/* Fills w->grad for everything between y and its leaves.  g NULL: making it failed. */
static clef_status differentiate(walk *w, clef_tensor *y, clef_tensor *g, bool create_graph) {
    clef_context *ctx = w->ctx = clef_tensor_context(y);
    w->mark = w->copies.mark = clef__traversal(ctx);
    w->recompute = !create_graph; /* what is to be differentiated again is on the tape, and stays */
    if (!g) return CLEF_MEMORY;
    if (!walk_collect(w, clef__node_of(y))) return clef__fail(ctx, CLEF_MEMORY, "backward: no host memory");
    w->grad = clef__calloc((size_t)w->n, sizeof *w->grad);
    if (!w->grad) return clef__fail(ctx, CLEF_MEMORY, "backward: no host memory");
    uint64_t failures = clef__failures(ctx); /* an op that leaves a gradient out has failed, or means zero */
    bool was = clef_set_grad_enabled(ctx, create_graph);
    w->grad[w->n - 1] = g;
    for (int i = w->n - 1; i >= 0; i--)
        if (w->grad[i]) propagate(w, w->order[i], w->grad[i]);
    clef_set_grad_enabled(ctx, was);
    return clef__failed_since(ctx, failures);
}

static void walk_free(walk *w) {
    clef__free(w->order);
    clef__free(w->grad);
    clef__copies_free(&w->copies);
}

static clef_tensor *constant_like(clef_tensor *t, double value) {
    const clef__node *node = clef__node_of(t);
    return clef__constant(node->ctx, node->shape, node->dtype, node->device, value);
}

static clef_tensor *or_one(clef_tensor *grad, clef_tensor *y) { return grad == CLEF_NONE ? constant_like(y, 1) : grad; }

/* What backward and grad ask of y and of the gradient that they begin with. */
static clef_status check_seed(const char *op, clef_tensor *y, clef_tensor *grad) {
    if (!CLEF__GIVEN(op, "y grad?", y, grad)) return CLEF_INVALID;
    const clef__node *node = clef__node_of(y);
    if (!node->requires_grad)
        return clef__fail(node->ctx, CLEF_STATE,
                          "%s: the result depends on no tensor that wants a gradient "
                          "(clef_require_grad, or recording is off)",
                          op);
    if (grad != CLEF_NONE) return clef__check_gradient(op, clef__get(y), clef__get(grad));
    if (clef_shape_numel(node->shape) != 1)
        return clef__fail(node->ctx, CLEF_SHAPE, "%s: %s is not a scalar; reduce it, or give the gradient of the result", op,
                          clef__shape_text(node->shape));
    return CLEF_OK;
}

/* ---- leaves' gradients: all of them or none ---- */

/* Puts what each leaf's gradient is to be into w->grad, under handles that nobody else has. */
static clef_status prepare_deposits(walk *w) {
    bool was = clef_set_grad_enabled(w->ctx, false);
    uint64_t failures = clef__failures(w->ctx);
    int leaves = 0;
    for (int i = 0; i < w->n; i++) {
        clef__tensor *leaf = w->order[i]->leaf;
        leaves += leaf != NULL;
        if (!leaf || !w->grad[i]) continue;
        clef_tensor *sum = add(clef__handle(leaf->grad), w->grad[i]);
        w->grad[i] = sum ? clef__tensor_new(w->ctx, clef__node_of(sum)) : NULL;
    }
    clef_set_grad_enabled(w->ctx, was);
    if (leaves) return clef__failed_since(w->ctx, failures);
    return clef__fail(w->ctx, CLEF_STATE,
                      "backward: the parameters that the result was made from have another value by now; "
                      "call it before they are assigned");
}

static void deposit(walk *w) {
    for (int i = 0; i < w->n; i++)
        if (w->order[i]->leaf && w->grad[i]) clef__take_gradient(w->order[i]->leaf, w->grad[i]);
}

/* ---- public ---- */

clef_status clef_backward_from(clef_tensor *y, clef_tensor *grad) {
    clef_status status = check_seed("backward", y, grad);
    if (status != CLEF_OK) return status;
    walk w = {0};
    status = differentiate(&w, y, or_one(grad, y), false);
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

clef_status clef_grad(clef_tensor *y, clef_tensor *grad, clef_tensor *const *x, int n, bool create_graph, clef_tensor **dx) {
    walk w = {0};
    clef_status status = check_seed("grad", y, grad);
    if (status == CLEF_OK) status = check_sources(y, x, n, dx);
    if (status == CLEF_OK) status = differentiate(&w, y, or_one(grad, y), create_graph);
    for (int i = 0; status == CLEF_OK && i < n; i++) {
        int at = index_in(&w, clef__node_of(x[i]));
        dx[i] = at >= 0 && w.grad[at] ? w.grad[at] : constant_like(x[i], 0);
        if (!dx[i]) status = CLEF_MEMORY;
    }
    for (int i = 0; dx && status != CLEF_OK && i < n; i++) dx[i] = NULL;
    walk_free(&w);
    return status;
}
