/* bundle.c — small pointwise launches of equal text become one launch over several tensors: above all an optimizer's updates.

   In the order of the plan, a launch waits for later ones of its kind (equal text and device) as long as no launch in between
   touches what it writes or writes what it reads.  The bundle runs where the last of them stood and everything else stays
   where it was, so whatever depends on a member still runs after it.  In-place results keep their rule, too: memory that one
   member may take over is read by no other, as the tensors of a launch are worked on in no order.

   Waiting saves the few microseconds that a launch costs but keeps what a member reads, a gradient say, in memory for longer.
   So a bundle ends at a size where its work begins to outweigh its start.

   Programs cost far more than launches, so a text of which a plan has bundles is compiled once, with room for the largest of
   them, and its other launches become bundles of one.  That room is two, four, … or all there is: plans differ in how many they
   find, as a model's first step does from the others. */
#include "plan/lower/pointwise.h"
#include "plan/schedule/schedule.h"
#include "runtime/arithmetic.h"

#include <string.h>

enum { SLOTS = 32 /* bits of a mark */ };

typedef struct kind {
    int launch; /* the first of this kind */
    int slot;   /* -1, or where the bundle is that still takes members */
    int most;   /* members of its largest bundle */
} kind;

/* A bundle that still takes members. */
typedef struct slot {
    int kind; /* -1: free */
    int first, last, n;
    size_t bytes;
} slot;

/* Which slots' bundles read a value, write it, or may take over its memory. */
typedef struct mark {
    uint32_t reads, writes, takes;
} mark;

typedef struct chain {
    int kind, first, next;
} chain; /* of a launch: kind (-1: none), first and next member of its bundle */

typedef struct bundles {
    const clef__plan *plan;
    clef_context *ctx;
    chain *of;  /* launches */
    mark *mark; /* values */
    kind *kind;
    int n_kinds, kind_capacity;
    slot slot[SLOTS];
    int oldest;
} bundles;

/* ---- kinds ---- */

/* The kind of a launch; -1 when out of memory. */
static int kind_of(bundles *b, int i) {
    const clef__launch *launch = b->plan->launch;
    for (int k = 0; k < b->n_kinds; k++)
        if (launch[b->kind[k].launch].code == launch[i].code) return k;
    if (!clef__grow(&b->kind, b->n_kinds, &b->kind_capacity, sizeof *b->kind)) return -1;
    b->kind[b->n_kinds] = (kind){.launch = i, .slot = -1};
    return b->n_kinds++;
}

/* How many segments of this kind a kernel's arguments have room for: each has two numbers of its own, then constants, then a
   pointer and an offset for every tensor. */
static int room_of(const clef__launch *launch) {
    int constants = 0, size = 4, tensors = 0;
    for (int a = CLEF__PW_COLUMNS + 1; a < launch->n_args; a++) {
        const clef__arg *arg = &launch->arg[a];
        tensors += arg->kind == CLEF__ARG_TENSOR;
        constants += arg->kind == CLEF__ARG_CONSTANT;
        if (arg->kind == CLEF__ARG_CONSTANT && (arg->dtype == CLEF_F64 || arg->dtype == CLEF_I64)) size = 8;
    }
    int room = (CLEF__PW_BYTES - 8 * CLEF__PW_FIRST) / (16 + (constants * size + 7) / 8 * 8 + 16 * tensors);
    return room < CLEF__PW_SEGMENTS ? room : CLEF__PW_SEGMENTS;
}

/* The most of a bundle, the sum of every member's largest value: what memory moves while a launch begins. */
static size_t most_bytes(const bundles *b, int device) {
    const clef__profile *profile = clef__device_profile(clef__device_at(b->ctx, device));
    return (size_t)(profile->launch_us * profile->gb_per_second * 1e3);
}

static size_t bytes_of(const clef__plan *plan, const clef__launch *launch) {
    size_t most = 0;
    for (int a = CLEF__PW_FIRST; a < launch->n_args; a++)
        if (launch->arg[a].kind == CLEF__ARG_TENSOR && plan->value[launch->arg[a].value].bytes > most)
            most = plan->value[launch->arg[a].value].bytes;
    return most;
}

/* ---- what bundles and launches do to values ---- */

/* Sets or clears the bits of a launch's slot. */
static void mark_launch(bundles *b, const clef__launch *launch, uint32_t set, uint32_t clear) {
    for (int a = 0; a < launch->n_args; a++) {
        if (launch->arg[a].kind != CLEF__ARG_TENSOR) continue;
        const clef__value *value = &b->plan->value[launch->arg[a].value];
        mark *m = &b->mark[launch->arg[a].value];
        uint32_t *bits = launch->arg[a].writes ? &m->writes : &m->reads;
        *bits = (*bits & ~clear) | set;
        for (int c = 0; launch->arg[a].writes && c < value->n_candidates; c++) {
            uint32_t *takes = &b->mark[value->candidate[c]].takes;
            if (clef__may_continue(value, &b->plan->value[value->candidate[c]])) *takes = (*takes & ~clear) | set;
        }
    }
}

/* The slots whose bundles must run before this launch.  Those that read what it may take over are among them, as it can only do
   that if they did. */
static uint32_t before(const bundles *b, const clef__launch *launch) {
    uint32_t slots = 0;
    for (int a = 0; a < launch->n_args; a++) {
        if (launch->arg[a].kind != CLEF__ARG_TENSOR) continue;
        const clef__value *value = &b->plan->value[launch->arg[a].value];
        const mark *m = &b->mark[launch->arg[a].value];
        slots |= launch->arg[a].writes ? m->reads | m->writes : m->writes;
        for (int c = 0; launch->arg[a].writes && c < value->n_candidates; c++)
            if (clef__may_continue(value, &b->plan->value[value->candidate[c]])) slots |= b->mark[value->candidate[c]].reads;
    }
    return slots;
}

/* Does it read what a member of this slot may take over? */
static bool reads_taken(const bundles *b, const clef__launch *launch, int s) {
    for (int a = 0; a < launch->n_args; a++)
        if (launch->arg[a].kind == CLEF__ARG_TENSOR && !launch->arg[a].writes && b->mark[launch->arg[a].value].takes >> s & 1)
            return true;
    return false;
}

/* ---- which launches go together ---- */

static void close_slot(bundles *b, int s) {
    for (int i = b->slot[s].first; i >= 0; i = b->of[i].next) mark_launch(b, &b->plan->launch[i], 0, 1u << s);
    b->kind[b->slot[s].kind].slot = -1;
    b->slot[s].kind = -1;
}

static int free_slot(bundles *b) {
    for (int s = 0; s < SLOTS; s++)
        if (b->slot[s].kind < 0) return s;
    int s = b->oldest++ % SLOTS;
    close_slot(b, s);
    return s;
}

static void join(bundles *b, int s, int i, size_t bytes) {
    slot *to = &b->slot[s];
    int *most = &b->kind[to->kind].most;
    if (to->n++) {
        b->of[to->last].next = i;
        b->of[i].first = to->first;
    } else {
        to->first = i;
    }
    if (to->n > *most) *most = to->n;
    to->last = i;
    to->bytes += bytes;
    mark_launch(b, &b->plan->launch[i], 1u << s, 0);
}

/* False when out of memory. */
static bool sort_in(bundles *b, int i) {
    const clef__launch *launch = &b->plan->launch[i];
    b->of[i] = (chain){.kind = -1, .first = i, .next = -1};
    uint32_t must_close = before(b, launch);
    for (int s = 0; s < SLOTS; s++)
        if (must_close >> s & 1) close_slot(b, s);
    if (!launch->covers || room_of(launch) < 2) return true;
    int k = b->of[i].kind = kind_of(b, i);
    size_t bytes = bytes_of(b->plan, launch), most = most_bytes(b, launch->device);
    if (k < 0 || bytes > most) return k >= 0;
    int s = b->kind[k].slot;
    if (s >= 0 && (b->slot[s].n == room_of(launch) || b->slot[s].bytes + bytes > most || reads_taken(b, launch, s))) {
        close_slot(b, s);
        s = -1;
    }
    if (s < 0) {
        s = b->kind[k].slot = free_slot(b);
        b->slot[s] = (slot){.kind = k};
    }
    join(b, s, i, bytes);
    return true;
}

static bool sort_all(bundles *b) {
    for (int s = 0; s < SLOTS; s++) b->slot[s].kind = -1;
    bool ok = true;
    for (int i = 0; ok && i < b->plan->n_launches; i++) ok = sort_in(b, i);
    return ok;
}

/* ---- the plan without what went into bundles ---- */

/* Room for bundles of this size: it is all there is where the next step would go beyond that. */
static int room_for(const clef__launch *launch, int most) {
    int room = room_of(launch), some = 2;
    while (some < most) some *= 2;
    return 2 * some > room ? room : some;
}

/* The number of the launch that stands in place i: i itself, a bundle, or -1 for none. */
static int standing(clef__recorder *rec, const bundles *b, int i) {
    int k = b->of[i].kind, most = k < 0 ? 0 : b->kind[k].most, member[CLEF__PW_SEGMENTS], n = 0;
    if (most < 2) return i;
    if (b->of[i].next >= 0) return -1;
    for (int m = b->of[i].first; m >= 0; m = b->of[m].next) member[n++] = m;
    clef__lower_bundle(rec, member, n, room_for(&rec->plan->launch[i], most));
    return rec->plan->n_launches - 1;
}

static void rebuild(clef__recorder *rec, const bundles *b, int *place) {
    clef__plan *plan = rec->plan;
    int n = plan->n_launches;
    for (int i = 0; i < n && !rec->failed; i++) place[i] = standing(rec, b, i);
    clef__launch *old = plan->launch, *ordered = rec->failed ? NULL : clef__alloc(((size_t)n + 1) * sizeof *ordered);
    if (!ordered) {
        clef__record_fail(rec);
        return;
    }
    int kept = 0;
    for (int i = 0; i < n; i++) {
        if (place[i] != i) clef__launch_free(&old[i]);
        if (place[i] >= 0) ordered[kept++] = old[place[i]];
    }
    clef__free(old);
    plan->launch = ordered;
    plan->n_launches = kept;
    plan->launch_capacity = n + 1;
}

void clef__bundle(clef__recorder *rec) {
    clef__plan *plan = rec->plan;
    bundles b = {.plan = plan, .ctx = rec->ctx};
    b.of = clef__alloc(((size_t)plan->n_launches + 1) * sizeof *b.of);
    b.mark = clef__calloc((size_t)plan->n_values + 1, sizeof *b.mark);
    int *place = clef__alloc(((size_t)plan->n_launches + 1) * sizeof *place);
    if (b.of && b.mark && place && sort_all(&b)) rebuild(rec, &b, place);
    else clef__record_fail(rec);
    clef__free(b.of);
    clef__free(b.mark);
    clef__free(b.kind);
    clef__free(place);
}
