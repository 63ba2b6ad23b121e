/* shares.c — which part of a batch is a rank's: equal ones, those that were given, or those that measured speed asks for.

   A measurement lasts some steps and begins after some that get used to new sizes.  Until its end nobody waits for anything; then the ranks
   meet once, and all learn how long each of them computed.  All of it follows from the number of batches, so all ranks meet at the same. */
#include "data/data_internal.h"
#include "group/group.h"
#include "runtime/arithmetic.h"
#include <stdio.h>

enum { SHARE_MAX = 1000000, WARM_UP = 2, MEASURED = 4, AGAIN_MOST = 3 };

/* ---- options ---- */

const char *clef__shares_wrong(const clef_loader_options *o) {
    int ranks = clef_group_size(o->group);
    if (o->rebalance_every < 0) return "rebalance_every is a number of batches, or 0";
    if (o->rebalance_every && !o->shares_auto) return "rebalance_every is of measured shares; set shares_auto";
    if (o->shares && o->shares_auto) return "shares are given or found by shares_auto; give one of the two";
    if (o->parts && o->group && (o->shares || o->shares_auto))
        return "parts of a batch are equally large, shares are not; give one of the two";
    for (int r = 0; o->shares && ranks > 1 && r < ranks; r++)
        if (o->shares[r] < 1 || o->shares[r] > SHARE_MAX) return "shares are whole numbers from 1 to 1000000, one for each rank";
    return NULL;
}

bool clef__parts_fit(const clef_loader_options *o) {
    return o->parts >= 0 && (o->parts & (o->parts - 1)) == 0 && o->parts % clef_group_size(o->group) == 0;
}

/* FNV-1a (Fowler, Noll, Vo) of n numbers, to compare them. */
static int64_t hash_of(const int64_t *number, int n) {
    uint64_t hash = 14695981039346656037u;
    for (int i = 0; i < n; i++) hash = (hash ^ (uint64_t)number[i]) * 1099511628211u;
    return (int64_t)(hash >> 32);
}

void clef__batches_of(clef__batches *batches, int64_t items, const clef_loader_options *o) {
    int64_t shares = o->shares && o->group ? hash_of(o->shares, clef_group_size(o->group)) : 0;
    *batches = (clef__batches){{items, o->batch ? o->batch : CLEF__BATCH_USUAL, o->shuffle, o->drop_last, (int64_t)o->seed,
                                o->parts, shares, o->shares_auto, o->rebalance_every}};
}

/* ---- opened and closed ---- */

static void add_up(int64_t *sum, const int64_t *shares, int n) {
    for (int r = 0; r < n; r++) sum[r] = shares[r] + (r ? sum[r - 1] : 0);
}

bool clef__shares_open(clef__shares *s, const clef_loader_options *o) {
    int n = clef_group_size(o->group);
    *s = (clef__shares){.group = n > 1 ? o->group : NULL, .parts = o->parts, .every = o->rebalance_every};
    s->automatic = s->group && o->shares_auto;
    if (!s->automatic && (!s->group || !o->shares)) return true;
    s->sum = clef__calloc((size_t)n, sizeof *s->sum);
    if (!s->sum) return false;
    if (!s->automatic) return add_up(s->sum, o->shares, n), true;
    s->speed = clef__calloc((size_t)n, sizeof *s->speed);
    return s->speed && clef__balance_open(&s->balance, n, 0);
}

void clef__shares_plan(clef__shares *s, int64_t size, int64_t batches) {
    if (!s->automatic) return;
    int n = s->balance.ranks;
    s->balance.size = size;
    for (int r = 0; r < n; r++) s->balance.items[r] = size / n + (r < size % n);
    add_up(s->sum, s->balance.items, n);
    s->one_epoch = batches >= 2 * (WARM_UP + MEASURED);
}

void clef__shares_close(clef__shares *s) {
    clef__balance_close(&s->balance);
    clef__free(s->speed);
    clef__free(s->sum);
}

/* ---- parts of a batch ---- */

/* Where rank `rank` begins in a batch of `all` items: as many of the parts as any rank's, or as the shares say. */
static int64_t begin_of(const clef__shares *s, int64_t all, int rank) {
    int ranks = clef_group_size(s->group);
    int64_t parts = s->parts ? s->parts : ranks;
    if (!s->sum) return clef__part_start(all, parts, rank * parts / ranks);
    if (rank == 0 || all == 0) return 0; /* a batch of no items has no shares */
    return (2 * all * s->sum[rank - 1] + s->sum[ranks - 1]) / (2 * s->sum[ranks - 1]);
}

clef__share clef__share_of_rank(const clef__shares *s, int64_t all, int rank) {
    int64_t first = begin_of(s, all, rank);
    return (clef__share){.first = first, .items = begin_of(s, all, rank + 1) - first, .all = all};
}

clef__share clef__share_in(const clef__shares *s, int64_t all) { return clef__share_of_rank(s, all, clef_group_rank(s->group)); }

bool clef__shares_fixed(const clef__shares *s) { return !s->automatic || s->balance.fixed; }

/* ---- measuring ---- */

static uint64_t built_so_far(const clef__shares *s) {
    clef_counters c = clef_counters_get(s->group->ctx);
    return c.plans + c.kernels_built;
}

static void begin(clef__shares *s) {
    s->measuring = true;
    s->steps = s->items = 0;
    s->built = built_so_far(s);
    clef__busy_begin(s->group);
}

static void give_up(clef__shares *s) {
    if (s->measuring) clef__busy_end(s->group);
    s->measuring = false;
    s->steps = 0;
}

static void tell(const clef__shares *s) {
    char text[256] = "";
    size_t used = 0;
    for (int r = 0; r < s->balance.ranks && used < sizeof text; r++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%lld", r ? ":" : "", (long long)s->balance.next[r]);
    if (clef_group_rank(s->group) == 0)
        clef__log_line(s->group->ctx, CLEF_LOG_INFO, "loader: by measured speed the ranks share batches as %s", text);
}

/* Of all ranks, with the same result on each. */
static void judge(clef__shares *s, bool *changed) {
    bool valid = true;
    for (int r = 0; r < s->balance.ranks; r++) valid &= s->speed[r].picoseconds >= 0;
    s->again = valid ? 0 : s->again + 1;
    if (!valid) return;
    *changed = clef__balance_learn(&s->balance, s->speed);
    if (*changed) tell(s);
}

/* Steps in which something is compiled are long, and are measured once more; not for ever, as there are programs that always do. */
static clef_status end(clef__shares *s, bool *changed) {
    clef_status status = clef__group_settle(s->group);
    double seconds = clef__busy_end(s->group);
    bool compiled = built_so_far(s) != s->built && s->again < AGAIN_MOST, long_enough = seconds < 9e6;
    clef__speed own = {.items = s->items, .picoseconds = long_enough ? (int64_t)(seconds * 1e12) : INT64_MAX};
    if (compiled) own.picoseconds = -1;
    s->measuring = false;
    s->steps = 0;
    if (status == CLEF_OK) status = clef_group_gather_bytes(s->group, &own, s->speed, sizeof own);
    if (status == CLEF_OK) judge(s, changed);
    return status;
}

/* A step counts in which the group did something: where gradients of several batches are added up, the last of these. */
clef_status clef__shares_measure(clef__shares *s, bool *changed) {
    if (!s->automatic || (s->balance.fixed && !s->every)) return CLEF_OK;
    bool stepped = s->begun && s->group->number != s->number;
    clef_status status = CLEF_OK;
    int64_t pause = s->again ? 0 : s->balance.fixed && s->every > WARM_UP ? s->every : WARM_UP;
    s->begun = true;
    s->steps += stepped;
    if (s->measuring && stepped && s->steps >= MEASURED) status = end(s, changed);
    else if (!s->measuring && stepped && s->steps >= pause) begin(s);
    s->number = s->group->number;
    return status;
}

void clef__shares_count(clef__shares *s, int64_t items) { s->items += items; }

void clef__shares_end_epoch(clef__shares *s) {
    if (s->automatic && s->one_epoch && s->measuring) give_up(s);
}

/* ---- other shares ---- */

clef_status clef__shares_wanted(clef__shares *s, clef_context *ctx, const int64_t *shares, int n) {
    int ranks = clef_group_size(s->group);
    int64_t sum = 0;
    bool fit = shares && n == ranks && s->group && !s->parts;
    for (int r = 0; fit && r < n; r++) {
        fit = shares[r] >= 0 && shares[r] <= SHARE_MAX;
        sum += shares[r];
    }
    if (!fit || sum == 0)
        return clef__fail(
            ctx, CLEF_INVALID,
            "loader_set_shares: %d shares do not fit; give %d whole numbers from 0 to 1000000, not all 0, to a loader "
            "with a group and without parts",
            n, ranks);
    if (!s->sum && !(s->sum = clef__calloc((size_t)n, sizeof *s->sum)))
        return clef__fail(ctx, CLEF_MEMORY, "loader_set_shares: no memory for %d shares", n);
    if (!s->automatic) return add_up(s->sum, shares, n), CLEF_OK;
    for (int r = 0; r < n; r++) s->balance.next[r] = shares[r];
    give_up(s);
    s->balance.fixed = true;
    return CLEF_OK;
}

void clef__shares_change(clef__shares *s) {
    if (!s->automatic) return;
    add_up(s->sum, s->balance.next, s->balance.ranks);
    for (int r = 0; r < s->balance.ranks; r++) s->balance.items[r] = clef__share_of_rank(s, s->balance.size, r).items;
}
