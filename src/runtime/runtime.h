/* runtime.h — what the rooms above see of the runtime.  Nothing here mentions OpenCL's own types. */
#ifndef CLEF_RUNTIME_H
#define CLEF_RUNTIME_H
#include "clef/context.h"

enum { CLEF__MAX_DEVICES = 16, CLEF__QUEUES = 3 * CLEF__MAX_DEVICES }; /* of a context; queues of all its devices (events.c) */

/* ---- host memory (alloc.c): through the hooks of clef_set_allocator ---- */
void *clef__alloc(size_t bytes);               /* NULL when out of memory */
void *clef__calloc(size_t count, size_t size); /* zeroed; NULL also on overflow */
void *clef__realloc(void *old, size_t bytes);
void clef__free(void *p);
bool clef__has_allocator(void); /* the hooks are a program's own */
/* Room for element n of a growing array: `array_address` is the address of its pointer.  False when out of memory; the
   array is then as it was. */
bool clef__grow(void *array_address, int n, int *capacity, size_t size);
char *clef__strdup(const char *text);
char *clef__asprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2))); /* a new string */

/* ---- errors and log (error.c) ---- */
/* Keeps the line if it is the context's first (ctx NULL: this thread's open error); returns status. */
clef_status clef__fail(clef_context *ctx, clef_status status, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* From now on lines about what a call was given (CLEF_INVALID, CLEF_SHAPE, CLEF_DTYPE) end with what this writes into text, which is empty
   at first: where in the program's model that is. */
void clef__set_whereabouts(clef_context *ctx, void (*whereabouts)(clef_context *ctx, char *text, size_t size));
/* How many lines clef__fail was given for this context so far, kept or not: an older error does not hide a new one from
   those who compare. */
uint64_t clef__failures(const clef_context *ctx);
/* CLEF_OK if there was none since the count was `before`, else the status of the latest. */
clef_status clef__failed_since(const clef_context *ctx, uint64_t before);
/* CLEF_BUILD, CLEF_DEVICE or CLEF_LOST where there was one since the error was cleared, be it the sticky one or not. */
clef_status clef__broken(const clef_context *ctx);
/* clef_close.  False: it stays, as a thread of it still waits for a device that was lost, and so must what that thread may touch. */
bool clef__close(clef_context *ctx);
void clef__log_line(clef_context *ctx, clef_log_level level, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* False after fork: fails with a line, once per call. */
bool clef__usable(clef_context *ctx);

/* ---- opening (open.c, adopt.c): as clef_open_all and clef_open_opencl, which plan/run/open.c makes of them ---- */
clef_status clef__context_open_all(const clef_options *options, int n, clef_context **ctx);
/* Closes all of them and makes them NULL.  The error of one becomes this thread's open error, which says which one if there are several;
   returns its status. */
clef_status clef__context_abandon_all(clef_context **ctx, int n, int failed);
/* Closes a half-open context, its error becoming this thread's open error; returns NULL. */
clef_context *clef__context_abandon(clef_context *ctx);
clef_context *clef__context_adopt(void *context, void *device, void *queue, const clef_options *options); /* of OpenCL's types */

/* ---- state that upper rooms attach to a context ---- */
typedef enum clef__room {
    CLEF__ROOM_GRAPH,
    CLEF__ROOM_PLAN,
    CLEF__ROOM_OPS,
    CLEF__ROOM_GROUP,
    CLEF__ROOM_NN,
    CLEF__ROOM_OPTIM,
    CLEF__ROOM_DATA,
    CLEF__ROOM_IO,
    CLEF__ROOM_TEXT,
    CLEF__ROOM_PARALLEL,
    CLEF__ROOM_TRAIN,
    CLEF__ROOMS
} clef__room;
void *clef__room_state(const clef_context *ctx, clef__room room);
/* closer runs at clef_close, upper rooms first, while the devices still live. */
void clef__set_room_state(clef_context *ctx, clef__room room, void *state, void (*closer)(clef_context *, void *));
/* The room's state, made of `bytes` zeros at first need; NULL after clef__fail.  The closer frees it. */
void *clef__make_room_state(clef_context *ctx, clef__room room, size_t bytes, void (*closer)(clef_context *, void *));
bool clef__eager(const clef_context *ctx);
bool clef__debug_memory(const clef_context *ctx);
/* Is work only planned, for a device that is not here (clef_options.plan_for)?  Its key, or NULL. */
const char *clef__plan_for(const clef_context *ctx);
/* Of the environment; NULL when unset, and always in set-uid programs. */
const char *clef__env(const char *name);
bool clef__env_flag(const char *name); /* "1", "yes", "true", "on" */
/* Reserves `count` consecutive Philox counters and returns where they start. */
clef_random_state clef__random_take(clef_context *ctx, uint64_t count);

/* ---- devices (device.c, profile.c) ---- */
typedef struct clef__device clef__device; /* one opened device: OpenCL context, queue, programs, pool */
int clef__context_devices(const clef_context *ctx);
clef__device *clef__device_at(const clef_context *ctx, int i);
const clef_device_info *clef__device_info(const clef__device *device);
/* The device for which work is planned: as it reports itself, but for clef_options.sum_units in place of its compute units. */
const clef_device_info *clef__device_planned(const clef__device *device);
/* Its name for error lines; behind its number, where the context has several: "device 1 (NAME)". */
typedef struct clef__device_label {
    char text[160];
} clef__device_label;
clef__device_label clef__device_text(const clef__device *device);
/* Is it one of these words, which are separated by spaces? */
bool clef__has_word(const char *words, const char *word);

/* What a device likes; a row of cl/profile.def chosen by reported facts (see profile.c). */
typedef struct clef__profile {
    const char *name;
    int vector;               /* float lanes of one explicit vector in a kernel: 16, 8 or 4 (1: none) */
    int local;                /* work-group size of one-dimensional kernels; 1 on CPUs */
    int items_per_unit;       /* work-items (CPU) or work-groups (GPU) worth giving each compute unit */
    int tile_m, tile_vectors; /* gemm register tile: rows, and vectors of `vector` lanes per row */
    bool wide_items;          /* one work-item owns a long contiguous run (CPU), not one vector (GPU) */
    int block;                /* edge of the largest tile that a work-group may keep in local memory; 0: none */
    /* nominal, for plan/lower/cost.h */
    double flops_per_cycle, ghz;    /* of a compute unit, in f32 */
    double cache_kb, gb_per_second; /* cache: that work-items of a unit share; bandwidth: of the device's memory */
    double launch_us, unit_us;      /* from a launch to its first work-item; from one compute unit's start to the next one's */
} clef__profile;
const clef__profile *clef__device_profile(const clef__device *device);
/* What multiplies fragments of matrices in half types (matrix.c): nothing, local memory in its place (CLEF_MATRIX=emulated, for
   tests), or instructions of PTX.  Found out, by trying, when somebody asks; from the context's own thread. */
typedef enum clef__matrix_unit { CLEF__NO_MATRIX_UNIT, CLEF__EMULATED, CLEF__PTX } clef__matrix_unit;
clef__matrix_unit clef__device_matrix_unit(clef__device *device);
/* Does it multiply f32, rounded to TF32, too?  Found out in the same way. */
bool clef__device_tf32(clef__device *device);
/* Does it multiply this type (f16, bf16 or f32) rightly when compiled with these options? */
bool clef__matrix_probe(clef__device *device, const char *options, clef_dtype in);
/* What swaps values within sub-groups, neighbouring work-items that go in step (shuffle.c).  Found out as above. */
typedef struct clef__shuffle {
    int subgroup;   /* work-items of one; 0: nothing does */
    const char *by; /* what is defined for cl/shuffle.h; NULL: local memory in its place (CLEF_SHUFFLE=emulated, for tests) */
} clef__shuffle;
clef__shuffle clef__device_shuffle(clef__device *device);
/* Does it swap rightly in sub-groups of that size when compiled with these options? */
bool clef__shuffle_probe(clef__device *device, int subgroup, const char *options);

/* ---- device memory (buffer.c) ---- */
typedef struct clef__buffer clef__buffer; /* counted; owned by its device's pool */
/* At least `bytes` > 0, aligned to 128, contents undefined.  NULL after clef__fail. */
clef__buffer *clef__buffer_new(clef__device *device, size_t bytes);
/* The same for what one can do without: NULL without an error where other memory would have to go for it. */
clef__buffer *clef__buffer_try(clef__device *device, size_t bytes);
void clef__buffer_retain(clef__buffer *buffer);
void clef__buffer_release(clef__buffer *buffer); /* NULL is allowed; goes back to the pool */
size_t clef__buffer_size(const clef__buffer *buffer);
int clef__buffer_refs(const clef__buffer *buffer);
clef__device *clef__buffer_device(const clef__buffer *buffer);
/* Over the program's own cl_mem of the same OpenCL context, retained until the last release.  Pinned. */
clef__buffer *clef__buffer_wrap(clef__device *device, void *cl_mem_of_program);
/* From now on the program may look into this memory at any time: whoever wants to overwrite a value in place must leave it
   alone, and it is not pooled for reuse.  There is no way back, as the program may have retained it. */
void clef__buffer_pin(clef__buffer *buffer);
bool clef__buffer_pinned(const clef__buffer *buffer);
uint64_t clef__buffer_id(const clef__buffer *buffer); /* from 1; differs from those of all others this device ever had */
/* Which value lies in it: a number that this context never gives to another.  A new buffer has a new one; after clef__buffer_renew,
   when another value took its memory over, it has another. */
uint64_t clef__buffer_value(const clef__buffer *buffer);
void clef__buffer_renew(clef__buffer *buffer);
/* Notes that something was made from its value; asks whether that was said. */
void clef__buffer_derive(clef__buffer *buffer);
bool clef__buffer_derived(const clef__buffer *buffer);
/* What an upper room holds beside values: `gone` is called when a value of which clef__buffer_derive was said is no more, `short_of`
   when a device has no room: it gives back what it can do without.  NULL: nobody. */
void clef__on_memory(clef_context *ctx, void (*gone)(clef_context *ctx, uint64_t value), void (*short_of)(clef_context *ctx));
void *clef__buffer_mem(const clef__buffer *buffer); /* its cl_mem */
/* Non-blocking: host bytes are staged before it returns. */
clef_status clef__buffer_write(clef__buffer *buffer, size_t offset, const void *host, size_t bytes);
/* The same into a buffer that nothing has used since clef__buffer_new: where the device has memory of its own, while kernels run that were
   queued before; what is queued later waits. */
clef_status clef__buffer_fill(clef__buffer *buffer, const void *host, size_t bytes);
clef_status clef__buffer_read(clef__buffer *buffer, size_t offset, void *host, size_t bytes); /* waits */
clef_status clef__buffer_copy(clef__buffer *to, size_t to_offset, clef__buffer *from, size_t from_offset,
                              size_t bytes); /* also between devices (through the host if need be) */

/* ---- several queues (events.c) ----
   A point in a queue that another can wait for.  Only devices that are joined, in one OpenCL context, wait for one another's. */
typedef struct clef__event clef__event;
bool clef__devices_joined(const clef__device *a, const clef__device *b);
/* Can a kernel of one read a buffer of the other without a copy: are they parts of one CPU, in one OpenCL context?  No where the
   environment does not want it (CLEF_ZERO_COPY=0). */
bool clef__devices_see(const clef__device *a, const clef__device *b);
void clef__event_release(clef__event *event); /* NULL is allowed */
/* All that was queued on the device so far.  *event is the caller's, NULL on failure. */
clef_status clef__queue_mark(clef__device *device, clef__event **event);
/* What is queued on the device from now on waits for this. */
clef_status clef__queue_after(clef__device *device, clef__event *event);
/* Copies between joined devices in the second queue of the one that receives, after these events and in no order with what the
   devices compute.  *done is the caller's, NULL on failure. */
typedef struct clef__span {
    clef__buffer *buffer;
    size_t offset; /* bytes */
} clef__span;
clef_status clef__copy_beside(const clef__span *to, const clef__span *from, size_t bytes, clef__event *const *after, int n,
                              clef__event **done);

/* Copies between devices of different contexts in two halves, each in the second queue of its device (passage.c).  `to` is where the
   second half will go, which takes the passage over.  NULL, and *done too, on failure. */
typedef struct clef__passage clef__passage;
/* Do both drivers stand what that takes?  Else a copy goes through the host, which waits (clef__buffer_copy). */
bool clef__devices_pass(clef__device *from, clef__device *to);
clef__passage *clef__fetch_beside(const clef__span *from, clef__device *to, size_t bytes, clef__event *const *after, int n,
                                  clef__event **done);
clef_status clef__store_beside(const clef__span *to, clef__passage *passage, size_t bytes, clef__event *const *after, int n,
                               clef__event **done);
/* Of one that is not stored any more; NULL is allowed. */
void clef__passage_drop(clef__device *to, clef__passage *passage);
/* The host's own work on a device's memory, in the middle of what the device does (visit.c): collective operations, above all.  It runs
   in a thread of the context, behind these events and beside the kernels, where the device has gates; else the caller waits until it is
   done.  The device reads what was written behind *done, which is the caller's; NULL where nobody needs to wait. */
typedef struct clef__host_span {
    clef__span at;
    size_t bytes;
    bool writes; /* all of it; else it only looks */
} clef__host_span;
enum { CLEF__VISIT_SPANS = 256, CLEF__VISIT_LINE = 1024 };
typedef struct clef__host_task {
    /* memory[i]: of span i.  NULL: the device failed, and nothing can be done but to tell those who wait for it.  On failure a line of at
       most CLEF__VISIT_LINE bytes: the next that waits for results gets it. */
    clef_status (*work)(const void *what, const uint64_t *number, void *const *memory, char *line);
    const void *what; /* copied */
    size_t what_bytes;
    uint64_t number[2];
    const clef__host_span *span;
    int n_spans;
    const char *label; /* lives as long as the context */
} clef__host_task;
/* Can its driver wait for what the host does?  Asked once, with clef-probe. */
bool clef__device_has_gates(clef__device *device);
clef_status clef__host_visit(clef__device *device, const clef__host_task *visit, clef__event *const *after, int n,
                             clef__event **done);
/* From now on it is noted when the device comes to each visit, which may be long before the host does. */
void clef__time_visits(clef_context *ctx, bool on);
/* From within a visit: when the device came to it and went on beside it, by clef__now; 0: not known; below 0: the device waits. */
double clef__visit_ready(const clef_context *ctx);
/* Waits until all visits are over; a failure of theirs is told. */
clef_status clef__visits_settle(clef_context *ctx);
/* Waits on the host until nothing runs on the device any more, in none of its queues: after a failure in between.  Where that fails
   too, whatever uses the device next waits first, as a copy would write into memory that has gone to others. */
clef_status clef__settle(clef__device *device);

/* ---- programs and launches (program.c, launch.c) ---- */
/* A kernel object of its own: arguments set on it stay set.  The program behind it is compiled once per
   (source, options) and device, from memory, then disk, then the driver.
   source: text of the program, self-contained; options: "-DX=1 …" (the runtime adds -cl-std and the like).
   Thread-safe: a plan's kernels are compiled from several threads. */
typedef struct clef__kernel clef__kernel;
clef__kernel *clef__kernel_new(clef__device *device, const char *source, const char *options, const char *name);
typedef struct clef__program clef__program;
clef__kernel *clef__kernel_of(clef__device *device, clef__program *program, const char *name);
/* The program of clef__kernel_new alone, held, for several kernels of it, each of which holds it, too; NULL with the error set. */
clef__program *clef__program_ready(clef__device *device, const char *source, const char *options, const char *name);
/* What a program is compiled from: text of one's own behind common.h, a file of cl/, or that file behind such text. */
typedef struct clef__code {
    const char *text, *file; /* NULL: none */
    const char *options;
    clef__program *program; /* NULL until it is compiled; held */
    uint64_t number;        /* no other code of this process has or had it */
} clef__code;
/* The one code of these, held; text and options are copied.  NULL: no host memory. */
clef__code *clef__code_of(clef__device *device, const char *text, const char *file, const char *options);
/* Gives a hold back, and the program with the last of them: a thousand codes stay for later launches, those that were used last, and so
   do some programs (clef_options.idle_programs).  NULL is allowed. */
void clef__code_release(clef__code *code);
/* Is it to be compiled?  True for the first who asks, until it was compiled or that failed. */
bool clef__code_claim(clef__code *code);
/* Compiles it unless it is; false with the error set.  Different codes may be compiled by several threads. */
bool clef__code_compile(clef__device *device, clef__code *code, const char *kernel);
/* ---- several codes as one program (join.c) ---- */
/* So many at most, so that two processes can compile a plan together; of generated ones more, as they are small.  With 8 files a first step
   takes 1.06 times as long, with 4 a later start does. */
enum { CLEF__JOINED = 16, CLEF__JOINED_FILES = 6, CLEF__JOINED_NAME = 64 };
typedef struct clef__join {
    struct clef__join *next;
    clef__device *device;
    const char *name;
    char *text, *options;
    bool known;           /* another process compiled it */
    uint8_t text_key[32]; /* in the cache, if it is known */
    int n;
    clef__code *part[CLEF__JOINED];
    int number[CLEF__JOINED]; /* of each in the program */
    uint8_t key[CLEF__JOINED][32];
} clef__join;
/* Those of them that are news, in order; NULL: none.  A text without a file calls its one kernel NAME, which is `name` unless it is defined.
   Codes of a file are joined where the driver keeps what it compiled and Clef's cache may note what was joined; elsewhere the list leaves
   them out, as it does with what is to be compiled alone.  Whoever else wants one of the list waits until it is compiled, so that has to follow. */
clef__join *clef__codes_join(clef__device *device, clef__code *const *all, int n, const char *name);
/* Does Clef's cache know of no process that compiled it?  False where there is none. */
bool clef__join_is_new(const clef__join *join);
/* What a part's kernel is called in the program. */
void clef__part_kernel(int number, const char *kernel, char name[CLEF__JOINED_NAME]);
/* Within so many seconds a driver finds a program of a text of so many bytes where it keeps such. */
double clef__program_found(size_t bytes);
/* No error if it cannot be done: each may be compiled by itself. */
void clef__join_compile(const clef__join *join);
void clef__joins_free(clef__join *join); /* it, and those behind it */
void clef__kernel_free(clef__kernel *kernel);
clef_status clef__kernel_set(clef__kernel *kernel, int index, size_t bytes, const void *value);
clef_status clef__kernel_set_buffer(clef__kernel *kernel, int index, clef__buffer *buffer);
/* The kernel has so many arguments, and argument 0 is a struct of so many bytes, in which clef__kernel_put sets numbers for the
   launches that follow.  False without host memory. */
bool clef__kernel_reserve(clef__kernel *kernel, int args, size_t bytes);
void clef__kernel_put(clef__kernel *kernel, size_t at, size_t bytes, const void *value);
/* What was set, in so many words: the arguments from the second on, a buffer's being its address, then the numbers. */
int clef__kernel_words(const clef__kernel *kernel);
bool clef__kernel_write(const clef__kernel *kernel, uint64_t *to); /* false: a buffer has no address */
/* Of the work-group's memory, that its text asks for. */
bool clef__kernel_local_bytes(const clef__kernel *kernel, size_t *bytes);

/* chain.c: launches of one device as steps of one launch.  A part is a kernel that steps have: `call` is a statement that calls it with
   the arguments at `args` (cl/chained.h), `kernel` one of its own program. */
typedef struct clef__chain clef__chain;
typedef struct clef__chain_part {
    clef__code *code;
    clef__kernel *kernel;
    char *call;
} clef__chain_part;
int clef__chain_after(const clef_context *ctx);       /* runs of a plan; below 0: when it pays */
bool clef__device_chains(const clef__device *device); /* can it, and does nothing look at single launches? */
/* For runs of about so many steps.  NULL without an error where the driver makes none of it, which the log tells. */
clef__chain *clef__chain_new(clef__device *device, const clef__chain_part *part, int n, int steps);
void clef__chain_free(clef__chain *chain); /* NULL is allowed; waits for it */
/* The next step: that part, with the arguments that a kernel of its program has now.  False, without an error, where it cannot be
   one; then none of the steps since the last launch are left.  The launch takes them all. */
bool clef__chain_step(clef__chain *chain, int part, clef__kernel *kernel, const size_t global[3]);
clef_status clef__chain_launch(clef__chain *chain);
/* How often the host has waited for it. */
unsigned clef__device_waits(const clef__device *device);
/* Largest work-group this kernel may have on its device. */
size_t clef__kernel_max_group(const clef__kernel *kernel);
/* Was nothing of its program launched yet?  Some drivers compile only then. */
bool clef__kernel_is_new(const clef__kernel *kernel);
/* Queues it; `label` names it in traces.  While somebody listens to compiling, waits for a new one, whose time counts as that. */
clef_status clef__kernel_launch(clef__kernel *kernel, const size_t global[3], const size_t local[3], const char *label);
clef_status clef__flush(clef__device *device);
clef_status clef__finish(clef__device *device);
/* A command more was queued; and between plans, when all that others may wait for is on its way: waits while too many are under way. */
void clef__ahead_count(clef__device *device);
void clef__ahead_limit(clef__device *device);
/* helper.c: a process that compiles programs beside this one, for a driver that compiles one thing at a time.  Can there be one for this
   device?  It may be started before it is told what, as it has much to read first.  Does telling pay now?  One that was started and knows
   nothing yet, yes; while one is at work, no; else where a driver that keeps what it compiled had not all programs, since that was last asked. */
typedef struct clef__help clef__help;
bool clef__help_can(const clef__device *device);
void clef__help_start(clef__device *device);
bool clef__help_pays(clef__device *device);
clef__help *clef__help_new(clef__device *device); /* NULL without host memory */
/* Programs, which are numbered from 0 on; and kernels of these in the order in which they will be wanted, each followed by its arguments. */
int clef__help_code(clef__help *help, clef__code *code);
int clef__help_join(clef__help *help, const clef__join *join);
void clef__help_kernel(clef__help *help, int program, const char *name, const size_t local[3]);
void clef__help_memory(clef__help *help);
void clef__help_number(clef__help *help, const void *bytes, size_t n);
void clef__help_begin(clef__help *help); /* and frees it */
/* Text of an embedded file of cl/ ("gemm.cl"), with its #includes already inlined; NULL if there is none. */
const char *clef__embedded(const char *file);
/* NULL but in the test that breaks kernels on purpose: gives the text to use instead; set before any context opens. */
extern const char *(*clef__embedded_hook)(const char *file, const char *text);
/* What tells texts apart: SHA-256 of what the build put into the library, or the hook's text; of a file, and of the n-th, from 0; NULL where there
   is none. */
const char *clef__embedded_digest(const char *file);
const char *clef__embedded_digest_at(int n);
/* Tells clef_on_compile's callback. */
void clef__report_compile(clef_context *ctx, int done, int total);
/* Counters that upper rooms raise. */
clef_counters *clef__counters(clef_context *ctx);
double clef__now(void); /* seconds of the monotonic clock */

/* ---- products by a BLAS library (blas.c): CLBlast, where this machine has it ----
   C[z] := A[z]·B[z], plus what C[z] holds if it `adds`, for z < batch.  A matrix lies by rows `ld` elements apart, and `step` from
   one z to the next; a transposed one lies as its transpose does. */
typedef struct clef__blas_matrix {
    int64_t ld, step;
    bool transposed;
} clef__blas_matrix;
typedef struct clef__blas_product {
    clef_dtype dtype; /* f32 or f64 */
    int64_t m, n, k, batch;
    clef__blas_matrix matrix[3]; /* a, b, c; c is not transposed */
    bool adds;
} clef__blas_product;
/* Loads it at first need.  False: *why (may be NULL) says why not, as long as the context lives;
   NULL where the environment wants none. */
bool clef__blas_there(clef_context *ctx, const char **why);
/* Not allowed: it counts as not there and is not loaded, until it is allowed again. */
void clef__blas_allow(clef_context *ctx, bool allowed);
/* Queues a product; x: a, b and c, with offsets in elements.  A routine's first call compiles, for seconds. */
clef_status clef__blas_multiply(clef__device *device, const clef__blas_product *p, clef__buffer *const x[3],
                                const int64_t offset[3], const char *label);
/* Elements from the first to the last of matrix i; with its offset no more than 2^31 - 1, in which the library counts. */
int64_t clef__blas_reach(const clef__blas_product *p, int i);
/* Seconds that it takes for each multiplication and each addition of a product like this, of a good size: as clef__blas_measure
   found by one that takes 2·2^30 of them, after its first call; infinity where that failed, 0 where it was not measured. */
double clef__blas_pace(const clef__device *device, const clef__blas_product *like);
void clef__blas_measure(clef__device *device, const clef__blas_product *like);
/* Seconds that a routine's first call may take. */
double clef__blas_start_seconds(const clef__device *device);

/* ---- tuning results (tuning.c): knobs that were measured, beside the program cache ----
   What they mean is plan/lower/select.c's business; here they are kept, found, merged. */
enum { CLEF__TUNED_KNOBS = 8 };
typedef struct clef__tuned_knob {
    const char *name;
    int value;
} clef__tuned_knob;
typedef struct clef__tuned {
    int64_t schema;
    const char *platform, *version, *device, *driver, *profile; /* where it was measured, */
    int64_t units;
    const char *family, *kernel, *dtype, *bucket; /* its key (kernel: a hash of the code it is about), */
    clef__tuned_knob knob[CLEF__TUNED_KNOBS];     /* what was best: the knobs that are not left alone, */
    int n_knobs;
    int64_t ns, default_ns; /* and what it took, with them and without */
} clef__tuned;
/* False with CLEF_TUNING=0 or clef_options.no_tuning: there are no results then. */
bool clef__tuning_on(const clef_context *ctx);
/* The result for this key (family, kernel, dtype and bucket are looked at) on this device, valid until the next one is
   kept; NULL if there is none. */
const clef__tuned *clef__tuned_find(clef__device *device, const clef__tuned *key);
/* Keeps results of this device: in memory, and together, in one write, on disk.  Only host memory can fail: without a disk
   cache, or when it cannot be written (a warning in the log), they live as long as the context. */
clef_status clef__tuned_keep(clef__device *device, const clef__tuned *result, int n);
/* All results of all devices as a file; results from a file into memory and cache.  *n: how many. */
clef_status clef__tuning_export(clef_context *ctx, const char *path, int *n);
clef_status clef__tuning_import(clef_context *ctx, const char *path, int *n);
/* ---- traces (trace.c): CLEF_TRACE ---- */
bool clef__traces(const clef_context *ctx);
/* A collective operation: a row of its own track.  args: a JSON object.  Does nothing where no trace is written; from any thread. */
void clef__trace_collective(clef_context *ctx, const char *label, double begin, double end, const char *args);
/* What the context is called in it: its rank. */
void clef__trace_name(clef_context *ctx, const char *name);
/* Contexts that this thread opens from now on are of a rank that is a process among others: they write a file of its number.  -1: of none. */
void clef__trace_rank(int rank);
#endif
