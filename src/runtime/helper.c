/* helper.c — a process that compiles beside this one.

   Some drivers compile one kernel at a time, however many threads ask, and keep what they compiled where other processes find it (drivers.def).
   So a process of its own (clef-probe compile) takes what a plan wants from the end, while this one takes it from the front; where they meet,
   all is in the driver's cache.  It starts when a program takes long, gets the driver's compiler ready, and is told everything at once, in a
   file; then it launches one work-group of every kernel, with numbers that leave it little to do.  Nobody asks how far it came: it spares
   time, and nothing else depends on it.  It is no child of this process for long, so that no program waits for it or hears of its end; it
   ends when it has done all, or with its standard input, which is held open here. */
#include "runtime/child.h"
#include "runtime/probe_list.h"
#include "runtime/text.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { CORES = 2, LEAST_FILE = CLEF__CHILD_FILE + 1 };
static const double PATIENCE = 1; /* seconds, until it is no child any more */

/* ---- what is wanted ---- */
struct clef__help {
    clef__device *device;
    clef__text programs, kernels;
    int n;
};

static bool is_whole(const clef__device *device) { return !device->divided && device->programs->n == 1 && device->info.index >= 0; }

/* Does the driver keep what it compiles? */
static bool keeps(const clef__driver *driver) {
    const char *value = driver->in_turn ? clef__env(driver->in_turn) : NULL;
    return driver->in_turn && (!value || *value == '1');
}

bool clef__help_can(const clef__device *device) {
    const clef__driver driver = clef__driver_of(&device->info);
    char program[PATH_MAX];
    return keeps(&driver) && is_whole(device) && device->info.compute_units >= CORES && !device->crowded && clef__child_allowed() &&
           clef__child_program(program);
}

/* Nobody reads what is its standard input when it has ended.  One that could not be started, or ended before it was told anything, is not
   tried again. */
static bool is_busy(clef_context *ctx) {
    struct pollfd file = {.fd = ctx->helper};
    bool told = !ctx->helper_list;
    if (ctx->helper <= 0) return ctx->helper < 0;
    if (poll(&file, 1, 0) == 0) return true;
    clef__help_end(ctx);
    if (!told) ctx->helper = -1;
    return !told;
}

bool clef__help_pays(clef__device *device) {
    const clef_context *ctx = device->ctx;
    if (is_busy(device->ctx)) return ctx->helper_list && ctx->helper_device == device;
    return atomic_exchange(&device->programs->slow, false);
}

clef__help *clef__help_new(clef__device *device) {
    clef__help *help = clef__calloc(1, sizeof *help);
    if (help) help->device = device;
    return help;
}

static int add_program(clef__help *help, const char *source, const char *options) {
    if (source && options) {
        clef__text_add(&help->programs, "program %zu %zu\n", strlen(source), strlen(options));
        clef__text_append(&help->programs, source);
        clef__text_append(&help->programs, options);
    } else help->programs.failed = true;
    return help->n++;
}

int clef__help_code(clef__help *help, clef__code *code) {
    char *source = clef__code_text(code, NULL), *options = clef__program_options(help->device, code->options);
    int number = add_program(help, source, options);
    clef__free(source);
    clef__free(options);
    return number;
}

int clef__help_join(clef__help *help, const clef__join *join) {
    char *options = clef__program_options(help->device, join->options);
    int number = add_program(help, join->text, options);
    clef__free(options);
    return number;
}

void clef__help_kernel(clef__help *help, int program, const char *name, const size_t local[3]) {
    clef__text_add(&help->kernels, "kernel %d %s %zu %zu %zu\n", program, name, local[0], local[1], local[2]);
}

void clef__help_memory(clef__help *help) { clef__text_append(&help->kernels, "memory\n"); }

void clef__help_number(clef__help *help, const void *bytes, size_t n) {
    clef__text_append(&help->kernels, "number ");
    for (size_t i = 0; i < n; i++) clef__text_add(&help->kernels, "%02x", ((const unsigned char *)bytes)[i]);
    clef__text_append(&help->kernels, "\n");
}

/* ---- the process ---- */

/* Without a name, for both to read and write; -1: there is none. */
static int file_of_list(void) {
    FILE *file = tmpfile();
    int list = file ? fcntl(fileno(file), F_DUPFD_CLOEXEC, LEAST_FILE) : -1;
    if (file) fclose(file);
    return list;
}

/* The end of its standard input that is held open; -1: it could not be started. */
static int start(char *const *arguments, int list) {
    int ends[2], input, held;
    pid_t child;
    if (list < 0 || !clef__child_pipe(ends)) return -1;
    input = fcntl(ends[0], F_DUPFD_CLOEXEC, LEAST_FILE);
    held = fcntl(ends[1], F_DUPFD_CLOEXEC, LEAST_FILE);
    for (int i = 0; i < 2; i++) close(ends[i]);
    bool started = input >= 0 && held >= 0 && clef__child_start(arguments, list, input, &child);
    if (started) clef__child_end(child, PATIENCE);
    if (input >= 0) close(input);
    if (held >= 0 && !started) close(held);
    return started ? held : -1;
}

void clef__help_start(clef__device *device) {
    clef_context *ctx = device->ctx;
    char program[PATH_MAX], number[32];
    char *arguments[] = {program, (char *)(uintptr_t) "compile", (char *)(uintptr_t)device->info.platform, number, NULL};
    if (is_busy(ctx) || !clef__child_program(program)) return;
    snprintf(number, sizeof number, "%d", device->info.index);
    int list = file_of_list();
    ctx->helper = start(arguments, list);
    ctx->helper_device = device;
    if (ctx->helper > 0) ctx->helper_list = list;
    else if (list >= 0) close(list);
    clef__log_line(ctx, CLEF_LOG_DEBUG, "helper: %s", ctx->helper > 0 ? "gets ready" : "could not be started");
}

static bool write_all(int file, const char *bytes, size_t n) {
    for (ssize_t done; n > 0; bytes += done, n -= (size_t)done) {
        done = write(file, bytes, n);
        if (done < 0 && errno == EINTR) done = 0;
        if (done < 0) return false;
    }
    return true;
}

static void tell(clef_context *ctx, const clef__help *help) {
    bool written = write_all(ctx->helper_list, help->programs.data, help->programs.length) &&
                   write_all(ctx->helper_list, help->kernels.data, help->kernels.length) &&
                   write_all(ctx->helper_list, CLEF_PROBE_LIST_END, strlen(CLEF_PROBE_LIST_END));
    close(ctx->helper_list);
    ctx->helper_list = 0;
    if (!written) clef__help_end(ctx);
    else clef__log_line(ctx, CLEF_LOG_DEBUG, "helper: compiles from the end of the plan");
}

void clef__help_begin(clef__help *help) {
    clef_context *ctx = help->device->ctx;
    bool failed = help->programs.failed || help->kernels.failed || !help->programs.data || !help->kernels.data;
    if (!failed && !ctx->helper_list) clef__help_start(help->device);
    if (!failed && ctx->helper_list) tell(ctx, help);
    clef__free(help->programs.data);
    clef__free(help->kernels.data);
    clef__free(help);
}

void clef__help_end(clef_context *ctx) {
    if (ctx->helper > 0) close(ctx->helper);
    if (ctx->helper_list) close(ctx->helper_list);
    ctx->helper = ctx->helper_list = 0;
}
