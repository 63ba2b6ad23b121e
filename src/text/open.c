/* open.c — which files a tokenizer is in. */
#include "text/read.h"
#include <string.h>
#include <sys/stat.h>

static bool is_folder(const char *path) {
    struct stat facts;
    return stat(path, &facts) == 0 && S_ISDIR(facts.st_mode);
}

static bool is_there(const char *path) {
    struct stat facts;
    return stat(path, &facts) == 0;
}

static clef_tokenizer *open_gpt2(clef_context *ctx, const char *vocabulary, const char *merges) {
    clef__blob v, m;
    clef__why why;
    if (!clef__text_read(ctx, "tokenizer_open", vocabulary, &v)) return NULL;
    if (!clef__text_read(ctx, "tokenizer_open", merges, &m)) return clef__blob_free(&v), NULL;
    clef_tokenizer *t = clef__tokenizer_new(ctx, "tokenizer_open");
    if (t && !clef__read_gpt2(t, &v, &m, &why)) t = clef__tokenizer_refuse(t, "tokenizer_open", vocabulary, &why);
    clef__blob_free(&v);
    clef__blob_free(&m);
    return t;
}

static clef_tokenizer *open_json(clef_context *ctx, const char *path) {
    clef__blob blob;
    clef__why why;
    if (!clef__text_read(ctx, "tokenizer_open", path, &blob)) return NULL;
    clef_tokenizer *t = clef__tokenizer_new(ctx, "tokenizer_open");
    if (t && !clef__read_tokenizer(t, blob.bytes, blob.size, &why)) t = clef__tokenizer_refuse(t, "tokenizer_open", path, &why);
    clef__blob_free(&blob);
    return t;
}

/* BERT's: a token in each line, and beside it, if it is there, what its normalizer does. */
static clef_tokenizer *open_words(clef_context *ctx, const char *path, const char *config) {
    clef__blob lines, facts = {0};
    clef__why why;
    if (!clef__text_read(ctx, "tokenizer_open", path, &lines)) return NULL;
    if (is_there(config) && !clef__text_read(ctx, "tokenizer_open", config, &facts)) return clef__blob_free(&lines), NULL;
    clef_tokenizer *t = clef__tokenizer_new(ctx, "tokenizer_open");
    if (t && facts.bytes && !clef__read_bert_config(t, &facts, &why)) t = clef__tokenizer_refuse(t, "tokenizer_open", config, &why);
    else if (t && !clef__read_words(t, &lines, &why)) t = clef__tokenizer_refuse(t, "tokenizer_open", path, &why);
    clef__blob_free(&lines);
    clef__blob_free(&facts);
    return t;
}

/* Of a folder, or of the file vocab.json or vocab.txt with its neighbour. */
static clef_tokenizer *open_beside(clef_context *ctx, const char *folder, size_t length) {
    static const char *const names[] = {"tokenizer.json", "vocab.json", "merges.txt", "vocab.txt", "tokenizer_config.json"};
    enum { JSON, VOCABULARY, MERGES, WORDS, CONFIG, FILES };
    char *path[FILES];
    bool named = true;
    const char *own = folder[length] ? folder + length + 1 : "";
    clef_tokenizer *t = NULL;
    for (int i = 0; i < FILES; i++) named &= (path[i] = clef__asprintf("%.*s/%s", (int)length, folder, names[i])) != NULL;
    bool words = named && (strcmp(own, names[WORDS]) == 0 || (!*own && !is_there(path[VOCABULARY]) && is_there(path[WORDS])));
    if (!named) clef__fail(ctx, CLEF_MEMORY, "tokenizer_open: out of memory");
    else if (!*own && (is_there(path[JSON]) || !(words || is_there(path[VOCABULARY])))) t = open_json(ctx, path[JSON]);
    else if (words) t = open_words(ctx, path[WORDS], path[CONFIG]);
    else t = open_gpt2(ctx, path[VOCABULARY], path[MERGES]);
    for (int i = 0; i < FILES; i++) clef__free(path[i]);
    return t;
}

clef_tokenizer *clef_tokenizer_open(clef_context *ctx, const char *path) {
    if (!ctx) return NULL;
    if (!path) return clef__fail(ctx, CLEF_INVALID, "tokenizer_open: the path is NULL"), NULL;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (is_folder(path)) return open_beside(ctx, path, strlen(path));
    if (strcmp(name, "vocab.json") != 0 && strcmp(name, "vocab.txt") != 0) return open_json(ctx, path);
    if (slash) return open_beside(ctx, path, (size_t)(slash - path));
    return name[6] == 't' ? open_words(ctx, path, "tokenizer_config.json") : open_gpt2(ctx, path, "merges.txt");
}
