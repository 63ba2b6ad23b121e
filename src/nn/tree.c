/* tree.c — what a module holds: its children, parameters and buffers.

   Invariants: names within a module are unique, not empty and without dots; the tree has no cycles; all of a tree lives in
   one context. */
#include "nn/module.h"
#include "ops/ops.h"
#include "runtime/guess.h"
#include <stdio.h>
#include <string.h>

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
    clef__nn *nn = clef__nn_of(m->ctx);
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

/* May parent hold child under this name? */
static clef_status check_child(const clef_module *parent, const char *name, const clef_module *child) {
    clef_context *ctx = parent->ctx;
    if (!child) return clef__fail(ctx, CLEF_INVALID, "%s: child \"%s\" is NULL", parent->type, name ? name : "");
    if (child->ctx != ctx)
        return clef__fail(ctx, CLEF_INVALID, "%s: child \"%s\" belongs to another context", parent->type, name ? name : "");
    if (contains(child, parent))
        return clef__fail(ctx, CLEF_INVALID, "%s: child \"%s\" would contain itself", parent->type, name ? name : "");
    return CLEF_OK;
}

clef_status clef_module_add(clef_module *parent, const char *name, clef_module *child) {
    if (!parent) return CLEF_INVALID;
    clef_status status = check_child(parent, name, child);
    return status ? status : add_entry(parent, name, (clef__entry){.kind = CLEF__CHILD, .child = child});
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

clef_module *clef__own_child(const clef_module *module, const char *name) {
    const clef__entry *e = find_entry(module, name, strlen(name));
    return e && e->kind == CLEF__CHILD ? e->child : NULL;
}

/* walk, with a line in op's name where there is none. */
static clef_module *find_child(const clef_module *module, const char *op, const char *name, const clef_module **at,
                               const char **rest) {
    clef_module *child = walk(module, name, at, rest);
    if (child) return child;
    char word[64];
    snprintf(word, sizeof word, "%.*s", (int)strcspn(*rest, "."), *rest);
    clef__guess guess = {.word = word};
    for (int i = 0; i < (*at)->n; i++)
        if ((*at)->entry[i].kind == CLEF__CHILD) clef__guess_offer(&guess, (*at)->entry[i].name);
    clef__fail(module->ctx, CLEF_INVALID, "%s: \"%s\" leads to no module: a %s there has no child \"%s\"%s", op, name, (*at)->type,
               word, clef__guess_hint(&guess));
    return NULL;
}

clef_module *clef_module_child(const clef_module *module, const char *name) {
    const clef_module *at;
    const char *rest;
    return module ? find_child(module, "module_child", name ? name : "", &at, &rest) : NULL;
}

clef_status clef_module_replace(clef_module *parent, const char *name, clef_module *child) {
    const clef_module *at;
    const char *rest;
    if (!parent) return CLEF_INVALID;
    if (!find_child(parent, "module_replace", name ? name : "", &at, &rest)) return CLEF_INVALID;
    clef_status status = check_child(at, rest, child);
    if (status) return status;
    find_entry(at, rest, strlen(rest))->child = child;
    clef__nn_of(parent->ctx)->version++;
    return CLEF_OK;
}

clef_status clef_module_remove(clef_module *parent, const char *name) {
    const clef_module *at;
    const char *rest;
    if (!parent) return CLEF_INVALID;
    if (!find_child(parent, "module_remove", name ? name : "", &at, &rest)) return CLEF_INVALID;
    clef_module *holder = (clef_module *)at; /* of the same tree as parent */
    clef__entry *e = find_entry(holder, rest, strlen(rest));
    clef__free(e->name);
    memmove(e, e + 1, (size_t)(holder->entry + --holder->n - e) * sizeof *e);
    clef__nn_of(parent->ctx)->version++;
    return CLEF_OK;
}

bool clef_module_has(const clef_module *module, const char *name) {
    const clef_module *at;
    const char *rest;
    if (!module || !name) return false;
    return walk(module, name, &at, &rest) || find_entry(at, rest, strlen(rest));
}

void clef__module_visit(clef_module *module, void (*visit)(clef_module *, void *), void *user) {
    if (!module) return;
    visit(module, user);
    for (int i = 0; i < module->n; i++)
        if (module->entry[i].kind == CLEF__CHILD) clef__module_visit(module->entry[i].child, visit, user);
}
