/* meeting.h — one meeting, as those see it who carry it out: by messages (messages.c) or in shared memory (sharing.c). */
#ifndef CLEF_MEETING_H
#define CLEF_MEETING_H
#include "group/group.h"

/* What a member says of its meeting before anything else is looked at. */
typedef struct clef__header {
    uint64_t group, names;
    int64_t number, n;
    int32_t kind, reduction, dtype, peer;
    clef_shape shape;
    char members[48]; /* the group, for error lines: "0,2" */
} clef__header;

typedef struct clef__session {
    const clef_group *group;
    const clef__meeting *what;
    size_t element;        /* bytes */
    clef__header *header;  /* of each member; behind them a place for one more */
    clef_parcel *out, *in; /* to be exchanged next; there is room for two of each member */
    int n_out, n_in;
    const void **memory;    /* of each member, where memory is shared: its `in` and its `out`, or its segments */
    clef__segment whole;    /* an all_reduce's only one, where it came without */
    const void **addend;    /* of each member: what is to be combined */
    unsigned char *scratch; /* what was received to be combined */
    clef_transport_failure *why;
} clef__session;

/* ---- headers (header.c) ---- */
void clef__header_make(clef__header *h, const clef_group *group, const clef__meeting *what);
/* True where members a and b of the group, who say x and y, do not mean the same; the line names both and what they do. */
bool clef__headers_differ(const clef_group *group, int a, const clef__header *x, int b, const clef__header *y, char *line);
/* "all_reduce number 3 of f32 [4,4]" */
void clef__header_text(char *text, size_t size, const clef__header *h);

/* ---- who gets what (meeting.c) ---- */
/* Elements of each member's `in` that go to member `to`. */
typedef struct clef__part {
    int64_t start, count;
} clef__part;
clef__part clef__part_for(const clef__session *s, int to);
bool clef__reduces(const clef__meeting *what);
/* So few bytes that a second round would cost more than to send all to all. */
bool clef__is_small(const clef__session *s);
/* Where in the own `out` lies what comes from member `from`, or the result of combining; in elements. */
int64_t clef__landing_of(const clef__session *s, int from);
/* Nothing where there is nothing, or where it lies there already. */
void clef__put(void *to, const void *from, size_t bytes);
/* Room for so many bytes; false with the reason. */
bool clef__session_room(clef__session *s, void *address, size_t bytes);
void clef__send_to(clef__session *s, int member, const void *bytes, size_t n);
void clef__receive_from(clef__session *s, int member, void *bytes, size_t n);
/* All that was added since the last time. */
clef_status clef__session_exchange(clef__session *s);

/* ---- by messages (messages.c) ---- */
/* Adds the numbers that can go out together with the headers; then what is to come in; then does the rest. */
void clef__messages_send(clef__session *s);
clef_status clef__messages_receive(clef__session *s);
/* ---- in shared memory (sharing.c) ---- */
clef_status clef__share(clef__session *s);
#endif
