/* Threads, each with a context of its own that shares its programs with the others', make, run and free kernels of a few sources
   while one program that nobody holds stays: what one releases another just finds, waits for or builds again.  Each joins codes, too.
   They close while the rest goes on.  For ThreadSanitizer, too.
   ctest: labels=threads plain */
#include "runtime_support.h"
#include "support/io_files.h"
#include "support/joined.h"
#include "support/plain.h"
#include <pthread.h>

enum { RANKS = 4, SOURCES = 5, TURNS = 40, PARTS = 3 };
static char source[SOURCES + PARTS][160];

typedef struct rank {
    clef_context *ctx;
    pthread_t thread;
    int number;
    uint64_t released;
} rank;

static bool tells(clef__device *device, clef__kernel *k, int wanted) {
    static const size_t one[3] = {1, 1, 1};
    int told = -1;
    clef__buffer *x = clef__buffer_new(device, sizeof told);
    bool good = k && x && clef__kernel_set_buffer(k, 0, x) == CLEF_OK && clef__kernel_launch(k, one, one, "f") == CLEF_OK &&
                clef__buffer_read(x, 0, &told, sizeof told) == CLEF_OK;
    clef__buffer_release(x);
    clef__kernel_free(k);
    return good && told == wanted;
}

static void make_one(clef__device *device, int n) { EXPECT(tells(device, clef__kernel_new(device, source[n], "", "f"), n)); }

static void join_some(clef__device *device) {
    clef__code *part[PARTS];
    for (int i = 0; i < PARTS; i++) part[i] = clef__code_of(device, source[SOURCES + i], NULL, "");
    compile_joined(device, part, PARTS, "f");
    for (int i = 0; i < PARTS; i++) {
        bool compiled = EXPECT(clef__code_compile(device, part[i], "f"));
        EXPECT(compiled && tells(device, clef__kernel_of(device, part[i]->program, "f"), SOURCES + i));
    }
    for (int i = 0; i < PARTS; i++) clef__code_release(part[i]);
}

static void *work(void *user) {
    rank *r = user;
    clef__device *device = clef__device_at(r->ctx, 0);
    for (int i = 0; i < TURNS * (r->number + 1) / RANKS; i++) {
        make_one(device, (i * (r->number + 1) + r->number) % SOURCES);
        if (i % 4 == r->number % 4) join_some(device);
    }
    EXPECT(clef_error_status(r->ctx) == CLEF_OK);
    EXPECT(clef_counters_get(r->ctx).programs <= RANKS * (PARTS + 1) + 1);
    r->released = clef_counters_get(r->ctx).programs_released;
    clef_close(r->ctx);
    return NULL;
}

int main(void) {
    static const char *const halves[] = {"0/2#0", "0/2#1"};
    static rank ranks[RANKS];
    clef_options options[RANKS] = {{0}};
    clef_context *ctx[RANKS];
    uint64_t released = 0;
    for (int i = 0; i < SOURCES + PARTS; i++)
        snprintf(source[i], sizeof source[i],
                 "#ifndef NAME\n#define NAME f\n#endif\n__kernel void NAME(__global int *x) { x[0] = %d; }\n", i);
    for (int i = 0; i < RANKS; i++) options[i] = (clef_options){.device = halves[i % 2], .idle_programs = 1, .cache_dir = ""};
    setenv("POCL_MAX_PTHREAD_COUNT", "2", 0); /* two units to divide, on a machine with one core too */
    setenv("CLEF_PROBE", CLEF_TEST_BUILD "/clef-probe", 1);
    if (clef_open_all(options, RANKS, ctx) != CLEF_OK) return without_context();
    for (int i = 0; i < RANKS; i++) {
        ranks[i] = (rank){.ctx = ctx[i], .number = i};
        if (!EXPECT(pthread_create(&ranks[i].thread, NULL, work, &ranks[i]) == 0)) return 1;
    }
    for (int i = 0; i < RANKS; i++) {
        pthread_join(ranks[i].thread, NULL);
        released += ranks[i].released;
    }
    EXPECT(released > 0);
    printf("idle: %llu programs released, %d failures\n", (unsigned long long)released, io_failures);
    return io_failures != 0;
}
