/* guess.h — "did you mean": which of the words that exist was meant by one that does not. */
#ifndef CLEF_GUESS_H
#define CLEF_GUESS_H
#include <stdbool.h>
#include <stddef.h>

typedef struct clef__guess {
    const char *word; /* what was asked for; set before the first offer */
    const char *best; /* the nearest offered so far; NULL: none is near */
    int distance;
    char hint[176];
} clef__guess;

void clef__guess_offer(clef__guess *guess, const char *candidate);
/* "; did you mean "0.weight"?", or "" where nothing is near; lives in the guess. */
const char *clef__guess_hint(clef__guess *guess);
#endif
