/* program.c — programs, each compiled once for all contexts of Clef's that have a whole device open at the same time, and for all parts
   of a device that were opened together: they share an OpenCL context.  Where a driver stands only some queues that run the same
   kernels, those behind them have another copy, with an option of its own.

   A program is found by the hash of what makes it (source, options, device, driver).  The first thread that asks
   builds it, without the lock; others that want the same one wait for it.  It counts, and is told of in the log, where it was built.
   It stays while anybody holds it, and for some time after (idle.c).

   A source in which the compiler found an error, and says where, is remembered as such, with its log, on disk too.
   Any other failure may be one of the moment (no memory, no room on the disk) and is tried again, but not before
   clef_clear_error: else a loop that looks at no error would build for ever.  The loss of a device concerns only those who lost it. */
#include "runtime/runtime_internal.h"
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- those that share programs ---- */

enum { FAILURES_KEPT = 64 }; /* a log of some KB each */

/* All that are in use in this process.  Under the lock nobody's callback is called. */
static pthread_mutex_t in_use = PTHREAD_MUTEX_INITIALIZER;
static clef__programs *first_in_use;

static clef__programs *new_programs(const clef__device *device, bool shares) {
    clef__programs *programs = clef__calloc(1, sizeof *programs);
    char *options = clef__strdup(device->options);
    if (!programs || !options) {
        clef__free(programs);
        clef__free(options);
        return NULL;
    }
    programs->context = device->context;
    programs->index = device->info.index;
    programs->options = options;
    programs->opening = device->opening;
    programs->shares = shares;
    programs->idle.most = device->ctx->idle_programs;
    programs->failed.most = FAILURES_KEPT;
    pthread_mutex_init(&programs->lock, NULL);
    pthread_cond_init(&programs->changed, NULL);
    return programs;
}

/* Of all devices of this process. */
static int users_of(int copy) {
    int n = 0;
    for (const clef__programs *p = first_in_use; p; p = p->next) n += p->copy == copy ? p->users : 0;
    return n;
}

/* The first copy that another queue may run.  A thread that is alone has one launch under way. */
static int choose_copy(const clef__device *device) {
    int most = clef__driver_of(&device->info).queues, copy = 1;
    if (most == 0 || device->units == 1) return 0;
    while (users_of(copy) >= most) copy++;
    return copy;
}

/* That copy for this device, or for another part of it that is opened together with it, in the same OpenCL context. */
static clef__programs *find_programs(const clef__device *device, int copy, bool shares) {
    clef__programs *p = first_in_use;
    while (p && !(p->context == device->context && p->index == device->info.index && p->copy == copy &&
                  strcmp(p->options, device->options) == 0 &&
                  ((device->opening && p->opening == device->opening) || (shares && p->shares))))
        p = p->next;
    return p;
}

static void add_id(clef__programs *programs, cl_device_id id) {
    cl_uint known = 0;
    while (known < programs->n && programs->id[known] != id) known++;
    if (known == programs->n) programs->id[programs->n++] = id;
}

bool clef__programs_open(clef__device *device, bool shares) {
    clef__programs *made = new_programs(device, shares);
    pthread_mutex_lock(&in_use);
    int copy = choose_copy(device);
    clef__programs *programs = find_programs(device, copy, shares);
    if (!programs && made) {
        programs = made;
        programs->copy = copy;
        made = NULL;
        programs->next = first_in_use;
        first_in_use = programs;
    }
    if (programs) {
        programs->users++;
        add_id(programs, device->id);
    }
    pthread_mutex_unlock(&in_use);
    if (made) clef__programs_free(made, false);
    if (!programs) clef__fail(device->ctx, CLEF_MEMORY, "open: out of host memory");
    device->programs = programs;
    size_t n = strlen(device->options);
    if (copy > 1) snprintf(device->options + n, sizeof device->options - n, " -DCLEF_COPY=%d", copy);
    return programs != NULL;
}

cl_context clef__context_in_use(cl_device_id id) {
    cl_context context = NULL;
    pthread_mutex_lock(&in_use);
    for (const clef__programs *p = first_in_use; p && !context; p = p->next)
        if (p->shares && !p->lost && p->id[0] == id && clRetainContext(p->context) == CL_SUCCESS) context = p->context;
    pthread_mutex_unlock(&in_use);
    return context;
}

void clef__context_lost(cl_context context) {
    if (clef__forked()) return;
    pthread_mutex_lock(&in_use);
    for (clef__programs *p = first_in_use; p; p = p->next) p->lost = p->lost || p->context == context;
    pthread_mutex_unlock(&in_use);
}

void clef__programs_close(clef__device *device) {
    clef__programs *programs = device->programs;
    device->programs = NULL;
    if (!programs) return;
    bool alone = clef__forked(); /* in such a child: whoever held the lock may be gone */
    if (!alone) pthread_mutex_lock(&in_use);
    bool last = --programs->users == 0;
    for (clef__programs **at = &first_in_use; last && *at; at = &(*at)->next)
        if (*at == programs) {
            *at = programs->next;
            break;
        }
    if (!alone) pthread_mutex_unlock(&in_use);
    if (last) clef__programs_free(programs, clef__alive(device));
}

/* ---- building ---- */
typedef struct build {
    clef__device *device;
    clef__program *entry;
    const char *source, *options; /* all options */
    cl_int code;
} build;

static char *read_log(clef__device *device, cl_program program) {
    size_t n = 0;
    if (clGetProgramBuildInfo(program, device->id, CL_PROGRAM_BUILD_LOG, 0, NULL, &n) != CL_SUCCESS || n == 0) return NULL;
    char *log = clef__calloc(n + 1, 1);
    if (log) clGetProgramBuildInfo(program, device->id, CL_PROGRAM_BUILD_LOG, n, log, NULL);
    return log;
}

/* ":12:7:", or ":12:7 <" where a macro is named in between. */
static bool is_place(const char *at) {
    for (int i = 0; i < 2; i++) {
        if (*at++ != ':' || !isdigit((unsigned char)*at)) return false;
        while (isdigit((unsigned char)*at)) at++;
    }
    return *at == ':' || strncmp(at, " <", 2) == 0;
}

/* Does some line tell of an error and of its place?  Compilers that do so otherwise are asked again in the next process. */
static bool blames_source(const char *log) {
    bool error = false, place = false;
    for (const char *at = log ? log : ""; *at && !(error && place); at++) {
        error = *at != '\n' && (error || strncmp(at, "error", 5) == 0);
        place = *at != '\n' && (place || is_place(at));
    }
    return error && place;
}

/* Compiles or loads `program`; keeps it, or takes its log and releases it. */
static bool compile(build *b, cl_program program) {
    const clef__programs *programs = b->device->programs;
    b->code = clBuildProgram(program, programs->n, programs->id, b->options, NULL, NULL);
    if (b->code == CL_SUCCESS) {
        b->entry->program = program;
        return true;
    }
    clef__free(b->entry->failure.log);
    b->entry->failure.log = read_log(b->device, program);
    clReleaseProgram(program);
    return false;
}

/* Some drivers compile kernels when they are made, so that binaries fetched before would be empty of code. */
static void touch_kernels(cl_program program) {
    cl_uint n = 0;
    if (clCreateKernelsInProgram(program, 0, NULL, &n) != CL_SUCCESS || n == 0) return;
    cl_kernel *kernels = clef__calloc(n, sizeof *kernels);
    if (kernels && clCreateKernelsInProgram(program, n, kernels, NULL) == CL_SUCCESS)
        for (cl_uint i = 0; i < n; i++) clReleaseKernel(kernels[i]);
    clef__free(kernels);
}

/* An adopted context may hold several devices: the binary wanted is that of ours. */
static void save(clef__device *device, clef__program *entry) {
    cl_device_id ids[64];
    size_t sizes[64], bytes = 0;
    unsigned char *binaries[64] = {0};
    cl_uint n = 0, at = 0;
    cl_program program = entry->program;
    touch_kernels(program);
    if (clGetProgramInfo(program, CL_PROGRAM_NUM_DEVICES, sizeof n, &n, NULL) != CL_SUCCESS || n == 0 || n > 64) return;
    if (clGetProgramInfo(program, CL_PROGRAM_DEVICES, n * sizeof *ids, ids, NULL) != CL_SUCCESS) return;
    while (at < n && ids[at] != device->id) at++;
    if (clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, n * sizeof *sizes, sizes, NULL) != CL_SUCCESS) return;
    if (at == n || (bytes = sizes[at]) == 0) return;
    unsigned char *binary = binaries[at] = clef__alloc(bytes);
    if (!binary) return;
    if (clGetProgramInfo(program, CL_PROGRAM_BINARIES, n * sizeof *binaries, binaries, NULL) == CL_SUCCESS)
        clef__cache_store(device->ctx, entry->key, CLEF__ENTRY_BINARY, binary, bytes);
    clef__free(binary);
}

/* Within so many seconds a driver finds a program of a text of so many bytes where it keeps such. */
double clef__program_found(size_t bytes) { return fmax(30e-3, 0.5e-6 * (double)bytes); }

static bool from_source(build *b) {
    clef_context *ctx = b->device->ctx;
    double begin = clef__now();
    cl_program program = clCreateProgramWithSource(b->device->context, 1, &b->source, NULL, &b->code);
    if (!program) return false;
    bool built = compile(b, program);
    if (clef__now() - begin > clef__program_found(strlen(b->source))) atomic_store(&b->device->programs->slow, true);
    if (built) {
        pthread_mutex_lock(&ctx->lock);
        ctx->counters.kernels_built++;
        pthread_mutex_unlock(&ctx->lock);
    }
    if (built && b->device->saving == CLEF__SAVE_ALL) save(b->device, b->entry);
    clef__build_failure *f = &b->entry->failure;
    f->wrong = !built && b->code == CL_BUILD_PROGRAM_FAILURE && blames_source(f->log);
    if (f->wrong && b->device->saving) clef__cache_store(ctx, b->entry->key, CLEF__ENTRY_FAILURE, f->log, strlen(f->log));
    return built;
}

static bool load_binary(build *b, const clef__entry *e) {
    size_t sizes[CLEF__MAX_SHARING] = {0};
    const unsigned char *binaries[CLEF__MAX_SHARING];
    cl_int states[CLEF__MAX_SHARING] = {CL_SUCCESS};
    const clef__programs *programs = b->device->programs;
    cl_uint n = programs->n;
    for (cl_uint i = 0; i < n; i++) {
        sizes[i] = e->size;
        binaries[i] = e->payload;
    }
    cl_program program = clCreateProgramWithBinary(b->device->context, n, programs->id, sizes, binaries, states, &b->code);
    bool good = program != NULL;
    for (cl_uint i = 0; i < n; i++) good = good && states[i] == CL_SUCCESS;
    if (program && !good) clReleaseProgram(program);
    return good && compile(b, program);
}

typedef enum found { MISS, HIT, KNOWN_FAILURE } found;

static found known_failure(build *b, const clef__entry *e) {
    clef__build_failure *f = &b->entry->failure;
    clef__free(f->log);
    f->log = clef__calloc(e->size + 1, 1);
    if (f->log) memcpy(f->log, e->payload, e->size);
    f->wrong = f->from_disk = blames_source(f->log);
    b->code = CL_BUILD_PROGRAM_FAILURE;
    return f->wrong ? KNOWN_FAILURE : MISS;
}

static found from_disk(build *b) {
    clef_context *ctx = b->device->ctx;
    clef__entry e = {0};
    unsigned char *bytes = b->device->saving ? clef__cache_load(ctx, b->entry->key, &e) : NULL;
    found result = MISS;
    if (bytes && e.kind == CLEF__ENTRY_FAILURE) result = known_failure(b, &e);
    else if (bytes && e.kind == CLEF__ENTRY_BINARY && load_binary(b, &e)) {
        pthread_mutex_lock(&ctx->lock);
        ctx->counters.kernels_from_cache++;
        pthread_mutex_unlock(&ctx->lock);
        result = HIT;
    } else if (bytes && e.kind == CLEF__ENTRY_BINARY) {
        clef__log_line(ctx, CLEF_LOG_WARNING, "cache: the driver refused a stored program; it is compiled anew");
        clef__cache_evict(ctx, b->entry->key);
    }
    clef__free(bytes);
    return result;
}

/* The compiler's first complaint, for the error line. */
static void first_complaint(const char *log, char *line, size_t size) {
    if (!log) log = "(the driver says nothing)";
    const char *at = strstr(log, "error");
    if (!at) at = log;
    while (at > log && at[-1] != '\n') at--;
    snprintf(line, size, "%.*s", (int)strcspn(at, "\n"), at);
}

static clef_status complain(clef__device *device, const clef__build_failure *why, const char *name) {
    clef_context *ctx = device->ctx;
    if (why->code != CL_BUILD_PROGRAM_FAILURE) return clef__fail_cl(device, why->code, "program: kernel %s", name);
    char line[320], *copy = clef__strdup(why->log ? why->log : "");
    pthread_mutex_lock(&ctx->lock);
    clef__free(ctx->build_log);
    ctx->build_log = copy;
    pthread_mutex_unlock(&ctx->lock);
    first_complaint(why->log, line, sizeof line);
    if (!why->wrong)
        return clef__fail(ctx, CLEF_BUILD,
                          "program: kernel %s could not be built, though the compiler blames nothing in it: %s; is there "
                          "room on the disk, and memory?  After clef_clear_error it is tried again",
                          name, line);
    return clef__fail(ctx, CLEF_BUILD, "program: kernel %s does not compile: %s (clef_build_log has all%s)", name, line,
                      why->from_disk ? "; known from the cache, which clef cache clear empties" : "");
}

/* compile_seconds is time on the clock: several threads that compile at once are counted once. */
static void count_time(clef_context *ctx, int change) {
    double now = clef__now();
    pthread_mutex_lock(&ctx->lock);
    if (ctx->builders == 0) ctx->building_since = now;
    ctx->builders += change;
    if (ctx->builders == 0) ctx->counters.compile_seconds += now - ctx->building_since;
    pthread_mutex_unlock(&ctx->lock);
}

static bool build_entry(clef__device *device, clef__program *entry, const char *source, const char *options) {
    build b = {device, entry, source, options, CL_SUCCESS};
    entry->failure.wrong = entry->failure.from_disk = false;
    count_time(device->ctx, 1);
    found disk = from_disk(&b);
    bool built = disk == HIT || (disk == MISS && from_source(&b));
    count_time(device->ctx, -1);
    entry->failure.code = built || b.code != CL_SUCCESS ? b.code : CL_INVALID_PROGRAM;
    return built;
}

/* ---- the table ---- */
static clef__program *look_up(const clef__programs *programs, const uint8_t key[32]) {
    clef__program *p = programs->table[key[0]];
    while (p && memcmp(p->key, key, 32) != 0) p = p->next;
    return p;
}

/* The entry, made if need be, and held; NULL when host memory is out.  Under the lock. */
static clef__program *obtain(clef__programs *programs, const uint8_t key[32]) {
    clef__program *p = look_up(programs, key);
    if (p) clef__program_hold(programs, p);
    if (p || !(p = clef__calloc(1, sizeof *p))) return p;
    memcpy(p->key, key, 32);
    p->holders = 1;
    p->next = programs->table[key[0]];
    return programs->table[key[0]] = p;
}

/* Is it this caller's turn to build? */
static bool is_due(const clef__device *device, const clef__program *p) {
    if (p->state != CLEF__FAILED) return p->state == CLEF__UNBUILT;
    if (clef__cl_status(p->failure.code) == CLEF_LOST) return clef__alive(device);
    return !p->failure.wrong && atomic_load(&device->ctx->cleared) > p->failed_at;
}

/* A failure as it is now, while nobody changes it. */
static clef__build_failure copy_of(const clef__build_failure *f) {
    return (clef__build_failure){f->code, f->wrong, f->from_disk, clef__strdup(f->log)};
}

/* The entry, held, ready or (*mine) to be built by the caller; NULL with the reason in *why.  Waits while another builds. */
static clef__program *claim(clef__device *device, const uint8_t key[32], bool *mine, clef__build_failure *why) {
    clef__programs *programs = device->programs;
    pthread_mutex_lock(&programs->lock);
    clef__program *p = obtain(programs, key);
    while (p && p->state == CLEF__BUILDING) pthread_cond_wait(&programs->changed, &programs->lock);
    *mine = p && is_due(device, p);
    if (*mine) p->state = CLEF__BUILDING;
    else if (p && p->state == CLEF__FAILED) {
        *why = copy_of(&p->failure);
        clef__program_let_go(programs, p);
        p = NULL;
    }
    pthread_mutex_unlock(&programs->lock);
    return p;
}

static void settle(clef__device *device, clef__program *entry, clef__program_state state) {
    clef__programs *programs = device->programs;
    pthread_mutex_lock(&programs->lock);
    if (state == CLEF__FAILED) entry->failed_at = clef__moment();
    entry->state = state;
    pthread_cond_broadcast(&programs->changed);
    pthread_mutex_unlock(&programs->lock);
}

char *clef__program_options(const clef__device *device, const char *options) {
    return clef__asprintf("%s %s", device->options, options ? options : "");
}

/* Ready and held, or NULL with the reason in *why, whose log is the caller's. */
static clef__program *get_program(clef__device *device, const char *source, const char *options, const char *name,
                                  clef__build_failure *why) {
    char *all = clef__program_options(device, options);
    uint8_t key[32];
    bool mine = false, built = true;
    clef__program *entry = NULL;
    *why = (clef__build_failure){.code = CL_OUT_OF_HOST_MEMORY};
    if (all) {
        clef__cache_key(&device->info, source, all, key);
        entry = claim(device, key, &mine, why);
    }
    if (mine) {
        double begin = clef__now();
        built = build_entry(device, entry, source, all);
        clef__trace_host(device->ctx, name, begin, clef__now());
        if (!built) *why = copy_of(&entry->failure);
        atomic_fetch_add(&device->programs->loaded, built);
        settle(device, entry, built ? CLEF__READY : CLEF__FAILED);
        if (!built) clef__program_release(device, entry);
    }
    clef__free(all);
    return built ? entry : NULL;
}

clef__program *clef__program_get(clef__device *device, const char *source, const char *options, const char *name) {
    clef__build_failure why;
    clef__program *entry = get_program(device, source, options, name, &why);
    if (!entry) complain(device, &why, name);
    clef__free(why.log);
    return entry;
}

clef__program *clef__program_quietly(clef__device *device, const char *source, const char *options, const char *name, bool *wrong) {
    clef__build_failure why;
    clef__program *entry = get_program(device, source, options, name, &why);
    if (wrong) *wrong = !entry && why.wrong;
    clef__free(why.log);
    return entry;
}

/* ---- parts of joined programs (join.c) ---- */

bool clef__program_key(clef__device *device, const char *source, const char *options, uint8_t key[32]) {
    char *all = clef__program_options(device, options);
    if (all) clef__cache_key(&device->info, source, all, key);
    clef__free(all);
    return all != NULL;
}

int clef__programs_reserve(clef__device *device, uint8_t (*key)[32], int n, int *reserved) {
    clef__programs *programs = device->programs;
    int count = 0;
    pthread_mutex_lock(&programs->lock); /* once, so that contexts with the same plan never join half of it each */
    for (int i = 0; i < n; i++) {
        clef__program *p = obtain(programs, key[i]);
        if (p && p->state != CLEF__UNBUILT) clef__program_let_go(programs, p);
        if (!p || p->state != CLEF__UNBUILT) continue;
        p->state = CLEF__BUILDING;
        reserved[count++] = i;
    }
    pthread_mutex_unlock(&programs->lock);
    return count;
}

clef__program *clef__program_known(clef__device *device, const uint8_t key[32]) {
    pthread_mutex_lock(&device->programs->lock);
    clef__program *p = look_up(device->programs, key);
    if (p && p->state != CLEF__READY) p = NULL;
    if (p) clef__program_hold(device->programs, p);
    pthread_mutex_unlock(&device->programs->lock);
    return p;
}

/* Under the lock: the entry is a part of the joined program from now on. */
static void become_part(clef__programs *programs, clef__program *entry, clef__program *joined, int number) {
    clef__program_hold(programs, joined);
    entry->number = number;
    entry->program = joined->program;
    entry->whole = joined;
    entry->another_part = joined->part;
    joined->part = entry;
}

clef__program *clef__program_enter(clef__device *device, const uint8_t key[32], clef__program *joined, int number) {
    clef__programs *programs = device->programs;
    pthread_mutex_lock(&programs->lock);
    clef__program *entry = look_up(programs, key);
    if (joined) become_part(programs, entry, joined, number);
    pthread_mutex_unlock(&programs->lock);
    settle(device, entry, joined ? CLEF__READY : CLEF__UNBUILT);
    if (!joined) clef__program_release(device, entry);
    return joined ? entry : NULL;
}
