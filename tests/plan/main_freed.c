/* With an allocator whose freed memory is written over, so that nothing that was freed can be read by luck: values that only the pending graph
   holds, of which the plan makes another form (a packed one, a prefix sum), and which are gone when it has run.
   ctest: plain */
#include "support/plain.h"
#include <stdlib.h>
#include <string.h>

enum { ROWS = 300, COLUMNS = 256, BEGIN = 44, WIDTH = 128 };

static void *take(void *user, size_t n) {
    size_t *p = malloc(n + 2 * sizeof *p);
    (void)user;
    if (!p) return NULL;
    p[0] = n;
    return p + 2;
}

static void drop(void *user, void *memory) {
    size_t *p = memory ? (size_t *)memory - 2 : NULL;
    (void)user;
    if (!p) return;
    memset(memory, 0xa5, p[0]);
    free(p);
}

static void *retake(void *user, void *old, size_t n) {
    void *new = take(user, n);
    if (!new || !old) return new;
    size_t had = ((size_t *)old - 2)[0];
    memcpy(new, old, had < n ? had : n);
    drop(user, old);
    return new;
}

static clef_tensor *prefix_sums(clef_context *ctx, clef_tensor *x) {
    (void)ctx;
    return clef_cumsum(x, 0);
}

/* As a weight, which is packed. */
static clef_tensor *product(clef_context *ctx, clef_tensor *x) {
    return clef_linear(clef_ones(ctx, CLEF_SHAPE(20, WIDTH), CLEF_F32), x, CLEF_NONE);
}

static float wanted(bool sums, const float *number) {
    float sum = 0;
    for (int i = 0; i < (sums ? ROWS : WIDTH); i++)
        sum += sums ? number[i * COLUMNS + BEGIN] : number[(ROWS - 1) * COLUMNS + BEGIN + i];
    return sum;
}

static int check(clef_context *ctx, clef_tensor *all, clef_tensor *(*fn)(clef_context *, clef_tensor *), float want) {
    static float out[ROWS * COLUMNS];
    for (int i = 0; i < 3; i++) {
        clef_tensor *part = clef_keep(clef_slice(all, 1, BEGIN, BEGIN + WIDTH, 1)), *y = NULL;
        clef_eval(part);
        /* so many that no handle of before has it any more */
        for (int step = 0; step < 3; step++) clef_zeros(ctx, CLEF_SHAPE(1), CLEF_F32), clef_end_step(ctx);
        for (CLEF_NO_GRAD(ctx)) y = fn(ctx, part);
        clef_release(part); /* the graph of y has it now */
        clef_shape shape = clef_tensor_shape(y);
        clef_read(y, out, (size_t)clef_numel(y) * sizeof *out);
        float got = out[fn == prefix_sums ? (shape.dim[0] - 1) * shape.dim[1] : shape.dim[1] - 1];
        if (got != want) return printf("FAILED: run %d: %g, not %g (%s)\n", i, (double)got, (double)want, clef_error(ctx)), 1;
    }
    return 0;
}

int main(void) {
    static float number[ROWS * COLUMNS];
    clef_set_allocator(&(clef_allocator){take, retake, drop, NULL});
    clef_context *ctx = clef_open(NULL);
    if (!ctx) return without_context();
    for (int i = 0; i < ROWS * COLUMNS; i++) number[i] = (float)(i % 7 - 3);
    clef_tensor *all = clef_keep(clef_from_host(ctx, CLEF_SHAPE(ROWS, COLUMNS), CLEF_F32, number));
    clef_eval(all);
    int failed = check(ctx, all, prefix_sums, wanted(true, number)) + check(ctx, all, product, wanted(false, number));
    clef_release(all);
    clef_close(ctx);
    return failed != 0;
}
