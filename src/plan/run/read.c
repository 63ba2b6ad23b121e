/* read.c — results on the host: read, item, text. */
#include "graph/core.h"
#include "plan/run/run.h"
#include "runtime/half.h"
#include "runtime/text.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- memory ---- */

/* t's value, computed and row-major, with a reference for the caller; NULL on failure. */
static clef__output *row_major(clef_tensor *t) {
    clef__output *out = clef__output_of(t);
    clef_context *ctx = out->node->ctx;
    if (clef__plan_for(ctx)) {
        clef__fail(ctx, CLEF_STATE, "read: work is only planned, for %s; see clef_options.plan_for", clef__plan_for(ctx));
        return NULL;
    }
    if (clef__compute(ctx, &out, 1) != CLEF_OK) return NULL;
    if (clef__computed(out) && clef__is_dense(out->shape, out->layout.stride, NULL)) {
        clef__output_retain(out);
        return out;
    }
    if (clef__dry_run(ctx)) {
        clef__fail(ctx, CLEF_STATE, "read: nothing is computed in a dry run; see clef_set_dry_run");
        return NULL;
    }
    clef__node *node = clef__node_new(ctx, &clef__op_copy, 1, &(clef__type){out->shape, out->dtype}, 1, out->device, NULL, 0);
    if (!node) return NULL;
    clef__output *copy = &node->out[0];
    clef__set_input(node, 0, out);
    clef__output_retain(copy);
    clef__node_release(node);
    if (clef__compute(ctx, &copy, 1) == CLEF_OK) return copy;
    clef__output_release(copy);
    return NULL;
}

clef_status clef_read(clef_tensor *t, void *out, size_t bytes) {
    if (!CLEF__GIVEN("read", "t", t)) return CLEF_INVALID;
    clef_context *ctx = clef_tensor_context(t);
    size_t size = clef_dtype_size(clef_tensor_dtype(t)), wanted = (size_t)clef_numel(t) * size;
    if (bytes != wanted)
        return clef__fail(ctx, CLEF_INVALID, "read: %zu bytes for %s %s, which has %zu", bytes,
                          clef_dtype_name(clef_tensor_dtype(t)), clef__shape_text(clef_tensor_shape(t)), wanted);
    if (!out && wanted) return clef__fail(ctx, CLEF_INVALID, "read: out is NULL");
    if (wanted == 0) return CLEF_OK;
    clef__output *value = row_major(t);
    if (!value) return clef_error_status(ctx);
    clef_status status = clef__buffer_read(value->buffer, (size_t)value->layout.offset * size, out, bytes);
    clef__output_release(value);
    return status;
}

/* t's value itself comes to lie row-major, so that it stays what expressions were made from, and a place on the tape. */
clef__buffer *clef__row_major_buffer(clef_tensor *t, size_t *offset) {
    clef__output *copy = row_major(t), *out = clef__output_of(t);
    if (!copy) return NULL;
    if (copy != out) {
        clef__buffer_retain(copy->buffer);
        clef__buffer_release(out->buffer);
        out->buffer = copy->buffer;
        out->layout = copy->layout;
    }
    clef__output_release(copy);
    *offset = (size_t)out->layout.offset * clef_dtype_size(out->dtype);
    return out->buffer;
}

/* ---- numbers ---- */

double clef__number_of(const void *data, clef_dtype dtype, int64_t i) {
    switch (dtype) {
    case CLEF_F32: return ((const float *)data)[i];
    case CLEF_F64: return ((const double *)data)[i];
    case CLEF_I32: return ((const int32_t *)data)[i];
    case CLEF_I64: return (double)((const int64_t *)data)[i];
    case CLEF_F16: return clef__from_f16(((const uint16_t *)data)[i]);
    case CLEF_BF16: return clef__from_bf16(((const uint16_t *)data)[i]);
    default: return ((const uint8_t *)data)[i];
    }
}

double clef_item(clef_tensor *t) {
    if (!CLEF__GIVEN("item", "t", t)) return NAN;
    if (clef_numel(t) != 1) {
        clef__fail(clef_tensor_context(t), CLEF_SHAPE, "item: %s has %" PRId64 " elements, not one; reduce it or use clef_read",
                   clef__shape_text(clef_tensor_shape(t)), clef_numel(t));
        return NAN;
    }
    uint64_t bytes = 0;
    clef_dtype dtype = clef_tensor_dtype(t);
    return clef_read(t, &bytes, clef_dtype_size(dtype)) == CLEF_OK ? clef__number_of(&bytes, dtype, 0) : NAN;
}

/* ---- text ---- */

enum { EDGE = 3, SUMMARIZE = 1000 }; /* NumPy's rules */

static void write_number(clef__text *out, const void *data, clef_dtype dtype, int64_t i) {
    double value = clef__number_of(data, dtype, i);
    if (dtype == CLEF_BOOL) clef__text_append(out, value != 0 ? "true" : "false");
    else if (dtype == CLEF_I64) clef__text_add(out, "%" PRId64, ((const int64_t *)data)[i]);
    else if (dtype == CLEF_I32 || dtype == CLEF_U8) clef__text_add(out, "%.0f", value);
    else clef__text_number(out, "%.6g", value);
}

static void write_dim(clef__text *out, const void *data, clef_dtype dtype, clef_shape shape, int d, int64_t at, bool summarize) {
    if (d == shape.rank) {
        write_number(out, data, dtype, at);
        return;
    }
    int64_t inner = 1;
    for (int e = d + 1; e < shape.rank; e++) inner *= shape.dim[e];
    clef__text_append(out, "[");
    for (int64_t i = 0; i < shape.dim[d]; i++) {
        if (i) clef__text_append(out, d + 1 == shape.rank ? ", " : ",\n ");
        for (int s = 0; i && d + 1 < shape.rank && s < d; s++) clef__text_append(out, " ");
        if (summarize && i == EDGE && shape.dim[d] > 2 * EDGE) {
            clef__text_append(out, "…");
            i = shape.dim[d] - EDGE - 1;
            continue;
        }
        write_dim(out, data, dtype, shape, d + 1, at + i * inner, summarize);
    }
    clef__text_append(out, "]");
}

static clef_status write_tensor(clef_tensor *t, clef__text *out) {
    clef_context *ctx = clef_tensor_context(t);
    clef_shape shape = clef_tensor_shape(t);
    clef_dtype dtype = clef_tensor_dtype(t);
    int64_t n = clef_numel(t);
    size_t bytes = (size_t)n * clef_dtype_size(dtype);
    void *data = clef__alloc(bytes ? bytes : 1);
    if (!data) return clef__fail(ctx, CLEF_MEMORY, "format: no host memory for %zu bytes", bytes);
    clef_status status = clef_read(t, data, bytes);
    if (status == CLEF_OK) {
        write_dim(out, data, dtype, shape, 0, 0, n > SUMMARIZE);
        clef__text_add(out, " %s %s", clef_dtype_name(dtype), clef__shape_text(shape));
        if (out->failed) status = clef__fail(ctx, CLEF_MEMORY, "format: no host memory");
    }
    clef__free(data);
    return status;
}

int clef_format(clef_tensor *t, char *text, size_t size) {
    clef__text out = {0};
    int length = -1;
    if (!CLEF__GIVEN("format", "t", t)) return -1;
    if (!text && size) return clef__fail(clef_tensor_context(t), CLEF_INVALID, "format: text is NULL but has %zu bytes", size), -1;
    if (write_tensor(t, &out) == CLEF_OK) {
        length = (int)out.length;
        if (size) {
            size_t n = out.length < size - 1 ? out.length : size - 1;
            memcpy(text, out.data, n);
            text[n] = 0;
        }
    }
    clef__free(out.data);
    return length;
}

clef_status clef_print(clef_tensor *t, FILE *stream) {
    if (!CLEF__GIVEN("print", "t", t)) return CLEF_INVALID;
    if (!stream) return clef__fail(clef_tensor_context(t), CLEF_INVALID, "print: stream is NULL");
    clef__text out = {0};
    clef_status status = write_tensor(t, &out);
    if (status == CLEF_OK && fprintf(stream, "%s\n", out.data) < 0)
        status = clef__fail(clef_tensor_context(t), CLEF_IO, "print: the stream takes no text");
    clef__free(out.data);
    return status;
}
