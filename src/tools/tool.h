/* tool.h — what the verbs share: opening a device, reporting failures, data sets and models by name. */
#ifndef CLEF_TOOL_TOOL_H
#define CLEF_TOOL_TOOL_H
#include "args.h"
#include "jsonl.h"
#include <clef.h>

extern const verb verb_devices, verb_train, verb_eval, verb_bench, verb_cache;

/* Opens the device of --device; NULL after one line on stderr and with the exit code in *code. */
clef_context *tool_open(const char *verb_name, const common_options *common, int *code);
/* Prints the context's error as one line; returns EXIT_FAILED. */
int tool_failed(const char *verb_name, const clef_context *ctx);
/* The line that says what is wrong with the command; returns EXIT_USAGE. */
int tool_usage(const char *verb_name, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Name of the first device. */
const char *tool_device_name(const clef_context *ctx);

/* ---- source.c ---- */
#define DATA_META "digits | mnist[:DIR] | cifar10[:DIR]"
#define MODEL_META "mlp|lenet|cnn|resnet18"
typedef struct source {
    const char *name;        /* "mnist" */
    const float *mean, *std; /* per channel, of the training images */
    const char *model;       /* what is trained on it unless said otherwise */
    int64_t epochs, batch;
    double adam_lr;
    clef_augment augment;    /* what --augment means here */
    const char *dir;         /* from --data; NULL: the default */
    const struct source_kind *kind;
} source;
/* Understands --data; false after one line on stderr. */
bool source_parse(const char *verb_name, const char *data, source *out);
clef_dataset *source_open(const source *s, clef_context *ctx, clef_split_name split, int64_t limit);
/* A loader of test images, in order; batch 0: a size that divides them where there is one. */
clef_loader *source_test_loader(const source *s, clef_dataset *data, int64_t batch, int64_t threads);
clef_module *model_make(const char *model, clef_context *ctx, clef_dataset *data);
/* Lets the model's blocks recompute what they hold; false for a model that has none.  net NULL: only asks. */
bool model_recompute(const char *model, clef_module *net);

/* ---- forecast.c ---- */
typedef struct forecast {
    clef_context *ctx;
    clef_module *net;
    clef_optimizer *optimizer;
    clef_shape item;     /* of the data: one input without the batch */
    int64_t batch;
    clef_plan_size size; /* found: of a step with this batch */
    int64_t largest;     /* found: a batch that fits the device, to within a sixteenth; 0: none does */
} forecast;
/* Plans training steps; one step of two random inputs is run, so net and optimizer are of no use afterwards. */
bool forecast_make(forecast *f);
void forecast_print(const forecast *f, bool as_json);

#endif
