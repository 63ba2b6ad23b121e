/* text.c — text files as datasets: windows of tokens.  A dataset has the tokens of its split, in as few bytes each as they need, in one
   block; a window is copied when a loader asks for it. */
#include "text/text_internal.h"
#include <math.h>
#include <string.h>

bool clef__text_read(clef_context *ctx, const char *op, const char *path, clef__blob *blob) {
    clef__why why;
    if (!path) return clef__fail(ctx, CLEF_INVALID, "%s: the path is NULL", op), false;
    bool ok = clef__blob_read(path, blob, &why);
    if (ok && clef__blob_is_gzip(blob)) ok = clef__blob_gunzip(blob, SIZE_MAX / 4, &why);
    if (ok) return true;
    clef__blob_free(blob);
    clef__fail(ctx, why.status, "%s: %s %s", op, path, why.line);
    return false;
}

/* ---- windows ---- */
typedef struct windows {
    int64_t n, context; /* tokens */
    uint64_t seed;
    bool random;
    int width; /* bytes of a token */
    uint8_t token[];
} windows;

static int64_t token_at(const windows *w, int64_t i) {
    if (w->width == 1) return w->token[i];
    if (w->width == 2) return ((const uint16_t *)(const void *)w->token)[i];
    return ((const int32_t *)(const void *)w->token)[i];
}

static int64_t draw_place(const windows *w, int64_t item, uint32_t epoch) {
    uint32_t key[2] = {(uint32_t)w->seed, (uint32_t)(w->seed >> 32)}, out[4];
    clef__philox(key, (uint32_t[4]){(uint32_t)item, (uint32_t)(item >> 32), epoch, CLEF__DRAW_WINDOW}, out);
    return (int64_t)(((uint64_t)out[1] << 32 | out[0]) % (uint64_t)(w->n - w->context));
}

/* Fills x and y; the last of consecutive windows begins before its turn, and what it repeats is no target. */
static bool fetch_window(const void *user, int64_t i, uint32_t epoch, void *const *out) {
    const windows *w = user;
    int64_t last = w->n - w->context - 1, turn = w->random ? draw_place(w, i, epoch) : i * w->context;
    int64_t first = turn < last ? turn : last, *x = out[0], *y = out[1];
    for (int64_t k = 0; k < w->context; k++) {
        x[k] = token_at(w, first + k);
        y[k] = first + k < turn ? CLEF_NO_TARGET : token_at(w, first + k + 1);
    }
    return true;
}

/* ---- opening ---- */
static const char *wrong_options(const clef_text_options *o) {
    if (o->context < 0 || o->context > INT32_MAX || o->windows < 0) return "context and windows are 0 or more";
    if (!(o->share >= 0 && o->share <= 1)) return "share is above 0 and at most 1, or 0 for 0.9";
    if (o->windows > 0 && (o->consecutive || o->split == CLEF_TEST))
        return "windows is of random ones; consecutive ones follow from the text";
    return NULL;
}

/* Where the training part ends. */
static size_t border(const clef__blob *text, double share) {
    size_t at = (size_t)floor((double)text->size * (share > 0 ? share : 0.9));
    if (at >= text->size) return text->size;
    for (int back = 0; back < 3 && at > 0 && (text->bytes[at] & 0xC0) == 0x80; back++) at--;
    return at;
}

static int width_of(int64_t size) { return size <= 256 ? 1 : size <= 65536 ? 2 : 4; }

/* The tokens of a part of the text; NULL with why. */
static windows *encode_part(const clef_tokenizer *t, const clef__blob *text, size_t begin, size_t end, clef__why *why) {
    int width = width_of(clef_tokenizer_size(t));
    size_t bytes = (end - begin) * (size_t)width; /* a text has no more tokens than bytes */
    windows *w = clef__alloc(sizeof *w + bytes), *fitted;
    if (!w) return clef__wrong(why, CLEF_MEMORY, "needs %zu bytes of memory", bytes), NULL;
    clef__ids out = {.to = w->token, .width = width, .most = (int64_t)(end - begin)};
    if (!clef__encode(t, text->bytes, begin, end, &out, why)) return clef__free(w), NULL;
    *w = (windows){.n = out.n, .width = width};
    fitted = clef__realloc(w, sizeof *w + (size_t)(out.n * width));
    return fitted ? fitted : w;
}

/* The file's tokens of the split; NULL after clef__fail. */
static windows *read_tokens(clef_context *ctx, const char *path, const clef_tokenizer *t, const clef_text_options *o) {
    clef__blob text;
    clef__why why;
    if (!clef__text_read(ctx, "text", path, &text)) return NULL;
    size_t at = border(&text, o->share);
    bool test = o->split == CLEF_TEST;
    windows *w = encode_part(t, &text, test ? at : 0, test ? text.size : at, &why);
    clef__blob_free(&text);
    if (!w) clef__fail(ctx, why.status, "text: %s %s", path, why.line);
    return w;
}

static bool long_enough(clef_context *ctx, const char *path, const windows *w, int64_t context, clef_split_name split) {
    if (w->n > context) return true;
    clef__fail(ctx, CLEF_FORMAT, "text: %s has %lld tokens to %s; a window has %lld, one more than the context", path,
               (long long)w->n, split == CLEF_TEST ? "test" : "train", (long long)context + 1);
    return false;
}

static clef_dataset *windows_dataset(clef_context *ctx, windows *w, int64_t size, int64_t classes) {
    clef_dataset *data = clef__dataset_empty(ctx, "text", CLEF__DRAWN, size, classes);
    if (!data) return clef__free(w), NULL;
    data->drawn = w;
    data->draw = fetch_window;
    clef_field x = {.name = "x", .shape = CLEF_SHAPE(w->context), .dtype = CLEF_I64};
    clef_field y = {.name = "y", .shape = x.shape, .dtype = CLEF_I64, .target = true, .classes = classes};
    return clef__dataset_add(data, &x) && clef__dataset_add(data, &y) ? data : NULL;
}

clef_dataset *clef_text(clef_context *ctx, const char *path, const clef_text_options *options) {
    static const clef_text_options defaults;
    const clef_text_options *o = options ? options : &defaults;
    if (!ctx || !clef__is_split(ctx, "text", o->split)) return NULL;
    const char *wrong = wrong_options(o);
    if (!wrong && o->tokenizer && o->tokenizer->ctx != ctx) wrong = "the tokenizer belongs to another context";
    if (wrong) return clef__fail(ctx, CLEF_INVALID, "text: %s", wrong), NULL;
    clef_tokenizer *bytes = o->tokenizer ? NULL : clef_tokenizer_bytes(ctx);
    const clef_tokenizer *t = bytes ? bytes : o->tokenizer;
    int64_t context = o->context ? o->context : 64, classes = clef_tokenizer_size(t);
    windows *w = t ? read_tokens(ctx, path, t, o) : NULL;
    clef_tokenizer_close(bytes);
    if (!w || !long_enough(ctx, path, w, context, o->split)) return clef__free(w), NULL;
    w->context = context;
    w->seed = o->seed;
    w->random = o->split == CLEF_TRAIN && !o->consecutive;
    int64_t cover = (w->n - 2) / context + 1; /* of n - 1 targets */
    return windows_dataset(ctx, w, w->random && o->windows ? o->windows : cover, classes);
}
