/* pairs.h — a hash table from pairs of tokens to whole numbers. */
#ifndef CLEF_TEXT_PAIRS_H
#define CLEF_TEXT_PAIRS_H
#include "text/text_internal.h"

/* The place of the pair's number; NULL: it has none. */
int32_t *clef__pairs_find(const clef__pairs *pairs, int32_t left, int32_t right);
/* The same, with -1 there where it had none; NULL: no memory. */
int32_t *clef__pairs_put(clef__pairs *pairs, int32_t left, int32_t right);
void clef__pairs_free(clef__pairs *pairs);
#endif
