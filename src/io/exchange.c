/* exchange.c — named tensors to a file and back.  Filling goes in three stages: match checks names, shapes and
   dtypes of everything, stage reads and uploads everything, and only then assign changes the targets. */
#include "io_internal.h"
#include "runtime/guess.h"
#include <string.h>

/* ---- writing ---- */
static clef_status read_tensor(void *user, int i, void *out, size_t bytes, clef__report *report) {
    const clef_named_tensor *tensors = user;
    clef_status status = clef_read(tensors[i].tensor, out, bytes);
    if (status != CLEF_OK) clef__report_set(report, status, "tensor %s could not be computed", clef__quote(tensors[i].name).text);
    return status;
}

/* One plan for whatever is not computed yet. */
void clef__compute_tensors(const clef_named_tensor *tensors, int n, clef__report *report) {
    clef_tensor **all = clef__alloc((size_t)n * sizeof *all);
    for (int i = 0; all && i < n; i++) all[i] = tensors[i].tensor;
    clef_status status = !all ? CLEF_MEMORY : n ? clef_eval_all(all, n) : CLEF_OK;
    if (status != CLEF_OK) clef__report_set(report, status, "the tensors could not be computed");
    clef__free(all);
}

clef_status clef__write_tensors(const char *path, const clef_named_tensor *tensors, int n, const char *const *metadata,
                                clef__report *report) {
    clef__st_item *items = clef__calloc((size_t)n, sizeof *items);
    if (!items) return clef__report_set(report, CLEF_MEMORY, "no memory for %d names", n);
    for (int i = 0; i < n; i++) {
        if (!tensors[i].tensor || tensors[i].tensor == CLEF_NONE || !tensors[i].name) {
            clef__report_set(report, CLEF_INVALID, "tensor %d (%s) is %s", i, tensors[i].name ? tensors[i].name : "no name",
                             tensors[i].tensor == CLEF_NONE ? "CLEF_NONE" : "NULL");
            break;
        }
        items[i] = (clef__st_item){tensors[i].name, clef_tensor_shape(tensors[i].tensor), clef_tensor_dtype(tensors[i].tensor)};
    }
    if (report->status == CLEF_OK) clef__compute_tensors(tensors, n, report);
    if (report->status == CLEF_OK) clef__st_write(path, items, n, metadata, read_tensor, (void *)(uintptr_t)tensors, report);
    clef__free(items);
    return report->status;
}

/* ---- filling ---- */
static bool match_one(const clef__st_tensor *source, const char *name, clef_tensor *target, clef__report *report) {
    char in_file[96], wanted[96];
    clef_shape shape = clef_tensor_shape(target);
    clef_dtype dtype = clef_tensor_dtype(target);
    if (!clef_shape_equal(source->shape, shape)) {
        clef__report_set(report, CLEF_SHAPE, "tensor %s is %s in the file but %s here", clef__quote(name).text,
                         clef_shape_format(source->shape, in_file, sizeof in_file),
                         clef_shape_format(shape, wanted, sizeof wanted));
        return false;
    }
    if (!clef__convertible(source->dtype, dtype)) {
        clef__report_set(report, CLEF_DTYPE, "tensor %s is %s in the file but %s here", clef__quote(name).text,
                         clef_dtype_name(source->dtype), clef_dtype_name(dtype));
        return false;
    }
    return true;
}

static bool has_prefix(const clef__st_tensor *tensor, const char *prefix) {
    return strncmp(tensor->name, prefix, strlen(prefix)) == 0;
}

/* Names the first tensor under prefix that no target wants. */
static void find_surplus(const clef__st_index *index, const char *prefix, const clef__fill *fill, int n, clef__report *report) {
    bool *wanted = clef__calloc((size_t)index->n, sizeof *wanted);
    if (!wanted) {
        clef__report_set(report, CLEF_MEMORY, "no memory for %d names", index->n);
        return;
    }
    for (int i = 0; i < n; i++) wanted[fill[i].source - index->tensor] = true;
    for (int i = 0; i < index->n; i++)
        if (!wanted[i] && has_prefix(&index->tensor[i], prefix))
            clef__report_set(report, CLEF_FORMAT, "has a tensor %s that nothing here wants",
                             clef__quote(index->tensor[i].name).text);
    clef__free(wanted);
}

/* Says so, and which tensor that no target wants may be meant. */
static bool refuse_missing(const clef__st_index *index, const char *prefix, const clef_named_tensor *targets, int n,
                           const char *name, clef__report *report) {
    clef__guess guess = {.word = name};
    for (int i = 0; i < index->n; i++) {
        const char *there = index->tensor[i].name, *own = has_prefix(&index->tensor[i], prefix) ? there + strlen(prefix) : there;
        bool wanted = false;
        for (int t = 0; t < n && !wanted; t++) wanted = targets[t].name && !strcmp(targets[t].name, own);
        if (!wanted) clef__guess_offer(&guess, there);
    }
    clef__report_set(report, CLEF_FORMAT, "has no tensor %s%s%s", clef__quote(name).text, guess.best ? "; the nearest is " : "",
                     guess.best ? clef__quote(guess.best).text : "");
    return false;
}

clef_status clef__match(const clef__st_index *index, const char *prefix, const clef_named_tensor *targets, int n, clef__fill *fill,
                        clef__report *report) {
    for (int i = 0; i < n; i++) {
        if (!targets[i].name || !targets[i].tensor) return clef__report_set(report, CLEF_INVALID, "target %d is NULL", i);
        char *name = clef__asprintf("%s%s", prefix, targets[i].name);
        if (!name) return clef__report_set(report, CLEF_MEMORY, "no memory for a name");
        fill[i] = (clef__fill){.target = targets[i].tensor, .source = clef__st_find(index, name)};
        bool fits = fill[i].source ? match_one(fill[i].source, name, targets[i].tensor, report)
                                   : refuse_missing(index, prefix, targets, n, name, report);
        clef__free(name);
        if (!fits) return report->status;
    }
    find_surplus(index, prefix, fill, n, report);
    return report->status;
}

/* A tensor of this dtype with a file's values, on this device; NULL after a report. */
clef_tensor *clef__upload(clef_context *ctx, int device, const clef__reader *reader, const clef__st_index *index,
                          const clef__st_tensor *source, clef_dtype dtype, clef__report *report) {
    uint64_t bytes = source->end - source->begin, converted_bytes = 0;
    bool same = source->dtype == dtype, fits = clef__tensor_bytes(source->shape, dtype, &converted_bytes);
    void *data = clef__alloc((size_t)bytes);
    void *converted = same || !fits ? data : clef__alloc((size_t)converted_bytes);
    clef_tensor *tensor = NULL;
    if (!data || !converted || !fits)
        clef__report_set(report, CLEF_MEMORY, "no memory for tensor %s", clef__quote(source->name).text);
    else if (clef__st_read(reader, index, source, data, report) == CLEF_OK) {
        if (!same) clef__convert(data, source->dtype, converted, dtype, clef_shape_numel(source->shape));
        tensor = clef_from_host_on(ctx, device, source->shape, dtype, converted);
        if (!tensor) clef__report_set(report, CLEF_DEVICE, "tensor %s cannot be put on the device", clef__quote(source->name).text);
    }
    if (converted != data) clef__free(converted);
    clef__free(data);
    return tensor;
}

clef_status clef__stage(clef_context *ctx, const clef__reader *reader, const clef__st_index *index, clef__fill *fill, int n,
                        clef__report *report) {
    for (int i = 0; i < n; i++) {
        const clef_tensor *target = fill[i].target;
        fill[i].value =
            clef__upload(ctx, clef_tensor_device(target), reader, index, fill[i].source, clef_tensor_dtype(target), report);
        if (!fill[i].value) break;
    }
    return report->status;
}

/* A value of the right dtype on the right device becomes that of a tensor which wants no gradient without any memory: so
   either all targets get theirs or, when something failed before, none. */
void clef__assign_all(const clef__fill *fill, int n) {
    for (int i = 0; i < n; i++) {
        bool wants = clef_requires_grad(fill[i].target);
        if (wants) clef_require_grad(fill[i].target, false);
        (void)clef_assign(fill[i].target, fill[i].value);
        if (wants) clef_require_grad(fill[i].target, true);
    }
}

clef_named_tensor *clef__module_list(const clef_module *module, int *n) {
    *n = clef_module_tensors(module);
    clef_named_tensor *list = clef__calloc((size_t)*n, sizeof *list);
    for (int i = 0; list && i < *n; i++) list[i] = clef_module_tensor(module, i);
    return list;
}
