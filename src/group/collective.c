/* collective.c — collective operations as ops: nodes with an effect, which run in the order in which they were made (graph/sequence.c), as
   visits of the host to the device's memory (runtime/visit.c).

   The core ops cut along a first dimension of their own, one row for each rank; what users call brings other dimensions there and back. */
#include "group/group.h"
#include "ops/ops.h"

#include <stdio.h>
#include <string.h>

/* Hashed as bytes; the group lives as long as the context. */
typedef struct collective_attributes {
    clef_group *group;
    const clef__subject *subject;
    int64_t kind, reduction, peer; /* peer: root, receiver or sender */
    int64_t begins;                /* clef__meeting.begins */
} collective_attributes;

static const collective_attributes *attributes_of(const clef__node *node) { return clef__attributes(node); }

/* Of what all members do together they count the same; messages between two are counted apart. */
static uint64_t take_number(clef__node *node) {
    const collective_attributes *a = attributes_of(node);
    memcpy(&node->dynamic.u[1], &a->group->summand, sizeof a->group->summand);
    return a->kind == CLEF__MEET_SEND || a->kind == CLEF__MEET_RECV ? a->group->messages++ : a->group->number++;
}

/* ---- the visit ---- */

/* A tensor of several that are summed. */
typedef struct summed {
    clef_shape shape;
    int order[CLEF_MAX_RANK];
} summed;

typedef struct task {
    const clef_group *group;
    const char *name;
    clef__meeting meeting; /* but its number, in and out */
    int tensors;           /* where there are several: */
    summed tensor[];
} task;

/* Several tensors are segments of one meeting. */
static clef_status sum_several(const task *t, clef__meeting *meeting, double weight, void *const *memory, char *line) {
    clef__segment segment[CLEF__MOST_SUMMED];
    for (int i = 0; i < t->tensors; i++) {
        const summed *x = &t->tensor[i];
        segment[i] = (clef__segment){memory[t->tensors + i], memory[i], clef_shape_numel(x->shape), x->shape, {0}};
        memcpy(segment[i].order, x->order, sizeof x->order);
    }
    meeting->segment = segment;
    meeting->n_segments = t->tensors;
    meeting->weight = weight;
    meeting->weighted = true;
    return clef__meet(t->group, meeting, line);
}

/* memory: the outputs, then the inputs, if there are any.  A send has an output that nobody reads. */
static clef_status take_part(const task *t, const uint64_t *number, void *const *memory, char *line) {
    clef__meeting meeting = t->meeting;
    if (!memory) return clef__miss(t->group, "its device failed", line);
    meeting.number = (int64_t)number[0];
    if (t->tensors) {
        double weight;
        memcpy(&weight, &number[1], sizeof weight);
        return sum_several(t, &meeting, weight, memory, line);
    }
    if (meeting.kind != CLEF__MEET_SEND) meeting.out = memory[0];
    if (meeting.kind != CLEF__MEET_RECV) meeting.in = memory[1];
    return clef__meet(t->group, &meeting, line);
}

static clef_status meet(const void *what, const uint64_t *number, void *const *memory, char *line) {
    const task *t = what;
    char why[CLEF_TRANSPORT_LINE] = "it was made in a dry run, which sends nothing; make it again";
    clef_status status = number[0] == CLEF__UNNUMBERED ? CLEF_STATE : take_part(t, number, memory, why);
    if (status != CLEF_OK) snprintf(line, CLEF__VISIT_LINE, "%s: %.900s", t->name, why);
    return status;
}

/* ---- lowering ---- */

static clef__meeting meeting_of(const clef__node *node) {
    const collective_attributes *a = attributes_of(node);
    const clef__output *sent = node->n_inputs ? node->input[0] : node->out;
    return (clef__meeting){.kind = (clef__meeting_kind)a->kind,
                           .reduction = (clef_group_reduction)a->reduction,
                           .subject = a->subject,
                           .dtype = sent->dtype,
                           .shape = sent->shape,
                           .peer = (int)a->peer,
                           .overlaps = a->kind == CLEF__MEET_REDUCE_SCATTER,
                           .n = clef_shape_numel(sent->shape)};
}

static const clef__routine routine = {.name = "host", .visit = meet};

static void lower(const clef__lowering *lw) {
    const clef__node *node = clef__lower_node(lw);
    task t = {.group = attributes_of(node)->group, .name = node->op->name, .meeting = meeting_of(node)};
    clef__operand in = {0};
    if (node->n_inputs) in = clef__lower_in_dense(lw, 0, NULL);
    clef__operand out = clef__lower_out(lw, NULL);
    clef__launch_begin(lw, NULL, node->op->name);
    clef__launch_tensor(lw, out, true);
    if (node->n_inputs) clef__launch_tensor(lw, in, false);
    clef__launch_dynamic(lw, 0);
    clef__launch_dynamic(lw, 1);
    clef__launch_routine(lw, &routine, &t, sizeof t);
}

/* Each as it lies, if that is dense in any order of its dimensions, as kernels choose one that suits them; its sum lies likewise. */
static clef__operand lower_summed(const clef__lowering *lw, int i, summed *x) {
    clef__operand in = clef__lower_in(lw, i);
    x->shape = clef__lower_node(lw)->input[i]->shape;
    if (clef__memory_order(&in, x->order)) return in;
    for (int d = 0; d < x->shape.rank; d++) x->order[d] = d;
    return clef__lower_in_dense(lw, i, NULL);
}

/* What the members tell each other of it is how many numbers there are in all. */
static void lower_several(const clef__lowering *lw) {
    const clef__node *node = clef__lower_node(lw);
    clef__operand in[CLEF__MOST_SUMMED], out[CLEF__MOST_SUMMED];
    size_t bytes = sizeof(task) + (size_t)node->n_inputs * sizeof(summed);
    task *t = clef__lower_room(lw, bytes);
    if (!t) return;
    *t =
        (task){.group = attributes_of(node)->group, .name = node->op->name, .meeting = meeting_of(node), .tensors = node->n_inputs};
    t->meeting.n = 0;
    t->meeting.overlaps = true;
    t->meeting.begins = attributes_of(node)->begins;
    for (int i = 0; i < node->n_inputs; i++) {
        in[i] = lower_summed(lw, i, &t->tensor[i]);
        out[i] = clef__lower_output(lw, i, t->tensor[i].order);
        t->meeting.n += clef_shape_numel(t->tensor[i].shape);
    }
    t->meeting.shape = CLEF_SHAPE(t->meeting.n);
    clef__launch_begin(lw, NULL, node->op->name);
    for (int i = 0; i < node->n_inputs; i++) clef__launch_tensor(lw, out[i], true);
    for (int i = 0; i < node->n_inputs; i++) clef__launch_tensor(lw, in[i], false);
    clef__launch_dynamic(lw, 0);
    clef__launch_dynamic(lw, 1);
    clef__launch_routine(lw, &routine, t, bytes);
    clef__free(t);
}

static const clef__strategy *const strategies[] = {&(const clef__strategy){.name = "host", .lower = lower}, NULL};
static const clef__strategy *const several_strategies[] = {&(const clef__strategy){.name = "host", .lower = lower_several}, NULL};

/* Nothing is computed but by reductions, an operation for each element of each rank. */
static void cost(const clef__node *node, double *flops, double *bytes) {
    const collective_attributes *a = attributes_of(node);
    bool reduces = a->kind == CLEF__MEET_ALL_REDUCE || a->kind == CLEF__MEET_REDUCE_SCATTER;
    *flops = *bytes = 0;
    for (int i = 0; i < node->n_inputs; i++) {
        *flops += reduces ? (double)clef_shape_numel(node->input[i]->shape) : 0;
        *bytes += clef__output_bytes(node->input[i]);
    }
    for (int k = 0; k < node->n_outputs; k++) *bytes += clef__output_bytes(&node->out[k]);
}

/* ---- the core ops ---- */

static const clef_op all_reduce_op, sum_op, sum_several_op, gather_op, scatter_op, scatter_sum_op, broadcast_op, exchange_op,
    send_op, recv_op;

static clef_tensor *apply(const clef_op *op, clef_tensor *x, clef__meeting_kind kind, const collective_attributes *like) {
    collective_attributes a = *like;
    a.kind = kind;
    a.subject = a.group->subject;
    return clef__apply(op, &x, 1, &a, sizeof a);
}

static bool infer_first(clef__call *call) {
    const collective_attributes *a = call->attributes;
    if (!clef__infer_takes(call, call->input[0]->shape.rank > 0 && call->input[0]->shape.dim[0] == a->group->size,
                           "the first dimension is the number of ranks"))
        return false;
    return clef__infer_like(call);
}

static bool infer_several(clef__call *call) {
    for (int i = 0; i < call->n_inputs; i++) {
        const clef__output *x = call->input[i];
        if (!clef__infer_takes(call, x->dtype == call->input[0]->dtype && clef_shape_numel(x->shape) > 0,
                               "the tensors have one dtype and elements"))
            return false;
        call->out[i] = (clef__type){x->shape, x->dtype};
    }
    return true;
}

static bool infer_gather(clef__call *call) {
    const collective_attributes *a = call->attributes;
    clef_shape x = call->input[0]->shape;
    call->out->dtype = call->input[0]->dtype;
    call->out->shape = (clef_shape){.rank = x.rank + 1, .dim = {a->group->size}};
    for (int d = 0; d < x.rank; d++) call->out->shape.dim[d + 1] = x.dim[d];
    return true;
}

static bool infer_scatter(clef__call *call) {
    if (!infer_first(call)) return false;
    clef_shape x = call->input[0]->shape;
    call->out->shape = clef__shape_of(x.rank - 1, x.dim + 1);
    return true;
}

static bool infer_token(clef__call *call) {
    call->out->dtype = CLEF_U8;
    call->out->shape = CLEF_SHAPE(1);
    return true;
}

/* Each rank's output depends on every rank's input, and what is differentiated is the sum of what the ranks differentiate. */
static void sum_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                         clef_tensor **dx) {
    (void)wanted;
    dx[0] = apply(clef__node_of(y[0])->op, g[0], CLEF__MEET_ALL_REDUCE, attributes_of(clef__node_of(y[0])));
    (void)x;
}

static void gather_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                            clef_tensor **dx) {
    (void)x, (void)wanted;
    collective_attributes a = *attributes_of(clef__node_of(y[0]));
    a.reduction = CLEF_GROUP_SUM;
    dx[0] = apply(&scatter_sum_op, g[0], CLEF__MEET_REDUCE_SCATTER, &a);
}

static void scatter_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                             clef_tensor **dx) {
    (void)x, (void)wanted;
    const collective_attributes *a = attributes_of(clef__node_of(y[0]));
    clef_tensor *all = apply(&gather_op, g[0], CLEF__MEET_ALL_GATHER, a);
    if (all && a->reduction == CLEF_GROUP_MEAN)
        all = clef_div(all, clef__number(clef_tensor_context(all), clef_tensor_dtype(all), a->group->size));
    dx[0] = all;
}

/* Where all ranks go on with the same, and differentiate the same: each addend's gradient is that of the sum, a part's is its part.  What each
   rank makes of these is its own again, so they are borders, too. */
static void same_sum_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                              clef_tensor **dx) {
    (void)x, (void)wanted;
    dx[0] = clef__same_copy(g[0], attributes_of(clef__node_of(y[0]))->group);
}

static void same_gather_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                                 clef_tensor **dx) {
    (void)wanted;
    dx[0] = clef_reshape(clef__same_part(g[0], attributes_of(clef__node_of(y[0]))->group, 0), clef_tensor_shape(x[0]));
}

static void exchange_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                              clef_tensor **dx) {
    (void)x, (void)wanted;
    dx[0] = apply(&exchange_op, g[0], CLEF__MEET_ALL_TO_ALL, attributes_of(clef__node_of(y[0])));
}

/* All ranks take part in the sum, of which the root's alone is anybody's gradient.  The others' is zero and hangs on the sum: backward goes on
   to the same operations on all of them, also the second one. */
static void broadcast_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                               clef_tensor **dx) {
    (void)x, (void)wanted;
    collective_attributes a = *attributes_of(clef__node_of(y[0]));
    a.reduction = CLEF_GROUP_SUM;
    clef_tensor *sum = apply(&sum_op, g[0], CLEF__MEET_ALL_REDUCE, &a);
    if (sum && a.peer != a.group->rank) {
        clef_context *ctx = clef_tensor_context(sum);
        int device = clef_tensor_device(sum);
        clef_tensor *never = clef__constant(ctx, CLEF_SCALAR, CLEF_BOOL, device, 0);
        sum = clef_where(never, sum, clef__constant(ctx, CLEF_SCALAR, clef_tensor_dtype(sum), device, 0));
    }
    dx[0] = sum;
}

#define COLLECTIVE(op_name, infer_by, gradient_by) COLLECTIVE_BY(op_name, infer_by, gradient_by, strategies)
#define COLLECTIVE_BY(op_name, infer_by, gradient_by, by)                                                    \
    {                                                                                                        \
        .name = op_name, .kind = CLEF__KERNEL, .infer = infer_by, .gradient = gradient_by, .strategies = by, \
        .ordered = take_number, .cost = cost                                                                 \
    }
static const clef_op all_reduce_op = COLLECTIVE("all_reduce", clef__infer_like, NULL);
static const clef_op sum_op = COLLECTIVE("all_reduce", clef__infer_like, sum_gradient);
static const clef_op sum_several_op = COLLECTIVE_BY("all_reduce", infer_several, NULL, several_strategies);
static const clef_op gather_op = COLLECTIVE("all_gather", infer_gather, gather_gradient);
static const clef_op scatter_op = COLLECTIVE("reduce_scatter", infer_scatter, NULL);
static const clef_op scatter_sum_op = COLLECTIVE("reduce_scatter", infer_scatter, scatter_gradient);
static const clef_op same_sum_op = COLLECTIVE("all_reduce", clef__infer_like, same_sum_gradient);
static const clef_op same_gather_op = COLLECTIVE("all_gather", infer_gather, same_gather_gradient);
static const clef_op broadcast_op = COLLECTIVE("broadcast", clef__infer_like, broadcast_gradient);
static const clef_op exchange_op = COLLECTIVE("all_to_all", infer_first, exchange_gradient);
static const clef_op send_op = COLLECTIVE("send", infer_token, NULL);
static const clef_op recv_op = COLLECTIVE("recv", NULL, NULL);

/* ---- what may be asked ---- */

static bool is_alone(const clef_group *group) { return clef_group_size(group) == 1; }

/* Another handle of the same value: what one rank alone makes of it. */
static clef_tensor *same(clef_tensor *x) { return clef__tensor_new(clef__output_of(x)); }

static bool given(const char *op, clef_tensor *x, const clef_group *group) {
    if (!CLEF__GIVEN(op, "x", x)) return false;
    clef_context *ctx = clef_tensor_context(x);
    if (!group || group->ctx == ctx) return true;
    clef__fail(ctx, CLEF_INVALID, "%s: the group belongs to another context; each rank has its own", op);
    return false;
}

/* A member that is not the caller, unless it may be. */
static bool is_member(const char *op, clef_context *ctx, const clef_group *group, int rank, bool itself) {
    int size = clef_group_size(group);
    if (rank >= 0 && rank < size && (itself || rank != clef_group_rank(group))) return true;
    if (rank >= 0 && rank < size) clef__fail(ctx, CLEF_INVALID, "%s: rank %d is the caller itself", op, rank);
    else clef__fail(ctx, CLEF_INVALID, "%s: there is no rank %d in a group of %d", op, rank, size);
    return false;
}

static bool may_reduce(const char *op, clef_tensor *x, clef_group_reduction reduction) {
    clef_dtype dtype = clef_tensor_dtype(x);
    clef_context *ctx = clef_tensor_context(x);
    if (reduction < CLEF_GROUP_SUM || reduction > CLEF_GROUP_MAX)
        clef__fail(ctx, CLEF_INVALID, "%s: there is no reduction number %d", op, (int)reduction);
    else if (dtype == CLEF_U8 || dtype == CLEF_BOOL)
        clef__fail(ctx, CLEF_DTYPE, "%s: %s is not reduced; convert with clef_to, to i32 for one", op, clef_dtype_name(dtype));
    else if (reduction == CLEF_GROUP_MEAN && !clef__is_float(dtype))
        clef__fail(ctx, CLEF_DTYPE, "%s: the mean of %s is none; convert with clef_to", op, clef_dtype_name(dtype));
    else return true;
    return false;
}

static bool is_linear(clef_group_reduction reduction) { return reduction == CLEF_GROUP_SUM || reduction == CLEF_GROUP_MEAN; }

/* A dimension that x has; to be cut into parts for `parts` ranks, or 1; with room for one more. */
static bool has_dim(const char *op, clef_tensor *x, int *dim, int parts) {
    clef_shape shape = clef_tensor_shape(x);
    clef_context *ctx = clef_tensor_context(x);
    if (!clef__normalize_dim(shape.rank, dim)) return clef__refuse_dim(x, op, *dim), false;
    if (shape.rank == CLEF_MAX_RANK)
        clef__fail(ctx, CLEF_SHAPE, "%s: x %s has %d dimensions, and one more is needed on the way; clef_reshape it", op,
                   clef__shape_text(shape), shape.rank);
    else if (shape.dim[*dim] % parts)
        clef__fail(ctx, CLEF_SHAPE, "%s: dimension %d of x %s cannot be cut into %d equal parts, one for each rank; clef_pad it",
                   op, *dim, clef__shape_text(shape), parts);
    else return true;
    return false;
}

/* ---- another dimension than the first ---- */

/* Dimension `from` moves to where `to` was. */
static clef_tensor *move_dim(clef_tensor *x, int from, int to) {
    int order[CLEF_MAX_RANK], n = 0, rank = clef_tensor_shape(x).rank;
    for (int d = 0; x && d < rank; d++) order[d] = 0;
    for (int d = 0, s = 0; d < rank; d++) {
        if (d == to) order[n++] = from;
        else {
            s += s == from;
            order[n++] = s++;
        }
    }
    return from == to ? x : clef_permute(x, order);
}

/* [.., size·n, ..] → [size, .., n, ..] */
static clef_tensor *rows_first(clef_tensor *x, int dim, int size) {
    clef_shape shape = clef_tensor_shape(x), cut = {.rank = shape.rank + 1};
    for (int d = 0; d < cut.rank; d++) cut.dim[d] = d < dim ? shape.dim[d] : d > dim ? shape.dim[d - 1] : size;
    cut.dim[dim + 1] = shape.dim[dim] / size;
    return move_dim(clef_reshape(x, cut), dim, 0);
}

/* [size, .., n, ..] → [.., size·n, ..] */
static clef_tensor *rows_back(clef_tensor *x, int dim) {
    clef_shape shape = clef_tensor_shape(x), whole = {.rank = shape.rank - 1};
    for (int d = 0; d < whole.rank; d++) whole.dim[d] = shape.dim[d + 1];
    if (x) whole.dim[dim] *= shape.dim[0];
    return x ? clef_reshape(move_dim(x, 0, dim), whole) : NULL;
}

/* ---- what users call ---- */

clef_tensor *clef_all_reduce(clef_tensor *x, clef_group *group, clef_group_reduction reduction) {
    if (!given("all_reduce", x, group) || !may_reduce("all_reduce", x, reduction)) return NULL;
    if (is_alone(group)) return same(x);
    collective_attributes a = {.group = group, .reduction = reduction};
    return apply(is_linear(reduction) ? &sum_op : &all_reduce_op, x, CLEF__MEET_ALL_REDUCE, &a);
}

bool clef__sum_several(clef_tensor *const *x, int n, clef_group *group, double weight, bool begins, clef_tensor **y) {
    collective_attributes a = {
        .group = group, .subject = group->subject, .kind = CLEF__MEET_ALL_REDUCE, .reduction = CLEF_GROUP_SUM, .begins = begins};
    group->summand = weight;
    return clef__apply_all(&sum_several_op, x, n, &a, sizeof a, y, n);
}

clef_tensor *clef_all_gather(clef_tensor *x, clef_group *group, int dim) {
    if (!given("all_gather", x, group) || !has_dim("all_gather", x, &dim, 1)) return NULL;
    if (is_alone(group)) return same(x);
    return rows_back(apply(&gather_op, x, CLEF__MEET_ALL_GATHER, &(collective_attributes){.group = group}), dim);
}

clef_tensor *clef__same_all_reduce(clef_tensor *x, clef_group *group) {
    if (!given("reduce_from_group", x, group) || !may_reduce("reduce_from_group", x, CLEF_GROUP_SUM)) return NULL;
    if (is_alone(group)) return same(x);
    return apply(&same_sum_op, x, CLEF__MEET_ALL_REDUCE, &(collective_attributes){.group = group});
}

clef_tensor *clef__same_all_gather(clef_tensor *x, clef_group *group, int dim) {
    if (!given("gather_from_group", x, group) || !has_dim("gather_from_group", x, &dim, 1)) return NULL;
    if (is_alone(group)) return same(x);
    return rows_back(apply(&same_gather_op, x, CLEF__MEET_ALL_GATHER, &(collective_attributes){.group = group}), dim);
}

clef_tensor *clef_reduce_scatter(clef_tensor *x, clef_group *group, int dim, clef_group_reduction reduction) {
    if (!given("reduce_scatter", x, group) || !may_reduce("reduce_scatter", x, reduction) ||
        !has_dim("reduce_scatter", x, &dim, clef_group_size(group)))
        return NULL;
    if (is_alone(group)) return same(x);
    collective_attributes a = {.group = group, .reduction = reduction};
    clef_tensor *rows = rows_first(x, dim, group->size);
    return rows ? apply(is_linear(reduction) ? &scatter_sum_op : &scatter_op, rows, CLEF__MEET_REDUCE_SCATTER, &a) : NULL;
}

clef_tensor *clef_broadcast(clef_tensor *x, clef_group *group, int root) {
    if (!given("broadcast", x, group) || !is_member("broadcast", clef_tensor_context(x), group, root, true)) return NULL;
    if (is_alone(group)) return same(x);
    return apply(&broadcast_op, x, CLEF__MEET_BROADCAST, &(collective_attributes){.group = group, .peer = root});
}

clef_tensor *clef_all_to_all(clef_tensor *x, clef_group *group, int dim) {
    if (!given("all_to_all", x, group) || !has_dim("all_to_all", x, &dim, clef_group_size(group))) return NULL;
    if (is_alone(group)) return same(x);
    clef_tensor *rows = rows_first(x, dim, group->size);
    return rows ? rows_back(apply(&exchange_op, rows, CLEF__MEET_ALL_TO_ALL, &(collective_attributes){.group = group}), dim) : NULL;
}

clef_status clef_send(clef_tensor *x, clef_group *group, int to) {
    if (!given("send", x, group)) return CLEF_INVALID;
    clef_context *ctx = clef_tensor_context(x);
    if (!is_member("send", ctx, group, to, false)) return CLEF_INVALID;
    if (clef_numel(x) == 0) return CLEF_OK; /* who receives nothing does not wait for it */
    clef_tensor *token = apply(&send_op, x, CLEF__MEET_SEND, &(collective_attributes){.group = group, .peer = to});
    clef__tensor_drop(token); /* the order of what has an effect holds it until it ran */
    return token ? CLEF_OK : clef_error_status(ctx);
}

clef_tensor *clef_recv(clef_context *ctx, clef_group *group, int from, clef_shape shape, clef_dtype dtype) {
    if (!ctx || !is_member("recv", ctx, group, from, false)) return NULL;
    if (group->ctx != ctx)
        return clef__refuse(ctx, "recv", CLEF_INVALID, "the group belongs to another context; each rank has its own");
    collective_attributes a = {.group = group, .kind = CLEF__MEET_RECV, .peer = from};
    return clef__source(ctx, &recv_op, shape, dtype, 0, &a, sizeof a, 0, 0);
}
