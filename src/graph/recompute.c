/* recompute.c — activations that are not kept for backward, but computed once more from where their segment began.

   A segment is one run of a module that recomputes (clef_recompute): the nodes made meanwhile.  Backward hands the gradients
   of such nodes copies of what they read: new nodes with the same op, attributes, numbers and random counters, back to what
   was made outside of the segment, which is read as it is.  So the copies have the same bits, and the first values can go as
   soon as forward is through with them.  Where a copy begins (it reads nothing that was copied with it) it comes `after` the
   first gradient that reached the segment: without that the plan would take it for the first value, or compute both in one
   kernel.  Segments nest: within an inner one, what the copy of the outer one made is copied again when its turn comes; level
   n are the copies made for the n-th segment from outside, and level 0 are the nodes of forward.

   Chen, Xu, Zhang, Guestrin, "Training deep nets with sublinear memory cost", 2016. */
#include "graph/graph_internal.h"
#include "runtime/arithmetic.h"

/* ---- segments ---- */

clef__checkpointed_segment *clef__checkpointed_segment_begin(clef_context *ctx) {
    clef__graph *graph = clef__graph_of(ctx);
    if (!graph || graph->no_grad) return NULL;
    clef__checkpointed_segment *segment = clef__calloc(1, sizeof *segment);
    if (!segment) {
        clef__fail(ctx, CLEF_MEMORY, "recompute: no host memory");
        return NULL;
    }
    segment->refs = 1;
    segment->outer = clef__checkpointed_segment_retain(graph->segment);
    segment->depth = graph->segment ? graph->segment->depth + 1 : 1;
    return graph->segment = segment;
}

void clef__checkpointed_segment_end(clef_context *ctx, clef__checkpointed_segment *segment) {
    if (!segment) return;
    clef__graph_of(ctx)->segment = segment->outer;
    clef__checkpointed_segment_release(segment);
}

static int depth_of(const clef__checkpointed_segment *segment) { return segment ? segment->depth : 0; }

static clef__checkpointed_segment *at_depth(clef__checkpointed_segment *segment, int depth) {
    while (depth_of(segment) > depth) segment = segment->outer;
    return segment;
}

/* How many segments both lie in. */
static int common_depth(const clef__checkpointed_segment *a, const clef__checkpointed_segment *b) {
    while (a != b)
        if (depth_of(a) >= depth_of(b)) a = a->outer;
        else b = b->outer;
    return depth_of(a);
}

/* ---- copies ---- */

/* Values that are there need no copy, nor does what takes no memory; parameters are not made by the segment; and what has an effect happens
   once, so its result stays. */
static bool is_copied(const clef__output *out, int level) {
    return level > 0 && !out->node->op->ordered && !clef__computed(out) && !out->donated && !out->tape_end &&
           out->node->op->kind != CLEF__CONSTANT;
}

static clef__node_copy *copy_of(const clef__copies *c, const clef__node *node, int level) {
    if (node->copies >> 32 != c->mark) return NULL;
    for (int i = (int)(uint32_t)node->copies; i >= 0; i = c->copy[i].next)
        if (c->copy[i].level == level) return &c->copy[i];
    return NULL;
}

/* Input i as the copy of that level reads it: a copy of its own, or, if that is `own`, the input itself. */
static clef__node_copy *input_copy(const clef__copies *c, const clef__node *node, int i, int level, bool *own) {
    const clef__output *input = node->input[i];
    int at = (int)clef__smaller(level, common_depth(node->segment, input->node->segment));
    *own = !is_copied(input, at);
    return *own ? NULL : copy_of(c, input->node, at);
}

static clef__node *duplicate(const clef__node *node) {
    clef__type type[CLEF__MAX_OUTPUTS];
    for (int k = 0; k < node->n_outputs; k++) type[k] = (clef__type){node->out[k].shape, node->out[k].dtype};
    clef__node *copy = clef__node_new(node->ctx, node->op, node->n_inputs, type, node->n_outputs, node->out[0].device,
                                      node->attributes, node->attribute_bytes);
    if (!copy) return NULL;
    copy->has_dynamic = node->has_dynamic;
    copy->dynamic = node->dynamic;
    copy->n_inputs = 0;
    return copy;
}

/* The same output of another node. */
static clef__output *output_like(clef__node *node, const clef__output *out) { return &node->out[out - out->node->out]; }

/* All copies it reads are there.  A view is no work of its own, so it is not ordered: what reads it is. */
static bool make_copy(clef__copies *c, clef__node *node, int level) {
    if (!clef__grow(&c->copy, c->n, &c->capacity, sizeof *c->copy)) {
        clef__fail(node->ctx, CLEF_MEMORY, "backward: no host memory");
        return false;
    }
    clef__node_copy copy = {.node = duplicate(node), .level = level, .next = -1};
    if (!copy.node) return false;
    for (int i = 0; i < node->n_inputs; i++) {
        bool own;
        const clef__node_copy *from = input_copy(c, node, i, level, &own);
        copy.ordered |= from && from->level == level && from->ordered;
        clef__set_input(copy.node, i, from ? output_like(from->node, node->input[i]) : node->input[i]);
        copy.node->n_inputs++;
    }
    if (!copy.ordered && node->op->kind != CLEF__VIEW) {
        copy.node->after = at_depth(node->segment, level)->after;
        clef__output_retain(copy.node->after);
        copy.ordered = true;
    }
    for (int k = 0; k < copy.node->n_outputs; k++) { /* the walk may come back to them; that is no reason to compute them */
        clef__output_retain(&copy.node->out[k]);
        copy.node->out[k].passing++;
    }
    if (node->copies >> 32 == c->mark) copy.next = (int)(uint32_t)node->copies;
    node->copies = c->mark << 32 | (uint32_t)c->n;
    c->copy[c->n++] = copy;
    return true;
}

/* Depth first without recursion: what a copy reads is copied before it. */
static bool make_copies(clef__copies *c, clef__node *root, int level) {
    typedef struct frame {
        clef__node *node;
        int level, next;
    } frame;
    frame *stack = NULL;
    int depth = 0, capacity = 0;
    bool ok = clef__grow(&stack, depth, &capacity, sizeof *stack);
    if (ok) stack[depth++] = (frame){root, level, 0};
    else clef__fail(root->ctx, CLEF_MEMORY, "backward: no host memory");
    while (ok && depth) {
        frame *top = &stack[depth - 1], at = *top;
        if (at.next == at.node->n_inputs) {
            ok = copy_of(c, at.node, at.level) || make_copy(c, at.node, at.level);
            depth--;
            continue;
        }
        bool own;
        const clef__node_copy *there = input_copy(c, at.node, top->next++, at.level, &own);
        if (own || there) continue;
        clef__node *input = at.node->input[at.next]->node;
        ok = clef__grow(&stack, depth, &capacity, sizeof *stack);
        if (ok) stack[depth++] = (frame){input, (int)clef__smaller(at.level, common_depth(at.node->segment, input->segment)), 0};
        else clef__fail(root->ctx, CLEF_MEMORY, "backward: no host memory");
    }
    clef__free(stack);
    return ok;
}

void clef__copies_reach(clef__copies *c, const clef__node *node, clef__output *gradient) {
    for (clef__checkpointed_segment *s = node->segment; s && s->walk != c->mark; s = s->outer) {
        s->walk = c->mark;
        s->after = gradient;
    }
}

clef__output *clef__copies_get(clef__copies *c, clef__output *out, const clef__node *reader) {
    int level = common_depth(out->node->segment, reader->segment);
    if (!is_copied(out, level)) return out;
    if (!copy_of(c, out->node, level) && !make_copies(c, out->node, level)) return NULL;
    return output_like(copy_of(c, out->node, level)->node, out);
}

void clef__copies_free(clef__copies *c) {
    for (int i = 0; i < c->n; i++) {
        clef__node *node = c->copy[i].node;
        for (int k = 0; k < node->n_outputs; k++) {
            node->out[k].passing--;
            clef__output_release(&node->out[k]);
        }
        clef__node_release(node);
    }
    clef__free(c->copy);
}
