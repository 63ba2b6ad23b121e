/* bench_read.c — result files: the lines that clef bench --json wrote, of one or several runs. */
#include "bench.h"
#include "runtime/json.h"
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Texts that do not fit are cut, between two characters. */
static void take_text(char *to, size_t size, const char *text) {
    size_t n = strlen(text);
    if (n >= size)
        for (n = size - 1; n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80;) n--;
    memcpy(to, text, n);
    to[n] = 0;
}

typedef struct line {
    char event[16];
    double schema, compute_units;
    bench_series series; /* of a start */
    bench_point point;   /* of a result */
} line;

static void set_text(line *l, const char *key, const char *text) {
    struct {
        const char *key;
        char *to;
        size_t size;
    } texts[] = {
#define TEXT(key, field) {key, l->field, sizeof l->field}
        TEXT("event", event),
        TEXT("label", series.label),
        TEXT("device", series.device),
        TEXT("type", series.type),
        TEXT("driver", series.driver),
        TEXT("platform", series.platform),
        TEXT("version", series.version),
        TEXT("date", series.date),
        TEXT("suite", point.suite),
        TEXT("name", point.name),
        TEXT("shape", point.shape),
        TEXT("unit", point.unit)};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (!strcmp(texts[i].key, key)) take_text(texts[i].to, texts[i].size, text);
}

static double *number_named(line *l, const char *key) {
    struct {
        const char *key;
        double *to;
    } numbers[] = {{"schema", &l->schema},
                   {"compute_units", &l->compute_units},
                   {"seconds", &l->point.seconds},
                   {"spread", &l->point.spread},
                   {"rate", &l->point.rate},
                   {"flops", &l->point.flops},
                   {"real_flops", &l->point.real_flops},
                   {"bytes", &l->point.bytes}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!strcmp(numbers[i].key, key)) return numbers[i].to;
    return NULL;
}

/* Unknown members are passed over: a later version may add some. */
static bool take_member(clef__json *in, const char *key, line *l) {
    char first = clef__json_peek(in);
    if (first == '"') {
        const char *text = clef__json_string(in);
        if (text) set_text(l, key, text);
        return text;
    }
    double *number = first == '{' || first == '[' ? NULL : number_named(l, key);
    return number ? clef__json_double(in, number) : clef__json_skip(in);
}

static bool take_object(clef__json *in, line *l) {
    in->lenient = true; /* labels and names of devices may be in any encoding */
    clef__json_expect(in, "{");
    for (const char *key; (key = clef__json_member(in));)
        if (!take_member(in, key, l)) return false;
    return clef__json_at_end(in);
}

static bool is_measure(double x) { return isfinite(x) && x > 0; }

/* What is wrong with a result, or NULL; counts that are none become 0, unknown. */
static const char *check_point(bench_point *p) {
    if (!*p->name || !*p->suite) return "a result without suite or name";
    if (!is_measure(p->seconds) || !is_measure(p->rate)) return "a result whose seconds and rate are not above 0";
    if (!is_measure(p->flops)) p->flops = 0;
    if (!is_measure(p->real_flops) || p->real_flops > p->flops) p->real_flops = p->flops; /* files of earlier versions do not say */
    if (!is_measure(p->bytes)) p->bytes = 0;
    if (!is_measure(p->spread)) p->spread = 0;
    return NULL;
}

/* "" or what is wrong. */
static const char *start_series(bench_report *report, line *l, const char *file) {
    static char text[128];
    if (isnan(l->schema)) return "the start of something else than clef bench";
    if (l->schema != BENCH_SCHEMA) {
        snprintf(text, sizeof text, "a result of schema %.9g; this clef reads schema %d", l->schema, BENCH_SCHEMA);
        return text;
    }
    if (report->n == BENCH_SERIES) return "one series too many: up to 8 are compared";
    l->series.compute_units = is_measure(l->compute_units) && l->compute_units < 1e9 ? (int64_t)l->compute_units : 0;
    if (!*l->series.label) memcpy(l->series.label, l->series.device, sizeof l->series.label);
    take_text(l->series.file, sizeof l->series.file, file);
    report->series[report->n++] = l->series;
    return "";
}

/* `first`: the series that were there before this file. */
static const char *take_line(bench_report *report, int first, const char *file, clef__json in) {
    line l = {.schema = NAN, .compute_units = NAN, .point = {.seconds = NAN, .rate = NAN}};
    if (clef__json_at_end(&in)) return "";
    if (!take_object(&in, &l)) return "not a JSON object";
    if (!strcmp(l.event, "start")) return start_series(report, &l, file);
    if (strcmp(l.event, "result")) return "";
    if (report->n == first) return "a result before any start; clef bench --json writes both";
    const char *wrong = check_point(&l.point);
    return wrong ? wrong : bench_add(&report->series[report->n - 1], &l.point) ? "" : "too many results";
}

static bool refuse(const char *path, int line_number, const char *why) {
    if (line_number) fprintf(stderr, "clef bench: %s: line %d: %s\n", path, line_number, why);
    else fprintf(stderr, "clef bench: %s: %s\n", path, why);
    return false;
}

bool bench_read(const char *path, bench_report *report) {
    FILE *in = fopen(path, "r");
    if (!in) return refuse(path, 0, strerror(errno));
    char *text = NULL;
    size_t room = 0;
    int first = report->n, number = 0;
    const char *wrong = "", *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path;
    errno = 0;
    for (ssize_t length; !*wrong && (length = getline(&text, &room, in)) >= 0;) {
        number++;
        wrong = take_line(report, first, file, clef__json_of(text, (size_t)length));
    }
    int error = ferror(in) ? errno : 0;
    free(text);
    fclose(in);
    if (*wrong) return refuse(path, number, wrong);
    if (error) return refuse(path, 0, strerror(error));
    for (int i = first; i < report->n; i++)
        if (!report->series[i].n) return refuse(path, 0, "a run without results");
    return report->n > first || refuse(path, 0, "no results of clef bench --json in it");
}

static bool is_alike(const bench_report *report, int i) {
    for (int j = 0; j < report->n; j++)
        if (j != i && !strcmp(report->series[j].label, report->series[i].label)) return true;
    return false;
}

static void append_label(bench_series *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void append_label(bench_series *s, const char *format, ...) {
    char more[sizeof s->label / 2], plain[sizeof s->label];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(more, sizeof more, format, arguments);
    va_end(arguments);
    memcpy(plain, s->label, sizeof plain);
    take_text(s->label, sizeof s->label - strlen(more), plain);
    strcat(s->label, more);
}

/* By their files first; runs of one file, or of files of one name, by numbers. */
void bench_name_apart(bench_report *report) {
    bool alike[BENCH_SERIES];
    for (int i = 0; i < report->n; i++) alike[i] = *report->series[i].file && is_alike(report, i);
    for (int i = 0; i < report->n; i++)
        if (alike[i]) append_label(&report->series[i], " (%.40s)", report->series[i].file);
    for (int i = report->n - 1; i > 0; i--)
        if (is_alike(report, i)) append_label(&report->series[i], " #%d", i + 1);
}
