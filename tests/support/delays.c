/* Makes commands begin late: LD_PRELOAD this, with CLEF_TEST_DELAY and, for other delays, CLEF_TEST_DELAY_SEED.

   CLEF_TEST_DELAY says which commands: copies, kernels (every second one), reads, writes, several of these words, or all.
   Each of them waits for one more event, which a thread of this layer completes up to 20 ms after the call (kernels: 5 ms, as there are
   so many).  The call returns as always and the queue stays in order.  So two queues drift apart, and a program that forgot an event
   between them computes something else; one that forgot none gets the same bits, whatever is late.
   Only pocl's drivers with threads are delayed, whose user events are right; its basic driver gives data that was never read. */
#include "layer.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- events that wait to be completed ---- */

enum { SECOND = 1000000000, MOST = 20000000, MOST_FOR_KERNELS = 5000000 /* ns */ };

typedef struct late {
    struct timespec due;
    cl_event event;
    struct late *next;
} late;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t news = PTHREAD_COND_INITIALIZER;
static late *first; /* the earliest of those that wait */
static bool begun, over;
static pthread_t timer;
static uint64_t state, kernels;

static bool before(struct timespec a, struct timespec b) {
    return a.tv_sec != b.tv_sec ? a.tv_sec < b.tv_sec : a.tv_nsec < b.tv_nsec;
}

static struct timespec now(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return t;
}

/* Completes each event when its time has come; without the lock, as a driver may start the commands behind it here. */
static void *complete_in_time(void *unused) {
    (void)unused;
    pthread_mutex_lock(&lock);
    while (first || !over) {
        if (!first) {
            pthread_cond_wait(&news, &lock);
        } else if (before(now(), first->due)) {
            struct timespec due = first->due;
            pthread_cond_timedwait(&news, &lock, &due);
        } else {
            late *l = first;
            first = l->next;
            pthread_mutex_unlock(&lock);
            clSetUserEventStatus(l->event, CL_COMPLETE);
            clReleaseEvent(l->event);
            free(l);
            pthread_mutex_lock(&lock);
        }
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* With the lock; splitmix64. */
static uint64_t roll(uint64_t n) {
    state += 0x9e3779b97f4a7c15u;
    uint64_t x = state;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return (x ^ (x >> 31)) % n;
}

static void begin(void) {
    const char *seed = getenv("CLEF_TEST_DELAY_SEED");
    state = seed ? strtoull(seed, NULL, 10) : 1;
    begun = pthread_create(&timer, NULL, complete_in_time, NULL) == 0;
}

/* The thread takes the event over; false: there is no thread, or no memory. */
static bool complete_later(cl_event event, uint64_t most) {
    late *l = malloc(sizeof *l);
    pthread_mutex_lock(&lock);
    if (!begun) begin();
    bool good = l && begun;
    if (good) {
        struct timespec due = now();
        uint64_t ns = (uint64_t)due.tv_nsec + roll(most);
        *l = (late){.due = {due.tv_sec + (time_t)(ns / SECOND), (long)(ns % SECOND)}, .event = event};
        late **at = &first;
        while (*at && before((*at)->due, l->due)) at = &(*at)->next;
        l->next = *at;
        *at = l;
        pthread_cond_signal(&news);
    }
    pthread_mutex_unlock(&lock);
    if (!good) free(l);
    return good;
}

/* The thread must not call a driver that is being unloaded. */
__attribute__((destructor)) static void end(void) {
    pthread_mutex_lock(&lock);
    bool running = begun;
    over = true;
    pthread_cond_signal(&news);
    pthread_mutex_unlock(&lock);
    if (running) pthread_join(timer, NULL);
}

/* ---- which commands ---- */

static bool is_asked_for(const char *what) {
    const char *words = getenv("CLEF_TEST_DELAY");
    if (!words || (!strstr(words, what) && strcmp(words, "all") != 0)) return false;
    if (strcmp(what, "kernels") != 0) return true;
    pthread_mutex_lock(&lock);
    bool second = kernels++ % 2 == 1;
    pthread_mutex_unlock(&lock);
    return second;
}

static bool has_user_events(cl_command_queue queue) {
    cl_device_id device;
    cl_platform_id platform;
    char driver[64] = "", name[256] = "";
    return clGetCommandQueueInfo(queue, CL_QUEUE_DEVICE, sizeof device, &device, NULL) == CL_SUCCESS &&
           clGetDeviceInfo(device, CL_DEVICE_PLATFORM, sizeof platform, &platform, NULL) == CL_SUCCESS &&
           clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof driver, driver, NULL) == CL_SUCCESS &&
           clGetDeviceInfo(device, CL_DEVICE_NAME, sizeof name, name, NULL) == CL_SUCCESS &&
           strcmp(driver, "Portable Computing Language") == 0 && strncmp(name, "basic", 5) != 0;
}

/* ---- the commands ---- */

/* What a command waits for: the caller's events, and ours where it is late. */
typedef struct waits {
    cl_uint n;
    const cl_event *list;
    cl_event *own, late; /* own: the list to be freed */
} waits;

static waits waits_of(cl_command_queue queue, const char *what, uint64_t most, cl_uint n, const cl_event *after) {
    waits as_they_are = {.n = n, .list = after};
    if ((n > 0) != (after != NULL) || !is_asked_for(what) || !has_user_events(queue)) return as_they_are;
    cl_context context;
    if (clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof context, &context, NULL) != CL_SUCCESS) return as_they_are;
    cl_event *list = malloc((n + 1) * sizeof *list), event = list ? clCreateUserEvent(context, NULL) : NULL;
    bool good = event && clRetainEvent(event) == CL_SUCCESS; /* it may be over before the call that waits for it */
    if (good && !complete_later(event, most)) clReleaseEvent(event), good = false;
    if (!good) {
        if (event) clReleaseEvent(event);
        free(list);
        return as_they_are;
    }
    for (cl_uint i = 0; i < n; i++) list[i] = after[i];
    list[n] = event;
    return (waits){.n = n + 1, .list = list, .own = list, .late = event};
}

static cl_int done_with(waits *w, cl_int code) {
    if (w->late) clReleaseEvent(w->late);
    free(w->own);
    return code;
}

EXPORT cl_int clEnqueueCopyBuffer(cl_command_queue queue, cl_mem from, cl_mem to, size_t from_offset, size_t to_offset,
                                  size_t bytes, cl_uint n, const cl_event *after, cl_event *done) {
    waits w = waits_of(queue, "copies", MOST, n, after);
    return done_with(&w, REAL(clEnqueueCopyBuffer)(queue, from, to, from_offset, to_offset, bytes, w.n, w.list, done));
}

EXPORT cl_int clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel, cl_uint dims, const size_t *offset,
                                     const size_t *global, const size_t *local, cl_uint n, const cl_event *after, cl_event *done) {
    waits w = waits_of(queue, "kernels", MOST_FOR_KERNELS, n, after);
    return done_with(&w, REAL(clEnqueueNDRangeKernel)(queue, kernel, dims, offset, global, local, w.n, w.list, done));
}

EXPORT cl_int clEnqueueReadBuffer(cl_command_queue queue, cl_mem memory, cl_bool blocking, size_t offset, size_t bytes, void *host,
                                  cl_uint n, const cl_event *after, cl_event *done) {
    waits w = waits_of(queue, "reads", MOST, n, after);
    return done_with(&w, REAL(clEnqueueReadBuffer)(queue, memory, blocking, offset, bytes, host, w.n, w.list, done));
}

EXPORT cl_int clEnqueueWriteBuffer(cl_command_queue queue, cl_mem memory, cl_bool blocking, size_t offset, size_t bytes,
                                   const void *host, cl_uint n, const cl_event *after, cl_event *done) {
    waits w = waits_of(queue, "writes", MOST, n, after);
    return done_with(&w, REAL(clEnqueueWriteBuffer)(queue, memory, blocking, offset, bytes, host, w.n, w.list, done));
}
