/* program.c — programs, each compiled once per device, and once for all parts of a device that share an OpenCL context.

   A program is found by the hash of what makes it (source, options, device, driver).  The first thread that asks
   builds it, without the lock; others that want the same one wait for it.

   A source in which the compiler found an error, and says where, is remembered as such, with its log, on disk too.
   Any other failure may be one of the moment (no memory, no room on the disk) and is tried again, but not before
   clef_clear_error: else a loop that looks at no error would build for ever. */
#include "runtime/runtime_internal.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

void clef__programs_open(clef__device *device) {
    pthread_mutex_init(&device->programs.lock, NULL);
    pthread_cond_init(&device->programs.changed, NULL);
}

/* Those that share the device's programs, itself among them. */
static cl_uint sharers(const clef__device *device, cl_device_id ids[CLEF__MAX_DEVICES]) {
    cl_uint n = 0;
    for (int i = 0; i < device->ctx->n_devices; i++)
        if (device->ctx->device[i]->leader == device->leader) ids[n++] = device->ctx->device[i]->id;
    return n;
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
    cl_device_id ids[CLEF__MAX_DEVICES];
    cl_uint n = sharers(b->device, ids);
    b->code = clBuildProgram(program, n, ids, b->options, NULL, NULL);
    if (b->code == CL_SUCCESS) {
        b->entry->program = program;
        return true;
    }
    clef__free(b->entry->log);
    b->entry->log = read_log(b->device, program);
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

static bool from_source(build *b) {
    clef_context *ctx = b->device->ctx;
    cl_program program = clCreateProgramWithSource(b->device->context, 1, &b->source, NULL, &b->code);
    if (!program) return false;
    bool built = compile(b, program);
    if (built) {
        pthread_mutex_lock(&ctx->lock);
        ctx->counters.kernels_built++;
        pthread_mutex_unlock(&ctx->lock);
    }
    if (built && b->device->saving == CLEF__SAVE_ALL) save(b->device, b->entry);
    b->entry->wrong = !built && b->code == CL_BUILD_PROGRAM_FAILURE && blames_source(b->entry->log);
    if (b->entry->wrong && b->device->saving)
        clef__cache_store(ctx, b->entry->key, CLEF__ENTRY_FAILURE, b->entry->log, strlen(b->entry->log));
    return built;
}

static bool load_binary(build *b, const clef__entry *e) {
    cl_device_id ids[CLEF__MAX_DEVICES];
    size_t sizes[CLEF__MAX_DEVICES] = {0};
    const unsigned char *binaries[CLEF__MAX_DEVICES];
    cl_int states[CLEF__MAX_DEVICES] = {CL_SUCCESS};
    cl_uint n = sharers(b->device, ids);
    for (cl_uint i = 0; i < n; i++) {
        sizes[i] = e->size;
        binaries[i] = e->payload;
    }
    cl_program program = clCreateProgramWithBinary(b->device->context, n, ids, sizes, binaries, states, &b->code);
    bool good = program != NULL;
    for (cl_uint i = 0; i < n; i++) good = good && states[i] == CL_SUCCESS;
    if (program && !good) clReleaseProgram(program);
    return good && compile(b, program);
}

typedef enum found { MISS, HIT, KNOWN_FAILURE } found;

static found known_failure(build *b, const clef__entry *e) {
    clef__program *entry = b->entry;
    clef__free(entry->log);
    entry->log = clef__calloc(e->size + 1, 1);
    if (entry->log) memcpy(entry->log, e->payload, e->size);
    entry->wrong = entry->from_disk = blames_source(entry->log);
    b->code = CL_BUILD_PROGRAM_FAILURE;
    return entry->wrong ? KNOWN_FAILURE : MISS;
}

static found from_disk(build *b) {
    clef_context *ctx = b->device->ctx;
    clef__entry e = {0};
    unsigned char *bytes = b->device->saving ? clef__cache_load(ctx, b->entry->key, &e) : NULL;
    found result = MISS;
    if (bytes && e.kind == CLEF__ENTRY_FAILURE) result = known_failure(b, &e);
    else if (bytes && load_binary(b, &e)) {
        pthread_mutex_lock(&ctx->lock);
        ctx->counters.kernels_from_cache++;
        pthread_mutex_unlock(&ctx->lock);
        result = HIT;
    } else if (bytes) {
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

static clef_status complain(clef__device *device, const clef__program *entry, cl_int code, const char *name) {
    clef_context *ctx = device->ctx;
    if (code != CL_BUILD_PROGRAM_FAILURE) return clef__fail_cl(device, code, "program: kernel %s", name);
    char line[320], *copy = clef__strdup(entry->log ? entry->log : "");
    pthread_mutex_lock(&ctx->lock);
    clef__free(ctx->build_log);
    ctx->build_log = copy;
    pthread_mutex_unlock(&ctx->lock);
    first_complaint(entry->log, line, sizeof line);
    if (!entry->wrong)
        return clef__fail(ctx, CLEF_BUILD,
                          "program: kernel %s could not be built, though the compiler blames nothing in it: %s; is there "
                          "room on the disk, and memory?  After clef_clear_error it is tried again",
                          name, line);
    return clef__fail(ctx, CLEF_BUILD, "program: kernel %s does not compile: %s (clef_build_log has all%s)", name, line,
                      entry->from_disk ? "; known from the cache, which clef cache clear empties" : "");
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

static cl_int build_entry(clef__device *device, clef__program *entry, const char *source, const char *options) {
    build b = {device, entry, source, options, CL_SUCCESS};
    entry->wrong = entry->from_disk = false;
    count_time(device->ctx, 1);
    found disk = from_disk(&b);
    bool built = disk == HIT || (disk == MISS && from_source(&b));
    count_time(device->ctx, -1);
    return built ? CL_SUCCESS : b.code == CL_SUCCESS ? CL_INVALID_PROGRAM : b.code;
}

/* ---- the table ---- */
static clef__program *look_up(clef__programs *programs, const uint8_t key[32]) {
    clef__program *p = programs->table[key[0]];
    while (p && memcmp(p->key, key, 32) != 0) p = p->next;
    return p;
}

/* The entry, with *mine set when the caller is to build it; NULL when host memory is out.  Waits
   while another builds. */
static clef__program *claim(clef__device *device, const uint8_t key[32], bool *mine) {
    clef__programs *programs = &device->leader->programs;
    pthread_mutex_lock(&programs->lock);
    clef__program *p = look_up(programs, key);
    while (p && p->state == CLEF__BUILDING) pthread_cond_wait(&programs->changed, &programs->lock);
    *mine = !p || (p->state == CLEF__FAILED && !p->wrong && p->clears != atomic_load(&device->ctx->clears));
    if (!p && (p = clef__calloc(1, sizeof *p))) {
        memcpy(p->key, key, 32);
        p->next = programs->table[key[0]];
        programs->table[key[0]] = p;
    }
    if (p && *mine) p->state = CLEF__BUILDING;
    pthread_mutex_unlock(&programs->lock);
    return p;
}

static void settle(clef__device *device, clef__program *entry, cl_int code) {
    clef__programs *programs = &device->leader->programs;
    pthread_mutex_lock(&programs->lock);
    entry->code = code;
    entry->clears = atomic_load(&device->ctx->clears);
    entry->state = code == CL_SUCCESS ? CLEF__READY : CLEF__FAILED;
    pthread_cond_broadcast(&programs->changed);
    pthread_mutex_unlock(&programs->lock);
}

static char *all_options(const clef__device *device, const char *options) {
    return clef__asprintf("%s %s", device->options, options ? options : "");
}

/* The entry, built or failed; NULL when host memory is out. */
static clef__program *get_program(clef__device *device, const char *source, const char *options, const char *name) {
    char *all = all_options(device, options);
    uint8_t key[32];
    bool mine = false;
    clef__program *entry = NULL;
    if (all) {
        clef__cache_key(&device->info, source, all, key);
        entry = claim(device, key, &mine);
    }
    if (entry && mine) {
        double begin = clef__now();
        cl_int code = build_entry(device, entry, source, all);
        clef__trace_host(device->ctx, name, begin, clef__now());
        settle(device, entry, code);
    }
    clef__free(all);
    return entry;
}

clef__program *clef__program_get(clef__device *device, const char *source, const char *options, const char *name) {
    clef__program *entry = get_program(device, source, options, name);
    if (!entry) clef__fail(device->ctx, CLEF_MEMORY, "program: out of host memory");
    else if (entry->state == CLEF__FAILED) complain(device, entry, entry->code, name);
    return entry && entry->state == CLEF__READY ? entry : NULL;
}

/* ---- parts of joined programs (code.c) ---- */

bool clef__program_key(clef__device *device, const char *source, const char *options, uint8_t key[32]) {
    char *all = all_options(device, options);
    if (all) clef__cache_key(&device->info, source, all, key);
    clef__free(all);
    return all != NULL;
}

clef__program *clef__program_find(clef__device *device, const uint8_t key[32]) {
    clef__programs *programs = &device->leader->programs;
    pthread_mutex_lock(&programs->lock);
    clef__program *there = look_up(programs, key);
    pthread_mutex_unlock(&programs->lock);
    return there;
}

clef__program *clef__program_quietly(clef__device *device, const char *source, const char *options, const char *name) {
    clef__program *entry = get_program(device, source, options, name);
    return entry && entry->state == CLEF__READY ? entry : NULL;
}

clef__program *clef__program_enter(clef__device *device, const uint8_t key[32], const clef__program *joined, const char *kernel) {
    bool mine;
    clef__program *entry = claim(device, key, &mine);
    if (!entry || !mine) return entry && entry->state == CLEF__READY ? entry : NULL;
    char *name = clef__strdup(kernel);
    bool held = name && clRetainProgram(joined->program) == CL_SUCCESS;
    if (held) {
        entry->kernel = name;
        entry->program = joined->program;
    } else clef__free(name);
    settle(device, entry, held ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY);
    return held ? entry : NULL;
}

void clef__programs_close(clef__device *device) {
    bool alive = clef__alive(device->ctx);
    for (int i = 0; i < 256; i++)
        for (clef__program *p; (p = device->programs.table[i]);) {
            device->programs.table[i] = p->next;
            if (alive && p->program) clReleaseProgram(p->program);
            clef__free(p->kernel);
            clef__free(p->log);
            clef__free(p);
        }
    pthread_cond_destroy(&device->programs.changed);
    pthread_mutex_destroy(&device->programs.lock);
}
