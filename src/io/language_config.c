/* language_config.c — config.json: which model, how large.

   Settings that are not known are passed by, except where they change what is computed: those are looked at below. */
#include "language_config.h"
#include "nn/language.h"
#include <math.h>
#include <string.h>

enum {
    VOCABULARY,
    CONTEXT,
    LAYERS,
    HEADS,
    KV_HEADS,
    HEAD_WIDTH,
    WIDTH,
    HIDDEN,
    EPS,
    ROPE_BASE,
    ROPE_FACTOR,
    TIED,
    BIAS,
    QKV_BIAS,
    MLP_BIAS,
    SCALED,
    SCALED_BY_LAYER,
    WINDOW,
    USES_WINDOW,
    TYPES,
    CLASSES,
    DECODES,
    NUMBERS
};
static const struct {
    const char *key;
    int number;
} keys[] = {{"vocab_size", VOCABULARY},
            {"n_positions", CONTEXT},
            {"n_ctx", CONTEXT},
            {"max_position_embeddings", CONTEXT},
            {"n_layer", LAYERS},
            {"num_hidden_layers", LAYERS},
            {"n_head", HEADS},
            {"num_attention_heads", HEADS},
            {"num_key_value_heads", KV_HEADS},
            {"head_dim", HEAD_WIDTH},
            {"n_embd", WIDTH},
            {"hidden_size", WIDTH},
            {"n_inner", HIDDEN},
            {"intermediate_size", HIDDEN},
            {"layer_norm_epsilon", EPS},
            {"layer_norm_eps", EPS},
            {"rms_norm_eps", EPS},
            {"rope_theta", ROPE_BASE},
            {"factor", ROPE_FACTOR},
            {"tie_word_embeddings", TIED},
            {"bias", BIAS},
            {"attention_bias", QKV_BIAS},
            {"mlp_bias", MLP_BIAS},
            {"scale_attn_weights", SCALED},
            {"scale_attn_by_inverse_layer_idx", SCALED_BY_LAYER},
            {"sliding_window", WINDOW},
            {"use_sliding_window", USES_WINDOW},
            {"type_vocab_size", TYPES},
            {"num_labels", CLASSES},
            {"is_decoder", DECODES}};

/* What stands in the file; numbers are NaN where there is none, words "". */
typedef struct found {
    double number[NUMBERS];
    char type[32], activation[32], rope[32], position[32];
    clef__language_config *config;
} found;

static void take_word(clef__json *json, char word[32]) {
    if (clef__json_peek(json) != '"') {
        clef__json_skip(json);
        return;
    }
    const char *text = clef__json_string(json);
    if (text) strncpy(word, text, 31);
}

static void take_end_tokens(clef__json *json, clef__language_config *c) {
    if (clef__json_peek(json) != '[') {
        double id;
        if (clef__json_double(json, &id) && id >= 0) c->end_token[c->n_end_tokens++] = (int64_t)id;
        return;
    }
    clef__json_expect(json, "[");
    while (clef__json_element(json)) {
        int64_t id;
        if (clef__json_whole(json, &id) && c->n_end_tokens < CLEF_END_TOKENS_MOST) c->end_token[c->n_end_tokens++] = id;
    }
}

static void count_labels(clef__json *json, found *f) {
    f->number[CLASSES] = 0;
    clef__json_expect(json, "{");
    for (; clef__json_member(json); f->number[CLASSES]++) clef__json_skip(json);
}

static void take_members(clef__json *json, found *f, int depth);

static void take_member(clef__json *json, const char *name, found *f, int depth) {
    static const char *const rope_objects[] = {"rope_parameters", "rope_scaling"};
    for (int i = 0; i < 2 && depth == 0; i++)
        if (!strcmp(name, rope_objects[i]) && clef__json_peek(json) == '{') {
            take_members(json, f, 1);
            return;
        }
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!strcmp(name, keys[i].key)) {
            clef__json_double(json, &f->number[keys[i].number]);
            return;
        }
    if (!strcmp(name, "model_type")) take_word(json, f->type);
    else if (!strcmp(name, "activation_function") || !strcmp(name, "hidden_act")) take_word(json, f->activation);
    else if (depth == 1 && (!strcmp(name, "rope_type") || !strcmp(name, "type"))) take_word(json, f->rope);
    else if (!strcmp(name, "position_embedding_type")) take_word(json, f->position);
    else if (!strcmp(name, "id2label") && clef__json_peek(json) == '{') count_labels(json, f);
    else if (!strcmp(name, "eos_token_id")) take_end_tokens(json, f->config);
    else clef__json_skip(json);
}

static void take_members(clef__json *json, found *f, int depth) {
    clef__json_expect(json, "{");
    for (const char *name; (name = clef__json_member(json));) take_member(json, name, f, depth);
}

/* ---- from what stands there to options ---- */
static int64_t whole(const found *f, int number) {
    double v = f->number[number];
    return v >= 0 && v < 1e15 ? (int64_t)v : v < 0 ? -1 : 0;
}
static bool truth(const found *f, int number, bool usual) { return isnan(f->number[number]) ? usual : f->number[number] != 0; }
static double real(const found *f, int number) { return isnan(f->number[number]) ? 0 : f->number[number]; }

static clef_status unsupported(clef__report *report, const char *what, const char *value) {
    return clef__report_set(report, CLEF_UNSUPPORTED, "%s is \"%s\", which is not supported", what, clef__quote(value).text);
}

static clef_status read_gpt(const found *f, clef_gpt_options *o, clef__report *report) {
    const char *a = f->activation;
    bool usual = !*a || !strcmp(a, "gelu_new") || !strcmp(a, "gelu_pytorch_tanh");
    if (!usual && strcmp(a, "gelu") != 0) return unsupported(report, "activation_function", a);
    if (!truth(f, SCALED, true) || truth(f, SCALED_BY_LAYER, false))
        return clef__report_set(report, CLEF_UNSUPPORTED,
                                "scale_attn_weights must be true and scale_attn_by_inverse_layer_idx false");
    *o = (clef_gpt_options){.vocabulary = whole(f, VOCABULARY),
                            .context = whole(f, CONTEXT),
                            .layers = whole(f, LAYERS),
                            .heads = whole(f, HEADS),
                            .width = whole(f, WIDTH),
                            .hidden = whole(f, HIDDEN),
                            .eps = real(f, EPS),
                            .no_bias = !truth(f, BIAS, true),
                            .untied = !truth(f, TIED, true),
                            .exact_gelu = !usual};
    return CLEF_OK;
}

static clef_status read_llama(const found *f, clef_llama_options *o, clef__report *report) {
    bool qwen = !strcmp(f->type, "qwen2");
    if (*f->activation && strcmp(f->activation, "silu") != 0) return unsupported(report, "hidden_act", f->activation);
    if (*f->rope && strcmp(f->rope, "default") != 0) return unsupported(report, "rope_type", f->rope);
    if (truth(f, MLP_BIAS, false)) return unsupported(report, "mlp_bias", "true");
    if (!qwen && truth(f, QKV_BIAS, false)) return unsupported(report, "attention_bias", "true");
    int64_t context = whole(f, CONTEXT), window = whole(f, WINDOW);
    /* Sequences that are no longer than the window never feel it. */
    if (window > 0 && (context == 0 || window < context) && truth(f, USES_WINDOW, !qwen)) context = window;
    *o = (clef_llama_options){.vocabulary = whole(f, VOCABULARY),
                              .context = context,
                              .layers = whole(f, LAYERS),
                              .heads = whole(f, HEADS),
                              .width = whole(f, WIDTH),
                              .kv_heads = whole(f, KV_HEADS),
                              .head_width = whole(f, HEAD_WIDTH),
                              .hidden = whole(f, HIDDEN),
                              .rope_base = real(f, ROPE_BASE),
                              .eps = real(f, EPS) > 0 ? real(f, EPS) : 1e-6,
                              .tied = truth(f, TIED, false),
                              .qkv_bias = qwen};
    return CLEF_OK;
}

static clef_status read_lstm(const found *f, clef_lstm_language_options *o) {
    *o = (clef_lstm_language_options){
        .vocabulary = whole(f, VOCABULARY), .context = whole(f, CONTEXT), .layers = whole(f, LAYERS), .width = whole(f, WIDTH)};
    return CLEF_OK;
}

static clef_status read_bert(const found *f, clef_bert_options *o, clef__report *report) {
    const char *a = f->activation;
    bool approximate = !strcmp(a, "gelu_new") || !strcmp(a, "gelu_pytorch_tanh");
    if (*a && !approximate && strcmp(a, "gelu") != 0) return unsupported(report, "hidden_act", a);
    if (*f->position && strcmp(f->position, "absolute") != 0) return unsupported(report, "position_embedding_type", f->position);
    if (truth(f, DECODES, false)) return unsupported(report, "is_decoder", "true");
    *o = (clef_bert_options){.vocabulary = whole(f, VOCABULARY),
                             .context = whole(f, CONTEXT),
                             .layers = whole(f, LAYERS),
                             .heads = whole(f, HEADS),
                             .width = whole(f, WIDTH),
                             .hidden = whole(f, HIDDEN),
                             .types = whole(f, TYPES),
                             .classes = whole(f, CLASSES),
                             .eps = real(f, EPS),
                             .tanh_gelu = approximate};
    return CLEF_OK;
}

clef_status clef__language_config_read(char *text, size_t size, clef__language_config *config, clef__report *report) {
    *config = (clef__language_config){0};
    found f = {.config = config};
    for (int i = 0; i < NUMBERS; i++) f.number[i] = NAN;
    clef__json json = clef__json_of(text, size);
    take_members(&json, &f, 0);
    if (!clef__json_at_end(&json))
        return clef__report_set(report, CLEF_FORMAT, "no JSON: %s should be at byte %zu",
                                json.expected ? json.expected : "the end of the file", (size_t)(json.at - json.start));
    bool llama = !strcmp(f.type, "llama") || !strcmp(f.type, "mistral") || !strcmp(f.type, "qwen2");
    bool lstm = !strcmp(f.type, "clef_lstm");
    bool bert = !strcmp(f.type, "bert");
    config->kind = llama ? CLEF__LLAMA : lstm ? CLEF__LSTM : bert ? CLEF__BERT : CLEF__GPT;
    if (bert) return read_bert(&f, &config->bert, report);
    if (llama) return read_llama(&f, &config->llama, report);
    if (lstm) return read_lstm(&f, &config->lstm);
    if (!strcmp(f.type, "gpt2")) return read_gpt(&f, &config->gpt, report);
    return clef__report_set(report, CLEF_UNSUPPORTED,
                            "model_type is \"%s\"; Clef knows gpt2, llama, mistral, qwen2, bert and clef_lstm",
                            clef__quote(f.type).text);
}

/* ---- writing ---- */
static void put_whole(clef__text *t, const char *key, int64_t value) {
    clef__text_add(t, ",\n  \"%s\": %lld", key, (long long)value);
}
static void put_truth(clef__text *t, const char *key, bool value) {
    clef__text_add(t, ",\n  \"%s\": %s", key, value ? "true" : "false");
}

static void put_gpt(const clef_gpt_options *o, clef__text *t) {
    clef__text_append(t, "{\n  \"architectures\": [\"GPT2LMHeadModel\"],\n  \"model_type\": \"gpt2\"");
    clef__text_add(t, ",\n  \"activation_function\": \"%s\"", o->exact_gelu ? "gelu" : "gelu_new");
    clef__text_add(t, ",\n  \"layer_norm_epsilon\": %.9g", o->eps);
    put_whole(t, "vocab_size", o->vocabulary);
    put_whole(t, "n_positions", o->context);
    put_whole(t, "n_layer", o->layers);
    put_whole(t, "n_head", o->heads);
    put_whole(t, "n_embd", o->width);
    put_whole(t, "n_inner", o->hidden);
    put_truth(t, "tie_word_embeddings", !o->untied);
    if (o->no_bias) put_truth(t, "bias", false);
}

static void put_llama(const clef_llama_options *o, clef__text *t) {
    clef__text_add(t, "{\n  \"architectures\": [\"%s\"],\n  \"model_type\": \"%s\"",
                   o->qkv_bias ? "Qwen2ForCausalLM" : "LlamaForCausalLM", o->qkv_bias ? "qwen2" : "llama");
    clef__text_add(t, ",\n  \"hidden_act\": \"silu\",\n  \"rms_norm_eps\": %.9g,\n  \"rope_theta\": %.9g", o->eps, o->rope_base);
    put_whole(t, "vocab_size", o->vocabulary);
    put_whole(t, "max_position_embeddings", o->context);
    put_whole(t, "num_hidden_layers", o->layers);
    put_whole(t, "num_attention_heads", o->heads);
    put_whole(t, "num_key_value_heads", o->kv_heads);
    put_whole(t, "head_dim", o->head_width);
    put_whole(t, "hidden_size", o->width);
    put_whole(t, "intermediate_size", o->hidden);
    put_truth(t, "tie_word_embeddings", o->tied);
}

static void put_lstm(const clef_lstm_language_options *o, clef__text *t) {
    clef__text_append(t, "{\n  \"model_type\": \"clef_lstm\"");
    put_whole(t, "vocab_size", o->vocabulary);
    put_whole(t, "max_position_embeddings", o->context);
    put_whole(t, "num_hidden_layers", o->layers);
    put_whole(t, "hidden_size", o->width);
}

static void put_bert(const clef_bert_options *o, clef__text *t) {
    clef__text_append(t, "{\n  \"architectures\": [\"BertForSequenceClassification\"],\n  \"model_type\": \"bert\"");
    clef__text_add(t, ",\n  \"hidden_act\": \"%s\",\n  \"layer_norm_eps\": %.9g", o->tanh_gelu ? "gelu_new" : "gelu", o->eps);
    put_whole(t, "vocab_size", o->vocabulary);
    put_whole(t, "max_position_embeddings", o->context);
    put_whole(t, "num_hidden_layers", o->layers);
    put_whole(t, "num_attention_heads", o->heads);
    put_whole(t, "hidden_size", o->width);
    put_whole(t, "intermediate_size", o->hidden);
    put_whole(t, "type_vocab_size", o->types);
    clef__text_append(t, ",\n  \"id2label\": {");
    for (int64_t i = 0; i < o->classes; i++)
        clef__text_add(t, "%s\"%lld\": \"LABEL_%lld\"", i ? ", " : "", (long long)i, (long long)i);
    clef__text_append(t, "}");
}

void clef__language_config_write(const clef_module *net, clef__text *t) {
    const clef_gpt_options *g = clef__gpt_options_of(net);
    const clef_llama_options *l = clef__llama_options_of(net);
    const clef_bert_options *b = clef__bert_options_of(net);
    clef_dtype dtype = g ? g->dtype : l ? l->dtype : b ? b->dtype : CLEF_F32;
    if (g) put_gpt(g, t);
    else if (l) put_llama(l, t);
    else if (b) put_bert(b, t);
    else put_lstm(clef__lstm_language_options_of(net), t);
    clef__text_add(t, ",\n  \"torch_dtype\": \"%s\"", dtype == CLEF_F32 ? "float32" : dtype == CLEF_F16 ? "float16" : "bfloat16");
    clef_language_sizes s = clef_language_sizes_of(net);
    if (s.n_end_tokens) clef__text_append(t, ",\n  \"eos_token_id\": [");
    for (int i = 0; i < s.n_end_tokens; i++) clef__text_add(t, "%s%lld", i ? ", " : "", (long long)s.end_token[i]);
    if (s.n_end_tokens) clef__text_append(t, "]");
    clef__text_append(t, "\n}\n");
}
