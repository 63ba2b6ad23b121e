/* clef train on text, clef eval and clef generate: what a model learns, how it is scored, what it writes, and what is refused.  ctest: cost=20 plain */
#include "clef.h"
#include "tools/tool_support.h"
#include <math.h>
#include <stdio.h>

TestSuite(generate, .init = enter_workplace, .fini = leave_workplace);
#define GREEDY "generate --model model --prompt 'hello ' --temperature 0 "
#define GREEDY_BEAMS "generate --model model --prompt 'hello ' "
#define SMALL "train --data text:hello.txt --tokenizer bytes --layers 1 --heads 2 --width 32 --context 32 --batch 4 --quiet "

static void write_hello(void) {
    char path[128];
    snprintf(path, sizeof path, "%s/hello.txt", workplace);
    FILE *file = fopen(path, "w");
    cr_assert(file);
    for (int i = 0; i < 100; i++) fputs("hello world. ", file);
    fclose(file);
}

static const said *done(const char *arguments) {
    const said *s = clef("", arguments);
    if (s->code == 77) cr_skip_test("%s", s->err);
    cr_assert_eq(s->code, 0, "%s: %s", arguments, s->err);
    return s;
}

static double number_after(const char *text, const char *key) {
    const char *at = strstr(text, key);
    return at ? strtod(at + strlen(key), NULL) : NAN;
}

static void the_score_is_that_of_training(double loss) {
    const said *s = done("eval --data text:hello.txt --weights model --json");
    cr_expect_float_eq(number_after(s->out, "\"loss\":"), loss, 1e-5, "%s", s->out);
    cr_expect_float_eq(number_after(s->out, "\"perplexity\":"), exp(loss), 1e-4, "%s", s->out);
    cr_expect_eq(number_after(s->out, "\"tokens\":"), 129, "%s", s->out); /* the last tenth of 1,300, but for its first */
    s = done("eval --data text:hello.txt --weights model/model.safetensors --whole --context 16 --json");
    cr_expect_eq(number_after(s->out, "\"tokens\":"), 1299, "%s", s->out);
    cr_expect_lt(number_after(s->out, "\"loss\":"), 0.5, "%s", s->out);
}

static void it_continues_the_prompt(void) {
    const said *s = done(GREEDY "--tokens 12");
    cr_expect_str_eq(s->out, "world. hello\n");
    cr_expect(strstr(s->err, "12 tokens, "), "%s", s->err);
    s = done(GREEDY "--tokens 500 --quiet");
    cr_expect_eq(strlen(s->out), 32 - 6 + 2, "to the end of its context: %s", s->out);
    s = done(GREEDY "--tokens 60 --slide --context 26 --quiet");
    cr_expect_eq(strlen(s->out), 61, "%s", s->out);
}

static void it_searches(void) {
    const said *s = done(GREEDY_BEAMS "--beams 3 --tokens 12");
    cr_expect_str_eq(s->out, "world. hello\n");
    s = done(GREEDY_BEAMS "--beams 3 --best 2 --tokens 12 --stop . --length-penalty 0 --json");
    cr_expect(strstr(s->out, "\"event\":\"beam\",\"rank\":1,") && strstr(s->out, "\"ended\":false,\"text\":\"world\""), "%s",
              s->out);
    cr_expect(strstr(s->out, "\"rank\":2,") && !strstr(s->out, "\"rank\":3,") && strstr(s->out, "\"event\":\"done\""), "%s",
              s->out);
    s = done(GREEDY_BEAMS "--beams 2 --best 2 --tokens 500 --quiet");
    cr_expect_eq(strlen(s->out), 2 * (32 - 6 + 2), "to the end of its context: %s", s->out);
}

static void it_ends_before_the_stop_text(void) {
    const said *s = done(GREEDY "--tokens 20 --stop '. h' --quiet");
    cr_expect_str_eq(s->out, "world\n");
    s = done(GREEDY "--tokens 7 --stop '. x' --json");
    cr_expect(strstr(s->out, "\"text\":\"world. \",\"tokens\":7,\"stopped\":false"), "%s", s->out);
    s = done(GREEDY "--tokens 20 --stop '. h' --json");
    cr_expect(strstr(s->out, "\"text\":\"world\",\"tokens\":8,\"stopped\":true"), "%s", s->out);
    cr_expect(strstr(s->out, "\"matmul_precision\":\"highest\""), "%s", s->out);
    s = done(GREEDY "--tokens 20 --stop '. h' --json --matmul-precision high");
    cr_expect(strstr(s->out, "\"text\":\"world\"") && strstr(s->out, "\"matmul_precision\":\"high\""), "%s", s->out);
}

static void a_seed_gives_one_text(void) {
    static char first[4096];
    strcpy(first, done("generate --model model --temperature 3 --top-k 50 --tokens 24 --seed 5 --json")->out);
    char *end = strstr(first, "\"seconds\"");
    cr_assert(end, "%s", first);
    cr_expect(!strncmp(first,
                       done("generate --model model/model.safetensors --temperature 3 --top-k 50 --tokens 24 --seed 5 --json")->out,
                       (size_t)(end - first)));
    cr_expect(strncmp(first, done("generate --model model --temperature 3 --top-k 50 --tokens 24 --seed 6 --json")->out,
                      (size_t)(end - first)) != 0);
}

/* More end tokens than there is room for, and numbers that are none, in a file of somebody else. */
static void many_end_tokens_do_no_harm(void) {
    char command[600];
    snprintf(command, sizeof command, "cp -r %s/model %s/ends && sed -i 's/^{/{\"eos_token_id\":1e300,%s/' %s/ends/config.json",
             workplace, workplace,
             "\"eos_token_id\":0,\"eos_token_id\":0,\"eos_token_id\":0,\"eos_token_id\":0,\"eos_token_id\":0,\"eos_token_id\":0,"
             "\"eos_token_id\":0,\"eos_token_id\":0,\"eos_token_id\":1094795585,\"eos_token_id\":7,",
             workplace);
    cr_assert_eq(system(command), 0);
    cr_expect_str_eq(done("generate --model ends --prompt 'hello ' --temperature 0 --tokens 12 --quiet")->out, "world. hello\n");
}

static void what_does_not_fit_is_one_line(void) {
    static const struct {
        const char *command, *line;
        int code;
    } wrong[] = {
        {"generate", "--model DIR is missing", 2},
        {"generate --model nothing", "language_open: nothing: ", 1},
        {"generate --model m --best 2", "--best and --length-penalty belong to --beams", 2},
        {"generate --model m --beams 2 --best 3", "--best wants a number that is not above --beams", 2},
        {"generate --model m --beams 2 --temperature 0", "do not go with it", 2},
        {"generate --model model --top-p 2", "want a number from 0 to 1", 2},
        {"generate --model model --tokens 4611686018427387904 --slide --beams 4", "tokens not negative and below 2^31", 1},
        {"train --data text:hello.txt --early-stop 4294967296", "--keep or --early-stop is far too large", 2},
        {"generate --model model --stop ''", "--stop wants a value", 2},
        {"generate --model model --prompt 'this is a prompt of more than 32 characters'", ".slide drops the first ones", 1},
        {"eval --data text:hello.txt --weights model --context 33", "--context 33 is more than the model's 32", 2},
        {"eval --data text:hello.txt --weights model --model mlp", "--model is not for text", 2},
        {"eval --data digits --weights model --whole", "belong to --data text:FILE", 2},
        {"eval --data text:nothing --weights model", "nothing cannot be opened", 1},
        {"train --data text:nothing", "nothing cannot be opened", 1},
        {"train --data text:hello.txt --context 130", "131", 1},
        {"train --data text:hello.txt --heads 3", "heads", 1},
        {"train --data text:hello.txt --tokenizer nowhere", "nowhere", 1},
        {"train --data text:hello.txt --out hello.txt/model", "--out", 1}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const said *s = clef("", wrong[i].command);
        cr_expect_eq(s->code, wrong[i].code, "%s: %s", wrong[i].command, s->err);
        cr_expect(strstr(s->err, wrong[i].line) && lines(s->err) == 1, "%s: %s", wrong[i].command, s->err);
    }
}

static void a_model_without_a_tokenizer_speaks_bytes(void) {
    char command[300];
    snprintf(command, sizeof command, "rm %s/model/tokenizer.json", workplace);
    cr_assert_eq(system(command), 0);
    cr_expect_str_eq(done(GREEDY "--tokens 12")->out, "world. hello\n");
}

/* One small model for all. */
Test(generate, a_model_of_bytes) {
    write_hello();
    const said *s = done(SMALL "--windows 1600 --lr 5e-3 --out model --json");
    double loss = number_after(strstr(s->out, "\"done\"") ? strstr(s->out, "\"done\"") : "", "\"test_loss\":");
    cr_assert_lt(loss, 0.5, "%s", s->out);
    the_score_is_that_of_training(loss);
    it_continues_the_prompt();
    it_ends_before_the_stop_text();
    it_searches();
    a_seed_gives_one_text();
    many_end_tokens_do_no_harm();
    what_does_not_fit_is_one_line();
    a_model_without_a_tokenizer_speaks_bytes();
}

/* Llama, of characters that are longer than a byte; what is written says all that is needed. */
Test(generate, a_model_of_characters) {
    char path[128];
    snprintf(path, sizeof path, "%s/text", workplace);
    FILE *file = fopen(path, "w");
    cr_assert(file);
    for (int i = 0; i < 60; i++) fputs("zwölf Löwen, ", file);
    fclose(file);
    done("train --data text:text --model llama --layers 1 --heads 4 --kv-heads 2 --width 32 --context 13 --batch 4 --windows 1200 "
         "--lr 1e-2 "
         "--out here/model --quiet");
    const said *s = done("generate --model here/model --prompt zw --tokens 11 --temperature 0 --quiet");
    cr_expect_str_eq(s->out, "ölf Löwen, \n");
    s = clef("", "generate --model here/model --prompt X --quiet");
    cr_expect_eq(s->code, 1);
    cr_expect_eq(lines(s->err), 1, "%s", s->err);
}

/* An LSTM: trained, scored, asked, and what attention alone has is refused. */
Test(generate, a_recurrent_model) {
    write_hello();
    const said *s =
        done("train --data text:hello.txt --model lstm --layers 1 --width 32 --context 32 --batch 4 --windows 1600 --lr 2e-2 "
             "--out net --json --quiet");
    double loss = number_after(strstr(s->out, "\"done\"") ? strstr(s->out, "\"done\"") : "", "\"test_loss\":");
    cr_assert_lt(loss, 0.5, "%s", s->out);
    s = done("eval --data text:hello.txt --weights net --json");
    cr_expect_float_eq(number_after(s->out, "\"loss\":"), loss, 1e-5, "%s", s->out);
    s = done("generate --model net --prompt 'hello ' --temperature 0 --tokens 40 --slide --quiet");
    cr_expect_str_eq(s->out, "world. hello world. hello world. hello w\n");
    s = clef("", "train --data text:hello.txt --model lstm --heads 2");
    cr_expect(s->code == 2 && strstr(s->err, "--heads belongs to --model gpt or llama") && lines(s->err) == 1, "%s", s->err);
}

/* The text is as sure of itself in halves. */
Test(generate, weights_of_a_dtype) {
    static const char *const dtypes[] = {"f32", "f16", "bf16"};
    char command[128], want[32];
    write_hello();
    done(SMALL "--windows 1600 --lr 1e-2 --out model");
    for (int i = 0; i < 3; i++) {
        snprintf(command, sizeof command, "generate --model model --prompt 'hello ' --temperature 0 --tokens 20 --json --dtype %s",
                 dtypes[i]);
        snprintf(want, sizeof want, "\"dtype\":\"%s\"", dtypes[i]);
        const said *s = done(command);
        cr_expect(strstr(s->out, want) && strstr(s->out, "world. hello world."), "%s", s->out);
    }
    cr_expect_not_null(strstr(done("generate --model model --tokens 1 --json")->out, "\"dtype\":\"f32\""), "as in the file");
}

/* Of its size at the start: 1 where weights do not decay, 0.9²⁰ = 0.12 where they do, as the rate is next to nothing. */
Test(generate, biases_and_norms_do_not_decay) {
    static float w[32 * 128];
    char path[128];
    write_hello();
    done(SMALL "--windows 80 --lr 1e-6 --weight-decay 1e5 --schedule constant --out model");
    clef_context *ctx = clef_open(NULL);
    snprintf(path, sizeof path, "%s/model", workplace);
    clef_module *net = clef_language_open(ctx, path, NULL);
    cr_assert(net, "%s", clef_error(ctx));
    double sum = 0;
    cr_assert_eq(clef_read(clef_parameter(net, "h.0.mlp.c_fc.weight"), w, sizeof w), CLEF_OK);
    for (int i = 0; i < 32 * 128; i++) sum += (double)w[i] * w[i];
    cr_expect_float_eq(sqrt(sum / (32 * 128)), 0.02 * 0.1216, 0.02 * 0.01);
    cr_assert_eq(clef_read(clef_parameter(net, "h.0.ln_1.weight"), w, 32 * sizeof *w), CLEF_OK);
    for (int i = 0; i < 32; i++) cr_expect_float_eq(w[i], 1, 1e-4);
    clef_close(ctx);
}
