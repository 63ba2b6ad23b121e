/* Any bytes as JSON: a verdict; strings of a strict reader are UTF-8, and both kinds of number agree. */
#include "runtime/json.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void check_string(const char *string, bool lenient) {
    const char *end = string + strlen(string);
    for (int n; !lenient && string < end; string += n)
        if (!(n = clef__utf8_length(string, end))) abort();
}

/* As a user reads: objects and arrays of the first level member by member, what is deeper is skipped. */
static void walk(clef__json *json) {
    char open = clef__json_peek(json);
    if (open != '{' && open != '[') return (void)clef__json_skip(json);
    clef__json_expect(json, open == '{' ? "{" : "[");
    for (const char *name; open == '{' ? (name = clef__json_member(json)) != NULL : clef__json_element(json);) {
        clef__json again = *json;
        int64_t whole;
        double number;
        if (open == '{') check_string(name, json->lenient);
        if (clef__json_peek(json) == '"') {
            const char *string = clef__json_string(json);
            if (string) check_string(string, json->lenient);
        } else if (clef__json_whole(&again, &whole)) {
            if (!clef__json_double(json, &number) || number != (double)whole || json->at != again.at) abort();
        } else clef__json_skip(json);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    if (size < 1) return 0;
    char *text = malloc(size);
    bool good = false;
    for (int pass = 0; pass < 2; pass++) { /* what can be skipped can be read */
        memcpy(text, bytes + 1, size - 1);
        clef__json json = clef__json_of(text, size - 1);
        json.lenient = bytes[0] & 1;
        if (pass) walk(&json);
        else clef__json_skip(&json);
        bool end = clef__json_at_end(&json);
        if (good && !end) abort();
        good = end;
    }
    free(text);
    return 0;
}
