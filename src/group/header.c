/* header.c — what members say of their meeting, and the line where they do not mean the same. */
#include "group/meeting.h"
#include <stdio.h>
#include <string.h>

static void members_text(char *text, size_t size, const clef_group *group) {
    size_t used = 0;
    for (int m = 0; m < group->size; m++) {
        if (used + 12 > size) {
            snprintf(text + used, size - used, ",...");
            return;
        }
        used += (size_t)snprintf(text + used, size - used, "%s%d", m ? "," : "", group->member[m]);
    }
}

void clef__header_make(clef__header *h, const clef_group *group, const clef__meeting *what) {
    memset(h, 0, sizeof *h); /* it is sent with its padding */
    h->group = group->id;
    if (what->subject) h->names = what->subject->hash, h->names_bytes = (int64_t)what->subject->bytes;
    h->number = what->number;
    h->n = what->n;
    h->kind = (int32_t)what->kind;
    h->reduction = (int32_t)what->reduction;
    h->dtype = (int32_t)what->dtype;
    h->peer = what->peer;
    h->weight = what->weight;
    if (what->segment) h->layout = clef__layout_hash(what);
    h->shape.rank = what->shape.rank;
    for (int i = 0; i < what->shape.rank; i++) h->shape.dim[i] = what->shape.dim[i];
    members_text(h->members, sizeof h->members, group);
}

/* ---- what differs ---- */
static bool of_pair(const clef__header *h) { return h->kind == CLEF__MEET_SEND || h->kind == CLEF__MEET_RECV; }
static bool reduces(const clef__header *h) { return h->kind == CLEF__MEET_ALL_REDUCE || h->kind == CLEF__MEET_REDUCE_SCATTER; }
static bool of_elements(const clef__header *h) { return h->kind != CLEF__MEET_BARRIER; }

/* A send and the receive of it. */
static bool are_pair(const clef__header *a, const clef__header *b) { return of_pair(a) && of_pair(b) && a->kind != b->kind; }

static bool kinds_differ(const clef__header *a, const clef__header *b) {
    if (of_pair(a) || of_pair(b)) return !are_pair(a, b);
    return a->kind != b->kind || a->number != b->number;
}

static bool details_differ(const clef__header *a, const clef__header *b) {
    if (reduces(a) && a->reduction != b->reduction) return true;
    if (a->kind == CLEF__MEET_BROADCAST && a->peer != b->peer) return true;
    return of_elements(a) && (a->dtype != b->dtype || !clef_shape_equal(a->shape, b->shape) || a->n != b->n);
}

bool clef__only_subjects_differ(const clef__session *s) {
    const clef__header *first = &s->header[0];
    bool differ = false;
    for (int m = 0; m < s->group->size; m++) {
        const clef__header *h = &s->header[m];
        if (!h->names || h->group != first->group || kinds_differ(h, first) || h->dtype != first->dtype) return false;
        differ |= h->names != first->names;
    }
    return differ;
}

/* ---- the line ---- */
const char *clef__meeting_name(int32_t kind) {
    static const char *const name[] = {[CLEF__MEET_BARRIER] = "barrier",
                                       [CLEF__MEET_ALL_REDUCE] = "all_reduce",
                                       [CLEF__MEET_REDUCE_SCATTER] = "reduce_scatter",
                                       [CLEF__MEET_ALL_GATHER] = "all_gather",
                                       [CLEF__MEET_BROADCAST] = "broadcast",
                                       [CLEF__MEET_ALL_TO_ALL] = "all_to_all",
                                       [CLEF__MEET_SEND] = "send",
                                       [CLEF__MEET_RECV] = "recv"};
    return kind >= 0 && kind < (int32_t)(sizeof name / sizeof name[0]) ? name[kind] : "something else";
}

static const char *reduction_name(int32_t reduction) {
    static const char *const name[] = {[CLEF_GROUP_SUM] = "sum",
                                       [CLEF_GROUP_MEAN] = "mean",
                                       [CLEF_GROUP_PRODUCT] = "product",
                                       [CLEF_GROUP_MIN] = "min",
                                       [CLEF_GROUP_MAX] = "max"};
    return reduction >= 0 && reduction < (int32_t)(sizeof name / sizeof name[0]) ? name[reduction] : "something else";
}

/* Details are told where the two differ in them. */
static void describe(char *text, size_t size, const clef__header *h, const clef__header *other) {
    char shape[192], peer[40] = "", reduction[24] = "", of[256] = "", elements[40] = "", in[80] = "";
    if (reduces(h) && reduces(other) && h->reduction != other->reduction)
        snprintf(reduction, sizeof reduction, " (%s)", reduction_name(h->reduction));
    if (h->kind == CLEF__MEET_SEND || h->kind == CLEF__MEET_RECV)
        snprintf(peer, sizeof peer, " %s rank %d", h->kind == CLEF__MEET_SEND ? "to" : "from", h->peer);
    if (h->kind == CLEF__MEET_BROADCAST && (other->kind != h->kind || other->peer != h->peer))
        snprintf(peer, sizeof peer, " from rank %d", h->peer);
    if (of_elements(h))
        snprintf(of, sizeof of, " of %s %s", clef_dtype_name((clef_dtype)h->dtype),
                 clef_shape_format(h->shape, shape, sizeof shape));
    if (of_elements(h) && clef_shape_equal(h->shape, other->shape) && h->n != other->n)
        snprintf(elements, sizeof elements, " (%lld elements)", (long long)h->n);
    if (other->group != h->group)
        snprintf(in, sizeof in, " in the group %04x of ranks %s", (unsigned)(h->group & 0xffff), h->members);
    snprintf(text, size, "%s%s number %lld%s%s%s%s", clef__meeting_name(h->kind), reduction, (long long)h->number, of, elements,
             peer, in);
}

bool clef__headers_differ(const clef_group *group, int a, const clef__header *x, int b, const clef__header *y, char *line) {
    bool acts = x->group != y->group || kinds_differ(x, y) || details_differ(x, y);
    if (!acts && x->names == y->names) return false;
    char does_x[400], does_y[400];
    describe(does_x, sizeof does_x, x, y);
    describe(does_y, sizeof does_y, y, x);
    snprintf(line, CLEF_TRANSPORT_LINE, "%s does %s, %s does %s%s", group->name[a], does_x, group->name[b], does_y,
             acts ? "" : ", of things that are named differently");
    return true;
}

void clef__header_text(char *text, size_t size, const clef__header *h) { describe(text, size, h, h); }
