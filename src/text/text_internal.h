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
typedef struct clef__pair {
    uint64_t key; /* 0: empty */
    int32_t value;
} clef__pair;
typedef struct clef__pairs {
    clef__pair *slot;
    size_t slots, n;
} clef__pairs;
typedef struct clef__merge {
    int32_t left, right, id;
} clef__merge;
/* A token that is found in a text before it is split into words. */
typedef struct clef__added {
    int32_t id;
    bool special, only; /* only: not in the vocabulary of the model */
} clef__added;
enum { CLEF__PATTERNS = 4 };
/* How words come in pieces (WordPiece, pieces.c); `there`: they do. */
enum { CLEF__PREFIX_MOST = 16, CLEF__WORD_MOST = 1024 };
typedef struct clef__pieces {
    bool there, splits; /* splits: the file says that words end at white space and punctuation */
    /* The normalizer: no control characters, Chinese ones by themselves, no accents, no capitals. */
    bool cleans, parts_chinese, strips, lowers;
    bool cleans_up;                                             /* decoding writes no space before a full stop and the like */
    int most, prefix_size, decoded_size;                        /* characters of a word; bytes of both prefixes */
    char prefix[CLEF__PREFIX_MOST], decoded[CLEF__PREFIX_MOST]; /* of what continues a word, "##"; and as the decoder has it */
    char unknown_text[64];
    int32_t unknown;
} clef__pieces;

struct clef_tokenizer {
    clef_context *ctx;
    clef_tokenizer *next; /* in the context's list */
    bool of_bytes;        /* units are bytes, else characters */
    bool whole_words;     /* a word that is a token is not merged */
    bool composed;        /* text must be composed (NFC) */
    int32_t unit[256];    /* tokens of bytes; -1: none */
    clef__tokens tokens;
    clef__merge *merge; /* by rank */
    int n_merges, merges_room;
    clef__pairs pairs;                                   /* ranks */
    const struct clef__pattern *pattern[CLEF__PATTERNS]; /* each splits what the one before gave */
    int n_patterns;
    clef__added *added;
    int n_added, added_room;
    bool begins[256]; /* first bytes of added tokens */
    clef__pieces pieces;
};
/* Adds a merge of the next rank, into the token that has the bytes of both; false with why. */
bool clef__tokenizer_merge(clef_tokenizer *tokenizer, int32_t left, int32_t right, clef__why *why);
/* Adds a token that is found in text; its id is its own or, `only`, new. */
bool clef__tokenizer_add(clef_tokenizer *tokenizer, clef__added added, const void *bytes, size_t size, clef__why *why);
/* Fills `unit`. */
void clef__tokenizer_find_units(clef_tokenizer *tokenizer);
/* Closes it after clef__fail with "op: name line"; NULL. */
clef_tokenizer *clef__tokenizer_refuse(clef_tokenizer *tokenizer, const char *op, const char *name, const clef__why *why);
/* A byte as a character of a vocabulary file, and back; -1: none.  (GPT-2: printable ones of Latin-1 are themselves.) */
uint32_t clef__byte_code(uint8_t byte);
int clef__code_byte(uint32_t code);
/* False, with the first unit of the text that is no token. */
bool clef__no_token(const clef_tokenizer *tokenizer, const uint8_t *text, size_t at, size_t end, clef__why *why);
/* Without tokens, in the context's list; NULL after clef__fail. */
clef_tokenizer *clef__tokenizer_new(clef_context *ctx, const char *op);
/* Of one that is in no list, as tests make them. */
void clef__tokenizer_free(clef_tokenizer *tokenizer);

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
/* Writes it; how many bytes that takes. */
size_t clef__utf8_put(uint32_t code, uint8_t out[4]);
/* Offset of the first byte that is not valid UTF-8; `size`: all is. */
size_t clef__utf8_check(const uint8_t *s, size_t size);
#endif
