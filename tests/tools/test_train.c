/* The contract of clef train, eval and the others: lines, fields, files, exit codes.
   ctest: cost=30 plain */
#include "tools/tool_support.h"
#include <math.h>
#include <signal.h>
#include <sys/stat.h>
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
    if (system("python3 -c 'import json' 2>/dev/null")) {
        fprintf(stderr, "skipped: no python3 to read the JSON lines strictly\n");
        return;
    }
    snprintf(command, sizeof command,
             "cd '%s' && python3 -c 'import json\nfor line in open(\"out\"): assert type(json.loads(line)) is dict'", workplace);
    cr_assert_eq(system(command), 0, "not one JSON object per line");
}

Test(train, json_lines) {
    const said *s = clef("", SMALL "--epochs 2 --json");
    cr_assert_eq(s->code, 0, "%s", s->err);
    cr_assert_eq(lines(s->out), 5, "%s", s->out);
    cr_assert_str_eq(s->err, "");
    const char *first = strstr(s->out, "{\"event\":\"first_step\"");
    cr_assert(first && number_of(first, "compile_seconds") <= number_of(first, "seconds"));
    cr_assert(!strncmp(s->out, "{\"event\":\"start\"", 16), "%s", s->out);
    cr_assert(strstr(s->out, "\"device\":\"") && number_of(s->out, "parameters") > 1000);
    cr_assert_eq(number_of(s->out, "epoch"), 2);
    cr_assert(number_of(s->out, "loss") > 0 && number_of(s->out, "test_loss") > 0);
    cr_assert(number_of(s->out, "accuracy") > 0.1 && number_of(s->out, "accuracy") <= 1);
    cr_assert(number_of(s->out, "images_per_second") > 0 && number_of(s->out, "seconds") > 0);
    const char *done = strstr(s->out, "{\"event\":\"done\"");
    cr_assert(done && lines(done) == 1);
    cr_assert(number_of(done, "test_accuracy") > 0.2 && number_of(done, "compile_seconds") >= 0);
    all_lines_parse();
}

/* On matrix units that local memory stands in for: the option is stronger than the variable, the log says which it is, files have other bits,
   and a checkpoint of the one is not resumed silently with the other. */
Test(train, products_of_either_precision) {
    static const struct {
        const char *variable, *option, *is, *file;
    } way[] = {{"", "", "highest", "a"},
               {"CLEF_MATMUL_PRECISION=high", "", "high", "b"},
               {"", "--matmul-precision high", "high", "c"},
               {"CLEF_MATMUL_PRECISION=high", "--matmul-precision highest", "highest", "d"},
               {"", "--matmul-precision high --devices 0", "high", "e"}};
    char environment[128], arguments[256], wanted[64];
    for (int i = 0; i < 5; i++) {
        snprintf(environment, sizeof environment, "env CLEF_MATRIX=emulated CLEF_PROFILE=gpu %s", way[i].variable);
        snprintf(arguments, sizeof arguments, SMALL "--limit 64 --epochs 1 --json --out %s --checkpoint of_%s %s", way[i].file,
                 way[i].file, way[i].option);
        snprintf(wanted, sizeof wanted, "\"matmul_precision\":\"%s\"", way[i].is);
        const said *s = clef(environment, arguments);
        cr_assert_eq(s->code, 0, "%s", s->err);
        cr_expect(strstr(s->out, wanted), "%s: %s", way[i].file, s->out);
    }
    same_files("a", "d"), same_files("b", "c"), same_files("b", "e");
    char command[256];
    snprintf(command, sizeof command, "cd '%s' && cmp -s a b", workplace);
    cr_assert_neq(system(command), 0, "TF32 has all bits of f32");
    const said *s = clef("env CLEF_MATRIX=emulated CLEF_PROFILE=gpu", SMALL "--limit 64 --epochs 1 --checkpoint of_c --resume");
    cr_expect(s->code == 0 && strstr(s->err, "multiplied in TF32"), "%s", s->err);
    s = clef("env CLEF_MATRIX=emulated CLEF_PROFILE=gpu",
             SMALL "--limit 64 --epochs 1 --checkpoint of_b --resume --matmul-precision high");
    cr_expect(s->code == 0 && !strstr(s->err, "TF32"), "%s", s->err);
    s = clef("env CLEF_MATRIX=emulated CLEF_PROFILE=gpu", "eval --quiet --model mlp --weights a --json --matmul-precision high");
    cr_expect(s->code == 0 && strstr(s->out, "\"matmul_precision\":\"high\""), "%s%s", s->out, s->err);
    s = clef("", "train --data digits --model mlp --limit 64 --epochs 1 --matmul-precision high");
    cr_expect(s->code == 0 && strstr(s->err, "products of f32 in TF32 where"), "%s", s->err);
}

/* Weights are f32 whatever products are; a run, its summary and eval say the type, a checkpoint of one is not resumed under another, and f16 scales
   its loss, which not all ways of training can. */
Test(train, mixed_precision) {
    static const char *const dtypes[] = {"f32", "f16", "bf16"};
    char arguments[256], wanted[64];
    for (int i = 0; i < 3; i++) {
        snprintf(wanted, sizeof wanted, "\"dtype\":\"%s\"", dtypes[i]);
        snprintf(arguments, sizeof arguments, SMALL "--epochs 2 --json --dtype %s --out %s --checkpoint of_%s", dtypes[i],
                 dtypes[i], dtypes[i]);
        const said *s = clef("", arguments);
        cr_assert_eq(s->code, 0, "%s", s->err);
        cr_expect(strstr(s->out, wanted), "%s", s->out);
        double accuracy = number_of(strstr(s->out, "{\"event\":\"done\""), "test_accuracy");
        cr_expect(accuracy > 0.2, "%s: %g", dtypes[i], accuracy);
        snprintf(arguments, sizeof arguments, "eval --data digits --model mlp --limit 320 --weights %s --json --dtype %s",
                 dtypes[i], dtypes[i]);
        s = clef("", arguments);
        cr_expect(s->code == 0 && strstr(s->out, wanted), "%s%s", s->out, s->err);
        cr_expect_float_eq(number_of(s->out, "accuracy"), accuracy, 1e-9);
    }
    char command[256];
    snprintf(command, sizeof command, "cd '%s' && ! cmp -s f32 f16 && ! cmp -s f32 bf16 && ! cmp -s f16 bf16", workplace);
    cr_expect_eq(system(command), 0, "the type made no difference");
    const said *s = clef("", SMALL "--epochs 2 --dtype f16 --checkpoint of_f16 --resume --out again");
    cr_expect_eq(s->code, 0, "%s", s->err);
    same_files("f16", "again");
    s = clef("", SMALL "--epochs 3 --checkpoint of_bf16 --resume");
    cr_expect(s->code == 1 && strstr(s->err, "dtype=bf16") && lines(s->err) == 1, "%s", s->err);
    s = clef("", "train --data digits --model mlp --limit 64 --epochs 1 --dtype f16");
    cr_expect(s->code == 0 && strstr(s->err, "products in f16, with a scaled loss"), "%s", s->err);
    s = clef("", SMALL "--dtype f16 --dry-run");
    cr_expect_eq(s->code, 0, "%s", s->err);
    s = clef("", SMALL "--dtype f16 --parts 2");
    cr_expect(s->code == 2 && strstr(s->err, "--dtype f16 scales the loss") && lines(s->err) == 1, "%s", s->err);
    s = clef("", SMALL "--dtype f64");
    cr_expect(s->code == 2 && lines(s->err) == 1, "%s", s->err);
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
    cr_assert(number_of(s->out, "top_k_accuracy") >= accuracy && number_of(s->out, "top_k") == 5);
    cr_assert(strstr(s->out, "\"confusion\":[["));
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
    cr_assert(lines(s->out) >= 1 && strstr(s->out, "\"default\":true"));
    all_lines_parse();
    s = clef("CLEF_CACHE_DIR=", "cache show");
    cr_assert_str_eq(s->out, "no directory, memory only\n");
    s = clef("CLEF_CACHE_DIR=$PWD/cache", "cache show --json");
    cr_assert_eq(s->code, 0, "%s", s->err);
    cr_assert(number_of(s->out, "entries") == 0 && !strstr(s->out, "failed_builds"), "%s", s->out);
    all_lines_parse();
    s = clef("", "bench copy --json --seconds 0.01");
    cr_assert_eq(s->code, 0, "%s", s->err);
    cr_assert(number_of(s->out, "rate") > 0);
    all_lines_parse();
    s = clef("", "train --dry-run --model lenet --data digits");
    cr_assert_eq(s->code, 0, "%s", s->err);
    cr_assert(lines(s->out) > 8);
    s = clef("", "train --dry-run --model lenet --data digits --batch 40 --json");
    cr_assert_eq(s->code, 0, "%s", s->err);
    all_lines_parse();
    double peak = number_of(s->out, "peak_bytes");
    cr_assert(peak > 4 * 2 * 44426, "%s", s->out); /* parameters and momentum at least */
    cr_assert_eq(number_of(s->out, "result_bytes"), 4, "all updates in place; only the loss is new: %s", s->out);
    cr_assert(number_of(s->out, "flops") > 0 && number_of(s->out, "launches") > 10 && number_of(s->out, "largest_batch") > 40);
    s = clef("", "train --dry-run --model lenet --data digits --batch 80 --json");
    cr_assert(number_of(s->out, "peak_bytes") > peak, "%s", s->out);
    s = clef("", "train --dry-run --model lenet --data digits --device 0/2");
    cr_assert(s->code != 0 || strstr(s->out, "device 1: 0.0 MiB at most"), "%s", s->out); /* else it cannot be divided */
}

/* The same weights, with less memory as the dry run says. */
Test(train, recompute_changes_only_the_memory) {
    const char *options[] = {"", "--recompute"};
    double temporary[2];
    for (int i = 0; i < 2; i++) {
        char command[256];
        snprintf(command, sizeof command, "train --dry-run --model resnet18 --data digits --batch 64 --json %s", options[i]);
        const said *s = clef("", command);
        cr_assert_eq(s->code, 0, "%s", s->err);
        temporary[i] = number_of(s->out, "temporary_bytes");
        snprintf(command, sizeof command,
                 "train --quiet --model resnet18 --data digits --limit 32 --batch 16 --epochs 1 --out %d %s", i, options[i]);
        s = clef("", command);
        cr_assert_eq(s->code, 0, "%s", s->err);
    }
    cr_expect(temporary[1] < 0.8 * temporary[0], "%g of %g bytes", temporary[1], temporary[0]);
    same_files("0", "1");
}

/* ---- runs that are cut off ---- */
#define RUN SMALL "--optimizer sgd --schedule cosine --epochs 12 "

/* Starts `clef options` in the workplace without waiting for it. */
static pid_t start(const char *options) {
    pid_t child = fork();
    cr_assert(child >= 0);
    if (child == 0) {
        char command[2048];
        snprintf(command, sizeof command, "cd '%s' && exec '%s' %s >out 2>err", workplace, CLEF_TEST_TOOL, options);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    return child;
}

static void pause_ms(long milliseconds) { nanosleep(&(struct timespec){milliseconds / 1000, milliseconds % 1000 * 1000000}, NULL); }

/* When a file of the workplace was last replaced; 0: it is not there. */
static double age_mark(const char *name) {
    char path[128];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", workplace, name);
    return stat(path, &st) ? 0 : (double)st.st_mtim.tv_sec + 1e-9 * (double)st.st_mtim.tv_nsec;
}

/* Runs until the run itself has replaced `file`, and so many milliseconds more, then sends a signal; how it ended. */
static int cut_off(const char *options, const char *file, int signal_number, long milliseconds) {
    double before = age_mark(file);
    pid_t child = start(options), ended = 0;
    int status;
    for (int i = 0; i < 12000 && age_mark(file) == before; i++) {
        if ((ended = waitpid(child, &status, WNOHANG)) == child) return status;
        pause_ms(5);
    }
    pause_ms(milliseconds);
    kill(child, signal_number);
    cr_assert_eq(waitpid(child, &status, 0), child);
    return status;
}

Test(train, killed_and_resumed_ends_with_the_same_bits) {
    const char *piece = RUN "--checkpoint dir --checkpoint-every 1 --resume --json --out parts.safetensors";
    cr_assert_eq(clef("", RUN "--out whole.safetensors")->code, 0);
    int killed = 0;
    for (int i = 0; i < 5; i++) killed += WIFSIGNALED(cut_off(piece, "dir/last.ckpt", SIGKILL, 7 * i)) != 0;
    const said *s = clef("", piece);
    cr_assert_eq(s->code, 0, "%s", s->err);
    cr_assert(killed > 0, "the runs were too short to be killed");
    cr_assert(number_of(s->out, "resumed_at") > 0, "the last run began anew: %s", s->out);
    same_files("whole.safetensors", "parts.safetensors");
}

/* Ctrl-C, a closed terminal, and what a batch system sends before it kills. */
Test(train, a_signal_leaves_a_checkpoint) {
    static const int signals[] = {SIGINT, SIGHUP, SIGTERM};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        int status = cut_off(SMALL "--epochs 100000 --checkpoint dir --resume", "dir/last.ckpt", signals[i], 50);
        char err[512];
        slurp("err", err, sizeof err);
        cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1, "signal %d: %s", signals[i], err);
        cr_assert(strstr(err, "--resume continues from dir/last.ckpt"), "signal %d: %s", signals[i], err);
        cr_assert(age_mark("dir/last.ckpt") > 0);
    }
}

/* Without a checkpoint the weights go to --out; without that, the line says that nothing was saved. */
Test(train, ctrl_c_without_a_checkpoint_saves_the_weights) {
    char err[512];
    int status = cut_off(SMALL "--epochs 100000 --csv log --out w.safetensors", "log", SIGINT, 300);
    slurp("err", err, sizeof err);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1, "%s", err);
    cr_assert(strstr(err, "w.safetensors") && lines(err) == 1, "%s", err);
    cr_assert_eq(clef("", "eval --data digits --model mlp --weights w.safetensors")->code, 0);
    status = cut_off(SMALL "--epochs 100000 --csv other", "other", SIGINT, 300);
    slurp("err", err, sizeof err);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1, "%s", err);
    cr_assert(strstr(err, "nothing was saved"), "%s", err);
}

/* The rate of the last step of each epoch (10 steps): a tenth after epoch 2, a hundredth after 3, and 15 steps of warm-up. */
Test(train, milestones_and_warmup) {
    static const double plain[] = {0.003, 0.003, 0.0003, 3e-5}, warm[] = {0.002, 0.003, 0.0003, 3e-5};
    for (int with = 0; with < 2; with++) {
        const said *s = clef("", with ? SMALL "--json --epochs 4 --schedule multistep --milestones 2,3 --warmup 15"
                                      : SMALL "--json --epochs 4 --schedule multistep");
        cr_assert_eq(s->code, 0, "%s", s->err);
        const char *line = strchr(s->out, '\n');
        for (int epoch = 0; epoch < 4; epoch++) {
            line = strstr(line + 1, "\"lr\":");
            cr_assert(line, "%s", s->out);
            double lr = strtod(line + 5, NULL), want = (with ? warm : plain)[epoch];
            cr_assert_float_eq(lr, want, 1e-6 * want, "epoch %d: %g, not %g", epoch + 1, lr, want);
        }
    }
}

Test(train, resuming_with_other_options_is_refused) {
    cr_assert_eq(clef("", SMALL "--epochs 1 --checkpoint dir")->code, 0);
    const said *s = clef("", SMALL "--epochs 2 --checkpoint dir --resume --lr 0.5");
    cr_assert_eq(s->code, 1);
    cr_assert_eq(lines(s->err), 1, "%s", s->err);
    cr_assert(strstr(s->err, "lr=0.003"), "%s", s->err);
}

/* Finite to the end, and yet no training: said with an exit code, or as a warning where it is not certain.  Two batches: a third
   would overflow, which is another line, and the clock decides after which of them the loss is read. */
Test(train, divergence_is_said) {
    const said *s = clef("", SMALL "--limit 64 --epochs 3 --optimizer sgd --schedule constant --lr 1e6");
    cr_assert_eq(s->code, 1, "%s", s->out);
    cr_assert(lines(s->err) == 1 && strstr(s->err, "training diverges") && strstr(s->err, "1e+06"), "%s", s->err);
    cr_assert_str_eq(s->out, "");
    s = clef("", SMALL "--epochs 1 --optimizer sgd --schedule constant --lr 3 --out w");
    cr_assert_eq(s->code, 0, "%s", s->err);
    cr_assert(lines(s->err) == 1 && strstr(s->err, "worse than guessing") && strstr(s->err, "below 3"), "%s", s->err);
    cr_assert(strstr(s->out, "test accuracy"), "%s", s->out);
}

static int widest(const char *text) {
    int most = 0;
    for (const char *c = text; *c; c += *c == '\n') {
        int here = (int)strcspn(c, "\n");
        most = here > most ? here : most;
        c += here;
    }
    return most;
}

Test(train, every_line_fits_80_columns) {
    const said *s = clef("", "train --model mlp --data digits --limit 320 --batch 32 --epochs 1 --out w");
    cr_assert_eq(s->code, 0, "%s", s->err);
    cr_expect(widest(s->out) <= 80 && widest(s->err) <= 80, "%s%s", s->out, s->err);
    s = clef("", "eval --model mlp --data digits --weights w");
    cr_expect(s->code == 0 && widest(s->out) <= 80 && !*s->err, "%s%s", s->out, s->err);
    s = clef("", "train --help");
    cr_expect(widest(s->out) <= 80, "%s", s->out);
    s = clef("", "bench --help");
    cr_expect(widest(s->out) <= 80, "%s", s->out);
}

Test(train, a_rate_that_is_far_too_high_is_explained) {
    const said *s = clef("", SMALL "--epochs 30 --optimizer sgd --schedule constant --lr 1e30");
    cr_assert_eq(s->code, 1);
    cr_assert_eq(lines(s->err), 1, "%s", s->err);
    cr_assert(strstr(s->err, "first bad layer") && strstr(s->err, "1e+30"), "%s", s->err);
}

/* ---- several devices ---- */

static bool first_device_divides(void) { return clef("", SMALL "--epochs 1 --device 0/2")->code == 0; }

/* The same losses but for the last digits, the same accuracy but for an image or two, and one voice. */
Test(train, several_devices_train_what_one_does) {
    const char *options[] = {"--devices 0,0", "--devices 0,0,0 --shares 4:2:1", "--devices 0,0 --shares auto --rebalance-every 20",
                             "--devices 0/2"};
    const said *s = clef("", "train --quiet --data digits --epochs 3 --json");
    cr_assert_eq(s->code, 0, "%s", s->err);
    double accuracy = number_of(s->out, "test_accuracy"), loss = number_of(s->out, "loss");
    cr_assert(accuracy > 0.9);
    int n = first_device_divides() ? 4 : 3;
    for (int i = 0; i < n; i++) {
        char command[128];
        snprintf(command, sizeof command, "train --quiet --data digits --epochs 3 --json %s", options[i]);
        s = clef("", command);
        cr_assert_eq(s->code, 0, "%s", s->err);
        cr_expect_str_eq(s->err, "");
        int ranks = i == 1 ? 3 : 2;
        cr_expect_eq(number_of(s->out, "ranks"), ranks);
        cr_expect_eq(lines(s->out), 6 + ranks, "%s", s->out);
        cr_expect_float_eq(number_of(s->out, "loss"), loss, 1e-3, "%s: %s", options[i], s->out);
        cr_expect_float_eq(number_of(s->out, "test_accuracy"), accuracy, 0.01, "%s: %s", options[i], s->out);
        all_lines_parse();
    }
    s = clef("", "train --data digits --model mlp --epochs 1 --limit 64 --devices 0,0");
    cr_expect(strstr(s->err, "rank 0 (") && strstr(s->err, "rank 1 (") && lines(s->out) == 1, "%s%s", s->err, s->out);
    s = clef("", "train --dry-run --model lenet --devices 0,0 --batch 40 --shares 3:1 --json");
    cr_expect(s->code == 0 && lines(s->out) == 2 && strstr(s->out, "\"rank\":0,\"batch\":30"), "%s%s", s->err, s->out);
    cr_expect_eq(number_of(s->out, "batch"), 10);
}

/* A run of two devices goes on with any other number of them. */
Test(train, several_devices_resume) {
    const char *devices[] = {"", "--devices 0,0", "--devices 0,0,0"};
    const said *s = clef("", SMALL "--schedule plateau --epochs 4 --json");
    double loss = number_of(s->out, "loss");
    for (int i = 0; i < 3; i++) {
        char command[256];
        snprintf(command, sizeof command, SMALL "--schedule plateau --epochs 2 --devices 0,0 --checkpoint c%d --csv l%d", i, i);
        s = clef("", command);
        cr_assert_eq(s->code, 0, "%s", s->err);
        snprintf(command, sizeof command, SMALL "--schedule plateau --epochs 4 %s --checkpoint c%d --csv l%d --resume --json",
                 devices[i], i, i);
        s = clef("", command);
        cr_assert_eq(s->code, 0, "%s", s->err);
        cr_expect_eq(number_of(s->out, "resumed_at"), 20, "%s", s->out);
        cr_expect_float_eq(number_of(s->out, "loss"), loss, 1e-4, "%s: %s", devices[i], s->out);
    }
}

Test(train, several_devices_fail_with_one_line) {
    const said *s = clef("", "train --quiet --data mnist:/nonexistent --devices 0,0");
    cr_expect(s->code == 1 && lines(s->err) == 1 && !*s->out, "%d: %s", s->code, s->err);
    s = clef("", SMALL "--epochs 2 --lr 1e30 --devices 0,0");
    cr_expect(s->code == 1 && strstr(s->err, "learning rate") && lines(s->err) == 1, "%d: %s", s->code, s->err);
    s = clef("", SMALL "--epochs 1 --mpi"); /* one process is one rank, where there is MPI at all (tests/mpi/tool.sh: two) */
    cr_expect(s->code == 0 || (strstr(s->err, "--mpi") && lines(s->err) == 1), "%d: %s", s->code, s->err);
}
