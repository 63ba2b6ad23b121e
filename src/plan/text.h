/* text.h — a growing string.  Running out of memory sticks; the text is then NULL. */
#ifndef CLEF_TEXT_H
#define CLEF_TEXT_H
#include <stdbool.h>
#include <stddef.h>

typedef struct clef__text {
    char *text;
    size_t length, capacity;
    bool failed;
} clef__text;

void clef__text_add(clef__text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void clef__text_append(clef__text *t, const char *s);
#endif
