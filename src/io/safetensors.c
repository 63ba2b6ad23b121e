/* safetensors.c — the public side: files of any named tensors.  An open file keeps its descriptor, so that
   replacing the file meanwhile does no harm; the context closes what the caller leaves open. */
#include "io_internal.h"
#include <string.h>

struct clef_safetensors {
    clef_context *ctx;
    char *path;
    clef__reader reader;
    clef__st_index index;
    clef_safetensors *previous, *next;
};

clef_status clef_safetensors_write(clef_context *ctx, const char *path, const clef_named_tensor *tensors, int n,
                                   const char *const *metadata) {
    clef__report report = {0};
    if (n < 0 || (n > 0 && !tensors)) clef__report_set(&report, CLEF_INVALID, "%d tensors at NULL", n);
    else clef__write_tensors(path, tensors, n, metadata, &report);
    return report.status == CLEF_OK ? CLEF_OK : clef__report_fail(ctx, "safetensors_write", path, &report);
}

static void discard(clef_safetensors *file) {
    clef__st_free(&file->index);
    clef__reader_close(&file->reader);
    clef__free(file->path);
    clef__free(file);
}

static void close_room(clef_context *ctx, void *state) {
    (void)ctx;
    clef__io *io = state;
    for (clef_safetensors *file = io->files, *next; file; file = next) {
        next = file->next;
        discard(file);
    }
    clef__load_lists_free(io->lists);
    clef__free(io);
}

clef__io *clef__io_of(clef_context *ctx) { return clef__make_room_state(ctx, CLEF__ROOM_IO, sizeof(clef__io), close_room); }

clef_safetensors *clef_safetensors_open(clef_context *ctx, const char *path) {
    clef__report report = {0};
    clef_safetensors *file = clef__calloc(1, sizeof *file);
    if (file) file->reader.fd = -1;
    if (!ctx) clef__report_set(&report, CLEF_INVALID, "the context is NULL");
    else if (!file || !clef__io_of(ctx)) clef__report_set(&report, CLEF_MEMORY, "no memory to open it");
    else if (clef__reader_open(&file->reader, path, &report) == CLEF_OK) {
        if (!(file->path = clef__strdup(path))) clef__report_set(&report, CLEF_MEMORY, "no memory to open it");
        else clef__st_parse(&file->reader, &file->index, &report);
    }
    if (report.status != CLEF_OK) {
        clef__report_fail(ctx, "safetensors_open", path, &report);
        if (file) discard(file);
        return NULL;
    }
    file->ctx = ctx;
    file->next = clef__io_of(ctx)->files;
    if (file->next) file->next->previous = file;
    clef__io_of(ctx)->files = file;
    return file;
}

void clef_safetensors_close(clef_safetensors *file) {
    if (!file) return;
    if (file->next) file->next->previous = file->previous;
    if (file->previous) file->previous->next = file->next;
    else clef__io_of(file->ctx)->files = file->next;
    discard(file);
}

int clef_safetensors_count(const clef_safetensors *file) { return file ? file->index.n : 0; }

static const clef__st_tensor *entry(const clef_safetensors *file, int i) {
    return file && i >= 0 && i < file->index.n ? &file->index.tensor[i] : NULL;
}

const char *clef_safetensors_name(const clef_safetensors *file, int i) {
    const clef__st_tensor *tensor = entry(file, i);
    return tensor ? tensor->name : NULL;
}

bool clef_safetensors_find(const clef_safetensors *file, const char *name, int *i) {
    const clef__st_tensor *tensor = file && name ? clef__st_find(&file->index, name) : NULL;
    if (tensor && i) *i = (int)(tensor - file->index.tensor);
    return tensor != NULL;
}

clef_shape clef_safetensors_shape(const clef_safetensors *file, int i) {
    const clef__st_tensor *tensor = entry(file, i);
    return tensor ? tensor->shape : CLEF_SCALAR;
}

clef_dtype clef_safetensors_dtype(const clef_safetensors *file, int i) {
    const clef__st_tensor *tensor = entry(file, i);
    return tensor ? tensor->dtype : CLEF_DTYPE_COUNT;
}

clef_tensor *clef_safetensors_tensor(clef_safetensors *file, int i) {
    if (!file) return NULL;
    const clef__st_tensor *tensor = entry(file, i);
    clef__report report = {0};
    clef_tensor *value = NULL;
    if (tensor) value = clef__upload(file->ctx, 0, &file->reader, &file->index, tensor, tensor->dtype, &report);
    else clef__report_set(&report, CLEF_INVALID, "tensor %d was asked for, but it has %d", i, file->index.n);
    if (!value) clef__report_fail(file->ctx, "safetensors_tensor", file->path, &report);
    return value;
}

const char *clef_safetensors_metadata(const clef_safetensors *file, const char *key) {
    return file && key ? clef__st_metadata(&file->index, key) : NULL;
}
