/* jsonl.c — see jsonl.h. */
#include "jsonl.h"
#include "runtime/json.h"
#include <math.h>

json json_begin(FILE *out) {
    fputc('{', out);
    return (json){out, false};
}

void json_end(json *j) {
    fputs("}\n", j->out);
    fflush(j->out);
}

void json_key(json *j, const char *key) {
    if (j->more) fputc(',', j->out);
    j->more = true;
    clef__json_put_string(j->out, key);
    fputc(':', j->out);
}

static void number(FILE *out, double value) {
    if (isfinite(value)) fprintf(out, "%.9g", value);
    else fputs("null", out);
}

void json_text(json *j, const char *key, const char *value) {
    json_key(j, key);
    if (value) clef__json_put_string(j->out, value);
    else fputs("null", j->out);
}

void json_number(json *j, const char *key, double value) {
    json_key(j, key);
    number(j->out, value);
}

void json_whole(json *j, const char *key, int64_t value) {
    json_key(j, key);
    fprintf(j->out, "%lld", (long long)value);
}

void json_bool(json *j, const char *key, bool value) {
    json_key(j, key);
    fputs(value ? "true" : "false", j->out);
}

void json_numbers(json *j, const char *key, const double *values, int64_t n) {
    json_key(j, key);
    fputc('[', j->out);
    for (int64_t i = 0; i < n; i++) {
        if (i) fputc(',', j->out);
        number(j->out, values[i]);
    }
    fputc(']', j->out);
}

void json_matrix(json *j, const char *key, const int64_t *values, int64_t rows, int64_t columns) {
    json_key(j, key);
    fputc('[', j->out);
    for (int64_t r = 0; r < rows; r++) {
        fputs(r ? ",[" : "[", j->out);
        for (int64_t c = 0; c < columns; c++) fprintf(j->out, "%s%lld", c ? "," : "", (long long)values[r * columns + c]);
        fputc(']', j->out);
    }
    fputc(']', j->out);
}
