/* checkpoint_numbers.h — what of a training run is no tensor: counters, rates, seeds. */
#ifndef CLEF_IO_CHECKPOINT_NUMBERS_H
#define CLEF_IO_CHECKPOINT_NUMBERS_H
#include "io_internal.h"

enum { CLEF__SHARES_MOST = 256, CLEF__NUMBERS_MOST = 20 };

typedef struct clef__saved_shares {
    int64_t of[CLEF__SHARES_MOST];
    int n; /* 0: none */
} clef__saved_shares;

/* All numbers of a checkpoint.  `present`: which parts the file or the caller has. */
typedef struct clef__run_numbers {
    bool optimizer_present, schedule_present, loader_present, averaged_present, scaler_present;
    clef_optimizer_state optimizer;
    clef_schedule_state schedule;
    clef_loader_state loader;
    clef__saved_shares shares; /* of batches, where the loader measured them */
    int64_t updates;           /* of the averages */
    clef_grad_scaler_state scaler;
    clef_random_state random;
    int64_t epoch;
    double metric;
} clef__run_numbers;

/* Numbers as text, each under its key. */
typedef struct clef__number_texts {
    const char *key[CLEF__NUMBERS_MOST], *text[CLEF__NUMBERS_MOST];
    int n;
    clef__number number[CLEF__NUMBERS_MOST];
    char shares[CLEF__SHARES_MOST * 8];
} clef__number_texts;

/* Those of the parts that are present; the texts live in *out.  False after a report: what could not be loaded again is not saved. */
bool clef__numbers_format(const clef__run_numbers *s, clef__number_texts *out, clef__report *report);
/* Fills those of the parts that are present from a file; false after a report. */
bool clef__numbers_parse(clef__run_numbers *s, const clef__st_index *index, clef__report *report);
/* From 0 to 2⁶²: it is counted on. */
bool clef__is_count(int64_t n);
#endif
