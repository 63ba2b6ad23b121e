/* clef/nn.h — modules: parameters, buffers and a forward function.

   A module belongs to its context and is freed with it.  Making one returns NULL when an argument does not fit or memory
   is short (clef_error has the line); a NULL module gives NULL results, so one check at the end is enough. */
#ifndef CLEF_NN_H
#define CLEF_NN_H
#include "ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct clef_module clef_module; /* owned by its context; freed with it */

/* y = module(x).  NULL if module or x is NULL or a layer fails. */
CLEF_API clef_tensor *clef_forward(clef_module *module, clef_tensor *x);

/* ---- containers ---- */
/* CLEF_LAYERS(a, b, …): the array and its length, for clef_sequential. */
#define CLEF_LAYERS(...)                                                                         \
    (clef_module *[]){__VA_ARGS__}, (int)(sizeof((clef_module *[]){__VA_ARGS__}) / sizeof(clef_module *))
/* Children are named "0", "1", …, as in PyTorch; a NULL child gives NULL. */
CLEF_API clef_module *clef_sequential(clef_context *ctx, clef_module *const *layers, int n);
/* y = activation(body(x) + shortcut(x)); shortcut NULL: x itself; relu: apply relu at the end. */
CLEF_API clef_module *clef_nn_residual(clef_context *ctx, clef_module *body, clef_module *shortcut, bool relu);
/* A module from a C function.  `user` is handed to forward; children, parameters and buffers can be registered. */
typedef clef_tensor *(*clef_forward_fn)(clef_module *module, clef_tensor *x, void *user);
CLEF_API clef_module *clef_module_new(clef_context *ctx, const char *type, clef_forward_fn forward, void *user);
/* Names must be new in the parent, not empty and without dots.  A child may have several parents (shared weights). */
CLEF_API clef_status clef_module_add(clef_module *parent, const char *name, clef_module *child);
/* Registers t under name: it is kept, belongs to the module from now on (do not release it) and, as a floating parameter,
   wants gradients. */
CLEF_API clef_status clef_module_add_parameter(clef_module *module, const char *name, clef_tensor *t);
/* The same for state that is saved but not trained. */
CLEF_API clef_status clef_module_add_buffer(clef_module *module, const char *name, clef_tensor *t);
/* The child of this name or dotted path ("layer1.0"); NULL if there is none. */
CLEF_API clef_module *clef_module_child(const clef_module *module, const char *name);

/* ---- layers; options NULL: PyTorch's defaults, its initial distributions too ---- */
/* x [.., in] → x·weightᵀ + bias [.., out]; weight [out,in], bias [out]. */
typedef struct clef_nn_options { bool no_bias; } clef_nn_options;
CLEF_API clef_module *clef_nn_linear(clef_context *ctx, int64_t in, int64_t out, const clef_nn_options *options);
typedef struct clef_nn_conv2d_options {
    clef_conv2d_options conv;
    bool no_bias;
    int kernel_w; /* 0: square */
} clef_nn_conv2d_options;
/* x [n,in,h,w] → [n,out,oh,ow] (see clef_conv2d); weight [out,in/groups,kernel,kernel_w], bias [out]. */
CLEF_API clef_module *clef_nn_conv2d(clef_context *ctx, int64_t in, int64_t out, int kernel, const clef_nn_conv2d_options *options);
CLEF_API clef_module *clef_nn_max_pool2d(clef_context *ctx, int kernel, const clef_pool2d_options *options);
CLEF_API clef_module *clef_nn_avg_pool2d(clef_context *ctx, int kernel, const clef_pool2d_options *options);
CLEF_API clef_module *clef_nn_adaptive_avg_pool2d(clef_context *ctx, int oh, int ow);
CLEF_API clef_module *clef_nn_global_avg_pool2d(clef_context *ctx); /* [n,c,h,w] → [n,c] */
typedef struct clef_nn_norm_options { double eps, momentum; bool no_affine; } clef_nn_norm_options; /* 0: 1e-5, 0.1 */
/* Per channel of [n,c,h,w]; buffers running_mean, running_var, num_batches_tracked (i64). */
CLEF_API clef_module *clef_nn_batch_norm2d(clef_context *ctx, int64_t channels, const clef_nn_norm_options *options);
/* Over the last dimensions, which must be `normalized`. */
CLEF_API clef_module *clef_nn_layer_norm(clef_context *ctx, clef_shape normalized, const clef_nn_norm_options *options);
/* In training: zero with probability p, the rest times 1/(1-p). */
CLEF_API clef_module *clef_nn_dropout(clef_context *ctx, double p);
/* Indices [..] → rows of weight [entries,width]: [..,width].  Starts as N(0,1). */
CLEF_API clef_module *clef_nn_embedding(clef_context *ctx, int64_t entries, int64_t width);
CLEF_API clef_module *clef_nn_flatten(clef_context *ctx); /* all but dimension 0 */
/* Any unary of clef/pointwise.h as a layer: clef_nn_activation(ctx, "gelu", clef_gelu). */
CLEF_API clef_module *clef_nn_activation(clef_context *ctx, const char *type, clef_tensor *(*f)(clef_tensor *));
CLEF_API clef_module *clef_nn_relu(clef_context *ctx);
CLEF_API clef_module *clef_nn_gelu(clef_context *ctx);
CLEF_API clef_module *clef_nn_silu(clef_context *ctx);
CLEF_API clef_module *clef_nn_sigmoid(clef_context *ctx);
CLEF_API clef_module *clef_nn_tanh(clef_context *ctx);
CLEF_API clef_module *clef_nn_softmax(clef_context *ctx, int dim);

/* ---- mode, parameters ---- */
CLEF_API void clef_train(clef_module *module);          /* dropout drops, batch norm uses the batch */
CLEF_API void clef_evaluation(clef_module *module);     /* inference */
CLEF_API bool clef_is_training(const clef_module *module);
CLEF_API clef_context *clef_module_context(const clef_module *module);
CLEF_API const char *clef_module_type(const clef_module *module);
/* Parameters and buffers of the whole tree, named and ordered as in a PyTorch state dict ("0.weight"): a module's parameters,
   its buffers, its children.  Names live until something is registered in this context. */
typedef struct clef_named_tensor { const char *name; clef_tensor *tensor; bool is_buffer; } clef_named_tensor;
CLEF_API int clef_module_tensors(const clef_module *module);
CLEF_API clef_named_tensor clef_module_tensor(const clef_module *module, int i);
CLEF_API clef_tensor *clef_parameter(const clef_module *module, const char *name); /* or buffer; NULL if none */
CLEF_API int64_t clef_parameter_count(const clef_module *module);                  /* elements; shared ones count once */
/* Frozen parameters want no gradient, so optimizers leave them alone. */
CLEF_API void clef_freeze(clef_module *module, bool frozen);
CLEF_API void clef_zero_grad(clef_module *module);

/* Layer, output shape, parameters, MACs and memory for an input of this shape, as text into `text` (snprintf's rules; -1 on
   failure).  In evaluation mode, on zeros (indices where the first layer is an embedding); nothing is computed. */
CLEF_API int clef_summary(clef_module *module, clef_shape input, char *text, size_t size);

/* ---- initialisers: assign a tensor in place (Philox of the context, so the same on every device) ----
   fan in = dim[1]·dim[2]·…, fan out = dim[0]·dim[2]·…; those that use them want 2 or more dimensions. */
CLEF_API clef_status clef_init_constant(clef_tensor *t, double value);
CLEF_API clef_status clef_init_uniform(clef_tensor *t, double low, double high); /* [low, high) */
CLEF_API clef_status clef_init_normal(clef_tensor *t, double mean, double std);
/* Uniform within ±gain·√(6/(in+out)); normal of deviation gain·√(2/(in+out)).  Glorot and Bengio, 2010. */
CLEF_API clef_status clef_init_xavier_uniform(clef_tensor *t, double gain);
CLEF_API clef_status clef_init_xavier_normal(clef_tensor *t, double gain);
/* Deviation √(2/((1+a²)·in)) for layers before a leaky relu of slope a.  He et al., 2015. */
CLEF_API clef_status clef_init_kaiming_uniform(clef_tensor *t, double a);
CLEF_API clef_status clef_init_kaiming_normal(clef_tensor *t, double a);
/* Orthonormal rows or columns of [dim[0], the rest], times gain.  Waits.  Saxe et al., 2014. */
CLEF_API clef_status clef_init_orthogonal(clef_tensor *t, double gain);

/* ---- models of the tool, for a [c,h,w] input and n classes ---- */
/* Linear 256, 128, n with relu between. */
CLEF_API clef_module *clef_model_mlp(clef_context *ctx, clef_shape input, int64_t classes);
/* Conv 6 of 5×5, relu, max-pool 2, conv 16 of 5×5, relu, max-pool 2, linear 120, 84, n with relu between.  Without padding;
   with 2 where a side is below 16 (which two valid 5×5 convolutions would use up); sides of at least 4. */
CLEF_API clef_module *clef_model_lenet(clef_context *ctx, clef_shape input, int64_t classes);
/* Conv 32 of 3×3, relu, max-pool 2, conv 64 of 3×3, relu, max-pool 2, linear n.  Without padding; with 1 where a side is
   below 10; sides of at least 4. */
CLEF_API clef_module *clef_model_cnn(clef_context *ctx, clef_shape input, int64_t classes);
/* ResNet-18 for small images: 3×3 stem, no stem pool; tensors are named as in torchvision ("layer1.0.conv1.weight"). */
CLEF_API clef_module *clef_model_resnet18(clef_context *ctx, clef_shape input, int64_t classes);

#ifdef __cplusplus
}
#endif
#endif
