/* Files of tokenizers that are damaged, or have what is not read: each is refused with one line that says why, and no byte that is lost or
   changed does more than that. */
#include "text_suite.h"

TestSuite(refusals, .init = open_all, .fini = close_all);

static const char *write_file(const char *name, const void *bytes, size_t size) {
    static char path[300];
    write_and_free(folder, name, blob_of(bytes, size));
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static const char *write_json(const char *text) { return write_file("tokenizer.json", text, strlen(text)); }

/* ---- each line ---- */
typedef struct refusal {
    const char *json;
    clef_status status;
    const char *line;
} refusal;
#define LEVEL "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\\\p{L}+| ?\\\\p{N}+| ?[^\\\\s\\\\p{L}\\\\p{N}]+|\\\\s+(?!\\\\S)|\\\\s+"
#define SPLIT "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" GPT2 "\"},\"behavior\":\"Isolated\",\"invert\":false}"
#define MODEL "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}"
#define MODEL_OF(members) "{" LEVEL "\"model\":{" members "}}"
#define WORDS(members) "{\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},\"model\":{" members "}}"
#define VOCAB "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2}"
#define WITH(members) "{" members "," MODEL "}"
#define ADDED(members) "{\"added_tokens\":[{" members "}]," MODEL "}"
#define SEQUENCE(members) WITH("\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[" members "]}")

static const refusal refusals[] = {
    /* what is not read */
    {SEQUENCE("{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[a-z]+\"},\"behavior\":\"Isolated\"}"), CLEF_UNSUPPORTED,
     "a pattern of its own in its pre_tokenizer"},
    {SEQUENCE("{\"type\":\"Split\",\"pattern\":{\"String\":\" \"},\"behavior\":\"Isolated\"}"), CLEF_UNSUPPORTED,
     "a pattern of its own"},
    {SEQUENCE("{\"type\":\"Split\",\"pattern\":7,\"behavior\":\"Isolated\"}"), CLEF_UNSUPPORTED, "a pattern of its own"},
    {SEQUENCE("{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" GPT2 "\"},\"behavior\":\"Removed\"}"), CLEF_UNSUPPORTED,
     "a Split that is not Isolated"},
    {SEQUENCE("{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" GPT2 "\"},\"behavior\":\"Isolated\",\"invert\":true}"),
     CLEF_UNSUPPORTED, "a Split that is not Isolated"},
    {SEQUENCE(SPLIT "," SPLIT "," SPLIT "," SPLIT "," SPLIT), CLEF_UNSUPPORTED, "so many pre_tokenizers"},
    {SEQUENCE("{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Sequence\","
              "\"pretokenizers\":[{\"type\":\"ByteLevel\"}]}]}]}"),
     CLEF_UNSUPPORTED, "pre_tokenizers within each other"},
    {WITH("\"pre_tokenizer\":{\"type\":\"Whitespace\"}"), CLEF_UNSUPPORTED, "a pre_tokenizer other than Split and ByteLevel"},
    {WITH("\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\"}"), CLEF_UNSUPPORTED, "a pre_tokenizer other than"},
    {WITH("\"pre_tokenizer\":{}"), CLEF_UNSUPPORTED, "a pre_tokenizer other than"},
    {WITH("\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true}"), CLEF_UNSUPPORTED, "add_prefix_space"},
    {WITH("\"normalizer\":{\"type\":\"Lowercase\"}"), CLEF_UNSUPPORTED, "a normalizer other than NFC and BERT's"},
    {WITH("\"normalizer\":{\"type\":\"\"}"), CLEF_UNSUPPORTED, "a normalizer other than NFC and BERT's"},
    {WITH("\"normalizer\":{}"), CLEF_UNSUPPORTED, "a normalizer other than NFC and BERT's"},
    {WITH("\"decoder\":{\"type\":\"BPEDecoder\"}"), CLEF_UNSUPPORTED, "a decoder other than ByteLevel, Fuse and WordPiece"},
    {WITH("\"decoder\":{\"type\":\"\"}"), CLEF_UNSUPPORTED, "a decoder other than"},
    {WITH("\"decoder\":{\"type\":\"ByteLevel Fuse\"}"), CLEF_UNSUPPORTED, "a decoder other than"},
    {MODEL_OF("\"type\":\"WordPiece\"," VOCAB), CLEF_UNSUPPORTED, "word pieces without BERT's pre_tokenizer"},
    {WITH("\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"}"), CLEF_UNSUPPORTED, "BERT's pre_tokenizer without word pieces"},
    {WORDS("\"type\":\"WordPiece\"," VOCAB), CLEF_FORMAT, "no token \"\" for words"},
    {WORDS("\"type\":\"WordPiece\",\"unk_token\":\"c\"," VOCAB), CLEF_FORMAT, "no token \"c\" for words"},
    {WORDS("\"type\":\"WordPiece\",\"unk_token\":\"a\",\"max_input_chars_per_word\":1025," VOCAB), CLEF_UNSUPPORTED,
     "words of more than 1024 characters"},
    {WORDS("\"type\":\"WordPiece\",\"unk_token\":\"a\",\"continuing_subword_prefix\":\"12345678901234567\"," VOCAB),
     CLEF_UNSUPPORTED, "a longer prefix of what continues a word"},
    {"{" LEVEL "\"decoder\":{\"type\":\"WordPiece\",\"prefix\":\"#\"}," MODEL "}", CLEF_UNSUPPORTED,
     "another prefix in its decoder"},
    {MODEL_OF("\"type\":\"Unigram\",\"vocab\":[[\"a\",-1.5]]"), CLEF_UNSUPPORTED, "a model other than BPE and WordPiece"},
    {MODEL_OF("\"byte_fallback\":true," VOCAB), CLEF_UNSUPPORTED, "byte_fallback"},
    {MODEL_OF("\"continuing_subword_prefix\":\"##\"," VOCAB), CLEF_UNSUPPORTED, "a prefix of what continues a word"},
    {MODEL_OF("\"end_of_word_suffix\":\"</w>\"," VOCAB), CLEF_UNSUPPORTED, "a suffix of words"},
    {ADDED("\"id\":3,\"content\":\"<x>\",\"lstrip\":true"), CLEF_UNSUPPORTED, "single_word, lstrip or rstrip"},
    {ADDED("\"id\":3,\"content\":\"<x>\",\"rstrip\":true"), CLEF_UNSUPPORTED, "single_word, lstrip or rstrip"},
    {ADDED("\"id\":3,\"content\":\"<x>\",\"single_word\":true"), CLEF_UNSUPPORTED, "single_word, lstrip or rstrip"},
    /* what is damaged */
    {ADDED("\"id\":3"), CLEF_FORMAT, "an added token without content, or with an id that is too high"},
    {ADDED("\"content\":\"<x>\""), CLEF_FORMAT, "an added token without content"},
    {ADDED("\"id\":3,\"content\":null"), CLEF_FORMAT, "an added token without content"},
    {ADDED("\"id\":9223372036854775807,\"content\":\"<x>\""), CLEF_FORMAT, "an id that is too high"},
    {ADDED("\"id\":1000000,\"content\":\"<x>\""), CLEF_FORMAT, "an id that is too high"},
    {ADDED("\"id\":-1,\"content\":\"<x>\""), CLEF_FORMAT, "is not the JSON of a tokenizer"},
    {ADDED("\"id\":3,\"content\":\"\""), CLEF_FORMAT, "an added token without text"},
    {ADDED("\"id\":2,\"content\":\"<x>\""), CLEF_FORMAT, "an added token with the number of another token, 2"},
    {MODEL_OF("\"vocab\":{\"a\":1000000}"), CLEF_FORMAT, "a token with a number that is too high"},
    {MODEL_OF("\"vocab\":{\"a\":0,\"b\":0}"), CLEF_FORMAT, "two tokens with the same number"},
    {MODEL_OF("\"vocab\":{\"a\":1.5}"), CLEF_FORMAT, "is not the JSON of a tokenizer"},
    {MODEL_OF(VOCAB ",\"merges\":[\"a c\"]"), CLEF_FORMAT, "a merge of what is no token of its vocabulary"},
    {MODEL_OF(VOCAB ",\"merges\":[\"a b\",\"b a\"]"), CLEF_FORMAT, "merge 1 into what is no token of its vocabulary"},
    {MODEL_OF(VOCAB ",\"merges\":[\"ab\"]"), CLEF_FORMAT, "a merge that is not of two tokens"},
    {MODEL_OF(VOCAB ",\"merges\":[[\"a\"]]"), CLEF_FORMAT, "a merge that is not of two tokens"},
    {MODEL_OF(VOCAB ",\"merges\":[[\"a\",\"b\",\"b\"]]"), CLEF_FORMAT, "a merge that is not of two tokens"},
    {MODEL_OF(VOCAB ",\"merges\":[7]"), CLEF_FORMAT, "is not the JSON of a tokenizer"},
    {MODEL_OF("\"merges\":[\"a b\"]," VOCAB), CLEF_FORMAT, "merges before their vocabulary, or no vocabulary"},
    {MODEL_OF("\"vocab\":{},\"merges\":[\"a b\"]"), CLEF_FORMAT, "merges before their vocabulary, or no vocabulary"},
    {MODEL_OF("\"vocab\":{}"), CLEF_FORMAT, "has no vocabulary"},
    {"{}", CLEF_FORMAT, "has no vocabulary"},
    {"", CLEF_FORMAT, "is not the JSON of a tokenizer: { expected at byte 0"},
    {"[]", CLEF_FORMAT, "is not the JSON of a tokenizer: { expected at byte 0"},
    {"{\"model\":[]}", CLEF_FORMAT, "is not the JSON of a tokenizer: { expected at byte 9"},
    {"{" MODEL "}x", CLEF_FORMAT, "is not the JSON of a tokenizer"},
};

Test(refusals, each_has_its_line) {
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const char *path = write_json(refusals[i].json);
        cr_expect(!clef_tokenizer_open(ctx, path), "case %d is read: %s", (int)i, refusals[i].json);
        cr_expect(strstr(clef_error(ctx), path) && !strchr(clef_error(ctx), '\n'), "%s", clef_error(ctx));
        expect_error(ctx, refusals[i].status, refusals[i].line);
    }
    cr_expect(clef_tokenizer_open(ctx, write_json("{" LEVEL MODEL "}")), "%s", clef_error(ctx)); /* what they are made from */
}

/* Two tokens of 600 letters, whose merge is longer than a token can be. */
Test(refusals, of_a_token_that_is_too_long) {
    char part[601] = {0}, json[4096];
    memset(part, 'a', 600);
    snprintf(json, sizeof json, "{\"model\":{\"vocab\":{\"%s\":0},\"merges\":[[\"%s\",\"%s\"]]}}", part, part, part);
    cr_expect(!clef_tokenizer_open(ctx, write_json(json)));
    expect_error(ctx, CLEF_UNSUPPORTED, "has a token of more than 1024 bytes");
}

static void refuse_two(const char *vocabulary, const char *merges, clef_status status, const char *line) {
    char path[300];
    write_file("merges.txt", merges, strlen(merges));
    snprintf(path, sizeof path, "%s", write_file("vocab.json", vocabulary, strlen(vocabulary)));
    cr_expect(!clef_tokenizer_open(ctx, path), "%s and %s", vocabulary, merges);
    expect_error(ctx, status, line);
    cr_expect(!clef_tokenizer_open(ctx, folder));
    expect_error(ctx, status, line);
}

Test(refusals, of_two_files) {
    static const char good[] = "{\"a\":0,\"b\":1,\"ab\":2}";
    refuse_two("{}", "a b\n", CLEF_FORMAT, "has no vocabulary");
    refuse_two("[]", "a b\n", CLEF_FORMAT, "is not the JSON of a tokenizer: { expected at byte 0");
    refuse_two(good, "#version: 0.2\nab\n", CLEF_FORMAT, "a line of merges without a space");
    refuse_two(good, "a c\n", CLEF_FORMAT, "a merge of what is no token of its vocabulary");
    refuse_two(good, "a b\n#version: 0.2\n", CLEF_FORMAT, "a merge of what is no token");
    refuse_two(good, "a b\nb b\n", CLEF_FORMAT, "merge 1 into what is no token");
    refuse_two(good, "a b\n\xFF b\n", CLEF_FORMAT, "merges that are not UTF-8");
    refuse_two("{\"a\":0,\"b\":0}", "", CLEF_FORMAT, "two tokens with the same number");
    write_file("merges.txt", "a b\n\0\nab c\n", 12); /* a text would end there */
    char zero[300];
    snprintf(zero, sizeof zero, "%s", write_file("vocab.json", good, sizeof good - 1));
    cr_expect(!clef_tokenizer_open(ctx, zero));
    expect_error(ctx, CLEF_FORMAT, "with a zero byte");
    char path[300];
    snprintf(path, sizeof path, "%s", write_file("vocab.json", good, sizeof good - 1));
    write_file("merges.txt", "#version: 0.2\r\na b\r\n", 20);
    cr_expect(clef_tokenizer_open(ctx, path), "%s", clef_error(ctx));
    char merges[300];
    snprintf(merges, sizeof merges, "%s/merges.txt", folder);
    cr_expect(remove(merges) == 0 && !clef_tokenizer_open(ctx, path));
    expect_error(ctx, CLEF_IO, "merges.txt cannot be opened");
    cr_expect(remove(path) == 0 && !clef_tokenizer_open(ctx, folder));
    expect_error(ctx, CLEF_IO, "tokenizer.json cannot be opened");
}

static void refuse_words(const char *words, const char *config, clef_status status, const char *line) {
    char path[300];
    write_file("tokenizer_config.json", config, strlen(config));
    snprintf(path, sizeof path, "%s", write_file("vocab.txt", words, strlen(words)));
    cr_expect(!clef_tokenizer_open(ctx, path), "%s and %s", words, config);
    cr_expect(!strchr(clef_error(ctx), '\n'));
    expect_error(ctx, status, line);
    cr_expect(!clef_tokenizer_open(ctx, folder));
    expect_error(ctx, status, line);
}

Test(refusals, of_words_in_lines) {
    refuse_words("", "{}", CLEF_FORMAT, "has no vocabulary");
    refuse_words("\n \n", "{}", CLEF_FORMAT, "has no vocabulary");
    refuse_words("a\n##b\n", "{}", CLEF_FORMAT, "vocab.txt has no token \"[UNK]\" for words");
    refuse_words("[UNK]\n\xFF\n", "{}", CLEF_FORMAT, "tokens that are not UTF-8");
    refuse_words("[UNK]\na\n", "[]", CLEF_FORMAT,
                 "tokenizer_config.json is not the JSON of a tokenizer's options: { expected at byte 0");
    refuse_words("[UNK]\na\n", "{\"do_lower_case\":\"yes\"}", CLEF_FORMAT, "is not the JSON of a tokenizer's options");
    write_file("tokenizer_config.json", "{\"do_lower_case\":true}", 22);
    clef_tokenizer *t = clef_tokenizer_open(ctx, write_file("vocab.txt", "[UNK]\r\nA\n\na\n##b\nb", 17));
    cr_assert(t, "%s", clef_error(ctx));
    int64_t ids[8], n = clef_tokenizer_encode(t, "AB\tb, A ab[UNK]", 15, ids, 8), want[] = {3, 4, 5, 0, 3, 3, 4, 0};
    char text[32];
    cr_expect(clef_tokenizer_size(t) == 6 && n == 8 && memcmp(ids, want, sizeof want) == 0, "%d tokens", (int)n);
    cr_expect(clef_tokenizer_decode(t, ids, n, text, sizeof text) == 21 && !strcmp(text, "ab b [UNK] a ab [UNK]"), "%s", text);
    char path[300];
    snprintf(path, sizeof path, "%s/vocab.txt", folder);
    cr_expect(remove(path) == 0 && !clef_tokenizer_open(ctx, path));
    expect_error(ctx, CLEF_IO, "vocab.txt cannot be opened");
}

Test(refusals, of_paths_and_texts) {
    cr_expect(!clef_tokenizer_open(NULL, "x") && !clef_tokenizer_open(ctx, NULL));
    expect_error(ctx, CLEF_INVALID, "tokenizer_open: the path is NULL");
    cr_expect(!clef_tokenizer_open(ctx, "/nowhere/tokenizer.json"));
    expect_error(ctx, CLEF_IO, "/nowhere/tokenizer.json cannot be opened");
    clef_tokenizer *t = clef_tokenizer_open(
        ctx, write_json(
                 WITH("\"normalizer\":{\"type\":\"NFC\"},\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false}")));
    cr_assert(t, "%s", clef_error(ctx));
    cr_expect(clef_tokenizer_encode(t, "abz", 3, NULL, 0) == -1);
    expect_error(ctx, CLEF_FORMAT, "the text has byte 0x7A at byte 2, which is no token");
    cr_expect(clef_tokenizer_encode(t, "ab\xFF", 3, NULL, 0) == -1);
    expect_error(ctx, CLEF_FORMAT, "the text is not UTF-8 at byte 2");
    cr_expect(clef_tokenizer_encode(t, "ae\xCC\x81", 4, NULL, 0) == -1);
    expect_error(ctx, CLEF_UNSUPPORTED, "has U+0301 at byte 2, which this tokenizer wants composed");
    cr_expect_eq(clef_tokenizer_save(t, NULL), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "tokenizer_save: the path is NULL");
    cr_expect_eq(clef_tokenizer_save(t, "/nowhere/tokenizer.json"), CLEF_IO);
    expect_error(ctx, CLEF_IO, "tokenizer_save: /nowhere/tokenizer.json");
    cr_expect_eq(clef_tokenizer_save(NULL, "x"), CLEF_INVALID);
    clef_text_stream stream = {0};
    cr_expect_eq(clef_tokenizer_stream(t, NULL, 0, NULL, 0), -1);
    expect_error(ctx, CLEF_INVALID, "stream or text is NULL");
    cr_expect_eq(clef_tokenizer_stream(t, &stream, 3, NULL, 0), -1);
    expect_error(ctx, CLEF_INVALID, "3 is no token; they are below 3");
}

static void refuse_learning(const char *text, size_t size, clef_tokenizer_learn_options o, clef_status status, const char *line) {
    cr_expect(!clef_tokenizer_learn(ctx, text, size, &o));
    expect_error(ctx, status, line);
}

Test(refusals, of_learning) {
    static const char *const some[] = {"<a>", "<"}, *const none[] = {NULL}, *const half[] = {"\xA9 "},
                             *const twice[] = {"<a>", "<a>"};
    refuse_learning("caf\xC3\xA9 a", 7, (clef_tokenizer_learn_options){.special = half, .n_special = 1}, CLEF_INVALID,
                    "a special token is not UTF-8");
    refuse_learning("a", 1, (clef_tokenizer_learn_options){.special = twice, .n_special = 2}, CLEF_INVALID, "is there twice");
    refuse_learning(NULL, 0, (clef_tokenizer_learn_options){0}, CLEF_INVALID, "text is NULL");
    refuse_learning("", 0, (clef_tokenizer_learn_options){0}, CLEF_FORMAT, "the text is empty");
    refuse_learning("ab\xFFz", 4, (clef_tokenizer_learn_options){0}, CLEF_FORMAT, "the text is not UTF-8 at byte 2");
    refuse_learning("a", 1, (clef_tokenizer_learn_options){.size = 255}, CLEF_INVALID, "size is 256 and the special tokens");
    refuse_learning("a", 1, (clef_tokenizer_learn_options){.size = -1}, CLEF_INVALID, "size is 256 and the special tokens");
    refuse_learning("a", 1, (clef_tokenizer_learn_options){.size = 256, .special = some, .n_special = 1}, CLEF_INVALID,
                    "size is 256 and the special tokens");
    refuse_learning("a", 1, (clef_tokenizer_learn_options){.special = some, .n_special = 2}, CLEF_INVALID,
                    "two characters or more");
    refuse_learning("a", 1, (clef_tokenizer_learn_options){.special = none, .n_special = 1}, CLEF_INVALID,
                    "two characters or more");
    refuse_learning("a", 1, (clef_tokenizer_learn_options){.n_special = 1}, CLEF_INVALID, "special is NULL");
    refuse_learning("a", 1, (clef_tokenizer_learn_options){.n_special = -1}, CLEF_INVALID, "n_special below 0");
    cr_expect(!clef_tokenizer_learn(NULL, "a", 1, NULL));
}

/* Letters of a special token may be those that stand for bytes; it stands in a vocabulary as it is. */
Test(refusals, of_special_tokens_none) {
    static const char *const special[] = {"<d\xC3\xA9 but>", "<|fin|>"};
    clef_tokenizer *t = clef_tokenizer_learn(ctx, "la fin", 6, &(clef_tokenizer_learn_options){.special = special, .n_special = 2});
    char path[300];
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    cr_assert(t && clef_tokenizer_save(t, path) == CLEF_OK, "%s", clef_error(ctx));
    clef_tokenizer *again = clef_tokenizer_open(ctx, path);
    cr_assert(again, "%s", clef_error(ctx));
    for (int i = 0; i < 2; i++) cr_expect_eq(clef_tokenizer_find(again, special[i]), clef_tokenizer_find(t, special[i]));
    static const char by_hand[] = "{\"added_tokens\":[{\"id\":2,\"content\":\"<d\xC3\xA9>\",\"special\":true}]," LEVEL
                                  "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"<d\xC3\xA9>\":2},\"merges\":[]}}";
    cr_expect(clef_tokenizer_open(ctx, write_file("by_hand.json", by_hand, sizeof by_hand - 1)), "%s", clef_error(ctx));
    clef_text_stream stream = {0};
    char text[16];
    for (int i = 0; i < 2; i++) {
        cr_expect_eq(clef_tokenizer_stream(t, &stream, clef_tokenizer_find(t, "a"), text, sizeof text), 1);
        cr_expect_eq(clef_tokenizer_stream(t, &stream, CLEF_STREAM_END, text, sizeof text), 0);
        cr_expect(!stream.begun, "a stream that has ended begins anew");
    }
}

/* ---- bytes that are lost or changed ---- */
static const char whole[] =
    "{\"added_tokens\":[{\"id\":4,\"content\":\"<x>\",\"special\":true}],\"normalizer\":{\"type\":\"NFC\"},"
    "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[" SPLIT ",{\"type\":\"ByteLevel\","
    "\"add_prefix_space\":false,\"use_regex\":false}]},\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{"
    "\"ignore_merges\":true,\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"\xC4\xA0\":3},\"merges\":[[\"a\",\"b\"]]}}";

Test(refusals, a_file_that_ends_too_early_is_none) {
    for (size_t size = 0; size < sizeof whole - 1; size++) {
        cr_assert(!clef_tokenizer_open(ctx, write_file("cut.json", whole, size)), "the first %d bytes are a tokenizer", (int)size);
        cr_assert(!strchr(clef_error(ctx), '\n'));
        expect_error(ctx, CLEF_FORMAT, "cut.json ");
    }
    cr_expect(clef_tokenizer_open(ctx, write_file("cut.json", whole, sizeof whole - 1)), "%s", clef_error(ctx));
}

Test(refusals, a_byte_that_is_changed_gives_a_line_or_a_tokenizer) {
    static const char others[] = {0, '"', '}', ']', ',', '9', '\\', (char)0xFF};
    char text[sizeof whole], back[16];
    int read = 0, refused = 0;
    for (size_t i = 0; i + 1 < sizeof whole; i++) {
        memcpy(text, whole, sizeof whole);
        text[i] = others[i % sizeof others];
        clef_tokenizer *t = clef_tokenizer_open(ctx, write_file("changed.json", text, sizeof whole - 1));
        int64_t ids[8], n = t ? clef_tokenizer_encode(t, "ab a<x>", 7, ids, 8) : -1;
        if (n >= 0) cr_expect(clef_tokenizer_decode(t, ids, n, back, sizeof back) == 7 && strcmp(back, "ab a<x>") == 0);
        read += t != NULL;
        refused += t == NULL;
        cr_assert(n >= 0 || (clef_error(ctx)[0] && !strchr(clef_error(ctx), '\n')));
        clef_tokenizer_close(t);
        clef_clear_error(ctx);
    }
    cr_expect(read > 20 && refused > 200, "%d are read, %d refused", read, refused);
}
