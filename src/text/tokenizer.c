/* tokenizer.c — tokenizers of bytes and of characters, and what all of them are to their users. */
#include "text/pairs.h"
#include <string.h>

/* ---- the context's tokenizers ---- */
typedef struct room {
    clef_tokenizer *first;
} room;

void clef__tokenizer_free(clef_tokenizer *t) {
    clef__tokens_free(&t->tokens);
    clef__pairs_free(&t->pairs);
    clef__free(t->merge);
    clef__free(t->added);
    clef__free(t);
}

static void close_room(clef_context *ctx, void *state) {
    room *r = state;
    (void)ctx;
    for (clef_tokenizer *t = r->first, *next; t; t = next) {
        next = t->next;
        clef__tokenizer_free(t);
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
    clef__tokenizer_free(tokenizer);
}

clef_tokenizer *clef__tokenizer_refuse(clef_tokenizer *t, const char *op, const char *name, const clef__why *why) {
    if (!t) return NULL;
    clef__fail(t->ctx, why->status, "%s: %s %s", op, name, why->line);
    clef_tokenizer_close(t);
    return NULL;
}

/* ---- making ---- */
bool clef__tokenizer_merge(clef_tokenizer *t, int32_t left, int32_t right, clef__why *why) {
    uint8_t both[1024];
    const clef__token *a = &t->tokens.token[left], *b = &t->tokens.token[right];
    size_t size = (size_t)a->size + b->size;
    if (size > sizeof both) return clef__wrong(why, CLEF_UNSUPPORTED, "has a token of more than 1024 bytes");
    memcpy(both, t->tokens.bytes + a->at, a->size);
    memcpy(both + a->size, t->tokens.bytes + b->at, b->size);
    int32_t id = clef__tokens_find(&t->tokens, both, size);
    if (id < 0) return clef__wrong(why, CLEF_FORMAT, "has merge %d into what is no token of its vocabulary", t->n_merges);
    int32_t *rank = clef__pairs_put(&t->pairs, left, right);
    if (!rank || !clef__grow(&t->merge, t->n_merges, &t->merges_room, sizeof *t->merge))
        return clef__wrong(why, CLEF_MEMORY, "needs more memory than there is");
    if (*rank < 0) *rank = t->n_merges;
    t->merge[t->n_merges++] = (clef__merge){left, right, id};
    return true;
}

bool clef__tokenizer_add(clef_tokenizer *t, clef__added added, const void *bytes, size_t size, clef__why *why) {
    if (size == 0) return clef__wrong(why, CLEF_FORMAT, "has an added token without text");
    if (added.id < 0 || added.id >= CLEF__TOKENS_MOST) return clef__wrong(why, CLEF_FORMAT, "has an added token without a number");
    bool there = added.id < t->tokens.n && t->tokens.token[added.id].size > 0;
    const clef__token *same = there ? &t->tokens.token[added.id] : NULL;
    if (same && (same->size != size || memcmp(t->tokens.bytes + same->at, bytes, size) != 0))
        return clef__wrong(why, CLEF_FORMAT, "has an added token with the number of another token, %d", (int)added.id);
    added.only = !there;
    if ((!there && !clef__tokens_put(&t->tokens, added.id, bytes, size)) ||
        !clef__grow(&t->added, t->n_added, &t->added_room, sizeof *t->added))
        return clef__wrong(why, CLEF_MEMORY, "needs more memory than there is");
    t->added[t->n_added++] = added;
    t->begins[*(const uint8_t *)bytes] = true;
    return true;
}

void clef__tokenizer_find_units(clef_tokenizer *t) {
    for (int b = 0; b < 256; b++) t->unit[b] = clef__tokens_find(&t->tokens, (uint8_t[]){(uint8_t)b}, 1);
}

clef_tokenizer *clef_tokenizer_bytes(clef_context *ctx) {
    clef_tokenizer *t = ctx ? clef__tokenizer_new(ctx, "tokenizer_bytes") : NULL;
    if (!t) return NULL;
    t->of_bytes = true;
    bool fits = true;
    for (int b = 0; b < 256; b++) fits = fits && clef__tokens_put(&t->tokens, b, (uint8_t[]){(uint8_t)b}, 1);
    clef__tokenizer_find_units(t);
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

/* A token for each character that the text has. */
static bool put_characters(clef_tokenizer *t, const uint8_t *text, size_t size, clef__why *why) {
    uint8_t *seen = clef__calloc(CODES, 1), utf8[4];
    bool ok = seen ? mark_characters(text, size, seen, why) : clef__wrong(why, CLEF_MEMORY, "needs more memory than there is");
    for (uint32_t code = 0; ok && code < CODES; code++)
        if (seen[code] && !clef__tokens_put(&t->tokens, t->tokens.n, utf8, clef__utf8_put(code, utf8)))
            ok = clef__wrong(why, CLEF_MEMORY, "needs more memory than there is");
    clef__free(seen);
    return ok;
}

static clef_tokenizer *of_characters(clef_context *ctx, const uint8_t *text, size_t size, const char *name) {
    clef__why why;
    clef_tokenizer *t = clef__tokenizer_new(ctx, "tokenizer_characters");
    if (!t || put_characters(t, text, size, &why)) return t;
    return clef__tokenizer_refuse(t, "tokenizer_characters", name, &why);
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

int64_t clef_tokenizer_find(const clef_tokenizer *tokenizer, const char *text) {
    return tokenizer && text ? clef__tokens_find(&tokenizer->tokens, text, strlen(text)) : -1;
}
