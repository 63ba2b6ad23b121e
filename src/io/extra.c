/* extra.c — a program's own numbers and texts in a checkpoint: metadata "extra." + name.  Numbers come back bit for bit, NaN as some NaN. */
#include "io_internal.h"
#include <string.h>

static bool ends(const clef_extra *e) { return e->size > 0 && memchr(e->text, 0, e->size); }

/* What is wrong with it; NULL: nothing. */
static const char *wrong(const clef_extra *e, bool saves) {
    int given = (e->real != NULL) + (e->whole != NULL) + (e->text != NULL);
    if (given != 1) return "needs one of real, whole and text";
    if (e->text && (saves ? !ends(e) : e->size == 0)) return "has a text without an end; size is that of its memory";
    return saves && e->text && !clef__utf8_valid(e->text) ? "has a text that is not UTF-8" : NULL;
}

static bool comes_before(const clef_extra *extra, int i) {
    for (int j = 0; j < i; j++)
        if (strcmp(extra[j].name, extra[i].name) == 0) return true;
    return false;
}

bool clef__extra_check(const clef_extra *extra, int n, bool saves, clef__report *report) {
    if (n < 0 || (n > 0 && !extra)) return clef__report_set(report, CLEF_INVALID, "%d extra values in a NULL array", n), false;
    for (int i = 0; i < n; i++) {
        const char *name = extra[i].name;
        if (!name || !*name || !clef__utf8_valid(name) || comes_before(extra, i))
            return clef__report_set(report, CLEF_INVALID, "extra value %d needs a name of its own, in UTF-8", i), false;
        const char *fault = wrong(&extra[i], saves);
        if (fault) return clef__report_set(report, CLEF_INVALID, "extra value %s %s", clef__quote(name).text, fault), false;
    }
    return true;
}

static char *value_text(const clef_extra *e) {
    if (e->text) return clef__strdup(e->text);
    return clef__strdup(e->real ? clef__exact(*e->real).text : clef__decimal(*e->whole).text);
}

char **clef__extra_pairs(const clef_extra *extra, int n, clef__report *report) {
    char **pair = clef__calloc(2 * (size_t)n + 1, sizeof *pair);
    bool made = pair != NULL;
    for (int i = 0; made && i < n; i++) {
        pair[2 * i] = clef__asprintf("extra.%s", extra[i].name);
        pair[2 * i + 1] = value_text(&extra[i]);
        made = pair[2 * i] && pair[2 * i + 1];
    }
    if (made) return pair;
    clef__report_set(report, CLEF_MEMORY, "no memory for %d extra values", n);
    clef__extra_free(pair, n);
    return NULL;
}

void clef__extra_free(char **pair, int n) {
    for (int i = 0; pair && i < 2 * n; i++) clef__free(pair[i]);
    clef__free(pair);
}

/* Without memory of its own: what was examined is found again. */
static const char *find(const clef__st_index *index, const clef_extra *e) {
    static const char prefix[] = "extra.";
    for (int i = 0; i < index->pairs; i++)
        if (strncmp(index->pair[i].key, prefix, strlen(prefix)) == 0 && strcmp(index->pair[i].key + strlen(prefix), e->name) == 0)
            return index->pair[i].value;
    return NULL;
}

/* Fills it, where there is room for a text; false for a text that is no such number. */
static bool take(const clef_extra *e, const char *text) {
    if (e->real) return clef__parse_exact(text, e->real);
    if (e->whole) return clef__parse_decimal(text, e->whole);
    memcpy(e->text, text, strlen(text) + 1);
    return true;
}

/* Can it be filled? */
static bool fits(const clef_extra *e, const char *text) {
    double real;
    int64_t whole;
    clef_extra probe = *e;
    if (e->text) return strlen(text) < e->size;
    if (e->real) probe.real = &real;
    else probe.whole = &whole;
    return take(&probe, text);
}

bool clef__extra_examine(const clef__st_index *index, const clef_extra *extra, int n, clef__report *report) {
    for (int i = 0; i < n; i++) {
        const char *text = find(index, &extra[i]);
        clef__quoted quoted = clef__quote(extra[i].name);
        const char *name = quoted.text;
        if (!text) return clef__report_set(report, CLEF_FORMAT, "was saved without extra value %s", name), false;
        if (fits(&extra[i], text)) continue;
        if (extra[i].text)
            clef__report_set(report, CLEF_INVALID, "has an extra value %s of %zu bytes; %zu are wanted for it, not %zu", name,
                             strlen(text), strlen(text) + 1, extra[i].size);
        else
            clef__report_set(report, CLEF_FORMAT, "has an extra value %s that is no %s: %s", name,
                             extra[i].real ? "real number" : "whole number", clef__quote(text).text);
        return false;
    }
    return true;
}

void clef__extra_take(const clef__st_index *index, const clef_extra *extra, int n) {
    for (int i = 0; i < n; i++) take(&extra[i], find(index, &extra[i]));
}
