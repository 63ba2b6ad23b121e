/* interop.c — tensors over a program's own cl_mem, and the cl_mem of ours.  (The only file above the runtime that sees
   OpenCL's types: its public header declares them.) */
#include "clef/opencl.h"
#include "ops/ops.h"
#include "plan/run/run.h"

clef_tensor *clef_from_opencl(clef_context *ctx, cl_mem buffer, size_t offset, clef_shape shape, clef_dtype dtype) {
    if (!ctx || !clef__usable(ctx)) return NULL;
    size_t size = clef_dtype_size(dtype);
    int64_t n = shape.rank >= 0 && shape.rank <= CLEF_MAX_RANK ? clef_shape_numel(shape) : -1;
    if (!buffer || n < 0 || size == 0)
        return clef__refuse(ctx, "from_opencl", CLEF_INVALID, "needs a buffer, a valid shape and a dtype");
    if (offset % size)
        return clef__refuse(ctx, "from_opencl", CLEF_INVALID, "offset %zu is no multiple of the element's %zu bytes", offset, size);
    clef__buffer *wrapped = clef__buffer_wrap(clef__device_at(ctx, 0), buffer);
    if (!wrapped) return NULL;
    size_t bytes = clef__buffer_size(wrapped);
    if (offset > bytes || (uint64_t)n > (bytes - offset) / size) {
        clef__buffer_release(wrapped);
        return clef__refuse(ctx, "from_opencl", CLEF_SHAPE, "%s %s from byte %zu does not fit into a buffer of %zu bytes",
                            clef_dtype_name(dtype), clef__shape_text(shape), offset, bytes);
    }
    clef__output *out = clef__data_output(ctx, shape, dtype, 0, wrapped);
    if (!out) {
        clef__buffer_release(wrapped);
        return NULL;
    }
    out->layout.offset = (int64_t)(offset / size);
    clef_tensor *t = clef_keep(clef__tensor_new(out));
    clef__never_temporary(t); /* clef_release lets go of the buffer at once */
    clef__output_release(out);
    return t;
}

cl_mem clef_opencl_buffer(clef_tensor *t, size_t *offset) {
    if (!CLEF__GIVEN("opencl_buffer", "t", t)) return NULL;
    if (!offset) return clef__refuse(clef_tensor_context(t), "opencl_buffer", CLEF_INVALID, "offset is NULL"), NULL;
    if (clef_numel(t) == 0) {
        clef__refuse(clef_tensor_context(t), "opencl_buffer", CLEF_SHAPE, "an empty tensor has no buffer");
        return NULL;
    }
    clef__buffer *buffer = clef__row_major_buffer(t, offset);
    if (!buffer) return NULL;
    clef__buffer_pin(buffer);
    return clef__buffer_mem(buffer);
}
