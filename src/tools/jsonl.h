/* jsonl.h — writes one object per line: json_begin, members, json_end. */
#ifndef CLEF_TOOL_JSON_H
#define CLEF_TOOL_JSON_H
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct json {
    FILE *out;
    bool more; /* a member came before */
} json;

json json_begin(FILE *out);
void json_end(json *j); /* ends the line and hands it on at once */
void json_key(json *j, const char *key);
void json_text(json *j, const char *key, const char *value); /* NULL: null */
void json_number(json *j, const char *key, double value);    /* null where it is not finite */
void json_whole(json *j, const char *key, int64_t value);
void json_bool(json *j, const char *key, bool value);
void json_numbers(json *j, const char *key, const double *values, int64_t n);
/* [[…],[…]]: rows × columns. */
void json_matrix(json *j, const char *key, const int64_t *values, int64_t rows, int64_t columns);
#endif
