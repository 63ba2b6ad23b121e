/* replicate.c — the tensors of a module on rank 0, for all ranks of a group: the same start everywhere. */
#include "group/group.h"
#include "nn/module.h"
#include "ops/ops.h"
#include <stdio.h>
#include <string.h>

enum { LINE = 512 };

/* What goes ahead. */
typedef struct head {
    int64_t bytes; /* of the list */
    clef_random_state random;
} head;

static clef_status no_memory(const clef_module *m) { return clef__fail(m->ctx, CLEF_MEMORY, "replicate: no host memory"); }

/* "weight f32 [4,4] parameter\n" and so on; from clef__alloc; NULL without memory. */
static char *list_tensors(const clef_module *m, int64_t *bytes) {
    size_t size = 1, at = 0;
    int n = clef_module_tensors(m);
    for (int i = 0; i < n; i++) size += strlen(clef_module_tensor(m, i).name) + 200;
    char *list = clef__alloc(size);
    for (int i = 0; i < n && list; i++) {
        clef_named_tensor t = clef_module_tensor(m, i);
        at += (size_t)snprintf(list + at, size - at, "%s %s %s %s\n", t.name, clef_dtype_name(clef_tensor_dtype(t.tensor)),
                               clef__shape_text(clef_tensor_shape(t.tensor)), t.is_buffer ? "buffer" : "parameter");
    }
    if (list) list[at] = 0;
    *bytes = (int64_t)at + 1;
    return list;
}

static int length_of_line(const char *text) { return (int)strcspn(text, "\n"); }

/* The first lines in which the lists differ: "A, and rank 0 B"; else "". */
static void first_difference(const char *own, const char *root, char *line) {
    *line = 0;
    for (int n, m; *own || *root; own += n + (own[n] != 0), root += m + (root[m] != 0)) {
        n = length_of_line(own), m = length_of_line(root);
        if (n == m && !memcmp(own, root, (size_t)n)) continue;
        snprintf(line, LINE, "has %.*s where rank 0 has %.*s",
                 n && n < 200 ? n
                 : n          ? 200
                              : 7,
                 n ? own : "nothing",
                 m && m < 200 ? m
                 : m          ? 200
                              : 7,
                 m ? root : "nothing");
        return;
    }
}

/* All ranks get the line of the first that differs. */
static clef_status agree(const clef_module *m, clef_group *group, const char *own_line) {
    int size = clef_group_size(group);
    char(*line)[LINE] = clef__calloc((size_t)size, sizeof *line);
    if (!line) return no_memory(m);
    clef_status status = clef_group_gather_bytes(group, own_line, line, LINE);
    for (int r = 0; r < size && !status; r++)
        if (line[r][0])
            status = clef__fail(m->ctx, CLEF_GROUP, "replicate: %s %s; every rank makes the same module",
                                clef_group_rank_name(group, r), line[r]);
    clef__free(line);
    return status;
}

static clef_status compare(const clef_module *m, clef_group *group, const char *own, head h) {
    char line[LINE] = "";
    char *root = clef__alloc((size_t)h.bytes);
    if (!root) return no_memory(m);
    if (clef_group_rank(group) == 0) memcpy(root, own, (size_t)h.bytes);
    clef_status status = clef_group_broadcast_bytes(group, 0, root, (size_t)h.bytes);
    if (!status) first_difference(own, root, line);
    clef__free(root);
    return status ? status : agree(m, group, line);
}

static clef_status take_values(const clef_module *m, clef_group *group) {
    int n = clef_module_tensors(m);
    clef_status status = CLEF_OK;
    clef_tensor **t = clef__calloc(n ? (size_t)n : 1, sizeof *t);
    if (!t) return no_memory(m);
    for (CLEF_NO_GRAD(m->ctx))
        for (int i = 0; i < n && !status; i++) {
            t[i] = clef_module_tensor(m, i).tensor;
            clef_tensor *value = clef_broadcast(t[i], group, 0);
            status = value ? clef_assign(t[i], value) : clef_error_status(m->ctx);
        }
    if (!status && n) status = clef_eval_all(t, n);
    clef__free(t);
    return status;
}

clef_status clef_replicate(clef_module *module, clef_group *group) {
    if (!module) return CLEF_INVALID;
    if (group && group->ctx != module->ctx)
        return clef__fail(module->ctx, CLEF_INVALID, "replicate: the group belongs to another context; each rank has its own");
    if (clef_group_size(group) == 1) return CLEF_OK;
    head h = {.random = clef_random_get(module->ctx)};
    char *own = list_tensors(module, &h.bytes);
    if (!own) return no_memory(module);
    clef_status status = clef_group_broadcast_bytes(group, 0, &h, sizeof h);
    if (!status) status = compare(module, group, own, h);
    if (!status) status = take_values(module, group);
    if (!status) clef_random_set(module->ctx, h.random);
    clef__free(own);
    return status;
}
