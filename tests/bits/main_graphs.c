/* Hundreds of graphs, every op and model in both directions, with the SHA-256 of all their results: cmake/same_bits.sh compares
   what two versions of Clef print.

   main_graphs [PART] prints "<name> <SHA-256>" of every graph whose name begins with PART.  Without arguments, as a test, some of
   them run in two contexts, and their hashes must be the same.  CLEF_BITS_UNITS=n gives the device n compute units, CLEF_BITS_SUM_UNITS=n
   is clef_options.sum_units. Exit 77: no device. ctest: cost=20 plain */
#include "support/stated_units.h"
#include "clef.h"
#include "runtime/sha256.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the running graph: its name, its leaves, the hash of its results ---- */
enum { MOST_LEAVES = 16, HASH = 65, EVERY = 16 };
static clef_context *ctx;
static char name[128];
static clef_tensor *leaf[MOST_LEAVES];
static int n_leaves, n_graphs, n_failed;
static uint64_t noise_state;
static clef__sha256 sha;
static const char *part;     /* NULL: as a test */
static char (*hashes)[HASH]; /* as a test: of the first context */
static bool second_time;

static void result(clef_tensor *t) {
    size_t bytes = (size_t)clef_numel(t) * clef_dtype_size(clef_tensor_dtype(t));
    void *data = malloc(bytes + 1);
    if (clef_read(t, data, bytes) != CLEF_OK) memset(data, 0, bytes);
    clef__sha256_add(&sha, data, bytes);
    free(data);
}

/* Should this graph run?  Then the results that follow are its. */
__attribute__((format(printf, 1, 2))) static bool begin(const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    bool wanted = part ? strncmp(name, part, strlen(part)) == 0 : n_graphs % EVERY == 0;
    n_graphs++;
    if (!wanted) return false;
    noise_state = 1;
    clef_seed(ctx, 5);
    clef__sha256_begin(&sha);
    return true;
}

static void compare(const char *hash) {
    char *first = hashes[n_graphs - 1];
    if (second_time && strcmp(first, hash) != 0) fprintf(stderr, "%s: other bits in a second context\n", name), n_failed++;
    strcpy(first, hash);
}

/* Prints the hash, or compares it.  A graph that fails has its error as a result: it must be the same one. */
static void end(void) {
    uint8_t digest[32];
    char hash[HASH];
    const char *error = clef_error(ctx);
    clef__sha256_add(&sha, error, strlen(error));
    clef__sha256_end(&sha, digest);
    for (int i = 0; i < 32; i++) snprintf(hash + 2 * i, 3, "%02x", digest[i]);
    if (part) printf("%s %s%s%s\n", name, hash, *error ? " " : "", error);
    else compare(hash);
    if (*error && !part) fprintf(stderr, "%s: %s\n", name, error), n_failed++;
    clef_clear_error(ctx);
    for (int i = 0; i < n_leaves; i++) clef_release(leaf[i]);
    n_leaves = 0;
    clef_end_step(ctx);
}

/* ---- inputs: numbers of the host in [low, high), so that no op makes them ---- */
static double noise(void) {
    noise_state = noise_state * 6364136223846793005u + 1442695040888963407u;
    return (double)(noise_state >> 40) / (1 << 24);
}

static clef_tensor *input(clef_shape shape, clef_dtype dtype, double low, double high) {
    size_t n = (size_t)clef_shape_numel(shape);
    float *data = malloc((n + 1) * sizeof *data);
    for (size_t i = 0; i < n; i++) data[i] = (float)(low + (high - low) * noise());
    clef_tensor *t = clef_keep(clef_to(clef_from_host(ctx, shape, CLEF_F32, data), dtype));
    free(data);
    return leaf[n_leaves++] = t;
}

/* The same, and its gradient will be a result. */
static clef_tensor *wanted(clef_shape shape, clef_dtype dtype, double low, double high) {
    return clef_require_grad(input(shape, dtype, low, high), true);
}
static clef_tensor *usual(clef_shape shape, clef_dtype dtype) { return wanted(shape, dtype, -1, 1); }

/* y, and the gradients of all leaves by a sum of y in which no two elements count the same.  Truth values have none. */
static void both_ways(clef_tensor *y) {
    if (y && clef_tensor_dtype(y) == CLEF_BOOL) {
        result(y);
        return;
    }
    y = clef_keep(y);
    clef_tensor *weight = input(y ? clef_tensor_shape(y) : CLEF_SHAPE(1), y ? clef_tensor_dtype(y) : CLEF_F32, 0.5, 1.5);
    clef_backward(clef_sum(clef_mul(y, weight), NULL, 0, false));
    result(y);
    for (int i = 0; i < n_leaves - 1; i++)
        if (clef_grad_of(leaf[i])) result(clef_grad_of(leaf[i]));
    clef_release(y);
}

static const clef_dtype floats[] = {CLEF_F32, CLEF_F16, CLEF_BF16, CLEF_F64};
static const clef_dtype wholes[] = {CLEF_I32, CLEF_I64, CLEF_U8, CLEF_BOOL};
static bool has_f64;
#define EACH(array, i) for (size_t i = 0; i < sizeof array / sizeof *array; i++)
#define EACH_FLOAT(d) EACH(floats, d) if (floats[d] != CLEF_F64 || has_f64)
#define DTYPE(d) clef_dtype_name(floats[d])

/* ---- pointwise ---- */
typedef clef_tensor *(*unary_fn)(clef_tensor *);
typedef clef_tensor *(*binary_fn)(clef_tensor *, clef_tensor *);
#define UNARY_P(row, ...) \
    static clef_tensor *row##_of(clef_tensor *x) { return clef_##row(x, 0.3); }
#define UNARY_PP(row, ...) \
    static clef_tensor *row##_of(clef_tensor *x) { return clef_##row(x, -0.2, 0.4); }
#define UNARY(row, ...) \
    static clef_tensor *row##_of(clef_tensor *x) { return clef_##row(x); }
#include "unary.def"
#undef UNARY
#undef UNARY_P
#undef UNARY_PP

static const struct {
    const char *name;
    unary_fn f;
} unary[] = {
#define UNARY(row, ...) {#row, row##_of},
#include "unary.def"
};
static const struct {
    const char *name;
    binary_fn f;
} binary[] = {
#define BINARY(row, ...) {#row, clef_##row},
#include "binary.def"
};

/* Every row in f32 and, as each kernel takes its time to compile, in one more dtype. */
#define IN_TURN(d, i) ((d) == 0 || (i) % 3 == (d)-1)

static void pointwise(void) {
    EACH_FLOAT(d) EACH(unary, i) if (IN_TURN(d, i) && begin("unary %s %s", unary[i].name, DTYPE(d))) {
        both_ways(unary[i].f(wanted(CLEF_SHAPE(5, 37), floats[d], 0.1, 1.1)));
        end();
    }
    EACH_FLOAT(d) EACH(binary, i) if (IN_TURN(d, i) && begin("binary %s %s", binary[i].name, DTYPE(d))) {
        both_ways(binary[i].f(wanted(CLEF_SHAPE(5, 37), floats[d], 0.5, 3),
                              clef_transpose(wanted(CLEF_SHAPE(37, 1), floats[d], 0.5, 3), 0, 1)));
        end();
    }
    EACH(wholes, d) EACH(binary, i) if (begin("binary %s %s", binary[i].name, clef_dtype_name(wholes[d]))) {
        result(binary[i].f(input(CLEF_SHAPE(3, 19), wholes[d], 0, 40), input(CLEF_SHAPE(19), wholes[d], 0, 7)));
        end();
    }
    EACH_FLOAT(d) if (begin("fused chain %s", DTYPE(d))) {
        clef_tensor *x = usual(CLEF_SHAPE(13, 70), floats[d]), *b = usual(CLEF_SHAPE(70), floats[d]),
                    *c = usual(CLEF_SHAPE(13, 1), floats[d]);
        clef_tensor *y = clef_gelu(clef_add(clef_mul(x, b), c));
        both_ways(clef_where(clef_gt(y, c), clef_tanh(y), clef_lerp(x, y, clef_sigmoid(b))));
        end();
    }
    static const clef_custom_op cube = {.name = "cube", .forward = "x*x*x", .backward = {"K(3)*x*x*g"}};
    EACH_FLOAT(d) if (begin("custom %s", DTYPE(d))) {
        both_ways(clef_custom(&cube, (clef_tensor *[]){usual(CLEF_SHAPE(33), floats[d])}, 1));
        end();
    }
}

/* ---- reductions ---- */
static const int last[] = {-1}, first[] = {0}, middle[] = {1}, outer[] = {0, 2};
static const struct {
    const char *name;
    const int *dims;
    int n;
} axes[] = {{"all", NULL, 0}, {"last", last, 1}, {"first", first, 1}, {"middle", middle, 1}, {"outer", outer, 2}};

static clef_tensor *mean_of(clef_tensor *x, const int *dims, int n, bool keep) { return clef_mean(x, dims, n, keep); }
static clef_tensor *var_of(clef_tensor *x, const int *dims, int n, bool keep) { return clef_var(x, dims, n, keep, 1); }
static clef_tensor *norm_of(clef_tensor *x, const int *dims, int n, bool keep) { return clef_norm(x, 2, dims, n, keep); }
static const struct {
    const char *name;
    clef_tensor *(*f)(clef_tensor *, const int *, int, bool);
} reduction[] = {{"sum", clef_sum},
                 {"mean", mean_of},
                 {"max", clef_max},
                 {"min", clef_min},
                 {"prod", clef_prod},
                 {"var", var_of},
                 {"logsumexp", clef_logsumexp},
                 {"norm", norm_of}};

static void reductions(void) {
    EACH_FLOAT(d)
    EACH(reduction, i)
    EACH(axes, a) if ((floats[d] == CLEF_F32 || a < 2) && begin("reduce %s %s %s", reduction[i].name, axes[a].name, DTYPE(d))) {
        both_ways(reduction[i].f(wanted(CLEF_SHAPE(6, 35, 17), floats[d], 0.9, 1.1), axes[a].dims, axes[a].n, a % 2 == 0));
        end();
    }
    if (begin("reduce long rows")) {
        both_ways(clef_sum(clef_square(usual(CLEF_SHAPE(3, 40000), CLEF_F32)), last, 1, false));
        end();
    }
    for (int dim = 0; dim < 2; dim++)
        if (begin("argmax, argmin %d", dim)) {
            clef_tensor *x = input(CLEF_SHAPE(9, 50), CLEF_F32, 0, 1);
            result(clef_argmax(x, dim, true)), result(clef_argmin(x, dim, false));
            end();
        }
    EACH_FLOAT(d) for (int dim = 0; dim < 3; dim++) if (begin("softmax %d %s", dim, DTYPE(d))) {
        clef_tensor *x = usual(CLEF_SHAPE(5, 37, 18), floats[d]);
        both_ways(clef_add(clef_softmax(x, dim), clef_log_softmax(x, dim)));
        end();
    }
}

/* ---- norms, dropout, losses ---- */
static void norms(void) {
    EACH_FLOAT(d) for (int affine = 0; affine < 2; affine++) if (begin("layer_norm %s %s", affine ? "affine" : "plain", DTYPE(d))) {
        clef_tensor *x = usual(CLEF_SHAPE(6, 5, 77), floats[d]);
        both_ways(affine ? clef_layer_norm(x, 1, usual(CLEF_SHAPE(77), floats[d]), usual(CLEF_SHAPE(77), floats[d]), 1e-5)
                         : clef_layer_norm(x, 2, CLEF_NONE, CLEF_NONE, 1e-5));
        end();
    }
    EACH_FLOAT(d) for (int affine = 0; affine < 2; affine++) if (begin("rms_norm %s %s", affine ? "affine" : "plain", DTYPE(d))) {
        both_ways(
            clef_rms_norm(usual(CLEF_SHAPE(6, 5, 77), floats[d]), 1, affine ? usual(CLEF_SHAPE(77), floats[d]) : CLEF_NONE, 1e-5));
        end();
    }
    EACH_FLOAT(d) if (begin("group_norm %s", DTYPE(d))) {
        both_ways(clef_group_norm(usual(CLEF_SHAPE(4, 6, 9, 7), floats[d]), 3, usual(CLEF_SHAPE(6), floats[d]),
                                  usual(CLEF_SHAPE(6), floats[d]), 1e-5));
        end();
    }
    EACH_FLOAT(d)
    for (int training = 0; training < 2; training++)
        for (int rank = 2; rank <= 4; rank += 2)
            if (begin("batch_norm %s rank %d %s", training ? "training" : "evaluation", rank, DTYPE(d))) {
                clef_tensor *x = usual(rank == 2 ? CLEF_SHAPE(40, 6) : CLEF_SHAPE(4, 6, 9, 7), floats[d]);
                clef_tensor *w = usual(CLEF_SHAPE(6), floats[d]), *b = usual(CLEF_SHAPE(6), floats[d]);
                clef_tensor *mean = input(CLEF_SHAPE(6), floats[d], -1, 1), *var = input(CLEF_SHAPE(6), floats[d], 0.5, 1);
                both_ways(clef_relu(clef_batch_norm(x, w, b, mean, var, training, 0.1, 1e-5)));
                result(mean), result(var);
                end();
            }
    EACH_FLOAT(d) if (begin("dropout %s", DTYPE(d))) {
        both_ways(clef_dropout(usual(CLEF_SHAPE(11, 93), floats[d]), 0.3));
        end();
    }
}

static const struct {
    const char *name;
    clef_tensor *(*f)(clef_tensor *, clef_tensor *, const clef_loss_options *);
} loss[] = {{"mse", clef_mse_loss}, {"l1", clef_l1_loss}, {"huber", clef_huber_loss}, {"bce", clef_bce_with_logits}};

static void losses(void) {
    EACH_FLOAT(d) EACH(loss, i) for (int r = 0; r < 3; r += 2) if (begin("loss %s %d %s", loss[i].name, r, DTYPE(d))) {
        clef_tensor *x = usual(CLEF_SHAPE(7, 45), floats[d]), *target = input(CLEF_SHAPE(7, 45), floats[d], 0, 1);
        both_ways(loss[i].f(x, target, &(clef_loss_options){.reduction = (clef_reduction)r}));
        end();
    }
    EACH_FLOAT(d) for (int smooth = 0; smooth < 2; smooth++) if (begin("loss cross_entropy %d %s", smooth, DTYPE(d))) {
        clef_tensor *x = usual(CLEF_SHAPE(30, 11), floats[d]), *label = input(CLEF_SHAPE(30), CLEF_I64, 0, 11);
        clef_loss_options o = {.label_smoothing = smooth * 0.1, .has_ignore_index = smooth, .ignore_index = 3};
        both_ways(clef_cross_entropy(x, label, &o));
        end();
    }
    if (begin("loss cross_entropy of images")) {
        both_ways(clef_cross_entropy(usual(CLEF_SHAPE(2, 5, 6, 7), CLEF_F32), input(CLEF_SHAPE(2, 6, 7), CLEF_I32, 0, 5), NULL));
        end();
    }
    if (begin("loss nll")) {
        both_ways(
            clef_nll_loss(clef_log_softmax(usual(CLEF_SHAPE(9, 4), CLEF_F32), 1), input(CLEF_SHAPE(9), CLEF_I64, 0, 4), NULL));
        end();
    }
}

/* ---- movement, index, random numbers, casts ---- */
static clef_tensor *moved(clef_tensor *x, int how) {
    switch (how) {
    case 0: return clef_permute(x, (int[]){2, 0, 1});
    case 1: return clef_slice(x, 1, 30, 2, -3);
    case 2: return clef_flip(x, 2);
    case 3: return clef_pad(x, (int64_t[]){1, 0, 2}, (int64_t[]){0, 3, 1}, 0.5);
    case 4: return clef_concat((clef_tensor *[]){x, clef_mul(x, x), clef_slice(x, 1, 0, 5, 1)}, 3, 1);
    case 5: return clef_stack((clef_tensor *[]){x, clef_neg(x)}, 2, 1);
    case 6: return clef_reshape(clef_transpose(x, 0, 2), CLEF_SHAPE(-1, 4));
    case 7: return clef_expand(clef_slice(x, 0, 1, 2, 1), CLEF_SHAPE(3, 31, 8));
    default: return clef_copy(clef_flatten(clef_transpose(x, 1, 2), 1, 2));
    }
}

static void movement(void) {
    static const clef_dtype other[] = {CLEF_F64, CLEF_F32, CLEF_F16, CLEF_BF16, CLEF_I64, CLEF_I32, CLEF_U8, CLEF_BOOL};
    EACH_FLOAT(d) for (int how = 0; how < 9; how++) if (begin("movement %d %s", how, DTYPE(d))) {
        both_ways(moved(usual(CLEF_SHAPE(4, 31, 8), floats[d]), how));
        end();
    }
    EACH_FLOAT(d) if (begin("windows %s", DTYPE(d))) {
        clef_tensor *x = usual(CLEF_SHAPE(9, 17), floats[d]), *at = clef_integer(ctx, 4);
        both_ways(clef_slice_update(x, 1, at, clef_square(clef_slice_at(clef_flip(x, 1), 1, at, 6))));
        end();
    }
    EACH_FLOAT(d) if (begin("index %s", DTYPE(d))) {
        clef_tensor *x = usual(CLEF_SHAPE(9, 5), floats[d]), *at = input(CLEF_SHAPE(20, 5), CLEF_I64, 0, 9),
                    *row = input(CLEF_SHAPE(3, 4), CLEF_I32, 0, 9);
        clef_tensor *y = clef_gather(x, 0, at);
        both_ways(clef_concat((clef_tensor *[]){clef_scatter_add(x, 0, at, clef_square(y)), y,
                                                clef_reshape(clef_embedding(x, row), CLEF_SHAPE(12, 5))},
                              3, 0));
        end();
    }
    EACH_FLOAT(d) if (begin("order %s", DTYPE(d))) {
        clef_tensor *x = usual(CLEF_SHAPE(7, 90), floats[d]), *values, *indices, *few;
        clef_sort(x, 1, true, &values, &indices);
        clef_topk(x, 4, 0, false, &few, NULL);
        result(indices);
        both_ways(clef_concat((clef_tensor *[]){clef_cumsum(values, 1), few}, 2, 0));
        end();
    }
    if (begin("draws")) {
        clef_tensor *w = input(CLEF_SHAPE(5, 60), CLEF_F32, 0, 9);
        result(clef_multinomial(w, 20, false));
        result(clef_multinomial(w, 70, true));
        result(clef_randint(ctx, -5, 6, CLEF_SHAPE(33)));
        end();
    }
    EACH_FLOAT(d) if (begin("choosing and placing %s", DTYPE(d))) {
        clef_tensor *x = usual(CLEF_SHAPE(9, 5), floats[d]), *at = input(CLEF_SHAPE(20, 5), CLEF_I64, 0, 9),
                    *row = input(CLEF_SHAPE(12), CLEF_I32, 0, 5);
        clef_tensor *y = clef_scatter(
            x, 0, at, clef_index_select(clef_repeat(x, (int64_t[]){3, 1}, 2), 0, clef_arange(ctx, 0, 20, 1, CLEF_I32)));
        both_ways(clef_masked_fill(clef_tril(clef_index_select(y, 1, row), 2), clef_gt_scalar(row, 3), 0.5));
        end();
    }
    EACH(other, d)
    if (clef_dtype_size(other[d]) < 8 || other[d] != CLEF_F64 || has_f64)
        if (begin("casts %s", clef_dtype_name(other[d]))) {
            clef_tensor *x = clef_to(input(CLEF_SHAPE(101), CLEF_F32, 0, 200), other[d]);
            result(x);
            EACH(other, e) if (other[e] != CLEF_F64 || has_f64) result(clef_to(x, other[e]));
            result(clef_arange(ctx, 3, 30, 2, other[d] == CLEF_BOOL ? CLEF_I32 : other[d])),
                result(clef_full(ctx, CLEF_SHAPE(7), other[d], 3));
            end();
        }
    if (begin("random")) {
        result(clef_rand(ctx, CLEF_SHAPE(1001))), result(clef_randn(ctx, CLEF_SHAPE(13, 17))), result(clef_eye(ctx, 9, CLEF_F32));
        end();
    }
}

/* ---- products ---- */
static void products(void) {
    static const int size[][3] = {{1, 1, 1},    {1, 70, 33},    {70, 1, 33},    {5, 17, 200},
                                  {64, 64, 64}, {100, 10, 256}, {130, 70, 129}, {3, 5, 3000}};
    EACH_FLOAT(d)
    EACH(size, s)
    for (int form = 0; form < 4; form++)
        if ((floats[d] == CLEF_F32 || s % 3 == 0) && begin("matmul %dx%dx%d %s%s%s", size[s][0], size[s][1], size[s][2],
                                                           form & 1 ? "a^T " : "", form & 2 ? "b^T " : "", DTYPE(d))) {
            int m = size[s][0], n = size[s][1], k = size[s][2];
            clef_tensor *a =
                form & 1 ? clef_transpose(usual(CLEF_SHAPE(k, m), floats[d]), 0, 1) : usual(CLEF_SHAPE(m, k), floats[d]);
            clef_tensor *b =
                form & 2 ? clef_transpose(usual(CLEF_SHAPE(n, k), floats[d]), 0, 1) : usual(CLEF_SHAPE(k, n), floats[d]);
            both_ways(clef_matmul(a, b));
            end();
        }
    EACH_FLOAT(d) if (begin("matmul of batches %s", DTYPE(d))) {
        both_ways(clef_matmul(usual(CLEF_SHAPE(3, 1, 9, 20), floats[d]), usual(CLEF_SHAPE(2, 20, 13), floats[d])));
        end();
    }
    EACH_FLOAT(d) for (int after = 0; after < 4; after++) if (begin("linear and %d more %s", after, DTYPE(d))) {
        clef_tensor *x = usual(CLEF_SHAPE(33, 50), floats[d]), *w = usual(CLEF_SHAPE(21, 50), floats[d]);
        clef_tensor *y = clef_linear(x, w, usual(CLEF_SHAPE(21), floats[d]));
        if (after > 0) y = clef_relu(y);
        if (after > 1) y = clef_add(y, usual(CLEF_SHAPE(33, 21), floats[d]));
        if (after > 2) y = clef_mul(clef_gelu(y), usual(CLEF_SHAPE(21), floats[d]));
        both_ways(y);
        end();
    }
    if (begin("matmul of a formula")) {
        clef_tensor *x = usual(CLEF_SHAPE(40, 30), CLEF_F32);
        both_ways(
            clef_matmul(clef_sigmoid(clef_mul(x, usual(CLEF_SHAPE(30), CLEF_F32))), clef_exp(usual(CLEF_SHAPE(30, 20), CLEF_F32))));
        end();
    }
}

/* ---- images ---- */
typedef struct image_case {
    const char *name;
    clef_shape x, w;
    clef_conv2d_options o;
} image_case;

static void images(void) {
    const image_case conv[] = {
        {"3x3", CLEF_SHAPE(2, 16, 14, 14), CLEF_SHAPE(32, 16, 3, 3), {.padding = {1, 1}}},
        {"3x3 odd", CLEF_SHAPE(3, 5, 11, 9), CLEF_SHAPE(7, 5, 3, 3), {.padding = {1, 0}}},
        {"3x3 stride 2", CLEF_SHAPE(2, 16, 15, 13), CLEF_SHAPE(16, 16, 3, 3), {.stride = {2, 2}, .padding = {1, 1}}},
        {"1x1", CLEF_SHAPE(2, 32, 9, 9), CLEF_SHAPE(16, 32, 1, 1), {.groups = 1}},
        {"1x1 stride 2", CLEF_SHAPE(2, 16, 8, 8), CLEF_SHAPE(32, 16, 1, 1), {.stride = {2, 2}}},
        {"5x5 of one channel", CLEF_SHAPE(4, 1, 28, 28), CLEF_SHAPE(6, 1, 5, 5), {.padding = {2, 2}}},
        {"7x7 stride 2", CLEF_SHAPE(1, 3, 30, 30), CLEF_SHAPE(16, 3, 7, 7), {.stride = {2, 2}, .padding = {3, 3}}},
        {"dilated", CLEF_SHAPE(2, 8, 13, 13), CLEF_SHAPE(8, 8, 3, 3), {.dilation = {2, 3}, .padding = {2, 3}}},
        {"grouped", CLEF_SHAPE(2, 12, 10, 10), CLEF_SHAPE(18, 4, 3, 3), {.groups = 3}},
        {"depthwise", CLEF_SHAPE(2, 24, 12, 12), CLEF_SHAPE(24, 1, 3, 3), {.groups = 24, .padding = {1, 1}}},
        {"depthwise stride 2", CLEF_SHAPE(1, 17, 11, 12), CLEF_SHAPE(17, 1, 5, 5), {.groups = 17, .stride = {2, 1}, .same = true}}};
    EACH_FLOAT(d)
    EACH(conv, i)
    for (int after = 0; after < 2; after++)
        if ((floats[d] == CLEF_F32 || i % 2 == 0) && begin("conv %s%s %s", conv[i].name, after ? ", bias, relu" : "", DTYPE(d))) {
            clef_tensor *x = usual(conv[i].x, floats[d]), *w = usual(conv[i].w, floats[d]);
            both_ways(after ? clef_relu(clef_conv2d(x, w, usual(CLEF_SHAPE(conv[i].w.dim[0]), floats[d]), &conv[i].o))
                            : clef_conv2d(x, w, CLEF_NONE, &conv[i].o));
            end();
        }
    EACH_FLOAT(d) for (int kind = 0; kind < 4; kind++) if (begin("pool %d %s", kind, DTYPE(d))) {
        clef_pool2d_options o = {.stride = {2, 1}, .padding = {1, 1}, .exclude_padding = kind == 1};
        clef_tensor *x = usual(CLEF_SHAPE(3, 5, 14, 11), floats[d]);
        both_ways(kind == 0   ? clef_max_pool2d(x, 3, 2, &o)
                  : kind == 1 ? clef_avg_pool2d(x, 2, 3, &o)
                  : kind == 2 ? clef_adaptive_avg_pool2d(x, 4, 3)
                              : clef_global_avg_pool2d(x));
        end();
    }
}

/* ---- training: five steps; the results are the losses, and every parameter and buffer afterwards ---- */
enum { STEPS = 5, BATCH = 8 };
typedef clef_module *(*model_fn)(clef_context *, clef_shape, int64_t);

/* A net whose inputs and weights are cast: x and every weight in `dtype`, masters in f32. */
static clef_tensor *cast_forward(clef_module *net, clef_tensor *x, void *user) {
    clef_dtype dtype = *(const clef_dtype *)user;
    x = clef_to(clef_flatten(x, 1, -1), dtype);
    for (int i = 0; i < 4; i += 2) {
        x = clef_linear(x, clef_to(clef_module_tensor(net, i).tensor, dtype),
                        clef_to(clef_module_tensor(net, i + 1).tensor, dtype));
        if (i == 0) x = clef_gelu(x);
    }
    return clef_to(x, CLEF_F32);
}

static clef_module *cast_net(int64_t in, const clef_dtype *dtype) {
    static clef_dtype kept;
    kept = *dtype;
    clef_module *net = clef_module_new(ctx, "cast", cast_forward, &kept);
    clef_module_add_parameter(net, "a", clef_mul_scalar(clef_randn(ctx, CLEF_SHAPE(24, in)), 0.1));
    clef_module_add_parameter(net, "b", clef_zeros(ctx, CLEF_SHAPE(24), CLEF_F32));
    clef_module_add_parameter(net, "c", clef_mul_scalar(clef_randn(ctx, CLEF_SHAPE(10, 24)), 0.1));
    clef_module_add_parameter(net, "d", clef_zeros(ctx, CLEF_SHAPE(10), CLEF_F32));
    return net;
}

static clef_optimizer *make_optimizer(clef_module *net, int which) {
    switch (which) {
    case 0: return clef_sgd(net, &(clef_sgd_options){.lr = 0.05});
    case 1: return clef_sgd(net, &(clef_sgd_options){.lr = 0.05, .momentum = 0.9, .nesterov = true, .weight_decay = 1e-3});
    case 2: return clef_adam(net, &(clef_adam_options){.amsgrad = true});
    case 3: return clef_adamw(net, NULL);
    case 4: return clef_rmsprop(net, &(clef_rmsprop_options){.centered = true, .momentum = 0.5});
    default: return clef_adagrad(net, NULL);
    }
}

static void train(clef_module *net, clef_shape shape, int optimizer, bool clip) {
    clef_optimizer *opt = make_optimizer(net, optimizer);
    clef_tensor *x = input(shape, CLEF_F32, -1, 1), *label = input(CLEF_SHAPE(shape.dim[0]), CLEF_I64, 0, 10);
    for (int i = 0; i < STEPS; i++) {
        clef_tensor *l = clef_cross_entropy(clef_forward(net, x), label, NULL);
        clef_backward(l);
        if (clip) result(clef_clip_grad_norm(net, 0.5));
        clef_step(opt);
        result(l);
    }
    clef_set_training(net, false);
    result(clef_forward(net, x));
    for (int i = 0; i < clef_module_tensors(net); i++) result(clef_module_tensor(net, i).tensor);
}

static void models(void) {
    static const struct {
        const char *name;
        model_fn make;
        int channels, side;
    } model[] = {{"mlp", clef_model_mlp, 1, 12},
                 {"lenet", clef_model_lenet, 1, 16},
                 {"cnn", clef_model_cnn, 3, 12},
                 {"resnet18", clef_model_resnet18, 3, 16}};
    EACH(model, i)
    for (int recompute = 0; recompute < 2; recompute++)
        if (begin("train %s%s", model[i].name, recompute ? ", recompute" : "")) {
            clef_shape one = CLEF_SHAPE(model[i].channels, model[i].side, model[i].side),
                       all = CLEF_SHAPE(BATCH, one.dim[0], one.dim[1], one.dim[2]);
            clef_module *net = model[i].make(ctx, one, 10);
            clef_recompute(net, recompute);
            train(net, all, i == 0 ? 3 : 1, recompute);
            end();
        }
    for (int which = 0; which < 6; which++)
        if (begin("optimizer %d", which)) {
            train(clef_model_mlp(ctx, CLEF_SHAPE(1, 6, 6), 10), CLEF_SHAPE(BATCH, 1, 6, 6), which, which % 2);
            end();
        }
    EACH_FLOAT(d) if (begin("train in %s", DTYPE(d))) {
        train(cast_net(36, &floats[d]), CLEF_SHAPE(BATCH, 1, 6, 6), 3, true);
        end();
    }
}

static bool run_all(void) {
    const char *asked = getenv("CLEF_BITS_SUM_UNITS");
    ctx = clef_open(&(clef_options){.sum_units = asked ? atoi(asked) : 0});
    if (!ctx) return false;
    clef_device_info info;
    clef_context_device(ctx, 0, &info);
    has_f64 = info.f64;
    n_graphs = 0;
    pointwise(), reductions(), norms(), losses(), movement(), products(), images(), models();
    clef_close(ctx);
    return true;
}

int main(int n, char **argument) {
    const char *asked = getenv("CLEF_BITS_UNITS");
    if (asked) stated_units = (cl_uint)atoi(asked);
    static char room[2048][HASH];
    hashes = room;
    part = n > 1 ? argument[1] : NULL;
    for (int time = 0; time < (part ? 1 : 2); time++) {
        second_time = time > 0;
        if (run_all()) continue;
        bool absent = clef_error_status(NULL) == CLEF_NO_DEVICE;
        printf("%s: %s\n", absent ? "skipped" : "FAILED", clef_error(NULL));
        return absent ? 77 : 1;
    }
    if (!part) printf("%d graphs, of which each %dth ran twice: %d failed\n", n_graphs, EVERY, n_failed);
    return n_failed != 0 || n_graphs > 2048;
}
