/* matmul.c — products of matrices and stacks of matrices, and the linear layer.  A transposed operand is a view with other strides,
   so NN, NT, TN and TT are one op. */
#include "kernels/gemm.h"
#include "ops/ops.h"

/* ---- infer ---- */
/* Kernels count rows, columns and products in 32 bits. */
static bool check_sizes(clef__call *call, int64_t k) {
    clef_shape y = call->out->shape;
    int64_t n = y.dim[y.rank - 1], all = clef_shape_numel(y);
    if (all < 0 || (n > 0 && all / n > INT32_MAX) || n > INT32_MAX || k > INT32_MAX)
        return clef__infer_fail(call, CLEF_UNSUPPORTED, "more than 2^31 rows or columns (result %s)", clef__shape_text(y));
    return true;
}

static bool infer_matmul(clef__call *call) {
    clef_shape a = call->input[0]->shape, b = call->input[1]->shape;
    if (!clef__infer_product(call) || !clef__infer_takes(call, a.rank >= 2 && b.rank >= 2, "a and b are matrices")) return false;
    if (a.dim[a.rank - 1] != b.dim[b.rank - 2])
        return clef__infer_fail(call, CLEF_SHAPE, "a has %lld columns but b has %lld rows (a %s, b %s)",
                                (long long)a.dim[a.rank - 1], (long long)b.dim[b.rank - 2], clef__shape_text(a),
                                clef__shape_text(b));
    int64_t m = a.dim[a.rank - 2], k = a.dim[a.rank - 1], n = b.dim[b.rank - 1];
    clef_shape batch_a = a, batch_b = b;
    batch_a.rank -= 2;
    batch_b.rank -= 2;
    if (!clef__broadcast(batch_a, batch_b, &call->out->shape))
        return clef__infer_fail(call, CLEF_SHAPE, "leading dimensions do not broadcast (a %s, b %s)", clef__shape_text(a),
                                clef__shape_text(b));
    call->out->shape.dim[call->out->shape.rank++] = m;
    call->out->shape.dim[call->out->shape.rank++] = n;
    return check_sizes(call, k);
}

static bool infer_linear(clef__call *call) {
    clef_shape x = call->input[0]->shape, w = call->input[1]->shape;
    if (!clef__infer_product(call) || !clef__infer_takes(call, x.rank >= 2, "x has rows")) return false;
    if (w.rank != 2) return clef__infer_fail(call, CLEF_SHAPE, "w must be [out,in], not %s", clef__shape_text(w));
    if (x.dim[x.rank - 1] != w.dim[1])
        return clef__infer_fail(call, CLEF_SHAPE, "x has %lld features but w wants %lld (x %s, w %s)", (long long)x.dim[x.rank - 1],
                                (long long)w.dim[1], clef__shape_text(x), clef__shape_text(w));
    if (!clef__infer_bias(call, w)) return false;
    call->out->shape = x;
    call->out->shape.dim[x.rank - 1] = w.dim[0];
    return check_sizes(call, w.dim[1]);
}

/* ---- gradients ---- */
static clef_tensor *transposed(clef_tensor *x) { return clef_transpose(x, -1, -2); }

/* All leading dimensions as one. */
static clef_tensor *as_matrix(clef_tensor *x) {
    clef_shape s = x ? clef_tensor_shape(x) : CLEF_SCALAR;
    int64_t rows = 1;
    if (s.rank == 2) return x;
    for (int i = 0; i + 1 < s.rank; i++) rows *= s.dim[i];
    return clef_reshape(x, CLEF_SHAPE(rows, s.dim[s.rank - 1]));
}

static void gradient_matmul(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                            clef_tensor **dx) {
    (void)y;
    clef_shape a = clef_tensor_shape(x[0]), b = clef_tensor_shape(x[1]);
    if (wanted[0]) dx[0] = clef__sum_to(clef_matmul(g[0], transposed(x[1])), a);
    if (!wanted[1]) return;
    if (b.rank == 2) dx[1] = clef_matmul(transposed(as_matrix(x[0])), as_matrix(g[0]));
    else dx[1] = clef__sum_to(clef_matmul(transposed(x[0]), g[0]), b);
}

/* Of w's gradient the weights take over how it lies: row-major, as they come from a file.  What they are multiplied by then does not
   depend on whether a run went on or was resumed. */
static void gradient_linear(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                            clef_tensor **dx) {
    if (wanted[1]) dx[1] = clef_matmul(transposed(as_matrix(g[0])), as_matrix(x[0])); /* first, as in conv.c */
    if (clef__node_of(y[0])->n_inputs == 3 && wanted[2]) dx[2] = clef__sum_to(g[0], clef_tensor_shape(x[2]));
    if (wanted[0]) dx[0] = clef_matmul(g[0], x[1]);
}

static void cost_product(const clef__node *node, double *flops, double *bytes) {
    clef_shape a = node->input[0]->shape;
    double all = 0;
    for (int i = 0; i < node->n_inputs; i++) all += (double)clef_shape_numel(node->input[i]->shape);
    *flops = 2.0 * (double)clef_shape_numel(node->out->shape) * (double)a.dim[a.rank - 1];
    *bytes = (all + (double)clef_shape_numel(node->out->shape)) * (double)clef_dtype_size(node->out->dtype);
}

static const clef__strategy *const matmul_strategies[] = {&(const clef__strategy){.name = "gemm", .lower = clef__product_matmul},
                                                          NULL};
static const clef__strategy *const linear_strategies[] = {&(const clef__strategy){.name = "gemm", .lower = clef__product_linear},
                                                          NULL};

static const clef_op op_matmul = {.name = "matmul",
                                  .precision = CLEF__LOW_PRECISION,
                                  .kind = CLEF__KERNEL,
                                  .epilogue = true,
                                  .infer = infer_matmul,
                                  .gradient = gradient_matmul,
                                  .strategies = matmul_strategies,
                                  .cost = cost_product,
                                  .element = clef__matmul_element};
static const clef_op op_linear = {.name = "linear",
                                  .precision = CLEF__LOW_PRECISION,
                                  .kind = CLEF__KERNEL,
                                  .epilogue = true,
                                  .infer = infer_linear,
                                  .gradient = gradient_linear,
                                  .strategies = linear_strategies,
                                  .cost = cost_product,
                                  .element = clef__linear_element};

/* ---- public ---- */
clef_tensor *clef_matmul(clef_tensor *a, clef_tensor *b) {
    if (!CLEF__GIVEN("matmul", "a b", a, b)) return NULL;
    int ra = clef_tensor_shape(a).rank, rb = clef_tensor_shape(b).rank;
    if (ra == 0 || rb == 0)
        return clef__refuse(clef_tensor_context(a), "matmul", CLEF_SHAPE,
                            "a scalar is no matrix (a %s, b %s); multiply with clef_mul", clef__shape_text(clef_tensor_shape(a)),
                            clef__shape_text(clef_tensor_shape(b)));
    if (ra == 1) a = clef_unsqueeze(a, 0);
    if (rb == 1) b = clef_unsqueeze(b, 1);
    clef_tensor *y = clef__apply(&op_matmul, (clef_tensor *[]){a, b}, 2, NULL, 0);
    if (rb == 1) y = clef_squeeze(y, -1);
    if (ra == 1) y = clef_squeeze(y, rb == 1 ? -1 : -2);
    return y;
}

clef_tensor *clef_linear(clef_tensor *x, clef_tensor *w, clef_tensor *b) {
    if (!CLEF__GIVEN("linear", "x w b?", x, w, b)) return NULL;
    if (clef_tensor_shape(x).rank == 0)
        return clef__refuse(clef_tensor_context(x), "linear", CLEF_SHAPE, "x is a scalar but w %s wants features",
                            clef__shape_text(clef_tensor_shape(w)));
    bool vector = clef_tensor_shape(x).rank == 1;
    clef_tensor *in[] = {vector ? clef_unsqueeze(x, 0) : x, w, b},
                *y = clef__apply(&op_linear, in, b == CLEF_NONE ? 2 : 3, NULL, 0);
    return vector ? clef_squeeze(y, 0) : y;
}
