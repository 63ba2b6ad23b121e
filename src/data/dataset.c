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
        clef__store_leave(data->memory[0]);
        clef__store_leave(data->memory[1]);
        clef__free(data->drawn);
        clef__free(data->numbers);
        for (int f = 0; f < data->n_fields; f++) {
            clef__free(data->field[f].name);
            clef__store_leave(data->field[f].stored);
        }
        clef__free(data->field);
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

clef_dataset *clef__dataset_empty(clef_context *ctx, const char *origin, clef__dataset_kind kind, int64_t size, int64_t classes) {
    room *r = room_of(ctx);
    clef_dataset *data = r ? clef__calloc(1, sizeof *data) : NULL;
    if (!data) {
        clef__fail(ctx, CLEF_MEMORY, "%s: out of memory", origin);
        return NULL;
    }
    *data = (clef_dataset){.ctx = ctx,
                           .owner = true,
                           .kind = kind,
                           .origin = origin,
                           .image = -1,
                           .label = -1,
                           .size = size,
                           .classes = classes,
                           .scale = 1};
    if (!number_classes(data)) {
        clef__free(data);
        clef__fail(ctx, CLEF_MEMORY, "%s: no memory for the names of %lld classes", origin, (long long)classes);
        return NULL;
    }
    data->next = r->datasets;
    r->datasets = data;
    return data;
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
    clef_dataset *data = clef__dataset_empty(ctx, origin, kind, size, classes);
    bool labelled = kind == CLEF__BYTES || (kind == CLEF__CALLBACK && classes > 0);
    if (!data || !clef__dataset_add(data, &(clef_field){.name = "x", .shape = item, .dtype = CLEF_F32})) return NULL;
    return !labelled || clef__dataset_add(data, &(clef_field){.name = "y", .dtype = CLEF_I64, .target = true}) ? data : NULL;
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

clef_shape clef_dataset_item(const clef_dataset *data) {
    for (int f = 0; data && f < data->n_fields; f++)
        if (!data->field[f].target) return data->field[f].shape;
    return CLEF_SCALAR;
}

int64_t clef_dataset_classes(const clef_dataset *data) { return data ? data->classes : 0; }

clef_context *clef_dataset_context(const clef_dataset *data) { return data ? data->ctx : NULL; }

const char *clef_dataset_class_name(const clef_dataset *data, int64_t c) {
    if (!data || c < 0 || c >= data->classes) return "";
    if (data->names) return data->names[c];
    return data->numbers ? data->numbers[c] : "";
}

/* Are the class numbers that callbacks give in range? */
static bool classes_fit(const clef_dataset *data, const void *labels) {
    if (data->classes == 0) return true;
    const clef__field *f = &data->field[data->label];
    int64_t n = clef_shape_numel(f->shape), k = 0;
    while (k < n && clef__whole_at(f->dtype, labels, k) < data->classes) k++;
    return k == n;
}

bool clef__dataset_fetch(const clef_dataset *data, int64_t i, uint32_t epoch, void *const *out) {
    int64_t class_number = 0, *y = data->n_fields > 1 && out[1] ? out[1] : &class_number;
    switch (data->kind) {
    case CLEF__BYTES: {
        const uint8_t *pixel = data->pixels + (size_t)i * data->pixel_stride;
        for (int64_t p = 0; p < data->numel; p++) ((float *)out[0])[p] = (float)pixel[p] * data->scale;
        *y = data->labels[(size_t)i * data->label_stride];
        return true;
    }
    case CLEF__ARRAYS:
        for (int f = 0; f < data->n_fields; f++)
            if (out[f]) memcpy(out[f], data->field[f].data + (size_t)i * data->field[f].bytes, data->field[f].bytes);
        return true;
    case CLEF__CALLBACK: *y = 0; return data->fetch(data->user, i, out[0], y) && classes_fit(data, y);
    case CLEF__FIELDS_CALLBACK:
        return data->fetch_fields(data->user, i, out) && classes_fit(data, data->classes ? out[data->label] : NULL);
    case CLEF__DRAWN: return data->draw(data->drawn, i, epoch, out);
    }
    return false;
}

static clef_status get(clef_dataset *data, int64_t i, void *const *out, bool complete) {
    if (!complete || i < 0 || i >= data->size)
        return clef__fail(data->ctx, CLEF_INVALID, "%s: item %lld of %lld into %s", data->origin, (long long)i,
                          (long long)data->size, complete ? "memory" : "NULL");
    if (clef__dataset_fetch(data, i, 0, out)) return CLEF_OK;
    return clef__fail(data->ctx, CLEF_IO, "%s: the callback failed for item %lld or gave a class of %lld or more", data->origin,
                      (long long)i, (long long)data->classes);
}

clef_status clef_dataset_get(clef_dataset *data, int64_t i, float *x, int64_t *y) {
    if (!data) return CLEF_INVALID;
    const clef__field *f = data->field;
    bool two = data->n_fields == 2 && f[1].target && data->kind != CLEF__FIELDS_CALLBACK; /* which wants all fields */
    bool labelled = two && f[1].dtype == CLEF_I64 && f[1].shape.rank == 0;
    if (data->image != 0 || !(data->n_fields == 1 || labelled || (two && f[1].dtype == CLEF_F32)))
        return clef__fail(data->ctx, CLEF_DTYPE, "%s: its items are not an f32 x and a y; read them with clef_dataset_get_fields",
                          data->origin);
    if (y) *y = 0;
    return get(data, i, (void *[]){x, labelled ? y : NULL}, x != NULL);
}

clef_status clef_dataset_get_fields(clef_dataset *data, int64_t i, void *const *out) {
    if (!data) return CLEF_INVALID;
    bool complete = out != NULL;
    for (int f = 0; complete && f < data->n_fields; f++) complete = out[f] != NULL;
    return get(data, i, out, complete);
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
