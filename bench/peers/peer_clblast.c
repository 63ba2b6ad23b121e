/* CLBlast: sgemm on the OpenCL device that OpenCL lists first, or on a GPU where there is one.  Its first call compiles its
   kernels, for seconds on pocl: that is done before anything is timed.  cc -O2 peer_clblast.c -lclblast -lOpenCL */
#define CL_TARGET_OPENCL_VERSION 120
#include "peer.h"
#include <clblast_c.h>

enum { MOST_PLATFORMS = 16, MOST_COPIES = 16 };
static cl_context context;
static cl_command_queue queue;
static cl_device_id device;

static int find_device(cl_device_type type) {
    cl_platform_id platform[MOST_PLATFORMS];
    cl_uint n = 0;
    if (clGetPlatformIDs(MOST_PLATFORMS, platform, &n) != CL_SUCCESS) return 0;
    for (cl_uint i = 0; i < n && i < MOST_PLATFORMS; i++)
        if (clGetDeviceIDs(platform[i], type, 1, &device, NULL) == CL_SUCCESS) return 1;
    return 0;
}

static cl_mem random_buffer(size_t n) {
    float *x = random_floats(n);
    cl_mem buffer = x ? clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, n * sizeof *x, x, NULL) : NULL;
    free(x);
    return buffer;
}

static int multiply(int m, int n, int k, int ta, int tb, cl_mem a, cl_mem b, cl_mem c) {
    return a && b && c &&
           CLBlastSgemm(CLBlastLayoutRowMajor, ta ? CLBlastTransposeYes : CLBlastTransposeNo,
                        tb ? CLBlastTransposeYes : CLBlastTransposeNo, (size_t)m, (size_t)n, (size_t)k, 1, a, 0,
                        (size_t)(ta ? m : k), b, 0, (size_t)(tb ? k : n), 0, c, 0, (size_t)n, &queue, NULL) == CLBlastSuccess;
}

/* All calls are queued and waited for once, as Clef's are; two come first. */
static double gemm(const char *line) {
    int m = (int)number(line, "m", 1), n = (int)number(line, "n", 1), k = (int)number(line, "k", 1);
    int ta = (int)number(line, "ta", 0), tb = (int)number(line, "tb", 0), calls = (int)number(line, "calls", 10), ok = 1;
    size_t size_a = (size_t)m * (size_t)k, size_b = (size_t)k * (size_t)n, size_c = (size_t)m * (size_t)n;
    int copies = copies_of((double)(size_a + size_b + size_c));
    cl_mem buffer[MOST_COPIES][3];
    for (int i = 0; i < copies; i++) {
        buffer[i][0] = random_buffer(size_a);
        buffer[i][1] = random_buffer(size_b);
        buffer[i][2] = random_buffer(size_c);
    }
    double begin = 0;
    for (int i = -2; i < calls && ok; i++) {
        if (i == 0) {
            clFinish(queue);
            begin = now();
        }
        cl_mem *x = buffer[(i + 2) % copies];
        ok = multiply(m, n, k, ta, tb, x[0], x[1], x[2]);
    }
    clFinish(queue);
    double seconds = (now() - begin) / calls;
    for (int i = 0; i < copies; i++)
        for (int j = 0; j < 3; j++)
            if (buffer[i][j]) clReleaseMemObject(buffer[i][j]);
    return ok ? seconds : -1;
}

static double run(const char *line) { return strncmp(line, "gemm ", 5) == 0 ? gemm(line) : -1; }

int main(void) {
    char name[256] = "clblast | ";
    if (!find_device(CL_DEVICE_TYPE_GPU) && !find_device(CL_DEVICE_TYPE_ALL)) return 77;
    context = clCreateContext(NULL, 1, &device, NULL, NULL, NULL);
    queue = context ? clCreateCommandQueue(context, device, 0, NULL) : NULL;
    if (!queue) return 1;
    clGetDeviceInfo(device, CL_DEVICE_NAME, sizeof name - strlen(name), name + strlen(name), NULL);
    run("gemm m=64 n=64 k=64 calls=1"); /* its kernel for small matrices, then that for large ones */
    run("gemm m=1024 n=1024 k=1024 calls=1");
    serve(name, run);
    return 0;
}
