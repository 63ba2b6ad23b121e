/* module.c — making modules, and their modes. */
#include "nn/module.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void free_module(clef_module *m) {
    for (int i = 0; i < m->n; i++) clef__free(m->entry[i].name);
    for (int i = 0; i < m->n_flat; i++) clef__free((char *)m->flat[i].name);
    if (m->owns_user) clef__free(m->user);
    clef__free(m->shard);
    clef__free(m->entry);
    clef__free(m->flat);
    clef__free(m->hook);
    clef__free(m->type);
    clef__free(m);
}

/* The tensors are in the context's list of kept ones and go with the graph room. */
static void close_room(clef_context *ctx, void *state) {
    (void)ctx;
    clef__nn *nn = state;
    clef__free_generators(nn);
    for (clef_module *m = nn->first, *next; m; m = next) {
        next = m->next;
        free_module(m);
    }
    clef__free(nn);
}

clef__nn *clef__nn_of(clef_context *ctx) {
    clef__nn *nn = clef__make_room_state(ctx, CLEF__ROOM_NN, sizeof *nn, close_room);
    if (nn && nn->version == 0) {
        nn->version = 1;
        clef__set_whereabouts(ctx, clef__say_layer);
    }
    return nn;
}

clef_status clef__nn_observe(clef_context *ctx, clef__observer observer, void *user) {
    clef__nn *nn = clef__nn_of(ctx);
    if (!nn) return CLEF_MEMORY;
    nn->observer = observer;
    nn->observer_user = user;
    return CLEF_OK;
}

bool clef__nn_inference(clef_context *ctx, bool on) {
    clef__nn *nn = clef__nn_of(ctx);
    bool was = nn && nn->inference;
    if (nn) nn->inference = on;
    return was;
}

clef_module *clef__module_refuse(clef_context *ctx, const char *fmt, ...) {
    char line[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    clef__fail(ctx, CLEF_INVALID, "%s", line);
    return NULL;
}

/* What both kinds of modules begin as, in the context's list; `like` has the rest. */
static clef_module *new_module(clef_context *ctx, const char *op, const char *type, clef_module like) {
    clef__nn *nn = clef__nn_of(ctx);
    if (!nn) return NULL;
    clef_module *m = clef__calloc(1, sizeof *m);
    char *name = clef__strdup(type);
    if (!m || !name) {
        clef__free(m);
        clef__free(name);
        clef__fail(ctx, CLEF_MEMORY, "%s: no memory for a module of type %s", op, type);
        return NULL;
    }
    *m = like;
    m->ctx = ctx;
    m->type = name;
    m->training = true;
    m->next = nn->first;
    nn->first = m;
    return m;
}

clef_module *clef_module_new(clef_context *ctx, const char *type, clef_forward_fn forward, void *user) {
    if (!ctx) return NULL;
    if (!type) return clef__module_refuse(ctx, "module_new: type must not be NULL");
    clef_module like = {.forward = forward, .n_inputs = 1, .n_outputs = 1, .user = user};
    return new_module(ctx, "module_new", type, like);
}

clef_module *clef_module_new_call(clef_context *ctx, const char *type, clef_call_fn call, int n_inputs, int n_outputs, void *user) {
    if (!ctx) return NULL;
    if (!type || !call) return clef__module_refuse(ctx, "module_new_call: type and call must not be NULL");
    if (n_inputs < 0 || n_inputs > CLEF_CALL_MOST || n_outputs < 0 || n_outputs > CLEF_CALL_MOST)
        return clef__module_refuse(ctx, "module_new_call: %d inputs and %d outputs; give 1 to %d of each, or 0 for any number",
                                   n_inputs, n_outputs, CLEF_CALL_MOST);
    clef_module like = {.call = call, .n_inputs = n_inputs, .n_outputs = n_outputs, .user = user};
    return new_module(ctx, "module_new_call", type, like);
}

static clef_module *with_options(clef_module *m, const void *options, size_t bytes) {
    if (!m || !bytes) return m;
    m->user = clef__calloc(1, bytes);
    if (!m->user) {
        clef__fail(m->ctx, CLEF_MEMORY, "%s: no memory for the layer's options", m->type);
        return NULL;
    }
    m->owns_user = true;
    if (options) memcpy(m->user, options, bytes);
    return m;
}

clef_module *clef__module_make(clef_context *ctx, const char *type, clef_forward_fn forward, const void *options, size_t bytes) {
    return with_options(clef_module_new(ctx, type, forward, NULL), options, bytes);
}

clef_module *clef__module_make_call(clef_context *ctx, const char *type, clef_call_fn call, const void *options, size_t bytes) {
    return with_options(clef_module_new_call(ctx, type, call, 0, 0, NULL), options, bytes);
}

/* ---- modes ---- */
static void set_mode(clef_module *module, void *training) {
    module->training = *(const bool *)training;
    module->own_mode = false;
}

void clef_set_training(clef_module *module, bool training) {
    clef__module_visit(module, set_mode, &training);
    if (module) module->own_mode = true;
}

bool clef__module_lead(clef_module *module, bool training) {
    bool was = module->training;
    module->training = training;
    for (int i = 0; i < module->n; i++) {
        const clef__entry *e = &module->entry[i];
        if (e->kind == CLEF__CHILD && !e->child->own_mode) clef__module_lead(e->child, training);
    }
    return was;
}

bool clef_is_training(const clef_module *module) {
    if (!module || module->frozen) return false;
    const clef__nn *nn = clef__room_state(module->ctx, CLEF__ROOM_NN);
    return module->training && !nn->inference;
}

void clef_recompute(clef_module *module, bool recomputed) {
    if (module) module->recompute = recomputed;
}
clef_context *clef_module_context(const clef_module *module) { return module ? module->ctx : NULL; }
const char *clef_module_type(const clef_module *module) { return module ? module->type : ""; }
