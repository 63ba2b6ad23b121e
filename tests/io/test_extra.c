/* A program's own values in a checkpoint: they come back bit for bit, or nothing changes.
   ctest: plain */
#include "support/device.h"
#include "support/io_files.h"
#include "support/sealed.h"
#include <float.h>

static clef_context *ctx;
static char dir[512], path[600];

static void setup(void) {
    ctx = open_seeded(3);
    snprintf(dir, sizeof dir, "%s", io_scratch());
    snprintf(path, sizeof path, "%s/x.ckpt", dir);
}
static void teardown(void) {
    close_clean(ctx);
    io_remove(dir);
}
TestSuite(extra, .init = setup, .fini = teardown);

static clef_status save(const clef_extra *extra, int n) {
    return clef_checkpoint_save(ctx, path, &(clef_checkpoint){.extra = extra, .n_extra = n});
}
static clef_status load(const clef_extra *extra, int n) {
    return clef_checkpoint_load(ctx, path, &(clef_checkpoint){.extra = extra, .n_extra = n});
}

Test(extra, values_come_back_bit_for_bit) {
    static const double reals[] = {0, -0.0, 0.1, -1e300, DBL_MIN / 8, DBL_TRUE_MIN, INFINITY, -INFINITY, NAN, 1.0 / 3};
    static const int64_t wholes[] = {0, -1, INT64_MAX, INT64_MIN, 42};
    static const char *const texts[] = {"", "a", "two\nlines \"quoted\" \\ \t\x01", "\xC3\xA4\xE2\x82\xAC", "null", "0x1p3"};
    for (int i = 0; i < 10; i++) {
        double real = reals[i], real_again = 7;
        int64_t whole = wholes[i % 5], whole_again = 7;
        char text[40], text_again[40] = "seven";
        snprintf(text, sizeof text, "%s", texts[i % 6]);
        clef_extra out[] = {
            {.name = "r", .real = &real}, {.name = "w", .whole = &whole}, {.name = "t", .text = text, .size = sizeof text}};
        clef_extra in[] = {{.name = "t", .text = text_again, .size = sizeof text_again},
                           {.name = "r", .real = &real_again},
                           {.name = "w", .whole = &whole_again}};
        cr_assert_eq(save(out, 3), CLEF_OK, "%s", clef_error(ctx));
        cr_assert_eq(load(in, 3), CLEF_OK, "%s", clef_error(ctx));
        cr_expect_eq(memcmp(&real, &real_again, sizeof real), 0, "%a, not %a", real_again, real);
        cr_expect_eq(whole, whole_again);
        cr_expect_str_eq(text, text_again);
        real_again = 7;
        cr_assert_eq(load(&in[1], 1), CLEF_OK, "one of them");
        cr_expect(isnan(real) ? isnan(real_again) : real_again == real);
    }
}

/* Names and numbers at random; what was loaded has the bytes of what was saved. */
Test(extra, any_number_of_any_names) {
    enum { MOST = 60 };
    static char name[MOST][24];
    static double value[MOST], again[MOST];
    clef_extra out[MOST], in[MOST];
    for (int i = 0; i < MOST; i++) {
        snprintf(name[i], sizeof name[i], "%s.%d \"\xC3\xBC\"", i % 2 ? "loader" : "epoch", i);
        uint64_t bits = ((uint64_t)i + 1) * 0x9e3779b97f4a7c15u;
        memcpy(&value[i], &bits, sizeof bits);
        if (isnan(value[i])) value[i] = i;
        out[i] = (clef_extra){.name = name[i], .real = &value[i]};
        in[MOST - 1 - i] = (clef_extra){.name = name[i], .real = &again[i]};
    }
    cr_assert_eq(save(out, MOST), CLEF_OK, "%s", clef_error(ctx));
    cr_assert_eq(load(in, MOST), CLEF_OK, "%s", clef_error(ctx));
    cr_expect_arr_eq(value, again, sizeof value);
}

Test(extra, what_does_not_fit_changes_nothing) {
    double real = 1, other = 2;
    int64_t whole = 3;
    char text[8] = "abcdefg", small[4] = "no";
    clef_extra out[] = {{.name = "r", .real = &real}, {.name = "t", .text = text, .size = sizeof text}};
    clef_module *m = clef_nn_linear(ctx, 1, 1, NULL);
    cr_assert_eq(clef_checkpoint_save(ctx, path, &(clef_checkpoint){.module = m, .extra = out, .n_extra = 2}), CLEF_OK);
    float weight = 5, now;
    cr_assert_eq(clef_write(clef_parameter(m, "weight"), &weight, sizeof weight), CLEF_OK);
    const struct {
        clef_extra last;
        clef_status status;
        const char *said;
    } cases[] = {{{.name = "x", .real = &other}, CLEF_FORMAT, "was saved without extra value \"x\""},
                 {{.name = "r", .whole = &whole}, CLEF_FORMAT, "has an extra value \"r\" that is no whole number: \"0x1"},
                 {{.name = "t", .real = &other}, CLEF_FORMAT, "has an extra value \"t\" that is no real number: \"abcdefg\""},
                 {{.name = "t", .text = small, .size = sizeof small}, CLEF_INVALID, "of 7 bytes; 8 are wanted for it, not 4"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double first = 9;
        clef_extra in[] = {{.name = "r", .real = &first}, cases[i].last};
        if (!strcmp(cases[i].last.name, "r")) in[0] = (clef_extra){.name = "t", .text = text, .size = sizeof text};
        clef_checkpoint what = {.module = m, .extra = in, .n_extra = 2, .epoch = 4};
        cr_expect_eq(clef_checkpoint_load(ctx, path, &what), cases[i].status);
        expect_error(ctx, cases[i].status, cases[i].said);
        cr_assert_eq(clef_read(clef_parameter(m, "weight"), &now, sizeof now), CLEF_OK);
        cr_expect(first == 9 && other == 2 && whole == 3 && !strcmp(small, "no") && now == 5 && what.epoch == 4);
    }
}

Test(extra, refusals) {
    double real = 1;
    int64_t whole = 2;
    char endless[2] = {'a', 'b'}, latin[] = "caf\xE9";
    const struct {
        clef_extra e;
        const char *said;
    } cases[] = {{{.real = &real}, "extra value 0 needs a name of its own, in UTF-8"},
                 {{.name = "", .real = &real}, "needs a name of its own"},
                 {{.name = latin, .real = &real}, "needs a name of its own"},
                 {{.name = "a"}, "extra value \"a\" needs one of real, whole and text"},
                 {{.name = "a", .real = &real, .whole = &whole}, "needs one of real, whole and text"},
                 {{.name = "a", .text = endless, .size = sizeof endless}, "has a text without an end"},
                 {{.name = "a", .text = latin, .size = sizeof latin}, "has a text that is not UTF-8"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_expect_eq(save(&cases[i].e, 1), CLEF_INVALID);
        expect_error(ctx, CLEF_INVALID, cases[i].said);
    }
    clef_extra twice[] = {{.name = "a", .real = &real}, {.name = "a", .whole = &whole}};
    cr_expect_eq(save(twice, 2), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "extra value 1 needs a name of its own");
    cr_expect_eq(save(NULL, 2), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "2 extra values in a NULL array");
    cr_expect_eq(save(twice, -1), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "-1 extra values");
    cr_assert_eq(save(twice, 1), CLEF_OK);
    cr_expect_eq(load(twice, 2), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "extra value 1 needs a name of its own");
}
