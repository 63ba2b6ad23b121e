/* clef bench: what it measures, the three forms of its results, comparing them, and files that somebody damaged.
   ctest: cost=20 plain */
#include "tools/tool_support.h"
#include <math.h>
#include <stdarg.h>

TestSuite(bench, .init = enter_workplace, .fini = leave_workplace);

#define START "{\"event\":\"start\",\"schema\":1,\"version\":\"0.1.0\",\"device\":\"%s\",\"driver\":\"3.1\",\"compute_units\":2}\n"
#define COPY                                                                     \
    "{\"event\":\"result\",\"suite\":\"copy\",\"name\":\"copy\",\"shape\":\"64 " \
    "MiB\",\"seconds\":0.01,\"rate\":10,\"unit\":\"GB/s\","                      \
    "\"flops\":1e7,\"bytes\":1e8}\n"
#define FMA                                                                                                                 \
    "{\"event\":\"result\",\"suite\":\"fma\",\"name\":\"fma\",\"shape\":\"chains\",\"seconds\":0.01,\"rate\":100,\"unit\":" \
    "\"GFLOP/s\","                                                                                                          \
    "\"flops\":1e9,\"bytes\":1e7}\n"
/* Of 2 FLOP per byte: bandwidth allows 20 GFLOP/s. */
#define GEMM                                                                                                                     \
    "{\"event\":\"result\",\"suite\":\"gemm\",\"name\":\"matmul\",\"shape\":\"%s\",\"seconds\":%g,\"rate\":%g,\"unit\":\"GFLOP/" \
    "s\","                                                                                                                       \
    "\"flops\":2e8,\"bytes\":1e8}\n"

static void put(const char *name, const char *mode, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void put(const char *name, const char *mode, const char *format, ...) {
    char path[128];
    va_list arguments;
    snprintf(path, sizeof path, "%s/%s", workplace, name);
    FILE *file = fopen(path, mode);
    cr_assert(file);
    va_start(arguments, format);
    vfprintf(file, format, arguments);
    va_end(arguments);
    cr_assert_eq(fclose(file), 0);
}

/* Device "one" does the first product in 20 ms, device "two" both, the first in 10 ms. */
static void put_two_runs(void) {
    put("a.json", "w", START COPY FMA GEMM, "one", "8 x 8", 0.02, 10.0);
    put("b.json", "w", START COPY FMA GEMM GEMM, "two", "8 x 8", 0.01, 20.0, "9 x 9", 0.01, 20.0);
}

static const char *page(const char *name) {
    static char text[1 << 19];
    slurp(name, text, sizeof text);
    return text;
}

static int times(const char *text, const char *part) {
    int n = 0;
    for (; (text = strstr(text, part)); text++) n++;
    return n;
}

/* ---- well-formed? ---- */
/* Every tag is closed by its like; text has no bare '<' and no '&' but of the five entities. */
static void is_well_formed(const char *text) {
    static char open[64][16];
    int depth = 0;
    cr_assert(!strncmp(text, "<!DOCTYPE html>", 15));
    for (const char *p = text + 15; *p; p++) {
        if (*p == '&')
            cr_assert(!strncmp(p, "&lt;", 4) || !strncmp(p, "&gt;", 4) || !strncmp(p, "&amp;", 5) || !strncmp(p, "&quot;", 6),
                      "%.40s", p);
        cr_assert((unsigned char)*p >= 0x20 || *p == '\n' || *p == '\t');
        if (*p != '<') continue;
        bool closes = p[1] == '/';
        const char *name = p + 1 + closes, *end = strchr(p, '>');
        size_t length = strcspn(name, " />");
        cr_assert(end && length > 0 && length < sizeof open[0], "%.40s", p);
        if (closes) {
            cr_assert(depth > 0 && strlen(open[depth - 1]) == length && !strncmp(open[depth - 1], name, length), "%.40s", p);
            depth--;
        } else if (end[-1] != '/') {
            cr_assert(depth < 64);
            snprintf(open[depth++], sizeof open[0], "%.*s", (int)length, name);
        }
        p = end;
    }
    cr_assert_eq(depth, 0);
}

/* Once more by a strict reader, where one is installed, which also knows about UTF-8. */
static void is_strictly_well_formed(const char *name) {
    char command[256];
    is_well_formed(page(name));
    if (system("python3 -c 'import xml.etree' 2>/dev/null")) {
        fprintf(stderr, "skipped: no python3 to read the page strictly\n");
        return;
    }
    snprintf(command, sizeof command, "cd '%s' && python3 -c 'import xml.etree.ElementTree as e; e.parse(\"%s\")'", workplace,
             name);
    cr_assert_eq(system(command), 0);
}

/* ---- a small CSV reader: the n-th field of the line at *p, which moves on ---- */
enum { FIELDS = 15 };
typedef struct row {
    char field[FIELDS][128];
} row;

static row next_row(const char **p) {
    row r = {0};
    for (int i = 0; i < FIELDS; i++) {
        char *to = r.field[i], *end = to + sizeof r.field[i] - 1;
        bool quoted = **p == '"';
        if (quoted) ++*p;
        for (; **p && (quoted || !strchr(",\n", **p)); ++*p) {
            if (quoted && **p == '"' && *++*p != '"') break;
            if (to < end) *to++ = **p;
        }
        cr_assert_eq(**p, i + 1 < FIELDS ? ',' : '\n', "field %d ends with %.20s", i, *p);
        ++*p;
    }
    return r;
}

/* ---- measuring ---- */
Test(bench, the_same_figures_as_json_csv_and_page) {
    const said *s = clef("", "bench sum --seconds 0.001 --json --quiet --label 'A, \"b\" <i>&' --csv out.csv --html out.html");
    cr_assert_eq(s->code, 0, "%s", s->err);
    cr_assert_str_eq(s->err, "");
    cr_assert_eq(lines(s->out), 5, "a start, copy, fma and two sums: %s", s->out);
    cr_assert(!strncmp(s->out, "{\"event\":\"start\",\"schema\":1,", 28) && strstr(s->out, "\"label\":\"A, \\\"b\\\" <i>&\""), "%s",
              s->out);
    const char *csv = page("out.csv"), *line = strchr(s->out, '\n');
    row head = next_row(&csv);
    cr_assert_str_eq(head.field[8], "seconds");
    for (int i = 0; i < 4; i++, line = strchr(line, '\n')) {
        static const char *const keys[] = {"rate", "seconds", "spread", "flops", "real_flops", "bytes", "intensity", "roofline"};
        char one[1024];
        row r = next_row(&csv);
        cr_assert_str_eq(r.field[0], "A, \"b\" <i>&");
        snprintf(one, sizeof one, "%.*s", (int)strcspn(line + 1, "\n"), line + 1);
        line++;
        cr_assert(strstr(one, r.field[4]) && strstr(one, r.field[5]), "%s: %s", r.field[4], one);
        for (int k = 0; k < 8; k++) cr_assert_eq(number_of(one, keys[k]), strtod(r.field[7 + k], NULL), "%s: %s", keys[k], one);
        cr_assert(number_of(one, "seconds") > 0 && number_of(one, "flops") > 0 && number_of(one, "roofline") > 0, "%s", one);
        double bytes = number_of(one, "bytes"), rate = number_of(one, "rate") * number_of(one, "seconds") * 1e9;
        cr_assert(i == 1 || fabs(rate / bytes - 1) < 1e-6, "bytes over seconds: %s", one);
    }
    cr_assert_str_eq(csv, "");
    is_strictly_well_formed("out.html");
    cr_assert_eq(times(page("out.html"), "class=\"point\""), 4);
    cr_assert(strstr(page("out.html"), "A, &quot;b&quot; &lt;i&gt;&amp;") && !strstr(page("out.html"), "<i>"));
}

Test(bench, suites_and_names_are_picked) {
    const said *s = clef("", "bench copy --seconds 0.001 --json");
    cr_assert_eq(s->code, 0, "%s", s->err);
    cr_assert(lines(s->out) == 2 && strstr(s->out, "\"roofline\":null"), "copy alone: %s", s->out);
    s = clef("", "bench add fma --seconds 0.001 --quiet");
    cr_assert_eq(s->code, 0, "%s", s->err);
    cr_assert(lines(s->out) == 3 && strstr(s->out, "GFLOP/s") && strstr(s->out, "add ") && strstr(s->out, " %\n"), "%s", s->out);
}

/* FLOPs of one step as a dry run counts them: forward, and twice as much backward but for the first layer's input. */
Test(bench, a_training_step_knows_its_work) {
    const said *s = clef("", "bench train --seconds 0.001 --json --quiet");
    cr_assert_eq(s->code, 0, "%s", s->err);
    cr_assert_eq(times(s->out, "\"unit\":\"images/s\""), 3, "%s", s->out);
    const char *mlp = strstr(s->out, "\"shape\":\"MLP, 100 images a step\"");
    cr_assert(mlp, "%s", s->out);
    double forward = 2.0 * 100 * (784 * 256 + 256 * 128 + 128 * 10), first = 2.0 * 100 * 784 * 256;
    char one[1024];
    snprintf(one, sizeof one, "%.*s", (int)strcspn(mlp, "\n"), mlp);
    cr_assert_float_eq(number_of(one, "flops"), 3 * forward - first, 0.05 * forward, "%s", one);
    cr_assert_float_eq(number_of(one, "rate") * number_of(one, "seconds"), 100, 1e-4, "%s", one);
}

/* The line of the first result of this name. */
static const char *result_of(const said *s, const char *name) {
    static char line[1024];
    char wanted[64];
    snprintf(wanted, sizeof wanted, "\"name\":\"%s\"", name);
    const char *at = strstr(s->out, wanted), *begin = at;
    cr_assert(at, "no %s: %s", name, s->out);
    while (begin > s->out && begin[-1] != '\n') begin--;
    snprintf(line, sizeof line, "%.*s", (int)strcspn(begin, "\n"), begin);
    return line;
}

/* Two products forward, five more backward, half of each where half is masked; a layer's products; a step's and a token's own. */
Test(bench, sequences_know_their_work) {
    const said *s = clef("", "bench attention rnn lm --seconds 0.001 --json --quiet");
    cr_assert_eq(s->code, 0, "%s", s->err);
    cr_assert_eq(lines(s->out), 3 + 7 + 4 + 2, "%s", s->out);
    double head = 2.0 * 8 * 8 * 64 * 64 * 64, layer = 2.0 * 25 * 16 * 512 * (512 + 512);
    cr_expect_eq(number_of(result_of(s, "attention"), "flops"), 2 * head / 2);
    cr_expect_eq(number_of(result_of(s, "attention_gradient"), "flops"), 7 * head / 2);
    cr_expect_eq(number_of(result_of(s, "attention_gradient"), "bytes"), 7 * 4.0 * 8 * 8 * 64 * 64);
    cr_expect_eq(number_of(result_of(s, "lstm"), "flops"), 4 * layer);
    cr_expect_eq(number_of(result_of(s, "gru_gradient"), "flops"), 3 * 3 * layer);
    const char *step = result_of(s, "gpt_step");
    double weights = 4 * 12.0 * 128 * 128 + 65 * 128, tokens = 12 * 64;
    cr_expect_float_eq(number_of(step, "flops"), 6 * weights * tokens, 0.25 * 6 * weights * tokens, "%s", step);
    cr_expect_float_eq(number_of(step, "rate") * number_of(step, "seconds"), tokens, 1e-3, "%s", step);
    const char *token = result_of(s, "gpt_token");
    cr_expect_eq(number_of(token, "bytes"), 4 * (12.0 * 8 * 512 * 512 + 512 * 8192), "%s", token);
    cr_expect_float_eq(number_of(token, "rate") * number_of(token, "seconds"), 1, 1e-5, "%s", token);
}

/* Two ranks on one device: the training step on one and on both, then four operations of five sizes. */
Test(bench, ranks_together) {
    static const char *const collective[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast"};
    const said *s = clef("", "bench parallel --devices 0,0 --seconds 0.001 --json --quiet --html page.html --csv out.csv");
    cr_assert_eq(s->code, 0, "%s", s->err);
    cr_assert_str_eq(s->err, "");
    cr_assert_eq(lines(s->out), 1 + 2 + 4 * 5, "%s", s->out);
    cr_assert_eq(times(s->out, "\"suite\":\"scaling\""), 2, "%s", s->out);
    cr_assert(strstr(s->out, "\"shape\":\"1 ranks, batch 64\"") && strstr(s->out, "\"shape\":\"2 ranks, batch 64\""), "%s", s->out);
    for (int c = 0; c < 4; c++) {
        char suite[40], one[1024];
        snprintf(suite, sizeof suite, "\"suite\":\"%s\"", collective[c]);
        cr_assert_eq(times(s->out, suite), 5, "%s: %s", suite, s->out);
        const char *line = strstr(s->out, suite);
        for (double bytes = 1024; bytes <= 1 << 26; bytes *= 16, line = strstr(line + 1, suite)) {
            snprintf(one, sizeof one, "%.*s", (int)strcspn(line, "\n"), line);
            cr_assert_eq(number_of(one, "bytes"), bytes, "%s", one);
            cr_assert_float_eq(1e9 * number_of(one, "rate") * number_of(one, "seconds") / bytes, 1, 1e-6, "%s", one);
        }
    }
    is_strictly_well_formed("page.html");
    cr_assert_eq(times(page("page.html"), "<svg viewBox=\"0 0 380"), 5, "a curve for each operation, and for the step");
    cr_assert_eq(times(page("page.html"), "<circle class=\"sign\""), 22);
    cr_assert(!strstr(page("page.html"), "Rooflines"));
    cr_assert_eq(lines(page("out.csv")), 23);
    put("a.json", "w", "%s", s->out);
    s = clef("", "bench --compare a.json a.json --html two.html --quiet");
    cr_assert_eq(s->code, 0, "%s", s->err);
    is_strictly_well_formed("two.html");
    cr_assert_eq(times(page("two.html"), "<circle class=\"sign\""), 44);
}

/* ---- comparing ---- */
Test(bench, two_runs_side_by_side) {
    put_two_runs();
    const said *s = clef("", "bench --compare a.json b.json --html ab.html --csv ab.csv");
    cr_assert_eq(s->code, 0, "%s", s->err);
    cr_assert_str_eq(s->err, "");
    cr_assert(strstr(s->out, "A  one\n") && strstr(s->out, "B  two\n"), "%s", s->out);
    const char *product = strstr(s->out, "8 x 8");
    cr_assert(product && strstr(product, "10.0       20.0    2.00x\n"), "%s", s->out);
    cr_assert_eq(lines(page("ab.csv")), 1 + 3 + 4);
    cr_assert(
        strstr(page("ab.csv"),
               "\"two\",\"two\",\"3.1\",\"gemm\",\"matmul\",\"8 x 8\",\"GFLOP/s\",20,0.01,0,200000000,200000000,100000000,2,1\n"),
        "%s", page("ab.csv"));
    is_strictly_well_formed("ab.html");
    const char *html = page("ab.html");
    cr_assert_eq(times(html, "class=\"point\""), 3 + 4, "every measurement is on a roofline");
    cr_assert_eq(times(html, "class=\"bar\""), 2 * 4, "a bar for each series in each group");
    cr_assert_eq(times(html, "class=\"roof\""), 2, "a roofline for each series");
    cr_assert_eq(times(html, ">not measured<"), 1);
    cr_assert_eq(times(html, "<title>one: matmul 8 x 8\n10.0 GFLOP/s, 20 ms"), 2, "on the roofline and at the bar");
    cr_assert_eq(times(html, "50 % of the roofline</title>"), 2);
    cr_assert(strstr(html, "2.00\xc3\x97"));
}

Test(bench, the_page_stands_alone) {
    put_two_runs();
    cr_assert_eq(clef("", "bench --compare a.json b.json --html ab.html")->code, 0);
    const char *html = page("ab.html");
    static const char *const foreign[] = {"<script", "<link", "<img", "src=", "href=", "url(", "@import", "https://"};
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) cr_expect(!strstr(html, foreign[i]), "%s", foreign[i]);
    cr_expect_eq(times(html, "http://"), 1, "only the name of the language");
    cr_expect(strstr(html, "prefers-color-scheme:dark") && strstr(html, "name=\"viewport\""));
}

/* What --compare --json prints is a result file itself. */
Test(bench, merged_results_can_be_read_again) {
    put_two_runs();
    static char merged[sizeof((said *)0)->out];
    const said *s = clef("", "bench --compare a.json b.json --json");
    cr_assert_eq(s->code, 0, "%s", s->err);
    cr_assert_eq(lines(s->out), 2 + 3 + 4);
    strcpy(merged, s->out);
    put("m.json", "w", "%s", merged);
    s = clef("", "bench --compare m.json --json");
    cr_assert_str_eq(s->out, merged, "%s", s->err);
}

Test(bench, runs_of_one_name_are_told_apart) {
    put("a.json", "w", START COPY, "one");
    put("b.json", "w", START COPY START COPY, "one", "one");
    const said *s = clef("", "bench --compare a.json b.json");
    cr_assert(strstr(s->out, "A  one (a.json)\n") && strstr(s->out, "B  one (b.json)\n") && strstr(s->out, "C  one (b.json) #3\n"),
              "%s", s->out);
}

/* ---- what is refused: one line, and nothing is written ---- */
static void refused(const char *arguments, int code, const char *says) {
    const said *s = clef("", arguments);
    cr_expect_eq(s->code, code, "clef %s: exit code %d, %s", arguments, s->code, s->err);
    cr_expect_eq(lines(s->err), 1, "clef %s: %s", arguments, s->err);
    cr_expect(strstr(s->err, says), "clef %s: %s", arguments, s->err);
    cr_expect_str_eq(s->out, "", "clef %s", arguments);
}

static void refused_file(const char *text, const char *says) {
    put("bad.json", "w", "%s", text);
    refused("bench --compare bad.json --html bad.html", 1, says);
    cr_expect_str_eq(page("bad.html"), "", "%s", text);
}

Test(bench, wrong_words) {
    refused("bench dance", 2, "copy|fma|gemm");
    refused("bench copy a.json", 2, "need --compare");
    refused("bench ''", 2, "empty word");
    refused("bench --compare", 2, "--compare wants files");
    refused("bench --compare a.json --label x", 2, "--label");
    refused("bench --compare a.json --resnet18", 2, "--resnet18");
    refused("bench parallel copy", 2, "parallel is measured by itself");
    refused("bench copy parallel", 2, "parallel is measured by itself");
    refused("bench copy --devices 0,0", 2, "--devices and --mpi belong to clef bench parallel");
    refused("bench parallel --devices 0,0 --device 0", 2, "give one of them");
    refused("bench parallel --devices 0,99", 2, "99");
    refused("bench --seconds soon", 2, "--seconds wants");
    refused("bench --html /dev/null/none/page", 1, "--html: cannot write /dev/null/none/page");
    refused("bench --csv .", 1, "--csv: cannot write .");
    refused("cache show verify", 2, "surplus word");
}

Test(bench, files_that_are_no_results) {
    refused("bench --compare none.json", 1, "none.json: No such file");
    refused("bench --compare .", 1, "directory");
    refused_file("", "no results");
    refused_file("\n\n", "no results");
    refused_file("{\"event\":\"start\",\"version\":\"0.1.0\",\"data\":\"digits\"}\n", "line 1: the start of something else");
    refused_file("{\"event\":\"start\",\"schema\":2,\"device\":\"x\"}\n" COPY,
                 "line 1: a result of schema 2; this clef reads schema 1");
    refused_file("{\"event\":\"start\",\"schema\":1,\"device\":\"x\"}\n", "a run without results");
    refused_file(COPY, "line 1: a result before any start");
    refused_file("suite,name\n", "line 1: not a JSON object");
    refused_file("{\"event\":\"start\",\"schema\":1}\n{\"event\":\"result\",\"suite\":\"copy\"", "line 2: not a JSON object");
    refused_file("{\"event\":\"start\",\"schema\":1}\n{\"event\":\"result\",\"suite\":\"s\",\"seconds\":1,\"rate\":1}\n",
                 "line 2: a result without");
    refused_file(
        "{\"event\":\"start\",\"schema\":1}\n{\"event\":\"result\",\"suite\":\"s\",\"name\":\"n\",\"seconds\":-1,\"rate\":1}\n",
        "line 2: a result whose");
    refused_file(
        "{\"event\":\"start\",\"schema\":1}\n{\"event\":\"result\",\"suite\":\"s\",\"name\":\"n\",\"seconds\":null,\"rate\":1}\n",
        "line 2: a result whose");
    put("a.json", "w", START COPY, "one");
    refused("bench --compare a.json a.json a.json a.json a.json a.json a.json a.json a.json", 1, "one series too many");
}

Test(bench, lines_that_are_no_json) {
    static const char *const bad[] = {"{",
                                      "{}}",
                                      "[]",
                                      "{\"a\"}",
                                      "{\"a\":}",
                                      "{\"a\":1,}",
                                      "{\"a\":01x}",
                                      "{\"a\":+1}",
                                      "{\"a\":inf}",
                                      "{\"a\":0x10}",
                                      "{\"a\":\"\\q\"}",
                                      "{\"a\":\"\\u12g4\"}",
                                      "{\"a\":\"b}",
                                      "{\"a\":[1,2}",
                                      "{\"a\":{\"b\":1]}",
                                      "{a:1}",
                                      "{\"a\":tru}"};
    static const char *const good[] = {"{}", " { \"a\" : [ 1 , { \"b\" : [ ] } , -2.5e-3 ] } ",
                                       "{\"a\":\"\\u00e4\\ud83d\\ude00\\ud800\\n\\/\",\"b\":true,\"c\":null}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) refused_file(bad[i], "line 1: not a JSON object");
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) refused_file(good[i], "no results");
    static char deep[100001];
    memset(deep, '[', sizeof deep - 1);
    put("bad.json", "w", "{\"a\":%s\n", deep);
    refused("bench --compare bad.json", 1, "line 1: not a JSON object");
}

/* Text of any kind ends up as text; numbers of any size leave the pictures drawable. */
Test(bench, hostile_results_make_a_sound_page) {
    put("a.json", "w", START COPY FMA,
        "</title><script>alert(1)</script>\\u0001\\u0000 \xff\xc0\xaf \xed\xa0\x80 \xf4\x90\x80\x80 \\ud800 \\\"&amp;");
    put("a.json", "a", GEMM GEMM, "<b>\\u0007", 1e300, 1e-300, "]]>", 1e-300, 1e300);
    put("a.json", "a",
        "{\"event\":\"result\",\"suite\":\"x\",\"name\":\"y\",\"unit\":\"<z>\",\"seconds\":1,\"rate\":1,\"flops\":-1,\"bytes\":"
        "null,\"more\":[{}]}\n");
    put("a.json", "a", "{\"event\":\"later\",\"schema\":7}\n");
    const said *s = clef("", "bench --compare a.json --html a.html --csv a.csv");
    cr_assert_eq(s->code, 0, "%s", s->err);
    is_strictly_well_formed("a.html");
    cr_assert(!strstr(page("a.html"), "<script") && strstr(page("a.html"), "&lt;script&gt;"));
    cr_assert(!strstr(page("a.html"), "nan") && !strstr(page("a.html"), "inf"));
    cr_assert_eq(times(page("a.html"), "class=\"point\""), 4, "what has no counts has no place on the roofline");
}

Test(bench, escaped_characters_are_read) {
    put("a.json", "w", START COPY, "Gr\\u00e4t \\u20ac \\ud83d\\ude00");
    const said *s = clef("", "bench --compare a.json");
    cr_assert(strstr(s->out, "Gr\xc3\xa4t \xe2\x82\xac \xf0\x9f\x98\x80"), "%s%s", s->out, s->err);
}

Test(bench, what_lies_above_the_roof_is_marked) {
    put("a.json", "w", START COPY FMA GEMM GEMM, "one", "8 x 8", 0.005, 40.0, "9 x 9", 0.01, 20.0); /* bandwidth allows 0.01 s */
    const said *s = clef("", "bench --compare a.json --html page.html");
    cr_assert_eq(s->code, 0, "%s", s->err);
    cr_assert_eq(times(page("page.html"), "200 % (above)"), 1);
    cr_assert(!strstr(s->out, "of the FLOPs"));
    cr_assert_eq(times(page("page.html"), "100 % (above)"), 0); /* on the line */
    cr_assert(strstr(page("page.html"), "Winograd"));
}

/* 400 GFLOP/s of effective work under a peak of 100: the method does a fifth of it, at 80. */
Test(bench, effective_and_real_flops_are_apart) {
    put("a.json", "w",
        START COPY FMA "{\"event\":\"result\",\"suite\":\"conv\",\"name\":\"conv2d\",\"shape\":\"3 x 3\",\"seconds\":0.01,"
                       "\"rate\":400,\"unit\":\"GFLOP/s\",\"flops\":4e9,\"real_flops\":8e8,\"bytes\":1e6}\n",
        "one");
    const said *s = clef("", "bench --compare a.json --html page.html --csv table.csv");
    cr_assert_eq(s->code, 0, "%s", s->err);
    cr_assert(strstr(page("page.html"), "80 %") && !strstr(page("page.html"), "(above)<"));
    cr_assert(strstr(page("page.html"), "20 % of the FLOPs as defined"));
    cr_assert(strstr(page("table.csv"), ",400,0.01,0,4e+09,800000000,1000000,800,0.8"), "%s", page("table.csv"));
}

/* The roof is what the maker publishes: 2 · 128 multiply-adds of 132 units at 1.83 GHz, and 3350 GB/s. */
Test(bench, a_gpu_that_is_not_here_is_predicted) {
    const said *s = clef("", "bench --predict h100 gemm train");
    cr_assert_eq(s->code, 0, "%s", s->err);
    cr_assert(strstr(s->out, " 61839.4 GFLOP/s") && strstr(s->out, " 3350.0 GB/s"), "%s", s->out);
    cr_assert(strstr(s->out, "4096 x 4096 x 4096, f16") && strstr(s->out, "% of the matrix units"), "%s", s->out);
    cr_assert(strstr(s->out, "ResNet-18") && strstr(s->out, "8 texts of 512 a step"), "%s", s->out);
    s = clef("", "bench --predict \"NVIDIA A100-SXM4-80GB\" matmul --json >a.json; cat a.json");
    cr_assert(strstr(s->out, "\"driver\":\"predicted\"") && strstr(s->out, "\"label\":\"a100, predicted\""), "%s", s->out);
    put("b.json", "w", START COPY FMA GEMM, "one", "256 x 256 x 256", 0.02, 10.0);
    s = clef("", "bench --compare a.json b.json");
    cr_assert(strstr(s->out, "a100, predicted") && strstr(s->out, "4096 x 4096 x 4096"), "%s", s->out);
}

/* Seconds of the product of this name. */
static double predicted_seconds(const said *s, const char *shape) {
    char wanted[96];
    snprintf(wanted, sizeof wanted, "\"shape\":\"4096 x 4096 x 4096%s\",\"seconds\":", shape);
    const char *at = strstr(s->out, wanted);
    return at ? strtod(at + strlen(wanted), NULL) : NAN;
}

/* f32 in TF32 lies between f32 and f16, where the device has units for it; else its row is left out, and with --matmul-precision high
   the plain rows are such, too. */
Test(bench, tf32_is_predicted_where_there_are_units) {
    const said *s = clef("", "bench --predict a100 matmul --json");
    double full = predicted_seconds(s, ""), rounded = predicted_seconds(s, ", TF32"), half = predicted_seconds(s, ", f16");
    cr_assert(s->code == 0 && half < rounded && rounded < full, "f16 %g, TF32 %g, f32 %g", half, rounded, full);
    cr_expect(rounded > 4096.0 * 4096 * 4096 / (512 * 108 * 1.41e9), "%g: beyond half of what is published of f16", rounded);
    cr_expect(!strstr(s->err, "left out"), "%s", s->err);
    s = clef("", "bench --predict a100 matmul --json --matmul-precision high");
    cr_expect_float_eq(predicted_seconds(s, ""), rounded, 1e-9 * rounded);
    cr_expect_float_eq(predicted_seconds(s, ", f16"), half, 1e-9 * half);
    cr_expect(strstr(s->out, "\"label\":\"a100, predicted, TF32\""), "%s", s->out);
    s = clef("", "bench --predict a100 matmul");
    cr_expect(strstr(s->out, "4096 x 4096 x 4096, TF32") && times(s->out, "% of the matrix units") == 2, "%s", s->out);
    s = clef("", "bench --predict v100 matmul --json");
    cr_expect(s->code == 0 && isnan(predicted_seconds(s, ", TF32")) && predicted_seconds(s, ", f16") > 0, "%s", s->out);
    cr_expect(strstr(s->err, "matmul 4096 x 4096 x 4096, TF32 is left out: the device has no matrix units for it"), "%s", s->err);
    refused("bench --compare a.json --matmul-precision high", 2, "--matmul-precision belong to a measurement");
}

/* A token is chosen by what the device computed, which a dry run does not. */
Test(bench, tokens_are_not_predicted) {
    const said *s = clef("", "bench --predict h100 lm rnn --json");
    cr_assert_eq(s->code, 0, "%s", s->err);
    cr_assert(strstr(s->err, "gpt_token 8 layers of 512 is left out: a token depends on the one before"), "%s", s->err);
    cr_assert(!strstr(s->out, "gpt_token") && times(s->out, "gpt_step") == 2 && times(s->out, "\"suite\":\"rnn\"") == 4, "%s",
              s->out);
}

Test(bench, what_cannot_be_predicted_is_refused) {
    refused("bench --predict gtx", 2, "--predict knows no \"gtx\"; it wants one of v100, a100");
    refused("bench --predict h100 parallel", 2, "--predict is of one GPU");
    refused("bench --predict h100 --compare a.json", 2, "--predict is of one GPU");
}
