/* suite_lm.h — language models, of bench_clef.c: part = train, a step of GPT-2's architecture with AdamW and clipping, tokens already on the
   device; encoder, the same of BERT as a classifier of texts; or decode, the time of one token by clef_generator, batch 1. */
#ifndef CLEF_BENCH_SUITE_LM_H
#define CLEF_BENCH_SUITE_LM_H
#include "job.h"

typedef struct language_bench {
    char key[128];
    clef_module *net;
    clef_optimizer *opt;
    clef_tensor *x[4], *y[4];
    clef_generator *generator;
} language_bench;

static clef_dtype weights_of(const char *line) {
    char dtype[8] = "";
    if (!word(line, "dtype", dtype, sizeof dtype)) return CLEF_F32;
    return strcmp(dtype, "bf16") == 0 ? CLEF_BF16 : CLEF_F16;
}

static bool is_encoder(const char *line) { return strstr(line, " part=encoder") != NULL; }

static clef_module *make_bert(const char *line) {
    return clef_nn_bert(ctx, &(clef_bert_options){.vocabulary = (int64_t)number(line, "vocabulary", 65),
                                                  .context = (int64_t)number(line, "context", 64),
                                                  .layers = (int64_t)number(line, "layers", 4),
                                                  .heads = (int64_t)number(line, "heads", 4),
                                                  .width = (int64_t)number(line, "width", 128),
                                                  .dtype = weights_of(line)});
}

static clef_module *make_gpt(const char *line) {
    clef_gpt_options o = {.vocabulary = (int64_t)number(line, "vocabulary", 65),
                          .context = (int64_t)number(line, "context", 64),
                          .layers = (int64_t)number(line, "layers", 4),
                          .heads = (int64_t)number(line, "heads", 4),
                          .width = (int64_t)number(line, "width", 128),
                          .dtype = weights_of(line),
                          .no_bias = true};
    return clef_nn_gpt(ctx, &o);
}

static clef_tensor *random_tokens(clef_shape shape, int64_t vocabulary) {
    return clef_keep(clef_to(clef_mul_scalar(clef_rand(ctx, shape), (double)vocabulary), CLEF_I64));
}

static void language_steps(language_bench *b, int calls) {
    for (int i = 0; i < calls; i++) {
        clef_backward(
            clef_cross_entropy(clef_forward(b->net, b->x[i % 4]), b->y[i % 4], &(clef_loss_options){.classes_last = true}));
        clef_clip_grad_norm(b->net, 1);
        clef_step(b->opt);
    }
    clef_synchronize(ctx);
}

/* Where the cache is full the text begins anew, which costs a prompt of one token. */
static void language_tokens(language_bench *b, int64_t context, int calls) {
    int64_t token = 1, one = 1;
    for (int i = 0; i < calls; i++) {
        if (clef_generator_length(b->generator) == 0 || clef_generator_length(b->generator) >= context)
            clef_generator_prompt(b->generator, (const int64_t *[]){&token}, &one);
        else clef_generator_feed(b->generator, &token);
        clef_generator_sample(b->generator, NULL, &token);
    }
}

/* A model stays open between the rounds of its case. */
static language_bench *open_language(const char *line, bool train) {
    static language_bench b;
    const char *calls = strstr(line, " calls=");
    int64_t vocabulary = (int64_t)number(line, "vocabulary", 65);
    size_t n = calls ? (size_t)(calls - line) : strlen(line);
    if (n == strlen(b.key) && strncmp(b.key, line, n) == 0) return &b;
    clef_generator_close(b.generator);
    for (int i = 0; i < 4; i++) clef_release(b.x[i]), clef_release(b.y[i]);
    b = (language_bench){.net = is_encoder(line) ? make_bert(line) : make_gpt(line)};
    clef_shape shape = CLEF_SHAPE((int64_t)number(line, "batch", 1), (int64_t)number(line, "context", 64));
    if (train) {
        b.opt = clef_adamw(b.net, &(clef_adamw_options){.lr = 1e-3, .beta2 = 0.99, .weight_decay = 0.1});
        clef_shape answers = is_encoder(line) ? CLEF_SHAPE(shape.dim[0]) : shape;
        for (int i = 0; i < 4; i++) {
            b.x[i] = random_tokens(shape, vocabulary);
            b.y[i] = random_tokens(answers, is_encoder(line) ? 2 : vocabulary);
        }
        language_steps(&b, 3);
    } else {
        clef_set_training(b.net, false);
        b.generator = clef_generator_new(b.net, NULL);
        language_tokens(&b, shape.dim[1], 4);
    }
    snprintf(b.key, sizeof b.key, "%.*s", (int)n, line);
    return &b;
}

static void lm(const char *line) {
    char part[16] = "train";
    word(line, "part", part, sizeof part);
    bool train = strcmp(part, "decode") != 0;
    language_bench *b = open_language(line, train);
    int calls = (int)number(line, "calls", 10);
    double begin = now();
    if (train) language_steps(b, calls);
    else language_tokens(b, (int64_t)number(line, "context", 64), calls);
    if (clef_error_status(ctx) == CLEF_OK) printf("seconds %.9g\n", (now() - begin) / calls);
    else printf("skip %s\n", clef_error(ctx));
    clef_clear_error(ctx);
}
#endif
