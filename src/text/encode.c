/* encode.c — text into tokens: added tokens first, then words between them, then merges within words. */
#include "text/merge.h"
#include "text/pieces.h"
#include "text/split.h"
#include <string.h>

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

/* ---- words ---- */
bool clef__no_token(const clef_tokenizer *t, const uint8_t *text, size_t at, size_t end, clef__why *why) {
    uint32_t code = 0;
    if (t->of_bytes)
        return clef__wrong(why, CLEF_FORMAT, "has byte 0x%02X at byte %zu, which is no token of the tokenizer", text[at], at);
    clef__utf8_next(text + at, end - at, &code);
    return clef__wrong(why, CLEF_FORMAT, "has U+%04X at byte %zu, which is no token of the tokenizer", (unsigned)code, at);
}

typedef struct encoder {
    const clef_tokenizer *t;
    const uint8_t *text;
    clef__merger merger;
    clef__ids *out;
    clef__why *why;
} encoder;

static bool encode_units(encoder *e, size_t at, size_t end) {
    for (size_t length = 1; at < end; at += length) {
        if (!e->t->of_bytes) length = (size_t)clef__utf8_length((const char *)e->text + at, (const char *)e->text + end);
        int32_t id = e->t->of_bytes ? e->t->unit[e->text[at]] : clef__tokens_find(&e->t->tokens, e->text + at, length);
        if (id < 0) return clef__no_token(e->t, e->text, at, end, e->why);
        clef__ids_put(e->out, id);
    }
    return true;
}

/* Splits by the patterns from number `step` on. */
static bool encode_words(encoder *e, int step, size_t at, size_t end) {
    if (step == e->t->n_patterns) return clef__merge_word(e->t, &e->merger, e->text, at, end, e->out, e->why);
    while (at < end) {
        size_t behind = clef__word_end(e->t->pattern[step], e->text, at, end);
        if (!encode_words(e, step + 1, at, behind)) return false;
        at = behind;
    }
    return true;
}

static bool encode_plain(encoder *e, size_t at, size_t end) {
    if (at == end) return true;
    if (e->t->pieces.there) return clef__encode_pieces(e->t, e->text, at, end, e->out), true;
    return e->t->n_merges || e->t->whole_words ? encode_words(e, 0, at, end) : encode_units(e, at, end);
}

/* ---- added tokens ---- */
/* The longest one that is here; NULL: none. */
static const clef__token *added_at(const encoder *e, size_t at, size_t end, int32_t *id) {
    const clef__token *longest = NULL;
    for (int i = 0; e->t->begins[e->text[at]] && i < e->t->n_added; i++) {
        const clef__token *token = &e->t->tokens.token[e->t->added[i].id];
        bool here = token->size <= end - at && memcmp(e->t->tokens.bytes + token->at, e->text + at, token->size) == 0;
        if (!here || (longest && longest->size >= token->size)) continue;
        longest = token;
        *id = e->t->added[i].id;
    }
    return longest;
}

static bool encode_all(encoder *e, size_t begin, size_t end) {
    size_t plain = begin;
    for (size_t at = begin; e->t->n_added && at < end;) {
        int32_t id = -1;
        const clef__token *added = added_at(e, at, end, &id);
        if (added && !encode_plain(e, plain, at)) return false;
        if (added) clef__ids_put(e->out, id);
        at += added ? added->size : 1;
        if (added) plain = at;
    }
    return encode_plain(e, plain, end);
}

/* ---- texts ---- */
/* Is it text that this tokenizer takes? */
static bool check_text(const clef_tokenizer *t, const uint8_t *text, size_t begin, size_t end, clef__why *why) {
    for (size_t at = begin; at < end;) {
        uint32_t code = text[at];
        int length = code < 0x80 ? 1 : clef__utf8_next(text + at, end - at, &code);
        if (length == 0) return clef__wrong(why, CLEF_FORMAT, "is not UTF-8 at byte %zu; convert it, or take bytes as tokens", at);
        if (t->composed && clef__may_compose(code))
            return clef__wrong(why, CLEF_UNSUPPORTED,
                               "has U+%04X at byte %zu, which this tokenizer wants composed (NFC); that is not done here",
                               (unsigned)code, at);
        at += (size_t)length;
    }
    return true;
}

bool clef__encode(const clef_tokenizer *t, const uint8_t *text, size_t begin, size_t end, clef__ids *out, clef__why *why) {
    bool any_bytes = t->of_bytes && t->n_patterns == 0 && !t->composed;
    if (!any_bytes && !check_text(t, text, begin, end, why)) return false;
    encoder e = {.t = t, .text = text, .out = out, .why = why};
    bool ok = encode_all(&e, begin, end);
    clef__merger_free(&e.merger);
    return ok;
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
