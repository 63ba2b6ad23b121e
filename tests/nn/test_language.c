/* GPT and Llama: names, first weights, causality, what is refused.  Their numbers are compared with PyTorch's in tests/io.
   ctest: cost=15 together plain */
#include "clef/pointwise.h"
#include "support/device.h"

static clef_context *ctx;
static void open_context(void) { ctx = open_seeded(3); }
static void close_context(void) { close_clean(ctx); }
TestSuite(language, .init = open_context, .fini = close_context);

enum { B = 2, T = 9, V = 13 };
static clef_module *gpt(void) {
    return clef_nn_gpt(ctx, &(clef_gpt_options){.vocabulary = V, .context = 16, .layers = 2, .heads = 2, .width = 12});
}
static clef_module *llama(void) {
    return clef_nn_llama(
        ctx, &(clef_llama_options){.vocabulary = V, .context = 16, .layers = 2, .heads = 4, .kv_heads = 2, .width = 16});
}

static clef_module *lstm(void) {
    return clef_nn_lstm_language(ctx, &(clef_lstm_language_options){.vocabulary = V, .context = 16, .layers = 2, .width = 16});
}

static clef_tensor *tokens(int64_t salt) {
    int64_t id[B * T];
    for (int64_t i = 0; i < B * T; i++) id[i] = (i * 5 + salt * (i % T == T - 2)) % V;
    return clef_from_host(ctx, CLEF_SHAPE(B, T), CLEF_I64, id);
}

Test(language, tensors_have_the_names_of_their_families) {
    clef_module *g = gpt(), *l = llama();
    static const char *const of_gpt[] = {"wte.weight",
                                         "wpe.weight",
                                         "h.1.ln_1.bias",
                                         "h.1.attn.c_attn.weight",
                                         "h.0.attn.c_proj.bias",
                                         "h.0.mlp.c_fc.weight",
                                         "h.1.mlp.c_proj.weight",
                                         "h.1.ln_2.weight",
                                         "ln_f.bias"};
    static const char *const of_llama[] = {"model.embed_tokens.weight",
                                           "model.layers.1.self_attn.q_proj.weight",
                                           "model.layers.0.self_attn.k_proj.weight",
                                           "model.layers.0.mlp.gate_proj.weight",
                                           "model.layers.1.input_layernorm.weight",
                                           "model.layers.1.post_attention_layernorm.weight",
                                           "model.norm.weight",
                                           "lm_head.weight"};
    for (size_t i = 0; i < sizeof of_gpt / sizeof *of_gpt; i++) cr_expect(clef_module_has(g, of_gpt[i]), "%s", of_gpt[i]);
    for (size_t i = 0; i < sizeof of_llama / sizeof *of_llama; i++) cr_expect(clef_module_has(l, of_llama[i]), "%s", of_llama[i]);
    expect_shape(clef_parameter(g, "h.0.attn.c_attn.weight"), CLEF_SHAPE(12, 36));
    expect_shape(clef_parameter(l, "model.layers.0.self_attn.k_proj.weight"), CLEF_SHAPE(8, 16));
    cr_expect_eq(clef_parameter_count(g),
                 13 * 12 + 16 * 12 + 2 * (4 * 12 + 12 * 36 + 36 + 12 * 12 + 12 + 2 * 12 * 48 + 48 + 12) + 24);
}

static double deviation(clef_tensor *t) { return sqrt(clef_item(clef_mean(clef_square(t), NULL, 0, false))); }

Test(language, weights_begin_as_nanogpt_has_them) {
    clef_module *g = clef_nn_gpt(ctx, &(clef_gpt_options){.vocabulary = 50, .context = 40, .layers = 2, .heads = 2, .width = 64});
    cr_expect_float_eq(deviation(clef_parameter(g, "wte.weight")), 0.02, 0.002);
    cr_expect_float_eq(deviation(clef_parameter(g, "h.1.attn.c_attn.weight")), 0.02, 0.002);
    cr_expect_float_eq(deviation(clef_parameter(g, "h.1.mlp.c_proj.weight")), 0.01, 0.001);
    cr_expect_eq(deviation(clef_parameter(g, "h.1.mlp.c_proj.bias")), 0);
    cr_expect_eq(deviation(clef_parameter(g, "ln_f.weight")), 1);
}

/* A token changes what follows it, and not a bit of what stands before. */
static void expect_causal(clef_module *net) {
    clef_set_training(net, false);
    float *a = values(clef_forward(net, tokens(0))), *b = values(clef_forward(net, tokens(1)));
    int same = 0, changed = 0;
    for (int i = 0; i < B * T * V; i++) {
        if (i / V % T < T - 2) same += a[i] == b[i];
        else changed += a[i] != b[i];
    }
    cr_expect_eq(same, B * (T - 2) * V);
    cr_expect(changed > B * V, "%d logits changed", changed);
    free(a), free(b);
}
Test(language, a_token_sees_what_stands_before_it) {
    expect_causal(lstm());
    expect_causal(gpt());
    expect_causal(llama());
}

static clef_tensor *loss_of(clef_module *net) {
    clef_tensor *y = clef_reshape(clef_forward(net, tokens(0)), CLEF_SHAPE(-1, V));
    return clef_cross_entropy(y, clef_reshape(tokens(1), CLEF_SHAPE(-1)), NULL);
}

static void expect_learns(clef_module *net) {
    clef_optimizer *opt = clef_adam(net, &(clef_adam_options){.lr = 1e-2});
    double first = clef_item(loss_of(net)), last = 0;
    cr_expect(fabs(first - log(V)) < 0.2, "%g at first", first);
    for (int i = 0; i < 60; i++) {
        clef_tensor *loss = clef_keep(loss_of(net));
        clef_backward(loss);
        clef_step(opt);
        last = clef_item(loss);
        clef_release(loss);
    }
    cr_expect(last < 0.3, "%g after %g", last, first);
}
Test(language, models_learn) {
    expect_learns(gpt());
    expect_learns(llama());
    expect_learns(lstm());
    expect_learns(clef_nn_gpt(ctx, &(clef_gpt_options){.vocabulary = V,
                                                       .context = 16,
                                                       .layers = 1,
                                                       .heads = 2,
                                                       .width = 16,
                                                       .no_bias = true,
                                                       .untied = true,
                                                       .exact_gelu = true,
                                                       .dropout = 0.01}));
}

Test(language, half_types_and_recomputing_give_the_same) {
    clef_module *net = clef_nn_llama(ctx, &(clef_llama_options){.vocabulary = V,
                                                                .context = 16,
                                                                .layers = 2,
                                                                .heads = 2,
                                                                .width = 16,
                                                                .tied = true,
                                                                .qkv_bias = true,
                                                                .dtype = CLEF_BF16});
    cr_expect_eq(clef_tensor_dtype(clef_parameter(net, "model.layers.0.mlp.up_proj.weight")), CLEF_BF16);
    cr_expect_eq(clef_tensor_dtype(clef_forward(net, tokens(0))), CLEF_F32);
    clef_module *g = gpt();
    clef_backward(loss_of(g));
    float *plain = values(clef_grad_of(clef_parameter(g, "h.0.attn.c_attn.weight")));
    clef_zero_grad(g);
    clef_recompute(clef_module_child(g, "h.0"), true);
    clef_backward(loss_of(g));
    float *again = values(clef_grad_of(clef_parameter(g, "h.0.attn.c_attn.weight")));
    cr_expect_arr_eq(plain, again, 12 * 36 * sizeof *plain);
    free(plain), free(again);
}

/* ---- an encoder ---- */
static clef_module *bert(void) {
    clef_module *net =
        clef_nn_bert(ctx, &(clef_bert_options){.vocabulary = V, .context = 16, .layers = 2, .heads = 2, .width = 16, .classes = 3});
    for (int i = 0; i < clef_module_tensors(net); i++) {
        clef_tensor *t = clef_module_tensor(net, i).tensor;
        if (clef_tensor_shape(t).rank == 2) clef_init_normal(t, 0, 0.3);
    }
    return net;
}

static float *classes_of(clef_module *net, clef_tensor *x, clef_tensor *lengths, clef_tensor *types) {
    clef_tensor *y = NULL;
    cr_assert_eq(clef_call(net, (clef_tensor *[]){x, lengths, types}, 3, &y, 1), CLEF_OK, "%s", clef_error(ctx));
    return values(y);
}

/* What stands behind an item's length changes nothing; types and every token before it do. */
Test(language, an_encoder_sees_an_item_and_no_more) {
    clef_module *net = bert();
    int64_t ids[2][9], types[2][9] = {{0}}, lengths[] = {9, 4};
    for (int i = 0; i < 18; i++) ids[i / 9][i % 9] = (5 * i + i * i) % V;
    clef_tensor *x = clef_from_host(ctx, CLEF_SHAPE(2, 9), CLEF_I64, ids),
                *n = clef_from_host(ctx, CLEF_SHAPE(2), CLEF_I64, lengths);
    float *both = classes_of(net, x, n, CLEF_NONE);
    float *alone = values(clef_forward(net, clef_from_host(ctx, CLEF_SHAPE(1, 4), CLEF_I64, ids[1])));
    for (int i = 0; i < 3; i++) cr_expect_float_eq(both[3 + i], alone[i], 1e-5);
    for (int behind = 0; behind < 2; behind++) {
        x = clef_from_host(ctx, CLEF_SHAPE(2, 9), CLEF_I64, ids), n = clef_from_host(ctx, CLEF_SHAPE(2), CLEF_I64, lengths);
        clef_tensor *kind = clef_from_host(ctx, CLEF_SHAPE(2, 9), CLEF_I64, types);
        float *now = classes_of(net, x, n, kind);
        cr_expect(fabsf(now[3] - both[3]) < 1e-6 && fabsf(now[0] - both[0]) < 1e-6,
                  "explicit types of 0, changed behind the end: %d", behind);
        free(now);
        ids[1][4] = ids[1][8] = (ids[1][4] + 1) % V;
    }
    types[1][3] = 1;
    float *other =
        classes_of(net, clef_from_host(ctx, CLEF_SHAPE(2, 9), CLEF_I64, ids), clef_from_host(ctx, CLEF_SHAPE(2), CLEF_I64, lengths),
                   clef_from_host(ctx, CLEF_SHAPE(2, 9), CLEF_I64, types));
    cr_expect(fabsf(other[3] - both[3]) > 1e-4 && fabsf(other[0] - both[0]) < 1e-6);
    free(both), free(alone), free(other);
}

/* A part that is called by itself knows nothing of a run before. */
Test(language, parts_of_an_encoder_alone) {
    clef_module *net = bert();
    int64_t ids[2][9], lengths[] = {1, 1};
    for (int i = 0; i < 18; i++) ids[i / 9][i % 9] = (5 * i + i * i) % V;
    float *first = values(clef_forward(clef_module_child(net, "bert"), clef_from_host(ctx, CLEF_SHAPE(2, 9), CLEF_I64, ids)));
    free(classes_of(net, clef_from_host(ctx, CLEF_SHAPE(2, 9), CLEF_I64, ids),
                    clef_from_host(ctx, CLEF_SHAPE(2), CLEF_I64, lengths), CLEF_NONE));
    clef_tensor *again = clef_forward(clef_module_child(net, "bert"), clef_from_host(ctx, CLEF_SHAPE(2, 9), CLEF_I64, ids));
    int64_t n = clef_numel(again);
    float *second = values(again);
    for (int64_t i = 0; i < n; i++) cr_expect_eq(second[i], first[i]);
    free(first), free(second);
}
Test(language, the_body_of_a_llama_alone) {
    clef_module *net =
                    clef_nn_llama(ctx, &(clef_llama_options){.vocabulary = V, .context = 16, .layers = 1, .heads = 2, .width = 8}),
                *attention = clef_module_child(clef_module_child(clef_module_child(clef_module_child(net, "model"), "layers"), "0"),
                                               "self_attn");
    clef_tensor *x = clef_ones(ctx, CLEF_SHAPE(1, 4, 8), CLEF_F32);
    float *y = values(clef_forward(attention, x));
    cr_assert(y, "%s", clef_error(ctx));
    free(y);
    cr_expect_null(clef_forward(attention, clef_ones(ctx, CLEF_SHAPE(4, 8), CLEF_F32)));
    expect_error(ctx, CLEF_SHAPE, "x is [b,t,width]");
}

/* The row of a token's type is added where its position's is: types of tokens are the same as other positions without types. */
Test(language, an_encoder_adds_the_row_of_each_tokens_type) {
    enum { T = 7, WIDTH = 16 };
    clef_module *net = bert();
    clef_tensor *places = clef_parameter(net, "bert.embeddings.position_embeddings.weight"),
                *kinds = clef_parameter(net, "bert.embeddings.token_type_embeddings.weight");
    cr_assert(places && kinds, "%s", clef_error(ctx));
    int64_t ids[T], types[T] = {0, 1, 1, 0, 0, 0, 1};
    for (int i = 0; i < T; i++) ids[i] = (3 * i + i * i) % V;
    clef_tensor *x = clef_from_host(ctx, CLEF_SHAPE(1, T), CLEF_I64, ids),
                *t = clef_from_host(ctx, CLEF_SHAPE(1, T), CLEF_I64, types);
    float *typed = classes_of(net, x, CLEF_NONE, t), *place = values(places), *kind = values(kinds);
    for (int i = 0; i < T; i++)
        for (int k = 0; k < WIDTH; k++) place[i * WIDTH + k] += kind[types[i] * WIDTH + k] - kind[k];
    cr_assert_eq(clef_assign(places, clef_from_host(ctx, clef_tensor_shape(places), CLEF_F32, place)), CLEF_OK);
    x = clef_from_host(ctx, CLEF_SHAPE(1, T), CLEF_I64, ids);
    float *moved = classes_of(net, x, CLEF_NONE, CLEF_NONE);
    for (int i = 0; i < 3; i++) cr_expect(fabsf(typed[i] - moved[i]) < 1e-5, "class %d: %g and %g", i, typed[i], moved[i]);
    free(typed), free(moved), free(place), free(kind);
}

Test(language, an_encoder_is_refused_what_does_not_fit) {
    clef_tensor *y = NULL;
    cr_expect_null(clef_nn_bert(ctx, &(clef_bert_options){.heads = 5, .width = 12}));
    expect_error(ctx, CLEF_INVALID, "bert: a width of 12 with 5 heads");
    clef_module *net = bert();
    cr_expect_null(clef_forward(net, clef_zeros(ctx, CLEF_SHAPE(1, 17), CLEF_I64)));
    expect_error(ctx, CLEF_SHAPE, "bert: tokens [1,17] are more than its context of 16");
    clef_tensor *in[] = {clef_zeros(ctx, CLEF_SHAPE(2, 9), CLEF_I64), CLEF_NONE, clef_zeros(ctx, CLEF_SHAPE(2, 8), CLEF_I64)};
    cr_expect_eq(clef_call(net, in, 3, &y, 1), CLEF_SHAPE);
    expect_error(ctx, CLEF_SHAPE, "bert: types [2,8]; they are one for each of the tokens [2,9]");
    cr_expect_null(clef_generator_new(net, NULL));
    expect_error(ctx, CLEF_INVALID, "generator: the bert is no language model");
}

/* ---- dtypes ---- */

static bool is_matrix(const clef_tensor *t) { return clef_tensor_shape(t).rank == 2; }

/* Matrices of `half` have the values that rounding gives; all else has those that were saved. */
static void expect_rounded(clef_module *half, clef_module *net, clef_dtype dtype) {
    cr_assert_eq(clef_module_tensors(half), clef_module_tensors(net));
    for (int i = 0; i < clef_module_tensors(net); i++) {
        clef_tensor *t = clef_module_tensor(half, i).tensor, *saved = clef_module_tensor(net, i).tensor;
        bool narrow = is_matrix(saved) || clef_tensor_dtype(t) == dtype; /* biases of linear layers go with their matrices */
        cr_expect(!is_matrix(saved) || clef_tensor_dtype(t) == dtype, "%s", clef_module_tensor(net, i).name);
        float *have = values(clef_to(t, CLEF_F32)), *want = values(narrow ? clef_to(clef_to(saved, dtype), CLEF_F32) : saved);
        cr_expect_arr_eq(have, want, (size_t)clef_numel(t) * sizeof *have, "%s", clef_module_tensor(net, i).name);
        free(have), free(want);
    }
}

Test(language, weights_are_opened_in_a_dtype) {
    static const clef_dtype halves[] = {CLEF_F16, CLEF_BF16};
    char dir[] = "/tmp/clef-language-XXXXXX", command[64];
    cr_assert_not_null(mkdtemp(dir));
    clef_module *net = gpt();
    clef_set_training(net, false);
    cr_assert_eq(clef_language_save(net, dir), CLEF_OK, "%s", clef_error(ctx));
    clef_tensor *x = tokens(0);
    for (int i = 0; i < 2; i++) {
        clef_module *half = clef_language_open(ctx, dir, &(clef_language_options){.half = halves[i]});
        cr_assert_not_null(half, "%s", clef_error(ctx));
        clef_set_training(half, false);
        expect_rounded(half, net, halves[i]);
        float *y = values(clef_to(clef_forward(half, x), CLEF_F32)), *exact = values(clef_forward(net, x));
        double far = 0, largest = 0;
        for (int k = 0; k < (int)clef_numel(clef_forward(net, x)); k++)
            far = fmax(far, fabs(y[k] - exact[k])), largest = fmax(largest, fabs(exact[k]));
        cr_expect(far > 0 && far < largest * (halves[i] == CLEF_F16 ? 0.01 : 0.05), "%s: %g of %g", clef_dtype_name(halves[i]), far,
                  largest);
        free(y), free(exact);
    }
    cr_expect_null(clef_language_open(ctx, dir, &(clef_language_options){.half = CLEF_BF16, .f32 = true}));
    expect_error(ctx, CLEF_INVALID, "language_open: weights cannot be f32 and bf16");
    cr_expect_null(clef_language_open(ctx, dir, &(clef_language_options){.half = CLEF_I64}));
    expect_error(ctx, CLEF_INVALID, "language_open: half is i64; it is f16 or bf16");
    cr_assert_eq(clef_language_save(lstm(), dir), CLEF_OK, "%s", clef_error(ctx));
    cr_expect_null(clef_language_open(ctx, dir, &(clef_language_options){.half = CLEF_F16}));
    expect_error(ctx, CLEF_UNSUPPORTED, "weights of an LSTM are f32, and cannot be f16");
    snprintf(command, sizeof command, "rm -r %s", dir);
    cr_expect_eq(system(command), 0);
}

Test(language, what_does_not_fit_is_said) {
    cr_expect_null(clef_nn_gpt(ctx, &(clef_gpt_options){.heads = 5, .width = 12}));
    expect_error(ctx, CLEF_INVALID, "gpt: a width of 12 with 5 heads");
    cr_expect_null(clef_nn_gpt(ctx, &(clef_gpt_options){.layers = -1}));
    expect_error(ctx, CLEF_INVALID, "a size is negative");
    cr_expect_null(clef_nn_gpt(ctx, &(clef_gpt_options){.dropout = 1, .layers = 1}));
    expect_error(ctx, CLEF_INVALID, "dropout must be within [0,1)");
    cr_expect_null(clef_nn_llama(ctx, &(clef_llama_options){.heads = 4, .kv_heads = 3, .width = 16}));
    expect_error(ctx, CLEF_INVALID, "heads must be a multiple of kv_heads");
    cr_expect_null(clef_nn_llama(ctx, &(clef_llama_options){.heads = 4, .width = 12}));
    expect_error(ctx, CLEF_INVALID, "rotary positions want an even head");
    cr_expect_null(clef_nn_llama(ctx, &(clef_llama_options){.heads = 3, .width = 14, .layers = 1}));
    expect_error(ctx, CLEF_INVALID, "llama: 14 columns for 3 heads; width is a multiple of heads");
    cr_expect_null(clef_nn_llama(ctx, &(clef_llama_options){.dtype = CLEF_I32, .heads = 2, .width = 8, .layers = 1}));
    expect_error(ctx, CLEF_INVALID, "f32, f16 or bf16");
    clef_module *g = gpt();
    cr_expect_null(clef_forward(g, clef_zeros(ctx, CLEF_SHAPE(1, 17), CLEF_I64)));
    expect_error(ctx, CLEF_SHAPE, "gpt: tokens [1,17] are more than its context of 16");
    cr_expect_null(clef_forward(g, clef_zeros(ctx, CLEF_SHAPE(9), CLEF_I64)));
    expect_error(ctx, CLEF_SHAPE, "it wants [b,t]");
    cr_expect_eq(clef_language_sizes_of(clef_nn_relu(ctx)).vocabulary, 0);
    cr_expect_null(clef_language_open(ctx, "/nonexistent", NULL));
    expect_error(ctx, CLEF_IO, "language_open: /nonexistent: ");
    cr_expect_eq(clef_language_save(clef_nn_relu(ctx), "/tmp"), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "no language model");
}
