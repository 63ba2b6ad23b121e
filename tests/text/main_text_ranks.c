/* A model of text that is trained on 1, 2 and 4 ranks: on windows that are cut into parts all numbers have the same bits, also of a run that
   other ranks go on with; without parts they differ by rounding.
   ctest: apart plain */
#include "group/ranks.h"
#include "support/io_files.h"
#include <math.h>

enum { TEXT = 700, LETTERS = 12, CONTEXT = 9, EPOCHS = 3, VALUES = LETTERS * LETTERS };
static const char *folder;

typedef struct run {
    const char *dir; /* of checkpoints; NULL: none */
    int parts;
    bool consecutive, stops; /* stops: after its first batches */
    clef_epoch epoch[EPOCHS];
    int n;
    int64_t resumed_at, answers;
    clef_loader_state place;
    double loss, perplexity, accuracy;
    float value[VALUES];
} run;

/* Each letter is mostly followed by one other. */
static void make_text(void) {
    FILE *file = fopen(io_path(folder, "text"), "w");
    uint64_t s = 7;
    int letter = 0;
    for (int i = 0; i < TEXT; i++) {
        letter = random_below(&s, 3) ? (letter * 5 + 3) % LETTERS : random_below(&s, LETTERS);
        fputc('a' + letter, file);
    }
    fclose(file);
}

static bool go_on(void *user, const clef_progress *progress) {
    (void)progress;
    return !((const run *)user)->stops;
}

static clef_loader *open_loader(clef_context *ctx, clef_text_options o, const run *r, clef_group *all) {
    clef_dataset *data = clef_text(ctx, io_path(folder, "text"), &o);
    return clef_loader_open(data, &(clef_loader_options){.batch = 8, .shuffle = true, .seed = 4, .group = all, .parts = r->parts});
}

static void keep(run *r, const clef_history *h, const clef_loader *train, const clef_evaluation_result *e, clef_module *net) {
    r->n = h->n, r->resumed_at = h->resumed_at, r->place = clef_loader_get(train);
    for (int i = 0; i < h->n && i < EPOCHS; i++) r->epoch[i] = h->epoch[i];
    r->loss = e->loss, r->perplexity = e->perplexity, r->accuracy = e->accuracy, r->answers = e->answers;
    clef_read(clef_module_tensor(net, 0).tensor, r->value, sizeof r->value);
}

static clef_status train(clef_context *ctx, clef_group *all, void *user) {
    run own = *(run *)user, *r = clef_group_rank(all) == 0 ? user : &own;
    clef_text_options o = {.tokenizer = clef_tokenizer_characters_of(ctx, io_path(folder, "text")),
                           .context = CONTEXT,
                           .seed = 2,
                           .consecutive = r->consecutive};
    clef_loader *data = open_loader(ctx, o, r, all);
    o.split = CLEF_TEST;
    clef_loader *tests = open_loader(ctx, o, r, all);
    clef_seed(ctx, 5);
    clef_module *net = clef_nn_embedding(ctx, LETTERS, LETTERS);
    clef_replicate(net, all);
    clef_optimizer *opt = clef_adam(net, &(clef_adam_options){.lr = 0.05, .group = all});
    clef_fit_options fit = {.train = data,
                            .test = tests,
                            .optimizer = opt,
                            .epochs = EPOCHS,
                            .checkpoint_dir = r->dir,
                            .resume = r->dir && !r->stops,
                            .on_progress = go_on,
                            .user = r,
                            .group = all};
    const clef_history *h;
    clef_evaluation_result e;
    clef_status status = clef_fit(net, &fit, &h);
    if (!status && !r->stops) status = clef_evaluate(net, tests, NULL, NULL, &e);
    if (!status) keep(r, h, data, r->stops ? &(clef_evaluation_result){0} : &e, net);
    return status;
}

static run on_ranks(run r, int n) {
    char devices[2 * MOST_RANKS];
    if (clef_run_ranks(ranks_on_one(n, devices), train, &r) != CLEF_OK) COMPLAIN("%d ranks: %s", n, clef_error(NULL));
    return r;
}

static bool near(double a, double b, double tolerance) { return tolerance > 0 ? fabs(a - b) <= tolerance : memcmp(&a, &b, 8) == 0; }

/* tolerance 0: the same bits */
static void compare(const char *what, int n, const run *a, const run *b, double tolerance) {
    bool same = a->n == EPOCHS && b->n == EPOCHS && a->answers == b->answers && a->answers == TEXT / 10 - 1;
    for (int i = 0; i < EPOCHS; i++) {
        const clef_epoch *p = &a->epoch[i], *q = &b->epoch[i];
        same = same && near(p->loss, q->loss, tolerance) && near(p->accuracy, q->accuracy, tolerance);
        same = same && near(p->test_loss, q->test_loss, tolerance) && near(p->test_accuracy, q->test_accuracy, tolerance);
    }
    same = same && near(a->loss, b->loss, tolerance) && near(a->perplexity, b->perplexity, 20 * tolerance) &&
           near(a->accuracy, b->accuracy, tolerance);
    for (int i = 0; i < VALUES; i++) same = same && near((double)a->value[i], (double)b->value[i], tolerance);
    if (!same) COMPLAIN("%s: %d ranks have other numbers than one (loss %.9g and %.9g)", what, n, a->loss, b->loss);
}

static void compare_numbers(run plan, const char *what, double tolerance) {
    run one = on_ranks(plan, 1);
    if (!(one.epoch[EPOCHS - 1].loss < one.epoch[0].loss && one.perplexity < LETTERS)) COMPLAIN("%s: nothing is learned", what);
    if (fabs(one.perplexity - exp(one.loss)) > 1e-9) COMPLAIN("%s: perplexity %g of loss %g", what, one.perplexity, one.loss);
    for (int n = 2; n <= 4; n *= 2) {
        run many = on_ranks(plan, n);
        compare(what, n, &many, &one, tolerance);
    }
}

/* Left inside of the first epoch by some ranks, ended by others. */
static void resume(run plan, const char *what) {
    run one = on_ranks(plan, 1);
    for (int from = 1; from <= 4; from *= 2) {
        plan.dir = io_path(folder, from == 1 ? "run1" : from == 2 ? "run2" : "run4");
        plan.stops = true;
        run part = on_ranks(plan, from);
        if (part.n != 0 || part.place.batch == 0) COMPLAIN("%s: %d ranks did not stop inside of an epoch", what, from);
        plan.stops = false;
        run rest = on_ranks(plan, from == 4 ? 1 : 2 * from);
        if (rest.resumed_at == 0 && rest.n == 0) COMPLAIN("%s: nothing was resumed", what);
        compare(what, from, &rest, &one, 0);
    }
}

int main(void) {
    int code;
    if (!have_device(&code)) return code;
    folder = io_scratch();
    make_text();
    compare_numbers((run){.parts = 4}, "random windows in parts", 0);
    compare_numbers((run){.parts = 4, .consecutive = true}, "consecutive windows in parts", 0);
    compare_numbers((run){0}, "random windows", 1e-4);
    resume((run){.parts = 4}, "random windows resumed");
    resume((run){.parts = 4, .consecutive = true}, "consecutive windows resumed");
    io_remove_tree(folder);
    return atomic_load(&complaints) != 0;
}
