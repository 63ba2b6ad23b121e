/* device.h — a context for a test, or a visible skip where the machine has no OpenCL device; small comparisons. */
#ifndef CLEF_TESTS_DEVICE_H
#define CLEF_TESTS_DEVICE_H
#include "clef.h"
#include "support/small.h"
#include <criterion/criterion.h>
#ifdef CLEF_TESTS_TOGETHER
#include "support/together.h"
#endif
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline clef_context *open_or_skip(const clef_options *options) {
    clef_context *ctx = clef_open(options);
    if (!ctx && clef_error_status(NULL) == CLEF_NO_DEVICE) cr_skip_test("%s", clef_error(NULL));
    cr_assert(ctx, "%s", clef_error(NULL));
    return ctx;
}

static inline clef_context *open_seeded(uint64_t seed) { return open_or_skip(&(clef_options){.seed = seed}); }

/* At the end of a test: nothing failed that it did not look at.  Criterion passes over assertions in a fini, but not over a process
   that ends badly. */
static inline void expect_nothing_left(const char *what, const char *line) {
    if (!*line) return;
    fprintf(stderr, "%s left behind: %s\n", what, line);
    abort();
}
static inline void close_clean(clef_context *ctx) {
    expect_nothing_left("error", clef_error(ctx));
    clef_close(ctx);
}

/* Kernels cut as for a GPU, on whatever device there is. */
static inline clef_context *open_as_gpu(void) { return open_or_skip(&(clef_options){.seed = 1, .profile = "gpu"}); }

/* Numbers in [-1,1) that depend on nothing but i and salt. */
static inline float noise(uint64_t i, uint64_t salt) {
    uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u + salt * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return (float)((double)(x >> 40) / (1 << 23) - 1);
}

static inline clef_tensor *noise_tensor(clef_context *ctx, clef_shape shape, uint64_t salt) {
    int64_t n = clef_shape_numel(shape);
    float *data = malloc((size_t)(n ? n : 1) * sizeof *data);
    for (int64_t i = 0; i < n; i++) data[i] = noise((uint64_t)i, salt);
    clef_tensor *t = clef_from_host(ctx, shape, CLEF_F32, data);
    free(data);
    return t;
}

/* The elements of an f32 tensor; the caller frees. */
static inline float *values(clef_tensor *t) {
    int64_t n = clef_numel(t);
    float *out = malloc((size_t)(n ? n : 1) * sizeof *out);
    cr_assert(t && clef_read(t, out, (size_t)n * sizeof *out) == CLEF_OK, "%s", clef_error(clef_tensor_context(t)));
    return out;
}

/* The plan that t would get, as text; good until the next call. */
static inline const char *plan_text(clef_tensor *t) {
    static char text[1 << 16];
    FILE *f = fmemopen(text, sizeof text - 1, "w");
    cr_assert(f && clef_print_plan(t, CLEF_PLAN_TEXT, f) == CLEF_OK, "%s", clef_error(clef_tensor_context(t)));
    fclose(f);
    return text;
}

static inline void expect_shape(clef_tensor *t, clef_shape shape) {
    char have[96], want[96];
    cr_assert(t, "NULL instead of a tensor");
    cr_expect(clef_shape_equal(clef_tensor_shape(t), shape), "%s instead of %s",
              clef_shape_format(clef_tensor_shape(t), have, sizeof have), clef_shape_format(shape, want, sizeof want));
}

/* The context's first error is of this status and its line holds `part`; then forgets it. */
static inline void expect_error(clef_context *ctx, clef_status status, const char *part) {
    cr_expect(clef_error_status(ctx) == status, "%s instead of %s: %s", clef_status_name(clef_error_status(ctx)),
              clef_status_name(status), clef_error(ctx));
    cr_expect(strstr(clef_error(ctx), part), "\"%s\" does not say \"%s\"", clef_error(ctx), part);
    cr_expect(!strchr(clef_error(ctx), '\n'), "more than one line");
    clef_clear_error(ctx);
}
#endif
