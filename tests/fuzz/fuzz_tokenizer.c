/* Any bytes as a tokenizer's file and, behind a zero byte, a text: a verdict with a line, or a tokenizer that gives the text again.  Behind a
   first 'g' there are the two files of GPT-2, with a zero byte between them; behind a 'w' BERT's options and vocabulary. */
#include "text/read.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* What is before the first zero byte; the rest begins behind it. */
static clef__blob take_part(const uint8_t **at, size_t *left) {
    const uint8_t *zero = memchr(*at, 0, *left);
    size_t size = zero ? (size_t)(zero - *at) : *left, taken = zero ? size + 1 : size;
    clef__blob part = {malloc(size ? size : 1), size};
    memcpy(part.bytes, *at, size);
    *at += taken, *left -= taken;
    return part;
}

static bool read_files(clef_tokenizer *t, const uint8_t **at, size_t *left, clef__why *why) {
    bool gpt2 = **at == 'g', bert = **at == 'w';
    if (gpt2 || bert) ++*at, --*left;
    clef__blob first = take_part(at, left), second = gpt2 || bert ? take_part(at, left) : (clef__blob){0};
    bool ok = gpt2   ? clef__read_gpt2(t, &first, &second, why)
              : bert ? clef__read_bert_config(t, &first, why) && clef__read_words(t, &second, why)
                     : clef__read_tokenizer(t, first.bytes, first.size, why);
    free(first.bytes);
    free(second.bytes);
    return ok;
}

static void check_line(const clef__why *why) {
    if (why->status == CLEF_OK || !why->line[0] || strchr(why->line, '\n')) abort();
}

/* All tokens of the text, one behind the other, are the text, but for words in pieces; a stream gives whole characters. */
static void check_text(clef_tokenizer *t, const uint8_t *text, size_t size) {
    clef__why why = {0};
    int64_t *ids = malloc((size + 1) * sizeof *ids);
    char *back = malloc(size + 1), piece[64];
    clef__ids out = {.to = ids, .width = sizeof *ids, .most = (int64_t)size};
    clef_text_stream stream = {0};
    if (!clef__encode(t, text, 0, size, &out, &why)) check_line(&why);
    else {
        int64_t length = out.n > (int64_t)size ? -1 : clef_tokenizer_decode(t, ids, out.n, back, size + 1);
        if (length < 0) abort();
        if (!t->pieces.there && (length != (int64_t)size || memcmp(back, text, size) != 0)) abort();
        for (int64_t i = 0; i < out.n; i++)
            if (clef_tokenizer_stream(t, &stream, ids[i], piece, sizeof piece) < 0 || stream.n_held > 3) abort();
    }
    free(ids);
    free(back);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    if (size < 1) return 0;
    clef__why why = {0};
    clef_tokenizer *t = calloc(1, sizeof *t);
    for (int b = 0; b < 256; b++) t->unit[b] = -1;
    if (read_files(t, &bytes, &size, &why)) check_text(t, bytes, size);
    else check_line(&why);
    clef__tokenizer_free(t);
    return 0;
}
