/* lowering.h — what lowers the groups of one graph, from within: lower.h is what strategies see of it. */
#ifndef CLEF_LOWERING_H
#define CLEF_LOWERING_H
#include "plan/lower/launches.h"
#include "plan/lower/lower.h"
#include "plan/lower/select.h"
#include "plan/passes/groups.h"

/* Where an item's value lies, once it has a place. */
typedef struct clef__placed { bool there; clef__operand operand; } clef__placed;

struct clef__lowering {
    clef_context *ctx;
    clef__graph_view *g;
    clef__plan *plan;
    clef__selection *selection;
    clef__placed *placed;   /* of each item */
    const clef__node *node; /* of the KERNEL being lowered */
    int item, device;
    clef__launch *open;     /* between launch_begin and launch_end */
    char *defines, *text;   /* of the open launch: its options, its generated text */
    bool tuned;             /* a tuning result is in use for the node being lowered */
    const clef__following *following; /* what follows that node, until a strategy takes it: then NULL */
    const clef__group *preceding;     /* what makes its input, until a strategy takes it or it is in memory: then NULL */
    struct clef__pointwise *computed; /* what the strategy took: owned until the node is lowered */
    bool failed;
};

/* lower_groups.c: launches for all groups, in their order, and which values are results; then, or at any failure, the end. */
void clef__lower_groups(const clef__lowering *lw, const clef__grouping *gr);
void clef__lowering_end(const clef__lowering *lw);

/* lower.c: values, arguments and operands */
void clef__lower_fail(const clef__lowering *lw);
/* Adds an argument to the launch that is open, behind the others. */
void clef__launch_arg(const clef__lowering *lw, clef__arg arg);
/* What the open launch is called, or is called besides; by itself it has the name of its op. */
void clef__launch_name(const clef__lowering *lw, const char *name, bool besides);
/* A number as kernel argument: of a constant item, or fixed (item -1). */
void clef__launch_constant(const clef__lowering *lw, int item, double number, clef_dtype dtype);
clef_shape clef__operand_shape(const clef__operand *x);
/* Item as an operand, materialising constants; views are resolved. */
clef__operand clef__item_operand(const clef__lowering *lw, int item);
#endif
