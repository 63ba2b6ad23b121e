/* clef tune: wrong words, shapes from files, what it says, results carried from one cache to another.
   ctest: cost=20 plain */
#include "tools/tool_support.h"

static void write_file(const char *name, const char *text) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", workplace, name);
    FILE *f = fopen(path, "w");
    MUST(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

static const char products[] = "set,m,n,k,a_transposed,b_transposed\nx,9,20,30,0,0\nx,40,7,12,1,1\n";
static const char convolutions[] = "set,w,h,c,n,k,s,r,pad_w,pad_h,stride_w,stride_h\nx,7,6,3,2,4,3,3,1,1,1,1\n";

static void setup(void) {
    enter_workplace();
    write_file("gemm.csv", products);
    write_file("conv.csv", convolutions);
}
TestSuite(tune, .init = setup, .fini = leave_workplace);

/* Each command with a cache of its own, beside the files; library: CLEF_CLBLAST. */
static const said *tune_with(const char *library, const char *cache, const char *arguments) {
    char environment[256], all[1024];
    snprintf(environment, sizeof environment, "env -u CLEF_TUNING -u CLEF_CACHE CLEF_CLBLAST='%s' CLEF_CACHE_DIR='%s/%s'", library,
             workplace, cache);
    snprintf(all, sizeof all, "tune %s", arguments);
    return clef(environment, all);
}
static const said *tune(const char *cache, const char *arguments) { return tune_with("0", cache, arguments); }

static void refused(const char *arguments, int code, const char *says) {
    const said *s = tune("cache", arguments);
    cr_expect_eq(s->code, code, "clef tune %s: exit code %d, %s", arguments, s->code, s->err);
    cr_expect_eq(lines(s->err), 1, "clef tune %s: %s", arguments, s->err);
    cr_expect(strstr(s->err, says), "clef tune %s: %s", arguments, s->err);
    cr_expect_str_eq(s->out, "", "clef tune %s", arguments);
}

Test(tune, wrong_words) {
    refused("--budget 0", 2, "--budget wants a number above 0");
    refused("--budget soon", 2, "--budget wants a number");
    refused("--model vgg", 2, "mlp|lenet|cnn|resnet18");
    refused("--model lenet --shapes gemm.csv", 2, "two workloads");
    refused("--shapes gemm.csv --batch 3", 2, "--batch belong to --model");
    refused("--data faces", 2, "digits|mnist|cifar10");
    refused("now", 2, "surplus word");
    refused("--quiet --import none.jsonl", 1, "none.jsonl cannot be read");
    refused("--quiet --export /dev/null/none", 1, "cannot be written");
}

Test(tune, files_of_no_shapes) {
    refused("--shapes none.csv", 2, "cannot read none.csv");
    static const struct {
        const char *text, *says;
    } bad[] = {{"", "first line must be"},
               {"m,n,k\n1,2,3\n", "first line must be"},
               {"set,m,n,k,a_transposed,b_transposed\n", "there are no shapes"},
               {"set,m,n,k,a_transposed,b_transposed\nx,1,2,3,0,0\nx,1,2,0,0,0\n", "line 3 is no shape"},
               {"set,m,n,k,a_transposed,b_transposed\nx,1,2,3,0,2\n", "line 2 is no shape"},
               {"set,m,n,k,a_transposed,b_transposed\nx,1,2,3,0\n", "line 2 is no shape"},
               {"set,m,n,k,a_transposed,b_transposed\nx,1,2,3,0,0,0\n", "line 2 is no shape"},
               {"set,m,n,k,a_transposed,b_transposed\nx,1,2,99999999999999999999,0,0\n", "line 2 is no shape"},
               {"set,m,n,k,a_transposed,b_transposed\nx,-1,2,3,0,0\n", "line 2 is no shape"},
               {"set,w,h,c,n,k,s,r,pad_w,pad_h,stride_w,stride_h\nx,2,6,3,2,4,3,3,0,1,1,1\n", "line 2 is no shape"},
               {"set,w,h,c,n,k,s,r,pad_w,pad_h,stride_w,stride_h\nx,7,6,3,2,4,3,3,1,1,0,1\n", "line 2 is no shape"}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        write_file("bad.csv", bad[i].text);
        refused("--shapes bad.csv", 2, bad[i].says);
    }
}

Test(tune, switched_off) {
    const said *s = clef("CLEF_TUNING=0", "tune --quiet --shapes gemm.csv");
    cr_expect_eq(s->code, 1);
    cr_expect(strstr(s->err, "switched off"), "%s", s->err);
}

Test(tune, products_and_what_is_known) {
    const said *s = tune("cache", "--shapes gemm.csv --budget 100 --json");
    cr_assert_eq(s->code, 0, "%s", s->err);
    cr_expect_eq(number_of(s->out, "benchmarks"), 2);
    cr_expect_eq(number_of(s->out, "tuned"), 2);
    cr_expect_eq(number_of(s->out, "left"), 0);
    cr_expect_eq(number_of(s->out, "wrong"), 0);
    cr_expect_eq(lines(s->out), 3, "%s", s->out);
    cr_expect(strstr(s->out, "\"event\":\"benchmark\",\"benchmark\":\"gemm f32 "), "%s", s->out);
    cr_expect_eq(lines(s->err), 1, "no more than what is tuned for, where nobody looks: %s", s->err);
    s = tune("cache", "--shapes gemm.csv --budget 100 --json --quiet");
    cr_expect(number_of(s->out, "known") == 2 && number_of(s->out, "tuned") == 0, "%s", s->out);
    cr_expect_str_eq(s->err, "");
    s = tune("cache", "--shapes gemm.csv --budget 100 --again");
    cr_expect(strstr(s->out, "2 benchmarks: 2 measured"), "%s", s->out);
}

/* Results in TF32 are known where it is asked for alone; on matrix units that local memory stands in for. */
Test(tune, products_in_tf32) {
    char environment[256], results[8192];
    snprintf(environment, sizeof environment,
             "env -u CLEF_TUNING -u CLEF_CACHE CLEF_CLBLAST=0 CLEF_MATRIX=emulated CLEF_PROFILE=gpu CLEF_CACHE_DIR='%s/cache'",
             workplace);
    write_file("one.csv", "set,m,n,k,a_transposed,b_transposed\nx,40,24,20,0,0\n");
    const said *s = clef(environment, "tune --quiet --shapes one.csv --budget 100 --json --matmul-precision high");
    cr_assert_eq(s->code, 0, "%s", s->err);
    cr_expect(number_of(s->out, "tuned") == 1 && number_of(s->out, "wrong") == 0, "%s", s->out);
    s = clef(environment, "tune --quiet --export results.jsonl");
    slurp("results.jsonl", results, sizeof results);
    cr_expect(lines(results) == 1 && strstr(results, "\"family\":\"tf32\""), "%s", results);
    s = clef(environment, "tune --quiet --shapes one.csv --budget 0.001 --json --matmul-precision high");
    cr_expect(number_of(s->out, "known") == 1 && number_of(s->out, "left") == 0, "%s", s->out);
    s = clef(environment, "tune --quiet --shapes one.csv --budget 0.001 --json");
    cr_expect(number_of(s->out, "known") == 0 && number_of(s->out, "left") == 1, "%s", s->out);
}

Test(tune, convolutions_with_their_gradients) {
    const said *s = tune("cache", "--shapes conv.csv --budget 100 --json");
    cr_assert_eq(s->code, 0, "%s", s->err);
    cr_expect_geq(number_of(s->out, "benchmarks"), 3);
    cr_expect_eq(number_of(s->out, "tuned"), number_of(s->out, "benchmarks"));
}

Test(tune, a_model) {
    const said *s = tune("cache", "--model mlp --batch 5 --budget 0.001 --json");
    cr_assert_eq(s->code, 0, "%s", s->err);
    cr_expect_geq(number_of(s->out, "benchmarks"), 5, "three layers, forward and backward");
    cr_expect_eq(number_of(s->out, "tuned"), 0);
    cr_expect_eq(number_of(s->out, "left"), number_of(s->out, "benchmarks"));
}

Test(tune, results_move_to_another_cache) {
    cr_assert_eq(tune("one", "--quiet --shapes gemm.csv --budget 100 --export results.jsonl")->code, 0);
    const said *s = tune("two", "--quiet --import results.jsonl --json");
    cr_expect_eq(s->code, 0);
    cr_expect_eq(number_of(s->out, "results"), 2);
    cr_expect_eq(lines(s->out), 1, "nothing is measured: %s", s->out);
    s = tune("two", "--quiet --shapes gemm.csv --json");
    cr_expect(number_of(s->out, "known") == 2 && number_of(s->out, "tuned") == 0, "%s", s->out);
    s = tune("three", "--import results.jsonl --export again.jsonl");
    cr_expect(strstr(s->out, "2 results read from results.jsonl") && strstr(s->out, "2 results written to again.jsonl"), "%s",
              s->out);
    char one[8192], two[8192];
    slurp("results.jsonl", one, sizeof one);
    slurp("again.jsonl", two, sizeof two);
    cr_expect_str_eq(one, two);
}

/* The budget is one in which it is tried on any device; so few products end long before. */
Test(tune, a_library_that_cannot_be_loaded) {
    const said *s = tune_with("/none.so", "cache", "--shapes gemm.csv --budget 200 --json");
    cr_expect(s->code == 0 && number_of(s->out, "tuned") == 2 && number_of(s->out, "wrong") == 0, "%s", s->out);
    cr_expect(lines(s->err) == 2 && strstr(s->err, "CLBlast is not among what is tried: /none.so"), "%s", s->err);
    cr_expect(strstr(s->out, "\"no_library\":\"/none.so"), "%s", s->out);
    s = tune_with("./gemm.csv", "cache", "--shapes gemm.csv --budget 200 --again");
    cr_expect(s->code == 0 && lines(s->err) == 2 && strstr(s->err, "CLBlast is not among what is tried: ./gemm.csv"), "%s", s->err);
    s = tune_with("./gemm.csv", "cache", "--shapes gemm.csv --budget 200 --again --quiet");
    cr_expect(s->code == 0 && lines(s->err) == 0, "%s", s->err);
    s = tune_with("./gemm.csv", "cache", "--shapes gemm.csv --budget 20 --again");
    cr_expect(s->code == 0 && lines(s->err) == 1, "with so little time it is not wanted: %s", s->err);
}

Test(tune, a_library_is_a_candidate) {
    const said *s = tune_with("", "cache", "--shapes gemm.csv --budget 200");
    cr_expect(s->code == 0 && strstr(s->out, "2 benchmarks: 2 measured") && !strstr(s->err, "wrong"), "%s%s", s->out, s->err);
    if (strstr(s->err, "CLBlast is not among")) cr_skip_test("no CLBlast (Debian: libclblast1)");
}
