/* The store of tuning results: what is kept is found again, for its own device, driver, profile and kernel only; damaged lines
   cost nothing but themselves; files merge. */
#include "runtime_support.h"
#include <criterion/criterion.h>
#include <fcntl.h>

static const char *dir;
static memory_log heard;

/* A context without a device, and a device that exists in words only: the store needs no other. */
static clef__device *open_words(void) {
    heard = (memory_log){0};
    clef__device *d = calloc(1, sizeof *d);
    d->ctx = clef__context_new(&(clef_options){.cache_dir = dir, .log = remember, .log_user = &heard});
    d->info = (clef_device_info){
        .platform = "Platform \"A\"", .platform_version = "1 \\ 2", .name = "Gr\xc3\xa4t\t7", .driver = "5.0", .compute_units = 4};
    d->profile.name = "cpu";
    return d;
}

static void close_words(clef__device *d) {
    clef_close(d->ctx);
    free(d);
}

static void setup(void) {
    unsetenv("CLEF_CACHE");
    unsetenv("CLEF_CACHE_DIR");
    unsetenv("CLEF_TUNING");
    dir = temporary_dir();
    cr_assert_not_null(dir);
}
static void teardown(void) { remove_dir(dir); }
TestSuite(tuning, .init = setup, .fini = teardown);

static const clef__tuned some = {.family = "gemm",
                                 .kernel = "0123",
                                 .dtype = "f32",
                                 .bucket = "64,64",
                                 .n_knobs = 2,
                                 .knob = {{"rows", 8}, {"vectors", 3}},
                                 .ns = 1000,
                                 .default_ns = 1500};

static clef__tuned with_rows(const char *bucket, int rows) {
    clef__tuned t = some;
    t.bucket = bucket;
    t.knob[0].value = rows;
    return t;
}

/* The rows that were kept for this bucket; 0: there is no result. */
static int rows_of(clef__device *d, const char *bucket) {
    clef__tuned choice = with_rows(bucket, 0);
    const clef__tuned *t = clef__tuned_find(d, &choice);
    return t ? t->knob[0].value : 0;
}

static int rows_after_reopening(const char *bucket) {
    clef__device *d = open_words();
    int rows = rows_of(d, bucket);
    close_words(d);
    return rows;
}

static void keep_rows(const char *bucket, int rows) {
    clef__device *d = open_words();
    clef__tuned t = with_rows(bucket, rows);
    cr_assert_eq(clef__tuned_keep(d, &t, 1), CLEF_OK);
    close_words(d);
}

static const char *path_of(const char *name) {
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static void spit(const char *name, const char *text, const char *mode) {
    FILE *f = fopen(path_of(name), mode);
    cr_assert(f && fwrite(text, 1, strlen(text), f) == strlen(text) && fclose(f) == 0);
    chmod(path_of(name), 0600);
}

static char *slurp(const char *name) {
    static char text[1 << 16];
    FILE *f = fopen(path_of(name), "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    text[n] = 0;
    if (f) fclose(f);
    return text;
}

Test(tuning, round_trip) {
    clef__device *d = open_words();
    cr_assert_null(clef__tuned_find(d, &some));
    cr_assert_eq(clef__tuned_keep(d, &some, 1), CLEF_OK);
    for (int again = 0; again < 2; again++) {
        const clef__tuned *t = clef__tuned_find(d, &some);
        cr_assert_not_null(t);
        cr_assert(t->n_knobs == 2 && t->knob[0].value == 8 && t->knob[1].value == 3 && t->ns == 1000 && t->default_ns == 1500);
        cr_assert_str_eq(t->knob[1].name, "vectors");
        cr_assert_str_eq(t->platform, "Platform \"A\"");
        cr_assert_str_eq(t->device, "Gr\xc3\xa4t\t7");
        close_words(d);
        d = open_words();
    }
    cr_assert_eq(heard.count[CLEF_LOG_WARNING], 0, "%s", heard.all);
    close_words(d);
}

/* Some drivers name devices in another encoding than UTF-8. */
Test(tuning, names_in_any_encoding_come_back) {
    static const char name[] = "Ger\xe4t";
    for (int again = 0; again < 2; again++) {
        clef__device *d = open_words();
        d->info.name = name;
        if (!again) cr_assert_eq(clef__tuned_keep(d, &some, 1), CLEF_OK);
        const clef__tuned *t = clef__tuned_find(d, &some);
        cr_assert(t && strcmp(t->device, name) == 0);
        close_words(d);
    }
}

Test(tuning, later_results_replace_earlier_ones_and_no_others) {
    keep_rows("a", 4);
    keep_rows("b", 6);
    keep_rows("a", 12);
    cr_assert_eq(rows_after_reopening("a"), 12);
    cr_assert_eq(rows_after_reopening("b"), 6);
    int lines = 0;
    for (const char *p = slurp("tuning.jsonl"); *p; p++) lines += *p == '\n';
    cr_assert_eq(lines, 2);
}

/* What is on disk by the time of writing stays, though this context has not read it. */
Test(tuning, a_context_that_opened_earlier_takes_nothing_away) {
    clef__device *early = open_words();
    cr_assert_eq(rows_of(early, "mine"), 0);
    keep_rows("others", 10);
    clef__tuned t = with_rows("mine", 2);
    cr_assert_eq(clef__tuned_keep(early, &t, 1), CLEF_OK);
    close_words(early);
    cr_assert_eq(rows_after_reopening("others"), 10);
    cr_assert_eq(rows_after_reopening("mine"), 2);
}

Test(tuning, other_devices_drivers_and_kernels_have_results_of_their_own) {
    keep_rows("a", 8);
    clef__device *d = open_words();
    clef_device_info right = d->info;
    cr_assert_eq(rows_of(d, "a"), 8);
    const char **const texts[] = {&d->info.platform, &d->info.platform_version, &d->info.name, &d->info.driver, &d->profile.name};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        const char *was = *texts[i];
        *texts[i] = "another";
        cr_expect_eq(rows_of(d, "a"), 0, "field %zu makes no difference", i);
        *texts[i] = was;
    }
    d->planned.compute_units = 5; /* as the program may say (clef_options.sum_units) */
    cr_expect_eq(rows_of(d, "a"), 0);
    d->info = right;
    clef__tuned choice[] = {some, some, some};
    choice[0].kernel = choice[1].family = choice[2].dtype = "another";
    for (int i = 0; i < 3; i++) {
        choice[i].bucket = "a";
        cr_expect_null(clef__tuned_find(d, &choice[i]));
    }
    close_words(d);
}

Test(tuning, damaged_lines_cost_only_themselves) {
    keep_rows("a", 8);
    char line[2048];
    snprintf(line, sizeof line, "%s", slurp("tuning.jsonl"));
    static const char *const bad[] = {"{",
                                      "}",
                                      "{}",
                                      "nonsense",
                                      "{\"schema\":1}",
                                      "\"",
                                      "{\"schema\":1,\"platform\":\"\\",
                                      "[]",
                                      "\\u",
                                      "{\"schema\":1,\"schema\":1}",
                                      "{\"knobs\":{\"a\":1,}}",
                                      "{\"ns\":99999999999999999999999}"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        spit("tuning.jsonl", bad[i], "w");
        spit("tuning.jsonl", "\n", "a");
        spit("tuning.jsonl", line, "a");
        clef__device *d = open_words();
        cr_expect_eq(rows_of(d, "a"), 8, "after %s", bad[i]);
        cr_expect(strstr(heard.all, "1 damaged lines"), "after %s: %s", bad[i], heard.all);
        close_words(d);
    }
    keep_rows("b", 4); /* writing leaves them out */
    cr_assert_null(strstr(slurp("tuning.jsonl"), bad[11]));
    cr_assert_eq(rows_after_reopening("a"), 8);
}

/* Every length and every byte of a line: a verdict, never the knobs of another line under this one's name. */
Test(tuning, any_truncation_or_flip_is_refused_or_harmless) {
    keep_rows("a", 8);
    char line[2048];
    snprintf(line, sizeof line, "%s", slurp("tuning.jsonl"));
    size_t n = strcspn(line, "\n");
    for (size_t i = 0; i < n; i++) {
        char copy[2048];
        clef__tuned t;
        memcpy(copy, line, i);
        copy[i] = 0;
        cr_expect_not(clef__tuned_parse(copy, &t), "%zu of %zu bytes", i, n);
        memcpy(copy, line, n);
        copy[n] = 0;
        copy[i] ^= 1 << i % 7;
        if (clef__tuned_parse(copy, &t)) cr_expect(t.n_knobs <= 2 && t.family && t.kernel && t.bucket && t.driver);
    }
}

/* A newer version's results are carried along by an older one that writes. */
Test(tuning, other_schemas_survive) {
    static const char newer[] = "{\"schema\":2,\"anything\":[1,2,{\"x\":\"y\"}]}";
    spit("tuning.jsonl", newer, "w");
    keep_rows("a", 8);
    cr_assert_not_null(strstr(slurp("tuning.jsonl"), newer));
    cr_assert_eq(rows_after_reopening("a"), 8);
}

Test(tuning, files_that_are_not_ours_alone_are_not_read) {
    keep_rows("a", 8);
    chmod(path_of("tuning.jsonl"), 0666);
    clef__device *d = open_words();
    cr_expect_eq(rows_of(d, "a"), 0);
    cr_expect_eq(heard.count[CLEF_LOG_WARNING], 1);
    cr_expect_eq(clef__tuned_keep(d, &some, 1), CLEF_OK);
    close_words(d);
    char target[512];
    snprintf(target, sizeof target, "%s", path_of("elsewhere"));
    chmod(path_of("tuning.jsonl"), 0600);
    cr_assert_eq(rows_after_reopening("a"), 8);
    cr_assert(rename(path_of("tuning.jsonl"), target) == 0 && symlink(target, path_of("tuning.jsonl")) == 0);
    cr_expect_eq(rows_after_reopening("a"), 0, "a link is followed");
}

static int rows_with(const char *name, const char *value) {
    setenv(name, value, 1);
    int rows = rows_after_reopening("a");
    unsetenv(name);
    return rows;
}

Test(tuning, can_be_switched_off) {
    keep_rows("a", 8);
    cr_expect_eq(rows_with("CLEF_TUNING", "0"), 0);
    cr_expect_eq(rows_with("CLEF_TUNING", "1"), 8);
    cr_expect_eq(rows_with("CLEF_CACHE", "0"), 0);
}

/* Without a directory results live in memory. */
Test(tuning, without_a_cache_results_live_as_long_as_the_context) {
    setenv("CLEF_CACHE", "0", 1);
    clef__device *d = open_words();
    cr_assert_eq(clef__tuned_keep(d, &some, 1), CLEF_OK);
    cr_expect_eq(rows_of(d, some.bucket), 8);
    close_words(d);
    unsetenv("CLEF_CACHE");
    cr_expect_eq(rows_after_reopening(some.bucket), 0);
}

Test(tuning, export_and_import) {
    int n = 0;
    char file[512];
    snprintf(file, sizeof file, "%s", path_of("exported"));
    keep_rows("a", 8);
    keep_rows("b", 4);
    clef__device *d = open_words();
    cr_assert_eq(clef__tuning_export(d->ctx, file, &n), CLEF_OK, "%s", clef_error(d->ctx));
    cr_expect_eq(n, 2);
    close_words(d);
    unlink(path_of("tuning.jsonl"));
    keep_rows("a", 2);
    keep_rows("c", 6);
    d = open_words();
    cr_assert_eq(rows_of(d, "b"), 0);
    cr_assert_eq(clef__tuning_import(d->ctx, file, &n), CLEF_OK, "%s", clef_error(d->ctx));
    cr_expect_eq(n, 2);
    cr_expect_eq(rows_of(d, "a"), 8, "what is imported counts before what was there");
    cr_expect_eq(rows_of(d, "b"), 4);
    close_words(d);
    cr_expect(rows_after_reopening("a") == 8 && rows_after_reopening("b") == 4 && rows_after_reopening("c") == 6);
}

static void expect_refused(clef__device *d, clef_status status, clef_status want, const char *says) {
    cr_expect_eq(status, want, "%s", clef_status_name(status));
    cr_expect(strstr(clef_error(d->ctx), says), "%s", clef_error(d->ctx));
    clef_clear_error(d->ctx);
}

Test(tuning, files_that_cannot_be_read_or_written) {
    int n = 7;
    clef__device *d = open_words();
    expect_refused(d, clef__tuning_import(d->ctx, "/dev/null/none", &n), CLEF_IO, "/dev/null/none cannot be read");
    cr_expect_eq(n, 0);
    expect_refused(d, clef__tuning_export(d->ctx, "/dev/null/none", &n), CLEF_IO, "/dev/null/none cannot be written");
    expect_refused(d, clef__tuning_import(d->ctx, dir, &n), CLEF_IO, "cannot be read");
    spit("junk", "no results\n", "w");
    expect_refused(d, clef__tuning_import(d->ctx, path_of("junk"), &n), CLEF_FORMAT, "holds no tuning results");
    spit("junk", "", "w");
    expect_refused(d, clef__tuning_import(d->ctx, path_of("junk"), &n), CLEF_FORMAT, "holds no tuning results");
    cr_expect_eq(truncate(path_of("junk"), 5 << 20), 0);
    expect_refused(d, clef__tuning_import(d->ctx, path_of("junk"), &n), CLEF_FORMAT, "larger than 4 MB");
    close_words(d);
}
