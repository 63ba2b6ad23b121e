/* sharing.c — a meeting of members that see each other's memory: everyone takes what is its straight from where it lies. */
#include "group/meeting.h"

static const unsigned char *in_of(const clef__session *s, int member, int64_t element) {
    return (const unsigned char *)s->memory[2 * member] + (size_t)element * s->element;
}

static const unsigned char *out_of(const clef__session *s, int member, int64_t element) {
    return (const unsigned char *)s->memory[2 * member + 1] + (size_t)element * s->element;
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
    clef__combine(out_at(s, clef__landing_of(s, me)), s->addend, size, own.count, s->what->dtype, s->what->reduction, size);
}

static void copy_sums(const clef__session *s) {
    for (int m = 0; m < s->group->size; m++) {
        clef__part part = clef__part_for(s, m);
        if (m != s->group->rank) clef__put(out_at(s, part.start), out_of(s, m, part.start), (size_t)part.count * s->element);
    }
}

static void copy_parts(const clef__session *s) {
    clef__part part = clef__part_for(s, s->group->rank);
    for (int m = 0; m < s->group->size; m++) {
        if (s->what->kind == CLEF__MEET_BROADCAST && m != s->what->peer) continue;
        clef__put(out_at(s, clef__landing_of(s, m)), in_of(s, m, part.start), (size_t)part.count * s->element);
    }
}

clef_status clef__share(clef__session *s) {
    const clef_group *g = s->group;
    const clef_transport *t = g->of->transport;
    const void *own[] = {s->what->in, s->what->out};
    clef_status status = t->begin_sharing(t, g->member, g->size, g->rank, own, 2, s->memory, g->of->timeout, s->why);
    if (status != CLEF_OK) return status;
    if (clef__reduces(s->what)) combine_own(s);
    else copy_parts(s);
    meet(s);
    if (s->what->kind != CLEF__MEET_ALL_REDUCE) return CLEF_OK;
    copy_sums(s);
    meet(s); /* nobody's memory is read any more */
    return CLEF_OK;
}
