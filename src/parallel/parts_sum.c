/* parts_sum.c — what the parts of a batch leave, added up as a balanced binary tree over all parts of all ranks.

   A rank has 2^k parts in a row, so their tree is a subtree, and clef_all_reduce goes on with it over the ranks.  What would make bits depend on
   the ranks is kept out: each part is computed in a plan of its own; weights are multiplied in there, so that no addition of the tree meets
   a product that a compiler could contract with it; and what is missing is zeros everywhere, as −0 + 0 is another number than −0. */
#include "clef/pointwise.h"
#include "ops/ops.h"
#include "parallel/parts.h"

enum { SUMS = 2 }; /* behind the flags: the loss, and what it counts */

/* ---- pieces and packs ---- */

static clef_status no_memory(const clef__parts *parts) {
    return clef__fail(parts->ctx, CLEF_MEMORY, "backward_parts: no host memory for %d tensors", clef_module_tensors(parts->net));
}

static clef_dtype dtype_of(const clef__piece *piece) {
    clef_dtype dtype = clef_tensor_dtype(piece->tensor);
    return piece->kind == CLEF__COUNT ? CLEF_I64 : dtype == CLEF_F64 ? CLEF_F64 : CLEF_F32;
}

static int pack_for(clef__parts *parts, const clef__piece *piece) {
    clef_dtype dtype = dtype_of(piece);
    int device = clef_tensor_device(piece->tensor), k = 0;
    while (k < parts->n_packs && (parts->pack[k].dtype != dtype || parts->pack[k].device != device)) k++;
    if (k == parts->n_packs) parts->pack[parts->n_packs++] = (clef__pack){.dtype = dtype, .device = device};
    return k;
}

static bool is_listed(const clef__parts *parts, const clef_tensor *t) {
    for (int i = 0; i < parts->n_pieces; i++)
        if (parts->piece[i].tensor == t) return true;
    return false;
}

static void list_piece(clef__parts *parts, clef_tensor *t, clef__piece_kind kind) {
    clef__piece *piece = &parts->piece[parts->n_pieces++];
    *piece = (clef__piece){.kind = kind, .tensor = t, .n = clef_numel(t)};
    if (kind != CLEF__GRADIENT) piece->before = clef__tensor_new(clef__output_of(t));
    else parts->parameter[parts->n_gradients++] = t;
    piece->pack = pack_for(parts, piece);
    parts->pack[piece->pack].n += piece->n;
}

static void list_pieces(clef__parts *parts) {
    int n = clef_module_tensors(parts->net);
    for (int i = 0; i < n; i++) {
        clef_named_tensor t = clef_module_tensor(parts->net, i);
        if (!t.is_buffer && clef_requires_grad(t.tensor) && !is_listed(parts, t.tensor))
            list_piece(parts, t.tensor, CLEF__GRADIENT);
    }
    for (int i = 0; i < n; i++) {
        clef_named_tensor t = clef_module_tensor(parts->net, i);
        if (!t.is_buffer || is_listed(parts, t.tensor)) continue;
        list_piece(parts, t.tensor, clef__is_float(clef_tensor_dtype(t.tensor)) ? CLEF__STATISTIC : CLEF__COUNT);
    }
    if (parts->n_packs) parts->pack[0].n += parts->n_pieces + SUMS;
}

/* So that every part's plan begins with the same computed values. */
static clef_status compute_tensors(const clef__parts *parts) {
    int n = 0;
    for (; n < parts->n_pieces; n++) parts->list[n] = parts->piece[n].tensor;
    return clef_eval_all(parts->list, n);
}

clef_status clef__parts_begin(clef__parts *parts, clef_module *net, clef_group *group) {
    *parts = (clef__parts){.ctx = clef_module_context(net), .net = net, .group = group};
    size_t most = (size_t)clef_module_tensors(net) + 1;
    parts->piece = clef__calloc(most, sizeof *parts->piece);
    parts->pack = clef__calloc(most, sizeof *parts->pack);
    parts->parameter = clef__calloc(most, sizeof(clef_tensor *));
    parts->gradient = clef__calloc(most, sizeof(clef_tensor *));
    parts->list = clef__calloc(most + 1 + SUMS, sizeof(clef_tensor *));
    if (!parts->piece || !parts->pack || !parts->parameter || !parts->gradient || !parts->list) return no_memory(parts);
    list_pieces(parts);
    if (!parts->n_gradients)
        return clef__fail(parts->ctx, CLEF_INVALID, "backward_parts: no parameter of the %s wants a gradient",
                          clef_module_type(net));
    for (int i = 0; i < parts->n_pieces; i++)
        if (parts->piece[i].kind != CLEF__GRADIENT && !parts->piece[i].before) return no_memory(parts);
    return compute_tensors(parts);
}

void clef__parts_free(clef__parts *parts) {
    for (int i = 0; parts->piece && i < parts->n_pieces; i++) clef__tensor_drop(parts->piece[i].before);
    clef__free(parts->piece);
    clef__free(parts->pack);
    clef__free(parts->parameter);
    clef__free(parts->gradient);
    clef__free(parts->list);
}

clef_status clef__parts_restore(const clef__parts *parts) {
    clef_status status = CLEF_OK;
    for (int i = parts->n_gradients; i < parts->n_pieces && !status; i++) {
        const clef__piece *piece = &parts->piece[i];
        if (clef__output_of(piece->tensor) != clef__output_of(piece->before)) status = clef_assign(piece->tensor, piece->before);
    }
    return status;
}

/* ---- one part, flat ---- */

static clef_tensor *zeros(const clef__parts *parts, const clef__pack *pack, int64_t n) {
    return clef__constant(parts->ctx, CLEF_SHAPE(n), pack->dtype, pack->device, 0);
}

static clef_tensor *weighted(const clef__pack *pack, clef_tensor *t, double weight) {
    clef_tensor *flat = clef_to(clef_reshape(t, CLEF_SHAPE(clef_numel(t))), pack->dtype);
    return weight == 1 ? flat : clef_mul(flat, clef__number(clef_tensor_context(flat), pack->dtype, weight));
}

/* Has the part this one? */
static bool has(const clef__parts *parts, int i) {
    const clef__piece *piece = &parts->piece[i];
    if (piece->kind == CLEF__GRADIENT) return parts->gradient[i] != NULL;
    return clef__output_of(piece->tensor) != clef__output_of(piece->before);
}

static clef_tensor *leaf_of(const clef__parts *parts, int i, double weight, bool first) {
    const clef__piece *piece = &parts->piece[i];
    const clef__pack *pack = &parts->pack[piece->pack];
    switch (piece->kind) {
    case CLEF__GRADIENT: return parts->gradient[i] ? weighted(pack, parts->gradient[i], weight) : zeros(parts, pack, piece->n);
    case CLEF__STATISTIC: return weighted(pack, piece->tensor, weight);
    default: return first ? weighted(pack, piece->tensor, 1) : zeros(parts, pack, piece->n);
    }
}

/* 1 for each piece that the part has. */
static clef_tensor *flags(clef__parts *parts) {
    const clef__pack *pack = &parts->pack[0];
    float *flag = clef__alloc((size_t)parts->n_pieces * sizeof *flag);
    if (!flag) return no_memory(parts), NULL;
    for (int i = 0; i < parts->n_pieces; i++) {
        flag[i] = has(parts, i);
        parts->piece[i].present |= flag[i] != 0;
    }
    clef_tensor *t = clef_from_host_on(parts->ctx, pack->device, CLEF_SHAPE(parts->n_pieces), CLEF_F32, flag);
    clef__free(flag);
    return clef_to(t, pack->dtype);
}

static clef_tensor *flat(clef__parts *parts, int k, clef_tensor *loss, double weight, bool first) {
    const clef__pack *pack = &parts->pack[k];
    if (!loss) return zeros(parts, pack, pack->n);
    int n = 0;
    for (int i = 0; i < parts->n_pieces; i++)
        if (parts->piece[i].pack == k) parts->list[n++] = leaf_of(parts, i, weight, first);
    if (k == 0) {
        parts->list[n++] = flags(parts);
        parts->list[n++] = weighted(pack, clef_to_device(loss, pack->device), weight);
        parts->list[n++] = parts->count ? weighted(pack, clef_to_device(parts->count, pack->device), 1) : zeros(parts, pack, 1);
    }
    return clef_concat(parts->list, n, 0);
}

/* ---- the tree ---- */

/* The packs' tensors of part number `done`, in the list: each level that waits is joined, as in adding 1 to a binary number. */
static clef_status join(clef__parts *parts) {
    clef_status status = clef_eval_all(parts->list, parts->n_packs);
    for (int level = 0; !status; level++) {
        bool waits = parts->done >> level & 1;
        for (int k = 0; k < parts->n_packs; k++) {
            clef_tensor **at = &parts->pack[k].level[level], *right = parts->list[k];
            parts->list[k] = waits ? clef_add(*at, right) : NULL;
            if (waits && !parts->list[k]) return clef_error_status(parts->ctx);
            if (!waits) *at = right;
        }
        if (!waits) break;
        status = clef_eval_all(parts->list, parts->n_packs);
        for (int k = 0; k < parts->n_packs; k++) clef__tensor_drop(parts->pack[k].level[level]), parts->pack[k].level[level] = NULL;
    }
    parts->done++;
    return status;
}

clef_status clef__parts_add(clef__parts *parts, clef_tensor *loss, double weight, bool first) {
    clef_status status = CLEF_OK;
    for (CLEF_NO_GRAD(parts->ctx)) {
        for (int k = 0; k < parts->n_packs && !status; k++) {
            parts->pack[k].sum = flat(parts, k, loss, weight, first);
            if (!parts->pack[k].sum) status = clef_error_status(parts->ctx);
        }
        for (int k = 0; k < parts->n_packs; k++) parts->list[k] = parts->pack[k].sum;
        if (!status) status = join(parts);
    }
    return status;
}

/* ---- what the sum of all parts becomes ---- */

static clef_status sum_over_ranks(clef__parts *parts) {
    int top = 0;
    while (parts->done >> (top + 1)) top++;
    for (int k = 0; k < parts->n_packs; k++) {
        clef__pack *pack = &parts->pack[k];
        pack->sum = clef_all_reduce(pack->level[top], parts->group, CLEF_GROUP_SUM);
        if (!pack->sum) return clef_error_status(parts->ctx);
    }
    return CLEF_OK;
}

static clef_tensor *behind(const clef__parts *parts, int64_t from_end) {
    const clef__pack *pack = &parts->pack[0];
    return clef_slice(pack->sum, 0, pack->n - from_end, pack->n - from_end + 1, 1);
}

/* Forgets gradients that no part of any rank has.  Only who lacks one needs to ask. */
static clef_status drop_absent(clef__parts *parts) {
    bool lacks = false;
    int n = parts->n_pieces;
    for (int i = 0; i < parts->n_gradients; i++) lacks |= !parts->piece[i].present;
    if (!lacks || clef__dry_run(parts->ctx)) return CLEF_OK;
    float *count = clef__alloc((size_t)n * sizeof *count);
    if (!count) return no_memory(parts);
    const clef__pack *pack = &parts->pack[0];
    clef_tensor *all = clef_to(clef_slice(pack->sum, 0, pack->n - SUMS - n, pack->n - SUMS, 1), CLEF_F32);
    clef_status status = clef_read(all, count, (size_t)n * sizeof *count);
    for (int i = 0; i < parts->n_gradients && !status; i++) parts->piece[i].absent = count[i] == 0;
    clef__free(count);
    return status;
}

/* Of a parameter: with the gradient that it has from calls before.  Of a statistic: what it was, where no part changed it. */
static clef_tensor *taken(const clef__parts *parts, int i, int64_t at) {
    const clef__piece *piece = &parts->piece[i];
    clef_tensor *flat = clef_slice(parts->pack[piece->pack].sum, 0, at, at + piece->n, 1);
    clef_tensor *sum = clef_to(clef_reshape(flat, clef_tensor_shape(piece->tensor)), clef_tensor_dtype(piece->tensor));
    if (piece->kind == CLEF__GRADIENT) {
        clef_tensor *old = clef_grad_of(piece->tensor);
        return old ? clef_add(old, sum) : sum;
    }
    if (piece->kind == CLEF__COUNT) return sum;
    clef_tensor *changed =
        clef_gt_scalar(clef_to_device(behind(parts, parts->n_pieces + SUMS - i), clef_tensor_device(piece->tensor)), 0);
    return clef_where(changed, sum, piece->before);
}

/* Computes all that is to be taken before any is, in plans that do not depend on what comes next. */
static clef_status compute_taken(clef__parts *parts) {
    int n = 0;
    for (int k = 0; k < parts->n_packs; k++) {
        int64_t at = 0;
        for (int i = 0; i < parts->n_pieces; i++) {
            clef__piece *piece = &parts->piece[i];
            if (piece->pack != k) continue;
            if (!piece->absent && !(parts->list[n++] = piece->taken = taken(parts, i, at))) return clef_error_status(parts->ctx);
            at += piece->n;
        }
    }
    parts->loss = parts->list[n++] = clef_reshape(behind(parts, 2), CLEF_SCALAR);
    parts->count = parts->list[n++] = clef_reshape(behind(parts, 1), CLEF_SCALAR);
    return parts->loss && parts->count ? clef_eval_all(parts->list, n) : clef_error_status(parts->ctx);
}

clef_status clef__parts_take(clef__parts *parts) {
    clef_status status = CLEF_OK;
    for (CLEF_NO_GRAD(parts->ctx)) {
        status = sum_over_ranks(parts);
        if (!status) status = drop_absent(parts);
        if (!status) status = compute_taken(parts);
        for (int i = 0; i < parts->n_gradients; i++) parts->gradient[i] = parts->piece[i].taken;
        if (!status) status = clef__set_averaged(parts->parameter, parts->gradient, parts->n_gradients);
        for (int i = parts->n_gradients; i < parts->n_pieces && !status; i++) /* of the same dtype and place, so it cannot fail */
            status = clef_assign(parts->piece[i].tensor, parts->piece[i].taken);
    }
    return status;
}
