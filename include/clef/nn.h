/* clef/nn.h — modules: parameters, buffers and a forward function.

   A module belongs to its context and is freed with it.  Making one returns NULL when an argument does not
   fit or memory is short (clef_error has the line); a NULL module gives NULL results, so one check at the end
   is enough. */
#ifndef CLEF_NN_H
#define CLEF_NN_H
#include "group.h"
#include "ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct clef_module clef_module; /* owned by its context; freed with it */

/* y = module(x), a temporary.  NULL if module or x is NULL or a layer fails; the context's line then names
   the op, and the layer by its path where it is one inside of module:
       linear: x has 6 features but w wants 4 (x [8,6], w [2,4]); in layer "3.body.0" (linear)
   A layer that is in the module twice has the first of its names there.
       clef_tensor *logits = clef_forward(net, b.x);  */
CLEF_API clef_tensor *clef_forward(clef_module *module, clef_tensor *x);
/* The most inputs, and the most outputs, of one call of a module. */
enum { CLEF_CALL_MOST = 256 };
/* outputs[0 … m-1] = module(inputs[0 … n-1]), temporaries.  n = m = 1: clef_forward, which every module has.  A module of
   clef_module_new_call is given CLEF_NONE too, for inputs that it does without; others want tensors.  outputs must not lie over
   inputs.  After a failure all outputs are NULL: CLEF_INVALID if the module does not have so many inputs or outputs, or left an
   output NULL; else what went wrong inside.
       clef_tensor *out[2];
       clef_call(net, (clef_tensor *[]){words, times}, 2, out, 2);  */
CLEF_API clef_status clef_call(clef_module *module, clef_tensor *const *inputs, int n, clef_tensor **outputs, int m);

/* ---- containers ---- */
/* CLEF_LAYERS(a, b, …): the array and its length, for clef_sequential. */
#ifdef __cplusplus
#define CLEF_LAYERS(...) \
    std::initializer_list<clef_module *> { __VA_ARGS__ }
#else
#define CLEF_LAYERS(...) (clef_module *[]){__VA_ARGS__}, (int)(sizeof((clef_module *[]){__VA_ARGS__}) / sizeof(clef_module *))
#endif
/* y = the n layers applied one after the other, each where its parameters lie (clef_module_to).  Children are named "0", "1", …, as in
   PyTorch; a NULL child gives NULL.
       clef_sequential(ctx, CLEF_LAYERS(clef_nn_linear(ctx, 8, 4, NULL), clef_nn_relu(ctx)))  */
CLEF_API clef_module *clef_sequential(clef_context *ctx, clef_module *const *layers, int n);
/* y = body(x) + shortcut(x), shortcut NULL: x itself; then relu if asked.  Children "body" and "shortcut".
   He et al., "Deep residual learning for image recognition", 2015. */
CLEF_API clef_module *clef_nn_residual(clef_context *ctx, clef_module *body, clef_module *shortcut, bool relu);
/* What a module does: y from x; NULL is a failure.  `user` is what clef_module_new was given. */
typedef clef_tensor *(*clef_forward_fn)(clef_module *module, clef_tensor *x, void *user);
/* A module from a C function; children, parameters and buffers can be registered.  type, which is copied, is
   its word in clef_summary; user must live as long as the context.
   forward NULL: it only holds what is registered in it (clef_forward: CLEF_INVALID), so that optimizers, clef_save and checkpoints take
   tensors that are no layer's: an image that is sought, say, as in examples/20_inverse.c.
       clef_module *sought = clef_module_new(ctx, "parameters", NULL, NULL);
       clef_module_add_parameter(sought, "image", x);
       clef_optimizer *opt = clef_adam(sought, NULL);  */
CLEF_API clef_module *clef_module_new(clef_context *ctx, const char *type, clef_forward_fn forward, void *user);
/* The same with several inputs and outputs: fills outputs[0 … m-1], which are NULL at first, from inputs[0 … n-1], of which
   some may be CLEF_NONE; anything but CLEF_OK is a failure. */
typedef clef_status (*clef_call_fn)(clef_module *module, clef_tensor *const *inputs, int n, clef_tensor **outputs, int m,
                                    void *user);
/* A module from such a function, which clef_call runs, and clef_forward where one input and one output will do.  n_inputs,
   n_outputs: how many it takes and gives, up to CLEF_CALL_MOST; 0: any number, which the function looks at itself.  The rest is as
   with clef_module_new.
       clef_module *pair = clef_module_new_call(ctx, "pair", call_pair, 2, 2, NULL);  */
CLEF_API clef_module *clef_module_new_call(clef_context *ctx, const char *type, clef_call_fn call, int n_inputs, int n_outputs,
                                           void *user);
/* Registers a child under a name that is new in the parent, not empty and without dots (CLEF_INVALID).  A
   child may have several parents (shared weights), but not contain itself. */
CLEF_API clef_status clef_module_add(clef_module *parent, const char *name, clef_module *child);
/* Registers t under such a name: it belongs to the module and lives as long from now on, kept or not, and, as a
   floating parameter, wants gradients. */
CLEF_API clef_status clef_module_add_parameter(clef_module *module, const char *name, clef_tensor *t);
/* The same for state that is saved but not trained (running statistics, say). */
CLEF_API clef_status clef_module_add_buffer(clef_module *module, const char *name, clef_tensor *t);
/* The child of this name or dotted path ("layer1.0"); NULL and CLEF_INVALID if there is none. */
CLEF_API clef_module *clef_module_child(const clef_module *module, const char *name);
/* Puts child in the place of the child of this name or dotted path, under the same name.  The old one is nobody's child then (or
   that of its other parents) and lives on with its context.  CLEF_INVALID if there is none, or child would contain itself.  An
   optimizer goes on with the parameters it was made of: those that no loss depends on any more get no gradient and stay as they
   are, and new ones want an optimizer that is made after this.
       clef_module_replace(net, "fc", clef_nn_linear(ctx, 512, 100, NULL));  */
CLEF_API clef_status clef_module_replace(clef_module *parent, const char *name, clef_module *child);
/* Takes the child of this name or dotted path out of the tree, as clef_module_replace does.  A clef_sequential goes on with its
   other layers, a residual block without its shortcut; other modules fail when they come to a child that is missing. */
CLEF_API clef_status clef_module_remove(clef_module *parent, const char *name);
/* Is there a child, parameter or buffer of this name or dotted path?  Never an error; false for NULL. */
CLEF_API bool clef_module_has(const clef_module *module, const char *name);

/* ---- hooks: functions that see what goes into a module and comes out of it ---- */
/* Either may be NULL.  before is called with the inputs when the module is about to run, after with inputs and outputs when it has
   run and nothing failed.  They may make other tensors, but change none of these; anything but CLEF_OK makes the run fail.  Inputs
   may be CLEF_NONE where the module takes that. */
typedef struct clef_hook {
    clef_status (*before)(clef_module *module, clef_tensor *const *inputs, int n, void *user);
    clef_status (*after)(clef_module *module, clef_tensor *const *inputs, int n, clef_tensor *const *outputs, int m, void *user);
    void *user; /* must live until the hook is removed, or as long as the context */
} clef_hook;
/* Registers a hook, which is copied, with this module alone.  Several are called in the order of their registration.  Those of a
   module that recomputes (clef_recompute) are called once for each clef_forward, not again in backward.  Returns a number, above 0,
   for clef_module_unhook; 0 on failure.
       int64_t id = clef_module_hook(net, &(clef_hook){.after = print_shapes});  */
CLEF_API int64_t clef_module_hook(clef_module *module, const clef_hook *hook);
/* Removes the module's hook of that number, at any time, also from inside of a hook: it is not called any more.  One that is
   registered while the module runs is called from its next run on.  CLEF_INVALID if there is none. */
CLEF_API clef_status clef_module_unhook(clef_module *module, int64_t id);

/* ---- layers; options NULL: PyTorch's defaults, its initial distributions too ----
   Sizes must be positive and options in range, else NULL and CLEF_INVALID.  What forward refuses, see the
   function of clef/ops.h. */
typedef struct clef_nn_options {
    bool no_bias;
} clef_nn_options;
/* x [..,in] → x·weightᵀ + bias [..,out]; weight [out,in], bias [out], both uniform within ±1/√in at first. */
CLEF_API clef_module *clef_nn_linear(clef_context *ctx, int64_t in, int64_t out, const clef_nn_options *options);
typedef struct clef_nn_conv2d_options {
    clef_conv2d_options conv;
    bool no_bias;
    int kernel_w; /* 0: square */
} clef_nn_conv2d_options;
/* x [n,in,h,w] → [n,out,oh,ow] (see clef_conv2d); weight [out,in/groups,kernel,kernel_w], bias [out], both
   uniform within ±1/√(in/groups·kernel·kernel_w) at first.
       clef_nn_conv2d(ctx, 3, 64, 3, &(clef_nn_conv2d_options){.conv.padding = {1, 1}, .no_bias = true})  */
CLEF_API clef_module *clef_nn_conv2d(clef_context *ctx, int64_t in, int64_t out, int kernel, const clef_nn_conv2d_options *options);
typedef struct clef_nn_conv1d_options {
    clef_conv1d_options conv;
    bool no_bias;
} clef_nn_conv1d_options;
/* x [n,in,l] → [n,out,ol] (see clef_conv1d); weight [out,in/groups,kernel], bias [out], both uniform within ±1/√(in/groups·kernel) at
   first.
       clef_nn_conv1d(ctx, 16, 32, 3, &(clef_nn_conv1d_options){.conv.padding = 1})  */
CLEF_API clef_module *clef_nn_conv1d(clef_context *ctx, int64_t in, int64_t out, int kernel, const clef_nn_conv1d_options *options);
typedef struct clef_nn_conv_transpose2d_options {
    clef_conv_transpose2d_options conv;
    bool no_bias;
    int kernel_w; /* 0: square */
} clef_nn_conv_transpose2d_options;
/* x [n,in,h,w] → [n,out,oh,ow] (see clef_conv_transpose2d); weight [in,out/groups,kernel,kernel_w], bias [out], both uniform within
   ±1/√(out/groups·kernel·kernel_w) at first, as in PyTorch.
       clef_nn_conv_transpose2d(ctx, 64, 32, 2, &(clef_nn_conv_transpose2d_options){.conv.stride = {2, 2}})  */
CLEF_API clef_module *clef_nn_conv_transpose2d(clef_context *ctx, int64_t in, int64_t out, int kernel,
                                               const clef_nn_conv_transpose2d_options *options);
/* Each pixel factor×factor times, [n,c,h,w] → [n,c,factor·h,factor·w]: clef_upsample_nearest2d. */
CLEF_API clef_module *clef_nn_upsample_nearest2d(clef_context *ctx, int factor);
/* The largest of each kernel×kernel window, [n,c,h,w] → [n,c,oh,ow]: clef_max_pool2d. */
CLEF_API clef_module *clef_nn_max_pool2d(clef_context *ctx, int kernel, const clef_pool2d_options *options);
/* The mean of each kernel×kernel window: clef_avg_pool2d. */
CLEF_API clef_module *clef_nn_avg_pool2d(clef_context *ctx, int kernel, const clef_pool2d_options *options);
/* Means that make [n,c,oh,ow] of any [n,c,h,w]: clef_adaptive_avg_pool2d. */
CLEF_API clef_module *clef_nn_adaptive_avg_pool2d(clef_context *ctx, int oh, int ow);
/* Mean over h and w, [n,c,h,w] → [n,c]. */
CLEF_API clef_module *clef_nn_global_avg_pool2d(clef_context *ctx);
typedef struct clef_nn_norm_options {
    double eps, momentum; /* 0: 1e-5 (RMS norm: 2⁻²³), 0.1 */
    bool no_affine;
    clef_group *sync; /* of batch norm: statistics are over the items of all its ranks; NULL: of each rank's own */
} clef_nn_norm_options;
/* clef_batch_norm of [n,channels,h,w] by the module's mode; weight [channels] 1, bias 0 at first; buffers
   running_mean, running_var, num_batches_tracked (i64).  With sync, mean and variance in training are those of all ranks' items, weighted
   by how many each has (none is fine), with their gradients: output and running statistics are those of one rank on the whole batch.  All ranks
   then run the module in the same order. */
CLEF_API clef_module *clef_nn_batch_norm2d(clef_context *ctx, int64_t channels, const clef_nn_norm_options *options);
/* The same of [n,channels] and [n,channels,l]. */
CLEF_API clef_module *clef_nn_batch_norm1d(clef_context *ctx, int64_t channels, const clef_nn_norm_options *options);
/* clef_layer_norm over the last dimensions, which must be `normalized` (CLEF_SHAPE in forward); weight 1,
   bias 0 at first, of that shape. */
CLEF_API clef_module *clef_nn_layer_norm(clef_context *ctx, clef_shape normalized, const clef_nn_norm_options *options);
/* clef_rms_norm over the last dimensions, which must be `normalized` (CLEF_SHAPE in forward); weight 1 at first,
   of that shape. */
CLEF_API clef_module *clef_nn_rms_norm(clef_context *ctx, clef_shape normalized, const clef_nn_norm_options *options);
/* clef_group_norm of [n,channels,...] in `groups` groups, which must divide the channels; weight [channels] 1,
   bias 0 at first.
       clef_nn_group_norm(ctx, 32, 256, NULL)  */
CLEF_API clef_module *clef_nn_group_norm(clef_context *ctx, int64_t groups, int64_t channels, const clef_nn_norm_options *options);
typedef struct clef_nn_instance_norm_options {
    double eps;  /* 0: 1e-5 */
    bool affine; /* with weight and bias, which PyTorch's has only where asked for */
} clef_nn_instance_norm_options;
/* clef_instance_norm of [n,channels,h,w], always by each image's own statistics; with affine weight [channels] 1, bias 0 at first.
       clef_nn_instance_norm2d(ctx, 64, &(clef_nn_instance_norm_options){.affine = true})  */
CLEF_API clef_module *clef_nn_instance_norm2d(clef_context *ctx, int64_t channels, const clef_nn_instance_norm_options *options);
/* In training: zero with probability p in [0,1], the rest times 1/(1-p); in evaluation: x itself. */
CLEF_API clef_module *clef_nn_dropout(clef_context *ctx, double p);
/* Indices [..] → rows of weight [entries,width]: [..,width].  Starts as N(0,1). */
CLEF_API clef_module *clef_nn_embedding(clef_context *ctx, int64_t entries, int64_t width);
/* Joins all dimensions but the first: [n,c,h,w] → [n,c·h·w]. */
CLEF_API clef_module *clef_nn_flatten(clef_context *ctx);
typedef struct clef_nn_recurrent_options {
    clef_recurrent_options recurrent; /* as in clef_rnn, but dropout counts in training only, lengths are an input, and names of
                                         activations must live as long as the module */
    bool no_bias;
    int64_t projection; /* of an LSTM layer: columns of h; 0: none */
    bool peepholes;     /* of an LSTM */
} clef_nn_recurrent_options;
/* clef_rnn with the module's weights.  clef_forward gives y of x; clef_call takes x, h0 and lengths, all but x CLEF_NONE or left out,
   and gives y and h.  Parameters weight_ih_l0 [gates·hidden,in], weight_hh_l0 [gates·hidden,hidden], bias_ih_l0 and bias_hh_l0
   [gates·hidden], of the backwards direction weight_ih_l0_reverse …, then _l1 …: PyTorch's names and order of gates; all uniform within
   ±1/√hidden at first. */
CLEF_API clef_module *clef_nn_rnn(clef_context *ctx, int64_t in, int64_t hidden, const clef_nn_recurrent_options *options);
/* clef_lstm: takes x, h0, c0 and lengths, gives y, h and c; gates i, f, g, o.  Parameters weight_hr_l0 [projection,hidden] and weight_peep_l0
   [3·hidden] where these are asked for; with a projection weight_hh_l0 is [4·hidden,projection] (PyTorch's proj_size).  Else as clef_nn_rnn.
       clef_module *lstm = clef_nn_lstm(ctx, 8, 32, &(clef_nn_recurrent_options){.recurrent.layers = 2});
       clef_call(lstm, (clef_tensor *[]){x, CLEF_NONE, CLEF_NONE, lengths}, 4, out, 3);  */
CLEF_API clef_module *clef_nn_lstm(clef_context *ctx, int64_t in, int64_t hidden, const clef_nn_recurrent_options *options);
/* clef_gru: gates r, z, n.  Else as clef_nn_rnn. */
CLEF_API clef_module *clef_nn_gru(clef_context *ctx, int64_t in, int64_t hidden, const clef_nn_recurrent_options *options);
/* One step of each: x [b,in] and states [b,hidden], CLEF_NONE or left out: zeros; gives h, and of an LSTM c.  Parameters weight_ih,
   weight_hh, bias_ih, bias_hh, weight_peep.  Of the options layers, bidirectional, batch_first, dropout and projection do not count.
       clef_call(cell, (clef_tensor *[]){x, h, c}, 3, next, 2);  */
CLEF_API clef_module *clef_nn_rnn_cell(clef_context *ctx, int64_t in, int64_t hidden, const clef_nn_recurrent_options *options);
CLEF_API clef_module *clef_nn_lstm_cell(clef_context *ctx, int64_t in, int64_t hidden, const clef_nn_recurrent_options *options);
CLEF_API clef_module *clef_nn_gru_cell(clef_context *ctx, int64_t in, int64_t hidden, const clef_nn_recurrent_options *options);
/* Any unary of clef/pointwise.h as a layer: clef_nn_activation(ctx, "gelu", clef_gelu). */
CLEF_API clef_module *clef_nn_activation(clef_context *ctx, const char *type, clef_tensor *(*f)(clef_tensor *));
/* Those with a number beside x: leaky_relu, elu, celu, hardshrink, softshrink, pow_scalar …; p is theirs.
       clef_nn_activation_with(ctx, "leaky_relu", clef_leaky_relu, 0.01)  */
CLEF_API clef_module *clef_nn_activation_with(clef_context *ctx, const char *type, clef_tensor *(*f)(clef_tensor *, double),
                                              double p);
/* Those with two: clamp and threshold.
       clef_nn_activation_with_two(ctx, "hardtanh", clef_clamp, -1, 1)  */
CLEF_API clef_module *clef_nn_activation_with_two(clef_context *ctx, const char *type,
                                                  clef_tensor *(*f)(clef_tensor *, double, double), double p, double q);
/* clef_prelu with learned slopes: weight [channels], or [1] for channels = 1, which takes any x; all `slope` at first, in PyTorch 0.25.
       clef_nn_prelu(ctx, 64, 0.25)  */
CLEF_API clef_module *clef_nn_prelu(clef_context *ctx, int64_t channels, double slope);
/* max(x, 0). */
CLEF_API clef_module *clef_nn_relu(clef_context *ctx);
/* x·Φ(x), Φ the normal distribution function.  Hendrycks and Gimpel, "Gaussian error linear units", 2016. */
CLEF_API clef_module *clef_nn_gelu(clef_context *ctx);
/* x·σ(x).  Elfwing, Uchibe and Doya, 2018. */
CLEF_API clef_module *clef_nn_silu(clef_context *ctx);
/* σ(x) = 1/(1 + exp(-x)). */
CLEF_API clef_module *clef_nn_sigmoid(clef_context *ctx);
/* The hyperbolic tangent. */
CLEF_API clef_module *clef_nn_tanh(clef_context *ctx);
/* exp(x) / Σ exp(x) along dim.  (clef_cross_entropy wants logits: no softmax before it.) */
CLEF_API clef_module *clef_nn_softmax(clef_context *ctx, int dim);
typedef struct clef_nn_attention_options {
    int64_t kv_heads;   /* heads of keys and values, a divisor of heads; 0: as many */
    int64_t kdim, vdim; /* widths of k and v; 0: width */
    bool no_bias;
    bool causal;    /* as in clef_attention: the last query sees all keys, each one before it one key less */
    int64_t window; /* keys that are so far away are not seen; 0: none */
    double dropout; /* of weights, in training */
} clef_nn_attention_options;
/* Multi-head attention: y = concat(head_1 … head_heads)·W_oᵀ + b_o, each clef_attention of x·Wᵀ + b with W of q, k and v.  clef_call
   takes q [b,tq,width], k [b,tk,kdim], v [b,tk,vdim], mask (broadcast to [b,heads,tq,tk]; bool: true where seen; or a float that is
   added) and lengths [b] of keys, all but q CLEF_NONE or left out: k is q, v is k, all is seen.  It gives [b,tq,width]; clef_forward is
   self-attention.  CLEF_SHAPE where widths do not fit.  Parameters have PyTorch's names: in_proj_weight [3·width,width], or where kdim or
   vdim is another width q_proj_weight, k_proj_weight [width,kdim] and v_proj_weight [width,vdim]; in_proj_bias [3·width], out_proj.weight
   [width,width], out_proj.bias; rows of k and v are fewer with fewer heads.  At first weights are uniform as clef_init_xavier_uniform,
   that of out_proj as a linear layer's, biases 0.  CLEF_INVALID unless heads divide width and kv_heads the heads.  Vaswani et al.,
   "Attention is all you need", 2017; torch.nn.MultiheadAttention with batch_first, whose bool masks are true where not seen.
       clef_module *attention = clef_nn_attention(ctx, 64, 4, &(clef_nn_attention_options){.kdim = 32, .vdim = 32});
       clef_call(attention, (clef_tensor *[]){x, memory}, 2, &y, 1);  */
CLEF_API clef_module *clef_nn_attention(clef_context *ctx, int64_t width, int64_t heads, const clef_nn_attention_options *options);
typedef struct clef_nn_transformer_options {
    int64_t layers;   /* of a stack, up to 1024; 0: 6 */
    int64_t hidden;   /* between the two linear layers; 0: 2048 */
    int64_t kv_heads; /* as in clef_nn_attention; 0: heads */
    bool pre_norm;    /* norms stand before attention and linear layers (PyTorch's norm_first), not behind the sums */
    bool gelu;        /* in place of relu */
    bool causal;      /* of self-attention */
    bool no_bias;
    bool final_norm; /* a stack ends with a layer norm, "norm" */
    double dropout;  /* in training: of attention's weights, inside of the linear layers, and of what is added to x; 0: none */
    double eps;      /* of norms; 0: 1e-5 */
} clef_nn_transformer_options;
/* One layer of an encoder: x = norm1(x + self_attn(x)), x = norm2(x + linear2(relu(linear1(x)))); or x = x + self_attn(norm1(x)) … with
   pre_norm.  clef_call takes x [b,t,width], mask and lengths as clef_nn_attention, all but x CLEF_NONE or left out, and gives
   [b,t,width].  PyTorch's names, of torch.nn.TransformerEncoderLayer with batch_first: self_attn.in_proj_weight …, linear1.weight,
   linear2.weight, norm1.weight …  CLEF_INVALID where an option is out of range.
       clef_module *layer = clef_nn_encoder_layer(ctx, 64, 4, &(clef_nn_transformer_options){.hidden = 256, .pre_norm = true});  */
CLEF_API clef_module *clef_nn_encoder_layer(clef_context *ctx, int64_t width, int64_t heads,
                                            const clef_nn_transformer_options *options);
/* One layer of a decoder: self_attn, then multihead_attn to memory [b,tm,width], then the linear layers; norm1, norm2, norm3.
   clef_call takes x [b,t,width], memory, mask and lengths of x, mask and lengths of memory; all behind memory CLEF_NONE or left out.
   Give .causal for text.  Names of torch.nn.TransformerDecoderLayer.  Else as clef_nn_encoder_layer.
       clef_call(layer, (clef_tensor *[]){x, memory, CLEF_NONE, CLEF_NONE, CLEF_NONE, lengths}, 6, &y, 1);  */
CLEF_API clef_module *clef_nn_decoder_layer(clef_context *ctx, int64_t width, int64_t heads,
                                            const clef_nn_transformer_options *options);
/* Such layers one after the other, "layers.0", "layers.1", …, then "norm" with final_norm: torch.nn.TransformerEncoder.  Inputs are those
   of a layer; layers may lie on different devices (clef_module_to), to which inputs follow.  Each begins with weights of its own.
       clef_module *encoder = clef_nn_encoder(ctx, 512, 8, &(clef_nn_transformer_options){.layers = 4, .final_norm = true});  */
CLEF_API clef_module *clef_nn_encoder(clef_context *ctx, int64_t width, int64_t heads, const clef_nn_transformer_options *options);
/* The same of a decoder's layers, which all see the same memory: torch.nn.TransformerDecoder. */
CLEF_API clef_module *clef_nn_decoder(clef_context *ctx, int64_t width, int64_t heads, const clef_nn_transformer_options *options);

/* ---- mode, parameters ----
   A mode is set on a module and on everything below it, and the last call counts, as in PyTorch.  To let a part
   of a net stay in evaluation while the rest is trained, set the net first and then that part:
       clef_set_training(net, true), clef_set_training(clef_module_child(net, "backbone"), false);
   clef_fit and clef_evaluate, which need a mode of their own for the time they run, leave alone what was set on a
   part by itself: clef_fit trains the rest, clef_evaluate puts everything back. */
/* Sets the mode of the whole tree.  true, as it is at first: dropout drops, batch norm uses the batch.  false,
   evaluation: no dropout, batch norm uses its running statistics.  Does nothing for NULL.
       clef_set_training(net, false);  */
CLEF_API void clef_set_training(clef_module *module, bool training);
/* Does forward train now?  False for NULL, for a frozen module, and while clef_evaluate runs. */
CLEF_API bool clef_is_training(const clef_module *module);
/* With true, what this module computes from its input x is not kept for backward, but computed once more when
   backward comes to the module (activation checkpointing).  Of a net of n such blocks the n inputs are kept and
   the inside of one block, not of all: O(√n) memory instead of O(n) for n blocks of √n layers each, for one more
   forward of them.  Give it to blocks, not to a whole net, whose inside is all there is.  Gradients are the same
   bits: dropout drops the same numbers again, and statistics (clef_assign) change once, as forward itself is not
   called twice.  Inside another such module a block is computed again each time that module's turn comes, and once
   more at its own.  What already lies in memory when backward is called is used as it is (so it is with
   CLEF_EAGER=1), and gradients to be differentiated again (create_graph) keep everything.  clef_plan_memory tells
   what it saves.  Chen et al., "Training deep nets with sublinear memory cost", 2016; PyTorch's
   torch.utils.checkpoint.
       clef_recompute(clef_module_child(net, "layer1.0"), true);  */
CLEF_API void clef_recompute(clef_module *module, bool recomputed);
/* The context that owns it; NULL for NULL. */
CLEF_API clef_context *clef_module_context(const clef_module *module);
/* Its type, "conv2d" for example, living as long as the module; "" for NULL. */
CLEF_API const char *clef_module_type(const clef_module *module);
/* A parameter or buffer of a tree, which owns name and tensor.  Names live until a module of
   this context gets, loses or changes a child, parameter or buffer. */
typedef struct clef_named_tensor {
    const char *name;
    clef_tensor *tensor;
    bool is_buffer;
} clef_named_tensor;
/* Number of parameters and buffers of the whole tree; 0 for NULL or if host memory is short. */
CLEF_API int clef_module_tensors(const clef_module *module);
/* The i-th of them, named and ordered as in a PyTorch state dict ("0.weight"): a module's parameters, its
   buffers, its children.  All zero if there is none. */
CLEF_API clef_named_tensor clef_module_tensor(const clef_module *module, int i);
/* The parameter or buffer of that name, the module's own; NULL and CLEF_INVALID if there is none (clef_module_has
   asks).
       clef_tensor *w = clef_parameter(net, "0.weight");  */
CLEF_API clef_tensor *clef_parameter(const clef_module *module, const char *name);
/* Elements of all parameters; shared ones count once, buffers not. */
CLEF_API int64_t clef_parameter_count(const clef_module *module);
/* Gives all tensors of the module the values that they have on rank 0, and the context rank 0's random state, so that all ranks begin with the
   same bits; they are computed at once.  Every rank calls it.  Does nothing for a NULL group or one of a single rank.  CLEF_GROUP, on all
   ranks, names the first tensor that has another name, dtype or shape.
       clef_replicate(net, all);  */
CLEF_API clef_status clef_replicate(clef_module *module, clef_group *group);

/* Gives all batch norms of the module clef_nn_norm_options.sync, as torch.nn.SyncBatchNorm.convert_sync_batchnorm does; NULL takes it from
   them.  CLEF_INVALID where the group is another context's.
       clef_module_sync_batch_norm(net, all);  */
CLEF_API clef_status clef_module_sync_batch_norm(clef_module *module, clef_group *group);

/* Frozen: nothing in the tree changes, whatever its mode.  Its parameters have and want no gradient, so optimizers
   leave them alone, and its modules are in evaluation: batch norm uses its running statistics and does not move
   them.  false thaws it, and the modes that were set count again.  (To let only the parameters rest, give each to
   clef_require_grad.)
       clef_freeze(clef_module_child(net, "backbone"), true);  */
CLEF_API void clef_freeze(clef_module *module, bool frozen);
/* Clears the gradients of all parameters.  (clef_step does so for those of its optimizer.) */
CLEF_API void clef_zero_grad(clef_module *module);

/* What runs when the module is given an input of this shape, as text of at most 100 columns into `text` (snprintf's rules; -1 on
   failure): a line for each layer as it ends, with its output's shape, parameters, MACs and memory, then the totals, and what lies on
   each of several devices.  A module that has other modules inside has a line if it does work of its own.  "again" stands for the
   parameters of a layer that ran before, "never called" for the output of one that did not run.  In evaluation mode, on zeros
   (indices where the first layer is an embedding), in a dry run (clef_set_dry_run): nothing is computed, so a module that reads a
   value on the way fails.
       clef_summary(net, CLEF_SHAPE(1, 1, 28, 28), text, sizeof text);  */
CLEF_API int clef_summary(clef_module *module, clef_shape input, char *text, size_t size);
/* The same for clef_call with these n inputs, whose values do not matter, and m outputs; each output has a line.
       clef_summary_call(net, (clef_tensor *[]){words, times}, 2, 2, text, sizeof text);  */
CLEF_API int clef_summary_call(clef_module *module, clef_tensor *const *inputs, int n, int m, char *text, size_t size);

/* ---- initialisers: assign a tensor in place (Philox of the context, so the same on every device) ----
   in = dim[1]·dim[2]·… and out = dim[0]·dim[2]·… are fan in and fan out; those that use them want 2 or more
   dimensions (CLEF_SHAPE).  All but the orthogonal one are lazy; t keeps its dtype. */
/* Every element = value. */
CLEF_API clef_status clef_init_constant(clef_tensor *t, double value);
/* Uniform on [low, high); CLEF_INVALID unless low ≤ high. */
CLEF_API clef_status clef_init_uniform(clef_tensor *t, double low, double high);
/* Normal of that mean and standard deviation ≥ 0 (CLEF_INVALID). */
CLEF_API clef_status clef_init_normal(clef_tensor *t, double mean, double std);
/* Uniform within ±gain·√(6/(in+out)).  Glorot and Bengio, "Understanding the difficulty of training deep
   feedforward neural networks", 2010. */
CLEF_API clef_status clef_init_xavier_uniform(clef_tensor *t, double gain);
/* Normal of deviation gain·√(2/(in+out)); the same source. */
CLEF_API clef_status clef_init_xavier_normal(clef_tensor *t, double gain);
/* Uniform within ±√(6/((1+a²)·in)), for layers before a leaky relu of slope a.  He et al., "Delving deep into
   rectifiers", 2015. */
CLEF_API clef_status clef_init_kaiming_uniform(clef_tensor *t, double a);
/* Normal of deviation √(2/((1+a²)·in)); the same source. */
CLEF_API clef_status clef_init_kaiming_normal(clef_tensor *t, double a);
/* Orthonormal rows or columns (of which there are fewer) of t as [dim[0], the rest], times gain.  Waits.
   Saxe, McClelland and Ganguli, "Exact solutions to the nonlinear dynamics of learning in deep linear neural
   networks", 2014. */
CLEF_API clef_status clef_init_orthogonal(clef_tensor *t, double gain);

/* ---- models of the tool: [n,c,h,w] → logits [n,classes], for a [c,h,w] input ----
   CLEF_INVALID for an input of another rank or too small, or no class. */
/* Linear 256, 128, classes with relu between. */
CLEF_API clef_module *clef_model_mlp(clef_context *ctx, clef_shape input, int64_t classes);
/* Conv 6 of 5×5, relu, max-pool 2, conv 16 of 5×5, relu, max-pool 2, linear 120, 84, classes with relu
   between.  Without padding; with 2 where a side is below 16 (which two valid 5×5 convolutions would use up);
   sides of at least 4.  After LeCun et al., 1998. */
CLEF_API clef_module *clef_model_lenet(clef_context *ctx, clef_shape input, int64_t classes);
/* Conv 32 of 3×3, relu, max-pool 2, conv 64 of 3×3, relu, max-pool 2, linear classes.  Without padding; with
   1 where a side is below 10; sides of at least 4. */
CLEF_API clef_module *clef_model_cnn(clef_context *ctx, clef_shape input, int64_t classes);
/* ResNet-18 for small images: 3×3 stem, no stem pool; tensors are named as in torchvision
   ("layer1.0.conv1.weight").  He et al., 2015. */
CLEF_API clef_module *clef_model_resnet18(clef_context *ctx, clef_shape input, int64_t classes);

/* ---- where a module lies ----
   A module is made on the context's first device.  A clef_sequential may be cut over several: it brings a value to where the next
   layer's parameters and buffers lie, and gradients come back the same way.  A layer that has neither runs where its input is.  A
   module with a forward function of its own brings values along itself, with clef_to_device. */
/* Puts all parameters, buffers and gradients of the tree on a device of the context; their handles stay, and an optimizer's state
   follows in its next step.  If it fails, nothing moves: CLEF_INVALID if there is no such device.
       clef_module_to(clef_module_child(net, "head"), 1);  */
CLEF_API clef_status clef_module_to(clef_module *module, int device);

/* The most devices that clef_place_auto cuts a net over. */
enum { CLEF_PLACEMENT_MOST = 16 };
/* What one device got. */
typedef struct clef_placement_part {
    int device;
    int layers;               /* how many, one after the other; 0: none, and it is not needed */
    char first[64], last[64]; /* their names, "features.3" */
    int64_t bytes, memory;    /* what they need, and what may be used */
    double seconds;           /* of a batch */
} clef_placement_part;
typedef struct clef_placement {
    int n; /* devices that were asked for */
    clef_placement_part part[CLEF_PLACEMENT_MOST];
    double seconds; /* what was made least, see micro_batches */
} clef_placement;
typedef struct clef_place_options {
    const int *devices; /* of the context, each once, in the order in which the layers come to them; NULL: all */
    int n_devices;
    const uint64_t *memory; /* bytes that may be used of each of these; NULL, or 0 for one of them: what the device has, of which
                               devices that are parts of one have equal shares */
    bool inference;         /* no room for gradients, optimizer states and what backward keeps, and no time for backward */
    int optimizer_states;   /* tensors of a parameter's size that the optimizer keeps of each; 0: 2, as of Adam; below 0: none */
    /* Parts of a batch that go through the net one behind the other in each step, so that several devices work at the same time.  With
       n of them a batch takes (sum + (n - 1) * slowest) / n, of the seconds of all devices and of the slowest.  1: devices wait for each
       other, so the fastest that has room takes all; 0: very many, the slowest alone counts. */
    int micro_batches;
    double transfer_gb_per_second; /* between two devices; 0: 8 */
    clef_placement *placement;     /* is told what came out; NULL: nobody is */
} clef_place_options;
/* Cuts a net over several devices: puts a run of its layers on each, with clef_module_to, so that a batch takes least by nominal facts
   of the devices, and each has room.  net: a clef_sequential.  Layers are its children and those of a clef_sequential inside; other
   modules (residual blocks, or what has a forward of its own) are not cut, layers that share a tensor stay together, and one without
   tensors stays with the one before it.  input: a whole batch, whose values do not matter.
   Nothing is measured on the clock, so the same devices give the same cut.  Estimated are, from shapes that a dry run finds:
     seconds  Σ max(FLOPs / peak, bytes / bandwidth) of the ops as they are defined, by each device's profile, in training 3 times (two
              gradients); and bytes / transfer for the values that a device receives over its borders, in training for gradients too
     bytes    parameters and buffers, in training with a gradient and the optimizer's states of each, and the values that backward
              reads; and once the value that comes in, and what the largest layer reads and makes
   A plan may need more (workspace) or less (what is fused); clef_plan_memory knows.  CLEF_MEMORY, with what is needed and what there
   is, if no cut fits; CLEF_INVALID if the net is no clef_sequential or has no tensors, or an option is out of range.  Then nothing
   moves.
       clef_place_auto(net, clef_zeros(ctx, CLEF_SHAPE(32, 3, 32, 32), CLEF_F32), &(clef_place_options){.micro_batches = 4});  */
CLEF_API clef_status clef_place_auto(clef_module *net, clef_tensor *input, const clef_place_options *options);

/* ---- former names of clef_set_training, which go after 0.1 ---- */
CLEF_DEPRECATED("clef_set_training(module, true)")
static inline void clef_train(clef_module *module) { clef_set_training(module, true); }
CLEF_DEPRECATED("clef_set_training(module, false)")
static inline void clef_evaluation(clef_module *module) { clef_set_training(module, false); }

#ifdef __cplusplus
}
/* The same of a list: CLEF_LAYERS(a, b), or {a, b}. */
static inline clef_module *clef_sequential(clef_context *ctx, std::initializer_list<clef_module *> layers) {
    return clef_sequential(ctx, layers.begin(), static_cast<int>(layers.size()));
}
#endif
#endif
