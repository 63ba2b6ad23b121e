/* 09_kernel.c — an op with a kernel of one's own, two outputs and a gradient.
   RMS norm (Zhang, Sennrich 2019): y = x·r·w with r = 1/√(mean(x²) + eps) of each row.  r is the second output, as backward needs it:
   dx = r·(a - x·r²·mean(a·x)) with a = g·w, by a second kernel; dw = Σ g·x·r, by ops that there are. */
#include <clef.h>
#include <stdio.h>

/* A work-item takes a row of x [rows,n]. */
static bool infer(clef_kernel_call *call) {
    clef_shape x = call->input[0];
    if (x.rank != 2) return call->problem = "x must be a matrix [rows,n]", false;
    call->output[0] = x;
    if (call->n_outputs > 1) call->output[1] = CLEF_SHAPE(x.dim[0], 1);
    call->size[0] = x.dim[1];
    call->number[0] = call->option[0];
    call->items = x.dim[0];
    return true;
}

static const char forward_body[] = "float sum = 0;\n"
                                   "for (long j = i * n; j < i * n + n; j++) sum += GET(x, j) * GET(x, j);\n"
                                   "float s = rsqrt(sum / n + eps);\n"
                                   "for (long j = 0; j < n; j++) PUT(y, i * n + j, GET(x, i * n + j) * s * GET(w, j));\n"
                                   "PUT(r, i, s);",
                  backward_body[] = "float sum = 0, s = GET(r, i);\n"
                                    "for (long j = 0; j < n; j++) sum += GET(g, i * n + j) * GET(w, j) * GET(x, i * n + j);\n"
                                    "for (long j = 0, at = i * n; j < n; j++, at++)\n"
                                    "    PUT(dx, at, s * (GET(g, at) * GET(w, j) - GET(x, at) * s * s * sum / n));";

static const clef_kernel_op rms_backward = {"rms_backward", "x w r g", "dx", "n", "eps", NULL, backward_body, infer, NULL};

static void gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted, clef_tensor **dx,
                     const double *option) {
    if (!g[0]) return; /* r is for backward alone */
    if (wanted[0]) clef_kernel(&rms_backward, (clef_tensor *[]){x[0], x[1], y[1], g[0]}, 4, option, 1, &dx[0], 1);
    if (wanted[1]) dx[1] = clef_sum(clef_mul(g[0], clef_mul(x[0], y[1])), (int[]){0}, 1, false);
}

static const clef_kernel_op rms_norm = {"rms_norm", "x w", "y r", "n", "eps", NULL, forward_body, infer, gradient};

static double apart(clef_tensor *a, clef_tensor *b) { return clef_item(clef_max(clef_abs(clef_sub(a, b)), NULL, 0, false)); }

int main(void) {
    clef_context *ctx = clef_open(&(clef_options){.seed = 9});
    if (!ctx) return fprintf(stderr, "skipped: %s\n", clef_error(NULL)), 77;
    clef_tensor *in[] = {clef_randn(ctx, CLEF_SHAPE(64, 100)), clef_rand(ctx, CLEF_SHAPE(100))}, *out[2], *own[2], *known[2];
    for (int i = 0; i < 2; i++) clef_require_grad(clef_keep(in[i]), true);
    clef_kernel(&rms_norm, in, 2, (double[]){1e-6}, 1, out, 2);
    clef_tensor *mean = clef_mean(clef_square(in[0]), (int[]){1}, 1, true), *g = clef_randn(ctx, CLEF_SHAPE(64, 100));
    clef_tensor *same = clef_mul(clef_mul(in[0], clef_rsqrt(clef_add_scalar(mean, 1e-6))), in[1]);
    clef_grad(out[0], g, in, 2, false, own);
    clef_grad(same, g, in, 2, false, known);
    double y = apart(out[0], same), dx = apart(own[0], known[0]), dw = apart(own[1], known[1]);
    printf("against the same in other ops: y %.1e, dx %.1e, dw %.1e\n", y, dx, dw);
    if (clef_error_status(ctx)) fprintf(stderr, "%s\n", clef_error(ctx));
    bool right = !clef_error_status(ctx) && y < 1e-5 && dx < 1e-4 && dw < 1e-4;
    clef_close(ctx);
    return !right;
}
