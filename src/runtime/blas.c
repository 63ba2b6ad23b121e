/* blas.c — products by CLBlast, a BLAS library for OpenCL, where this machine has it.

   It is loaded when somebody asks for it, not before: $CLEF_CLBLAST names another file than the system's, or 0 for none.  Of a
   call it makes several kernels on the device's own queue, with memory of its own between them, and it compiles them at a
   routine's first call, for seconds.  What it has compiled it would keep until the process ends, when the driver may have gone
   before it, so it is told to let go when the last context that loaded it closes. */
#include "runtime/runtime_internal.h"
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#ifdef __APPLE__
static const char file_name[] = "libclblast.1.dylib";
#else
static const char file_name[] = "libclblast.so.1";
#endif
enum { ROW_MAJOR = 101, AS_IT_LIES = 111, TRANSPOSED = 112 }; /* as CLBlast counts them */
enum { LARGEST_CODE_OF_OPENCL = -1000 };                      /* below are CLBlast's own */
enum { PROBE_EDGE = 1024, PROBE_BATCH = 8 }; /* what its pace is measured on: a matrix, or a batch of halves of that edge */

/* From clblast_c.h, with its enums as int. */
#define GEMM(real)                                                                                                             \
    int (*)(int, int, int, size_t, size_t, size_t, real, cl_mem, size_t, size_t, cl_mem, size_t, size_t, real, cl_mem, size_t, \
            size_t, cl_command_queue *, cl_event *)
#define BATCHED(real)                                                                                                          \
    int (*)(int, int, int, size_t, size_t, size_t, real, cl_mem, size_t, size_t, size_t, cl_mem, size_t, size_t, size_t, real, \
            cl_mem, size_t, size_t, size_t, size_t, cl_command_queue *, cl_event *)

static const char *const names[CLEF__BLAS_ROUTINES] = {"CLBlastSgemm", "CLBlastSgemmStridedBatched", "CLBlastDgemm",
                                                       "CLBlastDgemmStridedBatched", "CLBlastClearCache"};
enum { CLEAR = 4 };

static int routine_of(const clef__blas_product *p) { return 2 * (p->dtype == CLEF_F64) + (p->batch > 1); }

/* ---- loading ---- */
static pthread_mutex_t users_lock = PTHREAD_MUTEX_INITIALIZER;
static int users; /* contexts */

static void count_user(int change, bool alive, int (*clear)(void)) {
    pthread_mutex_lock(&users_lock);
    users += change;
    if (users == 0 && alive) clear();
    pthread_mutex_unlock(&users_lock);
}

/* Its routines, or false with dlerror's word for the first that is not there. */
static bool find_routines(clef__blas *blas, void *library) {
    for (int i = 0; i < CLEF__BLAS_ROUTINES; i++) {
        void *at = dlsym(library, names[i]);
        if (!at) return false;
        memcpy(&blas->routine[i], &at, sizeof at); /* ISO C has no cast from data to functions */
    }
    return true;
}

static void load_library(clef_context *ctx) {
    clef__blas *blas = &ctx->blas;
    const char *name = clef__env("CLEF_CLBLAST");
    blas->asked = true;
    if (name && strcmp(name, "0") == 0) {
        blas->off = true;
        snprintf(blas->why, sizeof blas->why, "CLEF_CLBLAST=0");
        return;
    }
    void *library = dlopen(name && *name ? name : file_name, RTLD_NOW | RTLD_LOCAL);
    blas->there = library && find_routines(blas, library);
    if (blas->there) {
        count_user(1, false, NULL);
        clef__log_line(ctx, CLEF_LOG_INFO, "CLBlast: loaded; its first products compile for seconds");
        return;
    }
    const char *why = dlerror();
    snprintf(blas->why, sizeof blas->why, "%s", why ? why : "it cannot be loaded");
    if (library) dlclose(library);
}

bool clef__blas_there(clef_context *ctx, const char **why) {
    clef__blas *blas = &ctx->blas;
    if (why) *why = NULL;
    if (blas->barred) return false;
    if (!blas->asked) load_library(ctx);
    if (why && !blas->there && !blas->off) *why = blas->why;
    return blas->there;
}

void clef__blas_allow(clef_context *ctx, bool allowed) { ctx->blas.barred = !allowed; }

void clef__blas_close(clef_context *ctx) {
    if (ctx->blas.there) count_user(-1, clef__all_alive(ctx), (int (*)(void))ctx->blas.routine[CLEAR]);
    ctx->blas.there = false;
}

/* ---- products ---- */
static int operation(const clef__blas_matrix *x) { return x->transposed ? TRANSPOSED : AS_IT_LIES; }

static int call(clef__device *device, const clef__blas_product *p, clef__buffer *const x[3], const size_t at[3]) {
    void (*f)(void) = device->ctx->blas.routine[routine_of(p)];
    size_t m = (size_t)p->m, n = (size_t)p->n, k = (size_t)p->k, batch = (size_t)p->batch, ld[3], step[3];
    int ta = operation(&p->matrix[0]), tb = operation(&p->matrix[1]);
    cl_mem a = x[0]->memory, b = x[1]->memory, c = x[2]->memory;
    cl_command_queue put_into = clef__queue(device), *queue = &put_into;
    double beta = p->adds;
    for (int i = 0; i < 3; i++) {
        ld[i] = (size_t)p->matrix[i].ld;
        step[i] = (size_t)p->matrix[i].step;
    }
    if (p->dtype == CLEF_F64 && batch > 1)
        return ((BATCHED(double))f)(ROW_MAJOR, ta, tb, m, n, k, 1, a, at[0], ld[0], step[0], b, at[1], ld[1], step[1], beta, c,
                                    at[2], ld[2], step[2], batch, queue, NULL);
    if (p->dtype == CLEF_F64)
        return ((GEMM(double))f)(ROW_MAJOR, ta, tb, m, n, k, 1, a, at[0], ld[0], b, at[1], ld[1], beta, c, at[2], ld[2], queue,
                                 NULL);
    if (batch > 1)
        return ((BATCHED(float))f)(ROW_MAJOR, ta, tb, m, n, k, 1, a, at[0], ld[0], step[0], b, at[1], ld[1], step[1], (float)beta,
                                   c, at[2], ld[2], step[2], batch, queue, NULL);
    return ((GEMM(float))f)(ROW_MAJOR, ta, tb, m, n, k, 1, a, at[0], ld[0], b, at[1], ld[1], (float)beta, c, at[2], ld[2], queue,
                            NULL);
}

static clef_status complain(clef__device *device, const clef__blas_product *p, int code, const char *label) {
    bool own = code < LARGEST_CODE_OF_OPENCL;
    if (!own) clef__note_loss(device, code);
    return clef__fail(device->ctx, own ? CLEF_DEVICE : clef__cl_status(code),
                      "%s: CLBlast failed with %s (%d) on %s %lld × [%lld,%lld] · [%lld,%lld]; CLEF_CLBLAST=0 does without it",
                      label, own ? "its own status" : clef__cl_name(code), code, clef_dtype_name(p->dtype), (long long)p->batch,
                      (long long)p->m, (long long)p->k, (long long)p->k, (long long)p->n);
}

/* It makes several kernels of a product, which a trace shows as one: from what was queued before to what is queued now. */
static cl_event mark(clef__device *device) {
    cl_event event = NULL;
    if (device->ctx->trace && clEnqueueMarkerWithWaitList(clef__queue(device), 0, NULL, &event) != CL_SUCCESS) return NULL;
    return event;
}

clef_status clef__blas_multiply(clef__device *device, const clef__blas_product *p, clef__buffer *const x[3],
                                const int64_t offset[3], const char *label) {
    clef_status status = clef__ready(device);
    size_t at[3];
    for (int i = 0; i < 3 && status == CLEF_OK; i++) {
        at[i] = (size_t)offset[i];
        if (offset[i] > INT32_MAX - clef__blas_reach(p, i))
            status = clef__fail(device->ctx, CLEF_UNSUPPORTED,
                                "%s: CLBlast takes no more than 2^31 elements of a buffer; CLEF_CLBLAST=0 does without it", label);
    }
    if (status != CLEF_OK) return status;
    cl_event begin = mark(device);
    int code = call(device, p, x, at);
    cl_event end = code == CL_SUCCESS && begin ? mark(device) : NULL;
    device->ctx->counters.launches += code == CL_SUCCESS;
    if (end) clef__trace_span(device, label, begin, end);
    else if (begin) clReleaseEvent(begin);
    return code == CL_SUCCESS ? CLEF_OK : complain(device, p, code, label);
}

int64_t clef__blas_reach(const clef__blas_product *p, int i) {
    int64_t rows = i == 1 ? p->k : p->m, columns = i == 0 ? p->k : p->n;
    const clef__blas_matrix *x = &p->matrix[i];
    if (x->transposed) {
        int64_t other = rows;
        rows = columns;
        columns = other;
    }
    return (p->batch - 1) * x->step + (rows - 1) * x->ld + columns;
}

/* ---- how fast it is ---- */
double clef__blas_pace(const clef__device *device, const clef__blas_product *like) { return device->blas_pace[routine_of(like)]; }

double clef__blas_start_seconds(const clef__device *device) { return clef__device_profile(device)->wide_items ? 12 : 3; }

/* Once to have it compiled, then on the clock. */
static clef_status time_probe(clef__device *device, const clef__blas_product *p, clef__buffer *operand, clef__buffer *result,
                              double *seconds) {
    clef__buffer *const x[3] = {operand, operand, result};
    const int64_t offset[3] = {0, 0, 0};
    clef_status status = CLEF_OK;
    for (int i = 0; status == CLEF_OK && i < 2; i++) {
        double begin = clef__now();
        status = clef__blas_multiply(device, p, x, offset, "CLBlast's pace");
        if (status == CLEF_OK) status = clef__finish(device);
        *seconds = clef__now() - begin;
    }
    return status;
}

/* Any bytes that are numbers of a common size in f32 and in f64. */
static clef_status fill_probe(clef__buffer *buffer, size_t bytes) {
    void *host = clef__alloc(bytes);
    if (!host) return CLEF_MEMORY;
    memset(host, 0x3f, bytes);
    clef_status status = clef__buffer_write(buffer, 0, host, bytes);
    clef__free(host);
    return status;
}

void clef__blas_measure(clef__device *device, const clef__blas_product *like) {
    int64_t edge = like->batch > 1 ? PROBE_EDGE / 2 : PROBE_EDGE, batch = like->batch > 1 ? PROBE_BATCH : 1;
    const clef__blas_matrix dense = {.ld = edge, .step = edge * edge};
    const clef__blas_product p = {
        .dtype = like->dtype, .m = edge, .n = edge, .k = edge, .batch = batch, .matrix = {dense, dense, dense}};
    size_t bytes = (size_t)(batch * edge * edge) * clef_dtype_size(p.dtype);
    double seconds = 0, *pace = &device->blas_pace[routine_of(like)];
    clef__buffer *operand = clef__buffer_new(device, bytes), *result = operand ? clef__buffer_new(device, bytes) : NULL;
    *pace = HUGE_VAL;
    if (result && fill_probe(operand, bytes) == CLEF_OK && time_probe(device, &p, operand, result, &seconds) == CLEF_OK)
        *pace = seconds / (2.0 * (double)batch * (double)(edge * edge * edge));
    clef__buffer_release(operand);
    clef__buffer_release(result);
}
