/* What a copy between devices leaves when its plan is over: it can be read where it went, and its source may be overwritten where it came
   from, by later plans too.  With support/delays.c preloaded copies begin late, so whatever does not wait for them is wrong.
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

int main(void) {
    setenv("POCL_MAX_PTHREAD_COUNT", "2", 0); /* two units, and parts, on a machine with one core too */
    ctx = clef_open(&(clef_options){.device = "0/2"});
    if (!ctx && clef_error_status(NULL) == CLEF_UNSUPPORTED) return printf("skipped: %s\n", clef_error(NULL)), 77;
    if (!ctx) return without_context();
    for (int from = 0; from < 2; from++) {
        read_where_it_went(from, 1 - from);
        overwrite_the_source(from, 1 - from);
        use_the_memory_again(from, 1 - from);
    }
    clef_close(ctx);
    return failures != 0;
}
