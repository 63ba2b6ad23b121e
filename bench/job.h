/* job.h — one case of bench_clef.c: its inputs, its run, its time. */
#ifndef CLEF_BENCH_JOB_H
#define CLEF_BENCH_JOB_H
#include "clef.h"
#include "clef/opencl.h"
#include "peers/peer.h"

#include <math.h>

static clef_context *ctx;

static bool word(const char *line, const char *key, char *out, size_t size) {
    char pattern[32];
    snprintf(pattern, sizeof pattern, " %s=", key);
    const char *at = strstr(line, pattern);
    if (!at) return false;
    at += strlen(pattern);
    size_t n = strcspn(at, " \n");
    if (n >= size) return false;
    memcpy(out, at, n);
    out[n] = 0;
    return true;
}

enum { MAX_COPIES = 16, MAX_INPUTS = 18 };
typedef struct job {
    const char *line;
    clef_tensor *input[MAX_COPIES][MAX_INPUTS];
    int copies, n_inputs;
    clef_tensor *(*run)(const struct job *job, clef_tensor *const *x);
} job;

/* dtype=f16 or bf16 in the line: operands are stored so. */
static clef_tensor *random_input(const char *line, clef_shape shape) {
    char dtype[8] = "";
    clef_tensor *x = clef_randn(ctx, shape);
    if (!word(line, "dtype", dtype, sizeof dtype)) return x;
    return clef_to(x, strcmp(dtype, "bf16") == 0 ? CLEF_BF16 : CLEF_F16);
}

/* Random inputs of these shapes, in as many copies as fill 128 MiB, 2 to 16.  Clef keeps what it packs from a tensor that does not
   change, but not if the program has asked for the buffer: so each call packs anew, as where operands are computed. */
static void make_inputs(job *j, int n, const clef_shape *shape) {
    double bytes = 0;
    for (int i = 0; i < n; i++) bytes += 4.0 * (double)clef_shape_numel(shape[i]);
    int copies = (int)number(j->line, "copies", ceil((128 << 20) / bytes));
    j->copies = copies < 2 ? 2 : copies > MAX_COPIES ? MAX_COPIES : copies;
    j->n_inputs = n;
    for (int c = 0; c < j->copies; c++)
        for (int i = 0; i < n; i++) {
            size_t offset;
            j->input[c][i] = clef_keep(random_input(j->line, shape[i]));
            clef_opencl_buffer(j->input[c][i], &offset);
        }
    clef_end_step(ctx);
}

/* `calls` results are queued, then all are waited for. */
static double time_calls(const job *j, int calls) {
    double begin = now();
    for (int i = 0; i < calls; i++) {
        clef_eval(j->run(j, j->input[i % j->copies]));
        clef_end_step(ctx);
    }
    clef_synchronize(ctx);
    return (now() - begin) / calls;
}

/* Choices among rows, as they are logged while a plan is made. */
static char choices[1024];
static void note_choice(void *user, clef_log_level level, const char *line) {
    size_t used = strlen(choices);
    (void)user;
    if (level == CLEF_LOG_DEBUG && strstr(line, " of ")) snprintf(choices + used, sizeof choices - used, "%s; ", line);
}

static void print_choices(const job *j) {
    FILE *nowhere = fopen("/dev/null", "w");
    choices[0] = 0;
    if (nowhere && clef_print_plan(j->run(j, j->input[0]), CLEF_PLAN_TEXT, nowhere) == CLEF_OK) printf("rows %s\n", choices);
    if (nowhere) fclose(nowhere);
    clef_end_step(ctx);
}

static void answer(job *j) {
    bool was = clef_set_grad_enabled(ctx, false), ways = number(j->line, "ways", 0) != 0;
    double seconds = 0;
    if (ways) print_choices(j);
    else time_calls(j, 2);
    if (!ways) seconds = time_calls(j, (int)number(j->line, "calls", 10));
    clef_set_grad_enabled(ctx, was);
    for (int c = 0; c < j->copies; c++)
        for (int i = 0; i < j->n_inputs; i++) clef_release(j->input[c][i]);
    if (clef_error_status(ctx) != CLEF_OK) printf("skip %s\n", clef_error(ctx));
    else if (!ways) printf("seconds %.9g\n", seconds);
    clef_clear_error(ctx);
}
#endif
