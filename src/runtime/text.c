/* text.c — see text.h. */
#include "runtime/text.h"
#include "runtime/json.h"
#include "runtime/runtime.h"

#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static bool reserve(clef__text *t, size_t more) {
    if (t->failed) return false;
    if (more < t->capacity - t->length) return true;
    size_t capacity = more < SIZE_MAX / 4 && t->capacity < SIZE_MAX / 4 ? 2 * t->capacity + more + 256 : 0;
    char *grown = capacity ? clef__realloc(t->data, capacity) : NULL;
    if (!grown) {
        clef__free(t->data);
        *t = (clef__text){.failed = true};
        return false;
    }
    t->data = grown;
    t->capacity = capacity;
    return true;
}

void clef__text_put(clef__text *t, const char *bytes, size_t n) {
    if (!reserve(t, n)) return;
    memcpy(t->data + t->length, bytes, n);
    t->length += n;
    t->data[t->length] = 0;
}

void clef__text_append(clef__text *t, const char *string) { clef__text_put(t, string, strlen(string)); }

void clef__text_json(clef__text *t, const char *string) {
    clef__text_put(t, "\"", 1);
    for (char out[CLEF__JSON_BYTE]; *string; string++) clef__text_put(t, out, clef__json_escape(*string, out));
    clef__text_put(t, "\"", 1);
}

/* Written where there is room, and once more where there was too little. */
void clef__text_add(clef__text *t, const char *fmt, ...) {
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    size_t room = t->capacity - t->length;
    int n = vsnprintf(room ? t->data + t->length : NULL, room, fmt, args);
    bool fits = n >= 0 && (size_t)n < room;
    if (n >= 0 && !fits && reserve(t, (size_t)n)) {
        vsnprintf(t->data + t->length, (size_t)n + 1, fmt, again);
        fits = true;
    }
    if (fits) t->length += (size_t)n;
    va_end(again);
    va_end(args);
}

void clef__point(char *number) {
    const char *point = localeconv()->decimal_point;
    char *at = *point ? strstr(number, point) : NULL;
    if (!at) return;
    *at = '.';
    memmove(at + 1, at + strlen(point), strlen(at + strlen(point)) + 1);
}

void clef__text_number(clef__text *t, const char *fmt, double value) {
    char number[64];
    snprintf(number, sizeof number, fmt, value);
    clef__point(number);
    clef__text_append(t, number);
}

bool clef__ends_with(const char *string, const char *ending) {
    size_t n = strlen(string), m = strlen(ending);
    return n >= m && strcmp(string + n - m, ending) == 0;
}
