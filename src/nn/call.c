/* call.c — running a module: what goes in and out is checked, hooks see it, and so does who observes the context. */
#include "graph/graph.h"
#include "nn/module.h"
#include <stdio.h>

/* ---- hooks ---- */
int64_t clef_module_hook(clef_module *module, const clef_hook *hook) {
    if (!module) return 0;
    clef__nn *nn = clef__nn_of(module->ctx);
    if (!nn) return 0;
    if (!hook || (!hook->before && !hook->after)) {
        clef__fail(module->ctx, CLEF_INVALID, "module_hook: %s",
                   hook ? "before and after are NULL; give one of them" : "hook is NULL");
        return 0;
    }
    if (!clef__grow(&module->hook, module->n_hooks, &module->hook_capacity, sizeof *module->hook)) {
        clef__fail(module->ctx, CLEF_MEMORY, "module_hook: no memory for hook %d of the %s", module->n_hooks + 1, module->type);
        return 0;
    }
    module->hook[module->n_hooks++] = (clef__hook){.id = ++nn->last_hook, .hook = *hook};
    return nn->last_hook;
}

/* Those that were removed go.  Not while the module runs, which counts them by their places. */
static void drop_removed(clef_module *module) {
    int left = 0;
    for (int i = 0; i < module->n_hooks; i++)
        if (module->hook[i].id) module->hook[left++] = module->hook[i];
    module->n_hooks = left;
}

clef_status clef_module_unhook(clef_module *module, int64_t id) {
    if (!module) return CLEF_INVALID;
    int i = 0;
    while (i < module->n_hooks && (id == 0 || module->hook[i].id != id)) i++;
    if (i == module->n_hooks)
        return clef__fail(module->ctx, CLEF_INVALID, "module_unhook: the %s has no hook %lld; was it removed before?", module->type,
                          (long long)id);
    module->hook[i].id = 0;
    if (module->running == 0) drop_removed(module);
    return CLEF_OK;
}

/* A function of the program failed, or gave no tensor: there is a line, its own if it has one. */
static clef_status failed(const clef_module *module, clef_status status, const char *who, uint64_t failures) {
    if (clef__failed_since(module->ctx, failures)) return status;
    return clef__fail(module->ctx, status, "%s: its %s returned %s", module->type, who, clef_status_name(status));
}

/* Calls the hooks that were there when the run began.  A copy, because a hook may add others. */
static clef_status call_hooks(const clef__run *r, int n, bool after) {
    clef_module *module = r->module;
    for (int i = 0; i < n; i++) {
        if (!module->hook[i].id) continue;
        clef_hook h = module->hook[i].hook;
        uint64_t failures = clef__failures(module->ctx);
        clef_status status = CLEF_OK;
        if (!after && h.before) status = h.before(module, r->input, r->n_inputs, h.user);
        if (after && h.after) status = h.after(module, r->input, r->n_inputs, r->output, r->n_outputs, h.user);
        if (status) return failed(module, status, after ? "hook after it" : "hook before it", failures);
    }
    return CLEF_OK;
}

/* ---- where errors are ---- */
void clef__enter(clef_module *module, clef__frame *frame) {
    clef__nn *nn = clef__nn_of(module->ctx);
    *frame = (clef__frame){module, nn->frame};
    nn->frame = frame;
}

void clef__leave(const clef__frame *frame) { clef__nn_of(frame->module->ctx)->frame = frame->outer; }

/* Appends the path from the outermost module to the innermost one that is registered in those around it, which it returns. */
static const clef_module *locate(const clef__frame *frame, char *path, size_t size) {
    if (!frame->outer) return frame->module;
    const clef_module *outer = locate(frame->outer, path, size);
    bool found = outer == frame->outer->module && clef__module_path(outer, frame->module, path, size);
    return found ? frame->module : outer;
}

void clef__say_layer(clef_context *ctx, char *text, size_t size) {
    const clef__nn *nn = clef__room_state(ctx, CLEF__ROOM_NN);
    if (!nn || !nn->frame) return; /* the room may be closed */
    char path[300] = "";
    const clef_module *layer = locate(nn->frame, path, sizeof path);
    if (path[0]) snprintf(text, size, "; in layer \"%s\" (%.100s)", path, layer->type);
}

/* ---- one run ---- */
static clef_status run_function(const clef__run *r) {
    clef_module *module = r->module;
    if (!module->call && !module->forward)
        return clef__fail(module->ctx, CLEF_INVALID, "%s: it has no forward function, only what is registered in it", module->type);
    uint64_t failures = clef__failures(module->ctx);
    clef__checkpointed_segment *segment = module->recompute ? clef__checkpointed_segment_begin(module->ctx) : NULL;
    clef_status status = CLEF_OK;
    if (module->call) status = module->call(module, r->input, r->n_inputs, r->output, r->n_outputs, module->user);
    else r->output[0] = module->forward(module, r->input[0], module->user);
    clef__checkpointed_segment_end(module->ctx, segment);
    if (status) return failed(module, status, "function", failures);
    bool silent = module->forward && !r->output[0]; /* NULL is how a forward fails */
    if (!silent && clef__given_array(module->ctx, module->type, "outputs", r->output, r->n_outputs)) return CLEF_OK;
    status = clef__failed_since(module->ctx, failures);
    return status ? status : CLEF_INVALID;
}

static clef_status run_module(const clef__run *r) {
    clef_module *module = r->module;
    int n = module->n_hooks;
    module->running++;
    clef_status status = call_hooks(r, n, false);
    if (!status) status = run_function(r);
    if (!status) status = call_hooks(r, n, true);
    if (--module->running == 0) drop_removed(module);
    for (int i = 0; status && i < r->n_outputs; i++) r->output[i] = NULL;
    const clef__nn *nn = clef__nn_of(module->ctx);
    if (!status && nn->observer) nn->observer(nn->observer_user, r);
    return status;
}

/* ---- what is asked of a module ---- */
static bool is_count(int n) { return n >= 1 && n <= CLEF_CALL_MOST; }

static bool counts_fit(const clef_module *module, const char *op, int n, int m) {
    bool wanted = (!module->n_inputs || n == module->n_inputs) && (!module->n_outputs || m == module->n_outputs);
    if (wanted && is_count(n) && is_count(m)) return true;
    char takes[32], gives[32];
    snprintf(takes, sizeof takes, module->n_inputs ? "%d" : "1 to %d", module->n_inputs ? module->n_inputs : CLEF_CALL_MOST);
    snprintf(gives, sizeof gives, module->n_outputs ? "%d" : "1 to %d", module->n_outputs ? module->n_outputs : CLEF_CALL_MOST);
    clef__fail(module->ctx, CLEF_INVALID, "%s: the %s takes %s input%s and gives %s output%s, not %d and %d", op, module->type,
               takes, module->n_inputs == 1 ? "" : "s", gives, module->n_outputs == 1 ? "" : "s", n, m);
    return false;
}

clef_tensor *clef_forward(clef_module *module, clef_tensor *x) {
    clef_tensor *y = NULL;
    clef__frame frame;
    if (!module) return NULL;
    clef__enter(module, &frame);
    if (clef__given(module->ctx, "forward", "x", &x, 1) && counts_fit(module, "forward", 1, 1))
        run_module(&(clef__run){module, &x, 1, &y, 1});
    clef__leave(&frame);
    return y;
}

clef_tensor *clef__forward_child(clef_module *module, const char *name, clef_tensor *x) {
    clef_module *child = clef__own_child(module, name);
    if (child) return clef_forward(child, x);
    return clef__refuse(module->ctx, module->type, CLEF_INVALID,
                        "its child \"%s\" was removed; give it another with clef_module_add", name);
}

/* Are the inputs there?  A module with a function for several gets CLEF_NONE too. */
static bool inputs_given(const clef_module *module, clef_tensor *const *inputs, int n) {
    char names[CLEF_CALL_MOST * 16];
    int length = 0;
    for (int i = 0; i < n; i++)
        length += snprintf(names + length, sizeof names - (size_t)length, "inputs[%d]%s ", i, module->call ? "?" : "");
    return clef__given(module->ctx, "call", names, inputs, n);
}

/* Two arrays in the same memory: the outputs would be written over the inputs. */
static bool overlap(clef_tensor *const *inputs, int n, clef_tensor *const *outputs, int m) {
    uintptr_t in = (uintptr_t)inputs, out = (uintptr_t)outputs;
    return in < out + (uintptr_t)m * sizeof *outputs && out < in + (uintptr_t)n * sizeof *inputs;
}

/* NULL, or what is wrong with the arrays; outputs is all NULL from then on, where it can be. */
static const char *wrong_arrays(clef_tensor *const *inputs, int n, clef_tensor **outputs, int m) {
    if (!inputs) return "inputs is NULL";
    if (!outputs) return "outputs is NULL";
    if (!is_count(n) || !is_count(m)) return NULL; /* counts_fit says it */
    if (overlap(inputs, n, outputs, m)) return "outputs lies over inputs; give it an array of its own";
    for (int i = 0; i < m; i++) outputs[i] = NULL;
    return NULL;
}

clef_status clef_call(clef_module *module, clef_tensor *const *inputs, int n, clef_tensor **outputs, int m) {
    const char *wrong = wrong_arrays(inputs, n, outputs, m);
    if (!module) return CLEF_INVALID;
    clef_context *ctx = module->ctx;
    uint64_t failures = clef__failures(ctx);
    clef_status status = CLEF_INVALID;
    clef__frame frame;
    clef__enter(module, &frame);
    if (wrong) clef__fail(ctx, CLEF_INVALID, "call: %s", wrong);
    else if (counts_fit(module, "call", n, m) && inputs_given(module, inputs, n))
        status = run_module(&(clef__run){module, inputs, n, outputs, m});
    if (status && clef_error_status(ctx) == CLEF_OK)
        clef__fail(ctx, status, "call: the forward of the %s gave no tensor", module->type);
    clef__leave(&frame);
    clef_status said = clef__failed_since(ctx, failures);
    return status && said ? said : status;
}
