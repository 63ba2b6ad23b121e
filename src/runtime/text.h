/* text.h — a growing string, always ended by a zero byte (running out of memory sticks; the data is then NULL); and how a string ends. */
#ifndef CLEF_TEXT_H
#define CLEF_TEXT_H
#include <stdbool.h>
#include <stddef.h>

typedef struct clef__text {
    char *data; /* clef__free it */
    size_t length, capacity;
    bool failed;
} clef__text;

void clef__text_put(clef__text *t, const char *bytes, size_t n);
void clef__text_append(clef__text *t, const char *string);
void clef__text_number(clef__text *t, const char *fmt, double value); /* with a point in every locale */
void clef__text_json(clef__text *t, const char *string);              /* quoted and escaped */
void clef__text_add(clef__text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* What a locale has between a number's whole part and the rest becomes a point. */
void clef__point(char *number);
bool clef__ends_with(const char *string, const char *ending);
#endif
