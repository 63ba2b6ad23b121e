/* Datasets: the embedded digits, files of IDX and CIFAR (made ones, and the real ones where CLEF_DATA has them),
   arrays, callbacks, views; and what goes wrong with each. */
#include "data_context.h"
#include <math.h>

TestSuite(datasets, .init = open_context, .fini = close_context);

/* ---- digits ---- */
typedef struct digest {
    uint32_t fnv; /* FNV-1a over class and pixels of every item */
    long sum;
    int count[10];
} digest;

static digest digest_of(clef_dataset *data) {
    digest d = {.fnv = 2166136261u};
    for (int64_t i = 0; i < clef_dataset_size(data); i++) {
        float x[64];
        int64_t y;
        cr_assert_eq(clef_dataset_get(data, i, x, &y), CLEF_OK);
        d.count[y]++;
        d.fnv = (d.fnv ^ (uint32_t)y) * 16777619u;
        for (int p = 0; p < 64; p++) {
            d.sum += lrintf(x[p] * 16);
            d.fnv = (d.fnv ^ (uint32_t)lrintf(x[p] * 16)) * 16777619u;
        }
    }
    return d;
}

/* Sums and counts worked out apart from this code from digits.csv. */
Test(datasets, digits) {
    static const int total[10] = {178, 182, 177, 183, 181, 182, 181, 179, 174, 180};
    static const int tests[10] = {36, 37, 35, 37, 36, 36, 36, 36, 35, 36};
    clef_dataset *train = clef_digits(ctx, CLEF_TRAIN), *test = clef_digits(ctx, CLEF_TEST);
    cr_assert_eq(clef_dataset_size(train), 1437);
    cr_assert_eq(clef_dataset_size(test), 360);
    cr_assert_eq(clef_dataset_classes(train), 10);
    cr_assert(clef_shape_equal(clef_dataset_item(train), CLEF_SHAPE(1, 8, 8)));
    cr_assert_str_eq(clef_dataset_class_name(train, 7), "7");
    cr_assert_str_eq(clef_dataset_class_name(train, 10), "");
    digest a = digest_of(train), b = digest_of(test);
    for (int c = 0; c < 10; c++) {
        cr_assert_eq(b.count[c], tests[c]);
        cr_assert_eq(a.count[c] + b.count[c], total[c]);
    }
    cr_assert_eq(a.sum, 449227);
    cr_assert_eq(b.sum, 112491);
    cr_assert_eq(a.fnv, 0xb5b49212u);
    cr_assert_eq(b.fnv, 0x028fcc66u);
}

Test(datasets, digits_splits_are_disjoint) {
    clef_dataset *train = clef_digits(ctx, CLEF_TRAIN), *test = clef_digits(ctx, CLEF_TEST);
    static float a[1437][64], b[64];
    for (int i = 0; i < 1437; i++) clef_dataset_get(train, i, a[i], NULL);
    for (int i = 0; i < 360; i++) {
        clef_dataset_get(test, i, b, NULL);
        for (int j = 0; j < 1437; j++) cr_assert_neq(memcmp(a[j], b, sizeof b), 0, "test %d is train %d", i, j);
    }
}

/* ---- real files ---- */
static bool have_data(const char *file) {
#ifndef CLEF_HAVE_ZLIB
    cr_skip_test("without zlib, gzip files like %s cannot be read", file);
#endif
    const char *home = getenv("CLEF_DATA");
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", home ? home : "", file);
    if (home && access(path, R_OK) == 0) return true;
    cr_skip_test("CLEF_DATA has no %s", file);
    return false;
}

static double pixel_sum(clef_dataset *data) {
    int64_t n = clef_shape_numel(clef_dataset_item(data));
    float *x = malloc((size_t)n * sizeof *x);
    double sum = 0;
    for (int64_t i = 0; i < clef_dataset_size(data); i++) {
        clef_dataset_get(data, i, x, NULL);
        for (int64_t p = 0; p < n; p++) sum += lrintf(x[p] * 255);
    }
    free(x);
    return sum;
}

static void expect_labels(clef_dataset *data, const int *labels, int n) {
    float *x = malloc((size_t)clef_shape_numel(clef_dataset_item(data)) * sizeof *x);
    for (int i = 0; i < n; i++) {
        int64_t y;
        cr_assert_eq(clef_dataset_get(data, i, x, &y), CLEF_OK);
        cr_assert_eq(y, labels[i], "label %d is %lld", i, (long long)y);
    }
    free(x);
}

Test(datasets, mnist) {
    if (!have_data("mnist")) return;
    clef_dataset *train = clef_mnist(ctx, NULL, CLEF_TRAIN), *test = clef_mnist(ctx, NULL, CLEF_TEST);
    cr_assert(train && test, "%s", clef_error(ctx));
    cr_assert_eq(clef_dataset_size(train), 60000);
    cr_assert_eq(clef_dataset_size(test), 10000);
    cr_assert_eq(clef_dataset_classes(test), 10);
    cr_assert(clef_shape_equal(clef_dataset_item(test), CLEF_SHAPE(1, 28, 28)));
    expect_labels(train, (int[]){5, 0, 4, 1, 9, 2, 1, 3, 1, 4}, 10);
    expect_labels(test, (int[]){7, 2, 1, 0, 4, 1, 4, 9, 5, 9}, 10);
    cr_assert_eq(pixel_sum(clef_dataset_take(train, 1)), 27523);
    cr_assert_eq(pixel_sum(test), 264923200);
}

Test(datasets, cifar10) {
    if (!have_data("cifar10/test_batch.bin.gz")) return;
    clef_dataset *test = clef_cifar10(ctx, NULL, CLEF_TEST);
    cr_assert_not_null(test, "%s", clef_error(ctx));
    cr_assert(clef_shape_equal(clef_dataset_item(test), CLEF_SHAPE(3, 32, 32)));
    cr_assert_eq(clef_dataset_size(test) % 1000, 0);
    cr_assert_str_eq(clef_dataset_class_name(test, 3), "cat");
    expect_labels(test, (int[]){3, 8, 8, 0, 6, 6, 1, 6, 3, 1}, 10);
    cr_assert_eq(pixel_sum(clef_dataset_take(test, 1)), 332962);
}

/* ---- made files ---- */
static const uint32_t images[3] = {4, 3, 5}, labels[1] = {4};

static char *mnist_folder(char dir[256], bool gzip) {
    new_folder(dir);
    clef__blob x = idx_file(3, images, 3, 256), y = idx_file(1, labels, 2, 10);
    if (gzip) {
        write_and_free(dir, "train-images-idx3-ubyte.gz", gzip_stored(&x));
        write_and_free(dir, "train-labels.idx1-ubyte.gz", gzip_stored(&y));
        clef__blob_free(&x);
        clef__blob_free(&y);
    } else {
        write_and_free(dir, "train-images-idx3-ubyte", x);
        write_and_free(dir, "train-labels-idx1-ubyte", y);
    }
    return dir;
}

static void remove_folder(const char *dir) {
    static const char *const names[] = {"train-images-idx3-ubyte",
                                        "train-labels-idx1-ubyte",
                                        "train-images-idx3-ubyte.gz",
                                        "train-labels.idx1-ubyte.gz",
                                        "data_batch_1.bin",
                                        "data_batch_3.bin",
                                        "data_batch_3.bin.gz",
                                        "test_batch.bin",
                                        "a",
                                        "b"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) remove_file(dir, names[i]);
    rmdir(dir);
}

Test(datasets, idx_files_plain_and_gzip) {
    for (int gzip = 0; gzip < 2; gzip++) {
        char dir[256];
        clef_dataset *data = clef_mnist(ctx, mnist_folder(dir, gzip), CLEF_TRAIN);
        remove_folder(dir);
#ifndef CLEF_HAVE_ZLIB
        if (gzip) {
            expect_error(ctx, CLEF_UNSUPPORTED, "gunzip");
            return;
        }
#endif
        cr_assert_not_null(data, "%s", clef_error(ctx));
        cr_assert_eq(clef_dataset_size(data), 4);
        cr_assert_eq(clef_dataset_classes(data), 10);
        cr_assert(clef_shape_equal(clef_dataset_item(data), CLEF_SHAPE(1, 3, 5)));
        float x[15];
        int64_t y;
        cr_assert_eq(clef_dataset_get(data, 2, x, &y), CLEF_OK);
        cr_assert_eq(y, 6);
        for (int p = 0; p < 15; p++) cr_assert_float_eq(x[p], ((30 + p) * 7 + 3) % 256 / 255.0, 1e-6);
    }
}

Test(datasets, idx_files_that_do_not_fit) {
    char dir[256], a[300], b[300];
    snprintf(a, sizeof a, "%s/a", new_folder(dir));
    snprintf(b, sizeof b, "%s/b", dir);
    write_and_free(dir, "a", idx_file(3, images, 0, 256));
    write_and_free(dir, "b", idx_file(1, (uint32_t[]){5}, 0, 10));
    cr_assert_null(clef_idx(ctx, a, b));
    expect_error(ctx, CLEF_FORMAT, "4 images but 5 labels");
    cr_assert_null(clef_idx(ctx, b, a));
    expect_error(ctx, CLEF_FORMAT, "swapped");
    cr_assert_null(clef_idx(ctx, a, "/no/such/file"));
    expect_error(ctx, CLEF_IO, "/no/such/file");
    cr_assert_null(clef_idx(ctx, a, NULL));
    expect_error(ctx, CLEF_INVALID, "labels is NULL");
    write_and_free(dir, "a", blob_of("not an idx file", 15));
    cr_assert_null(clef_idx(ctx, a, b));
    expect_error(ctx, CLEF_FORMAT, "not an IDX file");
    remove_folder(dir);
}

Test(datasets, missing_folders) {
    cr_assert_null(clef_mnist(ctx, "/no/such/folder", CLEF_TEST));
    expect_error(ctx, CLEF_IO, "t10k-images-idx3-ubyte");
    cr_assert_null(clef_cifar10(ctx, "/no/such/folder", CLEF_TEST));
    expect_error(ctx, CLEF_IO, "test_batch.bin");
    unsetenv("CLEF_DATA");
    cr_assert_null(clef_mnist(ctx, NULL, CLEF_TRAIN));
    expect_error(ctx, CLEF_INVALID, "CLEF_DATA");
}

Test(datasets, cifar_files) {
    char dir[256];
    new_folder(dir);
    write_and_free(dir, "data_batch_1.bin", cifar_file(3, 0));
    write_and_free(dir, "data_batch_3.bin", cifar_file(2, 5));
    write_and_free(dir, "test_batch.bin", blob_of("short", 5));
    clef_dataset *data = clef_cifar10(ctx, dir, CLEF_TRAIN);
    cr_assert_not_null(data, "%s", clef_error(ctx));
    cr_assert_eq(clef_dataset_size(data), 5);
    static const int classes[5] = {0, 1, 2, 5, 6}, number[5] = {0, 1, 2, 0, 1};
    for (int i = 0; i < 5; i++) {
        static float x[3072];
        int64_t y;
        cr_assert_eq(clef_dataset_get(data, i, x, &y), CLEF_OK);
        cr_assert_eq(y, classes[i]);
        for (int p = 0; p < 3072; p++) cr_assert_float_eq(x[p], cifar_pixel((size_t)number[i], (size_t)p) / 255.0, 1e-6);
    }
    cr_assert_null(clef_cifar10(ctx, dir, CLEF_TEST));
    expect_error(ctx, CLEF_FORMAT, "5 bytes");
    remove_folder(dir);
}

/* ---- memory and callbacks ---- */
Test(datasets, arrays_are_copied) {
    float x[6] = {1, 2, 3, 4, 5, 6}, got[2];
    int64_t y[3] = {2, -100, 4}, class_number;
    clef_dataset *data = clef_dataset_arrays(ctx, x, CLEF_SHAPE(2), y, 3);
    memset(x, 0, sizeof x);
    memset(y, 0, sizeof y);
    cr_assert_eq(clef_dataset_classes(data), 5);
    cr_assert_eq(clef_dataset_get(data, 1, got, &class_number), CLEF_OK);
    cr_assert(got[0] == 3 && got[1] == 4 && class_number == -100);
    cr_assert_eq(clef_dataset_classes(clef_dataset_arrays(ctx, x, CLEF_SHAPE(2), NULL, 3)), 0);
    cr_assert_eq(clef_dataset_size(clef_dataset_arrays(ctx, NULL, CLEF_SHAPE(2), NULL, 0)), 0);
    cr_assert_eq(clef_error_status(ctx), CLEF_OK);
}

Test(datasets, wrong_arguments_are_told) {
    float x[4] = {0};
    cr_assert_null(clef_dataset_arrays(ctx, NULL, CLEF_SHAPE(2), NULL, 3));
    expect_error(ctx, CLEF_INVALID, "x is NULL");
    cr_assert_null(clef_dataset_arrays(ctx, x, CLEF_SHAPE(2, 0), NULL, 2));
    expect_error(ctx, CLEF_SHAPE, "[2,0]");
    cr_assert_null(clef_dataset_arrays(ctx, x, CLEF_SHAPE(1, 1, 1, 1, 1, 1, 1, 1), NULL, 2));
    expect_error(ctx, CLEF_SHAPE, "rank > 7");
    cr_assert_null(clef_dataset_arrays(ctx, x, CLEF_SHAPE(2), NULL, -1));
    expect_error(ctx, CLEF_SHAPE, "-1 items");
    cr_assert_null(clef_dataset_arrays(ctx, x, CLEF_SHAPE(1ll << 40, 1ll << 40), NULL, 1));
    expect_error(ctx, CLEF_SHAPE, "items need");
    cr_assert_null(clef_dataset_pairs(ctx, x, CLEF_SHAPE(2), NULL, CLEF_SHAPE(1), 2));
    expect_error(ctx, CLEF_INVALID, "targets");
    cr_assert_null(clef_dataset_callback(ctx, CLEF_SHAPE(2), 3, 2, NULL, NULL));
    expect_error(ctx, CLEF_INVALID, "fetch is NULL");
}

static bool third_fails(void *user, int64_t i, float *x, int64_t *y) {
    *x = (float)i;
    *y = i * *(int64_t *)user;
    return i != 3;
}

Test(datasets, callbacks_may_fail) {
    int64_t factor = 1, y;
    float x;
    clef_dataset *data = clef_dataset_callback(ctx, CLEF_SCALAR, 8, 5, third_fails, &factor);
    cr_assert_eq(clef_dataset_get(data, 2, &x, &y), CLEF_OK);
    cr_assert(x == 2 && y == 2);
    cr_assert_eq(clef_dataset_get(data, 3, &x, &y), CLEF_IO);
    expect_error(ctx, CLEF_IO, "item 3");
    cr_assert_eq(clef_dataset_get(data, 5, &x, &y), CLEF_IO); /* class 5 of 5 */
    expect_error(ctx, CLEF_IO, "item 5");
    cr_assert_eq(clef_dataset_get(data, 8, &x, &y), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "item 8 of 8");
    cr_assert_eq(clef_dataset_get(data, -1, &x, &y), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "item -1");
}

Test(datasets, views) {
    clef_dataset *data = clef_digits(ctx, CLEF_TEST), *some = clef_dataset_take(data, 7);
    cr_assert_eq(clef_dataset_size(some), 7);
    cr_assert_eq(clef_dataset_size(clef_dataset_take(some, 3)), 3);
    cr_assert_eq(clef_dataset_size(clef_dataset_take(data, 1000)), 360);
    cr_assert_eq(clef_dataset_size(data), 360);
    cr_assert_str_eq(clef_dataset_class_name(some, 3), "3");
    cr_assert_null(clef_dataset_take(data, -1));
    expect_error(ctx, CLEF_INVALID, "-1");
}

Test(datasets, null_goes_through) {
    cr_assert_null(clef_mnist(NULL, NULL, CLEF_TRAIN));
    cr_assert_null(clef_digits(NULL, CLEF_TRAIN));
    cr_assert_null(clef_dataset_take(NULL, 3));
    cr_assert_null(clef_loader_open(NULL, NULL));
    cr_assert_eq(clef_dataset_size(NULL), 0);
    clef_batch batch;
    cr_assert_not(clef_next(NULL, &batch));
    clef_loader_close(NULL);
}
