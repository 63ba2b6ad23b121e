/* meeting.h — one meeting, as those see it who carry it out: by messages (messages.c, pieces.c) or in shared memory (sharing.c). */
#ifndef CLEF_MEETING_H
#define CLEF_MEETING_H
#include "group/group.h"

/* What a member says of its meeting before anything else is looked at. */
typedef struct clef__header {
    uint64_t group, names; /* names: a hash of the subject's; 0: none */
    int64_t number, n, names_bytes;
    int32_t kind, reduction, dtype, peer;
    clef_shape shape;
    double weight;
    uint64_t layout;  /* a hash of how segments lie: no difference, but sums are then made of what lies row-major */
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
    double *weight;         /* of each member; NULL: 1 */
    clef__segment whole;    /* an all_reduce's only one, where it came without or was packed */
    clef__meeting packed;   /* what stands for a meeting of segments once these were copied to one piece, */
    unsigned char *piece;   /* which is owned */
    const void **addend;    /* of each member: what is to be combined */
    unsigned char *scratch; /* what was received to be combined */
    clef_transport_failure *why;
} clef__session;

/* ---- headers (header.c) ---- */
void clef__header_make(clef__header *h, const clef_group *group, const clef__meeting *what);
/* True where members a and b of the group, who say x and y, do not mean the same; the line names both and what they do. */
bool clef__headers_differ(const clef_group *group, int a, const clef__header *x, int b, const clef__header *y, char *line);
const char *clef__meeting_name(int32_t kind); /* "all_reduce" */
/* "all_reduce number 3 of f32 [4,4]" */
void clef__header_text(char *text, size_t size, const clef__header *h);

/* Do all members say that they do the same, but for the names of what it is about and how much that is? */
bool clef__only_subjects_differ(const clef__session *s);

/* ---- names of what it is about (subjects.c) ---- */
/* All members tell each other theirs, and get one line on the first name that differs. */
clef_status clef__compare_subjects(clef__session *s);

/* ---- messages that nobody has asked for yet (letters.c) ---- */
/* `header` came from a member.  As long as it is that of a send, puts the message aside and takes the next header; where the session is a
   recv, a send in its own group ends that too. */
clef_status clef__put_letters_aside(clef__session *s, int member, clef__header *header);
/* The oldest one of this member to the group, taken out; NULL: none.  To be freed. */
clef__letter *clef__take_letter(const clef__session *s, int member);

/* ---- who gets what (meeting.c) ---- */
/* Elements of each member's `in` that go to member `to`. */
typedef struct clef__part {
    int64_t start, count;
} clef__part;
clef__part clef__part_for(const clef__session *s, int to);
bool clef__reduces(const clef__meeting *what);
/* Bytes of the numbers that member m sends to each other one with its header, as that says. */
size_t clef__bytes_ahead(const clef__session *s, int m);
/* So few bytes that a second round would cost more than to send all to all. */
bool clef__is_small(const clef__session *s);
/* What of `whole` each member combines. */
clef__part clef__own_part(const clef__session *s, clef__part whole, int member);
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

/* ---- segments in one piece (segments.c) ---- */
uint64_t clef__layout_hash(const clef__meeting *what);
/* What of a part lies in a segment that begins with element `at`, counted from there; false: nothing. */
bool clef__part_within(clef__part part, int64_t at, int64_t n, clef__part *within);
/* Elements of all segments in their order, as they lie or row-major, to memory; and from there, sums, to the segments. */
void clef__copy_from_segments(const clef__meeting *what, clef__part part, bool row_major, void *to);
void clef__copy_to_segments(const clef__meeting *what, clef__part part, bool row_major, const void *from);
/* All of them, row-major, and sets s->what to a meeting of that; then the sums back to the segments of `given`. */
clef_status clef__pack(clef__session *s);
void clef__unpack(const clef__session *s, const clef__meeting *given);
/* ---- by messages (messages.c) ---- */
/* Adds the numbers that can go out together with the headers; then what is to come in; then does the rest. */
void clef__messages_send(clef__session *s);
clef_status clef__messages_receive(clef__session *s);
/* ---- by messages, a piece after the other (pieces.c) ---- */
clef_status clef__reduce_in_pieces(clef__session *s, bool row_major);
/* ---- in shared memory (sharing.c) ---- */
clef_status clef__share(clef__session *s);
#endif
