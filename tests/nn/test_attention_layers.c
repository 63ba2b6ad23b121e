/* Attention layers, encoders and decoders: names, shapes, masks, fewer heads of keys, devices' and users' mistakes.
   ctest: plain together */
#include "support/device.h"

static clef_context *ctx;

static void open_context(void) { ctx = open_seeded(5); }
static void close_context(void) { clef_close(ctx); }
TestSuite(attention_layers, .init = open_context, .fini = close_context);

static void expect_tensors(const clef_module *m, const char *const *name, int n) {
    cr_assert_eq(clef_module_tensors(m), n, "%d tensors", clef_module_tensors(m));
    for (int i = 0; i < n; i++) cr_expect_str_eq(clef_module_tensor(m, i).name, name[i]);
}

static clef_tensor *call(clef_module *m, clef_tensor *const *x, int n) {
    clef_tensor *y = NULL;
    clef_call(m, x, n, &y, 1);
    return y;
}

static double apart(clef_tensor *a, clef_tensor *b) {
    clef_tensor *away = clef_max(clef_flatten(clef_abs(clef_sub(a, b)), 0, -1), (int[]){0}, 1, false);
    return away ? clef_item(away) : INFINITY;
}

Test(attention_layers, names_are_pytorchs) {
    static const char *const joined[] = {"in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"};
    static const char *const separate[] = {"q_proj_weight", "k_proj_weight", "v_proj_weight", "out_proj.weight"};
    static const char *const layer[] = {"self_attn.in_proj_weight",
                                        "self_attn.out_proj.weight",
                                        "linear1.weight",
                                        "linear2.weight",
                                        "norm1.weight",
                                        "norm2.weight"};
    expect_tensors(clef_nn_attention(ctx, 8, 2, NULL), joined, 4);
    clef_module *m = clef_nn_attention(ctx, 8, 2, &(clef_nn_attention_options){.kdim = 3, .vdim = 5, .no_bias = true});
    expect_tensors(m, separate, 4);
    expect_shape(clef_parameter(m, "v_proj_weight"), CLEF_SHAPE(8, 5));
    expect_tensors(clef_nn_encoder_layer(ctx, 8, 2, &(clef_nn_transformer_options){.no_bias = true, .hidden = 4}), layer, 6);
    m = clef_nn_decoder(ctx, 8, 2, &(clef_nn_transformer_options){.layers = 2, .final_norm = true});
    cr_expect(clef_module_has(m, "layers.1.multihead_attn.in_proj_bias") && clef_module_has(m, "norm.bias"));
    expect_shape(clef_parameter(clef_module_child(m, "layers.0.linear1"), "weight"), CLEF_SHAPE(2048, 8));
    cr_expect_eq(clef_module_tensors(clef_nn_encoder(ctx, 8, 2, NULL)), 6 * 12);
}

/* Rows of weights [heads·head, …] of `from` heads, each several times. */
static clef_tensor *repeated(clef_tensor *rows, int from, int times, int head) {
    clef_shape s = clef_tensor_shape(rows);
    int64_t rest = clef_shape_numel(s) / s.dim[0];
    clef_tensor *part = clef_reshape(rows, CLEF_SHAPE(from, 1, head * rest)), *all[8];
    for (int i = 0; i < times; i++) all[i] = part;
    s.dim[0] *= times;
    return clef_reshape(clef_concat(all, times, 1), s);
}

/* Four heads beside two of keys are four of each, of which pairs are equal. */
Test(attention_layers, fewer_heads_of_keys) {
    clef_module *few = clef_nn_attention(ctx, 12, 4, &(clef_nn_attention_options){.kv_heads = 2, .causal = true});
    clef_module *all = clef_nn_attention(ctx, 12, 4, &(clef_nn_attention_options){.causal = true});
    clef_init_uniform(clef_parameter(few, "in_proj_bias"), -1, 1);
    static const char *const both[] = {"in_proj_weight", "in_proj_bias"};
    for (int i = 0; i < 2; i++) {
        clef_tensor *part[3], *w = clef_parameter(few, both[i]);
        expect_shape(w, i ? CLEF_SHAPE(24) : CLEF_SHAPE(24, 12));
        clef_split(clef_detach(w), 0, (int64_t[]){12, 6, 6}, 3, part);
        for (int p = 1; p < 3; p++) part[p] = repeated(part[p], 2, 2, 3);
        cr_assert_eq(clef_assign(clef_parameter(all, both[i]), clef_concat(part, 3, 0)), CLEF_OK, "%s", clef_error(ctx));
    }
    clef_assign(clef_parameter(clef_module_child(all, "out_proj"), "weight"),
                clef_detach(clef_parameter(clef_module_child(few, "out_proj"), "weight")));
    clef_tensor *x = clef_keep(noise_tensor(ctx, CLEF_SHAPE(2, 9, 12), 1));
    cr_expect_lt(apart(clef_forward(few, x), clef_forward(all, x)), 1e-5);
}

/* Self-attention's one product gives what three of the same inputs do; a mask and lengths reach the op. */
Test(attention_layers, inputs) {
    clef_module *m = clef_nn_attention(ctx, 8, 2, NULL);
    clef_tensor *x = clef_keep(noise_tensor(ctx, CLEF_SHAPE(2, 5, 8), 1)), *again = clef_keep(clef_mul_scalar(x, 1));
    clef_tensor *y = clef_keep(clef_forward(m, x));
    cr_expect_lt(apart(y, call(m, (clef_tensor *[]){x, again}, 2)), 1e-6);
    cr_expect_lt(apart(y, call(m, (clef_tensor *[]){x, again, x}, 3)), 1e-6);
    int64_t n[] = {3, 3};
    clef_tensor *lengths = clef_keep(clef_from_host(ctx, CLEF_SHAPE(2), CLEF_I64, n));
    clef_tensor *mask = clef_keep(clef_lt_scalar(clef_arange(ctx, 0, 5, 1, CLEF_I64), 3));
    clef_tensor *cut = clef_keep(call(m, (clef_tensor *[]){x, clef_slice(x, 1, 0, 3, 1)}, 2));
    cr_expect_lt(apart(cut, call(m, (clef_tensor *[]){x, CLEF_NONE, CLEF_NONE, CLEF_NONE, lengths}, 5)), 1e-6);
    cr_expect_lt(apart(cut, call(m, (clef_tensor *[]){x, CLEF_NONE, CLEF_NONE, mask}, 4)), 1e-6);
    cr_expect_gt(apart(cut, y), 1e-3);
    clef_module *stack = clef_nn_encoder(ctx, 8, 2, &(clef_nn_transformer_options){.layers = 2, .hidden = 6});
    clef_tensor *short_one = clef_keep(clef_forward(stack, clef_slice(x, 1, 0, 3, 1)));
    clef_tensor *long_one = call(stack, (clef_tensor *[]){x, CLEF_NONE, lengths}, 3);
    cr_expect_lt(apart(short_one, clef_slice(long_one, 1, 0, 3, 1)), 1e-5, "masks go to all layers");
}

/* Dropout draws in training only; one that recomputes has the same gradients. */
Test(attention_layers, modes) {
    clef_nn_transformer_options o = {.layers = 2, .hidden = 6, .dropout = 0.5};
    clef_module *m = clef_nn_encoder(ctx, 8, 2, &o);
    clef_tensor *x = clef_keep(noise_tensor(ctx, CLEF_SHAPE(2, 5, 8), 1));
    cr_expect_gt(apart(clef_forward(m, x), clef_forward(m, x)), 1e-3);
    clef_set_training(m, false);
    cr_expect_eq(apart(clef_forward(m, x), clef_forward(m, x)), 0);
    clef_tensor *w = clef_parameter(clef_module_child(m, "layers.0.self_attn"), "in_proj_weight"), *g[2];
    for (int i = 0; i < 2; i++) {
        clef_recompute(clef_module_child(m, "layers.0"), i == 1);
        clef_zero_grad(m);
        clef_backward(clef_mean(clef_forward(m, clef_mul(x, x)), NULL, 0, false));
        g[i] = clef_keep(clef_mul_scalar(clef_grad_of(w), 1));
        clef_end_step(ctx);
    }
    cr_expect_eq(apart(g[0], g[1]), 0);
}

Test(attention_layers, mistakes) {
    cr_expect_null(clef_nn_attention(ctx, 8, 3, NULL));
    expect_error(ctx, CLEF_INVALID, "attention: width 8, 3 heads");
    cr_expect_null(clef_nn_attention(ctx, 8, 4, &(clef_nn_attention_options){.kv_heads = 3}));
    expect_error(ctx, CLEF_INVALID, "attention: width 8, 4 heads, 3 of keys");
    cr_expect_null(clef_nn_attention(ctx, 8, 4, &(clef_nn_attention_options){.dropout = 1.5}));
    expect_error(ctx, CLEF_INVALID, "attention: dropout 1.5");
    cr_expect_null(clef_nn_encoder(ctx, 8, 4, &(clef_nn_transformer_options){.layers = -1}));
    expect_error(ctx, CLEF_INVALID, "encoder: width 8, -1 layers");
    clef_module *m = clef_nn_attention(ctx, 8, 2, NULL);
    cr_expect_null(clef_forward(m, clef_zeros(ctx, CLEF_SHAPE(5, 8), CLEF_F32)));
    expect_error(ctx, CLEF_SHAPE, "attention: q [5,8] is not [b,t,8]");
    clef_tensor *x = clef_zeros(ctx, CLEF_SHAPE(1, 5, 8), CLEF_F32);
    cr_expect_null(call(m, (clef_tensor *[]){x, clef_zeros(ctx, CLEF_SHAPE(1, 5, 9), CLEF_F32)}, 2));
    expect_error(ctx, CLEF_SHAPE, "attention: k [1,5,9] is not [b,t,8]");
    clef_module *decoder = clef_nn_decoder_layer(ctx, 8, 2, &(clef_nn_transformer_options){.hidden = 4});
    cr_expect_null(clef_forward(decoder, x));
    expect_error(ctx, CLEF_INVALID, "decoder_layer: 1 inputs");
    clef_module *encoder = clef_nn_encoder(ctx, 8, 2, &(clef_nn_transformer_options){.hidden = 4, .layers = 1, .final_norm = true});
    clef_module_remove(encoder, "norm");
    cr_expect_null(clef_forward(encoder, x));
    expect_error(ctx, CLEF_INVALID, "its child \"norm\" was removed");
    clef_module_remove(encoder, "layers");
    cr_expect_null(clef_forward(encoder, x));
    expect_error(ctx, CLEF_INVALID, "its child \"layers\" was removed");
    clef_module_remove(decoder, "multihead_attn");
    cr_expect_null(call(decoder, (clef_tensor *[]){x, x}, 2));
    expect_error(ctx, CLEF_INVALID, "its child \"multihead_attn\" was removed");
}
