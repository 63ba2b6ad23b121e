/* ranks.c — programs of several ranks: each with a context of its own, and all told how each of them ended. */
#include "group/group.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* ---- one rank ---- */
typedef struct rank_job {
    const clef_transport *transport;
    clef_context *ctx; /* closed when it ends */
    const char *name;  /* NULL: the usual one */
    double timeout;
    clef_rank_fn fn;
    void *user;
    pthread_t thread;
    clef_status status;
    bool stays; /* as of clef__close */
} rank_job;

static clef_status run_fn(const rank_job *job) {
    clef_group *all = clef__group_all(job->ctx, job->transport, job->name, job->timeout);
    if (!all) return clef_error_status(job->ctx);
    char line[CLEF_TRANSPORT_LINE];
    clef_status status = job->fn(job->ctx, all, job->user);
    if (status == CLEF_OK) status = clef__group_settle(all); /* what it sent must leave before it ends */
    if (status != CLEF_OK || clef__letters_were_read(all, line)) return status;
    return clef__fail(job->ctx, CLEF_GROUP, "recv: %s", line);
}

/* Its line is this thread's open error too. */
static clef_status run_job(rank_job *job) {
    const clef_transport *t = job->transport;
    char name[CLEF__RANK_NAME], line[CLEF_TRANSPORT_LINE];
    clef__rank_name(name, job->ctx, t->rank, job->name);
    clef_status status = run_fn(job);
    const char *error = clef_error(job->ctx);
    if (*error) snprintf(line, sizeof line, "%s: %.860s", name, error);
    else snprintf(line, sizeof line, "%s: its function returned %s", name, clef_status_name(status));
    t->fail(t, status == CLEF_OK ? NULL : line);
    job->stays = !clef__close(job->ctx);
    job->ctx = NULL;
    return status == CLEF_OK ? status : clef__fail(NULL, status, "%s", line);
}

clef_status clef_transport_error(clef_status status, const char *line) {
    return status == CLEF_OK ? status : clef__fail(NULL, status, "%s", line ? line : "");
}

clef_status clef_run_rank(const clef_transport *transport, const clef_options *options, const char *name, double timeout,
                          clef_rank_fn fn, void *user) {
    if (!transport || !fn) return clef__fail(NULL, CLEF_INVALID, "run_rank: %s is NULL", transport ? "fn" : "transport");
    rank_job job = {.transport = transport, .name = name, .timeout = timeout, .fn = fn, .user = user};
    clef__trace_rank(transport->begin_sharing ? -1 : transport->rank);
    job.ctx = clef_open(options);
    clef__trace_rank(-1);
    if (job.ctx) return run_job(&job);
    char who[24], line[CLEF_TRANSPORT_LINE];
    snprintf(who, sizeof who, "rank %d", transport->rank);
    snprintf(line, sizeof line, "%.150s: %.860s", name ? name : who, clef_error(NULL));
    transport->fail(transport, line);
    return clef__fail(NULL, clef_error_status(NULL), "%s", line);
}

/* ---- all ranks ---- */
typedef struct ranks {
    int n;
    clef__device_name *device;
    rank_job *job;
    clef__hub *hub;
} ranks;

static void ranks_close(ranks *r) {
    bool stays = false;
    for (int i = 0; r->job && i < r->n; i++) {
        clef_close(r->job[i].ctx);
        stays |= r->job[i].stays;
    }
    if (!stays) clef__hub_close(r->hub);
    clef__free(r->job);
    clef__free(r->device);
}

/* A context for each rank, or none. */
static clef_status open_contexts(ranks *r, const clef_ranks_options *options) {
    clef_options *all = clef__calloc((size_t)r->n, sizeof *all);
    clef_context **ctx = clef__calloc((size_t)r->n, sizeof(clef_context *));
    clef_status status = all && ctx ? CLEF_OK : clef__fail(NULL, CLEF_MEMORY, "run_ranks: no host memory for %d ranks", r->n);
    for (int i = 0; status == CLEF_OK && i < r->n; i++) {
        all[i] = options->context;
        all[i].device = r->device[i];
    }
    if (status == CLEF_OK) status = clef_open_all(all, r->n, ctx);
    for (int i = 0; status == CLEF_OK && i < r->n; i++) r->job[i].ctx = ctx[i];
    clef__free(all);
    clef__free(ctx);
    return status;
}

static clef_status ranks_open(ranks *r, const char *devices, const clef_ranks_options *options, clef_rank_fn fn, void *user) {
    r->device = clef__calloc(CLEF__RANKS, sizeof *r->device);
    if (!r->device) return clef__fail(NULL, CLEF_MEMORY, "run_ranks: no host memory for the list of devices");
    clef_status status = clef__rank_devices("run_ranks", devices, r->device, &r->n);
    if (status != CLEF_OK) return status;
    r->job = clef__calloc((size_t)r->n, sizeof *r->job);
    r->hub = clef__hub_open(r->n);
    if (!r->job || !r->hub) return clef__fail(NULL, CLEF_MEMORY, "run_ranks: no host memory for %d ranks", r->n);
    for (int i = 0; i < r->n; i++) {
        r->job[i] = (rank_job){.transport = clef__hub_rank(r->hub, i), .timeout = options->timeout, .fn = fn, .user = user};
        if (options->name) r->job[i].name = options->name[i];
        if (options->wrap) r->job[i].transport = options->wrap(r->job[i].transport, options->wrap_user);
        if (!r->job[i].transport) return clef__fail(NULL, CLEF_MEMORY, "run_ranks: wrap returned NULL for rank %d", i);
    }
    return open_contexts(r, options);
}

static void *run_thread(void *job) {
    rank_job *j = job;
    j->status = run_job(j);
    return NULL;
}

/* A rank without a thread has failed: the others must not wait for it. */
static void start(rank_job *job, bool *started) {
    int code = pthread_create(&job->thread, NULL, run_thread, job);
    *started = code == 0;
    if (*started) return;
    char name[CLEF__RANK_NAME], line[CLEF_TRANSPORT_LINE];
    clef__rank_name(name, job->ctx, job->transport->rank, job->name);
    snprintf(line, sizeof line, "%s: its thread did not start (error %d of the system)", name, code);
    job->status = CLEF_MEMORY;
    job->transport->fail(job->transport, line);
}

/* What a rank sent and no rank took, now that all have ended. */
static clef_status look_for_unread(const ranks *r) {
    int from, to;
    size_t n;
    char name[2][24], line[CLEF_TRANSPORT_LINE];
    const void *bytes = clef__hub_unread(r->hub, &from, &to, &n);
    if (!bytes) return CLEF_OK;
    snprintf(name[0], sizeof name[0], "rank %d", from);
    snprintf(name[1], sizeof name[1], "rank %d", to);
    clef__letter_line(line, name[0], name[1], bytes, n);
    return clef__fail(NULL, CLEF_GROUP, "recv: %s", line);
}

static clef_status run_all(ranks *r) {
    bool started[CLEF__RANKS] = {false};
    for (int i = 0; i < r->n; i++) start(&r->job[i], &started[i]);
    for (int i = 0; i < r->n; i++)
        if (started[i]) pthread_join(r->job[i].thread, NULL);
    int first;
    const char *line = clef__hub_failure(r->hub, &first);
    if (!line) return look_for_unread(r);
    /* A rank may return CLEF_OK over a failure of its group. */
    return clef__fail(NULL, r->job[first].status == CLEF_OK ? CLEF_GROUP : r->job[first].status, "%s", line);
}

clef_status clef_run_ranks_with(const char *devices, const clef_ranks_options *options, clef_rank_fn fn, void *user) {
    static const clef_ranks_options defaults = {.timeout = 0};
    if (!devices || !fn) return clef__fail(NULL, CLEF_INVALID, "run_ranks: %s is NULL", devices ? "fn" : "devices");
    ranks r = {.n = 0};
    clef_status status = ranks_open(&r, devices, options ? options : &defaults, fn, user);
    if (status == CLEF_OK) status = run_all(&r);
    ranks_close(&r);
    return status;
}

clef_status clef_run_ranks(const char *devices, clef_rank_fn fn, void *user) {
    return clef_run_ranks_with(devices, NULL, fn, user);
}
