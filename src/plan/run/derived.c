/* derived.c — weights that are packed, transformed or converted stay so while they do not change.

   A product wants a matrix packed in panels, Winograd's convolution wants filters transformed, a half-precision product wants
   floats: launches that fill scratch memory from one leaf alone.  What such a launch does to the leaf is its recipe: kernel,
   sizes and numbers, and the recipe of what it reads if that is no leaf itself.  Of equal values equal recipes make equal bits, so
   a context keeps them by value and recipe, whichever plan made them: a program with many batch sizes has one of every weight.

   A value is worth it when it is asked for the second time; the copies are then made in memory of their own, and those launches do
   not run any more.  Training pays nothing: nobody asks again for a parameter that is updated in the same plan.

   A copy goes with its value, when a device has no room, and when all of them take more than the weights behind the plan with the
   most: those first that were used longest ago.  A plan alone may need more than that (half-precision filters, transformed), and
   has it.  Memory that the program may write to (pinned) is read each time. */
#include "plan/run/run.h"
#include "runtime/sha256.h"

#include <string.h>

enum {
    PART_OF_DEVICE = 2
}; /* with copies, contexts take no more than this part of a device's memory: room for what must be
                                there comes first */

/* ---- finding them in a plan ---- */

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
        bool lasts = value->home == CLEF__LEAF_VALUE && !value->donatable && !value->updated; /* somebody may ask for it again */
        of[v].leaf = lasts ? v : -1;
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

/* Is it scratch memory that this alone writes, and none continues? */
static bool stays(const clef__value *value, const source *of) {
    return value->home == CLEF__ARENA_VALUE && value->captured < 0 && value->in_place_of < 0 && !value->taken && of->writers == 1;
}

/* All that the launch does to what it reads, and what was done to that before. */
static void digest(const clef__plan *plan, const source *of, const clef__launch *launch, int from, uint8_t recipe[32]) {
    clef__sha256 s;
    clef__sha256_begin(&s);
    if (of[from].index >= 0) clef__sha256_add(&s, plan->prepacked[of[from].index].recipe, 32);
    uint64_t code = launch->code ? launch->code->number : 0; /* told apart once: equal programs are one code, while that is known */
    clef__sha256_add(&s, &code, sizeof code);
    clef__sha256_add_text(&s, launch->name);
    clef__sha256_add(&s, &launch->device, sizeof launch->device);
    clef__sha256_add(&s, launch->global, sizeof launch->global);
    for (int a = 0; a < launch->n_args; a++) {
        const clef__arg *arg = &launch->arg[a];
        const int kind[] = {arg->kind, arg->writes, (int)arg->dtype};
        clef__sha256_add(&s, kind, sizeof kind);
        clef__sha256_add(&s, &arg->number, sizeof arg->number);
        clef__sha256_add(&s, &arg->real, sizeof arg->real);
        clef__sha256_add(&s, &arg->constant, sizeof arg->constant);
    }
    clef__sha256_end(&s, recipe);
}

static void find_all(clef__plan *plan, source *of) {
    for (int i = 0; i < plan->n_launches; i++) {
        int to, from;
        const clef__launch *launch = &plan->launch[i];
        if ((launch->file && !launch->prepacks) || !clef__derives(launch, &to, &from)) continue;
        if (!stays(&plan->value[to], &of[to]) || of[from].leaf < 0) continue;
        int leaf = of[to].leaf = of[from].leaf;
        clef__prepacked *p = &plan->prepacked[plan->n_prepacked];
        *p = (clef__prepacked){.launch = i, .value = to, .leaf = leaf, .exact = plan->value[to].own, .inner = true};
        digest(plan, of, launch, from, p->recipe);
        if (p->exact) p->bound = clef__buffer_id(p->exact);
        of[to].index = plan->n_prepacked++;
        if (!of[leaf].counted) plan->weight_bytes += plan->value[leaf].bytes;
        of[leaf].counted = true;
    }
}

/* Those that anything else reads are kept; of the others only what is made from them. */
static void find_kept(clef__plan *plan, const source *of) {
    for (int i = 0; i < plan->n_launches; i++)
        for (int a = 0; a < plan->launch[i].n_args; a++) {
            const clef__arg *arg = &plan->launch[i].arg[a];
            if (arg->kind != CLEF__ARG_TENSOR || of[arg->value].index < 0 || arg->writes) continue;
            int to, from;
            bool derives = clef__derives(&plan->launch[i], &to, &from) && of[to].index >= 0; /* as that has one writer, this one */
            plan->prepacked[of[arg->value].index].inner &= derives;
        }
    for (int i = 0; i < plan->n_prepacked; i++)
        if (!plan->prepacked[i].inner) plan->prepacked_bytes += plan->value[plan->prepacked[i].value].bytes;
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

clef_status clef__derived_find(clef_context *ctx, clef__plan *plan) {
    plan->prepacked = clef__calloc((size_t)plan->n_launches + 1, sizeof *plan->prepacked);
    source *of = plan->prepacked ? look_at_values(plan) : NULL;
    if (of) {
        find_all(plan, of);
        find_kept(plan, of);
    }
    bool ok = of && note_arguments(plan, of);
    clef__free(of);
    return ok ? CLEF_OK : clef__fail(ctx, CLEF_MEMORY, "plan: no host memory");
}

/* ---- what a context keeps ---- */

static clef__derived **bucket_of(clef__derived_values *d, uint64_t value) { return &d->bucket[value % CLEF__DERIVED_BUCKETS]; }

static clef__derived *find(clef__derived_values *d, uint64_t value, int64_t offset, const uint8_t recipe[32]) {
    for (clef__derived *kept = *bucket_of(d, value); kept; kept = kept->next)
        if (kept->value == value && kept->offset == offset && memcmp(kept->recipe, recipe, 32) == 0) return kept;
    return NULL;
}

static void drop(clef__derived_values *d, clef__derived **at) {
    clef__derived *kept = *at;
    *at = kept->next;
    d->bytes -= clef__buffer_size(kept->buffer);
    clef__buffer_release(kept->buffer);
    clef__free(kept);
}

static bool in_use(const clef__derived_values *d, const clef__derived *kept) { return d->running && kept->used == d->run; }

/* A value is no more: nor is what was made from it. */
static void value_gone(clef_context *ctx, uint64_t value) {
    clef__derived_values *d = &clef__plans_of(ctx)->derived;
    for (clef__derived **at = bucket_of(d, value); *at;)
        if ((*at)->value == value) drop(d, at);
        else at = &(*at)->next;
}

/* All that the running plan does not need goes. */
static void memory_short(clef_context *ctx) {
    clef__derived_values *d = &clef__plans_of(ctx)->derived;
    for (int b = 0; b < CLEF__DERIVED_BUCKETS; b++)
        for (clef__derived **at = &d->bucket[b]; *at;)
            if (in_use(d, *at)) at = &(*at)->next;
            else drop(d, at);
}

void clef__derived_forget(clef_context *ctx, clef__plans *plans) {
    clef__on_memory(ctx, NULL, NULL);
    for (int b = 0; b < CLEF__DERIVED_BUCKETS; b++)
        while (plans->derived.bucket[b]) drop(&plans->derived, &plans->derived.bucket[b]);
}

static void make_room(clef__derived_values *d, size_t bytes, size_t limit) {
    while (d->bytes + bytes > limit) {
        clef__derived **oldest = NULL;
        for (int b = 0; b < CLEF__DERIVED_BUCKETS; b++)
            for (clef__derived **at = &d->bucket[b]; *at; at = &(*at)->next)
                if (!in_use(d, *at) && (!oldest || (*at)->used < (*oldest)->used)) oldest = at;
        if (!oldest) return;
        drop(d, oldest);
    }
}

/* CPUs, and parts of one, have their memory in common. */
static bool affordable(clef_context *ctx, int device, size_t bytes) {
    const clef_device_info *info = clef__device_info(clef__device_at(ctx, device));
    clef_memory_info memory = strcmp(info->type, "cpu") == 0 ? clef_memory(ctx) : clef_memory_of(ctx, device);
    return memory.used + memory.cached + bytes <= info->global_bytes / PART_OF_DEVICE;
}

/* Memory for a copy that the plan fills in this run.  NULL where there is none, or where contexts would have too much of the device:
   the plan has its arena. */
static clef__derived *keep(clef_context *ctx, const clef__plan *plan, const clef__prepacked *p, clef__buffer *leaf,
                           int64_t offset) {
    clef__plans *plans = clef__plans_of(ctx);
    clef__derived_values *d = &plans->derived;
    const clef__value *value = &plan->value[p->value];
    clef__device *device = clef__device_at(ctx, value->device);
    make_room(d, value->bytes, plan->prepacked_bytes > plans->weight_bytes ? plan->prepacked_bytes : plans->weight_bytes);
    clef__buffer *buffer = affordable(ctx, value->device, value->bytes) ? clef__buffer_try(device, value->bytes) : NULL;
    clef__derived *new = buffer ? clef__calloc(1, sizeof *new) : NULL;
    if (!new) {
        clef__buffer_release(buffer);
        return NULL;
    }
    *new = (clef__derived){.value = clef__buffer_value(leaf), .offset = offset, .buffer = buffer};
    memcpy(new->recipe, p->recipe, sizeof new->recipe);
    clef__on_memory(ctx, value_gone, memory_short);
    d->bytes += clef__buffer_size(new->buffer);
    new->next = *bucket_of(d, new->value);
    return *bucket_of(d, new->value) = new;
}

/* ---- at each replay ---- */

/* Do none of the launches run that read it?  Those of later ones are known already. */
static bool unread(const clef__plan *plan, const clef__prepacked *p) {
    for (int i = 0; i < p->n_binds; i++) {
        int launch = plan->prepacked_bind[p->first_bind + i].launch;
        if (launch != p->launch && !plan->launch[launch].idle) return false;
    }
    return true;
}

static const clef__output *leaf_of(const clef__plan *plan, const clef__graph_view *g, const clef__prepacked *p) {
    return g->captured[plan->value[p->leaf].captured].out;
}

static void look_up(clef_context *ctx, clef__plan *plan, const clef__graph_view *g, clef__prepacked *p) {
    clef__derived_values *d = &clef__plans_of(ctx)->derived;
    const clef__output *leaf = leaf_of(plan, g, p);
    if (!leaf->buffer || clef__buffer_pinned(leaf->buffer)) return;
    p->kept = find(d, clef__buffer_value(leaf->buffer), leaf->layout.offset, p->recipe);
    if (!p->kept && clef__buffer_derived(leaf->buffer)) p->kept = keep(ctx, plan, p, leaf->buffer, leaf->layout.offset);
    if (!p->kept) return;
    p->kept->used = d->run;
    plan->value[p->value].own = p->kept->buffer;
}

void clef__derived_begin(clef_context *ctx, clef__plan *plan, const clef__graph_view *g) {
    clef__derived_values *d = &clef__plans_of(ctx)->derived;
    d->run++;
    d->running = true;
    for (int i = plan->n_prepacked - 1; i >= 0; i--) {
        clef__prepacked *p = &plan->prepacked[i];
        if (!p->inner) look_up(ctx, plan, g, p);
        plan->launch[p->launch].idle = p->inner ? unread(plan, p) : p->kept && p->kept->filled;
    }
}

clef_status clef__derived_bind(clef__plan *plan) {
    clef_status status = CLEF_OK;
    for (int i = 0; i < plan->n_prepacked; i++) {
        clef__prepacked *p = &plan->prepacked[i];
        const clef__buffer *own = plan->value[p->value].own;
        uint64_t id = own ? clef__buffer_id(own) : 0;
        if (id == p->bound) continue;
        p->bound = UINT64_MAX; /* nothing, until all arguments are */
        for (int b = 0; status == CLEF_OK && b < p->n_binds; b++) {
            const clef__bind *bind = &plan->prepacked_bind[p->first_bind + b];
            status = clef__plan_set(plan, NULL, bind->launch, bind->arg);
        }
        if (status != CLEF_OK) return status;
        p->bound = id;
    }
    return CLEF_OK;
}

void clef__derived_note(clef__plan *plan, const clef__graph_view *g, int launched) {
    for (int i = 0; i < plan->n_prepacked; i++) {
        clef__prepacked *p = &plan->prepacked[i];
        clef__buffer *leaf = leaf_of(plan, g, p)->buffer;
        if (p->launch < launched && p->kept) p->kept->filled = true;
        else if (p->launch < launched && leaf) clef__buffer_derive(leaf);
    }
}

void clef__derived_end(clef_context *ctx, clef__plan *plan) {
    clef__plans_of(ctx)->derived.running = false;
    for (int i = 0; i < plan->n_prepacked; i++) {
        clef__prepacked *p = &plan->prepacked[i];
        plan->value[p->value].own = p->exact;
        p->kept = NULL;
    }
}
