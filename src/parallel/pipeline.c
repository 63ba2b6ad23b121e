/* pipeline.c — clef_pipeline_new and clef_pipeline_step.

   A stage evaluates one action (a micro-batch forward or backward) after the other, so plans are those of a micro-batch, a value is sent as
   soon as it can be, and no more is in memory than what waits for its gradient.  What backward will read is known only when backward
   is built, and that wants the gradient that comes back.  So behind a forward the stage builds a backward of ones in a dry run and
   holds its results until the real one: their inputs are what the forward's evaluation then leaves in memory.  With
   `recompute` it does not, and backward computes them again. */
#include "clef/pointwise.h"
#include "group/group.h"
#include "nn/module.h"
#include "ops/ops.h"
#include "parallel/parallel.h"
#include "runtime/arithmetic.h"

/* ---- pipelines ---- */

static void close_room(clef_context *ctx, void *state) {
    (void)ctx;
    clef_pipeline **first = state;
    for (clef_pipeline *p = *first, *next; p; p = next) {
        next = p->next;
        for (int i = 0; i < CLEF__PASSAGES; i++) clef__free(p->passage[i].border);
        clef__free(p->layer);
        clef__free(p->first);
        clef__free(p->tensor);
        clef__free(p->list);
        clef__free(p);
    }
    clef__free(first);
}

static bool check_new(clef_module *net, const clef_group *group, const clef_pipeline_options *o) {
    clef_context *ctx = net->ctx;
    if (!clef__is_sequential(net))
        clef__fail(ctx, CLEF_INVALID,
                   "pipeline_new: the %s has a forward of its own, which no cut can follow; make a clef_sequential of its parts",
                   net->type);
    else if (o->micro_batches < 0) clef__fail(ctx, CLEF_INVALID, "pipeline_new: micro_batches is %d", o->micro_batches);
    else if (o->schedule != CLEF_PIPELINE_1F1B && o->schedule != CLEF_PIPELINE_GPIPE)
        clef__fail(ctx, CLEF_INVALID, "pipeline_new: there is no schedule number %d", (int)o->schedule);
    else if (o->input && clef_tensor_context(o->input) != ctx)
        clef__fail(ctx, CLEF_INVALID, "pipeline_new: options.input is no tensor of the net's context");
    else if (group && group->ctx != ctx)
        clef__fail(ctx, CLEF_INVALID, "pipeline_new: the group belongs to another context; each rank has its own");
    else return true;
    return false;
}

clef_pipeline *clef_pipeline_new(clef_module *net, clef_group *group, const clef_pipeline_options *options) {
    clef_pipeline_options o = options ? *options : (clef_pipeline_options){0};
    if (!net || !check_new(net, group, &o)) return NULL;
    clef_pipeline **first = clef__make_room_state(net->ctx, CLEF__ROOM_PARALLEL, sizeof *first, close_room);
    if (!first) return NULL;
    clef_pipeline *p = clef__calloc(1, sizeof *p);
    if (!p) return clef__fail(net->ctx, CLEF_MEMORY, "pipeline_new: no host memory"), NULL;
    *p = (clef_pipeline){.next = *first, .net = net, .ctx = net->ctx, .group = group, .options = o};
    *first = p;
    p->stages = clef_group_size(group);
    p->stage = clef_group_rank(group);
    clef_status status = clef__pipeline_cut(p);
    p->options.cut = NULL; /* the caller's, as is the input */
    p->options.input = NULL;
    if (!status) clef__pipeline_leave(p, true);
    return status ? NULL : p;
}

int clef_pipeline_first_layer(const clef_pipeline *p, int stage) {
    return p && stage >= 0 && stage <= p->stages ? p->first[stage] : -1;
}

bool clef__pipeline_is_of(const clef_pipeline *p, const clef_module *net) { return p->net == net; }

/* ---- a step ---- */

/* A micro-batch on its way through the stage. */
typedef struct micro {
    clef_tensor *input;   /* what came from the stage before, kept, where its gradient goes back */
    clef__output *output; /* what went on, or the loss */
    clef__output **hold;  /* see above */
    int held;
} micro;

typedef struct step {
    clef_pipeline *p;
    clef__pipeline_call call;
    micro *micro;
    clef__action *action;
    clef_random_state random; /* at its begin */
    clef_tensor *mean;        /* of the losses so far, kept; the last stage's */
} step;

static bool is_last(const clef_pipeline *p) { return p->stage == p->stages - 1; }

static clef_status failure(const clef_pipeline *p) {
    clef_status status = clef_error_status(p->ctx);
    return status ? status : CLEF_INVALID;
}

/* 1 for the only micro-batch of a rank that has no items. */
static double weight_of(const step *s, int k) {
    return s->call.items ? (double)clef__micro_items(&s->call, k) / (double)s->call.items : 1;
}

/* What the stage's micro-batch is at its begin (0) or its end (1). */
static const clef__border *border_of(const step *s, int k, int end) {
    return &clef__passage_of(s->p, &s->call, k)->border[s->p->stage + end];
}

/* Random numbers of micro-batch k begin where they would, were all done by one device.  Copies of the net have parts of a batch, and not all as
   many items: there each micro-batch has counters of its own. */
static uint64_t begin_of(const step *s, int k) {
    uint64_t begin = 0;
    if (clef__is_copy(&s->call)) return (uint64_t)k * CLEF__COUNTERS_EACH;
    for (int j = 0; j < k; j++)
        for (int t = 0; t <= s->p->stages; t++) begin += clef__passage_of(s->p, &s->call, j)->border[t].draws;
    return begin;
}

static clef_random_state random_of(const step *s, int k, int stage) {
    clef_random_state random = s->random;
    random.offset += begin_of(s, k);
    for (int t = 0; t < stage; t++) random.offset += clef__passage_of(s->p, &s->call, k)->border[t].draws;
    return random;
}

/* The same on all copies. */
static clef_random_state random_after(const step *s) {
    clef_random_state random = s->random;
    random.offset += begin_of(s, clef__is_copy(&s->call) ? s->call.most : s->call.micro_batches);
    return random;
}

static void let_go(micro *m) {
    for (int i = 0; i < m->held; i++) clef__output_release(m->hold[i]);
    clef__free(m->hold);
    m->hold = NULL;
    m->held = 0;
}

static void micro_end(micro *m) {
    let_go(m);
    clef__output_release(m->output);
    clef_release(m->input);
    clef__tensor_drop(m->input);
    m->output = NULL;
    m->input = NULL;
}

/* ---- forward ---- */

static clef_tensor *part_of(const step *s, int k, clef_tensor *whole) {
    int64_t start = clef__micro_start(&s->call, k);
    return clef_slice(whole, 0, start, start + clef__micro_items(&s->call, k), 1);
}

static clef_tensor *enter(const step *s, int k, micro *m) {
    const clef_pipeline *p = s->p;
    if (p->stage == 0) return part_of(s, k, s->call.x);
    const clef__border *b = border_of(s, k, 0);
    clef_tensor *x = clef_recv(p->ctx, p->group, p->stage - 1, b->shape, b->dtype);
    if (!x || !b->graded) return x;
    m->input = clef_keep(x);
    return clef_require_grad(x, true);
}

static clef_tensor *loss_of(step *s, int k, clef_tensor *output) {
    clef_tensor *y = clef_to_device(part_of(s, k, s->call.y), clef_tensor_device(output));
    clef_tensor *loss = output && y ? s->call.loss(output, y, s->call.options) : NULL;
    clef_tensor *share = clef_mul_scalar(clef_reshape(clef_detach(loss), (clef_shape){0}), weight_of(s, k)), *before = s->mean;
    s->mean = clef_keep(before ? clef_add(before, share) : share);
    clef_release(before);
    clef__tensor_drop(before);
    return s->mean ? loss : NULL;
}

/* The parameters of the stage that want a gradient. */
static int leaves_of(const clef_pipeline *p, clef_tensor **leaf) {
    int n = 0;
    for (int i = 0; i < p->tensors; i++)
        if (p->tensor[i].own && !p->tensor[i].is_buffer && clef_requires_grad(p->tensor[i].tensor)) leaf[n++] = p->tensor[i].tensor;
    return n;
}

static clef_status hold_values(const step *s, micro *m, clef_tensor *y) {
    clef_tensor **leaf = s->p->list;
    int n = leaves_of(s->p, leaf);
    if (m->input) leaf[n++] = m->input;
    if (n == 0 || !clef_requires_grad(y)) return CLEF_OK;
    m->hold = clef__calloc((size_t)n, sizeof(clef__output *));
    if (!m->hold) return clef__fail(s->p->ctx, CLEF_MEMORY, "pipeline_step: no host memory for %d gradients", n);
    bool dry = clef_set_dry_run(s->p->ctx, true);
    clef_status status = clef_grad(y, clef_ones_like(y), leaf, n, false, leaf + n);
    for (int i = 0; i < n && !status; i++) {
        m->hold[m->held] = clef__output_of(leaf[n + i]);
        clef__output_retain(m->hold[m->held++]);
    }
    clef_set_dry_run(s->p->ctx, dry);
    return status;
}

/* Sends first, then computes the n tensors of the list. */
static clef_status evaluate(const step *s, int n) {
    clef_status status = clef__run_ordered(s->p->ctx);
    if (s->mean) s->p->list[n++] = s->mean;
    return status || n == 0 ? status : clef_eval_all(s->p->list, n);
}

static clef_status evaluate_forward(const step *s) {
    const clef_pipeline *p = s->p;
    int n = 0;
    for (int i = 0; i < p->tensors; i++)
        if (p->tensor[i].own && p->tensor[i].is_buffer) p->list[n++] = p->tensor[i].tensor;
    return evaluate(s, n);
}

/* waits: its backward does not come next. */
static clef_status forward(step *s, int k, bool waits) {
    clef_pipeline *p = s->p;
    micro *m = &s->micro[k];
    uint64_t made = clef__handles_made(p->ctx);
    clef__set_window(p->ctx, clef__micro_window(&s->call, k));
    clef_random_set(p->ctx, random_of(s, k, p->stage));
    clef_tensor *y = clef__stage_forward(p, p->stage, enter(s, k, m));
    if (y && is_last(p)) y = loss_of(s, k, y);
    if (!y) return failure(p);
    m->output = clef__output_of(y);
    clef__output_retain(m->output);
    clef_status status = is_last(p) ? CLEF_OK : clef_send(y, p->group, p->stage + 1);
    if (!status && waits && !p->options.recompute) status = hold_values(s, m, y);
    if (!status && waits) status = evaluate_forward(s);
    clef__drop_since(p->ctx, made);
    return status;
}

/* ---- backward ---- */

static clef_status send_gradient(const step *s, const micro *m) {
    clef_tensor *g = clef_grad_of(m->input);
    return clef_send(g ? g : clef_zeros_like(m->input), s->p->group, s->p->stage - 1);
}

static clef_status evaluate_backward(const step *s) {
    const clef_pipeline *p = s->p;
    int n = 0, leaves = leaves_of(p, p->list);
    for (int i = 0; i < leaves; i++) {
        clef_tensor *g = clef__unaveraged(p->list[i]); /* averages are of all micro-batches */
        if (g) p->list[n++] = g;
    }
    return evaluate(s, n);
}

static clef_tensor *output_gradient(const step *s, int k, clef_tensor *y) {
    const clef_pipeline *p = s->p;
    if (is_last(p)) return clef_full_like(y, weight_of(s, k));
    clef_tensor *g = clef_recv(p->ctx, p->group, p->stage + 1, clef_tensor_shape(y), clef_tensor_dtype(y));
    return clef_to_device(g, clef_tensor_device(y));
}

static clef_status backward(step *s, int k) {
    clef_pipeline *p = s->p;
    micro *m = &s->micro[k];
    if (!border_of(s, k, 1)->graded) return micro_end(m), CLEF_OK;
    uint64_t made = clef__handles_made(p->ctx);
    clef__set_window(p->ctx, clef__micro_window(&s->call, k)); /* for what is computed again */
    clef_tensor *y = clef__tensor_new(m->output);
    clef_tensor *g = y ? output_gradient(s, k, y) : NULL;
    let_go(m);
    clef_status status = g ? clef_backward_from(y, g) : failure(p);
    if (!status && m->input) status = send_gradient(s, m);
    micro_end(m);
    if (!status) status = evaluate_backward(s);
    clef__drop_since(p->ctx, made);
    return status;
}

/* ---- all of it ---- */

static clef_status run_actions(step *s) {
    int n = 2 * s->call.micro_batches;
    clef__pipeline_actions(s->p->options.schedule, s->p->stages, s->p->stage, s->call.micro_batches, s->action);
    clef_status status = CLEF_OK;
    for (int i = 0; i < n && !status; i++) {
        const clef__action *a = &s->action[i];
        if (a->backward) status = backward(s, a->micro_batch);
        else status = forward(s, a->micro_batch, !a[1].backward || a[1].micro_batch != a->micro_batch);
    }
    return status;
}

/* The loss goes to all ranks. */
static clef_status share_mean(const step *s, clef_tensor **mean) {
    const clef_pipeline *p = s->p;
    const clef__border *loss = &clef__passage_of(p, &s->call, 0)->border[p->stages];
    clef_tensor *own = s->mean ? s->mean : clef_zeros(p->ctx, (clef_shape){0}, loss->dtype);
    clef_tensor *all = clef_broadcast(own, p->group, p->stages - 1);
    clef_status status = all ? clef__want_result(all) : failure(p);
    if (mean) *mean = status ? NULL : all;
    return status;
}

static clef_status run(step *s, clef_tensor **mean) {
    clef_status status = clef__pipeline_measure(s->p, &s->call);
    if (status) return status;
    clef__tied_put_aside(s->p);
    status = run_actions(s);
    clef__set_window(s->p->ctx, (clef__share){0});
    for (int k = 0; k < s->call.micro_batches; k++) micro_end(&s->micro[k]);
    clef_status added = clef__tied_add(s->p, !status);
    if (!status) status = added;
    clef_random_set(s->p->ctx, status ? s->random : random_after(s));
    if (!status) status = share_mean(s, mean);
    clef_release(s->mean);
    return status;
}

static clef_status check_step(const clef_pipeline *p, clef_tensor *x, clef_tensor *y, clef_loss_fn loss) {
    if (!clef__given(p->ctx, "pipeline_step", "x y", (clef_tensor *[]){x, y}, 2)) return CLEF_INVALID;
    if (clef_tensor_context(x) != p->ctx || clef_tensor_context(y) != p->ctx)
        return clef__fail(p->ctx, CLEF_INVALID, "pipeline_step: x or y belongs to another context");
    if (!loss) return clef__fail(p->ctx, CLEF_INVALID, "pipeline_step: loss is NULL; give clef_cross_entropy, for one");
    clef_shape a = clef_tensor_shape(x), b = clef_tensor_shape(y);
    if (a.rank > 0 && b.rank > 0 && a.dim[0] == b.dim[0]) return CLEF_OK;
    return clef__fail(p->ctx, CLEF_SHAPE, "pipeline_step: x %s and y %s must have as many items as their first dimension",
                      clef__shape_text(a), clef__shape_text(b));
}

clef_status clef_pipeline_step(clef_pipeline *p, clef_tensor *x, clef_tensor *y, clef_loss_fn loss,
                               const clef_loss_options *options, clef_tensor **mean) {
    if (mean) *mean = NULL;
    if (!p) return CLEF_INVALID;
    clef_status status = check_step(p, x, y, loss);
    if (!status) status = clef__pipeline_follow(p);
    if (status) return status;
    step s = {.p = p, .call = {.x = x, .y = y, .loss = loss, .options = options}, .random = clef_random_get(p->ctx)};
    s.call.most = p->options.micro_batches ? p->options.micro_batches : 4 * p->stages;
    s.call.items = clef_tensor_shape(x).dim[0];
    s.call.micro_batches = (int)clef__larger(clef__smaller(s.call.most, s.call.items), 1);
    s.call.share = clef__share_of(p->ctx);
    s.micro = clef__calloc((size_t)s.call.micro_batches, sizeof *s.micro);
    s.action = clef__calloc(2 * (size_t)s.call.micro_batches, sizeof *s.action);
    clef__pipeline_leave(p, true);
    if (s.micro && s.action) status = run(&s, mean);
    else status = clef__fail(p->ctx, CLEF_MEMORY, "pipeline_step: no host memory for %d micro-batches", s.call.micro_batches);
    clef__free(s.micro);
    clef__free(s.action);
    return status;
}
