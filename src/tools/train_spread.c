/* train_spread.c — clef train --parallel: what each of several devices has of the model and of every batch.

   Devices are a grid of R copies of the model, each a pipeline of P stages, each stage's layers cut over T.  Rank ((r·P + p)·T + t) has its place
   (r,p,t). */
#include "train_run.h"
#include <stdlib.h>

/* ---- what was asked for ---- */

/* R, P and T of RxPxT; false where text is not that. */
static bool read_grid(const char *text, int way[3]) {
    char *end;
    for (int i = 0; i < 3; i++, text = end + 1) {
        if (*text < '1' || *text > '9') return false;
        long n = strtol(text, &end, 10);
        if (n > RANKS_MOST || *end != (i < 2 ? 'x' : 0)) return false;
        way[i] = (int)n;
    }
    return true;
}

/* A 0 takes all devices. */
static bool read_ways(const char *text, int way[3]) {
    static const char *const names[] = {"data", "pipeline", "tensor"};
    for (int i = 0; i < 3; i++) way[i] = 1;
    for (int i = 0; i < 3; i++)
        if (is(text, names[i])) return way[i] = 0, true;
    return read_grid(text, way);
}

/* The layers that are cut, and how: a linear by outputs is followed by one by inputs, so that a sum over the ranks is enough for both. */
static const struct cut {
    const char *model, *pattern;
    int dim;
    bool whole_input;
} cuts[] = {{"mlp", "1", 0, false},
            {"mlp", "3", 1, false},
            {"lenet", "7", 0, false},
            {"lenet", "9", 1, false},
            {"cnn", "0", 0, false},
            {"cnn", "3", 1, false},
            {"cnn", "7", 1, true},
            {"gpt", "h.*.attn.c_attn", 0, false},
            {"gpt", "h.*.attn.c_proj", 1, false},
            {"gpt", "h.*.mlp.c_fc", 0, false},
            {"gpt", "h.*.mlp.c_proj", 1, false},
            {"llama", "model.layers.*.self_attn.q_proj", 0, false},
            {"llama", "model.layers.*.self_attn.k_proj", 0, false},
            {"llama", "model.layers.*.self_attn.v_proj", 0, false},
            {"llama", "model.layers.*.self_attn.o_proj", 1, false},
            {"llama", "model.layers.*.mlp.gate_proj", 0, false},
            {"llama", "model.layers.*.mlp.up_proj", 0, false},
            {"llama", "model.layers.*.mlp.down_proj", 1, false}};
enum { CUTS = sizeof cuts / sizeof *cuts };

static bool can_be_cut(const char *model) {
    for (int i = 0; i < CUTS; i++)
        if (is(cuts[i].model, model)) return true;
    return false;
}

const char *train_spread_fits(bool text) {
    train_options *o = &chosen;
    int *way = o->way;
    if (!o->parallel) o->parallel = "data";
    if (!read_ways(o->parallel, way))
        return "--parallel wants data, pipeline, tensor, or a grid of copies, stages and parts of layers, as in 2x2x1";
    bool stages = way[1] != 1, parts = way[2] != 1, spread = stages || parts;
    if (!is(o->parallel, "data") && !ranks_wanted(&o->ranks)) return "--parallel needs several devices: --devices 0,1";
    if (o->micro_batches && !stages) return "--micro-batches belongs to --parallel pipeline";
    if (o->micro_batches > o->batch) return "--micro-batches wants a number that is not above --batch";
    if (stages && text) return "--parallel pipeline wants a model of layers in a row: mlp, lenet, cnn or resnet18";
    if (stages && o->dry_run) return "--dry-run does not go with --parallel pipeline";
    if (parts && !can_be_cut(o->model)) return "--parallel tensor wants --model mlp, lenet, cnn, gpt or llama";
    if (spread && (o->ranks.parts || o->ranks.shares || o->ranks.zero))
        return "--parts, --shares and --zero belong to --parallel data";
    if ((spread || o->ranks.parts) && o->common.dtype && is(o->common.dtype, "f16"))
        return "--dtype f16 scales the loss, which goes with no --parts and with --parallel data only; --dtype bf16 needs no scale";
    return NULL;
}

/* ---- the groups ---- */

static int product(const int way[3]) { return way[0] * way[1] * way[2]; }

bool train_make_grid(train_run *r) {
    int size = clef_group_size(r->all), rank = clef_group_rank(r->all), way[3];
    for (int i = 0; i < 3; i++) way[i] = chosen.way[i] ? chosen.way[i] : size;
    r->data_group = r->all;
    if (!r->all || (way[1] == 1 && way[2] == 1 && way[0] == size)) return true;
    int part = rank % way[2], stage = rank / way[2] % way[1], copy = rank / way[2] / way[1];
    r->data_group = clef_group_split(r->all, stage * way[2] + part, 0);
    r->stage_group = clef_group_split(r->all, copy * way[2] + part, 0);
    r->part_group = clef_group_split(r->all, copy * way[1] + stage, 0);
    return r->data_group && r->stage_group && r->part_group;
}

int train_grid_wants(void) { return chosen.way[0] && chosen.way[1] && chosen.way[2] ? product(chosen.way) : 0; }

/* ---- the model ---- */

static bool cut_layers(train_run *r) {
    if (clef_group_size(r->part_group) == 1) return true;
    for (int i = 0; i < CUTS; i++) {
        clef_shard_options o = {.whole_input = cuts[i].whole_input};
        if (is(cuts[i].model, chosen.model) && clef_module_shard(r->net, cuts[i].pattern, r->part_group, cuts[i].dim, &o))
            return false;
    }
    return true;
}

static bool make_pipeline(train_run *r) {
    if (clef_group_size(r->stage_group) == 1) return true;
    clef_shape item = clef_dataset_item(r->train), input = {.rank = item.rank + 1};
    int micro_batches = chosen.micro_batches ? (int)chosen.micro_batches : 4 * clef_group_size(r->stage_group);
    input.dim[0] = (chosen.batch + micro_batches - 1) / micro_batches;
    memcpy(input.dim + 1, item.dim, (size_t)item.rank * sizeof item.dim[0]);
    r->pipeline =
        clef_pipeline_new(r->net, r->stage_group,
                          &(clef_pipeline_options){.micro_batches = micro_batches, .input = clef_zeros(r->ctx, input, CLEF_F32)});
    return r->pipeline;
}

bool train_spread_model(train_run *r) { return cut_layers(r) && make_pipeline(r); }

clef_group *train_test_group(const train_run *r) {
    return clef_group_size(r->stage_group) > 1 && clef_group_size(r->part_group) == 1 ? r->all : r->data_group;
}

clef_status train_gather_model(train_run *r) { return clef_group_size(r->part_group) > 1 ? clef_module_unshard(r->net) : CLEF_OK; }
