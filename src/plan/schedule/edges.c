/* edges.c — which launches wait for one in another queue.

   Every device computes in one queue, in order.  Copies between devices that share an OpenCL context run beside, in the second queue of
   the device they go to, and halves of other copies in that of the device whose memory they touch.  Kernels may read memory of another
   device that theirs sees (seen.c).  Where two launches in different queues touch the same memory and one of them writes to it, the
   later one waits.  What a queue has waited for, and what that had waited for, need not be waited for again: for each queue the last
   launch of every other that is known to be over is carried along (a vector clock).

   A copy for which the host waits is over on the side it comes from when it returns, so it counts as a launch of the compute queue
   of the device it goes to, which touches only that one's memory, and before it both devices' compute queues wait.

   Other plans know nothing of this one's edges.  Launches before this plan are over for a launch when the compute queues of all devices
   whose memory it touches are where they were as the plan began.  When it ends each of these has waited for all that touched its
   device's memory in other queues. */
#include "plan/schedule/schedule.h"

enum { BEFORE = -1, UNKNOWN = -2 /* launches that a queue knows the end of */ };

/* By queue: the last launch that is known to be over; BEFORE: all of earlier plans. */
typedef struct clock {
    int over[CLEF__QUEUES];
} clock;

typedef struct edges {
    clef__plan *plan;
    clock now[CLEF__QUEUES]; /* what each queue knows */
    clock *at;               /* what was known when launch i began */
    int *queue;              /* of launch i, */
    int *previous;           /* and the launch before it there; -1: none */
    uint32_t *touched;       /* the devices whose memory it touches: bits */
    int last[CLEF__QUEUES], devices, capacity;
    bool failed;
} edges;

/* ---- memory ---- */

/* Where a value lies, once there is one: an arena's bytes, or memory of its own. */
typedef struct region {
    int owner; /* -1 - d: the arena of device d; else a value */
    size_t begin, end;
} region;

static region region_of(const clef__plan *plan, int v) {
    const clef__value *value = &plan->value[v];
    if (value->home == CLEF__ARENA_VALUE && !value->own)
        return (region){-1 - value->device, value->offset, value->offset + value->bytes};
    return (region){value->home == CLEF__OUTPUT_VALUE && value->donor >= 0 ? value->donor : v, 0, value->bytes};
}

static bool meet(region a, region b) { return a.owner == b.owner && a.begin < b.end && b.begin < a.end; }

/* Do they touch the same memory, of one of these devices, so that one must wait for the other? */
static bool conflict(const clef__plan *plan, const clef__launch *x, const clef__launch *y, uint32_t devices) {
    for (int a = 0; a < x->n_args; a++) {
        if (x->arg[a].kind != CLEF__ARG_TENSOR || !(devices >> plan->value[x->arg[a].value].device & 1)) continue;
        region mine = region_of(plan, x->arg[a].value);
        for (int b = 0; b < y->n_args; b++)
            if (y->arg[b].kind == CLEF__ARG_TENSOR && (x->arg[a].writes || y->arg[b].writes) &&
                meet(mine, region_of(plan, y->arg[b].value)))
                return true;
    }
    return false;
}

/* ---- queues ---- */

static bool host_waits(const clef__launch *launch) { return launch->kind == CLEF__LAUNCH_COPY && !launch->beside; }

static uint32_t devices_of(const clef__plan *plan, const clef__launch *launch) {
    uint32_t devices = 1u << launch->device;
    for (int a = 0; !host_waits(launch) && a < launch->n_args; a++) {
        if (launch->arg[a].kind != CLEF__ARG_TENSOR) continue;
        const clef__value *value = &plan->value[launch->arg[a].value];
        if (value->bytes) devices |= 1u << value->device;
    }
    return devices;
}

static int queue_for(const clef__launch *launch) {
    if (!launch->beside) return launch->device;
    return launch->device + (clef__is_visit(launch) ? 2 : 1) * CLEF__MAX_DEVICES;
}

/* Launch i is the last one in its queue so far. */
static void enter(edges *e, int i) {
    e->previous[i] = e->last[e->queue[i]];
    e->last[e->queue[i]] = i;
}

/* ---- edges ---- */

static void learn(clock *to, const clock *from) {
    for (int q = 0; q < CLEF__QUEUES; q++)
        if (from->over[q] > to->over[q]) to->over[q] = from->over[q];
}

/* `queue` waits for launch j, or for BEFORE of compute queue `other`, before it does `after`. */
static void add_edge(edges *e, int queue, int other, int j, int after) {
    clef__plan *plan = e->plan;
    e->failed |= !clef__grow(&plan->edge, plan->n_edges, &e->capacity, sizeof *plan->edge);
    if (e->failed) return;
    plan->edge[plan->n_edges++] =
        (clef__edge){.before = j >= 0 ? j : -1 - other, .after = after, .device = queue < CLEF__MAX_DEVICES ? queue : -1};
    if (j >= 0) {
        plan->launch[j].awaited = true;
        learn(&e->now[queue], &e->at[j]);
    }
    e->now[queue].over[other] = j;
}

/* The last launch in that queue that touches what i does, of these devices, and is not known to be over; -1: none. */
static int last_conflict(const edges *e, int i, int queue, int other, uint32_t devices) {
    for (int j = e->last[other]; j >= 0 && j > e->now[queue].over[other]; j = e->previous[j])
        if (e->touched[j] & devices && conflict(e->plan, &e->plan->launch[i], &e->plan->launch[j], devices)) return j;
    return -1;
}

/* What `queue` must wait for before launch i, as far as that touches these devices' memory: visits, copies, then kernels. */
static void find_edges_of(edges *e, int i, int queue, uint32_t devices) {
    for (int q = CLEF__QUEUES - 1; q >= CLEF__MAX_DEVICES; q--) {
        int j = queue == q ? -1 : last_conflict(e, i, queue, q, devices);
        if (j >= 0) add_edge(e, queue, q, j, i);
    }
    for (int d = 0; d < e->devices; d++) {
        if (d == queue) continue;
        int j = last_conflict(e, i, queue, d, devices);
        if (j >= 0 || (devices >> d & 1 && e->now[queue].over[d] == UNKNOWN)) add_edge(e, queue, d, j, i);
    }
}

/* The host waits for the device that copy i comes from: what that knew and did so far is over for `queue` too. */
static void wait_on_host(edges *e, int i, int queue) {
    int source = e->plan->value[e->plan->launch[i].arg[1].value].device;
    find_edges_of(e, i, source, 1u << source);
    learn(&e->now[queue], &e->now[source]);
    if (e->last[source] > e->now[queue].over[source]) e->now[queue].over[source] = e->last[source];
}

/* Device d ends the plan behind all that touched its memory in other queues. */
static void find_last_edges(edges *e, int d) {
    for (int q = 0; q < CLEF__QUEUES; q++) {
        int i = q == d ? -1 : e->last[q];
        while (i >= 0 && !(e->touched[i] >> d & 1)) i = e->previous[i];
        if (i >= 0 && i > e->now[d].over[q]) add_edge(e, d, q, i, e->plan->n_launches + d);
    }
}

static void find_all(edges *e) {
    const clef__plan *plan = e->plan;
    for (int q = 0; q < CLEF__QUEUES; q++) {
        e->last[q] = -1;
        for (int other = 0; other < CLEF__QUEUES; other++) e->now[q].over[other] = UNKNOWN;
    }
    for (int i = 0; i < plan->n_launches && !e->failed; i++) {
        const clef__launch *launch = &plan->launch[i];
        int queue = e->queue[i] = queue_for(launch);
        find_edges_of(e, i, queue, e->touched[i]);
        if (host_waits(launch)) wait_on_host(e, i, queue);
        e->at[i] = e->now[queue];
        e->at[i].over[queue] = i;
        enter(e, i);
    }
    for (int d = 0; d < e->devices && !e->failed; d++) find_last_edges(e, d);
}

/* Does all that the plan does stay in the compute queues, each with its own device's memory? */
static bool is_apart(const clef__plan *plan) {
    for (int i = 0; i < plan->n_launches; i++)
        if (plan->launch[i].beside || devices_of(plan, &plan->launch[i]) != 1u << plan->launch[i].device) return false;
    return true;
}

bool clef__find_edges(clef__plan *plan, int devices) {
    if (is_apart(plan)) return true;
    edges e = {.plan = plan, .devices = devices};
    e.queue = clef__alloc((size_t)plan->n_launches * sizeof *e.queue);
    e.previous = clef__alloc((size_t)plan->n_launches * sizeof *e.previous);
    e.touched = clef__alloc((size_t)plan->n_launches * sizeof *e.touched);
    e.at = clef__alloc((size_t)plan->n_launches * sizeof *e.at);
    plan->event = clef__calloc((size_t)plan->n_launches + CLEF__MAX_DEVICES, sizeof *plan->event);
    e.failed = !e.queue || !e.previous || !e.touched || !e.at || !plan->event;
    for (int i = 0; !e.failed && i < plan->n_launches; i++) e.touched[i] = devices_of(plan, &plan->launch[i]);
    if (!e.failed) find_all(&e);
    clef__free(e.queue);
    clef__free(e.previous);
    clef__free(e.touched);
    clef__free(e.at);
    return !e.failed;
}
