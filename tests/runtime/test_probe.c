/* What drivers do with events, asked in a child process: true drivers, and scripts in the place of clef-probe that hang, lie and
   count.  Every test runs in a process of its own, so the environment can be set before OpenCL starts.
   ctest: cost=15 */
#include "runtime/probe.h"
#include "runtime_support.h"
#include "support/programs.h"
#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>

static const char says_right[] = "printf 'listed\\nready\\nhalf\\nright\\n' >&3";

static clef_context *open_cached(const char *cache_dir) {
    clef_context *ctx = clef_open(&(clef_options){.device = "0", .cache_dir = cache_dir});
    if (!ctx) cr_skip_test("%s", clef_error(NULL));
    return ctx;
}

static clef_context *open_uncached(void) { return open_cached(""); }

/* With those devices of pocl, and none beside them; it may be missing where somebody else runs this. */
static clef_context *open_pocl(const char *devices) {
    static const char only[] = "/etc/OpenCL/vendors/pocl.icd";
    clef_device_info info;
    int n = 0;
    setenv("POCL_DEVICES", devices, 1);
    if (access(only, R_OK) == 0) setenv("OCL_ICD_VENDORS", only, 1);
    while (clef_device_get(n, &info) && strcmp(info.platform, "Portable Computing Language") == 0) n++;
    if (n == 0 || n != clef_device_count()) cr_skip_test("pocl is not installed (pocl-opencl-icd), or not alone");
    return open_uncached();
}

/* ---- true drivers ---- */
static void answers_yes(clef_context *ctx, int a, int b) {
    double begin = clef__now();
    cr_expect_eq(clef_device_events(ctx, a, b, false), CLEF_VERDICT_UNKNOWN);
    cr_expect_eq(clef_device_events(ctx, a, b, true), CLEF_VERDICT_YES, "%d and %d, %.2f s", a, b, clef__now() - begin);
    cr_expect_eq(clef_device_events(ctx, b, a, false), CLEF_VERDICT_YES);
}

Test(probe, pocl_does_all, .timeout = 60) {
    clef_context *ctx = open_pocl("pthread pthread");
    answers_yes(ctx, 0, 1);
    answers_yes(ctx, 1, 1);
    cr_expect_eq(clef_device_events(ctx, 0, 0, false), CLEF_VERDICT_YES, "a device of the same facts");
    cr_expect_eq(clef_device_user_events(ctx, 0, false), CLEF_VERDICT_UNKNOWN);
    cr_expect_eq(clef_device_user_events(ctx, 0, true), CLEF_VERDICT_YES);
    clef_close(ctx);
}

Test(probe, parts_of_a_device, .timeout = 60) {
    clef_context *ctx = open_pocl("pthread");
    const clef__found *list;
    clef__found parts[CLEF__MAX_DEVICES];
    clef__devices(&list);
    if (list[0].info.compute_units < 2) cr_skip_test("it has one compute unit");
    cr_assert_eq(clef__device_divide(ctx, &list[0], &(clef__choice){.parts = 2, .units = {1, 1}}, parts), 2);
    cr_expect_eq(clef__probe_events(ctx, &parts[0], &parts[1], true), CLEF_VERDICT_YES);
    cr_expect_eq(clef__probe_events(ctx, &parts[1], &parts[1], true), CLEF_VERDICT_YES);
    cr_expect_eq(clef__probe_events(ctx, &parts[1], &list[0], true), CLEF_VERDICT_YES);
    for (int i = 0; i < 2; i++) clReleaseDevice(parts[i].id);
    clef_close(ctx);
}

/* It never comes back from events across these two, and says that all is done where it is not. */
Test(probe, pocl_basic_does_not, .timeout = 60) {
    clef_context *ctx = open_pocl("pthread basic");
    clef_device_info info;
    clef_device_get(1, &info);
    int basic = strncmp(info.name, "basic", 5) == 0;
    double begin = clef__now();
    cr_expect_eq(clef_device_events(ctx, 0, 1, true), CLEF_VERDICT_NO);
    cr_expect_lt(clef__now() - begin, 5);
    begin = clef__now();
    cr_expect_eq(clef_device_events(ctx, 1, 0, true), CLEF_VERDICT_NO);
    cr_expect_lt(clef__now() - begin, 0.5, "asked twice");
    cr_expect_eq(clef_device_user_events(ctx, basic, true), CLEF_VERDICT_NO);
    clef_close(ctx);
}

Test(probe, pocl_basic_alone, .timeout = 60) {
    clef_context *ctx = open_pocl("basic");
    cr_expect_eq(clef_device_user_events(ctx, 0, true), CLEF_VERDICT_NO);
    clef_close(ctx);
}

Test(probe, what_cannot_be_asked) {
    clef_context *ctx = open_uncached();
    const clef__found *list;
    clef__devices(&list);
    clef__found other = list[0], adopted = list[0];
    other.platform = (cl_platform_id)&other;
    adopted.info.index = -1;
    cr_expect_eq(clef__probe_events(ctx, &list[0], &other, true), CLEF_VERDICT_NO, "two platforms share no context");
    cr_expect_eq(clef__probe_events(ctx, &list[0], &adopted, true), CLEF_VERDICT_UNKNOWN);
    cr_expect_eq(clef_device_events(ctx, 0, clef_device_count(), true), CLEF_VERDICT_UNKNOWN);
    cr_expect_eq(clef_device_user_events(ctx, -1, true), CLEF_VERDICT_UNKNOWN);
    cr_expect_eq(clef_device_user_events(NULL, 0, true), CLEF_VERDICT_UNKNOWN);
    clef_close(ctx);
}

#ifdef CLEF_TEST_TOOL
Test(probe, clef_devices_tells, .timeout = 60) {
    setenv("CLEF_CACHE", "0", 1);
    clef_close(open_pocl("pthread pthread"));
    answer a = answer_of("'" CLEF_TEST_TOOL "' devices --json");
    cr_expect(strstr(a.first, "\"events\":[null,null],\"user_events\":null"), "%s", a.first);
    a = answer_of("'" CLEF_TEST_TOOL "' devices --json --probe");
    cr_expect(a.lines == 2 && strstr(a.first, "\"events\":[true,true],\"user_events\":true"), "%s", a.first);
    a = answer_of("'" CLEF_TEST_TOOL "' devices --probe 2>&1");
    cr_expect_eq(a.lines, 2 * 4 + 1);
    a = answer_of("'" CLEF_TEST_TOOL "' devices 2>&1 >/dev/null");
    cr_expect(a.lines == 2 && strncmp(a.last, "--probe ", 8) == 0, "%s", a.last);
    a = answer_of("CLEF_PROBE=0 '" CLEF_TEST_TOOL "' devices --probe 2>&1 | grep events");
    cr_expect_str_eq(a.first, "     events between queues: unknown, with device 1: unknown; user events: unknown\n");
}
#endif

/* ---- scripts in its place ---- */
static char place[256];

/* A script that clef-probe is from now on, with /bin/sh; its file is called after its number. */
static void pretend(const char *script) {
    static int number;
    char path[300];
    if (!place[0]) snprintf(place, sizeof place, "%s", temporary_dir());
    snprintf(path, sizeof path, "%s/probe-%d", place, number++);
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    fprintf(file, "#!/bin/sh\nexport place='%s'\n%s\n", place, script);
    fclose(file);
    chmod(path, 0700);
    setenv("CLEF_PROBE", path, 1);
}

/* What a file of that directory holds; "" where there is none. */
static const char *written(const char *name) {
    static char text[4096];
    char path[300];
    snprintf(path, sizeof path, "%s/%s", place, name);
    FILE *file = fopen(path, "r");
    text[file ? fread(text, 1, sizeof text - 1, file) : 0] = 0;
    if (file) fclose(file);
    return text;
}

static void leave(void) {
    signal(SIGCHLD, SIG_DFL); /* system() counts its own */
    if (place[0]) remove_dir(place);
}

TestSuite(fake_probe, .fini = leave, .timeout = 60);

static void gives(clef_context *ctx, const char *script, clef_verdict verdict) {
    pretend(script);
    double begin = clef__now();
    cr_expect_eq(clef_device_user_events(ctx, 0, true), verdict, "%s", script);
    cr_expect_lt(clef__now() - begin, 12, "%s", script);
}

Test(fake_probe, only_the_whole_answer_is_yes) {
    clef_context *ctx = open_uncached();
    gives(ctx, says_right, CLEF_VERDICT_YES);
    gives(ctx, "printf 'listed\\nready\\nhalf\\nright\\n' >&3; exit 1", CLEF_VERDICT_YES);
    gives(ctx, "printf 'listed\\n' >&3; printf 'ready\\nhalf\\nri' >&3; printf 'ght\\n' >&3", CLEF_VERDICT_YES);
    gives(ctx, "printf 'listed\\nready\\n' >&3; exit 1", CLEF_VERDICT_NO);
    gives(ctx, "printf 'listed\\nready\\n' >&3; kill -SEGV $$", CLEF_VERDICT_NO);
    gives(ctx, "printf 'listed\\nready\\nright\\n' >&3", CLEF_VERDICT_NO);
    gives(ctx, "printf 'listed\\nready\\nwrong\\n' >&3", CLEF_VERDICT_NO);
    gives(ctx, "printf 'listed\\nready\\nhalf\\nright\\nwrong\\n' >&3", CLEF_VERDICT_NO);
    gives(ctx, "printf 'listed\\nready\\nhalf\\nright' >&3", CLEF_VERDICT_NO);
    gives(ctx, "printf 'listed\\n' >&3; yes >&3", CLEF_VERDICT_NO);
    gives(ctx, "printf 'right\\n' >&3", CLEF_VERDICT_UNKNOWN);
    gives(ctx, "printf 'listed\\nready\\nhalf\\nright\\n'", CLEF_VERDICT_UNKNOWN);
    gives(ctx, "exit 1", CLEF_VERDICT_UNKNOWN);
    clef_close(ctx);
}

Test(fake_probe, hangs_are_ended) {
    clef_context *ctx = open_uncached();
    double begin = clef__now();
    gives(ctx, "echo $$ >$place/pid; printf 'listed\\nready\\n' >&3; exec sleep 1000", CLEF_VERDICT_NO);
    cr_expect(clef__now() - begin > 1.5 && clef__now() - begin < 4.5, "%.1f s", clef__now() - begin);
    cr_expect(kill((pid_t)atoi(written("pid")), 0) != 0, "it lives on");
    begin = clef__now();
    pretend("exit 1"); /* another file, which has not been asked */
    cr_expect_eq(clef_device_user_events(ctx, 0, false), CLEF_VERDICT_UNKNOWN);
    gives(ctx, "printf 'listed\\nready\\nhalf\\nright\\n' >&3; exec sleep 1000", CLEF_VERDICT_NO);
    cr_expect_lt(clef__now() - begin, 4, "%.1f s", clef__now() - begin);
    clef_close(ctx);
}

Test(fake_probe, none_is_there) {
    clef_context *ctx = open_uncached();
    static const char *const none[] = {"/nonesuch/clef-probe", "0", "", "/", "/etc/passwd"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        setenv("CLEF_PROBE", none[i], 1);
        cr_expect_eq(clef_device_user_events(ctx, 0, true), CLEF_VERDICT_UNKNOWN, "%s", none[i]);
    }
    cr_expect_str_eq(clef_error(ctx), "");
    clef_close(ctx);
}

Test(fake_probe, gets_question_and_devices) {
    clef_context *ctx = open_uncached();
    const clef__found *list;
    clef_device_info info;
    char want[600];
    clef__devices(&list);
    clef_device_get(0, &info);
    clef__found part = list[0];
    part.divided = true;
    part.info.compute_units = 3;
    part.id = (cl_device_id)&part;
    pretend("for a; do echo \"$a\"; done >>$place/words");
    clef_device_events(ctx, 0, 0, true);
    clef__probe_events(ctx, &list[0], &part, true);
    clef_device_user_events(ctx, 0, true);
    snprintf(want, sizeof want, "events\n%s\n0\nevents\n%s\n0\n0:3\nuser_events\n%s\n0\n", info.platform, info.platform,
             info.platform);
    cr_expect_str_eq(written("words"), want);
    clef_close(ctx);
}

/* ---- once ---- */
/* In a child that has the device to itself. */
static void in_a_process(void (*what)(void)) { cr_expect(survives(what)); }

static void asks(clef_verdict want, bool ask) {
    char cache[300];
    snprintf(cache, sizeof cache, "%s/cache", place);
    clef_context *ctx = clef_open(&(clef_options){.device = "0", .cache_dir = cache});
    if (!ctx) _exit(clef_device_count() != 0);
    bool good = clef_device_events(ctx, 0, 0, ask) == want && clef_device_events(ctx, 0, 0, true) == want;
    clef_close(ctx);
    if (!good) _exit(1);
}

static void learns_yes(void) { asks(CLEF_VERDICT_YES, true); }

static void knows_yes(void) { asks(CLEF_VERDICT_YES, false); }

static void learns_no(void) { asks(CLEF_VERDICT_NO, true); }

static void knows_no(void) { asks(CLEF_VERDICT_NO, false); }

static void learns_nothing(void) { asks(CLEF_VERDICT_UNKNOWN, true); }

static void has_device(void) { _exit(clef_device_count() == 0); }

static int calls(void) {
    int n = 0;
    for (const char *c = written("calls"); *c; c++) n += *c == '\n';
    return n;
}

static void kept_by(const char *script, void (*learn)(void), void (*know)(void), int with_disk, int without) {
    char text[300];
    snprintf(text, sizeof text, "echo >>$place/calls; %s", script);
    pretend(text);
    setenv("CLEF_CACHE", "1", 1);
    int before = calls();
    in_a_process(learn);
    in_a_process(know);
    in_a_process(know);
    cr_expect_eq(calls() - before, with_disk, "%s: %d calls", script, calls() - before);
    setenv("CLEF_CACHE", "0", 1);
    before = calls();
    in_a_process(learn);
    in_a_process(learn);
    cr_expect_eq(calls() - before, without, "%s: %d calls without a cache", script, calls() - before);
}

/* OpenCL is started in children only. */
Test(fake_probe, verdicts_are_kept) {
    if (!survives(has_device)) cr_skip_test("there is no device");
    kept_by(says_right, learns_yes, knows_yes, 1, 2);
    kept_by("printf 'listed\\n' >&3", learns_no, knows_no, 1, 2);
    kept_by("exit 1", learns_nothing, learns_nothing, 3, 2); /* it may work another day */
}

static void changes_a_variable(void) {
    setenv("POCL_DEVICES", "pthread", 1);
    setenv("OPENCL_LAYERS", "/nonesuch.so", 1);
    asks(CLEF_VERDICT_UNKNOWN, false);
}

Test(fake_probe, another_environment_is_another_driver) {
    setenv("CLEF_CACHE", "1", 1);
    pretend(says_right);
    in_a_process(learns_yes);
    unlink(getenv("CLEF_PROBE"));
    in_a_process(knows_yes);
    in_a_process(changes_a_variable);
}

Test(fake_probe, several_contexts_ask_once) {
    pretend("echo >>$place/calls; printf 'listed\\nready\\nhalf\\nright\\n' >&3");
    clef_context *a = open_uncached(), *b = open_uncached();
    for (int i = 0; i < 3; i++) {
        cr_expect_eq(clef_device_user_events(a, 0, true), CLEF_VERDICT_YES);
        cr_expect_eq(clef_device_user_events(b, 0, true), CLEF_VERDICT_YES);
    }
    cr_expect_eq(calls(), 1);
    clef_close(a);
    clef_close(b);
}

/* ---- what the program does with signals and files ---- */
Test(fake_probe, the_program_ignores_children) {
    signal(SIGCHLD, SIG_IGN);
    clef_context *ctx = open_uncached();
    gives(ctx, says_right, CLEF_VERDICT_YES);
    gives(ctx, "echo $$ >$place/pid; printf 'listed\\nready\\n' >&3; exec sleep 1000", CLEF_VERDICT_NO);
    cr_expect(kill((pid_t)atoi(written("pid")), 0) != 0, "it lives on");
    clef_close(ctx);
}

static volatile sig_atomic_t reaped;

static void reap(int number) {
    (void)number;
    while (waitpid(-1, NULL, WNOHANG) > 0) reaped++;
}

Test(fake_probe, the_program_reaps_all_children) {
    signal(SIGCHLD, reap);
    clef_context *ctx = open_uncached();
    gives(ctx, says_right, CLEF_VERDICT_YES);
    gives(ctx, "printf 'listed\\nready\\n' >&3; exec sleep 1000", CLEF_VERDICT_NO);
    clef_close(ctx);
}

Test(fake_probe, leaves_other_children_alone) {
    clef_context *ctx = open_uncached();
    int state;
    pid_t other = fork();
    if (other == 0) _exit(7);
    gives(ctx, says_right, CLEF_VERDICT_YES);
    cr_expect(waitpid(other, &state, 0) == other && WIFEXITED(state) && WEXITSTATUS(state) == 7);
    cr_expect(waitpid(-1, &state, WNOHANG) < 0, "it left a child");
    clef_close(ctx);
}

/* A thread may block every signal; the child's own limit must work all the same. */
Test(fake_probe, starts_with_usual_signals) {
    sigset_t all;
    sigfillset(&all);
    signal(SIGPIPE, SIG_IGN);
    clef_context *ctx = open_uncached();
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    gives(ctx, "grep -E 'SigBlk|SigIgn' /proc/self/status >$place/signals; printf 'listed\\nready\\nhalf\\nright\\n' >&3",
          CLEF_VERDICT_YES);
    if (*written("signals")) {
        unsigned long long blocked = 1, ignored = ~0ull;
        sscanf(written("signals"), "SigBlk: %llx SigIgn: %llx", &blocked, &ignored);
        cr_expect_eq(blocked >> (SIGALRM - 1) & 1, 0);
        cr_expect_eq(ignored >> (SIGPIPE - 1) & 1, 0);
    }
    clef_close(ctx);
}

static int open_files(void) {
    int n = 0;
    DIR *list = opendir("/proc/self/fd");
    while (list && readdir(list)) n++;
    if (list) closedir(list);
    return n;
}

Test(fake_probe, inherits_no_files) {
    enum { FIRST = 60, FILES = 40 };
    clef_context *ctx = open_uncached();
    int null = open("/dev/null", O_RDONLY);
    for (int i = 0; i < FILES; i++) cr_assert_geq(fcntl(null, F_DUPFD, FIRST), FIRST);
    int before = open_files();
    gives(ctx,
          "ls /proc/$$/fd >$place/files; readlink /proc/$$/fd/0 /proc/$$/fd/1 /proc/$$/fd/2 >$place/streams\n"
          "printf 'listed\\nready\\nhalf\\nright\\n' >&3",
          CLEF_VERDICT_YES);
    cr_expect_eq(open_files(), before, "a file stays open");
    if (before == 0) cr_skip_test("there is no /proc");
#ifdef __GLIBC__
#if __GLIBC_PREREQ(2, 34)
    for (const char *line = written("files"); *line; line += strcspn(line, "\n") + 1)
        cr_expect_lt(atoi(line), FIRST, "%d was inherited", atoi(line));
#endif
#endif
    cr_expect(strstr(written("streams"), "/dev/null\n") == written("streams"), "%s", written("streams"));
    clef_close(ctx);
}

/* The answers come through whatever number the pipe gets. */
Test(fake_probe, the_program_closed_its_streams) {
    clef_context *ctx = open_uncached();
    pretend(says_right);
    int copies[3];
    for (int i = 0; i < 3; i++) copies[i] = fcntl(i, F_DUPFD_CLOEXEC, 50);
    for (int i = 0; i < 3; i++) close(i);
    clef_verdict verdict = clef_device_user_events(ctx, 0, true);
    for (int i = 0; i < 3; i++) dup2(copies[i], i);
    cr_expect_eq(verdict, CLEF_VERDICT_YES);
    clef_close(ctx);
}
