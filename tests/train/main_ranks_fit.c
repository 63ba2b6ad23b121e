/* clef_fit, clef_evaluate and checkpoints on several ranks are those of one rank on whole batches: losses, metrics, decisions and files; what
   one rank alone meets, such as a loss that is no number, a signal or a full disk, all ranks hear of at the same step.
   ctest: cost=80 apart plain */
#include "support/file_faults.c"
#include "group/ranks.h"
#include <math.h>
#include <sys/stat.h>

enum { FEATURES = 12, CLASSES = 3, MOST_EPOCHS = 16, MOST_VALUES = 4096, LINE = 1024 };

/* ---- a run, and what came of it ---- */

typedef struct plan {
    int64_t items, tests, batch, epochs, every;
    int accumulate, patience, keep, zero, cut;                   /* cut: parts of each batch */
    int other_cut;                                               /* what the options of fit have as parts; 0: nothing */
    double lr, clip, scale;                                      /* scale: the grad scaler's at first; 0: none */
    bool dropout, norm, sync, plateau, parts, sums, resume, csv; /* norm: batch norm; parts: the test loader has the group */
    const char *dir, *bar;
    const int64_t *shares;
    int64_t poison, wrong_label; /* the item whose input is NaN, whose label is no class; 0: none */
    int stopper, interrupter;    /* the rank that wants it, from 1 on, in epoch 2 */
    int64_t odd_epochs;          /* what rank 1 gives as epochs */
    const int64_t *odd_shares;   /* what rank 1 gives as shares */
} plan;

typedef struct result {
    clef_epoch epoch[MOST_EPOCHS];
    int n, calls;
    bool early, interrupted;
    int64_t resumed_at;
    clef_loader_state place;
    clef_status status;
    char line[LINE];
    float value[MOST_VALUES];
    int64_t values, confusion[CLASSES * CLASSES];
    double loss, accuracy, top, scale;
} result;

typedef struct run {
    const plan *p;
    result rank[MOST_RANKS];
} run;

typedef struct seat { /* what a callback knows */
    const plan *p;
    result *r;
    int rank;
    volatile int flag;
} seat;

static float features[512 * FEATURES];
static int64_t labels[512];

static void make_data(const plan *p) {
    uint64_t s = 5;
    for (int i = 0; i < 512; i++) {
        labels[i] = random_below(&s, 10) == 0 ? random_below(&s, CLASSES) : i % CLASSES;
        for (int k = 0; k < FEATURES; k++)
            features[i * FEATURES + k] = (float)random_below(&s, 2001) / 1000 - 1 + (k % CLASSES == i % CLASSES);
    }
    if (p->poison) features[p->poison * FEATURES] = NAN;
    if (p->wrong_label) labels[p->wrong_label] = 7;
}

/* Images as lines of pixels, normalised as such. */
static clef_tensor *forward_lines(clef_module *module, clef_tensor *x, void *user) {
    (void)user;
    clef_shape shape = clef_tensor_shape(x);
    return clef_forward(clef_module_child(module, "norm"),
                        clef_reshape(x, CLEF_SHAPE(shape.dim[0], shape.dim[1], shape.dim[2] * shape.dim[3])));
}

static clef_module *make_net(clef_context *ctx, const plan *p, clef_group *group) {
    clef_module *norm = p->norm ? clef_nn_batch_norm2d(ctx, 6, NULL) : clef_nn_relu(ctx);
    clef_module *lines = p->norm ? clef_module_new(ctx, "lines", forward_lines, NULL) : clef_nn_relu(ctx);
    if (p->norm) clef_module_add(lines, "norm", clef_nn_batch_norm1d(ctx, 6, NULL));
    clef_module *net = clef_sequential(ctx, CLEF_LAYERS(clef_nn_conv2d(ctx, FEATURES / 4, 6, 1, NULL), norm, clef_nn_tanh(ctx),
                                                        lines, clef_nn_flatten(ctx), clef_nn_dropout(ctx, p->dropout ? 0.2 : 0),
                                                        clef_nn_linear(ctx, 24, CLASSES, NULL)));
    if (p->sync) clef_module_sync_batch_norm(net, group);
    return net;
}

static bool on_epoch(void *user, const clef_epoch *e) {
    seat *s = user;
    s->r->calls++;
    if (s->p->stopper == s->rank + 1 && e->epoch == 3) return false;
    return true;
}

static bool on_progress(void *user, const clef_progress *progress) {
    seat *s = user;
    if (s->p->interrupter == s->rank + 1 && progress->epoch == 2) s->flag = 1;
    return !(s->p->stopper == s->rank + 1 && progress->epoch == 2);
}

static void keep_values(clef_module *net, result *r) {
    for (int i = 0; i < clef_module_tensors(net); i++) {
        clef_tensor *t = clef_module_tensor(net, i).tensor;
        int64_t n = clef_numel(t);
        if (r->values + n <= MOST_VALUES &&
            clef_read(clef_to(t, CLEF_F32), r->value + r->values, (size_t)n * sizeof(float)) == CLEF_OK)
            r->values += n;
    }
}

static void keep_history(const clef_history *h, result *r) {
    r->early = h->stopped_early;
    r->interrupted = h->interrupted;
    r->resumed_at = h->resumed_at;
    r->n = h->n < MOST_EPOCHS ? h->n : MOST_EPOCHS;
    for (int i = 0; i < r->n; i++) r->epoch[i] = h->epoch[i];
}

static clef_loader *open_loader(clef_context *ctx, const plan *p, int64_t from, int64_t n, clef_group *group) {
    const int64_t *shares = p->odd_shares && clef_group_rank(group) == 1 ? p->odd_shares : p->shares;
    clef_dataset *set = clef_dataset_arrays(ctx, features + from * FEATURES, CLEF_SHAPE(FEATURES / 4, 2, 2), labels + from, n);
    return clef_loader_open(
        set,
        &(clef_loader_options){.batch = p->batch, .shuffle = !from, .seed = 3, .group = group, .shares = shares, .parts = p->cut});
}

/* A run that could not begin ends with the context's error. */
static clef_status give_up(clef_context *ctx, result *r) {
    r->status = clef_error_status(ctx);
    snprintf(r->line, sizeof r->line, "%s", clef_error(ctx));
    clef_clear_error(ctx);
    return CLEF_OK;
}

static void score(clef_module *net, clef_loader *data, result *r) {
    clef_evaluation_result e;
    if (clef_evaluate_top_k(net, data, NULL, NULL, 2, &e) != CLEF_OK) return;
    r->loss = e.loss, r->accuracy = e.accuracy, r->top = e.top_k_accuracy;
    if (e.confusion) memcpy(r->confusion, e.confusion, sizeof r->confusion);
}

static clef_status train(clef_context *ctx, clef_group *all, void *user) {
    run *u = user;
    const plan *p = u->p;
    int rank = clef_group_rank(all);
    result *r = &u->rank[rank];
    seat s = {p, r, rank, 0};
    clef_seed(ctx, 9);
    clef_loader *data = open_loader(ctx, p, 0, p->items, all), *tests = open_loader(ctx, p, 400, p->tests, p->parts ? all : NULL);
    if (!data) return give_up(ctx, r);
    clef_module *net = make_net(ctx, p, all);
    clef_replicate(net, all);
    clef_optimizer *opt = clef_adam(net, &(clef_adam_options){.lr = p->lr, .eps = 1e-3, .group = all, .zero = p->zero});
    clef_schedule *plateau =
        clef_schedule_new(opt, &(clef_schedule_options){.kind = CLEF_SCHEDULE_PLATEAU, .patience = 1, .gamma = 0.5});
    clef_loss_options loss = {.reduction = p->sums ? CLEF_REDUCE_SUM : CLEF_REDUCE_MEAN};
    char csv[256];
    snprintf(csv, sizeof csv, "%s/log.csv", p->dir ? p->dir : "");
    clef_fit_options o = {.train = data,
                          .test = p->tests ? tests : NULL,
                          .optimizer = opt,
                          .schedule = p->plateau ? plateau : NULL,
                          .loss_options = &loss,
                          .epochs = p->odd_epochs && rank == 1 ? p->odd_epochs : p->epochs,
                          .accumulate = p->accumulate,
                          .clip_norm = p->clip,
                          .early_stop_patience = p->patience,
                          .checkpoint_dir = p->dir,
                          .keep = p->keep,
                          .checkpoint_every = p->every,
                          .resume = p->resume,
                          .csv = p->csv ? csv : NULL,
                          .on_epoch = on_epoch,
                          .on_progress = on_progress,
                          .user = &s,
                          .interrupt = &s.flag,
                          .group = all,
                          .parts = p->other_cut};
    if (p->scale > 0) o.scaler = clef_grad_scaler_new(ctx, &(clef_grad_scaler_options){.scale = p->scale, .interval = 3});
    const clef_history *history;
    r->status = clef_fit(net, &o, &history);
    snprintf(r->line, sizeof r->line, "%s", clef_error(ctx));
    if (history) keep_history(history, r);
    r->scale = clef_grad_scaler_get(o.scaler).scale;
    r->place = clef_loader_get(data);
    bool broken = r->status != CLEF_OK && r->status != CLEF_INTERRUPTED;
    if (broken) clef_clear_error(ctx);
    keep_values(net, r);
    if (!broken && p->tests) score(net, tests, r);
    return broken ? CLEF_OK : clef_error_status(ctx);
}

/* Runs it on n ranks; the result lives until the same place is used again. */
static run *on_ranks(const plan *p, int n, run *u) {
    char devices[2 * MOST_RANKS];
    memset(u, 0, sizeof *u);
    u->p = p;
    make_data(p);
    if (clef_run_ranks(ranks_on_one(n, devices), train, u) != CLEF_OK) COMPLAIN("%d ranks: %s", n, clef_error(NULL));
    return u;
}

/* ---- what must hold ---- */

static double off(double a, double b) { return a == b || (isnan(a) && isnan(b)) ? 0 : fabs(a - b) / fmax(1, fabs(b)); }

static bool same_bits(double a, double b) { return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b)); }

/* All ranks of a run have one history, one line and the same weights. */
static void alike(const char *what, const run *u, int n) {
    const result *a = u->rank;
    for (int r = 1; r < n; r++) {
        const result *b = &u->rank[r];
        if (a->status != b->status || strcmp(a->line, b->line))
            COMPLAIN("%s, %d ranks: rank %d ended with \"%s\", rank 0 with \"%s\"", what, n, r, b->line, a->line);
        if (a->n != b->n || a->calls != b->calls || a->early != b->early || a->interrupted != b->interrupted ||
            memcmp(&a->place, &b->place, sizeof a->place))
            COMPLAIN("%s, %d ranks: rank %d took another way than rank 0 (%d and %d epochs, batch %lld and %lld)", what, n, r, b->n,
                     a->n, (long long)b->place.batch, (long long)a->place.batch);
        for (int e = 0; e < a->n && e < b->n; e++)
            if (!same_bits(a->epoch[e].loss, b->epoch[e].loss) || !same_bits(a->epoch[e].accuracy, b->epoch[e].accuracy) ||
                a->epoch[e].lr != b->epoch[e].lr || !same_bits(a->epoch[e].test_loss, b->epoch[e].test_loss) ||
                !same_bits(a->epoch[e].test_accuracy, b->epoch[e].test_accuracy))
                COMPLAIN("%s, %d ranks: rank %d has other numbers in epoch %d", what, n, r, e + 1);
        if (a->values != b->values || memcmp(a->value, b->value, (size_t)a->values * sizeof(float)))
            COMPLAIN("%s, %d ranks: rank %d has other weights", what, n, r);
        if (!same_bits(a->loss, b->loss) || a->accuracy != b->accuracy || memcmp(a->confusion, b->confusion, sizeof a->confusion))
            COMPLAIN("%s, %d ranks: rank %d scored otherwise", what, n, r);
    }
}

static void same_weights(const char *what, int n, const result *a, const result *b, double tolerance) {
    double worst = 0;
    for (int64_t i = 0; i < a->values; i++) worst = fmax(worst, off(a->value[i], b->value[i]));
    if (a->values != b->values || !a->values || !(worst <= tolerance))
        COMPLAIN("%s, %d ranks: weights are off by %g", what, n, worst);
}

/* The last epochs of b, as many as a has. */
static void same_run(const char *what, int n, const result *a, const result *b, double tolerance) {
    int skip = b->n - a->n;
    if (a->status || b->status) COMPLAIN("%s, %d ranks: %s%s", what, n, a->line, b->line);
    if (skip < 0 || a->early != b->early) COMPLAIN("%s, %d ranks: %d epochs, not %d", what, n, a->n, b->n);
    for (int e = 0; e < a->n && skip >= 0; e++) {
        const clef_epoch *x = &a->epoch[e], *y = &b->epoch[e + skip];
        if (x->epoch != y->epoch || x->lr != y->lr)
            COMPLAIN("%s, %d ranks: the rate of epoch %d is %g, not %g", what, n, e + 1, x->lr, y->lr);
        if (!(off(x->loss, y->loss) <= tolerance) || !(off(x->test_loss, y->test_loss) <= tolerance) ||
            off(x->accuracy, y->accuracy) > 0.02 || off(x->test_accuracy, y->test_accuracy) > 0.04)
            COMPLAIN("%s, %d ranks, epoch %d: loss %.9g and %.9g, accuracy %g and %g, test %.9g and %.9g, %g and %g", what, n,
                     e + 1, x->loss, y->loss, x->accuracy, y->accuracy, x->test_loss, y->test_loss, x->test_accuracy,
                     y->test_accuracy);
    }
    if (!(off(a->loss, b->loss) <= tolerance)) COMPLAIN("%s, %d ranks: scored %.9g, not %.9g", what, n, a->loss, b->loss);
    same_weights(what, n, a, b, 10 * tolerance);
}

static const plan usual = {.items = 97, .tests = 50, .batch = 16, .epochs = 4, .lr = 0.02};

/* What is asked of each number of ranks is asked so of the first plan of its kind; the others get some.  CLEF_TEST_WHOLE=1: all get all. */
static bool some_ranks_only(bool *begun) {
    bool first = !*begun;
    *begun = true;
    return some_cases_only() || !(first || whole_form());
}

/* One rank, then 2 and 3 (and 4, where the last batch of one item leaves three without any), or only the most. */
static void compare(const char *what, const plan *p, int most) {
    static run one, many;
    static bool begun;
    on_ranks(p, 1, &one);
    if (one.rank->status) COMPLAIN("%s alone: %s", what, one.rank->line);
    if (p->plateau && one.rank->n && one.rank->epoch[one.rank->n - 1].lr == p->lr) COMPLAIN("%s: the rate never fell", what);
    for (int n = some_ranks_only(&begun) ? most : 2; n <= most; n++) {
        on_ranks(p, n, &many);
        alike(what, &many, n);
        same_run(what, n, many.rank, one.rank, 1e-5);
    }
}

static plan with(plan p, int64_t items, double lr, int64_t epochs) {
    p.items = items, p.lr = lr, p.epochs = epochs;
    return p;
}

/* Gradients overflow on one rank or on all of them: either all step, or none does. */
static void try_overflows(void) {
    static run u;
    plan p = usual;
    p.sums = true, p.batch = 48, p.lr = 0.002, p.scale = 0x1p126;
    for (int n = 2; n <= 3; n++) {
        on_ranks(&p, n, &u);
        alike("gradients that overflow", &u, n);
        if (u.rank->status) COMPLAIN("gradients that overflow, %d ranks: %s", n, u.rank->line);
        for (int r = 0; r < n; r++)
            if (u.rank[r].scale >= p.scale || u.rank[r].scale != u.rank->scale)
                COMPLAIN("gradients that overflow, %d ranks: rank %d has scale %g, rank 0 %g", n, r, u.rank[r].scale,
                         u.rank->scale);
    }
}

static void compare_runs(void) {
    static const int64_t shares[] = {5, 1, 2, 3};
    plan p = usual;
    compare("plain", &p, 4);
    p.parts = p.dropout = true, p.clip = 0.5;
    compare("clipped, with dropout", &p, 3);
    p.accumulate = 3;
    compare("accumulated", &p, 3);
    p.scale = 4096;
    compare("accumulated, with a grad scaler", &p, 3);
    p = usual, p.sums = true, p.lr = 0.002;
    compare("a loss of sums", &p, 3);
    p = usual, p.shares = shares, p.parts = true;
    compare("with shares", &p, 4);
    p = usual, p.norm = p.sync = true;
    compare("batch norm of all ranks", &p, 4);
    p.accumulate = 2, p.parts = true, p.items = 65;
    compare("batch norm of all ranks, accumulated", &p, 3);
}

/* Decisions: a plateau's rate and an early stop follow the losses of all. */
static void compare_decisions(void) {
    plan p = with(usual, 60, 0.3, 14);
    p.plateau = true;
    compare("plateau", &p, 3);
    p.tests = 0;
    compare("plateau by the training loss", &p, 3);
    p = with(usual, 60, 0.1, 16), p.patience = 2, p.parts = true;
    compare("early stop", &p, 3);
    static run one;
    if (!on_ranks(&p, 2, &one)->rank->early) COMPLAIN("nothing stopped early");
}

/* A loader with a group counts what one without does, exactly. */
static void compare_counts(void) {
    static run whole, parts;
    plan p = with(usual, 60, 0.02, 1);
    on_ranks(&p, 3, &whole);
    p.parts = true;
    on_ranks(&p, 3, &parts);
    alike("counts", &parts, 3);
    const result *a = whole.rank, *b = parts.rank;
    int64_t n = 0;
    for (int i = 0; i < CLASSES * CLASSES; i++) n += b->confusion[i];
    if (n != p.tests || memcmp(a->confusion, b->confusion, sizeof a->confusion))
        COMPLAIN("another confusion matrix in parts (%lld items)", (long long)n);
    if (a->accuracy != b->accuracy || a->top != b->top || off(a->loss, b->loss) > 1e-6) COMPLAIN("another score in parts");
}

/* ---- what one rank alone meets ---- */

static void ends_with(const char *what, const plan *p, int n, clef_status status, const char *a, const char *b) {
    static run u;
    on_ranks(p, n, &u);
    alike(what, &u, n);
    const result *r = u.rank;
    if (r->status != status || !strstr(r->line, a) || !strstr(r->line, b))
        COMPLAIN("%s, %d ranks: ended with %d: %s", what, n, r->status, r->line);
    int64_t bad = 0;
    for (int64_t i = 0; i < r->values && !p->norm; i++) bad += !isfinite(r->value[i]);
    if (bad) COMPLAIN("%s, %d ranks: %lld weights are not finite", what, n, (long long)bad);
}

static void try_bad_items(void) {
    plan p = usual;
    for (p.poison = 1; p.poison < 97; p.poison += 40)
        ends_with("an input that is no number", &p, 3, CLEF_INVALID, "is not finite on rank ", "inputs are not finite");
    p = usual, p.wrong_label = 30;
    ends_with("a label that is no class", &p, 3, CLEF_INVALID, "label 7", "is no class");
    p.wrong_label = 0, p.lr = 1e30;
    ends_with("a rate that is too high", &p, 2, CLEF_INVALID, "fit: ", "learning rate");
    p = usual, p.norm = p.sync = true, p.poison = 70;
    ends_with("an input that is no number, batch norm of all ranks", &p, 3, CLEF_INVALID, "is not finite on rank ",
              "inputs are not finite");
    p = usual, p.wrong_label = 430, p.parts = true;
    ends_with("a wrong label among the tests", &p, 3, CLEF_INVALID, "label 7 of item 30", "is no class");
    p = usual, p.odd_epochs = 5;
    static const int64_t even[] = {1, 1}, odd[] = {1, 2}, none[] = {1, 0};
    p.shares = even, p.odd_shares = odd;
    ends_with("other shares on a rank", &p, 2, CLEF_GROUP, "rank 1", "shares");
    p.shares = none, p.odd_shares = NULL;
    ends_with("no share for a rank", &p, 2, CLEF_INVALID, "loader: ", "shares are whole numbers");
    p.shares = NULL;
    ends_with("other epochs on a rank", &p, 2, CLEF_GROUP, "rank 1", "epochs");
}

static void try_ends(void) {
    static run u;
    plan p = usual;
    p.items = 200, p.epochs = 6;
    p.stopper = 2;
    alike("a stop on rank 1", on_ranks(&p, 3, &u), 3);
    if (u.rank->status || u.rank->n > 2) COMPLAIN("a stop on rank 1 did not stop rank 0: %d epochs, %s", u.rank->n, u.rank->line);
    p.stopper = 0, p.interrupter = 3;
    alike("an interrupt on rank 2", on_ranks(&p, 3, &u), 3);
    if (u.rank->status != CLEF_INTERRUPTED || !u.rank->interrupted)
        COMPLAIN("an interrupt on rank 2 did not end rank 0: %s", u.rank->line);
}

/* ---- parts ---- */

static void bits_of(const char *what, int n, const result *a, const result *b) {
    same_run(what, n, a, b, 0);
    for (int e = 0; e < a->n && e + b->n - a->n >= 0; e++)
        if (!same_bits(a->epoch[e].accuracy, b->epoch[e + b->n - a->n].accuracy) ||
            !same_bits(a->epoch[e].test_accuracy, b->epoch[e + b->n - a->n].test_accuracy))
            COMPLAIN("%s, %d ranks: another accuracy in epoch %d", what, n, e + 1);
    if (a->values != b->values || memcmp(a->value, b->value, (size_t)a->values * sizeof(float)))
        COMPLAIN("%s, %d ranks: weights have other bits", what, n);
}

/* One rank, 2 and 4 have the same bits; whole: what a run of whole batches has, up to rounding (NULL: another result). */
static void parts_compare(const char *what, const plan *p, const plan *whole) {
    static run one, many;
    on_ranks(p, 1, &one);
    if (one.rank->status || !one.rank->n) COMPLAIN("%s alone: %s", what, one.rank->line);
    for (int n = some_cases_only() ? 4 : 2; n <= 4; n += 2) {
        on_ranks(p, n, &many);
        alike(what, &many, n);
        bits_of(what, n, many.rank, one.rank);
    }
    if (whole) same_run(what, 1, one.rank, on_ranks(whole, 1, &many)->rank, 1e-5);
}

static void compare_parts(void) {
    plan p = usual, whole = usual;
    p.cut = p.other_cut = 4, p.clip = whole.clip = 0.5;
    parts_compare("parts, test data whole", &p, &whole);
    p.other_cut = 0, p.parts = true, p.plateau = whole.plateau = true, p.accumulate = whole.accumulate = 3;
    parts_compare("parts, accumulated", &p, &whole);
    p = whole = usual, p.cut = 8, p.parts = true, p.sums = whole.sums = true, p.lr = whole.lr = 0.002;
    parts_compare("parts, a loss of sums", &p, &whole);
    p = usual, p.cut = 4, p.parts = p.dropout = p.norm = true, p.zero = 1;
    parts_compare("parts, with dropout and batch norm, states cut over ranks", &p, NULL);
    p.zero = 2, p.clip = 0.5;
    parts_compare("parts, with dropout and batch norm, gradients cut over ranks", &p, NULL);
    p = with(usual, 60, 0.1, 16), p.cut = 4, p.patience = 2, p.parts = p.dropout = true;
    parts_compare("parts, early stop", &p, NULL);
    p = usual, p.cut = 4, p.poison = 41;
    ends_with("parts, an input that is no number", &p, 2, CLEF_INVALID, "is not finite on rank ", "inputs are not finite");
    p.poison = 0, p.other_cut = 2;
    ends_with("parts of another number", &p, 2, CLEF_INVALID, "fit: parts is 2", "loader has 4");
}

/* ---- files ---- */

static char folder[64];

static void clear_folder(void) {
    char command[256];
    snprintf(command, sizeof command, "rm -rf '%s' && mkdir '%s'", folder, folder);
    if (system(command)) COMPLAIN("cannot make %s", folder);
}

static int64_t count_lines(const char *name) {
    char path[128];
    int64_t n = 0;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    for (int c; file && (c = getc(file)) != EOF;) n += c == '\n';
    if (file) fclose(file);
    return n;
}

/* A run that ends early on `from` ranks and goes on with each number of ranks is the one that did not.  Brief: with as many, and with 4, or 1 where
   states are cut; under sanitizers with these alone. */
static void resume_with(const plan *part, const plan *whole, int from, const char *what) {
    static run one, two, first, then;
    static bool begun;
    bool some = some_ranks_only(&begun);
    plan rest = *whole;
    rest.dir = folder, rest.resume = rest.csv = true;
    clear_folder();
    on_ranks(whole, 1, &one);
    if (!some_cases_only()) on_ranks(whole, from, &two);
    for (int n = 1; n <= 4; n++) {
        if (some && (n != from || some_cases_only()) && n != (part->zero ? 1 : 4)) continue;
        clear_folder();
        alike(what, on_ranks(part, from, &first), from);
        alike(what, on_ranks(&rest, n, &then), n);
        if (then.rank->resumed_at == 0) COMPLAIN("%s: %d ranks did not resume what %d left: %s", what, n, from, then.rank->line);
        same_run(what, n, then.rank, one.rank, 1e-5);
        if (n == from && !some_cases_only()) same_run(what, n, then.rank, two.rank, 0);
        if (count_lines("log.csv") != whole->epochs + 1)
            COMPLAIN("%s: log.csv has %lld lines", what, (long long)count_lines("log.csv"));
    }
}

static void try_resuming(void) {
    plan whole = usual, part;
    whole.dropout = whole.plateau = true;
    part = whole, part.dir = folder, part.csv = true, part.keep = 1;
    part.epochs = 2;
    resume_with(&part, &whole, 2, "resumed after two epochs");
    whole.zero = part.zero = 1;
    resume_with(&part, &whole, 2, "resumed with states cut over ranks");
    whole.zero = part.zero = 2;
    resume_with(&part, &whole, 3, "resumed with states and gradients cut over ranks");
    whole.zero = part.zero = 0;
    part.epochs = 4, part.interrupter = 2;
    resume_with(&part, &whole, 2, "resumed after an interrupt");
    whole.norm = true, whole.sync = true;
    part = whole, part.dir = folder, part.every = 2, part.interrupter = 1, part.csv = true;
    resume_with(&part, &whole, 3, "resumed with batch norm of all ranks");
}

/* A run in parts that some ranks left is continued by others, to the same bits. */
static void resume_parts(const plan *part, const plan *whole, const char *what) {
    static run one, first, then;
    plan rest = *whole;
    rest.dir = folder, rest.resume = rest.csv = true;
    on_ranks(whole, 1, &one);
    for (int from = some_cases_only() ? 2 : 1; from <= 4; from *= 2) {
        int n = from == 4 ? 1 : 2 * from;
        clear_folder();
        alike(what, on_ranks(part, from, &first), from);
        alike(what, on_ranks(&rest, n, &then), n);
        if (then.rank->resumed_at == 0) COMPLAIN("%s: %d ranks did not resume what %d left: %s", what, n, from, then.rank->line);
        bits_of(what, n, then.rank, one.rank);
    }
}

static void try_resuming_parts(void) {
    plan whole = usual, part;
    whole.dropout = whole.norm = whole.parts = whole.plateau = true, whole.cut = 4;
    part = whole, part.dir = folder, part.csv = true, part.epochs = 2;
    resume_parts(&part, &whole, "parts, resumed after two epochs");
    whole.zero = part.zero = 2;
    part.epochs = 4, part.every = 2, part.interrupter = 1;
    resume_parts(&part, &whole, "parts, resumed after an interrupt");
}

/* Batch norm of each rank: the statistics that are saved and scored are rank 0's, and a run resumed by as many ranks has the same bits. */
static void try_own_norm(void) {
    static run whole, first, then;
    plan p = usual;
    p.norm = true;
    p.items = 96;
    alike("batch norm of each rank", on_ranks(&p, 2, &whole), 2);
    clear_folder();
    p.dir = folder, p.interrupter = 1, p.every = 3;
    alike("batch norm of each rank, interrupted", on_ranks(&p, 2, &first), 2);
    p.interrupter = 0, p.resume = true;
    alike("batch norm of each rank, resumed", on_ranks(&p, 2, &then), 2);
    same_run("batch norm of each rank, resumed", 2, then.rank, whole.rank, 0);
}

/* Whatever write fails on rank 0, all ranks end with its line. */
static void try_failing_writes(void) {
    static run u;
    plan p = with(usual, 40, 0.02, 2);
    p.dir = folder, p.csv = true, p.every = 2, p.keep = 1;
    clear_folder();
    file_faults_begin(folder, 0, ENOSPC, false);
    on_ranks(&p, 2, &u);
    long all = file_faults.seen;
    if (u.rank->status || all < 8) COMPLAIN("%ld operations on files: %s", all, u.rank->line);
    for (long n = 1; n <= all; n += some_cases_only() ? 7 : n < 12 ? 1 : 5) {
        clear_folder();
        file_faults_begin(folder, n, ENOSPC, false);
        alike("a failing write", on_ranks(&p, 2, &u), 2);
        if (file_faults.struck && (u.rank->status != CLEF_IO || !strstr(u.rank->line, folder)))
            COMPLAIN("operation %ld of %ld failed, and the run ended with %d: %s", n, all, u.rank->status, u.rank->line);
    }
    file_faults_end();
}

int main(void) {
    int code;
    if (!have_device(&code)) return code;
    snprintf(folder, sizeof folder, "/tmp/clef-ranks-XXXXXX");
    if (!mkdtemp(folder)) return 1;
    compare_runs();
    try_overflows();
    compare_decisions();
    compare_counts();
    try_bad_items();
    try_ends();
    try_resuming();
    compare_parts();
    try_resuming_parts();
    try_own_norm();
    try_failing_writes();
    clear_folder();
    rmdir(folder);
    printf("%d complaints\n", atomic_load(&complaints));
    return atomic_load(&complaints) != 0;
}
