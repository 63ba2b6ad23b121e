/* The progress bar's text; no device is needed. */
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

static const clef_progress half = {.epoch = 2, .epochs = 5, .batch = 50, .batches = 100, .items = 1600, .loss = 0.25,
                                   .accuracy = 0.5, .items_per_second = 1234, .eta = 61};

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
    clef_epoch e = {.epoch = 1, .loss = 1.5, .accuracy = NAN, .test_loss = NAN, .test_accuracy = NAN, .seconds = 2,
                    .items_per_second = 10};
    clef__bar_init(&bar, file);
    clef__bar_epoch(&bar, &e, 3);
    cr_assert_str_eq(written(file), "epoch 1/3  loss 1.5000  10/s  2.0 s\n");
}

Test(progress, no_stream_is_silence) {
    clef__bar bar;
    clef__bar_init(&bar, NULL);
    clef__bar_progress(&bar, &half);
    clef__bar_close(&bar);
}
