/* group.c — groups: who is in one, and what their hosts do together. */
#include "graph/graph.h"
#include "group/group.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- made and gone ---- */
static void free_group(clef_group *group) {
    if (!group) return;
    clef__subjects_free(group);
    clef__free(group->member);
    clef__free(group->name);
    clef__free(group);
}

static void close_room(clef_context *ctx, void *state) {
    (void)ctx;
    clef__rank *rank = state;
    for (clef_group *g = rank->first, *next; g; g = next) {
        next = g->next;
        free_group(g);
    }
    clef__letters_free(rank);
    pthread_mutex_destroy(&rank->busy.lock);
    clef__free(rank);
}

/* Without members and names yet. */
static clef_group *new_group(clef_context *ctx, clef__rank *of, int size, const char *what) {
    clef_group *g = clef__calloc(1, sizeof *g);
    if (g) g->member = clef__calloc((size_t)size, sizeof *g->member);
    if (g) g->name = clef__calloc((size_t)size, sizeof *g->name);
    if (!g || !g->member || !g->name) {
        free_group(g);
        clef__fail(ctx, CLEF_MEMORY, "%s: no host memory for a group of %d ranks", what, size);
        return NULL;
    }
    *g = (clef_group){.of = of, .ctx = ctx, .size = size, .member = g->member, .name = g->name};
    return g;
}

static clef_group *own_group(clef_group *group) {
    group->next = group->of->first;
    return group->of->first = group;
}

void clef__rank_name(char text[CLEF__RANK_NAME], clef_context *ctx, int rank, const char *name) {
    if (name) snprintf(text, CLEF__RANK_NAME, "%.150s", name);
    else snprintf(text, CLEF__RANK_NAME, "rank %d (%.130s)", rank, clef__device_text(clef__device_at(ctx, 0)).text);
}

/* Not by a meeting, whose lines take the names. */
static clef_status gather_names(clef_group *all, const char *own) {
    const clef_transport *t = all->of->transport;
    size_t n = (size_t)all->size;
    clef_transport_failure why = {.rank = -1, .line = "no host memory for the ranks' names"};
    clef_parcel *out = clef__calloc(n, sizeof *out), *in = clef__calloc(n, sizeof *in);
    clef_status status = out && in ? CLEF_OK : CLEF_MEMORY;
    for (int r = 0; r < all->size && status == CLEF_OK; r++) {
        out[r] = (clef_parcel){r, (void *)own, CLEF__RANK_NAME};
        in[r] = (clef_parcel){r, all->name[r], CLEF__RANK_NAME};
    }
    if (status == CLEF_OK) status = t->exchange(t, out, all->size, in, all->size, all->of->timeout, &why);
    clef__free(out);
    clef__free(in);
    if (status == CLEF_OK) return status;
    char who[32] = "";
    if (why.rank >= 0) snprintf(who, sizeof who, "rank %d ", why.rank);
    return clef__fail(all->ctx, status, "group: %s%.900s", who, why.line);
}

clef_group *clef__group_all(clef_context *ctx, const clef_transport *transport, const char *name, double timeout) {
    clef__rank *rank = clef__make_room_state(ctx, CLEF__ROOM_GROUP, sizeof *rank, close_room);
    if (!rank) return NULL;
    pthread_mutex_init(&rank->busy.lock, NULL);
    rank->transport = transport;
    rank->timeout = timeout == 0 ? 300 : timeout < 0 ? 0 : timeout;
    clef_group *all = new_group(ctx, rank, transport->size, "group");
    if (!all) return NULL;
    own_group(all);
    all->rank = transport->rank;
    for (int r = 0; r < all->size; r++) all->member[r] = r;
    char own[CLEF__RANK_NAME] = "";
    clef__rank_name(own, ctx, transport->rank, name);
    clef__trace_name(ctx, own);
    return gather_names(all, own) == CLEF_OK ? all : NULL;
}

clef_status clef__group_settle(const clef_group *group) {
    clef_status status = clef__run_ordered(group->ctx);
    return status == CLEF_OK ? clef__visits_settle(group->ctx) : status;
}

/* ---- who ---- */
int clef_group_rank(const clef_group *group) { return group ? group->rank : 0; }

int clef_group_size(const clef_group *group) { return group ? group->size : 1; }

const char *clef_group_rank_name(const clef_group *group, int rank) {
    if (rank < 0 || rank >= clef_group_size(group)) return "no rank of the group";
    return group ? group->name[rank] : "rank 0";
}

/* ---- what hosts do together ---- */
/* Behind what was created before it.  After an error nothing is met any more: the others are told of it when this rank returns. */
static clef_status host_meet(clef_group *group, clef__meeting *meeting, const char *what) {
    char line[CLEF_TRANSPORT_LINE];
    clef_status status = clef_error_status(group->ctx);
    if (status != CLEF_OK) return status;
    meeting->number = (int64_t)group->number++;
    status = clef__group_settle(group);
    if (status != CLEF_OK) return status;
    status = clef__meet(group, meeting, line);
    return status == CLEF_OK ? status : clef__fail(group->ctx, status, "%s: %.1000s", what, line);
}

clef_status clef_group_barrier(clef_group *group) {
    return group ? host_meet(group, &(clef__meeting){.kind = CLEF__MEET_BARRIER}, "barrier") : CLEF_OK;
}

static clef__meeting of_bytes(clef__meeting_kind kind, const void *in, void *out, size_t n) {
    return (clef__meeting){.kind = kind, .dtype = CLEF_U8, .shape = CLEF_SHAPE((int64_t)n), .in = in, .out = out, .n = (int64_t)n};
}

static clef_context *context_of(const clef_group *group) { return group ? group->ctx : NULL; }

clef_status clef_group_broadcast_bytes(clef_group *group, int root, void *bytes, size_t n) {
    clef_context *ctx = context_of(group);
    if (n && !bytes) return clef__fail(ctx, CLEF_INVALID, "broadcast_bytes: bytes is NULL, but there are %zu", n);
    if (root < 0 || root >= clef_group_size(group))
        return clef__fail(ctx, CLEF_INVALID, "broadcast_bytes: there is no rank %d in a group of %d", root, clef_group_size(group));
    if (n > INT64_MAX) return clef__fail(ctx, CLEF_INVALID, "broadcast_bytes: %zu bytes are more than there can be", n);
    if (!group) return CLEF_OK;
    clef__meeting meeting = of_bytes(CLEF__MEET_BROADCAST, bytes, bytes, n);
    meeting.peer = root;
    return host_meet(group, &meeting, "broadcast_bytes");
}

clef_status clef_group_gather_bytes(clef_group *group, const void *own, void *all, size_t n) {
    clef_context *ctx = context_of(group);
    if (n && (!own || !all))
        return clef__fail(ctx, CLEF_INVALID, "gather_bytes: %s is NULL, but there are %zu bytes", own ? "all" : "own", n);
    if (n > (size_t)INT64_MAX / (size_t)clef_group_size(group))
        return clef__fail(ctx, CLEF_INVALID, "gather_bytes: %zu bytes of each rank are more than there can be", n);
    if (!group) {
        if (n) memmove(all, own, n);
        return CLEF_OK;
    }
    clef__meeting meeting = of_bytes(CLEF__MEET_ALL_GATHER, own, all, n);
    return host_meet(group, &meeting, "gather_bytes");
}

/* ---- split ---- */
typedef struct choice {
    int color, key, rank;
} choice;

static int by_key(const void *a, const void *b) {
    const choice *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* The same on all members, and no other group's: from what made it. */
static uint64_t group_id(const clef_group *from, uint64_t number, int color) {
    uint64_t id = 14695981039346656037u; /* FNV-1a (Fowler, Noll, Vo) of three numbers */
    const uint64_t part[] = {from->id, number, (uint64_t)color};
    for (int i = 0; i < 24; i++) id = (id ^ (part[i / 8] >> (i % 8 * 8) & 0xff)) * 1099511628211u;
    return id ? id : 1;
}

/* The n that chose one color, in their order. */
static clef_group *group_of(clef_group *from, const choice *chosen, int n, uint64_t id) {
    clef_group *g = new_group(from->ctx, from->of, n, "split");
    if (!g) return NULL;
    g->id = id;
    for (int m = 0; m < n; m++) {
        g->member[m] = from->member[chosen[m].rank];
        memcpy(g->name[m], from->name[chosen[m].rank], CLEF__RANK_NAME);
        if (chosen[m].rank == from->rank) g->rank = m;
    }
    return own_group(g);
}

clef_group *clef_group_split(clef_group *group, int color, int key) {
    if (!group) return NULL;
    choice own = {color, key, group->rank}, *all = clef__calloc((size_t)group->size, sizeof *all);
    if (!all) {
        clef__fail(group->ctx, CLEF_MEMORY, "split: no host memory for the choices of %d ranks", group->size);
        return NULL;
    }
    uint64_t number = group->number;
    clef__meeting meeting = of_bytes(CLEF__MEET_ALL_GATHER, &own, all, sizeof own);
    clef_status status = host_meet(group, &meeting, "split");
    int n = 0;
    for (int r = 0; r < group->size; r++)
        if (all[r].color == color) all[n++] = all[r];
    clef_group *made = NULL;
    if (status == CLEF_OK && color >= 0) {
        qsort(all, (size_t)n, sizeof *all, by_key);
        made = group_of(group, all, n, group_id(group, number, color));
    }
    clef__free(all);
    return made;
}
