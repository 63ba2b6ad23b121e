/* bench_report.c — results: their place below the roofline, and as text, JSON lines and CSV.

   The roofline: S. Williams, A. Waterman and D. Patterson, "Roofline: an insightful visual performance model for multicore
   architectures", 2009.  Work of so many FLOPs on so many bytes takes at least the longer of FLOPs / peak and bytes / stream. */
#include "bench.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double ROOF_TOLERANCE = 0.02; /* copy and fma make the roof and lie on it, give or take their spread */

/* ---- points ---- */
bool bench_add(bench_series *s, const bench_point *point) {
    if (s->n == BENCH_POINTS) return false;
    if (s->n % 32 == 0) {
        bench_point *more = realloc(s->point, ((size_t)s->n + 32) * sizeof *more);
        if (!more) return false;
        s->point = more;
    }
    s->point[s->n++] = *point;
    return true;
}

void bench_free(bench_report *report) {
    for (int i = 0; i < report->n; i++) free(report->series[i].point);
    report->n = 0;
}

const bench_point *bench_find(const bench_series *s, const bench_point *like) {
    for (int i = 0; i < s->n; i++) {
        const bench_point *p = &s->point[i];
        if (!strcmp(p->name, like->name) && !strcmp(p->shape, like->shape) && !strcmp(p->suite, like->suite) &&
            !strcmp(p->unit, like->unit))
            return p;
    }
    return NULL;
}

bool bench_union(const bench_report *report, bench_series *all) {
    for (int i = 0; i < report->n; i++)
        for (int k = 0; k < report->series[i].n; k++)
            if (!bench_find(all, &report->series[i].point[k]) && !bench_add(all, &report->series[i].point[k])) return false;
    return true;
}

/* ---- the roofline ---- */
static const bench_point *of_suite(const bench_series *s, const char *suite) {
    for (int i = 0; i < s->n; i++)
        if (!strcmp(s->point[i].suite, suite)) return &s->point[i];
    return NULL;
}

double bench_peak(const bench_series *s) {
    const bench_point *p = of_suite(s, "fma");
    return p ? p->flops / p->seconds : 0;
}

double bench_stream(const bench_series *s) {
    const bench_point *p = of_suite(s, "copy");
    return p ? p->bytes / p->seconds : 0;
}

double bench_roofline(const bench_series *s, const bench_point *p) {
    double peak = bench_peak(s), stream = bench_stream(s);
    if (!(peak > 0) || !(stream > 0) || !(p->real_flops > 0) || !(p->bytes > 0)) return NAN;
    return fmax(p->real_flops / peak, p->bytes / stream) / p->seconds;
}

bool bench_is_above(const bench_series *s, const bench_point *p) { return bench_roofline(s, p) > 1 + ROOF_TOLERANCE; }

double bench_intensity(const bench_point *p) { return p->real_flops > 0 && p->bytes > 0 ? p->real_flops / p->bytes : NAN; }

/* ---- JSON lines ---- */
void bench_json_start(FILE *out, const bench_series *s) {
    json j = json_begin(out);
    json_text(&j, "event", "start");
    json_whole(&j, "schema", BENCH_SCHEMA);
    json_text(&j, "version", s->version);
    json_text(&j, "date", s->date);
    json_text(&j, "label", s->label);
    json_text(&j, "device", s->device);
    json_text(&j, "type", s->type);
    json_text(&j, "platform", s->platform);
    json_text(&j, "driver", s->driver);
    json_whole(&j, "compute_units", s->compute_units);
    json_end(&j);
}

void bench_json_point(FILE *out, const bench_series *s, const bench_point *p) {
    json j = json_begin(out);
    json_text(&j, "event", "result");
    json_text(&j, "suite", p->suite);
    json_text(&j, "name", p->name);
    json_text(&j, "shape", p->shape);
    json_number(&j, "seconds", p->seconds);
    json_number(&j, "spread", p->spread);
    json_number(&j, "rate", p->rate);
    json_text(&j, "unit", p->unit);
    json_number(&j, "flops", p->flops);
    json_number(&j, "real_flops", p->real_flops);
    json_number(&j, "bytes", p->bytes);
    json_number(&j, "intensity", bench_intensity(p));
    json_number(&j, "roofline", bench_roofline(s, p));
    if (bench_is_above(s, p)) json_bool(&j, "above_roof", true);
    json_end(&j);
}

/* ---- text ---- */
void bench_text_head(FILE *out, bool predicted) {
    if (predicted) fprintf(out, "%-20s %-36s %12s %19s %9s  %s\n", "", "", "time", "rate", "roofline", "consists of");
    else fprintf(out, "%-20s %-36s %12s %19s %10s %9s\n", "", "", "time", "rate", "FLOP/byte", "roofline");
}

/* A number in its place, or nothing where there is none. */
static void column(FILE *out, int width, int digits, double value, const char *unit) {
    if (isfinite(value)) fprintf(out, " %*.*f%s", width - (int)strlen(unit), digits, value, unit);
    else fprintf(out, " %*s", width, "");
}

void bench_text_point(FILE *out, const bench_series *s, const bench_point *p) {
    fprintf(out, "%-20s %-36s %9.3f ms %10.1f %-8s", p->name, p->shape, 1e3 * p->seconds, p->rate, p->unit);
    column(out, 10, 2, bench_intensity(p), "");
    column(out, 9, 0, 100 * bench_roofline(s, p), " %");
    if (bench_is_above(s, p)) fputs(" above", out);
    if (p->real_flops > 0 && p->real_flops < p->flops) fprintf(out, "  %.0f %% of the FLOPs", 100 * p->real_flops / p->flops);
    fputc('\n', out);
}

void bench_text_predicted(FILE *out, const bench_series *s, const bench_point *p, const char *why) {
    fprintf(out, "%-20s %-36s %9.3f ms %10.1f %-8s", p->name, p->shape, 1e3 * p->seconds, p->rate, p->unit);
    column(out, 9, 0, 100 * bench_roofline(s, p), " %");
    fprintf(out, "  %s\n", why);
}

/* Digits behind the point that show a slow device's rate as well. */
static int digits_of(double value, int usual) { return value >= 1 ? usual : value >= 0.1 ? usual + 1 : usual + 2; }

static void text_row(FILE *out, const bench_report *report, const bench_point *row) {
    const bench_point *first = bench_find(&report->series[0], row);
    fprintf(out, "%-20s %-36s %-8s", row->name, row->shape, row->unit);
    for (int i = 0; i < report->n; i++) {
        const bench_point *p = bench_find(&report->series[i], row);
        double rate = p ? p->rate : NAN, ratio = p && first ? p->rate / first->rate : NAN;
        column(out, 10, digits_of(rate, 1), rate, "");
        if (i > 0) column(out, 8, digits_of(ratio, 2), ratio, "x");
    }
    fputc('\n', out);
}

void bench_text_report(FILE *out, const bench_report *report) {
    bench_series all = {0};
    for (int i = 0; i < report->n; i++) fprintf(out, "%c  %s\n", 'A' + i, report->series[i].label);
    fprintf(out, "\n%-20s %-36s %-8s", "", "", "");
    for (int i = 0; i < report->n; i++) {
        fprintf(out, " %10c", 'A' + i);
        if (i > 0) fprintf(out, "      %c/A", 'A' + i);
    }
    fputc('\n', out);
    if (bench_union(report, &all))
        for (int k = 0; k < all.n; k++) text_row(out, report, &all.point[k]);
    free(all.point);
}

/* ---- CSV (RFC 4180, lines end as on this system) ---- */
static void csv_text(FILE *out, const char *text) {
    fputc('"', out);
    for (; *text; text++) {
        if (*text == '"') fputc('"', out);
        fputc(*text, out);
    }
    fputs("\",", out);
}

static void csv_number(FILE *out, double value, char end) {
    if (isfinite(value)) fprintf(out, "%.9g", value);
    fputc(end, out);
}

static void csv_row(FILE *out, const bench_series *s, const bench_point *p) {
    const char *const texts[] = {s->label, s->device, s->driver, p->suite, p->name, p->shape, p->unit};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) csv_text(out, texts[i]);
    csv_number(out, p->rate, ',');
    csv_number(out, p->seconds, ',');
    csv_number(out, p->spread, ',');
    csv_number(out, p->flops, ',');
    csv_number(out, p->real_flops, ',');
    csv_number(out, p->bytes, ',');
    csv_number(out, bench_intensity(p), ',');
    csv_number(out, bench_roofline(s, p), '\n');
}

void bench_csv(FILE *out, const void *data) {
    const bench_report *report = data;
    fputs("label,device,driver,suite,name,shape,unit,rate,seconds,spread,flops,real_flops,bytes,intensity,roofline\n", out);
    for (int i = 0; i < report->n; i++)
        for (int k = 0; k < report->series[i].n; k++) csv_row(out, &report->series[i], &report->series[i].point[k]);
}
