/* normal.h — characters as BERT's normalizer makes them of a text, and what words end at. */
#ifndef CLEF_TEXT_NORMAL_H
#define CLEF_TEXT_NORMAL_H
#include <stdbool.h>
#include <stdint.h>

enum { CLEF__NORMAL_CODES = 3 }; /* that one character becomes, at most */
/* Control and format characters, private ones, U+0000 and U+FFFD; tab and line ends are none. */
bool clef__is_control(uint32_t code);
bool clef__is_punctuation(uint32_t code); /* of ASCII all that is no letter, number or space */
bool clef__is_chinese(uint32_t code);
/* The character decomposed (NFD), without marks that take no space; how many code points, 0 for a mark. */
int clef__stripped(uint32_t code, uint32_t out[CLEF__NORMAL_CODES]);
/* In lower case; one code point, or two. */
int clef__lowered(uint32_t code, uint32_t out[CLEF__NORMAL_CODES]);
#endif
