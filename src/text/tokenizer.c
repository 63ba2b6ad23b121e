/* tokenizer.c — tokenizers of bytes and of characters, and what all of them are to their users. */
#include "text/text_internal.h"
#include <string.h>

/* ---- the context's tokenizers ---- */
typedef struct room {
    clef_tokenizer *first;
} room;

static void free_tokenizer(clef_tokenizer *t) {
    clef__tokens_free(&t->tokens);
    clef__free(t);
}

static void close_room(clef_context *ctx, void *state) {
    room *r = state;
    (void)ctx;
    for (clef_tokenizer *t = r->first, *next; t; t = next) {
        next = t->next;
        free_tokenizer(t);
    }
    clef__free(r);
}

static room *room_of(clef_context *ctx) { return clef__make_room_state(ctx, CLEF__ROOM_TEXT, sizeof(room), close_room); }

clef_tokenizer *clef__tokenizer_new(clef_context *ctx, const char *op) {
    room *r = room_of(ctx);
    clef_tokenizer *t = r ? clef__calloc(1, sizeof *t) : NULL;
    if (!t) {
        clef__fail(ctx, CLEF_MEMORY, "%s: out of memory", op);
        return NULL;
    }
    t->ctx = ctx;
    for (int b = 0; b < 256; b++) t->unit[b] = -1;
    t->next = r->first;
    r->first = t;
    return t;
}

void clef_tokenizer_close(clef_tokenizer *tokenizer) {
    if (!tokenizer) return;
    clef_tokenizer **at = &room_of(tokenizer->ctx)->first;
    while (*at != tokenizer) at = &(*at)->next;
    *at = tokenizer->next;
    free_tokenizer(tokenizer);
}

/* ---- making ---- */
clef_tokenizer *clef_tokenizer_bytes(clef_context *ctx) {
    clef_tokenizer *t = ctx ? clef__tokenizer_new(ctx, "tokenizer_bytes") : NULL;
    if (!t) return NULL;
    t->of_bytes = true;
    bool fits = true;
    for (int b = 0; b < 256; b++) {
        uint8_t byte = (uint8_t)b;
        fits = fits && clef__tokens_put(&t->tokens, b, &byte, 1);
        t->unit[b] = b;
    }
    if (fits) return t;
    clef__fail(ctx, CLEF_MEMORY, "tokenizer_bytes: out of memory");
    clef_tokenizer_close(t);
    return NULL;
}

enum { CODES = 0x110000 };

/* Marks the characters of a text, which must be UTF-8 without U+0000. */
static bool mark_characters(const uint8_t *text, size_t size, uint8_t *seen, clef__why *why) {
    if (size == 0) return clef__wrong(why, CLEF_FORMAT, "is empty; give some text");
    for (size_t at = 0; at < size;) {
        uint32_t code;
        int length = clef__utf8_next(text + at, size - at, &code);
        if (length == 0) return clef__wrong(why, CLEF_FORMAT, "is not UTF-8 at byte %zu; convert it, or take bytes as tokens", at);
        if (code == 0) return clef__wrong(why, CLEF_FORMAT, "has a zero at byte %zu, which is no text; take bytes as tokens", at);
        seen[code] = 1;
        at += (size_t)length;
    }
    return true;
}

static size_t put_utf8(uint32_t code, uint8_t out[4]) {
    static const uint8_t lead[] = {0, 0xC0, 0xE0, 0xF0};
    size_t more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    out[0] = (uint8_t)(lead[more] | code >> 6 * more);
    for (size_t i = 1; i <= more; i++) out[i] = (uint8_t)(0x80 | (code >> 6 * (more - i) & 0x3F));
    return more + 1;
}

/* A token for each character that the text has. */
static bool put_characters(clef_tokenizer *t, const uint8_t *text, size_t size, clef__why *why) {
    uint8_t *seen = clef__calloc(CODES, 1), utf8[4];
    bool ok = seen ? mark_characters(text, size, seen, why) : clef__wrong(why, CLEF_MEMORY, "needs more memory than there is");
    for (uint32_t code = 0; ok && code < CODES; code++)
        if (seen[code] && !clef__tokens_put(&t->tokens, t->tokens.n, utf8, put_utf8(code, utf8)))
            ok = clef__wrong(why, CLEF_MEMORY, "needs more memory than there is");
    clef__free(seen);
    return ok;
}

static clef_tokenizer *of_characters(clef_context *ctx, const uint8_t *text, size_t size, const char *name) {
    clef__why why;
    clef_tokenizer *t = clef__tokenizer_new(ctx, "tokenizer_characters");
    if (!t || put_characters(t, text, size, &why)) return t;
    clef__fail(ctx, why.status, "tokenizer_characters: %s %s", name, why.line);
    clef_tokenizer_close(t);
    return NULL;
}

clef_tokenizer *clef_tokenizer_characters(clef_context *ctx, const char *text, size_t size) {
    if (!ctx) return NULL;
    if (text) return of_characters(ctx, (const uint8_t *)text, size, "the text");
    clef__fail(ctx, CLEF_INVALID, "tokenizer_characters: text is NULL");
    return NULL;
}

clef_tokenizer *clef_tokenizer_characters_of(clef_context *ctx, const char *path) {
    clef__blob blob;
    if (!ctx || !clef__text_read(ctx, "tokenizer_characters", path, &blob)) return NULL;
    clef_tokenizer *t = of_characters(ctx, blob.bytes, blob.size, path);
    clef__blob_free(&blob);
    return t;
}

int64_t clef_tokenizer_size(const clef_tokenizer *tokenizer) { return tokenizer ? tokenizer->tokens.n : 0; }

/* ---- encoding ---- */
void clef__ids_put(clef__ids *ids, int32_t id) {
    int64_t at = ids->n++;
    if (at >= ids->most) return;
    switch (ids->width) {
    case 1: ((uint8_t *)ids->to)[at] = (uint8_t)id; break;
    case 2: ((uint16_t *)ids->to)[at] = (uint16_t)id; break;
    case 4: ((int32_t *)ids->to)[at] = id; break;
    default: ((int64_t *)ids->to)[at] = id; break;
    }
}

static bool encode_characters(const clef_tokenizer *t, const uint8_t *text, size_t at, size_t end, clef__ids *out, clef__why *why) {
    while (at < end) {
        uint32_t code;
        int length = clef__utf8_next(text + at, end - at, &code);
        if (length == 0) return clef__wrong(why, CLEF_FORMAT, "is not UTF-8 at byte %zu; convert it, or take bytes as tokens", at);
        int32_t id = clef__tokens_find(&t->tokens, text + at, (size_t)length);
        if (id < 0)
            return clef__wrong(why, CLEF_FORMAT, "has U+%04X at byte %zu, which is no token of the tokenizer", (unsigned)code, at);
        clef__ids_put(out, id);
        at += (size_t)length;
    }
    return true;
}

bool clef__encode(const clef_tokenizer *t, const uint8_t *text, size_t begin, size_t end, clef__ids *out, clef__why *why) {
    if (!t->of_bytes) return encode_characters(t, text, begin, end, out, why);
    for (size_t i = begin; i < end; i++) clef__ids_put(out, t->unit[text[i]]);
    return true;
}

int64_t clef_tokenizer_encode(clef_tokenizer *tokenizer, const char *text, size_t size, int64_t *ids, int64_t most) {
    clef__why why;
    if (!tokenizer) return -1;
    if ((!text && size) || most < 0 || (!ids && most)) {
        clef__fail(tokenizer->ctx, CLEF_INVALID, "tokenizer_encode: %s", most < 0 ? "most is below 0" : "text or ids is NULL");
        return -1;
    }
    clef__ids out = {.to = ids, .width = sizeof *ids, .most = most};
    if (clef__encode(tokenizer, (const uint8_t *)text, 0, size, &out, &why)) return out.n;
    clef__fail(tokenizer->ctx, why.status, "tokenizer_encode: the text %s", why.line);
    return -1;
}

/* ---- decoding ---- */
/* NULL after clef__fail: there is no such token. */
static const clef__token *token_of(const clef_tokenizer *t, int64_t id) {
    if (id >= 0 && id < t->tokens.n && t->tokens.token[id].size > 0) return &t->tokens.token[id];
    clef__fail(t->ctx, CLEF_INVALID, "tokenizer_decode: %lld is no token; they are below %lld", (long long)id,
               (long long)t->tokens.n);
    return NULL;
}

int64_t clef_tokenizer_decode(clef_tokenizer *tokenizer, const int64_t *ids, int64_t n, char *text, size_t size) {
    size_t length = 0;
    if (!tokenizer) return -1;
    if (n < 0 || (!ids && n) || (!text && size)) {
        clef__fail(tokenizer->ctx, CLEF_INVALID, "tokenizer_decode: %s", n < 0 ? "n is below 0" : "ids or text is NULL");
        return -1;
    }
    for (int64_t i = 0; i < n; i++) {
        const clef__token *token = token_of(tokenizer, ids[i]);
        if (!token) return -1;
        size_t left = length + 1 < size ? size - 1 - length : 0;
        if (left) memcpy(text + length, tokenizer->tokens.bytes + token->at, token->size < left ? token->size : left);
        length += token->size;
    }
    if (size) text[length < size ? length : size - 1] = 0;
    return (int64_t)length;
}
