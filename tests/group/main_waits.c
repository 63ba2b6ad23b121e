/* Ranks that wait for each other, and what is sent before anybody asks for it: messages among meetings against what was sent; circles of
   waiting ranks, which end at once with a line that names all of them; lists of names that differ.  No device.  A watchdog ends the test if
   it hangs.   CLEF_SEED: of the sequences.   ctest: labels=threads plain cost=10 */
#include "host_ranks.h"

enum { STEPS = 120, WIDE = 6000 };

static uint64_t mix(uint64_t z) { /* splitmix64 */
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* ---- messages among meetings ---- */

/* What message k of a pair in a group has in element i; how many elements. */
static int32_t content(int from, int to, int half, int k, int i) { return from * 1000003 + to * 10007 + half * 77 + k * 131 + i; }
static int length(int k) { return k % 5 == 4 ? WIDE : 1 + k % 7; }

typedef struct traffic {
    int sent[2][MOST], got[2][MOST]; /* in the group of all, in the half; to and from each of its members */
} traffic;

static clef__meeting message(clef__meeting_kind kind, int peer, int32_t *x, int n, int number) {
    return (clef__meeting){
        .kind = kind, .dtype = CLEF_I32, .shape = {1, {n}}, .number = number, .peer = peer, .in = x, .out = x, .n = n};
}

static void send_one(rank *r, const clef_group *g, int half, int to, traffic *t) {
    static _Thread_local int32_t x[WIDE];
    int k = t->sent[half][to]++, n = length(k);
    for (int i = 0; i < n; i++) x[i] = content(g->rank, to, half, k, i);
    clef__meeting m = message(CLEF__MEET_SEND, to, x, n, k);
    EXPECT(meet(r, g, &m) == CLEF_OK, "send: %s", r->line);
}

static void receive_one(rank *r, const clef_group *g, int half, int from, traffic *t) {
    static _Thread_local int32_t x[WIDE];
    int k = t->got[half][from]++, n = length(k);
    clef__meeting m = message(CLEF__MEET_RECV, from, x, n, k);
    EXPECT(meet(r, g, &m) == CLEF_OK, "recv: %s", r->line);
    for (int i = 0; i < n; i++)
        EXPECT(x[i] == content(from, g->rank, half, k, i), "message %d from %d to %d in group %d: %d", k, from, g->rank, half,
               x[i]);
}

static void sum_all(rank *r, const clef_group *g, int n, int number) {
    static _Thread_local int32_t in[WIDE], out[WIDE];
    for (int i = 0; i < n; i++) in[i] = g->rank + i;
    clef__meeting m = {.kind = CLEF__MEET_ALL_REDUCE, .dtype = CLEF_I32, .shape = {1, {n}}, .number = number, .in = in, .n = n};
    m.out = out;
    EXPECT(meet(r, g, &m) == CLEF_OK, "%s", r->line);
    for (int i = 0; i < n; i++) EXPECT(out[i] == g->size * i + g->size * (g->size - 1) / 2, "a sum of %d", out[i]);
}

/* Ranks of one parity. */
static void halve(rank *r, clef_group *half, int *member, char (*name)[CLEF__RANK_NAME]) {
    *half = (clef_group){.of = &r->of, .id = 2 + (uint64_t)(r->all.rank % 2), .member = member, .name = name};
    for (int m = r->all.rank % 2; m < r->size; m += 2) {
        if (m == r->all.rank) half->rank = half->size;
        memcpy(name[half->size], r->all.name[m], CLEF__RANK_NAME);
        member[half->size++] = m;
    }
}

/* All draw the same sequence: who sends whom, in which group, and when all meet.  A message is asked for at a random later step. */
static void converse(rank *r) {
    traffic t = {0};
    int member[MOST];
    char name[MOST][CLEF__RANK_NAME];
    clef_group half;
    struct due {
        int from, to, half;
    } due[STEPS];
    int n_due = 0;
    halve(r, &half, member, name);
    for (int step = 0; step < STEPS; step++) {
        uint64_t draw = mix(r->seed * 1000 + (uint64_t)step);
        int from = (int)(draw % (uint64_t)r->size), to = (int)(draw / 64 % (uint64_t)r->size), apart = (int)(draw / 4096 % 3) == 0;
        if (apart && (from + to) % 2) apart = 0;
        int a = apart ? from / 2 : from, b = apart ? to / 2 : to;
        if (r->all.rank == from) send_one(r, apart ? &half : &r->all, apart, b, &t);
        if (r->all.rank == to) due[n_due++] = (struct due){a, b, apart};
        if (draw >> 20 & 1) sum_all(r, &r->all, draw >> 21 & 1 ? WIDE : 3, step);
        if (draw >> 22 & 1) sum_all(r, &half, 5, step);
        while (n_due && draw >> 24 & 3) { /* the oldest, or the newest of another pair */
            int at = draw >> 26 & 1 ? 0 : n_due - 1;
            for (int i = 0; i < at; i++)
                if (due[i].from == due[at].from && due[i].half == due[at].half) at = i;
            struct due d = due[at];
            memmove(due + at, due + at + 1, (size_t)(--n_due - at) * sizeof *due);
            receive_one(r, d.half ? &half : &r->all, d.half, d.from, &t);
            draw = mix(draw);
        }
    }
    for (int i = 0; i < n_due; i++) receive_one(r, due[i].half ? &half : &r->all, due[i].half, due[i].from, &t);
    EXPECT(!r->of.letter, "a message was left");
}

/* ---- messages that nobody asks for ---- */

static char unread[MOST][CLEF_TRANSPORT_LINE];

static void unasked(rank *r) {
    int32_t x[4] = {0};
    clef__meeting m = message(CLEF__MEET_SEND, 1, x, 4, 0);
    if (r->all.rank == 0) meet(r, &r->all, &m);
    sum_all(r, &r->all, 3, 0);
    *unread[r->all.rank] = 0;
    bool read = clef__letters_were_read(&r->all, unread[r->all.rank]);
    EXPECT(read == (r->all.rank != 1), "rank %d: %s", r->all.rank, unread[r->all.rank]);
    clef__letters_free(&r->of);
}

/* ---- circles ---- */

static clef_group pair_of(rank *r, int a, int b, int *member, char (*name)[CLEF__RANK_NAME]) {
    clef_group g = {
        .of = &r->of, .id = (uint64_t)(10 * a + b), .rank = r->all.rank == b, .size = 2, .member = member, .name = name};
    member[0] = a, member[1] = b;
    memcpy(name[0], r->all.name[a], CLEF__RANK_NAME);
    memcpy(name[1], r->all.name[b], CLEF__RANK_NAME);
    return g;
}

static int64_t meets_about;

/* Each rank meets the next one in a group of two, and then the one before: nobody is where he is waited for. */
static void circle(rank *r) {
    int me = r->all.rank, n = r->size, member[2][2];
    char name[2][2][CLEF__RANK_NAME];
    static float in[MOST][WIDE], out[MOST][WIDE];
    clef_group next = pair_of(r, me, (me + 1) % n, member[0], name[0]),
               before = pair_of(r, (me + n - 1) % n, me, member[1], name[1]);
    clef__meeting m = {.kind = CLEF__MEET_ALL_REDUCE, .shape = {1, {meets_about}}, .in = in[me], .out = out[me], .n = meets_about};
    if (meet(r, &next, &m) == CLEF_OK) meet(r, &before, &m);
}

/* Rank 0 waits for the message of the last rank, which waits for one of rank 1, which comes late to a meeting with rank 0. */
static void mixed_circle(rank *r) {
    int32_t x[1] = {0};
    int me = r->all.rank, last = r->size - 1, member[2];
    char name[2][CLEF__RANK_NAME];
    clef_group pair = pair_of(r, 0, 1, member, name);
    clef__meeting barrier = {.kind = CLEF__MEET_BARRIER}, from_last = message(CLEF__MEET_RECV, last, x, 1, 0),
                  from_one = message(CLEF__MEET_RECV, 1, x, 1, 0);
    if (me == 1) nanosleep(&(struct timespec){0, 50000000}, NULL);
    meet(r, me == 1 ? &pair : &r->all, me == 0 ? &from_last : me == last ? &from_one : &barrier);
}

static void expect_circle(int n, const char *const *part, int parts) {
    for (int i = 0; i < n; i++) {
        EXPECT(ranks[i].status == CLEF_GROUP && strcmp(ranks[i].line, ranks[0].line) == 0, "rank %d of %d: %s", i, n,
               ranks[i].line);
        EXPECT(strncmp(ranks[i].line, "nobody can go on: ", 18) == 0, "rank %d of %d: %s", i, n, ranks[i].line);
        for (int p = 0; p < parts; p++) EXPECT(strstr(ranks[i].line, part[p]), "no \"%s\" in: %s", part[p], ranks[i].line);
    }
}

static void all_circles(bool shares) {
    static const char *const wait[MOST] = {"rank 0 (host) waits for rank 1 (host) in all_reduce number 0 of f32",
                                           "rank 1 (host) waits for rank 2 (host) in all_reduce number 0 of f32",
                                           "rank 2 (host) waits for rank 3 (host) in all_reduce number 0 of f32",
                                           "rank 3 (host) waits for rank 4 (host) in all_reduce number 0 of f32",
                                           "rank 4 (host) waits for rank 0 (host) in all_reduce number 0 of f32"};
    static const char *const mixed[] = {
        "rank 0 (host) waits for rank 2 (host) in recv number 0 of i32 [1] from rank 2 of ranks 0,1,2",
        "rank 2 (host) waits for rank 1 (host) in recv number 0 of i32 [1] from rank 1 of ranks 0,1,2",
        "rank 1 (host) waits for rank 0 (host) in barrier number 0 of ranks 0,1"};
    for (int n = 3; n <= MOST; n++)
        for (int trial = 0; trial < 20; trial++) {
            meets_about = trial % 2 ? WIDE : 3;
            with_ranks(n, shares, 0, 0, 0, circle);
            expect_circle(n, wait, n - 1);
        }
    with_ranks(3, shares, 0, 0, 0, mixed_circle);
    expect_circle(3, mixed, 3);
}

/* ---- names ---- */

typedef struct naming {
    const char *name[2][3]; /* of rank 0 and others alike, but for the last rank */
    int n[2];
    const char *says; /* NULL: they are equal */
} naming;

static const naming namings[] = {
    {{{"a.weight", "a.bias", "b"}, {"a.weight", "a.bias", "b"}}, {3, 3}, NULL},
    {{{"a.weight", "a.bias", "b"}, {"a.weight", "a.scale", "b"}}, {3, 3}, "tensor 2: \"a.bias\" and \"a.scale\""},
    {{{"a.weight", "a.bias", "b"}, {"a.weight", "a.bias"}}, {3, 2}, "tensor 3: \"b\" and none"},
    {{{"a.weight"}, {"a.weight", "b"}}, {1, 2}, "tensor 2: none and \"b\""},
    {{{"ab", "c"}, {"a", "bc"}}, {2, 2}, "tensor 1: \"ab\" and \"a\""},
};

static bool scatters;

static void about_names(rank *r) {
    static float in[MOST][2 * MOST * WIDE], out[MOST][2 * MOST * WIDE];
    const naming *names = &namings[r->trial];
    int me = r->all.rank, which = me == r->size - 1;
    int64_t n = meets_about * r->size * names->n[which];
    EXPECT(clef__group_about(&r->all, names->name[which], names->n[which]), "no memory");
    EXPECT(clef__group_about(&r->all, names->name[which], names->n[which]) && !r->all.subjects->next,
           "equal names were saved twice");
    clef__segment whole = {.in = in[me], .out = out[me], .n = n, .shape = {1, {n}}};
    clef__meeting m = {.kind = scatters ? CLEF__MEET_REDUCE_SCATTER : CLEF__MEET_ALL_REDUCE, .shape = {1, {n}}, .n = n};
    m.in = in[me], m.out = out[me], m.subject = r->all.subject;
    if (!scatters) m.segment = &whole, m.n_segments = 1;
    meet(r, &r->all, &m);
    clef__subjects_free(&r->all);
}

static void all_names(bool shares) {
    for (int trial = 0; trial < (int)(sizeof namings / sizeof *namings); trial++)
        for (int way = 0; way < 4; way++)
            for (int n = 2; n <= 4; n++) {
                meets_about = way % 2 ? 1500 : 4;
                scatters = way / 2;
                with_ranks(n, shares, 20, 0, trial, about_names);
                for (int i = 0; i < n; i++) {
                    const char *says = namings[trial].says;
                    EXPECT(!says == !ranks[i].status, "naming %d, way %d, rank %d of %d: %s", trial, way, i, n, ranks[i].line);
                    EXPECT(!says || strstr(ranks[i].line, says), "naming %d, way %d, rank %d of %d: %s", trial, way, i, n,
                           ranks[i].line);
                    EXPECT(strcmp(ranks[i].line, ranks[0].line) == 0, "two lines: %s\n    %s", ranks[i].line, ranks[0].line);
                }
            }
}

int main(void) {
    watch_for_hangs(300);
    uint64_t seed = getenv("CLEF_SEED") ? strtoull(getenv("CLEF_SEED"), NULL, 10) : 1;
    for (int shares = 0; shares < 2; shares++) {
        for (int n = 1; n <= MOST; n++)
            for (uint64_t trial = 0; trial < 8; trial++)
                with_ranks(n, shares, 60, seed * 100 + trial * 7 + (uint64_t)n, 0, converse);
        with_ranks(3, shares, 20, 0, 0, unasked);
        EXPECT(strcmp(unread[1],
                      "rank 0 (host) does send number 0 of i32 [4] to rank 1, but rank 1 (host) never received it; each clef_send "
                      "wants a clef_recv") == 0,
               "%s", unread[1]);
        all_circles(shares);
        all_names(shares);
    }
    printf("waits: seed %llu, %d failures\n", (unsigned long long)seed, atomic_load(&failures));
    return atomic_load(&failures) != 0;
}
