/* guess.c — see guess.h.  Near is what can be a slip: letters changed, added, left out or swapped with their neighbour
   (the optimal string alignment distance, Damerau 1964), at most one in three of them; or a word that begins or ends the
   other one at a border, as "checkpoint" and "checkpoint-every" or "weight" and "fc.weight" do. */
#include "runtime/guess.h"
#include "clef/base.h"
#include <stdio.h>
#include <string.h>

enum { LONGEST = 128, FAR = 1000, PARTIAL = 100 };

static int least(int a, int b) { return a < b ? a : b; }

static int edits(const char *a, int n, const char *b, int m) {
    int row[3][LONGEST + 1]; /* distances of a's first i, i-1 and i-2 letters to b's first j */
    for (int j = 0; j <= m; j++) row[0][j] = j;
    for (int i = 1; i <= n; i++) {
        int *now = row[i % 3], *before = row[(i + 2) % 3], *earlier = row[(i + 1) % 3];
        now[0] = i;
        for (int j = 1; j <= m; j++) {
            now[j] = least(before[j - 1] + (a[i - 1] != b[j - 1]), least(before[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) now[j] = least(now[j], earlier[j - 2] + 1);
        }
    }
    return row[n % 3][m];
}

/* Is the shorter one a whole end of the longer? */
static bool is_part(const char *longer, int n, const char *shorter, int m) {
    if (m < 3) return false;
    return !strncmp(longer, shorter, (size_t)m) || (strchr(".-_", longer[n - m - 1]) && !strcmp(longer + n - m, shorter));
}

/* Lower is nearer; FAR: not near at all. */
static int distance(const char *word, const char *candidate) {
    size_t n = strlen(word), m = strlen(candidate);
    if (n == 0 || m == 0 || n > LONGEST || m > LONGEST) return FAR;
    int a = (int)n, b = (int)m, d = edits(word, a, candidate, b);
    bool part = a < b ? is_part(candidate, b, word, a) : a > b && is_part(word, a, candidate, b);
    if (d <= (a > b ? a : b) / 3) return 2 * d - part;
    return part ? PARTIAL + d : FAR;
}

void clef__guess_offer(clef__guess *guess, const char *candidate) {
    int d = guess->word && candidate ? distance(guess->word, candidate) : FAR;
    if (d >= (guess->best ? guess->distance : FAR)) return;
    guess->best = candidate;
    guess->distance = d;
}

const char *clef__guess_hint(clef__guess *guess) {
    guess->hint[0] = 0;
    if (guess->best) snprintf(guess->hint, sizeof guess->hint, "; did you mean \"%s\"?", guess->best);
    return guess->hint;
}

const char *clef_closest(const char *word, const char *const *words, int n) {
    clef__guess guess = {.word = word};
    for (int i = 0; words && i < n; i++) clef__guess_offer(&guess, words[i]);
    return guess.best;
}
