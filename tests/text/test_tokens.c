/* What Hugging Face's `tokenizers` made of a handful of texts, noted down (tests/expectations/tokens.py), for where it is not there. */
#include "support/device.h"

typedef struct expectation {
    const char *file, *text;
    size_t size;
    const int64_t *ids; /* ends with -1 */
} expectation;
#define NUMBERS(...) __VA_ARGS__
#define TOKENS(file, text, size, ids) {#file, text, size, (const int64_t[]){ids}},
static const expectation expectations[] = {
#include "expectations/tokens.def"
};

static clef_tokenizer *open_file(clef_context *ctx, const char *name) {
    char path[1024];
    snprintf(path, sizeof path, CLEF_TEST_SOURCE "/tests/expectations/%s_tokens.json", name);
    clef_tokenizer *t = clef_tokenizer_open(ctx, path);
    cr_assert(t, "%s", clef_error(ctx));
    cr_assert(clef_tokenizer_size(t) == 300 && clef_tokenizer_find(t, "<|end|>") == 0);
    return t;
}

Test(tokens, are_those_that_were_noted) {
    clef_context *ctx = open_seeded(0);
    int n = (int)(sizeof expectations / sizeof *expectations), merged = 0;
    for (int i = 0; i < n; i++) {
        const expectation *e = &expectations[i];
        clef_tokenizer *t = open_file(ctx, e->file);
        int64_t ids[128], wanted = 0;
        char back[128];
        while (e->ids[wanted] >= 0) wanted++;
        cr_expect_eq(clef_tokenizer_encode(t, e->text, e->size, ids, 128), wanted, "%s: \"%s\"", e->file, e->text);
        cr_expect(memcmp(ids, e->ids, (size_t)wanted * sizeof *ids) == 0, "%s: \"%s\"", e->file, e->text);
        cr_expect_eq(clef_tokenizer_decode(t, e->ids, wanted, back, sizeof back), (int64_t)e->size);
        cr_expect(memcmp(back, e->text, e->size) == 0, "%s: \"%s\" and not \"%s\"", e->file, back, e->text);
        merged += (size_t)wanted < e->size;
        clef_tokenizer_close(t);
    }
    cr_expect(n == 24 && merged >= 16, "%d of %d have merges", merged, n);
    close_clean(ctx);
}
