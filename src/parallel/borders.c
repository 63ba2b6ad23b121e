/* borders.c — what goes from stage to stage, known on all ranks: each runs the whole net dry, with no more than the shapes of x and y. */
#include "nn/module.h"
#include "parallel/parallel.h"
#include <string.h>

int64_t clef__micro_items(const clef__pipeline_call *call, int k) {
    return call->items / call->micro_batches + (k < call->items % call->micro_batches);
}

int64_t clef__micro_start(const clef__pipeline_call *call, int k) {
    int64_t larger = call->items % call->micro_batches;
    return call->items / call->micro_batches * k + (k < larger ? k : larger);
}

bool clef__is_copy(const clef__pipeline_call *call) { return call->share.all > 0 && call->share.items == call->items; }

clef__share clef__micro_window(const clef__pipeline_call *call, int k) {
    if (!clef__is_copy(call)) return (clef__share){0};
    return (clef__share){call->share.first + clef__micro_start(call, k), clef__micro_items(call, k), call->share.all};
}

const clef__passage *clef__passage_of(const clef_pipeline *p, const clef__pipeline_call *call, int k) {
    int64_t items = clef__micro_items(call, k);
    return items == p->passage[0].items ? &p->passage[0] : &p->passage[1];
}

/* ---- the key: what shapes, gradients and random numbers depend on ---- */

static void mix(uint64_t *key, uint64_t word) {
    *key = (*key ^ word) * 0x9e3779b97f4a7c15u;
    *key ^= *key >> 29;
}

static void mix_type(uint64_t *key, const clef_tensor *t) {
    clef_shape shape = clef_tensor_shape(t);
    mix(key, (uint64_t)clef_tensor_dtype(t) << 8 | (uint64_t)clef_requires_grad(t));
    mix(key, (uint64_t)shape.rank);
    for (int d = 0; d < shape.rank; d++) mix(key, (uint64_t)shape.dim[d]);
}

static void mix_mode(clef_module *module, void *key) { mix(key, clef_is_training(module)); }

static uint64_t key_of(const clef_pipeline *p, const clef__pipeline_call *call) {
    uint64_t key = (uint64_t)call->micro_batches + 1;
    mix(&key, clef__nn_of(p->ctx)->version);
    mix(&key, (uint64_t)(uintptr_t)call->loss);
    mix(&key, clef_grad_enabled(p->ctx));
    mix(&key, (uint64_t)clef_get_autocast(p->ctx));
    mix(&key, clef__is_copy(call) ? (uint64_t)call->share.all + 1 : 0);
    mix_type(&key, call->x);
    mix_type(&key, call->y);
    for (int i = 0; i < p->tensors; i++) mix_type(&key, p->tensor[i].tensor);
    clef__module_visit(p->net, mix_mode, &key);
    return key ? key : 1;
}

/* ---- the dry run ---- */

/* Notes what x is, and returns where the random numbers are. */
static uint64_t enter(const clef_pipeline *p, clef__border *border, clef_tensor *x) {
    *border = (clef__border){.shape = clef_tensor_shape(x), .dtype = clef_tensor_dtype(x), .graded = clef_requires_grad(x)};
    return clef_random_get(p->ctx).offset;
}

static clef_status pass_through(const clef_pipeline *p, const clef__pipeline_call *call, const clef__passage *passage) {
    clef__border *border = passage->border;
    clef_tensor *x = clef_slice(call->x, 0, 0, passage->items, 1), *y = clef_slice(call->y, 0, 0, passage->items, 1);
    for (int s = 0; s < p->stages; s++, border++) {
        uint64_t before = enter(p, border, x);
        x = clef__stage_forward(p, s, x);
        border->draws = clef_random_get(p->ctx).offset - before;
    }
    if (!x || !y) return clef_error_status(p->ctx) ? clef_error_status(p->ctx) : CLEF_INVALID;
    uint64_t before = clef_random_get(p->ctx).offset;
    clef_tensor *loss = call->loss(x, y, call->options);
    if (!loss) return clef_error_status(p->ctx) ? clef_error_status(p->ctx) : CLEF_INVALID;
    enter(p, border, loss);
    border->draws = clef_random_get(p->ctx).offset - before;
    if (clef_numel(loss) != 1)
        return clef__fail(p->ctx, CLEF_SHAPE, "pipeline_step: the loss is %s; it must be one number, a mean over the items",
                          clef__shape_text(clef_tensor_shape(loss)));
    uint64_t draws = 0;
    for (int s = 0; s <= p->stages; s++) draws += passage->border[s].draws;
    if (clef__is_copy(call) && draws > CLEF__COUNTERS_EACH)
        return clef__fail(p->ctx, CLEF_INVALID,
                          "pipeline_step: a micro-batch draws more than 2^34 random numbers; take smaller batches");
    return border->graded
               ? CLEF_OK
               : clef__fail(p->ctx, CLEF_STATE,
                            "pipeline_step: the loss depends on no parameter that wants a gradient; was the net frozen?");
}

/* Leaves no trace: modes, random numbers, kept tensors and the temporaries that there are stay as they were. */
static clef_status run_dry(const clef_pipeline *p, const clef__pipeline_call *call, const clef__passage *passage) {
    clef_random_state random = clef_random_get(p->ctx);
    uint64_t made = clef__handles_made(p->ctx), failures = clef__failures(p->ctx);
    bool dry = clef_set_dry_run(p->ctx, true);
    clef__share window = clef__micro_window(call, 0);
    window.items = clef__is_copy(call) ? passage->items : 0;
    clef__set_window(p->ctx, window);
    clef_status status = pass_through(p, call, passage);
    clef__set_window(p->ctx, (clef__share){0});
    clef__drop_since(p->ctx, made);
    clef_set_dry_run(p->ctx, dry);
    clef_random_set(p->ctx, random);
    clef_status failed = clef__failed_since(p->ctx, failures);
    return status && failed ? failed : status;
}

clef_status clef__pipeline_measure(clef_pipeline *p, const clef__pipeline_call *call) {
    uint64_t key = key_of(p, call);
    if (key == p->passage_key) return CLEF_OK;
    p->passage_key = 0;
    clef_status status = CLEF_OK;
    for (int i = 0; i < CLEF__PASSAGES && !status; i++) {
        clef__passage *passage = &p->passage[i];
        passage->items = clef__micro_items(call, i == 0 ? 0 : call->micro_batches - 1);
        if (!passage->border) passage->border = clef__calloc((size_t)p->stages + 1, sizeof *passage->border);
        if (!passage->border) status = clef__fail(p->ctx, CLEF_MEMORY, "pipeline_step: no host memory for %d stages", p->stages);
        else if (i == 0 || passage->items != p->passage[0].items) status = run_dry(p, call, passage);
    }
    if (!status) p->passage_key = key;
    return status;
}
