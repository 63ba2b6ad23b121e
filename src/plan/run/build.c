/* build.c — makes a plan: runs the passes, lowers every group, gives memory and kernels, notes what replays must set. */
#include "plan/run/run.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

/* ---- kernels ---- */

/* What is not compiled yet, once each. */
typedef struct compiling {
    clef_context *ctx;
    clef__launch **launch; /* the first with its code */
    int n, next, done;
    clef__join *joined; /* those of several, which are compiled first */
    bool some, ready;   /* is one compiled; are those? */
    pthread_mutex_t lock;
    pthread_cond_t change;
} compiling;

/* False without host memory. */
static bool list_codes(compiling *c, const clef__plan *plan) {
    c->launch = clef__alloc(((size_t)plan->n_launches + 1) * sizeof *c->launch);
    for (int i = 0; c->launch && i < plan->n_launches; i++) {
        clef__code *code = plan->launch[i].code;
        if (code && clef__code_claim(code)) c->launch[c->n++] = &plan->launch[i];
    }
    return c->launch != NULL;
}

static void note(compiling *c, bool some, bool ready) {
    pthread_mutex_lock(&c->lock);
    c->some |= some;
    c->ready |= ready;
    pthread_cond_broadcast(&c->change);
    pthread_mutex_unlock(&c->lock);
}

static void count_done(compiling *c, int n) {
    pthread_mutex_lock(&c->lock);
    c->done += n;
    if (n) clef__report_compile(c->ctx, c->done, c->n);
    pthread_mutex_unlock(&c->lock);
}

static int parts_made(const clef__join *join) {
    int n = 0;
    for (int i = 0; i < join->n; i++) n += join->part[i]->program != NULL;
    return n;
}

/* The next of them; false after the last. */
static bool compile_next(compiling *c) {
    pthread_mutex_lock(&c->lock);
    int i = c->next++;
    pthread_mutex_unlock(&c->lock);
    if (i >= c->n) return false;
    const clef__launch *launch = c->launch[i];
    bool joined = launch->code->program;
    clef__code_compile(clef__device_at(c->ctx, launch->device), launch->code, launch->name);
    if (!joined) count_done(c, 1);
    note(c, true, false);
    return true;
}

static void *compile_all(void *user) {
    compiling *c = user;
    for (const clef__join *join = c->joined; join; join = join->next) {
        clef__join_compile(join);
        count_done(c, parts_made(join));
        note(c, true, false);
    }
    note(c, false, true);
    while (compile_next(c)) continue;
    return NULL;
}

static const double SPARE = 20e-3; /* seconds */

/* Where another thread compiles all: is the first one compiled soon, as where the driver has it?  Never if it is known to be new. */
static bool comes_soon(compiling *c) {
    struct timespec until;
    if (c->joined && clef__join_is_new(c->joined)) return false;
    long soon_enough = (long)(1e3 * (SPARE + clef__program_found(c->joined ? strlen(c->joined->text) : 0)));
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += soon_enough / 1000;
    until.tv_nsec += soon_enough % 1000 * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&c->lock);
    while (!c->some && pthread_cond_timedwait(&c->change, &c->lock, &until) == 0) continue;
    bool soon = c->some;
    pthread_mutex_unlock(&c->lock);
    return soon;
}

static void compile_others(compiling *c) {
    pthread_mutex_lock(&c->lock);
    while (!c->ready) pthread_cond_wait(&c->change, &c->lock);
    pthread_mutex_unlock(&c->lock);
    while (compile_next(c)) continue;
}

/* Does the environment not say otherwise? */
static bool unless(const char *variable, const char *off) {
    const char *value = clef__env(variable);
    return !value || strcmp(value, off) != 0;
}

/* Each size is replaced by one that divides it, so the range keeps dividing into groups.  Kernels that ask for a certain size
   have it as their largest, or were not chosen. */
void clef__fit_group(size_t local[3], size_t most) {
    while (local[0] * local[1] * local[2] > most) {
        size_t *largest = local;
        for (int i = 1; i < 3; i++)
            if (local[i] > *largest) largest = &local[i];
        if (*largest == 1) return;
        *largest = *largest % 2 ? 1 : *largest / 2;
    }
}

static bool is_generated(const clef__launch *launch) { return strcmp(launch->name, CLEF__GENERATED) == 0; }
static bool is_own(const clef__launch *launch) { return launch->code->file || is_generated(launch); }

/* Clef's own kernels for a device, and what the plan generated for it, in few programs; files first, as another process begins with the last
   launches, which are mostly generated. */
static void join_codes(compiling *c, int device) {
    clef__code **all = clef__alloc(((size_t)c->n + 1) * sizeof *all);
    int n = 0;
    for (int generated = 0; generated < 2; generated++)
        for (int i = 0; all && i < c->n; i++)
            if (c->launch[i]->device == device && is_own(c->launch[i]) && is_generated(c->launch[i]) == generated)
                all[n++] = c->launch[i]->code;
    clef__join **end = &c->joined;
    while (*end) end = &(*end)->next;
    if (n) *end = clef__codes_join(clef__device_at(c->ctx, device), all, n, CLEF__GENERATED);
    clef__free(all);
}

/* ---- with the help of another process ---- */

enum { LEAST_PROGRAMS = 4 }; /* that pay for telling another process */

/* What it was told: the joined programs, those of single codes of c->launch (-1: of none), and the kernels. */
typedef struct telling {
    clef__help *help;
    const compiling *c;
    int *program;
    const clef__launch **told;
    int n_told;
} telling;

/* In place of an argument's number: sizes, strides and counts of 1; and offsets behind which, and before, there is room for whatever a kernel
   touches all the same. */
enum { MIDDLE = 1 << 20 };
static int64_t stand_in(const clef__arg *arg) { return arg->kind == CLEF__ARG_TENSOR ? MIDDLE : 1; }

static void tell_arguments(clef__help *help, const clef__launch *launch, unsigned char *numbers) {
    for (int a = 0; a < launch->n_args; a++) {
        int64_t number = stand_in(&launch->arg[a]);
        if (launch->arg[a].at >= 0) memcpy(numbers + launch->arg[a].at, &number, clef__number_bytes(&launch->arg[a]));
    }
    clef__help_number(help, numbers, launch->numbers);
    for (int a = 0; a < launch->n_args; a++) {
        int64_t number = stand_in(&launch->arg[a]);
        if (launch->arg[a].kind == CLEF__ARG_TENSOR) clef__help_memory(help);
        if (launch->arg[a].at < 0) clef__help_number(help, &number, clef__number_bytes(&launch->arg[a]));
    }
}

/* Of the device that gets help? */
static bool is_told(const compiling *c, const clef__join *join) {
    return join->device == clef__device_at(c->ctx, c->launch[0]->device);
}

/* The program that its code is joined to: as which part, and the program's number among those that are told; NULL: none. */
static const clef__join *join_of(const compiling *c, const clef__launch *launch, int *part, int *number) {
    *number = 0;
    for (const clef__join *join = c->joined; join; *number += is_told(c, join), join = join->next)
        for (*part = 0; *part < join->n; ++*part)
            if (join->part[*part] == launch->code) return join;
    return NULL;
}

static void tell_kernel(telling *t, const clef__launch *launch, int program, const char *name) {
    unsigned char *numbers = clef__calloc(1, launch->numbers);
    if (!numbers) return;
    clef__help_kernel(t->help, program, name, launch->local);
    tell_arguments(t->help, launch, numbers);
    t->told[t->n_told++] = launch;
    clef__free(numbers);
}

/* A driver may compile a kernel for the size of its work-group. */
static bool is_kernel_told(const telling *t, const clef__launch *launch) {
    for (int i = 0; i < t->n_told; i++)
        if (t->told[i]->code == launch->code && strcmp(t->told[i]->name, launch->name) == 0 &&
            memcmp(t->told[i]->local, launch->local, sizeof launch->local) == 0)
            return true;
    return false;
}

/* Of Clef's own kernels, on the plan's first device?  Those of a program's own may not end by such numbers; of its expressions
   (clef_custom), which are generated with others, one element is computed. */
static bool is_told_of(const compiling *c, const clef__launch *launch) {
    return launch->device == c->launch[0]->device && is_own(launch);
}

static void tell_programs(const telling *t) {
    int part, number;
    for (const clef__join *join = t->c->joined; join; join = join->next)
        if (is_told(t->c, join)) clef__help_join(t->help, join);
    for (int i = 0; i < t->c->n; i++) {
        const clef__launch *launch = t->c->launch[i];
        bool alone = is_told_of(t->c, launch) && !join_of(t->c, launch, &part, &number);
        t->program[i] = alone ? clef__help_code(t->help, launch->code) : -1;
    }
}

static void tell_launch(telling *t, const clef__launch *launch) {
    char name[CLEF__JOINED_NAME];
    int part, number, i = 0;
    const clef__join *join = join_of(t->c, launch, &part, &number);
    while (!join && i < t->c->n && t->c->launch[i]->code != launch->code) i++;
    if (join) clef__part_kernel(join->number[part], launch->name, name);
    if (join) tell_kernel(t, launch, number, name);
    else if (i < t->c->n && t->program[i] >= 0) tell_kernel(t, launch, t->program[i], launch->name);
}

static void tell_launches(telling *t, const clef__plan *plan) {
    for (int l = 0; l < plan->n_launches; l++) {
        const clef__launch *launch = &plan->launch[l];
        if (launch->code && is_told_of(t->c, launch) && !is_kernel_told(t, launch)) tell_launch(t, launch);
    }
}

/* May another process compile some of them?  And are there enough for that? */
static bool can_get_help(const compiling *c) {
    return c->n > 0 && unless("CLEF_HELPER", "0") && clef__help_can(clef__device_at(c->ctx, c->launch[0]->device));
}
static bool are_enough(const compiling *c) {
    int n = 0;
    for (int i = 0; i < c->n; i++) n += is_told_of(c, c->launch[i]);
    return n > LEAST_PROGRAMS;
}

static void get_help(const compiling *c, const clef__plan *plan) {
    clef__device *device = clef__device_at(c->ctx, c->launch[0]->device);
    telling t = {.help = are_enough(c) && clef__help_pays(device) ? clef__help_new(device) : NULL, .c = c};
    if (!t.help) return;
    t.program = clef__alloc((size_t)c->n * sizeof *t.program);
    t.told = clef__alloc((size_t)plan->n_launches * sizeof *t.told);
    if (t.program && t.told) {
        tell_programs(&t);
        tell_launches(&t, plan);
    }
    clef__free(t.program);
    clef__free(t.told);
    clef__help_begin(t.help);
}

/* With two threads, and maybe another process.  That is started as soon as the first program takes long, for a later plan if this one is small. */
static void compile_together(compiling *c, const clef__plan *plan) {
    pthread_t second;
    bool can = can_get_help(c);
    if (can) get_help(c, plan);
    if (pthread_create(&second, NULL, compile_all, c) != 0) {
        compile_all(c);
        return;
    }
    if (can && !comes_soon(c)) {
        clef__help_start(clef__device_at(c->ctx, c->launch[0]->device));
        get_help(c, plan);
    }
    compile_others(c);
    pthread_join(second, NULL);
}

/* CLEF_JOIN=0 is for programs of many contexts and plans, which have single kernels in common rather than sets of them; CLEF_COMPILE_THREADS=1
   for drivers that do not stand several threads (Oclgrind). */
static clef_status compile_codes(clef_context *ctx, const clef__plan *plan) {
    compiling c = {.ctx = ctx, .lock = PTHREAD_MUTEX_INITIALIZER, .change = PTHREAD_COND_INITIALIZER};
    if (!list_codes(&c, plan)) return clef__fail(ctx, CLEF_MEMORY, "plan: no host memory");
    for (int d = 0; unless("CLEF_JOIN", "0") && d < clef__context_devices(ctx); d++) join_codes(&c, d);
    c.ready = !c.joined;
    if (c.n > 1 && unless("CLEF_COMPILE_THREADS", "1")) compile_together(&c, plan);
    else compile_all(&c);
    clef__joins_free(c.joined);
    clef__free(c.launch);
    return CLEF_OK;
}

static clef_status make_kernel(clef_context *ctx, clef__launch *launch) {
    clef__program *program = launch->code->program;
    if (program) launch->kernel = clef__kernel_of(clef__device_at(ctx, launch->device), program, launch->name);
    if (!launch->kernel) {
        clef_status status = clef_error_status(ctx);
        return status != CLEF_OK ? status : clef__fail(ctx, CLEF_BUILD, "plan: kernel %s could not be made", launch->name);
    }
    clef__fit_group(launch->local, clef__kernel_max_group(launch->kernel));
    if (!clef__kernel_reserve(launch->kernel, launch->n_kernel_args, launch->numbers))
        return clef__fail(ctx, CLEF_MEMORY, "plan: no host memory");
    return CLEF_OK;
}

static clef_status make_kernels(clef_context *ctx, clef__plan *plan) {
    clef_status status = compile_codes(ctx, plan);
    for (int i = 0; status == CLEF_OK && i < plan->n_launches; i++)
        if (plan->launch[i].kind == CLEF__LAUNCH_KERNEL) status = make_kernel(ctx, &plan->launch[i]);
    return status;
}

/* ---- arguments ---- */

static bool changes(const clef__plan *plan, const clef__arg *arg) {
    switch (arg->kind) {
    case CLEF__ARG_TENSOR: return plan->value[arg->value].home != CLEF__ARENA_VALUE;
    case CLEF__ARG_DYNAMIC: return true;
    case CLEF__ARG_CONSTANT: return arg->captured >= 0;
    default: return false;
    }
}

static bool in_arena(const clef__plan *plan, const clef__arg *arg) {
    return arg->kind == CLEF__ARG_TENSOR && plan->value[arg->value].home == CLEF__ARENA_VALUE && !plan->value[arg->value].own;
}

/* In debug mode no value lies in an arena. */
static clef_status get_exact_buffers(clef_context *ctx, clef__plan *plan) {
    for (int v = 0; clef__debug_memory(ctx) && v < plan->n_values; v++) {
        clef__value *value = &plan->value[v];
        if (value->home != CLEF__ARENA_VALUE || value->first < 0 || value->bytes == 0) continue;
        value->in_place_of = -1;
        value->own = clef__buffer_new(clef__device_at(ctx, value->device), value->bytes);
        if (!value->own) return clef_error_status(ctx);
    }
    return CLEF_OK;
}

/* Sets what never changes, and lists the rest. */
static clef_status set_arguments(clef_context *ctx, clef__plan *plan) {
    size_t n = 1;
    for (int i = 0; i < plan->n_launches; i++) n += (size_t)plan->launch[i].n_args;
    plan->bind = clef__alloc(n * sizeof *plan->bind);
    plan->arena_bind = clef__alloc(n * sizeof *plan->arena_bind);
    if (!plan->bind || !plan->arena_bind) return clef__fail(ctx, CLEF_MEMORY, "plan: no host memory");
    clef_status status = CLEF_OK;
    for (int i = 0; i < plan->n_launches; i++)
        for (int a = 0; status == CLEF_OK && a < plan->launch[i].n_args; a++) {
            const clef__arg *arg = &plan->launch[i].arg[a];
            if (plan->launch[i].kind != CLEF__LAUNCH_KERNEL) continue;
            if (changes(plan, arg)) plan->bind[plan->n_binds++] = (clef__bind){.launch = i, .arg = a};
            else if (in_arena(plan, arg)) plan->arena_bind[plan->n_arena_binds++] = (clef__bind){.launch = i, .arg = a};
            else status = clef__plan_set(plan, NULL, i, a);
        }
    return status;
}

/* ---- the whole ---- */

static clef_status keep_key(clef_context *ctx, clef__plan *plan, const clef__graph_view *g) {
    plan->key = clef__alloc(((size_t)g->key_words + 1) * sizeof *plan->key);
    if (!plan->key) return clef__fail(ctx, CLEF_MEMORY, "plan: no host memory");
    memcpy(plan->key, g->key, (size_t)g->key_words * sizeof *plan->key);
    plan->key_words = g->key_words;
    plan->hash = g->hash;
    return CLEF_OK;
}

static bool fusing(void) { return unless("CLEF_FUSE", "0"); }

static clef_status lower_graph(clef_context *ctx, clef__graph_view *g, clef__plan *plan) {
    clef__grouping gr = {0};
    clef__plans *plans = clef__plans_of(ctx);
    if (!plans) return clef__fail(ctx, CLEF_MEMORY, "plan: no host memory");
    clef__recorder rec = {.ctx = ctx, .g = g, .plan = plan, .selection = &plans->selection};
    clef_status status = clef__simplify(g);
    if (status == CLEF_OK) status = clef__fuse(g, fusing(), &gr);
    if (status != CLEF_OK) clef__fail(ctx, status, "plan: no host memory");
    if (status == CLEF_OK) {
        clef__lower_groups(&rec, &gr);
        if (!rec.failed && !clef__leave_out_copies(plan)) clef__record_fail(&rec);
        if (!rec.failed && fusing()) clef__derive(&rec);
        if (!rec.failed && fusing()) clef__bundle(&rec);
        if (!rec.failed && !clef__overlap(plan, ctx)) clef__record_fail(&rec);
        if (rec.failed)
            status = clef_error_status(ctx) != CLEF_OK ? clef_error_status(ctx)
                                                       : clef__fail(ctx, CLEF_INVALID, "plan: a view does not fit");
    }
    clef__record_end(&rec);
    clef__grouping_free(&gr);
    return status;
}

clef__plan *clef__plan_build(clef_context *ctx, clef__graph_view *g) {
    clef__plan *plan = clef__calloc(1, sizeof *plan);
    if (!plan) {
        clef__fail(ctx, CLEF_MEMORY, "plan: no host memory");
        return NULL;
    }
    clef_status status = keep_key(ctx, plan, g);
    if (status == CLEF_OK) status = lower_graph(ctx, g, plan);
    if (status == CLEF_OK) status = clef__plan_place(plan, ctx);
    if (status == CLEF_OK) return plan;
    clef__plan_free(plan);
    return NULL;
}

clef_status clef__plan_ready(clef_context *ctx, clef__plan *plan) {
    clef_status status = get_exact_buffers(ctx, plan);
    if (status == CLEF_OK && !clef__find_edges(plan, clef__context_devices(ctx)))
        status = clef__fail(ctx, CLEF_MEMORY, "plan: no host memory");
    if (status == CLEF_OK) status = make_kernels(ctx, plan);
    return status == CLEF_OK ? set_arguments(ctx, plan) : status;
}

/* The newest kernel first: pocl looks for one that is released among all that its program made after it. */
void clef__plan_free(clef__plan *plan) {
    for (int i = plan->n_launches - 1; i >= 0; i--) clef__launch_free(&plan->launch[i]);
    for (int v = 0; v < plan->n_values; v++) clef__buffer_release(plan->value[v].own);
    clef__free(plan->value);
    clef__free(plan->launch);
    clef__free(plan->edge);
    clef__free(plan->event);
    clef__free(plan->bind);
    clef__free(plan->arena_bind);
    clef__free(plan->result);
    clef__free(plan->prepacked);
    clef__free(plan->prepacked_bind);
    clef__plan_unchain(plan);
    clef__free(plan->key);
    clef__free(plan);
}
