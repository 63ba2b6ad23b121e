/* module.h — inside the nn room: what a module is, and how layers are made.

   A module owns its name table (parameters, buffers, children) and, for built-in layers, a copy of its options; the
   context owns all modules.  Parameters and buffers are kept tensors.  A child may be registered in several parents
   (weight sharing), but never below itself. */
#ifndef CLEF_NN_MODULE_H
#define CLEF_NN_MODULE_H
#include "clef/nn.h"
#include "ops/ops.h"
#include "runtime/runtime.h"

typedef enum clef__entry_kind { CLEF__PARAMETER, CLEF__BUFFER, CLEF__CHILD } clef__entry_kind;

typedef struct clef__entry {
    char *name;
    clef__entry_kind kind;
    union {
        clef_tensor *tensor;
        clef_module *child;
    };
} clef__entry;

/* What sees a module's inputs and outputs; id 0: removed, and gone as soon as the module is not running. */
typedef struct clef__hook {
    int64_t id;
    clef_hook hook;
} clef__hook;

struct clef_module {
    clef_context *ctx;
    char *type;
    clef_forward_fn forward; /* y from x; NULL: */
    clef_call_fn call;       /* outputs from inputs */
    int n_inputs, n_outputs; /* that it takes and gives; 0: any number */
    void *user;
    bool owns_user;                  /* a built-in layer's options */
    struct clef__language *language; /* of a language model's root, its `user`; NULL: it is none */
    bool training;
    bool own_mode; /* set on this module by itself, and not on one above it since */
    bool frozen;
    bool recompute;
    void *shard; /* a block of the parallel room's: how its tensors are cut over a group; NULL: they are whole */
    clef__entry *entry;
    int n, capacity;
    clef__hook *hook;
    int n_hooks, hook_capacity, running; /* running: runs of it that have begun and not ended */
    /* The tree's tensors with full names, made when first asked for and again after any tree of the context changed. */
    clef_named_tensor *flat;
    int n_flat;
    uint64_t flat_version;
    clef_module *next; /* in the context's list */
};

/* One run of a module: what goes in and what came out. */
typedef struct clef__run {
    clef_module *module;
    clef_tensor *const *input;
    int n_inputs;
    clef_tensor **output;
    int n_outputs;
} clef__run;

/* A module that is running, in one that runs it.  It lies on the stack of the function that runs it. */
typedef struct clef__frame {
    const clef_module *module;
    struct clef__frame *outer; /* NULL: the program runs it */
} clef__frame;

/* Called after each run of a module, inner modules first. */
typedef void (*clef__observer)(void *user, const clef__run *run);

typedef struct clef__nn {
    clef_module *first;
    uint64_t version; /* raised by every change of a tree */
    int64_t last_hook;
    clef__observer observer;
    void *observer_user;
    bool inference;     /* all modules are in evaluation mode, whatever was set */
    clef__frame *frame; /* the innermost module that is running; NULL: none is */
    struct clef_generator *generators;
} clef__nn;

/* The room's state, made when first asked for; NULL when out of memory. */
clef__nn *clef__nn_of(clef_context *ctx);
/* generator.c: when the context closes; tensors are freed elsewhere. */
void clef__free_generators(clef__nn *nn);
/* call.c: between these two, errors are those of a layer of this module; leave before the frame goes. */
void clef__enter(clef_module *module, clef__frame *frame);
void clef__leave(const clef__frame *frame);
/* Writes "; in layer "3.body.0" (conv2d)", which is running; nothing where it is the outermost module itself. */
void clef__say_layer(clef_context *ctx, char *text, size_t size);
/* Reports every run of a module of this context to observer until called with NULL. */
clef_status clef__nn_observe(clef_context *ctx, clef__observer observer, void *user);
/* While on, every module of the context is in evaluation mode; what was set on each comes back after it.  Returns what was. */
bool clef__nn_inference(clef_context *ctx, bool on);
/* Sets the mode of a module and of what lies below it, but not of what has a mode set on it by itself; returns the module's own
   former one. */
bool clef__module_lead(clef_module *module, bool training);

/* sync_norm.c: the statistics of all ranks of a group, for clef__batch_norm; all ranks call it. */
bool clef__statistics_of_ranks(void *group, clef_tensor *wide, clef__statistics *s);

/* A module whose `user` is its own zeroed or copied block of `bytes` (options NULL: zeroed). */
clef_module *clef__module_make(clef_context *ctx, const char *type, clef_forward_fn forward, const void *options, size_t bytes);
/* The same with a function for several inputs, which it counts itself. */
clef_module *clef__module_make_call(clef_context *ctx, const char *type, clef_call_fn call, const void *options, size_t bytes);
/* A registered parameter of zeros for an initialiser to fill. */
clef_tensor *clef__new_parameter(clef_module *module, const char *name, clef_shape shape);
/* A registered buffer filled with one value. */
clef_tensor *clef__new_buffer(clef_module *module, const char *name, clef_shape shape, clef_dtype dtype, double value);
/* Fails with "type: <fmt>" and returns NULL. */
clef_module *clef__module_refuse(clef_context *ctx, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The module's own child of this name; NULL if there is none. */
clef_module *clef__own_child(const clef_module *module, const char *name);
/* clef_forward of it; NULL with a line if it is not there (any more). */
clef_tensor *clef__forward_child(clef_module *module, const char *name, clef_tensor *x);
/* The forward of clef_sequential: the module's children, one after the other. */
clef_tensor *clef__forward_sequential(clef_module *module, clef_tensor *x, void *user);
/* Is its forward that of clef_sequential?  Then its children may lie on different devices. */
bool clef__is_sequential(const clef_module *module);
/* The layers that a clef_sequential can be cut between: its children and those of a clef_sequential inside.  One that recomputes is a
   layer itself: its inside is no memory that stays.  Returns how many; layer: is filled with them unless NULL. */
int clef__sequential_layers(const clef_module *net, clef_module **layer);
/* place_auto.c: what a training step of each takes with this input, by nominal facts of the device that it lies on. */
clef_status clef__layer_seconds(clef_module *net, clef_tensor *input, double *seconds);
/* The device that all tensors of the tree lie on; -1: there are none, or they lie on several. */
int clef__module_device(const clef_module *module);
/* clef_forward as a layer of a sequential: x is brought to the layer's device. */
clef_tensor *clef__forward_there(clef_module *layer, clef_tensor *x);
/* Registers and returns child; NULL if parent or child is NULL or the registration fails. */
clef_module *clef__attach(clef_module *parent, const char *name, clef_module *child);
/* Calls visit on module and everything below it, parents first. */
void clef__module_visit(clef_module *module, void (*visit)(clef_module *, void *), void *user);
/* What a layer with a weight is made of, for those that can be cut into shards.  False: it is none of them. */
typedef enum clef__layer_kind { CLEF__LINEAR, CLEF__EMBEDDING, CLEF__CONV2D } clef__layer_kind;
typedef struct clef__layer {
    clef__layer_kind kind;
    clef_tensor *weight, *bias; /* bias: CLEF_NONE where there is none */
    clef_conv2d_options conv;
    bool transposed; /* a linear whose weight is [in,out] */
    int blocks; /* of a linear's outputs, equally wide and each to be cut by itself, such as queries, keys and values; 0: one */
} clef__layer;
bool clef__layer_of(const clef_module *module, clef__layer *layer);
bool clef__conv2d_of(const clef_module *module, clef__layer *layer);     /* the part of it that layers_conv.c knows */
bool clef__projection_of(const clef_module *module, clef__layer *layer); /* and that language.c knows */
/* Appends the dotted name of `wanted` below root to path, as far as there is room; false, path as it was, where it is not below. */
bool clef__module_path(const clef_module *root, const clef_module *wanted, char *path, size_t size);
/* 1536 → "1.5 KiB". */
const char *clef__human(char out[40], double bytes);
/* PyTorch's default bias, U(-1/√fan_in, 1/√fan_in); does nothing for CLEF_NONE. */
clef_status clef__init_bias(clef_tensor *bias, int64_t fan_in);
#endif
