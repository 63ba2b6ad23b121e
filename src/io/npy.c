/* npy.c — tensors as .npy files; the format itself is in npy_header.c. */
#include "graph/graph.h"
#include "io_internal.h"

static void write_npy(clef_tensor *t, const char *path, clef__report *report) {
    clef_dtype dtype = clef_tensor_dtype(t);
    size_t element = clef_dtype_size(dtype), bytes = (size_t)clef_numel(t) * element;
    char header[512];
    size_t length = clef__npy_header(clef_tensor_shape(t), dtype, header, sizeof header);
    if (length == 0) {
        clef__report_set(report, CLEF_DTYPE, "NumPy has no %s; convert to f32 first", clef_dtype_name(dtype));
        return;
    }
    void *data = clef__alloc(bytes);
    clef__writer writer;
    clef_status status = !data ? CLEF_MEMORY : bytes ? clef_read(t, data, bytes) : CLEF_OK;
    if (status != CLEF_OK) clef__report_set(report, status, "the tensor could not be read");
    else if (clef__writer_open(&writer, path, report) == CLEF_OK) {
        if (clef__big_endian()) clef__swap_bytes(data, element, bytes / element);
        clef__writer_put(&writer, header, length);
        clef__writer_put(&writer, data, bytes);
        clef__writer_commit(&writer);
    }
    clef__free(data);
}

clef_status clef_npy_write(clef_tensor *t, const char *path) {
    if (!t) return clef__fail(NULL, CLEF_INVALID, "npy_write: the tensor is NULL");
    if (!CLEF__GIVEN("npy_write", "t", t)) return CLEF_INVALID;
    clef__report report = {0};
    write_npy(t, path, &report);
    return report.status == CLEF_OK ? CLEF_OK : clef__report_fail(clef_tensor_context(t), "npy_write", path, &report);
}

static clef_tensor *read_npy(clef_context *ctx, const clef__reader *reader, clef__report *report) {
    clef__npy npy;
    clef_tensor *tensor = NULL;
    if (clef__npy_parse(reader, &npy, report) != CLEF_OK) return NULL;
    void *data = clef__alloc((size_t)npy.data_bytes);
    if (!data) clef__report_set(report, CLEF_MEMORY, "no memory for %llu bytes", (unsigned long long)npy.data_bytes);
    else if (clef__npy_data(reader, &npy, data, report) == CLEF_OK) {
        tensor = clef_from_host(ctx, npy.shape, npy.dtype, data);
        if (!tensor) clef__report_set(report, CLEF_DEVICE, "the tensor cannot be put on the device");
    }
    clef__free(data);
    return tensor;
}

clef_tensor *clef_npy_read(clef_context *ctx, const char *path) {
    clef__report report = {0};
    clef__reader reader = {.fd = -1};
    clef_tensor *tensor = NULL;
    if (!ctx) clef__report_set(&report, CLEF_INVALID, "the context is NULL");
    else if (clef__reader_open(&reader, path, &report) == CLEF_OK) tensor = read_npy(ctx, &reader, &report);
    clef__reader_close(&reader);
    if (!tensor) clef__report_fail(ctx, "npy_read", path, &report);
    return tensor;
}
