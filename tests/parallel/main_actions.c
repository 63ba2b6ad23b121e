/* Schedules of pipelines, played through: a slot of time for each action, which needs what other stages did before it.  Every schedule ends
   after 2·(m + p - 1) slots, the least there is; backward goes in order; 1F1B keeps at most p - s micro-batches waiting at stage s.
   ctest: plain */
#include "parallel/parallel.h"
#include <stdio.h>
#include <string.h>

enum { MOST_STAGES = 6, MOST_MICRO = 12 };

typedef struct play {
    clef_pipeline_schedule schedule;
    int stages, micro;
    clef__action action[MOST_STAGES][2 * MOST_MICRO];
    int at[MOST_STAGES], forth[MOST_STAGES], back[MOST_STAGES]; /* actions that are done, and of either kind */
} play;

static int failures;

static void fail(const play *p, const char *what, int stage) {
    if (failures++ < 20)
        printf("FAILED: schedule %d, %d stages, %d micro-batches: %s (stage %d)\n", p->schedule, p->stages, p->micro, what, stage);
}

/* Is there what the action needs?  `forth` and `back` are of the slots before. */
static bool may(const play *p, const int *forth, const int *back, int s) {
    const clef__action *a = &p->action[s][p->at[s]];
    int k = a->micro_batch;
    if (!a->backward) return s == 0 || forth[s - 1] > k;
    return forth[s] > k && (s == p->stages - 1 || back[s + 1] > k);
}

static void act(play *p, int s) {
    const clef__action *a = &p->action[s][p->at[s]++];
    int *done = a->backward ? &p->back[s] : &p->forth[s];
    if (a->micro_batch != (*done)++) fail(p, "micro-batches out of order", s);
    int waiting = p->forth[s] - p->back[s], most = p->schedule == CLEF_PIPELINE_GPIPE ? p->micro : p->stages - s;
    if (waiting > most) fail(p, "too many micro-batches wait", s);
}

/* One slot; false: nobody could do anything. */
static bool slot(play *p) {
    int forth[MOST_STAGES], back[MOST_STAGES];
    bool any = false;
    memcpy(forth, p->forth, sizeof forth);
    memcpy(back, p->back, sizeof back);
    for (int s = 0; s < p->stages; s++) {
        if (p->at[s] == 2 * p->micro || !may(p, forth, back, s)) continue;
        act(p, s);
        any = true;
    }
    return any;
}

static void run(clef_pipeline_schedule schedule, int stages, int micro) {
    play p = {.schedule = schedule, .stages = stages, .micro = micro};
    for (int s = 0; s < stages; s++) clef__pipeline_actions(schedule, stages, s, micro, p.action[s]);
    int slots = 0;
    while (slot(&p)) slots++;
    for (int s = 0; s < stages; s++)
        if (p.forth[s] != micro || p.back[s] != micro) fail(&p, "it stands still", s);
    if (slots != 2 * (micro + stages - 1)) fail(&p, "it takes longer than it must", slots);
}

int main(void) {
    for (int stages = 1; stages <= MOST_STAGES; stages++)
        for (int micro = 1; micro <= MOST_MICRO; micro++) {
            run(CLEF_PIPELINE_1F1B, stages, micro);
            run(CLEF_PIPELINE_GPIPE, stages, micro);
        }
    return failures != 0;
}
