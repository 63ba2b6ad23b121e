/* summary.c — a table of what runs when a module is given these inputs.

   Forward is built lazily in evaluation mode, in a dry run, and never computed: shapes come from the nodes.  It is recorded for
   gradients, because nodes then remember their inputs in eager mode too.  A node is credited to the innermost module whose
   run made it.  MACs are those of convolutions and matrix products. */
#include "graph/graph.h"
#include "nn/module.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* One output of one run, or a module that was never called. */
typedef struct row {
    const clef_module *module;
    clef_shape output;
    double macs, bytes; /* bytes: of the output, where it is new memory, seen as it is made or through a view */
    bool further;       /* not the first output */
    bool again;         /* the module ran before */
    bool never;
} row;

/* A node that the walk knows. */
typedef struct known {
    const clef__node *node;
    bool credited;
    int input_of; /* the last run that it was an input of, from 1 */
} known;

typedef struct summary {
    clef_module *root;
    row *row;
    int n, capacity;
    known *known; /* open addressing */
    size_t n_known, slots;
    int runs;
    bool failed;
} summary;

/* ---- nodes ---- */
static size_t slot_of(const known *table, size_t slots, const clef__node *node) {
    size_t i = (size_t)((uintptr_t)node / 16 * 0x9e3779b97f4a7c15u) & (slots - 1);
    while (table[i].node && table[i].node != node) i = (i + 1) & (slots - 1);
    return i;
}

static bool grow_known(summary *s) {
    size_t slots = s->slots ? 2 * s->slots : 256;
    known *table = clef__calloc(slots, sizeof *table);
    if (!table) return false;
    for (size_t i = 0; i < s->slots; i++)
        if (s->known[i].node) table[slot_of(table, slots, s->known[i].node)] = s->known[i];
    clef__free(s->known);
    s->known = table;
    s->slots = slots;
    return true;
}

/* NULL when there is no memory; valid until the next one. */
static known *know(summary *s, const clef__node *node) {
    if (2 * s->n_known >= s->slots && !grow_known(s)) {
        s->failed = true;
        return NULL;
    }
    known *k = &s->known[slot_of(s->known, s->slots, node)];
    if (!k->node) s->n_known++;
    k->node = node;
    return k;
}

/* Was it made by this run of a module, and not by one inside? */
static bool is_own(summary *s, const clef__node *node) {
    const known *k = know(s, node);
    return k && !k->credited && k->input_of != s->runs;
}

/* ---- one module's work ---- */
/* Multiply-accumulates: half the operations of products and convolutions, the ops that have a cost of their own. */
static double node_macs(const clef__node *node) {
    double flops = 0, bytes = 0;
    if (node->op->cost) node->op->cost(node, &flops, &bytes);
    return flops / 2;
}

/* Credits what lies between inputs and an output and nobody has claimed yet; parameters end the walk. */
static void credit(summary *s, const clef__output *out, row *r) {
    const clef__node *node = out->node;
    if (out->leaf || !is_own(s, node)) return;
    know(s, node)->credited = true;
    r->macs += node_macs(node);
    for (int i = 0; i < node->n_inputs; i++) credit(s, node->input[i], r);
}

static row *add_row(summary *s) {
    if (!clef__grow(&s->row, s->n, &s->capacity, sizeof *s->row)) {
        s->failed = true;
        return NULL;
    }
    return memset(&s->row[s->n++], 0, sizeof *s->row);
}

static bool has_children(const clef_module *m) {
    for (int i = 0; i < m->n; i++)
        if (m->entry[i].kind == CLEF__CHILD) return true;
    return false;
}

static bool ran(const summary *s, const clef_module *m) {
    for (int i = 0; i < s->n; i++)
        if (s->row[i].module == m) return true;
    return false;
}

/* Of output k, where it is memory that this run made and no output before it is. */
static double new_bytes(summary *s, const clef__run *run, int k) {
    const clef__output *made = clef__viewed(clef__output_of(run->output[k]));
    if (made->node->op->kind == CLEF__VIEW || made->leaf || !is_own(s, made->node)) return 0;
    for (int i = 0; i < k; i++)
        if (clef__viewed(clef__output_of(run->output[i])) == made) return 0;
    return clef__output_bytes(made);
}

static void observe(void *user, const clef__run *run) {
    summary *s = user;
    s->runs++;
    for (int i = 0; i < run->n_inputs && !s->failed; i++) {
        const clef__node *node = clef__node_of(run->input[i]);
        known *k = node ? know(s, node) : NULL;
        if (k) k->input_of = s->runs;
    }
    bool again = ran(s, run->module);
    int first = s->n;
    for (int k = 0; k < run->n_outputs && !s->failed; k++) {
        row *r = add_row(s);
        if (!r) return;
        *r = (row){.module = run->module, .output = clef_tensor_shape(run->output[k]), .further = k > 0, .again = again};
        r->bytes = new_bytes(s, run, k);
    }
    for (int k = 0; k < run->n_outputs && !s->failed; k++) credit(s, clef__output_of(run->output[k]), &s->row[first]);
}

/* ---- running ---- */
static const clef_module *first_leaf(const clef_module *m) {
    for (int i = 0; i < m->n; i++)
        if (m->entry[i].kind == CLEF__CHILD) return first_leaf(m->entry[i].child);
    return m;
}

static bool run_observed(summary *s, clef_tensor *const *inputs, int n, int m) {
    clef_tensor *out[CLEF_CALL_MOST];
    clef_context *ctx = s->root->ctx;
    if (clef__nn_observe(ctx, observe, s)) return false;
    bool was = clef_set_grad_enabled(ctx, true);
    clef_status status = clef_call(s->root, inputs, n, out, m);
    clef_set_grad_enabled(ctx, was);
    clef__nn_observe(ctx, NULL, NULL);
    return !status && !s->failed;
}

/* Leaves no trace: modes, random numbers and kept tensors come back. */
static bool run_dry(summary *s, clef_tensor *const *inputs, int n, int m) {
    clef_context *ctx = s->root->ctx;
    clef_random_state random = clef_random_get(ctx);
    bool dry = clef_set_dry_run(ctx, true), inference = clef__nn_inference(ctx, true);
    bool done = run_observed(s, inputs, n, m);
    clef__nn_inference(ctx, inference);
    clef_set_dry_run(ctx, dry);
    clef_random_set(ctx, random);
    return done;
}

static void add_never(clef_module *m, void *user) {
    summary *s = user;
    if (s->failed || ran(s, m)) return;
    row *r = add_row(s);
    if (r) *r = (row){.module = m, .never = true};
}

/* ---- text ---- */
typedef struct writer {
    char *text;
    size_t size;
    int length;
} writer;

static void put_text(writer *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void put_text(writer *w, const char *fmt, ...) {
    size_t used = (size_t)w->length < w->size ? (size_t)w->length : w->size;
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(w->text && used < w->size ? w->text + used : NULL, w->text ? w->size - used : 0, fmt, args);
    va_end(args);
    if (n > 0) w->length += n;
}

/* 1234567 → "1,234,567". */
static const char *grouped(char out[40], double value) {
    char digits[32];
    int n = snprintf(digits, sizeof digits, "%.0f", value), at = 0;
    for (int i = 0; i < n; i++) {
        if (i && (n - i) % 3 == 0) out[at++] = ',';
        out[at++] = digits[i];
    }
    out[at] = 0;
    return out;
}

const char *clef__human(char out[40], double bytes) {
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int i = 0;
    while (bytes >= 1024 && i < 4) bytes /= 1024, i++;
    snprintf(out, 40, i ? "%.1f %s" : "%.0f %s", bytes, unit[i]);
    return out;
}

static int64_t own_parameters(const clef_module *m) {
    int64_t total = 0;
    for (int i = 0; i < m->n; i++)
        if (m->entry[i].kind == CLEF__PARAMETER) total += clef_numel(m->entry[i].tensor);
    return total;
}

/* Containers show only where they own parameters or make something themselves: `r` is the first output's row. */
static bool shown(const row *r, const row *end) {
    bool makes = !has_children(r->module) || own_parameters(r->module) > 0;
    for (const row *i = r; !makes && i < end && (i == r || i->further); i++) makes = i->macs > 0 || i->bytes > 0;
    return makes;
}

/* The line's text in `width` columns; what does not fit ends in "..", or begins with it where the end says more. */
static void put_cell(writer *w, const char *text, int width, bool end_first) {
    int length = (int)strlen(text);
    if (length <= width) put_text(w, "%-*s ", width, text);
    else if (end_first) put_text(w, "..%s ", text + length - width + 2);
    else put_text(w, "%.*s.. ", width - 2, text);
}

static void put_row(writer *w, const clef_module *root, const row *r) {
    char path[256] = "", shape[160], parameters[40], macs[40], bytes[40];
    if (!clef__module_path(root, r->module, path, sizeof path) || !path[0]) snprintf(path, sizeof path, "-");
    grouped(parameters, (double)own_parameters(r->module));
    put_cell(w, r->further ? "" : path, 22, true);
    put_cell(w, r->further ? "" : r->module->type, 17, false);
    put_cell(w, r->never ? "never called" : clef_shape_format(r->output, shape, sizeof shape), 20, false);
    put_text(w, "%11s %15s %10s\n",
             r->further ? ""
             : r->again ? "again"
                        : parameters,
             r->further || r->never ? "" : grouped(macs, r->macs), r->never ? "" : clef__human(bytes, r->bytes));
}

/* Bytes of the tensors of the tree: parameters, those of them that want gradients, buffers. */
static void tensor_bytes(const clef_module *m, double *parameters, double *trained, double *buffers) {
    int n = clef_module_tensors(m);
    for (int i = 0; i < n; i++) {
        clef_named_tensor t = clef_module_tensor(m, i);
        double bytes = (double)clef_numel(t.tensor) * (double)clef_dtype_size(clef_tensor_dtype(t.tensor));
        *(t.is_buffer ? buffers : parameters) += bytes;
        if (!t.is_buffer && clef_requires_grad(t.tensor)) *trained += bytes;
    }
}

static void put_inputs(writer *w, clef_tensor *const *inputs, int n) {
    char shape[160];
    for (int i = 0; i < n; i++) {
        const char *text = inputs[i] == CLEF_NONE ? "none" : clef_shape_format(clef_tensor_shape(inputs[i]), shape, sizeof shape);
        if (n == 1) put_text(w, "input %s: ", text);
        else
            put_text(w, "input %d %s%s%s\n", i, text, inputs[i] == CLEF_NONE ? "" : " ",
                     inputs[i] == CLEF_NONE ? "" : clef_dtype_name(clef_tensor_dtype(inputs[i])));
    }
}

/* In a context of several devices, what lies on each. */
static void put_places(writer *w, const clef_module *root) {
    int devices = clef__context_devices(root->ctx), n = clef_module_tensors(root);
    for (int d = 0; d < devices && devices > 1; d++) {
        double bytes = 0;
        for (int i = 0; i < n; i++) {
            const clef_tensor *t = root->flat[i].tensor;
            if (clef_tensor_device(t) == d) bytes += (double)clef_numel(t) * (double)clef_dtype_size(clef_tensor_dtype(t));
        }
        char text[40];
        put_text(w, "device %d: parameters and buffers %s\n", d, clef__human(text, bytes));
    }
}

static void put_totals(writer *w, const summary *s) {
    double macs = 0, outputs = 0, parameters = 0, trained = 0, buffers = 0;
    for (int i = 0; i < s->n; i++) macs += s->row[i].macs, outputs += s->row[i].bytes;
    tensor_bytes(s->root, &parameters, &trained, &buffers);
    char a[40], b[40], c[40], d[40];
    put_text(w, "%s parameters, %s MACs\n", grouped(a, (double)clef_parameter_count(s->root)), grouped(b, macs));
    put_text(w, "memory: parameters %s, gradients %s, buffers %s, layer outputs %s\n", clef__human(a, parameters),
             clef__human(b, trained), clef__human(c, buffers), clef__human(d, outputs));
    put_places(w, s->root);
}

static void put_table(writer *w, const summary *s) {
    put_text(w, "%-22s %-17s %-20s %11s %15s %10s\n", "layer", "type", "output", "parameters", "MACs", "memory");
    bool show = false;
    for (int i = 0; i < s->n; i++) {
        if (!s->row[i].further) show = shown(&s->row[i], s->row + s->n);
        if (show) put_row(w, s->root, &s->row[i]);
    }
}

int clef_summary_call(clef_module *module, clef_tensor *const *inputs, int n, int m, char *text, size_t size) {
    if (size && text) *text = 0;
    if (!module) return -1;
    summary s = {.root = module};
    writer w = {.text = text, .size = text ? size : 0};
    bool done = run_dry(&s, inputs, n, m);
    if (done) clef__module_visit(module, add_never, &s);
    if (done && !s.failed) {
        put_table(&w, &s);
        put_inputs(&w, inputs, n);
        put_totals(&w, &s);
    } else if (s.failed) clef__fail(module->ctx, CLEF_MEMORY, "summary: no memory for the table");
    clef__free(s.row);
    clef__free(s.known);
    return done && !s.failed ? w.length : -1;
}

/* Zeros: of whole numbers where the first layer looks up indices. */
int clef_summary(clef_module *module, clef_shape input, char *text, size_t size) {
    if (size && text) *text = 0;
    if (!module) return -1;
    bool indices = !strcmp(first_leaf(module)->type, "embedding");
    clef_tensor *x = clef_zeros(module->ctx, input, indices ? CLEF_I64 : CLEF_F32);
    return x ? clef_summary_call(module, &x, 1, module->n_outputs ? module->n_outputs : 1, text, size) : -1;
}
