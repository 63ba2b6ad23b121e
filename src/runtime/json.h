/* json.h — reads JSON (RFC 8259) in memory, value by value, and writes its strings; needs no memory of its own and no other file of
   Clef's.

       clef__json json = clef__json_of(text, size);
       clef__json_expect(&json, "{");
       for (const char *name; (name = clef__json_member(&json));) … read or skip its value …
       if (clef__json_at_end(&json)) … it was a whole object …

   Strings are decoded in place: they get no longer by it.  The first error sticks: after it nothing is left to read, and every
   function returns false, NULL or 0. */
#ifndef CLEF_JSON_H
#define CLEF_JSON_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct clef__json {
    char *start, *at, *end;
    const char *expected; /* what should be at `at`; NULL: no error so far */
    bool lenient;         /* strings may hold any bytes, and \u0000 and half surrogate pairs, which become U+FFFD */
    bool opened;          /* '{' or '[' was just taken */
} clef__json;

clef__json clef__json_of(char *text, size_t size);
/* Notes the error; false. */
bool clef__json_fail(clef__json *json, const char *expected);
/* Skips white space; the character after it, 0 at the end. */
char clef__json_peek(clef__json *json);
/* Takes a token of one character: a literal, as the error may point to it. */
bool clef__json_expect(clef__json *json, const char *token);
/* The name of the next member of the object; NULL after the last one. */
const char *clef__json_member(clef__json *json);
/* Has the array another element? */
bool clef__json_element(clef__json *json);
/* A string, ended by a zero byte. */
const char *clef__json_string(clef__json *json);
/* A number from 0 to INT64_MAX without sign, fraction and exponent. */
bool clef__json_whole(clef__json *json, int64_t *value);
/* A number of up to 63 characters; true is 1, false 0, null NaN.  Fractions are an error where the locale has
   another decimal point. */
bool clef__json_double(clef__json *json, double *value);
/* Passes over a value of any kind, nested up to 32 deep. */
bool clef__json_skip(clef__json *json);
/* Is there only white space left, and was there no error? */
bool clef__json_at_end(clef__json *json);

/* A byte within a string as it is written, itself or its escape: 1 to 6 bytes without a zero.  From 0x80 on they pass as they are,
   as names of devices and files are UTF-8. */
enum { CLEF__JSON_BYTE = 6 };
size_t clef__json_escape(char byte, char out[CLEF__JSON_BYTE]);
/* The whole string, quoted. */
void clef__json_put_string(FILE *file, const char *text);

/* Length of the UTF-8 character at s (1 to 4), 0 if it is not valid (RFC 3629); end bounds it. */
int clef__utf8_length(const char *s, const char *end);
#endif
