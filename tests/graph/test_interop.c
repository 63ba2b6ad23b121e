/* A program's own buffers under tensors, and tensors' buffers in a program's hands: neither is ever overwritten. */
#include "clef/opencl.h"
#include "graph/graph.h"
#include "support/device.h"

enum { N = 64 };
static clef_context *ctx;

static void open_device(void) { ctx = open_seeded(0); }
static void close_device(void) { close_clean(ctx); }
TestSuite(interop, .init = open_device, .fini = close_device);

static void end_steps(int n) {
    for (int i = 0; i < n; i++) {
        clef_scalar(ctx, i);
        clef_end_step(ctx);
    }
}

static clef_tensor *filled(float value) {
    float data[N];
    for (int i = 0; i < N; i++) data[i] = value;
    return clef_from_host(ctx, CLEF_SHAPE(N), CLEF_F32, data);
}

static float first_of(cl_mem memory, size_t offset) {
    float value = -1;
    cr_assert_eq(clEnqueueReadBuffer(clef_opencl_queue(ctx), memory, CL_TRUE, offset, sizeof value, &value, 0, NULL, NULL),
                 CL_SUCCESS);
    return value;
}

/* t := t + 1 often enough that the plan, once it may, takes over the old memory. */
static void count_up(clef_tensor *t, int n) {
    for (int i = 0; i < n; i++) {
        cr_assert_eq(clef_assign(t, clef_add_scalar(t, 1)), CLEF_OK);
        cr_assert_eq(clef_end_step(ctx), CLEF_OK);
    }
}

static cl_mem own_buffer(float value) {
    float data[N];
    for (int i = 0; i < N; i++) data[i] = value;
    return clCreateBuffer(clef_opencl_context(ctx), CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, sizeof data, data, NULL);
}

Test(interop, a_wrapped_buffer_is_never_written_to) {
    cl_mem mine = own_buffer(5);
    clef_tensor *x = clef_from_opencl(ctx, mine, 0, CLEF_SHAPE(N), CLEF_F32);
    count_up(x, 4);
    cr_assert_eq(first_of(mine, 0), 5);
    clef_tensor *whole = clef_from_opencl(ctx, mine, 0, CLEF_SHAPE(N), CLEF_F32);
    clef_tensor *view = clef_keep(clef_reshape(whole, CLEF_SHAPE(8, N / 8)));
    end_steps(3);
    clef_release(whole); /* only a view of it is left */
    count_up(view, 4);
    cr_assert_eq(first_of(mine, 0), 5);
    float out[N];
    cr_assert_eq(clef_read(view, out, sizeof out), CLEF_OK);
    cr_assert_eq(out[0], 9);
    clReleaseMemObject(mine);
}

Test(interop, a_wrapped_buffer_is_let_go_at_once) {
    cl_mem mine = own_buffer(5);
    cl_uint before, after;
    clGetMemObjectInfo(mine, CL_MEM_REFERENCE_COUNT, sizeof before, &before, NULL);
    clef_release(clef_from_opencl(ctx, mine, 0, CLEF_SHAPE(N), CLEF_F32));
    clGetMemObjectInfo(mine, CL_MEM_REFERENCE_COUNT, sizeof after, &after, NULL);
    cr_assert_eq(before, after);
    clReleaseMemObject(mine);
}

Test(interop, a_buffer_handed_out_keeps_its_value) {
    size_t offset;
    clef_tensor *p = clef_keep(filled(1));
    end_steps(3);
    cl_mem theirs = clef_opencl_buffer(p, &offset);
    clRetainMemObject(theirs);
    count_up(p, 4);
    cr_assert_eq(first_of(theirs, offset), 1, "the update went elsewhere");
    cr_assert_neq(clef_opencl_buffer(p, &offset), theirs);
    clReleaseMemObject(theirs);
}

Test(interop, a_buffer_handed_out_is_not_used_again) {
    size_t offset;
    clef_tensor *t = clef_keep(filled(7));
    end_steps(3);
    cl_mem theirs = clef_opencl_buffer(t, &offset);
    clRetainMemObject(theirs);
    clef_release(t);
    for (int i = 0; i < 8; i++) {
        filled((float)i); /* of the same size */
        end_steps(1);
    }
    cr_assert_eq(first_of(theirs, offset), 7);
    clReleaseMemObject(theirs);
}

Test(interop, in_place_again_after_the_buffer_was_left_behind) {
    size_t offset;
    clef_tensor *p = clef_keep(filled(1));
    end_steps(3);
    clef_opencl_buffer(p, &offset);
    count_up(p, 2);
    clef__buffer *own = clef__output_of(p)->buffer;
    count_up(p, 2);
    cr_assert_eq(clef__output_of(p)->buffer, own);
}

Test(interop, asking_for_a_buffer_keeps_the_tape) {
    float data[6] = {1, 2, 3, 4, 5, 6};
    size_t offset;
    clef_tensor *x = clef_from_host(ctx, CLEF_SHAPE(2, 3), CLEF_F32, data);
    clef_tensor *w = clef_require_grad(clef_keep(clef_transpose(x, 0, 1)), true);
    clef_tensor *loss = clef_sum(clef_mul(w, w), NULL, 0, false), *again = clef_reshape(w, CLEF_SHAPE(6));
    cl_mem memory = clef_opencl_buffer(w, &offset);
    cr_assert_eq(first_of(memory, offset + sizeof(float)), 4, "row-major: 1 4 2 5 3 6");
    cr_assert_eq(clef_backward(loss), CLEF_OK, "%s", clef_error(ctx));
    cr_assert(clef_grad_of(w));
    float out[6], wanted[6] = {1, 4, 2, 5, 3, 6};
    cr_assert_eq(clef_read(clef_grad_of(w), out, sizeof out), CLEF_OK);
    for (int i = 0; i < 6; i++) cr_assert_eq(out[i], 2 * wanted[i]);
    cr_assert_eq(clef_read(again, out, sizeof out), CLEF_OK);
    for (int i = 0; i < 6; i++) cr_assert_eq(out[i], wanted[i]);
    cr_assert_eq(clef_opencl_buffer(w, &offset), memory, "it lies so from now on");
}
