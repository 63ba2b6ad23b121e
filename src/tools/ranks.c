/* ranks.c — one verb on several devices, each with a part of every batch: a rank for each, as threads of this process, or as processes that
   mpirun started.

   libclef-mpi is loaded when --mpi asks for it: the command itself runs where there is no MPI. */
#include "tool.h"
#ifdef CLEF_MPI_FILE
#include <dlfcn.h>
#endif
#include <stdlib.h>
#include <string.h>

/* Up to most whole numbers A:B:…; how many they are, 0 where they are not that. */
static int read_shares(const char *text, int64_t *share) {
    enum { LARGEST = 1000000 };
    char *end;
    int n = 0;
    for (const char *p = text;; p = end + 1) {
        if (n == RANKS_MOST || *p < '0' || *p > '9') return 0;
        long long value = strtoll(p, &end, 10);
        if (value < 1 || value > LARGEST) return 0;
        share[n++] = value;
        if (!*end) return n;
        if (*end != ':') return 0;
    }
}

enum { MOST_PARTS = 1 << 16 };

static const char *wrong_parts(const ranks *r) {
    bool several = r->devices || r->mpi;
    if (r->parts > MOST_PARTS || (r->parts & (r->parts - 1))) return "--parts wants a power of two, as in 4";
    if (r->parts && r->shares) return "--parts are equally large, --shares are not; give one of them";
    if (r->sum_units && !r->parts) return "--sum-units belongs to --parts";
    if (r->sum_units > MOST_PARTS) return "--sum-units is far too large";
    if (r->timeout && !several) return "--timeout needs several devices: --devices 0,1";
    if (r->zero && !several) return "--zero needs several devices: --devices 0,1";
    return NULL;
}

bool ranks_parse(const char *verb_name, const common_options *common, ranks *r) {
    const char *wrong = wrong_parts(r);
    r->shares_auto = r->shares && !strcmp(r->shares, "auto");
    if (wrong) return tool_usage(verb_name, "%s", wrong), false;
    if (r->devices && common->device) wrong = "--device is one device and --devices are several; give one of them";
    else if (r->shares && !r->devices && !r->mpi) wrong = "--shares needs several devices: --devices 0,1";
    else if (r->shares && !r->shares_auto && !(r->n_shares = read_shares(r->shares, r->share)))
        wrong = "--shares wants auto, or a whole number from 1 for each device, as in 3:1";
    else if (r->rebalance && !r->shares_auto) wrong = "--rebalance-every belongs to --shares auto";
    if (wrong) tool_usage(verb_name, "%s", wrong);
    return !wrong;
}

clef_options ranks_context(const char *verb_name, const common_options *common, const ranks *r) {
    clef_options options = tool_options(verb_name, common);
    if (!r->parts) return options;
    options.no_tuning = true;
    options.sum_units = r->sum_units ? (int)r->sum_units : 1;
    return options;
}

bool ranks_wanted(const ranks *r) { return r->devices || r->mpi; }

/* What the threads share.  Rank 0 alone writes here, and all threads have ended when it is read. */
typedef struct job {
    rank_fn fn;
    void *user;
    int n_shares, parts, wanted, code, size;
    bool apart; /* no threads: each rank is a process and has this to itself */
    bool begun;
} job;

static bool ranks_fit(const job *j, int size) {
    return (!j->n_shares || j->n_shares == size) && (!j->parts || j->parts % size == 0) && (!j->wanted || j->wanted == size);
}

static clef_status run_rank(clef_context *ctx, clef_group *all, void *user) {
    job *j = user;
    int size = clef_group_size(all), code = EXIT_USAGE;
    bool first = j->apart || clef_group_rank(all) == 0, fits = ranks_fit(j, size);
    if (first) j->begun = true, j->size = size;
    if (fits) code = j->fn(ctx, all, j->user);
    if (first) j->code = code;
    return clef_error_status(ctx);
}

static int failed_to_open(const char *verb_name, clef_status status) {
    tool_failed(verb_name, NULL);
    return status == CLEF_NO_DEVICE && clef_device_count() == 0 ? EXIT_NO_DEVICE
           : status == CLEF_INVALID                             ? EXIT_USAGE
                                                                : EXIT_FAILED;
}

/* clef_run_ranks_with, and clef_run_mpi_ranks of clef/mpi.h. */
typedef clef_status run_fn(const char *devices, const clef_ranks_options *options, clef_rank_fn fn, void *user);

static run_fn *find_mpi(const char *verb_name) {
    run_fn *run = NULL;
    const char *why = "this command was built without MPI";
#ifdef CLEF_MPI_FILE
    void *library = dlopen(CLEF_MPI_FILE, RTLD_NOW | RTLD_GLOBAL); /* global: for MPI's own parts, which it loads in turn */
    void *symbol = library ? dlsym(library, "clef_run_mpi_ranks") : NULL;
    memcpy(&run, &symbol, sizeof run);
    if (!run) why = dlerror();
#endif
    if (!run) fprintf(stderr, "clef %s: --mpi: %s; --devices 0,1 uses devices of one machine\n", verb_name, why);
    return run;
}

int ranks_run(const char *verb_name, const common_options *common, const ranks *r, rank_fn fn, void *user) {
    run_fn *run = r->mpi ? find_mpi(verb_name) : clef_run_ranks_with;
    if (!run) return EXIT_FAILED;
    job j = {.fn = fn, .user = user, .n_shares = r->n_shares, .parts = (int)r->parts, .wanted = r->wanted, .apart = r->mpi};
    clef_ranks_options options = {.context = ranks_context(verb_name, common, r), .timeout = (double)r->timeout};
    clef_status status = run(r->devices, &options, run_rank, &j);
    if (!j.begun) return failed_to_open(verb_name, status);
    if (r->n_shares && r->n_shares != j.size)
        return tool_usage(verb_name, "--shares is for %d devices, and there are %d", r->n_shares, j.size);
    if (r->wanted && r->wanted != j.size)
        return tool_usage(verb_name, "--parallel is a grid of %d devices, and there are %d", r->wanted, j.size);
    if (r->parts && r->parts % j.size)
        return tool_usage(verb_name, "--parts %d cannot be divided among %d devices; give a multiple of them, a power of two",
                          (int)r->parts, j.size);
    return status ? tool_failed(verb_name, NULL) : j.code;
}

int64_t ranks_items(const ranks *r, clef_group *group, int64_t batch) {
    int size = clef_group_size(group), rank = clef_group_rank(group);
    int64_t before = 0, all = 0;
    if (!r->n_shares) return batch / size + (rank < batch % size);
    for (int i = 0; i < size; i++) {
        if (i < rank) before += r->share[i];
        all += r->share[i];
    }
    return (2 * batch * (before + r->share[rank]) + all) / (2 * all) - (2 * batch * before + all) / (2 * all);
}
