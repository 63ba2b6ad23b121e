/* Tuning results and plans: a result changes the plan of what it is about and of nothing else, a bad one changes nothing, and
   clef_tune keeps what it measures.  No figure of a clock decides here.
   ctest: cost=20 plain */
#include "kernels/gemm.h"
#include "tuning_support.h"

static const double ample = 1e9; /* seconds of tuning: for whatever a loaded machine takes */
static const char *dir;
static clef_context *ctx;
static void setup(void) {
    unsetenv("CLEF_TUNING");
    unsetenv("CLEF_CACHE");
    setenv("CLEF_CLBLAST", "0", 1); /* a candidate that needs ten seconds to begin; test_library.c and main_library.c have it */
    dir = io_scratch();
    ctx = open_in(dir);
}
static void reopen(void) {
    clef_close(ctx);
    ctx = open_in(dir);
}
static void teardown(void) {
    clef_close(ctx);
    io_remove(dir);
}
TestSuite(tune, .init = setup, .fini = teardown);

enum { M = 40, N = 36, K = 50 };
static clef_tensor *product_of(int64_t m, int64_t n, int64_t k) {
    return clef_matmul(clef_rand(ctx, CLEF_SHAPE(m, k)), clef_rand(ctx, CLEF_SHAPE(k, n)));
}
static clef_tensor *product(void) { return product_of(M, N, K); }

static clef__knobs with(int knob, int value) {
    clef__knobs knobs = {0};
    knobs.value[knob] = value;
    return knobs;
}

static bool is_tuned(clef_tensor *t) { return strstr(plan_text(t), " tuned"); }

/* ---- results in use ---- */

Test(tune, a_result_changes_the_plan) {
    char before[1 << 16];
    snprintf(before, sizeof before, "%s", plan_text(product()));
    cr_assert_not(strstr(before, " tuned"));
    clef__knobs knobs = with(CLEF__GEMM_ROWS, 2);
    cr_assert_eq(keep_for(ctx, product(), "gemm", &knobs), 1);
    for (int again = 0; again < 2; again++) {
        const char *after = plan_text(product());
        cr_assert(strstr(after, " tuned"), "%s", after);
        cr_assert(strcmp(before, after) != 0);
        reopen(); /* the second time it comes from the file */
    }
}

Test(tune, sizes_of_one_bucket_share_a_result_and_others_do_not) {
    clef__knobs knobs = with(CLEF__GEMM_ROWS, 2);
    keep_for(ctx, product_of(60, 100, 1000), "gemm", &knobs);
    cr_expect(is_tuned(product_of(64, 97, 1024)));
    cr_expect_not(is_tuned(product_of(65, 100, 1000)));
    cr_expect_not(is_tuned(product_of(60, 113, 1000)));
    cr_expect_not(is_tuned(product_of(60, 100, 700)));
    clef_tensor *transposed =
        clef_matmul(clef_rand(ctx, CLEF_SHAPE(60, 1000)), clef_transpose(clef_rand(ctx, CLEF_SHAPE(100, 1000)), 0, 1));
    cr_expect_not(is_tuned(transposed), "another layout is another bucket");
    clef_tensor *half = clef_matmul(clef_to(clef_rand(ctx, CLEF_SHAPE(60, 1000)), CLEF_F16),
                                    clef_to(clef_rand(ctx, CLEF_SHAPE(1000, 100)), CLEF_F16));
    cr_expect_not(is_tuned(half), "another dtype is another bucket");
}

Test(tune, the_first_sizes_are_buckets_of_their_own) {
    clef__knobs knobs = with(CLEF__GEMM_ROWS, 2);
    keep_for(ctx, product_of(7, 100, 100), "gemm", &knobs);
    cr_expect(is_tuned(product_of(7, 100, 100)));
    cr_expect_not(is_tuned(product_of(8, 100, 100)));
    cr_expect_not(is_tuned(product_of(6, 100, 100)));
}

Test(tune, results_that_are_switched_off_change_nothing) {
    clef__knobs knobs = with(CLEF__GEMM_ROWS, 2);
    keep_for(ctx, product(), "gemm", &knobs);
    clef_close(ctx);
    ctx = clef_open(&(clef_options){.cache_dir = dir, .no_tuning = true});
    cr_expect_not(is_tuned(product()));
    setenv("CLEF_TUNING", "0", 1);
    reopen();
    cr_expect_not(is_tuned(product()));
    unsetenv("CLEF_TUNING");
    reopen();
    cr_expect(is_tuned(product()));
}

/* The stored line, with one text replaced by another: what someone else's file may hold. */
static void rewrite_line(const char *from, const char *to) {
    const char *path = io_path(dir, "tuning.jsonl");
    io_bytes file = io_slurp(path);
    file.data[file.size] = 0;
    char *at = strstr((char *)file.data, from), *text = malloc(file.size + strlen(to) + 1);
    cr_assert(at, "%s has no %s", (char *)file.data, from);
    *at = 0;
    int n = sprintf(text, "%s%s%s", (char *)file.data, to, at + strlen(from));
    io_spit(path, text, (size_t)n);
    chmod(path, 0600);
    free(text);
    free(file.data);
}

Test(tune, knobs_that_do_not_exist_are_refused) {
    static const char *const bad[] = {"\"rows\":0",    "\"rows\":1",          "\"rows\":3",
                                      "\"rows\":15",   "\"rows\":2147483647", "\"lines\":2",
                                      "\"vectors\":5", "\"splits\":33",       "\"rows\":2,\"vectors\":9",
                                      "\"block\":1",   "\"share\":3"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        clef__knobs knobs = with(CLEF__GEMM_ROWS, 2);
        keep_for(ctx, product(), "gemm", &knobs);
        rewrite_line("\"rows\":2", bad[i]);
        reopen();
        cr_expect_not(is_tuned(product()), "%s is used", bad[i]);
        cr_expect(strstr(warnings, "does not exist"), "%s: %s", bad[i], warnings);
        cr_expect_eq(clef_eval(product()), CLEF_OK, "%s: %s", bad[i], clef_error(ctx));
    }
}

Test(tune, another_kernel_text_has_no_results) {
    clef__knobs knobs = with(CLEF__GEMM_ROWS, 2);
    keep_for(ctx, product(), "gemm", &knobs);
    rewrite_line("\"kernel\":\"", "\"kernel\":\"0");
    reopen();
    cr_expect_not(is_tuned(product()));
    cr_expect_str_empty(warnings);
}

/* ---- strategies ---- */

static clef_tensor *depthwise(void) {
    clef_conv2d_options options = {.groups = 20, .padding = {1, 1}};
    return clef_conv2d(clef_rand(ctx, CLEF_SHAPE(2, 20, 12, 12)), clef_rand(ctx, CLEF_SHAPE(20, 1, 3, 3)), CLEF_NONE, &options);
}

Test(tune, a_result_chooses_the_strategy) {
    cr_assert(strstr(plan_text(depthwise()), "depthwise.cl") && !strstr(plan_text(depthwise()), "gemm.cl"));
    clef__benchmarks found = benchmarks_of(ctx, depthwise());
    cr_assert(found.n >= 1);
    int gemm = 0;
    const clef__strategy *const *rows = found.benchmark[0].op->strategies;
    for (int i = 0; rows[i] && !gemm; i++)
        if (rows[i]->lower && strcmp(rows[i]->name, "product") == 0) gemm = 1 + i;
    clef__benchmark_free(&found);
    clef__knobs knobs = with(0, gemm);
    cr_assert_eq(keep_for(ctx, depthwise(), "conv2d", &knobs), 1);
    cr_expect(strstr(plan_text(depthwise()), "gemm.cl") && !strstr(plan_text(depthwise()), "depthwise.cl"));
    cr_expect(is_tuned(depthwise()));
}

/* One file of cl/ with one more line break. */
static const char *changed_file;
static const char *changed(const char *file, const char *text) {
    static char other[1 << 18];
    if (strcmp(file, changed_file) != 0) return text;
    snprintf(other, sizeof other, "%s\n", text);
    return other;
}

Test(tune, results_are_about_the_text_of_their_kernels) {
    clef__knobs rows = with(CLEF__GEMM_ROWS, 2), strategy = with(0, 1);
    keep_for(ctx, product(), "gemm", &rows);
    keep_for(ctx, depthwise(), "conv2d", &strategy);
    static const struct {
        const char *file;
        bool product, strategy;
    } all[] = {{"", true, true}, {"gemm.cl", false, false}, {"pack.cl", false, false}, {"depthwise.cl", true, false}};
    clef__embedded_hook = changed;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        changed_file = all[i].file;
        reopen();
        cr_expect_eq(is_tuned(product()), all[i].product, "product, with %s changed", all[i].file);
        cr_expect_eq(is_tuned(depthwise()), all[i].strategy, "strategy, with %s changed", all[i].file);
    }
}

/* ---- measuring ---- */

typedef struct told {
    int calls, finished, stop_after;
} told;

static bool listen(void *user, const clef_tune_progress *p) {
    told *t = user;
    t->calls++;
    t->finished += p->finished;
    cr_expect(p->done <= p->total && p->seconds > 0 && p->default_seconds > 0 && p->spent > 0 && *p->benchmark);
    return t->stop_after == 0 || t->calls < t->stop_after;
}

static clef_status two_products(clef_context *c, void *user) {
    (void)c;
    (void)user;
    clef_status status = clef_eval(product());
    return status == CLEF_OK ? clef_eval(product_of(9, 10, 11)) : status;
}

static clef_status tune_products(clef_tune_options options, clef_tune_result *result) {
    options.work = two_products;
    return clef_tune(ctx, &options, result);
}

Test(tune, measures_and_keeps) {
    told heard = {0};
    clef_tune_result r;
    cr_assert_eq(tune_products((clef_tune_options){.on_progress = listen, .user = &heard, .budget = ample}, &r), CLEF_OK, "%s",
                 clef_error(ctx));
    cr_expect(r.benchmarks == 2 && r.tuned == 2 && r.known == 0 && r.wrong == 0 && r.improved <= 2 && r.seconds > 0);
    cr_expect(heard.finished == 2 && heard.calls > 4);
    for (int again = 0; again < 2; again++) {
        cr_assert_eq(tune_products((clef_tune_options){.budget = ample}, &r), CLEF_OK);
        cr_expect(r.benchmarks == 2 && r.tuned == 0 && r.known == 2);
        reopen();
    }
    cr_assert_eq(tune_products((clef_tune_options){.budget = ample, .again = true}, &r), CLEF_OK);
    cr_expect(r.tuned == 2 && r.known == 0);
}

/* Work, kept tensors and random numbers are as they were; nothing is left behind on the device. */
Test(tune, leaves_no_trace_but_results) {
    clef_tensor *x = clef_keep(clef_full(ctx, CLEF_SHAPE(4), CLEF_F32, 3));
    cr_assert_eq(clef_eval(x), CLEF_OK);
    clef_random_state random = clef_random_get(ctx);
    clef_memory_info before = clef_memory(ctx);
    clef_tune_result r;
    cr_assert_eq(tune_products((clef_tune_options){.budget = ample}, &r), CLEF_OK);
    cr_expect_eq(clef_random_get(ctx).offset, random.offset);
    cr_expect(clef_memory(ctx).buffers <= before.buffers + 1, "more than the arena is left");
    cr_expect_float_eq(clef_item(clef_sum(x, NULL, 0, false)), 12, 0);
}

/* Plans made before must not go on with the knobs of then. */
Test(tune, cached_plans_are_made_anew) {
    clef_tensor *x = clef_keep(clef_ones(ctx, CLEF_SHAPE(M, K), CLEF_F32));
    cr_assert_eq(clef_eval(x), CLEF_OK);
    for (int i = 0; i < 2; i++) cr_assert_eq(clef_eval(clef_matmul(x, clef_transpose(x, 0, 1))), CLEF_OK);
    uint64_t plans = clef_counters_get(ctx).plans, replays = clef_counters_get(ctx).replays;
    cr_assert(replays > 0);
    cr_assert_eq(tune_products((clef_tune_options){.budget = ample}, NULL), CLEF_OK);
    cr_assert_eq(clef_eval(clef_matmul(x, clef_transpose(x, 0, 1))), CLEF_OK);
    cr_expect_eq(clef_counters_get(ctx).plans, plans + 1);
    const char *file = io_path(dir, "exported");
    cr_assert_eq(clef_tune_export(ctx, file, NULL), CLEF_OK);
    cr_assert_eq(clef_tune_import(ctx, file, NULL), CLEF_OK);
    cr_assert_eq(clef_eval(clef_matmul(x, clef_transpose(x, 0, 1))), CLEF_OK);
    cr_expect_eq(clef_counters_get(ctx).plans, plans + 2);
}

/* Kernels whose number of vectors is so are broken here. */
static const char *broken_where;
static const char *broken(const char *file, const char *text) {
    static char other[1 << 18];
    static const char good[] = "c##i##_##j = FMA((V)(x), b##j, c##i##_##j);";
    const char *at = strcmp(file, "gemm.cl") == 0 ? strstr(text, good) : NULL;
    if (!at) return text;
    snprintf(other, sizeof other, "%.*sc##i##_##j = FMA((V)(x), b##j, c##i##_##j) + (S)(%s);%s", (int)(at - text), text,
             broken_where, at + strlen(good));
    return other;
}

static clef_status one_product(clef_context *c, void *user) {
    (void)c;
    (void)user;
    return clef_eval(product());
}

static void expect_right_product(void) {
    static float a[M * K], b[K * N], c[M * N];
    for (int i = 0; i < M * K; i++) a[i] = (float)(i % 7 - 3);
    for (int i = 0; i < K * N; i++) b[i] = (float)(i % 5 - 2);
    clef_tensor *y =
        clef_matmul(clef_from_host(ctx, CLEF_SHAPE(M, K), CLEF_F32, a), clef_from_host(ctx, CLEF_SHAPE(K, N), CLEF_F32, b));
    cr_assert_eq(clef_read(y, c, sizeof c), CLEF_OK, "%s", clef_error(ctx));
    for (int i = 0; i < M * N; i++) {
        float sum = 0;
        for (int k = 0; k < K; k++) sum += a[i / N * K + k] * b[k * N + i % N];
        cr_assert_eq(c[i], sum, "element %d: %g instead of %g", i, c[i], sum);
    }
}

/* The usual kernel has one vector or more, as lanes go, so it is among the broken ones in one of the two. */
static void tune_broken(const char *where) {
    broken_where = where;
    clef__embedded_hook = broken;
    reopen();
    cr_assert(clef__embedded("gemm.cl") && strstr(clef__embedded("gemm.cl"), where), "the kernel is another one by now");
    clef_tune_result r;
    cr_assert_eq(clef_tune(ctx, &(clef_tune_options){.work = one_product, .budget = ample}, &r), CLEF_OK, "%s", clef_error(ctx));
    cr_expect(r.benchmarks == 1 && r.tuned == 1 && r.wrong > 0, "%d benchmarks, %d tuned, %d wrong", r.benchmarks, r.tuned,
              r.wrong);
    cr_expect(strstr(warnings, "gives wrong numbers and is not used"), "%s", warnings);
    reopen();
    expect_right_product();
}

Test(tune, wrong_numbers_are_never_kept) { tune_broken("NV > 1"); }
Test(tune, nor_those_of_one_vector) { tune_broken("NV < 2"); }

/* Each op's definition on the host against its kernels, and against other inputs than theirs: then it must not agree. */
static void expect_defined(const clef__benchmark *benchmark) {
    clef__search s = {.ctx = ctx, .plans = clef__plans_of(ctx), .benchmark = benchmark, .deadline = clef__now() + 1000};
    cr_assert_eq(clef__search_begin(&s), CLEF_OK, "%s", clef_error(ctx));
    cr_expect(s.check.value->node->op->element && s.standard_right, "%s %s %s", benchmark->op->name, benchmark->key.bucket,
              warnings);
    for (int i = 0; i < benchmark->n_inputs; i++) {
        clef__free(s.check.right);
        s.check.right = NULL;
        signed char *block = s.check.input[i].block;
        for (int64_t j = 0; j < s.check.input[i].length; j++) block[j] = (signed char)-block[j];
        cr_expect_not(clef__check_value(&s.check), "%s: input %d", benchmark->op->name, i);
        for (int64_t j = 0; j < s.check.input[i].length; j++) block[j] = (signed char)-block[j];
    }
    clef__search_end(&s);
}

static int expect_all_defined(clef_tensor *t) {
    clef__benchmarks found = benchmarks_of(ctx, t);
    int n = found.n;
    for (int i = 0; i < n; i++) expect_defined(&found.benchmark[i]);
    clef__benchmark_free(&found);
    return n;
}

static clef_tensor *random_of(clef_shape shape, clef_dtype dtype) { return clef_to(clef_rand(ctx, shape), dtype); }

static void expect_gradients_defined(clef_tensor *y, clef_tensor *const *x, int n) {
    clef_tensor *dx[2];
    cr_assert_eq(clef_grad(clef_sum(clef_mul(y, clef_rand(ctx, clef_tensor_shape(y))), NULL, 0, false), CLEF_NONE, x, n, false, dx),
                 CLEF_OK, "%s", clef_error(ctx));
    for (int i = 0; i < n; i++) cr_expect_geq(expect_all_defined(dx[i]), 1);
}

Test(tune, definitions_agree_with_kernels) {
    clef_conv2d_options odd = {.stride = {2, 1}, .padding = {1, 2}, .dilation = {1, 2}, .groups = 2};
    clef_tensor *x = clef_require_grad(clef_keep(clef_rand(ctx, CLEF_SHAPE(2, 6, 9, 8))), true);
    clef_tensor *w = clef_require_grad(clef_keep(clef_rand(ctx, CLEF_SHAPE(8, 3, 3, 3))), true);
    cr_expect_geq(
        expect_all_defined(clef_matmul(random_of(CLEF_SHAPE(3, 1, 20, 17), CLEF_I32), random_of(CLEF_SHAPE(2, 17, 33), CLEF_I32))),
        1);
    clef_tensor *half = random_of(CLEF_SHAPE(20, 300), CLEF_F16);
    cr_expect_geq(
        expect_all_defined(clef_linear(half, random_of(CLEF_SHAPE(40, 300), CLEF_F16), random_of(CLEF_SHAPE(40), CLEF_F16))), 1);
    clef_tensor *y = clef_conv2d(x, w, CLEF_NONE, &odd);
    cr_expect_geq(expect_all_defined(y), 1);
    expect_gradients_defined(y, (clef_tensor *[]){x, w}, 2);
    expect_gradients_defined(clef_max_pool2d(x, 3, 2, NULL), &x, 1);
}

Test(tune, nothing_is_kept_where_nothing_is_right) {
    broken_where = "NV > 0";
    clef__embedded_hook = broken;
    reopen();
    clef_tune_result r;
    cr_assert_eq(clef_tune(ctx, &(clef_tune_options){.work = one_product, .budget = ample}, &r), CLEF_OK, "%s", clef_error(ctx));
    cr_expect(r.benchmarks == 1 && r.tuned == 0 && r.wrong > 1, "%d tuned, %d wrong", r.tuned, r.wrong);
    cr_expect(strstr(warnings, "no knobs were found that give right numbers"), "%s", warnings);
}

/* With hardly any time little is tried, and what is not made is not kept. */
Test(tune, the_budget_ends_it) {
    told heard = {0};
    clef_tune_result r;
    cr_assert_eq(tune_products((clef_tune_options){.on_progress = listen, .user = &heard, .budget = 1e-6}, &r), CLEF_OK);
    cr_expect(r.benchmarks == 2 && r.tuned == 0 && heard.calls == 0);
    cr_assert_eq(tune_products((clef_tune_options){.budget = ample}, &r), CLEF_OK);
    cr_expect_eq(r.tuned, 2);
}

Test(tune, progress_can_stop_it) {
    told heard = {.stop_after = 2};
    clef_tune_result r;
    cr_expect_eq(tune_products((clef_tune_options){.on_progress = listen, .user = &heard, .budget = ample}, &r), CLEF_INTERRUPTED);
    cr_expect_eq(heard.calls, 2);
    cr_expect_str_empty(clef_error(ctx));
    cr_expect_eq(clef_eval(product()), CLEF_OK);
}

static clef_status failing(clef_context *c, void *user) {
    (void)user;
    return clef_eval(clef_matmul(clef_rand(c, CLEF_SHAPE(2, 3)), clef_rand(c, CLEF_SHAPE(2, 3))));
}

Test(tune, refusals) {
    clef_tune_result r = {.benchmarks = 9};
    cr_expect_eq(clef_tune(NULL, NULL, &r), CLEF_INVALID);
    cr_expect_eq(r.benchmarks, 0);
    cr_expect_eq(clef_tune(ctx, NULL, NULL), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "no work");
    cr_expect_eq(tune_products((clef_tune_options){.budget = -1}, NULL), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "budget");
    clef_set_dry_run(ctx, true);
    cr_expect_eq(tune_products((clef_tune_options){.budget = 1}, NULL), CLEF_STATE);
    clef_set_dry_run(ctx, false);
    expect_error(ctx, CLEF_STATE, "dry run");
    cr_expect_neq(clef_tune(ctx, &(clef_tune_options){.work = failing}, NULL), CLEF_OK);
    expect_error(ctx, CLEF_SHAPE, "3 columns");
    clef_close(ctx);
    ctx = clef_open(&(clef_options){.cache_dir = dir, .no_tuning = true});
    cr_expect_eq(tune_products((clef_tune_options){.budget = 1}, NULL), CLEF_STATE);
    expect_error(ctx, CLEF_STATE, "switched off");
}
