/* Checkpoints: what is resumed equals what was never interrupted, and a bad file changes nothing.
   ctest: plain */
#include "support/device.h"
#include "support/io_files.h"
#include "training.h"

static char dir[512];

static void setup(void) { snprintf(dir, sizeof dir, "%s", io_scratch()); }
static void teardown(void) { io_remove(dir); }

TestSuite(checkpoint, .init = setup, .fini = teardown);

static void expect_same(const training *a, const training *b) {
    size_t n = 0, m = 0;
    unsigned char *x = training_bytes(a, &n), *y = training_bytes(b, &m);
    cr_assert(x && y);
    cr_assert_eq(n, m);
    cr_expect_arr_eq(x, y, n);
    free(x);
    free(y);
}

Test(checkpoint, resuming_is_exact) {
    training whole, part;
    cr_assert(training_open(&whole, 3, false), "%s", clef_error(whole.ctx));
    const char *path = io_path(dir, "last.ckpt");
    cr_assert(training_run(&whole, 7), "%s", clef_error(whole.ctx)); /* in the middle of the second epoch */
    clef_checkpoint saved = training_parts(&whole);
    cr_assert_eq(clef_checkpoint_save(whole.ctx, path, &saved), CLEF_OK, "%s", clef_error(whole.ctx));
    cr_assert(training_run(&whole, 6), "%s", clef_error(whole.ctx));
    cr_assert(training_open(&part, 99, false), "%s",
              clef_error(part.ctx)); /* another seed: everything has to come from the file */
    cr_assert(training_run(&part, 1), "%s", clef_error(part.ctx));
    clef_checkpoint loaded = training_parts(&part);
    cr_assert_eq(clef_checkpoint_load(part.ctx, path, &loaded), CLEF_OK, "%s", clef_error(part.ctx));
    cr_expect_eq(loaded.epoch, 7);
    cr_expect_eq(loaded.metric, saved.metric);
    cr_expect_str_eq(loaded.note_out, "--lr 0.01");
    cr_assert(training_run(&part, 6), "%s", clef_error(part.ctx));
    expect_same(&whole, &part);
    clef_close(whole.ctx);
    clef_close(part.ctx);
}

Test(checkpoint, saving_changes_nothing) {
    training a, b;
    cr_assert(training_open(&a, 3, false) && training_open(&b, 3, false));
    cr_assert(training_run(&a, 6));
    for (int i = 0; i < 6; i++) {
        cr_assert(training_run(&b, 1));
        clef_checkpoint parts = training_parts(&b);
        cr_assert_eq(clef_checkpoint_save(b.ctx, io_path(dir, "x"), &parts), CLEF_OK, "%s", clef_error(b.ctx));
    }
    expect_same(&a, &b);
    clef_close(a.ctx);
    clef_close(b.ctx);
}

/* Replaces the first `from` in a file by `to` of the same length. */
static void patch(const char *source, const char *target, const char *from, const char *to) {
    io_bytes file = io_slurp(source);
    size_t length = strlen(from), at = 0;
    cr_assert_eq(length, strlen(to));
    while (at + length <= file.size && memcmp(file.data + at, from, length) != 0) at++;
    cr_assert(at + length <= file.size, "%s is not in the file", from);
    memcpy(file.data + at, to, length);
    io_spit(target, file.data, file.size);
    free(file.data);
}

Test(checkpoint, bad_files_change_nothing) {
    static const struct {
        const char *from, *to;
        clef_status status;
        const char *said;
    } cases[] = {
        {"\"clef.checkpoint\":\"1\"", "\"clef.checkpoint\":\"2\"", CLEF_UNSUPPORTED, "checkpoint of format \"2\""},
        {"\"clef.checkpoint\":\"1\"", "\"clef.checkpoinx\":\"1\"", CLEF_FORMAT, "is no checkpoint"},
        {"\"optimizer.steps\":\"4\"", "\"optimizer.steps\":\"x\"", CLEF_FORMAT, "damaged optimizer.steps"},
        {"\"optimizer.lr\":\"0x1.", "\"optimizer.lr\":\"0y1.", CLEF_FORMAT, "damaged optimizer.lr"},
        {"\"schedule.ticks\"", "\"schedule.tocks\"", CLEF_FORMAT, "was saved without schedule.ticks"},
        {"\"loader.epoch\":\"", "\"loader.apoch\":\"", CLEF_FORMAT, "was saved without loader.epoch"},
        {"\"random.offset\"", "\"random.affset\"", CLEF_FORMAT, "was saved without random.offset"},
        {"\"loader.batch\":\"4\"", "\"loader.batch\":\"9\"", CLEF_INVALID, "no place to continue"},
        {"\"model.0.weight\"", "\"model.0.waight\"", CLEF_FORMAT, "no tensor \"model.0.weight\""},
        {"\"optimizer.5.bias", "\"optimizer.5.baas", CLEF_FORMAT, "no tensor \"optimizer.5.bias"},
        {"\"shape\":[2,1,3,3]", "\"shape\":[1,2,3,3]", CLEF_SHAPE, "is [1,2,3,3] in the file but [2,1,3,3] here"},
    };
    training t, reference;
    cr_assert(training_open(&t, 3, false) && training_open(&reference, 3, false));
    cr_assert(training_run(&t, 4) && training_run(&reference, 4));
    clef_checkpoint parts = training_parts(&t);
    char path[1024], bad[1024];
    snprintf(path, sizeof path, "%s", io_path(dir, "good"));
    snprintf(bad, sizeof bad, "%s", io_path(dir, "bad"));
    cr_assert_eq(clef_checkpoint_save(t.ctx, path, &parts), CLEF_OK, "%s", clef_error(t.ctx));
    cr_assert(training_run(&t, 1) && training_run(&reference, 1));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        patch(path, bad, cases[i].from, cases[i].to);
        clef_checkpoint into = training_parts(&t);
        cr_expect_eq(clef_checkpoint_load(t.ctx, bad, &into), cases[i].status, "%s: %s", cases[i].to,
                     clef_error(t.ctx));
        expect_error(t.ctx, cases[i].status, cases[i].said);
        cr_expect_eq(into.epoch, t.steps);
    }
    io_bytes file = io_slurp(path);
    for (size_t cut = 1; cut < file.size; cut += 1 + file.size / 40) {
        io_spit(bad, file.data, file.size - cut);
        clef_checkpoint into = training_parts(&t);
        cr_expect_neq(clef_checkpoint_load(t.ctx, bad, &into), CLEF_OK);
        clef_clear_error(t.ctx);
    }
    free(file.data);
    expect_same(&t, &reference);
    cr_assert(training_run(&t, 3) && training_run(&reference, 3));
    expect_same(&t, &reference);
    clef_close(t.ctx);
    clef_close(reference.ctx);
}

Test(checkpoint, parts_and_notes) {
    training t;
    cr_assert(training_open(&t, 3, false));
    const char *path = io_path(dir, "part");
    clef_checkpoint only = {.module = t.net, .epoch = -5, .metric = -0.0, .note = "caf\xe9 \xc3\xa9 \"x\"\n"},
                    back = {.module = t.net};
    cr_assert_eq(clef_checkpoint_save(t.ctx, path, &only), CLEF_OK, "%s", clef_error(t.ctx));
    clef_random_state random = clef_random_get(t.ctx);
    clef_rand(t.ctx, CLEF_SHAPE(8));
    clef_random_state moved = clef_random_get(t.ctx);
    cr_expect_neq(moved.offset, random.offset);
    cr_assert_eq(clef_checkpoint_load(t.ctx, path, &back), CLEF_OK, "%s", clef_error(t.ctx));
    cr_expect_eq(back.epoch, -5);
    cr_expect(back.metric == 0 && 1 / back.metric < 0);
    cr_expect_str_eq(back.note_out, "caf? \xc3\xa9 \"x\"\n");
    cr_expect_eq(clef_random_get(t.ctx).offset, moved.offset,
                 "loading a module alone leaves random numbers alone");
    back = training_parts(&t);
    cr_expect_eq(clef_checkpoint_load(t.ctx, path, &back), CLEF_FORMAT);
    expect_error(t.ctx, CLEF_FORMAT, "was saved without optimizer.steps");
    char note[2000];
    memset(note, 'x', sizeof note - 1);
    note[sizeof note - 1] = 0;
    only.note = note;
    cr_expect_eq(clef_checkpoint_save(t.ctx, path, &only), CLEF_INVALID);
    expect_error(t.ctx, CLEF_INVALID, "the note has 1999 bytes; at most 1023 fit");
    note[1023] = 0;
    cr_assert_eq(clef_checkpoint_save(t.ctx, path, &only), CLEF_OK, "%s", clef_error(t.ctx));
    back = (clef_checkpoint){0};
    cr_assert_eq(clef_checkpoint_load(t.ctx, path, &back), CLEF_OK, "%s", clef_error(t.ctx));
    cr_expect_str_eq(back.note_out, note);
    cr_expect_eq(clef_checkpoint_load(t.ctx, path, NULL), CLEF_INVALID);
    clef_clear_error(t.ctx);
    cr_expect_eq(clef_checkpoint_load(t.ctx, io_path(dir, "none"), &back), CLEF_IO);
    expect_error(t.ctx, CLEF_IO, "No such file");
    cr_expect_eq(clef_checkpoint_save(t.ctx, io_path(dir, "none/x"), &only), CLEF_IO);
    expect_error(t.ctx, CLEF_IO, "checkpoint_save: ");
    clef_close(t.ctx);
}
