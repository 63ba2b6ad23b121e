/* Devices that are less than they are: the program answers clGetDeviceInfo itself and lies, so that Clef meets
   small and odd devices.  Each must give a working context, or one clear line. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RTLD_NEXT */
#endif
#include "runtime_support.h"
#include <dlfcn.h>

typedef struct persona {
    const char *name;
    cl_device_type type;
    size_t group;
    cl_ulong local_bytes, max_alloc;
    cl_uint lanes;
    bool no_f64, no_compiler;
    const char *version, *c_version, *profile; /* profile: what Clef should take it for; NULL: it cannot be used */
} persona;

static const persona personas[] = {
    {"work-groups of 1", CL_DEVICE_TYPE_GPU, 1, 65536, 1 << 30, 1, false, false, NULL, NULL, "minimal"},
    {"work-groups of 64", CL_DEVICE_TYPE_GPU, 64, 65536, 1 << 30, 1, false, false, NULL, NULL, "gpu"},
    {"16 KB of local memory", CL_DEVICE_TYPE_GPU, 256, 16384, 1 << 30, 1, false, false, NULL, NULL, "minimal"},
    {"64 MB in one piece", CL_DEVICE_TYPE_CPU, 4096, 65536, 64 << 20, 8, false, false, NULL, NULL, "cpu_avx2"},
    {"no doubles", CL_DEVICE_TYPE_CPU, 4096, 65536, 1 << 30, 4, true, false, NULL, NULL, "cpu"},
    {"an accelerator", CL_DEVICE_TYPE_ACCELERATOR, 128, 65536, 1 << 30, 4, false, false, NULL, NULL, "minimal"},
    {"OpenCL 1.2", CL_DEVICE_TYPE_GPU, 256, 65536, 1 << 30, 4, false, false, "OpenCL 1.2 x", "OpenCL C 1.2 ",
     "gpu"},
    {"OpenCL 1.1", CL_DEVICE_TYPE_GPU, 256, 65536, 1 << 30, 4, false, false, "OpenCL 1.1 x", "OpenCL C 1.1 ",
     NULL},
    {"no compiler", CL_DEVICE_TYPE_GPU, 256, 65536, 1 << 30, 4, false, true, NULL, NULL, NULL},
};
enum { PERSONAS = sizeof personas / sizeof personas[0] };

static const persona *played;

static cl_int answer(const void *value, size_t bytes, size_t room, void *to, size_t *needed) {
    if (to && room < bytes)
        return CL_INVALID_VALUE;
    if (to)
        memcpy(to, value, bytes);
    if (needed)
        *needed = bytes;
    return CL_SUCCESS;
}

cl_int clGetDeviceInfo(cl_device_id d, cl_device_info what, size_t n, void *v, size_t *needed) {
    __typeof__(&clGetDeviceInfo) real = (__typeof__(&clGetDeviceInfo))dlsym(RTLD_NEXT, "clGetDeviceInfo");
    const persona *p = played;
    const cl_bool compiler = p && !p->no_compiler;
    const cl_device_fp_config none = 0;
    switch (p ? what : 0) {
    case CL_DEVICE_TYPE: return answer(&p->type, sizeof p->type, n, v, needed);
    case CL_DEVICE_MAX_WORK_GROUP_SIZE: return answer(&p->group, sizeof p->group, n, v, needed);
    case CL_DEVICE_LOCAL_MEM_SIZE: return answer(&p->local_bytes, sizeof p->local_bytes, n, v, needed);
    case CL_DEVICE_MAX_MEM_ALLOC_SIZE: return answer(&p->max_alloc, sizeof p->max_alloc, n, v, needed);
    case CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT:
    case CL_DEVICE_PREFERRED_VECTOR_WIDTH_FLOAT: return answer(&p->lanes, sizeof p->lanes, n, v, needed);
    case CL_DEVICE_COMPILER_AVAILABLE: return answer(&compiler, sizeof compiler, n, v, needed);
    case CL_DEVICE_EXTENSIONS: return p->no_f64 ? answer("", 1, n, v, needed) : real(d, what, n, v, needed);
    case CL_DEVICE_DOUBLE_FP_CONFIG:
        return p->no_f64 ? answer(&none, sizeof none, n, v, needed) : real(d, what, n, v, needed);
    case CL_DEVICE_VERSION:
        if (p->version)
            return answer(p->version, strlen(p->version) + 1, n, v, needed);
        break;
    case CL_DEVICE_OPENCL_C_VERSION:
        if (p->c_version)
            return answer(p->c_version, strlen(p->c_version) + 1, n, v, needed);
        break;
    default: break;
    }
    return real(d, what, n, v, needed);
}

#define CHECK(what)                                                                             \
    do {                                                                                        \
        if (!(what))                                                                            \
            return printf("%s: line %d: %s does not hold\n", played->name, __LINE__, #what), 1; \
    } while (0)

static int unusable(void) {
    CHECK(clef_open(NULL) == NULL);
    CHECK(clef_error_status(NULL) == CLEF_NO_DEVICE);
    CHECK(strstr(clef_error(NULL), played->no_compiler ? "no compiler" : "older than OpenCL 1.2"));
    CHECK(clef_open(&(clef_options){.device = "0"}) == NULL);
    CHECK(clef_error_status(NULL) == CLEF_INVALID);
    CHECK(strstr(clef_error(NULL), "cannot be used"));
    return 0;
}

/* In a process of its own, as the list of devices is made once. */
static int play(void) {
    const clef__found *list;
    if (clef__devices(&list) == 0)
        return 77;
    if (!played->profile)
        return unusable();
    clef_context *ctx = clef_open(&(clef_options){.device = "0", .cache_dir = ""});
    CHECK(ctx);
    clef__device *device = clef__device_at(ctx, 0);
    const clef_device_info *info = clef__device_info(device);
    CHECK(strcmp(clef__device_profile(device)->name, played->profile) == 0);
    CHECK((size_t)clef__device_profile(device)->local <= played->group);
    CHECK(!played->no_f64 || !info->f64);
    CHECK(add_works(device, add_source));
    clef__buffer *largest = clef__buffer_new(device, (size_t)played->max_alloc / 16 + 1000);
    CHECK(largest && clef__buffer_size(largest) <= played->max_alloc);
    clef__buffer_release(largest);
    CHECK(clef_error_status(ctx) == CLEF_OK);
    CHECK(!clef__buffer_new(device, (size_t)played->max_alloc + 1));
    CHECK(clef_error_status(ctx) == CLEF_MEMORY);
    clef_close(ctx);
    return 0;
}

int main(void) {
    int failed = 0, skipped = 0;
    fflush(stdout);
    for (int i = 0; i < PERSONAS; i++) {
        pid_t child = fork();
        if (child == 0) {
            played = &personas[i];
            int result = play();
            fflush(stdout);
            _exit(result);
        }
        int state = 1;
        if (child < 0 || waitpid(child, &state, 0) != child || !WIFEXITED(state))
            failed++;
        else if (WEXITSTATUS(state) == 77)
            skipped++;
        else
            failed += WEXITSTATUS(state) != 0;
    }
    printf("%d devices played, %d failed\n", PERSONAS, failed);
    return failed ? 1 : skipped ? 77 : 0;
}
