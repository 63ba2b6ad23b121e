/* verb_tune.c — clef tune: measures which configurations of the kernels are fastest here, and
   carries results from machine to machine. */
#include "tool.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct tune_options {
    common_options common;
    const char *model, *data, *shapes, *import, *export;
    int64_t batch;
    double budget; /* < 0: the default */
    bool again;
} tune_options;
static tune_options o = {.budget = -1};

#define OPTIONS tune_options
static const arg args[] = {
    OPTION("budget", ARG_NUMBER, "SECONDS", budget, "for measuring; default 60, above 0"),
    OPTION("model", ARG_CHOICE, MODEL_META, model, "tune for a training step of this model; default lenet"),
    OPTION("data", ARG_CHOICE, "digits|mnist|cifar10", data, "whose images it takes; default: those it is known for"),
    OPTION("batch", ARG_COUNT, "N", batch, "images per step; default: as clef train has it"),
    OPTION("shapes", ARG_TEXT, "FILE", shapes, "tune for the products or convolutions in a CSV file instead"),
    OPTION("again", ARG_FLAG, NULL, again, "also measure what has a result already"),
    OPTION("import", ARG_TEXT, "FILE", import, "first take over the results in FILE"),
    OPTION("export", ARG_TEXT, "FILE", export, "at the end write all results to FILE"),
    PRECISION_ARG,
    COMMON_ARGS};

/* Set by the first Ctrl-C, which ends the measuring; what was found is kept. */
static volatile int interrupted;

/* With --import or --export alone nothing is measured. */
static bool measures(void) { return o.model || o.shapes || o.budget > 0 || (!o.import && !o.export); }

static bool options_fit(void) {
    const char *wrong = NULL;
    if (o.budget == 0) wrong = "--budget wants a number above 0";
    else if (o.model && o.shapes) wrong = "--model and --shapes are two workloads; give one";
    else if ((o.data || o.batch) && o.shapes) wrong = "--data and --batch belong to --model";
    else if (o.batch > 1000000) wrong = "--batch is far too large";
    if (wrong) tool_usage("tune", "%s", wrong);
    return !wrong;
}

/* ---- what is seen of it ---- */
static bool on_terminal(void) {
    const char *term = getenv("TERM");
    return !o.common.quiet && isatty(STDERR_FILENO) && term && strcmp(term, "dumb");
}

static void clear_line(void) {
    if (on_terminal()) fputs("\r\033[K", stderr);
}

static void show_choice(const clef_tune_progress *p) {
    if (!o.common.json) {
        printf("%-60s %10.3f ms", p->benchmark, 1e3 * p->seconds);
        if (*p->best) printf("  %.2f times as fast with %s", p->default_seconds / p->seconds, p->best);
        putchar('\n');
        fflush(stdout);
        return;
    }
    json j = json_begin(stdout);
    json_text(&j, "event", "benchmark");
    json_text(&j, "benchmark", p->benchmark);
    json_text(&j, "knobs", p->best);
    json_number(&j, "seconds", p->seconds);
    json_number(&j, "default_seconds", p->default_seconds);
    json_whole(&j, "tried", p->tried);
    json_whole(&j, "wrong", p->wrong);
    json_end(&j);
}

static bool on_progress(void *user, const clef_tune_progress *p) {
    (void)user;
    clear_line();
    if (p->finished) show_choice(p);
    else if (on_terminal())
        fprintf(stderr, "%d of %d, %.0f s: %.50s, %d tried", p->done, p->total, p->spent, p->benchmark, p->tried);
    return !interrupted;
}

static void show_result(const clef_tune_result *r) {
    int left = r->benchmarks - r->known - r->tuned;
    if (r->wrong) fprintf(stderr, "clef tune: %d configurations gave wrong numbers and are not used; please report it\n", r->wrong);
    if (r->no_library && !o.common.quiet) fprintf(stderr, "clef tune: CLBlast is not among what is tried: %s\n", r->no_library);
    if (!o.common.json) {
        printf("%d benchmarks: %d measured, %d of them improved; %d known before, %d left; %.1f s\n", r->benchmarks, r->tuned,
               r->improved, r->known, left, r->seconds);
        return;
    }
    json j = json_begin(stdout);
    json_text(&j, "event", "done");
    json_whole(&j, "benchmarks", r->benchmarks);
    json_whole(&j, "known", r->known);
    json_whole(&j, "tuned", r->tuned);
    json_whole(&j, "improved", r->improved);
    json_whole(&j, "wrong", r->wrong);
    json_whole(&j, "left", left);
    json_number(&j, "seconds", r->seconds);
    if (r->no_library) json_text(&j, "no_library", r->no_library);
    json_end(&j);
}

/* ---- what is done ---- */
static clef_status work(clef_context *ctx, void *user) { return workload_queue(ctx, user); }

static int measure_workload(clef_context *ctx, workload *w) {
    clef_tune_result result;
    if (!o.common.quiet) fprintf(stderr, "tuning for %s on %s\n", o.shapes ? o.shapes : w->model, tool_device_name(ctx));
    if (!w->shapes && !workload_model(w, ctx)) return tool_failed("tune", ctx);
    clef_status status =
        clef_tune(ctx,
                  &(clef_tune_options){
                      .work = work, .on_progress = on_progress, .user = w, .again = o.again, .budget = o.budget > 0 ? o.budget : 0},
                  &result);
    clear_line();
    if (status != CLEF_OK && status != CLEF_INTERRUPTED) return tool_failed("tune", ctx);
    show_result(&result);
    if (status == CLEF_OK) return EXIT_OK;
    fprintf(stderr, "clef tune: interrupted; what was measured is kept\n");
    return EXIT_FAILED;
}

static void show_count(const char *event, const char *path, int n) {
    if (!o.common.json) {
        printf("%d results %s %s\n", n, !strcmp(event, "import") ? "read from" : "written to", path);
        return;
    }
    json j = json_begin(stdout);
    json_text(&j, "event", event);
    json_text(&j, "file", path);
    json_whole(&j, "results", n);
    json_end(&j);
}

static int carry(clef_context *ctx, const char *event, const char *path,
                 clef_status (*move)(clef_context *ctx, const char *path, int *n)) {
    int n = 0;
    if (!path) return EXIT_OK;
    if (move(ctx, path, &n)) return tool_failed("tune", ctx);
    show_count(event, path, n);
    return EXIT_OK;
}

static int tune(clef_context *ctx, workload *w) {
    int code = carry(ctx, "import", o.import, clef_tune_import);
    if (code == EXIT_OK && measures()) code = measure_workload(ctx, w);
    return code == EXIT_OK ? carry(ctx, "export", o.export, clef_tune_export) : code;
}

static int run_tune(const char *const *operands) {
    (void)operands;
    int code = EXIT_OK;
    workload w = {.model = o.shapes ? NULL : o.model ? o.model : "lenet", .batch = o.batch};
    if (!options_fit()) return EXIT_USAGE;
    if (w.model && !source_parse("tune", o.data ? o.data : model_data(w.model), &w.data)) return EXIT_USAGE;
    if (!w.batch) w.batch = w.data.batch;
    if (o.shapes && !workload_shapes(&w, o.shapes)) code = EXIT_USAGE;
    tool_catch_signals(&interrupted);
    clef_context *ctx = code == EXIT_OK ? tool_open("tune", &o.common, &code) : NULL;
    if (ctx) code = tune(ctx, &w);
    workload_close(&w);
    clef_close(ctx);
    return code;
}

const verb verb_tune = {"tune", NULL, "Fit the kernels to this device by measuring.", args, &o, run_tune};
