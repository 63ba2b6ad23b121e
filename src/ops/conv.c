/* conv.c — convolution in two dimensions and its two gradients.  The three are linear in each input and are each other's gradients,
   so that any order of derivative exists.  How each becomes launches: kernels/conv.h. */
#include "kernels/conv.h"
#include "ops/ops.h"

typedef clef__conv geometry;

static const clef_op op_conv2d, op_backward_data, op_backward_weight;

/* ---- infer ---- */
static bool check_channels(clef__call *call, const geometry *a, clef_shape x, clef_shape w) {
    int64_t wanted = clef__times(w.dim[1], a->groups);
    if (x.dim[1] != wanted)
        return clef__infer_fail(call, CLEF_SHAPE, "x has %lld channels but w wants %lld (x %s, w %s); groups = %lld",
                                (long long)x.dim[1], (long long)wanted, clef__shape_text(x), clef__shape_text(w),
                                (long long)a->groups);
    if (w.dim[0] % a->groups)
        return clef__infer_fail(call, CLEF_SHAPE, "w has %lld filters, which do not divide into %lld groups (x %s, w %s)",
                                (long long)w.dim[0], (long long)a->groups, clef__shape_text(x), clef__shape_text(w));
    return true;
}

/* The image with its padding, and what the filter reaches over, in direction d. */
static int64_t padded(const geometry *a, int d) { return clef__plus(a->image[d], clef__plus(a->before[d], a->after[d])); }
static int64_t reach(const geometry *a, int d) { return clef__plus(clef__times(a->dilation[d], a->kernel[d] - 1), 1); }
static int64_t result(const geometry *a, int d) { return (padded(a, d) - reach(a, d)) / a->stride[d] + 1; }

/* Kernels count pixels and weights in 32 bits. */
static bool check_counts(clef__call *call, const geometry *a, clef_shape x, clef_shape w) {
    int64_t pixels = clef__times(x.dim[0], clef__times(padded(a, 0), padded(a, 1)));
    if (pixels <= INT32_MAX && clef_shape_numel(w) <= INT32_MAX) return true;
    return clef__infer_fail(call, CLEF_UNSUPPORTED, "more than 2^31 pixels with padding {%lld,%lld}, or weights (x %s, w %s)",
                            (long long)a->before[0], (long long)a->before[1], clef__shape_text(x), clef__shape_text(w));
}

static bool infer_conv2d(clef__call *call) {
    const geometry *a = call->attributes;
    clef_shape x = call->input[0]->shape, w = call->input[1]->shape;
    if (!clef__infer_product(call)) return false;
    if (x.rank != 4 || w.rank != 4)
        return clef__infer_fail(call, CLEF_SHAPE, "x must be [n,c,h,w] and w [o,c/groups,kh,kw] (x %s, w %s)", clef__shape_text(x),
                                clef__shape_text(w));
    if (!check_channels(call, a, x, w) || !clef__infer_bias(call, w)) return false;
    call->out->shape = CLEF_SHAPE(x.dim[0], w.dim[0], 0, 0);
    for (int d = 0; d < 2; d++) {
        if (w.dim[2 + d] < 1 || padded(a, d) < reach(a, d))
            return clef__infer_fail(
                call, CLEF_SHAPE, "the kernel reaches over %lld %s but x has %lld with its padding (x %s, w %s)",
                (long long)reach(a, d), d ? "columns" : "rows", (long long)padded(a, d), clef__shape_text(x), clef__shape_text(w));
        call->out->shape.dim[2 + d] = result(a, d);
    }
    return check_counts(call, a, x, w);
}

/* Does s end in the two sizes that `of` tells? */
static bool ends_in(clef_shape s, const geometry *a, int64_t (*of)(const geometry *, int)) {
    return s.rank == 4 && s.dim[2] == of(a, 0) && s.dim[3] == of(a, 1);
}
static int64_t image_of(const geometry *a, int d) { return a->image[d]; }
static int64_t kernel_of(const geometry *a, int d) { return a->kernel[d]; }

/* dy, w → the shape of x.  Gradients make this op and the next, and clef_conv_transpose2d this one. */
static bool infer_backward_data(clef__call *call) {
    const geometry *a = call->attributes;
    clef_shape dy = call->input[0]->shape, w = call->input[1]->shape;
    bool fits = ends_in(dy, a, result) && ends_in(w, a, kernel_of) && dy.dim[1] == w.dim[0] && w.dim[0] % a->groups == 0;
    if (!clef__infer_takes(call, fits, "dy and w fit the convolution")) return false;
    call->out->shape = CLEF_SHAPE(dy.dim[0], w.dim[1] * a->groups, a->image[0], a->image[1]);
    return clef__infer_product(call) && check_counts(call, a, call->out->shape, w);
}

/* x, dy → the shape of w. */
static bool infer_backward_weight(clef__call *call) {
    const geometry *a = call->attributes;
    clef_shape x = call->input[0]->shape, dy = call->input[1]->shape;
    bool fits = ends_in(x, a, image_of) && ends_in(dy, a, result) && dy.dim[0] == x.dim[0] && dy.dim[1] % a->groups == 0 &&
                x.dim[1] % a->groups == 0;
    if (!clef__infer_takes(call, fits, "x and dy fit the convolution")) return false;
    call->out->shape = CLEF_SHAPE(dy.dim[1], x.dim[1] / a->groups, a->kernel[0], a->kernel[1]);
    return clef__infer_product(call);
}

/* ---- gradients ---- */
static clef_tensor *forward(clef_tensor *x, clef_tensor *w, const geometry *a) {
    return clef__apply(&op_conv2d, (clef_tensor *[]){x, w}, 2, a, sizeof *a);
}

static clef_tensor *backward_data(clef_tensor *dy, clef_tensor *w, const geometry *a) {
    return clef__apply(&op_backward_data, (clef_tensor *[]){dy, w}, 2, a, sizeof *a);
}

static clef_tensor *backward_weight(clef_tensor *x, clef_tensor *dy, const geometry *a) {
    return clef__apply(&op_backward_weight, (clef_tensor *[]){x, dy}, 2, a, sizeof *a);
}

static void gradient_conv2d(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                            clef_tensor **dx) {
    const geometry *a = clef__attributes(clef__node_of(y[0]));
    if (wanted[1]) dx[1] = backward_weight(x[0], g[0], a); /* first, as it is run first: x and dx need not lie in memory together */
    if (clef__node_of(y[0])->n_inputs == 3 && wanted[2]) dx[2] = clef_sum(g[0], (const int[]){0, 2, 3}, 3, false);
    if (wanted[0]) dx[0] = backward_data(g[0], x[1], a);
}

static void gradient_backward_data(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                                   clef_tensor **dx) {
    const geometry *a = clef__attributes(clef__node_of(y[0]));
    if (wanted[0]) dx[0] = forward(g[0], x[1], a);
    if (wanted[1]) dx[1] = backward_weight(g[0], x[0], a);
}

static void gradient_backward_weight(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                                     clef_tensor **dx) {
    const geometry *a = clef__attributes(clef__node_of(y[0]));
    if (wanted[0]) dx[0] = backward_data(x[1], g[0], a);
    if (wanted[1]) dx[1] = forward(x[0], g[0], a);
}

/* Of the product and of both gradients: what has y's shape, and what has x's. */
static clef_shape like_y(const clef__node *node) {
    return (node->op == &op_conv2d ? node->out : node->input[node->op == &op_backward_weight])->shape;
}
static clef_shape like_x(const clef__node *node) { return (node->op == &op_backward_data ? node->out : node->input[0])->shape; }

/* All three do one multiplication and addition per output pixel, filter, channel and tap. */
static void cost(const clef__node *node, double *flops, double *bytes) {
    const geometry *a = node->attributes;
    double all = (double)clef_shape_numel(node->out->shape);
    for (int i = 0; i < node->n_inputs; i++) all += (double)clef_shape_numel(node->input[i]->shape);
    *flops = 2.0 * (double)clef_shape_numel(like_y(node)) * (double)(like_x(node).dim[1] / a->groups) * (double)a->kernel[0] *
             (double)a->kernel[1];
    *bytes = all * (double)clef_dtype_size(node->out->dtype);
}

static const clef_op op_conv2d = {.name = "conv2d",
                                  .precision = CLEF__LOW_PRECISION,
                                  .kind = CLEF__KERNEL,
                                  .epilogue = true,
                                  .infer = infer_conv2d,
                                  .gradient = gradient_conv2d,
                                  .strategies = clef__conv_forward_rows,
                                  .cost = cost,
                                  .element = clef__conv2d_element};
static const clef_op op_backward_data = {.name = "conv2d_backward_data",
                                         .kind = CLEF__KERNEL,
                                         .epilogue = true,
                                         .infer = infer_backward_data,
                                         .gradient = gradient_backward_data,
                                         .strategies = clef__conv_data_rows,
                                         .cost = cost,
                                         .element = clef__conv2d_backward_data_element};
static const clef_op op_backward_weight = {.name = "conv2d_backward_weight",
                                           .kind = CLEF__KERNEL,
                                           .infer = infer_backward_weight,
                                           .gradient = gradient_backward_weight,
                                           .strategies = clef__conv_weight_rows,
                                           .cost = cost,
                                           .element = clef__conv2d_backward_weight_element};

/* ---- public ---- */
/* `same`: out = ceil(in / stride), the odd zero at the end. */
static void pad_same(geometry *a, int d) {
    int64_t in = a->image[d], out = clef__ceil_div(in, a->stride[d]);
    int64_t total = clef__larger(clef__plus((out - 1) * a->stride[d] - in, reach(a, d)), 0);
    a->before[d] = total / 2;
    a->after[d] = total - total / 2;
}

/* False if an option is out of range. */
static bool read_options(geometry *a, const clef_conv2d_options *o, clef_shape x, clef_shape w) {
    a->groups = o->groups ? o->groups : 1;
    for (int d = 0; d < 2; d++) {
        a->stride[d] = o->stride[d] ? o->stride[d] : 1;
        a->dilation[d] = o->dilation[d] ? o->dilation[d] : 1;
        a->image[d] = x.rank == 4 ? x.dim[2 + d] : 0;
        a->kernel[d] = w.rank == 4 ? w.dim[2 + d] : 0;
        a->before[d] = a->after[d] = o->padding[d];
        if (o->stride[d] < 0 || o->dilation[d] < 0 || o->padding[d] < 0) return false;
        if (o->same) pad_same(a, d);
        a->stride[d] = clef__smaller(a->stride[d], clef__larger(padded(a, d), 1)); /* larger ones do the same */
        if (a->kernel[d] == 1) a->dilation[d] = 1;                                 /* so do all others */
    }
    return a->groups > 0;
}

clef_tensor *clef_conv2d(clef_tensor *x, clef_tensor *w, clef_tensor *b, const clef_conv2d_options *options) {
    static const clef_conv2d_options defaults = {0};
    if (!CLEF__GIVEN("conv2d", "x w b?", x, w, b)) return NULL;
    const clef_conv2d_options *o = options ? options : &defaults;
    geometry a = {0};
    if (!read_options(&a, o, clef_tensor_shape(x), clef_tensor_shape(w)))
        return clef__refuse(clef_tensor_context(x), "conv2d", CLEF_INVALID,
                            "stride {%d,%d}, padding {%d,%d}, dilation {%d,%d} and groups %d must not be negative (x %s, w %s)",
                            o->stride[0], o->stride[1], o->padding[0], o->padding[1], o->dilation[0], o->dilation[1], o->groups,
                            clef__shape_text(clef_tensor_shape(x)), clef__shape_text(clef_tensor_shape(w)));
    return clef__apply(&op_conv2d, (clef_tensor *[]){x, w, b}, b == CLEF_NONE ? 2 : 3, &a, sizeof a);
}

/* ---- along one dimension ---- */

static clef_tensor *with_height(clef_tensor *x) { return clef_unsqueeze(x, 2); }

clef_tensor *clef_conv1d(clef_tensor *x, clef_tensor *w, clef_tensor *b, const clef_conv1d_options *options) {
    if (!CLEF__GIVEN("conv1d", "x w b?", x, w, b)) return NULL;
    clef_conv1d_options o = options ? *options : (clef_conv1d_options){0};
    if (clef_tensor_shape(x).rank != 3 || clef_tensor_shape(w).rank != 3)
        return clef__refuse(clef_tensor_context(x), "conv1d", CLEF_SHAPE, "x must be [n,c,l] and w [o,c/groups,k] (x %s, w %s)",
                            clef__shape_text(clef_tensor_shape(x)), clef__shape_text(clef_tensor_shape(w)));
    clef_conv2d_options flat = {
        .stride = {1, o.stride}, .padding = {0, o.padding}, .dilation = {1, o.dilation}, .groups = o.groups, .same = o.same};
    clef_tensor *y = clef_conv2d(with_height(x), with_height(w), b, &flat);
    return y ? clef_squeeze(y, 2) : NULL;
}

/* ---- transposed ---- */

static clef_tensor *refuse_transpose(clef_tensor *x, clef_tensor *w, clef_status status, const char *fact) {
    return clef__refuse(clef_tensor_context(x), "conv_transpose2d", status, "%s (x %s, w %s)", fact,
                        clef__shape_text(clef_tensor_shape(x)), clef__shape_text(clef_tensor_shape(w)));
}

/* The convolution whose gradient this is: its image is what comes out here.  NULL, or what does not fit. */
static const char *read_transpose(geometry *a, const clef_conv_transpose2d_options *o, clef_shape x, clef_shape w) {
    a->groups = o->groups ? o->groups : 1;
    if (a->groups < 0) return "groups must not be negative";
    for (int d = 0; d < 2; d++) {
        a->stride[d] = o->stride[d] ? o->stride[d] : 1;
        a->dilation[d] = o->dilation[d] ? o->dilation[d] : 1;
        a->kernel[d] = w.dim[2 + d];
        a->before[d] = a->after[d] = o->padding[d];
        if (a->stride[d] < 0 || a->dilation[d] < 0 || o->padding[d] < 0) return "stride, dilation and padding must not be negative";
        if (o->output_padding[d] < 0 || o->output_padding[d] >= a->stride[d]) return "output_padding must be 0 … stride - 1";
        int64_t all = clef__plus(clef__times(x.dim[2 + d] - 1, a->stride[d]), clef__plus(reach(a, d), o->output_padding[d]));
        a->image[d] = all - 2 * (int64_t)o->padding[d];
        if (x.dim[2 + d] < 1 || a->kernel[d] < 1 || a->image[d] < 1) return "nothing would come out";
        a->stride[d] = clef__smaller(a->stride[d], padded(a, d)); /* larger ones do the same */
        if (a->kernel[d] == 1) a->dilation[d] = 1;
    }
    return NULL;
}

clef_tensor *clef_conv_transpose2d(clef_tensor *x, clef_tensor *w, clef_tensor *b, const clef_conv_transpose2d_options *options) {
    static const clef_conv_transpose2d_options defaults = {0};
    if (!CLEF__GIVEN("conv_transpose2d", "x w b?", x, w, b)) return NULL;
    x = clef__autocast(x, CLEF__LOW_PRECISION), w = clef__autocast(w, CLEF__LOW_PRECISION);
    b = clef__autocast(b, CLEF__LOW_PRECISION);
    if (!x || !w || !b) return NULL;
    clef_shape from = clef_tensor_shape(x), filters = clef_tensor_shape(w);
    geometry a = {0};
    if (from.rank != 4 || filters.rank != 4)
        return refuse_transpose(x, w, CLEF_SHAPE, "x must be [n,c,h,w] and w [c,o/groups,kh,kw]");
    const char *wrong = read_transpose(&a, options ? options : &defaults, from, filters);
    if (wrong) return refuse_transpose(x, w, CLEF_INVALID, wrong);
    if (from.dim[1] != filters.dim[0]) return refuse_transpose(x, w, CLEF_SHAPE, "w must have a filter for each channel of x");
    if (from.dim[1] % a.groups) return refuse_transpose(x, w, CLEF_SHAPE, "the channels of x do not divide into the groups");
    clef_dtype dtype = clef_tensor_dtype(x);
    if (dtype != clef_tensor_dtype(w) || dtype == CLEF_U8 || dtype == CLEF_BOOL ||
        (b != CLEF_NONE && clef_tensor_dtype(b) != dtype))
        return refuse_transpose(x, w, CLEF_DTYPE, "x, w and b must be of one dtype, not u8 or bool; clef_to converts");
    int64_t channels = clef__times(filters.dim[1], a.groups);
    if (b != CLEF_NONE && (clef_tensor_shape(b).rank != 1 || clef_tensor_shape(b).dim[0] != channels))
        return refuse_transpose(x, w, CLEF_SHAPE, "b must have a number for each channel that comes out");
    clef_tensor *y = backward_data(x, w, &a);
    return y && b != CLEF_NONE ? clef_add(y, clef_reshape(b, CLEF_SHAPE(1, channels, 1, 1))) : y;
}
