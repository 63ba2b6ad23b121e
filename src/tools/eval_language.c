/* eval_language.c — clef eval of text: how well a language model knows what comes next. */
#include "tool.h"
#include <math.h>

static clef_loader *open_text(clef_context *ctx, const text_score *o, clef_tokenizer *t, int64_t context) {
    enum { TOKENS = 2048 }; /* at once, unless --batch says otherwise */
    clef_text_options windows = {.tokenizer = t, .context = context, .split = CLEF_TEST};
    if (o->whole) windows.split = CLEF_TRAIN, windows.share = 1, windows.consecutive = true;
    clef_dataset *data = clef_text(ctx, o->text, &windows);
    if (data && o->limit && o->limit < clef_dataset_size(data)) data = clef_dataset_take(data, o->limit);
    int64_t batch = o->batch ? o->batch : context < TOKENS ? TOKENS / context : 1;
    if (data && batch > clef_dataset_size(data)) batch = clef_dataset_size(data);
    return data ? clef_loader_open(data, &(clef_loader_options){.batch = batch, .workers = (int)o->threads}) : NULL;
}

static void as_json(const clef_context *ctx, const clef_evaluation_result *r) {
    json j = json_begin(stdout);
    json_text(&j, "event", "result");
    json_text(&j, "device", tool_device_name(ctx));
    json_text(&j, "dtype", clef_dtype_name(clef_get_autocast(ctx)));
    json_text(&j, "matmul_precision", tool_precision(ctx));
    json_whole(&j, "tokens", r->answers);
    json_number(&j, "loss", r->loss);
    json_number(&j, "perplexity", r->perplexity);
    json_number(&j, "accuracy", r->accuracy);
    json_whole(&j, "top_k", r->top_k);
    json_number(&j, "top_k_accuracy", r->top_k_accuracy);
    json_number(&j, "seconds", r->seconds);
    json_end(&j);
}

int eval_language(clef_context *ctx, const text_score *o) {
    clef_evaluation_result r;
    clef_module *net = clef_language_open(ctx, o->model, NULL);
    if (!net) return tool_failed("eval", ctx);
    clef_language_sizes sizes = clef_language_sizes_of(net);
    if (o->context > sizes.context)
        return tool_usage("eval", "--context %lld is more than the model's %lld", (long long)o->context, (long long)sizes.context);
    clef_tokenizer *t = language_tokenizer("eval", ctx, o->model, sizes.vocabulary);
    if (!t) return EXIT_FAILED;
    clef_loader *loader = open_text(ctx, o, t, o->context ? o->context : sizes.context);
    if (!loader || clef_evaluate_top_k(net, loader, NULL, NULL, (int)o->top_k, &r)) return tool_failed("eval", ctx);
    if (o->json) as_json(ctx, &r);
    else
        tool_line(stdout, "perplexity %.4g, loss %.4f, accuracy %.2f %% (%lld tokens, %.2f s)", r.perplexity, r.loss,
                  100 * r.accuracy, (long long)r.answers, r.seconds);
    if (isfinite(r.loss)) return EXIT_OK;
    fprintf(stderr, "clef eval: the loss is not finite: %s holds weights that are, or lead to, no numbers\n", o->model);
    return EXIT_FAILED;
}
