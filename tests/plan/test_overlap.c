/* The order of launches for several devices: what depends on what stays so, and micro-batches overlap.  On plain structs, but for the
   facts of two devices. */
#include "plan/run/run.h"
#include "support/device.h"

enum { LAUNCHES = 60, VALUES = 30, ARGS = 3, ROUNDS = 1000, BATCHES = 4, STAGES = 5 };

static clef_context *ctx;
static void open_halves(void) {
    ctx = clef_open(&(clef_options){.device = "0/2"});
    if (!ctx) cr_skip_test("no device in two halves here: %s", clef_error(NULL));
}
static void close_halves(void) {
    if (ctx) close_clean(ctx);
}
TestSuite(overlap, .init = open_halves, .fini = close_halves);

typedef struct sample {
    clef__plan plan;
    clef__value value[VALUES];
    clef__arg arg[LAUNCHES][ARGS];
} sample;

static int any(int n) { return rand() % n; }

/* Its number stands in `numbers`, a field that nothing here looks at. */
static clef__launch *add(sample *s, int device, double flops) {
    int i = s->plan.n_launches++;
    s->plan.launch[i] = (clef__launch){.device = device, .flops = flops, .arg = s->arg[i], .numbers = (size_t)i};
    return &s->plan.launch[i];
}

static void add_arg(clef__launch *launch, int value, bool writes) {
    launch->arg[launch->n_args++] = (clef__arg){.kind = CLEF__ARG_TENSOR, .value = value, .writes = writes};
}

static void begin(sample *s) {
    *s = (sample){.plan = {.n_values = VALUES, .value = s->value}};
    s->plan.launch = malloc(LAUNCHES * sizeof *s->plan.launch);
    for (int v = 0; v < VALUES; v++)
        s->value[v] = (clef__value){.home = CLEF__ARENA_VALUE, .device = v % 2, .bytes = 64, .donor = -1, .in_place_of = -1};
}

/* ---- dependencies ---- */

static bool uses(const clef__launch *launch, int value, bool writing) {
    for (int a = 0; a < launch->n_args; a++)
        if (launch->arg[a].value == value && (!writing || launch->arg[a].writes)) return true;
    return false;
}

/* Of two launches in the program's order: must they stay in it? */
static bool depends(const sample *s, const clef__launch *later, const clef__launch *earlier) {
    for (int v = 0; v < VALUES; v++) {
        if ((uses(earlier, v, true) && uses(later, v, false)) || (uses(earlier, v, false) && uses(later, v, true))) return true;
        for (int c = 0; uses(later, v, true) && c < s->value[v].n_candidates; c++) {
            int from = s->value[v].candidate[c]; /* that it reads, and could not take over with another reader behind it */
            if (uses(later, from, false) && uses(earlier, from, false) && s->value[from].device == s->value[v].device) return true;
        }
    }
    return false;
}

Test(overlap, what_depends_on_what_stays_so) {
    srand(3);
    for (int round = 0; round < ROUNDS; round++) {
        sample s;
        begin(&s);
        clef__launch before[LAUNCHES];
        int n = 2 + any(LAUNCHES - 1), seen[LAUNCHES] = {0};
        for (int v = 0; v < VALUES; v++)
            if (any(4) == 0) s.value[v].candidate[s.value[v].n_candidates++] = any(VALUES);
        for (int i = 0; i < n; i++) {
            clef__launch *launch = add(&s, any(2), any(1000) * 1e6);
            if (any(4) == 0) launch->kind = CLEF__LAUNCH_COPY;
            for (int a = 0; a < ARGS; a++) add_arg(launch, any(VALUES), any(3) == 0);
        }
        memcpy(before, s.plan.launch, (size_t)n * sizeof *before);
        cr_assert(clef__overlap(&s.plan, ctx));
        for (int k = 0; k < n; k++) {
            int mine = (int)s.plan.launch[k].numbers;
            cr_assert_eq(seen[mine]++, 0);
            for (int later = 0; later < k; later++) {
                int other = (int)s.plan.launch[later].numbers;
                cr_assert(other < mine || !depends(&s, &before[other], &before[mine]), "%d runs before %d", other, mine);
            }
        }
        free(s.plan.launch);
    }
}

/* ---- micro-batches ---- */

/* Each is forward on device 0, a copy, forward and backward on device 1, a copy, backward on device 0; without copies, devices read what
   lies on the other. */
static void micro_batches(sample *s, bool copies) {
    static const int device[STAGES] = {0, 1, 1, 0, 0};
    begin(s);
    for (int b = 0; b < BATCHES; b++)
        for (int stage = 0; stage < STAGES; stage += copies ? 1 : 2) {
            clef__launch *launch = add(s, device[stage], stage % 2 ? 0 : stage == 2 ? 2e9 : 1e9);
            if (stage % 2) launch->kind = CLEF__LAUNCH_COPY;
            add_arg(launch, 6 * b + stage + 1, true);
            add_arg(launch, 6 * b + (copies || stage == 0 ? stage : stage - 1), false);
        }
}

/* When all is done if forward and backward take 1, both 2, and a copy nothing, and devices work in the order of the plan. */
static int steps_of(const sample *s) {
    int free_at[2] = {0, 0}, ready[VALUES] = {0}, end = 0;
    for (int k = 0; k < s->plan.n_launches; k++) {
        const clef__launch *launch = &s->plan.launch[k];
        int from = ready[launch->arg[1].value], takes = launch->flops > 1.5e9 ? 2 : launch->flops > 0.5e9;
        if (takes && free_at[launch->device] > from) from = free_at[launch->device];
        end = from + takes;
        if (takes) free_at[launch->device] = end;
        ready[launch->arg[0].value] = end;
    }
    return free_at[0] > free_at[1] ? free_at[0] : free_at[1];
}

Test(overlap, micro_batches_overlap) {
    for (int copies = 0; copies < 2; copies++) {
        sample s;
        micro_batches(&s, copies);
        cr_assert_eq(steps_of(&s), 4 * BATCHES, "in the program's order one device always waits");
        cr_assert(clef__overlap(&s.plan, ctx));
        cr_assert_eq(steps_of(&s), 2 * BATCHES + 2, "of the pipeline only its ends wait");
        free(s.plan.launch);
    }
}

Test(overlap, one_device_keeps_its_order) {
    sample s;
    begin(&s);
    for (int i = 0; i < LAUNCHES; i++) add_arg(add(&s, 0, 1e6), any(VALUES), true);
    clef__launch *as_it_was = s.plan.launch;
    cr_assert(clef__overlap(&s.plan, ctx));
    cr_assert_eq(s.plan.launch, as_it_was);
    free(s.plan.launch);
}
