/* Do the tests test?  Every row of mutants.def breaks a kernel in one place; the check that stands beside it must see it, by a
   wrong number or an error, and pass on the text as it is.  A row whose text no longer occurs exactly once is a failure: the
   table has to follow the kernels; so is one that does not compile.  All run in child processes, since a broken kernel may
   leave its memory.  Of the rows every twelfth runs, with the checks that these name, as kernels take long to compile; the argument `all`
   (check.sh --all) runs each, the name of a check its rows, and tells the fate of each. ctest: labels=slow cost=80 plain */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RTLD_NEXT */
#endif
#include "clef/opencl.h"
#include "mutant_checks.h"
#include "runtime/runtime_internal.h"
#include "support/plain.h"
#include "support/stated_units.h"
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct mutant {
    const char *file, *from, *to; /* file NULL: the kernels as they are */
    const char *check;
    void (*run)(void);
} mutant;

static const mutant rows[] = {
#define CHECK(name) {NULL, NULL, NULL, #name, name},
    CHECKS(CHECK)
#define MUTANT(file, from, to, check) {file, from, to, #check, check},
#include "mutants.def"
};
#define COUNT_ONE(name) +1
enum { CHECK_COUNT = 0 CHECKS(COUNT_ONE), ROW_COUNT = sizeof rows / sizeof *rows, TIME_LIMIT = 60, EVERY = 12 };
enum { TICK = 20, IDLE_TICKS = 3 }; /* seconds between looks at a row, and how many without work end it */
#define IDLE 0.1                    /* seconds of the processor that are no work */

/* ---- the broken text ---- */
static const mutant *played;

/* A header's text stands in every file that includes it. */
static const char *broken(const char *file, const char *text) {
    bool header = strcmp(played->file + strlen(played->file) - 2, ".h") == 0;
    const char *at = header || strcmp(file, played->file) == 0 ? strstr(text, played->from) : NULL;
    char *changed = at ? malloc(strlen(text) + strlen(played->to) + 1) : NULL;
    if (!changed) return text;
    memcpy(changed, text, (size_t)(at - text));
    strcpy(changed + (at - text), played->to);
    strcat(changed, at + strlen(played->from));
    return changed; /* until this process ends */
}

static int occurrences(const mutant *m) {
    int n = 0;
    const char *text = clef__embedded(m->file);
    for (const char *at = text; at && (at = strstr(at, m->from)); at++) n++;
    return n;
}

/* ---- one row ---- */
typedef enum fate { PENDING, UNBUILT, RIGHT, WRONG, CRASHED, TOO_LONG, FATES } fate;
static fate *fates; /* of the rows, seen by all processes */

static const char *profile_of(const char *check) {
    static const char *const for_gpus[] = {
#define NAME(name) #name,
        GPU_CHECKS(NAME)};
    for (size_t i = 0; i < sizeof for_gpus / sizeof *for_gpus; i++)
        if (strcmp(check, for_gpus[i]) == 0) return "gpu";
    return "cpu";
}

/* The ways to compute that a check is about, taken whether or not they pay; NULL: those that pay. */
static const char *forced_rows(const char *check) {
    static const char *const forced[][2] = {
#define FORCED(name, rows) {#name, rows},
        FORCED_CHECKS(FORCED)};
    for (size_t i = 0; i < sizeof forced / sizeof *forced; i++)
        if (strcmp(check, forced[i][0]) == 0) return forced[i][1];
    return NULL;
}

/* A fresh context over one OpenCL context: drivers load their libraries for each of these. */
static clef_context *open_again(const char *profile) {
    static cl_context context;
    static cl_device_id device;
    clef_options options = {.seed = SEED, .cache_dir = "", .profile = profile};
    if (context) return clef_open_opencl(context, device, NULL, &options);
    clef_context *first = clef_open(&options);
    if (!first || clRetainContext(clef_opencl_context(first)) != CL_SUCCESS) return first;
    context = clef_opencl_context(first);
    device = clef_opencl_device(first);
    return first;
}

/* The processor's seconds that this process has used. */
static double time_used(void) {
    struct rusage spent;
    getrusage(RUSAGE_SELF, &spent);
    return (double)(spent.ru_utime.tv_sec + spent.ru_stime.tv_sec) +
           1e-6 * (double)(spent.ru_utime.tv_usec + spent.ru_stime.tv_usec);
}

/* A driver whose memory was written over may wait for ever: it uses no time for several ticks in a row.  The clock alone would
   also stop a row on a busy machine, and one of a process that was itself stopped for a while. */
static double used_at_tick;
static int idle_ticks;

static void on_tick(int signal) {
    double spent = time_used();
    idle_ticks = spent - used_at_tick < IDLE ? idle_ticks + 1 : 0;
    used_at_tick = spent;
    if (idle_ticks < IDLE_TICKS) return;
    struct sigaction fatal = {.sa_handler = SIG_DFL};
    sigaction(signal, &fatal, NULL);
    raise(signal);
}

/* A row may take so many seconds of the processor from here on, as a processor is what an endless loop never leaves. */
static void limit_time(void) {
    idle_ticks = 0;
    used_at_tick = time_used();
    struct sigaction tick = {.sa_handler = on_tick, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &tick, NULL);
    setitimer(ITIMER_REAL, &(struct itimerval){{TICK, 0}, {TICK, 0}}, NULL);
    setrlimit(RLIMIT_CPU, &(struct rlimit){(rlim_t)used_at_tick + TIME_LIMIT, RLIM_INFINITY});
}

/* Twice, so that the second run finds in memory what the first one left there. */
static fate run_row(const mutant *m) {
    limit_time();
    played = m;
    clef__embedded_hook = m->file ? broken : NULL;
    const char *forced = forced_rows(m->check);
    if (forced) setenv("CLEF_ROWS", forced, 1);
    else unsetenv("CLEF_ROWS");
    ctx = open_again(profile_of(m->check));
    if (!ctx) return WRONG;
    wrong = 0;
    drawn = 0;
    for (int i = 0; i < 2 && !wrong; i++) {
        used = 0;
        m->run();
        clef_end_step(ctx);
    }
    fate result = clef_error_status(ctx) == CLEF_BUILD ? UNBUILT : wrong || clef_error_status(ctx) ? WRONG : RIGHT;
    if (!m->file && result != RIGHT) printf("%s: %d wrong elements: %s\n", m->check, wrong, clef_error(ctx));
    clef_close(ctx);
    return result;
}

/* ---- children ---- */
typedef struct child {
    pid_t pid;
    int first, end, rows; /* the pending ones among first … end - 1 */
} child;

/* A driver takes long to start, so a child runs several rows.  A broken kernel may write where it likes: what a child of
   several says counts only if it still computes right afterwards. */
static bool run_child(const child *c) {
    for (int i = c->first; i < c->end; i++)
        if (fates[i] == PENDING) fates[i] = run_row(&rows[i]);
    mutant unbroken = rows[c->end - 1];
    unbroken.file = NULL;
    return c->rows == 1 || run_row(&unbroken) == RIGHT;
}

static void start_child(child *c) {
    fflush(stdout);
    c->pid = fork();
    if (c->pid < 0) exit(1);
    if (c->pid > 0) return;
    bool sane = run_child(c);
    fflush(stdout);
    _exit(!sane); /* without the driver's farewell, for which a broken kernel may have left nothing */
}

static void finish_child(const child *c, int status) {
    bool sane = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (sane) return;
    for (int i = c->first; i < c->end; i++)
        if (fates[i] != FATES) fates[i] = PENDING;
    if (c->rows == 1)
        fates[c->first] = WIFSIGNALED(status) && (WTERMSIG(status) == SIGXCPU || WTERMSIG(status) == SIGALRM) ? TOO_LONG : CRASHED;
}

/* The next at most `together` pending rows, from one to the last of them. */
static bool find_rows(child *c, int at, int end, int together) {
    while (at < end && fates[at] != PENDING) at++;
    c->first = c->end = at;
    c->rows = 0;
    for (; at < end && c->rows < together && (fates[at] == PENDING || fates[at] == FATES); at++) {
        if (fates[at] == FATES) continue;
        c->rows++;
        c->end = at + 1;
    }
    return c->rows > 0;
}

/* All pending rows, with as many children at a time as there are processors. */
static void run_pending(int first, int end, int together) {
    enum { MOST = 8 };
    child running[MOST], next = {.end = first};
    int count = 0, room = (int)sysconf(_SC_NPROCESSORS_ONLN), status;
    room = room < 1 ? 1 : room > MOST ? MOST : room;
    for (bool more = true; more || count > 0;) {
        while (more && count < room)
            if ((more = find_rows(&next, next.end, end, together))) {
                start_child(&next);
                running[count++] = next;
            }
        pid_t pid = count > 0 ? wait(&status) : 0;
        for (int i = 0; i < count; i++) {
            if (running[i].pid != pid) continue;
            finish_child(&running[i], status);
            running[i] = running[--count];
            break;
        }
    }
}

static bool names_check(const char *check) {
    for (int i = CHECK_COUNT; i < ROW_COUNT; i += EVERY)
        if (strcmp(rows[i].check, check) == 0) return true;
    return false;
}

/* only: "all", the name of a check, or NULL for every twelfth row and the checks that these name. */
static bool is_picked(int i, const char *only) {
    if (only) return strcmp(only, "all") == 0 || strcmp(only, rows[i].check) == 0;
    return i < CHECK_COUNT ? names_check(rows[i].check) : (i - CHECK_COUNT) % EVERY == 0;
}

static void run_rows(int first, int end, const char *only) {
    for (int i = first; i < end; i++) fates[i] = is_picked(i, only) ? PENDING : FATES;
    run_pending(first, end, 8);
    run_pending(first, end, 1); /* of the children that crashed or went mad */
}

/* ---- the whole ---- */
static bool device_absent(void) {
    pid_t pid = fork();
    int status = 0;
    if (pid == 0) {
        ctx = clef_open(NULL);
        int code = ctx ? 0 : without_context();
        fflush(stdout);
        _exit(code);
    }
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 77;
}

static int check_table(void) {
    int bad = 0;
    for (int i = CHECK_COUNT; i < ROW_COUNT; i++) {
        int n = occurrences(&rows[i]);
        if (n == 1) continue;
        printf("FAILED: %s has \"%s\" %d times, not once\n", rows[i].file, rows[i].from, n);
        bad++;
    }
    return bad;
}

static int check_unbroken(const char *only) {
    int bad = 0;
    run_rows(0, CHECK_COUNT, only);
    for (int i = 0; i < CHECK_COUNT; i++) {
        if (fates[i] == RIGHT || fates[i] == FATES) continue;
        printf("FAILED: %s, with nothing broken\n", rows[i].check);
        bad++;
    }
    return bad;
}

static int check_mutants(const char *only) {
    static const char *const names[] = {"FAILED to run", "FAILED to compile", "SURVIVED",
                                        "caught",        "caught by a crash", "caught by time"};
    int count[FATES + 1] = {0};
    run_rows(CHECK_COUNT, ROW_COUNT, only);
    for (int i = CHECK_COUNT; i < ROW_COUNT; i++) {
        const mutant *m = &rows[i];
        count[fates[i]]++;
        if (fates[i] <= RIGHT || (fates[i] < FATES && (only || fates[i] != WRONG)))
            printf("%s: %s, %s: \"%s\" -> \"%s\"\n", names[fates[i]], m->file, m->check, m->from, m->to);
    }
    printf("caught by their results: %d; by a crash: %d; by time: %d; survived: %d; no use: %d\n", count[WRONG], count[CRASHED],
           count[TOO_LONG], count[RIGHT], count[UNBUILT] + count[PENDING]);
    return count[RIGHT] + count[UNBUILT] + count[PENDING];
}

int main(int argc, char **argv) {
    const char *only = argc > 1 ? argv[1] : NULL;
    setenv("POCL_CACHE_DIR", CLEF_TEST_BUILD "/mutants-cache", 1); /* broken kernels stay out of the user's cache */
    setenv("CLEF_MATRIX", "emulated", 1);
    stated_units = 2; /* how work is cut depends on them, and the sizes of the checks were chosen for it */
    fates = mmap(NULL, ROW_COUNT * sizeof *fates, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (fates == MAP_FAILED) return 1;
    if (check_table() > 0) return 1;
    if (device_absent()) return 77;
    return check_unbroken(only) > 0 || check_mutants(only) > 0;
}
