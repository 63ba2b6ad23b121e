/* prepack.c — weights that are packed, transformed or converted stay so while they do not change.

   A product wants a matrix packed in panels, Winograd's convolution wants filters transformed, a half-precision product wants
   floats: launches that fill scratch memory from one leaf alone.  Nodes are immutable, so while the leaf is the same node they
   would write the same again.  The second time that it is, they write to memory of their own, and from then on they do not
   run; when it is another node, as after an update, that memory is given back.  Training pays nothing for it: nobody asks again
   for a parameter that is updated in the same plan.

   Each plan has copies of its own, so programs with many batch sizes would have many of every weight.  A context's copies together
   take at most WEIGHTS times the bytes of the weights behind those of one plan, the plan with the most; where they would take more,
   the plans that ran longest ago give theirs back, and make them again when they run twice more.  A plan alone may need more than
   that (half-precision filters, transformed), and has it. */
#include "plan/run/run.h"

enum {
    WEIGHTS = 4,
    PART_OF_DEVICE = 2
}; /* with copies, contexts take no more than this part of a device's memory: room for what must be there comes first */

/* ---- finding them ---- */

/* What is known of a value while they are looked for. */
typedef struct source {
    int writers, last; /* launches that write it, and the last of them */
    int leaf;          /* the leaf that alone fills it, itself if it is one; -1: none */
    int index;         /* of the one that fills it; -1: none does */
    bool counted;
} source;

static source *look_at_values(const clef__plan *plan) {
    source *of = clef__calloc((size_t)plan->n_values + 1, sizeof *of);
    for (int v = 0; of && v < plan->n_values; v++) {
        const clef__value *value = &plan->value[v];
        of[v].leaf = value->home == CLEF__LEAF_VALUE && !value->donatable ? v : -1; /* donatable: nobody will ask for it again */
        of[v].index = of[v].last = -1;
    }
    for (int i = 0; of && i < plan->n_launches; i++)
        for (int a = 0; a < plan->launch[i].n_args; a++) {
            const clef__arg *arg = &plan->launch[i].arg[a];
            if (arg->kind != CLEF__ARG_TENSOR || !arg->writes) continue;
            of[arg->value].writers += of[arg->value].last != i;
            of[arg->value].last = i;
        }
    return of;
}

/* What a launch writes and what it reads, if it only brings a value into another form and nothing else changes from run to run.  Of
   generated ones, those from one value into scratch memory are copies. */
static bool one_from_one(const clef__launch *launch, int *to, int *from) {
    *to = *from = -1;
    if (launch->kind != CLEF__LAUNCH_KERNEL || (launch->file && !launch->prepacks)) return false;
    for (int a = 0; a < launch->n_args; a++) {
        const clef__arg *arg = &launch->arg[a];
        if (arg->kind == CLEF__ARG_DYNAMIC || (arg->kind == CLEF__ARG_CONSTANT && arg->captured >= 0)) return false;
        if (arg->kind != CLEF__ARG_TENSOR) continue;
        int *side = arg->writes ? to : from;
        if (*side >= 0 && *side != arg->value) return false;
        *side = arg->value;
    }
    return *to >= 0 && *from >= 0 && *to != *from;
}

/* Is it scratch memory that this alone writes, and none continues? */
static bool stays(const clef__value *value, const source *of) {
    return value->home == CLEF__ARENA_VALUE && value->captured < 0 && value->in_place_of < 0 && !value->taken && of->writers == 1;
}

static void find_all(clef__plan *plan, source *of) {
    for (int i = 0; i < plan->n_launches; i++) {
        int to, from;
        if (!one_from_one(&plan->launch[i], &to, &from) || !stays(&plan->value[to], &of[to]) || of[from].leaf < 0) continue;
        int leaf = of[to].leaf = of[from].leaf;
        of[to].index = plan->n_prepacked;
        plan->prepacked[plan->n_prepacked++] = (clef__prepacked){.launch = i, .value = to, .leaf = leaf};
        if (!of[leaf].counted) plan->weight_bytes += plan->value[leaf].bytes;
        of[leaf].counted = true;
    }
}

/* Where each of them is an argument, side by side. */
static bool note_arguments(clef__plan *plan, const source *of) {
    int n = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < plan->n_launches; i++)
            for (int a = 0; a < plan->launch[i].n_args; a++) {
                const clef__arg *arg = &plan->launch[i].arg[a];
                if (arg->kind != CLEF__ARG_TENSOR || of[arg->value].index < 0 || plan->launch[i].kind != CLEF__LAUNCH_KERNEL)
                    continue;
                clef__prepacked *p = &plan->prepacked[of[arg->value].index];
                if (pass) plan->prepacked_bind[p->first_bind + p->n_binds] = (clef__bind){.launch = i, .arg = a};
                p->n_binds++;
            }
        for (int i = 0; pass == 0 && i < plan->n_prepacked; i++) {
            plan->prepacked[i].first_bind = n;
            n += plan->prepacked[i].n_binds;
            plan->prepacked[i].n_binds = 0;
        }
        if (pass == 0 && !(plan->prepacked_bind = clef__alloc(((size_t)n + 1) * sizeof *plan->prepacked_bind))) return false;
    }
    return true;
}

clef_status clef__prepack_find(clef_context *ctx, clef__plan *plan) {
    plan->prepacked = clef__calloc((size_t)plan->n_launches + 1, sizeof *plan->prepacked);
    source *of = plan->prepacked ? look_at_values(plan) : NULL;
    if (of) find_all(plan, of);
    bool ok = of && note_arguments(plan, of);
    clef__free(of);
    return ok ? CLEF_OK : clef__fail(ctx, CLEF_MEMORY, "plan: no host memory");
}

size_t clef__prepack_most(const clef__plan *plan) {
    size_t bytes = 0;
    for (int i = 0; i < plan->n_prepacked; i++) bytes += plan->value[plan->prepacked[i].value].bytes;
    return bytes;
}

/* ---- at each replay ---- */

/* All arguments that point to its value, anew. */
static clef_status rebind(clef__plan *plan, const clef__prepacked *p) {
    clef_status status = CLEF_OK;
    for (int i = 0; status == CLEF_OK && i < p->n_binds; i++) {
        const clef__bind *bind = &plan->prepacked_bind[p->first_bind + i];
        status = clef__plan_set(plan, NULL, bind->launch, bind->arg);
    }
    return status;
}

static void count(clef__plans *plans, clef__plan *plan, size_t more, size_t less) {
    plan->prepacked_bytes += more - less;
    plans->prepacked_bytes += more - less;
}

/* The arguments of a plan that does not run now are set anew before it does. */
static void give_up(clef__plans *plans, clef__plan *plan) {
    for (int i = 0; i < plan->n_prepacked; i++) {
        clef__prepacked *p = &plan->prepacked[i];
        if (!p->moved) continue;
        clef__buffer_release(plan->value[p->value].own);
        plan->value[p->value].own = NULL;
        p->seen = p->filled = false;
    }
    count(plans, plan, 0, plan->prepacked_bytes);
}

/* Others than `plan`, those first that ran longest ago. */
static void make_room(clef__plans *plans, const clef__plan *plan, size_t bytes) {
    size_t limit = WEIGHTS * plans->weight_bytes;
    while (plans->prepacked_bytes + bytes > limit) {
        clef__plan *oldest = NULL;
        for (clef__plan *p = plans->first; p; p = p->next)
            if (p != plan && p->prepacked_bytes) oldest = p;
        if (!oldest) return;
        give_up(plans, oldest);
    }
}

static bool affordable(clef_context *ctx, clef__device *device, size_t bytes) {
    clef_memory_info memory = clef_memory(ctx);
    return memory.used + memory.cached + bytes <= clef__device_info(device)->global_bytes / PART_OF_DEVICE;
}

static clef_status move_back(clef__plans *plans, clef__plan *plan, clef__prepacked *p) {
    clef__value *value = &plan->value[p->value];
    if (!p->moved) return CLEF_OK;
    if (value->own) count(plans, plan, 0, value->bytes);
    clef__buffer_release(value->own);
    value->own = NULL;
    clef_status status = rebind(plan, p);
    p->moved = status != CLEF_OK; /* then once more next time */
    return status;
}

static clef_status move_out(clef_context *ctx, clef__plans *plans, clef__plan *plan, clef__prepacked *p) {
    clef__value *value = &plan->value[p->value];
    clef__device *device = clef__device_at(ctx, value->device);
    if (value->own) return CLEF_OK;
    make_room(plans, plan, value->bytes);
    if (!affordable(ctx, device, value->bytes)) return move_back(plans, plan, p);
    value->own = clef__buffer_new(device, value->bytes);
    if (!value->own) return clef_error_status(ctx);
    count(plans, plan, value->bytes, 0);
    p->moved = true;
    return rebind(plan, p);
}

clef_status clef__prepack_begin(clef_context *ctx, clef__plan *plan, const clef__graph_view *g) {
    clef__plans *plans = clef__plans_of(ctx);
    clef_status status = CLEF_OK;
    for (int i = 0; status == CLEF_OK && i < plan->n_prepacked; i++) {
        clef__prepacked *p = &plan->prepacked[i];
        const clef__output *leaf = g->captured[plan->value[p->leaf].captured].out;
        bool same = p->seen && p->number == clef__output_number(leaf) && !clef__buffer_pinned(leaf->buffer);
        plan->launch[p->launch].idle = same && p->filled;
        if (same && p->filled) continue;
        p->seen = p->filled = false; /* if anything fails now */
        status = same ? move_out(ctx, plans, plan, p) : move_back(plans, plan, p);
    }
    return status;
}

void clef__prepack_end(clef__plan *plan, const clef__graph_view *g, int launched) {
    for (int i = 0; i < plan->n_prepacked && plan->prepacked[i].launch < launched; i++) {
        clef__prepacked *p = &plan->prepacked[i];
        p->number = clef__output_number(g->captured[plan->value[p->leaf].captured].out);
        p->seen = true;
        p->filled = plan->value[p->value].own != NULL;
    }
}
