/* custom.c — ops from the user's text, pointwise ones and kernels: descriptors made once per user's op and context. */
#include "ops/ops.h"
#include "runtime/text.h"
#include <ctype.h>
#include <string.h>

typedef struct custom_op {
    clef_op op, backward[3];
    char *backward_name; /* owned */
    const clef_custom_op *user;
    struct custom_op *next;
} custom_op;

typedef struct kernel_op {
    clef_op op;
    const clef_kernel_op *user;
    char *kernel; /* its name in OpenCL C; owned */
    struct kernel_op *next;
} kernel_op;

typedef struct customs {
    custom_op *pointwise;
    kernel_op *kernels;
} customs;

static void free_customs(clef_context *ctx, void *state) {
    (void)ctx;
    customs *all = state;
    for (custom_op *c; (c = all->pointwise);) {
        all->pointwise = c->next;
        clef__free(c->backward_name);
        clef__free(c);
    }
    for (kernel_op *k; (k = all->kernels);) {
        all->kernels = k->next;
        clef__free(k->kernel);
        clef__free(k);
    }
    clef__free(all);
}

static customs *customs_of(clef_context *ctx) { return clef__make_room_state(ctx, CLEF__ROOM_OPS, sizeof(customs), free_customs); }

/* ---- pointwise ops ---- */

static void custom_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                            clef_tensor **dx) {
    const custom_op *c = (const custom_op *)clef__node_of(y[0])->op;
    int n = clef__node_of(y[0])->n_inputs;
    clef_tensor *input[4];
    memcpy(input, x, (size_t)n * sizeof *input);
    input[n] = g[0];
    for (int i = 0; i < n; i++)
        if (wanted[i] && c->user->backward[i])
            dx[i] = clef__sum_to(clef__apply(&c->backward[i], input, n + 1, NULL, 0), clef_tensor_shape(x[i]));
}

static void no_second(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted, clef_tensor **dx) {
    (void)x, (void)g, (void)wanted, (void)dx;
    clef__refuse(clef_tensor_context(y[0]), clef__node_of(y[0])->op->name, CLEF_UNSUPPORTED,
                 "a custom op has no second derivative; write it with other ops, or as a clef_kernel whose gradient is");
}

static bool is_identifier(const char *name) {
    if (!name || !(isalpha((unsigned char)*name) || *name == '_')) return false;
    while (isalnum((unsigned char)*name) || *name == '_') name++;
    return *name == 0;
}

/* The descriptors of this user's op, made at its first use; NULL when out of memory. */
static custom_op *custom_of(clef_context *ctx, const clef_custom_op *user, int n) {
    static const char *const forward_params[] = {"", "x", "xy", "xyz"}, *const backward_params[] = {"", "xg", "xyg", "xyzg"};
    customs *all = customs_of(ctx);
    if (!all) return NULL;
    for (custom_op *c = all->pointwise; c; c = c->next)
        if (c->user == user && c->op.params == forward_params[n]) return c;
    custom_op *c = clef__calloc(1, sizeof *c);
    if (!c) return NULL;
    c->backward_name = clef__asprintf("%s_backward", user->name);
    if (!c->backward_name) {
        clef__free(c);
        return NULL;
    }
    c->user = user;
    c->op = (clef_op){.name = user->name,
                      .kind = CLEF__POINTWISE,
                      .params = forward_params[n],
                      .text = user->forward,
                      .gradient = custom_gradient};
    for (int i = 0; i < n; i++)
        c->backward[i] = (clef_op){.name = c->backward_name,
                                   .kind = CLEF__POINTWISE,
                                   .params = backward_params[n],
                                   .text = user->backward[i],
                                   .gradient = no_second};
    c->next = all->pointwise;
    return all->pointwise = c;
}

clef_tensor *clef_custom(const clef_custom_op *op, clef_tensor *const *x, int n) {
    if (n > 3)
        return clef__refuse(x ? clef_tensor_context(x[0]) : NULL, "custom", CLEF_INVALID, "%d inputs; at most 3 (x, y, z)", n);
    if (!clef__given_array(NULL, "custom", "x", x, n)) return NULL;
    clef_dtype dtype = CLEF_F32;
    for (int i = 0; i < n; i++) {
        clef_dtype own = clef_tensor_dtype(clef__to_float(x[i]));
        dtype = i ? clef__promote(dtype, own) : own;
    }
    clef_context *ctx = clef_tensor_context(x[0]);
    if (!op || !is_identifier(op->name) || !op->forward)
        return clef__refuse(ctx, "custom", CLEF_INVALID, "needs a name that is a C identifier, and a forward text");
    custom_op *c = custom_of(ctx, op, n);
    if (!c) return clef__refuse(ctx, op->name, CLEF_MEMORY, "no host memory");
    clef_tensor *input[3];
    for (int i = 0; i < n; i++) input[i] = clef_to(x[i], dtype);
    return clef__apply(&c->op, input, n, NULL, 0);
}

/* ---- kernels ---- */

enum { MOST = CLEF_KERNEL_MOST };

typedef struct kernel_attributes {
    int64_t n_options;
    double option[MOST];
} kernel_attributes;

static const clef_kernel_op *user_of(const clef_op *op) { return ((const kernel_op *)op)->user; }

/* The next name of a list; false at its end. */
static bool next_name(const char **list, char name[64]) {
    if (!*list) return false;
    *list += strspn(*list, " ");
    size_t length = strcspn(*list, " ");
    snprintf(name, 64, "%.*s", (int)length, *list);
    *list += length;
    return length > 0;
}

/* How many names; -1 unless all are identifiers, and not too many. */
static int count_names(const char *list) {
    char name[64];
    int n = 0;
    for (; next_name(&list, name); n++)
        if (!is_identifier(name) || strlen(name) == sizeof name - 1) return -1;
    return n <= MOST ? n : -1;
}

/* What infer says of these inputs; the arrays are the call's. */
typedef struct kernel_type {
    clef_kernel_call call;
    clef_shape shape[MOST];
    clef_dtype dtype[MOST];
} kernel_type;

static bool infer_type(kernel_type *t, const clef_kernel_op *user, clef__output *const *input, int n, int m,
                       const kernel_attributes *a) {
    for (int i = 0; i < n; i++) {
        t->shape[i] = input[i]->shape;
        t->dtype[i] = input[i]->dtype;
    }
    t->call = (clef_kernel_call){.n_inputs = n,
                                 .n_outputs = m,
                                 .n_options = (int)a->n_options,
                                 .input = t->shape,
                                 .input_dtype = t->dtype,
                                 .option = a->option};
    t->call.items = -1;
    for (int k = 0; k < m; k++) t->call.output_dtype[k] = t->dtype[0];
    if (!user->infer(&t->call)) return false;
    if (t->call.items < 0) t->call.items = clef_shape_numel(t->call.output[0]);
    return true;
}

static bool infer_kernel(clef__call *call) {
    kernel_type t;
    if (!infer_type(&t, user_of(call->op), call->input, call->n_inputs, call->n_outputs, call->attributes))
        return clef__infer_fail(call, CLEF_SHAPE, "%s", t.call.problem ? t.call.problem : "infer refused these inputs");
    for (int k = 0; k < call->n_outputs; k++) {
        call->out[k] = (clef__type){t.call.output[k], t.call.output_dtype[k]};
        if (!clef__check_type(call->ctx, call->op->name, call->out[k].shape, call->out[k].dtype, call->input[0]->device))
            return false;
    }
    return true;
}

/* TYPE_x for every tensor; then its number in the kernel's struct (as in cl/args.h), its pointer, or what makes that one to
   element 0. */
typedef enum part { TYPES, FIELDS, POINTERS, STARTS } part;
static void write_tensors(clef__text *text, const char *names, const clef_dtype *dtype, bool writes, part what) {
    char name[64];
    for (int i = 0; next_name(&names, name); i++)
        if (what == TYPES) clef__text_add(text, "#define TYPE_%s %s\n", name, clef__token(dtype[i]));
        else if (what == FIELDS) clef__text_add(text, "long %s_at; ", name);
        else if (what == POINTERS)
            clef__text_add(text, ", __global %sMEMORY(%s) *%s", writes ? "" : "const ", clef__token(dtype[i]), name);
        else clef__text_add(text, "    %s += clef_numbers.%s_at;\n", name, name);
}

static void write_numbers(clef__text *text, const char *names, const char *type, part what) {
    for (char name[64]; next_name(&names, name);)
        if (what == FIELDS) clef__text_add(text, "%s %s; ", type, name);
        else if (what == STARTS) clef__text_add(text, "    %s %s = clef_numbers.%s;\n", type, name, name);
}

/* The program of a call; its arguments come as in lower_kernel. */
static char *kernel_source(const kernel_op *k, const kernel_type *t) {
    const clef_kernel_op *user = k->user;
    clef__text text = {0};
    clef__text_append(&text,
                      "\n#define GET(x, i) LOAD(CAT(TYPE_, x), 1, x, i)\n#define PUT(y, i, v) STORE(CAT(TYPE_, y), 1, y, i, v)\n");
    for (part what = TYPES; what <= STARTS; what++) {
        if (what == FIELDS) clef__text_add(&text, "%s\ntypedef struct clef_fields { ", user->functions ? user->functions : "");
        if (what == POINTERS)
            clef__text_add(&text, "long items, end; } clef_fields;\n__kernel void %s(clef_fields clef_numbers", k->kernel);
        if (what == STARTS)
            clef__text_append(&text,
                              ") {\n    long items = clef_numbers.items, i = get_global_id(0);\n    if (i >= items) return;\n");
        write_tensors(&text, user->inputs, t->dtype, false, what);
        write_tensors(&text, user->outputs, t->call.output_dtype, true, what);
        write_numbers(&text, user->sizes, "long", what);
        write_numbers(&text, user->numbers, "float", what);
    }
    clef__text_add(&text, "    {\n%s\n    }\n}\n", user->body);
    return text.data;
}

static bool has_empty_input(const clef__node *node) {
    for (int i = 0; i < node->n_inputs; i++)
        if (clef_shape_numel(node->input[i]->shape) == 0) return true;
    return false;
}

static void lower_zeros(const clef__lowering *lw) {
    const clef__node *node = clef__lower_node(lw);
    for (int k = 0; k < node->n_outputs; k++) {
        clef__operand y = clef__lower_output(lw, k, NULL);
        if (clef_shape_numel(node->out[k].shape) > 0) clef__lower_fill(lw, y, 0);
    }
}

static void lower_kernel(const clef__lowering *lw) {
    const clef__node *node = clef__lower_node(lw);
    const kernel_op *k = (const kernel_op *)node->op;
    kernel_type t;
    clef__operand x[MOST], y[MOST];
    bool runs = infer_type(&t, k->user, node->input, node->n_inputs, node->n_outputs, clef__attributes(node));
    if (!runs || t.call.items == 0 || has_empty_input(node)) {
        lower_zeros(lw);
        return;
    }
    for (int i = 0; i < node->n_inputs; i++) x[i] = clef__lower_in_dense(lw, i, NULL);
    for (int i = 0; i < node->n_outputs; i++) {
        y[i] = clef__lower_output(lw, i, NULL);
        if (clef_shape_numel(node->out[i].shape) == 0) y[i] = clef__lower_scratch(lw, y[i].dtype, CLEF_SCALAR); /* never none */
    }
    clef__launch_begin(lw, NULL, k->kernel);
    clef__launch_text(lw, kernel_source(k, &t));
    for (int i = 0; i < node->n_inputs; i++) clef__launch_tensor(lw, x[i], false);
    for (int i = 0; i < node->n_outputs; i++) clef__launch_tensor(lw, y[i], true);
    clef__launch_longs(lw, t.call.size, (size_t)count_names(k->user->sizes));
    for (int i = 0; i < count_names(k->user->numbers); i++) clef__launch_float(lw, (float)t.call.number[i]);
    clef__launch_long(lw, t.call.items);
    clef__launch_end_1d(lw, t.call.items);
}

static const clef__strategy *const kernel_strategies[] = {&(const clef__strategy){.name = "kernel", .lower = lower_kernel}, NULL};

/* dx[i] as the tape takes it: of x[i]'s dtype, or NULL with a line that names the op. */
static clef_tensor *checked_gradient(const char *op, const clef_tensor *x, clef_tensor *dx, int i) {
    clef_context *ctx = clef_tensor_context(x);
    clef_shape have = clef_tensor_shape(dx), want = clef_tensor_shape(x);
    if (!clef__given(ctx, op, "dx", &dx, 1)) return NULL;
    if (clef_shape_equal(have, want)) return clef_to(dx, clef_tensor_dtype(x));
    return clef__refuse(ctx, op, CLEF_SHAPE, "gradient gives %s for input %d, which is %s", clef__shape_text(have), i,
                        clef__shape_text(want));
}

static void kernel_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                            clef_tensor **dx) {
    const clef__node *node = clef__node_of(y[0]);
    const kernel_attributes *a = clef__attributes(node);
    if (!user_of(node->op)->gradient) {
        clef__refuse(node->ctx, node->op->name, CLEF_UNSUPPORTED, "the op has no gradient; clef_detach its inputs, or its outputs");
        return;
    }
    user_of(node->op)->gradient(x, y, g, wanted, dx, a->option);
    for (int i = 0; i < node->n_inputs; i++)
        if (wanted[i] && dx[i]) dx[i] = checked_gradient(node->op->name, x[i], dx[i], i);
}

static kernel_op *new_kernel(const clef_kernel_op *user) {
    kernel_op *k = clef__calloc(1, sizeof *k);
    if (!k) return NULL;
    k->user = user;
    k->kernel = clef__asprintf("user_%s", user->name); /* so that no function of OpenCL C has its name */
    k->op = (clef_op){.name = user->name,
                      .kind = CLEF__KERNEL,
                      .infer = infer_kernel,
                      .gradient = kernel_gradient,
                      .strategies = kernel_strategies};
    if (k->kernel) return k;
    clef__free(k);
    return NULL;
}

/* The descriptor of this user's op, made at its first use; NULL when out of memory. */
static kernel_op *kernel_of(clef_context *ctx, const clef_kernel_op *user) {
    customs *all = customs_of(ctx);
    if (!all) return NULL;
    for (kernel_op *k = all->kernels; k; k = k->next)
        if (k->user == user) return k;
    kernel_op *k = new_kernel(user);
    if (!k) return NULL;
    k->next = all->kernels;
    return all->kernels = k;
}

/* Do two arguments of the kernel have one name, or one that the library's head of it uses? */
static bool names_clash(const clef_kernel_op *op) {
    const char *const lists[] = {op->inputs, op->outputs, op->sizes, op->numbers};
    char names[4 * MOST + 1][64]; /* the last: where the end of the last list is found */
    int n = 0;
    for (int l = 0; l < 4; l++)
        for (const char *at = lists[l]; next_name(&at, names[n]); n++) {
            if (strcmp(names[n], "i") == 0 || strcmp(names[n], "items") == 0) return true;
            for (int other = 0; other < n; other++)
                if (strcmp(names[n], names[other]) == 0) return true;
        }
    return false;
}

/* Is the op all there, and does the call fit it? */
static bool check_kernel(clef_context *ctx, const clef_kernel_op *op, int n, const double *options, int n_options, int m) {
    if (!op || !is_identifier(op->name) || !op->body || !op->infer)
        clef__refuse(ctx, "kernel", CLEF_INVALID, "needs a name that is a C identifier, a body, and infer");
    else if (count_names(op->inputs) < 1 || count_names(op->outputs) < 1 || count_names(op->sizes) < 0 ||
             count_names(op->numbers) < 0)
        clef__refuse(ctx, op->name, CLEF_INVALID,
                     "inputs and outputs need 1 to %d names that are C identifiers, sizes and numbers at most %d", MOST, MOST);
    else if (names_clash(op))
        clef__refuse(ctx, op->name, CLEF_INVALID,
                     "two of inputs, outputs, sizes and numbers have one name, or one is called i or items");
    else if (n != count_names(op->inputs) || m != count_names(op->outputs))
        clef__refuse(ctx, op->name, CLEF_INVALID, "%d inputs and %d outputs given, but it has %d (%s) and %d (%s)", n, m,
                     count_names(op->inputs), op->inputs, count_names(op->outputs), op->outputs);
    else if (n_options < 0 || n_options > MOST || (n_options > 0 && !options))
        clef__refuse(ctx, op->name, CLEF_INVALID, "%d options; 0 to %d, in an array", n_options, MOST);
    else return true;
    return false;
}

static clef_status apply_kernel(clef_context *ctx, const clef_kernel_op *op, clef_tensor *const *x, int n, const double *options,
                                int n_options, clef_tensor **y, int m) {
    if (ctx && !check_kernel(ctx, op, n, options, n_options, m)) return CLEF_INVALID; /* first: it says how long x is */
    if (!clef__given_array(ctx, "kernel", "x", x, n)) return CLEF_INVALID;
    if (!y) return clef__refuse(ctx, op->name, CLEF_INVALID, "y is NULL, not an array of %d tensors", m), CLEF_INVALID;
    kernel_op *k = kernel_of(ctx, op);
    if (!k) return clef__refuse(ctx, op->name, CLEF_MEMORY, "no host memory"), CLEF_MEMORY;
    kernel_attributes a = {.n_options = n_options};
    if (n_options) memcpy(a.option, options, (size_t)n_options * sizeof *options);
    return clef__apply_all(&k->op, x, n, &a, sizeof a, y, m) ? CLEF_OK : clef_error_status(ctx);
}

clef_status clef_kernel(const clef_kernel_op *op, clef_tensor *const *x, int n, const double *options, int n_options,
                        clef_tensor **y, int m) {
    clef_context *ctx = x && n > 0 ? clef_tensor_context(x[0]) : NULL;
    clef_status status = apply_kernel(ctx, op, x, n, options, n_options, y, m);
    for (int k = 0; status != CLEF_OK && y && k < m && k < MOST; k++) y[k] = NULL;
    return status;
}
