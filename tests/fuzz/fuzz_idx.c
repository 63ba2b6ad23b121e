/* fuzz_idx.c — arbitrary bytes as an IDX file, plain or gzip.  What is accepted is as long as its header says;
   what is asked of the allocator stays in proportion to the input.  One mutation in eight starts from a
   well-formed file. */
#include "data/data_support.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);
size_t LLVMFuzzerMutate(uint8_t *bytes, size_t size, size_t room);
size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t size, size_t room, unsigned seed);

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    clef_set_allocator(&counting);
    return 0;
}

/* A file [1+a%5, 1+b%5] of zeros. */
static size_t well_formed(uint8_t *bytes, size_t room, unsigned seed) {
    uint8_t rows = (uint8_t)(1 + seed % 5), columns = (uint8_t)(1 + seed / 5 % 5);
    size_t size = 12 + (size_t)rows * columns;
    if (size > room) return 0;
    memset(bytes, 0, size);
    bytes[2] = 8;
    bytes[3] = 2;
    bytes[7] = rows;
    bytes[11] = columns;
    return size;
}

size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t size, size_t room, unsigned seed) {
    if (seed % 8 == 0) size = well_formed(bytes, room, seed / 8);
    return LLVMFuzzerMutate(bytes, size, room);
}

static void unpack(clef__blob blob) {
    clef__why why = {0};
    clef__idx_file idx;
    size_t size = blob.size;
    asked = 0;
    bool ok = clef__idx_unpack(&blob, &idx, &why);
    if (ok ? blob.size != idx.header + idx.numel : why.line[0] == 0) abort();
    if (asked > 200000 + 8 * 1032 * size) /* two zlib states; doubling up to deflate's bound */
        abort();
    clef__blob_free(&blob);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    clef__blob blob = blob_of(bytes, size);
    unpack(gzip_stored(&blob)); /* whole gzip data around hostile bytes */
    unpack(blob);               /* the bytes themselves, gzip or not */
    return 0;
}
