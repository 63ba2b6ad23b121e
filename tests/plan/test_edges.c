/* Launches in several queues wait for one another where they touch the same memory, on plain structs: no device.

   The oracle follows what each queue knows to be over, launch by launch, and asks of every two launches that touch the same memory whether
   the later one began when the earlier was over. */
#include "plan/run/run.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { LAUNCHES = 40, VALUES = 24, ARGS = 3, ROUNDS = 4000, QUEUES = 2 * CLEF__MAX_DEVICES, ARENA = 1000 };

typedef uint64_t set; /* of launches; START + d: all of earlier plans on device d */
enum { START = 48 };

typedef struct sample {
    clef__plan plan;
    clef__value value[VALUES];
    clef__launch launch[LAUNCHES];
    clef__arg arg[LAUNCHES][ARGS];
    int devices;
} sample;

static int any(int n) { return rand() % n; }

/* ---- random plans ---- */

static void make_value(sample *s, int v) {
    clef__value *value = &s->value[v];
    *value = (clef__value){
        .home = (clef__home)any(3), .device = v % s->devices, .donor = -1, .in_place_of = -1, .bytes = (size_t)any(400)};
    value->offset = (size_t)any(ARENA);
    if (value->home == CLEF__OUTPUT_VALUE && any(2)) { /* in the memory of a leaf of the same device */
        int leaf = any(v + 1);
        if (s->value[leaf].home == CLEF__LEAF_VALUE && s->value[leaf].device == value->device) value->donor = leaf;
    }
}

static int value_on(const sample *s, int device) { return any(VALUES / s->devices) * s->devices + device; }

static void add_arg(sample *s, int i, int value, bool writes) {
    clef__launch *launch = &s->launch[i];
    s->arg[i][launch->n_args++] = (clef__arg){.kind = CLEF__ARG_TENSOR, .value = value, .writes = writes};
}

static void make_launch(sample *s, int i) {
    clef__launch *launch = &s->launch[i];
    *launch = (clef__launch){.device = any(s->devices), .arg = s->arg[i]};
    int other = (launch->device + 1 + any(s->devices - 1)) % s->devices;
    switch (any(8)) {
    case 0:
    case 1: /* a copy to this device */
        launch->kind = CLEF__LAUNCH_COPY;
        launch->beside = any(3) > 0;
        add_arg(s, i, value_on(s, launch->device), true);
        add_arg(s, i, value_on(s, other), false);
        break;
    case 2: /* half of one */
        launch->kind = any(2) ? CLEF__LAUNCH_FETCH : CLEF__LAUNCH_STORE;
        launch->beside = true;
        add_arg(s, i, value_on(s, launch->device), launch->kind == CLEF__LAUNCH_STORE);
        break;
    case 3: /* a kernel that reads memory of another device, too */
        for (int a = 1; a < ARGS; a++) add_arg(s, i, value_on(s, launch->device), any(2));
        add_arg(s, i, value_on(s, other), false);
        break;
    default:
        for (int a = 0; a < ARGS; a++) add_arg(s, i, value_on(s, launch->device), any(2));
    }
}

static void make(sample *s) {
    *s = (sample){.devices = 2 + any(2)};
    for (int v = 0; v < VALUES; v++) make_value(s, v);
    int n = 1 + any(LAUNCHES);
    for (int i = 0; i < n; i++) make_launch(s, i);
    s->plan = (clef__plan){.value = s->value, .n_values = VALUES, .launch = s->launch, .n_launches = n};
}

/* ---- what must be so ---- */

static bool same_bytes(const sample *s, int a, int b) {
    const clef__value *x = &s->value[a], *y = &s->value[b];
    if (x->bytes == 0 || y->bytes == 0 || x->device != y->device) return false;
    if (x->home == CLEF__ARENA_VALUE && y->home == CLEF__ARENA_VALUE)
        return x->offset < y->offset + y->bytes && y->offset < x->offset + x->bytes;
    int own_a = x->donor >= 0 ? x->donor : a, own_b = y->donor >= 0 ? y->donor : b;
    return own_a == own_b && x->home != CLEF__ARENA_VALUE && y->home != CLEF__ARENA_VALUE;
}

/* A copy for which the host waits is over on the side it comes from when the host goes on. */
static bool waits_by_itself(const clef__launch *launch, int a) {
    return launch->kind == CLEF__LAUNCH_COPY && !launch->beside && a == 1;
}

static bool touch(const sample *s, int i, int j) {
    const clef__launch *x = &s->launch[i], *y = &s->launch[j];
    for (int a = 0; a < x->n_args; a++)
        for (int b = 0; b < y->n_args; b++)
            if ((x->arg[a].writes || y->arg[b].writes) && same_bytes(s, x->arg[a].value, y->arg[b].value) && !waits_by_itself(y, b))
                return true;
    return false;
}

/* Does it touch memory of device d? */
static bool touches(const sample *s, const clef__launch *launch, int d) {
    for (int a = 0; a < launch->n_args; a++) {
        const clef__value *value = &s->value[launch->arg[a].value];
        if (value->bytes && value->device == d && !waits_by_itself(launch, a)) return true;
    }
    return false;
}

/* ---- the oracle ---- */

typedef struct knowledge {
    set queue[QUEUES], host; /* what is over when the next launch there begins, and any launch */
    set end[LAUNCHES];       /* what is over when launch i is, itself too */
    int edge;
} knowledge;

static set of_edge(const knowledge *k, const clef__edge *edge) {
    return edge->before < 0 ? (set)1 << (START - 1 - edge->before) : k->end[edge->before];
}

/* Edges before launch `after`, or the end of a device's part; returns what the launch itself waits for. */
static set follow_edges(const sample *s, knowledge *k, int after) {
    set own = 0, before[QUEUES];
    memcpy(before, k->queue, sizeof before);
    for (; k->edge < s->plan.n_edges && s->plan.edge[k->edge].after == after; k->edge++) {
        const clef__edge *edge = &s->plan.edge[k->edge];
        int queue = edge->device >= 0 ? edge->device : s->launch[after].device + CLEF__MAX_DEVICES;
        set *known = edge->device >= 0 ? &k->queue[queue] : &own, news = of_edge(k, edge);
        cr_assert(news & ~before[queue], "an edge of launch %d says nothing new", after);
        if (edge->before >= 0) cr_assert(s->launch[edge->before].awaited);
        *known |= news;
    }
    return own;
}

static void check_launch(const sample *s, knowledge *k, int i) {
    const clef__launch *launch = &s->launch[i];
    int queue = launch->device + (launch->beside ? CLEF__MAX_DEVICES : 0);
    set begin = follow_edges(s, k, i);
    bool waits = launch->kind == CLEF__LAUNCH_COPY && !launch->beside;
    int source = launch->kind == CLEF__LAUNCH_COPY ? s->value[launch->arg[1].value].device : launch->device;
    if (waits) begin |= k->queue[source];
    begin |= k->queue[queue];
    k->queue[queue] = k->end[i] = begin | (set)1 << i;
    if (waits) k->host |= k->queue[source];
    begin |= k->host;
    for (int j = 0; j < i; j++)
        if (touch(s, i, j)) cr_assert(begin >> j & 1, "launch %d does not wait for %d", i, j);
    cr_assert(begin >> (START + launch->device) & 1, "launch %d does not wait for earlier plans", i);
    for (int d = 0; d < s->devices; d++)
        if ((waits && d == source) || touches(s, launch, d))
            cr_assert(begin >> (START + d) & 1, "launch %d does not wait for earlier plans on device %d", i, d);
}

static void check_end(const sample *s, knowledge *k, int d) {
    follow_edges(s, k, s->plan.n_launches + d);
    for (int i = 0; i < s->plan.n_launches; i++)
        if (touches(s, &s->launch[i], d)) cr_assert(k->queue[d] >> i & 1, "device %d does not wait for %d at the end", d, i);
}

static bool is_apart(const sample *s) {
    for (int i = 0; i < s->plan.n_launches; i++)
        for (int d = 0; d < s->devices; d++)
            if (s->launch[i].beside || (d != s->launch[i].device && touches(s, &s->launch[i], d))) return false;
    return true;
}

static void check(const sample *s) {
    knowledge k = {.edge = 0};
    if (is_apart(s)) {
        cr_assert_eq(s->plan.n_edges, 0);
        return;
    }
    for (int d = 0; d < s->devices; d++) k.queue[d] = (set)1 << (START + d);
    for (int i = 0; i < s->plan.n_launches; i++) check_launch(s, &k, i);
    for (int d = 0; d < s->devices; d++) check_end(s, &k, d);
    cr_assert_eq(k.edge, s->plan.n_edges, "an edge stands where nobody looks");
}

Test(edges, launches_that_touch_the_same_memory_wait_for_one_another) {
    srand(5);
    int edges = 0;
    for (int round = 0; round < ROUNDS; round++) {
        sample s;
        make(&s);
        cr_assert(clef__find_edges(&s.plan, s.devices));
        check(&s);
        edges += s.plan.n_edges;
        free(s.plan.edge);
        free(s.plan.event);
    }
    cr_assert_gt(edges, 10 * ROUNDS, "random plans have edges");
}
