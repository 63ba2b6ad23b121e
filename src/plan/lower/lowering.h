/* lowering.h — what lowers the groups of one graph, from within: lower.h is what strategies see of it. */
#ifndef CLEF_LOWERING_H
#define CLEF_LOWERING_H
#include "plan/lower/launches.h"
#include "plan/lower/lower.h"
#include "plan/lower/select.h"
#include "plan/passes/groups.h"
#include "runtime/text.h"

/* Where a captured node's value lies, once it has a place. */
typedef struct clef__placed {
    bool there;
    clef__operand operand;
} clef__placed;

/* What is recorded while the groups of one graph are lowered, one node after the other. */
typedef struct clef__recorder {
    clef_context *ctx;
    clef__graph_view *g;
    clef__plan *plan;
    clef__selection *selection;
    clef__placed *placed;               /* of each captured node */
    clef__launch *open;                 /* between launch_begin and launch_end */
    clef__text defines;                 /* of the open launch: its options */
    char *text;                         /* its generated text */
    bool apart;                         /* numbers that are passed now are arguments of their own (cl/args.h) */
    bool tuned;                         /* a tuning result is in use for the launches that come */
    const clef__epilogue_ops *epilogue; /* of the kernel being lowered, until its strategy takes it: then NULL */
    const clef__group *prologue;        /* likewise; NULL too once its result is in memory */
    struct clef__pointwise *computed;   /* what the strategy took: owned until the kernel is lowered */
    bool failed;
} clef__recorder;

/* One node, as its strategy sees it, and where launches for it are recorded.  It never changes. */
struct clef__lowering {
    clef__recorder *rec;
    const clef__node *node;     /* NULL: launches for no node in particular */
    int captured, device;       /* captured: its first output */
    struct clef__gemm *product; /* kernels/gemm.h: a part of the node that has rows of its own; NULL: the node itself */
};
clef__lowering clef__lowering_of(clef__recorder *rec, int captured);

/* lower_groups.c: launches for all groups, in their order, and which values are results; then, or at any failure, the end. */
void clef__lower_groups(clef__recorder *rec, const clef__grouping *gr);
void clef__record_end(clef__recorder *rec);

/* ---- recorder.c ---- */
/* Out of host memory: the first failure is kept, and nothing more is recorded. */
void clef__record_fail(clef__recorder *rec);
/* Room for one more element of an array; without it the recording fails. */
bool clef__record_room(clef__recorder *rec, void *array_address, int n, int *capacity, size_t size);
/* Adds an argument to the open launch, behind the others. */
void clef__launch_arg(const clef__lowering *lw, clef__arg arg);
/* What the open launch is called, or is called besides; by itself it has the name of its op. */
void clef__launch_name(const clef__lowering *lw, const char *name, bool besides);
/* A number as kernel argument: of a constant captured node, or fixed (captured: -1). */
void clef__launch_constant(const clef__lowering *lw, int captured, double number, clef_dtype dtype);

/* ---- operands.c ---- */
clef_shape clef__operand_shape(const clef__operand *x);
/* A captured output as an operand, materialising constants; views are resolved. */
clef__operand clef__captured_operand(const clef__lowering *lw, int captured);
/* Is this pointwise node nothing but a weight of a half type in f32?  Then it has its place where the weight lies, and no launch: who
   reads it converts it there, or has it converted (clef__lower_in_stored, clef__lower_in). */
bool clef__place_converted(const clef__lowering *lw);
#endif
