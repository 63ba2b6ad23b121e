/* main_trace.c — CLEF_TRACE of ranks: one file, with a process for each rank and a row for each collective operation. */
#include "group/ranks.h"
#include "runtime/json.h"
#include <math.h>
#include <stdio.h>
#include <unistd.h>

enum { RANKS = 3, ITEMS = 70000, ROWS = 3 };

static clef_status work(clef_context *ctx, clef_group *all, void *user) {
    (void)user;
    clef_tensor *x = clef_full(ctx, CLEF_SHAPE(ITEMS), CLEF_F32, clef_group_rank(all) + 1);
    clef_tensor *sum = clef_all_reduce(x, all, CLEF_GROUP_SUM);
    clef_tensor *gathered = clef_all_gather(clef_slice(sum, 0, 0, 10, 1), all, 0);
    if (clef_item(clef_mean(gathered, NULL, 0, false)) != 6) COMPLAIN("the sum is wrong");
    return clef_group_barrier(all);
}

/* What a file holds of one process. */
typedef struct lanes {
    char name[200];
    int kernels;             /* rows of its compute queue */
    int of[ROWS], named;     /* rows of collective operations: what was asked for; tracks with a name */
    double begin[2], end[2]; /* of the all_reduce, and of the all_gather */
} lanes;

typedef struct row {
    char name[100], phase[4], called[200], op[40], group[40];
    double pid, tid, ts, dur, number, ranks, bytes;
} row;

static void copy(char *to, size_t size, const char *text) { snprintf(to, size, "%s", text ? text : ""); }

static void read_args(clef__json *json, row *r) {
    clef__json_expect(json, "{");
    for (const char *name; (name = clef__json_member(json));) {
        if (!strcmp(name, "name")) copy(r->called, sizeof r->called, clef__json_string(json));
        else if (!strcmp(name, "op")) copy(r->op, sizeof r->op, clef__json_string(json));
        else if (!strcmp(name, "group")) copy(r->group, sizeof r->group, clef__json_string(json));
        else if (!strcmp(name, "number")) clef__json_double(json, &r->number);
        else if (!strcmp(name, "ranks")) clef__json_double(json, &r->ranks);
        else if (!strcmp(name, "bytes")) clef__json_double(json, &r->bytes);
        else clef__json_skip(json);
    }
}

static row read_row(clef__json *json) {
    row r = {.number = -1};
    clef__json_expect(json, "{");
    for (const char *name; (name = clef__json_member(json));) {
        if (!strcmp(name, "name")) copy(r.name, sizeof r.name, clef__json_string(json));
        else if (!strcmp(name, "ph")) copy(r.phase, sizeof r.phase, clef__json_string(json));
        else if (!strcmp(name, "pid")) clef__json_double(json, &r.pid);
        else if (!strcmp(name, "tid")) clef__json_double(json, &r.tid);
        else if (!strcmp(name, "ts")) clef__json_double(json, &r.ts);
        else if (!strcmp(name, "dur")) clef__json_double(json, &r.dur);
        else if (!strcmp(name, "args")) read_args(json, &r);
        else clef__json_skip(json);
    }
    return r;
}

static void note_row(const row *r, lanes lane[RANKS + 1]) {
    static const char *const ops[ROWS] = {"all_reduce", "all_gather", "barrier"};
    static const double bytes[ROWS] = {4.0 * ITEMS, 4 * 10, 0};
    if (r->pid < 1 || r->pid > RANKS) {
        COMPLAIN("a row of process %g", r->pid);
        return;
    }
    lanes *l = &lane[(int)r->pid];
    if (!strcmp(r->name, "process_name")) copy(l->name, sizeof l->name, r->called);
    if (!strcmp(r->name, "thread_name")) l->named++;
    if (!strcmp(r->phase, "X") && r->tid == 0) l->kernels++;
    for (int i = 0; i < ROWS && *r->op; i++) {
        if (strcmp(r->op, ops[i]) != 0) continue;
        l->of[i]++;
        if (strcmp(r->name, ops[i]) || r->bytes != bytes[i] || r->ranks != RANKS || r->number != i || strcmp(r->group, "0"))
            COMPLAIN("a row of %s number %g of %g bytes by %g ranks, group %s", r->name, r->number, r->bytes, r->ranks, r->group);
        if (i < 2) l->begin[i] = r->ts, l->end[i] = r->ts + r->dur;
    }
}

static bool read_trace(const char *path, lanes lane[RANKS + 1]) {
    static char text[1 << 20];
    FILE *file = fopen(path, "r");
    if (!file) return false;
    clef__json json = clef__json_of(text, fread(text, 1, sizeof text, file));
    fclose(file);
    clef__json_expect(&json, "{");
    for (const char *name; (name = clef__json_member(&json));) {
        if (strcmp(name, "traceEvents") != 0) {
            clef__json_skip(&json);
            continue;
        }
        clef__json_expect(&json, "[");
        while (clef__json_element(&json)) {
            row r = read_row(&json);
            note_row(&r, lane);
        }
    }
    return clef__json_at_end(&json);
}

/* With one clock nobody is done with a collective operation before all have begun it. */
static void check_clock(const lanes lane[RANKS + 1], int i) {
    double last_begin = -INFINITY, first_end = INFINITY;
    for (int p = 1; p <= RANKS; p++) {
        last_begin = fmax(last_begin, lane[p].begin[i]);
        first_end = fmin(first_end, lane[p].end[i]);
    }
    if (!(last_begin <= first_end + 0.01)) COMPLAIN("operation %d begins at %g us and ends at %g us", i, last_begin, first_end);
}

static void check(const char *path) {
    lanes lane[RANKS + 1] = {0};
    if (!read_trace(path, lane)) COMPLAIN("%s is no JSON", path);
    for (int p = 1; p <= RANKS; p++) {
        const lanes *l = &lane[p];
        char rank[16];
        snprintf(rank, sizeof rank, "rank %d ", p - 1);
        if (strncmp(l->name, rank, strlen(rank)) != 0) COMPLAIN("process %d is called \"%s\"", p, l->name);
        if (l->kernels < 1 || l->named < 4) COMPLAIN("process %d: %d kernels, %d names of tracks", p, l->kernels, l->named);
        for (int i = 0; i < ROWS; i++)
            if (l->of[i] != 1) COMPLAIN("process %d: %d rows of operation %d", p, l->of[i], i);
    }
    check_clock(lane, 0);
    check_clock(lane, 1);
}

int main(void) {
    int code;
    char dir[] = "/tmp/clef-trace-XXXXXX", path[64], second[80], device[2 * MOST_RANKS];
    if (!have_device(&code)) return code;
    if (!mkdtemp(dir)) return 1;
    snprintf(path, sizeof path, "%s/trace.json", dir);
    snprintf(second, sizeof second, "%s.2", path);
    setenv("CLEF_TRACE", path, 1);
    for (int again = 0; again < 2; again++) {
        if (clef_run_ranks(ranks_on_one(RANKS, device), work, NULL) != CLEF_OK) COMPLAIN("%s", clef_error(NULL));
        if (access(second, R_OK) == -again) COMPLAIN("run %d: %s %s", again, second, again ? "is missing" : "is there");
        check(again ? second : path);
    }
    unlink(path);
    unlink(second);
    rmdir(dir);
    printf("trace: %d ranks in one file, %d complaints\n", RANKS, atomic_load(&complaints));
    return atomic_load(&complaints) != 0;
}
