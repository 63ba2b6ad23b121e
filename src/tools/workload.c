/* workload.c — what clef tune tunes for: a training step of a known model, or the shapes in a file. */
#include "tool.h"
#include <errno.h>
#include <string.h>

static const char gemm_header[] = "set,m,n,k,a_transposed,b_transposed";
static const char conv_header[] = "set,w,h,c,n,k,s,r,pad_w,pad_h,stride_w,stride_h";
enum { LINE = 256, LARGEST = 1 << 24 };

/* ---- shapes ---- */
static bool read_line(FILE *file, char line[LINE]) {
    if (!fgets(line, LINE, file)) return false;
    line[strcspn(line, "\r\n")] = 0;
    return true;
}

/* The numbers after the first field, which names a set. */
static bool read_numbers(const char *line, long *number, int n) {
    const char *at = strchr(line, ',');
    for (int i = 0; i < n; i++, at += strcspn(at, ",")) {
        int used = 0;
        if (!at || sscanf(at, ",%ld%n", &number[i], &used) != 1 || number[i] < 0 || number[i] > LARGEST) return false;
        at += used;
    }
    return at && !*at;
}

static bool is_sensible(const workload *w, const long *p) {
    if (!w->convolutions) return p[0] && p[1] && p[2] && p[3] < 2 && p[4] < 2;
    for (int i = 0; i < 7; i++)
        if (!p[i]) return false;
    return p[9] && p[10] && p[5] <= p[0] + 2 * p[7] && p[6] <= p[1] + 2 * p[8];
}

static bool read_shape(const workload *w, const char *line, long p[11]) {
    return read_numbers(line, p, w->convolutions ? 11 : 5) && is_sensible(w, p);
}

static bool check_lines(workload *w, const char *path) {
    char line[LINE];
    long p[11];
    int at = 1;
    for (; read_line(w->shapes, line); at++)
        if (!read_shape(w, line, p)) return tool_usage("tune", "%s: line %d is no shape", path, at + 1), false;
    return at > 1 || (tool_usage("tune", "%s: there are no shapes", path), false);
}

bool workload_shapes(workload *w, const char *path) {
    char line[LINE] = "";
    w->shapes = fopen(path, "r");
    if (!w->shapes) return tool_usage("tune", "--shapes: cannot read %s: %s", path, strerror(errno)), false;
    bool known = read_line(w->shapes, line);
    w->convolutions = !strcmp(line, conv_header);
    if (known && (w->convolutions || !strcmp(line, gemm_header))) return check_lines(w, path);
    return tool_usage("tune", "%s: the first line must be %s or %s", path, gemm_header, conv_header), false;
}

static clef_tensor *transposed_matrix(clef_context *ctx, int64_t rows, int64_t columns, bool transposed) {
    clef_tensor *t = clef_rand(ctx, transposed ? CLEF_SHAPE(columns, rows) : CLEF_SHAPE(rows, columns));
    return transposed ? clef_transpose(t, 0, 1) : t;
}

static clef_status queue_product(clef_context *ctx, const long *p) {
    return clef_eval(clef_matmul(transposed_matrix(ctx, p[0], p[2], p[3]), transposed_matrix(ctx, p[2], p[1], p[4])));
}

/* With both its gradients. */
static clef_status queue_convolution(clef_context *ctx, const long *p) {
    clef_tensor *in[2] = {clef_rand(ctx, CLEF_SHAPE(p[3], p[2], p[1], p[0])), clef_rand(ctx, CLEF_SHAPE(p[4], p[2], p[6], p[5]))};
    clef_tensor *out[3] = {NULL};
    for (int i = 0; i < 2; i++) in[i] = clef_require_grad(clef_keep(in[i]), true);
    out[0] = clef_conv2d(in[0], in[1], CLEF_NONE,
                         &(clef_conv2d_options){.stride = {(int)p[10], (int)p[9]}, .padding = {(int)p[8], (int)p[7]}});
    clef_tensor *g = out[0] ? clef_rand(ctx, clef_tensor_shape(out[0])) : NULL;
    clef_status status = g ? clef_grad(out[0], g, in, 2, false, out + 1) : clef_error_status(ctx);
    if (status == CLEF_OK) status = clef_eval_all(out, 3);
    for (int i = 0; i < 2; i++) clef_release(in[i]);
    return status;
}

static clef_status queue_shapes(clef_context *ctx, workload *w) {
    char line[LINE];
    long p[11];
    clef_status status = CLEF_OK;
    rewind(w->shapes);
    read_line(w->shapes, line);
    while (status == CLEF_OK && read_line(w->shapes, line) && read_shape(w, line, p))
        status = w->convolutions ? queue_convolution(ctx, p) : queue_product(ctx, p);
    return status;
}

/* ---- a training step ---- */
static clef_status queue_step(clef_context *ctx, workload *w, int64_t batch) {
    clef_shape shape = {.rank = w->data.item.rank + 1, .dim = {batch}};
    memcpy(shape.dim + 1, w->data.item.dim, (size_t)w->data.item.rank * sizeof shape.dim[0]);
    clef_tensor *x = clef_rand(ctx, shape), *y = clef_zeros(ctx, CLEF_SHAPE(batch), CLEF_I64);
    clef_status status = clef_backward(clef_cross_entropy(clef_forward(w->net, x), y, NULL));
    return status == CLEF_OK ? clef_step(w->optimizer) : clef_error_status(ctx);
}

bool workload_model(workload *w, clef_context *ctx) {
    w->net = model_make(w->model, ctx, w->data.item, w->data.classes);
    w->optimizer = w->net ? clef_sgd(w->net, &(clef_sgd_options){.lr = 0.01, .momentum = 0.9, .group = w->group}) : NULL;
    return w->optimizer && queue_step(ctx, w, 2) == CLEF_OK;
}

clef_status workload_queue(clef_context *ctx, workload *w) {
    return w->shapes ? queue_shapes(ctx, w) : queue_step(ctx, w, w->batch);
}

void workload_close(workload *w) {
    if (w->shapes) fclose(w->shapes);
    w->shapes = NULL;
}
