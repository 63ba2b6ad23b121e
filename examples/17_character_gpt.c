/* 17_character_gpt.c — a small GPT learns to write like a file, character by character: nanoGPT's setting for CPUs.

       17_character_gpt [FILE [ITERATIONS [SEED]]]      without a file: a few steps on this one */
#include <clef.h>
#include <stdlib.h>

enum { CONTEXT = 64, BATCH = 12 };

static clef_loader *windows_of(clef_context *ctx, clef_tokenizer *letters, const char *path, clef_text_options o) {
    o.tokenizer = letters, o.context = CONTEXT;
    return clef_loader_open(clef_text(ctx, path, &o), &(clef_loader_options){.batch = BATCH});
}

/* Weights of matrices decay, others do not. */
static clef_optimizer *make_optimizer(clef_module *net) {
    clef_optimizer *adamw = clef_adamw(net, &(clef_adamw_options){.lr = 1e-3, .beta2 = 0.99, .weight_decay = 0.1});
    for (int i = 0; i < 3; i++) clef_optimizer_group(adamw, (const char *[]){"ln_1.weight", "ln_2.weight", "ln_f.weight"}[i], 1, 0);
    return adamw;
}

static void write_text(clef_module *net, clef_tokenizer *letters, int64_t characters) {
    clef_generator *g = clef_generator_new(net, &(clef_generator_options){.slide = true});
    int64_t token = 0, one = 1;
    clef_status status = clef_generator_prompt(g, (const int64_t *[]){&token}, &one);
    for (int64_t i = 0; i < characters && !status; i++) {
        char text[8];
        clef_generator_sample(g, &(clef_sampling){.temperature = 0.8, .top_k = 40}, &token);
        clef_tokenizer_decode(letters, &token, 1, text, sizeof text);
        fputs(text, stdout);
        status = clef_generator_feed(g, &token);
    }
}

int main(int argc, char **argv) {
    const char *path = argc > 1 ? argv[1] : __FILE__;
    int64_t iterations = argc > 2 ? atoll(argv[2]) : argc > 1 ? 2000 : 20;
    uint64_t seed = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
    clef_context *ctx = clef_open(&(clef_options){.seed = seed});
    if (!ctx) return fprintf(stderr, "skipped: %s\n", clef_error(NULL)), 77;
    clef_tokenizer *letters = clef_tokenizer_characters_of(ctx, path);
    clef_loader *train = windows_of(ctx, letters, path, (clef_text_options){.windows = iterations * BATCH, .seed = seed}),
                *test = windows_of(ctx, letters, path, (clef_text_options){.split = CLEF_TEST});
    clef_module *net = clef_nn_gpt(ctx, &(clef_gpt_options){.vocabulary = clef_tokenizer_size(letters),
                                                            .context = CONTEXT,
                                                            .layers = 4,
                                                            .heads = 4,
                                                            .width = 128,
                                                            .no_bias = true});
    clef_optimizer *adamw = make_optimizer(net);
    clef_schedule_options cosine = {.kind = CLEF_SCHEDULE_COSINE, .warmup = 100, .total = iterations - 100, .min_lr = 1e-4};
    clef_fit_options fit = {
        .train = train, .test = test, .optimizer = adamw, .schedule_per_step = true, .clip_norm = 1, .bar = stderr};
    if (iterations > 100) fit.schedule = clef_schedule_new(adamw, &cosine);
    const clef_history *history;
    if (clef_fit(net, &fit, &history)) return fprintf(stderr, "%s\n", clef_error(ctx)), 1;
    printf("test loss %.4f, %.0f tokens/s\n", history->epoch[0].test_loss, history->items_per_second * CONTEXT);
    write_text(net, letters, 300);
    return clef_close(ctx), 0;
}
