/* verb_eval.c — clef eval: how good saved weights are. */
#include "runtime/json.h"
#include "tool.h"
#include <math.h>
#include <stdlib.h>

typedef struct eval_options {
    common_options common;
    const char *data, *model, *weights, *svg;
    int64_t batch, limit, threads, top_k, context;
    bool whole;
} eval_options;
static eval_options o = {.threads = 1, .top_k = 5};

#define OPTIONS eval_options
static const arg args[] = {
    OPTION("data", ARG_TEXT, "NAME[:DIR]", data, DATA_META " | " TEXT_META " (default digits); its test images, or last tenth"),
    OPTION("model", ARG_CHOICE, MODEL_META, model, "default: lenet for mnist, else cnn"),
    OPTION("weights", ARG_TEXT, "FILE|DIR", weights, "safetensors, or a language model's directory, as train --out writes it"),
    OPTION("svg", ARG_TEXT, "FILE", svg, "draw the confusion matrix"),
    OPTION("top-k", ARG_COUNT, "K", top_k, "right is what is among the K best guesses; default 5"),
    OPTION("batch", ARG_COUNT, "N", batch, "images or windows of text at once"),
    OPTION("limit", ARG_COUNT, "N", limit, "only the first N images or windows"),
    OPTION("threads", ARG_COUNT, "N", threads, "that prepare batches; default 1"),
    OPTION("context", ARG_COUNT, "N", context, "of text: tokens in a window; default: as many as the model can"),
    OPTION("whole", ARG_FLAG, NULL, whole, "all of the text, not its last tenth"),
    DTYPE_ARG,
    PRECISION_ARG,
    COMMON_ARGS};

static void class_names(json *j, const clef_dataset *data, int64_t n) {
    json_key(j, "classes");
    fputc('[', j->out);
    for (int64_t c = 0; c < n; c++) {
        if (c) fputc(',', j->out);
        clef__json_put_string(j->out, clef_dataset_class_name(data, c));
    }
    fputc(']', j->out);
}

static void as_json(const clef_context *ctx, const clef_dataset *data, const clef_evaluation_result *r) {
    json j = json_begin(stdout);
    json_text(&j, "event", "result");
    json_text(&j, "device", tool_device_name(ctx));
    json_text(&j, "dtype", clef_dtype_name(clef_get_autocast(ctx)));
    json_text(&j, "matmul_precision", tool_precision(ctx));
    json_whole(&j, "images", r->items);
    json_number(&j, "loss", r->loss);
    json_number(&j, "accuracy", r->accuracy);
    json_whole(&j, "top_k", r->top_k);
    json_number(&j, "top_k_accuracy", r->top_k_accuracy);
    json_number(&j, "seconds", r->seconds);
    if (r->confusion) {
        class_names(&j, data, r->classes);
        json_numbers(&j, "precision", r->precision, r->classes);
        json_numbers(&j, "recall", r->recall, r->classes);
        json_matrix(&j, "confusion", r->confusion, r->classes, r->classes);
    }
    json_end(&j);
}

static int as_text(const clef_dataset *data, const clef_evaluation_result *r) {
    tool_line(stdout,
              fabs(r->loss) < 1e5 ? "accuracy %.2f %%, top-%d %.2f %%, loss %.4f (%lld images, %.2f s)"
                                  : "accuracy %.2f %%, top-%d %.2f %%, loss %.3g (%lld images, %.2f s)",
              100 * r->accuracy, r->top_k, 100 * r->top_k_accuracy, r->loss, (long long)r->items, r->seconds);
    if (!r->confusion || o.common.quiet) return EXIT_OK;
    int length = clef_confusion_text(r, data, NULL, 0);
    char *text = malloc((size_t)length + 1);
    if (!text) return EXIT_FAILED;
    clef_confusion_text(r, data, text, (size_t)length + 1);
    printf("\n%s", text);
    free(text);
    return EXIT_OK;
}

static int score(clef_context *ctx, const source *s) {
    clef_evaluation_result result;
    clef_dataset *data = source_open(s, ctx, CLEF_TEST, o.limit);
    clef_loader *loader = data ? source_test_loader(s, data, o.batch, o.threads, NULL, 0) : NULL;
    clef_module *net = loader ? model_make(o.model, ctx, clef_dataset_item(data), clef_dataset_classes(data)) : NULL;
    if (!net || clef_load(net, o.weights) || clef_evaluate_top_k(net, loader, NULL, NULL, (int)o.top_k, &result))
        return tool_failed("eval", ctx);
    if (o.svg && clef_confusion_svg(ctx, &result, data, o.svg)) return tool_failed("eval", ctx);
    int code = EXIT_OK;
    if (o.common.json) as_json(ctx, data, &result);
    else code = as_text(data, &result);
    if (isfinite(result.loss)) return code;
    fprintf(stderr, "clef eval: the loss is not finite: %s holds weights that are, or lead to, no numbers\n", o.weights);
    return EXIT_FAILED;
}

/* What does not go together; NULL: nothing. */
static const char *mismatch(bool text) {
    if (!text) return o.context || o.whole ? "--context and --whole belong to --data text:FILE" : NULL;
    if (o.model) return "--model is not for text: config.json in the directory of --weights names the model";
    return o.svg ? "--svg is not for text" : NULL;
}

static int score_text(clef_context *ctx, const source *s) {
    text_score t = {.text = s->dir,
                    .model = o.weights,
                    .batch = o.batch,
                    .limit = o.limit,
                    .threads = o.threads,
                    .top_k = o.top_k,
                    .context = o.context,
                    .whole = o.whole,
                    .json = o.common.json};
    return eval_language(ctx, &t);
}

static int run_eval(const char *const *operands) {
    (void)operands;
    source s;
    int code = EXIT_OK;
    if (!o.weights) return tool_usage("eval", "--weights FILE is missing; see clef eval --help");
    if (o.threads > 256 || o.batch > 1000000 || o.top_k > 1000000)
        return tool_usage("eval", "--threads, --batch or --top-k is far too large");
    if (!source_parse_any("eval", o.data ? o.data : "digits", &s)) return EXIT_USAGE;
    const char *wrong = mismatch(s.text);
    if (wrong) return tool_usage("eval", "%s", wrong);
    if (!o.model) o.model = s.model;
    clef_context *ctx = tool_open("eval", &o.common, &code);
    if (!ctx) return code;
    tool_autocast(ctx, &o.common);
    code = s.text ? score_text(ctx, &s) : score(ctx, &s);
    clef_close(ctx);
    return code;
}

const verb verb_eval = {"eval", NULL, "Measure saved weights on test images, or on a text.", args, &o, run_eval};
