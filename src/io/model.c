/* model.c — a module's parameters and buffers as a safetensors file, by PyTorch's names. */
#include "io_internal.h"

clef_status clef__write_model(const char *path, const clef_named_tensor *tensors, int n, clef__report *report) {
    /* The layout of PyTorch, which readers look for. */
    static const char *const metadata[] = {"format", "pt", clef__st_checksum_key, "", NULL};
    return clef__write_tensors(path, tensors, n, metadata, report);
}

clef_status clef_save(clef_module *module, const char *path) {
    if (!module) return clef__fail(NULL, CLEF_INVALID, "save: the module is NULL");
    clef__report report = {0};
    int n;
    clef_named_tensor *list = clef__module_list(module, &n);
    if (!list) clef__report_set(&report, CLEF_MEMORY, "no memory for %d names", n);
    else clef__write_model(path, list, n, &report);
    clef__free(list);
    return report.status == CLEF_OK ? CLEF_OK : clef__report_fail(clef_module_context(module), "save", path, &report);
}

typedef struct loading {
    clef_module *module;
    bool partial;
    clef_load_result *result; /* NULL: nobody asks */
} loading;

/* Fills the module from a checked file: first what fits is found out, then read, then assigned. */
static void fill_module(const loading *l, const clef__reader *reader, const clef__st_index *index, clef__report *report) {
    clef_context *ctx = clef_module_context(l->module);
    const char *prefix = clef__st_metadata(index, clef__checkpoint_key) ? "model." : "";
    int n, fits = 0;
    clef_named_tensor *list = clef__module_list(l->module, &n);
    clef__fill *fill = clef__calloc((size_t)n, sizeof *fill);
    if (!list || !fill) clef__report_set(report, CLEF_MEMORY, "no memory for %d names", n);
    else if (l->partial || l->result) clef__match_partial(ctx, index, prefix, list, n, fill, &fits, report);
    if (l->result && !report->status) clef__load_result(ctx, 0, l->result);
    if (!l->partial && !report->status) {
        clef__match(index, prefix, list, n, fill, report);
        fits = n;
    }
    if (!report->status && !clef__stage(ctx, reader, index, fill, fits, report)) {
        clef__assign_all(fill, fits);
        if (l->result) l->result->n_loaded = fits;
    }
    clef__free(fill);
    clef__free(list);
}

static void load_module(const loading *l, const clef__reader *reader, clef__report *report) {
    clef__st_index index;
    if (clef__st_parse(reader, &index, report) != CLEF_OK) return;
    if (clef__st_verify(reader, &index, NULL, report) == CLEF_OK) fill_module(l, reader, &index, report);
    clef__st_free(&index);
}

clef_status clef_load(clef_module *module, const char *path) { return clef_load_with(module, path, NULL, NULL); }

clef_status clef_load_with(clef_module *module, const char *path, const clef_load_options *options, clef_load_result *result) {
    if (result) *result = (clef_load_result){0};
    if (!module) return clef__fail(NULL, CLEF_INVALID, "load: the module is NULL");
    clef__report report = {0};
    clef__reader reader;
    loading l = {module, options && options->partial, result};
    if (clef__reader_open(&reader, path, &report) == CLEF_OK) load_module(&l, &reader, &report);
    clef__reader_close(&reader);
    return report.status == CLEF_OK ? CLEF_OK : clef__report_fail(clef_module_context(module), "load", path, &report);
}
