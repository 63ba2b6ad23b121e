/* check.c — are the numbers of a candidate right?  The first value is believed if the elements looked at are what its op's
   definition says, and every other one must then be the same, bit for bit. */
#include "plan/tune/tune.h"
#include "runtime/arithmetic.h"

#include <math.h>
#include <string.h>

enum { MOST_SAMPLES = 64, LEAST_SAMPLES = 4, MOST_TERMS = 1 << 26 }; /* terms: of all samples' sums */

void clef__check_begin(clef__check *c, const clef__benchmark *benchmark, const clef__output *value) {
    *c = (clef__check){.benchmark = benchmark, .value = value};
    for (int i = 0; i < benchmark->n_inputs; i++) c->input[i] = clef__benchmark_numbers(benchmark, i);
}

void clef__check_end(clef__check *c) {
    for (int i = 0; i < CLEF__BENCHMARK_INPUTS; i++) clef__free(c->input[i].block);
    clef__free(c->right);
}

/* ---- bits ---- */

static size_t value_bytes(const clef__check *c) {
    return (size_t)clef_shape_numel(c->value->shape) * clef_dtype_size(c->value->dtype);
}

/* The value as it lies; the caller frees. */
static unsigned char *read_value(const clef__check *c) {
    const clef__output *value = c->value;
    unsigned char *bytes = clef__alloc(value_bytes(c));
    size_t offset = (size_t)value->layout.offset * clef_dtype_size(value->dtype);
    if (bytes && clef__buffer_read(value->buffer, offset, bytes, value_bytes(c)) == CLEF_OK) return bytes;
    clef__free(bytes);
    return NULL;
}

static int64_t place(const clef__output *value, const clef__layout *layout, const int64_t *at) {
    int64_t sum = 0;
    for (int d = 0; d < value->shape.rank; d++) sum += at[d] * layout->stride[d];
    return sum;
}

/* Strategies may lay their results differently. */
static bool same_numbers(const clef__check *c, const unsigned char *got) {
    const clef__output *value = c->value;
    if (memcmp(value->layout.stride, c->layout.stride, sizeof c->layout.stride) == 0)
        return memcmp(got, c->right, value_bytes(c)) == 0;
    size_t size = clef_dtype_size(value->dtype);
    for (int64_t i = 0, n = clef_shape_numel(value->shape); i < n; i++) {
        int64_t rest = i, at[CLEF_MAX_RANK];
        for (int d = value->shape.rank - 1; d >= 0; rest /= value->shape.dim[d--]) at[d] = rest % value->shape.dim[d];
        const unsigned char *a = got + (size_t)place(value, &value->layout, at) * size,
                            *b = c->right + (size_t)place(value, &c->layout, at) * size;
        if (memcmp(a, b, size) != 0) return false;
    }
    return true;
}

/* ---- samples ---- */

/* Sums are exact; what is rounded in the end is right to half a unit in its last place. */
static bool is_near(clef_dtype dtype, double got, double wanted) {
    double unit = dtype == CLEF_F16 ? 0x1p-11 : dtype == CLEF_BF16 ? 0x1p-8 : 0;
    return fabs(got - wanted) <= unit * fabs(wanted);
}

/* Every second coordinate is at an edge, where kernels differ. */
static int64_t coordinate(uint64_t *state, int64_t size) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    uint64_t x = *state >> 32;
    return x % 4 == 0 ? 0 : x % 4 == 1 ? size - 1 : (int64_t)(x / 4 % (uint64_t)size);
}

static bool samples_are_right(const clef__check *c, const unsigned char *got) {
    const clef__output *value = c->value;
    double afforded = MOST_TERMS / fmax(c->benchmark->products, 1);
    uint64_t state = 1;
    bool right = true;
    for (int i = 0; right && i < MOST_SAMPLES && (i < LEAST_SAMPLES || i < afforded); i++) {
        int64_t at[CLEF_MAX_RANK];
        for (int d = 0; d < value->shape.rank; d++) at[d] = coordinate(&state, value->shape.dim[d]);
        right = is_near(value->dtype, clef__number_of(got, value->dtype, place(value, &value->layout, at)),
                        value->node->op->element(value->node, c->input, at));
    }
    return right;
}

static bool can_sample(const clef__check *c) {
    bool can = c->value->node->op->element && clef_shape_numel(c->value->shape) > 0;
    for (int i = 0; i < c->benchmark->n_inputs; i++) can = can && c->input[i].block;
    return can;
}

bool clef__check_value(clef__check *c) {
    unsigned char *got = read_value(c);
    bool right = got && (c->right ? same_numbers(c, got) : !can_sample(c) || samples_are_right(c, got));
    c->unread = !got;
    if (right && !c->right) {
        c->right = got;
        c->layout = c->value->layout;
    } else clef__free(got);
    return right;
}
