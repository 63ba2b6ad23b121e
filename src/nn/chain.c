/* chain.c — see chain.h.

   The cut of the least sum of times whose runs all take less than a bound is found by dynamic programming over (devices × units).  It
   begins without a bound; then each round forbids what the slowest device of the last one took.  Sums grow from round to round and the
   slowest time falls, and no cut is better in both than one that was seen: whatever grows with both is least for one of these. */
#include "nn/chain.h"
#include "runtime/runtime.h"
#include <math.h>
#include <string.h>

/* A run that grows at its front. */
typedef struct run {
    double seconds, bytes, work; /* of its units alone */
} run;

static void add_unit(const clef__chain *c, int device, int u, run *r) {
    r->seconds += c->seconds[u * c->devices + device];
    r->bytes += c->bytes[u];
    r->work = fmax(r->work, c->work[u]);
}

static double seconds_of(const clef__chain *c, int device, int begin, int end, const run *r) {
    double received = begin > 0 || device != c->home ? c->border[begin] : 0;
    if (c->both_ways && end < c->units) received += c->border[end];
    return r->seconds + received / c->transfer;
}

static double bytes_of(const clef__chain *c, int begin, const run *r) { return r->bytes + r->work + c->border[begin]; }

static run units_between(const clef__chain *c, int device, int begin, int end) {
    run r = {0};
    for (int u = end - 1; u >= begin; u--) add_unit(c, device, u, &r);
    return r;
}

double clef__run_seconds(const clef__chain *c, int device, int begin, int end) {
    run r = units_between(c, device, begin, end);
    return begin < end ? seconds_of(c, device, begin, end, &r) : 0;
}

double clef__run_bytes(const clef__chain *c, int begin, int end) {
    run r = units_between(c, 0, begin, end);
    return begin < end ? bytes_of(c, begin, &r) : 0;
}

double clef__chain_seconds(const clef__chain *c, double sum, double most) {
    return c->parts ? (sum + (c->parts - 1) * most) / c->parts : most;
}

/* Row d is about the first d devices, column i about the first i units. */
typedef struct table {
    double *sum;
    int *begin; /* of the last device's run */
} table;

/* The best for the first i units on the first d devices, of runs that take less than `bound`. */
static void fill(const clef__chain *c, table *t, int d, int i, double bound) {
    int width = c->units + 1, at = d * width + i, device = d - 1;
    const double *before = t->sum + (d - 1) * width;
    t->sum[at] = before[i];
    t->begin[at] = i;
    run r = {0};
    for (int u = i - 1; u >= 0; u--) {
        add_unit(c, device, u, &r);
        if (r.seconds >= bound || r.bytes + r.work > c->limit[device]) return; /* a longer run takes no less */
        double seconds = seconds_of(c, device, u, i, &r);
        if (seconds >= bound || bytes_of(c, u, &r) > c->limit[device] || before[u] + seconds >= t->sum[at]) continue;
        t->sum[at] = before[u] + seconds;
        t->begin[at] = u;
    }
}

/* One round.  False if no cut is left. */
static bool cut_below(const clef__chain *c, table *t, double bound, int *end) {
    int width = c->units + 1;
    for (int i = 0; i < width; i++) t->sum[i] = i ? INFINITY : 0;
    for (int d = 1; d <= c->devices; d++)
        for (int i = 0; i < width; i++) fill(c, t, d, i, bound);
    if (isinf(t->sum[c->devices * width + c->units])) return false;
    for (int d = c->devices, i = c->units; d > 0; d--) {
        end[d - 1] = i;
        i = t->begin[d * width + i];
    }
    return true;
}

static double slowest(const clef__chain *c, const int *end) {
    double most = 0;
    for (int d = 0; d < c->devices; d++) most = fmax(most, clef__run_seconds(c, d, d ? end[d - 1] : 0, end[d]));
    return most;
}

clef__cut clef__chain_cut(const clef__chain *c, int *end) {
    size_t cells = (size_t)(c->devices + 1) * (size_t)(c->units + 1);
    table t = {clef__calloc(cells, sizeof *t.sum), clef__calloc(cells, sizeof *t.begin)};
    int *tried = clef__calloc((size_t)c->devices + 1, sizeof *tried);
    bool room = t.sum && t.begin && tried, found = false;
    double best = INFINITY, bound = INFINITY;
    while (room && cut_below(c, &t, bound, tried)) {
        double sum = t.sum[cells - 1];
        if (c->parts && sum / c->parts >= best) break; /* the sum alone is too much from here on */
        bound = slowest(c, tried);
        double seconds = clef__chain_seconds(c, sum, bound);
        if (found && seconds >= best) continue;
        found = true;
        best = seconds;
        memcpy(end, tried, (size_t)c->devices * sizeof *end);
    }
    clef__free(t.sum);
    clef__free(t.begin);
    clef__free(tried);
    return !room ? CLEF__NO_HOST_MEMORY : found ? CLEF__CUT : CLEF__NONE_FITS;
}
