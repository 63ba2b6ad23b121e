/* The progress bar's text, and what it is told while kernels are compiled. */
#include "train/train_internal.h"
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

static char text[4096];

static const char *written(FILE *file) {
    rewind(file);
    size_t n = fread(text, 1, sizeof text - 1, file);
    text[n] = 0;
    fclose(file);
    return text;
}

static const clef_progress half = {.epoch = 2,
                                   .epochs = 5,
                                   .batch = 50,
                                   .batches = 100,
                                   .items = 1600,
                                   .loss = 0.25,
                                   .accuracy = 0.5,
                                   .items_per_second = 1234,
                                   .eta = 61};

Test(progress, away_from_a_terminal_lines_are_rare_and_plain) {
    clef__bar bar;
    FILE *file = tmpfile();
    clef__bar_init(&bar, file);
    cr_assert(!bar.terminal && !bar.color);
    clef__bar_progress(&bar, &half);
    bar.last -= 60;
    clef__bar_progress(&bar, &half);
    clef__bar_progress(&bar, &half);
    clef__bar_close(&bar);
    cr_assert_str_eq(written(file), "epoch 2/5   50 %  loss 0.2500  acc 50.00 %  1234/s  ETA 1:01\n");
}

Test(progress, a_terminal_line_is_rewritten) {
    clef__bar bar;
    FILE *file = tmpfile();
    clef__bar_init(&bar, file);
    bar.terminal = true;
    clef__bar_progress(&bar, &half);
    clef__bar_close(&bar);
    const char *seen = written(file);
    cr_assert(strstr(seen, "\r\033[Kepoch 2/5 [==========>         ]  loss 0.2500"), "%s", seen);
    cr_assert_str_eq(seen + strlen(seen) - 4, "\r\033[K");
    cr_assert(!strchr(seen, '\n'));
}

Test(progress, compiling_is_shown) {
    clef__bar bar;
    FILE *file = tmpfile();
    clef_progress p = {.compiling = 3, .to_compile = 41, .loss = NAN, .accuracy = NAN, .eta = NAN};
    clef__bar_init(&bar, file);
    bar.last -= 60;
    clef__bar_progress(&bar, &p);
    cr_assert_str_eq(written(file), "compiling kernels for this device, once: 3 of 41\n");
}

Test(progress, an_epoch_is_one_line_without_what_is_unknown) {
    clef__bar bar;
    FILE *file = tmpfile();
    clef_epoch e = {
        .epoch = 1, .loss = 1.5, .accuracy = NAN, .test_loss = NAN, .test_accuracy = NAN, .seconds = 2, .items_per_second = 10};
    clef__bar_init(&bar, file);
    clef__bar_epoch(&bar, &e, 3);
    cr_assert_str_eq(written(file), "epoch 1/3  loss 1.5000  10/s  2.0 s\n");
}

/* Columns between line breaks and the codes that wipe and colour a line. */
static int widest(const char *seen) {
    int most = 0, here = 0;
    for (const char *c = seen; *c; c++) {
        if (*c == '\033') c = strpbrk(c, "mK");
        else if (*c == '\r' || *c == '\n') here = 0;
        else if ((*c & 0xC0) != 0x80) here++;
        most = here > most ? here : most;
    }
    return most;
}

/* The widest numbers there may be: what is most important stays. */
Test(progress, no_line_is_wider_than_80_columns) {
    static const clef_progress wide = {.epoch = 10000,
                                       .epochs = 100000,
                                       .batch = 99999,
                                       .batches = 100000,
                                       .loss = 8.9e29,
                                       .accuracy = 1,
                                       .items_per_second = 12345678,
                                       .eta = 1e9};
    static const clef_epoch e = {.epoch = 10000,
                                 .loss = 99999.99991,
                                 .accuracy = 1,
                                 .test_loss = 99999.99991,
                                 .test_accuracy = 1,
                                 .seconds = 123456,
                                 .items_per_second = 12345678};
    for (int kind = 0; kind < 3; kind++) { /* a file, a terminal without and with colours */
        clef__bar bar;
        FILE *file = tmpfile();
        clef__bar_init(&bar, file);
        bar.terminal = kind > 0;
        bar.color = kind > 1;
        bar.last -= 60;
        clef__bar_progress(&bar, &wide);
        clef__bar_progress(&bar, &half);
        clef__bar_epoch(&bar, &e, 100000);
        clef__bar_close(&bar);
        const char *seen = written(file);
        cr_expect(widest(seen) <= (kind ? 79 : 80), "%d: %s", widest(seen), seen);
        cr_expect(strstr(seen, "epoch 10000/100000  loss 99999.9999  acc 100.00 %  test 99999.9999"), "%s", seen);
        cr_expect(strstr(seen, "loss 8.9e+29  acc 100.00 %"), "%s", seen);
    }
}

/* What a driver compiles when a kernel first runs is counted as compiling is. */
static int building, running;
static double before_compile;
static void on_compile(void *user, int done, int total) {
    (void)user;
    cr_expect(done >= 1 && done <= total);
    if (done == total) running += building > 0, building++;
}

Test(progress, first_runs_of_kernels_are_counted) {
    clef_context *ctx = clef_open(NULL);
    cr_assert(ctx, "%s", clef_error(NULL));
    clef_tensor *x = clef_keep(clef_rand(ctx, CLEF_SHAPE(8)));
    cr_assert_eq(clef_eval(x), CLEF_OK);
    clef_on_compile(ctx, on_compile, NULL);
    before_compile = clef_counters_get(ctx).compile_seconds;
    for (int i = 0; i < 3; i++) cr_assert_eq(clef_eval(clef_sum(x, NULL, 0, false)), CLEF_OK, "%s", clef_error(ctx));
    cr_expect_eq(building, 2, "built, then run for the first time: %d", building);
    cr_expect_eq(running, 1);
    cr_expect(clef_counters_get(ctx).compile_seconds > before_compile);
    clef_close(ctx);
}

Test(progress, no_stream_is_silence) {
    clef__bar bar;
    clef__bar_init(&bar, NULL);
    clef__bar_progress(&bar, &half);
    clef__bar_close(&bar);
}
