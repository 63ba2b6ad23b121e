/* clef generate: what it writes, that it repeats itself by seed, stop texts, and what it refuses.  ctest: cost=10 */
#include "clef.h"
#include "tools/tool_support.h"
#include <stdio.h>

/* A model of bytes that was trained to say "hello world. " again and again. */
static void make_model(void) {
    static const char text[] = "hello world. hello world. hello world. hello world. ";
    clef_context *ctx = clef_open(NULL);
    if (!ctx && clef_error_status(NULL) == CLEF_NO_DEVICE) cr_skip_test("%s", clef_error(NULL));
    clef_module *net =
        clef_nn_gpt(ctx, &(clef_gpt_options){.vocabulary = 256, .context = 32, .layers = 1, .heads = 2, .width = 32});
    clef_optimizer *adam = clef_adam(net, &(clef_adam_options){.lr = 5e-3});
    int64_t x[32], y[32];
    for (int step = 0; step < 700; step++) {
        for (int i = 0; i < 32; i++) x[i] = text[step % 13 + i], y[i] = text[step % 13 + i + 1];
        clef_tensor *in = clef_from_host(ctx, CLEF_SHAPE(1, 32), CLEF_I64, x),
                    *next = clef_from_host(ctx, CLEF_SHAPE(1, 32), CLEF_I64, y);
        clef_backward(clef_cross_entropy(clef_forward(net, in), next, &(clef_loss_options){.classes_last = true}));
        clef_step(adam);
    }
    char path[128];
    snprintf(path, sizeof path, "%s/model", workplace);
    cr_assert_eq(clef_language_save(net, path), CLEF_OK, "%s", clef_error(ctx));
    clef_close(ctx);
}
static void set_up(void) {
    enter_workplace();
    make_model();
}
TestSuite(generate, .init = set_up, .fini = leave_workplace);
#define GREEDY "generate --model model --prompt 'hello ' --temperature 0 "

Test(generate, it_continues_the_prompt) {
    const said *s = clef("", GREEDY "--tokens 12");
    cr_assert_eq(s->code, 0, "%s", s->err);
    cr_expect_str_eq(s->out, "world. hello\n");
    cr_expect(strstr(s->err, "12 tokens, "), "%s", s->err);
    s = clef("", GREEDY "--tokens 500 --quiet");
    cr_expect_eq(strlen(s->out), 32 - 6 + 2, "to the end of its context: %s", s->out);
    s = clef("", GREEDY "--tokens 60 --slide --context 26 --quiet");
    cr_expect_eq(strlen(s->out), 61, "%s", s->out);
}

Test(generate, it_ends_before_the_stop_text) {
    const said *s = clef("", GREEDY "--tokens 20 --stop '. h' --quiet");
    cr_expect_str_eq(s->out, "world\n");
    s = clef("", GREEDY "--tokens 7 --stop '. x' --json");
    cr_expect(strstr(s->out, "\"text\":\"world. \",\"tokens\":7,\"stopped\":false"), "%s", s->out);
    s = clef("", GREEDY "--tokens 20 --stop '. h' --json");
    cr_expect(strstr(s->out, "\"text\":\"world\",\"tokens\":8,\"stopped\":true"), "%s", s->out);
}

Test(generate, a_seed_gives_one_text) {
    static char first[4096];
    strcpy(first, clef("", "generate --model model --temperature 3 --top-k 50 --tokens 24 --seed 5 --json")->out);
    char *end = strstr(first, "\"seconds\"");
    cr_assert(end, "%s", first);
    cr_expect(!strncmp(
        first, clef("", "generate --model model/model.safetensors --temperature 3 --top-k 50 --tokens 24 --seed 5 --json")->out,
        (size_t)(end - first)));
    cr_expect(strncmp(first, clef("", "generate --model model --temperature 3 --top-k 50 --tokens 24 --seed 6 --json")->out,
                      (size_t)(end - first)) != 0);
}

Test(generate, what_does_not_fit_is_one_line) {
    static const struct {
        const char *command, *line;
        int code;
    } wrong[] = {
        {"generate", "--model DIR is missing", 2},
        {"generate --model nothing", "language_open: nothing: ", 1},
        {"generate --model model --top-p 2", "want a number from 0 to 1", 2},
        {"generate --model model --prompt 'this is a prompt of more than 32 characters'", ".slide drops the first ones", 1}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const said *s = clef("", wrong[i].command);
        cr_expect_eq(s->code, wrong[i].code, "%s: %s", wrong[i].command, s->err);
        cr_expect(strstr(s->err, wrong[i].line) && lines(s->err) == 1, "%s", s->err);
    }
}
