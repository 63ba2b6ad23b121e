/* derive.c — a value is brought into another form once, however many launches read that form.

   Strategies pack, pad, transform and convert what they read, each for its own node.  So a weight that is used in every step of an
   unrolled net would be packed in each of them, and an image padded for every convolution that reads it.  Launches that do nothing
   else, equal but for where they write, are made one: what the others would have written is read from the first.

   The form must then stay in memory in between.  It does where that makes the most bytes alive at once no more.  Forms of leaves,
   above all weights, that are wanted more than twice stay always: an unrolled net would make them in every step. */
#include "plan/schedule/schedule.h"
#include "runtime/arithmetic.h"

#include <string.h>

enum { LOOKS = 64 /* at moments, per launch of the plan, to see what is alive */ };

bool clef__derives(const clef__launch *launch, int *to, int *from) {
    *to = *from = -1;
    if (launch->kind != CLEF__LAUNCH_KERNEL || (launch->file && !launch->derives)) return false;
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

/* What is known of a value. */
typedef struct use {
    int first, last;               /* launches that it is an argument of */
    int first_writer, last_writer; /* -1: none */
    bool often;                    /* a form of a leaf that is wanted more than twice, or made from such a one */
    bool shared;                   /* read in place of another, or the other way round */
    int same;                      /* the value that is read in its place: itself, or an earlier one */
} use;

typedef struct forms {
    clef__plan *plan;
    use *use;      /* of values */
    size_t *alive; /* bytes, while each launch runs */
    size_t peak;
    int64_t looks;
    int *slot, n_slots; /* launches by what they do, hashed; -1: free */
    int *first, *times; /* of a launch that makes a form of a leaf: the first that does the same; of that one, how many do */
} forms;

static void note_uses(forms *f) {
    const clef__plan *plan = f->plan;
    for (int v = 0; v < plan->n_values; v++)
        f->use[v] = (use){.first = -1, .last = -1, .first_writer = -1, .last_writer = -1, .same = v};
    for (int i = 0; i < plan->n_launches; i++)
        for (int a = 0; a < plan->launch[i].n_args; a++) {
            const clef__arg *arg = &plan->launch[i].arg[a];
            if (arg->kind != CLEF__ARG_TENSOR) continue;
            use *u = &f->use[arg->value];
            if (u->first < 0) u->first = i;
            u->last = i;
            if (!arg->writes) continue;
            if (u->first_writer < 0) u->first_writer = i;
            u->last_writer = i;
        }
}

static void note_alive(forms *f) {
    for (int v = 0; v < f->plan->n_values; v++) {
        const clef__value *value = &f->plan->value[v];
        if (value->home != CLEF__ARENA_VALUE || f->use[v].first < 0) continue;
        f->alive[f->use[v].first] += value->bytes;
        f->alive[f->use[v].last + 1] -= value->bytes; /* numbers wrap, their sums do not */
    }
    for (int i = 0; i < f->plan->n_launches; i++) {
        if (i > 0) f->alive[i] += f->alive[i - 1];
        if (f->alive[i] > f->peak) f->peak = f->alive[i];
    }
}

/* ---- which are equal ---- */

static bool is_scratch(const clef__value *value, const use *u) {
    return value->home == CLEF__ARENA_VALUE && value->captured < 0 && u->first_writer == u->last_writer;
}

static uint64_t hash_of(const clef__launch *launch, int from) {
    uint64_t hash = clef__hash(CLEF__HASH_START, &launch->code, sizeof launch->code);
    hash = clef__hash(hash, &from, sizeof from);
    for (int a = 0; a < launch->n_args; a++) hash = clef__hash(hash, &launch->arg[a].number, sizeof launch->arg[a].number);
    return hash;
}

static bool same_work(const clef__launch *a, const clef__launch *b) {
    bool same = a->code == b->code && a->device == b->device && a->n_args == b->n_args && strcmp(a->name, b->name) == 0 &&
                memcmp(a->global, b->global, sizeof a->global) == 0;
    for (int i = 0; same && i < a->n_args; i++) {
        const clef__arg *x = &a->arg[i], *y = &b->arg[i];
        same = x->kind == y->kind && x->writes == y->writes && x->number == y->number && x->dtype == y->dtype &&
               memcmp(&x->real, &y->real, sizeof x->real) == 0 && memcmp(&x->constant, &y->constant, sizeof x->constant) == 0;
        if (same && x->kind == CLEF__ARG_TENSOR && !x->writes) same = x->value == y->value;
    }
    return same;
}

/* The place in the table of an earlier launch that does the same, or of the first free one. */
static int *slot_of(const forms *f, const clef__launch *launch, int from) {
    uint64_t at = hash_of(launch, from);
    for (;; at++) {
        int *slot = &f->slot[at & (uint64_t)(f->n_slots - 1)];
        if (*slot < 0 || same_work(&f->plan->launch[*slot], launch)) return slot;
    }
}

static void clear_slots(forms *f) { memset(f->slot, -1, (size_t)f->n_slots * sizeof *f->slot); }

static void count_forms_of_leaves(forms *f) {
    const clef__plan *plan = f->plan;
    clear_slots(f);
    for (int i = 0; i < plan->n_launches; i++) {
        int to, from;
        f->first[i] = -1;
        if (!clef__derives(&plan->launch[i], &to, &from) || plan->value[from].home != CLEF__LEAF_VALUE) continue;
        int *slot = slot_of(f, &plan->launch[i], from);
        if (*slot < 0) *slot = i;
        f->first[i] = *slot;
        f->times[*slot]++;
    }
    clear_slots(f);
}

/* ---- making them one ---- */

/* Would `bytes` more from launch `begin` to `end` leave the peak as it is?  It counts them then. */
static bool has_room(forms *f, int begin, int end, size_t bytes) {
    f->looks -= end > begin ? end - begin : 0;
    if (f->looks < 0) return false;
    for (int i = begin; i < end; i++)
        if (f->alive[i] + bytes > f->peak) return false;
    for (int i = begin; i < end; i++) f->alive[i] += bytes;
    return true;
}

static void read_instead(forms *f, clef__launch *launch) {
    for (int a = 0; a < launch->n_args; a++)
        if (launch->arg[a].kind == CLEF__ARG_TENSOR) launch->arg[a].value = f->use[launch->arg[a].value].same;
}

/* Is launch i done by an earlier one?  What reads its result then reads that of the other. */
static bool is_done(forms *f, int i) {
    const clef__plan *plan = f->plan;
    int to, from, earlier_to, earlier_from;
    if (!clef__derives(&plan->launch[i], &to, &from) || !is_scratch(&plan->value[to], &f->use[to])) return false;
    bool often = f->use[to].often = f->use[from].often || (f->first[i] >= 0 && f->times[f->first[i]] > 2);
    int *slot = slot_of(f, &plan->launch[i], from), earlier = *slot;
    *slot = i; /* the nearest to those that come */
    if (earlier < 0 || f->use[from].last_writer >= earlier) return false;
    clef__derives(&plan->launch[earlier], &earlier_to, &earlier_from);
    use *u = &f->use[earlier_to];
    if (plan->value[earlier_to].bytes != plan->value[to].bytes) return false;
    if (!often && !has_room(f, u->last + 1, i, plan->value[to].bytes)) return false;
    f->use[to].same = earlier_to;
    f->use[to].shared = u->shared = true;
    if (u->last < f->use[to].last) u->last = f->use[to].last;
    *slot = earlier;
    return true;
}

/* A launch may write over what it reads where it reads that in the same order only.  One that read two values, which are now one, in
   two orders was asked for each of them apart: so none of them is written over. */
static void drop_shared_candidates(forms *f) {
    for (int v = 0; v < f->plan->n_values; v++) {
        clef__value *value = &f->plan->value[v];
        int n = 0;
        for (int c = 0; c < value->n_candidates; c++)
            if (!f->use[value->candidate[c]].shared) value->candidate[n++] = value->candidate[c];
        value->n_candidates = n;
    }
}

static void walk(forms *f) {
    clef__plan *plan = f->plan;
    int n = 0;
    for (int i = 0; i < plan->n_launches; i++) {
        read_instead(f, &plan->launch[i]);
        plan->launch[i].idle = is_done(f, i); /* until it is taken out, below */
    }
    for (int i = 0; i < plan->n_launches; i++)
        if (plan->launch[i].idle) clef__launch_free(&plan->launch[i]);
        else plan->launch[n++] = plan->launch[i];
    plan->n_launches = n;
    drop_shared_candidates(f);
}

void clef__derive(clef__recorder *rec) {
    forms f = {.plan = rec->plan, .n_slots = 16, .looks = (int64_t)rec->plan->n_launches * LOOKS};
    while (f.n_slots < 2 * rec->plan->n_launches) f.n_slots *= 2;
    f.use = clef__alloc(((size_t)rec->plan->n_values + 1) * sizeof *f.use);
    f.alive = clef__calloc((size_t)rec->plan->n_launches + 2, sizeof *f.alive);
    f.slot = clef__alloc((size_t)f.n_slots * sizeof *f.slot);
    f.first = clef__alloc(((size_t)rec->plan->n_launches + 1) * sizeof *f.first);
    f.times = clef__calloc((size_t)rec->plan->n_launches + 1, sizeof *f.times);
    if (f.use && f.alive && f.slot && f.first && f.times) {
        count_forms_of_leaves(&f);
        note_uses(&f);
        note_alive(&f);
        walk(&f);
    } else clef__record_fail(rec);
    clef__free(f.use);
    clef__free(f.alive);
    clef__free(f.slot);
    clef__free(f.first);
    clef__free(f.times);
}
