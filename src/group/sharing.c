/* sharing.c — a meeting of members that see each other's memory: everyone takes what is its straight from where it lies. */
#include "group/meeting.h"

static const unsigned char *in_of(const clef__session *s, int member, int64_t element) {
    return (const unsigned char *)s->memory[2 * member] + (size_t)element * s->element;
}

static unsigned char *out_at(const clef__session *s, int64_t element) {
    return (unsigned char *)s->what->out + (size_t)element * s->element;
}

static void meet(const clef__session *s) {
    const clef_transport *t = s->group->of->transport;
    t->meet(t, s->group->member, s->group->size, s->group->rank);
}

static void combine_own(clef__session *s) {
    int me = s->group->rank, size = s->group->size;
    clef__part own = clef__part_for(s, me);
    for (int m = 0; m < size; m++) s->addend[m] = in_of(s, m, own.start);
    clef__combine(out_at(s, clef__landing_of(s, me)), s->addend, NULL, size, own.count, s->what->dtype, s->what->reduction, size);
}

static void copy_parts(const clef__session *s) {
    clef__part part = clef__part_for(s, s->group->rank);
    for (int m = 0; m < s->group->size; m++) {
        if (s->what->kind == CLEF__MEET_BROADCAST && m != s->what->peer) continue;
        clef__put(out_at(s, clef__landing_of(s, m)), in_of(s, m, part.start), (size_t)part.count * s->element);
    }
}

/* ---- all_reduce, whose elements lie in segments ---- */

static const clef__segment *segments_of(const clef__session *s, int member) { return s->memory[2 * member]; }

static size_t bytes_of(const clef__session *s, int64_t elements) { return (size_t)elements * s->element; }

static void combine_segments(clef__session *s) {
    int me = s->group->rank, size = s->group->size;
    const clef__segment *own = segments_of(s, me);
    clef__part part = clef__part_for(s, me), piece;
    for (int64_t i = 0, at = 0; at < s->what->n; at += own[i++].n) {
        if (!clef__part_within(part, at, own[i].n, &piece)) continue;
        for (int m = 0; m < size; m++) s->addend[m] = (const unsigned char *)segments_of(s, m)[i].in + bytes_of(s, piece.start);
        clef__combine((unsigned char *)own[i].out + bytes_of(s, piece.start), s->addend, s->weight, size, piece.count,
                      s->what->dtype, s->what->reduction, size);
    }
}

static void copy_sums(const clef__session *s, int member) {
    const clef__segment *own = segments_of(s, s->group->rank), *theirs = segments_of(s, member);
    clef__part part = clef__part_for(s, member), piece;
    for (int64_t i = 0, at = 0; at < s->what->n; at += own[i++].n)
        if (clef__part_within(part, at, own[i].n, &piece))
            clef__put((unsigned char *)own[i].out + bytes_of(s, piece.start),
                      (const unsigned char *)theirs[i].out + bytes_of(s, piece.start), bytes_of(s, piece.count));
}

static void reduce_all(clef__session *s) {
    combine_segments(s);
    meet(s);
    for (int m = 0; m < s->group->size; m++)
        if (m != s->group->rank) copy_sums(s, m);
}

clef_status clef__share(clef__session *s) {
    const clef_group *g = s->group;
    const clef_transport *t = g->of->transport;
    const void *own[] = {s->what->in, s->what->out};
    bool all = s->what->kind == CLEF__MEET_ALL_REDUCE;
    s->whole = (clef__segment){.in = s->what->in, .out = s->what->out, .n = s->what->n};
    if (all) own[0] = s->what->segment ? s->what->segment : &s->whole;
    clef_status status = t->begin_sharing(t, g->member, g->size, g->rank, own, 2, s->memory, g->of->timeout, s->why);
    if (status != CLEF_OK) return status;
    if (all) reduce_all(s);
    else if (clef__reduces(s->what)) combine_own(s);
    else copy_parts(s);
    meet(s); /* nobody's memory is read any more */
    return CLEF_OK;
}
