/* group.h — a group of ranks from within: who is in it, how bytes get there, and one meeting of all for each collective operation.

   Nothing here knows of tensors or devices (collective.c does): a meeting works on host memory, in whichever thread runs the plan's
   collective operations, one at a time for each rank. */
#ifndef CLEF_GROUP_H
#define CLEF_GROUP_H
#include "clef/transport.h"
#include "runtime/runtime.h"
#include <pthread.h>

/* How long this rank computes, apart from what it waits for others (busy.c). */
typedef struct clef__busy {
    pthread_mutex_t lock; /* the host's thread begins and ends it, the thread that makes visits adds */
    bool wanted, counts;  /* counts: from that group's meeting `from` on */
    uint64_t group;
    int64_t from;
    bool overlaps;      /* of the last meeting: */
    double ready, end;  /* when this rank's device came to it, when it was over */
    double step, least; /* seconds: of the present step so far; of the shortest one */
    int steps;
} clef__busy;

/* What a collective operation is about, such as the parameters whose gradients it adds: their names, one behind the other, each with the zero
   behind it.  Owned by the group. */
typedef struct clef__subject {
    struct clef__subject *next;
    uint64_t hash; /* never 0 */
    size_t bytes;
    char names[];
} clef__subject;

/* A message that came while another was waited for: tensors that were sent before anybody asked for them. */
typedef struct clef__letter {
    struct clef__letter *next;
    int from;                /* rank of the transport */
    unsigned char content[]; /* the header of its send, then its numbers */
} clef__letter;

/* A rank: its transport and what all groups of its context share.  The context's state of this room. */
typedef struct clef__rank {
    const clef_transport *transport;
    double timeout; /* of the transport's functions; 0: for ever */
    clef_group *first;
    clef__letter *letter; /* the oldest first */
    clef__busy busy;
} clef__rank;

enum { CLEF__RANK_NAME = 160 }; /* bytes of what a rank is called, with the zero behind it */

struct clef_group {
    clef_group *next; /* of the same context */
    clef__rank *of;
    clef_context *ctx;
    uint64_t id;                   /* the same on all members; of all ranks' group: 0 */
    int rank, size;                /* this rank's place among the members */
    int *member;                   /* their ranks in the transport */
    char (*name)[CLEF__RANK_NAME]; /* of each member */
    uint64_t number;               /* of the next collective operation to be created (collective.c, host calls) */
    uint64_t messages;             /* the same of sends and receives */
    double summand;                /* the weight of the sum that is being created */
    clef__subject *subjects;       /* all there were; they stay, as plans point to them */
    const clef__subject *subject;  /* of operations that are being created; NULL: they are about nothing that has a name */
    double weight;                 /* clef_group_weight, where it was given */
    bool weight_given;
    int64_t items, all_items; /* of the batch: this rank's, all ranks'; all_items 0: no loader said so */
};

/* What ranks do together. */
typedef enum clef__meeting_kind {
    CLEF__MEET_BARRIER,
    CLEF__MEET_ALL_REDUCE,
    CLEF__MEET_REDUCE_SCATTER,
    CLEF__MEET_ALL_GATHER,
    CLEF__MEET_BROADCAST,
    CLEF__MEET_ALL_TO_ALL,
    CLEF__MEET_SEND, /* to rank `peer` alone, which has the same as a CLEF__MEET_RECV from this one */
    CLEF__MEET_RECV
} clef__meeting_kind;

/* Elements of an all_reduce that lie together, before and after: a dense tensor. */
typedef struct clef__segment {
    const void *in;
    void *out;
    int64_t n;
    clef_shape shape;
    int order[CLEF_MAX_RANK]; /* its dimensions in memory, outermost first, both before and after */
} clef__segment;

/* One meeting.  All but `peer` of send and recv, in and out must be equal on all members: a header of them goes ahead and is compared, so that
   a difference is a line and not a hang or wrong numbers.  `in` and `out` do not overlap; a member with nothing to send still takes
   part.  Elements lie row-major and a part is contiguous: whoever cuts along another dim than 0 brings it there first. */
typedef struct clef__meeting {
    clef__meeting_kind kind;
    clef_group_reduction reduction; /* of the two that reduce */
    clef_dtype dtype;
    clef_shape shape;             /* for the header: what the user's op was given */
    int64_t number;               /* in its group */
    const clef__subject *subject; /* what it is about; NULL: nothing that has a name */
    int peer;                     /* root of a broadcast; to or from whom */
    const void *in;
    void *out;
    const clef__segment *segment; /* of an all_reduce, in place of in and out; NULL: none */
    int n_segments;
    double weight; /* of a sum: what this rank's elements are multiplied by; 0: not looked at.  Not `weighted`: 1 for all */
    bool weighted;
    bool overlaps, begins; /* the device goes on computing meanwhile; it is the first of several that do */
    int64_t n;             /* elements of `in`: of all parts for reduce_scatter and all_to_all; of `out` for recv */
} clef__meeting;

/* Takes part.  On failure `line` (CLEF_TRANSPORT_LINE bytes) says why, without the op's name; CLEF_GROUP where another rank or the difference
   of programs is the cause.  Combining is by clef__combine's tree, with equal bits for every transport. */
clef_status clef__meet(const clef_group *group, const clef__meeting *meeting, char *line);

/* This rank cannot take part in the meeting that comes: the others are told why. */
clef_status clef__miss(const clef_group *group, const char *why, char *line);

/* letters.c.  At the end of a rank: were all messages asked for that have come?  Else the line names the first. */
bool clef__letters_were_read(const clef_group *group, char *line);
/* The line on a message, its first n bytes, that nobody asked for. */
void clef__letter_line(char *line, const char *from, const char *to, const void *bytes, size_t n);
void clef__letters_free(clef__rank *rank);

/* subjects.c.  Operations that are created from now on are about these n names; 0: about nothing.  False without memory. */
bool clef__group_about(clef_group *group, const char *const *name, int n);
void clef__subjects_free(clef_group *group);

/* weight.c: how much this rank counts.  Of the items of the present batch, `items` are this rank's. */
void clef__group_set_items(clef_group *group, int64_t items, int64_t all);
/* This rank's share of the batch, all ranks' shares adding up to 1; equal shares where no loader said so. */
double clef__group_share(const clef_group *group);
/* What clef_group_weight gave for this step; false: nothing. */
bool clef__group_weight_given(const clef_group *group, double *weight);
void clef__group_forget_weight(clef_group *group);

/* busy.c: counts from the group's next meeting on, until the end, before which the group was settled.  Seconds, as if every step had
   taken as long as the shortest, as what disturbs a machine only makes steps longer; a step begins with a meeting that `begins`.  0: there
   was none. */
void clef__busy_begin(clef_group *group);
double clef__busy_end(clef_group *group);
/* A meeting that lasted from `begin` to `end`. */
void clef__busy_note(const clef_group *group, const clef__meeting *meeting, double begin, double end);

/* outcome.c.  All ranks call it, each with how things ended there; all get CLEF_OK, or status and line of the first rank where they failed.
   A rank's line is its context's error, which is cleared and then set again. */
clef_status clef__group_agree(clef_group *group, clef_status own);
/* The same with lines (CLEF_TRANSPORT_LINE bytes) that are no errors yet: in goes this rank's, out comes what all get. */
clef_status clef__group_agree_line(clef_group *group, clef_status own, char *line);

/* combine.c: out[i] = in[0][i] ⊕ in[1][i] ⊕ …, as a balanced binary tree over `n` in order: a tree of n is the tree of the first
   2^⌈log2 n⌉ / 2 combined with the tree of the rest.  Half types are combined in f32 and rounded once, at the end.  Min and max of NaN and a
   number are NaN; of −0 and +0: −0 and +0.  out may be one of in.  CLEF_GROUP_MEAN divides the sum by `of` (f64: in f64, else in f32).
   Integers wrap.  weight: NULL, or what each of `in`, of floats, is multiplied by first; of 0, its elements count as 0, whatever they
   are. */
void clef__combine(void *out, const void *const *in, const double *weight, int n, int64_t elements, clef_dtype dtype,
                   clef_group_reduction reduction, int of);

/* collective.c.  y[i]: the sum of x[i] over the ranks, each times the `weight` of its rank, as one all_reduce: up to CLEF__MOST_SUMMED
   tensors of one floating dtype and device, with elements, of any shapes.  The group has several ranks.  No gradient.  The weight is no part of the
   plan; of one that is 0 nothing is looked at.  begins: it is the first of several sums that nothing of this step waits for until the last one.
   False with the error set.  y may be x. */
enum { CLEF__MOST_SUMMED = CLEF__VISIT_SPANS / 2 };
bool clef__sum_several(clef_tensor *const *x, int n, clef_group *group, double weight, bool begins, clef_tensor **y);

/* group.c.  The group of all ranks of a transport, owned by the context from now on; NULL with the context's error.  Every rank calls it at
   once: names are gathered.  name: NULL for the usual one; timeout: as of clef_ranks_options. */
clef_group *clef__group_all(clef_context *ctx, const clef_transport *transport, const char *name, double timeout);
/* Runs the collective operations that were created until now, and waits for them: before the host itself meets the others. */
clef_status clef__group_settle(const clef_group *group);
/* "rank 0 (DEVICE)", or `name` where there is one, into text. */
void clef__rank_name(char text[CLEF__RANK_NAME], clef_context *ctx, int rank, const char *name);

/* rank_devices.c: what each rank of a list opens, "0/2#1"; CLEF__RANKS at most.  what: who asks, in the line of a failure. */
enum { CLEF__RANKS = 256 };
typedef char clef__device_name[256];
clef_status clef__rank_devices(const char *what, const char *devices, clef__device_name *device, int *n);

/* same.c: x, and this rank's part of it, for what each rank goes on with by itself; their gradients are the two below, and the other way round. */
clef_tensor *clef__same_copy(clef_tensor *x, clef_group *group);
clef_tensor *clef__same_part(clef_tensor *x, clef_group *group, int dim);
/* collective.c: clef_all_reduce (sum) and clef_all_gather where every rank computes the same from the result, and the gradient that all
   ranks get for it is that of one such computation: nothing is summed over ranks on the way back. */
clef_tensor *clef__same_all_reduce(clef_tensor *x, clef_group *group);
clef_tensor *clef__same_all_gather(clef_tensor *x, clef_group *group, int dim);

/* threads.c: the transport of n ranks in one process. */
typedef struct clef__hub clef__hub;
clef__hub *clef__hub_open(int n); /* NULL without memory */
const clef_transport *clef__hub_rank(clef__hub *hub, int rank);
/* The line of the first failure that a rank told of, and which rank it was; NULL: none. */
const char *clef__hub_failure(clef__hub *hub, int *rank);
/* When no rank uses it any more: a message that nobody took, its bytes and size; NULL: none. */
const void *clef__hub_unread(clef__hub *hub, int *from, int *to, size_t *n);
void clef__hub_close(clef__hub *hub); /* when no rank uses it any more; NULL is allowed */
#endif
