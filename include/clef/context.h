/* clef/context.h — devices, contexts, errors, memory figures, the kernel cache.

   Environment, each read at clef_open and weaker than the option of the same meaning:
     CLEF_DEVICE        which device (see clef_options.device)
     CLEF_THREADS       how many compute units of a CPU to use (see clef_options.threads)
     CLEF_AFFINITY      0: threads of a CPU's driver are not bound to cores (see clef_options.no_affinity)
     CLEF_CHAIN         after how many runs a plan's launches become few; 0: never (see clef_options.chain_after)
     CLEF_CACHE         0: no disk cache; force: save every program, also where the driver keeps them itself
     CLEF_CACHE_DIR     where the disk cache is; empty: none        CLEF_CACHE_MAX_MB  its size limit (256)
     CLEF_IDLE_PROGRAMS how many compiled programs stay in memory though nothing uses them (see clef_options.idle_programs)
     CLEF_TUNING        0: results of clef_tune are neither used nor made (clef/tune.h)
     CLEF_CLBLAST       file of CLBlast's library; 0: none (clef/tune.h); read when it is needed
     CLEF_MATRIX        0: no matrix units for products; emulated: local memory in their place, on a device with the
                        profile gpu, to test; read when it is needed
     CLEF_SHUFFLE       0: no shuffles for what work-items of a row or column find; 8, 16, 32 or 64: only in sub-groups of that size;
                        emulated: local memory in their place, to test.  Unless set: wherever a work-group shares a row, so with
                        profiles for GPUs, where the device has them and they pass a probe.  Read when it is needed
     CLEF_MATMUL_PRECISION
                        highest or high: how products of f32 are computed until clef_set_matmul_precision says otherwise; CLEF_INVALID
                        for another word
     CLEF_PROBE         file of clef-probe (see clef_device_events), which also compiles in a process of its own; 0 or empty: none; read
                        when it is needed
     CLEF_HELPER        0: no second process compiles a plan's kernels beside this one, as it does with pocl while no cache has them; it
                        starts when a program takes long, is no child of this one, and ends with the context; read when a plan is made
     CLEF_ZERO_COPY     0: parts of one CPU copy values to each other, too (docs/devices.md); read when a plan is made
     CLEF_PINNED        1 or 0: uploads go through memory that the driver has pinned, those of new tensors beside the kernels that run, or do
                        not; unset: where the device has memory of its own; read when it is needed
     CLEF_PROFILE       device profile to force (a row of cl/profile.def)
     CLEF_EAGER=1       evaluate after every op
     CLEF_DEBUG=memory  exact-size buffers, none reused
     CLEF_TRACE=FILE    write a Chrome trace of all device work until the context closes; those that are open at the same time, such as
                        ranks, write one file, ranks by MPI each FILE.rank0, FILE.rank1, …  (CLEF_IO if FILE cannot be made;
                        one that is not whole is told of in the log, and by clef_error(NULL) after clef_close)
   A set-uid program sees none of them.

   Threads: a context, with all that belongs to it, is used by one thread at a time; contexts are independent, also those that are
   opened together and share compiled kernels (clef_open_all).
   Callbacks come from the thread that called the function they belong to (a module's forward, what clef_fit
   reports), with four exceptions: the allocator (clef_set_allocator) and a dataset's fetch (clef/data.h) are
   called from any thread, several at a time; the log from the context's thread and from those that compile for
   it, also at the same time; clef_on_compile's from one of these at a time.  None of the four may call Clef
   with the same context, or one that shares its OpenCL context, and none is called by the driver. */
#ifndef CLEF_CONTEXT_H
#define CLEF_CONTEXT_H
#include "base.h"
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a device reports of itself.  Strings live as long as the process (of an adopted sub-device: as its
   context). */
typedef struct clef_device_info {
    int index; /* the number that clef_options.device and CLEF_DEVICE accept; -1 for an adopted sub-device */
    const char *name, *vendor, *driver, *version; /* version: "OpenCL 3.0 …" */
    const char *platform, *platform_version, *extensions;
    const char *type;                                /* "cpu", "gpu", "accelerator" or "other" */
    uint32_t compute_units, clock_mhz, vector_width; /* native float lanes, 0 if unknown */
    uint64_t global_bytes, max_alloc_bytes, local_bytes, cache_bytes;
    size_t max_work_group;
    bool local_is_dedicated, f64, f16;
    uint32_t group_multiple; /* work-items that a compute unit runs in step, 0 if unknown */
} clef_device_info;

/* Number of OpenCL devices on this machine; 0 is a normal answer (clef_error(NULL) then explains). */
CLEF_API int clef_device_count(void);
/* Facts about device `index`, from 0, into *info; false when there is no such device. */
CLEF_API bool clef_device_get(int index, clef_device_info *info);

typedef enum clef_log_level { CLEF_LOG_ERROR, CLEF_LOG_WARNING, CLEF_LOG_INFO, CLEF_LOG_DEBUG } clef_log_level;
/* Receives one line without a line break, valid during the call; from several threads at once while kernels are
   compiled. */
typedef void (*clef_log_fn)(void *user, clef_log_level level, const char *line);

/* Host memory hooks, all three or none; they must be as thread-safe as malloc, which the driver goes on using. */
typedef struct clef_allocator {
    void *(*allocate)(void *user, size_t bytes);
    void *(*reallocate)(void *user, void *old, size_t bytes);
    void (*release)(void *user, void *old);
    void *user;
} clef_allocator;
/* Replaces malloc/realloc/free for the whole process; call before anything else of Clef.  NULL restores
   libc's. */
CLEF_API void clef_set_allocator(const clef_allocator *allocator);

typedef struct clef_options {
    const char *device;    /* index, "cpu"/"gpu"/"accelerator", or part of a name; a comma-separated list
                              opens several (the first is the default); NULL: $CLEF_DEVICE, else the best.
                              "0/2": device 0 in two equal parts; "0:1+3": parts of it of one compute unit and of
                              three.  Each part is a device of the context; CLEF_UNSUPPORTED where the driver
                              cannot divide the device.  "0/2#1": the second part alone (numbers from 0) */
    uint64_t seed;         /* of the context's random numbers; 0: 0 */
    const char *cache_dir; /* NULL: $CLEF_CACHE_DIR, $XDG_CACHE_HOME/clef, ~/.cache/clef; "": none */
    const char *profile;   /* name of a device profile to force; NULL: $CLEF_PROFILE, else by facts */
    bool eager;            /* evaluate after every op (also CLEF_EAGER=1) */
    bool debug_memory;     /* every tensor in a buffer of its exact size, no node's memory used again (also CLEF_DEBUG=memory) */
    clef_log_fn log;       /* NULL: silent */
    void *log_user;
    bool no_tuning; /* results of clef_tune are neither used nor made (also CLEF_TUNING=0) */
    int threads;    /* so many of a CPU's compute units, as a sub-device; 0: $CLEF_THREADS, else all.  GPUs are used whole.
                       CLEF_UNSUPPORTED where the driver cannot divide the CPU.  The last bits of sums may depend on it. */
    bool isolated;  /* an OpenCL context of its own, which no other fault makes the driver give up than one of this context */
    int sum_units; /* compute units for which work is partitioned and ways to compute it are chosen, and so the order of sums; 0: as many as
                       the device has.  Contexts on devices of one type but of different numbers of units compute the same bits if
                       it is the same on all of them (see clef_backward_parts).  CLEF_INVALID below 0. */
    const char *
        plan_for; /* a GPU that need not be here, by a key of cl/devices.def ("a100", "h100", "mi100", …): work is planned as on that
                             device, by what its maker publishes, and never done: results have memory, lent by the device that is
                             opened, but no numbers, and reading one is CLEF_STATE.  clef_plan_memory and clef_on_planned_launch tell
                             what would run.  CLEF_INVALID, with all keys in the line, for another word */
    const char *matmul_precision; /* "highest" or "high", as clef_set_matmul_precision sets it; NULL: $CLEF_MATMUL_PRECISION, else
                                     "highest".  CLEF_INVALID for another word */
    bool no_affinity; /* the system puts a CPU's threads on cores as it likes (also CLEF_AFFINITY=0).  Else each is bound to a core,
                         where the driver is known to allow it, when a process first opens the whole CPU, at once or in parts, and
                         may run on all its compute units: threads that sleep between bursts of work do not wake up on one core then */
    int chain_after; /* a plan's launches are queued as few as possible, each doing many in order, once the plan has run so often: less than
                        a microsecond lies between them instead of ten.  Only where the driver is known to allow it (a CPU's), by
                        launches of single work-items, on one device without a trace; to the same bits.  A plan that runs again
                        while it still runs, the program having waited for nothing and queued nothing else, needs no launch at all; nor,
                        mostly, does one of less than 100 us that runs again a few microseconds after the program read its result.
                        What it takes is compiled at that moment, a quarter of a second for each different kernel, a tenth where the
                        driver has it from an earlier process.  Threads that wait within such a launch keep their cores.
                        0: $CLEF_CHAIN (where 0 is never), else when launches have cost as much as compiling would, but never where a
                        mask or a quota leaves the process fewer cores than the device has compute units; below 0: never */
    int idle_programs; /* so many compiled programs stay in memory though no plan uses them any more, those that were used last; one that
                          is released is loaded again, or compiled, when it is needed.  A context keeps up to 128 plans, those that ran
                          last, and a plan its programs.  0: $CLEF_IDLE_PROGRAMS, else 256; below 0: none.  Of contexts that share
                          what is compiled (clef_open_all) the first one's counts */
} clef_options;

/* Opens a device and everything that lives with it.  NULL options mean all defaults.  Returns NULL on
   failure; clef_error(NULL) then holds the line and clef_error_status(NULL) the status (per thread).
   CLEF_MEMORY also where ulimit -v leaves less than 512 MiB of address space: drivers that compile within the
   process abort it when theirs is used up.
   A context of one whole device shares its OpenCL context with others of the same device that are open and not isolated, where
   clef-probe has found that the driver stands it (clef_device_events; clef_open does not ask it).  Then a kernel that two need with
   the same profile is compiled once, and counted and saved by the one that compiled it; where a driver stands two queues at most that
   run one kernel (pocl on a CPU of three cores or more), once for every two.  A fault that makes the driver give up the
   OpenCL context (CLEF_LOST) reaches all of them.
       clef_context *ctx = clef_open(NULL);  */
CLEF_API clef_context *clef_open(const clef_options *options);
/* Opens n contexts at once, for threads that each use one of them at the same time: ctx[i] with options[i]; NULL options mean all
   defaults.  What runs on one device, or on parts of one device ("0/2#0" and "0/2#1"), shares an OpenCL context where clef-probe found
   that the driver stands it (clef_device_events).  Then each kernel is compiled once for all of them, by whoever needs it first;
   it is in that context's counters and cache directory.  Each of them may be closed at any time, by any thread.  All are opened or
   none: on failure all of ctx are NULL, and this thread's open error (clef_error(NULL)) says which failed and why.  CLEF_INVALID
   unless n is 1 or more.
       clef_context *half[2];
       clef_open_all((clef_options[]){{.device = "0/2#0"}, {.device = "0/2#1"}}, 2, half);  */
CLEF_API clef_status clef_open_all(const clef_options *options, int n, clef_context **ctx);
/* Frees the context and all it owns (tensors, modules, optimizers, loaders, …).  NULL is allowed.  Where a device was lost and its driver
   holds a thread of the context for ten seconds more, what that thread may touch stays until the process ends. */
CLEF_API void clef_close(clef_context *ctx);

/* Devices this context holds: 1 unless a list was asked for; 0 for NULL. */
CLEF_API int clef_context_device_count(const clef_context *ctx);
/* Facts about the i-th of them, from 0, into *info; false when there is none. */
CLEF_API bool clef_context_device(const clef_context *ctx, int i, clef_device_info *info);

/* What a driver was found to do when Clef tried it.  Some hang, crash or compute wrong numbers where they should
   not, so the trial is a process of its own, clef-probe, which is stopped after some seconds.  It is tried once:
   verdicts are saved in the kernel cache, until it is cleared or driver, device or version of Clef are others. */
typedef enum clef_verdict { CLEF_VERDICT_UNKNOWN, CLEF_VERDICT_NO, CLEF_VERDICT_YES } clef_verdict;
/* Can queues of devices a and b (indices as for clef_device_get; a = b: two queues of one device) wait for each
   other's events in one cl_context?  No for devices of different platforms.  Unknown where nobody asked yet and ask is
   false, where clef-probe is missing, or where CLEF_PROBE=0; Clef then does as if the answer were no.  A first answer
   takes a tenth of a second, and two seconds of a driver that hangs. */
CLEF_API clef_verdict clef_device_events(clef_context *ctx, int a, int b, bool ask);
/* Can work of that device wait for user events, which the host completes, and so can the end of a mapping of its memory?  The same holds. */
CLEF_API clef_verdict clef_device_user_events(clef_context *ctx, int index, bool ask);

/* The first failure since opening or clearing, as one line (op: fact, shapes, remedy); "" when there was
   none.  The context's own text, valid until it is cleared or closed.  NULL: of clef_open and the like on
   this thread. */
CLEF_API const char *clef_error(const clef_context *ctx);
/* The status of that failure; CLEF_OK when there was none. */
CLEF_API clef_status clef_error_status(const clef_context *ctx);
/* Forgets the sticky error, so that the next failure is kept; NULL: this thread's.  A lost device stays
   lost: what lay on it is gone, and with several devices what lies on the others can still be read, saved
   and computed with.  After CLEF_BUILD and CLEF_DEVICE nothing is computed until this is called; then what
   failed is tried again, a kernel only where its compiler found no error in it. */
CLEF_API void clef_clear_error(clef_context *ctx);
/* The compiler's log of the last kernel that failed to build; "" if none. */
CLEF_API const char *clef_build_log(const clef_context *ctx);

/* Seeds the context's random numbers (Philox 4x32-10: Salmon et al., 2011) and rewinds them: the same seed
   gives the same numbers on every device. */
CLEF_API void clef_seed(clef_context *ctx, uint64_t seed);
typedef struct clef_random_state {
    uint64_t seed, offset; /* offset: counters used, of four numbers each */
} clef_random_state;
/* The generator's whole state, for checkpoints: the next numbers depend on nothing else. */
CLEF_API clef_random_state clef_random_get(const clef_context *ctx);
/* Continues from a state that clef_random_get gave. */
CLEF_API void clef_random_set(clef_context *ctx, clef_random_state state);

/* How products of f32 may be computed.  HIGHEST, the default (clef_options.matmul_precision): with all bits of f32.  HIGH: on matrix units,
   where the device has such, with both factors of every multiplication rounded to TF32: f32's range, 10 bits of mantissa, to nearest and
   ties away from zero.  That is a relative error of at most 2^-11 = 4.9e-4 in each factor; sums stay in f32. */
typedef enum clef_matmul_precision { CLEF_MATMUL_HIGHEST, CLEF_MATMUL_HIGH } clef_matmul_precision;
/* Sets it for what is planned from now on: matmul, linear, convolutions and recurrent layers of f32, and their gradients, where they are
   computed by such products (what Winograd's algorithm multiplies is rounded, too).  Other types stay as they are, and so does everything
   on a device without such units.  Results may differ from those of HIGHEST by the errors above.  Plans of both settings are kept, and one
   made under the other setting is never used.
   Each context has its own setting, whatever other contexts and other ranks of its groups have.  Data parallel training and pipelines keep
   the same weights on all ranks also where settings differ, as gradients are summed before they are used, or made by one rank.  Where layers are
   cut (clef_module_shard) each rank makes the gradients of what is not cut, and with clef_backward_parts bits are to be those of any number
   of ranks: give all ranks the same setting there.
   CLEF_INVALID for another value, which changes nothing.
       clef_set_matmul_precision(ctx, CLEF_MATMUL_HIGH);
   TF32: NVIDIA, A100 Tensor Core GPU Architecture, 2020. */
CLEF_API clef_status clef_set_matmul_precision(clef_context *ctx, clef_matmul_precision precision);
/* The present setting; HIGHEST for NULL. */
CLEF_API clef_matmul_precision clef_get_matmul_precision(const clef_context *ctx);

/* Device memory in bytes: used: held by live values and plans; peak: the highest that was; cached: kept for
   reuse, on top of used; buffers: how many are live, a program's own too, whose bytes are not counted. */
typedef struct clef_memory_info {
    uint64_t used, peak, cached, buffers;
} clef_memory_info;
/* The present figures, of all devices of the context together; zeros for NULL. */
CLEF_API clef_memory_info clef_memory(const clef_context *ctx);
/* Those of one device, from 0; zeros where there is none.  The peaks of the devices may lie at different times, so they may add
   up to more than clef_memory's.
       for (int d = 0; d < clef_context_device_count(ctx); d++) show(d, clef_memory_of(ctx, d).peak);  */
CLEF_API clef_memory_info clef_memory_of(const clef_context *ctx, int device);
/* Lets the peaks begin anew, at what is used now. */
CLEF_API void clef_memory_reset_peak(clef_context *ctx);

/* Work done since opening.  Launches that go as one (clef_options.chain_after) count once, runs that need none as if they had one. */
typedef struct clef_counters {
    uint64_t launches, plans, replays, kernels_built, kernels_from_cache;
    double compile_seconds;     /* on the clock, loading from the cache included; and, while clef_on_compile is set, each
                               kernel's first run, before which some drivers compile it once more */
    uint64_t programs;          /* no count since opening, but how many compiled programs are in memory now, those of contexts
                                   included that share them */
    uint64_t programs_released; /* by this context, as they were idle (clef_options.idle_programs) */
} clef_counters;
/* The present counts; zeros for NULL.  Differences of two calls measure what lies between. */
CLEF_API clef_counters clef_counters_get(const clef_context *ctx);

/* Told while a plan's kernels are compiled, `done` of `total`, and once more from 1 while they run for the first
   time, as some drivers (pocl) do most of the compiling then.  Called by one thread at a time, not always the same;
   it must not start work of Clef's. */
typedef void (*clef_compile_fn)(void *user, int done, int total);
/* Sets who is told (NULL: nobody).  There is one place for it, and clef_fit takes it and leaves it empty. */
CLEF_API void clef_on_compile(clef_context *ctx, clef_compile_fn fn, void *user);

/* Waits until all queued work is done, on every device; returns the first failure of the devices. */
CLEF_API clef_status clef_synchronize(clef_context *ctx);

/* The kernel cache on disk. */
typedef struct clef_cache_info {
    char dir[4096];                             /* "" when there is none */
    uint64_t entries, bytes, damaged, negative; /* the last two by verify; negative: failed builds */
} clef_cache_info;
/* Counts the entries of dir (NULL: the default directory) into *info; verify reads them all and counts the
   damaged.  A missing directory is an empty cache; CLEF_IO if it cannot be read or is not safely ours.  The
   line is in clef_error(NULL). */
CLEF_API clef_status clef_cache_inspect(const char *dir, bool verify, clef_cache_info *info);
/* Removes all entries of dir (NULL: the default directory) and puts their number into *removed (may be NULL).
   CLEF_IO if some stay.  Running contexts lose nothing. */
CLEF_API clef_status clef_cache_clear(const char *dir, uint64_t *removed);

#ifdef __cplusplus
}
#endif
#endif
