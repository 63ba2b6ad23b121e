/* chain.c — many launches as one: their kernels are parts of one program, which does a chain's steps in order (cl/chain.cl).

   A step is a kernel with its arguments and its range.  Steps are written into memory of the host, which the kernel reads: no driver copies
   them.  A run of them has a room of that memory, with its counters, and a launch does one run or several: a run that comes while a launch is
   under way, with nothing queued behind it, follows in that launch, and no driver has to do anything.  Where runs take so little that waking a
   thread takes longer, a launch stays under way for a moment.  A room belongs to its launch until that is over, so a chain has some for those
   that are queued. */
#include "chain_step.h"
#include "runtime/arithmetic.h"
#include "runtime/runtime_internal.h"
#include "runtime/text.h"
#include <math.h>
#include <string.h>

/* ---- memory of one run ---- */

/* Rooms for so many steps in all, but neither too few nor too many: the shorter the runs, the more of them are worth one launch.  LAUNCHES: those
   that have all rooms.  LINE: bytes that no two cores share. */
enum { STEPS = 1024, LEAST_ROOMS = 16, MOST_ROOMS = 128, LAUNCHES = 4, LINE = 128 };

/* So often a launch looks for a run behind its last one, for some tens of microseconds, if the host knew the end of such a run in less than
   LITTLE seconds: a thread that must be woken for the next one takes a good part of that.  The run that comes is computed by one work-group,
   so it may not take much longer, at best, than by all. */
enum { LOOKS = 100000 };
static const double LITTLE = 100e-6, LONGER = 1.25;

static int rooms_for(int steps) { return (int)clef__larger(clef__smaller(STEPS / steps, MOST_ROOMS), LEAST_ROOMS); }

typedef struct room {
    uint64_t *record;
    int words, word_capacity;
    uint64_t widest;    /* items of the step with the most */
    uint32_t *counters; /* behind the head, which is what the kernel is told */
    int steps, step_capacity;
    int launched; /* so many steps, of which the last has so many items */
    uint64_t last_items;
    cl_event over; /* of the launch; NULL: nothing was queued with it */
} room;

struct clef__chain {
    clef__device *device;
    cl_kernel kernel;
    size_t local_bytes; /* of the part that wants most of the work-group's memory */
    room *room;
    int rooms;
    int at;        /* the one that steps are written to */
    int in_launch; /* runs of the last launch, and its work-groups */
    size_t groups;
    bool looks;  /* does the last run look for another one? */
    bool alone;  /* has the last launch no more than its first work-group, which looked? */
    bool by_one; /* did the last run follow in such a launch? */
    bool waited; /* did the host wait for it? */
    double launched_at;
    double least
        [2]; /* seconds from then on until the host knew that a run was over, at least: by all work-groups, by the first one alone */
};

/* False: nobody knows whether its launch is over. */
static bool wait_for(room *r) {
    bool over = true;
    if (r->over) clef__wait_for_event(r->over, &over); /* of work that failed clFinish tells */
    if (r->over && over) clReleaseEvent(r->over);
    if (over) r->over = NULL;
    return over;
}

/* Begins on a line of its own, which malloc does not promise: one more is asked for. */
static uint64_t *head_of(const room *r) { return (uint64_t *)(((uintptr_t)r->counters + LINE - 1) / LINE * LINE); }

/* Is a run behind it?  The kernel asks, too (chain.cl). */
static atomic_uint *state_of(const room *r) { return (atomic_uint *)(head_of(r) + RUN_STATE); }

static uint32_t *first_counter(const room *r) { return (uint32_t *)head_of(r) + LINE / sizeof *r->counters; }

static room *last_run(const clef__chain *chain) { return &chain->room[(chain->at + chain->rooms - 1) % chain->rooms]; }

/* Waits until the room that comes next is free.  If it is not, then until half of all are: a thread that slept for each launch would take a core
   from the kernels twice for every one. */
static bool wait_for_next(clef__chain *chain) {
    room *next = &chain->room[chain->at];
    cl_int state = CL_COMPLETE;
    if (next->over) clGetEventInfo(next->over, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL);
    return (state <= CL_COMPLETE || wait_for(&chain->room[(chain->at + chain->rooms / 2) % chain->rooms])) && wait_for(next);
}

static bool make_room(room *r, int words) {
    size_t line = LINE / sizeof *r->counters;
    while (r->word_capacity < r->words + words)
        if (!clef__grow(&r->record, r->word_capacity, &r->word_capacity, sizeof *r->record)) return false;
    if (r->steps < r->step_capacity) return true;
    int wanted = r->step_capacity ? 2 * r->step_capacity : 16;
    uint32_t *counters = clef__calloc(((size_t)wanted + 2) * line, sizeof *counters);
    if (!counters) return false;
    clef__free(r->counters);
    r->counters = counters;
    r->step_capacity = wanted;
    return true;
}

/* ---- its program ---- */

static char *part_text(const clef__chain_part *part) {
    char *text = clef__code_text(part->code, clef__embedded("chained.h"));
    char *whole = text ? clef__asprintf("%s\nCHAIN_PART { %s }\n", text, part->call) : NULL;
    clef__free(text);
    return whole;
}

static char *chain_text(int n) {
    clef__text text = {0};
    clef__text_append(&text, "#define CASES(X)");
    for (int i = 0; i < n; i++) clef__text_add(&text, " X(%d)", i);
    clef__text_add(&text, "\n%s", clef__embedded("chain.cl"));
    return text.data;
}

/* One of the programs that are linked; takes both texts.  NULL where it does not compile. */
static cl_program compile(clef__device *device, char *text, char *options) {
    cl_int code = CL_SUCCESS;
    cl_program program = text && options ? clCreateProgramWithSource(device->context, 1, (const char **)&text, NULL, &code) : NULL;
    if (program) code = clCompileProgram(program, 1, &device->id, options, 0, NULL, NULL, NULL, NULL);
    if (program && code != CL_SUCCESS) {
        clReleaseProgram(program);
        program = NULL;
    }
    clef__free(text);
    clef__free(options);
    return program;
}

/* The linked program of all parts; NULL: there is none. */
static cl_program build(clef__device *device, const clef__chain_part *part, int n) {
    cl_program *all = clef__calloc((size_t)n + 1, sizeof *all), whole = NULL;
    int made = 0;
    for (bool well = all; well && made <= n; made += well) {
        bool last = made == n;
        char *options = last ? clef__asprintf("%s %s", device->options, clef__driver_of(&device->info).declares)
                             : clef__asprintf("%s %s -DCHAINED_AS=part_%d", device->options, part[made].code->options, made);
        all[made] = compile(device, last ? chain_text(n) : part_text(&part[made]), options);
        well = all[made];
    }
    cl_int code = CL_SUCCESS;
    if (made > n) whole = clLinkProgram(device->context, 1, &device->id, "", (cl_uint)n + 1, all, NULL, NULL, &code);
    if (whole && code != CL_SUCCESS) {
        clReleaseProgram(whole);
        whole = NULL;
    }
    for (int i = 0; i < made; i++) clReleaseProgram(all[i]);
    clef__free(all);
    return whole;
}

/* False: some part does not tell. */
static bool find_local_bytes(clef__chain *chain, const clef__chain_part *part, int n) {
    bool known = true;
    for (int i = 0; known && i < n; i++) {
        size_t bytes;
        known = clef__kernel_local_bytes(part[i].kernel, &bytes);
        if (known && bytes > chain->local_bytes) chain->local_bytes = bytes;
    }
    return known;
}

static void fill_head(const room *r, int steps, int looks) {
    uint64_t *head = head_of(r);
    head[RUN_RECORD] = (uint64_t)(uintptr_t)r->record;
    head[RUN_COUNTERS] = (uint64_t)(uintptr_t)first_counter(r);
    head[RUN_STEPS] = (uint64_t)steps;
    head[RUN_LOOKS] = (uint64_t)looks;
    memset(first_counter(r), 0, (size_t)steps * STEP_COUNTERS * sizeof *r->counters);
    atomic_store_explicit(state_of(r), RUN_IS_LAST, memory_order_relaxed);
}

static cl_int enqueue(clef__chain *chain, room *r, size_t groups) {
    cl_ulong head = (cl_ulong)(uintptr_t)head_of(r);
    size_t one = 1;
    cl_int code = clSetKernelArg(chain->kernel, 0, sizeof head, &head);
    if (code == CL_SUCCESS) code = clSetKernelArg(chain->kernel, 1, chain->local_bytes + LINE, NULL); /* it may not be empty */
    if (code != CL_SUCCESS) return code;
    return clEnqueueNDRangeKernel(clef__queue(chain->device), chain->kernel, 1, NULL, &groups, &one, 0, NULL, &r->over);
}

/* Puts the run behind the last one if that is the device's last command, and of a launch that is under way.  False: it is over, or cannot
   do more. */
static bool follow(clef__chain *chain, room *r, size_t groups, bool looks) {
    const room *before = last_run(chain);
    if (!clef__chain_is_last(chain->device) || chain->device->last != chain) return false;
    if (chain->in_launch == chain->rooms / LAUNCHES || groups > chain->groups || (chain->alone && !looks)) return false;
    unsigned state = RUN_IS_LAST;
    head_of(before)[RUN_NEXT] = (uint64_t)(uintptr_t)head_of(r);
    if (!atomic_compare_exchange_strong(state_of(before), &state, RUN_HAS_NEXT)) return false;
    clRetainEvent(before->over);
    r->over = before->over;
    chain->device->followed++;
    return true;
}

/* Drivers may compile a kernel when it first runs: that is now, without any step.  If it fails, the program has lost nothing. */
static bool try_it(clef__chain *chain) {
    room *r = &chain->room[0];
    bool over = false;
    if (!make_room(r, 0)) return false;
    fill_head(r, 0, 0);
    if (enqueue(chain, r, chain->device->info.compute_units) != CL_SUCCESS) return false;
    clFlush(chain->device->compute);
    bool well = clef__wait_for_event(r->over, &over) == CL_SUCCESS && over;
    if (over) clReleaseEvent(r->over);
    if (over) r->over = NULL;
    return well;
}

clef__chain *clef__chain_new(clef__device *device, const clef__chain_part *part, int n, int steps) {
    if (clef__ready(device) != CLEF_OK) return NULL;
    double begin = clef__now();
    clef__chain *chain = clef__calloc(1, sizeof *chain);
    int rooms = rooms_for(steps);
    if (chain)
        *chain = (clef__chain){.device = device,
                               .rooms = rooms,
                               .room = clef__calloc((size_t)rooms, sizeof *chain->room),
                               .least = {INFINITY, INFINITY}};
    cl_program program = chain && chain->room ? build(device, part, n) : NULL;
    cl_int code = CL_SUCCESS;
    if (program) {
        chain->kernel = clCreateKernel(program, "chain", &code);
        clReleaseProgram(program); /* the kernel holds it */
    }
    bool well = program && chain->kernel && find_local_bytes(chain, part, n) && try_it(chain);
    device->ctx->counters.compile_seconds += clef__now() - begin;
    clef__log_line(device->ctx, CLEF_LOG_DEBUG, "chain: of %d kernels %s, %.2f s", n, well ? "is one" : "could not be made one",
                   clef__now() - begin);
    if (well) return chain;
    clef__chain_free(chain);
    return NULL;
}

void clef__chain_free(clef__chain *chain) {
    if (!chain) return;
    if (chain->device->last == chain) {
        clef__chain_end(chain);
        chain->device->last = NULL;
    }
    bool alive = clef__alive(chain->device);
    for (int i = 0; chain->room && i < chain->rooms; i++) {
        if (chain->room[i].over && !(alive && wait_for(&chain->room[i]))) continue; /* a kernel may still read it */
        clef__free(chain->room[i].record);
        clef__free(chain->room[i].counters);
    }
    if (alive && chain->kernel) clReleaseKernel(chain->kernel);
    clef__free(chain->room);
    clef__free(chain);
}

/* ---- steps ---- */

int clef__chain_after(const clef_context *ctx) { return ctx->chain_after; }

/* A thread that waits for one without a core keeps the core that this one needs, until the system takes it away after milliseconds. */
bool clef__device_chains(const clef__device *device) {
    int after = device->ctx->chain_after;
    return (after > 0 || (after < 0 && !device->crowded)) && !device->ctx->trace && clef__driver_of(&device->info).chains;
}

bool clef__chain_step(clef__chain *chain, int part, clef__kernel *kernel, const size_t global[3]) {
    room *r = &chain->room[chain->at];
    int words = STEP_ARGS + clef__kernel_words(kernel);
    bool well = clef__alive(chain->device) && (r->steps > 0 || wait_for_next(chain)) && make_room(r, words);
    if (!well || !clef__kernel_write(kernel, r->record + r->words + STEP_ARGS)) {
        r->words = r->steps = 0;
        return false;
    }
    uint64_t *step = r->record + r->words;
    for (int d = 0; d < 3; d++) step[STEP_ITEMS + d] = global[d];
    step[STEP_TOTAL] = global[0] * global[1] * global[2];
    step[STEP_PART] = (uint64_t)part;
    step[STEP_WORDS] = (uint64_t)words;
    if (r->steps == 0 || step[STEP_TOTAL] > r->widest) r->widest = step[STEP_TOTAL];
    r->last_items = step[STEP_TOTAL];
    r->words += words;
    r->steps++;
    return true;
}

/* Only where the host waits for every run: one that is ahead has the next one ready in time, for all work-groups. */
static bool pays_to_look(const clef__chain *chain, size_t groups) {
    bool alone = groups == 1 || chain->least[1] == INFINITY || chain->least[1] < LONGER * chain->least[0];
    return chain->waited && chain->least[0] < LITTLE && alone && chain->device->info.compute_units > 1 && !chain->device->crowded;
}

/* No more work-groups than the widest step has items: work that does not pay for waking another compute unit wakes none. */
clef_status clef__chain_launch(clef__chain *chain) {
    clef__device *device = chain->device;
    room *r = &chain->room[chain->at];
    int steps = r->steps;
    size_t units = device->info.compute_units, groups = r->widest < units ? (size_t)r->widest : units;
    r->words = r->steps = 0;
    clef_status status = clef__ready(device);
    if (status != CLEF_OK || groups == 0) return status;
    double begin = clef__now();
    bool looks = pays_to_look(chain, groups);
    fill_head(r, steps, looks ? LOOKS : 0);
    bool follows = follow(chain, r, groups, looks);
    if (!follows) {
        cl_int code = enqueue(chain, r, groups);
        if (code != CL_SUCCESS) return clef__fail_cl(device, code, "kernel chain");
        chain->groups = groups;
        chain->in_launch = 0;
    }
    chain->by_one = follows && chain->alone;
    chain->alone = (follows && chain->alone) || (looks && chain->groups > 1);
    chain->looks = looks;
    chain->waited = false;
    chain->launched_at = begin;
    chain->in_launch++;
    r->launched = steps;
    chain->at = (chain->at + 1) % chain->rooms;
    device->last = chain;
    device->ctx->counters.launches++;
    return CLEF_OK;
}

/* ---- its end ---- */

/* What is queued from here on need not wait until it has looked in vain. */
void clef__chain_end(const clef__chain *chain) {
    unsigned state = RUN_IS_LAST;
    atomic_compare_exchange_strong(state_of(last_run(chain)), &state, RUN_ENDED);
}

bool clef__chain_is_last(const clef__device *device) { return device->last && !device->shared; }

bool clef__chain_is_done(const clef__device *device) { return clef__chain_is_last(device) && device->last->waited; }

/* By its last step: a kernel that has done that has only to return, of which the driver tells when its thread has gone on. */
cl_int clef__chain_wait(clef__device *device) {
    clef__chain *chain = device->last;
    const room *r = last_run(chain);
    const uint32_t *done = first_counter(r) + (size_t)(r->launched - 1) * STEP_COUNTERS + STEP_DONE;
    cl_int code = clef__end_wait(device, &(clef__end){r->over, (const atomic_uint *)done, (unsigned)r->last_items, chain->looks});
    double *least = &chain->least[chain->by_one];
    *least = fmin(*least, clef__now() - chain->launched_at);
    chain->waited = code == CL_SUCCESS;
    return code;
}
