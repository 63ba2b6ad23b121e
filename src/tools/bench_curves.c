/* bench_curves.c — the SVG of clef bench parallel: bytes a second against the size of a message, images a second against ranks.

   Both axes are logarithmic.  A line for each number of ranks of each run, in the run's colour; the more ranks, the wider its dashes. */
#include "bench.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 380, LEFT = 54, RIGHT = 330, TOP = 24, BOTTOM = 216, HEIGHT = 254, TICKS = 8 };

typedef struct axes {
    double x0, x1, y0, y1; /* logarithms of base 2 */
} axes;

static int ranks_of(const bench_point *p) { return atoi(p->shape); }
static bool scales(const bench_point *p) { return !strcmp(p->suite, "scaling"); }
static double x_of(const bench_point *p) { return log2(scales(p) ? ranks_of(p) : p->bytes); }

static bool is_on(const bench_point *p, const char *suite) {
    return !strcmp(p->suite, suite) && isfinite(x_of(p)) && p->rate > 0 && isfinite(p->rate);
}

static axes make_axes(const bench_report *report, const char *suite) {
    axes a = {INFINITY, -INFINITY, INFINITY, -INFINITY};
    for (int i = 0; i < report->n; i++)
        for (int k = 0; k < report->series[i].n; k++) {
            const bench_point *p = &report->series[i].point[k];
            if (!is_on(p, suite)) continue;
            a.x0 = fmin(a.x0, x_of(p));
            a.x1 = fmax(a.x1, x_of(p));
            a.y0 = fmin(a.y0, log2(p->rate));
            a.y1 = fmax(a.y1, log2(p->rate));
        }
    if (!(a.x0 <= a.x1)) a = (axes){0, 1, 0, 1};
    return (axes){floor(a.x0), fmax(ceil(a.x1), floor(a.x0) + 1), floor(a.y0), fmax(ceil(a.y1), floor(a.y0) + 1)};
}

static double at_x(const axes *a, double x) { return LEFT + (RIGHT - LEFT) * (x - a->x0) / (a->x1 - a->x0); }
static double at_y(const axes *a, double y) { return BOTTOM - (BOTTOM - TOP) * (y - a->y0) / (a->y1 - a->y0); }

/* 2^20: "1 Mi". */
static void binary(FILE *out, double power) {
    static const char *const prefix[] = {"", " Ki", " Mi", " Gi", " Ti"};
    int k = power < 0 ? 0 : power >= 50 ? 4 : (int)(power / 10);
    fprintf(out, "%.3g%s", exp2(power - 10 * k), prefix[k]);
}

static void grid(FILE *out, const axes *a, bool is_scaling, const char *unit) {
    int every = (int)((a->x1 - a->x0) / TICKS) + 1;
    for (double x = a->x0; x <= a->x1; x += every) {
        fprintf(out, "<path class=\"grid\" d=\"M%.1f %dV%d\"/><text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">", at_x(a, x), TOP,
                BOTTOM, at_x(a, x), BOTTOM + 16);
        binary(out, x);
        fputs("</text>", out);
    }
    every = (int)((a->y1 - a->y0) / TICKS) + 1;
    for (double y = a->y0; y <= a->y1; y += every)
        fprintf(out, "<path class=\"grid\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.3g</text>", LEFT,
                at_y(a, y), RIGHT, LEFT - 6, at_y(a, y) + 4, exp2(y));
    fputs("<text x=\"2\" y=\"12\">", out);
    bench_html_text(out, unit);
    fprintf(out, "</text><text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", (LEFT + RIGHT) / 2, HEIGHT - 4,
            is_scaling ? "ranks" : "bytes of a rank's message");
}

static void title(FILE *out, const bench_series *s, const bench_point *p) {
    fputs("<title>", out);
    bench_html_text(out, s->label);
    fputs(": ", out);
    bench_html_text(out, p->name);
    fputc(' ', out);
    bench_html_text(out, p->shape);
    fprintf(out, "\n%.4g ", p->rate);
    bench_html_text(out, p->unit);
    fprintf(out, ", %.4g ms</title>", 1e3 * p->seconds);
}

/* Does point k begin a line of its run: is it the first with its name, and but for the scaling its number of ranks? */
static bool alike(const bench_point *p, const bench_point *q) {
    return !strcmp(p->name, q->name) && (scales(p) || ranks_of(p) == ranks_of(q));
}

static bool begins(const bench_series *s, const char *suite, int k) {
    for (int i = 0; i < k; i++)
        if (is_on(&s->point[i], suite) && alike(&s->point[i], &s->point[k])) return false;
    return is_on(&s->point[k], suite);
}

static void line(FILE *out, const axes *a, const bench_series *s, const char *suite, int first) {
    const bench_point *p = &s->point[first], *last = p;
    int dash = scales(p) ? 0 : ranks_of(p) > 100 ? 100 : ranks_of(p) - 2;
    fprintf(out, "<path class=\"roof\" stroke-dasharray=\"%d %d\" d=\"", dash > 0 ? 2 * dash : 1, dash > 0 ? 3 : 0);
    for (int k = first, n = 0; k < s->n; k++)
        if (is_on(&s->point[k], suite) && alike(p, &s->point[k]))
            fprintf(out, "%c%.1f %.1f", n++ ? 'L' : 'M', at_x(a, x_of(last = &s->point[k])), at_y(a, log2(s->point[k].rate)));
    fprintf(out, "\"/><text x=\"%d\" y=\"%.1f\">", RIGHT + 4, at_y(a, log2(last->rate)) + 4);
    if (scales(p)) bench_html_text(out, p->name);
    else fprintf(out, "%d ranks", ranks_of(p));
    fputs("</text>\n", out);
}

void bench_svg_curve(FILE *out, const bench_report *report, const char *suite, const char *unit) {
    axes a = make_axes(report, suite);
    fprintf(out, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", WIDTH, HEIGHT);
    bench_html_text(out, suite);
    fputs("\">\n", out);
    grid(out, &a, !strcmp(suite, "scaling"), unit);
    for (int i = 0; i < report->n; i++) {
        const bench_series *s = &report->series[i];
        fprintf(out, "<g style=\"--c:var(--s%d)\">\n", i);
        for (int k = 0; k < s->n; k++)
            if (begins(s, suite, k)) line(out, &a, s, suite, k);
        for (int k = 0; k < s->n; k++) {
            const bench_point *p = &s->point[k];
            if (!is_on(p, suite)) continue;
            fputs("<g class=\"point\">", out);
            title(out, s, p);
            fprintf(out, "<circle class=\"sign\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\"/></g>\n", at_x(&a, x_of(p)),
                    at_y(&a, log2(p->rate)));
        }
        fputs("</g>\n", out);
    }
    fputs("</svg>\n", out);
}
