/* language.c — texts to learn from, models of them, and the tokens that a model speaks. */
#include "tool.h"
#include <string.h>
#include <sys/stat.h>

bool language_is(const char *model) { return !strcmp(model, "gpt") || !strcmp(model, "llama") || !strcmp(model, "lstm"); }

const char *language_mismatch(const language_options *o, const char *model, bool text) {
    bool of_gpt = o->no_bias || o->activation;
    bool shaped = o->layers || o->heads || o->kv_heads || o->width || o->dropout > 0;
    if (text != language_is(model))
        return text ? "--data text:FILE wants --model gpt, llama or lstm" : "--model gpt, llama and lstm want --data text:FILE";
    if (!text && (shaped || o->context || o->windows || o->tokenizer))
        return "--layers, --heads, --kv-heads, --width, --context, --dropout, --windows and --tokenizer belong to --data text:FILE";
    if (o->heads && !strcmp(model, "lstm")) return "--heads belongs to --model gpt or llama";
    if (o->kv_heads && strcmp(model, "llama") != 0) return "--kv-heads belongs to --model llama";
    if (of_gpt && strcmp(model, "gpt") != 0) return "--no-bias and --activation belong to --model gpt";
    if (o->dropout >= 1) return "--dropout wants a number below 1";
    return NULL;
}

/* ---- data ---- */
static clef_tokenizer *make_tokenizer(clef_context *ctx, const char *kind, const char *text) {
    if (!kind || !strcmp(kind, "characters")) return clef_tokenizer_characters_of(ctx, text);
    if (!strcmp(kind, "bytes")) return clef_tokenizer_bytes(ctx);
    return clef_tokenizer_open(ctx, kind);
}

bool language_read(source *s, clef_context *ctx, const language_options *o, uint64_t seed) {
    clef_tokenizer *t = make_tokenizer(ctx, o->tokenizer, s->dir);
    s->windows = (clef_text_options){.tokenizer = t, .context = o->context, .windows = o->windows, .seed = seed};
    return t;
}

/* ---- model ---- */
static int64_t or_usual(int64_t value, int64_t usual) { return value ? value : usual; }

clef_module *language_make(const char *model, clef_context *ctx, int64_t vocabulary, const language_options *o) {
    if (!strcmp(model, "lstm"))
        return clef_nn_lstm_language(
            ctx,
            &(clef_lstm_language_options){
                .vocabulary = vocabulary, .context = o->context, .layers = o->layers, .width = o->width, .dropout = o->dropout});
    int64_t context = or_usual(o->context, 64), layers = or_usual(o->layers, 4), heads = or_usual(o->heads, 4),
            width = or_usual(o->width, 128);
    if (!strcmp(model, "gpt"))
        return clef_nn_gpt(ctx, &(clef_gpt_options){.vocabulary = vocabulary,
                                                    .context = context,
                                                    .layers = layers,
                                                    .heads = heads,
                                                    .width = width,
                                                    .dropout = o->dropout,
                                                    .no_bias = o->no_bias,
                                                    .exact_gelu = o->activation && !strcmp(o->activation, "gelu")});
    return clef_nn_llama(ctx, &(clef_llama_options){.vocabulary = vocabulary,
                                                    .context = context,
                                                    .layers = layers,
                                                    .heads = heads,
                                                    .kv_heads = o->kv_heads,
                                                    .width = width,
                                                    .dropout = o->dropout,
                                                    .tied = true});
}

clef_status language_spare_decay(clef_optimizer *optimizer, clef_module *net) {
    clef_status status = CLEF_OK;
    for (int i = 0; i < clef_module_tensors(net) && !status; i++) {
        clef_named_tensor t = clef_module_tensor(net, i);
        if (!t.is_buffer && clef_tensor_shape(t.tensor).rank < 2) status = clef_optimizer_group(optimizer, t.name, 1, 0);
    }
    return status;
}

/* ---- files beside a model ---- */
static bool beside(const char *model, const char *name, char *path, size_t size) {
    struct stat st;
    const char *slash = strrchr(model, '/');
    bool directory = !stat(model, &st) && S_ISDIR(st.st_mode);
    int length = directory ? (int)strlen(model) : slash ? (int)(slash - model) : 1;
    int n = snprintf(path, size, "%.*s/%s", length, directory || slash ? model : ".", name);
    return n > 0 && (size_t)n < size && !stat(path, &st);
}

/* What is missing above it; what cannot be made is found by who writes there. */
static void make_parents(const char *directory) {
    char path[4096];
    if (strlen(directory) >= sizeof path) return;
    strcpy(path, directory);
    for (char *slash = path; (slash = strchr(slash + 1, '/'));) {
        *slash = 0;
        mkdir(path, 0777);
        *slash = '/';
    }
}

clef_status language_save(clef_module *net, clef_tokenizer *tokenizer, const char *directory) {
    char path[4096];
    make_parents(directory);
    clef_status status = clef_language_save(net, directory);
    beside(directory, "tokenizer.json", path, sizeof path);
    return status ? status : clef_tokenizer_save(tokenizer, path);
}

/* tokenizer.json, or GPT-2's two files; without them 256 tokens are bytes. */
clef_tokenizer *language_tokenizer(const char *verb_name, clef_context *ctx, const char *model, int64_t vocabulary) {
    char path[4096] = "";
    bool file = beside(model, "tokenizer.json", path, sizeof path) || beside(model, "vocab.json", path, sizeof path);
    if (!file && vocabulary != 256) {
        fprintf(stderr, "clef %s: beside %s there is no tokenizer.json, and its %lld tokens are no bytes\n", verb_name, model,
                (long long)vocabulary);
        return NULL;
    }
    clef_tokenizer *t = file ? clef_tokenizer_open(ctx, path) : clef_tokenizer_bytes(ctx);
    if (!t) tool_failed(verb_name, ctx);
    if (!t || clef_tokenizer_size(t) <= vocabulary) return t;
    fprintf(stderr, "clef %s: %s has %lld tokens, but the model %lld\n", verb_name, path, (long long)clef_tokenizer_size(t),
            (long long)vocabulary);
    return NULL;
}
