/* What ranks begin with and what each gets: batches of a loader, item for item those of one rank; modules that clef_replicate makes equal;
   one line on every rank where data, options or modules differ; and a net whose rank has no items of a batch.
   ctest: cost=20 apart plain */
#include "ranks.h"
#include <math.h>

enum { SIDE = 4, PIXELS = SIDE * SIDE, MOST_ITEMS = 64 };

/* ---- batches ---- */

typedef struct setting {
    int64_t items, batch;
    bool shuffle, drop_last;
    int ranks, workers, resumed; /* resumed: batches after which a second loader goes on */
} setting;

static setting s;

/* The items of two epochs in the order in which batches hold them. */
typedef struct record {
    float x[2 * MOST_ITEMS][PIXELS];
    int64_t label[2 * MOST_ITEMS], batch[2 * MOST_ITEMS], size[2 * MOST_ITEMS];
    int n, batches;
} record;
static record alone, seen[MOST_RANKS];

static clef_dataset *make_data(clef_context *ctx, int64_t n) {
    float x[MOST_ITEMS * PIXELS];
    int64_t y[MOST_ITEMS];
    for (int i = 0; i < MOST_ITEMS * PIXELS; i++) x[i] = (float)(i * 37 % 101) / 101;
    for (int i = 0; i < MOST_ITEMS; i++) y[i] = i;
    return clef_dataset_arrays(ctx, x, CLEF_SHAPE(1, SIDE, SIDE), y, n);
}

static clef_loader *open_loader(clef_dataset *data, clef_group *group) {
    const float mean = 0.5f, std = 0.25f;
    clef_loader_options o = {.batch = s.batch,
                             .shuffle = s.shuffle,
                             .drop_last = s.drop_last,
                             .workers = s.workers,
                             .seed = 5,
                             .mean = &mean,
                             .std = &std,
                             .augment = {.shift = 1, .flip = true, .brightness = 0.2},
                             .group = group};
    return clef_loader_open(data, &o);
}

static void note(record *r, const clef_batch *b) {
    r->size[r->batches] = b->size;
    if (clef_tensor_shape(b->x).dim[0] != b->size || clef_tensor_shape(b->y).dim[0] != b->size)
        COMPLAIN("a batch of %lld items has %lld", (long long)b->size, (long long)clef_tensor_shape(b->x).dim[0]);
    clef_read(b->x, r->x[r->n], (size_t)b->size * sizeof *r->x);
    clef_read(b->y, r->label + r->n, (size_t)b->size * sizeof *r->label);
    for (int64_t i = 0; i < b->size; i++) r->batch[r->n++] = r->batches;
    r->batches++;
}

static clef_status gather(clef_context *ctx, clef_group *all, void *user) {
    record *r = (record *)user + clef_group_rank(all);
    clef_dataset *data = make_data(ctx, s.items);
    clef_loader *loader = open_loader(data, all);
    for (int epoch = 0; epoch < 2; epoch++)
        for (clef_batch b; clef_next(loader, &b);) {
            note(r, &b);
            if (r->batches != s.resumed) continue;
            clef_loader_state state = clef_loader_get(loader);
            loader = open_loader(data, all);
            clef_loader_set(loader, state);
        }
    return clef_error_status(ctx);
}

static bool is_fair(int batch, int64_t all) {
    int64_t sum = 0, first = seen[0].size[batch], last = seen[s.ranks - 1].size[batch];
    for (int r = 0; r < s.ranks; r++) {
        sum += seen[r].size[batch];
        if (r && seen[r].size[batch] > seen[r - 1].size[batch]) return false;
    }
    return sum == all && first - last <= 1;
}

static void compare_batches(void) {
    int at[MOST_RANKS] = {0}, i = 0;
    for (int r = 0; r < s.ranks; r++)
        if (seen[r].batches != alone.batches) COMPLAIN("%d batches on rank %d, not %d", seen[r].batches, r, alone.batches);
    for (int b = 0; b < alone.batches; b++) {
        if (!is_fair(b, alone.size[b])) COMPLAIN("batch %d of %lld items is not cut in fair parts", b, (long long)alone.size[b]);
        for (int r = 0; r < s.ranks; r++)
            for (; at[r] < seen[r].n && seen[r].batch[at[r]] == b; at[r]++, i++)
                if (seen[r].label[at[r]] != alone.label[i] || memcmp(seen[r].x[at[r]], alone.x[i], sizeof alone.x[i]))
                    COMPLAIN("batch %d: rank %d of %d has another item than one rank would", b, r, s.ranks);
    }
    if (i != alone.n || !i) COMPLAIN("%d items on all ranks, not %d", i, alone.n);
}

static void try_batches(setting setting) {
    char devices[2 * MOST_RANKS];
    s = setting;
    memset(&alone, 0, sizeof alone);
    memset(seen, 0, sizeof seen);
    if (clef_run_ranks("0", gather, &alone) != CLEF_OK) COMPLAIN("one rank: %s", clef_error(NULL));
    if (clef_run_ranks(ranks_on_one(s.ranks, devices), gather, seen) != CLEF_OK)
        COMPLAIN("%d ranks: %s", s.ranks, clef_error(NULL));
    compare_batches();
}

/* ---- programs that differ ---- */

static clef_module *net_of(clef_context *ctx, int64_t width, bool bias) {
    clef_nn_options o = {.no_bias = !bias};
    return clef_sequential(ctx, CLEF_LAYERS(clef_nn_linear(ctx, 4, width, &o), clef_nn_linear(ctx, width, 2, NULL)));
}

static clef_status other_width(clef_context *ctx, clef_group *all, void *user) {
    (void)user;
    return clef_replicate(net_of(ctx, clef_group_rank(all) == 2 ? 5 : 4, true), all);
}
static clef_status other_names(clef_context *ctx, clef_group *all, void *user) {
    (void)user;
    return clef_replicate(net_of(ctx, 4, clef_group_rank(all) != 1), all);
}
static clef_status other_items(clef_context *ctx, clef_group *all, void *user) {
    (void)user;
    return clef_loader_open(make_data(ctx, 20 + clef_group_rank(all)), &(clef_loader_options){.group = all})
               ? CLEF_OK
               : clef_error_status(ctx);
}
static clef_status other_seed(clef_context *ctx, clef_group *all, void *user) {
    (void)user;
    clef_loader_options o = {.group = all, .shuffle = true, .seed = (uint64_t)clef_group_rank(all)};
    return clef_loader_open(make_data(ctx, 20), &o) ? CLEF_OK : clef_error_status(ctx);
}
static clef_status bad_weight(clef_context *ctx, clef_group *all, void *user) {
    (void)ctx, (void)user;
    return clef_group_weight(all, clef_group_rank(all) ? -1 : 1);
}

static void try_difference(const char *what, clef_rank_fn fn, clef_status status, const char *says) {
    clef_status got = clef_run_ranks("0,0,0", fn, NULL);
    if (got != status || !strstr(clef_error(NULL), says)) COMPLAIN("%s: %s: \"%s\"", what, clef_status_name(got), clef_error(NULL));
}

/* ---- a rank without items ---- */

static float running[3][2][2], parameters[3][256];

static clef_module *conv_net(clef_context *ctx) {
    return clef_sequential(ctx,
                           CLEF_LAYERS(clef_nn_conv2d(ctx, 1, 2, 3, NULL), clef_nn_batch_norm2d(ctx, 2, NULL), clef_nn_relu(ctx),
                                       clef_nn_max_pool2d(ctx, 2, NULL), clef_nn_dropout(ctx, 0.5), clef_nn_flatten(ctx),
                                       clef_nn_linear(ctx, 2, 3, NULL), clef_nn_layer_norm(ctx, CLEF_SHAPE(3), NULL)));
}

static clef_tensor *loss_of_kind(int kind, clef_tensor *y, clef_tensor *target) {
    clef_tensor *class = clef_fmod(clef_to(target, CLEF_F32), clef_scalar(clef_tensor_context(y), 3));
    clef_loss_options ignores = {.has_ignore_index = true, .ignore_index = 7};
    if (kind == 0) return clef_cross_entropy(y, clef_to(class, CLEF_I64), NULL);
    if (kind == 1) return clef_cross_entropy(y, clef_to(class, CLEF_I64), &ignores);
    return clef_mse_loss(y, clef_expand(clef_unsqueeze(class, 1), clef_tensor_shape(y)), NULL);
}

/* Batches of 3, 3 and 2 items; rank 2 has none of the last, and ends with the statistics of the second. */
static clef_status train_with_nothing(clef_context *ctx, clef_group *all, void *user) {
    int rank = clef_group_rank(all), kind = *(int *)user;
    float before[2][2] = {{0}};
    clef_module *net = conv_net(ctx);
    clef_replicate(net, all);
    clef_optimizer *opt = clef_adamw(net, &(clef_adamw_options){.lr = 1e-2, .group = all});
    clef_loader *data = clef_loader_open(make_data(ctx, 8), &(clef_loader_options){.batch = 3, .group = all});
    clef_tensor *mean = clef_parameter(net, "1.running_mean"), *var = clef_parameter(net, "1.running_var");
    for (clef_batch b; clef_next(data, &b);) {
        clef_read(mean, before[0], sizeof before[0]);
        clef_read(var, before[1], sizeof before[1]);
        clef_tensor *loss = loss_of_kind(kind, clef_forward(net, b.x), b.y);
        clef_backward(loss);
        if (b.size == 0 && clef_item(loss) != 0) COMPLAIN("kind %d: the loss of no items is %g", kind, clef_item(loss));
        if (!isfinite(clef_item(loss))) COMPLAIN("kind %d: the loss of %lld items is %g", kind, (long long)b.size, clef_item(loss));
        clef_step(opt);
        if (rank == 2 && (b.size == 0) != (b.index == 2))
            COMPLAIN("rank 2 has %lld items of batch %lld", (long long)b.size, (long long)b.index);
    }
    clef_read(mean, running[rank][0], sizeof running[rank][0]);
    clef_read(var, running[rank][1], sizeof running[rank][1]);
    if (rank == 2 && memcmp(before, running[rank], sizeof before)) COMPLAIN("kind %d: no items moved the running statistics", kind);
    int64_t at = 0;
    for (int i = 0; i < clef_module_tensors(net); i++) {
        clef_named_tensor t = clef_module_tensor(net, i);
        if (t.is_buffer) continue;
        clef_read(t.tensor, parameters[rank] + at, (size_t)clef_numel(t.tensor) * sizeof(float));
        at += clef_numel(t.tensor);
    }
    return clef_error_status(ctx);
}

static void try_nothing(int kind) {
    memset(parameters, 0, sizeof parameters);
    if (clef_run_ranks("0,0,0", train_with_nothing, &kind) != CLEF_OK) COMPLAIN("a part without items: %s", clef_error(NULL));
    if (memcmp(parameters[0], parameters[1], sizeof parameters[0]) || memcmp(parameters[0], parameters[2], sizeof parameters[0]))
        COMPLAIN("kind %d: ranks end with other parameters", kind);
    for (int i = 0; i < 256; i++)
        if (!isfinite(parameters[0][i])) COMPLAIN("kind %d: parameter %d is %g", kind, i, (double)parameters[0][i]);
}

int main(void) {
    int code;
    if (!have_device(&code)) return code;
    try_batches((setting){.items = 20, .batch = 6, .ranks = 3, .shuffle = true, .resumed = 2});
    try_batches((setting){.items = 33, .batch = 8, .ranks = 4, .workers = 3});
    try_batches((setting){.items = 17, .batch = 2, .ranks = 4, .shuffle = true, .resumed = 9});
    try_batches((setting){.items = 26, .batch = 7, .ranks = 2, .shuffle = true, .drop_last = true, .workers = 2});
    try_batches((setting){.items = 5, .batch = 100, .ranks = 8, .shuffle = true});
    try_difference("another width", other_width, CLEF_GROUP, "rank 2");
    try_difference("another width", other_width, CLEF_GROUP, "0.weight f32 [5,4]");
    try_difference("other names", other_names, CLEF_GROUP,
                   "has 1.weight f32 [2,4] parameter where rank 0 has 0.bias f32 [4] parameter");
    try_difference("other items", other_items, CLEF_GROUP, "has 20 items");
    try_difference("another seed", other_seed, CLEF_GROUP, "as seed");
    try_difference("a bad weight", bad_weight, CLEF_INVALID, "-1 is no weight");
    for (int kind = 0; kind < 3; kind++) try_nothing(kind);
    printf("%d complaints\n", atomic_load(&complaints));
    return atomic_load(&complaints) != 0;
}
