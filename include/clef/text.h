/* clef/text.h — tokenizers, and datasets of text.

   Text is UTF-8, given as bytes and their number; it may hold zero bytes where nothing else is said.  Tokens are whole numbers (ids).
   A function that makes a tokenizer or a dataset returns NULL on failure and leaves the reason in clef_error(ctx); given NULL, every
   function here does nothing and returns NULL, 0, -1 or CLEF_INVALID.  What they make lives until its context closes. */
#ifndef CLEF_TEXT_H
#define CLEF_TEXT_H
#include "data.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct clef_tokenizer clef_tokenizer; /* owned by its context; does not change once made */

/* ---- tokenizers ---- */
/* 256 tokens, one for each byte; takes any bytes. */
CLEF_API clef_tokenizer *clef_tokenizer_bytes(clef_context *ctx);
/* A token for each character (Unicode code point) of the text, in the order of their numbers.  CLEF_FORMAT if the text is empty, is not
   UTF-8, or holds U+0000.
       clef_tokenizer *letters = clef_tokenizer_characters(ctx, "to be or not to be", 18);   7 tokens: " benort" in order  */
CLEF_API clef_tokenizer *clef_tokenizer_characters(clef_context *ctx, const char *text, size_t size);
/* The same of all characters of a file. */
CLEF_API clef_tokenizer *clef_tokenizer_characters_of(clef_context *ctx, const char *path);
/* Frees it now; optional, as clef_close does it too.  Datasets do not need theirs any longer. */
CLEF_API void clef_tokenizer_close(clef_tokenizer *tokenizer);
/* Ids are below this: the rows of an embedding, and the classes of a prediction. */
CLEF_API int64_t clef_tokenizer_size(const clef_tokenizer *tokenizer);
/* The tokens of a text.  The first `most` of them are written to ids (may be NULL with 0).  Returns how many there are, never more than
   `size`; -1 with CLEF_FORMAT for a character that the tokenizer does not have.
       int64_t ids[64], n = clef_tokenizer_encode(tok, "First Citizen", 13, ids, 64);  */
CLEF_API int64_t clef_tokenizer_encode(clef_tokenizer *tokenizer, const char *text, size_t size, int64_t *ids, int64_t most);
/* The text of n tokens, byte for byte: decoding what was encoded gives the same text.  At most `size` bytes are written, with the final 0.
   Returns the length of the whole text without that 0, like snprintf; -1 with CLEF_INVALID for an id that is no token.  Tokens that end
   within a character give text that does, too: see clef_tokenizer_stream.
       char text[256]; clef_tokenizer_decode(tok, ids, n, text, sizeof text);  */
CLEF_API int64_t clef_tokenizer_decode(clef_tokenizer *tokenizer, const int64_t *ids, int64_t n, char *text, size_t size);

/* ---- text as data ---- */
typedef struct clef_text_options {
    clef_tokenizer *tokenizer; /* NULL: bytes */
    int64_t context;           /* tokens of an input; 0: 64 */
    clef_split_name split;
    double share; /* of the text that is to train, in its order; the rest is the test; 0: 0.9.  1: all of it */
    bool consecutive;
    int64_t windows; /* random windows of an epoch; 0: as many as the text has consecutive ones */
    uint64_t seed;   /* of random windows */
} clef_text_options;
/* Windows of a text file (plain or gzip) to learn the next token from: item i has x, the i64 tokens w[0 … t-1] of a window w of
   t + 1 = context + 1 tokens, and y, its tokens w[1 … t], t classes below clef_tokenizer_size.  A loader gives [b,t] and [b,t]; clef_fit and
   clef_evaluate take them with outputs [b,t,classes].
   The first `share` of the text's bytes, down to the border of a character, is CLEF_TRAIN, the rest is CLEF_TEST.
   Training windows are random: item i of epoch e begins at a place that depends on (seed, e, i) only, all places being equally likely.  An
   epoch has as many as cover the text once, or `windows` of them.
   Windows of CLEF_TEST, and of CLEF_TRAIN with `consecutive`, are ⌈(n-1)/t⌉ windows that follow each other: each token but the first is a
   target once.  The last one is moved back to end with the text; its targets that were targets before are CLEF_NO_TARGET.
   Options NULL: all defaults.  CLEF_IO or CLEF_FORMAT for a file that cannot be read, is no UTF-8, has a character that the tokenizer does not
   have, or is shorter than a window; bytes take any file.
       clef_dataset *train = clef_text(ctx, "input.txt", &(clef_text_options){.tokenizer = letters, .context = 64}),
                    *valid = clef_text(ctx, "input.txt", &(clef_text_options){.tokenizer = letters, .context = 64, .split = CLEF_TEST});  */
CLEF_API clef_dataset *clef_text(clef_context *ctx, const char *path, const clef_text_options *options);

#ifdef __cplusplus
}
#endif
#endif
