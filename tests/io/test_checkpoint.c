/* Checkpoints: what is resumed equals what was never interrupted, and a bad file changes nothing.
   ctest: plain */
#include "ops/memory_order.h"
#include "support/device.h"
#include "support/io_files.h"
#include "support/sealed.h"
#include "training.h"
#include <math.h>

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
    cr_assert(training_open(&part, 99, false), "%s", clef_error(part.ctx)); /* another seed: everything has to come from the file */
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

Test(checkpoint, bad_files_change_nothing) {
    static const struct {
        const char *from, *to;
        clef_status status;
        const char *said;
    } cases[] = {
        {"\"clef.checkpoint\":\"2\"", "\"clef.checkpoint\":\"3\"", CLEF_UNSUPPORTED, "checkpoint of format \"3\""},
        {"\"clef.checkpoint\":\"2\"", "\"clef.checkpoint\":\"1\"", CLEF_UNSUPPORTED, "checkpoint of format \"1\""},
        {"\"clef.checkpoint\":\"2\"", "\"clef.checkpoinx\":\"2\"", CLEF_FORMAT, "is no checkpoint"},
        {"\"clef.crc32c\"", "\"clef.crc32d\"", CLEF_FORMAT, "it has no checksum"},
        {"\"optimizer.steps\":\"4\"", "\"optimizer.steps\":\"x\"", CLEF_FORMAT, "damaged optimizer.steps"},
        {"\"optimizer.lr\":\"0x1.", "\"optimizer.lr\":\"0y1.", CLEF_FORMAT, "damaged optimizer.lr"},
        {"\"optimizer.steps\":\"4\"", "\"optimizer.steps\":\"-5\"", CLEF_FORMAT,
         "optimizer.steps with which no run can continue: \"-5\""},
        {"\"optimizer.steps\":\"4\"", "\"optimizer.steps\":\"9223372036854775807\"", CLEF_FORMAT, "optimizer.steps with which"},
        {"\"optimizer.lr\":\"0x", "\"optimizer.lr\":\"nan\",\"x\":\"0x", CLEF_FORMAT,
         "optimizer.lr with which no run can continue: \"nan\""},
        {"\"optimizer.lr\":\"0x", "\"optimizer.lr\":\"inf\",\"x\":\"0x", CLEF_FORMAT, "optimizer.lr with which"},
        {"\"schedule.ticks\":\"4\"", "\"schedule.ticks\":\"-1\"", CLEF_FORMAT, "schedule.ticks with which"},
        {"\"schedule.bad\":\"0\"", "\"schedule.bad\":\"-1\"", CLEF_FORMAT, "schedule.bad with which"},
        {"\"schedule.best\":\"inf\"", "\"schedule.best\":\"nan\"", CLEF_FORMAT, "schedule.best with which"},
        {"\"schedule.lr\":\"0x", "\"schedule.lr\":\"-inf\",\"x\":\"0x", CLEF_FORMAT, "schedule.lr with which"},
        {"\"loader.epoch\":\"0\"", "\"loader.epoch\":\"-1\"", CLEF_FORMAT, "loader.epoch with which"},
        {"\"loader.epoch\":\"0\"", "\"loader.epoch\":\"4611686018427387904\"", CLEF_INVALID, "no place to continue"},
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
        cr_assert(sealed_patch(path, bad, cases[i].from, cases[i].to), "%s is not in the file", cases[i].from);
        clef_checkpoint into = training_parts(&t);
        cr_expect_eq(clef_checkpoint_load(t.ctx, bad, &into), cases[i].status, "%s: %s", cases[i].to, clef_error(t.ctx));
        expect_error(t.ctx, cases[i].status, cases[i].said);
        cr_expect_eq(into.epoch, t.steps);
    }
    expect_same(&t, &reference);
    cr_assert(training_run(&t, 3) && training_run(&reference, 3));
    expect_same(&t, &reference);
    clef_close(t.ctx);
    clef_close(reference.ctx);
}

/* A scale whose inverse is no number of f32 would make zeros of gradients NaN. */
Test(checkpoint, scales_out_of_range_change_nothing) {
    static const char *const wrong[] = {"0x1.0000000000000p-127", "0x1.0000000000000p+127", "inf"};
    clef_context *ctx = clef_open(NULL);
    clef_grad_scaler *scaler = clef_grad_scaler_new(ctx, &(clef_grad_scaler_options){.scale = 4});
    char path[1024], bad[1024], text[96];
    snprintf(path, sizeof path, "%s", io_path(dir, "good"));
    snprintf(bad, sizeof bad, "%s", io_path(dir, "bad"));
    clef_checkpoint parts = {.scaler = scaler};
    cr_assert_eq(clef_checkpoint_save(ctx, path, &parts), CLEF_OK, "%s", clef_error(ctx));
    for (int i = 0; i < 3; i++) {
        snprintf(text, sizeof text, "\"scaler.scale\":\"%s\",\"x\":\"0x", wrong[i]);
        cr_assert(sealed_patch(path, bad, "\"scaler.scale\":\"0x", text));
        cr_expect_eq(clef_checkpoint_load(ctx, bad, &parts), CLEF_FORMAT);
        expect_error(ctx, CLEF_FORMAT, "scaler.scale with which no run can continue");
    }
    cr_expect_eq(clef_grad_scaler_get(scaler).scale, 4);
    clef_close(ctx);
}

/* The eight bytes of a little-endian number in the file's data. */
static void set_number(io_bytes file, const char *tensor, int64_t number) {
    clef__reader reader = clef__reader_memory(file.data, file.size);
    clef__report report = {0};
    clef__st_index index;
    cr_assert_eq(clef__st_parse(&reader, &index, &report), CLEF_OK);
    const clef__st_tensor *at = clef__st_find(&index, tensor);
    cr_assert(at && at->dtype == CLEF_I64);
    for (int i = 0; i < 8; i++) file.data[index.data_offset + at->begin + (uint64_t)i] = (uint8_t)((uint64_t)number >> (8 * i));
    clef__st_free(&index);
    sealed_seal(file);
}

/* Saves t (its note is in it), reads the bytes. */
static io_bytes saved_bytes(training *t, const char *path) {
    clef_checkpoint parts = training_parts(t);
    cr_assert_eq(clef_checkpoint_save(t->ctx, path, &parts), CLEF_OK, "%s", clef_error(t->ctx));
    return io_slurp(path);
}

/* Loading these bytes fails with one line, and leaves even the description as it was. */
static void expect_refused(training *t, const char *path, io_bytes file, clef_checkpoint *into) {
    static clef_checkpoint before;
    before = *into;
    io_spit(path, file.data, file.size);
    cr_expect_neq(clef_checkpoint_load(t->ctx, path, into), CLEF_OK);
    cr_expect(*clef_error(t->ctx) && !strchr(clef_error(t->ctx), '\n'));
    cr_expect_eq(memcmp(&before, into, sizeof before), 0);
    clef_clear_error(t->ctx);
}

Test(checkpoint, every_flip_and_every_cut_is_found) {
    training t, reference;
    cr_assert(training_open(&t, 3, true) && training_open(&reference, 3, true));
    cr_assert(training_run(&t, 2) && training_run(&reference, 2));
    const char *path = io_path(dir, "bad");
    io_bytes file = saved_bytes(&t, path);
    cr_assert(training_run(&t, 1) && training_run(&reference, 1));
    clef_checkpoint into = training_parts(&t);
    const char *all = getenv("CLEF_TEST_ALL");
    bool every = all && *all == '1'; /* else each of the header, and some of the data */
    size_t header = 8 + file.data[0] + 256u * file.data[1];
    for (size_t i = 0; i < file.size; i += every || i < header ? 1 : 13) {
        file.data[i] ^= (uint8_t)(1u << i % 8);
        expect_refused(&t, path, file, &into);
        file.data[i] ^= (uint8_t)(1u << i % 8);
    }
    for (size_t cut = 0; cut < file.size; cut += every ? 1 : 17) expect_refused(&t, path, (io_bytes){file.data, cut}, &into);
    for (int64_t wrong = -1; wrong <= 0; wrong++) {
        set_number(file, "optimizer.step", wrong ? -1 : INT64_MAX);
        expect_refused(&t, path, file, &into);
    }
    expect_same(&t, &reference);
    free(file.data);
    cr_assert(training_run(&t, 2) && training_run(&reference, 2));
    expect_same(&t, &reference);
    clef_close(t.ctx);
    clef_close(reference.ctx);
}

static int warnings;
static char warning[1024];
static void listen(void *user, clef_log_level level, const char *line) {
    (void)user;
    warnings += level == CLEF_LOG_WARNING;
    if (level == CLEF_LOG_WARNING) snprintf(warning, sizeof warning, "%s", line);
}

/* Of another device: a warning, and the run goes on.  Of a library that wrote no checksum: likewise. */
Test(checkpoint, foreign_and_old_files_are_taken_with_a_warning) {
    training t;
    training_log = listen;
    cr_assert(training_open(&t, 3, true) && training_run(&t, 2));
    char path[1024], other[1024];
    snprintf(path, sizeof path, "%s", io_path(dir, "own"));
    snprintf(other, sizeof other, "%s", io_path(dir, "other"));
    io_bytes file = saved_bytes(&t, path), old, older;
    clef_checkpoint into = training_parts(&t);
    cr_assert_eq(clef_checkpoint_load(t.ctx, path, &into), CLEF_OK, "%s", clef_error(t.ctx));
    cr_expect_eq(warnings, 0, "%s", warning);
    cr_assert(sealed_patch(path, other, " compute units\"", "1 compute units\""));
    cr_assert_eq(clef_checkpoint_load(t.ctx, other, &into), CLEF_OK, "%s", clef_error(t.ctx));
    cr_expect_eq(warnings, 1);
    cr_expect(strstr(warning, "was made on") && strstr(warning, "1 compute units, and this is"), "%s", warning);
    clef_checkpoint only = {.module = t.net};
    cr_assert_eq(clef_checkpoint_load(t.ctx, other, &only), CLEF_OK, "%s", clef_error(t.ctx));
    cr_expect_eq(warnings, 1, "weights are weights wherever they were made");
    old = sealed_replace(file, "\"clef.checkpoint\":\"2\"", "\"clef.checkpoint\":\"1\"");
    older = sealed_replace(old, "\"clef.crc32c\"", "\"something\"");
    io_spit(other, older.data, older.size);
    cr_assert_eq(clef_checkpoint_load(t.ctx, other, &into), CLEF_OK, "%s", clef_error(t.ctx));
    cr_expect_eq(warnings, 2);
    cr_expect(strstr(warning, "without a checksum"), "%s", warning);
    free(file.data), free(old.data), free(older.data);
    clef_close(t.ctx);
}

/* Products of another precision have other bits. */
Test(checkpoint, tf32_is_told_of) {
    training t, like;
    training_log = listen;
    cr_assert(training_open(&t, 3, true) && training_open(&like, 3, true));
    clef_set_matmul_precision(t.ctx, CLEF_MATMUL_HIGH);
    const char *path = io_path(dir, "tf32");
    clef_checkpoint from = training_parts(&t), into = training_parts(&like);
    cr_assert_eq(clef_checkpoint_save(t.ctx, path, &from), CLEF_OK, "%s", clef_error(t.ctx));
    cr_assert_eq(clef_checkpoint_load(like.ctx, path, &into), CLEF_OK, "%s", clef_error(like.ctx));
    cr_expect_eq(warnings, 1);
    cr_expect(strstr(warning, "multiplied in TF32"), "%s", warning);
    clef_close(t.ctx), clef_close(like.ctx);
}

/* Last bits follow from the units that sums are ordered for, not from those of the device. */
Test(checkpoint, other_sum_units_are_told_of) {
    training t, like, other;
    training_log = listen;
    training_sum_units = 77;
    cr_assert(training_open(&t, 3, true) && training_open(&like, 3, true));
    training_sum_units = 78;
    cr_assert(training_open(&other, 3, true));
    const char *path = io_path(dir, "units");
    clef_checkpoint from = training_parts(&t), into = training_parts(&like), else_into = training_parts(&other);
    cr_assert_eq(clef_checkpoint_save(t.ctx, path, &from), CLEF_OK, "%s", clef_error(t.ctx));
    cr_assert_eq(clef_checkpoint_load(like.ctx, path, &into), CLEF_OK, "%s", clef_error(like.ctx));
    cr_expect_eq(warnings, 0, "%s", warning);
    cr_assert_eq(clef_checkpoint_load(other.ctx, path, &else_into), CLEF_OK, "%s", clef_error(other.ctx));
    cr_expect_eq(warnings, 1);
    cr_expect(strstr(warning, "77 compute units, and this is") && strstr(warning, "78 compute units"), "%s", warning);
    clef_close(t.ctx), clef_close(like.ctx), clef_close(other.ctx);
}

static const int lies[] = {0, 2, 3, 1};

/* A convolution whose weights lie channels-last, as training leaves them, or row-major. */
static clef_module *convolution(clef_context *ctx, bool channels_last, float *weights, size_t bytes) {
    clef_module *conv = clef_nn_conv2d(ctx, 4, 3, 2, NULL);
    clef_tensor *w = clef_parameter(conv, "weight");
    clef_require_grad(w, false);
    if (channels_last) cr_assert_eq(clef_assign(w, clef__in_memory_order(clef_copy(w), lies)), CLEF_OK);
    cr_assert_eq(clef_read(w, weights, bytes), CLEF_OK, "%s", clef_error(ctx));
    return conv;
}

Test(checkpoint, values_lie_as_they_lay) {
    static const struct {
        const char *from, *to;
    } damaged[] = {{"0231 model.weight", "0221 model.weight"}, {"0231 model.weight", "0291 model.weight"},
                   {"0231 model.weight", "021 model.weight"},  {"0231 model.weight", "0231 model.height"},
                   {"0231 model.weight", "0231model.weight"},  {"0231 model.weight", "x231 model.weight"}};
    clef_context *ctx = open_seeded(1);
    static float saved[48], other[48], got[48];
    int order[CLEF_MAX_RANK];
    clef_module *from = convolution(ctx, true, saved, sizeof saved), *to = convolution(ctx, false, other, sizeof other);
    clef_tensor *w = clef_parameter(to, "weight");
    char path[1024], bad[1024];
    snprintf(path, sizeof path, "%s", io_path(dir, "good"));
    snprintf(bad, sizeof bad, "%s", io_path(dir, "bad"));
    cr_assert_eq(clef_checkpoint_save(ctx, path, &(clef_checkpoint){.module = from}), CLEF_OK, "%s", clef_error(ctx));
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        cr_assert(sealed_patch(path, bad, damaged[i].from, damaged[i].to), "%s is not in the file", damaged[i].from);
        cr_expect_eq(clef_checkpoint_load(ctx, bad, &(clef_checkpoint){.module = to}), CLEF_FORMAT, "%s", damaged[i].to);
        expect_error(ctx, CLEF_FORMAT, "has a damaged list of how tensors lie");
    }
    cr_assert(clef_read(w, got, sizeof got) == CLEF_OK && !clef__memory_order_of(w, order));
    cr_expect_arr_eq(got, other, sizeof got);
    cr_assert_eq(clef_checkpoint_load(ctx, path, &(clef_checkpoint){.module = to}), CLEF_OK, "%s", clef_error(ctx));
    cr_assert(clef__memory_order_of(w, order), "it lies row-major");
    cr_expect_arr_eq(order, lies, sizeof lies);
    cr_assert_eq(clef_read(w, got, sizeof got), CLEF_OK);
    cr_expect_arr_eq(got, saved, sizeof got);
    clef_close(ctx);
}

/* Weights files have the checksum too; those of other programs do without. */
Test(checkpoint, damaged_weights_are_refused) {
    training t;
    cr_assert(training_open(&t, 3, true));
    const char *path = io_path(dir, "weights");
    cr_assert_eq(clef_save(t.net, path), CLEF_OK, "%s", clef_error(t.ctx));
    io_bytes file = io_slurp(path), plain = sealed_replace(file, "\"clef.crc32c\"", "\"something\"");
    file.data[file.size - 3] ^= 16;
    io_spit(path, file.data, file.size);
    cr_expect_eq(clef_load(t.net, path), CLEF_FORMAT);
    expect_error(t.ctx, CLEF_FORMAT, "is damaged: its checksum is");
    io_spit(path, plain.data, plain.size);
    cr_expect_eq(clef_load(t.net, path), CLEF_OK, "%s", clef_error(t.ctx));
    free(file.data), free(plain.data);
    clef_close(t.ctx);
}

Test(checkpoint, what_could_not_be_loaded_is_not_saved) {
    training t;
    cr_assert(training_open(&t, 3, true));
    clef_set_learning_rate(t.optimizer, NAN);
    clef_checkpoint parts = training_parts(&t);
    cr_expect_eq(clef_checkpoint_save(t.ctx, io_path(dir, "x"), &parts), CLEF_INVALID);
    expect_error(t.ctx, CLEF_INVALID, "optimizer.lr is nan, with which no run can continue");
    cr_expect_eq(io_count(dir), 0);
    clef_close(t.ctx);
}

Test(checkpoint, checksums_are_right) {
    uint8_t bytes[200];
    for (int i = 0; i < 200; i++) bytes[i] = (uint8_t)(i * 7);
    cr_expect_eq(clef__crc32c(0, "123456789", 9), 0xE3069283u);
    cr_expect_eq(clef__crc32c(0, "", 0), 0u);
    for (size_t n = 0; n <= 200; n += 9)
        cr_expect_eq(clef__crc32c(clef__crc32c(0, bytes, n), bytes + n, 200 - n), clef__crc32c(0, bytes, 200));
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
    cr_expect_eq(clef_random_get(t.ctx).offset, moved.offset, "loading a module alone leaves random numbers alone");
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
