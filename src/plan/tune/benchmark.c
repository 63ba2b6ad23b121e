/* benchmark.c — what clef_tune measures: nodes of the user's work, noted while they are planned and made again alone, with
   inputs that lie as they did and hold whole numbers. */
#include "graph/core.h"
#include "plan/tune/tune.h"
#include "runtime/arithmetic.h"
#include "runtime/half.h"

#include <string.h>

/* ---- noting ---- */

static double work_of(const clef__node *node) {
    double flops = (double)clef_shape_numel(node->out->shape), bytes = 0;
    if (node->op->cost) node->op->cost(node, &flops, &bytes);
    return flops;
}

static bool copy_attributes(const clef__node *node, clef__benchmark *s) {
    s->attribute_bytes = node->attribute_bytes;
    s->attributes = node->attribute_bytes ? clef__alloc(node->attribute_bytes) : NULL;
    if (s->attributes) memcpy(s->attributes, node->attributes, node->attribute_bytes);
    return s->attributes || !node->attribute_bytes;
}

/* Nodes that depend on more than their inputs cannot be made again. */
static bool can_be_alone(const clef__node *node) {
    return node->n_inputs <= CLEF__BENCHMARK_INPUTS && node->n_outputs == 1 && !node->has_dynamic;
}

void clef__benchmark_note(void *user, const clef__lowering *lw, const clef__tuning_key *key) {
    clef__benchmarks *all = user;
    const clef__node *node = lw->node;
    for (int i = 0; i < all->n; i++)
        if (clef__same_tuning_key(&all->benchmark[i].key, key)) {
            all->benchmark[i].work += work_of(node);
            return;
        }
    clef__benchmark s = {.key = *key,
                         .op = node->op,
                         .shape = node->out->shape,
                         .dtype = node->out->dtype,
                         .n_inputs = node->n_inputs,
                         .work = work_of(node)};
    s.once = s.work;
    s.products = s.work / (2 * (double)clef_shape_numel(node->out->shape));
    if (!can_be_alone(node)) return;
    for (int i = 0; i < node->n_inputs; i++) s.input[i] = clef__lower_in(lw, i);
    bool ok = clef__grow(&all->benchmark, all->n, &all->capacity, sizeof s) && copy_attributes(node, &s);
    if (ok) all->benchmark[all->n++] = s;
    all->failed |= !ok;
}

void clef__benchmark_free(clef__benchmarks *benchmarks) {
    for (int i = 0; i < benchmarks->n; i++) clef__free(benchmarks->benchmark[i].attributes);
    clef__free(benchmarks->benchmark);
    *benchmarks = (clef__benchmarks){0};
}

/* Two fused multiply-adds per lane and cycle; a GPU's unit has some 128 lanes, whatever vectors it asks for. */
double clef__benchmark_floor(clef_context *ctx, const clef__benchmark *benchmark) {
    const clef__device *device = clef__device_at(ctx, benchmark->key.device);
    const clef_device_info *info = clef__device_info(device);
    double lanes = clef__device_profile(device)->wide_items ? info->vector_width : 128;
    double peak = 4 * lanes * info->compute_units * info->clock_mhz * 1e6;
    return peak > 0 ? benchmark->once / peak : 0;
}

/* ---- making again ---- */

/* Numbers up to this are multiplied, and so many products added: exact within 24 bits, with a margin as `products` is a mean. */
static int range_of(const clef__benchmark *s) { return s->products * 9 <= 1 << 23 ? 3 : s->products * 4 <= 1 << 23 ? 2 : 1; }

static void put_number(clef_dtype dtype, void *data, size_t i, int number) {
    switch (dtype) {
    case CLEF_F32: ((float *)data)[i] = (float)number; break;
    case CLEF_F64: ((double *)data)[i] = number; break;
    case CLEF_F16: ((uint16_t *)data)[i] = clef__to_f16(number); break;
    case CLEF_BF16: ((uint16_t *)data)[i] = clef__to_bf16(number); break;
    case CLEF_I32: ((int32_t *)data)[i] = number; break;
    case CLEF_I64: ((int64_t *)data)[i] = number; break;
    default: ((uint8_t *)data)[i] = (uint8_t)number; break;
    }
}

/* Never 0, so that a dropped term shows, and a zero's sign does not; truth values and bytes are 0 and 1. */
static void draw(clef_dtype dtype, signed char *block, int64_t n, int range, uint64_t salt) {
    bool truth = dtype == CLEF_U8 || dtype == CLEF_BOOL;
    uint64_t x = salt + 1;
    for (int64_t i = 0; i < n; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        int number = 1 + (int)((x >> 33) % (uint64_t)range), sign = x >> 63 ? 1 : -1;
        block[i] = (signed char)(truth ? sign > 0 : sign * number);
    }
}

/* Where an operand's elements lie in memory that holds nothing else: from which offset, and how many elements. */
static int64_t extent(const clef__operand *x, int64_t *offset) {
    int64_t above = 0;
    *offset = 0;
    for (int d = 0; d < x->rank; d++) {
        int64_t reach = x->stride[d] * (x->dim[d] - 1);
        if (reach < 0) *offset -= reach;
        else above += reach;
    }
    return *offset + above + 1;
}

/* A large input repeats a block, of a prime number of elements, so that no stride meets the same number again and again. */
clef__numbers clef__benchmark_numbers(const clef__benchmark *s, int i) {
    enum { BLOCK = 1048573 };
    clef__numbers n = {.x = &s->input[i]};
    n.length = clef__larger(clef__smaller(extent(n.x, &n.origin), BLOCK), 1);
    n.block = clef__alloc((size_t)n.length);
    if (n.block) draw(n.x->dtype, n.block, n.length, range_of(s), (uint64_t)i);
    return n;
}

static clef_status fill_input(clef__buffer *buffer, const clef__numbers *numbers, int64_t n) {
    clef_dtype dtype = numbers->x->dtype;
    size_t size = clef_dtype_size(dtype);
    void *data = clef__alloc((size_t)numbers->length * size);
    if (!data) return CLEF_MEMORY;
    for (int64_t i = 0; i < numbers->length; i++) put_number(dtype, data, (size_t)i, numbers->block[i]);
    clef_status status = CLEF_OK;
    for (int64_t at = 0; status == CLEF_OK && at < n; at += numbers->length)
        status = clef__buffer_write(buffer, (size_t)at * size, data, (size_t)clef__smaller(n - at, numbers->length) * size);
    clef__free(data);
    return status;
}

static clef__output *input_of(clef_context *ctx, const clef__benchmark *s, int i) {
    const clef__operand *x = &s->input[i];
    clef__output *leaf = clef__data_output(ctx, clef__operand_shape(x), x->dtype, s->key.device, NULL);
    if (!leaf) return NULL;
    if (clef_shape_numel(leaf->shape) == 0) return leaf;
    size_t n = (size_t)extent(x, &leaf->layout.offset);
    memcpy(leaf->layout.stride, x->stride, sizeof x->stride);
    leaf->buffer = clef__buffer_new(clef__device_at(ctx, leaf->device), n * clef_dtype_size(x->dtype));
    clef__numbers numbers = clef__benchmark_numbers(s, i);
    bool filled = leaf->buffer && numbers.block && fill_input(leaf->buffer, &numbers, (int64_t)n) == CLEF_OK;
    clef__free(numbers.block);
    if (filled) return leaf;
    clef__output_release(leaf);
    return NULL;
}

static bool fill_node(clef_context *ctx, const clef__benchmark *s, clef__node *node) {
    for (node->n_inputs = 0; node->n_inputs < s->n_inputs; node->n_inputs++)
        if (!(node->input[node->n_inputs] = input_of(ctx, s, node->n_inputs))) return false;
    return true;
}

clef__node *clef__benchmark_node(clef_context *ctx, const clef__benchmark *s) {
    uint64_t before = clef__failures(ctx);
    clef__node *node = clef__node_new(ctx, s->op, s->n_inputs, &(clef__type){s->shape, s->dtype}, 1, s->key.device, s->attributes,
                                      s->attribute_bytes);
    if (!node) return NULL;
    node->out->requires_grad = true; /* so that it keeps its inputs when it was computed, and can be computed again */
    if (fill_node(ctx, s, node)) return node;
    clef__node_release(node);
    if (clef__failures(ctx) == before) clef__fail(ctx, CLEF_MEMORY, "tune: no host memory");
    return NULL;
}
