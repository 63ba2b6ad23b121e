/* attention.c — the launches of attention (cl/attention.cl, cl/attention_split.cl).

   "tiles": a work-item owns a block of rows, one in each vector lane, so that few rows leave lanes idle.  "split": the rows of few queries go
   over the keys one by one, and keys are partitioned so that every compute unit has some; a second launch adds up what they found. */
#include "kernels/attention.h"
#include "attention.args"
#include "kernels/args.h"
#include "kernels/lanes.h"
#include "plan/lower/cost.h"
#include "runtime/arithmetic.h"

CLEF__ARGS(attention_forward, ATTENTION_FORWARD_ARGS)
CLEF__ARGS(attention_gradients, ATTENTION_GRADIENTS_ARGS)
CLEF__ARGS(attention_summed, ATTENTION_SUMMED_ARGS)
CLEF__ARGS(attention_split, ATTENTION_SPLIT_ARGS)
CLEF__ARGS(attention_joined, ATTENTION_JOINED_ARGS)

enum { SPLIT_ROWS = 8, LEAST_KEYS = 128, PIECES_PER_UNIT = 4, LEAST_BLOCKS = 2, MOST_ARRAYS = 8 };
static const double TILES_EFFICIENCY = 0.5, SPLIT_EFFICIENCY = 0.2;

/* Work-items own long runs. */
bool clef__attention_on(const clef__profile *profile) { return profile->wide_items; }
static bool applies(const clef__lowering *lw) { return clef__attention_on(clef__lower_profile(lw)); }

/* ---- inputs ---- */

clef__attention_sizes clef__attention_sizes_of(const clef__node *node) {
    clef_shape q = node->input[0]->shape, k = node->input[1]->shape, v = node->input[2]->shape;
    return (clef__attention_sizes){q.dim[0], q.dim[1], k.dim[1], q.dim[2], k.dim[2], q.dim[3], v.dim[3]};
}

/* Input i with its columns contiguous; else a copy. */
static clef__operand rows_of(const clef__lowering *lw, int i) {
    clef__operand x = clef__lower_in(lw, i);
    return x.stride[3] == 1 || x.dim[3] == 1 ? x : clef__lower_in_dense(lw, i, NULL);
}

/* Output k in the order in which `like` lies: [b,t,h,d] where a layer's heads are a view of that, else [b,h,t,d]. */
static clef__operand output_like(const clef__lowering *lw, int k, const clef__operand *like) {
    static const int by_head[] = {0, 1, 2, 3}, by_row[] = {0, 2, 1, 3};
    return clef__lower_output(lw, k, like->stride[1] < like->stride[2] ? by_row : by_head);
}

/* What all kernels read: q, k and v, and the operands of options; q stands in for those that are not there, which no kernel reads. */
typedef struct inputs {
    const clef__node *node;
    const clef__attending *a;
    clef__attention_sizes s;
    clef__operand q, k, v, x[CLEF__ATTENTION_OPTIONS];
} inputs;

static inputs inputs_of(const clef__lowering *lw) {
    const clef__node *node = clef__lower_node(lw);
    inputs in = {.node = node, .a = clef__attributes(node), .s = clef__attention_sizes_of(node)};
    in.q = rows_of(lw, 0), in.k = rows_of(lw, 1), in.v = rows_of(lw, 2);
    for (int i = 0; i < CLEF__ATTENTION_OPTIONS; i++) {
        int at = (int)in.a->at[i];
        if (at < 0) in.x[i] = in.q;
        else if (i != CLEF__ATTENTION_MASK) in.x[i] = clef__lower_in_dense(lw, at, NULL);
        else in.x[i] = clef__broadcast_operand(clef__lower_in(lw, at), CLEF_SHAPE(in.s.b, in.s.h, in.s.tq, in.s.tk));
    }
    return in;
}

static int width_of(const clef__lowering *lw) { return (int)clef__larger(clef__lower_profile(lw)->vector, 4); }

static void begin(const clef__lowering *lw, const inputs *in, const char *file, const char *kernel) {
    const clef__attending *a = in->a;
    clef__attention_sizes s = in->s;
    bool has_mask = a->at[CLEF__ATTENTION_MASK] >= 0,
         added = has_mask && in->node->input[a->at[CLEF__ATTENTION_MASK]]->dtype == CLEF_F32;
    clef__launch_begin(lw, file, kernel);
    clef__launch_define(lw, "D", "%d", (int)s.d);
    clef__launch_define(lw, "DV", "%d", (int)s.dv);
    clef__launch_define(lw, "W", "%d", width_of(lw));
    clef__launch_define(lw, "MASKED", "%d", !has_mask ? 0 : added ? 2 : 1);
    clef__launch_define(lw, "MASK_DT", "%s", added ? "f32" : "u8");
    clef__launch_define(lw, "SLOPES", "%d", a->at[CLEF__ATTENTION_SLOPES] >= 0);
    clef__launch_define(lw, "CAP", "%d", a->softcap > 0);
    clef__launch_define(lw, "DROP", "%d", a->at[CLEF__ATTENTION_KEY] >= 0);
}

/* clang-format off */
#define STRIDES(x) {(x).stride[0], (x).stride[1], (x).stride[2]}
/* Arguments that they all have, of `in`. */
#define INPUTS .q = in.q, .k = in.k, .v = in.v, .qs = STRIDES(in.q), .ks = STRIDES(in.k), .vs = STRIDES(in.v), \
    .heads = in.s.h, .shared = in.s.h / in.s.hk, .tq = in.s.tq, .tk = in.s.tk, \
    .mask = in.x[CLEF__ATTENTION_MASK], .lengths = in.x[CLEF__ATTENTION_LENGTHS], .places = in.x[CLEF__ATTENTION_PLACES], .slopes = in.x[CLEF__ATTENTION_SLOPES], .key = in.x[CLEF__ATTENTION_KEY], \
    .mask_outer = {in.x[CLEF__ATTENTION_MASK].stride[0], in.x[CLEF__ATTENTION_MASK].stride[1]}, .mask_inner = {in.x[CLEF__ATTENTION_MASK].stride[2], in.x[CLEF__ATTENTION_MASK].stride[3]}, \
    .causal = in.a->causal, .has_lengths = in.a->at[CLEF__ATTENTION_LENGTHS] >= 0, .has_places = places_of(&in), .shift = in.a->shift, \
    .window = in.a->window, .scale = (float)in.a->scale, .cap = (float)in.a->softcap, .dropout = (float)in.a->dropout, \
    .first = in.a->first
/* clang-format on */

/* 0: none; 1: one for all items; 2: one for each. */
static int places_of(const inputs *in) {
    int64_t at = in->a->at[CLEF__ATTENTION_PLACES];
    return at < 0 ? 0 : clef_shape_numel(in->node->input[at]->shape) > 1 ? 2 : 1;
}

/* ---- tiles ---- */

/* The largest tile of a register's rows that divides so many columns. */
static int tile_of(int64_t columns, int most) {
    int tile = most;
    while (columns % tile) tile--;
    return tile;
}

static void begin_tiles(const clef__lowering *lw, const inputs *in, const char *kernel) {
    int most = clef__lower_profile(lw)->tile_m;
    begin(lw, in, "attention.cl", kernel);
    clef__launch_define(lw, "MR", "%d", most);
    clef__launch_define(lw, "TD", "%d", tile_of(in->s.d, most));
    clef__launch_define(lw, "TV", "%d", tile_of(in->s.dv, most));
}

static clef__units units_of(const clef__lowering *lw, const clef__attention_sizes *s, int64_t heads, int64_t rows, int64_t others) {
    int64_t lanes = 2 * width_of(lw);
    return clef__lower_units(lw, s->b * heads * clef__ceil_div(rows, lanes), clef__times(lanes * (s->d + s->dv) / 8, others));
}

static void lower_tiles(const clef__lowering *lw) {
    inputs in = inputs_of(lw);
    clef__operand y = output_like(lw, 0, &in.q), sums = clef__lower_output(lw, 1, NULL);
    begin_tiles(lw, &in, "attention_forward");
    attention_forward_args args = {INPUTS, .y = y, .sums = sums, .ys = STRIDES(y),
                                   .units = units_of(lw, &in.s, in.s.h, in.s.tq, in.s.tk)};
    pass_attention_forward(lw, &args);
    clef__launch_end_units(lw, args.units);
}

/* The inputs of gradients end with g, sums, dots. */
static clef__operand gradient_input(const clef__lowering *lw, int i) {
    int at = clef__lower_node(lw)->n_inputs - 3 + i;
    return i == 0 ? rows_of(lw, at) : clef__lower_in_dense(lw, at, NULL);
}

/* Into how many pieces the gradients partition the keys, each with an array for dq; from sizes and facts, so that bits do not move. */
static int64_t gradient_pieces(const clef__lowering *lw, const clef__attention_sizes *s, int64_t work) {
    int64_t own = s->b * s->hk, blocks = clef__ceil_div(s->tk, 2 * width_of(lw));
    int64_t wanted = clef__ceil_div(PIECES_PER_UNIT * clef__larger(clef__lower_device(lw)->compute_units, 1), own);
    if (wanted <= 1 || !clef__lower_pays(lw, (double)own * (double)work)) return 1;
    return clef__larger(clef__smaller(clef__smaller(wanted, MOST_ARRAYS), blocks / LEAST_BLOCKS), 1);
}

static void sum_pieces(const clef__lowering *lw, const inputs *in, clef__operand parts, int64_t pieces) {
    clef__operand dq = output_like(lw, 0, &in->q);
    begin_tiles(lw, in, "attention_summed");
    clef__units units = clef__lower_units(lw, in->s.b * in->s.h * in->s.tq, pieces * in->s.d);
    attention_summed_args args = {
        .parts = parts, .dq = dq, .heads = in->s.h, .tq = in->s.tq, .pieces = pieces, .ds = STRIDES(dq), .units = units};
    pass_attention_summed(lw, &args);
    clef__launch_end_units(lw, units);
}

static void lower_gradients(const clef__lowering *lw) {
    inputs in = inputs_of(lw);
    clef__attention_sizes s = in.s;
    bool of_queries = clef__lower_wants(lw, 0), of_keys = clef__lower_wants(lw, 1) || clef__lower_wants(lw, 2);
    clef__operand g = gradient_input(lw, 0), sums = gradient_input(lw, 1), dots = gradient_input(lw, 2);
    clef__operand dk = of_keys ? output_like(lw, 1, &in.k) : g, dv = of_keys ? output_like(lw, 2, &in.v) : g, parts = g;
    int64_t lanes = 2 * width_of(lw), work = clef__times(clef__times(s.h / s.hk * s.tq, s.tk), 5 * (s.d + s.dv) / 16);
    int64_t pieces = gradient_pieces(lw, &s, work), columns = clef__round_up(s.d, lanes);
    if (of_queries)
        parts = clef__lower_scratch(lw, CLEF_F32, CLEF_SHAPE(s.b * s.h, pieces, s.tq + clef__lower_profile(lw)->tile_m, columns));
    begin_tiles(lw, &in, "attention_gradients");
    clef__launch_define(lw, "QUERIES", "%d", of_queries);
    clef__launch_define(lw, "KEYS", "%d", of_keys);
    clef__units units = clef__lower_units(lw, s.b * s.hk * pieces, clef__ceil_div(work, pieces));
    /* clang-format off */
    attention_gradients_args args = {
        INPUTS, .g = g, .sums = sums, .dots = dots, .dk = dk, .dk_used = of_keys, .dv = dv, .dv_used = of_keys,
        .parts = parts, .parts_used = of_queries, .gs = STRIDES(g), .dks = STRIDES(dk), .dvs = STRIDES(dv), .pieces = pieces,
        .units = units};
    /* clang-format on */
    pass_attention_gradients(lw, &args);
    clef__launch_end_units(lw, units);
    if (of_queries) sum_pieces(lw, &in, parts, pieces);
}

/* ---- split ---- */

/* How `rows` queries that share a head of keys, and their keys, become units of work; from sizes and facts, so that bits do. */
typedef struct split {
    int64_t rows, blocks, pieces, units;
} split;

static split split_of(const clef__lowering *lw, const clef__attention_sizes *s) {
    int64_t all = s->h / s->hk * s->tq, wanted = PIECES_PER_UNIT * clef__larger(clef__lower_device(lw)->compute_units, 1);
    split p = {.rows = 1, .pieces = 1};
    while (p.rows < all && p.rows < SPLIT_ROWS) p.rows *= 2;
    p.blocks = clef__ceil_div(all, p.rows);
    p.units = s->b * s->hk * p.blocks;
    if (p.units < wanted && clef__lower_pays(lw, (double)p.units * (double)(p.rows * (s->d + s->dv) / 8) * (double)s->tk))
        p.pieces = clef__larger(clef__smaller(clef__ceil_div(wanted, p.units), s->tk / LEAST_KEYS), 1);
    p.units *= p.pieces;
    return p;
}

static void join_pieces(const clef__lowering *lw, const inputs *in, const split *p, clef__operand parts, clef__operand y,
                        clef__operand sums) {
    begin(lw, in, "attention_split.cl", "attention_joined");
    clef__launch_define(lw, "R", "%d", (int)p->rows);
    clef__units units = clef__lower_units(lw, in->s.b * in->s.h * in->s.tq, p->pieces * in->s.dv);
    attention_joined_args args = {.parts = parts,
                                  .y = y,
                                  .sums = sums,
                                  .heads = in->s.h,
                                  .tq = in->s.tq,
                                  .pieces = p->pieces,
                                  .ys = STRIDES(y),
                                  .units = units};
    pass_attention_joined(lw, &args);
    clef__launch_end_units(lw, units);
}

static void lower_split(const clef__lowering *lw) {
    inputs in = inputs_of(lw);
    clef__attention_sizes s = in.s;
    split p = split_of(lw, &s);
    bool several = p.pieces > 1;
    clef__operand y = output_like(lw, 0, &in.q), sums = clef__lower_output(lw, 1, NULL), parts = sums;
    if (several) parts = clef__lower_scratch(lw, CLEF_F32, CLEF_SHAPE(s.b * s.h * s.tq, p.pieces, s.dv + 2));
    begin(lw, &in, "attention_split.cl", "attention_split");
    clef__launch_define(lw, "R", "%d", (int)p.rows);
    clef__units units = clef__lower_units(lw, p.units, clef__times(p.rows * (s.d + s.dv) / 8, clef__ceil_div(s.tk, p.pieces)));
    attention_split_args args = {INPUTS,
                                 .y = y,
                                 .y_used = !several,
                                 .sums = sums,
                                 .sums_used = !several,
                                 .parts = parts,
                                 .parts_used = several,
                                 .ys = STRIDES(y),
                                 .pieces = p.pieces,
                                 .units = units};
    pass_attention_split(lw, &args);
    clef__launch_end_units(lw, units);
    if (several) join_pieces(lw, &in, &p, parts, y, sums);
}

/* ---- costs: as if every key were seen ---- */

static double flops_of(const clef__attention_sizes *s, int64_t rows) {
    return 2 * (double)s->b * (double)s->h * (double)rows * (double)s->tk * (double)(s->d + s->dv);
}
static double key_bytes(const clef__attention_sizes *s) {
    return 4 * (double)s->b * (double)s->hk * (double)s->tk * (double)(s->d + s->dv);
}

static double cost_tiles(const clef__lowering *lw) {
    clef__attention_sizes s = clef__attention_sizes_of(clef__lower_node(lw));
    int64_t lanes = 2 * width_of(lw), blocks = clef__ceil_div(s.tq, lanes);
    return clef__launch_seconds(lw, &(clef__work){.flops = flops_of(&s, blocks * lanes),
                                                  .efficiency = TILES_EFFICIENCY,
                                                  .bytes = key_bytes(&s),
                                                  .groups = (double)(s.b * s.h * blocks)});
}

static double cost_split(const clef__lowering *lw) {
    clef__attention_sizes s = clef__attention_sizes_of(clef__lower_node(lw));
    split p = split_of(lw, &s);
    clef__work work = {
        .flops = flops_of(&s, s.tq), .efficiency = SPLIT_EFFICIENCY, .bytes = key_bytes(&s), .groups = (double)p.units};
    return clef__launch_seconds(lw, &work) + (p.pieces > 1 ? clef__launch_seconds(lw, &(clef__work){0}) : 0);
}

static const clef__strategy tiles = {.name = "tiles", .applies = applies, .cost = cost_tiles, .lower = lower_tiles},
                            splits = {.name = "split", .applies = applies, .cost = cost_split, .lower = lower_split},
                            gradients = {.name = "tiles", .applies = applies, .lower = lower_gradients};
const clef__strategy *const clef__attention_forward_strategies[] = {&tiles, &splits, NULL};
const clef__strategy *const clef__attention_gradients_strategies[] = {&gradients, NULL};
