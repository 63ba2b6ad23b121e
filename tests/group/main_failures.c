/* Ranks whose programs differ, fail, end early, or do things in another order: the right result or the right line on every rank, and no
   hang (a watchdog ends the test).   CLEF_CASE: the name of the one to run.
   ctest: labels=threads cost=40 apart plain */
#include "ranks.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

typedef struct test_case {
    const char *name;
    int ranks;
    clef_status status;  /* of the whole */
    const char *says[3]; /* what its line holds */
    clef_status (*fn)(clef_context *ctx, clef_group *all, int rank);
    double timeout;
    clef_options context;
} test_case;

static const test_case *running;

/* ---- small things ---- */

static clef_tensor *filled(clef_context *ctx, int64_t n, double value) { return clef_full(ctx, CLEF_SHAPE(n), CLEF_F32, value); }
static clef_tensor *sum_of(clef_tensor *x, clef_group *all) { return clef_all_reduce(x, all, CLEF_GROUP_SUM); }

static void expect_all(clef_tensor *t, double wanted) {
    float got[64];
    int64_t n = clef_numel(t);
    if (!t || n > 64 || clef_read(t, got, (size_t)n * sizeof *got) != CLEF_OK) {
        COMPLAIN("%s: a result cannot be read; %s", running->name, clef_error(clef_tensor_context(t)));
        return;
    }
    for (int64_t i = 0; i < n; i++)
        if (got[i] != (float)wanted) COMPLAIN("%s: %g, not %g", running->name, (double)got[i], wanted);
}

/* How a rank ends that did all it had to. */
static clef_status end(clef_context *ctx) {
    clef_end_step(ctx);
    clef_synchronize(ctx);
    return clef_error_status(ctx);
}

static void sleep_ms(long ms) { nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL); }

/* ---- programs that differ ---- */

static clef_status other_op(clef_context *ctx, clef_group *all, int rank) {
    clef_tensor *x = filled(ctx, 4, 1);
    clef_eval(rank == 0 ? sum_of(x, all) : clef_broadcast(x, all, 0));
    return end(ctx);
}
static clef_status other_shape(clef_context *ctx, clef_group *all, int rank) {
    clef_eval(sum_of(filled(ctx, 4 + rank, 1), all));
    return end(ctx);
}
static clef_status other_dtype(clef_context *ctx, clef_group *all, int rank) {
    clef_eval(sum_of(clef_full(ctx, CLEF_SHAPE(4), rank ? CLEF_F16 : CLEF_F32, 1), all));
    return end(ctx);
}
static clef_status other_reduction(clef_context *ctx, clef_group *all, int rank) {
    clef_eval(clef_all_reduce(filled(ctx, 4, 1), all, rank ? CLEF_GROUP_MAX : CLEF_GROUP_MIN));
    return end(ctx);
}
static clef_status other_root(clef_context *ctx, clef_group *all, int rank) {
    clef_eval(clef_broadcast(filled(ctx, 4, 1), all, rank));
    return end(ctx);
}
static clef_status barrier_for_sum(clef_context *ctx, clef_group *all, int rank) {
    if (rank == 0) clef_eval(sum_of(filled(ctx, 4, 1), all));
    else clef_group_barrier(all);
    return end(ctx);
}
static clef_status one_fewer(clef_context *ctx, clef_group *all, int rank) {
    clef_eval(sum_of(filled(ctx, 4, 1), all));
    if (rank == 0) clef_eval(sum_of(filled(ctx, 4, 1), all));
    return end(ctx);
}
static clef_status groups_crossed(clef_context *ctx, clef_group *all, int rank) {
    clef_group *a = clef_group_split(all, 0, rank), *b = clef_group_split(all, 0, rank);
    clef_tensor *x = filled(ctx, 4, 1);
    clef_tensor *first = sum_of(x, rank ? b : a), *second = sum_of(x, rank ? a : b);
    clef_eval(first);
    clef_eval(second);
    return end(ctx);
}
static clef_status other_bytes(clef_context *ctx, clef_group *all, int rank) {
    char bytes[16] = {0};
    clef_status status = clef_group_broadcast_bytes(all, 0, bytes, 8 + (size_t)rank);
    return status != CLEF_OK ? status : end(ctx);
}
static clef_status other_message(clef_context *ctx, clef_group *all, int rank) {
    if (rank == 0) clef_send(filled(ctx, 4, 1), all, 1);
    else clef_eval(clef_recv(ctx, all, 0, CLEF_SHAPE(5), CLEF_F32));
    return end(ctx);
}
static clef_status recv_without_send(clef_context *ctx, clef_group *all, int rank) {
    if (rank == 1) clef_eval(clef_recv(ctx, all, 0, CLEF_SHAPE(5), CLEF_F32));
    return end(ctx);
}
static clef_status backward_on_one(clef_context *ctx, clef_group *all, int rank) {
    clef_tensor *p = clef_require_grad(clef_keep(filled(ctx, 4, 1)), true);
    clef_tensor *loss = clef_sum(sum_of(p, all), NULL, 0, false);
    if (rank == 0) clef_backward(loss);
    else clef_eval(loss);
    if (rank == 0) clef_eval(clef_grad_of(p));
    return end(ctx);
}

/* Every rank meets the next one first, in a group of the two. */
static clef_status groups_in_a_circle(clef_context *ctx, clef_group *all, int rank) {
    clef_group *even = clef_group_split(all, rank / 2, 0), *odd = clef_group_split(all, (rank + 1) % 4 / 2, 0);
    clef_tensor *x = filled(ctx, 4, 1);
    clef_tensor *first = sum_of(x, rank % 2 ? odd : even), *second = sum_of(x, rank % 2 ? even : odd);
    clef_eval(first);
    clef_eval(second);
    return end(ctx);
}

/* Models of equal sizes, which nobody compared; zero: of the optimizer. */
static clef_tensor *forward_nothing(clef_module *module, clef_tensor *x, void *user) { return (void)module, (void)user, x; }
static clef_status other_names(clef_context *ctx, clef_group *all, const char *last, int zero) {
    clef_module *m = clef_module_new(ctx, "parameters", forward_nothing, NULL);
    const char *names[] = {"first", "second", "third", last};
    for (int i = 0; i < 4; i++) {
        clef_module_add_parameter(m, names[i], filled(ctx, 8, 1));
        clef_set_grad(clef_parameter(m, names[i]), filled(ctx, 8, i));
    }
    clef_step(clef_sgd(m, &(clef_sgd_options){.lr = 1, .group = all, .zero = zero}));
    return end(ctx);
}
static clef_status names_differ(clef_context *ctx, clef_group *all, int rank) {
    return other_names(ctx, all, rank == 2 ? "fourth" : "last", 0);
}
static clef_status names_differ_cut(clef_context *ctx, clef_group *all, int rank) {
    return other_names(ctx, all, rank == 2 ? "fourth" : "last", 2);
}
static clef_status names_are_equal(clef_context *ctx, clef_group *all, int rank) {
    for (int zero = 0; zero < 3; zero++)
        if (other_names(ctx, all, "last", zero)) COMPLAIN("rank %d, zero %d: %s", rank, zero, clef_error(ctx));
    return end(ctx);
}

/* ---- failures ---- */

static clef_status fails_before(clef_context *ctx, clef_group *all, int rank) {
    if (rank == 1) return clef_eval(clef_reshape(filled(ctx, 4, 1), CLEF_SHAPE(3))), clef_error_status(ctx);
    clef_eval(sum_of(filled(ctx, 4, 1), all));
    return end(ctx);
}
static clef_status fails_later(clef_context *ctx, clef_group *all, int rank) {
    for (int i = 0; i < 20; i++) {
        if (rank == 1 && i == 7) return clef_reshape(filled(ctx, 4, 1), CLEF_SHAPE(3)), clef_error_status(ctx);
        clef_eval(sum_of(filled(ctx, 4, i), all));
        clef_end_step(ctx);
    }
    return end(ctx);
}
static clef_status without_line(clef_context *ctx, clef_group *all, int rank) {
    if (rank == 1) return CLEF_IO;
    clef_eval(sum_of(filled(ctx, 4, 1), all));
    return end(ctx);
}
static clef_status fails_in_step(clef_context *ctx, clef_group *all, int rank) {
    clef_tensor *y = sum_of(filled(ctx, 4, 1), all);
    if (rank == 2) return clef_reshape(y, CLEF_SHAPE(3)), clef_error_status(ctx); /* made, and never run */
    clef_eval(y);
    return end(ctx);
}
/* Rank 1 comes when rank 0 has given up: on a busy machine a fixed time may be shorter than rank 0's way there. */
static atomic_bool given_up;
static clef_status late(clef_context *ctx, clef_group *all, int rank) {
    for (int i = 0; rank == 1 && i < 1000 && !given_up; i++) sleep_ms(100);
    clef_eval(sum_of(filled(ctx, 4, 1), all));
    clef_status status = end(ctx);
    given_up = true;
    return status;
}
static clef_status slow_but_in_time(clef_context *ctx, clef_group *all, int rank) {
    if (rank == 1) sleep_ms(300);
    expect_all(sum_of(filled(ctx, 4, 1), all), 2);
    return end(ctx);
}
static clef_status goes_on_after(clef_context *ctx, clef_group *all, int rank) {
    clef_eval(sum_of(filled(ctx, 4 + rank, 1), all));
    clef_synchronize(ctx);
    if (clef_error_status(ctx) != CLEF_GROUP) COMPLAIN("%s: %s", running->name, clef_error(ctx));
    clef_clear_error(ctx);
    clef_tensor *alone = clef_add_scalar(filled(ctx, 4, 1), 1); /* a rank's own work goes on */
    expect_all(alone, 2);
    clef_eval(sum_of(filled(ctx, 4, 1), all)); /* the group does not */
    return end(ctx);
}

/* ---- arguments ---- */

static clef_status refuses(clef_context *ctx, clef_status status, const char *says) {
    if (clef_error_status(ctx) != status || !strstr(clef_error(ctx), says))
        COMPLAIN("%s: %s: %s", running->name, clef_status_name(clef_error_status(ctx)), clef_error(ctx));
    clef_clear_error(ctx);
    return CLEF_OK;
}
static clef_status bad_arguments(clef_context *ctx, clef_group *all, int rank) {
    clef_tensor *x = filled(ctx, 4, 1), *whole = clef_full(ctx, CLEF_SHAPE(4), CLEF_I32, 1),
                *bytes = clef_full(ctx, CLEF_SHAPE(4), CLEF_U8, 1);
    clef_send(x, all, rank), refuses(ctx, CLEF_INVALID, "the caller itself");
    clef_send(x, all, 2), refuses(ctx, CLEF_INVALID, "no rank 2 in a group of 2");
    clef_recv(ctx, all, -1, CLEF_SHAPE(1), CLEF_F32), refuses(ctx, CLEF_INVALID, "no rank -1");
    clef_recv(ctx, all, 1 - rank, CLEF_SHAPE(-1), CLEF_F32), refuses(ctx, CLEF_SHAPE, "negative");
    clef_broadcast(x, all, 5), refuses(ctx, CLEF_INVALID, "no rank 5");
    clef_all_reduce(bytes, all, CLEF_GROUP_SUM), refuses(ctx, CLEF_DTYPE, "clef_to");
    clef_all_reduce(whole, all, CLEF_GROUP_MEAN), refuses(ctx, CLEF_DTYPE, "mean");
    clef_all_reduce(x, all, (clef_group_reduction)9), refuses(ctx, CLEF_INVALID, "number 9");
    clef_reduce_scatter(filled(ctx, 5, 1), all, 0, CLEF_GROUP_SUM), refuses(ctx, CLEF_SHAPE, "2 equal parts");
    clef_all_to_all(filled(ctx, 5, 1), all, 0), refuses(ctx, CLEF_SHAPE, "2 equal parts");
    clef_all_gather(x, all, 1), refuses(ctx, CLEF_INVALID, "dim");
    if (clef_all_reduce(NULL, all, CLEF_GROUP_SUM)) COMPLAIN("%s: a NULL tensor has a sum", running->name);
    clef_clear_error(ctx);
    expect_all(sum_of(x, all), 2);
    return end(ctx);
}
static clef_context *first_context;
static clef_group *first_group;
static clef_status foreign_group(clef_context *ctx, clef_group *all, int rank) {
    if (rank == 0) first_context = ctx, first_group = all;
    clef_group_barrier(all);
    if (rank == 1) sum_of(filled(ctx, 4, 1), first_group), refuses(ctx, CLEF_INVALID, "another context");
    clef_group_barrier(all);
    return end(ctx);
}

/* ---- the same programs, in other orders ---- */

static clef_status reads_in_other_orders(clef_context *ctx, clef_group *all, int rank) {
    clef_tensor *y[6];
    for (int i = 0; i < 6; i++) y[i] = sum_of(filled(ctx, 4, i + 1), all);
    for (int i = 0; i < 6; i++) {
        int k = rank == 0 ? 5 - i : rank == 1 ? i : (i * 5 + 2) % 6;
        expect_all(y[k], 3 * (k + 1));
    }
    return end(ctx);
}
static clef_status reads_nothing(clef_context *ctx, clef_group *all, int rank) {
    for (int i = 0; i < 5; i++) {
        clef_tensor *y = sum_of(filled(ctx, 4, i), all);
        if (rank == 0) expect_all(y, 3 * i);
        clef_end_step(ctx);
    }
    return end(ctx);
}
static clef_status item_on_one(clef_context *ctx, clef_group *all, int rank) {
    clef_tensor *p = clef_keep(filled(ctx, 4, 1));
    for (int i = 0; i < 6; i++) {
        clef_tensor *loss = clef_sum(p, NULL, 0, false);
        if (rank == 0) clef_item(loss);
        clef_assign(p, sum_of(clef_mul_scalar(p, 0.5), all));
        if (rank == i % 2) clef_eval(p);
        clef_end_step(ctx);
    }
    expect_all(p, 1);
    return end(ctx);
}
static clef_status unused_on_one(clef_context *ctx, clef_group *all, int rank) {
    clef_tensor *y = sum_of(filled(ctx, 4, 1), all), *z = sum_of(filled(ctx, 4, 2), all);
    expect_all(rank ? z : clef_add(y, z), rank ? 6 : 9);
    return end(ctx);
}
static clef_status equal_ones_stay_two(clef_context *ctx, clef_group *all, int rank) {
    clef_tensor *x = filled(ctx, 4, 1), *a = sum_of(x, all), *b = sum_of(x, all);
    if (rank == 0) expect_all(a, 2);
    expect_all(clef_add(a, b), 4);
    return end(ctx);
}
static clef_status dry_on_one(clef_context *ctx, clef_group *all, int rank) {
    clef_tensor *kept = NULL;
    if (rank == 1) {
        clef_set_dry_run(ctx, true);
        kept = clef_keep(sum_of(filled(ctx, 4, 7), all));
        clef_eval(kept);
        clef_set_dry_run(ctx, false);
        clef_release(kept);
        clef_end_step(ctx);
    }
    expect_all(sum_of(filled(ctx, 4, 1), all), 2);
    return end(ctx);
}
static clef_status dry_result_used(clef_context *ctx, clef_group *all, int rank) {
    clef_set_dry_run(ctx, true);
    clef_tensor *y = sum_of(filled(ctx, 4, 1), all);
    clef_set_dry_run(ctx, false);
    if (rank == 0) {
        float got[4];
        clef_read(y, got, sizeof got);
        refuses(ctx, CLEF_STATE, "dry run");
    }
    clef_end_step(ctx);
    clef_clear_error(ctx);
    expect_all(sum_of(filled(ctx, 4, 1), all), 2);
    return end(ctx);
}
static clef_status bytes_behind_pending(clef_context *ctx, clef_group *all, int rank) {
    clef_tensor *y = sum_of(filled(ctx, 4, 1), all);
    int own = rank * 3, got[8];
    if (rank == 1) clef_eval(y);
    if (clef_group_gather_bytes(all, &own, got, sizeof own) != CLEF_OK) COMPLAIN("%s: %s", running->name, clef_error(ctx));
    for (int r = 0; r < clef_group_size(all); r++)
        if (got[r] != 3 * r) COMPLAIN("%s: rank %d sent %d", running->name, r, got[r]);
    expect_all(y, clef_group_size(all));
    return end(ctx);
}
static clef_status sends_nobody_takes(clef_context *ctx, clef_group *all, int rank) {
    if (rank == 0) clef_send(filled(ctx, 4, 1), all, 1);
    clef_tensor *sum = sum_of(filled(ctx, 4, 1), all);
    if (rank == 1) expect_all(sum, 2); /* not in the way; once this rank ends, it ends the other */
    return end(ctx);
}
static clef_status sends_last(clef_context *ctx, clef_group *all, int rank) {
    if (rank == 0) clef_send(filled(ctx, 4, 1), all, 1);
    return end(ctx);
}
/* Messages that come before, between and behind what all do together are there when they are asked for. */
static clef_status received_later(clef_context *ctx, clef_group *all, int rank) {
    clef_group *pair = clef_group_split(all, rank / 2, 0);
    for (int i = 0; i < 8; i++) {
        clef_tensor *x = filled(ctx, i % 3 ? 4 : 20000, rank * 10 + i), *got = NULL, *in_pair = NULL;
        if (rank == 0) clef_send(x, all, 1), clef_send(clef_neg(x), pair, 1);
        expect_all(sum_of(filled(ctx, 4, 1), all), 3);
        if (rank == 1) in_pair = clef_recv(ctx, pair, 0, clef_tensor_shape(x), CLEF_F32);
        clef_group_barrier(all);
        if (rank == 1) got = clef_recv(ctx, all, 0, clef_tensor_shape(x), CLEF_F32);
        if (rank == 1) expect_all(clef_slice(clef_sub(got, in_pair), 0, 0, 4, 1), 2 * i);
        expect_all(sum_of(filled(ctx, 4, 2), all), 6);
        clef_end_step(ctx);
    }
    return end(ctx);
}
static clef_status send_and_recv_crossed(clef_context *ctx, clef_group *all, int rank) {
    for (int i = 0; i < 10; i++) {
        clef_send(filled(ctx, 16, rank * 100 + i), all, 1 - rank);
        clef_send(filled(ctx, 16, rank * 100 + 50 + i), all, 1 - rank);
        clef_tensor *a = clef_recv(ctx, all, 1 - rank, CLEF_SHAPE(16), CLEF_F32),
                    *b = clef_recv(ctx, all, 1 - rank, CLEF_SHAPE(16), CLEF_F32);
        expect_all(b, (1 - rank) * 100 + 50 + i);
        expect_all(a, (1 - rank) * 100 + i);
        clef_end_step(ctx);
    }
    return end(ctx);
}
static clef_status color_of_none(clef_context *ctx, clef_group *all, int rank) {
    clef_group *some = clef_group_split(all, rank == 1 ? -1 : 0, -rank);
    if ((rank == 1) != (some == NULL)) COMPLAIN("%s: rank %d got %p", running->name, rank, (void *)some);
    if (some && clef_group_rank(some) != (rank == 2 ? 0 : 1)) COMPLAIN("%s: the key does not order", running->name);
    expect_all(sum_of(filled(ctx, 4, rank), some), rank == 1 ? 1 : 2);
    expect_all(sum_of(filled(ctx, 4, rank), all), 3);
    return end(ctx);
}
static clef_status grid(clef_context *ctx, clef_group *all, int rank) {
    clef_group *row = clef_group_split(all, rank / 2, rank), *column = clef_group_split(all, rank % 2, rank);
    clef_tensor *x = filled(ctx, 4, 1 << rank), *r = sum_of(x, row), *c = sum_of(x, column);
    if (rank % 3 == 0) expect_all(c, rank % 2 ? 2 + 8 : 1 + 4);
    expect_all(r, rank / 2 ? 4 + 8 : 1 + 2);
    expect_all(c, rank % 2 ? 2 + 8 : 1 + 4);
    return end(ctx);
}
static clef_status many_steps(clef_context *ctx, clef_group *all, int rank) {
    clef_tensor *p = clef_keep(filled(ctx, 64, 1));
    for (int i = 0; i < 60; i++) {
        clef_tensor *g = sum_of(clef_mul_scalar(p, rank + 1), all), *h = sum_of(clef_neg(p), all);
        clef_assign(p, clef_sub(clef_add(g, h), clef_mul_scalar(p, 2))); /* 6p − 3p − 2p */
        clef_end_step(ctx);
    }
    expect_all(p, 1);
    return end(ctx);
}
static clef_tensor *sum_and_square(clef_module *self, clef_tensor *x, void *all) {
    (void)self;
    return clef_square(sum_of(clef_mul_scalar(x, 3), all));
}
static clef_status in_a_segment(clef_context *ctx, clef_group *all, int rank) {
    (void)rank;
    clef_module *net = clef_module_new(ctx, "sum and square", sum_and_square, all);
    clef_recompute(net, true);
    clef_tensor *p = clef_require_grad(clef_keep(filled(ctx, 4, 2)), true);
    clef_backward(clef_sum(clef_forward(net, p), NULL, 0, false));
    expect_all(clef_grad_of(p), 2 * (2 * 12) * 3); /* each rank's loss has the square of 12 */
    return end(ctx);
}
static clef_status nothing_at_all(clef_context *ctx, clef_group *all, int rank) {
    (void)all, (void)rank;
    return end(ctx);
}
static clef_status null_group(clef_context *ctx, clef_group *all, int rank) {
    (void)all;
    clef_tensor *x = filled(ctx, 4, rank);
    expect_all(sum_of(x, NULL), rank);
    expect_all(clef_all_gather(x, NULL, 0), rank);
    expect_all(clef_reduce_scatter(x, NULL, 0, CLEF_GROUP_MEAN), rank);
    expect_all(clef_broadcast(x, NULL, 0), rank);
    expect_all(clef_all_to_all(x, NULL, 0), rank);
    if (clef_group_barrier(NULL) != CLEF_OK || clef_group_size(NULL) != 1 || clef_group_rank(NULL) != 0)
        COMPLAIN("%s", running->name);
    return end(ctx);
}

#define OK CLEF_OK
#define GROUP CLEF_GROUP
static const test_case cases[] = {
    {"another op", 2, GROUP, {"all_reduce", "broadcast"}, other_op, 0, {0}},
    {"another shape", 2, GROUP, {"[4]", "[5]"}, other_shape, 0, {0}},
    {"another shape among three", 3, GROUP, {"[4]", "[5]"}, other_shape, 0, {0}},
    {"another dtype", 2, GROUP, {"f32", "f16"}, other_dtype, 0, {0}},
    {"another reduction", 2, GROUP, {"min", "max"}, other_reduction, 0, {0}},
    {"another root", 2, GROUP, {"broadcast", "rank 0"}, other_root, 0, {0}},
    {"a barrier for a sum", 2, GROUP, {"barrier", "all_reduce"}, barrier_for_sum, 0, {0}},
    {"one fewer", 2, GROUP, {"rank 1"}, one_fewer, 0, {0}},
    {"groups crossed", 2, GROUP, {"group"}, groups_crossed, 0, {0}},
    {"another number of bytes", 2, GROUP, {"8", "9"}, other_bytes, 0, {0}},
    {"another message", 2, GROUP, {"[4]", "[5]"}, other_message, 0, {0}},
    {"a message that never comes", 2, GROUP, {"rank 0"}, recv_without_send, 0, {0}},
    {"backward on one rank", 2, GROUP, {"rank 1"}, backward_on_one, 0, {0}},
    {"one fails before", 3, CLEF_SHAPE, {"rank 1", "reshape"}, fails_before, 0, {0}},
    {"one fails later", 3, CLEF_SHAPE, {"rank 1", "reshape"}, fails_later, 0, {0}},
    {"one fails without a line", 2, CLEF_IO, {"rank 1"}, without_line, 0, {0}},
    {"one fails within a step", 3, CLEF_SHAPE, {"rank 2", "reshape"}, fails_in_step, 0, {0}},
    {"one is late", 2, GROUP, {"rank 1"}, late, 0.4, {0}},
    {"one is slow", 2, OK, {NULL}, slow_but_in_time, 0, {0}},
    {"the group stays failed", 2, GROUP, {"[4]"}, goes_on_after, 0, {0}},
    {"bad arguments", 2, OK, {NULL}, bad_arguments, 0, {0}},
    {"another's group", 2, OK, {NULL}, foreign_group, 0, {0}},
    {"reads in other orders", 3, OK, {NULL}, reads_in_other_orders, 0, {0}},
    {"reads in other orders, eager", 3, OK, {NULL}, reads_in_other_orders, 0, {.eager = true}},
    {"reads in other orders, exact buffers", 3, OK, {NULL}, reads_in_other_orders, 0, {.debug_memory = true}},
    {"reads nothing", 3, OK, {NULL}, reads_nothing, 0, {0}},
    {"one reads items", 2, OK, {NULL}, item_on_one, 0, {0}},
    {"unused on one rank", 3, OK, {NULL}, unused_on_one, 0, {0}},
    {"equal ones stay two", 2, OK, {NULL}, equal_ones_stay_two, 0, {0}},
    {"a dry run on one rank", 2, OK, {NULL}, dry_on_one, 0, {0}},
    {"the result of a dry run", 2, OK, {NULL}, dry_result_used, 0, {0}},
    {"bytes behind what is pending", 3, OK, {NULL}, bytes_behind_pending, 0, {0}},
    {"a message that nobody takes", 2, GROUP, {"does send", "never received it; each clef_send"}, sends_nobody_takes, 0, {0}},
    {"a message at the end", 2, GROUP, {"does send", "never received it; each clef_send"}, sends_last, 0, {0}},
    {"messages taken later", 3, OK, {NULL}, received_later, 0, {0}},
    {"groups in a circle", 4, GROUP, {"nobody can go on", "of ranks 0,1", "of ranks 1,2"}, groups_in_a_circle, 0, {0}},
    {"other names", 3, GROUP, {"in tensor 1: \"last\" and \"fourth\""}, names_differ, 0, {0}},
    {"other names, cut", 3, GROUP, {"in tensor 1: \"last\" and \"fourth\""}, names_differ_cut, 0, {0}},
    {"equal names", 3, OK, {NULL}, names_are_equal, 0, {0}},
    {"messages crossed", 2, OK, {NULL}, send_and_recv_crossed, 0, {0}},
    {"a rank in no group", 3, OK, {NULL}, color_of_none, 0, {0}},
    {"a grid", 4, OK, {NULL}, grid, 0, {0}},
    {"many steps", 3, OK, {NULL}, many_steps, 0, {0}},
    {"recomputed", 2, OK, {NULL}, in_a_segment, 0, {0}},
    {"nothing at all", 8, OK, {NULL}, nothing_at_all, 0, {0}},
    {"no group", 2, OK, {NULL}, null_group, 0, {0}},
};

static clef_status run_one(clef_context *ctx, clef_group *all, void *user) {
    (void)user;
    return running->fn(ctx, all, clef_group_rank(all));
}

static void run_case(const test_case *c) {
    char devices[2 * MOST_RANKS];
    running = c;
    clef_ranks_options options = {.context = c->context, .timeout = c->timeout ? c->timeout : 60};
    clef_status status = clef_run_ranks_with(ranks_on_one(c->ranks, devices), &options, run_one, NULL);
    if (status != c->status)
        COMPLAIN("%s: %s, not %s: %s", c->name, clef_status_name(status), clef_status_name(c->status), clef_error(NULL));
    for (int i = 0; i < 3 && c->says[i]; i++)
        if (!strstr(clef_error(NULL), c->says[i]))
            COMPLAIN("%s: the line has no \"%s\": %s", c->name, c->says[i], clef_error(NULL));
}

static void open_failures(void) {
    static const test_case bad = {.name = "no such device", .fn = nothing_at_all};
    running = &bad;
    if (clef_run_ranks("0,99", run_one, NULL) == CLEF_OK) COMPLAIN("device 99 is there");
    if (!strstr(clef_error(NULL), "99")) COMPLAIN("no such device: %s", clef_error(NULL));
    if (clef_run_ranks("0", NULL, NULL) != CLEF_INVALID) COMPLAIN("no function: %s", clef_error(NULL));
    if (clef_run_ranks("", run_one, NULL) == CLEF_OK) COMPLAIN("no device is one");
}

static void watch(int signal) {
    (void)signal;
    static const char line[] = "FAILED: it hangs\n";
    if (write(1, line, sizeof line - 1) < 0) _exit(2);
    printf("in the case \"%s\"\n", running ? running->name : "");
    fflush(stdout);
    _exit(1);
}

int main(void) {
    int code;
    if (!have_device(&code)) return code;
    const char *only = getenv("CLEF_CASE");
    signal(SIGALRM, watch);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (only && strcmp(only, cases[i].name) != 0) continue;
        alarm(150);
        run_case(&cases[i]);
    }
    alarm(150);
    if (!only) open_failures();
    return complaints != 0;
}
