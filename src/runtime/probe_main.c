/* probe_main.c — clef-probe: asks an OpenCL driver what some drivers answer by a hang, a crash or wrong numbers; and compiles in the place
   of another process.

       clef-probe events PLATFORM DEVICE [DEVICE]    Do events order the work of several queues in one context?
       clef-probe user_events PLATFORM DEVICE        Does work wait for user events, and go on when they are complete, mapped memory too?
       clef-probe compile PLATFORM DEVICE            Compiles what file descriptor 3 lists (probe_compile.c).

   PLATFORM is the name of the devices' platform.  DEVICE is a number in the list of all devices (device.c lists them in the same
   order), or NUMBER:UNITS for a sub-device of so many compute units.

   Answers go to file descriptor 3, each with a line break: "listed" when the devices are there, "ready" when everything was made
   and has run once, "half" half-way, "right" when all numbers were right.  Anything else is no, a silence too.  probe.c starts this
   program, with the program's environment and a limit of time.  It knows nothing of the library, and what fails ends it at once. */
#include "runtime/probe_program.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MAX_PLATFORMS = 32, MAX_FOUND = 64 }; /* as in device.c */
enum { ROUNDS = 50, COUNT = 1 << 14, BYTES = COUNT * (int)sizeof(cl_uint) };
enum { ANSWERS = 3, LONGEST = 20 }; /* seconds, for whoever starts it by hand */

/* A kernel, as kernels and copies run on different engines of a device; whoever mixes up an order gets other numbers. */
static const char source[] = "__kernel void advance(__global uint *x, uint factor, uint add) {\n"
                             "    size_t i = get_global_id(0);\n"
                             "    x[i] = x[i] * factor + add;\n"
                             "}\n";

/* ---- answers ---- */
/* Without the driver's clean-up, which is no part of the question. */
void clef_probe_require(bool good) {
    if (!good) _exit(1);
}

void clef_probe_check(cl_int code) { clef_probe_require(code == CL_SUCCESS); }

static void say(const char *line) {
    size_t n = strlen(line);
    clef_probe_require(write(ANSWERS, line, n) == (ssize_t)n);
}

/* ---- devices ---- */
/* The device of that number among all, if it is of the platform with that name. */
cl_device_id clef_probe_find(const char *platform_name, long number) {
    cl_platform_id platforms[MAX_PLATFORMS];
    cl_uint n_platforms = 0, n = 0;
    clef_probe_check(clGetPlatformIDs(MAX_PLATFORMS, platforms, &n_platforms));
    for (cl_uint p = 0; p < n_platforms && p < MAX_PLATFORMS; p++) {
        cl_device_id ids[MAX_FOUND];
        char name[1024] = "";
        if (clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, MAX_FOUND, ids, &n) != CL_SUCCESS) continue;
        if (n > MAX_FOUND) n = MAX_FOUND;
        if (number >= (long)n) {
            number -= (long)n;
            continue;
        }
        clef_probe_check(clGetPlatformInfo(platforms[p], CL_PLATFORM_NAME, sizeof name, name, NULL));
        clef_probe_require(strstr(name, platform_name) != NULL); /* the library cuts blanks off its ends */
        return ids[number];
    }
    _exit(1);
}

static void divide(cl_device_id whole, const long *units, cl_uint parts, cl_device_id *ids) {
    cl_device_partition_property kinds[16], by_counts[4] = {CL_DEVICE_PARTITION_BY_COUNTS};
    for (cl_uint i = 0; i < parts; i++) by_counts[1 + i] = (cl_device_partition_property)units[i];
    by_counts[1 + parts] = CL_DEVICE_PARTITION_BY_COUNTS_LIST_END;
    size_t bytes = 0;
    bool can = false;
    clef_probe_check(clGetDeviceInfo(whole, CL_DEVICE_PARTITION_PROPERTIES, sizeof kinds, kinds, &bytes));
    for (size_t i = 0; i < bytes / sizeof *kinds; i++) can |= kinds[i] == CL_DEVICE_PARTITION_BY_COUNTS;
    clef_probe_require(can); /* rusticl 22.3 crashes when asked in vain */
    clef_probe_check(clCreateSubDevices(whole, by_counts, parts, ids, NULL));
}

/* One or two devices from the command line, or one twice; two parts of one device are made together. */
static void choose(const char *platform, char *const *arguments, int n, cl_device_id ids[2]) {
    cl_device_id whole[2];
    long units[2] = {0, 0};
    for (int i = 0; i < n; i++) {
        char *end;
        long number = strtol(arguments[i], &end, 10);
        if (*end == ':') units[i] = strtol(end + 1, &end, 10);
        clef_probe_require(number >= 0 && units[i] >= 0 && !*end);
        ids[i] = whole[i] = clef_probe_find(platform, number);
    }
    if (n == 2 && whole[0] == whole[1] && units[0] && units[1]) divide(whole[0], units, 2, ids);
    else
        for (int i = 0; i < n; i++)
            if (units[i]) divide(whole[i], &units[i], 1, &ids[i]);
    if (n == 1) ids[1] = ids[0];
    say("listed\n");
}

/* ---- one device of the context ---- */
typedef struct side {
    cl_command_queue compute, transfer; /* in order */
    cl_kernel step;
    cl_mem own, other; /* its number and the other side's */
} side;

cl_context clef_probe_open(cl_device_id *ids, cl_uint n) {
    cl_int code;
    cl_platform_id platform;
    clef_probe_check(clGetDeviceInfo(ids[0], CL_DEVICE_PLATFORM, sizeof platform, &platform, NULL));
    const cl_context_properties on[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)platform, 0};
    cl_context context = clCreateContext(on, n, ids, NULL, NULL, &code);
    clef_probe_check(code);
    return context;
}

cl_program clef_probe_build(cl_context context, const char *text) {
    cl_int code;
    cl_program program = clCreateProgramWithSource(context, 1, &text, NULL, &code);
    clef_probe_check(code);
    clef_probe_check(clBuildProgram(program, 0, NULL, "", NULL, NULL));
    return program;
}

/* x = x · factor + round, behind `n` events.  In every second round as the library does it, with a barrier and a marker. */
static cl_event run_step(side *s, cl_mem x, cl_uint factor, cl_uint round, cl_uint n, const cl_event *waits) {
    const size_t global = COUNT;
    bool apart = round % 2;
    cl_uint direct = apart ? 0 : n;
    cl_event done;
    clef_probe_check(clSetKernelArg(s->step, 0, sizeof x, &x));
    clef_probe_check(clSetKernelArg(s->step, 1, sizeof factor, &factor));
    clef_probe_check(clSetKernelArg(s->step, 2, sizeof round, &round));
    if (apart && n) clef_probe_check(clEnqueueBarrierWithWaitList(s->compute, n, waits, NULL));
    clef_probe_check(
        clEnqueueNDRangeKernel(s->compute, s->step, 1, NULL, &global, NULL, direct, direct ? waits : NULL, apart ? NULL : &done));
    if (apart) clef_probe_check(clEnqueueMarkerWithWaitList(s->compute, 0, NULL, &done));
    return done;
}

static cl_event copy(cl_command_queue queue, cl_mem from, cl_mem to, cl_event wait) {
    cl_event done;
    clef_probe_check(clEnqueueCopyBuffer(queue, from, to, 0, 0, BYTES, 1, &wait, &done));
    return done;
}

/* As the library waits (clef__queue_wait): with a marker, without which rusticl 22.3 only waits for what came after the last flush. */
static void finish(cl_command_queue queue) {
    clef_probe_check(clEnqueueMarkerWithWaitList(queue, 0, NULL, NULL));
    clef_probe_check(clFinish(queue));
}

/* With first, first + 1, … */
static void fill(cl_command_queue queue, cl_mem x, cl_uint first) {
    static cl_uint numbers[COUNT];
    for (cl_uint i = 0; i < COUNT; i++) numbers[i] = first + i;
    clef_probe_check(clEnqueueWriteBuffer(queue, x, CL_TRUE, 0, BYTES, numbers, 0, NULL, NULL));
}

/* Everything it needs, each queue used once. */
static side open_side(cl_context context, cl_device_id id, cl_program program, cl_uint first) {
    side s;
    cl_int code[5];
    s.compute = clCreateCommandQueue(context, id, 0, &code[0]);
    s.transfer = clCreateCommandQueue(context, id, 0, &code[1]);
    s.step = clCreateKernel(program, "advance", &code[2]);
    s.own = clCreateBuffer(context, CL_MEM_READ_WRITE, BYTES, NULL, &code[3]);
    s.other = clCreateBuffer(context, CL_MEM_READ_WRITE, BYTES, NULL, &code[4]);
    for (int i = 0; i < 5; i++) clef_probe_check(code[i]);
    fill(s.transfer, s.other, 0);
    fill(s.compute, s.own, first);
    clef_probe_check(clReleaseEvent(run_step(&s, s.own, 1, 0, 0, NULL)));
    finish(s.compute);
    return s;
}

/* ---- events ---- */
/* The number that started as `first`, after all rounds. */
static cl_uint expected(cl_uint first, const cl_uint factor[2]) {
    for (cl_uint r = 0; r < ROUNDS; r++) first = (first * factor[0] + r) * factor[1] + r;
    return first;
}

static void verify(const side *s, cl_event last, cl_uint first, const cl_uint factor[2]) {
    static cl_uint numbers[COUNT];
    clef_probe_check(clEnqueueReadBuffer(s->compute, s->own, CL_TRUE, 0, BYTES, numbers, 1, &last, NULL));
    for (cl_uint i = 0; i < COUNT; i++) clef_probe_require(numbers[i] == expected(first + i, factor));
}

/* Each side steps its own number, gets a copy of the other's, steps that, and gets its own back; back[i]: own is there again.  The
   copies run in the receiver's transfer queue, and every second round in the sender's. */
static void exchange(side s[2], cl_uint round, const cl_uint factor[2], cl_event back[2]) {
    cl_event stepped[2], sent[2], again[2];
    for (int i = 0; i < 2; i++) stepped[i] = run_step(&s[i], s[i].own, factor[0], round, round > 0, &back[i]);
    for (int i = 0; i < 2; i++) sent[i] = copy(s[round % 2 ? i : 1 - i].transfer, s[i].own, s[1 - i].other, stepped[i]);
    for (int i = 0; i < 2; i++) again[i] = run_step(&s[i], s[i].other, factor[1], round, 2, sent);
    for (int i = 0; i < 2; i++) {
        if (round) clef_probe_check(clReleaseEvent(back[i]));
        back[i] = copy(s[round % 2 ? 1 - i : i].transfer, s[1 - i].other, s[i].own, again[1 - i]);
    }
    for (int i = 0; i < 2; i++) {
        clef_probe_check(clReleaseEvent(stepped[i]));
        clef_probe_check(clReleaseEvent(sent[i]));
        clef_probe_check(clReleaseEvent(again[i]));
        clef_probe_check(clFlush(s[i].compute));
        clef_probe_check(clFlush(s[i].transfer));
    }
}

/* The host waits for nothing before the end. */
static void ask_events(cl_device_id ids[2]) {
    static const cl_uint factor[2] = {3, 5}, first[2] = {7, 1000003};
    cl_context context = clef_probe_open(ids, ids[0] == ids[1] ? 1 : 2);
    cl_program program = clef_probe_build(context, source);
    side s[2];
    cl_event back[2];
    for (int i = 0; i < 2; i++) s[i] = open_side(context, ids[i], program, first[i]);
    say("ready\n");
    for (cl_uint r = 0; r < ROUNDS; r++) exchange(s, r, factor, back);
    say("half\n");
    for (int i = 0; i < 2; i++) verify(&s[i], back[i], first[i], factor);
}

/* ---- user events ---- */
/* As numbers go from one platform to another: read into the host's memory, and written from there by a command that was queued before
   they came.  Here both ends are queues of one device. */
static cl_uint stage[COUNT], result[COUNT], sent[COUNT];
static const cl_uint untouched = 0xffffffff, first_sent = 7;

typedef struct passage {
    cl_event gate[2];       /* user events: before the read, and before the write */
    cl_event fetched, last; /* the read; the end of what comes behind the write */
} passage;

static void pause_for(long microseconds) { nanosleep(&(struct timespec){.tv_nsec = 1000 * microseconds}, NULL); }

static cl_int state_of(cl_event event) {
    cl_int state;
    clef_probe_check(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL));
    return state;
}

static bool all_untouched(const cl_uint *numbers) {
    for (int i = 0; i < COUNT; i++)
        if (numbers[i] != untouched) return false;
    return true;
}

/* In a thread of its own: nothing may have happened before the first gate opens, nothing behind the second before that. */
static void *open_gates(void *user) {
    passage *p = user;
    pause_for(1000);
    clef_probe_require(state_of(p->fetched) != CL_COMPLETE && all_untouched(stage));
    clef_probe_check(clSetUserEventStatus(p->gate[0], CL_COMPLETE));
    clef_probe_check(clWaitForEvents(1, &p->fetched));
    clef_probe_require(memcmp(stage, sent, sizeof stage) == 0);
    clef_probe_require(state_of(p->last) != CL_COMPLETE && all_untouched(result));
    clef_probe_check(clSetUserEventStatus(p->gate[1], CL_COMPLETE));
    return NULL;
}

static void queue_passage(side *from, side *to, passage *p, cl_uint round) {
    cl_event stored, stepped[2] = {run_step(from, from->own, 3, round, 0, NULL)};
    const cl_event fetch_behind[2] = {stepped[0], p->gate[0]};
    clef_probe_check(clEnqueueReadBuffer(from->transfer, from->own, CL_FALSE, 0, BYTES, stage, 2, fetch_behind, &p->fetched));
    clef_probe_check(clEnqueueWriteBuffer(to->transfer, to->other, CL_FALSE, 0, BYTES, stage, 1, &p->gate[1], &stored));
    stepped[1] = run_step(to, to->other, 5, round, 1, &stored);
    clef_probe_check(clEnqueueReadBuffer(to->compute, to->other, CL_FALSE, 0, BYTES, result, 1, &stepped[1], &p->last));
    const cl_command_queue queues[] = {from->compute, from->transfer, to->transfer, to->compute};
    for (int i = 0; i < 4; i++) clef_probe_check(clFlush(queues[i]));
    for (int i = 0; i < 2; i++) clef_probe_check(clReleaseEvent(stepped[i]));
    clef_probe_check(clReleaseEvent(stored));
}

/* In each of the ways to wait. */
static void wait_for(const side *s, cl_event event, cl_uint round) {
    static cl_uint again[COUNT];
    if (round % 4 == 0) clef_probe_check(clWaitForEvents(1, &event));
    else if (round % 4 == 1) finish(s->compute);
    else if (round % 4 == 2) {
        clef_probe_check(clEnqueueReadBuffer(s->compute, s->other, CL_TRUE, 0, BYTES, again, 0, NULL, NULL));
        clef_probe_require(memcmp(again, result, sizeof again) == 0);
    } else
        while (state_of(event) > CL_COMPLETE) pause_for(100);
    clef_probe_require(state_of(event) == CL_COMPLETE);
}

static void pass(cl_context context, side *from, side *to, cl_uint round) {
    passage p;
    pthread_t thread;
    cl_int code;
    for (cl_uint i = 0; i < COUNT; i++) {
        sent[i] = sent[i] * 3 + round;
        stage[i] = result[i] = untouched;
    }
    for (int i = 0; i < 2; i++) {
        p.gate[i] = clCreateUserEvent(context, &code);
        clef_probe_check(code);
    }
    queue_passage(from, to, &p, round);
    clef_probe_require(pthread_create(&thread, NULL, open_gates, &p) == 0);
    wait_for(to, p.last, round);
    for (cl_uint i = 0; i < COUNT; i++) clef_probe_require(result[i] == sent[i] * 5 + round);
    clef_probe_require(pthread_join(thread, NULL) == 0);
    for (int i = 0; i < 2; i++) clef_probe_check(clReleaseEvent(p.gate[i]));
    clef_probe_check(clReleaseEvent(p.fetched));
    clef_probe_check(clReleaseEvent(p.last));
}

/* As the host visits a device's memory (visit.c): the end of a mapping is queued before its begin has run.  rusticl 22.3 refuses that.  Reads
   `own` and writes `other`. */
static void visit(cl_context context, side *s, cl_uint round) {
    cl_int code[4];
    cl_event mapped, unmapped, stepped, gate[2] = {clCreateUserEvent(context, &code[0]), clCreateUserEvent(context, &code[1])};
    for (int i = 0; i < 2; i++) clef_probe_check(code[i]);
    stepped = run_step(s, s->own, 1, round, 1, &gate[0]);
    const cl_uint *from = clEnqueueMapBuffer(s->transfer, s->own, CL_FALSE, CL_MAP_READ, 0, BYTES, 1, &stepped, NULL, &code[2]);
    cl_uint *to =
        clEnqueueMapBuffer(s->transfer, s->other, CL_FALSE, CL_MAP_WRITE_INVALIDATE_REGION, 0, BYTES, 0, NULL, &mapped, &code[3]);
    for (int i = 2; i < 4; i++) clef_probe_check(code[i]);
    clef_probe_check(clEnqueueUnmapMemObject(s->transfer, s->own, (void *)(uintptr_t)from, 1, &gate[1], NULL));
    clef_probe_check(clEnqueueUnmapMemObject(s->transfer, s->other, to, 0, NULL, &unmapped));
    clef_probe_check(clReleaseEvent(stepped));
    stepped = run_step(s, s->other, 5, round, 1, &unmapped);
    clef_probe_check(clFlush(s->compute));
    clef_probe_check(clFlush(s->transfer));
    clef_probe_check(clSetUserEventStatus(gate[0], CL_COMPLETE));
    while (state_of(mapped) > CL_COMPLETE) pause_for(100);
    clef_probe_require(state_of(mapped) == CL_COMPLETE);
    for (int i = 0; i < COUNT; i++) sent[i] += round;
    clef_probe_require(memcmp(from, sent, sizeof sent) == 0);
    for (int i = 0; i < COUNT; i++) to[i] = from[i] + 1;
    clef_probe_check(clSetUserEventStatus(gate[1], CL_COMPLETE));
    clef_probe_check(clEnqueueReadBuffer(s->compute, s->other, CL_TRUE, 0, BYTES, result, 1, &stepped, NULL));
    for (int i = 0; i < COUNT; i++) clef_probe_require(result[i] == (sent[i] + 1) * 5 + round);
    const cl_event all[] = {gate[0], gate[1], mapped, unmapped, stepped};
    for (int i = 0; i < 5; i++) clef_probe_check(clReleaseEvent(all[i]));
}

static void ask_user_events(cl_device_id id) {
    cl_context context = clef_probe_open(&id, 1);
    cl_program program = clef_probe_build(context, source);
    side from = open_side(context, id, program, first_sent), to = open_side(context, id, program, 0);
    for (cl_uint i = 0; i < COUNT; i++) sent[i] = first_sent + i;
    say("ready\n");
    for (cl_uint r = 0; r < ROUNDS; r++) {
        if (r == ROUNDS / 2) say("half\n");
        pass(context, &from, &to, r);
        if (r % 5 == 0) visit(context, &from, r);
    }
}

/* ---- which of these ---- */
int main(int argc, char **argv) {
    if (argc == 4 && strcmp(argv[1], "compile") == 0) clef_probe_compile(argv[2], strtol(argv[3], NULL, 10));
    bool events = argc > 3 && strcmp(argv[1], "events") == 0, user_events = argc == 4 && strcmp(argv[1], "user_events") == 0;
    cl_device_id ids[2];
    alarm(LONGEST);
    fcntl(ANSWERS, F_SETFD, FD_CLOEXEC); /* a compiler that the driver starts would hold the answer up */
    if ((!events && !user_events) || argc > 5) return 2;
    choose(argv[2], argv + 3, argc - 3, ids);
    if (events) ask_events(ids);
    else ask_user_events(ids[0]);
    say("right\n");
    _exit(0);
}
