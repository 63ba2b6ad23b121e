/* write.c — a tokenizer as tokenizer.json, as Hugging Face's `tokenizers` reads it. */
#include "io/io_internal.h"
#include "runtime/json.h"
#include "text/split.h"
#include "text/text_internal.h"
#include <string.h>

/* The text so far; put fails at most once, when the file is written. */
typedef struct out {
    clef__writer writer;
    char text[4096];
    size_t n;
    clef_status status;
} out;

static void flush(out *o) {
    if (!o->status) o->status = clef__writer_put(&o->writer, o->text, o->n);
    o->n = 0;
}

static void put_bytes(out *o, const void *bytes, size_t size) {
    for (const char *from = bytes; size > 0;) {
        size_t room = sizeof o->text - o->n, n = size < room ? size : room;
        memcpy(o->text + o->n, from, n);
        o->n += n, from += n, size -= n;
        if (o->n == sizeof o->text) flush(o);
    }
}

static void put(out *o, const char *text) { put_bytes(o, text, strlen(text)); }

static void put_whole(out *o, int64_t value) {
    char digits[24];
    put_bytes(o, digits, (size_t)snprintf(digits, sizeof digits, "%lld", (long long)value));
}

static void put_escaped(out *o, const char *bytes, size_t size) {
    char escaped[CLEF__JSON_BYTE];
    for (size_t i = 0; i < size; i++) put_bytes(o, escaped, clef__json_escape(bytes[i], escaped));
}

/* A token's text within quotes: `mapped` as a vocabulary has it. */
static void put_token(out *o, const clef_tokenizer *t, int32_t id, bool mapped) {
    const clef__token *token = &t->tokens.token[id];
    const uint8_t *bytes = t->tokens.bytes + token->at;
    uint8_t utf8[4];
    if (!mapped || !t->of_bytes) {
        put_escaped(o, (const char *)bytes, token->size);
        return;
    }
    for (uint32_t i = 0; i < token->size; i++) put_escaped(o, (const char *)utf8, clef__utf8_put(clef__byte_code(bytes[i]), utf8));
}

/* ---- members ---- */
static void put_added(out *o, const clef_tokenizer *t) {
    put(o, "\"added_tokens\":[");
    for (int i = 0; i < t->n_added; i++) {
        put(o, i ? ",\n{\"id\":" : "\n{\"id\":");
        put_whole(o, t->added[i].id);
        put(o, ",\"content\":\"");
        put_token(o, t, t->added[i].id, false);
        put(o, "\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":");
        put(o, t->added[i].special ? "true}" : "false}");
    }
    put(o, "],\n");
}

static void put_split(out *o, const clef__pattern *pattern) {
    put(o, "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"");
    put_escaped(o, pattern->regex, strlen(pattern->regex));
    put(o, "\"},\"behavior\":\"Isolated\",\"invert\":false}");
}

static void put_byte_level(out *o, bool uses_regex) {
    put(o, "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":");
    put(o, uses_regex ? "true}" : "false}");
}

static void put_flag(out *o, const char *name, bool value) {
    put(o, name);
    put(o, value ? "true" : "false");
}

/* Of one with word pieces: all but the vocabulary. */
static void put_words(out *o, const clef__pieces *p) {
    put_flag(o, "\"normalizer\":{\"type\":\"BertNormalizer\",\"clean_text\":", p->cleans);
    put_flag(o, ",\"handle_chinese_chars\":", p->parts_chinese);
    put_flag(o, ",\"strip_accents\":", p->strips);
    put_flag(o, ",\"lowercase\":", p->lowers);
    put(o, "},\n\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},\n\"post_processor\":null,\n"
           "\"decoder\":{\"type\":\"WordPiece\",\"prefix\":\"");
    put_escaped(o, p->prefix, (size_t)p->prefix_size);
    put_flag(o, "\",\"cleanup\":", p->cleans_up);
    put(o, "},\n\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"");
    put_escaped(o, p->unknown_text, strlen(p->unknown_text));
    put(o, "\",\"continuing_subword_prefix\":\"");
    put_escaped(o, p->prefix, (size_t)p->prefix_size);
    put(o, "\",\"max_input_chars_per_word\":");
    put_whole(o, p->most);
    put(o, ",\n");
}

static void put_splitters(out *o, const clef_tokenizer *t) {
    bool as_gpt2 = t->of_bytes && t->n_patterns == 1 && t->pattern[0] == clef__pattern_default();
    put(o, "\"pre_tokenizer\":");
    if (as_gpt2 || (t->of_bytes && t->n_patterns == 0)) put_byte_level(o, as_gpt2);
    else if (t->n_patterns == 0) put(o, "null");
    else {
        put(o, "{\"type\":\"Sequence\",\"pretokenizers\":[");
        for (int i = 0; i < t->n_patterns; i++) {
            if (i) put(o, ",");
            put_split(o, t->pattern[i]);
        }
        if (t->of_bytes) put(o, ","), put_byte_level(o, false);
        put(o, "]}");
    }
    put(o, ",\n\"post_processor\":null,\n\"decoder\":");
    if (t->of_bytes) put_byte_level(o, true);
    else put(o, "{\"type\":\"Fuse\"}");
    put(o, ",\n");
}

static bool is_of_model(const clef_tokenizer *t, int32_t id) {
    for (int i = 0; i < t->n_added; i++)
        if (t->added[i].id == id && t->added[i].only) return false;
    return t->tokens.token[id].size > 0;
}

static bool is_added(const clef_tokenizer *t, int32_t id) {
    for (int i = 0; i < t->n_added; i++)
        if (t->added[i].id == id) return true;
    return false;
}

static void put_vocabulary(out *o, const clef_tokenizer *t) {
    bool first = true;
    put(o, "\"vocab\":{");
    for (int32_t id = 0; id < t->tokens.n; id++) {
        if (!is_of_model(t, id)) continue;
        put(o, first ? "\n\"" : ",\n\"");
        put_token(o, t, id, !is_added(t, id));
        put(o, "\":");
        put_whole(o, id);
        first = false;
    }
    put(o, "}");
}

/* Tokens of bytes have no space, so "left right" is clear, and the form that all versions read. */
static void put_merges(out *o, const clef_tokenizer *t) {
    const char *middle = t->of_bytes ? " " : "\",\"";
    put(o, ",\n\"merges\":[");
    for (int i = 0; i < t->n_merges; i++) {
        put(o, i ? ",\n" : "\n");
        put(o, t->of_bytes ? "\"" : "[\"");
        put_token(o, t, t->merge[i].left, true);
        put(o, middle);
        put_token(o, t, t->merge[i].right, true);
        put(o, t->of_bytes ? "\"" : "\"]");
    }
    put(o, "]");
}

/* Of one with byte pairs: all but vocabulary and merges. */
static void put_pairs(out *o, const clef_tokenizer *t) {
    put(o, t->composed ? "\"normalizer\":{\"type\":\"NFC\"},\n" : "\"normalizer\":null,\n");
    put_splitters(o, t);
    put(o, "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,\"continuing_subword_prefix\":null,"
           "\"end_of_word_suffix\":null,\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":");
    put(o, t->whole_words ? "true,\n" : "false,\n");
}

static void put_all(out *o, const clef_tokenizer *t) {
    put(o, "{\"version\":\"1.0\",\n\"truncation\":null,\n\"padding\":null,\n");
    put_added(o, t);
    if (t->pieces.there) put_words(o, &t->pieces);
    else put_pairs(o, t);
    put_vocabulary(o, t);
    if (!t->pieces.there) put_merges(o, t);
    put(o, "}}\n");
    flush(o);
}

clef_status clef_tokenizer_save(clef_tokenizer *tokenizer, const char *path) {
    out o = {.status = CLEF_OK};
    clef__report report = {.status = CLEF_OK};
    if (!tokenizer) return CLEF_INVALID;
    if (!path) return clef__fail(tokenizer->ctx, CLEF_INVALID, "tokenizer_save: the path is NULL");
    o.status = clef__writer_open(&o.writer, path, &report);
    if (o.status) return clef__report_fail(tokenizer->ctx, "tokenizer_save", path, &report);
    put_all(&o, tokenizer);
    if (!o.status) o.status = clef__writer_commit(&o.writer);
    if (!o.status) return CLEF_OK;
    clef__writer_abort(&o.writer);
    return clef__report_fail(tokenizer->ctx, "tokenizer_save", path, &report);
}
