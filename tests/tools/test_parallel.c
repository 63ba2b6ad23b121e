/* clef train --parallel: pipelines, cut layers and grids of both train what one device does, and leave weights and checkpoints of one device.
   ctest: cost=80 plain */
#include "support/whole.h"
#include "tools/tool_support.h"

TestSuite(parallel, .init = enter_workplace, .fini = leave_workplace);

#define TWO "--devices 0,0 --parallel "
#define FOUR "--devices 0,0,0,0 --parallel "
static const char *const ways[] = {TWO "pipeline --micro-batches 3", TWO "tensor", FOUR "2x2x1", FOUR "2x1x2", FOUR "1x2x2"};
enum { WAYS = sizeof ways / sizeof *ways };

static const said *run(const char *what, const char *way, const char *more) {
    char command[768];
    snprintf(command, sizeof command, "train --quiet --json %s %s %s", what, way, more);
    const said *s = clef("", command);
    cr_assert_eq(s->code, 0, "%s: %s", command, s->err);
    if (*s->err)
        cr_expect(strstr(more, "--resume") && lines(s->err) == 1 && strstr(s->err, "other last bits"), "%s: %s", command, s->err);
    return s;
}

static const char mlp[] = "--data digits --model mlp --limit 176 --clip-norm 0.7 --schedule constant --batch 40 --seed 5";

/* Each way of the first model, and of the other two the one or the other; CLEF_TEST_WHOLE=1: of all. */
static bool is_taken(int model, int way) { return model == 0 || model - 1 == way % 2 || whole_form(); }

/* Clipping makes all numbers depend on all; 176 images are four batches, and a test batch that is not full. */
Test(parallel, every_way_trains_what_one_device_does) {
    static const char *const models[] = {mlp, "--data digits --model cnn --limit 96 --optimizer sgd",
                                         "--data digits --model lenet --limit 96 --clip-norm 0.2"};
    for (int m = 0; m < 3; m++) {
        const said *s = run(models[m], "", "--epochs 3");
        double loss = number_of(s->out, "loss"), test_loss = number_of(s->out, "test_loss");
        for (int w = 0; w < WAYS; w++) {
            if (!is_taken(m, w)) continue;
            s = run(models[m], ways[w], "--epochs 3");
            cr_expect_float_eq(number_of(s->out, "loss"), loss, 1e-4, "%s %s: %s", models[m], ways[w], s->out);
            cr_expect_float_eq(number_of(s->out, "test_loss"), test_loss, 1e-4, "%s %s: %s", models[m], ways[w], s->out);
            cr_expect_eq(number_of(s->out, "ranks"), w < 2 ? 2 : 4);
        }
    }
}

/* What one way left, another or one device goes on with; the best weights come back after an early stop. */
Test(parallel, every_way_resumes_every_other) {
    char more[256];
    const said *s = run(mlp, "", "--epochs 3 --out whole.safetensors");
    double loss = number_of(s->out, "loss");
    for (int w = 0; w < WAYS; w++) {
        snprintf(more, sizeof more, "--epochs 2 --checkpoint c%d --checkpoint-every 3 --keep 1", w);
        run(mlp, ways[w], more);
        snprintf(more, sizeof more, "--epochs 3 --checkpoint c%d --resume --out o%d.safetensors", w, w);
        s = run(mlp, w == WAYS - 1 ? "" : ways[w + 1], more);
        cr_expect_eq(number_of(s->out, "resumed_at"), 8, "%s: %s", ways[w], s->out);
        cr_expect_float_eq(number_of(s->out, "loss"), loss, 1e-4, "%s: %s", ways[w], s->out);
        double test_loss = number_of(s->out, "test_loss");
        snprintf(more, sizeof more, "eval --quiet --json --data digits --model mlp --limit 176 --weights o%d.safetensors", w);
        s = clef("", more);
        cr_expect(s->code == 0, "%s: %s", ways[w], s->err);
        cr_expect_float_eq(number_of(s->out, "loss"), test_loss, 1e-4, "%s: %s", ways[w], s->out);
    }
}

Test(parallel, the_best_weights_come_back) {
    const char *early =
        "--epochs 8 --early-stop 1 --lr 0.05 --optimizer sgd --momentum 0.95 --checkpoint e%d --out e%d.safetensors";
    char more[256];
    double expected = 0;
    for (int w = -1; w < 2; w++) {
        snprintf(more, sizeof more, early, w, w);
        const said *s = run(mlp, w < 0 ? "" : ways[w], more);
        double got = number_of(s->out, "test_loss");
        if (w < 0) expected = got;
        cr_expect_float_eq(got, expected, 1e-3, "%s: %s", w < 0 ? "one" : ways[w], s->out);
    }
}

/* Queries, keys and values lie in one weight of gpt, in three of llama; some heads share theirs. */
Test(parallel, heads_of_language_models_are_cut) {
    static const char *const models[] = {"gpt", "llama --kv-heads 2"};
    char command[512], files[128];
    snprintf(command, sizeof command, "cd '%s' && seq 1 900 | tr '\\n' ' ' >text", workplace);
    cr_assert(system(command) == 0);
    for (int m = 0; m < 2; m++) {
        snprintf(command, sizeof command,
                 "--data text:text --layers 2 --width 32 --context 16 --windows 60 --batch 10 --epochs 2 --model %s", models[m]);
        const said *s = run(command, "", "");
        double loss = number_of(s->out, "loss"), test_loss = number_of(s->out, "test_loss");
        for (int w = 0; w < 2; w++) {
            snprintf(files, sizeof files, "--checkpoint c%d%d --out net%d%d", m, w, m, w);
            s = run(command, w ? FOUR "2x1x2" : TWO "tensor", files);
            cr_expect_float_eq(number_of(s->out, "loss"), loss, 1e-4, "%s %d: %s", models[m], w, s->out);
            cr_expect_float_eq(number_of(s->out, "test_loss"), test_loss, 1e-4, "%s %d: %s", models[m], w, s->out);
            snprintf(files, sizeof files, "eval --quiet --json --data text:text --context 16 --weights net%d%d", m, w);
            s = clef("", files);
            cr_expect(s->code == 0, "%s", s->err);
            cr_expect_float_eq(number_of(s->out, "loss"), test_loss, 0.02, "%s %d: %s", models[m], w, s->out);
        }
    }
}

static void refused(const char *arguments, int code, const char *line) {
    char command[256];
    snprintf(command, sizeof command, "train --quiet --limit 64 --epochs 2 %s", arguments);
    const said *s = clef("", command);
    cr_expect(s->code == code && lines(s->err) == 1 && strstr(s->err, line), "%s: %d, %s", arguments, s->code, s->err);
}

Test(parallel, what_does_not_fit_is_one_line) {
    refused("--parallel tensor", 2, "needs several devices");
    refused(TWO "rows", 2, "--parallel wants");
    refused(TWO "1x2", 2, "--parallel wants");
    refused(TWO "1x2x", 2, "--parallel wants");
    refused(TWO "0x2x1", 2, "--parallel wants");
    refused(TWO "2x2x1", 2, "a grid of 4 devices, and there are 2");
    refused(TWO "pipeline --zero 1", 2, "belong to --parallel data");
    refused(TWO "tensor --parts 2", 2, "belong to --parallel data");
    refused(TWO "tensor --shares auto", 2, "belong to --parallel data");
    refused(TWO "tensor --micro-batches 2", 2, "--micro-batches belongs");
    refused(TWO "pipeline --micro-batches 33", 2, "not above --batch");
    refused(TWO "pipeline --dry-run", 2, "--dry-run does not go");
    refused(TWO "tensor --model resnet18", 2, "--parallel tensor wants --model");
    refused(TWO "pipeline --data text:f --model gpt", 2, "a model of layers in a row");
    refused("--devices 0,0,0 --parallel tensor", 1, "cannot be cut into 3 equal parts");
    refused("--devices 0,0,0,0 --parallel pipeline", 1, "cannot be cut into 4 stages");
    refused(TWO "pipeline --lr 1e30", 1, "learning rate");
    refused(TWO "tensor --lr 1e30", 1, "learning rate");
}
