/* A process that compiles beside this one (helper.c): what it is told, that it compiles just that, and that no result depends on it.
   For a driver that compiles in turn (drivers.def); each step and each helper has an empty cache of that driver's.
   ctest: plain cost=30 */
#include "runtime/runtime_internal.h"
#include "support/io_files.h"
#include "support/plain.h"
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/wait.h>
#include <time.h>

static const char *place;

/* ---- in a process of its own: a step of LeNet ---- */
static int step(void) {
    clef_context *ctx = clef_open(&(clef_options){.device = "0", .seed = 3});
    if (!ctx) return without_context();
    clef_module *net = clef_model_lenet(ctx, CLEF_SHAPE(1, 28, 28), 10);
    clef_optimizer *opt = clef_sgd(net, &(clef_sgd_options){.lr = 0.1});
    clef_tensor *x = clef_randn(ctx, CLEF_SHAPE(4, 1, 28, 28)), *y = clef_arange(ctx, 0, 4, 1, CLEF_I64);
    clef_tensor *loss = clef_cross_entropy(clef_forward(net, x), y, NULL);
    clef_backward(loss);
    clef_step(opt);
    printf("%a\n", clef_item(loss));
    bool good = clef_error_status(ctx) == CLEF_OK;
    if (!good) printf("%s\n", clef_error(ctx));
    clef_close(ctx);
    return !good;
}

/* ---- the test ---- */
static int run(const char *command) {
    int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* The step's loss, where the driver's cache is in that folder of `place`. */
static void run_step(const char *cache, const char *variables, char loss[64]) {
    char command[2048];
    snprintf(command, sizeof command,
             "mkdir -p '%s/%s' && env -u CLEF_HELPER POCL_CACHE_DIR='%s/%s' %s '/proc/%d/exe' step > '%s/loss'", place, cache,
             place, cache, variables, (int)getpid(), place);
    EXPECT(run(command) == 0);
    FILE *file = fopen(io_path(place, "loss"), "r");
    EXPECT(file && fgets(loss, 64, file));
    if (file) fclose(file);
}

/* What a command writes, run in `place`: a number. */
__attribute__((format(printf, 1, 2))) static int count(const char *format, ...) {
    char command[2048], line[32] = "";
    va_list arguments;
    int n = snprintf(command, sizeof command, "cd '%s' && ", place);
    va_start(arguments, format);
    vsnprintf(command + n, sizeof command - (size_t)n, format, arguments);
    va_end(arguments);
    FILE *pipe = popen(command, "r");
    if (!EXPECT(pipe && fgets(line, sizeof line, pipe))) return -1;
    pclose(pipe);
    return atoi(line);
}

/* Lines of the list that are of kernels; of some of these. */
static int count_told(const char *name) { return count("grep -aoE 'kernel [0-9]+ %s [0-9]+ [0-9]+ [0-9]+$' list | wc -l", name); }

/* Kernels that lie compiled in a folder of `place`, whose names are noted in a file. */
static int count_compiled(const char *cache, const char *names) {
    return count("find '%s' -name '*.so' | sort > %s; wc -l < %s", cache, names, names);
}

/* In clef-probe's place: a script. */
static void pretend(const char *name, const char *script) {
    FILE *file = fopen(io_path(place, name), "w");
    if (!EXPECT(file)) return;
    fprintf(file, "#!/bin/sh\n[ \"$1\" = compile ] || exit 1\ncd '%s'\n%s\n", place, script);
    fclose(file);
    chmod(io_path(place, name), 0700);
}

/* Keeps what it is told, and says when its input ends. */
static const char listener[] =
    "exec 4<&0\n{ for i in $(seq 600); do tail -n 1 /proc/self/fd/3 | grep -q '^the list ends here$' && break; "
    "sleep 0.1; done; cat /proc/self/fd/3 >new && mv new list; cat <&4 >none; echo >ended; } </dev/null &";
/* Is no process of its own before anybody waits for it. */
static const char hanger[] = "echo $$ >pid; echo once >>starts; exec sleep 1000";
/* Ends at once. */
static const char starter[] = "echo once >>small";

static bool comes(const char *name) {
    for (int i = 0; i < 1000 && access(io_path(place, name), F_OK) != 0; i++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    return access(io_path(place, name), F_OK) == 0;
}

static pid_t told_pid(void) {
    int pid = 0;
    FILE *file = fopen(io_path(place, "pid"), "r");
    if (file && fscanf(file, "%d", &pid) != 1) pid = 0;
    if (file) fclose(file);
    return pid;
}

/* The true one, until nobody has its standard input any more. */
static void help(const char *cache) {
    char command[2048];
    snprintf(command, sizeof command,
             "cd '%s' && mkdir %s && POCL_CACHE_DIR='%s/%s' '" CLEF_TEST_BUILD
             "/clef-probe' compile 'Portable Computing Language' 0 3<list",
             place, cache, place, cache);
    FILE *input = popen(command, "w");
    if (!EXPECT(input)) return;
    struct pollfd end = {.fd = fileno(input)};
    EXPECT(poll(&end, 1, 600000) == 1);
    EXPECT(pclose(input) == 0);
}

/* Is there such a driver, with two cores? */
static bool can_help(void) {
    clef_context *ctx = clef_open(&(clef_options){.device = "0"});
    bool is = ctx && clef__help_can(clef__device_at(ctx, 0));
    clef_close(ctx);
    return is;
}

int main(int argc, char **argv) {
    char first[64] = "", again[64] = "", command[2048];
    if (argc == 2 && strcmp(argv[1], "step") == 0) return step();
    unsetenv("CLEF_HELPER");
    if (!can_help()) return printf("skipped: no driver that compiles in turn, or one core\n"), 77;
    place = io_scratch();
    pretend("listener", listener);
    pretend("hanger", hanger);
    pretend("starter", starter);

    /* It ends with its context. */
    snprintf(command, sizeof command, "CLEF_PROBE='%s/listener'", place);
    run_step("alone", command, first);
    EXPECT(comes("ended"));
    int wanted = count_told("[a-z_0-9]+");
    EXPECT(wanted >= 15 && count_told("gemm") >= 2 && count_told("pointwise_[0-9]+") >= 3);

    /* One that hangs takes a second, and is gone. */
    snprintf(command, sizeof command, "CLEF_PROBE='%s/hanger'", place);
    run_step("hung", command, again);
    EXPECT(told_pid() > 0 && kill(told_pid(), 0) != 0);
    EXPECT(count("wc -l <starts") == 1);
    EXPECT(strcmp(first, again) == 0);

    /* It starts by a plan that is too small for it, and not again if it ends untold. */
    snprintf(command, sizeof command, "CLEF_PROBE='%s/starter'", place);
    run_step("fifth", command, again);
    EXPECT(count("wc -l <small") == 1);
    EXPECT(strcmp(first, again) == 0);

    /* The true one compiles all that it was told of, for just the launches of the step: that adds none of these. */
    help("helped");
    EXPECT(count_compiled("helped", "before") == wanted + 1); /* and one by which it got ready */
    run_step("helped", "CLEF_PROBE=0", again);
    EXPECT(count_compiled("helped", "after") > wanted + 1); /* programs of another plan */
    EXPECT(count("cut -d/ -f1-3 before | sort -u > programs; comm -13 before after | grep -cF -f programs") == 0);
    EXPECT(strcmp(first, again) == 0);

    /* Nobody is asked where that was said. */
    unlink(io_path(place, "list"));
    snprintf(command, sizeof command, "CLEF_HELPER=0 CLEF_PROBE='%s/listener'", place);
    run_step("third", command, again);
    snprintf(command, sizeof command, "CLEF_COMPILE_THREADS=1 CLEF_PROBE='%s/listener'", place);
    run_step("fourth", command, again);
    EXPECT(strcmp(first, again) == 0);
    EXPECT(access(io_path(place, "list"), F_OK) != 0);
    io_remove_tree(place);
    return io_failures != 0;
}
