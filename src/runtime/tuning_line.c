/* tuning_line.c — one tuning result as one line of JSON:

       {"schema":1,"platform":"…","version":"…","device":"…","driver":"…","profile":"…","units":2,"family":"gemm",
        "kernel":"…","dtype":"f32","bucket":"…","knobs":{"rows":8},"ns":1000,"default_ns":1200}

   Numbers are whole, so that no locale changes them.  Files may lie: whatever is not just this is no result. */
#include "runtime/json.h"
#include "runtime/runtime_internal.h"
#include <string.h>

typedef struct field {
    const char *name;
    size_t offset;
} field;
#define FIELD(name) \
    { #name, offsetof(clef__tuned, name) }
static const field texts[] = {FIELD(platform), FIELD(version), FIELD(device), FIELD(driver), FIELD(profile),
                              FIELD(family),   FIELD(kernel),  FIELD(dtype),  FIELD(bucket)};
static const field numbers[] = {FIELD(schema), FIELD(units), FIELD(ns), FIELD(default_ns)};
enum { TEXTS = sizeof texts / sizeof texts[0], NUMBERS = sizeof numbers / sizeof numbers[0], KNOBS = 1u << (TEXTS + NUMBERS) };

static const char **text_of(const clef__tuned *t, int i) { return (const char **)((char *)t + texts[i].offset); }
static int64_t *number_of(const clef__tuned *t, int i) { return (int64_t *)((char *)t + numbers[i].offset); }

/* ---- reading ---- */
static bool take_knobs(clef__json *json, clef__tuned *t) {
    int64_t value;
    clef__json_expect(json, "{");
    for (const char *name; (name = clef__json_member(json));) {
        if (t->n_knobs == CLEF__TUNED_KNOBS || !clef__json_whole(json, &value) || value > INT32_MAX) return false;
        t->knob[t->n_knobs++] = (clef__tuned_knob){name, (int)value};
    }
    return !json->expected;
}

/* The value of this field; the field's bit, or 0 if it is unknown or the value wrong. */
static unsigned take_value(clef__json *json, const char *name, clef__tuned *t) {
    for (int i = 0; i < TEXTS; i++)
        if (strcmp(texts[i].name, name) == 0) return (*text_of(t, i) = clef__json_string(json)) ? 1u << i : 0;
    for (int i = 0; i < NUMBERS; i++)
        if (strcmp(numbers[i].name, name) == 0) return clef__json_whole(json, number_of(t, i)) ? 1u << (TEXTS + i) : 0;
    return strcmp(name, "knobs") == 0 && take_knobs(json, t) ? KNOBS : 0;
}

bool clef__tuned_parse(char *line, clef__tuned *t) {
    clef__json json = clef__json_of(line, strlen(line));
    unsigned seen = 0, bit;
    json.lenient = true; /* drivers name devices in any encoding */
    *t = (clef__tuned){0};
    clef__json_expect(&json, "{");
    for (const char *name; (name = clef__json_member(&json)); seen |= bit) {
        bit = take_value(&json, name, t);
        if (!bit || seen & bit) /* nothing may be there twice */
            return false;
    }
    return clef__json_at_end(&json) && seen == KNOBS * 2u - 1 && t->schema == CLEF__TUNING_SCHEMA;
}

bool clef__tuned_foreign(const char *line) {
    static const char start[] = "{\"schema\":";
    size_t n = strlen(line);
    if (strncmp(line, start, sizeof start - 1) != 0 || line[n - 1] != '}') return false;
    clef__json json = clef__json_of((char *)line + sizeof start - 1, n - (sizeof start - 1)); /* reading a number writes nothing */
    int64_t schema;
    return clef__json_whole(&json, &schema) && strchr(",}", clef__json_peek(&json)) && schema != CLEF__TUNING_SCHEMA;
}

/* ---- writing ---- */
static void put_texts(clef__text *to, const clef__tuned *t, int from, int end) {
    for (int i = from; i < end; i++) {
        clef__text_add(to, ",\"%s\":", texts[i].name);
        clef__text_json(to, *text_of(t, i));
    }
}

void clef__tuned_put(clef__text *to, const clef__tuned *t) {
    clef__text_add(to, "{\"schema\":%lld", (long long)t->schema);
    put_texts(to, t, 0, 5);
    clef__text_add(to, ",\"units\":%lld", (long long)t->units);
    put_texts(to, t, 5, TEXTS);
    clef__text_append(to, ",\"knobs\":{");
    for (int i = 0; i < t->n_knobs; i++) {
        clef__text_append(to, i ? "," : "");
        clef__text_json(to, t->knob[i].name);
        clef__text_add(to, ":%d", t->knob[i].value);
    }
    clef__text_add(to, "},\"ns\":%lld,\"default_ns\":%lld}\n", (long long)t->ns, (long long)t->default_ns);
}
