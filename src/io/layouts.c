/* layouts.c — how the tensors of a checkpoint lie in memory, as text: a line "10 model.0.weight" for each that does not lie row-major, with its
   dimensions from outermost to innermost.  See ops/memory_order.c. */
#include "io_internal.h"
#include "ops/memory_order.h"
#include <string.h>

char *clef__layouts_text(const clef_named_tensor *tensors, int n, clef__report *report) {
    clef__text text = {0};
    clef__compute_tensors(tensors, n, report);
    clef__text_append(&text, "");
    for (int i = 0; i < n && !report->status; i++) {
        int order[CLEF_MAX_RANK];
        if (strchr(tensors[i].name, '\n') || !clef__memory_order_of(tensors[i].tensor, order)) continue;
        for (int d = 0; d < clef_tensor_shape(tensors[i].tensor).rank; d++) clef__text_add(&text, "%d", order[d]);
        clef__text_add(&text, " %s\n", tensors[i].name);
    }
    if (text.failed) clef__report_set(report, CLEF_MEMORY, "no memory for how %d tensors lie", n);
    if (report->status == CLEF_OK) return text.data;
    clef__free(text.data);
    return NULL;
}

static clef__fill *find(clef__fill *fill, int n, const char *name, size_t length) {
    for (int i = 0; i < n; i++)
        if (strncmp(fill[i].source->name, name, length) == 0 && !fill[i].source->name[length]) return &fill[i];
    return NULL;
}

/* The file may hold anything. */
static bool apply(const char *line, size_t length, clef__fill *fill, int n) {
    int order[CLEF_MAX_RANK], rank = 0;
    for (; rank < CLEF_MAX_RANK && (size_t)rank < length && line[rank] >= '0' && line[rank] <= '9'; rank++)
        order[rank] = line[rank] - '0';
    size_t at = (size_t)rank + 1;
    if (at > length || line[rank] != ' ') return false;
    clef__fill *f = find(fill, n, line + at, length - at);
    if (!f || clef_tensor_shape(f->value).rank != rank || !clef__is_order(order, rank)) return false;
    f->value = clef__in_memory_order(f->value, order);
    return f->value && clef_eval(f->value) == CLEF_OK;
}

void clef__layouts_apply(clef_context *ctx, const char *text, clef__fill *fill, int n, clef__report *report) {
    bool was = clef_set_grad_enabled(ctx, false);
    for (size_t length; *text && report->status == CLEF_OK; text += length + (text[length] != 0)) {
        length = strcspn(text, "\n");
        if (apply(text, length, fill, n)) continue;
        clef_status status = clef_error_status(ctx);
        clef__report_set(report, status ? status : CLEF_FORMAT,
                         status ? "a tensor could not be laid as it lay" : "has a damaged list of how tensors lie");
    }
    clef_set_grad_enabled(ctx, was);
}
