/* reached.c — when events were over, told by the driver as it happens and not when somebody comes to look. */
#include "runtime/runtime_internal.h"

/* Held by who asks and by every callback that is still to come; the last one frees it. */
struct clef__reached {
    atomic_int holders, open; /* open: events that are not over */
    atomic_uint_least64_t latest;
};

static uint64_t nanoseconds(void) { return (uint64_t)(clef__now() * 1e9); }

static void let_go(clef__reached *r) {
    if (atomic_fetch_sub(&r->holders, 1) == 1) clef__free(r);
}

/* In a thread of the driver's. */
static void CL_CALLBACK note(cl_event event, cl_int state, void *user) {
    clef__reached *r = user;
    (void)event, (void)state;
    uint64_t now = nanoseconds(), before = atomic_load(&r->latest);
    while (before < now && !atomic_compare_exchange_weak(&r->latest, &before, now)) continue;
    atomic_fetch_sub(&r->open, 1);
    let_go(r);
}

clef__reached *clef__reached_new(clef__event *const *event, int n) {
    clef__reached *r = clef__alloc(sizeof *r);
    if (!r) return NULL;
    atomic_init(&r->holders, n + 1);
    atomic_init(&r->open, n);
    atomic_init(&r->latest, n ? 0 : nanoseconds());
    for (int i = 0; i < n; i++)
        if (clSetEventCallback((cl_event)event[i], CL_COMPLETE, note, r) != CL_SUCCESS) let_go(r); /* `open` never comes to 0 */
    return r;
}

double clef__reached_take(clef__reached *r) {
    if (!r) return 0;
    double seconds = atomic_load(&r->open) == 0 ? 1e-9 * (double)atomic_load(&r->latest) : 0;
    let_go(r);
    return seconds;
}
