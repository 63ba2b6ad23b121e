/* Random programs give the same bits however they run: fused, every op alone, eagerly, in exact buffers, as chains.

   A program is a pool of tensors that grows by random ops, over a few steps that end with assignments to parameters.  What is
   decided depends on the seed, shapes and dtypes only.  Ops with several outputs, gradients of norms, windows at places that move,
   and matrices that several products share are among them.  Sums and products of matrices see small whole numbers, which are exact
   in every order; conversions to integers see nothing undefined.
   CLEF_FUZZ_SEED=n runs and prints one program; CLEF_FUZZ_GRAPHS=n runs n of them (without: few, as nearly all
   the time goes into compiling kernels, 400 for an hour's search).
   ctest: cost=30 together */
#include "graph/graph.h"
#include "plan/fuzz_support.h"
#include "support/modes.h"

#include <stdio.h>

enum { GRAPHS = 3, STEPS = 2, OPS = 8, POOL = 64, PARAMETERS = 3, MOST_ELEMENTS = 3000 };

static const clef_dtype dtypes[] = {CLEF_F32, CLEF_F32, CLEF_F16, CLEF_BF16, CLEF_F64, CLEF_I32, CLEF_I64, CLEF_U8, CLEF_BOOL};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

typedef struct program {
    clef_context *ctx;
    uint64_t state;
    clef_shape base; /* leaves have its dimensions, or 1 */
    clef_tensor *pool[POOL], *parameter[PARAMETERS];
    int n;
    bool f64, two_devices, print;
    unsigned char *out; /* what was read */
    size_t bytes, capacity;
} program;

/* ---- chance ---- */

static uint64_t roll(program *p, uint64_t n) { return roll_from(&p->state, n); }

static clef_dtype some_dtype(program *p) {
    clef_dtype dtype = dtypes[roll(p, DTYPES)];
    return dtype == CLEF_F64 && !p->f64 ? CLEF_F32 : dtype;
}

static bool is_float(clef_tensor *x) {
    clef_dtype dtype = clef_tensor_dtype(x);
    return dtype == CLEF_F32 || dtype == CLEF_F16 || dtype == CLEF_BF16 || dtype == CLEF_F64;
}

static double some_number(program *p) {
    static const double numbers[] = {0, 1, -1, 0.5, -3, 7, 0.1, 200, 0.3};
    return numbers[roll(p, sizeof numbers / sizeof *numbers)];
}

static clef_shape some_shape(program *p) {
    clef_shape shape = p->base;
    for (int d = 0; d < shape.rank; d++)
        if (roll(p, 4) == 0) shape.dim[d] = 1;
    return shape;
}

/* ---- values ---- */

/* Whole numbers from -4 to 4, whatever x is. */
static clef_tensor *tame(clef_tensor *x) {
    if (!is_float(x)) return clef_clamp(x, clef_tensor_dtype(x) == CLEF_U8 ? 0 : -4, 4);
    return clef_round(clef_clamp(
        clef_where(clef_isfinite(x), x, clef_full(clef_tensor_context(x), CLEF_SCALAR, clef_tensor_dtype(x), 1)), -4, 4));
}

/* Integers stay far from overflow, which is undefined. */
static clef_tensor *bounded(clef_tensor *x) {
    clef_dtype dtype = clef_tensor_dtype(x);
    return dtype == CLEF_I32 || dtype == CLEF_I64 ? clef_clamp(x, -1000, 1000) : x;
}

static clef_tensor *converted(clef_tensor *x, clef_dtype dtype) { return clef_to(is_float(x) ? tame(x) : x, dtype); }

static clef_tensor *leaf(program *p, clef_shape shape, clef_dtype dtype) {
    float data[MOST_ELEMENTS];
    for (int64_t i = 0; i < clef_shape_numel(shape); i++) data[i] = (float)roll(p, 64) / 8 - 4;
    clef_tensor *x = clef_from_host(p->ctx, shape, CLEF_F32, data);
    bool exact = dtype == CLEF_F32 || dtype == CLEF_F64 || roll(p, 2);
    return exact && dtype != CLEF_F32 && !(dtype == CLEF_F16 || dtype == CLEF_BF16 || dtype == CLEF_F64) ? converted(x, dtype)
                                                                                                         : clef_to(x, dtype);
}

static void add(program *p, clef_tensor *t, const char *what) {
    char shape[96];
    cr_assert(t, "%s: %s", what, clef_error(p->ctx));
    if (p->print)
        fprintf(stderr, "  %%%d = %s : %s %s on %d\n", p->n, what, clef_dtype_name(clef_tensor_dtype(t)),
                clef_shape_format(clef_tensor_shape(t), shape, sizeof shape), clef_tensor_device(t));
    if (p->n < POOL && clef_numel(t) <= MOST_ELEMENTS) p->pool[p->n++] = t;
}

static clef_tensor *pick(program *p) {
    int at = (int)roll(p, (uint64_t)p->n);
    if (p->n > 4 && roll(p, 2)) at = p->n - 1 - (int)roll(p, 4); /* chains rather than bushes */
    if (p->print) fprintf(stderr, "    %%%d\n", at);
    return p->pool[at];
}

/* b where a lies, so that both can be inputs of one op. */
static clef_tensor *beside(clef_tensor *a, clef_tensor *b) { return clef_to_device(b, clef_tensor_device(a)); }

static bool fits(clef_tensor *a, clef_tensor *b) {
    clef_shape both;
    return clef__broadcast(clef_tensor_shape(a), clef_tensor_shape(b), &both) && clef_shape_numel(both) <= MOST_ELEMENTS;
}

/* ---- ops ---- */

static void unary_op(program *p) {
    clef_tensor *x = pick(p), *f = clef_tensor_dtype(x) == CLEF_BOOL || !is_float(x) ? clef_to(x, CLEF_F32) : x;
    switch (roll(p, 14)) {
    case 0: add(p, bounded(clef_neg(x)), "neg"); break;
    case 1: add(p, bounded(clef_abs(x)), "abs"); break;
    case 2: add(p, bounded(clef_square(x)), "square"); break;
    case 3: add(p, clef_relu(x), "relu"); break;
    case 4: add(p, clef_sin(f), "sin"); break;
    case 5: add(p, clef_tanh(f), "tanh"); break;
    case 6: add(p, clef_exp(clef_minimum(f, clef_full(p->ctx, CLEF_SCALAR, clef_tensor_dtype(f), 9))), "exp"); break;
    case 7: add(p, clef_sqrt(f), "sqrt"); break;
    case 8: add(p, clef_sigmoid(f), "sigmoid"); break;
    case 9: add(p, clef_leaky_relu(f, 0.1), "leaky_relu"); break;
    case 10: add(p, clef_clamp(x, -1, 2), "clamp"); break;
    case 11: add(p, clef_floor(x), "floor"); break;
    case 12: add(p, clef_isnan(f), "isnan"); break;
    default: add(p, clef_logical_not(x), "logical_not");
    }
}

static void binary_op(program *p) {
    clef_tensor *a = pick(p), *b = beside(a, pick(p));
    if (!fits(a, b)) b = clef_full(p->ctx, CLEF_SCALAR, some_dtype(p), some_number(p));
    switch (roll(p, 11)) {
    case 0:
    case 1: add(p, bounded(clef_add(a, b)), "add"); break;
    case 2:
    case 3: add(p, bounded(clef_mul(a, b)), "mul"); break;
    case 4: add(p, bounded(clef_sub(a, b)), "sub"); break;
    case 5: add(p, clef_div(a, b), "div"); break;
    case 6: add(p, clef_maximum(a, b), "maximum"); break;
    case 7: add(p, clef_lt(a, b), "lt"); break;
    case 8: add(p, clef_eq(a, b), "eq"); break;
    case 9: add(p, clef_logical_xor(a, b), "logical_xor"); break;
    default: add(p, clef_where(clef_gt(a, b), a, b), "where"); break;
    }
}

static void number_op(program *p) {
    clef_tensor *x = pick(p);
    double number = some_number(p);
    switch (roll(p, 4)) {
    case 0: add(p, bounded(clef_add_scalar(x, number)), "add_scalar"); break;
    case 1: add(p, bounded(clef_mul_scalar(x, number)), "mul_scalar"); break;
    case 2: add(p, clef_ge_scalar(x, number), "ge_scalar"); break;
    default: add(p, clef_full(p->ctx, some_shape(p), some_dtype(p), number), "full"); break;
    }
}

static void cast_op(program *p) {
    clef_tensor *x = pick(p);
    clef_dtype dtype = some_dtype(p);
    bool to_float = dtype == CLEF_F32 || dtype == CLEF_F16 || dtype == CLEF_BF16 || dtype == CLEF_F64 || dtype == CLEF_BOOL;
    add(p, to_float ? clef_to(x, dtype) : converted(x, dtype), "to");
}

static void view_op(program *p) {
    clef_tensor *x = pick(p);
    clef_shape shape = clef_tensor_shape(x);
    int dim = shape.rank ? (int)roll(p, (uint64_t)shape.rank) : 0;
    switch (shape.rank ? roll(p, 6) : 5) {
    case 0: add(p, clef_transpose(x, dim, (int)roll(p, (uint64_t)shape.rank)), "transpose"); break;
    case 1: add(p, clef_flip(x, dim), "flip"); break;
    case 2: add(p, clef_slice(x, dim, 0, shape.dim[dim], 1 + (int64_t)roll(p, 2)), "slice"); break;
    case 3: add(p, clef_flatten(x, 0, -1), "flatten"); break;
    case 4: add(p, clef_detach(x), "detach"); break;
    default:
        if (shape.rank < 4) add(p, clef_unsqueeze(x, 0), "unsqueeze");
        else add(p, clef_copy(x), "copy");
    }
}

/* A place for a window of `length` of n, from the host or computed, where it may lie outside. */
static clef_tensor *some_place(program *p, int64_t n, int64_t length) {
    int64_t at = (int64_t)roll(p, (uint64_t)(n - length) + 1), far = at + (int64_t)roll(p, 9) - 4;
    return roll(p, 2) ? clef_integer(p->ctx, at) : clef_from_host(p->ctx, CLEF_SCALAR, CLEF_I64, &far);
}

static void window_op(program *p) {
    clef_tensor *x = pick(p);
    clef_shape shape = clef_tensor_shape(x);
    if (shape.rank == 0) return;
    int dim = (int)roll(p, (uint64_t)shape.rank);
    int64_t n = shape.dim[dim], length = (int64_t)roll(p, (uint64_t)n + 1);
    clef_tensor *part = clef_slice_at(x, dim, beside(x, some_place(p, n, length)), length);
    if (roll(p, 2)) add(p, part, "slice_at");
    else add(p, clef_slice_update(x, dim, beside(x, some_place(p, n, length)), part), "slice_update");
}

static void expand_op(program *p) {
    clef_tensor *x = pick(p);
    clef_shape both;
    if (clef__broadcast(clef_tensor_shape(x), p->base, &both) && clef_shape_numel(both) <= MOST_ELEMENTS)
        add(p, clef_expand(x, both), "expand");
}

static void reduce_op(program *p) {
    clef_tensor *x = tame(pick(p));
    int rank = clef_tensor_shape(x).rank, dim = rank ? (int)roll(p, (uint64_t)rank) : 0, n = rank && roll(p, 3) ? 1 : 0;
    bool keep = roll(p, 3);
    if (clef_numel(x) == 0) return;
    switch (roll(p, 4)) {
    case 0: add(p, clef_max(x, &dim, n, keep), "max"); break;
    case 1: add(p, clef_mean(x, &dim, n, keep), "mean"); break;
    default: add(p, clef_sum(x, &dim, n, keep), "sum"); break;
    }
}

static void matmul_op(program *p) {
    clef_tensor *x = pick(p);
    int rank = clef_tensor_shape(x).rank;
    if (rank < 2 || clef_tensor_shape(x).dim[rank - 2] > 40) return;
    x = clef_to(tame(x), roll(p, 2) ? CLEF_F32 : CLEF_F16);
    add(p, clef_matmul(x, clef_transpose(x, -1, -2)), "matmul with its transpose");
}

/* Products of several values with one matrix, which is brought into the form they want once. */
static void shared_matrix_op(program *p) {
    clef_tensor *w = p->parameter[roll(p, PARAMETERS)];
    clef_shape shape = clef_tensor_shape(w);
    if (shape.rank != 2) return;
    w = clef_to(tame(w), CLEF_F32);
    for (int i = 0; i < 2; i++) {
        clef_tensor *x = beside(w, pick(p));
        clef_shape fits_x = CLEF_SHAPE(3, shape.dim[0]), both;
        if (!clef__broadcast(clef_tensor_shape(x), fits_x, &both) || !clef_shape_equal(both, fits_x)) continue;
        add(p, clef_matmul(clef_to(tame(clef_expand(x, fits_x)), CLEF_F32), w), "matmul with a parameter");
    }
}

/* Nodes with two outputs, of which one or both are read. */
static void several_op(program *p) {
    clef_tensor *x = pick(p), *first, *second;
    clef_shape shape = clef_tensor_shape(x);
    if (shape.rank == 0 || clef_numel(x) == 0) return;
    int dim = (int)roll(p, (uint64_t)shape.rank), which = (int)roll(p, 3);
    clef_status status = roll(p, 2)
                             ? clef_sort(x, dim, roll(p, 2), &first, &second)
                             : clef_topk(x, 1 + (int64_t)roll(p, (uint64_t)shape.dim[dim]), dim, roll(p, 2), &first, &second);
    cr_assert_eq(status, CLEF_OK, "%s", clef_error(p->ctx));
    if (which != 0) add(p, first, "values in order");
    if (which != 1) add(p, second, "indices in order");
}

/* The gradients of a norm: of one node, whose first result may be followed in its store, by what is made of the second one or not. */
static void norm_op(program *p) {
    clef_shape shape = some_shape(p);
    if (shape.rank == 0) return;
    clef_tensor *x = clef_require_grad(leaf(p, shape, CLEF_F32), true), *g = leaf(p, shape, CLEF_F32), *dx[2];
    clef_tensor *w = clef_require_grad(leaf(p, CLEF_SHAPE(shape.dim[shape.rank - 1]), CLEF_F32), true), *in[] = {x, w};
    clef_tensor *y = roll(p, 2) ? clef_rms_norm(x, 1, w, 0.1) : clef_layer_norm(x, 1, w, CLEF_NONE, 0.1);
    cr_assert_eq(clef_grad(y, g, in, 2, false, dx), CLEF_OK, "%s", clef_error(p->ctx));
    clef_tensor *other = leaf(p, shape, CLEF_F32);
    if (roll(p, 2)) other = clef_softmax(clef_add(other, dx[1]), -1);
    if (roll(p, 2)) add(p, dx[1], "a norm's gradient of its weight");
    add(p, clef_add(dx[0], other), "a norm's gradient, and more");
    if (roll(p, 3) == 0) add(p, dx[0], "a norm's gradient");
}

static void device_op(program *p) {
    clef_tensor *x = pick(p);
    if (p->two_devices) add(p, clef_to_device(x, 1 - clef_tensor_device(x)), "to_device");
    else unary_op(p);
}

static void one_op(program *p) {
    static void (*const ops[])(program *) = {unary_op,  unary_op,   unary_op, binary_op,        binary_op, binary_op, binary_op,
                                             number_op, cast_op,    view_op,  view_op,          window_op, expand_op, reduce_op,
                                             matmul_op, several_op, norm_op,  shared_matrix_op, device_op};
    ops[roll(p, sizeof ops / sizeof *ops)](p);
}

/* ---- results ---- */

static void read_result(program *p, clef_tensor *t) {
    size_t bytes = (size_t)clef_numel(t) * clef_dtype_size(clef_tensor_dtype(t));
    if (p->bytes + bytes > p->capacity) {
        p->capacity = 2 * (p->bytes + bytes);
        p->out = realloc(p->out, p->capacity);
    }
    cr_assert_eq(clef_read(t, p->out + p->bytes, bytes), CLEF_OK, "%s", clef_error(p->ctx));
    unite_nans(p->out + p->bytes, clef_numel(t), clef_tensor_dtype(t));
    p->bytes += bytes;
}

/* ---- programs ---- */

static void begin(program *p, uint64_t seed) {
    static const int64_t sizes[] = {1, 2, 3, 5, 8, 17, 33};
    p->state = seed * 0x2545f4914f6cdd1du;
    p->base.rank = (int)roll(p, 4);
    for (int d = 0; d < p->base.rank; d++) p->base.dim[d] = sizes[roll(p, d < 2 ? 7 : 4)];
    for (int i = 0; i < PARAMETERS; i++) {
        p->parameter[i] = clef_keep(leaf(p, some_shape(p), some_dtype(p)));
        if (p->two_devices && i == 2)
            clef_release(p->parameter[i]), p->parameter[i] = clef_keep(clef_to_device(leaf(p, p->base, CLEF_F32), 1));
    }
}

/* A row of a parameter becomes a number, or another of its rows. */
static void update_window(program *p, clef_tensor *parameter) {
    clef_shape shape = clef_tensor_shape(parameter);
    int64_t n = shape.dim[0];
    clef_tensor *value = clef_slice_at(parameter, 0, beside(parameter, some_place(p, n, 1)), 1);
    shape.dim[0] = 1;
    if (roll(p, 2)) value = clef_full(p->ctx, shape, clef_tensor_dtype(parameter), some_number(p));
    if (p->print) fprintf(stderr, "  assign_at\n");
    cr_assert_eq(clef_assign_at(parameter, 0, some_place(p, n, 1), value), CLEF_OK, "%s", clef_error(p->ctx));
}

/* A parameter becomes an expression of its shape; the pool remembers its former value. */
static void update(program *p) {
    clef_tensor *parameter = p->parameter[roll(p, PARAMETERS)], *x = beside(parameter, pick(p));
    clef_dtype dtype = clef_tensor_dtype(parameter);
    clef_tensor *y = fits(parameter, x) ? clef_add(parameter, x) : clef_add_scalar(parameter, some_number(p));
    if (!clef_shape_equal(clef_tensor_shape(y), clef_tensor_shape(parameter))) y = clef_mul_scalar(parameter, some_number(p));
    bool exact = dtype == CLEF_F32 || dtype == CLEF_F16 || dtype == CLEF_BF16 || dtype == CLEF_F64;
    if (p->print) fprintf(stderr, "  assign\n");
    cr_assert_eq(clef_assign(parameter, bounded(exact ? y : converted(y, dtype))), CLEF_OK, "%s", clef_error(p->ctx));
}

static void one_step(program *p) {
    clef_tensor *kept[2];
    p->n = 0;
    for (int i = 0; i < PARAMETERS; i++) add(p, p->parameter[i], "parameter");
    add(p, leaf(p, some_shape(p), some_dtype(p)), "leaf");
    add(p, clef_full(p->ctx, some_shape(p), some_dtype(p), some_number(p)), "full");
    for (int i = 0; i < OPS; i++) one_op(p);
    for (int i = 0; i < 2; i++) {
        kept[i] = clef_keep(clef_copy(p->pool[p->n - 1 - i]));
        if (roll(p, 3) == 0) read_result(p, pick(p));
        if (roll(p, 2)) update(p);
        clef_tensor *parameter = p->parameter[roll(p, PARAMETERS)];
        for (int k = 0; k < 2 && clef_tensor_shape(parameter).rank && roll(p, 3); k++) update_window(p, parameter);
    }
    cr_assert_eq(clef_end_step(p->ctx), CLEF_OK, "%s", clef_error(p->ctx));
    for (int i = 0; i < 2; i++) {
        read_result(p, kept[i]);
        clef_release(kept[i]);
    }
    for (int i = 0; i < PARAMETERS; i++) read_result(p, p->parameter[i]);
}

static program run_program(clef_context *ctx, mode m, uint64_t seed, bool print) {
    clef_device_info info;
    program p = {.ctx = ctx, .print = print, .f64 = clef_context_device(ctx, 0, &info) && info.f64};
    p.two_devices = clef_context_device_count(ctx) > 1 && seed % 4 == 0;
    setenv("CLEF_FUSE", m == ALONE ? "0" : "1", 1);
    begin(&p, seed);
    for (int i = 0; i < STEPS; i++) one_step(&p);
    for (int i = 0; i < PARAMETERS; i++) clef_release(p.parameter[i]);
    return p;
}

static uint64_t launches[2]; /* of first runs in the chained mode, and of second ones */

static program run_chained(clef_context *ctx, uint64_t seed, int time) {
    uint64_t before = clef_counters_get(ctx).launches;
    program p = run_program(ctx, CHAINED, seed, false);
    launches[time] += clef_counters_get(ctx).launches - before;
    return p;
}

static void compare_modes(clef_context *const *ctx, uint64_t seed, bool print) {
    program wanted = run_program(ctx[FUSED], FUSED, seed, print);
    free(run_chained(ctx[CHAINED], seed, 0).out); /* so that its plans run for the second time */
    for (mode m = 1; m < MODES; m++) {
        program got = m == CHAINED ? run_chained(ctx[m], seed, 1) : run_program(ctx[m], m, seed, false);
        cr_expect(got.bytes == wanted.bytes && memcmp(got.out, wanted.out, got.bytes) == 0, "seed %llu: %s differs from fused",
                  (unsigned long long)seed, mode_names[m]);
        free(got.out);
    }
    free(wanted.out);
}

Test(fuzz, programs_give_the_same_bits_in_every_mode) {
    clef_context *ctx[MODES];
    setenv("POCL_DEVICES", "pthread basic", 0);
    bool two = clef_device_count() > 1;
    for (mode m = 0; m < MODES; m++) ctx[m] = open_mode(m, two ? "0,1" : NULL);
    uint64_t graphs = number_from("CLEF_FUZZ_GRAPHS", GRAPHS), only = number_from("CLEF_FUZZ_SEED", 0), seed = 1;
    if (only) compare_modes(ctx, only, true);
    for (; !only && seed <= graphs; seed++) compare_modes(ctx, seed, false);
    cr_log_info("%llu programs", (unsigned long long)seed - 1);
    if (clef__device_chains(clef__device_at(ctx[CHAINED], 0))) cr_expect_lt(launches[1], launches[0], "there are no chains");
    for (mode m = 0; m < MODES; m++) {
        cr_expect_str_empty(clef_error(ctx[m]));
        clef_close(ctx[m]);
    }
}
