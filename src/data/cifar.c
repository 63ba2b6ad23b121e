/* cifar.c — CIFAR-10's binary version (A. Krizhevsky, 2009): records of one label byte and 3×32×32 pixel bytes.
   The records stay as they are in memory; a dataset strides over them. */
#include "data/data_internal.h"
#include <stdio.h>
#include <string.h>

bool clef__cifar_unpack(clef__blob *blob, int64_t *records, clef__why *why) {
    *records = 0;
    if (clef__blob_is_gzip(blob) && /* no record begins so: its class would be 31 */
        !clef__blob_gunzip(blob, (size_t)CLEF__CIFAR_MAX * CLEF__CIFAR_RECORD, why))
        return false;
    if (blob->size == 0 || blob->size % CLEF__CIFAR_RECORD != 0)
        return clef__wrong(why, CLEF_FORMAT, "has %zu bytes, which is not a whole number of %d-byte CIFAR-10 records", blob->size,
                           CLEF__CIFAR_RECORD);
    size_t count = blob->size / CLEF__CIFAR_RECORD;
    for (size_t i = 0; i < count; i++) {
        uint8_t label = blob->bytes[i * CLEF__CIFAR_RECORD];
        if (label > 9) return clef__wrong(why, CLEF_FORMAT, "has the class %d in record %zu; CIFAR-10 has 0 to 9", label, i);
    }
    *records = (int64_t)count;
    return true;
}

/* Appends the records of one file to `all`. */
static bool append_file(clef_context *ctx, const char *path, clef__blob *all) {
    clef__blob blob;
    clef__why why = {0};
    int64_t records;
    bool ok = clef__blob_read(path, &blob, &why) && clef__cifar_unpack(&blob, &records, &why);
    if (!ok) clef__fail(ctx, why.status, "cifar10: %s %s", path, why.line);
    if (ok && all->size == 0) {
        *all = blob;
        return true;
    }
    uint8_t *grown = ok ? clef__realloc(all->bytes, all->size + blob.size) : NULL;
    if (ok && !grown) clef__fail(ctx, CLEF_MEMORY, "cifar10: no memory for %zu bytes", all->size + blob.size);
    if (grown) {
        memcpy(grown + all->size, blob.bytes, blob.size);
        all->bytes = grown;
        all->size += blob.size;
    }
    clef__blob_free(&blob);
    return grown != NULL;
}

typedef struct cifar_source {
    clef_context *ctx;
    char *path[5]; /* those of the split's files that exist */
    int files;
} cifar_source;

static void free_source(cifar_source *from) {
    for (int i = 0; i < from->files; i++) clef__free(from->path[i]);
}

static bool find_split(cifar_source *from, const char *folder, clef_split_name split) {
    for (int part = 1; part <= (split == CLEF_TEST ? 1 : 5); part++) {
        char stem[32];
        if (split == CLEF_TRAIN) snprintf(stem, sizeof stem, "data_batch_%d.bin", part);
        else snprintf(stem, sizeof stem, "test_batch.bin");
        char *path = clef__data_find(folder, stem);
        if (path) from->path[from->files++] = path;
    }
    if (from->files) return true;
    const char *stem = split == CLEF_TRAIN ? "data_batch_1.bin" : "test_batch.bin";
    clef__fail(from->ctx, CLEF_IO, "cifar10: no %s or %s.gz in %s; give its directory or set CLEF_DATA", stem, stem, folder);
    return false;
}

static bool make_split(void *user, clef__blob *all) {
    const cifar_source *from = user;
    for (int i = 0; i < from->files; i++) {
        if (append_file(from->ctx, from->path[i], all)) continue;
        clef__blob_free(all);
        return false;
    }
    return true;
}

/* Read and unpacked once for all contexts. */
static clef__stored *read_split(clef_context *ctx, const char *folder, clef_split_name split) {
    cifar_source from = {.ctx = ctx};
    char key[CLEF__STORE_KEY] = "", own[CLEF__STORE_KEY];
    uint64_t failures = clef__failures(ctx);
    clef__stored *s = NULL;
    if (find_split(&from, folder, split)) {
        for (int i = 0; i < from.files; i++) {
            clef__store_key(own, "cifar10", from.path[i]);
            snprintf(key + strlen(key), sizeof key - strlen(key), "%.300s;", own);
        }
        s = clef__store(key, make_split, &from);
    }
    if (!s && !clef__failed_since(ctx, failures)) clef__fail(ctx, CLEF_MEMORY, "cifar10: no memory for the files of %s", folder);
    free_source(&from);
    return s;
}

clef_dataset *clef_cifar10(clef_context *ctx, const char *dir, clef_split_name split) {
    static const char *const names[] = {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"};
    if (!ctx || !clef__is_split(ctx, "cifar10", split)) return NULL;
    char *folder = clef__data_folder(ctx, dir, "cifar10");
    if (!folder) return NULL;
    clef__stored *all = read_split(ctx, folder, split);
    clef__free(folder);
    if (!all) return NULL;
    int64_t records = (int64_t)(clef__stored_blob(all)->size / CLEF__CIFAR_RECORD);
    clef_dataset *data = clef__dataset_new(ctx, "cifar10", CLEF__BYTES, CLEF_SHAPE(3, 32, 32), records, 10);
    if (!data) {
        clef__store_leave(all);
        return NULL;
    }
    data->memory[0] = all;
    data->labels = clef__stored_blob(all)->bytes;
    data->pixels = data->labels + 1;
    data->label_stride = data->pixel_stride = CLEF__CIFAR_RECORD;
    data->scale = 1.0f / 255.0f;
    data->names = names;
    return data;
}
