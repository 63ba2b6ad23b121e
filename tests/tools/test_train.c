/* The contract of clef train, eval and the others: lines, fields, files, exit codes.
   ctest: timeout=300 */
#include "tools/tool_support.h"
#include <math.h>
#include <signal.h>
#include <time.h>

TestSuite(train, .init = enter_workplace, .fini = leave_workplace);
#define SMALL "train --quiet --data digits --model mlp --limit 320 --batch 32 "

static void same_files(const char *a, const char *b) {
    char command[256];
    snprintf(command, sizeof command, "cd '%s' && cmp '%s' '%s'", workplace, a, b);
    cr_assert_eq(system(command), 0, "%s and %s differ", a, b);
}

/* Each line is one object by a strict reader, where one is installed. */
static void all_lines_parse(void) {
    char command[256];
    if (system("python3 -c 'import json' 2>/dev/null")) return;
    snprintf(command, sizeof command, "cd '%s' && python3 -c 'import json\nfor line in open(\"out\"): assert type(json.loads(line)) is dict'",
             workplace);
    cr_assert_eq(system(command), 0, "not one JSON object per line");
}

Test(train, json_lines) {
    const said *s = clef("", SMALL "--epochs 2 --json");
    cr_assert_eq(s->code, 0, "%s", s->err);
    cr_assert_eq(lines(s->out), 4, "%s", s->out);
    cr_assert_str_eq(s->err, "");
    cr_assert(!strncmp(s->out, "{\"event\": \"start\"", 17), "%s", s->out);
    cr_assert(strstr(s->out, "\"device\": \"") && number_of(s->out, "parameters") > 1000);
    cr_assert_eq(number_of(s->out, "epoch"), 2);
    cr_assert(number_of(s->out, "loss") > 0 && number_of(s->out, "test_loss") > 0);
    cr_assert(number_of(s->out, "accuracy") > 0.1 && number_of(s->out, "accuracy") <= 1);
    cr_assert(number_of(s->out, "images_per_second") > 0 && number_of(s->out, "seconds") > 0);
    const char *done = strstr(s->out, "{\"event\": \"done\"");
    cr_assert(done && lines(done) == 1);
    cr_assert(number_of(done, "test_accuracy") > 0.2 && number_of(done, "compile_seconds") >= 0);
    all_lines_parse();
}

Test(train, the_same_seed_gives_the_same_weights) {
    cr_assert_eq(clef("", SMALL "--epochs 2 --seed 4 --out a.safetensors")->code, 0);
    cr_assert_eq(clef("", SMALL "--epochs 2 --seed 4 --out b.safetensors --threads 3")->code, 0);
    cr_assert_eq(clef("", SMALL "--epochs 2 --seed 5 --out c.safetensors")->code, 0);
    same_files("a.safetensors", "b.safetensors");
    char command[256];
    snprintf(command, sizeof command, "cd '%s' && cmp -s a.safetensors c.safetensors", workplace);
    cr_assert_neq(system(command), 0, "another seed must make a difference");
}

Test(train, eval_agrees_with_train) {
    const said *s = clef("", SMALL "--epochs 2 --json --out w.safetensors");
    cr_assert_eq(s->code, 0, "%s", s->err);
    double accuracy = number_of(s->out, "test_accuracy");
    s = clef("", "eval --data digits --model mlp --limit 320 --weights w.safetensors --json --svg c.svg");
    cr_assert_eq(s->code, 0, "%s", s->err);
    cr_assert_float_eq(number_of(s->out, "accuracy"), accuracy, 1e-9);
    cr_assert(number_of(s->out, "top5") >= accuracy);
    cr_assert(strstr(s->out, "\"confusion\": [["));
    all_lines_parse();
    s = clef("", "eval --data digits --model mlp --weights w.safetensors");
    cr_assert(strstr(s->out, "accuracy") && strstr(s->out, "recall") && lines(s->out) == 13, "%s", s->out);
    s = clef("", "eval --data digits --model cnn --weights w.safetensors");
    cr_assert_eq(s->code, 1);
    cr_assert_eq(lines(s->err), 1);
}

Test(train, other_verbs_speak_json_too) {
    const said *s = clef("", "devices --json");
    cr_assert_eq(s->code, 0, "%s", s->err);
    cr_assert(lines(s->out) >= 1 && strstr(s->out, "\"default\": true"));
    all_lines_parse();
    s = clef("CLEF_CACHE_DIR=$PWD/cache", "cache show --json");
    cr_assert_eq(s->code, 0, "%s", s->err);
    cr_assert_eq(number_of(s->out, "entries"), 0);
    all_lines_parse();
    s = clef("", "bench copy --json --seconds 0.01");
    cr_assert_eq(s->code, 0, "%s", s->err);
    cr_assert(number_of(s->out, "rate") > 0);
    all_lines_parse();
    s = clef("", "train --dry-run --model lenet --data digits");
    cr_assert_eq(s->code, 0, "%s", s->err);
    cr_assert(lines(s->out) > 8);
}

/* ---- runs that are cut off ---- */
#define RUN SMALL "--optimizer sgd --schedule cosine --epochs 12 "

/* Starts a run that checkpoints after every batch and sends it a signal; returns how it ended. */
static int cut_off(const char *options, int signal_number, long milliseconds) {
    pid_t child = fork();
    cr_assert(child >= 0);
    if (child == 0) {
        char command[2048];
        snprintf(command, sizeof command, "cd '%s' && exec '%s' %s >out 2>err", workplace, CLEF_TEST_TOOL, options);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    nanosleep(&(struct timespec){milliseconds / 1000, milliseconds % 1000 * 1000000}, NULL);
    kill(child, signal_number);
    int status;
    cr_assert_eq(waitpid(child, &status, 0), child);
    return status;
}

Test(train, killed_and_resumed_ends_with_the_same_bits) {
    const char *piece = RUN "--checkpoint dir --checkpoint-every 1 --resume --out parts.safetensors";
    cr_assert_eq(clef("", RUN "--out whole.safetensors")->code, 0);
    int killed = 0;
    for (int i = 0; i < 12; i++) {
        int status = cut_off(piece, SIGKILL, 120 + 70 * (i % 6));
        killed += WIFSIGNALED(status);
    }
    const said *s = clef("", piece);
    cr_assert_eq(s->code, 0, "%s", s->err);
    cr_assert(killed > 0, "the runs were too short to be killed");
    same_files("whole.safetensors", "parts.safetensors");
}

Test(train, ctrl_c_leaves_a_checkpoint) {
    const char *run = SMALL "--epochs 100000 --checkpoint dir";
    int status = cut_off(run, SIGINT, 4000);
    char err[512];
    slurp("err", err, sizeof err);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1, "%s", err);
    cr_assert(strstr(err, "--resume"), "%s", err);
    cr_assert_eq(clef("", "train --help")->code, 0);
    char path[128];
    snprintf(path, sizeof path, "%s/dir/last.ckpt", workplace);
    cr_assert_eq(access(path, R_OK), 0);
}

Test(train, resuming_with_other_options_is_refused) {
    cr_assert_eq(clef("", SMALL "--epochs 1 --checkpoint dir")->code, 0);
    const said *s = clef("", SMALL "--epochs 2 --checkpoint dir --resume --lr 0.5");
    cr_assert_eq(s->code, 1);
    cr_assert_eq(lines(s->err), 1, "%s", s->err);
    cr_assert(strstr(s->err, "lr=0.003"), "%s", s->err);
}

Test(train, a_rate_that_is_far_too_high_is_explained) {
    const said *s = clef("", SMALL "--epochs 30 --optimizer sgd --schedule constant --lr 1e30");
    cr_assert_eq(s->code, 1);
    cr_assert_eq(lines(s->err), 1, "%s", s->err);
    cr_assert(strstr(s->err, "first bad layer") && strstr(s->err, "1e+30"), "%s", s->err);
}
