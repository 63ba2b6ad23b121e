/* busy.c — how long this rank's device computes, apart from what it waits for the others.

   Two kinds of meetings follow one another.  Of most, the device needs the result: it waits from when it came there until the meeting is over.
   While gradients are summed it goes on with backward, and waits for the last of these sums alone.  So what lies between two meetings
   counts from the end of the first, or, where both are such sums, from when the device came to the first.

       device   ── forward, backward ──┬──────┬───·········── update, forward …        · waits, which does not count
       sums                            └─ 1 ──┴─ 2 ────────┘                                                          */
#include "group/group.h"

#include <math.h>

void clef__busy_begin(clef_group *group) {
    clef__busy *b = &group->of->busy;
    clef__time_visits(group->ctx, true);
    pthread_mutex_lock(&b->lock);
    b->wanted = true;
    b->counts = false;
    b->group = group->id;
    b->from = (int64_t)group->number;
    b->step = b->least = 0;
    b->steps = 0;
    pthread_mutex_unlock(&b->lock);
}

static void end_step(clef__busy *b) {
    if (b->step <= 0) return;
    b->least = b->steps ? fmin(b->least, b->step) : b->step;
    b->steps++;
    b->step = 0;
}

double clef__busy_end(clef_group *group) {
    clef__busy *b = &group->of->busy;
    clef__time_visits(group->ctx, false);
    pthread_mutex_lock(&b->lock);
    b->wanted = false;
    end_step(b);
    double seconds = b->least * b->steps;
    pthread_mutex_unlock(&b->lock);
    return seconds;
}

/* Messages between two are counted apart, and say nothing of where the group is. */
static bool is_where_it_begins(const clef__busy *b, const clef_group *group, const clef__meeting *m) {
    return m->kind != CLEF__MEET_SEND && m->kind != CLEF__MEET_RECV && group->id == b->group && m->number >= b->from;
}

void clef__busy_note(const clef_group *group, const clef__meeting *m, double begin, double end) {
    clef__busy *b = &group->of->busy;
    double told = clef__visit_ready(group->ctx), ready = told > 0 ? told : begin;
    bool overlaps = m->overlaps && told >= 0; /* else the device waits even where it need not */
    pthread_mutex_lock(&b->lock);
    double since = overlaps && b->overlaps && !m->begins ? b->ready : b->end;
    b->counts |= b->wanted && is_where_it_begins(b, group, m);
    if (b->counts && m->begins) end_step(b);
    if (b->counts && b->wanted && b->end > 0) b->step += fmax(ready - since, 0);
    b->ready = fmax(ready, since); /* what begins while the last one goes on */
    b->end = end;
    b->overlaps = overlaps;
    pthread_mutex_unlock(&b->lock);
}
