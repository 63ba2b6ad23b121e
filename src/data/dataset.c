/* dataset.c — what a dataset is to its users: sizes, names, single items, views; and the data room's share of a
   context. Datasets live until their context closes, loaders (which read them from threads) are closed before
   them. */
#include "data/data_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the context's datasets and loaders ---- */
typedef struct room {
    clef_dataset *datasets;
    clef__loader_link *loaders;
} room;

static void free_dataset(clef_dataset *data) {
    if (data->owner) {
        clef__free(data->memory[0]);
        clef__free(data->memory[1]);
        clef__free(data->numbers);
    }
    clef__free(data);
}

static void close_room(clef_context *ctx, void *state) {
    room *r = state;
    (void)ctx;
    while (r->loaders) r->loaders->close(r->loaders->loader);
    for (clef_dataset *data = r->datasets; data;) {
        clef_dataset *next = data->next;
        free_dataset(data);
        data = next;
    }
    clef__free(r);
}

static room *room_of(clef_context *ctx) { return clef__make_room_state(ctx, CLEF__ROOM_DATA, sizeof(room), close_room); }

void clef__loader_register(clef_context *ctx, clef__loader_link *link) {
    room *r = room_of(ctx); /* exists: the loader's dataset is in it */
    link->next = r->loaders;
    r->loaders = link;
}

void clef__loader_forget(clef_context *ctx, const clef__loader_link *link) {
    clef__loader_link **at = &room_of(ctx)->loaders;
    while (*at && *at != link) at = &(*at)->next;
    if (*at) *at = link->next;
}

/* ---- making ---- */
/* The text of class numbers, for datasets whose classes have no names; too many of them stay without. */
static bool number_classes(clef_dataset *data) {
    if (data->classes <= 0 || data->classes > 100000) return true;
    data->numbers = clef__calloc((size_t)data->classes, sizeof *data->numbers);
    if (!data->numbers) return false;
    for (int64_t c = 0; c < data->classes; c++) snprintf(data->numbers[c], sizeof *data->numbers, "%d", (int)c);
    return true;
}

bool clef__is_split(clef_context *ctx, const char *origin, clef_split_name split) {
    if (split == CLEF_TRAIN || split == CLEF_TEST) return true;
    clef__fail(ctx, CLEF_INVALID, "%s: there is no split %d; give CLEF_TRAIN or CLEF_TEST", origin, (int)split);
    return false;
}

clef_dataset *clef__dataset_new(clef_context *ctx, const char *origin, clef__dataset_kind kind, clef_shape item, int64_t size,
                                int64_t classes) {
    char text[160];
    bool rank_fits = item.rank >= 0 && item.rank < CLEF_MAX_RANK; /* a batch has one dimension more */
    int64_t numel = rank_fits ? clef_shape_numel(item) : -1;
    if (numel < 1 || numel > INT32_MAX || size < 0 || classes < 0) {
        clef__fail(ctx, CLEF_SHAPE, "%s: %lld items of shape %s and %lld classes; items need 1 to 2147483647 elements", origin,
                   (long long)size, rank_fits ? clef_shape_format(item, text, sizeof text) : "of rank > 7", (long long)classes);
        return NULL;
    }
    room *r = room_of(ctx);
    clef_dataset *data = r ? clef__calloc(1, sizeof *data) : NULL;
    if (!data) {
        clef__fail(ctx, CLEF_MEMORY, "%s: out of memory", origin);
        return NULL;
    }
    int n = item.rank;
    *data = (clef_dataset){.ctx = ctx,
                           .owner = true,
                           .kind = kind,
                           .origin = origin,
                           .item = item,
                           .numel = numel,
                           .size = size,
                           .classes = classes,
                           .scale = 1,
                           .target_numel = 1};
    data->channels = n == 3 ? (int)item.dim[0] : 1;
    data->height = n == 2 || n == 3 ? (int)item.dim[n - 2] : 1;
    data->width = (int)(numel / data->channels / data->height);
    if (!number_classes(data)) {
        clef__free(data);
        clef__fail(ctx, CLEF_MEMORY, "%s: no memory for the names of %lld classes", origin, (long long)classes);
        return NULL;
    }
    data->next = r->datasets;
    r->datasets = data;
    return data;
}

clef_dataset *clef_dataset_take(clef_dataset *data, int64_t n) {
    if (!data) return NULL;
    if (n < 0) {
        clef__fail(data->ctx, CLEF_INVALID, "dataset: the first %lld items were asked for; give 0 or more", (long long)n);
        return NULL;
    }
    clef_dataset *view = clef__alloc(sizeof *view);
    if (!view) {
        clef__fail(data->ctx, CLEF_MEMORY, "dataset: out of memory");
        return NULL;
    }
    *view = *data;
    view->owner = false;
    if (n < view->size) view->size = n;
    room *r = room_of(data->ctx);
    view->next = r->datasets;
    r->datasets = view;
    return view;
}

/* ---- asking ---- */
int64_t clef_dataset_size(const clef_dataset *data) { return data ? data->size : 0; }

clef_shape clef_dataset_item(const clef_dataset *data) { return data ? data->item : CLEF_SCALAR; }

int64_t clef_dataset_classes(const clef_dataset *data) { return data ? data->classes : 0; }

clef_context *clef_dataset_context(const clef_dataset *data) { return data ? data->ctx : NULL; }

const char *clef_dataset_class_name(const clef_dataset *data, int64_t c) {
    if (!data || c < 0 || c >= data->classes) return "";
    if (data->names) return data->names[c];
    return data->numbers ? data->numbers[c] : "";
}

bool clef__dataset_has_target(const clef_dataset *data) {
    if (data->kind == CLEF__FLOATS) return data->y || data->y_float;
    return data->kind == CLEF__BYTES || data->classes > 0;
}

bool clef__dataset_fetch(const clef_dataset *data, int64_t i, float *x, int64_t *y) {
    int64_t class_number = 0;
    if (data->kind == CLEF__BYTES) {
        const uint8_t *pixel = data->pixels + (size_t)i * data->pixel_stride;
        for (int64_t p = 0; p < data->numel; p++) x[p] = (float)pixel[p] * data->scale;
        class_number = data->labels[(size_t)i * data->label_stride];
    } else if (data->kind == CLEF__FLOATS) {
        memcpy(x, data->x + i * data->numel, (size_t)data->numel * sizeof *x);
        if (data->y) class_number = data->y[i];
    } else {
        if (!data->fetch(data->user, i, x, &class_number)) return false;
        if (data->classes > 0 && class_number >= data->classes) return false;
    }
    if (y) *y = class_number;
    return true;
}

clef_status clef_dataset_get(clef_dataset *data, int64_t i, float *x, int64_t *y) {
    if (!data) return CLEF_INVALID;
    if (!x || i < 0 || i >= data->size)
        return clef__fail(data->ctx, CLEF_INVALID, "%s: item %lld of %lld into %s", data->origin, (long long)i,
                          (long long)data->size, x ? "memory" : "NULL");
    if (clef__dataset_fetch(data, i, x, y)) return CLEF_OK;
    return clef__fail(data->ctx, CLEF_IO, "%s: the callback failed for item %lld or gave a class of %lld or more", data->origin,
                      (long long)i, (long long)data->classes);
}

/* ---- finding files ---- */
char *clef__data_folder(clef_context *ctx, const char *dir, const char *name) {
    const char *home = clef__env("CLEF_DATA");
    char *folder = NULL;
    if (dir) folder = clef__strdup(dir);
    else if (home && *home) folder = clef__asprintf("%s/%s", home, name);
    else {
        clef__fail(ctx, CLEF_INVALID, "%s: no directory was given and CLEF_DATA is not set; do one of the two", name);
        return NULL;
    }
    if (!folder) clef__fail(ctx, CLEF_MEMORY, "%s: out of memory", name);
    return folder;
}

char *clef__data_find(const char *folder, const char *stem) {
    for (int gz = 0; gz < 2; gz++) {
        char *path = clef__asprintf("%s/%s%s", folder, stem, gz ? ".gz" : "");
        if (path && access(path, F_OK) == 0) return path;
        clef__free(path);
    }
    return NULL;
}
