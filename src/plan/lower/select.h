/* select.h — which way a node is computed: rules, tuning results, or what clef_tune tries at the moment. */
#ifndef CLEF_SELECT_H
#define CLEF_SELECT_H
#include "plan/lower/lower.h"

/* What a tuning result is for: a family, a dtype and a bucket of sizes on a device. */
typedef struct clef__tuning_key {
    const clef__family *family;
    const char *kernel; /* hash of what its kernels say */
    clef_dtype dtype;
    int device;
    char bucket[192];
} clef__tuning_key;
bool clef__same_tuning_key(const clef__tuning_key *a, const clef__tuning_key *b);
/* The same in the words of the store, with these knobs. */
clef__tuned clef__tuning_key_result(const clef__tuning_key *key, const clef__knobs *knobs);
/* "rows=8 vectors=3"; "" where all are 0. */
void clef__knobs_text(const clef__family *family, const clef__knobs *knobs, char *text, size_t size);

/* While clef_tune measures: what it tries. */
typedef struct clef__tuning_override {
    const clef__tuning_key *key;
    clef__knobs knobs;
} clef__tuning_override;

/* What a context selects by. */
typedef struct clef__own_family clef__own_family;
typedef struct clef__selection {
    clef__own_family *family;              /* what is known of those that were asked for */
    const clef__tuning_override *override; /* NULL: nothing is tried */
    void (*note)(void *user, const clef__lowering *lw,
                 const clef__tuning_key *key); /* NULL, or who is told of every key that is asked for */
    void *user;
    char preferred[128]; /* CLEF_ROWS: names of rows that are taken wherever they apply */
} clef__selection;
void clef__families_free(clef__own_family *first);

/* The strategy for the node being lowered; NULL if none applies. */
const clef__strategy *clef__select_strategy(const clef__lowering *lw);
/* The cheapest of a table's rows that apply, and its seconds; ties go to the first. */
const clef__strategy *clef__select_row(const clef__lowering *lw, const clef__strategy *const *rows);
double clef__least_seconds(const clef__lowering *lw, const clef__strategy *const *rows);
bool clef__row_applies(const clef__lowering *lw, const clef__strategy *row);
/* The FLOPs that it needs fewer than the op's definition. */
double clef__spared_flops(const clef__node *node, const clef__strategy *strategy);
#endif
