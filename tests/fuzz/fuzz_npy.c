/* Any bytes as a .npy file: a verdict, and on success exactly the promised data. */
#include "io/io_internal.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    clef__reader reader = clef__reader_memory(bytes, size);
    clef__npy npy;
    clef__report report = {0};
    if (clef__npy_parse(&reader, &npy, &report) == CLEF_OK) {
        if (npy.data_offset + npy.data_bytes != size) abort();
        void *out = malloc(npy.data_bytes ? npy.data_bytes : 1);
        if (!out || clef__npy_data(&reader, &npy, out, &report) != CLEF_OK) abort();
        free(out);
    } else if (!report.text[0] || strchr(report.text, '\n')) abort();
    return 0;
}
