/* The parsers on bytes, without a device: what they accept, and that every lie is told as an error. */
#include "data_support.h"
#include <criterion/criterion.h>
#include <sys/stat.h>

static bool idx_ok(clef__blob blob, clef__idx_file *idx, clef__why *why) {
    bool ok = clef__idx_unpack(&blob, idx, why);
    clef__blob_free(&blob);
    return ok;
}

static bool cifar_ok(clef__blob blob, int64_t *records, clef__why *why) {
    bool ok = clef__cifar_unpack(&blob, records, why);
    clef__blob_free(&blob);
    return ok;
}

Test(idx, reads_one_to_four_dimensions) {
    const uint32_t dim[4] = {3, 2, 5, 4};
    for (int rank = 1; rank <= 4; rank++) {
        clef__why why = {0};
        clef__idx_file idx;
        cr_assert(idx_ok(idx_file(rank, dim, 1, 251), &idx, &why), "%s", why.line);
        cr_assert_eq(idx.rank, rank);
        cr_assert_eq(idx.header, 4u + 4u * (unsigned)rank);
        size_t numel = 1;
        for (int d = 0; d < rank; d++) {
            cr_assert_eq(idx.dim[d], dim[d]);
            numel *= dim[d];
        }
        cr_assert_eq(idx.numel, numel);
    }
}

/* A file of which byte `at` was set to `value`. */
static void refused_with(size_t at, uint8_t value, const char *part) {
    clef__why why = {0};
    clef__idx_file idx;
    clef__blob blob = idx_file(3, (uint32_t[]){2, 3, 4}, 0, 256);
    blob.bytes[at] = value;
    cr_assert_not(idx_ok(blob, &idx, &why), "byte %zu = %d was accepted", at, value);
    cr_assert(strstr(why.line, part), "\"%s\" does not say \"%s\"", why.line, part);
}

Test(idx, refuses_lies_in_the_header) {
    refused_with(0, 1, "not an IDX");
    refused_with(1, 9, "not an IDX");
    refused_with(2, 0x0d, "type 0x0d");
    refused_with(3, 0, "0 dimensions");
    refused_with(3, 5, "5 dimensions");
    refused_with(3, 255, "255 dimensions");
    refused_with(3, 2, "promises");
    refused_with(3, 4, "");
    refused_with(7, 0, "dimension 0 is 0");
    refused_with(7, 3, "promises");
    refused_with(7, 1, "promises");
    refused_with(4, 0xff, "promises");
}

Test(idx, refuses_products_that_overflow) {
    uint8_t bytes[20] = {0, 0, 8, 4};
    memset(bytes + 4, 0xff, 16);
    clef__why why = {0};
    clef__idx_file idx;
    cr_assert_not(idx_ok(blob_of(bytes, sizeof bytes), &idx, &why));
    cr_assert(strstr(why.line, "more elements"), "%s", why.line);
}

Test(idx, refuses_every_truncation_and_any_addition) {
    clef__blob whole = idx_file(3, (uint32_t[]){2, 3, 4}, 0, 256);
    clef__why why = {0};
    clef__idx_file idx;
    for (size_t n = 0; n < whole.size; n++)
        cr_assert_not(idx_ok(blob_of(whole.bytes, n), &idx, &why), "%zu bytes were accepted", n);
    clef__blob longer = {clef__calloc(whole.size + 1, 1), whole.size + 1};
    memcpy(longer.bytes, whole.bytes, whole.size);
    cr_assert_not(idx_ok(longer, &idx, &why));
    clef__blob_free(&whole);
}

#ifdef CLEF_HAVE_ZLIB
Test(gzip, gives_back_what_went_in) {
    clef__blob plain = idx_file(3, (uint32_t[]){100, 28, 28}, 3, 255), packed = gzip_stored(&plain);
    clef__why why = {0};
    clef__idx_file idx;
    cr_assert(clef__idx_unpack(&packed, &idx, &why), "%s", why.line);
    cr_assert_eq(packed.size, plain.size);
    cr_assert_arr_eq(packed.bytes, plain.bytes, plain.size);
    clef__blob_free(&packed);
    clef__blob_free(&plain);
}

Test(gzip, reads_files_of_several_members) {
    clef__blob plain = cifar_file(4, 0), half = blob_of(plain.bytes, 2 * CLEF__CIFAR_RECORD);
    clef__blob rest = blob_of(plain.bytes + half.size, half.size);
    clef__blob a = gzip_stored(&half), b = gzip_stored(&rest), both = {clef__alloc(a.size + b.size), a.size + b.size};
    memcpy(both.bytes, a.bytes, a.size);
    memcpy(both.bytes + a.size, b.bytes, b.size);
    clef__why why = {0};
    int64_t records;
    cr_assert(clef__cifar_unpack(&both, &records, &why), "%s", why.line);
    cr_assert_eq(records, 4);
    cr_assert_arr_eq(both.bytes, plain.bytes, plain.size);
    clef__blob *all[] = {&plain, &half, &rest, &a, &b, &both};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) clef__blob_free(all[i]);
}

Test(gzip, refuses_every_truncation_and_a_wrong_sum) {
    clef__blob plain = idx_file(2, (uint32_t[]){5, 9}, 0, 256), packed = gzip_stored(&plain);
    clef__why why = {0};
    clef__idx_file idx;
    for (size_t n = 0; n < packed.size; n++)
        cr_assert_not(idx_ok(blob_of(packed.bytes, n), &idx, &why), "%zu bytes were accepted", n);
    for (size_t at = packed.size - 8; at < packed.size; at++) {
        clef__blob wrong = blob_of(packed.bytes, packed.size);
        wrong.bytes[at] ^= 0x10;
        cr_assert_not(idx_ok(wrong, &idx, &why), "a wrong byte %zu was accepted", at);
    }
    clef__blob_free(&plain);
    clef__blob_free(&packed);
}

Test(gzip, stops_at_the_length_that_the_header_promises) {
    clef__blob plain = idx_file(2, (uint32_t[]){5, 9}, 0, 256);
    clef__blob longer = {clef__calloc(1 << 20, 1), 1 << 20};
    memcpy(longer.bytes, plain.bytes, plain.size);
    clef__blob packed = gzip_stored(&longer);
    clef__why why = {0};
    clef__idx_file idx;
    cr_assert_not(clef__idx_unpack(&packed, &idx, &why));
    cr_assert(strstr(why.line, "more than the 57 bytes"), "%s", why.line);
    clef__blob_free(&plain);
    clef__blob_free(&longer);
    clef__blob_free(&packed);
}

Test(gzip, memory_follows_the_file_and_not_its_claims) {
    clef_set_allocator(&counting);
    uint8_t claim[] = {0, 0, 8, 3, 0, 0x40, 0, 0, 0, 0, 0, 0x40, 0, 0, 0, 0x40}; /* 16 GiB in 16 bytes */
    clef__blob plain = blob_of(claim, sizeof claim), packed = gzip_stored(&plain);
    clef__why why = {0};
    clef__idx_file idx;
    asked = 0;
    cr_assert_not(clef__idx_unpack(&plain, &idx, &why));
    cr_assert_not(clef__idx_unpack(&packed, &idx, &why));
    cr_assert_lt(asked, 200000u, "%zu bytes for two files of 16 and %zu", asked, packed.size);
    clef__blob_free(&plain);
    clef__blob_free(&packed);
    clef_set_allocator(NULL);
}
#else
Test(gzip, says_that_it_cannot_be_read) {
    clef__blob plain = idx_file(2, (uint32_t[]){5, 9}, 0, 256), packed = gzip_stored(&plain);
    clef__why why = {0};
    clef__idx_file idx;
    cr_assert_not(clef__idx_unpack(&packed, &idx, &why));
    cr_assert(strstr(why.line, "gunzip"), "%s", why.line);
    clef__blob_free(&plain);
    clef__blob_free(&packed);
}
#endif

Test(cifar, counts_records) {
    clef__why why = {0};
    int64_t records;
    cr_assert(cifar_ok(cifar_file(7, 0), &records, &why), "%s", why.line);
    cr_assert_eq(records, 7);
}

Test(cifar, refuses_partial_records_and_classes_above_nine) {
    clef__why why = {0};
    int64_t records;
    clef__blob whole = cifar_file(2, 0);
    cr_assert_not(cifar_ok(blob_of(whole.bytes, 0), &records, &why));
    cr_assert_not(cifar_ok(blob_of(whole.bytes, whole.size - 1), &records, &why));
    cr_assert(strstr(why.line, "3073"), "%s", why.line);
    whole.bytes[CLEF__CIFAR_RECORD] = 10;
    cr_assert_not(cifar_ok(whole, &records, &why));
    cr_assert(strstr(why.line, "class 10 in record 1"), "%s", why.line);
}

/* No record begins with gzip's first byte, as its class would be 31: what does is gzip, also where its size is that of whole records. */
Test(cifar, takes_what_begins_as_gzip_for_gzip) {
    clef__why why = {0};
    int64_t records;
    clef__blob blob = cifar_file(1, 0);
    blob.bytes[0] = 0x1f;
    blob.bytes[1] = 0x8b;
    cr_assert_not(cifar_ok(blob, &records, &why));
    cr_assert(strstr(why.line, "is damaged gzip data"), "%s", why.line);
}

Test(blob, tells_missing_files_from_unreadable_ones) {
    char dir[256], path[300];
    clef__why why = {0};
    clef__blob blob;
    snprintf(path, sizeof path, "%s/pipe", new_folder(dir));
    cr_assert_not(clef__blob_read(path, &blob, &why));
    cr_assert_not(clef__blob_read(dir, &blob, &why));
    cr_assert(strstr(why.line, "regular"), "%s", why.line);
    cr_assert_eq(mkfifo(path, 0600), 0);
    cr_assert_not(clef__blob_read(path, &blob, &why), "a FIFO was read");
    remove_file(dir, "pipe");
    write_and_free(dir, "empty", (clef__blob){clef__alloc(1), 0});
    snprintf(path, sizeof path, "%s/empty", dir);
    cr_assert(clef__blob_read(path, &blob, &why), "%s", why.line);
    cr_assert_eq(blob.size, 0);
    clef__blob_free(&blob);
    remove_file(dir, "empty");
    rmdir(dir);
}
