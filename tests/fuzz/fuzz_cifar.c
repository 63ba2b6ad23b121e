/* fuzz_cifar.c — arbitrary bytes as CIFAR-10 records, plain and wrapped in gzip.  The first two bytes choose how
   many times the rest is repeated, so that whole records come about from short inputs. */
#include "data/data_support.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void unpack(clef__blob blob) {
    clef__why why = {0};
    int64_t records;
    bool ok = clef__cifar_unpack(&blob, &records, &why);
    if (ok) {
        if (records < 1 || blob.size != (size_t)records * CLEF__CIFAR_RECORD) abort();
        for (int64_t i = 0; i < records; i++)
            if (blob.bytes[i * CLEF__CIFAR_RECORD] > 9) abort();
    } else if (why.line[0] == 0) {
        abort();
    }
    clef__blob_free(&blob);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    if (size < 3) return 0;
    size_t records = bytes[0] % 3, extra = bytes[0] >= 128 ? 0 : bytes[1], rest = size - 2;
    size_t total = records == 0 ? rest : records * CLEF__CIFAR_RECORD + extra;
    clef__blob blob = {clef__alloc(total ? total : 1), total};
    for (size_t i = 0; i < total; i++) blob.bytes[i] = bytes[2 + i % rest];
    unpack(gzip_stored(&blob));
    unpack(blob);
    return 0;
}
