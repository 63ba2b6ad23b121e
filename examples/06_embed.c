/* 06_embed.c — Clef inside a program that already has its own OpenCL context, queue and buffers.
   Both sides use one in-order queue, so nothing needs to wait for anything: the program fills a buffer, Clef reads it as
   a tensor, and the program goes on with the buffer that holds Clef's result. */
#include <clef.h>
#include <clef/opencl.h>
#include <stdio.h>

enum { N = 1024 };

static cl_device_id any_device(void) {
    cl_platform_id platforms[16];
    cl_uint n = 0;
    cl_device_id device = NULL;
    if (clGetPlatformIDs(16, platforms, &n)) return NULL;
    for (cl_uint i = 0; i < n && i < 16 && !device; i++)
        if (clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, 1, &device, NULL)) device = NULL;
    return device;
}

/* y = softmax(x) of the program's buffer, read back by the program. */
static int run(clef_context *ctx, cl_command_queue queue, cl_mem mine) {
    size_t offset = 0;
    float result[N], sum = 0;
    clef_tensor *x = clef_from_opencl(ctx, mine, 0, CLEF_SHAPE(1, N), CLEF_F32);
    clef_tensor *y = clef_softmax(x, 1);
    cl_mem theirs = clef_opencl_buffer(y, &offset);
    if (!theirs) return fprintf(stderr, "%s\n", clef_error(ctx)), 1;
    if (clEnqueueReadBuffer(queue, theirs, CL_TRUE, offset, sizeof result, result, 0, NULL, NULL)) return 1;
    for (int i = 0; i < N; i++) sum += result[i];
    printf("softmax of %d numbers in my buffer: first %.6f, last %.6f, sum %.6f\n", N, result[0], result[N - 1], sum);
    clef_release(x); /* lets go of the buffer; it stays the program's */
    return sum < 0.999f || sum > 1.001f || result[N - 1] <= result[0];
}

int main(void) {
    float numbers[N];
    for (int i = 0; i < N; i++) numbers[i] = (float)i / N;

    cl_device_id device = any_device();
    cl_int error = 0;
    if (!device) return fprintf(stderr, "skipped: no OpenCL device\n"), 77;
    cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &error);
    if (!context) return fprintf(stderr, "clCreateContext: %d\n", (int)error), 1;
    cl_command_queue queue = clCreateCommandQueueWithProperties(context, device, NULL, &error);
    cl_mem mine = clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, sizeof numbers, numbers, &error);

    clef_context *ctx = clef_open_opencl(context, device, queue, NULL);
    if (!ctx) fprintf(stderr, "%s\n", clef_error(NULL));
    int failed = !ctx || run(ctx, queue, mine);

    clef_close(ctx);
    clReleaseMemObject(mine);
    clReleaseCommandQueue(queue);
    clReleaseContext(context);
    return failed;
}
