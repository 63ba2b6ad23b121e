/* language_config.c — config.json: which model, how large.

   Each architecture has one table of its settings, for reading and for writing.  Settings that are not known are passed by, except where
   they change what is computed: `found` takes those, and they are looked at below. */
#include "language_config.h"
#include <math.h>
#include <stddef.h>
#include <string.h>

/* A setting and the field that it is; NOT: true stands there where the field is false. */
typedef struct setting {
    const char *key;
    enum { WHOLE, REAL, TRUTH, NOT, WORD } kind;
    size_t at; /* of an int64_t, a double, a bool, or a char[WORD_SIZE] */
    enum { ALWAYS, IF_SET, NEVER } written;
} setting;
enum { WORD_SIZE = 32 };

#define GPT(field) offsetof(clef_gpt_options, field)
#define LLAMA(field) offsetof(clef_llama_options, field)
#define LSTM(field) offsetof(clef_lstm_language_options, field)
#define BERT(field) offsetof(clef_bert_options, field)
static const setting gpt_settings[] = {{"vocab_size", WHOLE, GPT(vocabulary), ALWAYS},
                                       {"n_positions", WHOLE, GPT(context), ALWAYS},
                                       {"n_ctx", WHOLE, GPT(context), NEVER},
                                       {"n_layer", WHOLE, GPT(layers), ALWAYS},
                                       {"n_head", WHOLE, GPT(heads), ALWAYS},
                                       {"n_embd", WHOLE, GPT(width), ALWAYS},
                                       {"n_inner", WHOLE, GPT(hidden), ALWAYS},
                                       {"layer_norm_epsilon", REAL, GPT(eps), ALWAYS},
                                       {"tie_word_embeddings", NOT, GPT(untied), ALWAYS},
                                       {"bias", NOT, GPT(no_bias), IF_SET},
                                       {0}};
static const setting llama_settings[] = {{"vocab_size", WHOLE, LLAMA(vocabulary), ALWAYS},
                                         {"max_position_embeddings", WHOLE, LLAMA(context), ALWAYS},
                                         {"num_hidden_layers", WHOLE, LLAMA(layers), ALWAYS},
                                         {"num_attention_heads", WHOLE, LLAMA(heads), ALWAYS},
                                         {"num_key_value_heads", WHOLE, LLAMA(kv_heads), ALWAYS},
                                         {"head_dim", WHOLE, LLAMA(head_width), ALWAYS},
                                         {"hidden_size", WHOLE, LLAMA(width), ALWAYS},
                                         {"intermediate_size", WHOLE, LLAMA(hidden), ALWAYS},
                                         {"rms_norm_eps", REAL, LLAMA(eps), ALWAYS},
                                         {"rope_theta", REAL, LLAMA(rope_base), ALWAYS},
                                         {"tie_word_embeddings", TRUTH, LLAMA(tied), ALWAYS},
                                         {0}};
static const setting lstm_settings[] = {{"vocab_size", WHOLE, LSTM(vocabulary), ALWAYS},
                                        {"max_position_embeddings", WHOLE, LSTM(context), ALWAYS},
                                        {"num_hidden_layers", WHOLE, LSTM(layers), ALWAYS},
                                        {"hidden_size", WHOLE, LSTM(width), ALWAYS},
                                        {0}};
static const setting bert_settings[] = {
    {"vocab_size", WHOLE, BERT(vocabulary), ALWAYS},    {"max_position_embeddings", WHOLE, BERT(context), ALWAYS},
    {"num_hidden_layers", WHOLE, BERT(layers), ALWAYS}, {"num_attention_heads", WHOLE, BERT(heads), ALWAYS},
    {"hidden_size", WHOLE, BERT(width), ALWAYS},        {"intermediate_size", WHOLE, BERT(hidden), ALWAYS},
    {"type_vocab_size", WHOLE, BERT(types), ALWAYS},    {"num_labels", WHOLE, BERT(classes), NEVER},
    {"layer_norm_eps", REAL, BERT(eps), ALWAYS},        {0}};
static const setting *settings_of(const clef__language_made *made) {
    static const setting *const of[] = {
        [CLEF__GPT] = gpt_settings, [CLEF__LLAMA] = llama_settings, [CLEF__LSTM] = lstm_settings, [CLEF__BERT] = bert_settings};
    return of[made->kind];
}

/* ---- reading ---- */
/* What stands in the file beside sizes; words are "" where there is none. */
typedef struct found {
    char activation[WORD_SIZE], rope[WORD_SIZE], position[WORD_SIZE];
    bool unscaled, scaled_by_layer, mlp_bias, qkv_bias, uses_window, decodes;
    int64_t window;
    clef__language_config *config;
} found;
#define FOUND(field) offsetof(found, field)
static const setting looked_at[] = {{"activation_function", WORD, FOUND(activation), NEVER},
                                    {"hidden_act", WORD, FOUND(activation), NEVER},
                                    {"position_embedding_type", WORD, FOUND(position), NEVER},
                                    {"scale_attn_weights", NOT, FOUND(unscaled), NEVER},
                                    {"scale_attn_by_inverse_layer_idx", TRUTH, FOUND(scaled_by_layer), NEVER},
                                    {"mlp_bias", TRUTH, FOUND(mlp_bias), NEVER},
                                    {"attention_bias", TRUTH, FOUND(qkv_bias), NEVER},
                                    {"sliding_window", WHOLE, FOUND(window), NEVER},
                                    {"use_sliding_window", TRUTH, FOUND(uses_window), NEVER},
                                    {"is_decoder", TRUTH, FOUND(decodes), NEVER},
                                    {0}};
static const setting of_rope[] = {{"rope_type", WORD, FOUND(rope), NEVER}, {"type", WORD, FOUND(rope), NEVER}, {0}};

static void take_word(clef__json *json, char word[WORD_SIZE]) {
    if (clef__json_peek(json) != '"') {
        clef__json_skip(json);
        return;
    }
    const char *text = clef__json_string(json);
    if (text) strncpy(word, text, WORD_SIZE - 1);
}

/* null leaves the field as it is. */
static void take_number(clef__json *json, const setting *s, void *field) {
    double v;
    if (!clef__json_double(json, &v) || isnan(v)) return;
    if (s->kind == REAL) *(double *)field = v;
    else if (s->kind == WHOLE) *(int64_t *)field = v >= 0 && v < 1e15 ? (int64_t)v : v < 0 ? -1 : 0;
    else *(bool *)field = (v != 0) == (s->kind == TRUTH);
}

static bool take_setting(clef__json *json, const char *name, const setting *s, void *fields) {
    for (; s->key; s++) {
        if (strcmp(name, s->key) != 0) continue;
        void *field = (char *)fields + s->at;
        if (s->kind == WORD) take_word(json, field);
        else take_number(json, s, field);
        return true;
    }
    return false;
}

static void take_end_token(clef__json *json, clef__language_config *c) {
    double id;
    if (clef__json_double(json, &id) && id >= 0 && id < 1e15 && c->n_end_tokens < CLEF_END_TOKENS_MOST)
        c->end_token[c->n_end_tokens++] = (int64_t)id;
}

/* One, or a list; of several members of this name the last one counts.  null leaves them as they are. */
static void take_end_tokens(clef__json *json, clef__language_config *c) {
    if (clef__json_peek(json) == 'n') {
        clef__json_skip(json);
        return;
    }
    c->n_end_tokens = 0;
    if (clef__json_peek(json) != '[') {
        take_end_token(json, c);
        return;
    }
    clef__json_expect(json, "[");
    while (clef__json_element(json)) take_end_token(json, c);
}

static int64_t count_labels(clef__json *json) {
    int64_t n = 0;
    clef__json_expect(json, "{");
    for (; clef__json_member(json); n++) clef__json_skip(json);
    return n;
}

static void take_members(clef__json *json, found *f, bool rope);

static void take_member(clef__json *json, const char *name, found *f, bool rope) {
    clef__language_made *made = &f->config->made;
    bool object = clef__json_peek(json) == '{';
    if (take_setting(json, name, settings_of(made), &made->gpt)) return;
    if (take_setting(json, name, rope ? of_rope : looked_at, f)) return;
    if (object && !rope && (!strcmp(name, "rope_parameters") || !strcmp(name, "rope_scaling"))) take_members(json, f, true);
    else if (object && made->kind == CLEF__BERT && !strcmp(name, "id2label")) made->bert.classes = count_labels(json);
    else if (!strcmp(name, "eos_token_id")) take_end_tokens(json, f->config);
    else clef__json_skip(json);
}

static void take_members(clef__json *json, found *f, bool rope) {
    clef__json_expect(json, "{");
    for (const char *name; (name = clef__json_member(json));) take_member(json, name, f, rope);
}

/* ---- what changes results ---- */
static clef_status unsupported(clef__report *report, const char *what, const char *value) {
    return clef__report_set(report, CLEF_UNSUPPORTED, "%s is \"%s\", which is not supported", what, clef__quote(value).text);
}

static bool is_tanh_gelu(const char *a) { return !strcmp(a, "gelu_new") || !strcmp(a, "gelu_pytorch_tanh"); }

static clef_status check_gpt(const found *f, clef_gpt_options *o, clef__report *report) {
    const char *a = f->activation;
    o->exact_gelu = !strcmp(a, "gelu");
    if (*a && !o->exact_gelu && !is_tanh_gelu(a)) return unsupported(report, "activation_function", a);
    if (f->unscaled || f->scaled_by_layer)
        return clef__report_set(report, CLEF_UNSUPPORTED,
                                "scale_attn_weights must be true and scale_attn_by_inverse_layer_idx false");
    return CLEF_OK;
}

static clef_status check_llama(const found *f, clef_llama_options *o, clef__report *report) {
    if (*f->activation && strcmp(f->activation, "silu") != 0) return unsupported(report, "hidden_act", f->activation);
    if (*f->rope && strcmp(f->rope, "default") != 0) return unsupported(report, "rope_type", f->rope);
    if (f->mlp_bias) return unsupported(report, "mlp_bias", "true");
    if (!o->qkv_bias && f->qkv_bias) return unsupported(report, "attention_bias", "true");
    /* Sequences that are no longer than the window never feel it. */
    if (f->uses_window && f->window > 0 && (o->context == 0 || f->window < o->context)) o->context = f->window;
    if (!(o->eps > 0)) o->eps = 1e-6;
    return CLEF_OK;
}

static clef_status check_bert(const found *f, clef_bert_options *o, clef__report *report) {
    const char *a = f->activation;
    o->tanh_gelu = is_tanh_gelu(a);
    if (*a && !o->tanh_gelu && strcmp(a, "gelu") != 0) return unsupported(report, "hidden_act", a);
    if (*f->position && strcmp(f->position, "absolute") != 0) return unsupported(report, "position_embedding_type", f->position);
    return f->decodes ? unsupported(report, "is_decoder", "true") : CLEF_OK;
}

/* ---- which architecture ---- */
static const struct {
    const char *type;
    int kind;
    bool qkv_bias, window; /* window: sliding_window counts unless use_sliding_window is there and false */
} types[] = {{"gpt2", CLEF__GPT, false, false},   {"llama", CLEF__LLAMA, false, true}, {"mistral", CLEF__LLAMA, false, true},
             {"qwen2", CLEF__LLAMA, true, false}, {"bert", CLEF__BERT, false, false},  {"clef_lstm", CLEF__LSTM, false, false}};

static void not_json(const clef__json *json, clef__report *report) {
    clef__report_set(report, CLEF_FORMAT, "no JSON: %s should be at byte %zu",
                     json->expected ? json->expected : "the end of the file", (size_t)(json->at - json->start));
}

/* model_type may stand behind settings whose meaning it tells: a first look, at a copy, since reading changes the text. */
static clef_status find_type(const char *text, size_t size, found *f, clef__report *report) {
    char type[WORD_SIZE] = "", *copy = clef__calloc(1, size + 1);
    if (!copy) return clef__report_set(report, CLEF_MEMORY, "no memory for its text");
    clef__json json = clef__json_of(memcpy(copy, text, size), size);
    clef__json_expect(&json, "{");
    for (const char *name; (name = clef__json_member(&json));)
        if (!strcmp(name, "model_type")) take_word(&json, type);
        else clef__json_skip(&json);
    if (!clef__json_at_end(&json)) not_json(&json, report);
    clef__free(copy);
    if (report->status) return report->status;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (strcmp(type, types[i].type) != 0) continue;
        f->config->made.kind = types[i].kind;
        f->uses_window = types[i].window;
        if (types[i].kind == CLEF__LLAMA) f->config->made.llama.qkv_bias = types[i].qkv_bias;
        return CLEF_OK;
    }
    return clef__report_set(report, CLEF_UNSUPPORTED,
                            "model_type is \"%s\"; Clef knows gpt2, llama, mistral, qwen2, bert and clef_lstm",
                            clef__quote(type).text);
}

clef_status clef__language_config_read(char *text, size_t size, clef__language_config *config, clef__report *report) {
    *config = (clef__language_config){0};
    found f = {.config = config};
    if (find_type(text, size, &f, report)) return report->status;
    clef__json json = clef__json_of(text, size);
    take_members(&json, &f, false);
    if (!clef__json_at_end(&json)) return not_json(&json, report), report->status;
    switch (config->made.kind) {
    case CLEF__GPT: return check_gpt(&f, &config->made.gpt, report);
    case CLEF__LLAMA: return check_llama(&f, &config->made.llama, report);
    case CLEF__BERT: return check_bert(&f, &config->made.bert, report);
    case CLEF__LSTM: break;
    }
    return CLEF_OK;
}

/* ---- writing ---- */
static void put_setting(clef__text *t, const setting *s, const void *field) {
    bool is = s->kind >= TRUTH && *(const bool *)field;
    if (s->written == NEVER || (s->written == IF_SET && !is)) return;
    if (s->kind == WHOLE) clef__text_add(t, ",\n  \"%s\": %lld", s->key, (long long)*(const int64_t *)field);
    else if (s->kind == REAL) {
        clef__text_add(t, ",\n  \"%s\": ", s->key);
        clef__text_number(t, "%.9g", *(const double *)field);
    } else clef__text_add(t, ",\n  \"%s\": %s", s->key, is == (s->kind == TRUTH) ? "true" : "false");
}

/* What no field says by itself. */
static void put_head(const clef__language_made *made, clef__text *t) {
    const char *architecture = "", *type = "clef_lstm", *activation = "";
    switch (made->kind) {
    case CLEF__GPT: architecture = "GPT2LMHeadModel", type = "gpt2"; break;
    case CLEF__LLAMA:
        architecture = made->llama.qkv_bias ? "Qwen2ForCausalLM" : "LlamaForCausalLM";
        type = made->llama.qkv_bias ? "qwen2" : "llama", activation = "silu";
        break;
    case CLEF__BERT:
        architecture = "BertForSequenceClassification", type = "bert", activation = made->bert.tanh_gelu ? "gelu_new" : "gelu";
        break;
    case CLEF__LSTM: break;
    }
    clef__text_add(t, "{\n  \"model_type\": \"%s\"", type);
    if (*architecture) clef__text_add(t, ",\n  \"architectures\": [\"%s\"]", architecture);
    if (*activation) clef__text_add(t, ",\n  \"hidden_act\": \"%s\"", activation);
    if (made->kind == CLEF__GPT)
        clef__text_add(t, ",\n  \"activation_function\": \"%s\"", made->gpt.exact_gelu ? "gelu" : "gelu_new");
}

static void put_labels(int64_t classes, clef__text *t) {
    clef__text_append(t, ",\n  \"id2label\": {");
    for (int64_t i = 0; i < classes; i++)
        clef__text_add(t, "%s\"%lld\": \"LABEL_%lld\"", i ? ", " : "", (long long)i, (long long)i);
    clef__text_append(t, "}");
}

static clef_dtype dtype_of(const clef__language_made *made) {
    switch (made->kind) {
    case CLEF__GPT: return made->gpt.dtype;
    case CLEF__LLAMA: return made->llama.dtype;
    case CLEF__BERT: return made->bert.dtype;
    case CLEF__LSTM: break;
    }
    return CLEF_F32;
}

void clef__language_config_write(const clef_module *net, clef__text *t) {
    const clef__language *lm = clef__language_of(net);
    clef_dtype dtype = dtype_of(&lm->made);
    put_head(&lm->made, t);
    for (const setting *s = settings_of(&lm->made); s->key; s++) put_setting(t, s, (const char *)&lm->made.gpt + s->at);
    if (lm->made.kind == CLEF__BERT) put_labels(lm->made.bert.classes, t);
    clef__text_add(t, ",\n  \"torch_dtype\": \"%s\"", dtype == CLEF_F32 ? "float32" : dtype == CLEF_F16 ? "float16" : "bfloat16");
    const clef_language_sizes *s = &lm->sizes;
    if (s->n_end_tokens) clef__text_append(t, ",\n  \"eos_token_id\": [");
    for (int i = 0; i < s->n_end_tokens; i++) clef__text_add(t, "%s%lld", i ? ", " : "", (long long)s->end_token[i]);
    if (s->n_end_tokens) clef__text_append(t, "]");
    clef__text_append(t, "\n}\n");
}
