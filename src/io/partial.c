/* partial.c — comparing a module with a file by names, and filling what fits. */
#include "io_internal.h"
#include <string.h>

/* ---- the lists ---- */
enum { MISSING, UNEXPECTED, MISMATCHED, LISTS };

/* What the context holds until its next clef_load_with. */
struct clef__load_lists {
    char **name[LISTS];
    int n[LISTS], capacity[LISTS];
};

static void empty_lists(clef__load_lists *lists) {
    for (int l = 0; l < LISTS; l++) {
        for (int i = 0; i < lists->n[l]; i++) clef__free(lists->name[l][i]);
        clef__free(lists->name[l]);
    }
    *lists = (clef__load_lists){0};
}

void clef__load_lists_free(clef__load_lists *lists) {
    if (lists) empty_lists(lists);
    clef__free(lists);
}

/* Those of this context, empty; NULL without memory. */
static clef__load_lists *new_lists(clef_context *ctx) {
    clef__io *io = clef__io_of(ctx);
    if (!io) return NULL;
    if (!io->lists) io->lists = clef__calloc(1, sizeof *io->lists);
    if (io->lists) empty_lists(io->lists);
    return io->lists;
}

static bool list_name(clef__load_lists *lists, int list, const char *name, clef__report *report) {
    char *copy = clef__grow(&lists->name[list], lists->n[list], &lists->capacity[list], sizeof copy) ? clef__strdup(name) : NULL;
    if (!copy) return clef__report_set(report, CLEF_MEMORY, "no memory for a list of names"), false;
    lists->name[list][lists->n[list]++] = copy;
    return true;
}

/* ---- comparing ---- */
typedef struct comparison {
    const clef__st_index *index;
    const char *prefix;
    const clef_named_tensor *target;
    int n;
    clef__fill *fill; /* of those that fit */
    int n_fits;
    bool *wanted; /* of each tensor of the file: does a target have its name? */
    clef__load_lists *lists;
    clef__report *report;
} comparison;

static bool compare_target(comparison *c, const clef_named_tensor *t) {
    char *name = clef__asprintf("%s%s", c->prefix, t->name);
    if (!name) return clef__report_set(c->report, CLEF_MEMORY, "no memory for a name"), false;
    const clef__st_tensor *source = clef__st_find(c->index, name);
    clef__free(name);
    if (!source) return list_name(c->lists, MISSING, t->name, c->report);
    c->wanted[source - c->index->tensor] = true;
    bool fits = clef_shape_equal(source->shape, clef_tensor_shape(t->tensor)) &&
                clef__convertible(source->dtype, clef_tensor_dtype(t->tensor));
    if (!fits) return list_name(c->lists, MISMATCHED, t->name, c->report);
    c->fill[c->n_fits++] = (clef__fill){.target = t->tensor, .source = source};
    return true;
}

static bool compare(comparison *c) {
    size_t length = strlen(c->prefix);
    for (int i = 0; i < c->n; i++)
        if (!compare_target(c, &c->target[i])) return false;
    for (int i = 0; i < c->index->n; i++) {
        const char *name = c->index->tensor[i].name;
        if (!c->wanted[i] && !strncmp(name, c->prefix, length) && !list_name(c->lists, UNEXPECTED, name + length, c->report))
            return false;
    }
    return true;
}

clef_status clef__match_partial(clef_context *ctx, const clef__st_index *index, const char *prefix,
                                const clef_named_tensor *targets, int n, clef__fill *fill, int *n_fits, clef__report *report) {
    comparison c = {.index = index, .prefix = prefix, .target = targets, .n = n, .fill = fill, .report = report};
    c.lists = new_lists(ctx);
    c.wanted = clef__calloc(index->n ? (size_t)index->n : 1, sizeof *c.wanted);
    if (!c.lists || !c.wanted) clef__report_set(report, CLEF_MEMORY, "no memory for %d names", index->n);
    else compare(&c);
    clef__free(c.wanted);
    *n_fits = c.n_fits;
    return report->status;
}

void clef__load_result(clef_context *ctx, int n_loaded, clef_load_result *result) {
    const clef__load_lists *l = clef__io_of(ctx)->lists;
    *result = (clef_load_result){.n_loaded = n_loaded,
                                 .n_missing = l->n[MISSING],
                                 .n_unexpected = l->n[UNEXPECTED],
                                 .n_mismatched = l->n[MISMATCHED],
                                 .missing = (const char *const *)l->name[MISSING],
                                 .unexpected = (const char *const *)l->name[UNEXPECTED],
                                 .mismatched = (const char *const *)l->name[MISMATCHED]};
}
