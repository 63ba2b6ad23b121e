/* balance.c — which rank gets how many items of a batch, by how long it computes for one.

   Every rank comes to the same shares on its own, whatever machine it is on: numbers are whole, and where two products are compared, each is
   rounded once. */
#include "data/data_internal.h"

enum { STEPS = 16, CHANGES_MOST = 8, STANDS_MOST = 2 };
static const int64_t cost_most = INT64_C(1) << 40; /* a second for an item */

static double seconds_of(int64_t items, int64_t cost) { return (double)items * (double)cost; }

/* The rank that is done first when it gets n more. */
static int best_for(const int64_t *cost, int ranks, const int64_t *items, int64_t n) {
    int best = 0;
    for (int r = 1; r < ranks; r++)
        if (seconds_of(items[r] + n, cost[r]) < seconds_of(items[best] + n, cost[best])) best = r;
    return best;
}

void clef__balance_divide(const int64_t *cost, int ranks, int64_t size, int64_t *items) {
    int64_t step = size / (STEPS * (int64_t)ranks), left = size;
    if (step < 1) step = 1;
    for (int r = 0; r < ranks; r++) items[r] = 0;
    for (int64_t n; left > 0; left -= n) {
        n = left < step ? left : step;
        items[best_for(cost, ranks, items, n)] += n;
    }
}

bool clef__balance_open(clef__balance *b, int ranks, int64_t size) {
    *b = (clef__balance){.ranks = ranks, .size = size};
    b->items = clef__calloc(3 * (size_t)ranks, sizeof *b->items);
    if (!b->items) return false;
    b->cost = b->items + ranks;
    b->next = b->cost + ranks;
    for (int r = 0; r < ranks; r++) b->items[r] = size / ranks + (r < size % ranks);
    return true;
}

void clef__balance_close(clef__balance *b) { clef__free(b->items); }

/* One that has no items is believed to be a little faster each time, so that it is tried again some day. */
static void learn_one(int64_t *cost, const clef__speed *speed) {
    if (speed->items <= 0) {
        *cost -= *cost / 8;
        return;
    }
    int64_t now = speed->picoseconds / speed->items;
    now = now < 1 ? 1 : now > cost_most ? cost_most : now;
    *cost = *cost ? *cost / 2 + now / 2 + (*cost & now & 1) : now;
}

/* What nobody knows is as good as the best. */
static void fill_unknown(int64_t *cost, int ranks) {
    int64_t best = cost_most;
    for (int r = 0; r < ranks; r++)
        if (cost[r] && cost[r] < best) best = cost[r];
    for (int r = 0; r < ranks; r++)
        if (!cost[r]) cost[r] = best;
}

static double slowest(const clef__balance *b, const int64_t *items) {
    double seconds = 0;
    for (int r = 0; r < b->ranks; r++)
        if (seconds_of(items[r], b->cost[r]) > seconds) seconds = seconds_of(items[r], b->cost[r]);
    return seconds;
}

/* A new size is a new plan, so it must be worth it: a fiftieth of the step, or a tenth once shares are fixed. */
static bool is_worth_it(const clef__balance *b) {
    double now = slowest(b, b->items), then = slowest(b, b->next);
    return b->fixed ? then * 10 < now * 9 : then * 50 < now * 49;
}

bool clef__balance_learn(clef__balance *b, const clef__speed *of) {
    for (int r = 0; r < b->ranks; r++) learn_one(&b->cost[r], &of[r]);
    fill_unknown(b->cost, b->ranks);
    clef__balance_divide(b->cost, b->ranks, b->size, b->next);
    bool change = is_worth_it(b);
    if (change && b->fixed) b->changes = 0, b->fixed = false;
    if (change) b->changes++, b->stands = 0;
    else b->stands++;
    b->fixed |= b->stands >= STANDS_MOST || b->changes >= CHANGES_MOST;
    return change;
}
