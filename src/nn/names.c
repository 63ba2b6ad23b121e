/* names.c — the tensors of a whole tree with their dotted names, and what is done to all of them.

   Order, as in a PyTorch state dict: a module's parameters, its buffers, then its children, each in registration order. */
#include "nn/module.h"
#include "ops/ops.h"
#include "runtime/guess.h"
#include <stdio.h>
#include <string.h>

static int count_tensors(const clef_module *m) {
    int n = 0;
    for (int i = 0; i < m->n; i++) n += m->entry[i].kind == CLEF__CHILD ? count_tensors(m->entry[i].child) : 1;
    return n;
}

static bool add_flat(clef_module *root, const char *prefix, const clef__entry *e) {
    char *name = clef__asprintf("%s%s", prefix, e->name);
    if (!name) return false;
    root->flat[root->n_flat++] = (clef_named_tensor){.name = name, .tensor = e->tensor, .is_buffer = e->kind == CLEF__BUFFER};
    return true;
}

static bool flatten(clef_module *root, const clef_module *m, const char *prefix) {
    for (int kind = CLEF__PARAMETER; kind <= CLEF__BUFFER; kind++)
        for (int i = 0; i < m->n; i++)
            if ((int)m->entry[i].kind == kind && !add_flat(root, prefix, &m->entry[i])) return false;
    for (int i = 0; i < m->n; i++) {
        if (m->entry[i].kind != CLEF__CHILD) continue;
        char *below = clef__asprintf("%s%s.", prefix, m->entry[i].name);
        bool done = below && flatten(root, m->entry[i].child, below);
        clef__free(below);
        if (!done) return false;
    }
    return true;
}

static void forget(clef_module *m) {
    for (int i = 0; i < m->n_flat; i++) clef__free((char *)m->flat[i].name);
    clef__free(m->flat);
    m->flat = NULL;
    m->n_flat = 0;
    m->flat_version = 0;
}

/* The list is a cache inside the module, so it is filled through a const handle too. */
static bool refresh(const clef_module *module) {
    clef_module *m = (clef_module *)module;
    const clef__nn *nn = clef__room_state(m->ctx, CLEF__ROOM_NN);
    if (m->flat_version == nn->version) return true;
    forget(m);
    int n = count_tensors(m);
    m->flat = clef__calloc(n ? (size_t)n : 1, sizeof *m->flat);
    if (!m->flat || !flatten(m, m, "")) {
        forget(m);
        clef__fail(m->ctx, CLEF_MEMORY, "%s: no memory for the names of %d tensors", m->type, n);
        return false;
    }
    m->flat_version = nn->version;
    return true;
}

int clef_module_tensors(const clef_module *module) { return module && refresh(module) ? module->n_flat : 0; }

clef_named_tensor clef_module_tensor(const clef_module *module, int i) {
    if (i < 0 || i >= clef_module_tensors(module)) return (clef_named_tensor){0};
    return module->flat[i];
}

static void refuse_name(const clef_module *module, const char *name, int n) {
    clef__guess guess = {.word = name};
    for (int i = 0; i < n; i++) clef__guess_offer(&guess, module->flat[i].name);
    clef__fail(module->ctx, CLEF_INVALID, "parameter: the %s has no parameter or buffer \"%s\"%s", module->type, name,
               clef__guess_hint(&guess));
}

clef_tensor *clef_parameter(const clef_module *module, const char *name) {
    int n = name ? clef_module_tensors(module) : 0;
    for (int i = 0; i < n; i++)
        if (!strcmp(module->flat[i].name, name)) return module->flat[i].tensor;
    if (module) refuse_name(module, name ? name : "", n);
    return NULL;
}

/* True where tensor i already came under an earlier name. */
static bool seen_before(const clef_module *m, int i) {
    for (int j = 0; j < i; j++)
        if (m->flat[j].tensor == m->flat[i].tensor) return true;
    return false;
}

int64_t clef_parameter_count(const clef_module *module) {
    int64_t total = 0;
    int n = clef_module_tensors(module);
    for (int i = 0; i < n; i++)
        if (!module->flat[i].is_buffer && !seen_before(module, i)) total += clef_numel(module->flat[i].tensor);
    return total;
}

bool clef__module_path(const clef_module *root, const clef_module *wanted, char *path, size_t size) {
    if (root == wanted) return true;
    size_t length = strlen(path);
    for (int i = 0; i < root->n; i++) {
        if (root->entry[i].kind != CLEF__CHILD) continue;
        snprintf(path + length, size - length, "%s%s", length ? "." : "", root->entry[i].name);
        if (clef__module_path(root->entry[i].child, wanted, path, size)) return true;
    }
    path[length] = 0;
    return false;
}

static void set_frozen(clef_module *module, void *frozen) { module->frozen = *(const bool *)frozen; }

void clef_freeze(clef_module *module, bool frozen) {
    clef__module_visit(module, set_frozen, &frozen);
    int n = clef_module_tensors(module);
    for (int i = 0; i < n; i++) {
        clef_tensor *t = module->flat[i].tensor;
        if (module->flat[i].is_buffer || !clef__is_float(clef_tensor_dtype(t))) continue;
        if (frozen) clef_set_grad(t, CLEF_NONE);
        clef_require_grad(t, !frozen);
    }
}

int clef__module_device(const clef_module *module) {
    int n = clef_module_tensors(module), device = n ? clef_tensor_device(module->flat[0].tensor) : -1;
    for (int i = 1; i < n; i++)
        if (clef_tensor_device(module->flat[i].tensor) != device) return -1;
    return device;
}

clef_status clef_module_to(clef_module *module, int device) {
    if (!module) return CLEF_INVALID;
    if (!clef__check_device(module->ctx, "module_to", device)) return CLEF_INVALID;
    int n = clef_module_tensors(module);
    if (n == 0 || clef__module_device(module) == device) return CLEF_OK;
    clef_tensor **t = clef__alloc((size_t)n * sizeof *t);
    if (!t) return clef__fail(module->ctx, CLEF_MEMORY, "module_to: no host memory for %d tensors", n);
    for (int i = 0; i < n; i++) t[i] = module->flat[i].tensor;
    clef_status status = clef__move(module->ctx, t, n, device);
    clef__free(t);
    return status;
}

void clef_zero_grad(clef_module *module) {
    int n = clef_module_tensors(module);
    for (int i = 0; i < n; i++)
        if (!module->flat[i].is_buffer) clef_set_grad(module->flat[i].tensor, CLEF_NONE);
}
