/* summary.c — a table of what a module does to an input of a given shape.

   Forward is built lazily on zeros, in evaluation mode, and never evaluated: shapes come from the nodes.  It is recorded for
   gradients, because nodes then remember their inputs in eager mode too.  A node is credited to the innermost module whose
   forward made it.  MACs are those of convolutions and matrix products. */
#include "graph/graph.h"
#include "nn/module.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct row {
    const clef_module *module;
    clef_shape output;
    double macs, bytes; /* bytes: of the output, where it is new memory, seen as it is made or through a view */
} row;

typedef struct summary {
    clef_module *root;
    row *row;
    int n, capacity;
    const clef__node **seen; /* open addressing; every node already credited */
    size_t n_seen, slots;
    bool failed;
} summary;

/* ---- nodes seen ---- */
static size_t slot_of(const clef__node *const *table, size_t slots, const clef__node *node) {
    size_t i = (size_t)((uintptr_t)node / 16 * 0x9e3779b97f4a7c15u) & (slots - 1);
    while (table[i] && table[i] != node) i = (i + 1) & (slots - 1);
    return i;
}

static bool grow_seen(summary *s) {
    size_t slots = s->slots ? 2 * s->slots : 256;
    const clef__node **table = clef__calloc(slots, sizeof *table);
    if (!table) return false;
    for (size_t i = 0; i < s->slots; i++)
        if (s->seen[i]) table[slot_of(table, slots, s->seen[i])] = s->seen[i];
    clef__free(s->seen);
    s->seen = table;
    s->slots = slots;
    return true;
}

/* False when the node was there already (or there is no memory). */
static bool see(summary *s, const clef__node *node) {
    if (2 * s->n_seen >= s->slots && !grow_seen(s)) {
        s->failed = true;
        return false;
    }
    size_t i = slot_of(s->seen, s->slots, node);
    if (s->seen[i]) return false;
    s->seen[i] = node;
    s->n_seen++;
    return true;
}

/* ---- one module's work ---- */
/* Multiply-accumulates: half the operations of products and convolutions, the ops that have a cost of their own. */
static double node_macs(const clef__node *node) {
    double flops = 0, bytes = 0;
    if (node->op->cost) node->op->cost(node, &flops, &bytes);
    return flops / 2;
}

/* Credits what lies between x and y and nobody has claimed yet; parameters end the walk. */
static void credit(summary *s, const clef__output *out, row *r) {
    const clef__node *node = out->node;
    if (out->leaf || !see(s, node)) return;
    r->macs += node_macs(node);
    for (int i = 0; i < node->n_inputs; i++) credit(s, node->input[i], r);
}

static row *add_row(summary *s) {
    if (!clef__grow(&s->row, s->n, &s->capacity, sizeof *s->row)) return NULL;
    return memset(&s->row[s->n++], 0, sizeof *s->row);
}

static bool has_children(const clef_module *m) {
    for (int i = 0; i < m->n; i++)
        if (m->entry[i].kind == CLEF__CHILD) return true;
    return false;
}

/* What this is a view of, as far as that is remembered. */
static const clef__output *viewed(const clef__output *out) {
    while (out->node->op->kind == CLEF__VIEW && out->node->n_inputs && !out->leaf) out = out->node->input[0];
    return out;
}

static void observe(void *user, clef_module *module, clef_tensor *x, clef_tensor *y) {
    summary *s = user;
    see(s, clef__node_of(x));
    row *r = s->failed ? NULL : add_row(s);
    if (!r) {
        s->failed = true;
        return;
    }
    r->module = module;
    r->output = clef_tensor_shape(y);
    const clef__output *made = viewed(clef__output_of(y));
    bool new_memory = s->seen[slot_of(s->seen, s->slots, made->node)] == NULL && made->node->op->kind != CLEF__VIEW && !made->leaf;
    if (new_memory) r->bytes = (double)clef_shape_numel(made->shape) * (double)clef_dtype_size(made->dtype);
    credit(s, clef__output_of(y), r);
}

/* ---- running ---- */
static const clef_module *first_leaf(const clef_module *m) {
    for (int i = 0; i < m->n; i++)
        if (m->entry[i].kind == CLEF__CHILD) return first_leaf(m->entry[i].child);
    return m;
}

/* Forward on zeros: integers where the first layer looks up indices. */
static bool run_forward(summary *s, clef_shape input) {
    clef_context *ctx = s->root->ctx;
    bool indices = !strcmp(first_leaf(s->root)->type, "embedding");
    clef_random_state random = clef_random_get(ctx);
    clef_tensor *y = NULL;
    if (clef__nn_observe(ctx, observe, s)) return false;
    bool was = clef_set_grad_enabled(ctx, true);
    y = clef_forward(s->root, clef_zeros(ctx, input, indices ? CLEF_I64 : CLEF_F32));
    clef_set_grad_enabled(ctx, was);
    clef__nn_observe(ctx, NULL, NULL);
    clef_random_set(ctx, random);
    return y && !s->failed;
}

static bool run_in_evaluation(summary *s, clef_shape input) {
    bool was = clef__nn_inference(s->root->ctx, true);
    bool done = run_forward(s, input);
    clef__nn_inference(s->root->ctx, was);
    return done;
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

static const char *human(char out[40], double bytes) {
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

/* Containers show only where they own parameters or make something themselves. */
static bool shown(const row *r) { return !has_children(r->module) || own_parameters(r->module) > 0 || r->macs > 0 || r->bytes > 0; }

static void put_row(writer *w, const clef_module *root, const row *r) {
    char path[128] = "", shape[96], parameters[40], macs[40], bytes[40];
    if (!clef__module_path(root, r->module, path, sizeof path) || !path[0]) snprintf(path, sizeof path, "-");
    put_text(w, "%-24s %-20s %-20s %13s %17s %11s\n", path, r->module->type, clef_shape_format(r->output, shape, sizeof shape),
             grouped(parameters, (double)own_parameters(r->module)), grouped(macs, r->macs), human(bytes, r->bytes));
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

static void put_totals(writer *w, const summary *s, clef_shape input) {
    double macs = 0, outputs = 0, parameters = 0, trained = 0, buffers = 0;
    for (int i = 0; i < s->n; i++) macs += s->row[i].macs, outputs += s->row[i].bytes;
    tensor_bytes(s->root, &parameters, &trained, &buffers);
    char shape[96], a[40], b[40], c[40], d[40];
    put_text(w, "input %s: %s parameters, %s MACs\n", clef_shape_format(input, shape, sizeof shape),
             grouped(a, (double)clef_parameter_count(s->root)), grouped(b, macs));
    put_text(w, "memory: parameters %s, gradients %s, buffers %s, layer outputs %s\n", human(a, parameters), human(b, trained),
             human(c, buffers), human(d, outputs));
}

static void put_table(writer *w, const summary *s, clef_shape input) {
    put_text(w, "%-24s %-20s %-20s %13s %17s %11s\n", "layer", "type", "output", "parameters", "MACs", "memory");
    for (int i = 0; i < s->n; i++)
        if (shown(&s->row[i])) put_row(w, s->root, &s->row[i]);
    put_totals(w, s, input);
}

int clef_summary(clef_module *module, clef_shape input, char *text, size_t size) {
    if (size && text) *text = 0;
    if (!module) return -1;
    summary s = {.root = module};
    writer w = {.text = text, .size = text ? size : 0};
    bool done = run_in_evaluation(&s, input);
    if (done) put_table(&w, &s, input);
    else if (s.failed) clef__fail(module->ctx, CLEF_MEMORY, "summary: no memory for the table");
    clef__free(s.row);
    clef__free(s.seen);
    return done ? w.length : -1;
}
