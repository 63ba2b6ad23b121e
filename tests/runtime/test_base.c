/* Tables of clef/base.h, host memory, SHA-256. */
#include "runtime/arithmetic.h"
#include "runtime/sha256.h"
#include "runtime_support.h"
#include <criterion/criterion.h>

Test(base, statuses) {
    cr_assert_str_eq(clef_status_name(CLEF_OK), "CLEF_OK");
    cr_assert_str_eq(clef_status_name(CLEF_INTERRUPTED), "CLEF_INTERRUPTED");
    cr_assert_str_eq(clef_status_message(CLEF_SHAPE), "shapes do not fit");
    cr_assert_str_eq(clef_status_name((clef_status)999), "CLEF_UNKNOWN");
    cr_assert_str_eq(clef_status_message((clef_status)-3), "unknown status");
}

Test(base, dtypes) {
    static const size_t bytes[] = {4, 2, 2, 8, 4, 8, 1, 1};
    cr_assert_eq(CLEF_DTYPE_COUNT, 8);
    for (int i = 0; i < CLEF_DTYPE_COUNT; i++) cr_assert_eq(clef_dtype_size((clef_dtype)i), bytes[i]);
    cr_assert_str_eq(clef_dtype_name(CLEF_BF16), "bf16");
    cr_assert_eq(clef_dtype_size((clef_dtype)99), 0u);
    cr_assert_str_eq(clef_dtype_name((clef_dtype)-1), "unknown");
}

Test(base, shapes) {
    cr_assert_eq(clef_shape_numel(CLEF_SHAPE(8, 3, 32, 32)), 8 * 3 * 32 * 32);
    cr_assert_eq(clef_shape_numel(CLEF_SCALAR), 1);
    cr_assert_eq(clef_shape_numel(CLEF_SHAPE(5, 0, 7)), 0);
    cr_assert_eq(clef_shape_numel(CLEF_SHAPE(INT64_MAX, 2)), -1);
    cr_assert_eq(clef_shape_numel(CLEF_SHAPE(INT64_MAX, 0)), 0);
    cr_assert_eq(clef_shape_numel(CLEF_SHAPE(INT64_MAX, 2, 0)), -1, "its strides would overflow");
    cr_assert_eq(clef_shape_numel(CLEF_SHAPE(0, INT64_MAX, 2)), -1);
    cr_assert_eq(clef_shape_numel(CLEF_SHAPE(3, -1)), -1);
    cr_assert_eq(clef_shape_numel((clef_shape){9, {1}}), -1);
    cr_assert(clef_shape_equal(CLEF_SHAPE(2, 3), CLEF_SHAPE(2, 3)));
    cr_assert_not(clef_shape_equal(CLEF_SHAPE(2, 3), CLEF_SHAPE(2, 3, 1)));
    cr_assert_not(clef_shape_equal(CLEF_SHAPE(2, 3), CLEF_SHAPE(3, 2)));
}

/* What leaves 64 bits stays at their end. */
Test(base, arithmetic) {
    cr_assert_eq(clef__plus(INT64_MAX - 1, 1), INT64_MAX);
    cr_assert_eq(clef__plus(INT64_MAX, 1), INT64_MAX);
    cr_assert_eq(clef__plus(INT64_MIN, -1), INT64_MIN);
    cr_assert_eq(clef__plus(INT64_MIN, INT64_MAX), -1);
    cr_assert_eq(clef__times(-3, 7), -21);
    cr_assert_eq(clef__times(INT64_MAX, 2), INT64_MAX);
    cr_assert_eq(clef__times(INT64_MAX, -2), INT64_MIN);
    cr_assert_eq(clef__times(INT64_MIN, -1), INT64_MAX);
    cr_assert_eq(clef__times(0, INT64_MIN), 0);
    cr_assert_eq(clef__ceil_div(INT64_MAX, 2), INT64_MAX / 2 + 1);
    cr_assert_eq(clef__ceil_div(6, 3), 2);
    cr_assert_eq(clef__ceil_div(-3, 2), -1);
}

Test(base, shape_text) {
    char text[64], small[6];
    cr_assert_str_eq(clef_shape_format(CLEF_SHAPE(8, 3, 32, 32), text, sizeof text), "[8,3,32,32]");
    cr_assert_str_eq(clef_shape_format(CLEF_SCALAR, text, sizeof text), "[]");
    cr_assert_str_eq(clef_shape_format(CLEF_SHAPE(800, 300), small, sizeof small), "[800,");
    cr_assert_str_eq(clef_shape_format(CLEF_SHAPE(1), small, 1), "");
}

Test(base, version) {
    char text[32];
    snprintf(text, sizeof text, "%d.%d.%d", CLEF_VERSION_MAJOR, CLEF_VERSION_MINOR, CLEF_VERSION_PATCH);
    cr_assert_str_eq(clef_version(), text);
}

static void digest_of(const char *text, int times, char hex[65]) {
    clef__sha256 s;
    uint8_t digest[32];
    clef__sha256_begin(&s);
    for (int i = 0; i < times; i++) clef__sha256_add(&s, text, strlen(text));
    clef__sha256_end(&s, digest);
    for (int i = 0; i < 32; i++) snprintf(hex + 2 * i, 3, "%02x", digest[i]);
}

/* The examples of FIPS 180. */
Test(sha256, known_digests) {
    char hex[65];
    digest_of("abc", 1, hex);
    cr_assert_str_eq(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    digest_of("", 1, hex);
    cr_assert_str_eq(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    digest_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1, hex);
    cr_assert_str_eq(hex, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    digest_of("a", 1000000, hex);
    cr_assert_str_eq(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

/* Every length around the block size, in one piece and in two. */
Test(sha256, pieces) {
    unsigned char data[200];
    for (int i = 0; i < 200; i++) data[i] = (unsigned char)(7 * i + 3);
    for (size_t n = 0; n <= sizeof data; n++)
        for (size_t cut = 0; cut <= n; cut += 13) {
            clef__sha256 a, b;
            uint8_t x[32], y[32];
            clef__sha256_begin(&a);
            clef__sha256_add(&a, data, n);
            clef__sha256_end(&a, x);
            clef__sha256_begin(&b);
            clef__sha256_add(&b, data, cut);
            clef__sha256_add(&b, data + cut, n - cut);
            clef__sha256_end(&b, y);
            cr_assert_arr_eq(x, y, 32, "%zu bytes cut at %zu", n, cut);
        }
}

/* Fields must not run into each other: ("ab","c") is not ("a","bc"). */
Test(sha256, fields_are_apart) {
    clef_device_info a = {.name = "ab", .vendor = "c"}, b = {.name = "a", .vendor = "bc"};
    uint8_t x[32], y[32];
    clef__cache_key(&a, "", "", x);
    clef__cache_key(&b, "", "", y);
    cr_assert_neq(memcmp(x, y, 32), 0);
}

/* Every fact of the key changes it. */
Test(sha256, every_field_counts) {
    static const clef_device_info plain = {
        .name = "n", .vendor = "v", .driver = "d", .version = "o", .platform = "p", .platform_version = "q"};
    clef_device_info other[6] = {plain, plain, plain, plain, plain, plain};
    uint8_t key[9][32];
    other[0].name = other[1].vendor = other[2].driver = other[3].version = other[4].platform = other[5].platform_version = "x";
    for (int i = 0; i < 6; i++) clef__cache_key(&other[i], "s", "o", key[i]);
    clef__cache_key(&plain, "s", "o", key[6]);
    clef__cache_key(&plain, "S", "o", key[7]);
    clef__cache_key(&plain, "s", "O", key[8]);
    for (int i = 0; i < 9; i++)
        for (int j = 0; j < i; j++) cr_assert_neq(memcmp(key[i], key[j], 32), 0, "keys %d and %d", i, j);
}

/* ---- host memory ---- */
typedef struct count {
    int live, taken;
} count;

static void *take(void *user, size_t bytes) {
    ((count *)user)->live++;
    ((count *)user)->taken++;
    return malloc(bytes);
}

static void *retake(void *user, void *old, size_t bytes) {
    ((count *)user)->taken++;
    return realloc(old, bytes);
}

static void drop(void *user, void *old) {
    ((count *)user)->live--;
    free(old);
}

Test(alloc, hooks) {
    count c = {0, 0};
    clef_set_allocator(&(clef_allocator){take, retake, drop, &c});
    char *text = clef__asprintf("%d-%s", 7, "x"), *copy = clef__strdup(text);
    cr_assert_str_eq(copy, "7-x");
    unsigned char *zeros = clef__calloc(100, 3);
    for (int i = 0; i < 300; i++) cr_assert_eq(zeros[i], 0);
    zeros = clef__realloc(zeros, 1000);
    cr_assert_eq(c.live, 3);
    clef__free(text);
    clef__free(copy);
    clef__free(zeros);
    clef__free(NULL);
    cr_assert_eq(c.live, 0);
    cr_assert_eq(c.taken, 4);
    clef_set_allocator(NULL);
    clef__free(clef__alloc(10));
    cr_assert_eq(c.taken, 4);
}

Test(alloc, overflow_is_refused) {
    cr_assert_null(clef__calloc(SIZE_MAX / 2, 3));
    void *empty = clef__alloc(0);
    cr_assert_not_null(empty);
    clef__free(empty);
}
