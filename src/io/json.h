/* json.h — a cursor over JSON text in memory, for formats whose structure is fixed.  Strings are decoded in place:
   they get no longer by it.  Every function returns false after the first error, which the report then holds. */
#ifndef CLEF_JSON_H
#define CLEF_JSON_H
#include "io_internal.h"

typedef struct clef__json {
    char *at, *end, *start;
    clef__report *report;
} clef__json;
bool clef__json_fail(clef__json *json, const char *expected);
/* Skips white space; is this character next?  Takes it if so. */
bool clef__json_take(clef__json *json, char c);
/* The same, and an error if it is not. */
bool clef__json_expect(clef__json *json, char c);
/* A string without \u0000, decoded to UTF-8 and terminated, within the text. */
bool clef__json_string(clef__json *json, const char **string);
/* A whole number from 0 to INT64_MAX without fraction or exponent. */
bool clef__json_unsigned(clef__json *json, uint64_t *value);
/* After an element of a list or object: true if another follows, false at its end or on an error. */
bool clef__json_more(clef__json *json, char closing);
/* Is there only white space left? */
bool clef__json_end(clef__json *json);
#endif
