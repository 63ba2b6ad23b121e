/* place.c — offsets in one arena, on plain structs: blocks alive at the same time never overlap.

   Greedy by size: the largest block first, each at the lowest offset that is free during its whole life (Pisarchyk & Lee 2020,
   "Efficient Memory Management for Deep Neural Net Inference", found this close to optimal).

   A segment tree over time finds that offset.  Each node stands for a range of time.  A block is stored with the largest ranges
   that it lives through (`whole`), and with these and all larger ones as alive at some time of them (`any`).  What a block must
   clear is then in `any` of the few nodes that its life consists of, and in `whole` of those above.  Spans that touch are merged,
   and packed memory is one span: a search looks at few of them however many blocks there are.  Where sizes differ so much that
   the sets of all nodes are full of gaps, the set of what is alive at one moment is not: a search begins with one. */
#include "plan/schedule/schedule.h"

#include <stdlib.h>
#include <string.h>

enum { MOMENTS = 64 }; /* so many, evenly spaced */

typedef struct span {
    size_t begin, end;
} span; /* occupied; in units of the alignment, as are all offsets here */
typedef struct spans {
    span *span; /* ascending, with gaps between them */
    int n, capacity;
} spans;

typedef struct cursor {
    const spans *of;
    int next;
} cursor;

typedef struct timeline {
    spans *any, *whole;    /* nodes: 1, then the two halves of i at 2i and 2i + 1 */
    spans moment[MOMENTS]; /* all that is occupied then */
    size_t nodes;
    int last;
    uint64_t steps;                         /* looked at or moved: what placing costs on any machine */
    cursor cursor[4 * 8 * sizeof(int) + 1]; /* of one search: of each level at most two nodes in a life and two above it */
    int n_cursors;
    bool failed;
} timeline;

static int by_size(const void *a, const void *b) {
    const clef__block *x = *(clef__block *const *)a, *y = *(clef__block *const *)b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return x < y ? -1 : x > y;
}

/* The first span from `low` on that ends at `at` or later. */
static int first_reaching(timeline *t, const spans *s, int low, size_t at) {
    for (int high = s->n; low < high; t->steps++) {
        int middle = low + (high - low) / 2;
        if (s->span[middle].end < at) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* ---- moments ---- */

static int time_of(const timeline *t, int moment) { return (int)((int64_t)moment * t->last / MOMENTS); }
static bool lives_at(const clef__block *b, int time) { return b->first <= time && time <= b->last; }

/* One near the middle of a life, where most of what it meets is alive; -1: none lies in it. */
static int moment_in(const timeline *t, const clef__block *b) {
    int m = t->last ? (int)(((int64_t)b->first + b->last) / 2 * MOMENTS / t->last) : 0;
    for (int i = m; i <= m + 1 && i < MOMENTS; i++)
        if (lives_at(b, time_of(t, i))) return i;
    return -1;
}

/* ---- searching ---- */

/* The sets of spans that a block must clear: `any` of the nodes that its life consists of, `whole` of those above. */
static void gather(timeline *t, int node, int from, int to, const clef__block *b) {
    if (to < b->first || b->last < from) return;
    bool covered = b->first <= from && to <= b->last;
    const spans *s = covered ? &t->any[node] : &t->whole[node];
    if (s->n) t->cursor[t->n_cursors++] = (cursor){s, 0};
    if (covered) return;
    int middle = from + (to - from) / 2;
    gather(t, 2 * node, from, middle, b);
    gather(t, 2 * node + 1, middle + 1, to, b);
}

/* The lowest offset from `at` on where `size` units are free of one set. */
static size_t clear_of(timeline *t, cursor *c, size_t at, size_t size) {
    const span *s = c->of->span;
    int n = c->of->n;
    t->steps++;
    if (c->next < n && s[c->next].end <= at) c->next = first_reaching(t, c->of, c->next + 1, at + 1);
    for (; c->next < n && s[c->next].begin < at + size; c->next++) {
        at = s[c->next].end;
        t->steps++;
    }
    return at;
}

/* Round the sets until none of them is in the way. */
static size_t lowest_gap(timeline *t, const clef__block *b, size_t size) {
    size_t at = 0;
    t->n_cursors = 0;
    int moment = moment_in(t, b);
    if (moment >= 0) t->cursor[t->n_cursors++] = (cursor){&t->moment[moment], 0};
    gather(t, 1, 0, t->last, b);
    for (int i = 0, clear = 0; clear < t->n_cursors; i = i + 1 < t->n_cursors ? i + 1 : 0) {
        size_t after = clear_of(t, &t->cursor[i], at, size);
        clear = after == at ? clear + 1 : 1;
        at = after;
    }
    return at;
}

/* ---- noting ---- */

static void occupy(timeline *t, spans *s, span new) {
    int low = first_reaching(t, s, 0, new.begin), high = low;
    for (; high < s->n && s->span[high].begin <= new.end; high++) {
        if (s->span[high].begin < new.begin) new.begin = s->span[high].begin;
        if (s->span[high].end > new.end) new.end = s->span[high].end;
    }
    if (!clef__grow(&s->span, s->n, &s->capacity, sizeof new)) {
        t->failed = true;
        return;
    }
    if (high != low + 1) {
        memmove(&s->span[low + 1], &s->span[high], (size_t)(s->n - high) * sizeof new);
        t->steps += (uint64_t)(s->n - high);
    }
    s->span[low] = new;
    s->n += 1 - (high - low);
}

static void occupy_in(timeline *t, int node, int from, int to, const clef__block *b, span s) {
    if (to < b->first || b->last < from) return;
    occupy(t, &t->any[node], s);
    if (from == to) return;
    if (b->first <= from && to <= b->last) {
        occupy(t, &t->whole[node], s);
        return;
    }
    int middle = from + (to - from) / 2;
    occupy_in(t, 2 * node, from, middle, b, s);
    occupy_in(t, 2 * node + 1, middle + 1, to, b, s);
}

static void note(timeline *t, const clef__block *b, span s) {
    occupy_in(t, 1, 0, t->last, b, s);
    for (int m = 0; m < MOMENTS; m++)
        if (lives_at(b, time_of(t, m))) occupy(t, &t->moment[m], s);
}

/* ---- the whole ---- */

static bool timeline_open(timeline *t, const clef__block *block, int n) {
    for (int i = 0; i < n; i++)
        if (block[i].last > t->last) t->last = block[i].last;
    for (t->nodes = 2; t->nodes / 2 <= (size_t)t->last;) t->nodes *= 2;
    t->any = clef__calloc(t->nodes, sizeof *t->any);
    t->whole = clef__calloc(t->nodes, sizeof *t->whole);
    return t->any && t->whole;
}

static void timeline_close(timeline *t) {
    for (int m = 0; m < MOMENTS; m++) clef__free(t->moment[m].span);
    for (size_t i = 0; i < t->nodes; i++) {
        if (t->any) clef__free(t->any[i].span);
        if (t->whole) clef__free(t->whole[i].span);
    }
    clef__free(t->any);
    clef__free(t->whole);
}

static size_t units_of(size_t bytes, size_t alignment) { return bytes / alignment + (bytes % alignment != 0); }

/* Could all of them lie behind each other?  Then no offset overflows. */
static bool is_addressable(const clef__block *block, int n, size_t alignment) {
    size_t units = 0;
    for (int i = 0; i < n; i++) {
        size_t more = units_of(block[i].bytes, alignment);
        if (more > SIZE_MAX / 2 / alignment - units) return false;
        units += more;
    }
    return true;
}

size_t clef__place(clef__block *block, int n, size_t alignment, uint64_t *steps) {
    timeline t = {0};
    clef__block **sorted = clef__alloc((size_t)(n + 1) * sizeof *sorted);
    size_t total = 0;
    bool ok = sorted && is_addressable(block, n, alignment) && timeline_open(&t, block, n);
    for (int i = 0; ok && i < n; i++) sorted[i] = &block[i];
    if (ok) qsort(sorted, (size_t)n, sizeof *sorted, by_size);
    for (int i = 0; ok && i < n; i++) {
        size_t size = units_of(sorted[i]->bytes, alignment), at = lowest_gap(&t, sorted[i], size);
        sorted[i]->offset = at * alignment;
        if (size) note(&t, sorted[i], (span){at, at + size});
        if (at + size > total) total = at + size;
        ok = !t.failed;
    }
    if (steps) *steps = t.steps;
    timeline_close(&t);
    clef__free(sorted);
    return ok ? total * alignment : SIZE_MAX;
}

/* One walk over time: what begins is added, what has ended is taken away (numbers wrap, their sums do not). */
size_t clef__place_lower_bound(const clef__block *block, int n) {
    int end = 0;
    for (int i = 0; i < n; i++)
        if (block[i].last >= end) end = block[i].last + 1;
    size_t *change = clef__calloc((size_t)end + 1, sizeof *change), alive = 0, most = 0;
    if (!change) return SIZE_MAX;
    for (int i = 0; i < n; i++) {
        change[block[i].first] += block[i].bytes;
        change[block[i].last + 1] -= block[i].bytes;
    }
    for (int t = 0; t < end; t++) {
        alive += change[t];
        if (alive > most) most = alive;
    }
    clef__free(change);
    return most;
}
