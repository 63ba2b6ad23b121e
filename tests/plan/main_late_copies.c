/* What a copy between devices leaves when its plan is over: it can be read where it went, and its source may be overwritten where it came
   from, by later plans too.  The same holds where nothing is copied, as kernels read the other device's memory.  With support/delays.c
   preloaded commands begin late, so whatever does not wait for them is wrong.
   ctest: cost=5 plain */
#include "support/plain.h"
#include <stdlib.h>
#include <string.h>

enum { NUMBERS = 1 << 16, ROUNDS = 12 };

static clef_context *ctx;
static int failures;

static void expect(clef_tensor *t, float wanted, const char *what) {
    static float got[NUMBERS];
    clef_status status = clef_read(t, got, sizeof got);
    int wrong = 0;
    for (int i = 0; i < NUMBERS; i++) wrong += got[i] != wanted + (float)i;
    if (status == CLEF_OK && !wrong) return;
    printf("FAILED: %s: %d numbers are wrong; %s\n", what, wrong, clef_error(ctx));
    failures++;
}

static clef_tensor *counting_from(int device, float first) {
    static float data[NUMBERS];
    for (int i = 0; i < NUMBERS; i++) data[i] = first + (float)i;
    return clef_from_host_on(ctx, device, CLEF_SHAPE(NUMBERS), CLEF_F32, data);
}

/* A copy is all that its plan does. */
static void read_where_it_went(int from, int to) {
    clef_tensor *y = clef_to_device(counting_from(from, 5), to);
    clef_eval(y);
    expect(y, 5, "a copy read");
}

/* The next plan overwrites the parameter in place, and a copy of its former value stays. */
static void overwrite_the_source(int from, int to) {
    clef_tensor *p = clef_keep(counting_from(from, 0));
    for (int round = 0; round < ROUNDS; round++) {
        clef_tensor *copy = clef_to_device(p, to);
        clef_eval(copy);
        clef_assign(p, clef_add_scalar(p, 1));
        clef_eval(p);
        expect(copy, (float)round, "a copy of what was overwritten then");
        clef_end_step(ctx);
    }
    expect(p, ROUNDS, "what was overwritten");
    clef_release(p);
}

/* What goes there lies in the arena, which the next plan uses for something else, on both devices. */
static void use_the_memory_again(int from, int to) {
    clef_tensor *x = clef_keep(counting_from(from, 0)), *z = clef_keep(counting_from(to, 100));
    for (int round = 0; round < ROUNDS; round++) {
        clef_tensor *there = clef_to_device(clef_mul_scalar(x, 2), to);
        clef_tensor *back = clef_to_device(clef_add(there, z), from);
        clef_tensor *y = clef_sub(clef_sub(back, x), x), *w = clef_add_scalar(clef_to_device(clef_add_scalar(z, 3), from), -3);
        clef_eval_all((clef_tensor *[]){y, w}, 2);
        clef_tensor *other = clef_neg(clef_sum(clef_square(clef_exp(clef_mul_scalar(x, 1e-6))), NULL, 0, false));
        clef_eval(other);
        expect(y, 100, "what came back");
        expect(w, 100, "what came over");
        clef_end_step(ctx);
    }
    clef_release(x);
    clef_release(z);
}

/* Kernels there read a parameter, which the next plan overwrites in place, as nothing else holds it by then.  (Three launches in a
   round: every second is late.) */
static void read_then_overwrite(int from, int to) {
    clef_tensor *p = clef_keep(counting_from(from, 0));
    for (int round = 0; round < ROUNDS; round++) {
        clef_tensor *there = clef_keep(clef_add_scalar(clef_to_device(p, to), 7));
        clef_tensor *twice = clef_keep(clef_mul_scalar(clef_to_device(p, to), 2));
        clef_eval(twice);
        clef_end_step(ctx);
        clef_assign(p, clef_add_scalar(p, 1));
        clef_end_step(ctx);
        expect(there, (float)(round + 7), "what was made there");
        expect(clef_sub(twice, there), (float)(round - 7), "what was made there before");
        clef_release(there);
        clef_release(twice);
    }
    expect(p, ROUNDS, "what was overwritten");
    clef_release(p);
}

/* The same in one plan, in which another kernel there needs both values. */
static void read_and_overwrite(int from, int to) {
    clef_tensor *p = clef_keep(counting_from(from, 0));
    for (int round = 0; round < ROUNDS; round++) {
        clef_tensor *former = clef_to_device(p, to), *there = clef_keep(clef_add_scalar(former, 7));
        clef_assign(p, clef_add_scalar(p, 1));
        clef_tensor *both = clef_keep(clef_sub(clef_mul_scalar(clef_to_device(p, to), 2), former));
        clef_end_step(ctx);
        expect(there, (float)(round + 7), "what was made there");
        expect(both, (float)(round + 2), "what was made of both values");
        clef_release(there);
        clef_release(both);
    }
    expect(p, ROUNDS, "what was overwritten");
    clef_release(p);
}

/* It goes over and back with nothing done there, and is overwritten here before what came back is read. */
static void come_back(int from, int to) {
    clef_tensor *p = clef_keep(counting_from(from, 0));
    for (int round = 0; round < ROUNDS; round++) {
        clef_tensor *back = clef_to_device(clef_to_device(p, to), from);
        clef_tensor *twice = clef_keep(clef_add(back, clef_add_scalar(p, 0)));
        clef_assign(p, clef_sub(clef_add_scalar(twice, 1), back));
        clef_end_step(ctx);
        expect(clef_mul_scalar(twice, 0.5), (float)round, "what came back and was added");
        clef_release(twice);
    }
    expect(p, ROUNDS, "what was overwritten");
    clef_release(p);
}

/* A program never waits: each plan reads what the one before made on the other device. */
static void go_back_and_forth(int from, int to) {
    clef_tensor *x = clef_keep(counting_from(from, 0)), *y = clef_keep(counting_from(to, 0));
    for (int round = 0; round < ROUNDS; round++) {
        clef_assign(y, clef_add_scalar(clef_to_device(clef_add_scalar(x, 1), to), 1));
        clef_end_step(ctx);
        clef_assign(x, clef_add_scalar(clef_to_device(clef_add_scalar(y, 1), from), 1));
        clef_end_step(ctx);
    }
    expect(x, 4 * ROUNDS, "what went back and forth");
    clef_release(x);
    clef_release(y);
}

/* Of a part of a value only that part goes over, and a transposed one keeps its memory order: sums over it have the same bits. */
static void bring_views(int from, int to) {
    enum { ROWS = 64, COLUMNS = NUMBERS / ROWS };
    static float data[NUMBERS], wanted[COLUMNS], got[COLUMNS];
    for (int i = 0; i < NUMBERS; i++) data[i] = 1 / (float)(i + 1);
    clef_tensor *x = clef_from_host_on(ctx, from, CLEF_SHAPE(ROWS, COLUMNS), CLEF_F32, data);
    clef_tensor *row = clef_to_device(clef_slice(clef_neg(x), 0, ROWS - 1, ROWS, 1), to);
    bool good = clef_read(clef_neg(row), got, sizeof got) == CLEF_OK;
    failures += !good || memcmp(got, data + NUMBERS - COLUMNS, sizeof got) != 0 ? printf("FAILED: the last row\n"), 1 : 0;
    clef_tensor *across = clef_transpose(clef_exp(x), 0, 1);
    clef_tensor *here = clef_sum(clef_mul_scalar(across, 1), (int[]){1}, 1, false);
    clef_tensor *there = clef_sum(clef_mul_scalar(clef_to_device(across, to), 1), (int[]){1}, 1, false);
    good = clef_read(here, wanted, sizeof wanted) == CLEF_OK && clef_read(there, got, sizeof got) == CLEF_OK;
    failures += !good || memcmp(got, wanted, sizeof got) != 0 ? printf("FAILED: sums over a transposed value\n"), 1 : 0;
    clef_end_step(ctx);
}

/* The ways from one device to the other: none at all, device copies, and through the host. */
static const char *const ways[][2] = {{"1", NULL}, {"0", NULL}, {"0", CLEF_TEST_SOURCE "/tests/support/probe_apart.sh"}};

static int run_all(int way) {
    setenv("CLEF_ZERO_COPY", ways[way][0], 1);
    if (ways[way][1]) setenv("CLEF_PROBE", ways[way][1], 1);
    ctx = clef_open(&(clef_options){.device = "0/2"});
    if (!ctx && clef_error_status(NULL) == CLEF_UNSUPPORTED) return printf("skipped: %s\n", clef_error(NULL)), 77;
    if (!ctx) return without_context();
    for (int from = 0; from < 2; from++) {
        read_where_it_went(from, 1 - from);
        overwrite_the_source(from, 1 - from);
        use_the_memory_again(from, 1 - from);
        read_then_overwrite(from, 1 - from);
        read_and_overwrite(from, 1 - from);
        come_back(from, 1 - from);
        go_back_and_forth(from, 1 - from);
        bring_views(from, 1 - from);
    }
    failures += clef_error_status(ctx) ? printf("FAILED: %s\n", clef_error(ctx)), 1 : 0;
    clef_close(ctx);
    return failures != 0;
}

int main(void) {
    setenv("POCL_MAX_PTHREAD_COUNT", "2", 0); /* two units, and parts, on a machine with one core too */
    int status = 0;
    for (int way = 0; status == 0 && way < 3; way++) {
        status = run_all(way);
        if (status == 1) printf("in way %d of copying\n", way);
    }
    return status;
}
