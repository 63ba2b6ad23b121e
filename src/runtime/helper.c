/* helper.c — a process that compiles beside this one.

   Some drivers compile one kernel at a time, however many threads ask, and keep what they compiled where other processes find it (drivers.def).
   So a process of its own (clef-probe compile) takes what a plan wants from the end, while this one takes it from the front; where they meet,
   all is in the driver's cache.  It is told everything at once, in a file, and launches one work-group of every kernel, with numbers that leave
   it little to do.  Nobody waits for it or asks how far it came: it spares time, and nothing else depends on it. */
#include "runtime/child.h"
#include "runtime/text.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SECOND_CORE = 2 }; /* cores that it takes */

/* ---- what is wanted ----
   Lines, as probe_main.c reads them: "program BYTES BYTES", of the source and of the options, which follow; for each kernel that is wanted of
   it "kernel NAME" and the size of a work-group, and for each of its arguments "memory" or "number" and its bytes. */
struct clef__help {
    clef__device *device;
    clef__text text;
};

static bool is_whole(const clef__device *device) { return !device->divided && device->programs->n == 1 && device->info.index >= 0; }

/* Is the last one still at work? */
static bool is_busy(const clef_context *ctx) { return ctx->helper > 0 && waitpid((pid_t)ctx->helper, NULL, WNOHANG) == 0; }

bool clef__help_pays(const clef__device *device) {
    const char *wanted = clef__env("CLEF_HELPER"), *threads = clef__env("CLEF_COMPILE_THREADS");
    return clef__driver_of(&device->info).in_turn && is_whole(device) && device->info.compute_units >= SECOND_CORE &&
           !device->crowded && atomic_load(&device->programs->slow) && !is_busy(device->ctx) &&
           !(wanted && strcmp(wanted, "0") == 0) && !(threads && strcmp(threads, "1") == 0) && clef__child_allowed();
}

clef__help *clef__help_new(clef__device *device) {
    clef__help *help = clef__calloc(1, sizeof *help);
    if (help) help->device = device;
    return help;
}

void clef__help_program(clef__help *help, clef__code *code) {
    char *source = clef__code_text(code, NULL), *options = clef__program_options(help->device, code->options);
    if (source && options) {
        clef__text_add(&help->text, "program %zu %zu\n", strlen(source), strlen(options));
        clef__text_append(&help->text, source);
        clef__text_append(&help->text, options);
    } else help->text.failed = true;
    clef__free(source);
    clef__free(options);
}

void clef__help_kernel(clef__help *help, const char *name, const size_t local[3]) {
    clef__text_add(&help->text, "kernel %s %zu %zu %zu\n", name, local[0], local[1], local[2]);
}

void clef__help_memory(clef__help *help) { clef__text_append(&help->text, "memory\n"); }

void clef__help_number(clef__help *help, const void *bytes, size_t n) {
    clef__text_append(&help->text, "number ");
    for (size_t i = 0; i < n; i++) clef__text_add(&help->text, "%02x", ((const unsigned char *)bytes)[i]);
    clef__text_append(&help->text, "\n");
}

/* ---- the process ---- */

/* Open for reading from its begin; -1: there is none. */
static int file_of(const clef__text *text) {
    FILE *file = tmpfile();
    if (!file) return -1;
    int from = fcntl(fileno(file), F_DUPFD_CLOEXEC, 0);
    bool written = fwrite(text->data, 1, text->length, file) == text->length && fflush(file) == 0 && from >= 0 &&
                   lseek(from, 0, SEEK_SET) == 0;
    fclose(file);
    if (written || from < 0) return from;
    close(from);
    return -1;
}

static void begin(clef__device *device, const clef__text *text) {
    char program[PATH_MAX], number[32];
    char *arguments[] = {program, (char *)(uintptr_t) "compile", (char *)(uintptr_t)device->info.platform, number, NULL};
    pid_t child;
    if (!clef__child_program(program)) return;
    snprintf(number, sizeof number, "%d", device->info.index);
    int file = file_of(text);
    bool started = file >= 0 && clef__child_start(arguments, file, &child);
    if (file >= 0) close(file);
    device->ctx->helper = started ? (int64_t)child : 0;
    clef__log_line(device->ctx, CLEF_LOG_DEBUG, "helper: %s",
                   started ? "compiles from the end of the plan" : "could not be started");
}

void clef__help_begin(clef__help *help) {
    if (!help) return;
    if (!help->text.failed && help->text.data) begin(help->device, &help->text);
    clef__free(help->text.data);
    clef__free(help);
}

void clef__help_end(clef_context *ctx) {
    if (ctx->helper > 0 && !clef__forked()) clef__child_end((pid_t)ctx->helper);
    ctx->helper = 0;
}
