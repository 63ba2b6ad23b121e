/* module.c — making modules, the tree, forward, modes.

   Invariants: names within a module are unique, not empty and without dots; the tree has no cycles; all of a tree lives in
   one context. */
#include "nn/module.h"
#include "ops/ops.h"
#include "runtime/guess.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void free_module(clef_module *m) {
    for (int i = 0; i < m->n; i++) clef__free(m->entry[i].name);
    for (int i = 0; i < m->n_flat; i++) clef__free((char *)m->flat[i].name);
    if (m->owns_user) clef__free(m->user);
    clef__free(m->entry);
    clef__free(m->flat);
    clef__free(m->type);
    clef__free(m);
}

/* The tensors are in the context's list of kept ones and go with the graph room. */
static void close_room(clef_context *ctx, void *state) {
    (void)ctx;
    clef__nn *nn = state;
    for (clef_module *m = nn->first, *next; m; m = next) {
        next = m->next;
        free_module(m);
    }
    clef__free(nn);
}

/* The room's state, made when first asked for; NULL when out of memory. */
static clef__nn *nn_of(clef_context *ctx) {
    clef__nn *nn = clef__make_room_state(ctx, CLEF__ROOM_NN, sizeof *nn, close_room);
    if (nn && nn->version == 0) nn->version = 1;
    return nn;
}

clef_status clef__nn_observe(clef_context *ctx, clef__observer observer, void *user) {
    clef__nn *nn = nn_of(ctx);
    if (!nn) return CLEF_MEMORY;
    nn->observer = observer;
    nn->observer_user = user;
    return CLEF_OK;
}

bool clef__nn_inference(clef_context *ctx, bool on) {
    clef__nn *nn = nn_of(ctx);
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

clef_module *clef_module_new(clef_context *ctx, const char *type, clef_forward_fn forward, void *user) {
    if (!ctx) return NULL;
    if (!type || !forward) return clef__module_refuse(ctx, "module_new: type and forward must not be NULL");
    clef__nn *nn = nn_of(ctx);
    if (!nn) return NULL;
    clef_module *m = clef__calloc(1, sizeof *m);
    char *name = clef__strdup(type);
    if (!m || !name) {
        clef__free(m);
        clef__free(name);
        clef__fail(ctx, CLEF_MEMORY, "module_new: no memory for a module of type %s", type);
        return NULL;
    }
    *m = (clef_module){.ctx = ctx, .type = name, .forward = forward, .user = user, .training = true, .next = nn->first};
    nn->first = m;
    return m;
}

clef_module *clef__module_make(clef_context *ctx, const char *type, clef_forward_fn forward, const void *options, size_t bytes) {
    clef_module *m = clef_module_new(ctx, type, forward, NULL);
    if (!m || !bytes) return m;
    m->user = clef__calloc(1, bytes);
    if (!m->user) {
        clef__fail(ctx, CLEF_MEMORY, "%s: no memory for the layer's options", type);
        return NULL;
    }
    m->owns_user = true;
    if (options) memcpy(m->user, options, bytes);
    return m;
}

/* ---- registration ---- */
static clef__entry *find_entry(const clef_module *m, const char *name, size_t length) {
    for (int i = 0; i < m->n; i++)
        if (strlen(m->entry[i].name) == length && !memcmp(m->entry[i].name, name, length)) return &m->entry[i];
    return NULL;
}

static clef_status check_name(const clef_module *m, const char *name) {
    if (!name || !*name || strchr(name, '.'))
        return clef__fail(m->ctx, CLEF_INVALID, "%s: the name \"%s\" is empty or has a dot in it", m->type, name ? name : "");
    if (find_entry(m, name, strlen(name)))
        return clef__fail(m->ctx, CLEF_INVALID, "%s: there is already something named \"%s\"", m->type, name);
    return CLEF_OK;
}

static clef_status add_entry(clef_module *m, const char *name, clef__entry entry) {
    clef_status status = check_name(m, name);
    if (status) return status;
    clef__nn *nn = nn_of(m->ctx);
    if (!nn) return CLEF_MEMORY;
    entry.name = clef__grow(&m->entry, m->n, &m->capacity, sizeof entry) ? clef__strdup(name) : NULL;
    if (!entry.name) return clef__fail(m->ctx, CLEF_MEMORY, "%s: no memory to register \"%s\"", m->type, name);
    m->entry[m->n++] = entry;
    nn->version++;
    return CLEF_OK;
}

static bool contains(const clef_module *tree, const clef_module *wanted) {
    if (tree == wanted) return true;
    for (int i = 0; i < tree->n; i++)
        if (tree->entry[i].kind == CLEF__CHILD && contains(tree->entry[i].child, wanted)) return true;
    return false;
}

clef_status clef_module_add(clef_module *parent, const char *name, clef_module *child) {
    if (!parent) return CLEF_INVALID;
    if (!child) return clef__fail(parent->ctx, CLEF_INVALID, "%s: child \"%s\" is NULL", parent->type, name ? name : "");
    if (child->ctx != parent->ctx)
        return clef__fail(parent->ctx, CLEF_INVALID, "%s: child \"%s\" belongs to another context", parent->type, name ? name : "");
    if (contains(child, parent))
        return clef__fail(parent->ctx, CLEF_INVALID, "%s: child \"%s\" would contain itself", parent->type, name ? name : "");
    return add_entry(parent, name, (clef__entry){.kind = CLEF__CHILD, .child = child});
}

static clef_status add_tensor(clef_module *m, const char *name, clef_tensor *t, clef__entry_kind kind) {
    if (!m) return CLEF_INVALID;
    if (!t) return clef__fail(m->ctx, CLEF_INVALID, "%s: tensor \"%s\" is NULL", m->type, name ? name : "");
    if (!clef__given(m->ctx, m->type, "t", &t, 1)) return CLEF_INVALID;
    if (clef_tensor_context(t) != m->ctx)
        return clef__fail(m->ctx, CLEF_INVALID, "%s: tensor \"%s\" belongs to another context", m->type, name ? name : "");
    clef_status status = add_entry(m, name, (clef__entry){.kind = kind, .tensor = t});
    if (status) return status;
    clef__own(t);
    if (kind == CLEF__PARAMETER && clef__is_float(clef_tensor_dtype(t))) clef_require_grad(t, true);
    return CLEF_OK;
}

clef_status clef_module_add_parameter(clef_module *module, const char *name, clef_tensor *t) {
    return add_tensor(module, name, t, CLEF__PARAMETER);
}

clef_status clef_module_add_buffer(clef_module *module, const char *name, clef_tensor *t) {
    return add_tensor(module, name, t, CLEF__BUFFER);
}

clef_tensor *clef__new_parameter(clef_module *module, const char *name, clef_shape shape) {
    clef_tensor *t = clef_zeros(module->ctx, shape, CLEF_F32);
    return t && clef_module_add_parameter(module, name, t) == CLEF_OK ? t : NULL;
}

clef_tensor *clef__new_buffer(clef_module *module, const char *name, clef_shape shape, clef_dtype dtype, double value) {
    clef_tensor *t = clef_full(module->ctx, shape, dtype, value);
    return t && clef_module_add_buffer(module, name, t) == CLEF_OK ? t : NULL;
}

clef_module *clef__attach(clef_module *parent, const char *name, clef_module *child) {
    return parent && child && clef_module_add(parent, name, child) == CLEF_OK ? child : NULL;
}

/* The child of this dotted path; NULL if there is none, and then *at is the module whose child `*rest` is not. */
static clef_module *walk(const clef_module *module, const char *name, const clef_module **at, const char **rest) {
    for (;;) {
        size_t length = strcspn(name, ".");
        const clef__entry *e = find_entry(module, name, length);
        *at = module;
        *rest = name;
        if (!e || e->kind != CLEF__CHILD) return NULL;
        if (!name[length]) return e->child;
        module = e->child;
        name += length + 1;
    }
}

clef_module *clef_module_child(const clef_module *module, const char *name) {
    const clef_module *at;
    const char *rest;
    if (!module) return NULL;
    clef_module *child = walk(module, name ? name : "", &at, &rest);
    if (child) return child;
    char word[64];
    snprintf(word, sizeof word, "%.*s", (int)strcspn(rest, "."), rest);
    clef__guess guess = {.word = word};
    for (int i = 0; i < at->n; i++)
        if (at->entry[i].kind == CLEF__CHILD) clef__guess_offer(&guess, at->entry[i].name);
    clef__fail(module->ctx, CLEF_INVALID, "module_child: \"%s\" leads to no module: a %s there has no child \"%s\"%s",
               name ? name : "", at->type, word, clef__guess_hint(&guess));
    return NULL;
}

bool clef_module_has(const clef_module *module, const char *name) {
    const clef_module *at;
    const char *rest;
    if (!module || !name) return false;
    return walk(module, name, &at, &rest) || find_entry(at, rest, strlen(rest));
}

/* ---- running ---- */
clef_tensor *clef_forward(clef_module *module, clef_tensor *x) {
    if (!module || !clef__given(module->ctx, "forward", "x", &x, 1)) return NULL;
    clef__checkpointed_segment *segment = module->recompute ? clef__checkpointed_segment_begin(module->ctx) : NULL;
    clef_tensor *y = module->forward(module, x, module->user);
    clef__checkpointed_segment_end(module->ctx, segment);
    const clef__nn *nn = clef__room_state(module->ctx, CLEF__ROOM_NN);
    if (y && nn && nn->observer) nn->observer(nn->observer_user, module, x, y);
    return y;
}

void clef__module_visit(clef_module *module, void (*visit)(clef_module *, void *), void *user) {
    if (!module) return;
    visit(module, user);
    for (int i = 0; i < module->n; i++)
        if (module->entry[i].kind == CLEF__CHILD) clef__module_visit(module->entry[i].child, visit, user);
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
