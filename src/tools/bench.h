/* bench.h — clef bench: what is measured, what a result is, and what is made of results. */
#ifndef CLEF_TOOL_BENCH_H
#define CLEF_TOOL_BENCH_H
#include "tool.h"

enum {
    BENCH_SCHEMA = 1,    /* of result files: a reader refuses another */
    BENCH_SERIES = 8,    /* that can be compared: as many as there are colours */
    BENCH_POINTS = 1000, /* of a series */
    BENCH_INPUTS = 6,
    BENCH_COPIES = 16
};

/* ---- results ---- */
typedef struct bench_point {
    char suite[16], name[24], shape[64], unit[16]; /* "conv", "conv2d_data", "8x64x56x56, 64 of 3x3", "GFLOP/s" */
    double seconds, spread;                        /* of one call: the median; half the quartiles' distance over it */
    double rate;                                   /* in that unit: FLOP/s are effective ones, of the operation as defined */
    double flops, real_flops,
        bytes; /* as defined; of the method that ran; bytes that must move at least, each operand once; 0: unknown */
} bench_point;

/* One run on one device. */
typedef struct bench_series {
    char label[96], device[96], type[16], driver[64], platform[96], version[24], date[32];
    char file[48]; /* that it was read from */
    int64_t compute_units;
    bench_point *point;
    int n;
} bench_series;

typedef struct bench_report {
    bench_series series[BENCH_SERIES];
    int n;
} bench_report;

/* ---- bench_suites.c: the cases ---- */
typedef struct bench_case bench_case;
struct bench_case {
    const char *suite, *name, *unit;
    char shape[64];
    double flops, bytes,
        items; /* of one call; the training step's flops and bytes are found by a dry run.  items: images, tokens */
    clef_shape input[BENCH_INPUTS]; /* of random numbers */
    int n_inputs, v[4];             /* v: what else `once` has to know */
    double small;                   /* deviation of the inputs behind the second, as layers begin with; 0: 1 */
    int64_t vocabulary; /* of a model of texts: x is of tokens below that, and so are the labels, one for each; 0: of images */
    bool half;          /* inputs in f16 */
    bool tf32;          /* products of f32 in TF32, whatever the context's setting; only where matrix units do that */
    bool (*once)(const bench_case *c, clef_tensor *const *x);                    /* queues one call */
    clef_module *(*model)(clef_context *ctx, clef_shape input, int64_t classes); /* instead of once: a training step, */
    bool generates; /* or the next token of a text, by a generator of the model */
};
typedef struct bench_list {
    bench_case *c;
    int n, room;
    bool failed; /* out of memory */
} bench_list;
/* The case in the list, which may be changed until the next one. */
bench_case *bench_append(bench_list *list, bench_case c);
/* For `once`: queues what t wants; false for NULL, or if it failed. */
bool bench_queue(clef_tensor *t);
void bench_want_gradients(clef_tensor *const *x, int n, bool wanted);
double bench_numel(clef_shape s);

/* Suites as they are named in help: "copy|fma|…". */
#define BENCH_SUITES "copy|fma|gemm|conv|pointwise|reduce|norm|attention|rnn|train|lm|parallel"
/* Is this word a suite, or the name of a result? */
bool bench_knows(const char *word);
/* The cases of these suites or names (none: all), with copy and fma, which the others are judged by.  *n: how many; NULL: no
   memory. gpu: the device is one, and needs more work at once. */
bench_case *bench_cases(const char *const *words, bool gpu, bool resnet18, int *n);
/* A few multiply-adds, by fma() or as an expression: does the device have the former? */
bench_case bench_fma_probe(bool fused);

/* ---- bench_sequences.c: attention, recurrent layers, language models ---- */
void bench_attention(bench_list *list, bool gpu);
void bench_rnn(bench_list *list);
void bench_language(bench_list *list, bool gpu);

/* ---- bench_measure.c ---- */
/* Measures for about so many seconds; false if it failed, with the line in the context. */
bool bench_measure(clef_context *ctx, const bench_case *c, double budget, bench_point *point);

/* The case's call is planned and not made: fn is told of its launches, and the point gets all but its time and rate. */
bool bench_plan(clef_context *ctx, const bench_case *c, clef_planned_launch_fn fn, void *user, bench_point *point);
/* Does a call multiply on matrix units?  Found by planning it. */
bool bench_uses_units(clef_context *ctx, const bench_case *c);
/* Is it a kernel that does? */
bool bench_by_units(const char *kernel);
/* In the point's unit, by its time. */
double bench_rate(const bench_case *c, const bench_point *point);

/* ---- predict.c: a GPU that is not here ---- */
/* All keys: "v100, a100, …". */
const char *bench_gpus(void);
/* The key of the row of cl/devices.def with this key or name; NULL: there is none. */
const char *bench_predicted(const char *key_or_name);
/* How long a call takes on the GPU that ctx plans for; `why` gets what that consists of. */
bool bench_predict(clef_context *ctx, const bench_case *c, const char *key, bench_point *point, char *why, size_t size);

/* ---- bench_parallel.c ---- */
typedef struct bench_parallel {
    const char *model; /* of the training step */
    double seconds;    /* for each figure */
    bench_series *series;
    void (*begin)(const clef_context *ctx);   /* of rank 0, before anything is measured */
    void (*show)(const bench_series *series); /* after each figure */
} bench_parallel;
/* What every rank does; user: a bench_parallel.  A rank_fn. */
int bench_together(clef_context *ctx, clef_group *all, void *user);
/* The list of devices that is measured unless one is given: parts of this one.  False where there is no room. */
bool bench_parts(const clef_device_info *info, char *text, size_t size);
/* Is it one of what bench_together measures, which is drawn as a curve? */
bool bench_is_curve(const char *suite);

/* ---- bench_report.c: results as text, JSON lines and CSV ---- */
/* Appends a point; false if there is no room or no memory. */
bool bench_add(bench_series *series, const bench_point *point);
void bench_free(bench_report *report);
/* FLOP/s of the suite fma and bytes/s of copy; 0 if they were not measured. */
double bench_peak(const bench_series *series);
double bench_stream(const bench_series *series);
/* The share of what peak and stream allow for the work that was really done; NaN where one of them is unknown. */
double bench_roofline(const bench_series *series, const bench_point *point);
/* Is it faster than they allow, by more than they are uncertain?  Then peak or bandwidth was
   measured too low, or a cache held the operands. */
bool bench_is_above(const bench_series *series, const bench_point *point);
/* FLOP per byte; NaN where one is unknown. */
double bench_intensity(const bench_point *point);
/* The same measurement in a series, or NULL. */
const bench_point *bench_find(const bench_series *series, const bench_point *like);
/* Each measurement once, in the order of first appearance, into *all, whose points are its own; false: no memory. */
bool bench_union(const bench_report *report, bench_series *all);

void bench_json_start(FILE *out, const bench_series *series);
void bench_json_point(FILE *out, const bench_series *series, const bench_point *point);
void bench_text_head(FILE *out, bool predicted);
void bench_text_point(FILE *out, const bench_series *series, const bench_point *point);
/* With what it consists of, in place of FLOPs per byte. */
void bench_text_predicted(FILE *out, const bench_series *series, const bench_point *point, const char *why);
/* Side by side, with ratios to the first. */
void bench_text_report(FILE *out, const bench_report *report);
void bench_csv(FILE *out, const void *report);

/* ---- bench_read.c ---- */
/* Appends the series of a file of JSON lines; false after one line on stderr. */
bool bench_read(const char *path, bench_report *report);
/* Makes labels that are alike differ. */
void bench_name_apart(bench_report *report);

/* ---- bench_html.c, bench_plot.c: one page with everything in it ---- */
void bench_html(FILE *out, const void *report);
/* Text between tags or in an attribute, escaped; what is not UTF-8 or not allowed in XML becomes U+FFFD. */
void bench_html_text(FILE *out, const char *text);
/* "238", "23.8", "2.38". */
void bench_html_rate(FILE *out, double rate);
/* The suite's sign on a roofline. */
void bench_svg_marker(FILE *out, const char *suite, double x, double y);
void bench_svg_roofline(FILE *out, const bench_report *report, int series);
/* The suite's results: a group per measurement, a bar per series. */
void bench_svg_bars(FILE *out, const bench_report *report, const bench_series *all, const char *suite, const char *unit);
/* bench_curves.c: a line per run and number of ranks. */
void bench_svg_curve(FILE *out, const bench_report *report, const char *suite, const char *unit);
#endif
