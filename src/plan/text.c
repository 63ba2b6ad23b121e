/* text.c — see text.h. */
#include "plan/text.h"
#include "runtime/runtime.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static bool reserve(clef__text *t, size_t more) {
    if (t->failed) return false;
    if (t->length + more + 1 <= t->capacity) return true;
    size_t capacity = 2 * t->capacity + more + 256;
    char *grown = clef__realloc(t->text, capacity);
    if (!grown) {
        clef__free(t->text);
        *t = (clef__text){.failed = true};
        return false;
    }
    t->text = grown;
    t->capacity = capacity;
    return true;
}

void clef__text_append(clef__text *t, const char *s) {
    size_t n = strlen(s);
    if (!reserve(t, n)) return;
    memcpy(t->text + t->length, s, n + 1);
    t->length += n;
}

void clef__text_add(clef__text *t, const char *fmt, ...) {
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    if (n >= 0 && reserve(t, (size_t)n)) {
        vsnprintf(t->text + t->length, (size_t)n + 1, fmt, again);
        t->length += (size_t)n;
    }
    va_end(again);
    va_end(args);
}
