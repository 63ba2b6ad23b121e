/* Tokenizers against Hugging Face's: the same tokens of thousands of texts, the same texts of random tokens, the same merges learned, and files
   that it reads.  $CLEF_PYTHON names the interpreter (python3).
   ctest: plain */
#include "clef.h"
#include "support/io_files.h"
#include "support/plain.h"
#include "support/python.h"

enum { TEXTS = 4000, MOST = 8192 };
static clef_context *ctx;
static const char *dir;

typedef struct sample {
    const char *text;
    int64_t size;
} sample;
static sample texts[TEXTS];
static int64_t n_texts, ids[MOST];

static int oracle(const char *phase) {
    char arguments[600];
    snprintf(arguments, sizeof arguments, "'%s' %s", dir, phase);
    return python_run("text/oracle.py", arguments);
}

static int64_t take(const uint8_t **at) {
    int64_t value;
    memcpy(&value, *at, sizeof value);
    *at += sizeof value;
    return value;
}

/* The file's bytes stay. */
static int64_t read_texts(const char *name, sample *to) {
    const uint8_t *at = io_slurp(io_path(dir, name)).data;
    int64_t n = at ? take(&at) : 0;
    for (int64_t i = 0; i < n && i < TEXTS; i++) {
        to[i].size = take(&at);
        to[i].text = (const char *)at;
        at += to[i].size;
    }
    return n;
}

static bool has(const sample *s, const char *part) {
    for (int64_t i = 0, n = (int64_t)strlen(part); i + n <= s->size; i++)
        if (memcmp(s->text + i, part, (size_t)n) == 0) return true;
    return false;
}

/* Every text's tokens are those of the file, but for texts that have `except`. */
static void compare_encoding(clef_tokenizer *t, const char *name, const char *except) {
    char file[64];
    snprintf(file, sizeof file, "%s.ids", name);
    io_bytes all = io_slurp(io_path(dir, file));
    const uint8_t *at = all.data;
    int wrong = 0;
    for (int64_t i = 0; i < n_texts; i++) {
        int64_t want = take(&at), n = clef_tokenizer_encode(t, texts[i].text, (size_t)texts[i].size, ids, MOST);
        if (except && has(&texts[i], except)) n = -1;
        else if (n != want || memcmp(ids, at, (size_t)n * sizeof *ids) != 0) {
            if (wrong++ < 3)
                fprintf(stderr, "%s: text %d has other tokens: \"%.*s\"\n", name, (int)i, (int)texts[i].size, texts[i].text);
        }
        at += want * 8;
    }
    EXPECT(wrong == 0 && n_texts > 1000);
    free(all.data);
}

/* Text of random tokens, as whole characters. */
static void compare_decoding(clef_tokenizer *t, const char *name) {
    static sample decoded[TEXTS];
    char file[64];
    snprintf(file, sizeof file, "%s.decoded", name);
    int64_t n = read_texts(file, decoded);
    snprintf(file, sizeof file, "%s.drawn", name);
    io_bytes all = io_slurp(io_path(dir, file));
    const uint8_t *at = all.data;
    for (int64_t i = 0; i < n; i++) {
        static char text[1 << 16];
        clef_text_stream stream = {0};
        int64_t length = 0;
        for (int64_t k = take(&at); k > 0; k--)
            length += clef_tokenizer_stream(t, &stream, take(&at), text + length, sizeof text - (size_t)length);
        length += clef_tokenizer_stream(t, &stream, CLEF_STREAM_END, text + length, sizeof text - (size_t)length);
        EXPECT(length == decoded[i].size && memcmp(text, decoded[i].text, (size_t)length) == 0);
    }
    EXPECT(n == 300);
    if (n > 0) free((char *)(uintptr_t)decoded[0].text - 2 * sizeof n); /* the file's bytes begin with both numbers */
    free(all.data);
}

/* Decoding gives the text again; as many ids as the file will have are written to it. */
static void write_encoding(clef_tokenizer *t, const char *name) {
    char file[64], back[MOST];
    snprintf(file, sizeof file, "%s.ids", name);
    FILE *f = fopen(io_path(dir, file), "wb");
    for (int64_t i = 0; i < n_texts; i++) {
        int64_t n = clef_tokenizer_encode(t, texts[i].text, (size_t)texts[i].size, ids, MOST);
        EXPECT(n >= 0 && n <= MOST);
        EXPECT(clef_tokenizer_decode(t, ids, n, back, sizeof back) == texts[i].size);
        EXPECT(memcmp(back, texts[i].text, (size_t)texts[i].size) == 0);
        fwrite(&n, sizeof n, 1, f);
        fwrite(ids, sizeof *ids, (size_t)n, f);
    }
    fclose(f);
    snprintf(file, sizeof file, "%s.json", name);
    EXPECT(clef_tokenizer_save(t, io_path(dir, file)) == CLEF_OK);
    clef_tokenizer *again = clef_tokenizer_open(ctx, io_path(dir, file));
    EXPECT(again && clef_tokenizer_size(again) == clef_tokenizer_size(t));
    if (again) compare_encoding(again, name, NULL);
}

static void compare_files(void) {
    static const char *const names[] = {"gpt2", "crossing", "llama", "qwen"};
    for (int i = 0; i < 4; i++) {
        char file[64];
        snprintf(file, sizeof file, "%s.json", names[i]);
        clef_tokenizer *t = clef_tokenizer_open(ctx, io_path(dir, file));
        if (!t) fprintf(stderr, "%s\n", clef_error(ctx));
        EXPECT(t);
        if (!t) continue;
        EXPECT(clef_tokenizer_find(t, "<|endoftext|>") == 0 && clef_tokenizer_find(t, "<|none|>") == -1);
        compare_encoding(t, names[i], NULL);
        compare_decoding(t, names[i]);
        EXPECT(clef_tokenizer_save(t, io_path(dir, "again.json")) == CLEF_OK);
        clef_tokenizer *again = clef_tokenizer_open(ctx, io_path(dir, "again.json"));
        EXPECT(again);
        if (again) compare_encoding(again, names[i], NULL);
        if (again) compare_decoding(again, names[i]);
    }
}

/* GPT-2's two files, which say of one token only that it is found in texts. */
static void compare_two_files(void) {
    clef_tokenizer *t = clef_tokenizer_open(ctx, dir), *other = clef_tokenizer_open(ctx, io_path(dir, "vocab.json"));
    EXPECT(t && other);
    if (t && other) compare_encoding(t, "gpt2", "<|im"), compare_encoding(other, "gpt2", "<|im");
}

/* BERT's words in pieces, with each normalizer; and its vocabulary as lines, with options beside it and without. */
static void compare_words(void) {
    static const char *const names[] = {"bert", "cased", "accents", "stripped", "raw"};
    for (int i = 0; i < 5; i++) {
        char file[64];
        snprintf(file, sizeof file, "%s.json", names[i]);
        clef_tokenizer *t = clef_tokenizer_open(ctx, io_path(dir, file)), *again = NULL;
        snprintf(file, sizeof file, "%s_again.json", names[i]);
        EXPECT(t && clef_tokenizer_find(t, "[UNK]") == 1);
        if (t) compare_encoding(t, names[i], NULL), compare_decoding(t, names[i]);
        EXPECT(t && clef_tokenizer_save(t, io_path(dir, file)) == CLEF_OK);
        if (t) again = clef_tokenizer_open(ctx, io_path(dir, file));
        EXPECT(again);
        if (again) compare_encoding(again, names[i], NULL), compare_decoding(again, names[i]);
    }
    clef_tokenizer *cased = clef_tokenizer_open(ctx, io_path(dir, "words")),
                   *lower = clef_tokenizer_open(ctx, io_path(dir, "lower/vocab.txt"));
    EXPECT(cased && lower);
    if (cased && lower) compare_encoding(cased, "cased", NULL), compare_encoding(lower, "bert", NULL);
}

static void compare_learning(void) {
    static const char *const special[] = {"<|endoftext|>", "<|im|>", "<|im|>>"};
    io_bytes corpus = io_slurp(io_path(dir, "corpus"));
    clef_tokenizer *t = clef_tokenizer_learn(ctx, (const char *)corpus.data, corpus.size,
                                             &(clef_tokenizer_learn_options){.size = 900, .special = special, .n_special = 3});
    EXPECT(t && clef_tokenizer_size(t) == 900);
    if (t) compare_encoding(t, "gpt2", NULL);
    if (t) write_encoding(t, "learned");
    free(corpus.data);
}

static void compare_letters(void) {
    size_t size = 0;
    for (int64_t i = 0; i < n_texts; i++) size += (size_t)texts[i].size;
    char *all = malloc(size), *at = all;
    for (int64_t i = 0; i < n_texts; at += texts[i++].size) memcpy(at, texts[i].text, (size_t)texts[i].size);
    clef_tokenizer *letters = clef_tokenizer_characters(ctx, all, size), *bytes = clef_tokenizer_bytes(ctx);
    EXPECT(letters && bytes);
    if (letters) write_encoding(letters, "letters");
    if (bytes) write_encoding(bytes, "bytes");
    free(all);
}

int main(void) {
    if (!(ctx = clef_open(NULL))) return without_context();
    dir = io_scratch();
    int code = oracle("make");
    EXPECT(code == 0 || code == 77 || code == 127);
    if (code == 0) {
        n_texts = read_texts("texts", texts);
        compare_files();
        compare_two_files();
        compare_words();
        compare_learning();
        compare_letters();
        EXPECT(oracle("check") == 0);
    }
    if (code == 127) printf("skipped: there is no Python\n");
    if (io_failures) fprintf(stderr, "tokenizers: %s\n", clef_error(ctx));
    clef_close(ctx);
    io_remove(dir);
    return io_failures ? 1 : code == 127 ? 77 : code;
}
