/* train_report.c — what clef train tells: JSON lines on stdout, words on stderr. */
#include "train_run.h"
#include <math.h>

static void event_start(const train_run *r) {
    json j = json_begin(stdout);
    json_text(&j, "event", "start");
    json_text(&j, "version", clef_version());
    json_text(&j, "device", tool_device_name(r->ctx));
    json_whole(&j, "ranks", clef_group_size(r->all));
    if (r->all) json_text(&j, "parallel", chosen.parallel);
    if (chosen.ranks.parts) json_whole(&j, "parts", chosen.ranks.parts);
    if (chosen.ranks.zero) json_whole(&j, "zero", *chosen.ranks.zero - '0');
    json_text(&j, "data", r->data.name);
    json_text(&j, "model", chosen.model);
    json_whole(&j, "parameters", clef_parameter_count(r->net));
    json_whole(&j, r->data.text ? "train_windows" : "train_images", clef_dataset_size(r->train));
    json_whole(&j, r->data.text ? "test_windows" : "test_images", clef_dataset_size(r->test));
    json_whole(&j, "epochs", chosen.epochs);
    json_whole(&j, "batch", chosen.batch);
    json_text(&j, "optimizer", chosen.optimizer);
    json_number(&j, "lr", chosen.lr);
    json_number(&j, "momentum", chosen.momentum);
    json_number(&j, "weight_decay", chosen.weight_decay);
    json_text(&j, "schedule", chosen.schedule);
    json_bool(&j, "augment", chosen.augment);
    json_bool(&j, "recompute", chosen.recompute);
    json_text(&j, "dtype", clef_dtype_name(clef_get_autocast(r->ctx)));
    json_text(&j, "matmul_precision", tool_precision(r->ctx));
    json_whole(&j, "seed", (int64_t)chosen.common.seed);
    json_end(&j);
}

static void lines_start(const train_run *r) {
    tool_line(stderr, "%s on %s: %lld parameters, %lld %s to train, %lld to test", chosen.model, r->data.name,
              (long long)clef_parameter_count(r->net), (long long)clef_dataset_size(r->train), r->data.text ? "windows" : "images",
              (long long)clef_dataset_size(r->test));
    if (clef_get_autocast(r->ctx) != CLEF_F32)
        tool_line(stderr, "products in %s%s", clef_dtype_name(clef_get_autocast(r->ctx)), r->scaler ? ", with a scaled loss" : "");
    if (clef_get_matmul_precision(r->ctx) == CLEF_MATMUL_HIGH)
        tool_line(stderr, "products of f32 in TF32 where the device has matrix units for it");
    if (!r->all) tool_line(stderr, "device %s", tool_device_name(r->ctx));
    for (int i = 0; r->all && i < clef_group_size(r->all); i++) tool_line(stderr, "%s", clef_group_rank_name(r->all, i));
}

void train_say_start(const train_run *r) {
    if (!train_speaks(r)) return;
    if (chosen.common.json) event_start(r);
    if (!chosen.common.quiet) lines_start(r);
}

/* The first reading follows the first step: how long a user waits for it, kernels and data included. */
bool train_on_progress(void *user, const clef_progress *p) {
    train_run *r = user;
    if (!chosen.common.json || !train_speaks(r) || r->stepped || p->batch == 0) return true;
    r->stepped = true;
    json j = json_begin(stdout);
    json_text(&j, "event", "first_step");
    json_number(&j, "seconds", tool_seconds() - r->begun);
    json_number(&j, "compile_seconds", clef_counters_get(r->ctx).compile_seconds);
    json_end(&j);
    return true;
}

/* Tokens that are read in a second, or images. */
static double speed_of(const train_run *r, double items) {
    return r->data.text ? items * (double)clef_dataset_item(r->train).dim[0] : items;
}
static void put_speed(json *j, const train_run *r, double items) {
    json_number(j, r->data.text ? "tokens_per_second" : "images_per_second", speed_of(r, items));
}

bool train_on_epoch(void *user, const clef_epoch *e) {
    train_run *r = user;
    r->last = *e;
    if (!chosen.common.json || !train_speaks(r)) return true;
    json j = json_begin(stdout);
    json_text(&j, "event", "epoch");
    json_whole(&j, "epoch", e->epoch);
    json_number(&j, "loss", e->loss);
    json_number(&j, "accuracy", e->accuracy);
    json_number(&j, "test_loss", e->test_loss);
    json_number(&j, "test_accuracy", e->test_accuracy);
    put_speed(&j, r, e->items_per_second);
    json_number(&j, "lr", e->lr);
    json_number(&j, "seconds", e->seconds);
    json_end(&j);
    return true;
}

/* Worse than guessing by far: a rate that is too high, most likely, yet somebody may want to see just that. */
static void warn_of_loss(const train_run *r, const clef_history *h) {
    double guessing = log((double)clef_dataset_classes(r->train)), loss = h->n > 0 ? h->epoch[h->n - 1].loss : 0;
    if (!(loss <= 2 * guessing))
        fprintf(stderr, "clef train: warning: the loss, %.4g, is worse than guessing (%.4g); try a --lr below %g\n", loss, guessing,
                chosen.lr);
}

static void event_done(const train_run *r, const clef_history *h) {
    json j = json_begin(stdout);
    json_text(&j, "event", "done");
    json_number(&j, "test_accuracy", r->last.test_accuracy);
    json_number(&j, "test_loss", r->last.test_loss);
    json_number(&j, "seconds", h->seconds);
    json_number(&j, "compile_seconds", h->compile_seconds);
    put_speed(&j, r, h->items_per_second);
    if (r->data.text) json_number(&j, "perplexity", exp(r->last.test_loss));
    json_bool(&j, "stopped_early", h->stopped_early);
    json_whole(&j, "resumed_at", h->resumed_at);
    json_text(&j, "out", chosen.out);
    json_end(&j);
}

void train_say_done(const train_run *r, const clef_history *h) {
    if (chosen.common.json) event_done(r, h);
    else if (r->data.text)
        tool_line(stdout, "test loss %.4f, perplexity %.2f, %.0f tokens/s, %.1f s (%.1f s compiling)", r->last.test_loss,
                  exp(r->last.test_loss), speed_of(r, h->items_per_second), h->seconds, h->compile_seconds);
    else
        tool_line(stdout, "test accuracy %.2f %%, %.0f images/s, %.1f s (%.1f s of them compiling)", 100 * r->last.test_accuracy,
                  h->items_per_second, h->seconds, h->compile_seconds);
    warn_of_loss(r, h);
}

/* Of a full batch, as shares are at the end. */
static int64_t items_of_rank(const train_run *r, int rank) {
    int64_t items[RANKS_MOST];
    int n = clef_loader_shares(r->train_loader, items, RANKS_MOST);
    return rank < n ? items[rank] : chosen.batch;
}

clef_status train_say_ranks(const train_run *r) {
    clef_status status = CLEF_OK;
    for (int i = 0; r->all && chosen.common.json && i < clef_group_size(r->all) && !status; i++) {
        status = clef_group_barrier(r->all);
        if (status || i != clef_group_rank(r->all)) continue;
        json j = json_begin(stdout);
        json_text(&j, "event", "rank");
        json_whole(&j, "rank", i);
        json_text(&j, "name", clef_group_rank_name(r->all, i));
        json_text(&j, "device", tool_device_name(r->ctx));
        json_whole(&j, "batch", items_of_rank(r, clef_group_rank(r->data_group)));
        json_number(&j, "compile_seconds", clef_counters_get(r->ctx).compile_seconds);
        json_end(&j);
    }
    return status ? status : clef_group_barrier(r->all);
}

static bool print_summary(const train_run *r) {
    static char text[1 << 16];
    clef_shape item = clef_dataset_item(r->train), input = {.rank = item.rank + 1, .dim = {chosen.batch}};
    memcpy(input.dim + 1, item.dim, (size_t)item.rank * sizeof item.dim[0]);
    clef_tensor *tokens = r->data.text ? clef_zeros(r->ctx, input, CLEF_I64) : NULL;
    int length =
        tokens ? clef_summary_call(r->net, &tokens, 1, 1, text, sizeof text) : clef_summary(r->net, input, text, sizeof text);
    if (length <= 0) return false;
    if (!chosen.common.json) fputs(text, stdout);
    return true;
}

/* Each rank's step is of its part of the batch. */
int train_dry_run(train_run *r) {
    forecast f = {.ctx = r->ctx,
                  .net = r->net,
                  .optimizer = r->optimizer,
                  .item = clef_dataset_item(r->train),
                  .tokens = r->data.text ? clef_dataset_classes(r->train) : 0,
                  .batch = ranks_items(&chosen.ranks, r->data_group, chosen.batch),
                  .group = r->all};
    if ((train_speaks(r) && !print_summary(r)) || !forecast_make(&f)) return train_failed(r);
    clef_status status = CLEF_OK;
    for (int i = 0; i < clef_group_size(r->all) && !status; i++) {
        if (i == clef_group_rank(r->all)) forecast_print(&f, chosen.common.json), fflush(stdout);
        status = clef_group_barrier(r->all);
    }
    return status ? train_failed(r) : EXIT_OK;
}
