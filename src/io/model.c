/* model.c — a module's parameters and buffers as a safetensors file, by PyTorch's names. */
#include "io_internal.h"

clef_status clef_save(clef_module *module, const char *path) {
    if (!module) return clef__fail(NULL, CLEF_INVALID, "save: the module is NULL");
    /* The layout of PyTorch, which readers look for. */
    static const char *const metadata[] = {"format", "pt", clef__st_checksum_key, "", NULL};
    clef__report report = {0};
    int n;
    clef_named_tensor *list = clef__module_list(module, &n);
    if (!list) clef__report_set(&report, CLEF_MEMORY, "no memory for %d names", n);
    else clef__write_tensors(path, list, n, metadata, &report);
    clef__free(list);
    return report.status == CLEF_OK ? CLEF_OK : clef__report_fail(clef_module_context(module), "save", path, &report);
}

static void load_module(clef_module *module, const clef__reader *reader, clef__report *report) {
    clef_context *ctx = clef_module_context(module);
    clef__st_index index;
    if (clef__st_parse(reader, &index, report) != CLEF_OK) return;
    if (clef__st_verify(reader, &index, NULL, report) != CLEF_OK) {
        clef__st_free(&index);
        return;
    }
    const char *prefix = clef__st_metadata(&index, clef__checkpoint_key) ? "model." : "";
    int n;
    clef_named_tensor *list = clef__module_list(module, &n);
    clef__fill *fill = clef__calloc((size_t)n, sizeof *fill);
    if (!list || !fill) clef__report_set(report, CLEF_MEMORY, "no memory for %d names", n);
    else if (clef__match(&index, prefix, list, n, fill, report) == CLEF_OK &&
             clef__stage(ctx, reader, &index, fill, n, report) == CLEF_OK)
        clef__assign_all(fill, n);
    clef__free(fill);
    clef__free(list);
    clef__st_free(&index);
}

clef_status clef_load(clef_module *module, const char *path) {
    if (!module) return clef__fail(NULL, CLEF_INVALID, "load: the module is NULL");
    clef__report report = {0};
    clef__reader reader;
    if (clef__reader_open(&reader, path, &report) == CLEF_OK) load_module(module, &reader, &report);
    clef__reader_close(&reader);
    return report.status == CLEF_OK ? CLEF_OK : clef__report_fail(clef_module_context(module), "load", path, &report);
}
