/* split.h — text into words, which are encoded each by itself, as the patterns of well known models do it. */
#ifndef CLEF_TEXT_SPLIT_H
#define CLEF_TEXT_SPLIT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct clef__pattern {
    const char *regex; /* what files call it */
    bool any_before;   /* letters take one character before them that is no line end, letter or number; else a space */
    int numbers;       /* so many digits at most, without a space; 0: any number, with one */
    bool folds, lines; /* contractions in any case; line ends are taken with what is before them */
} clef__pattern;
/* GPT-2's. */
const clef__pattern *clef__pattern_default(void);
/* NULL: not one of those that are known. */
const clef__pattern *clef__pattern_of(const char *regex);
/* Where the word ends that begins at `at` < end, of valid UTF-8. */
size_t clef__word_end(const clef__pattern *pattern, const uint8_t *text, size_t at, size_t end);
/* Has it the property White_Space? */
bool clef__is_space(uint32_t code);
/* Can composing characters (NFC) change text that has this one? */
bool clef__may_compose(uint32_t code);
#endif
