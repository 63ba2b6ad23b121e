/* text_internal.h — what the files of the text room share.  A tokenizer is a list of tokens, each some bytes of text, with what says how
   text becomes tokens: first into units (bytes or characters), then by merging neighbours. */
#ifndef CLEF_TEXT_INTERNAL_H
#define CLEF_TEXT_INTERNAL_H
#include "clef/text.h"
#include "data/data_internal.h"

/* ---- names.c: strings and their numbers ---- */
/* Token i has `size` bytes from bytes + at; size 0: there is no token i. */
typedef struct clef__token {
    size_t at;
    uint32_t size;
} clef__token;
typedef struct clef__tokens {
    clef__token *token;
    uint8_t *bytes;
    int32_t n, capacity;
    size_t used, room; /* bytes */
    int32_t *slot;     /* hash table of ids + 1; 0: empty */
    size_t slots;      /* a power of two */
} clef__tokens;
enum { CLEF__TOKENS_MOST = 1 << 27 };
void clef__tokens_free(clef__tokens *tokens);
/* Makes these bytes token `id`, which has none so far; those before it may be missing.  Bytes that are another's, too, are found under the
   first.  False: no memory, or no such id. */
bool clef__tokens_put(clef__tokens *tokens, int32_t id, const void *bytes, size_t size);
/* The token of these bytes; -1: there is none. */
int32_t clef__tokens_find(const clef__tokens *tokens, const void *bytes, size_t size);

/* ---- tokenizers ---- */
struct clef_tokenizer {
    clef_context *ctx;
    clef_tokenizer *next; /* in the context's list */
    bool of_bytes;        /* units are bytes, else characters */
    int32_t unit[256];    /* tokens of bytes; -1: none */
    clef__tokens tokens;
};
/* Without tokens, in the context's list; NULL after clef__fail. */
clef_tokenizer *clef__tokenizer_new(clef_context *ctx, const char *op);

/* Where encoding puts tokens: counts all, writes up to `most`. */
typedef struct clef__ids {
    void *to;
    int width; /* bytes of an id: 1, 2, 4 or 8 */
    int64_t n, most;
} clef__ids;
void clef__ids_put(clef__ids *ids, int32_t id);
/* Encodes bytes `begin` to `end` of a text; false with what is wrong, to be read after the text's name. */
bool clef__encode(const clef_tokenizer *tokenizer, const uint8_t *text, size_t begin, size_t end, clef__ids *out, clef__why *why);

/* ---- text.c ---- */
/* A file, plain or gzip, as bytes; false after clef__fail. */
bool clef__text_read(clef_context *ctx, const char *op, const char *path, clef__blob *blob);

/* ---- utf8.c ---- */
/* The code point at s, at most `size` bytes from there, and how many bytes it has; 0: not valid UTF-8. */
int clef__utf8_next(const uint8_t *s, size_t size, uint32_t *code);
/* Offset of the first byte that is not valid UTF-8; `size`: all is. */
size_t clef__utf8_check(const uint8_t *s, size_t size);
#endif
