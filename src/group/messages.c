/* messages.c — a meeting by messages: everyone sends each other member what is its, and combines what comes.  (An all_reduce of many
   numbers: pieces.c.) */
#include "group/meeting.h"

static const unsigned char *in_at(const clef__session *s, int64_t element) {
    return s->what->n ? (const unsigned char *)s->what->in + (size_t)element * s->element : NULL;
}

static unsigned char *out_at(const clef__session *s, int64_t element) {
    return s->what->out ? (unsigned char *)s->what->out + (size_t)element * s->element : NULL;
}

static bool sends(const clef__session *s, int member) {
    return s->what->kind != CLEF__MEET_BARRIER && (s->what->kind != CLEF__MEET_BROADCAST || member == s->what->peer);
}

void clef__messages_send(clef__session *s) {
    int me = s->group->rank;
    for (int m = 0; m < s->group->size; m++) {
        if (m == me || !sends(s, me)) continue;
        clef__part part = clef__part_for(s, m);
        clef__send_to(s, m, in_at(s, part.start), (size_t)part.count * s->element);
    }
}

/* Combined in the order of the ranks, whatever came first. */
static clef_status receive_and_combine(clef__session *s) {
    int me = s->group->rank, size = s->group->size;
    clef__part own = clef__part_for(s, me);
    size_t bytes = (size_t)own.count * s->element;
    for (int m = 0, next = 0; m < size; m++) {
        s->addend[m] = m == me ? in_at(s, own.start) : s->scratch + (size_t)next++ * bytes;
        if (m != me) clef__receive_from(s, m, (void *)s->addend[m], bytes);
    }
    clef_status status = clef__session_exchange(s);
    if (status == CLEF_OK)
        clef__combine(out_at(s, clef__landing_of(s, me)), s->addend, s->weight, size, own.count, s->what->dtype, s->what->reduction,
                      size);
    return status;
}

static clef_status receive_parts(clef__session *s) {
    int me = s->group->rank;
    clef__part part = clef__part_for(s, me);
    size_t bytes = (size_t)part.count * s->element;
    for (int m = 0; m < s->group->size; m++) {
        if (!sends(s, m)) continue;
        if (m == me) clef__put(out_at(s, clef__landing_of(s, m)), in_at(s, part.start), bytes);
        else clef__receive_from(s, m, out_at(s, clef__landing_of(s, m)), bytes);
    }
    return clef__session_exchange(s);
}

clef_status clef__messages_receive(clef__session *s) { return clef__reduces(s->what) ? receive_and_combine(s) : receive_parts(s); }
