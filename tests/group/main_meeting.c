/* Meetings of ranks that are threads, without a device: random sequences of them against what they should give, by shared memory and by
   messages; splits of the ranks; programs that differ; failures of one rank at each step.  A watchdog ends the test if it hangs.
   CLEF_SEED: of the sequences.   ctest: labels=threads plain cost=20 */
#include "host_ranks.h"
#include <math.h>

enum { LARGE = 40007, BIG = 300007 /* several pieces of an all_reduce by messages (src/group/pieces.c), for up to four ranks */ };

static uint64_t mix(uint64_t z) { /* splitmix64 */
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* ---- random sequences ---- */
/* Element i of what a rank brings to a meeting. */
static int32_t brings(uint64_t at, int member, int64_t i) {
    return (int32_t)(mix(at ^ ((uint64_t)member << 48) ^ (uint64_t)i) % 2001) - 1000;
}

static int32_t reduced(uint64_t at, int size, int64_t i, clef_group_reduction how) {
    int32_t r = brings(at, 0, i);
    for (int m = 1; m < size; m++) {
        int32_t x = brings(at, m, i);
        r = how == CLEF_GROUP_MIN   ? (x < r ? x : r)
            : how == CLEF_GROUP_MAX ? (x > r ? x : r)
            : how == CLEF_GROUP_SUM ? r + x
                                    : (int32_t)((uint32_t)r * (uint32_t)x);
    }
    return r;
}

static int32_t wanted(const clef__meeting *m, const clef_group *g, uint64_t at, int64_t i) {
    int64_t part = m->n / g->size;
    switch (m->kind) {
    case CLEF__MEET_ALL_REDUCE: return reduced(at, g->size, i, m->reduction);
    case CLEF__MEET_REDUCE_SCATTER: return reduced(at, g->size, g->rank * part + i, m->reduction);
    case CLEF__MEET_ALL_GATHER: return brings(at, (int)(i / m->n), i % m->n);
    case CLEF__MEET_BROADCAST: return brings(at, m->peer, i);
    default: return brings(at, (int)(i / part), g->rank * part + i % part);
    }
}

static int64_t out_elements(const clef__meeting *m, const clef_group *g) {
    if (m->kind == CLEF__MEET_BARRIER) return 0;
    return m->kind == CLEF__MEET_REDUCE_SCATTER ? m->n / g->size : m->kind == CLEF__MEET_ALL_GATHER ? m->n * g->size : m->n;
}

/* Where element i of a row-major [2,3,n] lies when its dimensions lie in this order in memory. */
static int64_t place_in(const clef__segment *s, int64_t i) {
    if (s->shape.rank == 1) return i;
    int64_t at[3] = {i / (s->shape.dim[1] * s->shape.dim[2]), i / s->shape.dim[2] % s->shape.dim[1], i % s->shape.dim[2]},
            place = 0;
    for (int d = 0; d < 3; d++) place = place * s->shape.dim[s->order[d]] + at[s->order[d]];
    return place;
}

/* All ranks cut in the same shapes; how these lie in memory may be each rank's own matter. */
static void shape_segment(clef__segment *s, uint64_t layout) {
    static const int orders[4][3] = {{0, 1, 2}, {2, 0, 1}, {1, 2, 0}, {2, 1, 0}};
    bool cut = s->n > 0 && s->n % 6 == 0;
    s->shape = cut ? (clef_shape){3, {2, 3, s->n / 6}} : (clef_shape){1, {s->n}};
    memset(s->order, 0, sizeof s->order);
    for (int d = 0; cut && d < 3; d++) s->order[d] = orders[layout % 4][d];
}

/* The same with the elements in segments, which lie in memory the other way round; each rank cuts where all do. */
static clef_status meet_in_segments(rank *r, const clef_group *g, clef__meeting *m, uint64_t at) {
    enum { MOST = 7 };
    clef__segment segment[MOST];
    int n = 2 + (int)(at % (MOST - 1));
    int32_t *in = malloc(((size_t)m->n + 1) * 4), *out = malloc(((size_t)m->n + 1) * 4);
    uint64_t layout = mix(at + 7) % 2 ? mix(at + 8) : mix(at + 9 + (uint64_t)g->rank);
    for (int64_t i = 0, from = 0; i < n; from += segment[i++].n) {
        int64_t count = i == n - 1 ? m->n - from : (int64_t)(mix(at + (uint64_t)i) % (uint64_t)(m->n - from + 1));
        if (count > 6 && mix(at + 99 + (uint64_t)i) % 2) count -= count % 6;
        if (i == n - 1) count = m->n - from;
        segment[i] = (clef__segment){.in = in + m->n - from - count, .out = out + m->n - from - count, .n = count};
        shape_segment(&segment[i], layout);
        for (int64_t k = 0; k < count; k++) in[m->n - from - count + place_in(&segment[i], k)] = ((const int32_t *)m->in)[from + k];
    }
    clef__meeting cut = *m;
    cut.in = cut.out = NULL;
    cut.segment = segment;
    cut.n_segments = n;
    clef_status status = meet(r, g, &cut);
    for (int64_t i = 0, from = 0; i < n; from += segment[i++].n)
        for (int64_t k = 0; k < segment[i].n; k++)
            ((int32_t *)m->out)[from + k] = ((const int32_t *)segment[i].out)[place_in(&segment[i], k)];
    free(in);
    free(out);
    return status;
}

static bool meet_random(rank *r, clef_group *g, uint64_t at) {
    static const int64_t sizes[] = {0, 1, 2, 3, 5, 17, 100, 4095, 4096, 4099, 8000, LARGE, BIG};
    clef__meeting m = {.kind = (clef__meeting_kind)(at % 6), .dtype = CLEF_I32, .number = (int64_t)g->number++};
    m.reduction = (clef_group_reduction[]){CLEF_GROUP_SUM, CLEF_GROUP_PRODUCT, CLEF_GROUP_MIN, CLEF_GROUP_MAX}[at / 6 % 4];
    m.n = m.kind == CLEF__MEET_BARRIER ? 0 : sizes[at / 24 % 13];
    m.peer = (int)(at / 312 % (uint64_t)g->size);
    if (m.kind == CLEF__MEET_REDUCE_SCATTER || m.kind == CLEF__MEET_ALL_TO_ALL) m.n -= m.n % g->size;
    m.shape = (clef_shape){1, {m.n}};
    int64_t n_out = out_elements(&m, g);
    int32_t *in = malloc(((size_t)m.n + 1) * 4), *out = malloc(((size_t)n_out + 1) * 4);
    for (int64_t i = 0; i < m.n; i++) in[i] = brings(at, g->rank, i);
    in[m.n] = out[n_out] = 12345;
    m.in = in;
    m.out = out;
    bool cut = m.kind == CLEF__MEET_ALL_REDUCE && mix(at) % 2;
    bool ok = (cut ? meet_in_segments(r, g, &m, at) : meet(r, g, &m)) == CLEF_OK;
    EXPECT(ok, "%s", r->line);
    for (int64_t i = 0; ok && i < n_out; i++) ok = out[i] == wanted(&m, g, at, i);
    EXPECT(ok, "kind %d, reduction %d, rank %d of %d, %lld elements", (int)m.kind, (int)m.reduction, g->rank, g->size,
           (long long)m.n);
    EXPECT(out[n_out] == 12345, "kind %d wrote behind its %lld elements", (int)m.kind, (long long)n_out);
    for (int64_t i = 0; ok && i < m.n; i++) EXPECT(in[i] == brings(at, g->rank, i), "kind %d changed its input", (int)m.kind);
    memset(in, 0x77, (size_t)m.n * 4); /* the meeting is over: nobody may look at it any more */
    free(in);
    free(out);
    return ok;
}

/* A group of the ranks r with r % 2 like this one's, in reversed order. */
static void halve(rank *r, clef_group *half, int *member, char (*name)[CLEF__RANK_NAME]) {
    *half = (clef_group){.of = &r->of, .id = 77 + (uint64_t)(r->all.rank % 2), .member = member, .name = name};
    for (int m = r->size - 1; m >= 0; m--) {
        if (m % 2 != r->all.rank % 2) continue;
        if (m == r->all.rank) half->rank = half->size;
        memcpy(name[half->size], r->name[m], CLEF__RANK_NAME);
        member[half->size++] = m;
    }
}

static void sequence(rank *r) {
    int member[MOST];
    char name[MOST][CLEF__RANK_NAME];
    clef_group half;
    halve(r, &half, member, name);
    uint64_t at = mix(r->seed);
    for (int k = 0; k < 60; k++) {
        at = mix(at);
        bool halves = at % 3 == 0;
        if (!meet_random(r, halves ? &half : &r->all, halves ? mix(at + (uint64_t)half.id) : mix(at))) break;
    }
}

/* Each sends to all, itself too, before it receives. */
static void messages(rank *r) {
    for (int to = 0; to < r->size; to++)
        for (int k = 0; k < 3; k++) {
            int32_t x[2] = {r->all.rank * 100 + to, k};
            clef__meeting m = {.kind = CLEF__MEET_SEND, .dtype = CLEF_I32, .shape = {1, {2}}, .peer = to, .in = x, .n = 2};
            EXPECT(meet(r, &r->all, &m) == CLEF_OK, "%s", r->line);
        }
    for (int from = r->size - 1; from >= 0; from--)
        for (int k = 0; k < 3; k++) {
            int32_t x[2] = {0};
            clef__meeting m = {.kind = CLEF__MEET_RECV, .dtype = CLEF_I32, .shape = {1, {2}}, .peer = from, .out = x, .n = 2};
            EXPECT(meet(r, &r->all, &m) == CLEF_OK, "%s", r->line);
            EXPECT(x[0] == from * 100 + r->all.rank && x[1] == k, "message %d of rank %d: %d %d", k, from, x[0], x[1]);
        }
}

/* ---- the same bits by both ways ---- */
static float sums[2][MOST][BIG];
static int way;
static uint64_t cuts; /* 0: in one; else segments of this number (meet_in_segments), weighted */

static void sum_floats(rank *r) {
    float *in = malloc(sizeof sums[0][0]);
    for (int i = 0; i < BIG; i++) in[i] = (float)brings(r->seed, r->all.rank, i) * 1.1f + 1e-3f;
    clef__meeting m = {.kind = CLEF__MEET_ALL_REDUCE, .reduction = CLEF_GROUP_MEAN, .shape = {1, {BIG}}, .in = in, .n = BIG};
    m.out = sums[way][r->all.rank];
    m.weighted = cuts != 0;
    m.weight = cuts ? 1 + 0.25 * r->all.rank : 1;
    EXPECT((cuts ? meet_in_segments(r, &r->all, &m, cuts) : meet(r, &r->all, &m)) == CLEF_OK, "%s", r->line);
    free(in);
}

static bool is_weighted_mean(int n, int i) {
    double sum = 0, size = 0;
    for (int r = 0; r < n; r++) {
        double x = (double)((float)brings(5, r, i) * 1.1f + 1e-3f) * (cuts ? 1 + 0.25 * r : 1);
        sum += x;
        size += fabs(x);
    }
    return fabs(sums[0][0][i] - sum / n) <= 1e-6 * size / n;
}

static void same_bits(int n, uint64_t segments) {
    cuts = segments;
    for (way = 0; way < 2; way++) with_ranks(n, way == 0, 0, 5, 0, sum_floats);
    for (int r = 0; r < n; r++)
        for (way = 0; way < 2; way++)
            EXPECT(memcmp(sums[way][r], sums[0][0], sizeof sums[0][0]) == 0, "rank %d of %d: other bits, way %d, segments %llu", r,
                   n, way, (unsigned long long)cuts);
    int right = 0;
    for (int i = 0; i < BIG; i++) right += is_weighted_mean(n, i);
    EXPECT(right == BIG, "%d of %d means of %d ranks are right, segments %llu", right, BIG, n, (unsigned long long)cuts);
}

/* ---- programs that differ ---- */
static char buffer[MOST][2][1 << 18];

static clef__meeting usual(const rank *r, clef__meeting_kind kind, int64_t n) {
    return (clef__meeting){
        .kind = kind, .shape = {2, {n / 4, 4}}, .number = 7, .in = buffer[r->all.rank][0], .out = buffer[r->all.rank][1], .n = n};
}

typedef struct difference {
    const char *line; /* of ranks 0 and 1 */
    void (*change)(clef__meeting *m, clef_group *g);
} difference;

static void kind_and_shape(clef__meeting *m, clef_group *g) {
    (void)g;
    m->kind = CLEF__MEET_BROADCAST;
    m->shape = (clef_shape){1, {m->n}};
}
static void number(clef__meeting *m, clef_group *g) { (void)g, m->number = 8; }
static void reduction(clef__meeting *m, clef_group *g) { (void)g, m->reduction = CLEF_GROUP_MAX; }
static void dtype(clef__meeting *m, clef_group *g) { (void)g, m->dtype = CLEF_I32; }
static void shape(clef__meeting *m, clef_group *g) { (void)g, m->shape = (clef_shape){1, {m->n}}; }
static void elements(clef__meeting *m, clef_group *g) { (void)g, m->n -= 4; }
static void names(clef__meeting *m, clef_group *g) {
    static const clef__subject other = {.hash = 99};
    (void)g, m->subject = &other;
}
static void barrier(clef__meeting *m, clef_group *g) { (void)g, m->kind = CLEF__MEET_BARRIER; }
static void receives(clef__meeting *m, clef_group *g) {
    (void)g;
    m->kind = CLEF__MEET_RECV;
    m->peer = 0;
}
static void group(clef__meeting *m, clef_group *g) { (void)m, g->id = 0xabcd; }

static const difference differences[] = {
    {"rank 0 (host) does all_reduce number 7 of f32 [N,4], rank 1 (host) does broadcast number 7 of f32 [M] from rank 0",
     kind_and_shape},
    {"rank 0 (host) does all_reduce number 7 of f32 [N,4], rank 1 (host) does all_reduce number 8 of f32 [N,4]", number},
    {"rank 0 (host) does all_reduce (sum) number 7 of f32 [N,4], rank 1 (host) does all_reduce (max) number 7 of f32 [N,4]",
     reduction},
    {"rank 0 (host) does all_reduce number 7 of f32 [N,4], rank 1 (host) does all_reduce number 7 of i32 [N,4]", dtype},
    {"rank 0 (host) does all_reduce number 7 of f32 [N,4], rank 1 (host) does all_reduce number 7 of f32 [M]", shape},
    {"rank 0 (host) does all_reduce number 7 of f32 [N,4] (M elements), rank 1 (host) does all_reduce number 7 of f32 [N,4] (L "
     "elements)",
     elements},
    {"rank 0 (host) does all_reduce number 7 of f32 [N,4], rank 1 (host) does all_reduce number 7 of f32 [N,4], of things that are "
     "named "
     "differently",
     names},
    {"rank 0 (host) does all_reduce number 7 of f32 [N,4], rank 1 (host) does barrier number 7", barrier},
    {"rank 0 (host) does all_reduce number 7 of f32 [N,4], rank 1 (host) does recv number 7 of f32 [N,4] from rank 0", receives},
    {"rank 0 (host) does all_reduce number 7 of f32 [N,4] in the group 0000 of ranks ALL, "
     "rank 1 (host) does all_reduce number 7 of f32 [N,4] in the group abcd of ranks ALL",
     group},
};
enum { DIFFERENCES = sizeof differences / sizeof differences[0] };

/* The line with N, M, L and ALL filled in. */
static void fill_in(char *to, const char *from, int64_t n, int size) {
    for (*to = 0; *from; from++) {
        char *end = to + strlen(to);
        if (strncmp(from, "ALL", 3) == 0) {
            for (int m = 0; m < size; m++) end += sprintf(end, "%s%d", m ? "," : "", m);
            from += 2;
        } else if (*from == 'N') sprintf(end, "%lld", (long long)n / 4);
        else if (*from == 'M') sprintf(end, "%lld", (long long)n);
        else if (*from == 'L') sprintf(end, "%lld", (long long)n - 4);
        else end[0] = *from, end[1] = 0;
    }
}

static int64_t differing_size;

static void differ(rank *r) {
    clef__meeting m = usual(r, CLEF__MEET_ALL_REDUCE, differing_size), next = m;
    clef_group g = r->all;
    if (r->all.rank == 1) differences[r->trial].change(&m, &g);
    meet(r, &g, &m);
    char first[CLEF_TRANSPORT_LINE];
    snprintf(first, sizeof first, "%s", r->line);
    EXPECT(meet(r, &r->all, &next) == CLEF_GROUP && strcmp(first, r->line) == 0,
           "difference %d, rank %d of %d: first %s\n    later %s", r->trial, r->all.rank, r->size, first, r->line);
}

static void all_differences(int n, bool shares) {
    for (int d = 0; d < DIFFERENCES; d++)
        for (differing_size = 16; differing_size <= 8000; differing_size += 7984) {
            char line[CLEF_TRANSPORT_LINE];
            fill_in(line, differences[d].line, differing_size, n);
            with_ranks(n, shares, 20, 0, d, differ);
            for (int i = 0; i < n; i++)
                EXPECT(ranks[i].status == CLEF_GROUP && strcmp(ranks[i].line, line) == 0, "rank %d of %d: %s\n    wanted: %s", i, n,
                       ranks[i].line, line);
        }
}

/* ---- a message that is not what was asked for ---- */
static void other_message(rank *r) {
    clef__meeting m = usual(r, r->all.rank ? CLEF__MEET_RECV : CLEF__MEET_SEND, 16);
    m.peer = !r->all.rank;
    if (r->all.rank) m.dtype = CLEF_F64;
    if (meet(r, &r->all, &m) != CLEF_OK) return;
    clef__meeting after = usual(r, CLEF__MEET_BARRIER, 0);
    meet(r, &r->all, &after);
}

/* ---- failures at each step ---- */
/* Rank 1 of three fails, or ends, before meeting `trial`; the others find out in it, or in a later one that has to do with it. */
static bool fails_with_a_line;

static void stops(rank *r) {
    for (int k = 0; k < 6; k++) {
        if (r->all.rank == 1 && k == r->trial) {
            r->transport.fail(&r->transport, fails_with_a_line ? "rank 1 (host): a failure of its own" : NULL);
            return;
        }
        clef__meeting m = usual(r, (clef__meeting_kind)k, 8004);
        if (k == CLEF__MEET_BARRIER) m.n = 0;
        m.number = k;
        if (meet(r, &r->all, &m) != CLEF_OK) return;
    }
}

static void all_stops(bool shares) {
    for (int k = 0; k < 6; k++)
        for (int with = 0; with < 2; with++) {
            static const char *const kind[] = {"barrier", "all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all"};
            char waited[2][128];
            for (int i = 0; i < 2; i++)
                snprintf(waited[i], sizeof waited[i], "rank 1 (host) returned while rank %d (host) waited for %s number %d", 2 * i,
                         kind[k], k);
            fails_with_a_line = with;
            with_ranks(3, shares, 20, 0, k, stops);
            for (int i = 0; i < 3; i += 2) {
                bool told = with ? strcmp(ranks[i].line, "rank 1 (host): a failure of its own") == 0
                                 : strstr(ranks[i].line, waited[0]) || strstr(ranks[i].line, waited[1]);
                EXPECT(ranks[i].status == CLEF_GROUP && told, "rank %d, step %d: %s", i, k, ranks[i].line);
            }
        }
}

/* A rank of one half fails; the other half, which has nothing to do with it, is ended too. */
static void other_half_fails(rank *r) {
    int member[MOST];
    char name[MOST][CLEF__RANK_NAME];
    clef_group half;
    halve(r, &half, member, name);
    if (r->all.rank == 1) {
        r->transport.fail(&r->transport, "rank 1 (host): alone");
        return;
    }
    do {
        clef__meeting m = usual(r, CLEF__MEET_ALL_REDUCE, 8000);
        m.number = (int64_t)half.number++;
        meet(r, &half, &m);
    } while (r->status == CLEF_OK);
}

static void comes_late(rank *r) {
    if (r->all.rank == 1) return;
    clef__meeting m = usual(r, CLEF__MEET_ALL_REDUCE, 8000);
    meet(r, &r->all, &m);
}

/* Nobody is late as long as something comes. */
static void slow(rank *r) {
    for (int k = 0; k < 4; k++) {
        if (r->all.rank == 0) nanosleep(&(struct timespec){0, 60000000}, NULL);
        clef__meeting m = usual(r, CLEF__MEET_ALL_REDUCE, 8000);
        EXPECT(meet(r, &r->all, &m) == CLEF_OK, "%s", r->line);
    }
}

/* ---- out of memory at each allocation ---- */
static atomic_long countdown;
static void *counted(void *user, size_t n) {
    (void)user;
    return atomic_fetch_sub(&countdown, 1) == 0 ? NULL : malloc(n);
}
static void *counted_again(void *user, void *p, size_t n) {
    (void)user;
    return atomic_fetch_sub(&countdown, 1) == 0 ? NULL : realloc(p, n);
}
static void counted_free(void *user, void *p) { (void)user, free(p); }

static void without_memory(bool shares) {
    clef_set_allocator(&(clef_allocator){counted, counted_again, counted_free, NULL});
    for (long at = 0, again = 1; again && at < 400; at++) {
        atomic_store(&countdown, 1L << 40);
        clef__hub *hub = open_ranks(3, shares, 20, 0, 6);
        atomic_store(&countdown, at);
        run_all(3, stops);
        again = atomic_load(&countdown) < 0;
        int without = 0;
        for (int i = 0; i < 3 && again; i++) {
            without += ranks[i].status == CLEF_MEMORY;
            /* Who had all of the last meeting when another failed in it has finished. */
            EXPECT(ranks[i].status == CLEF_OK || strstr(ranks[i].line, "no host memory for"), "allocation %ld: rank %d: %s", at, i,
                   ranks[i].line);
            EXPECT(ranks[i].status != CLEF_OK || at > 60, "allocation %ld failed, and rank %d saw nothing", at, i);
        }
        EXPECT(!again || without == 1, "allocation %ld: %d ranks without memory", at, without);
        clef__hub_close(hub);
    }
    clef_set_allocator(NULL);
}

int main(void) {
    watch_for_hangs(400);
    uint64_t seed = getenv("CLEF_SEED") ? strtoull(getenv("CLEF_SEED"), NULL, 10) : 1;
    for (int shares = 0; shares < 2; shares++) {
        for (int n = 1; n <= MOST; n++) {
            with_ranks(n, shares, 0, seed * 10 + (uint64_t)n, 0, sequence);
            with_ranks(n, shares, 0, 0, 0, messages);
        }
        for (int n = 2; n <= 4; n++) all_differences(n, shares);
        with_ranks(2, shares, 20, 0, 0, other_message);
        expect_on_all(
            2, CLEF_GROUP,
            "rank 0 (host) does send number 7 of f32 [4,4] to rank 1, rank 1 (host) does recv number 7 of f64 [4,4] from rank 0");
        all_stops(shares);
        with_ranks(5, shares, 20, 0, 0, other_half_fails);
        for (int i = 0; i < 5; i += i ? 1 : 2) EXPECT(strcmp(ranks[i].line, "rank 1 (host): alone") == 0, "%s", ranks[i].line);
        with_ranks(2, shares, 0.05, 0, 0, comes_late);
        EXPECT(strcmp(ranks[0].line,
                      "rank 1 (host) sent nothing for 0.05 s while rank 0 (host) waited for all_reduce number 7 of f32 "
                      "[2000,4]") == 0,
               "%s", ranks[0].line);
        with_ranks(2, shares, 20, 0, 0, slow);
        without_memory(shares);
    }
    for (int n = 1; n <= MOST; n++)
        for (uint64_t segments = 0; segments < 9; segments++) same_bits(n, segments); /* which lie alike on all ranks, or not */
    printf("meeting: seed %llu, %d failures\n", (unsigned long long)seed, atomic_load(&failures));
    return atomic_load(&failures) != 0;
}
