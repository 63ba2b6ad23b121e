/* arrays.c — datasets that the caller's memory or code provides: arrays with classes, pairs of arrays, a callback.
 */
#include "data/data_internal.h"
#include <string.h>

/* A copy of n × numel elements of `size` bytes in the dataset's slot; false after clef__fail. */
static bool copy_in(clef_dataset *data, int slot, const void *from, int64_t numel, size_t size) {
    size_t n = (size_t)data->size, each = (size_t)numel * size;
    void *copy = n <= SIZE_MAX / 2 / each ? clef__alloc(n ? n * each : 1) : NULL;
    if (!copy) {
        clef__fail(data->ctx, CLEF_MEMORY, "%s: no memory for %zu items of %zu bytes", data->origin, n, each);
        data->size = 0;
        return false;
    }
    if (n) memcpy(copy, from, n * each);
    data->memory[slot] = copy;
    return true;
}

static clef_dataset *new_floats(clef_context *ctx, const float *x, clef_shape item, int64_t n, int64_t classes) {
    if (!ctx) return NULL;
    if (!x && n != 0) {
        clef__fail(ctx, CLEF_INVALID, "arrays: x is NULL");
        return NULL;
    }
    clef_dataset *data = clef__dataset_new(ctx, "arrays", CLEF__FLOATS, item, n, classes);
    if (!data || !copy_in(data, 0, x, data->numel, sizeof *x)) return NULL;
    data->x = data->memory[0];
    return data;
}

/* max(y) + 1; negative classes may stand for "ignore". */
static int64_t count_classes(const int64_t *y, int64_t n) {
    int64_t highest = -1;
    for (int64_t i = 0; i < n; i++)
        if (y[i] > highest) highest = y[i];
    return highest == INT64_MAX ? highest : highest + 1;
}

clef_dataset *clef_dataset_arrays(clef_context *ctx, const float *x, clef_shape item, const int64_t *y, int64_t n) {
    bool readable = x && y && n >= 0 && (uint64_t)n <= SIZE_MAX / 2 / sizeof *y; /* else it is refused below */
    clef_dataset *data = new_floats(ctx, x, item, n, readable ? count_classes(y, n) : 0);
    if (!data || !y) return data;
    if (!copy_in(data, 1, y, 1, sizeof *y)) return NULL;
    data->y = data->memory[1];
    return data;
}

clef_dataset *clef_dataset_pairs(clef_context *ctx, const float *x, clef_shape item, const float *y, clef_shape y_item, int64_t n) {
    int64_t numel = y_item.rank >= 0 && y_item.rank < CLEF_MAX_RANK ? clef_shape_numel(y_item) : -1;
    if (ctx && (numel < 1 || numel > INT32_MAX || (!y && n != 0))) {
        clef__fail(ctx, y ? CLEF_SHAPE : CLEF_INVALID, "arrays: targets %s; give a float array and a shape of rank < 8",
                   y ? "have a shape without elements" : "are NULL");
        return NULL;
    }
    clef_dataset *data = new_floats(ctx, x, item, n, 0);
    if (!data || !copy_in(data, 1, y, numel, sizeof *y)) return NULL;
    data->target = y_item;
    data->target_numel = numel;
    data->y_float = data->memory[1];
    return data;
}

clef_dataset *clef_dataset_callback(clef_context *ctx, clef_shape item, int64_t n, int64_t classes, clef_fetch_fn fetch,
                                    void *user) {
    if (!ctx) return NULL;
    if (!fetch) {
        clef__fail(ctx, CLEF_INVALID, "callback dataset: fetch is NULL");
        return NULL;
    }
    clef_dataset *data = clef__dataset_new(ctx, "callback dataset", CLEF__CALLBACK, item, n, classes);
    if (!data) return NULL;
    data->fetch = fetch;
    data->user = user;
    return data;
}
