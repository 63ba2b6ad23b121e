/* Makes devices slower: LD_PRELOAD this, with CLEF_TEST_SLOW or a program that asks for it.

   CLEF_TEST_SLOW="1=3": on the second device that gets a queue (counted from 0; a part of a device is a device) every kernel takes three
   times as long.  "0=2,1=5" names several.  A program that finds the symbol test_slow_device can change it as it runs.  When all queues
   are gone, devices are counted from 0 again.

   A kernel is run once, as one that adds in place would do so again.  Before and behind it two native kernels stand in the same queue: one
   looks at the clock, the other waits until the wanted time is over.  Waits below a fifth of a millisecond are added up first, as sleeping
   is not finer than that.  So drivers without native kernels, and queues that are not in order, are left as they are. */
#include "layer.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

enum { MOST = 16, FINEST = 200000 /* ns */ };

typedef struct device {
    cl_device_id id;
    bool can;
    int number;
    int64_t begin, debt; /* ns: of the kernel that runs; that were not slept yet */
} device;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static device devices[MOST];
static int n_devices, n_queues;
static double factors[MOST]; /* 0: as CLEF_TEST_SLOW says */

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* "1=3,2=5": what stands behind the number of this device; 1: nothing. */
static double wanted(int number) {
    const char *text = getenv("CLEF_TEST_SLOW");
    for (char *end; text && *text; text = *end ? end + 1 : end) {
        long device = strtol(text, &end, 10);
        double factor = *end == '=' ? strtod(end + 1, &end) : 1;
        if (device == number && factor >= 1) return factor;
        if (*end && *end != ',') break;
    }
    return 1;
}

EXPORT void test_slow_device(int number, double factor) {
    pthread_mutex_lock(&lock);
    if (number >= 0 && number < MOST) factors[number] = factor;
    pthread_mutex_unlock(&lock);
}

static device *device_of(cl_command_queue queue) {
    cl_device_id id = NULL;
    device *found = NULL;
    if (clGetCommandQueueInfo(queue, CL_QUEUE_DEVICE, sizeof id, &id, NULL) != CL_SUCCESS) return NULL;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n_devices && !found; i++)
        if (devices[i].id == id) found = &devices[i];
    pthread_mutex_unlock(&lock);
    return found;
}

static void note_queue(cl_device_id id) {
    cl_device_exec_capabilities can = 0;
    clGetDeviceInfo(id, CL_DEVICE_EXECUTION_CAPABILITIES, sizeof can, &can, NULL);
    pthread_mutex_lock(&lock);
    int i = 0;
    n_queues++;
    while (i < n_devices && devices[i].id != id) i++;
    if (i == n_devices && n_devices < MOST) {
        devices[i] = (device){.id = id, .can = (can & CL_EXEC_NATIVE_KERNEL) != 0, .number = i};
        if (factors[i] < 1) factors[i] = wanted(i);
        n_devices++;
    }
    pthread_mutex_unlock(&lock);
}

/* ---- beside a kernel ---- */

static void look_at_clock(void *argument) {
    device *d = *(device **)argument;
    d->begin = now();
}

static void wait_longer(void *argument) {
    device *d = *(device **)argument;
    pthread_mutex_lock(&lock);
    double factor = factors[d->number];
    pthread_mutex_unlock(&lock);
    d->debt += (int64_t)((double)(now() - d->begin) * (factor - 1));
    if (d->debt < FINEST) return;
    int64_t begin = now();
    struct timespec pause = {d->debt / 1000000000, d->debt % 1000000000};
    nanosleep(&pause, NULL);
    d->debt -= now() - begin; /* what was too long shortens the next */
}

static cl_int queue_native(cl_command_queue queue, void(CL_CALLBACK *f)(void *), device *d, cl_uint n, const cl_event *after,
                           cl_event *done) {
    return clEnqueueNativeKernel(queue, f, (void *)&d, sizeof d, 0, NULL, NULL, n, after, done);
}

EXPORT cl_int clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel, cl_uint dims, const size_t *offset,
                                     const size_t *global, const size_t *local, cl_uint n, const cl_event *after, cl_event *done) {
    device *d = device_of(queue);
    if (!d || !d->can) return REAL(clEnqueueNDRangeKernel)(queue, kernel, dims, offset, global, local, n, after, done);
    cl_int code = queue_native(queue, look_at_clock, d, n, after, NULL);
    if (code == CL_SUCCESS) code = REAL(clEnqueueNDRangeKernel)(queue, kernel, dims, offset, global, local, 0, NULL, NULL);
    return code == CL_SUCCESS ? queue_native(queue, wait_longer, d, 0, NULL, done) : code;
}

EXPORT cl_command_queue clCreateCommandQueue(cl_context context, cl_device_id id, cl_command_queue_properties properties,
                                             cl_int *code) {
    note_queue(id);
    return REAL(clCreateCommandQueue)(context, id, properties, code);
}

EXPORT cl_int clReleaseCommandQueue(cl_command_queue queue) {
    cl_int code = REAL(clReleaseCommandQueue)(queue);
    pthread_mutex_lock(&lock);
    if (code == CL_SUCCESS && --n_queues == 0) n_devices = 0;
    pthread_mutex_unlock(&lock);
    return code;
}
