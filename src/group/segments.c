/* segments.c — the tensors of an all_reduce in one piece, for messages, and where they do not lie alike on all ranks. */
#include "group/meeting.h"
#include <string.h>

/* FNV-1a (Fowler, Noll, Vo) */
static uint64_t hash_word(uint64_t hash, uint64_t word) { return (hash ^ word) * 0x100000001b3u; }

/* Dimensions of 1 lie anywhere. */
uint64_t clef__layout_hash(const clef__meeting *what) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (int i = 0; i < what->n_segments; i++) {
        const clef__segment *s = &what->segment[i];
        for (int d = 0; d < s->shape.rank; d++)
            if (s->shape.dim[s->order[d]] != 1) hash = hash_word(hash, (uint64_t)s->order[d] + 1);
        hash = hash_word(hash, (uint64_t)s->n);
    }
    return hash;
}

/* Elements from one to the next of each dimension, as the segment lies. */
static void strides_of(const clef__segment *s, int64_t stride[CLEF_MAX_RANK]) {
    int64_t step = 1;
    for (int d = s->shape.rank - 1; d >= 0; d--) {
        stride[s->order[d]] = step;
        step *= s->shape.dim[s->order[d]];
    }
}

/* Between memory that lies as the segment does and row-major memory. */
static void reorder(const clef__segment *s, unsigned char *lies, unsigned char *rows, size_t element, bool to_rows) {
    int64_t stride[CLEF_MAX_RANK], at[CLEF_MAX_RANK] = {0}, from = 0;
    int last = s->shape.rank - 1;
    strides_of(s, stride);
    for (int64_t i = 0; i < s->n; i++) {
        unsigned char *a = lies + (size_t)from * element, *b = rows + (size_t)i * element;
        memcpy(to_rows ? b : a, to_rows ? a : b, element);
        for (int d = last; d >= 0; d--) {
            from += stride[d];
            if (++at[d] < s->shape.dim[d]) break;
            from -= stride[d] * at[d];
            at[d] = 0;
        }
    }
}

clef_status clef__pack(clef__session *s, bool row_major) {
    const clef__meeting *given = s->what;
    size_t bytes = (size_t)given->n * s->element, at = 0;
    if (!clef__session_room(s, &s->piece, 2 * bytes)) return CLEF_MEMORY;
    for (int i = 0; i < given->n_segments; i++) {
        const clef__segment *segment = &given->segment[i];
        size_t n = (size_t)segment->n * s->element;
        if (row_major) reorder(segment, (unsigned char *)segment->in, s->piece + at, s->element, true);
        else clef__put(s->piece + at, segment->in, n);
        at += n;
    }
    s->packed = *given;
    s->packed.segment = NULL;
    s->packed.in = s->piece;
    s->packed.out = s->piece + bytes;
    s->what = &s->packed;
    return CLEF_OK;
}

void clef__unpack(const clef__session *s, const clef__meeting *given, bool row_major) {
    unsigned char *from = s->packed.out;
    for (int i = 0; i < given->n_segments; i++) {
        const clef__segment *segment = &given->segment[i];
        size_t n = (size_t)segment->n * s->element;
        if (row_major) reorder(segment, segment->out, from, s->element, false);
        else clef__put(segment->out, from, n);
        from += n;
    }
}
