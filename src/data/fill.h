/* fill.h — how the items of one batch come into memory; used by the loader's threads, touches nothing that changes. */
#ifndef CLEF_DATA_FILL_H
#define CLEF_DATA_FILL_H
#include "data/data_internal.h"

typedef struct clef__filler {
    const clef_dataset *data;
    clef_augment augment;
    uint64_t seed;
    bool augments;
    int channels;          /* 0: x is not normalised */
    float *mean, *inverse; /* per channel: x = (x - mean)·inverse; one allocation, owned */
    float *table;          /* CLEF__BYTES: [max(channels,1)][256], byte → normalised float; owned */
} clef__filler;

/* mean and std may be NULL; false when out of memory. */
bool clef__filler_open(clef__filler *f, const clef_dataset *data, const clef_augment *augment, uint64_t seed, const float *mean,
                       const float *std);
void clef__filler_close(clef__filler *f);
/* Floats of scratch that one thread needs; 0: none. */
size_t clef__filler_scratch(const clef__filler *f);
/* Fills n items: field f of the k-th lies at memory[f] + k·bytes.  Returns -1, or the item that could not be fetched. */
int64_t clef__filler_run(const clef__filler *f, const int64_t *items, int64_t n, uint32_t epoch, float *scratch,
                         uint8_t *const *memory);
#endif
