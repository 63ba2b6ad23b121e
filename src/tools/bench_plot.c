/* bench_plot.c — the SVG of the page.  Pictures are 380 units wide: about as wide as a phone, so that text stays readable there.
   Colours are the page's variables; --c is that of the series. */
#include "bench.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 380 };

static double clamp(double x, double least, double most) { return x < least ? least : x > most ? most : x; }

/* ---- signs ---- */
void bench_svg_marker(FILE *out, const char *suite, double x, double y) {
    static const struct {
        const char *suite, *path;
    } signs[] = {{"gemm", "m-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0z"},
                 {"conv", "m-4.5 -4.5h9v9h-9z"},
                 {"pointwise", "m0 -5.5l5.5 9.5h-11z"},
                 {"reduce", "m0 -6l6 6l-6 6l-6 -6z"},
                 {"norm", "m0 5.5l5.5 -9.5h-11z"},
                 {"attention", "m-1.8 -5.5h3.6v3.7h3.7v3.6h-3.7v3.7h-3.6v-3.7h-3.7v-3.6h3.7z"},
                 {"rnn", "m-5.5 0l2.75 -4.8h5.5l2.75 4.8l-2.75 4.8h-5.5z"},
                 {"lm", "m0 -5.5l5.2 3.8l-2 6.1h-6.4l-2 -6.1z"},
                 {"train", "m0 -7l1.9 4.6l4.9 .4l-3.8 3.2l1.2 4.9l-4.2 -2.6l-4.2 2.6l1.2 -4.9l-3.8 -3.2l4.9 -.4z"}};
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        if (!strcmp(signs[i].suite, suite)) {
            fprintf(out, "<path class=\"sign\" d=\"M%.1f %.1f%s\"/>", x, y, signs[i].path);
            return;
        }
    fprintf(out, "<circle class=\"ring\" cx=\"%.1f\" cy=\"%.1f\" r=\"4.5\"/>", x, y);
}

/* ---- tooltips ---- */
static void title(FILE *out, const bench_series *s, const bench_point *p) {
    double share = bench_roofline(s, p), intensity = bench_intensity(p);
    fputs("<title>", out);
    bench_html_text(out, s->label);
    fputs(": ", out);
    bench_html_text(out, p->name);
    fputc(' ', out);
    bench_html_text(out, p->shape);
    fputs("\n", out);
    bench_html_rate(out, p->rate);
    fputc(' ', out);
    bench_html_text(out, p->unit);
    fprintf(out, ", %.4g ms \xc2\xb1 %.0f %%", 1e3 * p->seconds, 100 * p->spread);
    if (isfinite(intensity)) fprintf(out, ", %.3g FLOP per byte", intensity);
    if (isfinite(share)) fprintf(out, ", %.0f %% of the roofline%s", 100 * share, bench_is_above(s, p) ? " (above)" : "");
    if (p->real_flops < p->flops) fprintf(out, ", %.0f %% of the FLOPs as defined", 100 * p->real_flops / p->flops);
    fputs("</title>", out);
}

/* ---- the roofline: both axes logarithmic, the same for all series ---- */
typedef struct axes {
    double x0, x1, y0, y1; /* decades */
} axes;

enum { LEFT = 50, RIGHT = 358, TOP = 26, BOTTOM = 256, HEIGHT = 298, MOST_DECADES = 24 };

static double at_x(const axes *a, double x) { return LEFT + (RIGHT - LEFT) * (clamp(x, a->x0, a->x1) - a->x0) / (a->x1 - a->x0); }
static double at_y(const axes *a, double y) { return BOTTOM - (BOTTOM - TOP) * (clamp(y, a->y0, a->y1) - a->y0) / (a->y1 - a->y0); }

static bool is_plotted(const bench_point *p) { return p->real_flops > 0 && p->bytes > 0; }

static void widen(double *least, double *most, double x) {
    *least = fmin(*least, x);
    *most = fmax(*most, x);
}

/* Whole decades around everything; a little room above for what is written there. */
static axes make_axes(const bench_report *report) {
    axes a = {INFINITY, -INFINITY, INFINITY, -INFINITY};
    for (int i = 0; i < report->n; i++)
        for (int k = 0; k < report->series[i].n; k++) {
            const bench_point *p = &report->series[i].point[k];
            if (!is_plotted(p)) continue;
            widen(&a.x0, &a.x1, log10(p->real_flops / p->bytes));
            widen(&a.y0, &a.y1, log10(p->real_flops / p->seconds) + 0.1);
        }
    if (!isfinite(a.x0) || !isfinite(a.x1) || !isfinite(a.y0) || !isfinite(a.y1)) a = (axes){-1, 3, 8, 12};
    a = (axes){floor(a.x0), ceil(a.x1), floor(a.y0 - 0.1), ceil(a.y1)};
    a.x1 = clamp(a.x1, a.x0 + 1, a.x0 + MOST_DECADES);
    a.y0 = clamp(a.y0, a.y1 - MOST_DECADES, a.y1 - 1);
    return a;
}

/* 1e11: "100 G". */
static void with_prefix(FILE *out, double value) {
    static const char prefix[] = "yzafpnum kMGTPEZY";
    int k = (int)clamp(floor(log10(value) / 3 + 1e-9), -8, 8);
    fprintf(out, "%.3g", value / pow(1000, k));
    fprintf(out, k ? " %c" : " ", prefix[k + 8]);
}

static void grid(FILE *out, const axes *a) {
    int every = (int)((a->x1 - a->x0) / 8) + 1;
    for (int k = 0; a->x0 + k <= a->x1; k += every) {
        double x = at_x(a, a->x0 + k);
        fprintf(out, "<path class=\"grid\" d=\"M%.1f %dV%d\"/><text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%g</text>", x, TOP,
                BOTTOM, x, BOTTOM + 17, pow(10, a->x0 + k));
    }
    every = (int)((a->y1 - a->y0) / 8) + 1;
    for (int k = 0; a->y0 + k <= a->y1; k += every) {
        double y = at_y(a, a->y0 + k);
        fprintf(out, "<path class=\"grid\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">", LEFT, y, RIGHT,
                LEFT - 6, y + 4);
        with_prefix(out, pow(10, a->y0 + k));
        fputs("</text>", out);
    }
    fprintf(out, "<text x=\"%d\" y=\"%d\">FLOP/s</text><text x=\"%d\" y=\"%d\" text-anchor=\"middle\">FLOP per byte</text>\n", 2,
            TOP - 12, (LEFT + RIGHT) / 2, HEIGHT - 6);
}

/* Two lines that meet where stream · intensity reaches the peak, and what each stands for. */
static void roof(FILE *out, const axes *a, const bench_series *s) {
    double peak = log10(bench_peak(s)), stream = log10(bench_stream(s));
    if (!isfinite(peak) || !isfinite(stream)) return;
    double meet = clamp(peak - stream, a->x0, a->x1), from = clamp(a->y0 - stream, a->x0, meet);
    double x0 = at_x(a, from), y0 = at_y(a, from + stream), x1 = at_x(a, meet), y1 = at_y(a, fmin(peak, meet + stream));
    fprintf(out, "<path class=\"roof\" d=\"M%.1f %.1fL%.1f %.1fH%d\"/>", x0, y0, x1, y1, RIGHT);
    fprintf(out, "<text class=\"strong\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">", RIGHT - 2, y1 - 6);
    with_prefix(out, bench_peak(s));
    double steep = -atan2(y0 - y1, x1 - x0) * 57.29577951;
    fprintf(out,
            "FLOP/s</text><text class=\"strong\" transform=\"translate(%.1f %.1f) rotate(%.1f)\" y=\"-7\" text-anchor=\"middle\">",
            (x0 + x1) / 2, (y0 + y1) / 2, steep);
    with_prefix(out, bench_stream(s));
    fputs("B/s</text>\n", out);
}

void bench_svg_roofline(FILE *out, const bench_report *report, int series) {
    const bench_series *s = &report->series[series];
    axes a = make_axes(report);
    fprintf(out, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"Roofline of ", WIDTH, HEIGHT);
    bench_html_text(out, s->label);
    fprintf(out, "\" style=\"--c:var(--s%d)\">\n", series);
    grid(out, &a);
    roof(out, &a, s);
    for (int k = 0; k < s->n; k++) {
        const bench_point *p = &s->point[k];
        if (!is_plotted(p)) continue;
        fputs("<g class=\"point\">", out);
        title(out, s, p);
        bench_svg_marker(out, p->suite, at_x(&a, log10(p->real_flops / p->bytes)), at_y(&a, log10(p->real_flops / p->seconds)));
        fputs("</g>\n", out);
    }
    fputs("</svg>\n", out);
}

/* ---- bars ---- */
enum { LABEL = 17, BAR = 12, BAR_GAP = 3, GROUP_GAP = 11, NUMBERS = 108, LETTER = 17 };

static bool belongs(const bench_point *p, const char *suite, const char *unit) {
    return !strcmp(p->suite, suite) && !strcmp(p->unit, unit);
}

static double highest(const bench_report *report, const char *suite, const char *unit) {
    double most = 0;
    for (int i = 0; i < report->n; i++)
        for (int k = 0; k < report->series[i].n; k++) {
            const bench_point *p = &report->series[i].point[k];
            if (belongs(p, suite, unit)) most = fmax(most, p->rate);
        }
    return most;
}

static void bar(FILE *out, const bench_report *report, int series, const bench_point *p, double y, double most) {
    int left = report->n > 1 ? LETTER : 0;
    double text = y + BAR - 1.5;
    fprintf(out, "<g class=\"bar\" style=\"--c:var(--s%d)\">", series);
    if (left) fprintf(out, "<text x=\"3\" y=\"%.1f\">%c</text>", text, 'A' + series);
    if (!p) {
        fprintf(out, "<text x=\"%d\" y=\"%.1f\">not measured</text></g>\n", left + 2, text);
        return;
    }
    double width = fmax(1, (WIDTH - left - NUMBERS) * p->rate / most), share = bench_roofline(&report->series[series], p);
    title(out, &report->series[series], p);
    fprintf(out,
            "<rect x=\"%d\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" rx=\"2\"/><text x=\"%.1f\" y=\"%.1f\"><tspan class=\"strong\">",
            left, y, width, BAR, left + width + 6, text);
    bench_html_rate(out, p->rate);
    fputs("</tspan>", out);
    if (isfinite(share)) fprintf(out, "<tspan dx=\"7\">%.0f %%</tspan>", 100 * share);
    fputs("</text></g>\n", out);
}

void bench_svg_bars(FILE *out, const bench_report *report, const bench_series *all, const char *suite, const char *unit) {
    double most = highest(report, suite, unit);
    int groups = 0, group = LABEL + report->n * (BAR + BAR_GAP) + GROUP_GAP;
    for (int k = 0; k < all->n; k++) groups += belongs(&all->point[k], suite, unit);
    fprintf(out, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", WIDTH, groups * group);
    bench_html_text(out, suite);
    fputs(" in ", out);
    bench_html_text(out, unit);
    fputs("\">\n", out);
    groups = 0;
    for (int k = 0; k < all->n; k++) {
        const bench_point *row = &all->point[k];
        if (!belongs(row, suite, unit)) continue;
        double y = (double)group * groups++;
        fprintf(out, "<text class=\"name\" x=\"0\" y=\"%.1f\"><tspan class=\"strong\">", y + LABEL - 4);
        bench_html_text(out, row->name);
        fputs("</tspan><tspan dx=\"6\">", out);
        bench_html_text(out, row->shape);
        fputs("</tspan></text>\n", out);
        for (int i = 0; i < report->n; i++)
            bar(out, report, i, bench_find(&report->series[i], row), y + LABEL + i * (BAR + BAR_GAP), most);
    }
    fputs("</svg>\n", out);
}
