/* Files of cl/ as parts of one program, and what Clef's cache remembers of it.

   ctest: cost=40 */
#include "runtime_support.h"
#include "support/joined.h"
#include "runtime/names.h"
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static clef_context *ctx;
static clef__device *device;
static char cache[] = "/tmp/clef-join-XXXXXX";
static const size_t one_item[3] = {1, 1, 1};

static void open_context(void) {
    ctx = clef_open(&(clef_options){.cache_dir = cache});
    if (!ctx) cr_skip_test("%s", clef_error(NULL));
    device = clef__device_at(ctx, 0);
    if (device->saving == CLEF__SAVE_FAILURES) return;
    rmdir(cache);
    cr_skip_test("this driver does not keep what it compiled");
}

static void setup(void) {
    cr_assert(mkdtemp(cache));
    unsetenv("CLEF_CACHE");
    open_context();
}

static void teardown(void) {
    clef_close(ctx);
    clef_cache_clear(cache, NULL);
    rmdir(cache);
}

TestSuite(join, .init = setup, .fini = teardown);

/* As another process finds what this one left. */
static void open_again(void) {
    clef_close(ctx);
    open_context();
}

static uint64_t built(void) { return clef_counters_get(ctx).kernels_built; }

/* ---- names ---- */

static char *part_of(const char *options, const char *text, const char *file, int number) {
    static const char common[] = "#define SHARED 1\n#define GONE 2\n#undef GONE\nint known(int at);\n";
    clef__text to = {0};
    clef__shared shared;
    cr_assert(clef__shared_open(&shared, common));
    bool well = clef__part_put(&to, &shared, &(clef__part){.options = options, .text = text, .file = file, .number = number});
    clef__shared_close(&shared);
    if (well) return to.data;
    clef__free(to.data);
    return NULL;
}

static void expect_renamed(const char *text, const char *name, bool renamed) {
    char *part = part_of("", "", text, 7), line[128];
    snprintf(line, sizeof line, "#define %s %s_7\n", name, name);
    cr_assert(part);
    cr_expect_eq(strstr(part, line) != NULL, renamed, "%s in: %s", name, text);
    snprintf(line, sizeof line, "#undef %s\n", name);
    cr_expect(strstr(part, line) || !renamed, "%s in: %s", name, text);
    clef__free(part);
}

Test(join, names_of_a_part) {
    static const struct {
        const char *text, *name;
        bool renamed;
    } cases[] = {
        {"static int f(int x) { return x; }\n", "f", true},
        {"static int f (int x) { return x; }\n", "f", true},
        {"static int f(int x) { return x; }\n", "x", false},
        {"int g(int x) { if (x) return known(x); return sizeof(x); }\n", "known", false},
        {"int g(int x) { if (x) return known(x); return sizeof(x); }\n", "if", false},
        {"int g(int x) { if (x) return known(x); return sizeof(x); }\n", "sizeof", false},
        {"typedef struct { int a; } pair;\n", "pair", true},
        {"typedef struct { int a; } pair;\n", "a", false},
        {"typedef uint bits;\nint a;\n", "bits", true},
        {"typedef uint bits;\nint a;\n", "a", false},
        {"struct node { int a; };\n", "node", true},
        {"enum { FIRST = 1, SECOND = 2 * FIRST,\n THIRD };\n", "FIRST", true},
        {"enum { FIRST = 1, SECOND = 2 * FIRST,\n THIRD };\n", "SECOND", true},
        {"enum { FIRST = 1, SECOND = 2 * FIRST,\n THIRD };\n", "THIRD", true},
        {"__constant float table[2] = {1, 2};\n", "table", true},
        {"constant int one = 1;\n", "one", true},
        {"void f(float4 v) { g(v.x); v.hi[0] = 1; }\n", "x", false},
        {"__attribute__((reqd_work_group_size(1, 1, 1))) void f(int x) {}\n", "reqd_work_group_size", false},
        {"#define CALL(x) helper(x)\n", "helper", true},
        {"#define CALL(x) helper(x)\n", "CALL", false},
        {"void f(int x) { g(\"h(x)\"); }\n", "h", false},
        {"void f(float4 v) { convert_int4(v); as_int4(v); vload4(0, p); get_global_id(0); }\n", "convert_int4", false},
        {"void f(float4 v) { convert_int4(v); as_int4(v); vload4(0, p); get_global_id(0); }\n", "get_global_id", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) expect_renamed(cases[i].text, cases[i].name, cases[i].renamed);
}

/* It may call a function of the driver's that common.h does not name. */
Test(join, a_text_keeps_its_words) {
    char *part = part_of("", "#define MINE 1\nfloat f(float x) { return round(x); }\n", "int g(int x) { return x; }\n", 1);
    cr_assert(part);
    cr_expect(!strstr(part, "round_1") && !strstr(part, "define f ") && strstr(part, "#define g g_1\n") &&
              strstr(part, "#undef MINE\n"));
    clef__free(part);
}

Test(join, options_and_definitions_end_with_their_part) {
    char *part = part_of("-DW=4 -DFLAG -DCLEF_WIDE=1 -cl-fast", "", "#define OWN 3\n#define GONE 4\n", 2);
    cr_assert(part);
    static const char *const lines[] = {"#define W 4\n", "#define FLAG 1\n", "#undef W\n",
                                        "#undef FLAG\n", "#undef OWN\n",     "#undef GONE\n"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) cr_expect(strstr(part, lines[i]), "%s in:\n%s", lines[i], part);
    cr_expect_null(strstr(part, "WIDE"), "all parts have it");
    clef__free(part);
    cr_expect_null(part_of("", "", "#define SHARED 2\n", 0), "the parts behind it would have lost common.h's");
    cr_expect_null(part_of("-DSHARED=2", "", "", 0));
    clef__text shared = {0};
    clef__shared_options(&shared, " -DW=4  -DCLEF_WIDE=1 -cl-fast -DQ='a b' -DF(x)=x -D_X_ ");
    cr_expect_str_eq(shared.data, "-DCLEF_WIDE=1 -cl-fast -DQ='a b' -DF(x)=x -D_X_ ");
    clef__free(shared.data);
}

/* ---- every file with itself and with all others ---- */

enum { MOST = 128 };

/* A chain is linked, and matrix units and shuffles want devices that have them. */
static bool is_compiled_here(const char *file) {
    static const char *const others[] = {"chain.cl", "matrix.cl", "matrix_probe.cl", "shuffle_probe.cl"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(file, others[i]) == 0) return false;
    return clef__ends_with(file, ".cl");
}

/* Each twice, under options that make two codes of it. */
static int all_files(clef__code **all, const char *options) {
    int n = 0;
    for (int i = 0; i < clef__embedded_count; i++)
        for (int twice = 0; twice < 2 && is_compiled_here(clef__embedded_files[i].name); twice++) {
            char asked[128];
            snprintf(asked, sizeof asked, "%s -DTWICE=%d", options, twice);
            all[n] = clef__code_of(device, NULL, clef__embedded_files[i].name, asked);
            cr_assert(all[n++]);
        }
    cr_assert(n > 50 && n <= MOST);
    return n;
}

/* Kernels of its program whose names end with the part's number. */
static int kernels_of(const clef__code *code) {
    char names[1 << 14] = "", ending[16];
    int n = 0;
    snprintf(ending, sizeof ending, "_%d", code->program->number);
    cr_assert_eq(clGetProgramInfo(code->program->program, CL_PROGRAM_KERNEL_NAMES, sizeof names, names, NULL), CL_SUCCESS);
    for (char *rest = names, *name; (name = strtok_r(rest, ";", &rest));) n += clef__ends_with(name, ending);
    return n;
}

/* Some files at a time, each twice, make one program. */
static void expect_programs(const char *options) {
    clef__code *all[MOST];
    int n = all_files(all, options);
    for (int at = 0; at < n; at += CLEF__JOINED_FILES) {
        uint64_t before = built();
        int some = n - at < CLEF__JOINED_FILES ? n - at : CLEF__JOINED_FILES;
        compile_joined(device, all + at, some, "f");
        cr_expect_eq(built() - before, 1u, "%s: %s to %s are not one program", options, all[at]->file, all[at + some - 1]->file);
        for (int i = at; i < at + some; i++)
            cr_expect(all[i]->program && kernels_of(all[i]) > 0, "%s: %s is in none, or has no kernel", options, all[i]->file);
    }
    for (int i = 0; i < n; i++) clef__code_release(all[i]);
}

Test(join, every_file_can_be_a_part) { expect_programs("-DCLEF_WIDE=1"); }
Test(join, every_file_can_be_a_part_of_narrow_items) { expect_programs(""); }

/* ---- what the cache remembers ---- */

#define TELLS(n) "#ifndef NAME\n#define NAME f\n#endif\n__kernel void NAME(__global int *x) { x[0] = 10 + " #n "; }\n"

static int told_by(clef__code *code) {
    if (!clef__code_compile(device, code, "f")) return -1;
    clef__kernel *k = clef__kernel_of(device, code->program, "f");
    clef__buffer *x = clef__buffer_new(device, sizeof(int));
    int told = 0;
    cr_assert(k && x, "%s", clef_error(ctx));
    cr_assert_eq(clef__kernel_set_buffer(k, 0, x), CLEF_OK);
    cr_assert_eq(clef__kernel_launch(k, one_item, one_item, "f"), CLEF_OK);
    cr_assert_eq(clef__buffer_read(x, 0, &told, sizeof told), CLEF_OK);
    clef__buffer_release(x);
    clef__kernel_free(k);
    return told;
}

/* Joins these, and expects so many programs that were known, and so many that are new; alone: codes in none. */
static void expect_joined(const char *const *text, int n, int known, int new, int alone) {
    clef__code *all[MOST];
    for (int i = 0; i < n; i++) cr_assert(all[i] = clef__code_of(device, text[i], NULL, ""));
    clef__join *first = clef__codes_join(device, all, n, "f");
    for (const clef__join *join = first; join; join = join->next) {
        known -= join->known;
        new -= !join->known;
        clef__join_compile(join);
    }
    clef__joins_free(first);
    for (int i = 0; i < n; i++) alone -= !all[i]->program;
    cr_expect(known == 0 && new == 0 && alone == 0, "other programs: %d known, %d new, %d codes alone", -known, -new, -alone);
    for (int i = 0; i < n; i++) {
        cr_expect_eq(told_by(all[i]), atoi(strstr(text[i], "+") + 1) + 10);
        clef__code_release(all[i]);
    }
}

Test(join, known_codes_are_taken_from_where_they_are) {
    const char *const first[] = {TELLS(1), TELLS(2), TELLS(3)}, *const second[] = {TELLS(4), TELLS(3), TELLS(5), TELLS(1)};
    const char *const third[] = {TELLS(5), TELLS(2), TELLS(6)};
    expect_joined(first, 3, 0, 1, 0);
    open_again();
    expect_joined(first, 3, 1, 0, 0);
    open_again();
    expect_joined(second, 4, 1, 1, 0);
    open_again();
    expect_joined(third, 3, 2, 0, 1);
    open_again();
    expect_joined(third, 3, 2, 0, 1); /* what was alone stays so: the driver has it by itself */
    cr_assert_eq(clef_cache_clear(cache, NULL), CLEF_OK);
    open_again();
    expect_joined(third, 3, 0, 1, 0);
}

/* The text that is remembered may be lost, or be of no use: each is compiled by itself then, and that is remembered. */
Test(join, a_text_that_does_not_compile_any_more) {
    const char *const all[] = {TELLS(1), TELLS(2)};
    expect_joined(all, 2, 0, 1, 0);
    open_again();
    clef__code *code[2];
    for (int i = 0; i < 2; i++) code[i] = clef__code_of(device, all[i], NULL, "");
    clef__join *join = clef__codes_join(device, code, 2, "f");
    cr_assert(join && join->known && !join->next);
    clef__cache_store(ctx, join->text_key, CLEF__ENTRY_JOINED, "\0no C", 5);
    clef__join_compile(join);
    clef__joins_free(join);
    open_again();
    expect_joined(all, 2, 1, 0, 2);
    open_again();
    expect_joined(all, 2, 0, 0, 2);
}

/* The same files under options that no text shows. */
Test(join, each_is_found_with_its_options) {
    static const char *const options[] = {"-DCLEF_WIDE=1", ""};
    clef__code *all[MOST];
    for (int again = 0; again < 2; again++) {
        for (int o = 0; o < 2; o++) {
            int n = all_files(all, options[o]), parts = 0;
            clef__join *first = clef__codes_join(device, all, n, "f");
            for (const clef__join *join = first; join; join = join->next) {
                cr_expect_eq(join->known, again == 1);
                cr_expect_eq(strstr(join->options, "CLEF_WIDE") != NULL, o == 0, "%s: %s", options[o], join->options);
                parts += join->n;
                clef__join_compile(join);
            }
            cr_expect_eq(parts, n);
            clef__joins_free(first);
        }
        open_again();
    }
}

Test(join, what_does_not_compile_is_left_out) {
    const char *const bad = "no C\n", *const all[] = {TELLS(1), TELLS(2)};
    clef__code *code[3] = {clef__code_of(device, bad, NULL, "")};
    cr_expect_not(clef__code_compile(device, code[0], "f"));
    clef_clear_error(ctx);
    open_again();
    code[0] = clef__code_of(device, bad, NULL, "");
    for (int i = 0; i < 2; i++) code[i + 1] = clef__code_of(device, all[i], NULL, "");
    clef__join *join = clef__codes_join(device, code, 3, "f");
    cr_assert(join && !join->next);
    cr_expect(join->n == 2 && join->part[0] == code[1] && join->part[1] == code[2]);
    clef__join_compile(join);
    clef__joins_free(join);
    cr_expect_not(clef__code_compile(device, code[0], "f"));
    cr_expect(strstr(clef_error(ctx), "known from the cache"), "%s", clef_error(ctx));
    clef_clear_error(ctx);
}

Test(join, without_a_cache_files_stay_alone) {
    clef_close(ctx);
    ctx = clef_open(&(clef_options){.cache_dir = ""});
    device = clef__device_at(ctx, 0);
    clef__code *all[MOST];
    int n = all_files(all, "-DCLEF_WIDE=1");
    cr_expect_null(clef__codes_join(device, all, n, "f"));
    const char *const texts[] = {TELLS(1), TELLS(2)};
    expect_joined(texts, 2, 0, 1, 0);
}
