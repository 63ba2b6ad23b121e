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

/* Between memory that lies as the segment does and row-major memory of a part of its elements. */
static void reorder(const clef__segment *s, clef__part part, unsigned char *lies, unsigned char *rows, size_t element,
                    bool to_rows) {
    int64_t stride[CLEF_MAX_RANK], at[CLEF_MAX_RANK] = {0}, from = 0, rest = part.start;
    int last = s->shape.rank - 1;
    strides_of(s, stride);
    for (int d = last; d >= 0; rest /= s->shape.dim[d--]) from += stride[d] * (at[d] = rest % s->shape.dim[d]);
    for (int64_t i = 0; i < part.count; i++) {
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

bool clef__part_within(clef__part part, int64_t at, int64_t n, clef__part *within) {
    int64_t begin = part.start > at ? part.start : at, end = part.start + part.count < at + n ? part.start + part.count : at + n;
    *within = (clef__part){begin - at, end - begin};
    return begin < end;
}

void clef__copy_from_segments(const clef__meeting *what, clef__part part, bool row_major, void *to) {
    size_t element = clef_dtype_size(what->dtype);
    unsigned char *rows = to;
    clef__part within;
    for (int64_t i = 0, at = 0; i < what->n_segments; at += what->segment[i++].n) {
        const clef__segment *s = &what->segment[i];
        if (!clef__part_within(part, at, s->n, &within)) continue;
        if (row_major) reorder(s, within, (unsigned char *)s->in, rows, element, true);
        else memcpy(rows, (const unsigned char *)s->in + (size_t)within.start * element, (size_t)within.count * element);
        rows += (size_t)within.count * element;
    }
}

void clef__copy_to_segments(const clef__meeting *what, clef__part part, bool row_major, const void *from) {
    size_t element = clef_dtype_size(what->dtype);
    const unsigned char *rows = from;
    clef__part within;
    for (int64_t i = 0, at = 0; i < what->n_segments; at += what->segment[i++].n) {
        const clef__segment *s = &what->segment[i];
        if (!clef__part_within(part, at, s->n, &within)) continue;
        if (row_major) reorder(s, within, s->out, (unsigned char *)rows, element, false);
        else memcpy((unsigned char *)s->out + (size_t)within.start * element, rows, (size_t)within.count * element);
        rows += (size_t)within.count * element;
    }
}

clef_status clef__pack(clef__session *s) {
    const clef__meeting *given = s->what;
    size_t bytes = (size_t)given->n * s->element;
    if (!clef__session_room(s, &s->piece, 2 * bytes)) return CLEF_MEMORY;
    clef__copy_from_segments(given, (clef__part){0, given->n}, true, s->piece);
    s->packed = *given;
    s->packed.segment = NULL;
    s->packed.in = s->piece;
    s->packed.out = s->piece + bytes;
    s->what = &s->packed;
    return CLEF_OK;
}

void clef__unpack(const clef__session *s, const clef__meeting *given) {
    clef__copy_to_segments(given, (clef__part){0, given->n}, true, s->packed.out);
}
