/* Interrupted and resumed runs end with the same bits as runs that nobody disturbed.
   ctest: plain */
#define _DEFAULT_SOURCE /* flock */
#include "support/sealed.h"
#include "train/train_internal.h"
#include "train/train_support.h"
#include <criterion/criterion.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

static const rig_options kind = {.dropout = true, .scheduled = true};
enum { EPOCHS = 3, BATCHES = 10 };

/* One process's part of a run; returns fit's status and, at the end, the weights and the last epoch's figures. */
static clef_status part(const char *dir, int64_t interrupt_after, float **weights, size_t *n, clef_epoch *last) {
    const clef_history *h;
    rig r = rig_open(kind);
    stopper s = {.at = interrupt_after};
    clef_fit_options options = rig_fit(&r);
    options.epochs = EPOCHS;
    options.checkpoint_dir = dir;
    options.resume = dir != NULL;
    options.checkpoint_note = "the same options";
    if (interrupt_after) {
        options.on_progress = raise_flag;
        options.user = &s;
        options.interrupt = &s.flag;
    }
    clef_status status = clef_fit(r.net, &options, &h);
    cr_assert(status == CLEF_OK || status == CLEF_INTERRUPTED, "%s", clef_error(r.ctx));
    if (h->n > 0) *last = h->epoch[h->n - 1];
    if (status == CLEF_OK) *weights = rig_weights(&r, n);
    clef_close(r.ctx);
    return status;
}

Test(resume, an_interrupted_run_ends_with_the_same_bits) {
    char dir[64];
    float *whole = NULL, *parts = NULL;
    size_t n = 0, m = 0;
    clef_epoch a = {0}, b = {0};
    cr_assert_eq(part(NULL, 0, &whole, &n, &a), CLEF_OK);
    cr_assert(fresh_directory(dir));
    int times = 0;
    for (clef_status status = CLEF_INTERRUPTED; status == CLEF_INTERRUPTED; times++) {
        cr_assert(times < 60, "it never gets anywhere");
        status = part(dir, 1 + times % 3, &parts, &m, &b);
    }
    cr_assert(times > 2, "it was not interrupted");
    cr_assert(whole && parts && n == m);
    cr_assert_eq(memcmp(whole, parts, n * sizeof *whole), 0);
    cr_assert(a.epoch == EPOCHS && b.epoch == EPOCHS);
    cr_assert(a.loss == b.loss && a.accuracy == b.accuracy, "loss %.9g and %.9g", a.loss, b.loss);
    cr_assert(a.test_loss == b.test_loss && a.test_accuracy == b.test_accuracy && a.lr == b.lr);
    free(whole);
    free(parts);
    remove_directory(dir);
}

Test(resume, a_finished_run_stays_as_it_is) {
    char dir[64];
    float *first = NULL, *again = NULL;
    size_t n = 0, m = 0;
    cr_assert(fresh_directory(dir));
    clef_epoch a = {0}, b = {0};
    cr_assert_eq(part(dir, 0, &first, &n, &a), CLEF_OK);
    cr_assert_eq(part(dir, 0, &again, &m, &b), CLEF_OK);
    cr_assert_eq(b.epoch, 0, "no epoch was left");
    cr_assert(n == m && !memcmp(first, again, n * sizeof *first));
    free(first);
    free(again);
    remove_directory(dir);
}

Test(resume, other_options_are_refused) {
    char dir[64];
    float *w = NULL;
    size_t n;
    clef_epoch last;
    cr_assert(fresh_directory(dir));
    cr_assert_eq(part(dir, 0, &w, &n, &last), CLEF_OK);
    free(w);
    rig r = rig_open(kind);
    clef_fit_options options = rig_fit(&r);
    options.checkpoint_dir = dir;
    options.resume = true;
    options.checkpoint_note = "other options";
    cr_assert_eq(clef_fit(r.net, &options, NULL), CLEF_INVALID);
    cr_assert(strstr(clef_error(r.ctx), "other options"), "%s", clef_error(r.ctx));
    clef_close(r.ctx);
    remove_directory(dir);
}

/* A note may hold the bytes of a file's name; one that is too long is said before an epoch's work. */
Test(resume, notes_of_any_bytes) {
    char dir[64], longer[1200] = {0};
    cr_assert(fresh_directory(dir));
    for (int round = 0; round < 2; round++) {
        rig r = rig_open(kind);
        clef_fit_options options = rig_fit(&r);
        options.checkpoint_dir = dir;
        options.resume = true;
        options.checkpoint_note = "file=caf\xE9.txt";
        cr_expect_eq(clef_fit(r.net, &options, NULL), CLEF_OK, "%s", clef_error(r.ctx));
        memset(longer, 'x', sizeof longer - 1);
        options.checkpoint_note = longer;
        int64_t steps = clef_optimizer_steps(r.optimizer);
        cr_expect_eq(clef_fit(r.net, &options, NULL), CLEF_INVALID);
        cr_expect(strstr(clef_error(r.ctx), "checkpoint_note is longer than 600 bytes"), "%s", clef_error(r.ctx));
        cr_expect_eq(clef_optimizer_steps(r.optimizer), steps);
        clef_close(r.ctx);
    }
    remove_directory(dir);
}

/* What an earlier run left as its best is not this one's, which had no best: its test data are no numbers. */
Test(resume, the_best_of_another_run_is_not_put_back) {
    char dir[64];
    cr_assert(fresh_directory(dir));
    float x[64] = {NAN};
    int64_t y = 1;
    for (int round = 0; round < 2; round++) {
        rig r = rig_open((rig_options){.lr = round ? 1e-12 : 0.1});
        clef_fit_options options = rig_fit(&r);
        options.checkpoint_dir = dir;
        options.epochs = 3;
        options.early_stop_patience = 2;
        if (round) options.test = clef_loader_open(clef_dataset_arrays(r.ctx, x, CLEF_SHAPE(1, 8, 8), &y, 1), NULL);
        size_t n = 0, m = 0;
        float *before = rig_weights(&r, &n);
        cr_expect_eq(clef_fit(r.net, &options, NULL), CLEF_OK, "%s", clef_error(r.ctx));
        float *after = rig_weights(&r, &m);
        for (size_t i = 0; i < n && round; i++) cr_assert_float_eq(after[i], before[i], 1e-6);
        free(before), free(after);
        clef_close(r.ctx);
    }
    remove_directory(dir);
}

/* Early stop after a resumption finds the best weights in best.ckpt. */
Test(resume, the_best_weights_survive) {
    char dir[64];
    const clef_history *h;
    cr_assert(fresh_directory(dir));
    double best = 0;
    for (int round = 0; round < 2; round++) {
        rig r = rig_open((rig_options){.lr = 0.6});
        clef_fit_options options = rig_fit(&r);
        options.checkpoint_dir = dir;
        options.resume = true;
        options.epochs = 40;
        options.early_stop_patience = 2;
        cr_assert_eq(clef_fit(r.net, &options, &h), CLEF_OK, "%s", clef_error(r.ctx));
        cr_assert(h->stopped_early);
        clef_evaluation_result e;
        cr_assert_eq(clef_evaluate(r.net, r.test, NULL, NULL, &e), CLEF_OK);
        if (round == 0) best = e.loss;
        else cr_assert(h->n == 0 && e.loss == best, "%d epochs, %g, %g", h->n, e.loss, best);
        clef_close(r.ctx);
    }
    remove_directory(dir);
}

Test(resume, keeps_the_last_n_epochs) {
    char dir[64], path[128];
    rig r = rig_open((rig_options){0});
    clef_fit_options options = rig_fit(&r);
    cr_assert(fresh_directory(dir));
    options.checkpoint_dir = dir;
    options.epochs = 4;
    options.keep = 2;
    cr_assert_eq(clef_fit(r.net, &options, NULL), CLEF_OK, "%s", clef_error(r.ctx));
    for (int epoch = 1; epoch <= 4; epoch++) {
        snprintf(path, sizeof path, "%s/epoch-%d.ckpt", dir, epoch);
        cr_assert_eq(access(path, F_OK) == 0, epoch >= 3, "%s", path);
    }
    snprintf(path, sizeof path, "%s/best.ckpt", dir);
    cr_assert_eq(access(path, F_OK), 0);
    clef_close(r.ctx);
    remove_directory(dir);
}

/* ---- files that lie, and other runs ---- */
typedef struct started {
    rig r;
    char dir[64], last[128];
    clef_fit_options options;
} started;

/* A run of one epoch that left its checkpoints; it goes on, when asked, for another one. */
static void start_run(started *s) {
    s->r = rig_open((rig_options){.limit = 64, .sgd = true, .plain = true});
    cr_assert(fresh_directory(s->dir));
    snprintf(s->last, sizeof s->last, "%s/last.ckpt", s->dir);
    s->options = rig_fit(&s->r);
    s->options.test = NULL;
    s->options.checkpoint_dir = s->dir;
    cr_assert_eq(clef_fit(s->r.net, &s->options, NULL), CLEF_OK, "%s", clef_error(s->r.ctx));
    s->options.resume = true;
    s->options.epochs = 2;
}

static void end_run(started *s) {
    clef_close(s->r.ctx);
    remove_directory(s->dir);
}

Test(resume, impossible_states_are_refused_and_change_nothing) {
    static const struct {
        const char *from, *to, *said;
    } cases[] = {
        {"\"epoch\":\"1\"", "\"epoch\":\"-9223372036854775808\"", "was left in epoch -9223372036854775808"},
        {"\"epoch\":\"1\"", "\"epoch\":\"4611686018427387904\"", "was left in epoch 4611686018427387904"},
        {"\"metric\":\"0x", "\"metric\":\"nan\",\"x\":\"0x", "no run of this loader comes"},
        {"fit 0 64 0 ", "fit -1 64 0 ", "after -1 batches"},
        {"fit 0 64 0 ", "fit 2 64 0 ", "after 2 batches and 64 items, where no run of this loader comes"},
        {"fit 0 64 0 ", "fit 0 65 0 ", "and 65 items"},
        {"fit 0 64 0 ", "fit 0 64 2 ", "no run of this loader comes"},
        {"fit 0 64 0 0x0.0000000000000p+0", "fit 0 64 0 nan", "no run of this loader comes"},
        {"fit 0 64 0 0x0.0000000000000p+0", "fit 0 64 0 0x1.0000000000000p+1023", "no run of this loader comes"},
        {"fit 0 64 0 0x0.0000000000000p+0 0x0.0000000000000p+0", "fit 0 64 0 0x0.0000000000000p+0 inf",
         "no run of this loader comes"},
        {"fit 0 64 0 ", "fit 0 64 0x ", "was not written by fit"},
        {"0x0.0000000000000p+0\\u000a\"", "0x0.0000000000000p+0\\u000aother options\"", "was made with \"other options\""},
    };
    started s;
    start_run(&s);
    char good[160];
    size_t n = 0, m = 0;
    snprintf(good, sizeof good, "%s/good", s.dir);
    cr_assert_eq(rename(s.last, good), 0);
    /* Something has happened since: what is refused must not take it back. */
    clef_optimizer_set(s.r.optimizer, (clef_optimizer_state){.steps = 77, .lr = 0.5});
    cr_assert_eq(clef_loader_set(s.r.train, (clef_loader_state){.epoch = 9, .batch = 1, .seed = 3}), CLEF_OK);
    clef_tensor *weight = clef_module_tensor(s.r.net, 0).tensor;
    cr_assert_eq(clef_assign(weight, clef_mul_scalar(clef_detach(weight), 2)), CLEF_OK);
    float *before = rig_weights(&s.r, &n), *after;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_assert(sealed_patch(good, s.last, cases[i].from, cases[i].to), "%s is not in the file", cases[i].from);
        cr_expect_neq(clef_fit(s.r.net, &s.options, NULL), CLEF_OK, "%s", cases[i].to);
        cr_expect(strstr(clef_error(s.r.ctx), cases[i].said), "%s: %s", cases[i].to, clef_error(s.r.ctx));
        clef_clear_error(s.r.ctx);
    }
    cr_expect_eq(clef_optimizer_steps(s.r.optimizer), 77);
    cr_expect_eq(clef_loader_get(s.r.train).epoch, 9);
    after = rig_weights(&s.r, &m);
    cr_expect(before && after && n == m && memcmp(before, after, n * sizeof *before) == 0);
    free(before), free(after);
    cr_assert_eq(rename(good, s.last), 0);
    cr_expect_eq(clef_fit(s.r.net, &s.options, NULL), CLEF_OK, "%s", clef_error(s.r.ctx));
    end_run(&s);
}

/* Ends the child when the pipe is closed, by which its lock goes. */
static pid_t hold_lock(const char *dir, int *stop) {
    int to_child[2], ready[2];
    char byte = 0;
    cr_assert(pipe(to_child) == 0 && pipe(ready) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        close(to_child[1]);
        clef__fit f = {.o = &(clef_fit_options){.checkpoint_dir = dir}, .lock = -1};
        bool locked = clef__checkpoint_begin(&f) == CLEF_OK && write(ready[1], "x", 1) == 1;
        _exit(!locked || read(to_child[0], &byte, 1) != 0);
    }
    close(to_child[0]);
    close(ready[1]);
    cr_assert_eq(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    *stop = to_child[1];
    return pid;
}

Test(resume, two_runs_do_not_share_a_directory) {
    started s;
    start_run(&s);
    int stop, status;
    io_bytes before = io_slurp(s.last);
    pid_t other = hold_lock(s.dir, &stop);
    cr_expect_eq(clef_fit(s.r.net, &s.options, NULL), CLEF_STATE);
    cr_expect(strstr(clef_error(s.r.ctx), "another run keeps its checkpoints in "), "%s", clef_error(s.r.ctx));
    clef_clear_error(s.r.ctx);
    io_bytes after = io_slurp(s.last);
    cr_expect(before.size == after.size && memcmp(before.data, after.data, before.size) == 0);
    free(before.data), free(after.data);
    kill(other, SIGKILL); /* a lock goes with its process, however that ends */
    waitpid(other, &status, 0);
    close(stop);
    cr_expect_eq(clef_fit(s.r.net, &s.options, NULL), CLEF_OK, "%s", clef_error(s.r.ctx));
    s.options.epochs = 3;
    cr_expect_eq(clef_fit(s.r.net, &s.options, NULL), CLEF_OK, "the lock of the run before is gone: %s", clef_error(s.r.ctx));
    end_run(&s);
}

/* What killed runs left of any checkpoint goes when the next one begins; what is not ours stays. */
Test(resume, leftovers_are_removed) {
    static const struct {
        const char *name;
        bool goes;
    } files[] = {
        {"best.ckpt.123-0.tmp", true}, {"epoch-7.ckpt.99999-12.tmp", true}, {"notes.tmp", false},         {"mine.1-.tmp", false},
        {".1-2.tmp", false},           {"last.ckpt.1-2.tmp.x", false},      {"notes.2026-11.tmp", false},
    };
    enum { FILES = sizeof files / sizeof *files };
    started s;
    start_run(&s);
    char path[256];
    for (int i = 0; i < FILES; i++) io_spit(io_path(s.dir, files[i].name), "x", 1);
    snprintf(path, sizeof path, "%s/best.ckpt.5-5.tmp", s.dir); /* of a writer that lives */
    int living = open(path, O_CREAT | O_WRONLY, 0600);
    cr_assert_eq(flock(living, LOCK_EX), 0);
    cr_assert_eq(clef_fit(s.r.net, &s.options, NULL), CLEF_OK, "%s", clef_error(s.r.ctx));
    for (int i = 0; i < FILES; i++)
        cr_expect_eq(access(io_path(s.dir, files[i].name), F_OK) != 0, files[i].goes, "%s", files[i].name);
    cr_expect_eq(access(path, F_OK), 0);
    close(living);
    end_run(&s);
}
