/* A program's own values in the checkpoints of clef_fit: what on_epoch makes of them is resumed exactly.
   ctest: plain */
#include "train/train_support.h"
#include <criterion/criterion.h>

typedef struct own {
    double sum; /* of a recurrence that forgets nothing: any call that is missed or repeated shows */
    int64_t calls;
    char story[64];
    int64_t until; /* calls of this process; then it stops */
} own;

static bool on_epoch(void *user, const clef_epoch *epoch) {
    own *o = user;
    o->sum = o->sum * 1.25 + epoch->loss;
    o->calls++;
    size_t at = strlen(o->story);
    snprintf(o->story + at, sizeof o->story - at, "%lld;", (long long)epoch->epoch);
    return --o->until != 0;
}

static void run(const char *dir, own *o) {
    rig r = rig_open((rig_options){.dropout = true});
    clef_extra extra[] = {{.name = "sum", .real = &o->sum},
                          {.name = "calls", .whole = &o->calls},
                          {.name = "story", .text = o->story, .size = sizeof o->story}};
    clef_fit_options options = rig_fit(&r);
    options.epochs = 4;
    options.checkpoint_dir = dir;
    options.resume = dir != NULL;
    options.extra = extra;
    options.n_extra = 3;
    options.on_epoch = on_epoch;
    options.user = o;
    cr_assert_eq(clef_fit(r.net, &options, NULL), CLEF_OK, "%s", clef_error(r.ctx));
    clef_close(r.ctx);
}

/* Each process begins with values of its own, which the file replaces. */
Test(extra, of_callbacks_are_resumed) {
    char dir[64];
    own whole = {0}, parts = {0};
    cr_assert(fresh_directory(dir));
    run(NULL, &whole);
    cr_expect_str_eq(whole.story, "1;2;3;4;");
    for (int i = 0; i < 4; i++) {
        parts = (own){.sum = i ? -77 : 0, .until = 1};
        run(dir, &parts);
        cr_expect_eq(parts.calls, i + 1);
    }
    cr_expect_eq(parts.sum, whole.sum, "%.17g, not %.17g", parts.sum, whole.sum);
    cr_expect_str_eq(parts.story, whole.story);
    remove_directory(dir);
}

Test(extra, that_the_file_lacks_begin_no_run) {
    char dir[64];
    cr_assert(fresh_directory(dir));
    rig r = rig_open((rig_options){.plain = true});
    clef_fit_options options = rig_fit(&r);
    options.checkpoint_dir = dir;
    cr_assert_eq(clef_fit(r.net, &options, NULL), CLEF_OK);
    double value = 3;
    options.extra = &(clef_extra){.name = "value", .real = &value};
    options.n_extra = 1;
    options.resume = true;
    options.epochs = 2;
    int64_t steps = clef_optimizer_steps(r.optimizer);
    cr_expect_eq(clef_fit(r.net, &options, NULL), CLEF_FORMAT);
    cr_expect(strstr(clef_error(r.ctx), "was saved without extra value \"value\""), "%s", clef_error(r.ctx));
    cr_expect(value == 3 && clef_optimizer_steps(r.optimizer) == steps);
    clef_close(r.ctx);
    remove_directory(dir);
}

Test(extra, that_are_wrong_begin_no_run) {
    rig r = rig_open((rig_options){.plain = true});
    clef_fit_options options = rig_fit(&r);
    double value = 3;
    clef_extra wrong[] = {{.name = "value"}, {.real = &value}};
    for (int i = 0; i < 2; i++) {
        options.extra = &wrong[i];
        options.n_extra = 1;
        cr_expect_eq(clef_fit(r.net, &options, NULL), CLEF_INVALID);
        cr_expect(strstr(clef_error(r.ctx), i ? "fit: extra value 0 needs a name" : "fit: extra value \"value\" needs one of"),
                  "%s", clef_error(r.ctx));
        clef_clear_error(r.ctx);
    }
    cr_expect_eq(clef_optimizer_steps(r.optimizer), 0);
    clef_close(r.ctx);
}

/* Two ranks, and only rank 0 has a value. */
static clef_status unequal(clef_context *ctx, clef_group *all, void *user) {
    char *line = user;
    int64_t calls = 0;
    clef_dataset *data = clef_dataset_take(clef_digits(ctx, CLEF_TRAIN), 64);
    clef_loader *batches = clef_loader_open(data, &(clef_loader_options){.batch = 32, .group = all});
    clef_module *net = clef_sequential(ctx, CLEF_LAYERS(clef_nn_flatten(ctx), clef_nn_linear(ctx, 64, 10, NULL)));
    clef_replicate(net, all);
    clef_optimizer *opt = clef_sgd(net, &(clef_sgd_options){.lr = 1e-2, .group = all});
    clef_fit_options o = {.train = batches,
                          .optimizer = opt,
                          .extra = &(clef_extra){.name = "calls", .whole = &calls},
                          .n_extra = clef_group_rank(all) == 0};
    clef_status status = clef_fit(net, &o, NULL);
    if (clef_group_rank(all) == 0) snprintf(line, 200, "%s", clef_error(ctx));
    return status;
}

Test(extra, ranks_have_the_same_number) {
    static char line[200];
    clef_status status = clef_run_ranks("0/2", unequal, line);
    if (status == CLEF_NO_DEVICE || status == CLEF_UNSUPPORTED) cr_skip_test("%s", clef_error(NULL));
    cr_expect_eq(status, CLEF_GROUP, "%s", clef_error(NULL));
    cr_expect(strstr(line, "as n_extra"), "%s", line);
}
