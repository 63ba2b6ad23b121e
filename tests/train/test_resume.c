/* Interrupted and resumed runs end with the same bits as runs that nobody disturbed.
   ctest: plain */
#include "train/train_support.h"
#include <criterion/criterion.h>
#include <unistd.h>

static const rig_options kind = {.dropout = true, .scheduled = true};
enum { EPOCHS = 3, BATCHES = 10 };

typedef struct stopper {
    volatile int flag;
    int64_t at, seen; /* reports until the flag goes up */
} stopper;

static bool raise_flag(void *user, const clef_progress *p) {
    stopper *s = user;
    if (p->to_compile == 0 && ++s->seen >= s->at) s->flag = 1;
    return true;
}

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
