/* main.c — the clef command: picks the verb, parses its options, runs it. */
#include "tool.h"
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>

#ifndef CLEF_COMPONENTS
#define CLEF_COMPONENTS ""
#endif

static const verb *const verbs[] = {&verb_devices, &verb_train, &verb_eval, &verb_bench, &verb_tune, &verb_cache, &verb_generate};
enum { VERBS = sizeof verbs / sizeof *verbs };

int tool_usage(const char *verb_name, const char *fmt, ...) {
    va_list arguments;
    fprintf(stderr, "clef %s: ", verb_name);
    va_start(arguments, fmt);
    vfprintf(stderr, fmt, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    return EXIT_USAGE;
}

int tool_failed(const char *verb_name, const clef_context *ctx) {
    const char *line = clef_error(ctx);
    fprintf(stderr, "clef %s: %s\n", verb_name, *line ? line : "failed");
    if (clef_error_status(ctx) == CLEF_BUILD) fprintf(stderr, "%s\n", clef_build_log(ctx));
    return EXIT_FAILED;
}

/* ---- signals ---- */
static volatile int *interrupted;
static sigset_t caught;

/* A thread of its own waits for them, and no other is asked: a driver's compiler would catch them too, and remove what it is writing,
   so that the program that it compiles fails. */
static void *wait_for_signals(void *unused) {
    int number;
    (void)unused;
    sigwait(&caught, &number);
    *interrupted = 1;
    sigwait(&caught, &number);
    signal(number, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &caught, NULL);
    raise(number);
    return NULL;
}

void tool_catch_signals(volatile int *flag) {
    struct sigaction hang_up;
    pthread_t waiter;
    interrupted = flag;
    sigemptyset(&caught);
    sigaddset(&caught, SIGINT);
    sigaddset(&caught, SIGTERM);
    if (!sigaction(SIGHUP, NULL, &hang_up) && hang_up.sa_handler != SIG_IGN) sigaddset(&caught, SIGHUP); /* nohup ignores it */
    pthread_sigmask(SIG_BLOCK, &caught, NULL);
    if (pthread_create(&waiter, NULL, wait_for_signals, NULL) == 0) pthread_detach(waiter);
    else pthread_sigmask(SIG_UNBLOCK, &caught, NULL);
}

/* ---- lines ---- */
static int columns(FILE *out) {
    enum { USUAL = 80, NARROWEST = 20 };
    struct winsize size;
    if (ioctl(fileno(out), TIOCGWINSZ, &size) || size.ws_col == 0 || size.ws_col > USUAL) return USUAL;
    return size.ws_col > NARROWEST ? size.ws_col : NARROWEST;
}

void tool_line(FILE *out, const char *fmt, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, fmt);
    int n = vsnprintf(text, sizeof text, fmt, arguments), most = columns(out);
    va_end(arguments);
    if (n > most) strcpy(text + most - 3, "...");
    fprintf(out, "%s\n", text);
}

double tool_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void warn(void *user, clef_log_level level, const char *line) {
    if (level == CLEF_LOG_WARNING) fprintf(stderr, "clef %s: warning: %s\n", (const char *)user, line);
}

clef_options tool_options(const char *verb_name, const common_options *common) {
    return (clef_options){.device = common->device,
                          .seed = common->seed,
                          .log = warn,
                          .log_user = (void *)(uintptr_t)verb_name,
                          .matmul_precision = common->matmul_precision,
                          .threads = (int)(common->threads < INT_MAX ? common->threads : INT_MAX)};
}

clef_context *tool_open(const char *verb_name, const common_options *common, int *code) {
    clef_options options = tool_options(verb_name, common);
    return tool_open_with(verb_name, common, &options, code);
}

/* A device that was asked for and is not there is a wrong command; no device at all is not. */
clef_context *tool_open_with(const char *verb_name, const common_options *common, const clef_options *options, int *code) {
    clef_context *ctx = clef_open(options);
    if (ctx) return ctx;
    bool chosen = common->device || getenv("CLEF_DEVICE") || getenv("CLEF_THREADS") || getenv("CLEF_MATMUL_PRECISION") ||
                  getenv("CLEF_IDLE_PROGRAMS");
    clef_status status = clef_error_status(NULL);
    tool_failed(verb_name, NULL);
    *code = status == CLEF_NO_DEVICE && clef_device_count() == 0 ? EXIT_NO_DEVICE
            : status == CLEF_INVALID && chosen                   ? EXIT_USAGE
                                                                 : EXIT_FAILED;
    return NULL;
}

const char *tool_device_name(const clef_context *ctx) {
    clef_device_info info;
    return clef_context_device(ctx, 0, &info) ? info.name : "unknown";
}

const char *tool_precision(const clef_context *ctx) {
    return clef_get_matmul_precision(ctx) == CLEF_MATMUL_HIGH ? "high" : "highest";
}

clef_dtype tool_half(const common_options *common) {
    static const clef_dtype dtypes[] = {CLEF_F16, CLEF_BF16};
    for (int i = 0; common->dtype && i < 2; i++)
        if (!strcmp(common->dtype, clef_dtype_name(dtypes[i]))) return dtypes[i];
    return CLEF_F32;
}

void tool_autocast(clef_context *ctx, const common_options *common) {
    if (tool_half(common)) clef_set_autocast(ctx, tool_half(common));
}

static void help(FILE *out) {
    fputs("usage: clef VERB [OPTION]...\nTrains and runs neural networks on any OpenCL device.\n\n", out);
    for (int i = 0; i < VERBS; i++) fprintf(out, "  %-10s%s\n", verbs[i]->name, verbs[i]->summary);
    fputs("\n  clef VERB --help    what a verb takes\n  clef --version      version and components\n\n"
          "Exit codes: 0 done, 1 failed, 2 wrong command, 77 no OpenCL device.\n"
          "CLEF_TUNING, CLEF_CLBLAST, CLEF_MATMUL_PRECISION, CLEF_MATRIX, CLEF_SHUFFLE, CLEF_PROBE, CLEF_ZERO_COPY, CLEF_PINNED,\n"
          "CLEF_AFFINITY, CLEF_CHAIN, CLEF_IDLE_PROGRAMS, CLEF_PROFILE, CLEF_ROWS, CLEF_FUSE, CLEF_EAGER, CLEF_DEBUG, CLEF_TRACE, "
          "CLEF_COMPILE_THREADS, CLEF_HELPER,\n"
          "NO_COLOR; see clef(1).\n",
          out);
}

static void version(void) {
    printf("clef %s\ncomponents: %s\nOpenCL devices: %d\n", clef_version(), *CLEF_COMPONENTS ? CLEF_COMPONENTS : "none",
           clef_device_count());
}

static int run_verb(const verb *v, int argc, char **argv) {
    const char **operands = malloc(((size_t)argc + 1) * sizeof *operands);
    int code = EXIT_OK;
    if (!operands) return EXIT_FAILED;
    if (!args_parse(v, argc, argv, operands)) code = EXIT_USAGE;
    else if (((const common_options *)v->options)->help) args_help(v, stdout);
    else code = v->run(operands);
    free(operands);
    return code;
}

static int dispatch(int argc, char **argv) {
    if (argc < 2) {
        help(stderr);
        return EXIT_USAGE;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) help(stdout);
    else if (!strcmp(argv[1], "--version")) version();
    else {
        for (int i = 0; i < VERBS; i++)
            if (!strcmp(argv[1], verbs[i]->name)) return run_verb(verbs[i], argc - 2, argv + 2);
        char names[128] = "help";
        for (int i = 0; i < VERBS; i++) strcat(strcat(names, "|"), verbs[i]->name);
        fprintf(stderr, "clef: unknown verb \"%s\"%s; see clef --help\n", argv[1], args_hint(argv[1], names));
        return EXIT_USAGE;
    }
    return EXIT_OK;
}

int main(int argc, char **argv) {
    int code = dispatch(argc, argv);
    if (fflush(stdout) || ferror(stdout)) {
        fprintf(stderr, "clef: cannot write to stdout\n");
        return code ? code : EXIT_FAILED;
    }
    return code;
}
