/* Copies that are left out as the other device sees the value where it lies, on plain structs and in plans of two halves of a CPU.

   The oracle runs a plan with a symbol for what lies in each value.  A copy passes its symbol on, everything else makes a new one of what it
   reads; so launches that are left must read the same symbols as before, and results must be the same. */
#include "plan/run/run.h"
#include "support/device.h"

enum { LAUNCHES = 40, VALUES = 20, ARGS = 3, ROUNDS = 20000, DEVICES = 3 };

typedef struct sample {
    clef__plan plan;
    clef__value value[VALUES];
    clef__launch launch[LAUNCHES];
} sample;

static int any(int n) { return rand() % n; }

/* ---- plans by hand ---- */

static void begin(sample *s) {
    *s = (sample){.plan = {.value = s->value, .n_values = VALUES, .launch = s->launch}};
    for (int v = 0; v < VALUES; v++)
        s->value[v] = (clef__value){.home = CLEF__ARENA_VALUE, .device = v % DEVICES, .bytes = 64, .donor = -1, .in_place_of = -1};
}

/* Its number stands in `numbers`, a field that nothing here looks at.  Arguments are freed with it. */
static clef__launch *add(sample *s, clef__launch_kind kind, int device) {
    int i = s->plan.n_launches++;
    s->launch[i] = (clef__launch){.kind = kind, .device = device, .numbers = (size_t)i};
    s->launch[i].arg = clef__calloc(ARGS, sizeof *s->launch[i].arg);
    return &s->launch[i];
}

static clef__arg *add_arg(clef__launch *launch, int value, bool writes) {
    clef__arg *arg = &launch->arg[launch->n_args++];
    *arg = (clef__arg){.kind = CLEF__ARG_TENSOR, .value = value, .writes = writes, .dtype = CLEF_F32};
    return arg;
}

static void add_kernel(sample *s, int to, int from) {
    clef__launch *launch = add(s, CLEF__LAUNCH_KERNEL, s->value[to].device);
    add_arg(launch, to, true);
    add_arg(launch, from, false);
}

static clef__launch *add_copy(sample *s, int to, int from, int64_t offset) {
    clef__launch *launch = add(s, CLEF__LAUNCH_COPY, s->value[to].device);
    launch->beside = launch->visible = true;
    add_arg(launch, to, true);
    add_arg(launch, from, false)->number = offset;
    return launch;
}

static void end(sample *s) {
    for (int i = 0; i < s->plan.n_launches; i++) clef__free(s->launch[i].arg);
}

/* How many copies are left of those there were. */
static int copies_left(sample *s) {
    int n = 0;
    cr_assert(clef__leave_out_copies(&s->plan));
    for (int i = 0; i < s->plan.n_launches; i++) n += s->launch[i].kind == CLEF__LAUNCH_COPY;
    return n;
}

/* ---- what is left out, and what is not ---- */

Test(seen, a_value_is_read_where_it_lies) {
    sample s;
    begin(&s);
    add_kernel(&s, 0, 3);
    add_copy(&s, 1, 0, 5);
    add_kernel(&s, 4, 1);
    s.launch[2].arg[1].number = 2;
    cr_expect_eq(copies_left(&s), 0);
    cr_assert_eq(s.plan.n_launches, 2);
    cr_expect_eq(s.launch[1].arg[1].value, 0);
    cr_expect_eq(s.launch[1].arg[1].number, 7, "elements of the view, and of what reads it");
    cr_expect(s.value[0].seen && !s.value[1].seen);
    end(&s);
}

Test(seen, one_after_the_other_to_a_third_device) {
    sample s;
    begin(&s);
    add_copy(&s, 1, 0, 4);
    add_copy(&s, 2, 1, 3);
    add_kernel(&s, 5, 2);
    cr_expect_eq(copies_left(&s), 0);
    cr_expect_eq(s.launch[0].arg[1].value, 0);
    cr_expect_eq(s.launch[0].arg[1].number, 7);
    end(&s);
}

Test(seen, what_comes_back_is_a_copy) {
    sample s;
    begin(&s);
    add_copy(&s, 1, 0, 0);
    add_copy(&s, 3, 1, 0);
    add_kernel(&s, 6, 3);
    cr_expect_eq(copies_left(&s), 1);
    cr_expect_eq(s.launch[0].arg[1].value, 0, "of the value itself");
    cr_expect_eq(s.launch[1].arg[1].value, 3);
    end(&s);
}

Test(seen, what_is_overwritten_too_early_is_copied) {
    for (int early = 0; early < 2; early++) {
        sample s;
        begin(&s);
        add_copy(&s, 1, 0, 0);
        if (early) add_kernel(&s, 0, 3);
        add_kernel(&s, 4, 1);
        if (!early) add_kernel(&s, 0, 3);
        cr_expect_eq(copies_left(&s), early);
        end(&s);
    }
}

Test(seen, a_result_lies_on_its_own_device) {
    sample s;
    begin(&s);
    s.value[1].home = CLEF__OUTPUT_VALUE;
    add_copy(&s, 1, 0, 0);
    add_kernel(&s, 4, 1);
    cr_expect_eq(copies_left(&s), 1);
    end(&s);
}

Test(seen, a_copy_that_is_written_to_is_needed) {
    sample s;
    begin(&s);
    add_copy(&s, 1, 0, 0);
    add_kernel(&s, 1, 4);
    add_kernel(&s, 4, 1);
    cr_expect_eq(copies_left(&s), 1);
    end(&s);
}

static clef_status visit(const void *what, uint64_t number, void *const *memory, char *line) {
    (void)what, (void)number, (void)memory, (void)line;
    return CLEF_OK;
}

Test(seen, routines_read_elsewhere_but_the_host_does_not) {
    static const clef__routine routine = {.name = "routine"}, host = {.name = "host", .visit = visit};
    for (int visits = 0; visits < 2; visits++) {
        sample s;
        begin(&s);
        add_copy(&s, 1, 0, 0);
        clef__launch *launch = add(&s, CLEF__LAUNCH_ROUTINE, 1);
        launch->routine = visits ? &host : &routine;
        add_arg(launch, 1, false);
        cr_expect_eq(copies_left(&s), visits);
        end(&s);
    }
}

Test(seen, not_all_that_reads_can_read_elsewhere) {
    for (int how = 0; how < 3; how++) {
        sample s;
        begin(&s);
        add_copy(&s, 1, 0, 0);
        if (how < 2) add_arg(add(&s, how ? CLEF__LAUNCH_FETCH : CLEF__LAUNCH_KERNEL, 1), 1, false);
        else add_copy(&s, 2, 1, 0)->beside = false;
        if (how == 0) s.launch[1].arg[0].dtype = CLEF_F16;
        s.launch[s.plan.n_launches - 1].visible = false;
        cr_expect_eq(copies_left(&s), how < 2 ? 1 : 2, "%d", how);
        end(&s);
    }
}

Test(seen, what_is_not_visible_is_copied) {
    sample s;
    begin(&s);
    add_copy(&s, 1, 0, 0)->visible = false;
    add_kernel(&s, 4, 1);
    cr_expect_eq(copies_left(&s), 1);
    end(&s);
}

/* ---- random plans ---- */

typedef struct symbol {
    uint64_t of;
    int64_t shift; /* elements into it */
} symbol;

static uint64_t mix(uint64_t hash, uint64_t word) { return (hash ^ word) * 0x9e3779b97f4a7c15u ^ hash >> 31; }

/* What launches read, by their numbers, and what lies where at the end. */
typedef struct outcome {
    uint64_t read[LAUNCHES];
    symbol at[VALUES];
} outcome;

static void run(const sample *s, outcome *o) {
    for (int v = 0; v < VALUES; v++) o->at[v] = (symbol){.of = mix(7, (uint64_t)v)};
    for (int i = 0; i < s->plan.n_launches; i++) {
        const clef__launch *launch = &s->launch[i];
        uint64_t hash = mix(11, launch->numbers);
        for (int a = 0; a < launch->n_args; a++) {
            const symbol *x = &o->at[launch->arg[a].value];
            hash = mix(mix(hash, x->of), (uint64_t)(x->shift + launch->arg[a].number)); /* what is written, too: a part may stay */
        }
        o->read[launch->numbers] = hash;
        symbol passed = {hash, 0};
        if (launch->kind == CLEF__LAUNCH_COPY) {
            passed = o->at[launch->arg[1].value];
            passed.shift += launch->arg[1].number;
            o->read[launch->numbers] = mix(passed.of, (uint64_t)passed.shift);
        }
        for (int a = 0; a < launch->n_args; a++)
            if (launch->arg[a].writes) o->at[launch->arg[a].value] = passed;
    }
}

static void make(sample *s) {
    begin(s);
    for (int v = 0; v < VALUES; v++) s->value[v].home = (clef__home)any(3);
    int n = 2 + any(LAUNCHES - 2);
    while (s->plan.n_launches < n) {
        int to = any(VALUES), from = any(VALUES);
        if (s->value[to].device == s->value[from].device) {
            add_kernel(s, to, from);
            s->launch[s->plan.n_launches - 1].arg[1].number = any(5);
        } else if (any(3)) {
            add_copy(s, to, from, any(5))->visible = any(4) > 0;
        }
    }
}

static int check_random(void) {
    sample s;
    outcome before, after;
    make(&s);
    int n = s.plan.n_launches;
    run(&s, &before);
    cr_assert(clef__leave_out_copies(&s.plan));
    run(&s, &after);
    for (int i = 0; i < s.plan.n_launches; i++) {
        size_t number = s.launch[i].numbers;
        cr_assert_eq(before.read[number], after.read[number], "launch %zu reads something else", number);
    }
    for (int v = 0; v < VALUES; v++)
        if (s.value[v].home != CLEF__ARENA_VALUE) cr_assert_eq(before.at[v].of, after.at[v].of, "value %d is another", v);
    end(&s);
    return n - s.plan.n_launches;
}

Test(seen, no_launch_reads_anything_else) {
    int left_out = 0;
    srand(2);
    for (int round = 0; round < ROUNDS; round++) left_out += check_random();
    cr_expect_gt(left_out, ROUNDS / 4, "random plans have such copies: %d", left_out);
}

/* ---- in plans of a CPU in two parts ---- */

static clef_context *open_halves(const char *zero_copy) {
    setenv("POCL_MAX_PTHREAD_COUNT", "2", 0);
    setenv("CLEF_ZERO_COPY", zero_copy, 1);
    clef_context *ctx = clef_open(&(clef_options){.device = "0/2"});
    if (!ctx) cr_skip_test("no device in two halves here: %s", clef_error(NULL));
    return ctx;
}

static clef_tensor *ones(clef_context *ctx, int device) {
    static float data[1024];
    for (int i = 0; i < 1024; i++) data[i] = 1;
    return clef_from_host_on(ctx, device, CLEF_SHAPE(32, 32), CLEF_F32, data);
}

/* A value made on 0 is multiplied on 1. */
static clef_plan_size size_on_1(const char *zero_copy, bool *sees) {
    clef_context *ctx = open_halves(zero_copy);
    clef_plan_size size = {0};
    *sees = clef__devices_see(clef__device_at(ctx, 0), clef__device_at(ctx, 1));
    clef_tensor *x = ones(ctx, 0), *w = ones(ctx, 1);
    clef_set_dry_run(ctx, true);
    clef_eval(clef_mul(clef_to_device(clef_sum(x, (int[]){0}, 1, true), 1), w));
    cr_assert_eq(clef_plan_memory_of(ctx, 1, &size), CLEF_OK, "%s", clef_error(ctx));
    clef_set_dry_run(ctx, false);
    close_clean(ctx);
    return size;
}

Test(seen, no_memory_and_no_launch_for_what_is_seen) {
    bool sees, never;
    clef_plan_size seen = size_on_1("1", &sees), copied = size_on_1("0", &never);
    cr_expect(!never, "CLEF_ZERO_COPY=0 turns it off");
    if (!sees) cr_skip_test("the two halves do not see each other's memory");
    cr_expect_eq(copied.launches, 2);
    cr_expect_eq(seen.launches, 1);
    cr_expect_eq(seen.temporary_bytes, 0);
    cr_expect_geq(copied.temporary_bytes, 128);
    cr_expect_eq(copied.written_bytes - seen.written_bytes, 128);
}

/* A parameter that the other device reads is updated in place in the same plan: nothing is copied, and memory is not needed twice. */
Test(seen, a_parameter_is_read_there_and_updated_here) {
    clef_context *ctx = open_halves("1");
    bool sees = clef__devices_see(clef__device_at(ctx, 0), clef__device_at(ctx, 1));
    clef_tensor *p = clef_keep(ones(ctx, 0));
    for (int step = 0; sees && step < 3; step++) {
        clef_tensor *total = clef_sum(clef_to_device(p, 1), NULL, 0, false);
        clef_assign(p, clef_add(p, clef_mul_scalar(clef_to_device(total, 0), 1.0 / 1024)));
        uint64_t before = clef_counters_get(ctx).launches;
        cr_expect_eq(clef_item(total), 1024 << step, "%s", clef_error(ctx));
        cr_expect_eq(clef_end_step(ctx), CLEF_OK);
        const clef__plan *plan = clef__plans_of(ctx)->first;
        for (int i = 0; i < plan->n_launches; i++) cr_expect_neq(plan->launch[i].kind, CLEF__LAUNCH_COPY, "step %d", step);
        cr_expect_gt(clef_counters_get(ctx).launches, before);
    }
    clef_release(p);
    close_clean(ctx);
    if (!sees) cr_skip_test("the two halves do not see each other's memory");
}

/* ---- what is made of a weight of another device ---- */

enum { SIDE = 96, TIMES = 5, CHANGES = 3 };

/* Products by a weight of device 0 on device 1, each several times, so that what is packed there is retained, and after the weight has
   changed.  Returns how many copies the plans have. */
static int products(const char *zero_copy, float (*result)[SIDE * SIDE]) {
    clef_context *ctx = open_halves(zero_copy);
    static float data[SIDE * SIDE];
    for (int i = 0; i < SIDE * SIDE; i++) data[i] = noise((uint64_t)i, 3);
    clef_tensor *w = clef_require_grad(clef_keep(clef_from_host_on(ctx, 0, CLEF_SHAPE(SIDE, SIDE), CLEF_F32, data)), true);
    clef_tensor *x = clef_keep(clef_from_host_on(ctx, 1, CLEF_SHAPE(SIDE, SIDE), CLEF_F32, data));
    int copies = 0;
    for (int change = 0; change < CHANGES; change++) {
        for (int i = 0; i < TIMES; i++, result++) {
            bool grad = clef_set_grad_enabled(ctx, false);
            clef_tensor *y = clef_matmul(x, clef_transpose(clef_to_device(w, 1), 0, 1));
            cr_assert_eq(clef_read(y, result, sizeof *result), CLEF_OK, "%s", clef_error(ctx));
            clef_set_grad_enabled(ctx, grad);
            clef_end_step(ctx);
        }
        const clef__plan *plan = clef__plans_of(ctx)->first;
        for (int i = 0; i < plan->n_launches; i++) copies += plan->launch[i].kind == CLEF__LAUNCH_COPY;
        clef_assign(w, clef_mul_scalar(clef_detach(w), 1.5));
        clef_end_step(ctx);
    }
    clef_release(w);
    clef_release(x);
    close_clean(ctx);
    return copies;
}

Test(seen, packed_weights_of_another_device_follow_the_weight) {
    static float seen[CHANGES * TIMES][SIDE * SIDE], copied[CHANGES * TIMES][SIDE * SIDE];
    int few = products("1", seen);
    cr_expect_geq(products("0", copied), few);
    for (int i = 0; i < CHANGES * TIMES; i++) cr_expect_arr_eq(seen[i], copied[i], sizeof seen[i], "product %d", i);
    cr_expect_neq(memcmp(seen[0], seen[TIMES], sizeof seen[0]), 0, "the weight has changed");
}
