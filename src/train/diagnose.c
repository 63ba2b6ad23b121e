/* diagnose.c — after a loss that is no finite number: which batch, and the first layer that is to blame.

   The parameters have not moved since the bad batch (see epoch.c), so running that batch forward again and looking at
   the output of every module, inner ones first, shows where the first infinite or undefined value comes from. */
#include "graph/graph.h"
#include "nn/module.h"
#include "train/train_internal.h"
#include <math.h>
#include <stdio.h>

enum { PATH_SIZE = 200 };

/* How much a fact explains: ranks tell each other theirs, and the one that explains most is the cause. */
typedef enum weight { NOTHING, TOO_MUCH_TO_ADD, LOSS_FUNCTION, CULPRIT } weight;

typedef struct verdict {
    char layer[PATH_SIZE], type[64], fact[PATH_SIZE];
    weight weight;
} verdict;

static bool all_finite(clef_tensor *t) {
    int64_t n = clef_numel(t);
    float *host = clef__alloc((size_t)(n > 0 ? n : 1) * sizeof *host);
    bool finite = host && clef_read(clef_to(t, CLEF_F32), host, (size_t)n * sizeof *host) == CLEF_OK;
    for (int64_t i = 0; finite && i < n; i++) finite = isfinite(host[i]);
    clef__free(host);
    return finite;
}

/* The name of a trainable parameter of the module that is not finite, or NULL. */
static const char *bad_parameter(clef_module *module) {
    for (int i = 0; i < clef_module_tensors(module); i++) {
        clef_named_tensor t = clef_module_tensor(module, i);
        if (!t.is_buffer && !all_finite(t.tensor)) return t.name;
    }
    return NULL;
}

typedef struct search {
    const clef_module *root;
    verdict *verdict;
} search;

/* After every module's forward, inner ones first: so the first bad output is the innermost module's. */
static void look_at_output(void *user, const clef__run *run) {
    search *s = user;
    verdict *v = s->verdict;
    clef_module *module = run->module;
    bool finite = true;
    for (int i = 0; !v->type[0] && finite && i < run->n_outputs; i++) finite = all_finite(run->output[i]);
    if (v->type[0] || finite) return;
    const char *parameter = bad_parameter(module);
    if (!clef__module_path(s->root, module, v->layer, sizeof v->layer))
        snprintf(v->layer, sizeof v->layer, "one that is registered nowhere");
    else if (!v->layer[0]) snprintf(v->layer, sizeof v->layer, "the module");
    snprintf(v->type, sizeof v->type, "%.60s", clef_module_type(module));
    snprintf(v->fact, sizeof v->fact, "its %.100s is not finite", parameter ? parameter : "output");
    v->weight = CULPRIT;
}

/* No layer is to blame: its labels are, or the loss function, or nothing but the sum over all batches. */
static void look_at_loss(const clef__fit *f, const clef_batch *batch, clef_tensor *const *outputs, verdict *v) {
    clef__bad_label bad;
    double items;
    clef_loss_options options = clef__loss_options(&f->loss);
    if (!f->loss.call && clef__find_bad_label(outputs[0], batch->y, &options, &bad)) {
        snprintf(v->fact, sizeof v->fact, "label %lld of its item %lld " CLEF__BAD_LABEL, (long long)bad.label,
                 (long long)(clef__share_of(f->ctx).first + bad.item), (long long)bad.classes, (long long)bad.classes - 1);
        v->weight = CULPRIT;
        return;
    }
    double loss = clef_item(clef__batch_loss(&f->loss, outputs, batch, &items));
    v->weight = isfinite(loss) || items == 0 ? TOO_MUCH_TO_ADD : LOSS_FUNCTION;
    if (v->weight == TOO_MUCH_TO_ADD)
        snprintf(v->fact, sizeof v->fact, "its own is %.3g, which is too much to add up; try a lower learning rate (now %g)", loss,
                 f->lr);
    else snprintf(v->fact, sizeof v->fact, "every layer's output is finite, the loss function's is not");
}

/* Runs the batch through the module and looks at every output on the way. */
static void run_again(const clef__fit *f, const clef_batch *batch, verdict *v) {
    search s = {f->module, v};
    clef_tensor *outputs[CLEF_CALL_MOST];
    if (clef__nn_observe(f->ctx, look_at_output, &s)) return;
    clef_status status = clef__batch_outputs(&f->loss, f->module, batch, outputs);
    clef__nn_observe(f->ctx, NULL, NULL);
    if (!status && !v->type[0]) look_at_loss(f, batch, outputs, v);
}

/* Fetches the bad batch again; false when that is impossible. */
static bool fetch_again(clef__fit *f, int64_t bad_batch, clef_batch *batch) {
    clef_loader_state state = clef_loader_get(f->o->train);
    if (state.batch < f->batch) state.epoch--; /* the loader has already moved to the next epoch */
    state.batch = bad_batch;
    return !clef_loader_set(f->o->train, state) && clef_next(f->o->train, batch);
}

static void find_bad_layer(clef__fit *f, int64_t bad_batch, verdict *v) {
    bool was = clef_set_grad_enabled(f->ctx, false);
    clef_batch batch;
    bool there = fetch_again(f, bad_batch, &batch);
    bool finite = true;
    for (int i = 0; there && finite && i < batch.n_inputs; i++) finite = all_finite(batch.inputs[i]);
    /* Other ranks run it whatever they find, and layers may need all of them. */
    if (there && (finite || !clef__is_alone(f))) run_again(f, &batch, v);
    if (!finite) *v = (verdict){.fact = "its inputs are not finite: look at the data", .weight = CULPRIT};
    clef_set_grad_enabled(f->ctx, was);
}

/* The verdict that explains most, and " on rank 1 (DEVICE)" where there are several. */
static clef_status choose(const clef__fit *f, verdict *v, char *where, size_t size) {
    int ranks = clef_group_size(f->group), best = 0;
    if (ranks == 1) return CLEF_OK;
    verdict *all = clef__calloc((size_t)ranks, sizeof *all);
    if (!all) return clef__fail(f->ctx, CLEF_MEMORY, "fit: the loss is not finite, and there is no memory to say why");
    clef_status status = clef_group_gather_bytes(f->group, v, all, sizeof *v);
    for (int r = 1; r < ranks; r++)
        if (all[r].weight > all[best].weight) best = r;
    if (!status) *v = all[best];
    snprintf(where, size, " on %s", clef_group_rank_name(f->group, best));
    clef__free(all);
    return status;
}

clef_status clef__diagnose(clef__fit *f, int64_t good) {
    int64_t bad_batch = f->first_batch + good;
    verdict v = {.fact = "the cause could not be found"};
    char where[PATH_SIZE] = "";
    if (f->o->pipeline && clef__share_module(f)) return clef_error_status(f->ctx);
    find_bad_layer(f, bad_batch, &v);
    long long epoch = f->done + 1, batch = bad_batch + 1;
    clef_clear_error(f->ctx);
    clef_status status = choose(f, &v, where, sizeof where);
    if (status) return status;
    if (!v.layer[0])
        return clef__fail(f->ctx, CLEF_INVALID, "fit: the loss of epoch %lld, batch %lld is not finite%s; %s", epoch, batch, where,
                          v.fact);
    return clef__fail(f->ctx, CLEF_INVALID,
                      "fit: the loss of epoch %lld, batch %lld is not finite%s; first bad layer: "
                      "%s (%s), %s; try a lower learning rate (now %g) or clip_norm",
                      epoch, batch, where, v.layer, v.type, v.fact, f->lr);
}
