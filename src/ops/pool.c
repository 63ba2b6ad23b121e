/* pool.c — maxima and averages over windows of images, and their gradients (cl/pool.cl).

   max_pool2d, its gradient and `max_pool2d_pick` (the elements of t where x has its maxima) are closed under
   differentiation, and so are avg_pool2d and its gradient: any order of derivative exists.  Nothing is stored for the
   backward pass but x itself: the place of a maximum is found again. */
#include "kernels/args.h"
#include "kernels/image.h"
#include "kernels/lanes.h"
#include "ops/ops.h"
#include "pool.args"
#include <string.h>

CLEF__ARGS(geometry, POOL_GEOMETRY_ARGS)
CLEF__ARGS(pool, POOL_ARGS)
CLEF__ARGS(pool_pair, POOL_PAIR_ARGS)

/* Attributes of every op here; index 0 is h, 1 is w. */
typedef struct geometry {
    int64_t image[2], result[2], kernel[2], stride[2], padding[2];
    int64_t exclude_padding, adaptive;
} geometry;

static const clef_op op_max, op_max_backward, op_max_pick, op_avg, op_avg_backward;

/* ---- infer ---- */
/* Kernels count pixels, an image's elements and those of a window in 32 bits. */
static bool countable(const geometry *a, clef_shape x) {
    int64_t rows = clef__larger(x.dim[2], a->result[0]), columns = clef__larger(x.dim[3], a->result[1]);
    int64_t pixels = clef__times(rows, columns);
    for (int d = 0; d < 2; d++)
        if (clef__plus(a->image[d], a->padding[d]) > INT32_MAX) return false;
    return clef__times(x.dim[0], pixels) <= INT32_MAX && clef__times(x.dim[1], clef__larger(pixels, 1)) <= INT32_MAX &&
           a->kernel[0] * a->kernel[1] <= INT32_MAX;
}

static bool check_window(clef__call *call, const geometry *a) {
    clef_shape x = call->input[0]->shape;
    for (int d = 0; d < 2; d++)
        if (a->result[d] < 1)
            return clef__infer_fail(call, CLEF_SHAPE, "the window {%lld,%lld} is larger than x %s with padding {%lld,%lld}",
                                    (long long)a->kernel[0], (long long)a->kernel[1], clef__shape_text(x), (long long)a->padding[0],
                                    (long long)a->padding[1]);
    if (!countable(a, x))
        return clef__infer_fail(call, CLEF_UNSUPPORTED,
                                "more than 2^31 pixels, or elements of an image or a window (x %s, window {%lld,%lld})",
                                clef__shape_text(x), (long long)a->kernel[0], (long long)a->kernel[1]);
    return true;
}

static bool infer_pool(clef__call *call) {
    const geometry *a = call->attributes;
    clef_shape x = call->input[0]->shape;
    if (x.rank != 4) return clef__infer_fail(call, CLEF_SHAPE, "x must be [n,c,h,w], not %s", clef__shape_text(x));
    if (!clef__infer_takes(call, call->n_inputs < 2 || clef__same_shape(call, 0, 1), "both images have one shape")) return false;
    if (!check_window(call, a)) return false;
    call->out->dtype = call->input[0]->dtype;
    if (call->op == &op_avg && !clef__is_float(call->out->dtype))
        return clef__infer_fail(call, CLEF_DTYPE, "an average of %s is not %s; convert with clef_to first",
                                clef_dtype_name(call->out->dtype), clef_dtype_name(call->out->dtype));
    call->out->shape = CLEF_SHAPE(x.dim[0], x.dim[1], a->result[0], a->result[1]);
    return true;
}

/* The gradients give the image's shape; the last input is of the result's. */
static bool infer_backward(clef__call *call) {
    const geometry *a = call->attributes;
    clef_shape g = call->input[call->n_inputs - 1]->shape, x = call->input[0]->shape;
    bool fits = g.rank == 4 && g.dim[2] == a->result[0] && g.dim[3] == a->result[1];
    if (fits && call->n_inputs == 2) fits = clef_shape_equal(x, CLEF_SHAPE(g.dim[0], g.dim[1], a->image[0], a->image[1]));
    if (!clef__infer_takes(call, fits, "g has the result's shape and x the image's")) return false;
    call->out->shape = CLEF_SHAPE(g.dim[0], g.dim[1], a->image[0], a->image[1]);
    call->out->dtype = call->input[0]->dtype;
    return true;
}

/* ---- lowering ---- */
static void begin_pool(const clef__lowering *lw, const char *kernel, const geometry *a, clef_dtype dtype, int64_t channels) {
    int lanes = clef__lower_profile(lw)->vector;
    if (clef_dtype_size(dtype) == 8 && lanes > 1) lanes /= 2;
    if (lanes > 4 && lanes > channels) lanes = 4; /* two variants are enough: the rest goes lane by lane anyway */
    if (lanes == 2) lanes = 1;                    /* rounding to bf16 has no pairs */
    clef__launch_begin(lw, "pool.cl", kernel);
    if (strncmp(kernel, "avg_", 4) == 0) clef__launch_define(lw, "AVERAGES", "1");
    clef__launch_define(lw, "DT", "%s", clef__token(dtype));
    clef__launch_define(lw, "W", "%d", lanes);
    if (a->adaptive) clef__launch_define(lw, "ADAPTIVE", "1");
    if (!a->adaptive && a->padding[0] + a->padding[1] == 0 && a->kernel[0] * a->kernel[1] <= 4) {
        clef__launch_define(lw, "WINDOW_H", "%d", (int)a->kernel[0]);
        clef__launch_define(lw, "WINDOW_W", "%d", (int)a->kernel[1]);
    }
}

/* Ends a launch that goes through the pixels of `walked`, reads the node's inputs, in order, and writes to `to`. */
static void end(const clef__lowering *lw, const geometry *a, const clef__image in[2], clef__operand to, const clef__image *walked) {
    double taps = a->adaptive ? 1 + (double)(a->image[0] * a->image[1]) / (double)(a->result[0] * a->result[1])
                              : (double)(a->kernel[0] * a->kernel[1]);
    int64_t pixels = walked->n * walked->h * walked->w, run = clef__lower_run(lw, pixels, taps * (double)walked->c);
    /* clang-format off */
    geometry_args g = {
        .pixels = pixels, .run = run, .c = walked->c, .in = CLEF__TWO(a->image), .out = CLEF__TWO(a->result),
        .kernel_h = a->kernel[0], .kernel_w = a->kernel[1], .stride = CLEF__TWO(a->stride), .before = CLEF__TWO(a->padding),
        .exclude = a->exclude_padding != 0,
    };
    pool_args one = {.image = in[0].data, .to = to, .geometry = g};
    pool_pair_args two = {.image = in[0].data, .second = in[1].data, .to = to, .geometry = g};
    /* clang-format on */
    if (clef__lower_node(lw)->n_inputs == 1) pass_pool(lw, &one);
    else pass_pool_pair(lw, &two);
    clef__launch_end_1d(lw, clef__ceil_div(pixels, run));
}

static void lower_with(const clef__lowering *lw, const char *kernel, bool pick) {
    const clef__node *node = clef__lower_node(lw);
    const geometry *a = node->attributes;
    clef__image in[2] = {0}, y;
    for (int i = 0; i < node->n_inputs; i++) in[i] = clef__image_in(lw, i);
    y = clef__image_of(clef__lower_out(lw, clef__channels_last));
    begin_pool(lw, kernel, a, node->out->dtype, y.c);
    if (pick) clef__launch_define(lw, "PICK", "1");
    end(lw, a, in, y.data, &y);
}

/* One window per pixel and no pixel without: the windows tile the image. */
static bool tiles(const geometry *a) {
    for (int d = 0; d < 2; d++)
        if (a->kernel[d] != a->stride[d] || a->padding[d] || a->result[d] * a->stride[d] != a->image[d]) return false;
    return true;
}

static void lower_max_tiles(const clef__lowering *lw) {
    const clef__node *node = clef__lower_node(lw);
    const geometry *a = node->attributes;
    clef__image x = clef__image_in(lw, 0), g = clef__image_in(lw, 1);
    clef__operand dx = clef__lower_out(lw, clef__channels_last);
    begin_pool(lw, "max_pool_backward_tiles", a, node->out->dtype, x.c);
    end(lw, a, (clef__image[]){x, g}, dx, &g);
}

static void lower_max(const clef__lowering *lw) { lower_with(lw, "max_pool", false); }
static void lower_max_pick(const clef__lowering *lw) { lower_with(lw, "max_pool", true); }
static void lower_max_gather(const clef__lowering *lw) { lower_with(lw, "max_pool_backward", false); }
static void lower_avg(const clef__lowering *lw) { lower_with(lw, "avg_pool", false); }
static void lower_avg_backward(const clef__lowering *lw) { lower_with(lw, "avg_pool_backward", false); }

static bool max_tiles_applies(const clef__lowering *lw) { return tiles(clef__lower_node(lw)->attributes); }
/* Rough costs that only have to order the two. */
static double tiles_cost(const clef__lowering *lw) { return 1e-9 * (double)clef_shape_numel(clef__lower_node(lw)->out->shape); }
static double gather_cost(const clef__lowering *lw) { return 4 * tiles_cost(lw); }

/* ---- gradients ---- */
static clef_tensor *apply(const clef_op *op, clef_tensor *a, clef_tensor *b, clef_tensor *like) {
    return clef__apply(op, (clef_tensor *[]){a, b}, b ? 2 : 1, clef__node_of(like)->attributes, sizeof(geometry));
}

/* Of the three ops of max_pool2d, by their last input: where x is beside it, x only says where the maxima are, and its own
   derivative is zero almost everywhere. */
static void gradient_max(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                         clef_tensor **dx) {
    const clef__node *node = clef__node_of(y[0]);
    int last = node->n_inputs - 1;
    if (wanted[last]) dx[last] = apply(node->op == &op_max_backward ? &op_max_pick : &op_max_backward, x[0], g[0], y[0]);
}

static void gradient_avg(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                         clef_tensor **dx) {
    (void)x;
    if (wanted[0]) dx[0] = apply(clef__node_of(y[0])->op == &op_avg ? &op_avg_backward : &op_avg, g[0], NULL, y[0]);
}

static const clef__strategy *const max_strategies[] = {&(const clef__strategy){.name = "direct", .lower = lower_max}, NULL};
static const clef__strategy *const max_pick_strategies[] = {&(const clef__strategy){.name = "direct", .lower = lower_max_pick},
                                                            NULL};
static const clef__strategy *const max_backward_strategies[] = {
    &(const clef__strategy){.name = "tiles", .applies = max_tiles_applies, .cost = tiles_cost, .lower = lower_max_tiles},
    &(const clef__strategy){.name = "gather", .cost = gather_cost, .lower = lower_max_gather}, NULL};
static const clef__strategy *const avg_strategies[] = {&(const clef__strategy){.name = "direct", .lower = lower_avg}, NULL};
static const clef__strategy *const avg_backward_strategies[] = {
    &(const clef__strategy){.name = "gather", .lower = lower_avg_backward}, NULL};

static const clef_op op_max = {
    .name = "max_pool2d", .kind = CLEF__KERNEL, .infer = infer_pool, .gradient = gradient_max, .strategies = max_strategies};
static const clef_op op_max_pick = {.name = "max_pool2d_pick",
                                    .kind = CLEF__KERNEL,
                                    .infer = infer_pool,
                                    .gradient = gradient_max,
                                    .strategies = max_pick_strategies};
static const clef_op op_max_backward = {.name = "max_pool2d_backward",
                                        .kind = CLEF__KERNEL,
                                        .infer = infer_backward,
                                        .gradient = gradient_max,
                                        .strategies = max_backward_strategies,
                                        .element = clef__max_pool2d_backward_element};
static const clef_op op_avg = {
    .name = "avg_pool2d", .kind = CLEF__KERNEL, .infer = infer_pool, .gradient = gradient_avg, .strategies = avg_strategies};
static const clef_op op_avg_backward = {.name = "avg_pool2d_backward",
                                        .kind = CLEF__KERNEL,
                                        .infer = infer_backward,
                                        .gradient = gradient_avg,
                                        .strategies = avg_backward_strategies};

/* ---- public ---- */
static clef_tensor *pool(const clef_op *op, clef_tensor *x, int kh, int kw, const clef_pool2d_options *options) {
    static const clef_pool2d_options defaults = {0};
    if (!CLEF__GIVEN(op->name, "x", x)) return NULL;
    const clef_pool2d_options *o = options ? options : &defaults;
    geometry a = {.kernel = {kh, kw}, .exclude_padding = o->exclude_padding};
    clef_shape s = clef_tensor_shape(x);
    for (int d = 0; d < 2; d++) {
        if (a.kernel[d] < 1 || o->stride[d] < 0)
            return clef__refuse(clef_tensor_context(x), op->name, CLEF_INVALID,
                                "window {%d,%d} and stride {%d,%d} must be positive (x %s)", kh, kw, o->stride[0], o->stride[1],
                                clef__shape_text(s));
        if (o->padding[d] < 0 || o->padding[d] > a.kernel[d] / 2)
            return clef__refuse(clef_tensor_context(x), op->name, CLEF_INVALID,
                                "padding {%d,%d} must be at most half of the window {%d,%d} (x %s)", o->padding[0], o->padding[1],
                                kh, kw, clef__shape_text(s));
        a.padding[d] = o->padding[d];
        a.image[d] = s.rank == 4 ? s.dim[2 + d] : 0;
        int64_t reach = clef__plus(a.image[d], a.padding[d]), room = clef__plus(reach, a.padding[d] - a.kernel[d]);
        a.stride[d] =
            clef__smaller(o->stride[d] ? o->stride[d] : a.kernel[d], clef__larger(reach, 1)); /* larger ones do the same */
        a.result[d] = a.image[d] > 0 && room >= 0 ? room / a.stride[d] + 1 : 0;
    }
    return clef__apply(op, &x, 1, &a, sizeof a);
}

clef_tensor *clef_max_pool2d(clef_tensor *x, int kh, int kw, const clef_pool2d_options *options) {
    return pool(&op_max, x, kh, kw, options);
}

clef_tensor *clef_avg_pool2d(clef_tensor *x, int kh, int kw, const clef_pool2d_options *options) {
    return pool(&op_avg, x, kh, kw, options);
}

clef_tensor *clef_adaptive_avg_pool2d(clef_tensor *x, int oh, int ow) {
    if (!CLEF__GIVEN("adaptive_avg_pool2d", "x", x)) return NULL;
    clef_shape s = clef_tensor_shape(x);
    if (oh < 1 || ow < 1)
        return clef__refuse(clef_tensor_context(x), "adaptive_avg_pool2d", CLEF_INVALID,
                            "the result {%d,%d} must be at least {1,1} (x %s)", oh, ow, clef__shape_text(s));
    geometry a = {.result = {oh, ow}, .kernel = {1, 1}, .stride = {1, 1}, .adaptive = 1};
    for (int d = 0; d < 2 && s.rank == 4; d++) {
        a.image[d] = s.dim[2 + d];
        if (a.image[d] == 0)
            return clef__refuse(clef_tensor_context(x), "adaptive_avg_pool2d", CLEF_SHAPE, "x %s has no pixels",
                                clef__shape_text(s));
    }
    return clef__apply(&op_avg, &x, 1, &a, sizeof a);
}

clef_tensor *clef_global_avg_pool2d(clef_tensor *x) {
    if (!CLEF__GIVEN("global_avg_pool2d", "x", x)) return NULL;
    if (clef_tensor_shape(x).rank != 4)
        return clef__refuse(clef_tensor_context(x), "global_avg_pool2d", CLEF_SHAPE, "x must be [n,c,h,w], not %s",
                            clef__shape_text(clef_tensor_shape(x)));
    return clef_mean(x, (const int[]){2, 3}, 2, false);
}
