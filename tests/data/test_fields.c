/* Datasets of fields: any dtype and shape, several inputs and targets, from memory and from a callback. */
#include "data_context.h"

TestSuite(fields, .init = open_context, .fini = close_context);

enum { ITEMS = 23, WORDS = 5, FIELDS = 7, SIDE = 4 };

/* Every dtype that is not a float format of its own, and an image behind a sequence; what item i holds is a formula. */
typedef struct item {
    int64_t words[WORDS];
    float image[SIDE * SIDE], box[2][2];
    int32_t count;
    uint8_t mask[3];
    bool flags[2];
    int64_t tags[2];
} item;

static item item_at(int64_t i) {
    item it = {.count = (int32_t)(i * 3 - 7)};
    for (int k = 0; k < WORDS; k++) it.words[k] = (i << 40) + k * 11 - i;
    for (int k = 0; k < SIDE * SIDE; k++) it.image[k] = (float)((i * 5 + k * 7) % 16) / 16;
    for (int k = 0; k < 4; k++) it.box[k / 2][k % 2] = (float)i / (float)(k + 3);
    for (int k = 0; k < 3; k++) it.mask[k] = (uint8_t)(i * 29 + k * 91);
    for (int k = 0; k < 2; k++) it.flags[k] = (i >> k) % 2, it.tags[k] = i % 4 + k;
    return it;
}

static void copy_item(int64_t i, void *const *out) {
    item it = item_at(i);
    memcpy(out[0], it.words, sizeof it.words);
    memcpy(out[1], it.image, sizeof it.image);
    memcpy(out[2], &it.count, sizeof it.count);
    memcpy(out[3], it.tags, sizeof it.tags);
    memcpy(out[4], it.mask, sizeof it.mask);
    memcpy(out[5], it.flags, sizeof it.flags);
    memcpy(out[6], it.box, sizeof it.box);
}

static const size_t bytes_of[FIELDS] = {WORDS * 8, SIDE *SIDE * 4, 4, 16, 3, 2, 16};
static clef_field field[FIELDS] = {{.name = "words", .dtype = CLEF_I64},
                                   {.name = "image", .dtype = CLEF_F32},
                                   {.name = "count", .dtype = CLEF_I32, .target = true, .classes = 100},
                                   {.name = "tags", .dtype = CLEF_I64, .target = true},
                                   {.name = "mask", .dtype = CLEF_U8},
                                   {.dtype = CLEF_BOOL},
                                   {.name = "box", .dtype = CLEF_F32, .target = true}};

static bool fetch_item(void *user, int64_t i, void *const *out) {
    copy_item(i, out);
    return !user || i != *(const int64_t *)user;
}

static void set_shapes(void) {
    field[0].shape = CLEF_SHAPE(WORDS), field[1].shape = CLEF_SHAPE(1, SIDE, SIDE), field[3].shape = CLEF_SHAPE(2);
    field[4].shape = CLEF_SHAPE(3, 1), field[5].shape = CLEF_SHAPE(2), field[6].shape = CLEF_SHAPE(2, 2);
}

/* The same items from a callback, or from arrays. */
static clef_dataset *items(bool callback) {
    set_shapes();
    if (callback) return clef_dataset_fields_callback(ctx, field, FIELDS, ITEMS, fetch_item, NULL);
    clef_field own[FIELDS];
    char *memory[FIELDS];
    for (int f = 0; f < FIELDS; f++) own[f] = field[f], own[f].data = memory[f] = malloc(ITEMS * bytes_of[f]);
    for (int64_t i = 0; i < ITEMS; i++) {
        void *out[FIELDS];
        for (int f = 0; f < FIELDS; f++) out[f] = memory[f] + (size_t)i * bytes_of[f];
        copy_item(i, out);
    }
    clef_dataset *data = clef_dataset_fields(ctx, own, FIELDS, ITEMS);
    for (int f = 0; f < FIELDS; f++) memset(memory[f], 0xee, ITEMS * bytes_of[f]), free(memory[f]); /* copied */
    cr_assert(data, "%s", clef_error(ctx));
    return data;
}

/* Where field f is in a batch: inputs 0, 1, 4, 5, targets 2, 3, 6. */
static clef_tensor *tensor_of(const clef_batch *b, int f) {
    static const int place[FIELDS] = {0, 1, 0, 1, 2, 3, 2};
    cr_assert(b->n_inputs == 4 && b->n_targets == 3);
    return field[f].target ? b->targets[place[f]] : b->inputs[place[f]];
}

/* Items `first` … of the order are what the batch holds; the image is (x - mean)/std. */
static void expect_batch(const clef_batch *b, const int64_t *order, float mean, float std) {
    for (int f = 0; f < FIELDS; f++) {
        clef_tensor *t = tensor_of(b, f);
        clef_shape shape = clef_tensor_shape(t);
        cr_assert(shape.rank == field[f].shape.rank + 1 && shape.dim[0] == b->size && clef_tensor_dtype(t) == field[f].dtype);
        char got[ITEMS * 64], want[64];
        cr_assert_eq(clef_read(t, got, (size_t)b->size * bytes_of[f]), CLEF_OK, "%s", clef_error(ctx));
        for (int64_t k = 0; k < b->size; k++) {
            void *out[FIELDS];
            char other[FIELDS][64];
            for (int g = 0; g < FIELDS; g++) out[g] = g == f ? want : other[g];
            copy_item(order[k], out);
            if (f == 1)
                for (int p = 0; p < SIDE * SIDE; p++) ((float *)(void *)want)[p] = (((float *)(void *)want)[p] - mean) * (1 / std);
            cr_assert_arr_eq(got + (size_t)k * bytes_of[f], want, bytes_of[f], "field %d of item %d", f, (int)order[k]);
        }
    }
    cr_expect(b->x == b->inputs[0] && b->y == b->targets[0]);
}

Test(fields, come_as_they_are_for_any_number_of_threads) {
    static const float mean = 0.25f, std = 0.5f;
    for (int callback = 0; callback < 2; callback++)
        for (int workers = 1; workers <= 4; workers += 3) {
            clef_loader_options o = {
                .batch = 5, .shuffle = true, .seed = 9, .workers = workers, .prefetch = 3, .mean = &mean, .std = &std};
            clef_loader *loader = clef_loader_open(items(callback), &o);
            cr_assert_eq(clef_loader_batches(loader), 5);
            for (uint32_t epoch = 0; epoch < 2; epoch++) {
                int64_t order[ITEMS], at = 0;
                clef__order_shuffled(order, ITEMS, 9, epoch);
                for (clef_batch b; clef_next(loader, &b); at += b.size) expect_batch(&b, order + at, mean, std);
                cr_assert_eq(at, ITEMS, "%s", clef_error(ctx));
            }
            cr_assert_eq(clef_loader_set(loader, (clef_loader_state){.epoch = 1, .batch = 3, .seed = 9}), CLEF_OK);
            int64_t order[ITEMS];
            clef__order_shuffled(order, ITEMS, 9, 1);
            clef_batch b;
            cr_assert(clef_next(loader, &b));
            expect_batch(&b, order + 15, mean, std);
            clef_loader_close(loader);
        }
}

/* The image is changed, wherever it is among the fields, as an x alone is; the rest stays. */
Test(fields, only_the_image_is_augmented) {
    clef_loader_options o = {.batch = ITEMS, .seed = 4, .augment = {.shift = 2, .flip = true}};
    static float image[ITEMS * SIDE * SIDE], got[2][ITEMS * SIDE * SIDE];
    for (int64_t i = 0; i < ITEMS; i++) memcpy(image + i * SIDE * SIDE, item_at(i).image, sizeof item_at(i).image);
    clef_batch a, b;
    cr_assert(clef_next(clef_loader_open(items(false), &o), &a), "%s", clef_error(ctx));
    cr_assert_eq(clef_read(a.inputs[1], got[0], sizeof got[0]), CLEF_OK);
    int64_t words[ITEMS * WORDS];
    cr_assert_eq(clef_read(a.x, words, sizeof words), CLEF_OK);
    for (int i = 0; i < ITEMS; i++) cr_assert_arr_eq(words + i * WORDS, item_at(i).words, sizeof item_at(i).words);
    clef_dataset *alone = clef_dataset_arrays(ctx, image, CLEF_SHAPE(1, SIDE, SIDE), NULL, ITEMS);
    cr_assert(clef_next(clef_loader_open(alone, &o), &b));
    cr_assert_eq(clef_read(b.x, got[1], sizeof got[1]), CLEF_OK);
    cr_assert_arr_eq(got[0], got[1], sizeof got[0]);
    cr_assert(memcmp(got[0], image, sizeof image) != 0);
    cr_assert(b.n_inputs == 1 && b.n_targets == 0 && b.inputs[0] == b.x && !b.y);
}

Test(fields, can_be_asked_for) {
    clef_dataset *data = items(true), *some = clef_dataset_take(data, 3);
    cr_expect_eq(clef_dataset_field_count(some), FIELDS);
    clef_field f = clef_dataset_field(some, 2);
    cr_expect(f.dtype == CLEF_I32 && f.target && f.shape.rank == 0 && f.classes == 100 && !f.data);
    cr_expect_str_eq(f.name, "count");
    cr_expect_str_eq(clef_dataset_field(data, 5).name, "field 5");
    cr_expect_null(clef_dataset_field(data, FIELDS).name);
    cr_expect(clef_dataset_classes(data) == 100 && clef_shape_equal(clef_dataset_item(data), CLEF_SHAPE(WORDS)));
    char got[FIELDS][64], want[FIELDS][64];
    void *out[FIELDS], *wanted[FIELDS];
    for (int g = 0; g < FIELDS; g++) out[g] = got[g], wanted[g] = want[g];
    cr_assert_eq(clef_dataset_get_fields(some, 2, out), CLEF_OK);
    copy_item(2, wanted);
    for (int g = 0; g < FIELDS; g++) cr_expect_arr_eq(got[g], want[g], bytes_of[g]);
    cr_expect_eq(clef_dataset_get_fields(some, 3, out), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "item 3 of 3");
    out[4] = NULL;
    cr_expect_eq(clef_dataset_get_fields(some, 2, out), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "into NULL");
    float x[64];
    cr_expect_eq(clef_dataset_get(data, 0, x, NULL), CLEF_DTYPE);
    expect_error(ctx, CLEF_DTYPE, "clef_dataset_get_fields");
}

Test(fields, classes_are_counted_or_checked) {
    static const uint8_t label[4] = {0, 3, 1, 2};
    static const float x[4] = {0};
    clef_field two[2] = {{.shape = CLEF_SCALAR, .data = x}, {.dtype = CLEF_U8, .data = label, .target = true}};
    cr_expect_eq(clef_dataset_classes(clef_dataset_fields(ctx, two, 2, 4)), 4);
    two[1].classes = 10;
    cr_expect_eq(clef_dataset_classes(clef_dataset_fields(ctx, two, 2, 4)), 10);
    two[1].classes = 3;
    cr_expect_null(clef_dataset_fields(ctx, two, 2, 4));
    expect_error(ctx, CLEF_INVALID, "dataset_fields: field 1 () has a class that is not below its classes");
    int64_t bad = 7;
    set_shapes();
    clef_loader *loader = clef_loader_open(clef_dataset_fields_callback(ctx, field, FIELDS, ITEMS, fetch_item, &bad),
                                           &(clef_loader_options){.batch = 4});
    clef_batch b;
    cr_expect(clef_next(loader, &b) && !clef_next(loader, &b));
    expect_error(ctx, CLEF_IO, "item 7 of batch 1 could not be fetched");
    field[2].classes = 11; /* of i·3 - 7, that of item 6 is the first that is none */
    loader = clef_loader_open(clef_dataset_fields_callback(ctx, field, FIELDS, ITEMS, fetch_item, NULL),
                              &(clef_loader_options){.batch = 1});
    int n = 0;
    while (clef_next(loader, &b)) n++;
    cr_expect_eq(n, 6);
    expect_error(ctx, CLEF_IO, "a class of 11 or more");
    field[2].classes = 100;
}

Test(fields, refusals) {
    static const int64_t words[4] = {0};
    clef_field input = {.name = "words", .shape = CLEF_SHAPE(2), .dtype = CLEF_I64, .data = words}, f = input;
    cr_expect_null(clef_dataset_fields(ctx, &f, 0, 2));
    expect_error(ctx, CLEF_INVALID, "0 fields of 2 items; give 1 to 64 fields");
    f.target = true;
    cr_expect_null(clef_dataset_fields(ctx, &f, 1, 2));
    expect_error(ctx, CLEF_INVALID, "all 1 fields are targets; give an input");
    f = input, f.data = NULL;
    cr_expect_null(clef_dataset_fields(ctx, &f, 1, 2));
    expect_error(ctx, CLEF_INVALID, "field 0 (words) has no data");
    f = input, f.dtype = CLEF_DTYPE_COUNT;
    cr_expect_null(clef_dataset_fields(ctx, &f, 1, 2));
    expect_error(ctx, CLEF_INVALID, "has no known dtype");
    f = input, f.classes = 3;
    cr_expect_null(clef_dataset_fields(ctx, &f, 1, 2));
    expect_error(ctx, CLEF_INVALID, "has classes, but is no target in i64");
    f = input, f.shape = CLEF_SHAPE(2, 0);
    cr_expect_null(clef_dataset_fields(ctx, &f, 1, 2));
    expect_error(ctx, CLEF_INVALID, "shape without elements");
    cr_expect_null(clef_dataset_fields_callback(ctx, &input, 1, 2, NULL, NULL));
    expect_error(ctx, CLEF_INVALID, "fetch is NULL");
    clef_dataset *data = clef_dataset_fields(ctx, &input, 1, 2);
    cr_expect_null(clef_loader_open(data, &(clef_loader_options){.mean = (float[]){0}}));
    expect_error(ctx, CLEF_INVALID, "mean and std need an f32 input");
    cr_expect_null(clef_loader_open(data, &(clef_loader_options){.augment = {.flip = true}}));
    expect_error(ctx, CLEF_INVALID, "augmentation needs items of shape");
    cr_expect_eq(clef_loader_batches(clef_loader_open(clef_dataset_fields(ctx, &input, 1, 0), NULL)), 0);
}
