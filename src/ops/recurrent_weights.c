/* recurrent_weights.c — weights of recurrent layers of other libraries. */
#include "ops/ops.h"
#include <string.h>

static clef_tensor *refuse_order(clef_tensor *t, const char *from, const char *to, const char *why) {
    clef__refuse(clef_tensor_context(t), "reorder_gates", CLEF_INVALID, "from \"%.16s\" to \"%.16s\": %s (t %s)", from ? from : "",
                 to ? to : "", why, clef__shape_text(clef_tensor_shape(t)));
    return NULL;
}

clef_tensor *clef_reorder_gates(clef_tensor *t, const char *from, const char *to) {
    enum { MOST_GATES = 8 };
    clef_tensor *part[MOST_GATES];
    if (!CLEF__GIVEN("reorder_gates", "t", t)) return NULL;
    size_t n = from ? strlen(from) : 0;
    if (n < 1 || n > MOST_GATES || !to || strlen(to) != n) return refuse_order(t, from, to, "one letter for each of 1 to 8 gates");
    clef_shape shape = clef_tensor_shape(t);
    if (shape.rank < 1 || shape.dim[0] % (int64_t)n) return refuse_order(t, from, to, "the gates are equal parts of dimension 0");
    int64_t rows = shape.dim[0] / (int64_t)n;
    for (size_t k = 0; k < n; k++) {
        const char *at = strchr(from, to[k]);
        if (!at || strchr(to, to[k]) != to + k) return refuse_order(t, from, to, "both have the same letters, each once");
        part[k] = clef_slice(t, 0, (at - from) * rows, (at - from + 1) * rows, 1);
    }
    return clef_concat(part, (int)n, 0);
}

/* ---- ONNX ---- */

/* The letters of its gates, and of the same in the order of this library; NULL: no such number of gates. */
static const char *onnx_order(int64_t gates) { return gates == 4 ? "iofc" : gates == 3 ? "zrh" : gates == 1 ? "i" : NULL; }
static const char *own_order(int64_t gates) { return gates == 4 ? "ifco" : gates == 3 ? "rzh" : "i"; }

/* Direction k of t [directions,…], parts k·size on of its dimension 1, as `from` has them. */
static clef_tensor *onnx_part(clef_tensor *t, int k, int64_t start, int64_t size, const char *from, const char *to) {
    if (t == CLEF_NONE) return CLEF_NONE;
    clef_tensor *one = clef_squeeze(clef_slice(t, 0, k, k + 1, 1), 0);
    return clef_reorder_gates(clef_slice(one, 0, start, start + size, 1), from, to);
}

static bool onnx_fits(clef_tensor *t, clef_shape shape) { return t == CLEF_NONE || clef_shape_equal(clef_tensor_shape(t), shape); }

static clef_recurrent_weights onnx_direction(clef_tensor *w, clef_tensor *r, clef_tensor *b, clef_tensor *p, int k) {
    clef_shape rs = clef_tensor_shape(r);
    int64_t rows = rs.dim[1], hidden = rs.dim[2];
    const char *from = onnx_order(rows / hidden), *to = own_order(rows / hidden);
    return (clef_recurrent_weights){.w_ih = onnx_part(w, k, 0, rows, from, to),
                                    .w_hh = onnx_part(r, k, 0, rows, from, to),
                                    .b_ih = onnx_part(b, k, 0, rows, from, to),
                                    .b_hh = onnx_part(b, k, rows, rows, from, to),
                                    .w_peep = onnx_part(p, k, 0, 3 * hidden, "iof", "ifo")};
}

static bool is_whole(const clef_recurrent_weights *w) { return w->w_ih && w->w_hh && w->b_ih && w->b_hh && w->w_peep; }

static void forget(clef_recurrent_weights *weights, int n) {
    for (int k = 0; k < n; k++) weights[k] = (clef_recurrent_weights){0};
}

clef_status clef_recurrent_from_onnx(clef_tensor *w, clef_tensor *r, clef_tensor *b, clef_tensor *p,
                                     clef_recurrent_weights *weights, int n) {
    if (weights) forget(weights, n);
    if (!CLEF__GIVEN("recurrent_from_onnx", "w r b? p?", w, r, b, p)) return CLEF_INVALID;
    clef_context *ctx = clef_tensor_context(w);
    if (!weights || n < 1)
        return clef__fail(ctx, CLEF_INVALID, "recurrent_from_onnx: %s %d directions; give an array of one element for each",
                          weights ? "weights of" : "weights is NULL, for", n);
    clef_shape ws = clef_tensor_shape(w), rs = clef_tensor_shape(r);
    int64_t hidden = rs.rank == 3 ? rs.dim[2] : 0, rows = hidden ? rs.dim[1] : 0;
    bool gates = hidden && rows % hidden == 0 && onnx_order(rows / hidden);
    if (!gates || ws.rank != 3 || rs.dim[0] != n || ws.dim[0] != n || ws.dim[1] != rows || !onnx_fits(b, CLEF_SHAPE(n, 2 * rows)) ||
        !onnx_fits(p, CLEF_SHAPE(n, 3 * hidden)) || (p != CLEF_NONE && rows != 4 * hidden))
        return clef__fail(
            ctx, CLEF_SHAPE,
            "recurrent_from_onnx: W must be [n,gates·H,in], R [n,gates·H,H], B [n,2·gates·H] and of an LSTM P [n,3·H] "
            "with n = %d directions (W %s, R %s, B %s, P %s)",
            n, clef__shape_text(ws), clef__shape_text(rs), b == CLEF_NONE ? "none" : clef__shape_text(clef_tensor_shape(b)),
            p == CLEF_NONE ? "none" : clef__shape_text(clef_tensor_shape(p)));
    for (int k = 0; k < n; k++) {
        weights[k] = onnx_direction(w, r, b, p, k);
        if (is_whole(&weights[k])) continue;
        forget(weights, n);
        return clef_error_status(ctx);
    }
    return CLEF_OK;
}
