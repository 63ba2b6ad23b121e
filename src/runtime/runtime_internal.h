/* runtime_internal.h — the runtime's own structs; only files of this room include it (and with it CL/cl.h).

   Locks: ctx->lock guards the error, the build log and the counters; programs->lock guards the program table, which contexts that have
   one OpenCL context share, and is never held while the driver compiles; in_use (program.c) guards the list of these tables.
   Everything else belongs to the one thread that uses the context. */
#ifndef CLEF_RUNTIME_INTERNAL_H
#define CLEF_RUNTIME_INTERNAL_H
#include "runtime/opencl_api.h"
#include "runtime/runtime.h"
#include "runtime/text.h"
#include <pthread.h>
#include <stdatomic.h>

enum { CLEF__LINE = 1024 };

typedef struct clef__error {
    clef_status status;
    char line[CLEF__LINE];
} clef__error;

/* ---- error.c ---- */
/* "what: CL_OUT_OF_RESOURCES (-5): the device may be out of memory", with the status of that code's row. */
clef_status clef__fail_cl(clef__device *device, cl_int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* The same in a context that has no device yet. */
clef_status clef__fail_code(clef_context *ctx, cl_int code, const char *what);
const char *clef__cl_name(cl_int code);
clef_status clef__cl_status(cl_int code);
void clef__set_open_error(const clef__error *error);
/* Of this process, by a clock that only goes on when it is asked: later moments are larger.  From 1. */
uint64_t clef__moment(void);
/* Call before the first OpenCL call; fails (this thread's open error) in such a child. */
bool clef__start(void);

/* ---- devices (device.c) ---- */
typedef struct clef__found {
    cl_platform_id platform;
    cl_device_id id;
    clef_device_info info;
    const char *unusable; /* why it cannot be chosen; NULL: it can */
    cl_device_id whole;   /* itself, or what it is a part of, */
    uint32_t units;       /* and the compute units of that */
    bool divided;         /* a sub-device that was made of it (divide.c) */
} clef__found;
/* All devices; the list lives as long as the process.  0 with this thread's open error set when there is none. */
int clef__devices(const clef__found **list);
/* One device of the list, whole or in parts. */
typedef struct clef__choice {
    int index;
    int parts;                         /* sub-devices; 0: whole */
    int only;                          /* one of them, from 1, is used; 0: all are */
    uint32_t units[CLEF__MAX_DEVICES]; /* compute units of each */
} clef__choice;
/* The devices that `choice` asks for, at most CLEF__MAX_DEVICES with all parts counted; 0 after clef__fail. */
int clef__devices_choose(const char *choice, clef__choice chosen[CLEF__MAX_DEVICES]);
const clef__found *clef__devices_find(cl_device_id id);
/* Facts of one device, index -1; the texts are the caller's to free.  False when memory was too short to find them. */
bool clef__device_facts(cl_platform_id platform, cl_device_id id, clef__found *found);
void clef__device_free_texts(clef_device_info *info);

/* ---- divide.c ---- */
/* The option threads, or CLEF_THREADS; 0: all there are, below 0: wrong, and said so. */
int clef__threads_wanted(int option);
/* Length of the name in "NAME/2", "NAME:1+3" or "NAME/2#1"; -1: it ends in nothing of the kind. */
int clef__parts_at(const char *choice);
/* Reads what stands behind that length, for a device of so many compute units, into parts, units and only; false after clef__fail. */
bool clef__parts_read(const char *choice, int parts_at, const clef_device_info *device, clef__choice *parts);
/* So many of a CPU's threads, where it has more: a choice of one part. */
void clef__threads_choose(int threads, const clef_device_info *device, clef__choice *choice);
/* Devices of the context that a choice makes. */
int clef__choice_devices(const clef__choice *choice);
/* The sub-devices that are chosen, `divided`, or the whole device; how many, 0 after clef__fail. */
int clef__device_divide(clef_context *ctx, const clef__found *whole, const clef__choice *choice,
                        clef__found parts[CLEF__MAX_DEVICES]);

/* ---- profiles (profile.c) ---- */
/* False when `name` (NULL: by facts) is unknown; then `names` lists those that exist. */
bool clef__profile_choose(const char *name, const clef_device_info *info, clef__profile *profile);
void clef__profile_names(char *text, size_t size);
/* What cl/drivers.def says of this device's driver. */
typedef struct clef__driver {
    bool caches;      /* it keeps compiled kernels itself, and binaries are dear to fetch */
    bool large_pages; /* it may be given memory to compute in */
    bool gathers;     /* native kernels, one for each compute unit, run at the same time in all threads that it has */
    int queues;       /* how many may run a program's kernels at the same time; 0: any number */
    bool chains;      /* kernels can be linked, follow the host's addresses, and see each other's writes (chain.c) */
    const char
        *in_turn; /* the variable that says with 1, or unset, that other processes find what it compiles one at a time; NULL: no */
    const char *declares; /* the option with which Clef's programs declare OpenCL's functions themselves, and a space, or nothing */
} clef__driver;
clef__driver clef__driver_of(const clef_device_info *info);

/* ---- cores (cores.c) ---- */
/* Binds each thread of a CPU's driver to a core, where all that is known of the two allows it.  found: the CPU, or a part of it; opened: how many
   of its compute units are. */
void clef__cores_bind(clef_context *ctx, const clef__found *found, uint32_t opened);
/* May its driver have more threads than this process has cores?  Where that is not known, no. */
bool clef__cores_crowded(const clef__found *found);
/* How many of the control groups in file `groups` (/proc/self/cgroup) leave, by what stands below `mount`; 0: no limit. */
uint32_t clef__cores_quota(const char *groups, const char *mount);

/* ---- memory (buffer.c) ---- */
enum { CLEF__POOL_CLASSES = 64 * 8 };
struct clef__buffer {
    clef__device *device;
    cl_mem memory;
    void *address;                 /* where the device has it, too; NULL: nobody asked (clef__buffer_address) */
    uint64_t id;                   /* of the cl_mem: no other of this device has or had it; from 1 */
    size_t size;                   /* usable bytes */
    int refs;                      /* 0 while cached */
    bool wrapped;                  /* the program's own cl_mem: its bytes are not counted */
    bool pinned;                   /* the program may look into it: never pooled */
    uint64_t value;                /* of what lies in it: no other value of the context has or had it */
    bool derived;                  /* something was made from that (clef__on_memory) */
    bool used;                     /* by anything since it was made */
    cl_event last;                 /* behind all that used it until it was given back; NULL: not known, or nothing did */
    clef__buffer *previous, *next; /* in the pool's list of live buffers, or (next) in its class's free list */
};
typedef struct clef__pool {
    clef__buffer *live;
    clef__buffer *cached[CLEF__POOL_CLASSES];
    uint64_t made; /* ids given */
} clef__pool;
void clef__pool_close(clef__device *device);
/* A buffer of a page or more in memory of our own, in large pages (pages.c); NULL where there are none. */
enum { CLEF__LARGE_PAGE = 2 << 20 };
cl_mem clef__pages_buffer(clef__device *device, size_t size);
/* Where the device's kernels find it, for a driver whose chains may know (drivers.def); NULL where the host may not read it
   (a program's own memory), without an error. */
void *clef__buffer_address(clef__buffer *buffer);
/* Gives cached memory back to the driver; returns the bytes. */
uint64_t clef__pool_trim(clef__device *device);

/* events.c: does the device compute in the host's own memory?  Do queues of it wait for each other's events, as clef-probe found? */
bool clef__has_memory_of_host(const clef__device *device);
bool clef__queues_meet(clef__device *device);

/* ---- uploads (transfer.c) ---- */
typedef struct clef__stage {
    struct clef__stage *next;
    cl_event filled; /* a device's read into it; NULL: the host fills it */
    cl_event done;   /* in flight: the last command that reads it; with neither its end is known only when the queue is finished */
    size_t size, used;
    unsigned char *bytes;
    cl_mem pinned; /* whose memory `bytes` is, mapped for as long as the stage lives; NULL: our own */
} clef__stage;
typedef struct clef__staging {
    clef__stage *open;            /* small writes fill it in turn */
    clef__stage *oldest, *newest; /* in flight, in order */
    clef__stage *idle;
    size_t flying_bytes, idle_bytes;
    bool pins, asked;       /* are stages memory that the driver has pinned?  known once asked */
    cl_command_queue queue; /* of their own, in which they are mapped and let go of; NULL until one is pinned */
} clef__staging;
void clef__staging_close(clef__device *device);
/* Do so many bytes for a buffer that nothing uses go up while kernels run? */
bool clef__uploads_beside(clef__device *device, size_t bytes);
/* A stage of at least so many bytes, NULL when there is none to be had; sent off until the events are over that it takes over, `filled`
   and `done`; given back. */
clef__stage *clef__stage_take(clef__device *device, size_t bytes);
void clef__stage_fly(clef__device *device, clef__stage *stage, cl_event done);
void clef__stage_return(clef__device *device, clef__stage *stage);

/* ---- the porter (porter.c): a thread of a context that does what stands between commands of devices ---- */
typedef struct clef__porter clef__porter;
typedef struct clef__errand clef__errand;
struct clef__errand {
    clef__errand *next;
    void (*run)(clef__errand *errand); /* in the porter's thread; what it holds, it lets go of */
    cl_event gate;                     /* a user event that is completed afterwards, and released */
    uint64_t cleared;                  /* when the context's error was, before it was sent */
};
/* Is there one?  Made at first need; false when it cannot be. */
bool clef__porter_hire(clef_context *ctx);
/* Takes over the errand, memory of clef__alloc; they are run in the order in which they are sent.  False, and nothing was taken,
   where there is no porter. */
bool clef__porter_send(clef_context *ctx, clef__errand *errand);
/* Waits until all that was sent is done. */
void clef__porter_settle(clef_context *ctx);
/* The same before it is closed; false where a device was lost and the thread still waits for that: then what it may touch must stay. */
bool clef__porter_rests(clef_context *ctx);
void clef__porter_close(clef_context *ctx);
/* From an errand: the next that waits for results gets this error, unless the context's was cleared since.  The first counts. */
void clef__fail_later(clef_context *ctx, clef_status status, uint64_t cleared, const char *line);
void clef__fail_later_cl(clef__device *from, cl_int code, uint64_t cleared, const char *what);
/* Such an error that nobody was told of yet is told now. */
clef_status clef__porter_status(clef_context *ctx);
/* Until this event is over, also where waiting for it fails; returns how that went.  *over (or NULL): false when even the event's state
   could not be had for a while. */
cl_int clef__wait_for_event(cl_event event, bool *over);

/* ---- codes (code.c) ---- */
/* What is compiled of it, for clef__free; front: a text behind common.h and before its own, or NULL.  NULL without host memory. */
char *clef__code_text(clef__code *code, const char *front);

/* ---- programs (program.c) ---- */
typedef enum clef__program_state { CLEF__UNBUILT, CLEF__BUILDING, CLEF__READY, CLEF__FAILED } clef__program_state;
typedef struct clef__build_failure {
    cl_int code;
    bool wrong;     /* the source was at fault, */
    bool from_disk; /* as was found out by another process */
    char *log;
} clef__build_failure;
/* While it is being built it belongs to the thread that builds it; once ready it stays as it is. */
struct clef__program {
    clef__program *next;
    uint8_t key[32];
    clef__program_state state;
    int holders;                        /* kernels, codes, parts, and who builds it or waits for it */
    clef__program *older, *newer;       /* among idle ones: nobody holds them */
    clef__program *whole;               /* the joined program that it is a part of; NULL: of none */
    clef__program *part, *another_part; /* its own first; the next of the same whole */
    clef__build_failure failure;        /* once it failed, */
    uint64_t failed_at;                 /* at this moment (clef__moment) */
    cl_program program;
    atomic_bool launched;
    int number; /* behind the names of its kernels in the joined program that it is a part of */
};
/* Most devices of one OpenCL context that Clef makes. */
enum { CLEF__MAX_SHARING = 64 };
/* Programs that nobody holds, from the one that was held longest ago. */
typedef struct clef__idle {
    clef__program *oldest, *newest;
    int n, most;
} clef__idle;
/* What is compiled for one device, or for parts of it, in one OpenCL context, with these options.  All parts are there before the first
   program is: they were opened together. */
typedef struct clef__programs clef__programs;
struct clef__programs {
    clef__programs *next;
    int users; /* clef__devices; the last to close frees it */
    cl_context context;
    int index;         /* of the device */
    char *options;     /* without the copy's */
    int copy;          /* of what others have, too, from 1; 0: any number of queues may run them (drivers.def) */
    unsigned opening;  /* of the device that was first */
    bool shares, lost; /* shares: with those that are opened later, unless the OpenCL context is lost */
    cl_device_id id[CLEF__MAX_SHARING];
    cl_uint n; /* each id once */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    clef__program *table[256];
    clef__idle idle, failed; /* failed: those that do not compile, and that nobody builds at the moment */
    atomic_int loaded;       /* cl_programs */
    atomic_bool slow;        /* since help was last asked for, one took so long that the driver must have compiled it */
};
/* The programs of others who have the device open in the same OpenCL context, or its own; false after clef__fail.  shares: with those that
   are opened later, too; only for whole devices, whose id is all that there will be. */
bool clef__programs_open(clef__device *device, bool shares);
void clef__programs_close(clef__device *device);
/* An OpenCL context of this whole device that Clef made, is in use, and is not lost, retained; NULL: there is none. */
cl_context clef__context_in_use(cl_device_id id);
/* Nobody else gets this one. */
void clef__context_lost(cl_context context);
/* Built, ready and held, or NULL after clef__fail. */
clef__program *clef__program_get(clef__device *device, const char *source, const char *options, const char *name);
/* The same without an error, even where it does not compile; *wrong: the compiler blames the source, if it does not (NULL: nobody asks). */
clef__program *clef__program_quietly(clef__device *device, const char *source, const char *options, const char *name, bool *wrong);
/* All options that a program is compiled with. */
char *clef__program_options(const clef__device *device, const char *options);
/* By what a program is told apart; false without host memory. */
bool clef__program_key(clef__device *device, const char *source, const char *options, uint8_t key[32]);
/* The one of this key, held, if it is ready; NULL: it has to be built, or is just now. */
clef__program *clef__program_known(clef__device *device, const uint8_t key[32]);
/* Of n programs, reserves those that nobody asked for yet: others that want one wait until it is entered.  Their places in `key`; how many. */
int clef__programs_reserve(clef__device *device, uint8_t (*key)[32], int n, int *reserved);
/* Makes the joined program that of a reserved key too, as the part of this number; held.  NULL if it cannot be, or `joined` is: then who
   asks for it builds it. */
clef__program *clef__program_enter(clef__device *device, const uint8_t key[32], clef__program *joined, int number);

/* ---- idle.c ---- */
/* Both under the lock. */
void clef__program_hold(clef__programs *programs, clef__program *program);
void clef__program_let_go(clef__programs *programs, clef__program *program);
/* Gives a hold back; beyond the limit, those that were idle longest are released.  NULL is allowed. */
void clef__program_release(clef__device *device, clef__program *program);
/* alive: the driver's are released, too. */
void clef__programs_free(clef__programs *programs, bool alive);

/* ---- code (code.c) ---- */
typedef struct clef__code_entry clef__code_entry;
typedef struct clef__codes {
    clef__code_entry **table; /* chained */
    size_t slots, n;
    clef__code_entry *oldest, *newest; /* of idle ones: no launch has them */
    size_t idle;
} clef__codes;
void clef__codes_close(clef__device *device);
int clef__code_uses(clef__code *code);
const char *clef__code_asked(const clef__code *code);           /* its options without the driver's declarations */
void clef__code_have(clef__code *code, clef__program *program); /* its program from now on; NULL: it has none */
/* The files of cl/ as the build put them into the library (cmake/embed.cmake). */
struct clef__embedded_file {
    const char *name;
    const char *text, *digest;
};
extern const struct clef__embedded_file clef__embedded_files[];
extern const int clef__embedded_count;

/* ---- the disk cache (cache.c) ---- */
typedef enum clef__entry_kind {
    CLEF__ENTRY_BINARY = 1,
    CLEF__ENTRY_FAILURE,
    CLEF__ENTRY_VERDICT,
    CLEF__ENTRY_JOINED, /* the text of a joined program (join.c) */
    CLEF__ENTRY_PART    /* which joined program has this one as a part */
} clef__entry_kind;
typedef struct clef__entry {
    clef__entry_kind kind;
    const unsigned char *payload; /* inside the bytes that were checked */
    size_t size;
} clef__entry;
enum { CLEF__ENTRY_HEADER = 88 };
/* Looks at every byte; false unless this is a whole entry for `key` (NULL: for any key). */
bool clef__entry_check(const unsigned char *bytes, size_t n, const uint8_t key[32], clef__entry *entry);
void clef__entry_header(unsigned char header[CLEF__ENTRY_HEADER], clef__entry_kind kind, const uint8_t key[32], const void *payload,
                        size_t size);

typedef enum clef__saving { CLEF__SAVE_NOTHING, CLEF__SAVE_FAILURES, CLEF__SAVE_ALL } clef__saving;
typedef struct clef__cache {
    int dir;            /* file descriptor of the checked directory; -1: no disk cache */
    uint64_t limit;     /* bytes */
    uint64_t bytes;     /* known so far; only a hint of when to look */
    bool counted, told; /* told: that entries cannot be written */
    pthread_mutex_t lock;
} clef__cache;
void clef__cache_open(clef_context *ctx, const char *dir);
void clef__cache_close(clef_context *ctx);
/* Which parts of common.h (cl/uses.h) a program of this text, file and options needs; text and file may be NULL. */
int clef__uses(const char *text, const char *file_text, const char *options);
void clef__cache_key(const clef_device_info *info, const char *source, const char *options, uint8_t key[32]);
/* The whole entry's bytes (clef__free them), already checked; NULL if there is none. */
unsigned char *clef__cache_load(clef_context *ctx, const uint8_t key[32], clef__entry *entry);
void clef__cache_store(clef_context *ctx, const uint8_t key[32], clef__entry_kind kind, const void *payload, size_t size);
void clef__cache_evict(clef_context *ctx, const uint8_t key[32]);
typedef enum clef__reading { CLEF__ABSENT, CLEF__REFUSED, CLEF__WHOLE } clef__reading;
/* The bytes (clef__free them) of a plain file of ours in a directory; links, others' files and large ones are refused. */
clef__reading clef__cache_read(int dir, const char *name, uint64_t largest, unsigned char **bytes, size_t *size);
/* Head, then body, by a temporary beside it that is renamed, and made durable before, if it is to be sure; false with errno. */
bool clef__cache_write(int dir, const char *name, int mode, bool sure, const void *head, size_t head_size, const void *body,
                       size_t body_size);
/* What of this device's programs goes to disk; what is there is read, unless that is nothing. */
clef__saving clef__cache_saving(const clef__device *device);

/* ---- tuning results (tuning.c; one line of the file: tuning_line.c) ---- */
enum { CLEF__TUNING_SCHEMA = 1, CLEF__TUNING_LINE = 4096 };
/* A line's text, which is taken apart in place and must live as long as *t; false unless it is a whole result of this
   schema. */
bool clef__tuned_parse(char *line, clef__tuned *t);
/* Is this a line of another schema?  Newer versions' results are carried along, not understood. */
bool clef__tuned_foreign(const char *line);
/* The line, with its line break. */
void clef__tuned_put(clef__text *to, const clef__tuned *t);
typedef struct clef__tuning_entry {
    char *line;  /* as in the file, without line break */
    char *parts; /* what t points into; NULL: a foreign line */
    clef__tuned t;
    uint64_t hash; /* of where and which */
} clef__tuning_entry;
typedef struct clef__tuning {
    clef__tuning_entry *entry;
    int n, capacity;
} clef__tuning;
/* Adds the lines of a text, the later of two about the same choice counting; *damaged: how many were none.  False when host
   memory is out. */
bool clef__tuning_merge(clef__tuning *to, const char *text, size_t size, int *damaged);
void clef__tuning_free(clef__tuning *tuning);

/* ---- CLBlast (blas.c) ---- */
enum { CLEF__BLAS_ROUTINES = 5 };
typedef struct clef__blas {
    bool asked, there, off; /* off: the environment wants none */
    bool barred;            /* for now (clef__blas_allow) */
    void (*routine[CLEF__BLAS_ROUTINES])(void);
    char why[256]; /* it is not there */
} clef__blas;
void clef__blas_close(clef_context *ctx);

/* ---- tracing (trace.c) ---- */
typedef struct clef__trace clef__trace;
/* Where $CLEF_TRACE names a file; CLEF_IO if that cannot be written. */
clef_status clef__trace_open(clef_context *ctx);
void clef__trace_close(clef_context *ctx);
/* Takes over the event. */
void clef__trace_event(clef__device *device, const char *label, cl_event event);
/* The same for one of its second queue, */
void clef__trace_beside(clef__device *device, const char *label, cl_event event);
/* and for all that ran from the end of one event to the end of another. */
void clef__trace_span(clef__device *device, const char *label, cl_event begin, cl_event end);
void clef__trace_host(clef_context *ctx, const char *label, double begin, double end);
/* The same of what the host does between commands of a device; from any thread. */
void clef__trace_visit(clef_context *ctx, const char *label, double begin, double end);
/* Writes what has finished; call after clef__queue_wait. */
void clef__trace_collect(clef__device *device);
/* Around a fork, after which the file is the parent's. */
void clef__trace_before_fork(void);
void clef__trace_after_fork(void);

/* ---- devices that are not here (absent.c) ---- */
/* False after clef__fail, with the line in this thread's open error. */
bool clef__absent_known(const char *key);
/* The device takes the facts of the one that is not here. */
void clef__absent_take(clef__device *device, const char *key);

/* ---- the structs ---- */
/* Waits of the host for a device (launch.c). */
typedef struct {
    unsigned all, count;   /* count: without those for what was over already */
    double watched, slept; /* seconds of the shortest trial of either kind */
} clef__waits;

/* ahead.c */
typedef struct {
    unsigned commands; /* since the mark */
    cl_event mark;     /* NULL: there is none */
} clef__ahead;

struct clef__device {
    clef_context *ctx;
    int number;       /* within its context */
    unsigned opening; /* those that were opened together have the same; 0: in a context of the program's */
    cl_context context;
    cl_device_id id;
    bool divided;   /* a sub-device that Clef made */
    uint32_t units; /* of the whole device; 0: not known */
    atomic_bool lost;
    cl_command_queue compute; /* for commands: clef__queue */
    cl_command_queue beside;  /* NULL until something was copied to it (events.c) */
    cl_command_queue visits;  /* NULL until the host visited it (visit.c); */
    cl_event *unmapped;       /* the last visit is over with these */
    int n_unmapped;
    bool meet_asked, meet;       /* events.c */
    bool gates_asked, has_gates; /* visit.c */
    bool shared;                 /* the program may put commands into the compute queue */
    clef__chain *last;           /* whose launch was the last command of that queue, if it was one (chain.c) */
    uint64_t followed;           /* runs of chains that were not launched (chain.c) */
    bool unsettled;              /* copies or reads may still run that nobody waits for (clef__settle) */
    bool crowded;                /* the driver may have more threads than cores (cores.c) */
    clef__waits waits;
    clef__ahead ahead;
    clef_device_info info, planned; /* planned: with clef_options.sum_units */
    clef__profile profile;
    bool matrix_asked, tf32_asked, tf32;
    clef__matrix_unit matrix_unit;
    bool shuffle_asked;
    clef__shuffle shuffle;
    clef__saving saving;
    clef_memory_info memory; /* of this one; the context has the sums */
    bool large_pages;
    char options[128]; /* what every build gets */
    clef__pool pool;
    clef__staging staging;
    clef__programs *programs; /* NULL until they are opened */
    clef__codes codes;
    double blas_pace[4]; /* of CLBlast's routines for products: seconds for one operation; 0: not known yet */
};

struct clef_context {
    pthread_mutex_t lock;
    clef__error error;
    uint64_t failures;             /* lines given to clef__fail, kept or not */
    clef_status latest;            /* of the last of them */
    clef_status broken;            /* as of clef__broken */
    atomic_uint_least64_t cleared; /* when its error was last (clef__moment), or it was opened */
    char *build_log;
    bool eager, debug_memory;
    clef_log_fn log;
    void *log_user;
    clef_compile_fn on_compile;
    void *on_compile_user;
    clef_random_state random;
    clef_matmul_precision matmul_precision;
    clef_counters counters;
    int builders; /* threads that compile just now */
    double building_since;
    clef_memory_info memory;
    uint64_t values; /* numbers given to what lies in buffers */
    void (*value_gone)(clef_context *ctx, uint64_t value);
    void (*memory_short)(clef_context *ctx);
    void (*whereabouts)(clef_context *ctx, char *text, size_t size); /* NULL: nobody knows */
    int n_devices;
    clef__device *device[CLEF__MAX_DEVICES];
    struct {
        void *state;
        void (*closer)(clef_context *, void *);
    } room[CLEF__ROOMS];
    clef__cache cache;
    uint32_t sum_units; /* 0: each device's own */
    char plan_for[16];  /* a key of cl/devices.def; "": none */
    int idle_programs;  /* see clef_options */
    bool no_tuning, tuning_loaded, no_affinity;
    int helper; /* the standard input of the process that compiles beside this one (helper.c); 0: there is none; -1: nor can there be */
    int helper_list; /* the file in which it will be told what, for this device; 0: there is none, or it knows */
    const clef__device *helper_device;
    int chain_after; /* see clef_options; 0: never, -1: when it pays */
    clef__tuning tuning;
    clef__blas blas;
    clef__trace *trace;
    clef__porter *porter;     /* NULL until it is needed */
    atomic_bool times_visits; /* clef__time_visits */
    double visit_ready;       /* of the present visit; in the thread that makes it */
};

/* ---- reached.c ---- */
/* Notes when the last of n events is over; of none: now.  NULL without memory. */
typedef struct clef__reached clef__reached;
clef__reached *clef__reached_new(clef__event *const *event, int n);
/* When that was, by clef__now, and lets go of it; 0: not yet, or it is not to be known.  NULL is allowed. */
double clef__reached_take(clef__reached *reached);

/* ---- process.c ---- */
/* A set-uid program and the like, which must not trust its environment. */
bool clef__privileged(void);
/* Bytes of address space that this process may still take (ulimit -v); UINT64_MAX: no limit is known. */
uint64_t clef__address_space_left(void);
/* Enough for a driver?  If not, this thread's open error says so. */
bool clef__has_room(void);

/* ---- launch.c ---- */
/* Waits for all that is queued; clFinish behind a marker, as there are drivers (rusticl 22.3) whose own waits only for what was queued
   since the last flush. */
cl_int clef__queue_wait(cl_command_queue queue);
/* Waits for an event of the device's queue. */
cl_int clef__event_wait(clef__device *device, cl_event event);
/* What says that work is over: the driver's event or, before, that a counter in the host's memory reached `total`; NULL: there is none. */
typedef struct clef__end {
    cl_event event;
    const atomic_uint *counter;
    unsigned total;
    bool stays; /* the event comes a while after the counter */
} clef__end;
cl_int clef__end_wait(clef__device *device, const clef__end *end);
/* The compute queue, for one more command. */
cl_command_queue clef__queue(clef__device *device);
/* helper.c */
void clef__help_end(clef_context *ctx);

/* Was a chain's launch its last command?  Then what the device computed is in the host's memory after this wait. */
bool clef__chain_is_last(const clef__device *device);
bool clef__chain_is_done(const clef__device *device); /* it is, and nothing that was queued is left to do */
void clef__chain_end(const clef__chain *chain);       /* it looks for no run behind its last one any more */
cl_int clef__chain_wait(clef__device *device);

/* ---- trial.c ---- */
#ifndef CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV
#define CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV 0x4000 /* of cl_nv_device_attribute_query */
#endif
#ifndef CL_DEVICE_SUB_GROUP_SIZES_INTEL
#define CL_DEVICE_SUB_GROUP_SIZES_INTEL 0x4108 /* of cl_intel_required_subgroup_size */
#endif
enum { CLEF__TRIAL_MEMORIES = 4 }; /* at most */
typedef struct {
    void *host;
    size_t bytes;
} clef__trial_memory;
/* Builds the embedded NAME.cl with these options and runs one group of its kernel NAME on copies of m; the last of these comes back.
   False where any of it fails. */
bool clef__try_kernel(clef__device *device, const char *name, const char *options, size_t items, const clef__trial_memory *m,
                      int n);
/* Does it report this extension, and this fact of at least so much? */
bool clef__device_says(const clef__device *device, const char *extension, cl_device_info fact, cl_uint least);

/* ---- ahead.c ---- */
void clef__ahead_close(clef__device *device);

/* ---- events.c ---- */
/* With these properties, and profiling where that is traced. */
cl_command_queue clef__queue_new(const clef__device *device, cl_command_queue_properties also, cl_int *code);
/* The device's second queue, made at first need. */
cl_command_queue clef__queue_beside(clef__device *device, cl_int *code);

/* ---- visit.c ---- */
/* Lets go of what the next visit would wait for. */
void clef__visits_forget(clef__device *device);

/* ---- open.c ---- */
/* In an OpenCL context and, unless NULL, a queue that exist: it retains them.  Its programs are to be opened next. */
clef__device *clef__device_open(clef_context *ctx, const clef__found *found, cl_context context, cl_command_queue queue,
                                const char *profile, unsigned opening);

/* ---- context.c ---- */
clef_context *clef__context_new(const clef_options *options);
/* May OpenCL be called?  Not after fork (CLEF_STATE) and not on a lost device (CLEF_LOST). */
clef_status clef__ready(clef__device *device);
/* If this error of OpenCL means so, the device is lost from now on; with a context that the driver gave up, all devices in it. */
void clef__note_loss(clef__device *device, cl_int code);
/* Is this a child of a process that had started OpenCL? */
bool clef__forked(void);
/* Is there anything to give back to the driver at all?  (The same question, without an error.) */
bool clef__alive(const clef__device *device);
bool clef__all_alive(const clef_context *ctx);
#endif
