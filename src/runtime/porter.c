/* porter.c — a thread of a context that does, one after the other, what has to happen on the host between commands of devices.

   Each errand has a gate, a user event that commands wait for.  Errands are run in the order in which they were sent, which is an order
   in which they can be: each waits for commands that only wait for gates of earlier ones.

   A gate never gets an error: some drivers stall a queue for good then, others say that all went well.  What failed is noted, the
   commands behind it go on with what is there, and the next that waits for results gets the error. */
#include "runtime/runtime_internal.h"
#include <stdio.h>
#include <time.h>

/* Of an errand, that nobody was told of.  from: the device that a driver's error came from, which is told again, as it may be lost; NULL:
   the line stands for itself.  CLEF_OK: none. */
typedef struct failure {
    clef_status status;
    clef__device *from;
    cl_int code;
    uint64_t cleared;
    char line[CLEF__LINE];
} failure;

struct clef__porter {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed, idle;
    clef__errand *first, **end;
    bool busy, stop;
    failure failed;
};

enum { MOMENT = 1000000 /* ns */, TRIES = 1000, LOST_WAIT = 10 /* s */ };

/* Where waiting fails the event is asked: the queue may have to wait for gates that only this thread opens. */
cl_int clef__wait_for_event(cl_event event, bool *over) {
    cl_int code = clWaitForEvents(1, &event), state = code == CL_SUCCESS ? CL_COMPLETE : CL_QUEUED;
    for (int i = 0; state > CL_COMPLETE && i < TRIES; i++) {
        cl_int now = CL_QUEUED;
        if (clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof now, &now, NULL) == CL_SUCCESS) state = now;
        if (state > CL_COMPLETE) nanosleep(&(struct timespec){.tv_nsec = MOMENT}, NULL);
    }
    if (over) *over = state <= CL_COMPLETE;
    return code;
}

/* ---- the thread ---- */

static clef__errand *next_errand(clef__porter *porter) {
    pthread_mutex_lock(&porter->lock);
    porter->busy = false;
    if (!porter->first) pthread_cond_broadcast(&porter->idle);
    while (!porter->first && !porter->stop) pthread_cond_wait(&porter->changed, &porter->lock);
    clef__errand *e = porter->first;
    if (e && !(porter->first = e->next)) porter->end = &porter->first;
    porter->busy = e != NULL;
    pthread_mutex_unlock(&porter->lock);
    return e;
}

static void *work(void *user) {
    clef__porter *porter = user;
    for (clef__errand *e; (e = next_errand(porter));) {
        e->run(e);
        clSetUserEventStatus(e->gate, CL_COMPLETE);
        clReleaseEvent(e->gate);
        clef__free(e);
    }
    return NULL;
}

bool clef__porter_hire(clef_context *ctx) {
    if (ctx->porter) return true;
    clef__porter *porter = clef__calloc(1, sizeof *porter);
    if (!porter) return false;
    pthread_mutex_init(&porter->lock, NULL);
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&porter->changed, NULL);
    pthread_cond_init(&porter->idle, &clock);
    pthread_condattr_destroy(&clock);
    porter->end = &porter->first;
    ctx->porter = porter; /* before the thread, whose errands look here */
    if (pthread_create(&porter->thread, NULL, work, porter) == 0) return true;
    ctx->porter = NULL;
    pthread_cond_destroy(&porter->idle);
    pthread_cond_destroy(&porter->changed);
    pthread_mutex_destroy(&porter->lock);
    clef__free(porter);
    return false;
}

static bool is_idle(const clef__porter *porter) { return !porter->first && !porter->busy; }

/* Of a lost device the thread may wait forever, and in a forked child there is none. */
bool clef__porter_rests(clef_context *ctx) {
    clef__porter *porter = ctx->porter;
    if (!porter || clef__forked()) return true;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += LOST_WAIT;
    bool alive = clef__all_alive(ctx);
    pthread_mutex_lock(&porter->lock);
    for (int code = 0; !is_idle(porter) && code == 0;)
        code =
            alive ? pthread_cond_wait(&porter->idle, &porter->lock) : pthread_cond_timedwait(&porter->idle, &porter->lock, &until);
    bool idle = is_idle(porter);
    pthread_mutex_unlock(&porter->lock);
    return idle;
}

void clef__porter_close(clef_context *ctx) {
    clef__porter *porter = ctx->porter;
    if (!porter || clef__forked()) return;
    pthread_mutex_lock(&porter->lock);
    porter->stop = true;
    pthread_cond_signal(&porter->changed);
    pthread_mutex_unlock(&porter->lock);
    pthread_join(porter->thread, NULL);
    ctx->porter = NULL;
    pthread_cond_destroy(&porter->idle);
    pthread_cond_destroy(&porter->changed);
    pthread_mutex_destroy(&porter->lock);
    clef__free(porter);
}

bool clef__porter_send(clef_context *ctx, clef__errand *errand) {
    clef__porter *porter = ctx->porter;
    if (!porter) return false;
    errand->next = NULL;
    errand->cleared = atomic_load(&ctx->cleared);
    pthread_mutex_lock(&porter->lock);
    *porter->end = errand;
    porter->end = &errand->next;
    pthread_cond_signal(&porter->changed);
    pthread_mutex_unlock(&porter->lock);
    return true;
}

void clef__porter_settle(clef_context *ctx) {
    if (clef__all_alive(ctx)) clef__porter_rests(ctx);
}

/* ---- failures ---- */

static void note(clef_context *ctx, const failure *f) {
    clef__porter *porter = ctx->porter;
    pthread_mutex_lock(&porter->lock);
    if (porter->failed.status == CLEF_OK || porter->failed.cleared != f->cleared) porter->failed = *f;
    pthread_mutex_unlock(&porter->lock);
}

void clef__fail_later(clef_context *ctx, clef_status status, uint64_t cleared, const char *line) {
    failure f = {.status = status, .cleared = cleared};
    snprintf(f.line, sizeof f.line, "%s", line);
    note(ctx, &f);
}

void clef__fail_later_cl(clef__device *from, cl_int code, uint64_t cleared, const char *what) {
    failure f = {.status = CLEF_DEVICE, .from = from, .code = code, .cleared = cleared};
    snprintf(f.line, sizeof f.line, "%s", what);
    note(from->ctx, &f);
}

/* One from before the error was cleared is about work that the program has given up. */
clef_status clef__porter_status(clef_context *ctx) {
    clef__porter *porter = ctx->porter;
    if (!porter) return CLEF_OK;
    pthread_mutex_lock(&porter->lock);
    failure failed = porter->failed;
    porter->failed.status = CLEF_OK;
    pthread_mutex_unlock(&porter->lock);
    if (failed.status == CLEF_OK || failed.cleared != atomic_load(&ctx->cleared)) return CLEF_OK;
    return failed.from ? clef__fail_cl(failed.from, failed.code, "%s", failed.line)
                       : clef__fail(ctx, failed.status, "%s", failed.line);
}
