/* The runtime's life in one plain program, for the sanitizers: open, build in several threads, move bytes, fail,
   close; a context per thread; fork. */
/* ctest: labels=threads */
#include "runtime_support.h"
#include "support/plain.h"

#define CHECK(what)                                                                            \
    do {                                                                                       \
        if (!(what)) return printf("%s:%d: %s does not hold\n", __FILE__, __LINE__, #what), 1; \
    } while (0)

enum { THREADS = 4 };
static clef__device *shared;

static void *build(void *user) {
    char source[200];
    long made = 0;
    for (int i = 0; i < 4; i++) {
        snprintf(source, sizeof source, "__kernel void f(__global int *x) { x[0] = %s%d; }", i == 2 ? "nonesuch" : "", i);
        clef__kernel *k = clef__kernel_new(shared, source, "", "f");
        made += k != NULL;
        clef__kernel_free(k);
    }
    *(long *)user = made;
    return NULL;
}

static void *own_context(void *user) {
    clef_context *ctx = clef_open(&(clef_options){.cache_dir = ""});
    bool good = ctx != NULL;
    for (int i = 0; good && i < 5; i++) good = add_works(clef__device_at(ctx, 0), add_source);
    clef_close(ctx);
    *(long *)user = good;
    return NULL;
}

static int in_threads(void *(*what)(void *), long want) {
    pthread_t threads[THREADS];
    long got[THREADS] = {0};
    for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, what, &got[i]) == 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++) CHECK(got[i] == want);
    return 0;
}

static int move_bytes(clef__device *device) {
    static const size_t sizes[] = {1, 1000, 65536, 65537, 1000000, 40000000};
    for (int s = 0; s < 6; s++) {
        size_t n = sizes[s];
        unsigned char *host = malloc(n), *back = malloc(n);
        clef__buffer *b = clef__buffer_new(device, n);
        for (size_t i = 0; i < n; i++) host[i] = (unsigned char)(i % 251);
        CHECK(b && clef__buffer_write(b, 0, host, n) == CLEF_OK);
        CHECK(clef__buffer_read(b, 0, back, n) == CLEF_OK && memcmp(host, back, n) == 0);
        clef__buffer_release(b);
        free(host);
        free(back);
    }
    return 0;
}

/* A stage that another device fills is not used again before that is over, even when what was to read it has gone ahead. */
static int keep_stages(clef__device *device) {
    enum { BYTES = 1 << 20 };
    cl_int code;
    cl_event filled = clCreateUserEvent(device->context, &code), done = NULL;
    CHECK(filled && clEnqueueMarkerWithWaitList(clef__queue(device), 0, NULL, &done) == CL_SUCCESS &&
          clFinish(device->compute) == CL_SUCCESS);
    CHECK(clRetainEvent(filled) == CL_SUCCESS);
    clef__stage *s = clef__stage_take(device, BYTES), *other;
    CHECK(s);
    s->filled = filled;
    clef__stage_fly(device, s, done);
    CHECK((other = clef__stage_take(device, BYTES)) && other != s);
    clef__stage_return(device, other);
    CHECK(clSetUserEventStatus(filled, CL_COMPLETE) == CL_SUCCESS && clReleaseEvent(filled) == CL_SUCCESS);
    CHECK(clef__stage_take(device, BYTES) == s && !s->filled && !s->done);
    clef__stage_return(device, s);
    return 0;
}

static int fork_it(clef_context *ctx) {
    pid_t child = fork();
    if (child == 0) {
        bool good = !clef__usable(ctx) && clef_open(NULL) == NULL && clef_synchronize(ctx) == CLEF_STATE;
        clef_close(ctx);
        _exit(good ? 0 : 1);
    }
    int state = 1;
    CHECK(waitpid(child, &state, 0) == child && state == 0);
    return 0;
}

int main(void) {
    const char *dir = temporary_dir();
    for (int debug = 0; debug < 2; debug++) {
        clef_context *ctx = clef_open(&(clef_options){.cache_dir = dir, .debug_memory = debug});
        if (!ctx) return without_context();
        shared = clef__device_at(ctx, 0);
        CHECK(add_works(shared, add_source));
        CHECK(move_bytes(shared) == 0);
        CHECK(keep_stages(shared) == 0);
        CHECK(in_threads(build, 3) == 0);
        CHECK(clef_error_status(ctx) == CLEF_BUILD);
        CHECK(fork_it(ctx) == 0);
        clef_clear_error(ctx);
        CHECK(add_works(shared, add_source));
        CHECK(clef_error_status(ctx) == CLEF_OK);
        clef_close(ctx);
    }
    CHECK(in_threads(own_context, 1) == 0);
    remove_dir(dir);
    return 0;
}
