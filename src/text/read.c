/* read.c — tokenizers from files: tokenizer.json of Hugging Face's `tokenizers` with a model of byte pairs, and GPT-2's vocab.json with
   merges.txt.  Files are taken to be hostile: memory follows the bytes that are there. */
#include "text/pairs.h"
#include "text/pieces.h"
#include "text/read.h"
#include "text/split.h"
#include <string.h>

/* ---- lines about what is wrong ---- */
static bool unsupported(clef__reading *r, const char *what) {
    if (r->why->status == CLEF_OK)
        clef__wrong(r->why, CLEF_UNSUPPORTED,
                    "has %s, which is not read; models of byte pairs as GPT-2's and Llama 3's, and BERT's are", what);
    return clef__json_fail(&r->json, "something else");
}

static bool damaged(clef__reading *r, const char *what) {
    if (r->why->status == CLEF_OK) clef__wrong(r->why, CLEF_FORMAT, "%s", what);
    return clef__json_fail(&r->json, "something else");
}

/* ---- values ---- */
static bool is_null(clef__reading *r) { return clef__json_peek(&r->json) == 'n'; }

static bool read_flag(clef__reading *r) {
    double value = 0;
    return clef__json_double(&r->json, &value) && value == 1;
}

/* A string, or NULL: it is something else, which is passed over. */
static const char *read_text(clef__reading *r) {
    if (clef__json_peek(&r->json) == '"') return clef__json_string(&r->json);
    clef__json_skip(&r->json);
    return NULL;
}

static bool says(clef__reading *r, const char *word) {
    const char *text = read_text(r);
    return text && strcmp(text, word) == 0;
}

/* ---- splitting ---- */
static bool add_pattern(clef__reading *r, const clef__pattern *pattern) {
    if (!pattern) return unsupported(r, "a pattern of its own in its pre_tokenizer");
    if (r->t->n_patterns == CLEF__PATTERNS) return unsupported(r, "so many pre_tokenizers");
    r->t->pattern[r->t->n_patterns++] = pattern;
    return true;
}

static bool read_regex(clef__reading *r, const clef__pattern **pattern) {
    *pattern = NULL;
    if (clef__json_peek(&r->json) != '{') return clef__json_skip(&r->json);
    clef__json_expect(&r->json, "{");
    for (const char *name; (name = clef__json_member(&r->json));) {
        bool regex = strcmp(name, "Regex") == 0;
        const char *text = read_text(r);
        if (regex && text) *pattern = clef__pattern_of(text);
    }
    return !r->json.expected;
}

static bool read_splitter(clef__reading *r, int depth);

static bool read_splitters(clef__reading *r, int depth) {
    clef__json_expect(&r->json, "[");
    while (clef__json_element(&r->json))
        if (!read_splitter(r, depth)) return false;
    return !r->json.expected;
}

/* What a pre_tokenizer says; members that only others have are passed over. */
typedef struct splitter {
    char type[24];
    const clef__pattern *pattern;
    bool space, uses_regex, isolated, inverted;
} splitter;

static bool apply_splitter(clef__reading *r, const splitter *s) {
    if (strcmp(s->type, "BertPreTokenizer") == 0) return r->t->pieces.splits = true;
    if (strcmp(s->type, "Sequence") == 0) return true; /* its members were applied */
    if (strcmp(s->type, "Split") == 0)
        return s->isolated && !s->inverted ? add_pattern(r, s->pattern) : unsupported(r, "a Split that is not Isolated");
    if (strcmp(s->type, "ByteLevel") != 0) return unsupported(r, "a pre_tokenizer other than Split and ByteLevel");
    if (s->space) return unsupported(r, "add_prefix_space in its pre_tokenizer");
    r->t->of_bytes = true;
    return !s->uses_regex || add_pattern(r, clef__pattern_default());
}

static bool read_splitter(clef__reading *r, int depth) {
    if (depth == 0) return unsupported(r, "pre_tokenizers within each other");
    splitter s = {.uses_regex = true};
    if (is_null(r)) return clef__json_skip(&r->json);
    clef__json_expect(&r->json, "{");
    for (const char *name; (name = clef__json_member(&r->json));) {
        if (strcmp(name, "type") == 0) {
            const char *type = read_text(r);
            snprintf(s.type, sizeof s.type, "%s", type ? type : "");
        } else if (strcmp(name, "pattern") == 0) read_regex(r, &s.pattern);
        else if (strcmp(name, "pretokenizers") == 0) read_splitters(r, depth - 1);
        else if (strcmp(name, "behavior") == 0) s.isolated = says(r, "Isolated");
        else if (strcmp(name, "invert") == 0) s.inverted = read_flag(r);
        else if (strcmp(name, "add_prefix_space") == 0) s.space = read_flag(r);
        else if (strcmp(name, "use_regex") == 0) s.uses_regex = read_flag(r);
        else clef__json_skip(&r->json);
    }
    return !r->json.expected && apply_splitter(r, &s);
}

/* ---- normalizer and decoder ---- */
/* BERT's takes accents away where it is told to, else with capitals. */
static bool read_normalizer(clef__reading *r) {
    clef__pieces *p = &r->t->pieces;
    const char *type = "";
    bool told = false;
    if (is_null(r)) return clef__json_skip(&r->json);
    clef__json_expect(&r->json, "{");
    for (const char *name, *text; (name = clef__json_member(&r->json));) {
        if (strcmp(name, "type") == 0) type = (text = read_text(r)) ? text : "";
        else if (strcmp(name, "clean_text") == 0) p->cleans = read_flag(r);
        else if (strcmp(name, "handle_chinese_chars") == 0) p->parts_chinese = read_flag(r);
        else if (strcmp(name, "lowercase") == 0) p->lowers = read_flag(r);
        else if (strcmp(name, "strip_accents") == 0 && !is_null(r)) told = true, p->strips = read_flag(r);
        else clef__json_skip(&r->json);
    }
    if (r->json.expected) return false;
    if (!told) p->strips = p->lowers;
    if (strcmp(type, "BertNormalizer") == 0) return true;
    r->t->composed = strcmp(type, "NFC") == 0;
    return r->t->composed || unsupported(r, "a normalizer other than NFC and BERT's");
}

/* A short string into room of `room` bytes, without a zero; how long it is. */
static int read_short(clef__reading *r, char *to, int room) {
    const char *text = read_text(r);
    size_t size = text ? strlen(text) : 0;
    if (size > (size_t)room) return unsupported(r, "a longer prefix of what continues a word"), 0;
    memcpy(to, text ? text : "", size);
    return (int)size;
}

static bool read_decoder(clef__reading *r) {
    clef__pieces *p = &r->t->pieces;
    bool good = false;
    if (is_null(r)) return clef__json_skip(&r->json);
    clef__json_expect(&r->json, "{");
    for (const char *name; (name = clef__json_member(&r->json));) {
        if (strcmp(name, "prefix") == 0) p->decoded_size = read_short(r, p->decoded, CLEF__PREFIX_MOST);
        else if (strcmp(name, "cleanup") == 0) p->cleans_up = read_flag(r);
        else if (strcmp(name, "type") == 0) {
            const char *text = read_text(r);
            good = text && clef__has_word("ByteLevel Fuse WordPiece", text);
        } else clef__json_skip(&r->json);
    }
    return !r->json.expected && (good || unsupported(r, "a decoder other than ByteLevel, Fuse and WordPiece"));
}

/* ---- added tokens ---- */
static bool read_added(clef__reading *r) {
    clef__added added = {.id = -1};
    const char *content = NULL;
    bool fancy = false;
    int64_t id = -1;
    clef__json_expect(&r->json, "{");
    for (const char *name; (name = clef__json_member(&r->json));) {
        if (strcmp(name, "id") == 0) clef__json_whole(&r->json, &id);
        else if (strcmp(name, "content") == 0) content = read_text(r);
        else if (strcmp(name, "special") == 0) added.special = read_flag(r);
        else if (clef__has_word("single_word lstrip rstrip", name)) fancy |= read_flag(r);
        else clef__json_skip(&r->json);
    }
    if (r->json.expected) return false;
    if (fancy) return unsupported(r, "an added token with single_word, lstrip or rstrip");
    if (!content || id < 0 || id >= r->most)
        return damaged(r, "has an added token without content, or with an id that is too high");
    added.id = (int32_t)id;
    return clef__tokenizer_add(r->t, added, content, strlen(content), r->why) || clef__json_fail(&r->json, "memory");
}

static bool read_all_added(clef__reading *r) {
    clef__json_expect(&r->json, "[");
    while (clef__json_element(&r->json))
        if (!read_added(r)) return false;
    return !r->json.expected;
}

/* ---- the model ---- */
/* The bytes that a token of a vocabulary stands for, over its text; how many. */
static size_t to_bytes(const clef_tokenizer *t, char *text) {
    uint8_t *s = (uint8_t *)text, *out = s;
    size_t size = strlen(text);
    uint32_t code;
    for (size_t at = 0; t->of_bytes && at < size;) {
        at += (size_t)clef__utf8_next(s + at, size - at, &code);
        if (clef__code_byte(code) < 0) return size; /* not of bytes, as special tokens may be */
    }
    if (!t->of_bytes) return size;
    for (size_t at = 0; at < size;) {
        at += (size_t)clef__utf8_next(s + at, size - at, &code);
        *out++ = (uint8_t)clef__code_byte(code);
    }
    return (size_t)(out - s);
}

/* An added token, which is read before the vocabulary, stands there as it is, or as bytes like the others. */
static bool is_added(clef__reading *r, int64_t id, char *text) {
    const clef__token *token = &r->t->tokens.token[id];
    const uint8_t *bytes = r->t->tokens.bytes + token->at;
    clef__added *added = NULL;
    for (int i = 0; i < r->t->n_added && !added; i++)
        if (r->t->added[i].id == id) added = &r->t->added[i];
    if (!added || !added->only) return damaged(r, "has two tokens with the same number");
    size_t size = strlen(text);
    bool same = size == token->size && memcmp(bytes, text, size) == 0;
    if (!same) size = to_bytes(r->t, text), same = size == token->size && memcmp(bytes, text, size) == 0;
    if (!same) return clef__wrong(r->why, CLEF_FORMAT, "has an added token with the number of another token, %d", (int)id);
    added->only = false;
    return true;
}

bool clef__read_vocabulary(clef__reading *r) {
    clef__json_expect(&r->json, "{");
    for (const char *name; (name = clef__json_member(&r->json));) {
        int64_t id;
        char *text = r->json.start + (name - r->json.start);
        if (!clef__json_whole(&r->json, &id)) return false;
        if (!*text) continue; /* nothing is ever encoded as an empty token */
        if (id >= r->most) return damaged(r, "has a token with a number that is too high");
        if (id < r->t->tokens.n && r->t->tokens.token[id].size) {
            if (!is_added(r, id, text)) return false;
            continue;
        }
        size_t size = to_bytes(r->t, text);
        r->vocabulary = true;
        if (!clef__tokens_put(&r->t->tokens, (int32_t)id, text, size)) {
            clef__wrong(r->why, CLEF_MEMORY, "needs more memory than there is");
            return clef__json_fail(&r->json, "memory");
        }
    }
    clef__tokenizer_find_units(r->t);
    return !r->json.expected;
}

bool clef__read_merge(clef__reading *r, char *left, char *right) {
    int32_t a = clef__tokens_find(&r->t->tokens, left, to_bytes(r->t, left));
    int32_t b = clef__tokens_find(&r->t->tokens, right, to_bytes(r->t, right));
    if (a < 0 || b < 0) return damaged(r, "has a merge of what is no token of its vocabulary");
    return clef__tokenizer_merge(r->t, a, b, r->why) || clef__json_fail(&r->json, "a merge");
}

/* "left right", or ["left", "right"]. */
static bool read_one_merge(clef__reading *r) {
    char *left = NULL, *right = NULL;
    if (clef__json_peek(&r->json) == '"') {
        const char *both = clef__json_string(&r->json);
        left = both ? r->json.start + (both - r->json.start) : NULL;
        right = left ? strchr(left, ' ') : NULL;
        if (right) *right++ = 0;
    } else {
        clef__json_expect(&r->json, "[");
        for (int n = 0; clef__json_element(&r->json); n++) {
            const char *text = clef__json_string(&r->json);
            char *own = text ? r->json.start + (text - r->json.start) : NULL;
            if (n == 0) left = own;
            else right = n == 1 ? own : NULL;
        }
    }
    if (r->json.expected) return false;
    return left && right ? clef__read_merge(r, left, right) : damaged(r, "has a merge that is not of two tokens");
}

/* Merges need the vocabulary, which is behind them in no file that is known. */
static bool read_merges(clef__reading *r) {
    if (!r->vocabulary) return damaged(r, "has merges before their vocabulary, or no vocabulary");
    clef__json_expect(&r->json, "[");
    while (clef__json_element(&r->json))
        if (!read_one_merge(r)) return false;
    return !r->json.expected;
}

/* Of what a model of word pieces has besides. */
static bool read_piece_member(clef__reading *r, const char *name) {
    clef__pieces *p = &r->t->pieces;
    int64_t most = 0;
    if (strcmp(name, "unk_token") == 0) {
        const char *text = read_text(r);
        snprintf(p->unknown_text, sizeof p->unknown_text, "%s", text ? text : "");
    } else if (strcmp(name, "continuing_subword_prefix") == 0) p->prefix_size = read_short(r, p->prefix, CLEF__PREFIX_MOST);
    else if (strcmp(name, "max_input_chars_per_word") == 0) {
        if (clef__json_whole(&r->json, &most) && most > CLEF__WORD_MOST)
            return unsupported(r, "words of more than 1024 characters");
        p->most = (int)most;
    } else return false;
    return true;
}

static bool read_model(clef__reading *r) {
    clef__json_expect(&r->json, "{");
    for (const char *name; (name = clef__json_member(&r->json));) {
        const char *text = NULL;
        if (strcmp(name, "vocab") == 0 && clef__json_peek(&r->json) == '{') clef__read_vocabulary(r);
        else if (strcmp(name, "merges") == 0) read_merges(r);
        else if (strcmp(name, "ignore_merges") == 0) r->t->whole_words = read_flag(r);
        else if (strcmp(name, "byte_fallback") == 0) (void)(read_flag(r) && unsupported(r, "byte_fallback"));
        else if (strcmp(name, "type") == 0) {
            text = read_text(r);
            r->t->pieces.there = text && strcmp(text, "WordPiece") == 0;
            if (text && !clef__has_word("BPE WordPiece", text)) unsupported(r, "a model other than BPE and WordPiece");
        } else if (strcmp(name, "end_of_word_suffix") == 0)
            (void)((text = read_text(r)) && *text && unsupported(r, "a suffix of words"));
        else if (!read_piece_member(r, name)) clef__json_skip(&r->json);
    }
    return !r->json.expected;
}

/* Is all of one kind, byte pairs or word pieces? */
static bool read_fits(clef__reading *r) {
    clef__pieces *p = &r->t->pieces;
    if (p->there != p->splits)
        return unsupported(r, p->there ? "word pieces without BERT's pre_tokenizer" : "BERT's pre_tokenizer without word pieces");
    if (!p->there && p->prefix_size) return unsupported(r, "a prefix of what continues a word");
    if (p->there && (r->t->n_patterns || r->t->of_bytes || r->t->composed))
        return unsupported(r, "word pieces of other words than BERT's");
    if (p->decoded_size && (p->decoded_size != p->prefix_size || memcmp(p->decoded, p->prefix, (size_t)p->prefix_size) != 0))
        return unsupported(r, "another prefix in its decoder than in its model");
    return clef__pieces_end(r->t, r->why) || clef__json_fail(&r->json, "another token");
}

/* ---- the file ---- */
/* First what says how the others are to be read, then the added tokens, which a vocabulary may hold too, then the model. */
static bool read_members(clef__reading *r, int pass) {
    clef__json_expect(&r->json, "{");
    for (const char *name; (name = clef__json_member(&r->json));) {
        if (pass == 0 && strcmp(name, "pre_tokenizer") == 0) read_splitter(r, 4);
        else if (pass == 0 && strcmp(name, "normalizer") == 0) read_normalizer(r);
        else if (pass == 0 && strcmp(name, "decoder") == 0) read_decoder(r);
        else if (pass == 1 && strcmp(name, "added_tokens") == 0) read_all_added(r);
        else if (pass == 2 && strcmp(name, "model") == 0) read_model(r);
        else clef__json_skip(&r->json);
    }
    return !r->json.expected;
}

static bool fail_as_json(clef__reading *r) {
    if (r->why->status != CLEF_OK) return false;
    return clef__wrong(r->why, CLEF_FORMAT, "is not the JSON of a tokenizer: %.80s expected at byte %zu",
                       r->json.expected ? r->json.expected : "the end", (size_t)(r->json.at - r->json.start));
}

bool clef__read_tokenizer(clef_tokenizer *t, const uint8_t *bytes, size_t size, clef__why *why) {
    clef__reading r = {.t = t, .why = why, .most = CLEF__TOKENS_MOST};
    if (size < CLEF__TOKENS_MOST / 4) r.most = (int64_t)size + 65536; /* numbers may have holes, not deserts */
    char *copy = clef__alloc(size + 1);                               /* reading decodes strings in place */
    if (!copy) return clef__wrong(why, CLEF_MEMORY, "needs more memory than there is");
    *why = (clef__why){0};
    t->pieces.most = 100;
    bool ok = true;
    for (int pass = 0; ok && pass < 3; pass++) {
        memcpy(copy, bytes, size);
        r.json = clef__json_of(copy, size);
        ok = (read_members(&r, pass) && clef__json_at_end(&r.json)) || fail_as_json(&r);
    }
    clef__free(copy);
    if (ok && t->tokens.n == 0) return clef__wrong(why, CLEF_FORMAT, "has no vocabulary");
    return ok && (read_fits(&r) || fail_as_json(&r));
}

/* Lines "left right" behind a first one "#version…". */
static bool read_merge_lines(clef__reading *r, char *text) {
    char *rest = NULL;
    for (char *line = strtok_r(text, "\r\n", &rest); line; line = strtok_r(NULL, "\r\n", &rest)) {
        if (line == text && strncmp(line, "#version", 8) == 0) continue;
        char *right = strchr(line, ' ');
        if (!right) return damaged(r, "has a line of merges without a space");
        *right++ = 0;
        if (!clef__read_merge(r, line, right)) return false;
    }
    return true;
}

bool clef__read_gpt2(clef_tokenizer *t, clef__blob *vocabulary, clef__blob *merges, clef__why *why) {
    clef__reading r = {.t = t, .why = why, .most = CLEF__TOKENS_MOST};
    static const char end_of_text[] = "<|endoftext|>";
    *why = (clef__why){0};
    t->of_bytes = true;
    t->pattern[t->n_patterns++] = clef__pattern_default();
    if (vocabulary->size < CLEF__TOKENS_MOST / 4) r.most = (int64_t)vocabulary->size + 65536;
    r.json = clef__json_of((char *)vocabulary->bytes, vocabulary->size);
    if (!clef__read_vocabulary(&r) || !clef__json_at_end(&r.json)) return fail_as_json(&r);
    if (t->tokens.n == 0) return clef__wrong(why, CLEF_FORMAT, "has no vocabulary");
    if (clef__utf8_check(merges->bytes, merges->size) < merges->size || memchr(merges->bytes, 0, merges->size))
        return clef__wrong(why, CLEF_FORMAT, "has merges that are not UTF-8, or with a zero byte");
    char *text = clef__alloc(merges->size + 1);
    if (!text) return clef__wrong(why, CLEF_MEMORY, "needs more memory than there is");
    memcpy(text, merges->bytes, merges->size);
    text[merges->size] = 0;
    bool ok = read_merge_lines(&r, text);
    clef__free(text);
    int32_t end = clef__tokens_find(&t->tokens, end_of_text, sizeof end_of_text - 1);
    return ok &&
           (end < 0 || clef__tokenizer_add(t, (clef__added){.id = end, .special = true}, end_of_text, sizeof end_of_text - 1, why));
}
