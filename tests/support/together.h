/* together.h — all tests of a file in one process, one after the other, and one OpenCL context for all contexts of one device.  Criterion
   starts a process for each test; in each, and for each OpenCL context, pocl's compiler reads 10 MB of built-in functions before it compiles
   the first kernel, which takes half a second.  What CMake gives CLEF_TESTS_TOGETHER to includes this by device.h.

   A test still opens and closes a context of its own.  Variables CLEF_… and POCL_… are set back after each.  One that fails or is skipped
   does not keep the others from running; one that crashes does.  CLEF_TEST_CASE=word: only those with it in their name.  TestAlone, with
   its init and fini, is one in a process of its own: Clef asks what devices there are once in a process. */
#ifndef CLEF_TESTS_TOGETHER_H
#define CLEF_TESTS_TOGETHER_H
#ifndef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 120
#endif
#include <CL/cl.h>
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- one OpenCL context for a device ---- */

/* Those of a whole device, which stay. */
enum { MOST_CONTEXTS_MADE = 8 };
static struct {
    cl_device_id device;
    cl_context context;
} context_made[MOST_CONTEXTS_MADE];
static int contexts_made;
static pthread_mutex_t making_contexts = PTHREAD_MUTEX_INITIALIZER;

static cl_context context_made_for(cl_device_id device) {
    for (int i = 0; i < contexts_made; i++)
        if (context_made[i].device == device) return context_made[i].context;
    return NULL;
}
static bool is_whole_device(cl_device_id device) {
    cl_device_id parent = NULL;
    return clGetDeviceInfo(device, CL_DEVICE_PARENT_DEVICE, sizeof parent, &parent, NULL) == CL_SUCCESS && !parent;
}

cl_context clCreateContext(const cl_context_properties *properties, cl_uint n, const cl_device_id *devices,
                           void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *), void *user, cl_int *code) {
    __typeof__(&clCreateContext) real = (__typeof__(real))dlsym(RTLD_NEXT, "clCreateContext");
    if (n != 1 || !is_whole_device(devices[0])) return real(properties, n, devices, notify, user, code);
    pthread_mutex_lock(&making_contexts);
    cl_context context = context_made_for(devices[0]);
    if (context && code) *code = CL_SUCCESS;
    if (!context && (context = real(properties, n, devices, notify, user, code)) && contexts_made < MOST_CONTEXTS_MADE) {
        context_made[contexts_made].device = devices[0];
        context_made[contexts_made++].context = context;
    }
    if (context) clRetainContext(context); /* for the table, or for who asked again */
    pthread_mutex_unlock(&making_contexts);
    return context;
}

/* ---- the tests of the file ---- */

typedef struct together {
    const char *suite, *name; /* name NULL: the suite itself */
    void (*run)(void);
    const struct criterion_test_extra_data *options;
    struct together *next;
} together;

static together *all_together, **last_together = &all_together;
static void add_together(together *t) {
    *last_together = t;
    last_together = &t->next;
}

static jmp_buf out_of_test;
static const together *now_running;
static bool is_begun; /* its init is done */
enum { LEFT_FAILED = 1, LEFT_SKIPPED };

CR_NORETURN static inline void leave_failed(void) {
    if (!now_running) criterion_abort_test();
    fprintf(stderr, "in %s/%s\n", now_running->suite, now_running->name);
    longjmp(out_of_test, LEFT_FAILED);
}
CR_NORETURN static inline void leave_skipped(void) {
    fprintf(stderr, " (%s/%s)\n", now_running->suite, now_running->name);
    longjmp(out_of_test, LEFT_SKIPPED);
}

static const struct criterion_test_extra_data *options_of_suite(const char *suite) {
    static const struct criterion_test_extra_data none;
    for (const together *t = all_together; t; t = t->next)
        if (!t->name && strcmp(t->suite, suite) == 0) return t->options;
    return &none;
}

static void begin_together(const together *t) {
    const struct criterion_test_extra_data *suite = options_of_suite(t->suite);
    now_running = t;
    is_begun = false;
    if (suite->init) suite->init();
    if (t->options->init) t->options->init();
    is_begun = true;
}
static void end_together(const together *t) {
    const struct criterion_test_extra_data *suite = options_of_suite(t->suite);
    if (t->options->fini) t->options->fini();
    if (suite->fini) suite->fini();
}

/* What fails leaves open what it has open. */
static void run_one_together(const together *t) {
    switch (setjmp(out_of_test)) {
    case 0:
        begin_together(t);
        t->run();
        end_together(t);
        break;
    case LEFT_SKIPPED:
        if (!is_begun) break;
        is_begun = false;
        end_together(t);
    }
}

/* Variables CLEF_… and POCL_… as they were: `saved` has them, NULL at the end. */
extern char **environ;
static bool is_restored(const char *variable) { return strncmp(variable, "CLEF_", 5) == 0 || strncmp(variable, "POCL_", 5) == 0; }
static char **save_variables(void) {
    size_t n = 0, count = 0;
    while (environ[n]) n++;
    char **saved = calloc(n + 1, sizeof *saved);
    for (size_t i = 0; i < n; i++)
        if (is_restored(environ[i])) saved[count++] = strdup(environ[i]);
    return saved;
}
static void restore_variables(char *const *saved) {
    for (char **v = environ; *v;) {
        char name[64];
        size_t n = strcspn(*v, "=");
        snprintf(name, sizeof name, "%.*s", (int)n, *v);
        if (is_restored(name) && n < sizeof name) unsetenv(name), v = environ;
        else v++;
    }
    for (; *saved; saved++) {
        char *equals = strchr(*saved, '=');
        *equals = 0;
        setenv(*saved, equals + 1, 1);
        *equals = '=';
    }
}

static void run_together(void) {
    const char *only = getenv("CLEF_TEST_CASE");
    char **saved = save_variables();
    int cases = 0;
    for (const together *t = all_together; t; t = t->next) {
        if (!t->name || (only && *only && !strstr(t->name, only))) continue;
        run_one_together(t);
        restore_variables(saved);
        cases++;
    }
    cr_assert(cases > 0, "no test has this in its name: %s", only ? only : "");
    for (char **v = saved; *v; v++) free(*v);
    free(saved);
}

Test(all, together) { run_together(); }

/* From here on the words of Criterion mean those above. */
#define TestAlone(...) CR_EXPAND(CR_TEST_BASE(__VA_ARGS__, .sentinel_ = 0))
#undef Test
#define Test(Suite, Name, ...)                                                                   \
    static void Suite##_##Name(void);                                                            \
    __attribute__((constructor)) static void add_##Suite##_##Name(void) {                        \
        static const struct criterion_test_extra_data options = {.sentinel_ = 0, ##__VA_ARGS__}; \
        static together it = {#Suite, #Name, Suite##_##Name, &options, NULL};                    \
        add_together(&it);                                                                       \
    }                                                                                            \
    static void Suite##_##Name(void)
#undef TestSuite
#define TestSuite(Suite, ...)                                                  \
    __attribute__((constructor)) static void add_suite_##Suite(void) {         \
        static const struct criterion_test_extra_data options = {__VA_ARGS__}; \
        static together it = {#Suite, NULL, NULL, &options, NULL};             \
        add_together(&it);                                                     \
    }                                                                          \
    extern char **environ
#define criterion_abort_test leave_failed
#undef cr_skip_test
#define cr_skip_test(...) \
    (now_running ? (fprintf(stderr, "skipped: " __VA_ARGS__), leave_skipped()) : criterion_skip_test("" __VA_ARGS__))
#endif
