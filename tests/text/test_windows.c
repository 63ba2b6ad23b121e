/* Text as windows: what each item holds, that consecutive windows have each token as a target once, that random ones are equally likely
   places which depend on seed, epoch and item alone, and files that are refused. */
#include "text_suite.h"

TestSuite(windows, .init = open_all, .fini = close_all);

enum { BYTES = 1000 };
static uint8_t made[BYTES];

static const char *write_text(const void *text, size_t size) {
    static char path[300];
    write_and_free(folder, "text", blob_of(text, size));
    snprintf(path, sizeof path, "%s/text", folder);
    return path;
}

static const char *made_text(void) {
    for (int i = 0; i < BYTES; i++) made[i] = (uint8_t)(i * i % 251);
    return write_text(made, BYTES);
}

/* Consecutive windows of bytes `begin` to `end`: each target once, each after its input. */
static void expect_cover(clef_dataset *data, int64_t begin, int64_t end, int64_t context) {
    int64_t n = end - begin, *x = malloc(16 * (size_t)context), *y = x + context;
    int *count = calloc(BYTES, sizeof *count);
    cr_assert_eq(clef_dataset_size(data), (n - 1 + context - 1) / context);
    for (int64_t i = 0; i < clef_dataset_size(data); i++) {
        cr_assert_eq(clef_dataset_get_fields(data, i, (void *[]){x, y}), CLEF_OK);
        int64_t first = begin + (i * context + context < n ? i * context : n - context - 1);
        for (int64_t k = 0; k < context; k++) {
            cr_assert_eq(x[k], made[first + k]);
            if (y[k] == CLEF_NO_TARGET) continue;
            cr_assert_eq(y[k], made[first + k + 1]);
            count[first + k + 1]++;
        }
    }
    for (int64_t i = begin; i < end; i++) cr_assert_eq(count[i], i > begin, "token %d is %d times a target", (int)i, count[i]);
    free(x);
    free(count);
}

Test(windows, consecutive_ones_have_each_token_as_a_target_once) {
    static const int64_t contexts[] = {1, 2, 3, 7, 64, 98, 99};
    const char *path = made_text();
    for (int i = 0; i < 7; i++) {
        clef_text_options o = {.context = contexts[i], .consecutive = true};
        expect_cover(clef_text(ctx, path, &o), 0, 900, contexts[i]);
        o.split = CLEF_TEST;
        expect_cover(clef_text(ctx, path, &o), 900, BYTES, contexts[i]);
        o = (clef_text_options){.context = contexts[i], .split = CLEF_TEST}; /* always consecutive */
        expect_cover(clef_text(ctx, path, &o), 900, BYTES, contexts[i]);
    }
    expect_cover(clef_text(ctx, path, &(clef_text_options){.context = BYTES - 1, .consecutive = true, .share = 1}), 0, BYTES,
                 BYTES - 1);
    expect_cover(clef_text(ctx, path, &(clef_text_options){.split = CLEF_TEST, .share = 0.5}), 500, BYTES, 64);
}

/* The place of a random window, which its text tells: neighbours in `made` are found by trying. */
static int64_t place_of(const int64_t *x, const int64_t *y, int64_t context, int64_t n) {
    for (int64_t p = 0; p + context < n; p++) {
        int64_t k = 0;
        while (k < context && x[k] == made[p + k] && y[k] == made[p + k + 1]) k++;
        if (k == context) return p;
    }
    return -1;
}

Test(windows, random_ones_are_any_place_equally_often) {
    enum { CONTEXT = 6, WINDOWS = 20000, PLACES = 45 };
    int count[PLACES] = {0};
    for (int i = 0; i < BYTES; i++) made[i] = (uint8_t)(i * 5); /* no two places are alike */
    clef_dataset *data = clef_text(ctx, write_text(made, PLACES + CONTEXT),
                                   &(clef_text_options){.context = CONTEXT, .windows = WINDOWS, .share = 1});
    cr_assert_eq(clef_dataset_size(data), WINDOWS, "%s", clef_error(ctx));
    for (int64_t i = 0, x[CONTEXT], y[CONTEXT]; i < WINDOWS; i++) {
        cr_assert_eq(clef_dataset_get_fields(data, i, (void *[]){x, y}), CLEF_OK);
        int64_t place = place_of(x, y, CONTEXT, PLACES + CONTEXT);
        cr_assert(place >= 0);
        count[place]++;
    }
    double expected = (double)WINDOWS / PLACES, chi = 0;
    for (int p = 0; p < PLACES; p++) chi += (count[p] - expected) * (count[p] - expected) / expected;
    cr_expect(chi < 44 + 5 * sqrt(88), "chi squared is %g for 44 degrees of freedom", chi);
}

/* What a loader gives in `batches` batches from a place on. */
static void read_batches(clef_dataset *data, clef_loader_state from, int workers, int64_t *out, int batches) {
    clef_loader_options o = {.batch = 4, .shuffle = true, .drop_last = true, .seed = 3, .workers = workers};
    clef_loader *loader = clef_loader_open(data, &o);
    cr_assert_eq(clef_loader_set(loader, from), CLEF_OK);
    for (int b = 0; b < batches;) {
        clef_batch batch;
        while (b < batches && clef_next(loader, &batch)) {
            expect_shape(batch.x, CLEF_SHAPE(4, 8));
            cr_assert(clef_read(batch.x, out + b * 64, 256) == CLEF_OK && clef_read(batch.y, out + b * 64 + 32, 256) == CLEF_OK);
            b++;
        }
        cr_assert_str_empty(clef_error(ctx));
    }
    clef_loader_close(loader);
}

Test(windows, of_an_epoch_depend_on_seed_and_epoch_alone) {
    static int64_t whole[40 * 64], rest[40 * 64];
    clef_text_options o = {.context = 8, .windows = 40, .seed = 9};
    clef_dataset *data = clef_text(ctx, made_text(), &o);
    read_batches(data, (clef_loader_state){.seed = 3}, 1, whole, 40);
    read_batches(data, (clef_loader_state){.epoch = 2, .batch = 7, .seed = 3}, 3, rest, 13);
    cr_expect_arr_eq(whole + 27 * 64, rest, 13 * 64 * sizeof *rest);
    cr_expect(memcmp(whole, whole + 640, 640 * sizeof *whole) != 0, "epoch 1 is epoch 0");
    int64_t order[40];
    clef__order_shuffled(order, 40, 3, 0);
    for (int k = 0; k < 4; k++) {
        int64_t x[8], y[8];
        cr_assert_eq(clef_dataset_get_fields(data, order[k], (void *[]){x, y}), CLEF_OK);
        cr_expect_arr_eq(x, whole + k * 8, sizeof x);
        cr_expect_arr_eq(y, whole + 32 + k * 8, sizeof y);
    }
    o.seed = 10;
    read_batches(clef_text(ctx, made_text(), &o), (clef_loader_state){.seed = 3}, 1, rest, 1);
    cr_expect(memcmp(whole, rest, 64 * sizeof *rest) != 0, "another seed, the same windows");
}

Test(windows, split_at_the_border_of_a_character) {
    static const char text[] = "ab\xE2\x82\xAC\xC3\xA9zab\xC3\xA9"; /* ab€ézabé */
    const char *path = write_text(text, sizeof text - 1);
    clef_tokenizer *t = clef_tokenizer_characters_of(ctx, path);
    cr_assert_eq(clef_tokenizer_size(t), 5);
    for (int cut = 2; cut < 8; cut++) {
        clef_text_options o = {.tokenizer = t, .context = 1, .consecutive = true, .share = (cut + 0.5) / (sizeof text - 1)};
        int64_t train = clef_dataset_size(clef_text(ctx, path, &o)), wanted = cut < 5 ? 2 : cut < 7 ? 3 : cut == 7 ? 4 : 5;
        o.split = CLEF_TEST;
        int64_t test = clef_dataset_size(clef_text(ctx, path, &o));
        cr_expect(train == wanted - 1 && test == 8 - wanted - 1, "cut at byte %d: %d and %d", cut, (int)train, (int)test);
    }
}

Test(windows, of_many_classes_and_of_gzip_files) {
    enum { CODES = 70000, FIRST = 0x10000 };
    static uint8_t text[CODES * 4];
    for (uint32_t i = 0; i < CODES; i++) {
        uint32_t c = FIRST + (i * 7919 % CODES);
        memcpy(text + (size_t)i * 4,
               (uint8_t[]){(uint8_t)(0xF0 | c >> 18), (uint8_t)(0x80 | (c >> 12 & 63)), (uint8_t)(0x80 | (c >> 6 & 63)),
                           (uint8_t)(0x80 | (c & 63))},
               4);
    }
    clef__blob plain = blob_of(text, sizeof text);
    write_and_free(folder, "text", gzip_stored(&plain));
    clef__blob_free(&plain);
    char path[300];
    snprintf(path, sizeof path, "%s/text", folder);
    clef_tokenizer *t = clef_tokenizer_characters_of(ctx, path);
    clef_dataset *data =
        clef_text(ctx, path, &(clef_text_options){.tokenizer = t, .context = 1000, .consecutive = true, .share = 1});
    cr_assert_eq(clef_dataset_classes(data), CODES, "%s", clef_error(ctx));
    clef_tokenizer_close(t); /* no longer needed */
    static int64_t x[1000], y[1000];
    for (int64_t i = 0; i < 69; i++) {
        cr_assert_eq(clef_dataset_get_fields(data, i, (void *[]){x, y}), CLEF_OK);
        for (int64_t k = 0; k < 1000; k++) cr_assert_eq(x[k], (i * 1000 + k) * 7919 % CODES);
    }
}

static void refuse(const char *path, clef_text_options o, clef_status status, const char *part) {
    cr_expect(!clef_text(ctx, path, &o));
    expect_error(ctx, status, part);
}

Test(windows, that_cannot_be_are_refused_with_a_line) {
    const char *path = write_text("abc\xC3(def", 9);
    clef_tokenizer *abc = clef_tokenizer_characters(ctx, "abc", 3);
    refuse(path, (clef_text_options){.tokenizer = abc, .context = 2}, CLEF_FORMAT, "is not UTF-8 at byte 3");
    path = write_text("abcabdabc", 9);
    refuse(path, (clef_text_options){.tokenizer = abc, .context = 2}, CLEF_FORMAT, "has U+0064 at byte 5, which is no token");
    refuse(path, (clef_text_options){.context = 9, .share = 1}, CLEF_FORMAT, "has 9 tokens to train; a window has 10");
    refuse(path, (clef_text_options){.context = 1, .split = CLEF_TEST}, CLEF_FORMAT, "has 1 tokens to test; a window has 2");
    refuse(path, (clef_text_options){.context = 1, .split = CLEF_TEST, .share = 1}, CLEF_FORMAT, "has 0 tokens to test");
    refuse(path, (clef_text_options){.context = -1}, CLEF_INVALID, "context and windows are 0 or more");
    refuse(path, (clef_text_options){.share = 1.5}, CLEF_INVALID, "share is above 0 and at most 1");
    refuse(path, (clef_text_options){.share = NAN}, CLEF_INVALID, "share is above 0 and at most 1");
    refuse(path, (clef_text_options){.windows = 3, .consecutive = true}, CLEF_INVALID, "windows is of random ones");
    refuse(path, (clef_text_options){.split = (clef_split_name)7}, CLEF_INVALID, "there is no split 7");
    refuse(write_text("", 0), (clef_text_options){0}, CLEF_FORMAT, "has 0 tokens to train");
    refuse("/nowhere/text", (clef_text_options){0}, CLEF_IO, "/nowhere/text cannot be opened");
    refuse(folder, (clef_text_options){0}, CLEF_IO, "is not a regular file");
    refuse(NULL, (clef_text_options){0}, CLEF_INVALID, "the path is NULL");
    clef_context *other = open_seeded(1);
    refuse(write_text("abcabc", 6), (clef_text_options){.tokenizer = clef_tokenizer_bytes(other)}, CLEF_INVALID, "another context");
    clef_close(other);
    cr_expect(!clef_text(NULL, path, NULL));
}

/* ---- tokenizers of bytes and characters ---- */
Test(windows, characters_are_tokens_in_their_order) {
    static const char text[] = "zebra \xC3\xA9t\xC3\xA9 \xF0\x9F\x98\x80\n";
    static const char *const sorted[] = {"\n", " ", "a", "b", "e", "r", "t", "z", "\xC3\xA9", "\xF0\x9F\x98\x80"};
    clef_tokenizer *t = clef_tokenizer_characters(ctx, text, sizeof text - 1);
    cr_assert_eq(clef_tokenizer_size(t), 10);
    char out[64];
    for (int64_t i = 0; i < 10; i++) {
        cr_expect_eq(clef_tokenizer_decode(t, &i, 1, out, sizeof out), (int64_t)strlen(sorted[i]));
        cr_expect_str_eq(out, sorted[i]);
    }
    int64_t ids[32], n = clef_tokenizer_encode(t, text, sizeof text - 1, ids, 32);
    cr_assert_eq(n, 12);
    cr_expect_eq(clef_tokenizer_decode(t, ids, n, out, sizeof out), (int64_t)sizeof text - 1);
    cr_expect_str_eq(out, text);
    cr_expect(clef_tokenizer_encode(t, "zz", 2, NULL, 0) == 2 && clef_tokenizer_encode(t, NULL, 0, NULL, 0) == 0);
    ids[1] = -7;
    cr_expect(clef_tokenizer_encode(t, "zebra", 5, ids, 1) == 5 && ids[0] == 7 && ids[1] == -7, "not more than `most`");
    for (size_t size = 0; size < 6; size++) { /* like snprintf */
        char small[8] = "#######";
        cr_expect_eq(clef_tokenizer_decode(t, (int64_t[]){7, 4, 8}, 3, size ? small : NULL, size), 4);
        cr_expect(strncmp(small, "ze\xC3\xA9", size ? size - 1 : 0) == 0 && (size == 0 || small[size < 5 ? size - 1 : 4] == 0));
        cr_expect_eq(small[size], '#');
    }
}

Test(windows, characters_that_cannot_be_are_refused) {
    cr_expect(!clef_tokenizer_characters(ctx, "", 0));
    expect_error(ctx, CLEF_FORMAT, "the text is empty");
    cr_expect(!clef_tokenizer_characters(ctx, "ab\xFFz", 4));
    expect_error(ctx, CLEF_FORMAT, "is not UTF-8 at byte 2");
    cr_expect(!clef_tokenizer_characters(ctx, "a\0b", 3));
    expect_error(ctx, CLEF_FORMAT, "has a zero at byte 1");
    cr_expect(!clef_tokenizer_characters_of(ctx, "/nowhere"));
    expect_error(ctx, CLEF_IO, "cannot be opened");
    clef_tokenizer *t = clef_tokenizer_characters(ctx, "abc", 3);
    cr_expect_eq(clef_tokenizer_encode(t, "abxc", 4, NULL, 0), -1);
    expect_error(ctx, CLEF_FORMAT, "U+0078 at byte 2");
    cr_expect_eq(clef_tokenizer_decode(t, (int64_t[]){0, 3}, 2, NULL, 0), -1);
    expect_error(ctx, CLEF_INVALID, "3 is no token; they are below 3");
    cr_expect_eq(clef_tokenizer_decode(t, (int64_t[]){-1}, 1, NULL, 0), -1);
    expect_error(ctx, CLEF_INVALID, "-1 is no token");
    cr_expect_eq(clef_tokenizer_encode(t, NULL, 4, NULL, 0), -1);
    expect_error(ctx, CLEF_INVALID, "text or ids is NULL");
}

Test(windows, bytes_take_anything) {
    clef_tokenizer *t = clef_tokenizer_bytes(ctx);
    char text[256], back[257];
    int64_t ids[256];
    for (int i = 0; i < 256; i++) text[i] = (char)(i * 37);
    cr_assert(clef_tokenizer_size(t) == 256 && clef_tokenizer_encode(t, text, 256, ids, 256) == 256);
    for (int i = 0; i < 256; i++) cr_assert_eq(ids[i], (uint8_t)(i * 37));
    cr_assert_eq(clef_tokenizer_decode(t, ids, 256, back, sizeof back), 256);
    cr_expect_arr_eq(text, back, 256);
    clef_tokenizer_close(t);
    clef_tokenizer_close(NULL);
    cr_expect(clef_tokenizer_size(NULL) == 0 && clef_tokenizer_encode(NULL, "a", 1, NULL, 0) == -1 && !clef_tokenizer_bytes(NULL));
}
