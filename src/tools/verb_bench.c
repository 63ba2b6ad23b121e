/* verb_bench.c — clef bench: what this device gives to Clef, in figures that can be compared; and comparing them. */
#include "bench.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct bench_options {
    common_options common;
    double seconds;
    const char *csv, *html, *label, *predict;
    bool compare, resnet18;
    ranks ranks;
} bench_options;
static bench_options o = {.seconds = 0.5};

#define OPTIONS bench_options
static const arg args[] = {
    OPTION("seconds", ARG_NUMBER, "X", seconds, "to spend on each figure; default 0.5"),
    OPTION("resnet18", ARG_FLAG, NULL, resnet18, "and a training step of ResNet-18, which takes seconds on a CPU"),
    OPTION("predict", ARG_TEXT, "GPU", predict,
           "measure nothing: how long it would take on a GPU that is not here, h100 for instance"),
    OPTION("devices", ARG_TEXT, "D,E,...", ranks.devices, "of parallel, a rank for each; default: two or four parts of the device"),
    OPTION("mpi", ARG_FLAG, NULL, ranks.mpi, "of parallel: a process for each rank, started by mpirun"),
    OPTION("label", ARG_TEXT, "NAME", label, "what this run is called beside others; default: the device's name"),
    OPTION("compare", ARG_FLAG, NULL, compare, "measure nothing: the words are files that bench --json wrote, up to 8 runs"),
    OPTION("html", ARG_TEXT, "FILE", html, "write one page with rooflines, bars and a table"),
    OPTION("csv", ARG_TEXT, "FILE", csv, "write one line per figure"),
    PRECISION_ARG,
    COMMON_ARGS};

/* ---- progress: one line that is rewritten on a terminal, a plain line every few seconds elsewhere ---- */
typedef struct progress {
    bool on, terminal;
    int done, total;
    const bench_case *now;
    time_t last;
} progress;

static progress progress_begin(int total) {
    const char *term = getenv("TERM");
    return (progress){.on = !o.common.quiet,
                      .total = total,
                      .last = time(NULL),
                      .terminal = isatty(STDERR_FILENO) && term && strcmp(term, "dumb")};
}

static void progress_show(const progress *p) {
    fprintf(stderr, "measuring %d of %d: %s %s", p->done + 1, p->total, p->now->name, p->now->shape);
}

static void progress_step(progress *p, const bench_case *c) {
    enum { PLAIN_INTERVAL = 5 };
    p->now = c;
    if (!p->on || (!p->terminal && time(NULL) - p->last < PLAIN_INTERVAL)) return;
    if (p->terminal) fputs("\r\033[K", stderr);
    progress_show(p);
    if (!p->terminal) fputc('\n', stderr);
    fflush(stderr);
    p->last = time(NULL);
}

static void progress_wipe(const progress *p) {
    if (p->on && p->terminal) fputs("\r\033[K", stderr), fflush(stderr);
}

static void on_compile(void *user, int done, int total) {
    const progress *p = user;
    if (!p->on || !p->terminal || !p->now) return;
    fputs("\r\033[K", stderr);
    progress_show(p);
    if (done < total) fprintf(stderr, ", compiling %d of %d", done, total);
    fflush(stderr);
}

/* ---- measuring ---- */
static void describe(const clef_context *ctx, bench_series *s) {
    clef_device_info info;
    time_t now = time(NULL);
    struct tm utc;
    if (!clef_context_device(ctx, 0, &info)) return;
    snprintf(s->label, sizeof s->label, "%s", o.label ? o.label : info.name);
    snprintf(s->device, sizeof s->device, "%s", info.name);
    snprintf(s->type, sizeof s->type, "%s", info.type);
    snprintf(s->driver, sizeof s->driver, "%s", info.driver);
    snprintf(s->platform, sizeof s->platform, "%s", info.platform);
    snprintf(s->version, sizeof s->version, "%s", clef_version());
    if (gmtime_r(&now, &utc)) strftime(s->date, sizeof s->date, "%Y-%m-%dT%H:%M:%SZ", &utc);
    s->compute_units = info.compute_units;
    if (o.predict) snprintf(s->driver, sizeof s->driver, "predicted");
    if (o.predict && !o.label) snprintf(s->label, sizeof s->label, "%s, predicted", bench_predicted(o.predict));
    if (!o.label && clef_get_matmul_precision(ctx) == CLEF_MATMUL_HIGH)
        strncat(s->label, ", TF32", sizeof s->label - strlen(s->label) - 1);
}

static void show(const bench_series *s, int *shown) {
    for (; *shown < s->n; ++*shown) (o.common.json ? bench_json_point : bench_text_point)(stdout, s, &s->point[*shown]);
    fflush(stdout);
}

/* The first two figures are shown together, as the roofline consists of both. */
static int measure_all(clef_context *ctx, const bench_case *c, int n, bench_series *s) {
    progress p = progress_begin(n);
    bench_point point;
    int shown = 0;
    clef_on_compile(ctx, on_compile, &p);
    for (; p.done < n; p.done++) {
        progress_step(&p, &c[p.done]);
        bool ok = bench_measure(ctx, &c[p.done], o.seconds, &point) && bench_add(s, &point);
        progress_wipe(&p);
        if (!ok) return tool_failed("bench", ctx);
        if (p.done > 0 || n == 1) show(s, &shown);
    }
    return EXIT_OK;
}

/* Each figure with what it consists of. */
static int predict_all(clef_context *ctx, const char *key, const bench_case *c, int n, bench_series *s) {
    char why[96];
    bench_point point;
    for (int i = 0; i < n; i++) {
        if (!bench_predict(ctx, &c[i], key, &point, why, sizeof why) || !bench_add(s, &point)) return tool_failed("bench", ctx);
        if (o.common.json) bench_json_point(stdout, s, &point);
        else bench_text_predicted(stdout, s, &point, why);
    }
    return EXIT_OK;
}

/* Why a case is not measured, or predicted; NULL: it is. */
static const char *why_not(clef_context *ctx, const bench_case *c) {
    if (o.predict && c->generates) return "a token depends on the one before, so it can only be measured";
    bool can = !c->tf32 || bench_uses_units(ctx, c) || clef_error_status(ctx);
    return can ? NULL : "the device has no matrix units for it";
}

/* How many cases stay. */
static int leave_out(clef_context *ctx, bench_case *c, int n) {
    int kept = 0;
    for (int i = 0; i < n; i++) {
        const char *why = why_not(ctx, &c[i]);
        if (!why) c[kept++] = c[i];
        else if (!o.common.quiet) fprintf(stderr, "%s %s is left out: %s\n", c[i].name, c[i].shape, why);
    }
    return kept;
}

static int measure_words(const char *const *words, bench_report *report) {
    int code = EXIT_OK, n = 0;
    bench_series *s = &report->series[report->n++];
    clef_options options = tool_options("bench", &o.common);
    options.plan_for = o.predict ? bench_predicted(o.predict) : NULL;
    clef_context *ctx = tool_open_with("bench", &o.common, &options, &code);
    if (!ctx) return code;
    describe(ctx, s);
    if (!o.common.quiet) fprintf(stderr, "device %s\n", tool_device_name(ctx));
    if (o.common.json) bench_json_start(stdout, s);
    else if (!o.common.quiet) bench_text_head(stdout, o.predict);
    bench_case *c = bench_cases(words, !strcmp(s->type, "gpu"), o.resnet18 || o.predict, &n);
    if (c) n = leave_out(ctx, c, n);
    code = !c ? tool_failed("bench", ctx) : o.predict ? predict_all(ctx, options.plan_for, c, n, s) : measure_all(ctx, c, n, s);
    free(c);
    clef_close(ctx);
    return code;
}

/* ---- ranks ---- */
static bench_series *of_ranks;

static void begin_ranks(const clef_context *ctx) {
    describe(ctx, of_ranks);
    if (!o.common.quiet) fprintf(stderr, "device %s\n", tool_device_name(ctx));
    if (o.common.json) bench_json_start(stdout, of_ranks);
    else if (!o.common.quiet) bench_text_head(stdout, false);
}

static void show_last(const bench_series *s) {
    int shown = s->n - 1;
    show(s, &shown);
}

static int choose_parts(char *text, size_t size) {
    int code = EXIT_OK;
    clef_context *ctx = tool_open("bench", &o.common, &code);
    if (!ctx) return code;
    clef_device_info info;
    bool ok = clef_context_device(ctx, 0, &info) && bench_parts(&info, text, size);
    clef_close(ctx);
    return ok ? EXIT_OK : EXIT_FAILED;
}

/* Rank 0 alone has results; the other processes of MPI have none to write. */
static int measure_ranks(bench_report *report) {
    char parts[256];
    ranks r = o.ranks;
    if (!ranks_wanted(&r)) {
        int code = choose_parts(parts, sizeof parts);
        if (code) return code;
        r.devices = parts;
    }
    of_ranks = &report->series[0];
    bench_parallel b = {.model = o.resnet18 ? "resnet18" : "cnn",
                        .seconds = o.seconds,
                        .series = of_ranks,
                        .begin = begin_ranks,
                        .show = show_last};
    int code = ranks_run("bench", &o.common, &r, bench_together, &b);
    report->n = of_ranks->n > 0;
    return code;
}

/* Is it a word of the command?  measure_ranks takes it as the only one. */
static bool asks_for_ranks(const char *const *words) {
    bool asks = false;
    for (int i = 0; !o.compare && words[i]; i++) asks |= !strcmp(words[i], "parallel");
    return asks;
}

/* ---- comparing ---- */
static int compare(const char *const *paths, bench_report *report) {
    for (; *paths; paths++)
        if (!bench_read(*paths, report)) return EXIT_FAILED;
    bench_name_apart(report);
    if (!o.common.json) bench_text_report(stdout, report);
    else
        for (int i = 0; i < report->n; i++) {
            const bench_series *s = &report->series[i];
            bench_json_start(stdout, s);
            for (int k = 0; k < s->n; k++) bench_json_point(stdout, s, &s->point[k]);
        }
    return EXIT_OK;
}

static int options_fit(const char *const *words) {
    if (o.compare && !*words) return tool_usage("bench", "--compare wants files that clef bench --json wrote");
    if (o.compare && (o.label || o.resnet18 || o.common.matmul_precision))
        return tool_usage("bench", "--label, --resnet18 and --matmul-precision belong to a measurement, not to --compare");
    bool parallel = asks_for_ranks(words);
    if (o.predict && (o.compare || parallel))
        return tool_usage("bench", "--predict is of one GPU, and of figures that can be predicted");
    if (o.predict && !bench_predicted(o.predict))
        return tool_usage("bench", "--predict knows no \"%s\"; it wants one of %s", o.predict, bench_gpus());
    if (ranks_wanted(&o.ranks) && !parallel) return tool_usage("bench", "--devices and --mpi belong to clef bench parallel");
    if (parallel && words[1]) return tool_usage("bench", "parallel is measured by itself, without other words");
    if (parallel) return ranks_parse("bench", &o.common, &o.ranks) ? EXIT_OK : EXIT_USAGE;
    for (; !o.compare && *words; words++)
        if (!bench_knows(*words))
            return tool_usage("bench", "wants %s, not \"%s\"%s; result files need --compare", BENCH_SUITES, *words,
                              args_hint(*words, BENCH_SUITES));
    return EXIT_OK;
}

static int run_bench(const char *const *operands) {
    bench_report report = {0};
    int code = options_fit(operands);
    if (code) return code;
    if ((o.html && !tool_file_fits("bench", "html", o.html)) || (o.csv && !tool_file_fits("bench", "csv", o.csv)))
        return EXIT_FAILED;
    code = o.compare                  ? compare(operands, &report)
           : asks_for_ranks(operands) ? measure_ranks(&report)
                                      : measure_words(operands, &report);
    if (code == EXIT_OK && report.n &&
        ((o.html && !tool_write_file("bench", "html", o.html, bench_html, &report)) ||
         (o.csv && !tool_write_file("bench", "csv", o.csv, bench_csv, &report))))
        code = EXIT_FAILED;
    bench_free(&report);
    return code;
}

const verb verb_bench = {"bench",  "[" BENCH_SUITES "]...", "Measure this device through Clef, or compare results.", args, &o,
                         run_bench};
