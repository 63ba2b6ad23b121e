/* seen.c — copies that need not be, as the other device can read the value where it lies.

   Parts of one CPU have their memory in common.  A copy from one to the other is left out, and what would have read it reads the value
   itself, if
     - nothing but the copy writes to that memory, and no result lies there,
     - nothing overwrites the value before the last of those has read it,
     - these are launches that can read it there: kernels, routines, and copies in a second queue (no visits of the host, which map what
       lies on their device),
     - the devices differ: a value that comes back stays a copy, as a launch may write to the former one, which it would then read, too.
   The value then lives until the last of them has run (memory.c), and edges between the compute queues keep that order (edges.c). */
#include "plan/schedule/schedule.h"

/* What is known of a value. */
typedef struct fact {
    int writers, last_write, last_read; /* launches; -1: none */
    size_t element;                     /* bytes; 0: not known yet */
    bool fixed;                         /* what reads it cannot read another in its place */
    int in;                             /* the value that is read in its place, so many elements further on; -1: itself is */
    int64_t shift;
} fact;

static bool reads_anywhere(const clef__launch *launch) {
    switch (launch->kind) {
    case CLEF__LAUNCH_KERNEL: return true;
    case CLEF__LAUNCH_ROUTINE: return !clef__is_visit(launch);
    case CLEF__LAUNCH_COPY: return launch->beside;
    default: return false;
    }
}

static void note_access(fact *f, const clef__launch *launch, int i, const clef__arg *arg) {
    size_t element = clef_dtype_size(arg->dtype);
    if (!f->element) f->element = element;
    f->fixed |= f->element != element || (!arg->writes && !reads_anywhere(launch));
    f->writers += arg->writes && f->last_write != i;
    if (arg->writes) f->last_write = i;
    else f->last_read = i;
}

static void note_all(const clef__plan *plan, fact *of) {
    for (int v = 0; v < plan->n_values; v++) of[v] = (fact){.last_write = -1, .last_read = -1, .in = -1};
    for (int i = 0; i < plan->n_launches; i++)
        for (int a = 0; a < plan->launch[i].n_args; a++) {
            const clef__arg *arg = &plan->launch[i].arg[a];
            if (arg->kind == CLEF__ARG_TENSOR) note_access(&of[arg->value], &plan->launch[i], i, arg);
        }
}

static bool writes_to(const clef__launch *launch, int value) {
    for (int a = 0; a < launch->n_args; a++)
        if (launch->arg[a].kind == CLEF__ARG_TENSOR && launch->arg[a].writes && launch->arg[a].value == value) return true;
    return false;
}

/* Does one of the launches from `first` to `last` write to the value? */
static bool is_overwritten(const clef__plan *plan, const fact *of, int value, int first, int last) {
    for (int i = first; i <= last && i <= of[value].last_write; i++)
        if (writes_to(&plan->launch[i], value)) return true;
    return false;
}

static bool needs_no_copy(const clef__plan *plan, const fact *of, int i) {
    const clef__launch *launch = &plan->launch[i];
    if (!launch->visible) return false;
    int to = launch->arg[0].value, from = launch->arg[1].value;
    return plan->value[to].home == CLEF__ARENA_VALUE && of[to].writers == 1 && !of[to].fixed &&
           plan->value[from].device != plan->value[to].device && !is_overwritten(plan, of, from, i + 1, of[to].last_read);
}

static void read_in_place(const fact *of, clef__launch *launch) {
    for (int a = 0; a < launch->n_args; a++) {
        clef__arg *arg = &launch->arg[a];
        if (arg->kind != CLEF__ARG_TENSOR || of[arg->value].in < 0) continue;
        arg->number += of[arg->value].shift;
        arg->value = of[arg->value].in;
    }
}

static void leave_out_copies(clef__plan *plan, fact *of) {
    int n = 0;
    for (int i = 0; i < plan->n_launches; i++) {
        clef__launch *launch = &plan->launch[i];
        read_in_place(of, launch);
        if (needs_no_copy(plan, of, i)) {
            fact *copy = &of[launch->arg[0].value];
            copy->in = launch->arg[1].value;
            copy->shift = launch->arg[1].number;
            plan->value[copy->in].seen = true;
        }
    }
    for (int i = 0; i < plan->n_launches; i++) {
        clef__launch *launch = &plan->launch[i];
        if (launch->visible && of[launch->arg[0].value].in >= 0) clef__launch_free(launch);
        else plan->launch[n++] = *launch;
    }
    plan->n_launches = n;
}

bool clef__leave_out_copies(clef__plan *plan) {
    bool any = false;
    for (int i = 0; i < plan->n_launches && !any; i++) any = plan->launch[i].visible;
    if (!any) return true;
    fact *of = clef__alloc(((size_t)plan->n_values + 1) * sizeof *of);
    if (!of) return false;
    note_all(plan, of);
    leave_out_copies(plan, of);
    clef__free(of);
    return true;
}
