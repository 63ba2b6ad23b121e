/* idle.c — programs that nobody holds.

   Kernels and codes hold their programs, and so do threads that build one or wait for it.  A program whose last holder is gone is idle:
   it stays for whoever asks for it next, and beyond a limit those go that were held longest ago.  A driver has up to megabytes for each.
   Those that failed have only their logs, and a limit of their own: else they would be built again by whoever looks at no error.
   Those that were only reserved go at once.

   What was joined is released as a whole (join.c): a part that nobody holds stays with the others, and holds nothing. */
#include "runtime/runtime_internal.h"

/* ---- the lists, from the one that was held longest ago ---- */

/* Only who holds a program changes its state: it leaves the list on which it was put. */
static clef__idle *list_of(clef__programs *programs, const clef__program *p) {
    return p->state == CLEF__FAILED ? &programs->failed : &programs->idle;
}

static void unlist(clef__programs *programs, clef__program *p) {
    clef__idle *idle = list_of(programs, p);
    *(p->older ? &p->older->newer : &idle->oldest) = p->newer;
    *(p->newer ? &p->newer->older : &idle->newest) = p->older;
    idle->n--;
}

static void list(clef__programs *programs, clef__program *p) {
    clef__idle *idle = list_of(programs, p);
    p->older = idle->newest;
    p->newer = NULL;
    *(p->older ? &p->older->newer : &idle->oldest) = p;
    idle->newest = p;
    idle->n++;
}

/* Takes it out of the table, and puts it before `others`. */
static clef__program *take_out(clef__programs *programs, clef__program *p, clef__program *others) {
    clef__program **at = &programs->table[p->key[0]];
    while (*at != p) at = &(*at)->next;
    *at = p->next;
    p->next = others;
    return p;
}

void clef__program_hold(clef__programs *programs, clef__program *p) {
    if (p->holders++ > 0) return;
    if (p->whole) clef__program_hold(programs, p->whole);
    else unlist(programs, p);
}

void clef__program_let_go(clef__programs *programs, clef__program *p) {
    if (--p->holders > 0) return;
    if (p->whole) clef__program_let_go(programs, p->whole);
    else if (p->state == CLEF__UNBUILT) clef__free(take_out(programs, p, NULL));
    else list(programs, p);
}

/* ---- releasing ---- */

/* Puts those that are too many, with their parts, before `others`.  Under the lock. */
static clef__program *take_surplus(clef__programs *programs, const clef__idle *idle, clef__program *others) {
    while (idle->n > idle->most) {
        clef__program *p = idle->oldest;
        unlist(programs, p);
        for (clef__program *part = p->part; part; part = part->another_part) others = take_out(programs, part, others);
        others = take_out(programs, p, others);
    }
    return others;
}

/* Returns how many of the driver's programs they had; alive: which are released. */
static int free_all(clef__program *p, bool alive) {
    int n = 0;
    for (clef__program *next; p; p = next) {
        next = p->next;
        bool owns = p->program && !p->whole;
        if (owns && alive) clReleaseProgram(p->program);
        n += owns;
        clef__free(p->failure.log);
        clef__free(p);
    }
    return n;
}

void clef__program_release(clef__device *device, clef__program *program) {
    if (!program || clef__forked()) return; /* in such a child: whoever had the lock may be gone */
    clef__programs *programs = device->programs;
    bool alive = clef__alive(device); /* else it is left to others, who may be */
    pthread_mutex_lock(&programs->lock);
    clef__program_let_go(programs, program);
    clef__program *surplus = NULL;
    if (alive) surplus = take_surplus(programs, &programs->failed, take_surplus(programs, &programs->idle, NULL));
    pthread_mutex_unlock(&programs->lock);
    if (!surplus) return;
    int released = free_all(surplus, true);
    atomic_fetch_sub(&programs->loaded, released);
    pthread_mutex_lock(&device->ctx->lock);
    device->ctx->counters.programs_released += (uint64_t)released;
    pthread_mutex_unlock(&device->ctx->lock);
}

void clef__programs_free(clef__programs *programs, bool alive) {
    for (int i = 0; i < 256; i++) free_all(programs->table[i], alive);
    if (!clef__forked()) { /* in such a child threads of the parent's would be waited for */
        pthread_cond_destroy(&programs->changed);
        pthread_mutex_destroy(&programs->lock);
    }
    clef__free(programs->options);
    clef__free(programs);
}
