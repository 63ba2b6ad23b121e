/* One of two devices fails: its queue is gone, or it has no memory.  Each failure is one line that names the device, nothing hangs,
   and what lies on the other device is read, saved and trained on.  A program that defines the OpenCL functions which may fail and
   passes them on otherwise.
   ctest: cost=30 plain */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RTLD_NEXT */
#endif
#include "runtime/runtime_internal.h"
#include "support/plain.h"
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ITEMS = 8, WIDE = 16, CLASSES = 4, STEPS = 3 };

#if defined(__SANITIZE_ADDRESS__)
/* What a lost device may still read is left to it. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void) { return 1; }
#endif

/* ---- what fails ---- */
static cl_device_id doomed; /* NULL: none */
static long countdown;      /* calls for the doomed device that still pass; then none does */
static long met;            /* calls for it */
static size_t too_large;    /* buffers of so many bytes are refused; 0: none */

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static bool fails(cl_command_queue queue) {
    cl_device_id device = NULL;
    if (!doomed || REAL(clGetCommandQueueInfo)(queue, CL_QUEUE_DEVICE, sizeof device, &device, NULL) || device != doomed)
        return false;
    met++;
    if (countdown > 0) countdown--;
    return countdown == 0;
}

cl_int clEnqueueNDRangeKernel(cl_command_queue q, cl_kernel k, cl_uint d, const size_t *o, const size_t *g, const size_t *l,
                              cl_uint n, const cl_event *w, cl_event *event) {
    return fails(q) ? CL_INVALID_COMMAND_QUEUE : REAL(clEnqueueNDRangeKernel)(q, k, d, o, g, l, n, w, event);
}
cl_int clEnqueueReadBuffer(cl_command_queue q, cl_mem m, cl_bool b, size_t o, size_t s, void *p, cl_uint n, const cl_event *w,
                           cl_event *event) {
    return fails(q) ? CL_INVALID_COMMAND_QUEUE : REAL(clEnqueueReadBuffer)(q, m, b, o, s, p, n, w, event);
}
cl_int clEnqueueWriteBuffer(cl_command_queue q, cl_mem m, cl_bool b, size_t o, size_t s, const void *p, cl_uint n,
                            const cl_event *w, cl_event *event) {
    return fails(q) ? CL_INVALID_COMMAND_QUEUE : REAL(clEnqueueWriteBuffer)(q, m, b, o, s, p, n, w, event);
}
cl_int clFinish(cl_command_queue q) { return fails(q) ? CL_INVALID_COMMAND_QUEUE : REAL(clFinish)(q); }
cl_int clFlush(cl_command_queue q) { return fails(q) ? CL_INVALID_COMMAND_QUEUE : REAL(clFlush)(q); }
cl_mem clCreateBuffer(cl_context c, cl_mem_flags f, size_t n, void *h, cl_int *code) {
    if (!too_large || n < too_large) return REAL(clCreateBuffer)(c, f, n, h, code);
    if (code) *code = CL_MEM_OBJECT_ALLOCATION_FAILURE;
    return NULL;
}

/* ---- a net whose head lies on device 0 and whose tail lies on device 1 ---- */

static int failures;
#define EXPECT(condition, ...)                             \
    do {                                                   \
        if (!(condition)) {                                \
            failures++;                                    \
            printf("line %d: %s: ", __LINE__, #condition); \
            printf(__VA_ARGS__);                           \
            putchar('\n');                                 \
        }                                                  \
    } while (0)

typedef struct parts {
    clef_context *ctx;
    clef_module *net, *head, *tail;
    clef_optimizer *optimizer;
} parts;

static clef_tensor *forward_parts(clef_module *net, clef_tensor *x, void *user) {
    (void)user;
    clef_tensor *between = clef_forward(clef_module_child(net, "head"), x);
    return clef_forward(clef_module_child(net, "tail"), clef_to_device(between, 1));
}

static parts make_parts(clef_context *ctx) {
    clef_seed(ctx, 5);
    parts p = {.ctx = ctx,
               .net = clef_module_new(ctx, "parts", forward_parts, NULL),
               .head = clef_sequential(ctx, CLEF_LAYERS(clef_nn_linear(ctx, WIDE, WIDE, NULL), clef_nn_tanh(ctx))),
               .tail = clef_nn_linear(ctx, WIDE, CLASSES, NULL)};
    clef_module_add(p.net, "head", p.head);
    clef_module_add(p.net, "tail", p.tail);
    clef_module_to(p.tail, 1);
    p.optimizer = clef_adam(p.net, &(clef_adam_options){.lr = 0.01});
    return p;
}

static clef_status step_with(const parts *p, int items) {
    float *x = calloc((size_t)items * WIDE, sizeof *x);
    int64_t *label = calloc((size_t)items, sizeof *label);
    for (int i = 0; i < items * WIDE; i++) x[i] = (float)(i % 7) / 7;
    for (int i = 0; i < items; i++) label[i] = i % CLASSES;
    clef_tensor *y = clef_forward(p->net, clef_from_host(p->ctx, CLEF_SHAPE(items, WIDE), CLEF_F32, x));
    clef_tensor *target = clef_from_host_on(p->ctx, 1, CLEF_SHAPE(items), CLEF_I64, label);
    clef_backward(clef_cross_entropy(y, target, NULL));
    clef_status status = clef_step(p->optimizer);
    free(x), free(label);
    return status ? status : clef_synchronize(p->ctx);
}

/* Parameters of a module on the host. */
static clef_status read_weights(const clef_module *module, float out[WIDE * (WIDE + 1)]) {
    size_t at = 0;
    clef_status status = CLEF_OK;
    for (int i = 0; i < clef_module_tensors(module) && !status; i++) {
        clef_tensor *t = clef_module_tensor(module, i).tensor;
        status = clef_read(t, out + at, (size_t)clef_numel(t) * sizeof *out);
        at += (size_t)clef_numel(t);
    }
    return status;
}

static bool is_one_line(const char *line, const char *part) { return *line && !strchr(line, '\n') && strstr(line, part); }

/* ---- device 1 is lost at the n-th call for it ---- */

/* A module on device 0 alone, made and trained after the loss. */
static clef_status train_on_the_other(clef_context *ctx, clef_module *head) {
    clef_optimizer *opt = clef_sgd(head, &(clef_sgd_options){.lr = 0.1});
    clef_tensor *x = clef_full(ctx, CLEF_SHAPE(ITEMS, WIDE), CLEF_F32, 0.5);
    clef_backward(clef_mean(clef_square(clef_forward(head, x)), NULL, 0, false));
    return opt ? clef_step(opt) : clef_error_status(ctx);
}

static clef_context *open_halves(void) { return clef_open(&(clef_options){.device = "0/2"}); }

/* False when no call was hit any more. */
static bool lose_at(long n) {
    float before[WIDE * (WIDE + 1)] = {0}, after[WIDE * (WIDE + 1)] = {0}, gone[WIDE * (WIDE + 1)];
    clef_context *ctx = open_halves();
    parts p = make_parts(ctx);
    EXPECT(step_with(&p, ITEMS) == CLEF_OK && read_weights(p.head, before) == CLEF_OK, "%s", clef_error(ctx));
    doomed = clef__device_at(ctx, 1)->id;
    countdown = n;
    met = 0;
    clef_status status = CLEF_OK;
    for (int i = 0; i < STEPS && !status; i++) status = step_with(&p, ITEMS);
    bool hit = met >= n;
    EXPECT(status == (hit ? CLEF_LOST : CLEF_OK), "call %ld: %s", n, clef_status_name(status));
    if (hit) {
        EXPECT(is_one_line(clef_error(ctx), "(device 1): CL_INVALID_COMMAND_QUEUE"), "call %ld: %s", n, clef_error(ctx));
        clef_clear_error(ctx);
        EXPECT(clef_error_status(ctx) == CLEF_OK, "call %ld: the other device is left", n);
        EXPECT(read_weights(p.head, after) == CLEF_OK && after[0] != 0, "call %ld: %s", n, clef_error(ctx));
        for (int i = 0; i < WIDE * (WIDE + 1); i++) /* from before the step, or from one of those that followed */
            EXPECT(fabsf(after[i] - before[i]) < 0.05f, "call %ld: %g, and %g before", n, (double)after[i], (double)before[i]);
        EXPECT(read_weights(p.tail, gone) == CLEF_LOST, "call %ld: %s", n, clef_error(ctx));
        EXPECT(is_one_line(clef_error(ctx), "device 1 ("), "call %ld: %s", n, clef_error(ctx));
        clef_clear_error(ctx);
        EXPECT(clef_save(p.head, "/dev/null") != CLEF_LOST, "call %ld: %s", n, clef_error(ctx));
        clef_clear_error(ctx);
        EXPECT(train_on_the_other(ctx, p.head) == CLEF_OK, "call %ld: %s", n, clef_error(ctx));
    }
    clef_close(ctx);
    doomed = NULL;
    return hit && !failures;
}

/* ---- device 1 has no room ---- */

/* A batch whose temporaries on device 1 do not fit; then one that fits goes on with what was. */
static void run_out_of_memory(void) {
    enum { LARGE = 1 << 15 };
    float before[WIDE * (WIDE + 1)], after[WIDE * (WIDE + 1)];
    clef_context *ctx = open_halves();
    parts p = make_parts(ctx);
    EXPECT(step_with(&p, ITEMS) == CLEF_OK && read_weights(p.tail, before) == CLEF_OK, "%s", clef_error(ctx));
    clef_tensor *rows = clef_keep(clef_to_device(clef_full(ctx, CLEF_SHAPE(LARGE), CLEF_F32, 1), 1));
    EXPECT(clef_eval(rows) == CLEF_OK, "%s", clef_error(ctx));
    too_large = 4 * LARGE * sizeof(float);
    clef_tensor *grown = clef_exp(clef_reshape(clef_expand(clef_unsqueeze(rows, 0), CLEF_SHAPE(8, LARGE)), CLEF_SHAPE(-1)));
    EXPECT(clef_eval(grown) == CLEF_MEMORY, "%s", clef_error(ctx));
    EXPECT(is_one_line(clef_error(ctx), "(device 1): CL_MEM_OBJECT_ALLOCATION_FAILURE"), "%s", clef_error(ctx));
    clef_clear_error(ctx);
    EXPECT(clef_memory_of(ctx, 1).used < 4 * LARGE * sizeof(float), "%llu bytes", (unsigned long long)clef_memory_of(ctx, 1).used);
    EXPECT(read_weights(p.tail, after) == CLEF_OK && !memcmp(before, after, CLASSES * (WIDE + 1) * sizeof *after), "%s",
           clef_error(ctx));
    EXPECT(step_with(&p, ITEMS) == CLEF_OK, "%s", clef_error(ctx));
    too_large = 0;
    EXPECT(clef_eval(grown) == CLEF_OK, "%s", clef_error(ctx)); /* once there is room */
    clef_close(ctx);
}

/* A step that fails for want of memory is made up for when there is room again. */
static void run_out_in_a_step(void) {
    enum { MANY = 4096 };
    float wanted[2][WIDE * (WIDE + 1)], got[WIDE * (WIDE + 1)];
    for (int failing = 0; failing < 2; failing++) {
        clef_context *ctx = open_halves();
        parts p = make_parts(ctx);
        EXPECT(step_with(&p, ITEMS) == CLEF_OK, "%s", clef_error(ctx));
        if (failing) {
            too_large = MANY * WIDE * sizeof(float) + (1 << 16); /* above the batch, below what is between */
            EXPECT(step_with(&p, MANY) == CLEF_MEMORY, "%s", clef_error(ctx));
            EXPECT(is_one_line(clef_error(ctx), "(device "), "%s", clef_error(ctx));
            too_large = 0;
            clef_clear_error(ctx);
        } else EXPECT(step_with(&p, MANY) == CLEF_OK, "%s", clef_error(ctx));
        for (int part = 0; part < 2; part++) {
            EXPECT(read_weights(part ? p.tail : p.head, failing ? got : wanted[part]) == CLEF_OK, "%s", clef_error(ctx));
            size_t n = part ? CLASSES * (WIDE + 1) : WIDE * (WIDE + 1);
            for (size_t i = 0; failing && i < n; i++) /* read apart, in plans of their own */
                EXPECT(fabsf(got[i] - wanted[part][i]) < 1e-6f, "part %d: %g, not %g", part, (double)got[i],
                       (double)wanted[part][i]);
        }
        clef_close(ctx);
    }
}

/* ---- devices that are not there ---- */

static void ask_for_others(void) {
    static const char *const asked[] = {"99", "0/0", "0/100000", "0:100000+1", "0:0", "0,99", "0/2/2", "0:1+", "no such name"};
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        EXPECT(!clef_open(&(clef_options){.device = asked[i]}), "\"%s\" was opened", asked[i]);
        EXPECT(is_one_line(clef_error(NULL), "open: "), "\"%s\": %s", asked[i], clef_error(NULL));
        clef_clear_error(NULL);
    }
    clef_context *ctx = open_halves();
    clef_tensor *x = clef_scalar(ctx, 1);
    for (int device = -1; device <= 2; device += 3) {
        char name[24];
        snprintf(name, sizeof name, "device %d of 2", device);
        EXPECT(!clef_to_device(x, device) && is_one_line(clef_error(ctx), name), "%s", clef_error(ctx));
        clef_clear_error(ctx);
        EXPECT(!clef_from_host_on(ctx, device, CLEF_SCALAR, CLEF_F32, &(float){1}) && is_one_line(clef_error(ctx), name), "%s",
               clef_error(ctx));
        clef_clear_error(ctx);
        EXPECT(clef_module_to(clef_nn_linear(ctx, 2, 2, NULL), device) == CLEF_INVALID && is_one_line(clef_error(ctx), name), "%s",
               clef_error(ctx));
        clef_clear_error(ctx);
    }
    clef_close(ctx);
}

int main(void) {
    clef_context *ctx = open_halves();
    if (!ctx && clef_error_status(NULL) == CLEF_UNSUPPORTED) return printf("skipped: %s\n", clef_error(NULL)), 77;
    if (!ctx) return without_context();
    clef_close(ctx);
    long n = 1;
    while (lose_at(n)) n += 1 + n / 8;
    printf("lost at calls 1 … %ld\n", n);
    if (!failures) run_out_of_memory();
    if (!failures) run_out_in_a_step();
    if (!failures) ask_for_others();
    return failures != 0;
}
