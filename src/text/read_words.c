/* read_words.c — BERT's vocabulary, a token in each line, and what tokenizer_config.json says of its words. */
#include "text/pieces.h"
#include "text/read.h"
#include <string.h>

static const clef__pieces defaults = {.there = true,
                                      .splits = true,
                                      .cleans = true,
                                      .parts_chinese = true,
                                      .strips = true,
                                      .lowers = true,
                                      .cleans_up = true,
                                      .most = 100,
                                      .prefix_size = 2,
                                      .prefix = "##",
                                      .unknown_text = "[UNK]"};

bool clef__read_bert_config(clef_tokenizer *t, clef__blob *config, clef__why *why) {
    clef__json json = clef__json_of((char *)config->bytes, config->size);
    double lowers = 1, strips = 0, chinese = 1;
    bool told = false;
    *why = (clef__why){0};
    t->pieces = defaults;
    clef__json_expect(&json, "{");
    for (const char *name; (name = clef__json_member(&json));) {
        if (strcmp(name, "do_lower_case") == 0) clef__json_double(&json, &lowers);
        else if (strcmp(name, "tokenize_chinese_chars") == 0) clef__json_double(&json, &chinese);
        else if (strcmp(name, "strip_accents") == 0 && clef__json_peek(&json) != 'n') told = clef__json_double(&json, &strips);
        else clef__json_skip(&json);
    }
    t->pieces.lowers = lowers == 1;
    t->pieces.parts_chinese = chinese == 1;
    t->pieces.strips = told ? strips == 1 : t->pieces.lowers;
    if (clef__json_at_end(&json)) return true;
    return clef__wrong(why, CLEF_FORMAT, "is not the JSON of a tokenizer's options: %.80s expected at byte %zu",
                       json.expected ? json.expected : "the end", (size_t)(json.at - json.start));
}

static bool is_blank(uint8_t byte) { return byte == ' ' || (byte >= 9 && byte <= 13); }

/* Each line is the token of its number; what follows it as white space is not of it. */
static bool read_lines(clef_tokenizer *t, const clef__blob *lines, clef__why *why) {
    int32_t id = 0;
    for (size_t at = 0, next; at < lines->size; at = next, id++) {
        const uint8_t *begin = lines->bytes + at, *line_end = memchr(begin, '\n', lines->size - at);
        size_t size = line_end ? (size_t)(line_end - begin) : lines->size - at;
        next = at + size + 1;
        while (size > 0 && is_blank(begin[size - 1])) size--;
        if (size > 0 && !clef__tokens_put(&t->tokens, id, begin, size))
            return clef__wrong(why, CLEF_MEMORY, "needs more memory than there is");
    }
    return t->tokens.n > 0 || clef__wrong(why, CLEF_FORMAT, "has no vocabulary");
}

bool clef__read_words(clef_tokenizer *t, const clef__blob *lines, clef__why *why) {
    static const char *const special[] = {"[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"};
    *why = (clef__why){0};
    if (!t->pieces.there) t->pieces = defaults;
    if (clef__utf8_check(lines->bytes, lines->size) < lines->size)
        return clef__wrong(why, CLEF_FORMAT, "has tokens that are not UTF-8");
    if (!read_lines(t, lines, why) || !clef__pieces_end(t, why)) return false;
    for (size_t i = 0; i < sizeof special / sizeof *special; i++) {
        int32_t id = clef__tokens_find(&t->tokens, special[i], strlen(special[i]));
        if (id >= 0 && !clef__tokenizer_add(t, (clef__added){.id = id, .special = true}, special[i], strlen(special[i]), why))
            return false;
    }
    return true;
}
