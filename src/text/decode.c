/* decode.c — tokens into text, at once and as they come. */
#include "runtime/json.h"
#include "text/pieces.h"
#include <string.h>

/* NULL after clef__fail: there is no such token. */
static const clef__token *token_of(const clef_tokenizer *t, int64_t id) {
    if (id >= 0 && id < t->tokens.n && t->tokens.token[id].size > 0) return &t->tokens.token[id];
    clef__fail(t->ctx, CLEF_INVALID, "tokenizer_decode: %lld is no token; they are below %lld", (long long)id,
               (long long)t->tokens.n);
    return NULL;
}

typedef struct sink {
    char *text;
    size_t size, n;
} sink;

static void give(sink *s, const void *bytes, size_t n) {
    size_t left = s->n + 1 < s->size ? s->size - 1 - s->n : 0;
    if (left) memcpy(s->text + s->n, bytes, n < left ? n : left);
    s->n += n;
}

static void give_token(const clef_tokenizer *t, const clef__token *token, bool first, sink *out) {
    bool space;
    size_t skip = clef__decode_piece(t, token, first, &space);
    if (space) give(out, " ", 1);
    give(out, t->tokens.bytes + token->at + skip, token->size - skip);
}

int64_t clef_tokenizer_decode(clef_tokenizer *tokenizer, const int64_t *ids, int64_t n, char *text, size_t size) {
    sink out = {text, size, 0};
    if (!tokenizer) return -1;
    if (n < 0 || (!ids && n) || (!text && size)) {
        clef__fail(tokenizer->ctx, CLEF_INVALID, "tokenizer_decode: %s", n < 0 ? "n is below 0" : "ids or text is NULL");
        return -1;
    }
    for (int64_t i = 0; i < n; i++) {
        const clef__token *token = token_of(tokenizer, ids[i]);
        if (!token) return -1;
        give_token(tokenizer, token, i == 0, &out);
    }
    if (size) text[out.n < size ? out.n : size - 1] = 0;
    return (int64_t)out.n;
}

/* ---- as they come ---- */
/* Bytes of the character that begins here, if all that is there could be its beginning; 0: they are no character's. */
static int wanted(const uint8_t *s, int n) {
    int length = s[0] < 0x80                   ? 1
                 : s[0] >= 0xC2 && s[0] < 0xE0 ? 2
                 : s[0] >= 0xE0 && s[0] < 0xF0 ? 3
                 : s[0] >= 0xF0 && s[0] < 0xF5 ? 4
                                               : 0;
    if (length == 0 || n < 2) return length;
    uint8_t low = s[0] == 0xE0 ? 0xA0 : s[0] == 0xF0 ? 0x90 : 0x80, high = s[0] == 0xED ? 0x9F : s[0] == 0xF4 ? 0x8F : 0xBF;
    if (s[1] < low || s[1] > high || (n > 2 && (s[2] & 0xC0) != 0x80) || (n > 3 && (s[3] & 0xC0) != 0x80)) return 0;
    return length;
}

static void give_replacement(sink *s) { give(s, "\xEF\xBF\xBD", 3); }

/* Adds a byte to what is held, and gives what is complete.  Bytes of no character become one U+FFFD for as many as could have begun one. */
static void stream_byte(clef_text_stream *stream, uint8_t byte, sink *out) {
    stream->held[stream->n_held++] = byte;
    int length = wanted(stream->held, stream->n_held);
    if (length == 0 && stream->n_held > 1) {
        give_replacement(out);
        stream->n_held = 0;
        stream_byte(stream, byte, out); /* which may begin another */
    } else if (length == 0) {
        give_replacement(out);
        stream->n_held = 0;
    } else if (length == stream->n_held) {
        give(out, stream->held, (size_t)length);
        stream->n_held = 0;
    }
}

int64_t clef_tokenizer_stream(clef_tokenizer *tokenizer, clef_text_stream *stream, int64_t id, char *text, size_t size) {
    if (!tokenizer) return -1;
    if (!stream || (!text && size)) {
        clef__fail(tokenizer->ctx, CLEF_INVALID, "tokenizer_stream: stream or text is NULL");
        return -1;
    }
    sink out = {text, size, 0};
    const clef__token *token = id == CLEF_STREAM_END ? NULL : token_of(tokenizer, id);
    if (!token && id != CLEF_STREAM_END) return -1;
    bool space = false;
    size_t skip = token ? clef__decode_piece(tokenizer, token, !stream->begun, &space) : 0;
    if (space) stream_byte(stream, ' ', &out);
    for (size_t i = skip; token && i < token->size; i++) stream_byte(stream, tokenizer->tokens.bytes[token->at + i], &out);
    if (!token && stream->n_held > 0) give_replacement(&out);
    if (token) stream->begun = true;
    else *stream = (clef_text_stream){0};
    if (size) text[out.n < size ? out.n : size - 1] = 0;
    return (int64_t)out.n;
}
