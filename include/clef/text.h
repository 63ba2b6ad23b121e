/* clef/text.h — tokenizers, and datasets of text.

   Text is UTF-8, given as bytes and their number; it may hold zero bytes where nothing else is said.  Tokens are whole numbers (ids).
   A function that makes a tokenizer or a dataset returns NULL on failure and leaves the reason in clef_error(ctx); given NULL, every
   function here does nothing and returns NULL, 0, -1 or CLEF_INVALID.  What they make lives until its context closes. */
#ifndef CLEF_TEXT_API_H
#define CLEF_TEXT_API_H
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
typedef struct clef_tokenizer_learn_options {
    int64_t size;               /* of the vocabulary, with the 256 bytes and the special tokens; 0: 1,024 */
    const char *const *special; /* tokens that are found in text as a whole, such as "<|endoftext|>"; they get the first ids */
    int n_special;
} clef_tokenizer_learn_options;
/* Byte pairs learned from a text, which is split into words by GPT-2's pattern: the most frequent pair of neighbours becomes a token, until the
   vocabulary is as large as it should be or nothing is left to merge; of equally frequent ones that with the lowest ids.  Any text can be
   encoded, as all bytes are tokens.  Options NULL: all defaults.  CLEF_FORMAT if the text is empty or not UTF-8.
       clef_tokenizer *tok = clef_tokenizer_learn(ctx, text, size, &(clef_tokenizer_learn_options){.size = 4096});
   (P. Gage: A New Algorithm for Data Compression, 1994; for bytes, A. Radford et al., 2019.) */
CLEF_API clef_tokenizer *clef_tokenizer_learn(clef_context *ctx, const char *text, size_t size,
                                              const clef_tokenizer_learn_options *options);
/* From a file: tokenizer.json of Hugging Face's `tokenizers` with a model of byte pairs or word pieces, vocab.json with merges.txt beside it
   (GPT-2), or vocab.txt (BERT), with tokenizer_config.json beside it where it is there; or from a folder with any of these.  Read are: the model
   BPE, with the pre-tokenizers ByteLevel and Split with the patterns of GPT-2, Llama 3 and Qwen 2, and the normalizer NFC, for text that is
   composed already; the model WordPiece with BERT's pre-tokenizer and normalizer (control characters, Chinese characters, accents, capitals);
   added tokens, which are found anywhere in a text.  Encoding adds no tokens of its own, whatever a post-processor would do: BERT's [CLS] and
   [SEP] are clef_tokenizer_find's.  CLEF_UNSUPPORTED for what else such a file has, CLEF_FORMAT for a damaged one.
       clef_tokenizer *gpt2 = clef_tokenizer_open(ctx, "gpt2"), *bert = clef_tokenizer_open(ctx, "bert/vocab.txt");
   (R. Sennrich, B. Haddow, A. Birch: Neural Machine Translation of Rare Words with Subword Units, 2016; J. Devlin et al.: BERT, 2019.) */
CLEF_API clef_tokenizer *clef_tokenizer_open(clef_context *ctx, const char *path);
/* Writes it, of whatever kind, as tokenizer.json for clef_tokenizer_open and Hugging Face's `tokenizers`; the file appears whole or not at
   all.
       clef_tokenizer_save(tok, "model/tokenizer.json");  */
CLEF_API clef_status clef_tokenizer_save(clef_tokenizer *tokenizer, const char *path);
/* The token with exactly this text, such as "<|endoftext|>"; -1: there is none. */
CLEF_API int64_t clef_tokenizer_find(const clef_tokenizer *tokenizer, const char *text);
/* Frees it now; optional, as clef_close does it too.  Datasets do not need theirs any longer. */
CLEF_API void clef_tokenizer_close(clef_tokenizer *tokenizer);
/* Ids are below this: the rows of an embedding, and the classes of a prediction. */
CLEF_API int64_t clef_tokenizer_size(const clef_tokenizer *tokenizer);
/* The tokens of a text.  The first `most` of them are written to ids (may be NULL with 0).  Returns how many there are, never more than
   `size`; -1 with CLEF_FORMAT for a character that the tokenizer does not have.
       int64_t ids[64], n = clef_tokenizer_encode(tok, "First Citizen", 13, ids, 64);  */
CLEF_API int64_t clef_tokenizer_encode(clef_tokenizer *tokenizer, const char *text, size_t size, int64_t *ids, int64_t most);
/* The text of n tokens, byte for byte: decoding what was encoded gives the same text.  Of word pieces it gives words with a space between
   them, as what they were normalized from is lost; the first token has none before it.  At most `size` bytes are written, with the final 0.
   Returns the length of the whole text without that 0, like snprintf; -1 with CLEF_INVALID for an id that is no token.  Tokens that end
   within a character give text that does, too: see clef_tokenizer_stream.
       char text[256]; clef_tokenizer_decode(tok, ids, n, text, sizeof text);  */
CLEF_API int64_t clef_tokenizer_decode(clef_tokenizer *tokenizer, const int64_t *ids, int64_t n, char *text, size_t size);
/* What a stream of tokens has held back; zeros at first. */
typedef struct clef_text_stream {
    unsigned char held[4];
    int n_held;
    bool begun; /* there was a token */
} clef_text_stream;
enum { CLEF_STREAM_END = -1 };
/* The text that is complete with one more token, as clef_tokenizer_decode gives it, but in whole characters: the bytes of one that has only
   begun are held back, and bytes that are no character's become U+FFFD, as browsers do it.  CLEF_STREAM_END for an id gives the rest,
   and the stream begins anew.
       clef_text_stream s = {0};
       for (int i = 0; i < n; i++) if (clef_tokenizer_stream(tok, &s, ids[i], text, sizeof text) > 0) fputs(text, stdout);  */
CLEF_API int64_t clef_tokenizer_stream(clef_tokenizer *tokenizer, clef_text_stream *stream, int64_t id, char *text, size_t size);

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
