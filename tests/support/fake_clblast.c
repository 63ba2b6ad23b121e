/* A CLBlast that a test can make fail, err, dawdle or win, as $FAKE_CLBLAST says: it multiplies on the host, and unless
   that is empty it knows by heart what it multiplied once.  Loaded in the true one's place by CLEF_CLBLAST. */
#ifndef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 300
#endif
#include <CL/cl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
extern int fake_calls, fake_clears;
extern long fake_seconds;
EXPORT int fake_calls, fake_clears;
EXPORT long fake_seconds; /* that its calls took by a clock that adds them (tests/plan/main_library.c) */

enum { TRANSPOSED = 112, UNEXPECTED = -2039, KNOWN = 16 };
typedef struct matrix {
    cl_mem memory;
    size_t offset, ld, step;
    int transposed;
} matrix;
typedef struct known {
    size_t m, n, k, batch;
    int ta, tb;
    float *c;
    size_t bytes;
} known;
static known memory[KNOWN];

static int is(const char *mode) {
    const char *now = getenv("FAKE_CLBLAST");
    return now && strcmp(now, mode) == 0;
}

static float *read_all(cl_command_queue queue, cl_mem buffer, size_t *bytes) {
    clGetMemObjectInfo(buffer, CL_MEM_SIZE, sizeof *bytes, bytes, NULL);
    float *data = malloc(*bytes);
    clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, *bytes, data, 0, NULL, NULL);
    return data;
}

static size_t at(const matrix *x, size_t z, size_t row, size_t column) {
    return x->offset + z * x->step + (x->transposed ? column * x->ld + row : row * x->ld + column);
}

static float *compute(cl_command_queue queue, size_t m, size_t n, size_t k, size_t batch, const matrix x[3], float beta,
                      size_t *size) {
    size_t bytes;
    float *a = read_all(queue, x[0].memory, &bytes), *b = read_all(queue, x[1].memory, &bytes),
          *c = read_all(queue, x[2].memory, size);
    for (size_t z = 0; z < batch; z++)
        for (size_t i = 0; i < m; i++) {
            float *row = c + at(&x[2], z, i, 0);
            for (size_t j = 0; j < n; j++) row[j] = beta != 0 ? beta * row[j] : 0;
            for (size_t l = 0; l < k; l++)
                for (size_t j = 0; j < n; j++) row[j] += a[at(&x[0], z, i, l)] * b[at(&x[1], z, l, j)];
        }
    free(a);
    free(b);
    return c;
}

/* Knows nothing of the operands: for those who multiply the same again and again. */
static known *recall(const known *wanted) {
    int i = 0;
    while (i < KNOWN - 1 && memory[i].c && memcmp(&memory[i], wanted, offsetof(known, c)) != 0) i++;
    return &memory[i];
}

static int multiply(cl_command_queue queue, size_t m, size_t n, size_t k, size_t batch, const matrix x[3], float beta) {
    size_t bytes;
    known wanted, *found;
    fake_calls++;
    if (is("fail")) return UNEXPECTED;
    if (is("slow")) fake_seconds += 3600;
    memset(&wanted, 0, sizeof wanted);
    wanted.m = m, wanted.n = n, wanted.k = k, wanted.batch = batch, wanted.ta = x[0].transposed, wanted.tb = x[1].transposed;
    found = recall(&wanted);
    if (is("") || !found->c || memcmp(found, &wanted, offsetof(known, c)) != 0) {
        free(found->c);
        *found = wanted;
        found->c = compute(queue, m, n, k, batch, x, beta, &found->bytes);
    }
    float *last = found->c + at(&x[2], batch - 1, m - 1, n - 1), right = *last;
    if (is("wrong")) ++*last;
    clGetMemObjectInfo(x[2].memory, CL_MEM_SIZE, sizeof bytes, &bytes, NULL);
    if (bytes > found->bytes) bytes = found->bytes;
    int code = clEnqueueWriteBuffer(queue, x[2].memory, CL_TRUE, 0, bytes, found->c, 0, NULL, NULL);
    *last = right;
    return code;
}

int CLBlastSgemm(int layout, int ta, int tb, size_t m, size_t n, size_t k, float alpha, cl_mem a, size_t ao, size_t al, cl_mem b,
                 size_t bo, size_t bl, float beta, cl_mem c, size_t co, size_t cl, cl_command_queue *queue, cl_event *event);
EXPORT int CLBlastSgemm(int layout, int ta, int tb, size_t m, size_t n, size_t k, float alpha, cl_mem a, size_t ao, size_t al,
                        cl_mem b, size_t bo, size_t bl, float beta, cl_mem c, size_t co, size_t cl, cl_command_queue *queue,
                        cl_event *event) {
    const matrix x[3] = {{a, ao, al, 0, ta == TRANSPOSED}, {b, bo, bl, 0, tb == TRANSPOSED}, {c, co, cl, 0, 0}};
    return layout == 101 && alpha == 1 && !event ? multiply(*queue, m, n, k, 1, x, beta) : UNEXPECTED;
}

int CLBlastSgemmStridedBatched(int layout, int ta, int tb, size_t m, size_t n, size_t k, float alpha, cl_mem a, size_t ao,
                               size_t al, size_t as, cl_mem b, size_t bo, size_t bl, size_t bs, float beta, cl_mem c, size_t co,
                               size_t cl, size_t cs, size_t batch, cl_command_queue *queue, cl_event *event);
EXPORT int CLBlastSgemmStridedBatched(int layout, int ta, int tb, size_t m, size_t n, size_t k, float alpha, cl_mem a, size_t ao,
                                      size_t al, size_t as, cl_mem b, size_t bo, size_t bl, size_t bs, float beta, cl_mem c,
                                      size_t co, size_t cl, size_t cs, size_t batch, cl_command_queue *queue, cl_event *event) {
    const matrix x[3] = {{a, ao, al, as, ta == TRANSPOSED}, {b, bo, bl, bs, tb == TRANSPOSED}, {c, co, cl, cs, 0}};
    return layout == 101 && alpha == 1 && !event ? multiply(*queue, m, n, k, batch, x, beta) : UNEXPECTED;
}

/* Of these only the names are asked for. */
int CLBlastDgemm(void), CLBlastDgemmStridedBatched(void), CLBlastClearCache(void);
EXPORT int CLBlastDgemm(void) { return UNEXPECTED; }
EXPORT int CLBlastDgemmStridedBatched(void) { return UNEXPECTED; }
EXPORT int CLBlastClearCache(void) { return fake_clears++, 0; }
