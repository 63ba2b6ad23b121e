/* bench_html.c — results as one page: no scripts, nothing fetched, light and dark, also well-formed XML. */
#include "bench.h"
#include "runtime/json.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- text ---- */
/* Bytes of the UTF-8 character at p that XML allows; 0: it is none. */
static int character(const char *p, const char *end) {
    bool control = (unsigned char)*p < 0x20 && *p != '\n' && *p != '\t';
    bool none = !strncmp(p, "\xef\xbf\xbe", 3) || !strncmp(p, "\xef\xbf\xbf", 3); /* U+FFFE, U+FFFF */
    return control || none ? 0 : clef__utf8_length(p, end);
}

void bench_html_text(FILE *out, const char *text) {
    for (const char *p = text, *end = text + strlen(text); p < end;) {
        int n = character(p, end);
        if (!n) fputs("\xef\xbf\xbd", out);
        else if (*p == '<') fputs("&lt;", out);
        else if (*p == '>') fputs("&gt;", out);
        else if (*p == '&') fputs("&amp;", out);
        else if (*p == '"') fputs("&quot;", out);
        else fwrite(p, 1, (size_t)n, out);
        p += n ? n : 1;
    }
}

void bench_html_rate(FILE *out, double rate) {
    if (rate < 0.1 || rate >= 1e7) fprintf(out, "%.2g", rate);
    else fprintf(out, "%.*f", rate < 10 ? 2 : rate < 100 ? 1 : 0, rate);
}

static void cell(FILE *out, const char *text) {
    fputs("<td>", out);
    bench_html_text(out, text);
    fputs("</td>", out);
}

/* ---- the frame ---- */
static const char style[] =
    ":root{color-scheme:light dark;--page:#f7f7f5;--card:#fff;--ink:#1a1a19;--soft:#5d5c57;--line:#e2e1dc;"
    "--s0:#2a78d6;--s1:#eb6834;--s2:#159a6b;--s3:#c78a00;--s4:#d4568a;--s5:#0b7d0b;--s6:#4a3aa7;--s7:#d93a3a}\n"
    "@media (prefers-color-scheme:dark){:root{--page:#131312;--card:#1d1d1b;--ink:#f2f1ec;--soft:#b5b4ac;--line:#383734;"
    "--s0:#5398ea;--s1:#e8743f;--s2:#2bb386;--s3:#d29a1e;--s4:#e06a98;--s5:#43a843;--s6:#9a90ee;--s7:#ec6f6f}}\n"
    "*{box-sizing:border-box}\n"
    "body{margin:0 auto;padding:1.5rem 1rem 3rem;max-width:76rem;background:var(--page);color:var(--ink);"
    "font:1rem/1.45 system-ui,sans-serif}\n"
    "h1{font-size:1.5rem;margin:0 0 .75rem}h2{font-size:1.15rem;margin:2rem 0 .6rem}\n"
    "p{color:var(--soft);max-width:46rem;margin:.4rem 0 .8rem}\n"
    ".scroll{overflow-x:auto;background:var(--card);border:1px solid var(--line);border-radius:8px}\n"
    "table{border-collapse:collapse;width:100%;font-size:.85rem;font-variant-numeric:tabular-nums}\n"
    "th,td{padding:.35rem .7rem;text-align:left;white-space:nowrap;border-top:1px solid var(--line)}\n"
    "thead tr:first-child>*{border-top:0}th{font-weight:600;color:var(--soft)}\n"
    "td.n,th.n{text-align:right}td.best{font-weight:700}td.wide{white-space:normal;min-width:11rem}\n"
    "td.first,th.first{border-left:1px solid var(--line)}\n"
    ".letter{display:inline-block;min-width:1.45em;padding:0 .3em;margin-right:.45em;border-radius:4px;text-align:center;"
    "font-weight:700;color:var(--card);background:var(--c)}\n"
    ".panels{columns:24rem;column-gap:1rem}\n"
    "figure{margin:0 0 1rem;padding:.8rem;background:var(--card);border:1px solid var(--line);border-radius:8px;"
    "break-inside:avoid}\n"
    "figcaption{font-weight:600;font-size:.95rem;margin:0 0 .5rem;overflow-wrap:anywhere}\n"
    "figcaption small{font-weight:400;color:var(--soft)}\n"
    "svg{display:block;width:100%;height:auto;max-width:36rem}\n"
    "svg text{font:13px system-ui,sans-serif;fill:var(--soft);font-variant-numeric:tabular-nums}\n"
    "svg .strong{fill:var(--ink);font-weight:600}\n"
    ".grid{stroke:var(--line)}.roof{fill:none;stroke:var(--c);stroke-width:2}\n"
    ".sign{fill:var(--c);stroke:var(--card);stroke-width:1;fill-opacity:.85}.ring{fill:var(--card);stroke:var(--c);stroke-width:2}"
    "\n"
    ".bar rect{fill:var(--c)}.point:hover .sign,.bar:hover rect{fill:var(--ink)}\n"
    ".key{display:flex;flex-wrap:wrap;gap:.2rem 1.1rem;padding:0;margin:.4rem 0 "
    ".8rem;list-style:none;color:var(--soft);font-size:.9rem}\n"
    ".key svg{display:inline-block;width:16px;height:16px;vertical-align:-3px;margin-right:.35em}\n";

static void head(FILE *out, const bench_report *report) {
    fputs("<!DOCTYPE html>\n<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\"><head><meta charset=\"utf-8\"/>\n"
          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"/><title>Clef bench: ",
          out);
    for (int i = 0; i < report->n; i++) {
        if (i) fputs(" beside ", out);
        bench_html_text(out, report->series[i].label);
    }
    fprintf(out, "</title>\n<style>\n%s</style></head>\n<body>\n<h1>Clef bench</h1>\n", style);
}

static void letter(FILE *out, int series) {
    fprintf(out, "<span class=\"letter\" style=\"--c:var(--s%d)\">%c</span>", series, 'A' + series);
}

/* ---- what was measured ---- */
static void number_cell(FILE *out, double value, int digits, const char *unit) {
    if (isfinite(value) && value > 0) fprintf(out, "<td class=\"n\">%.*f%s</td>", digits, value, unit);
    else fputs("<td class=\"n\"></td>", out);
}

static void devices(FILE *out, const bench_report *report) {
    fputs("<div class=\"scroll\"><table>\n<thead><tr><th>run</th><th class=\"n\">bandwidth</th><th "
          "class=\"n\">peak</th><th>device</th>"
          "<th class=\"n\">units</th><th>platform, driver</th><th>Clef</th><th>date</th></tr></thead>\n<tbody>\n",
          out);
    for (int i = 0; i < report->n; i++) {
        const bench_series *s = &report->series[i];
        fputs("<tr><td class=\"wide\">", out);
        letter(out, i);
        bench_html_text(out, s->label);
        fputs("</td>", out);
        number_cell(out, 1e-9 * bench_stream(s), 1, " GB/s");
        number_cell(out, 1e-9 * bench_peak(s), 1, " GFLOP/s");
        fputs("<td class=\"wide\">", out);
        bench_html_text(out, s->device);
        fputs(*s->type ? " (" : "", out);
        bench_html_text(out, s->type);
        fputs(*s->type ? ")</td>" : "</td>", out);
        number_cell(out, (double)s->compute_units, 0, "");
        fputs("<td class=\"wide\">", out);
        bench_html_text(out, s->platform);
        fputs(", ", out);
        bench_html_text(out, s->driver);
        fputs("</td>", out);
        cell(out, s->version);
        cell(out, s->date);
        fputs("</tr>\n", out);
    }
    fputs("</tbody></table></div>\n", out);
}

/* ---- pictures ---- */
static bool is_first_of_suite(const bench_series *all, int k) {
    for (int i = 0; i < k; i++)
        if (!strcmp(all->point[i].suite, all->point[k].suite)) return false;
    return true;
}

static bool is_first_of_unit(const bench_series *all, int k) {
    for (int i = 0; i < k; i++)
        if (!strcmp(all->point[i].suite, all->point[k].suite) && !strcmp(all->point[i].unit, all->point[k].unit)) return false;
    return true;
}

static void key(FILE *out, const bench_series *all) {
    fputs("<ul class=\"key\">\n", out);
    for (int k = 0; k < all->n; k++) {
        if (!is_first_of_suite(all, k)) continue;
        fputs("<li><svg viewBox=\"-8 -8 16 16\" style=\"--c:var(--soft)\" aria-hidden=\"true\">", out);
        bench_svg_marker(out, all->point[k].suite, 0, 0);
        fputs("</svg>", out);
        bench_html_text(out, all->point[k].suite);
        fputs("</li>\n", out);
    }
    fputs("</ul>\n", out);
}

static bool only_curves(const bench_series *all) {
    bool only = all->n > 0;
    for (int k = 0; k < all->n; k++) only &= bench_is_curve(all->point[k].suite);
    return only;
}

static void rooflines(FILE *out, const bench_report *report, const bench_series *all) {
    fputs("<h2>Rooflines</h2>\n<p>Each sign is a measurement: to the right the more arithmetic there is for each byte that must "
          "move, upwards "
          "the faster. FLOPs are those that the chosen method really does; rates are effective ones, of the operation as it is "
          "defined, of "
          "which Winograd's convolution does fewer. What lies above the line was held by a cache, or peak or bandwidth was "
          "measured too low. "
          "Point at a sign to read it.</p>\n",
          out);
    key(out, all);
    fputs("<div class=\"panels\">\n", out);
    for (int i = 0; i < report->n; i++) {
        fputs("<figure><figcaption>", out);
        letter(out, i);
        bench_html_text(out, report->series[i].label);
        fputs("</figcaption>\n", out);
        bench_svg_roofline(out, report, i);
        fputs("</figure>\n", out);
    }
    fputs("</div>\n", out);
}

static void suites(FILE *out, const bench_report *report, const bench_series *all) {
    fputs("<h2>Suites</h2>\n<p>Longer, or higher, is faster; the percentage is the share of the roofline.</p>\n<ul class=\"key\">",
          out);
    for (int i = 0; i < report->n; i++) {
        fputs("<li>", out);
        letter(out, i);
        bench_html_text(out, report->series[i].label);
        fputs("</li>\n", out);
    }
    fputs("</ul>\n<div class=\"panels\">\n", out);
    for (int k = 0; k < all->n; k++) {
        const bench_point *p = &all->point[k];
        if (!is_first_of_unit(all, k)) continue;
        fputs("<figure><figcaption>", out);
        bench_html_text(out, p->suite);
        fputs(" <small>", out);
        bench_html_text(out, p->unit);
        fputs("</small></figcaption>\n", out);
        if (bench_is_curve(p->suite)) bench_svg_curve(out, report, p->suite, p->unit);
        else bench_svg_bars(out, report, all, p->suite, p->unit);
        fputs("</figure>\n", out);
    }
    fputs("</div>\n", out);
}

/* ---- the table ---- */
static void table_head(FILE *out, const bench_report *report) {
    fputs("<thead><tr><th></th><th></th><th></th><th></th><th class=\"n\"></th>", out);
    for (int i = 0; i < report->n; i++) {
        fprintf(out, "<th class=\"first\" colspan=\"%d\">", i ? 4 : 3);
        letter(out, i);
        bench_html_text(out, report->series[i].label);
        fputs("</th>", out);
    }
    fputs("</tr>\n<tr><th>suite</th><th>what</th><th>shape</th><th>unit</th><th class=\"n\">FLOP/byte</th>", out);
    for (int i = 0; i < report->n; i++)
        fprintf(out, "<th class=\"n first\">rate</th><th class=\"n\">ms</th><th class=\"n\">roofline</th>%s",
                i ? "<th class=\"n\">to A</th>" : "");
    fputs("</tr></thead>\n", out);
}

static double best_rate(const bench_report *report, const bench_point *row) {
    double best = 0;
    for (int i = 0; i < report->n; i++) {
        const bench_point *p = bench_find(&report->series[i], row);
        if (p) best = fmax(best, p->rate);
    }
    return best;
}

static void table_row(FILE *out, const bench_report *report, const bench_point *row) {
    const bench_point *first = bench_find(&report->series[0], row);
    double best = best_rate(report, row);
    const char *const texts[] = {row->suite, row->name, row->shape, row->unit};
    fputs("<tr>", out);
    for (int i = 0; i < 4; i++) cell(out, texts[i]);
    number_cell(out, bench_intensity(row), 2, "");
    for (int i = 0; i < report->n; i++) {
        const bench_point *p = bench_find(&report->series[i], row);
        fprintf(out, "<td class=\"n first%s\">", p && report->n > 1 && p->rate >= best ? " best" : "");
        if (p) bench_html_rate(out, p->rate);
        fputs("</td>", out);
        number_cell(out, p ? 1e3 * p->seconds : NAN, 3, "");
        number_cell(out, p ? 100 * bench_roofline(&report->series[i], p) : NAN, 0,
                    p && bench_is_above(&report->series[i], p) ? " % (above)" : " %");
        double ratio = p && first ? p->rate / first->rate : NAN;
        if (i) number_cell(out, ratio, ratio < 0.1 ? 4 : 2, "\xc3\x97");
    }
    fputs("</tr>\n", out);
}

void bench_html(FILE *out, const void *data) {
    const bench_report *report = data;
    bench_series all = {0};
    bool whole = bench_union(report, &all);
    head(out, report);
    devices(out, report);
    if (!only_curves(&all)) rooflines(out, report, &all);
    suites(out, report, &all);
    fputs("<h2>Figures</h2>\n<p>Times are medians of one call. The roofline is what bandwidth (copy) and peak (fma) of the same "
          "run allow, "
          "with each operand read and each result written once; (above) marks what is faster.</p>\n<div class=\"scroll\"><table>\n",
          out);
    table_head(out, report);
    fputs("<tbody>\n", out);
    for (int k = 0; k < all.n; k++) table_row(out, report, &all.point[k]);
    fprintf(out, "</tbody></table></div>\n%s</body></html>\n", whole ? "" : "<p>Memory ran out: some figures are missing.</p>\n");
    free(all.point);
}
