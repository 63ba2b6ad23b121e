/* tool.h — what the verbs share: opening a device, reporting failures, data sets and models by name. */
#ifndef CLEF_TOOL_TOOL_H
#define CLEF_TOOL_TOOL_H
#include "args.h"
#include "jsonl.h"
#include <clef.h>

extern const verb verb_devices, verb_train, verb_eval, verb_bench, verb_tune, verb_cache, verb_generate;

/* Opens the device of --device; NULL after one line on stderr and with the exit code in *code. */
clef_context *tool_open(const char *verb_name, const common_options *common, int *code);
/* The same with what else the context is to be; --device and --device-threads are in the options. */
clef_context *tool_open_with(const char *verb_name, const common_options *common, const clef_options *options, int *code);
/* Of a context for this command; `device` is that of --device. */
clef_options tool_options(const char *verb_name, const common_options *common);
/* Prints the context's error as one line; returns EXIT_FAILED. */
int tool_failed(const char *verb_name, const clef_context *ctx);
/* The line that says what is wrong with the command; returns EXIT_USAGE. */
int tool_usage(const char *verb_name, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* One line, cut to 80 columns or to the terminal where it is narrower; it holds ASCII and names of devices. */
void tool_line(FILE *out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* From now on the first SIGINT, SIGTERM or SIGHUP sets *flag; the second one kills.  Before a context is opened, whose threads then leave
   them alone. */
void tool_catch_signals(volatile int *flag);
/* Of a clock that only moves on. */
double tool_seconds(void);
/* Name of the first device. */
const char *tool_device_name(const clef_context *ctx);
/* Of products of f32: "highest" or "high". */
const char *tool_precision(const clef_context *ctx);
/* What --dtype says, if it is f16 or bf16; else f32. */
clef_dtype tool_half(const common_options *common);
/* Sets that for all that is computed. */
void tool_autocast(clef_context *ctx, const common_options *common);

/* ---- outputs.c: each is false after one line on stderr ---- */
/* Can a file be made that takes the place of what is there? */
bool tool_new_file_fits(const char *verb_name, const char *option, const char *path);
/* Can what is there be written, or a file be made? */
bool tool_file_fits(const char *verb_name, const char *option, const char *path);
/* Can files be made in the directory, of which as much is made as is missing?  What counts is the last part that is there. */
bool tool_directory_fits(const char *verb_name, const char *option, const char *path);
/* Writes what `print` prints. */
bool tool_write_file(const char *verb_name, const char *option, const char *path, void (*print)(FILE *out, const void *data),
                     const void *data);

/* ---- source.c ---- */
#define DATA_META "digits | mnist[:DIR] | cifar10[:DIR]"
#define MODEL_META "mlp|lenet|cnn|resnet18"
#define TEXT_META "text:FILE"
#define LANGUAGE_META "gpt|llama|lstm"
typedef struct source {
    const char *name;        /* "mnist" */
    const float *mean, *std; /* per channel, of the training images */
    const char *model;       /* what is trained on it unless said otherwise */
    int64_t epochs, batch;
    clef_shape item; /* of one image */
    int64_t classes;
    double adam_lr;
    clef_augment augment;      /* what --augment means here */
    const char *dir;           /* from --data; NULL: the default; of text the file */
    bool text;                 /* windows of tokens, not images */
    clef_text_options windows; /* of text: see language_read */
    const struct source_kind *kind;
} source;
/* Understands --data; false after one line on stderr. */
bool source_parse(const char *verb_name, const char *data, source *out);
/* The same, and text:FILE. */
bool source_parse_any(const char *verb_name, const char *data, source *out);
clef_dataset *source_open(const source *s, clef_context *ctx, clef_split_name split, int64_t limit);
/* A loader of test images, in order; batch 0: a size that divides them where there is one.  group NULL: one rank.
   parts: of each batch; 0: none. */
clef_loader *source_test_loader(const source *s, clef_dataset *data, int64_t batch, int64_t threads, clef_group *group, int parts);
clef_module *model_make(const char *model, clef_context *ctx, clef_shape item, int64_t classes);
/* The data that a model is trained on by default. */
const char *model_data(const char *model);
/* Lets the model's blocks recompute what they hold; false for a model that has none.  net NULL: only asks. */
bool model_recompute(const char *model, clef_module *net);

/* ---- ranks.c: one verb on several devices ---- */
enum { RANKS_MOST = 256 };
typedef struct ranks {
    const char *devices, *shares; /* --devices, --shares */
    bool mpi;                     /* --mpi */
    int64_t parts, sum_units;     /* --parts, --sum-units; 0: not given */
    const char *zero;             /* --zero: "1", "2" or NULL */
    int64_t rebalance;            /* --rebalance-every; 0: not given */
    int64_t timeout;              /* --timeout: seconds; 0: not given */
    int wanted;                   /* so many devices and no other number; 0: any */
    bool shares_auto;             /* found: by measured speed */
    int64_t share[RANKS_MOST];    /* found: of each rank */
    int n_shares;                 /* found: so many of them; 0: equal ones */
} ranks;
/* Understands --shares, and finds what does not go together; false after one line on stderr. */
bool ranks_parse(const char *verb_name, const common_options *common, ranks *r);
/* Of each rank's context, or of the only one: with --parts bits do not depend on how many compute units a rank has. */
clef_options ranks_context(const char *verb_name, const common_options *common, const ranks *r);
bool ranks_wanted(const ranks *r);
/* What a rank does: its exit code, that of rank 0 being the command's.  It prints no error: the group's first one is printed once. */
typedef int (*rank_fn)(clef_context *ctx, clef_group *all, void *user);
/* Runs it on every rank; returns the exit code. */
int ranks_run(const char *verb_name, const common_options *common, const ranks *r, rank_fn fn, void *user);
/* Items of this rank in a batch of so many. */
int64_t ranks_items(const ranks *r, clef_group *group, int64_t batch);

/* ---- language.c: text, models of it, and their tokens ---- */
typedef struct language_options {
    const char *tokenizer;  /* "characters" (NULL), "bytes", or a file or folder */
    const char *activation; /* of gpt: "gelu" or "gelu_tanh" (NULL) */
    int64_t layers, heads, kv_heads, width, context, windows;
    double dropout;
    bool no_bias; /* of gpt */
} language_options;
/* Is it one of LANGUAGE_META? */
bool language_is(const char *model);
/* What does not go together; NULL: nothing. */
const char *language_mismatch(const language_options *o, const char *model, bool text);
/* Tokens and windows of the text; false with the context's error. */
bool language_read(source *s, clef_context *ctx, const language_options *o, uint64_t seed);
clef_module *language_make(const char *model, clef_context *ctx, int64_t vocabulary, const language_options *o);
/* Biases and weights of norms do not decay. */
clef_status language_spare_decay(clef_optimizer *optimizer, clef_module *net);
/* The directory that clef generate and clef eval read. */
clef_status language_save(clef_module *net, clef_tokenizer *tokenizer, const char *directory);
/* Of a model's directory or file; NULL after one line on stderr. */
clef_tokenizer *language_tokenizer(const char *verb_name, clef_context *ctx, const char *model, int64_t vocabulary);

/* ---- eval_language.c ---- */
typedef struct text_score {
    const char *text, *model;
    int64_t batch, limit, threads, top_k, context;
    bool whole, json; /* whole: of all the text, not of its last tenth */
} text_score;
/* Prints perplexity, loss and accuracy of a model on a text; returns the exit code. */
int eval_language(clef_context *ctx, const text_score *o);

/* ---- forecast.c ---- */
enum { FORECAST_DEVICES = CLEF_PLACEMENT_MOST };
typedef struct forecast {
    clef_context *ctx;
    clef_module *net;
    clef_optimizer *optimizer;
    clef_shape item;               /* of the data: one input without the batch */
    int64_t tokens;                /* of a language model, whose inputs they are; 0: inputs are numbers */
    int64_t batch;                 /* of this rank */
    clef_group *group;             /* of the optimizer; NULL: one rank */
    clef_plan_size size;           /* found: of a step with this batch */
    double peak[FORECAST_DEVICES]; /* found: bytes on each device */
    int devices;                   /* so many of them */
    int64_t largest;               /* found: a batch that fits the devices, to within a sixteenth; 0: none does */
} forecast;
/* Plans training steps; all ranks of the group call it.  One step of two random inputs is run, so net and optimizer are of no use afterwards. */
bool forecast_make(forecast *f);
void forecast_print(const forecast *f, bool as_json);

/* ---- workload.c: what clef tune tunes for ---- */
typedef struct workload {
    const char *model; /* one of MODEL_META, or NULL: */
    FILE *shapes;      /* a CSV file of products or convolutions, read again for each round */
    bool convolutions;
    source data; /* of the model */
    int64_t batch;
    clef_group *group; /* whose ranks train it together; NULL: none */
    clef_module *net;
    clef_optimizer *optimizer;
} workload;
/* Opens a CSV file whose first line is `set,m,n,k,a_transposed,b_transposed` or `set,w,h,c,n,k,s,r,pad_w,pad_h,stride_w,stride_h`
   (n images of c channels, k filters of s by r); false after one line on stderr. */
bool workload_shapes(workload *w, const char *path);
/* Makes the model and its optimizer, and runs one small step, so that all lies as it will; false on failure. */
bool workload_model(workload *w, clef_context *ctx);
/* Queues one training step, or all shapes of the file. */
clef_status workload_queue(clef_context *ctx, workload *w);
void workload_close(workload *w);

#endif
