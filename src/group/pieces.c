/* pieces.c — an all_reduce of many numbers by messages, a piece after the other.

   Every member combines its part of each piece, and the sums of one piece go out with the numbers of the next:

       exchange      1            2            3            4
       numbers       piece 0      piece 1      piece 2
       sums                       piece 0      piece 1      piece 2

   So a piece stays in a cache from where it is read to where its sums are written, and messages are of a size that allocators keep. */
#include "group/meeting.h"

enum { PART = 256 << 10 }; /* bytes of a piece that one member combines */

typedef struct reduction {
    clef__session *s;
    const clef__meeting *what;
    bool row_major;          /* how segments are read and written */
    int64_t most, pieces;    /* elements of a piece; how many there are */
    unsigned char *in, *out; /* the piece whose numbers go out, and the one whose sums come in; NULL: where the meeting says */
} reduction;

static clef__part piece_at(const reduction *r, int64_t i) {
    int64_t start = i * r->most, left = r->what->n - start;
    return (clef__part){start, left < r->most ? left : r->most};
}

static const unsigned char *in_at(const reduction *r, clef__part piece, int64_t element) {
    return r->in ? r->in + (size_t)(element - piece.start) * r->s->element
                 : (const unsigned char *)r->what->in + (size_t)element * r->s->element;
}

static unsigned char *out_at(const reduction *r, clef__part piece, int64_t element) {
    return r->out ? r->out + (size_t)(element - piece.start) * r->s->element
                  : (unsigned char *)r->what->out + (size_t)element * r->s->element;
}

static void exchange_numbers(reduction *r, clef__part piece) {
    clef__session *s = r->s;
    int me = s->group->rank;
    clef__part own = clef__own_part(s, piece, me);
    size_t bytes = (size_t)own.count * s->element;
    if (r->in) clef__copy_from_segments(r->what, piece, r->row_major, r->in);
    for (int m = 0, next = 0; m < s->group->size; m++) {
        s->addend[m] = m == me ? in_at(r, piece, own.start) : s->scratch + (size_t)next++ * bytes;
        if (m == me) continue;
        clef__part theirs = clef__own_part(s, piece, m);
        clef__send_to(s, m, in_at(r, piece, theirs.start), (size_t)theirs.count * s->element);
        clef__receive_from(s, m, (void *)s->addend[m], bytes);
    }
}

/* In the order of the ranks, whatever came first. */
static void combine(reduction *r, clef__part piece) {
    clef__session *s = r->s;
    clef__part own = clef__own_part(s, piece, s->group->rank);
    clef__combine(out_at(r, piece, own.start), s->addend, s->weight, s->group->size, own.count, r->what->dtype, r->what->reduction,
                  s->group->size);
}

static void exchange_sums(reduction *r, clef__part piece) {
    clef__session *s = r->s;
    clef__part own = clef__own_part(s, piece, s->group->rank);
    for (int m = 0; m < s->group->size; m++) {
        if (m == s->group->rank) continue;
        clef__part theirs = clef__own_part(s, piece, m);
        clef__send_to(s, m, out_at(r, piece, own.start), (size_t)own.count * s->element);
        clef__receive_from(s, m, out_at(r, piece, theirs.start), (size_t)theirs.count * s->element);
    }
}

static bool open_reduction(reduction *r) {
    clef__session *s = r->s;
    int64_t size = s->group->size, n = r->what->n, each = PART / (int64_t)s->element;
    r->most = n < each * size ? n : each * size;
    r->pieces = (n + r->most - 1) / r->most;
    size_t bytes = (size_t)r->most * s->element;
    int64_t own = clef__own_part(s, piece_at(r, 0), s->group->rank).count; /* of no piece is it more */
    bool ok = clef__session_room(s, &s->scratch, (size_t)((size - 1) * own) * s->element);
    if (!ok || !r->what->segment) return ok;
    ok = clef__session_room(s, &s->piece, 2 * bytes);
    if (ok) r->in = s->piece, r->out = s->piece + bytes;
    return ok;
}

clef_status clef__reduce_in_pieces(clef__session *s, bool row_major) {
    reduction r = {.s = s, .what = s->what, .row_major = row_major};
    if (!open_reduction(&r)) return CLEF_MEMORY;
    clef_status status = CLEF_OK;
    for (int64_t i = 0; i <= r.pieces && status == CLEF_OK; i++) {
        if (i < r.pieces) exchange_numbers(&r, piece_at(&r, i));
        if (i > 0) exchange_sums(&r, piece_at(&r, i - 1));
        status = clef__session_exchange(s);
        if (status != CLEF_OK) break;
        if (i > 0 && r.out) clef__copy_to_segments(r.what, piece_at(&r, i - 1), row_major, r.out);
        if (i < r.pieces) combine(&r, piece_at(&r, i));
    }
    return status;
}
