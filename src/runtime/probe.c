/* probe.c — asks the child process, and remembers what it said.

   The child answers through a pipe, so that it does not matter what the program does with SIGCHLD.  Verdicts on a driver are cached
   on disk, a hang's too.  That no child could be started, or that it found no device, is no verdict: it may be otherwise next time. */
#include "runtime/probe.h"
#include "runtime/child.h"
#include "runtime/sha256.h"
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What it says, and for how many seconds it may be silent before; the last line counts when the child ends, as soon. */
static const struct {
    const char *line;
    double limit;
} answers[] = {{"listed\n", 5}, {"ready\n", 5}, {"half\n", 2}, {"right\n", 2}};
enum { STAGES = sizeof answers / sizeof answers[0] };

/* ---- the child ---- */
/* How many of the answers are at the beginning of a text; not all of them where there is more. */
static int stages_of(const char *text) {
    int n = 0;
    size_t at = 0;
    for (; n < STAGES && strncmp(text + at, answers[n].line, strlen(answers[n].line)) == 0; n++) at += strlen(answers[n].line);
    return n == STAGES && text[at] ? n - 1 : n;
}

/* How far the child came until it ended; less where it was silent for too long, or said something else. */
static int hear(int answers_from) {
    char text[64] = "";
    size_t n = 0;
    int stages = 0;
    for (double until = clef__now() + answers[0].limit;;) {
        struct pollfd file = {.fd = answers_from, .events = POLLIN};
        double left = until - clef__now();
        int ready = left > 0 ? poll(&file, 1, (int)(left * 1e3) + 1) : 0;
        if (ready < 0 && errno == EINTR) continue;
        ssize_t got = ready > 0 ? read(answers_from, text + n, sizeof text - 1 - n) : -1;
        if (got < 0 && ready > 0 && errno == EINTR) continue;
        if (got <= 0) return got == 0 || stages < STAGES ? stages : STAGES - 1;
        n += (size_t)got;
        text[n] = 0;
        int before = stages;
        stages = stages_of(text);
        if (stages > before) until = clef__now() + answers[stages < STAGES ? stages : STAGES - 1].limit;
    }
}

/* Unknown where there is no child, or it did not find the devices: that is no fault of the driver's. */
static clef_verdict ask_child(char *const *arguments) {
    int ends[2], stages = 0;
    pid_t child;
    if (!clef__child_pipe(ends)) return CLEF_VERDICT_UNKNOWN;
    bool started = clef__child_start(arguments, ends[1], -1, &child);
    close(ends[1]);
    if (started) stages = hear(ends[0]);
    close(ends[0]);
    if (started) clef__child_end(child, 0);
    return stages == STAGES ? CLEF_VERDICT_YES : stages > 0 ? CLEF_VERDICT_NO : CLEF_VERDICT_UNKNOWN;
}

/* ---- what is known ---- */
enum { REMEMBERED = 64 }; /* the oldest goes */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    uint8_t key[32];
    clef_verdict verdict;
} remembered[REMEMBERED];
static unsigned n_remembered;

/* False where nobody asked; what was asked in vain is unknown. */
static bool recall(const uint8_t key[32], clef_verdict *verdict) {
    bool found = false;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < REMEMBERED && !found; i++) {
        found = memcmp(remembered[i].key, key, 32) == 0;
        if (found) *verdict = remembered[i].verdict;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

static void remember(const uint8_t key[32], clef_verdict verdict) {
    pthread_mutex_lock(&lock);
    memcpy(remembered[n_remembered % REMEMBERED].key, key, 32);
    remembered[n_remembered++ % REMEMBERED].verdict = verdict;
    pthread_mutex_unlock(&lock);
}

static clef_verdict load(clef_context *ctx, const uint8_t key[32]) {
    clef__entry entry;
    unsigned char *bytes = clef__cache_load(ctx, key, &entry);
    clef_verdict verdict = CLEF_VERDICT_UNKNOWN;
    if (bytes && entry.kind == CLEF__ENTRY_VERDICT && entry.size == 1)
        verdict = entry.payload[0] == 'y' ? CLEF_VERDICT_YES : CLEF_VERDICT_NO;
    clef__free(bytes);
    return verdict;
}

/* ---- questions ---- */
enum { MOST_DEVICES = 2, ARGUMENT = 32 };
typedef struct question {
    const char *name;
    const clef__found *device[MOST_DEVICES];
    int n;
} question;

/* The device, and how much of it. */
static void device_key(const question *q, int i, uint8_t key[32]) {
    char units[ARGUMENT];
    const clef__found *d = q->device[i];
    snprintf(units, sizeof units, "%s%u", d->divided ? "part " : "", d->info.compute_units);
    clef__cache_key(&d->info, q->name, units, key);
}

static const char edition[] = "2"; /* of what clef-probe tries: other trials, other verdicts */

/* And the variables that may change how a driver behaves. */
static void key_of(const question *q, uint8_t key[32]) {
    static const char *const variables[] = {"CLEF_PROBE", "LD_PRELOAD", "OPENCL_LAYERS", "POCL_DEVICES"};
    uint8_t keys[MOST_DEVICES][32];
    for (int i = 0; i < q->n; i++) device_key(q, i, keys[i]);
    bool swap = q->n == 2 && memcmp(keys[0], keys[1], 32) > 0;
    clef__sha256 s;
    clef__sha256_begin(&s);
    clef__sha256_add_text(&s, edition);
    for (int i = 0; i < q->n; i++) clef__sha256_add(&s, keys[swap ? 1 - i : i], 32);
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        const char *value = clef__env(variables[i]);
        clef__sha256_add_text(&s, value ? value : "");
    }
    clef__sha256_end(&s, key);
}

static clef_verdict ask_driver(clef_context *ctx, const question *q) {
    static const char *const said[] = {"unknown, as clef-probe was not found or found no device", "no", "yes"};
    char path[PATH_MAX], device[MOST_DEVICES][ARGUMENT];
    char *arguments[4 + MOST_DEVICES] = {path, (char *)(uintptr_t)q->name, (char *)(uintptr_t)q->device[0]->info.platform};
    for (int i = 0; i < q->n; i++) {
        const clef_device_info *info = &q->device[i]->info;
        if (q->device[i]->divided) snprintf(device[i], sizeof device[i], "%d:%u", info->index, info->compute_units);
        else snprintf(device[i], sizeof device[i], "%d", info->index);
        arguments[3 + i] = device[i];
    }
    double begin = clef__now();
    clef_verdict verdict = clef__child_program(path) ? ask_child(arguments) : CLEF_VERDICT_UNKNOWN;
    clef__log_line(ctx, CLEF_LOG_INFO, "probe: %s of %s%s%s: %s (%.1f s)", q->name, q->device[0]->info.name,
                   q->n > 1 ? " and " : "", q->n > 1 ? q->device[1]->info.name : "", said[verdict], clef__now() - begin);
    return verdict;
}

static clef_verdict answer(clef_context *ctx, const question *q, bool ask) {
    uint8_t key[32];
    clef_verdict verdict;
    if (!clef__all_alive(ctx) || !clef__child_allowed()) return CLEF_VERDICT_UNKNOWN;
    key_of(q, key);
    if (recall(key, &verdict)) return verdict;
    verdict = load(ctx, key);
    if (verdict == CLEF_VERDICT_UNKNOWN && !ask) return verdict;
    if (verdict == CLEF_VERDICT_UNKNOWN) {
        verdict = ask_driver(ctx, q);
        if (verdict != CLEF_VERDICT_UNKNOWN)
            clef__cache_store(ctx, key, CLEF__ENTRY_VERDICT, verdict == CLEF_VERDICT_YES ? "y" : "n", 1);
    }
    remember(key, verdict);
    return verdict;
}

/* An adopted part of a device is in no list, and cannot be made again. */
static bool can_ask(const clef__found *d) { return d->info.index >= 0 && !d->unusable; }

clef_verdict clef__probe_events(clef_context *ctx, const clef__found *a, const clef__found *b, bool ask) {
    question q = {"events", {a, b}, a->id == b->id ? 1 : 2};
    if (a->platform != b->platform) return CLEF_VERDICT_NO;
    return can_ask(a) && can_ask(b) ? answer(ctx, &q, ask) : CLEF_VERDICT_UNKNOWN;
}

/* ---- for the program ---- */
static const clef__found *listed(int index) {
    const clef__found *list;
    int n = clef__devices(&list);
    return index >= 0 && index < n ? &list[index] : NULL;
}

clef_verdict clef_device_events(clef_context *ctx, int a, int b, bool ask) {
    const clef__found *first = listed(a), *second = listed(b);
    return ctx && first && second ? clef__probe_events(ctx, first, second, ask) : CLEF_VERDICT_UNKNOWN;
}

clef_verdict clef_device_user_events(clef_context *ctx, int index, bool ask) {
    const clef__found *device = listed(index);
    question q = {"user_events", {device}, 1};
    return ctx && device && can_ask(device) ? answer(ctx, &q, ask) : CLEF_VERDICT_UNKNOWN;
}
