/* launches.h — a plan: launches over numbered values, and what its replays need. */
#ifndef CLEF_LAUNCHES_H
#define CLEF_LAUNCHES_H
#include "graph/graph.h"

/* ---- values: memory that the plan gives a place ---- */

typedef enum clef__home { CLEF__LEAF_VALUE, CLEF__ARENA_VALUE, CLEF__OUTPUT_VALUE } clef__home;
typedef struct clef__value {
    clef__home home;
    int captured; /* the leaf it is, or a captured node that defines it (-1: scratch) */
    int device;
    size_t bytes;
    int first, last;                /* launches that define it and use it last; -1: none */
    int written;                    /* the first launch that writes to it; -1: none */
    int in_place_of;                /* -1, or the arena value whose memory it continues */
    int donor;                      /* output: -1, or the leaf value whose buffer it takes over */
    int candidate[4], n_candidates; /* values it may continue: same layout, read element by element by its launch */
    bool donatable, taken;
    bool visited;                  /* the host writes it, beside the kernels */
    bool seen;                     /* launches of other devices read it where it lies (seen.c) */
    bool updated;                  /* in place; the former value of a leaf ends with that */
    size_t offset;                 /* arena: bytes */
    struct clef__passage *passage; /* of a value without memory: what is on the way */
    clef__buffer *own;             /* arena in debug mode: a buffer of its exact size; input, output: that of the running replay */
} clef__value;

/* ---- launches ---- */

typedef enum clef__arg_kind {
    CLEF__ARG_TENSOR,
    CLEF__ARG_LONG,
    CLEF__ARG_INT,
    CLEF__ARG_FLOAT,
    CLEF__ARG_DYNAMIC,
    CLEF__ARG_CONSTANT
} clef__arg_kind;
typedef struct clef__arg {
    clef__arg_kind kind;
    int index; /* in the kernel: of the pointer, or of the number where it is an argument of its own */
    int at;    /* of a number, for a tensor its offset: the byte of argument 0 where it stands; -1: not there (cl/args.h) */
    bool writes;
    int value;      /* tensor */
    int64_t number; /* tensor: offset in elements; long, int; dynamic: which of the two */
    float real;
    int captured; /* dynamic, constant: where the number stands; constant: -1 for one that is part of the plan */
    double constant;
    clef_dtype dtype; /* tensor, constant */
    int64_t bytes;    /* tensor: of the elements it has */
} clef__arg;

size_t clef__number_bytes(const clef__arg *arg); /* of the number, or of a tensor's offset */

/* What kernels are called that are generated for pointwise ops. */
#define CLEF__GENERATED "pointwise"

typedef enum clef__launch_kind {
    CLEF__LAUNCH_KERNEL,
    CLEF__LAUNCH_COPY,   /* arg[1] is copied to arg[0], between devices; */
    CLEF__LAUNCH_FETCH,  /* the same in two halves, arg[0] of the first and arg[1] of the second being a value without memory: */
    CLEF__LAUNCH_STORE,  /* its bytes are on the way through the host */
    CLEF__LAUNCH_ROUTINE /* of a function that queues the work itself (lower.h) */
} clef__launch_kind;
typedef struct clef__launch {
    clef__launch_kind kind;
    char label[64];          /* the ops of its prologue, its own, those of its epilogue; cut off where they are many */
    const char *file, *name; /* file: NULL for text alone, and where no kernel is launched */
    clef__code *code;        /* NULL where no kernel is launched */
    clef__arg *arg;
    int n_args, arg_capacity;
    int n_kernel_args;
    size_t numbers; /* bytes of argument 0, a struct of the kernel's numbers */
    int covers;     /* segments (codegen.c); 0: its kernel has none */
    size_t global[3], local[3];
    int device;
    size_t bytes;  /* that a copy, or half of one, brings */
    double flops;  /* about how many operations: as its strategy tells, or by its node's definition; 0: not known, or few */
    bool counted;  /* its strategy told */
    bool beside;   /* a copy, half of one, or a visit of the host, in another queue of its device */
    bool visible;  /* a copy of what the device that receives sees where it lies, so that perhaps none is needed (seen.c) */
    bool awaited;  /* a launch in another queue waits for it (edges.c) */
    bool tuned;    /* its knobs are a tuning result */
    bool derives;  /* it only brings its input into another form: packed, padded, converted (derive.c) */
    bool prepacks; /* and what it makes of a weight is kept for later runs (derived.c) */
    bool idle;     /* what it would write is there already (derived.c) */
    clef__kernel *kernel;
    const struct clef__routine *routine; /* NULL unless it is of that kind */
    void *what;                          /* for the routine; owned */
    size_t what_bytes;
} clef__launch;

/* An argument that may change between replays; a tensor's is set when it is in another buffer (0: none yet) or place. */
typedef struct clef__bind {
    int launch, arg;
    uint64_t buffer;
    int64_t offset;
} clef__bind;

/* A value that one launch fills from one leaf alone (derived.c). */
typedef struct clef__prepacked {
    int launch, value, leaf; /* the last two: values */
    uint8_t recipe[32];      /* a digest of all that makes it of the leaf */
    bool inner;              /* only others of these are made from it */
    struct clef__derived *kept;
    clef__buffer *exact;     /* its memory in debug mode while nothing is kept */
    uint64_t bound;          /* the buffer that its arguments point to; 0: into the arena */
    int first_bind, n_binds; /* where it is an argument */
} clef__prepacked;

/* Launch `after` waits for launch `before`, which runs in another queue; sorted by `after`.  before < 0: for all that device
   -1 - before had to do when the plan began.  after: n_launches + d stands for what device d does when the plan is over. */
typedef struct clef__edge {
    int before, after;
    int device; /* whose compute queue waits; -1: the copy itself does, in its device's second queue */
} clef__edge;

typedef struct clef__result {
    int captured, value;
    clef__layout layout;
} clef__result;

/* version: raised whenever the buffer is another; 0: there never was one. */
typedef struct clef__arena {
    clef__buffer *buffer;
    uint64_t version;
} clef__arena;

typedef struct clef__plan {
    struct clef__plan *next; /* most recently used first */
    uint64_t *key, hash;
    int key_words;
    clef__value *value;
    int n_values, value_capacity;
    clef__launch *launch;
    int n_launches, launch_capacity;
    clef__edge *edge; /* of a plan with copies in second queues */
    int n_edges;
    struct clef__event **event;     /* of the running replay: of launches that are awaited, and of each device when it began */
    uint64_t runs;                  /* whole ones */
    bool timed;                     /* by the tuner: its launches stay single */
    struct clef__plan_chain *chain; /* NULL: nobody looked for one yet (chain.c) */
    clef__bind *bind;               /* arguments that every replay sets */
    clef__bind *arena_bind;         /* arguments that point into an arena: set when it moved */
    int n_binds, n_arena_binds;
    clef__prepacked *prepacked; /* in the order of their launches */
    int n_prepacked;
    clef__bind *prepacked_bind;
    size_t prepacked_bytes; /* that they take when all are kept */
    size_t weight_bytes;    /* of the leaves that they are made from */
    size_t host_bytes;      /* about what the plan takes of host memory */
    uint64_t made;          /* how many the context made before */
    clef__result *result;   /* what to hand to nodes afterwards */
    int n_results;
    /* Of each device: */
    size_t arena_bytes[CLEF__MAX_DEVICES];
    size_t lower_bound[CLEF__MAX_DEVICES];  /* of arena_bytes: the most bytes alive at once */
    double spared_flops[CLEF__MAX_DEVICES]; /* that the chosen strategies need fewer than the ops' definitions */
    clef__arena arena[CLEF__MAX_DEVICES];   /* those its arguments point into; not owned */
} clef__plan;

/* Is it work of the host, on the device's memory (clef__routine.visit)? */
bool clef__is_visit(const clef__launch *launch);
void clef__launch_free(clef__launch *launch);
#endif
