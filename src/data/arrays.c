/* arrays.c — datasets that the caller's memory or code provides: fields of any kind, arrays with classes, pairs of arrays, a
   callback. */
#include "data/data_internal.h"
#include <string.h>

/* ---- fields ---- */
bool clef__is_class(const clef_field *field) {
    return field->target && (field->shape.rank == 0 || field->classes > 0) &&
           (field->dtype == CLEF_I64 || field->dtype == CLEF_I32 || field->dtype == CLEF_U8);
}

int64_t clef__whole_at(clef_dtype dtype, const void *data, int64_t i) {
    if (dtype == CLEF_I64) return ((const int64_t *)data)[i];
    return dtype == CLEF_I32 ? ((const int32_t *)data)[i] : ((const uint8_t *)data)[i];
}

/* max + 1; negative classes may stand for "ignore". */
static int64_t count_classes(clef_dtype dtype, const void *data, int64_t n) {
    int64_t highest = -1;
    for (int64_t i = 0; i < n; i++) {
        int64_t c = clef__whole_at(dtype, data, i);
        if (c > highest) highest = c;
    }
    return highest == INT64_MAX ? highest : highest + 1;
}

/* No items: what was begun cannot be used. */
static bool give_up(clef_dataset *data) {
    data->size = 0;
    return false;
}

/* A copy of the data of all items, one for all contexts that have the same; false after clef__fail. */
static bool copy_in(const clef_dataset *data, clef__field *f, const void *from) {
    size_t n = (size_t)data->size;
    f->stored = n <= SIZE_MAX / 2 / f->bytes ? clef__store_copy(from, n * f->bytes) : NULL;
    if (!f->stored) {
        clef__fail(data->ctx, CLEF_MEMORY, "%s: no memory for %zu items of %zu bytes", data->origin, n, f->bytes);
        return false;
    }
    f->data = clef__stored_blob(f->stored)->bytes;
    return true;
}

/* The first f32 input is what is augmented and normalised. */
static void set_image(clef_dataset *data, clef_shape shape) {
    int n = shape.rank;
    data->image = data->n_fields;
    data->numel = clef_shape_numel(shape);
    data->channels = n == 3 ? (int)shape.dim[0] : 1;
    data->height = n == 2 || n == 3 ? (int)shape.dim[n - 2] : 1;
    data->width = (int)(data->numel / data->channels / data->height);
}

bool clef__dataset_add(clef_dataset *data, const clef_field *field) {
    clef__field f = {.shape = field->shape,
                     .dtype = field->dtype,
                     .target = field->target,
                     .bytes = (size_t)clef_shape_numel(field->shape) * clef_dtype_size(field->dtype)};
    clef__field *grown = clef__realloc(data->field, ((size_t)data->n_fields + 1) * sizeof *grown);
    if (grown) data->field = grown;
    if (grown) f.name = field->name ? clef__strdup(field->name) : clef__asprintf("field %d", data->n_fields);
    if (!f.name) return clef__fail(data->ctx, CLEF_MEMORY, "%s: out of memory", data->origin), give_up(data);
    if (data->kind == CLEF__ARRAYS && field->data && !copy_in(data, &f, field->data)) return clef__free(f.name), give_up(data);
    if (f.target && data->label < 0) data->label = data->n_fields;
    if (!f.target) data->n_inputs++;
    if (!f.target && f.dtype == CLEF_F32 && data->image < 0) set_image(data, f.shape);
    data->field[data->n_fields++] = f;
    return true;
}

/* NULL, or what is wrong with a field. */
static const char *wrong_field(const clef_field *f, bool arrays, int64_t n) {
    int64_t numel = f->shape.rank >= 0 && f->shape.rank < CLEF_MAX_RANK ? clef_shape_numel(f->shape) : -1;
    if (numel < 1 || numel > INT32_MAX) return "has a shape without elements, or of rank > 7, or of more than 2147483647 elements";
    if (clef_dtype_size(f->dtype) == 0) return "has no known dtype";
    if (arrays && !f->data && n != 0) return "has no data";
    if (f->classes < 0 || (f->classes > 0 && !clef__is_class(f))) return "has classes, but is no target in i64, i32 or u8";
    if (!arrays || !clef__is_class(f) || f->classes == 0) return NULL;
    return count_classes(f->dtype, f->data, n * numel) > f->classes ? "has a class that is not below its classes" : NULL;
}

static bool fields_fit(clef_context *ctx, const clef_field *fields, int n_fields, bool arrays, int64_t n) {
    int inputs = 0;
    if (!fields || n_fields < 1 || n_fields > CLEF_FIELDS_MOST || n < 0 || (uint64_t)n > SIZE_MAX / 16) {
        clef__fail(ctx, CLEF_INVALID, "dataset_fields: %d fields of %lld items%s; give 1 to %d fields and 0 items or more",
                   n_fields, (long long)n, fields ? "" : " in a NULL array", CLEF_FIELDS_MOST);
        return false;
    }
    for (int i = 0; i < n_fields; i++) {
        const char *wrong = wrong_field(&fields[i], arrays, n);
        if (wrong)
            clef__fail(ctx, CLEF_INVALID, "dataset_fields: field %d (%s) %s", i, fields[i].name ? fields[i].name : "", wrong);
        if (wrong) return false;
        inputs += !fields[i].target;
    }
    if (inputs == 0) clef__fail(ctx, CLEF_INVALID, "dataset_fields: all %d fields are targets; give an input", n_fields);
    return inputs > 0;
}

/* Of the first target, where that is a class. */
static int64_t classes_of(const clef_field *fields, int n_fields, bool arrays, int64_t n) {
    for (int i = 0; i < n_fields; i++) {
        const clef_field *f = &fields[i];
        if (!f->target) continue;
        if (!clef__is_class(f)) return 0;
        return f->classes || !arrays ? f->classes : count_classes(f->dtype, f->data, n);
    }
    return 0;
}

static clef_dataset *new_fields(clef_context *ctx, const clef_field *fields, int n_fields, int64_t n, clef__dataset_kind kind) {
    bool arrays = kind == CLEF__ARRAYS;
    if (!ctx || !fields_fit(ctx, fields, n_fields, arrays, n)) return NULL;
    clef_dataset *data = clef__dataset_empty(ctx, "dataset_fields", kind, n, classes_of(fields, n_fields, arrays, n));
    for (int i = 0; data && i < n_fields; i++)
        if (!clef__dataset_add(data, &fields[i])) return NULL;
    return data;
}

clef_dataset *clef_dataset_fields(clef_context *ctx, const clef_field *fields, int n_fields, int64_t n) {
    return new_fields(ctx, fields, n_fields, n, CLEF__ARRAYS);
}

clef_dataset *clef_dataset_fields_callback(clef_context *ctx, const clef_field *fields, int n_fields, int64_t n,
                                           clef_fetch_fields_fn fetch, void *user) {
    if (!ctx) return NULL;
    if (!fetch) {
        clef__fail(ctx, CLEF_INVALID, "dataset_fields: fetch is NULL");
        return NULL;
    }
    clef_dataset *data = new_fields(ctx, fields, n_fields, n, CLEF__FIELDS_CALLBACK);
    if (!data) return NULL;
    data->fetch_fields = fetch;
    data->user = user;
    return data;
}

int clef_dataset_field_count(const clef_dataset *data) { return data ? data->n_fields : 0; }

clef_field clef_dataset_field(const clef_dataset *data, int i) {
    if (i < 0 || i >= clef_dataset_field_count(data)) return (clef_field){0};
    const clef__field *f = &data->field[i];
    return (clef_field){.name = f->name,
                        .shape = f->shape,
                        .dtype = f->dtype,
                        .target = f->target,
                        .classes = i == data->label ? data->classes : 0};
}

/* ---- x and y ---- */
static clef_dataset *new_floats(clef_context *ctx, const float *x, clef_shape item, int64_t n, int64_t classes) {
    if (!ctx) return NULL;
    if (!x && n != 0) {
        clef__fail(ctx, CLEF_INVALID, "arrays: x is NULL");
        return NULL;
    }
    clef_dataset *data = clef__dataset_new(ctx, "arrays", CLEF__ARRAYS, item, n, classes);
    return data && (copy_in(data, &data->field[0], x) || give_up(data)) ? data : NULL;
}

/* Fields without items have no data, which clef__dataset_add takes for none to copy. */
clef_dataset *clef_dataset_arrays(clef_context *ctx, const float *x, clef_shape item, const int64_t *y, int64_t n) {
    bool readable = x && y && n >= 0 && (uint64_t)n <= SIZE_MAX / 2 / sizeof *y; /* else it is refused below */
    clef_dataset *data = new_floats(ctx, x, item, n, readable ? count_classes(CLEF_I64, y, n) : 0);
    if (!data || !y) return data;
    return clef__dataset_add(data, &(clef_field){.name = "y", .dtype = CLEF_I64, .data = y, .target = true}) ? data : NULL;
}

clef_dataset *clef_dataset_pairs(clef_context *ctx, const float *x, clef_shape item, const float *y, clef_shape y_item, int64_t n) {
    int64_t numel = y_item.rank >= 0 && y_item.rank < CLEF_MAX_RANK ? clef_shape_numel(y_item) : -1;
    if (ctx && (numel < 1 || numel > INT32_MAX || (!y && n != 0))) {
        clef__fail(ctx, y ? CLEF_SHAPE : CLEF_INVALID, "arrays: targets %s; give a float array and a shape of rank < 8",
                   y ? "have a shape without elements" : "are NULL");
        return NULL;
    }
    clef_dataset *data = new_floats(ctx, x, item, n, 0);
    if (!data) return NULL;
    return clef__dataset_add(data, &(clef_field){.name = "y", .shape = y_item, .data = y, .target = true}) ? data : NULL;
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
