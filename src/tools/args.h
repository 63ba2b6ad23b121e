/* args.h — one table of options per verb; parsing, checking and --help all come from it. */
#ifndef CLEF_TOOL_ARGS_H
#define CLEF_TOOL_ARGS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_NO_DEVICE = 77 };

typedef enum arg_kind {
    ARG_FLAG,   /* bool */
    ARG_TEXT,   /* const char * */
    ARG_COUNT,  /* int64_t ≥ 1 */
    ARG_SEED,   /* uint64_t */
    ARG_NUMBER, /* double ≥ 0 */
    ARG_CHOICE  /* const char *, one of meta's words "a|b|c" */
} arg_kind;

typedef struct arg {
    const char *name; /* without the dashes; NULL ends the table */
    arg_kind kind;
    const char *meta; /* what the value is called in help */
    size_t offset;    /* of the field in the verb's options */
    const char *help;
} arg;

/* A row of a verb's table, for a field of its OPTIONS. */
#define OPTION(name, kind, meta, field, help) \
    { name, kind, meta, offsetof(OPTIONS, field), help }

/* Begins every verb's options. */
typedef struct common_options {
    const char *device;
    uint64_t seed;
    const char *matmul_precision; /* of verbs with PRECISION_ARG; NULL: not given */
    const char *dtype;            /* of verbs that have it; NULL: not given */
    int64_t threads;
    bool json, quiet, help;
} common_options;
#define COMMON_ARGS                                                                                                           \
    {"device", ARG_TEXT, "D", offsetof(common_options, device), "index, cpu, gpu, accelerator or part of a name"},            \
        {"device-threads", ARG_COUNT, "N", offsetof(common_options, threads), "compute units of a CPU to use (default all)"}, \
        {"seed", ARG_SEED, "S", offsetof(common_options, seed), "of every random number (default 0)"},                        \
        {"json", ARG_FLAG, NULL, offsetof(common_options, json), "one JSON object per line on stdout"},                       \
        {"quiet", ARG_FLAG, NULL, offsetof(common_options, quiet), "nothing but results and errors"},                         \
        {"help", ARG_FLAG, NULL, offsetof(common_options, help), "this text"}, {                                              \
        NULL, ARG_FLAG, NULL, 0, NULL                                                                                         \
    }

/* Of the verbs that multiply. */
#define PRECISION_ARG                                                                                 \
    {                                                                                                 \
        "matmul-precision", ARG_CHOICE, "highest|high", offsetof(common_options, matmul_precision),   \
            "high: products of f32 in TF32 where the device has matrix units for it; default highest" \
    }

/* Of the verbs that run a model under autocast (tool_autocast). */
#define DTYPE_ARG                                                                                       \
    {                                                                                                   \
        "dtype", ARG_CHOICE, "f32|f16|bf16", offsetof(common_options, dtype),                           \
            "of products, while weights, sums, norms and losses are f32 (mixed precision); default f32" \
    }

typedef struct verb {
    /* operands: "show|verify|clear" (at most one of these), "SUITE..." (any number, which the verb checks) or NULL: none */
    const char *name, *operands, *summary;
    const arg *args;
    void *options; /* begins with common_options and holds the defaults */
    int (*run)(const char *const *operands);
} verb;

/* Fills verb->options from the words after the verb; false after one line on stderr.  The operands go to `operands`, of argc + 1
   places, and are followed by NULL. */
bool args_parse(const verb *v, int argc, char **argv, const char **operands);
/* "; did you mean X?" for a word that is none of "a|b|c", "" where none is near; lives until the next call. */
const char *args_hint(const char *word, const char *choices);
void args_help(const verb *v, FILE *out);
#endif
