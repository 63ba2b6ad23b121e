/* containers.c — modules that run other modules: sequential, residual.

   A sequential brings a value to where the next layer lies.  A layer without tensors of its own runs where its input is, and one whose
   tensors lie on several devices brings values along itself. */
#include "clef/pointwise.h"
#include "nn/module.h"
#include <stdio.h>

clef_tensor *clef__forward_sequential(clef_module *module, clef_tensor *x, void *user) {
    (void)user;
    for (int i = 0; i < module->n; i++)
        if (module->entry[i].kind == CLEF__CHILD) x = clef__forward_there(module->entry[i].child, x);
    return x;
}

bool clef__is_sequential(const clef_module *module) { return module->forward == clef__forward_sequential; }

int clef__sequential_layers(const clef_module *net, clef_module **layer) {
    int n = 0;
    for (int i = 0; i < net->n; i++) {
        if (net->entry[i].kind != CLEF__CHILD) continue;
        clef_module *child = net->entry[i].child;
        if (clef__is_sequential(child) && !child->recompute) n += clef__sequential_layers(child, layer ? layer + n : NULL);
        else {
            if (layer) layer[n] = child;
            n++;
        }
    }
    return n;
}

/* A sequential inside brings values to its own layers, so that those at its start without parameters follow their input too. */
clef_tensor *clef__forward_there(clef_module *layer, clef_tensor *x) {
    if (clef__context_devices(layer->ctx) == 1 || clef__is_sequential(layer)) return clef_forward(layer, x);
    int device = clef__module_device(layer);
    return clef_forward(layer, device < 0 ? x : clef_to_device(x, device));
}

clef_module *clef_sequential(clef_context *ctx, clef_module *const *layers, int n) {
    if (n < 0 || (n > 0 && !layers)) return clef__module_refuse(ctx, "sequential: %d layers in a NULL array", n);
    for (int i = 0; i < n; i++)
        if (!layers[i]) return clef__module_refuse(ctx, "sequential: layer %d is NULL", i);
    clef_module *m = clef__module_make(ctx, "sequential", clef__forward_sequential, NULL, 0);
    for (int i = 0; m && i < n; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        if (!clef__attach(m, name, layers[i])) return NULL;
    }
    return m;
}

/* The children are asked for by name: they may have been replaced. */
static clef_tensor *forward_residual(clef_module *module, clef_tensor *x, void *user) {
    const bool *relu = user;
    clef_module *shortcut = clef__own_child(module, "shortcut");
    clef_tensor *y = clef_add(clef__forward_child(module, "body", x), shortcut ? clef_forward(shortcut, x) : x);
    return *relu ? clef_relu(y) : y;
}

clef_module *clef_nn_residual(clef_context *ctx, clef_module *body, clef_module *shortcut, bool relu) {
    if (!body) return clef__module_refuse(ctx, "residual: body is NULL");
    clef_module *m = clef__module_make(ctx, "residual", forward_residual, &relu, sizeof relu);
    if (!clef__attach(m, "body", body)) return NULL;
    if (shortcut && !clef__attach(m, "shortcut", shortcut)) return NULL;
    return m;
}
