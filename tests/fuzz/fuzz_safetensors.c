/* Any bytes as a safetensors file: a verdict, and on success every tensor can be read and found. */
#include "io/io_internal.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void check(const clef__reader *reader, const clef__st_index *index) {
    uint64_t end = 0;
    for (int i = 0; i < index->n; i++) {
        const clef__st_tensor *tensor = &index->tensor[i];
        clef__report report = {0};
        uint64_t bytes = tensor->end - tensor->begin;
        void *out = malloc(bytes ? bytes : 1);
        if (tensor->begin != end || !out || clef__st_read(reader, index, tensor, out, &report) != CLEF_OK) abort();
        if (clef__st_find(index, tensor->name) != tensor || !clef__utf8_valid(tensor->name)) abort();
        end = tensor->end;
        free(out);
    }
    if (index->data_offset + end != reader->size) abort();
    for (int i = 0; i < index->pairs; i++)
        if (clef__st_metadata(index, index->pair[i].key) != index->pair[i].value) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    /* The length is put right half of the time, or mutations would seldom get past it. */
    uint8_t *file = malloc(size ? size : 1);
    memcpy(file, bytes, size);
    if (size > 9 && file[7] & 1) {
        const uint8_t *close = NULL;
        for (size_t i = 8; i < size; i++)
            if (file[i] == '}') close = file + i;
        uint64_t length = close ? (uint64_t)(close - file) + 1 - 8 : size - 8;
        for (int i = 0; i < 8; i++) file[i] = (uint8_t)(length >> (8 * i));
    }
    clef__reader reader = clef__reader_memory(file, size);
    clef__st_index index;
    clef__report report = {0};
    if (clef__st_parse(&reader, &index, &report) == CLEF_OK) check(&reader, &index);
    else if (index.header || index.tensor || !report.text[0] || strchr(report.text, '\n')) abort();
    clef__st_free(&index);
    free(file);
    return 0;
}
