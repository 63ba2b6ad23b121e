/* idx.c — IDX files (Y. LeCun's MNIST page): 0, 0, type, rank, big-endian u32 dimensions, elements row-major.
   Only unsigned bytes; a file must be exactly as long as its header says. */
#include "data/data_internal.h"
#include <stdio.h>

enum { IDX_HEADER_MAX = 4 + 4 * CLEF__IDX_RANK };

static uint32_t big_endian(const uint8_t *p) { return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3]; }

/* Reads the header from the first bytes of a file of which at least min(size, 20) are there. */
static bool read_header(const uint8_t *bytes, size_t size, clef__idx_file *idx, clef__why *why) {
    *idx = (clef__idx_file){0};
    if (size < 4 || bytes[0] != 0 || bytes[1] != 0) return clef__wrong(why, CLEF_FORMAT, "is not an IDX file");
    if (bytes[2] != 0x08) return clef__wrong(why, CLEF_FORMAT, "has IDX type 0x%02x; only 0x08, unsigned bytes, is read", bytes[2]);
    if (bytes[3] < 1 || bytes[3] > CLEF__IDX_RANK)
        return clef__wrong(why, CLEF_FORMAT, "has %d dimensions; 1 to %d are read", bytes[3], CLEF__IDX_RANK);
    idx->rank = bytes[3];
    idx->header = 4 + 4 * (size_t)idx->rank;
    if (size < idx->header) return clef__wrong(why, CLEF_FORMAT, "ends within its header");
    idx->numel = 1;
    for (int d = 0; d < idx->rank; d++) {
        uint32_t dim = big_endian(bytes + 4 + 4 * d);
        if (dim == 0) return clef__wrong(why, CLEF_FORMAT, "is empty: dimension %d is 0", d);
        if (idx->numel > (SIZE_MAX / 4 - idx->header) / dim) return clef__wrong(why, CLEF_FORMAT, "claims more elements than fit");
        idx->dim[d] = dim;
        idx->numel *= dim;
    }
    return true;
}

bool clef__idx_unpack(clef__blob *blob, clef__idx_file *idx, clef__why *why) {
    if (clef__blob_is_gzip(blob)) {
        uint8_t head[IDX_HEADER_MAX];
        size_t got;
        if (!clef__gunzip_head(blob, head, sizeof head, &got, why) || !read_header(head, got, idx, why) ||
            !clef__blob_gunzip(blob, idx->header + idx->numel, why))
            return false;
    }
    if (!read_header(blob->bytes, blob->size, idx, why)) return false;
    size_t wanted = idx->header + idx->numel;
    if (blob->size != wanted)
        return clef__wrong(why, CLEF_FORMAT, "has %zu bytes where its header promises %zu", blob->size, wanted);
    return true;
}

/* ---- datasets of two IDX files ---- */
typedef struct idx_source {
    clef_context *ctx;
    const char *origin, *path;
} idx_source;

static bool refuse_idx(const idx_source *from, const clef__why *why) {
    clef__fail(from->ctx, why->status, "%s: %s %s", from->origin, from->path, why->line);
    return false;
}

static bool make_idx(void *user, clef__blob *blob) {
    clef__why why = {0};
    clef__idx_file idx;
    if (clef__blob_read(((idx_source *)user)->path, blob, &why) && clef__idx_unpack(blob, &idx, &why)) return true;
    clef__blob_free(blob);
    return refuse_idx(user, &why);
}

/* Read and unpacked once for all contexts. */
static clef__stored *read_idx(clef_context *ctx, const char *origin, const char *path, clef__idx_file *idx) {
    char key[CLEF__STORE_KEY];
    clef__why why = {0};
    idx_source from = {ctx, origin, path};
    clef__store_key(key, "idx", path);
    uint64_t failures = clef__failures(ctx);
    clef__stored *s = clef__store(key, make_idx, &from);
    if (!s && !clef__failed_since(ctx, failures)) clef__fail(ctx, CLEF_MEMORY, "%s: no memory for %s", origin, path);
    if (!s || read_header(clef__stored_blob(s)->bytes, clef__stored_blob(s)->size, idx, &why)) return s;
    refuse_idx(&from, &why);
    clef__store_leave(s);
    return NULL;
}

/* (n,w) → [w], (n,h,w) → [1,h,w], (n,c,h,w) → [c,h,w] */
static clef_shape item_shape(const clef__idx_file *images) {
    if (images->rank == 2) return CLEF_SHAPE(images->dim[1]);
    if (images->rank == 3) return CLEF_SHAPE(1, images->dim[1], images->dim[2]);
    return CLEF_SHAPE(images->dim[1], images->dim[2], images->dim[3]);
}

static int64_t count_classes(const uint8_t *label, int64_t n) {
    int highest = 0;
    for (int64_t i = 0; i < n; i++)
        if (label[i] > highest) highest = label[i];
    return highest + 1;
}

static clef_dataset *pair_up(clef_context *ctx, const char *origin, clef__stored *images, const clef__idx_file *ix,
                             clef__stored *labels, const clef__idx_file *iy) {
    const uint8_t *pixels = clef__stored_blob(images)->bytes + ix->header, *classes = clef__stored_blob(labels)->bytes + iy->header;
    clef_dataset *data = NULL;
    if (ix->rank < 2 || iy->rank != 1)
        clef__fail(ctx, CLEF_FORMAT, "%s: images have %d dimensions and labels %d; 2 to 4 and 1 are wanted (swapped files?)",
                   origin, ix->rank, iy->rank);
    else if (ix->dim[0] != iy->dim[0])
        clef__fail(ctx, CLEF_FORMAT, "%s: %lld images but %lld labels; the files do not belong together", origin,
                   (long long)ix->dim[0], (long long)iy->dim[0]);
    else data = clef__dataset_new(ctx, origin, CLEF__BYTES, item_shape(ix), ix->dim[0], count_classes(classes, iy->dim[0]));
    if (!data) {
        clef__store_leave(images);
        clef__store_leave(labels);
        return NULL;
    }
    data->memory[0] = images;
    data->memory[1] = labels;
    data->pixels = pixels;
    data->labels = classes;
    data->pixel_stride = (size_t)data->numel;
    data->label_stride = 1;
    data->scale = 1.0f / 255.0f;
    return data;
}

static clef_dataset *open_pair(clef_context *ctx, const char *origin, const char *images, const char *labels) {
    clef__idx_file ix, iy;
    clef__stored *x = read_idx(ctx, origin, images, &ix), *y = x ? read_idx(ctx, origin, labels, &iy) : NULL;
    if (!y) clef__store_leave(x);
    return y ? pair_up(ctx, origin, x, &ix, y, &iy) : NULL;
}

clef_dataset *clef_idx(clef_context *ctx, const char *images, const char *labels) {
    if (!ctx) return NULL;
    if (!images || !labels) {
        clef__fail(ctx, CLEF_INVALID, "idx: the path of %s is NULL", images ? "labels" : "images");
        return NULL;
    }
    return open_pair(ctx, "idx", images, labels);
}

/* ---- MNIST ---- */
/* dir/prefix-kind in either spelling under which the files are passed around. */
static char *mnist_file(clef_context *ctx, const char *dir, const char *prefix, const char *kind) {
    char stem[64], other[64];
    snprintf(stem, sizeof stem, "%s-%s-ubyte", prefix, kind);
    snprintf(other, sizeof other, "%s.%s-ubyte", prefix, kind);
    char *path = clef__data_find(dir, stem);
    if (!path) path = clef__data_find(dir, other);
    if (!path) clef__fail(ctx, CLEF_IO, "mnist: no %s or %s.gz in %s; give its directory or set CLEF_DATA", stem, stem, dir);
    return path;
}

clef_dataset *clef_mnist(clef_context *ctx, const char *dir, clef_split_name split) {
    if (!ctx || !clef__is_split(ctx, "mnist", split)) return NULL;
    char *folder = clef__data_folder(ctx, dir, "mnist");
    if (!folder) return NULL;
    bool train = split == CLEF_TRAIN;
    clef_dataset *data = NULL;
    char *images = mnist_file(ctx, folder, train ? "train-images" : "t10k-images", "idx3");
    char *labels = images ? mnist_file(ctx, folder, train ? "train-labels" : "t10k-labels", "idx1") : NULL;
    if (images && labels) data = open_pair(ctx, "mnist", images, labels);
    clef__free(images);
    clef__free(labels);
    clef__free(folder);
    return data;
}
