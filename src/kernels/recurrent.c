/* recurrent.c — launches of recurrent layers (cl/recurrent.cl, cl/recurrent_back.cl): all steps in one, where each work-item owns items
   of the batch; or a launch for each step, where work-items own units too.  One launch starts once, but every compute unit reads all
   of the weights at each step, and there are only as many work-items as items.  Where work-groups share tiles, a step may also be a
   product like any other and a launch for what is made of it: two launches, in which no work-item goes along all of k. */
#include "kernels/recurrent.h"
#include "kernels/args.h"
#include "kernels/gemm.h"
#include "pack.args"
#include "plan/lower/cost.h"
#include "recurrent.args"
#include "runtime/arithmetic.h"
#include <math.h>

CLEF__ARGS(pack, PACK_ARGS)
CLEF__ARGS(recurrent, RECURRENT_ARGS)
CLEF__ARGS(recurrent_back, RECURRENT_BACK_ARGS)

enum {
    ITEMS_PER_UNIT = 4,
    PACKED = 16384,
    MOST_PARTS = 32,    /* of a product's sums, */
    SHORTEST_PART = 32, /* which are no shorter than this, */
    PART_RUN = 4,       /* and whole vectors */
    HIDING_ITEMS = 1000 /* work-items of a compute unit that wait for memory at the same time */
};
static const double EFFICIENCY = 0.5, CELL_FLOPS = 200, /* of a unit's activations, which are vectors too */
    FETCH_SECONDS = 0.4e-6; /* of a small work-item, for its numbers at one k: 0.3 to 0.5 were measured */

/* One node, and how it is divided among work-items. */
typedef struct division {
    clef__recurrence a;
    bool back;
    clef_dtype dtype, type;                              /* of tensors, and what is computed in */
    int64_t batch, steps, hidden, gates, depth, outputs; /* gates of the product and its depth; columns in all */
    int64_t rows, vectors, lanes, together;              /* of a tile; gates in it */
    int64_t panel, all_panels;
    int64_t rows_per_item, panels_per_item;
    int64_t parts; /* of sums that products of their own make; 0: none do */
} division;

/* All gates together, so that the weights come in several streams, or one gate after the other in a tile of more rows, so that they are read
   less often: where there are more items, or the sums, a row of w and one number of the state take more than the device's registers. */
static void shape_tile(division *d, const clef__profile *profile, int64_t items) {
    int64_t sums = profile->tile_m * profile->tile_vectors, registers = 1;
    while (registers < sums + profile->tile_vectors + 1) registers *= 2;
    d->together = d->gates;
    d->vectors = d->gates == 1 && d->hidden > d->lanes ? 2 : d->gates;
    int64_t most = clef__larger(sums / d->vectors, 1);
    d->rows = clef__smaller(most, items);
    if (!profile->wide_items || d->hidden <= d->lanes || (items <= most && (items + 1) * d->vectors < registers)) return;
    d->together = 1;
    d->vectors = 2;
    d->rows = clef__smaller(clef__larger(sums / 2, 1), items);
}

/* Tiled for work-items that own the batch in so many parts. */
static division divide(const clef__lowering *lw, int64_t parts) {
    const clef__node *node = clef__lower_node(lw);
    division d = {.a = *(const clef__recurrence *)clef__attributes(node), .dtype = node->out->dtype};
    clef_shape x = node->out->shape, w = node->input[1]->shape;
    d.back = node->op->strategies == clef__recurrent_back_strategies;
    d.type = clef__gemm_type(d.dtype);
    d.batch = x.dim[d.a.batch_first ? 0 : 1];
    d.steps = x.dim[d.a.batch_first ? 1 : 0];
    d.hidden = w.dim[1];
    d.gates = d.back ? 1 : clef__cell_gates(d.a.cell);
    d.depth = d.back ? w.dim[0] : d.hidden;
    d.lanes = clef__gemm_lanes(lw, d.type);
    shape_tile(&d, clef__lower_profile(lw), clef__ceil_div(d.batch, clef__smaller(parts, d.batch)));
    d.panel = d.vectors / d.together * d.lanes;
    d.all_panels = clef__ceil_div(d.hidden, d.panel);
    return d;
}

/* Tiles with few rows that nobody wants, of still enough sums to hide how long an addition takes; a tile itself costs half a row.  They are
   equally full. */
static void even_rows(division *d) {
    int64_t items = d->rows_per_item, most = d->rows;
    for (int64_t rows = most - 1; rows * 3 >= most * 2; rows--)
        if (clef__ceil_div(items, rows) * (2 * rows + 1) < clef__ceil_div(items, d->rows) * (2 * d->rows + 1)) d->rows = rows;
    d->rows = clef__ceil_div(items, clef__ceil_div(items, d->rows));
}

static division divide_batch(const clef__lowering *lw) {
    int64_t units = clef__larger(clef__lower_device(lw)->compute_units, 1);
    if (!clef__lower_profile(lw)->wide_items) units *= ITEMS_PER_UNIT;
    division d = divide(lw, units);
    d.rows_per_item = clef__ceil_div(d.batch, clef__smaller(units, d.batch));
    d.panels_per_item = d.all_panels;
    even_rows(&d);
    return d;
}

static division divide_units(const clef__lowering *lw) {
    division d = divide(lw, 1);
    const clef__profile *profile = clef__lower_profile(lw);
    int64_t wanted =
        clef__larger(clef__lower_device(lw)->compute_units, 1) * (profile->wide_items ? ITEMS_PER_UNIT : profile->items_per_unit);
    if (!clef__lower_pays(lw, (double)(d.batch * d.hidden * d.gates) * (double)d.depth)) wanted = 1;
    d.panels_per_item = clef__ceil_div(d.all_panels, clef__smaller(wanted, d.all_panels));
    int64_t across = clef__ceil_div(d.all_panels, d.panels_per_item), down = clef__larger(wanted / across, 1);
    d.rows_per_item = clef__smaller(clef__round_up(clef__ceil_div(d.batch, down), d.rows), d.batch);
    even_rows(&d);
    return d;
}

/* The state, [batch][depth], times w as it lies, in parts along the depth: [parts][batch][gates·hidden]. */
static clef__gemm product_of(const division *d, clef__operand state, clef__operand w, clef__operand sums) {
    int64_t n = d->gates * d->hidden, run = d->depth / d->parts, bk = w.stride[d->back ? 0 : 1];
    /* clang-format off */
    return (clef__gemm){
        .m = {1, 1, d->batch}, .k = {1, 1, run}, .z = {1, d->parts}, .n = n, .a = state, .b = w, .c = sums,
        .a_m = {0, 0, d->depth}, .a_k = {0, 0, 1}, .a_z = {0, run}, .b_k = {0, 0, bk}, .b_n = w.stride[d->back ? 1 : 0],
        .b_z = {0, run * bk}, .c_m = {0, 0, n}, .c_n = 1, .c_z = {0, d->batch * n}};
    /* clang-format on */
}

static double product_seconds(const clef__lowering *lw, const division *d) {
    clef__operand state = {.dtype = d->type}, w = {.dtype = d->dtype, .stride = {d->hidden, 1}};
    return clef__gemm_seconds(lw, product_of(d, state, w, state));
}

/* What is made of the sums of a step: it reads them and about as many numbers besides, and writes as many. */
static double cell_seconds(const clef__lowering *lw, const division *d) {
    double units = (double)(d->batch * d->hidden), sums = units * (double)d->gates;
    return clef__launch_seconds(lw, &(clef__work){.flops = units * CELL_FLOPS,
                                                  .efficiency = EFFICIENCY,
                                                  .bytes = sums * (double)((d->parts + 2) * (int64_t)clef_dtype_size(d->type))});
}

/* So many parts as take the least time: a product of few rows has few tiles, and its groups would go along all of k.  Parts are added
   up where they are read, so they take no launch, unlike a product's own splits. */
static void choose_parts(const clef__lowering *lw, division *d) {
    double least = 0;
    division tried = *d;
    for (tried.parts = 1; tried.parts <= MOST_PARTS; tried.parts++) {
        if (tried.parts > 1 && (d->depth % (tried.parts * PART_RUN) != 0 || d->depth / tried.parts < SHORTEST_PART)) continue;
        double seconds = product_seconds(lw, &tried) + cell_seconds(lw, &tried);
        if (d->parts && seconds >= least) continue;
        d->parts = tried.parts;
        least = seconds;
    }
}

/* A work-item makes one unit of one item. */
static division divide_products(const clef__lowering *lw) {
    division d = divide(lw, 1);
    d.rows = d.lanes = d.panel = d.rows_per_item = d.panels_per_item = 1;
    d.together = d.vectors = d.gates;
    d.all_panels = d.hidden;
    choose_parts(lw, &d);
    return d;
}

/* ---- cost ---- */

static double step_flops(const division *d) {
    double tiles = (double)clef__ceil_div(d->batch, d->rows_per_item) * (double)clef__ceil_div(d->rows_per_item, d->rows);
    return tiles * (double)(d->rows * d->all_panels * d->panel * d->gates) * (2.0 * (double)d->depth + CELL_FLOPS);
}

static double weight_bytes(const division *d) {
    return (double)(d->all_panels * d->panel * d->gates * d->depth) * (double)clef_dtype_size(d->type);
}

static double launches(const division *d) { return (double)d->steps + (d->back ? 1 : 0); }

/* Where work-items are small, each goes along k alone and waits for what it reads, however few there are. */
static double waiting_seconds(const clef__lowering *lw, const division *d) {
    if (clef__lower_profile(lw)->wide_items) return 0;
    double items = (double)clef__ceil_div(d->batch, d->rows_per_item) * (double)clef__ceil_div(d->all_panels, d->panels_per_item);
    double at_once = (double)clef__larger(clef__lower_device(lw)->compute_units, 1) * HIDING_ITEMS;
    double tiles = (double)(clef__ceil_div(d->rows_per_item, d->rows) * d->panels_per_item * d->gates / d->together);
    return FETCH_SECONDS * tiles * (double)d->depth * fmax(items / at_once, 1);
}

static double cost_sequence(const clef__lowering *lw) {
    division d = divide_batch(lw);
    double groups = (double)clef__ceil_div(d.batch, d.rows_per_item);
    clef__work work = {.flops = step_flops(&d), .efficiency = EFFICIENCY, .bytes = groups * weight_bytes(&d), .groups = groups};
    return clef__launch_seconds(lw, &(clef__work){0}) + launches(&d) * fmax(clef__work_seconds(lw, &work), waiting_seconds(lw, &d));
}

static double cost_steps(const clef__lowering *lw) {
    division d = divide_units(lw);
    double across = (double)clef__ceil_div(d.all_panels, d.panels_per_item);
    double down = (double)clef__ceil_div(d.batch, d.rows_per_item), unit = clef__lower_profile(lw)->unit_us * 1e-6;
    clef__work work = {
        .flops = step_flops(&d), .efficiency = EFFICIENCY, .bytes = down * weight_bytes(&d), .groups = across * down};
    double start = clef__launch_seconds(lw, &(clef__work){0}) + unit;
    return launches(&d) * (start + fmax(clef__work_seconds(lw, &work), waiting_seconds(lw, &d)));
}

static bool products_apply(const clef__lowering *lw) {
    return !clef__lower_profile(lw)->wide_items && clef__lower_profile(lw)->block > 0;
}

static double cost_products(const clef__lowering *lw) {
    division d = divide_products(lw);
    return launches(&d) * (product_seconds(lw, &d) + cell_seconds(lw, &d));
}

/* ---- lowering ---- */

/* w in panels: of W h each gate's rows are columns, [gate][panel][depth][panel's]; backward w's columns are, [panel][depth][panel's]. */
static clef__operand pack_weights(const clef__lowering *lw, const division *d, clef__operand w) {
    clef__operand to = clef__lower_scratch(lw, d->type, CLEF_SHAPE(d->gates * d->all_panels, d->depth, d->panel));
    int64_t rows = clef__larger(clef__ceil_div(PACKED, d->panel), 1);
    int64_t sk = d->back ? w.stride[0] : w.stride[1], sn = d->back ? w.stride[1] : w.stride[0];
    clef__launch_begin(lw, "pack.cl", "pack");
    clef__launch_prepacks(lw);
    clef__launch_define(lw, "W", "%d", (int)d->lanes);
    clef__launch_define(lw, "IN", "%s", clef__token(w.dtype));
    clef__launch_define(lw, "OUT", "%s", clef__token(d->type));
    /* clang-format off */
    pack_args args = {.from = w, .to = to, .N = d->hidden, .K = d->depth, .k2 = 1, .k3 = d->depth, .sk = {0, 0, sk}, .sn = sn,
                      .z2 = d->gates, .sz = {0, d->hidden * sn}, .rows = rows, .width = d->panel};
    /* clang-format on */
    pass_pack(lw, &args);
    clef__launch_end(lw, (size_t[]){(size_t)clef__ceil_div(d->depth, rows), (size_t)d->all_panels, (size_t)d->gates},
                     (size_t[]){1, 1, 1});
    return to;
}

/* What a step multiplies with its state: packed for the kernel itself, or as it lies. */
static clef__operand weights_of(const clef__lowering *lw, const division *d) {
    clef__operand w = clef__lower_in(lw, 1);
    return d->parts ? w : pack_weights(lw, d, w);
}

/* Memory for the sums of a step, if products of their own make them. */
static clef__operand sums_of(const clef__lowering *lw, const division *d, clef__operand w) {
    return d->parts ? clef__lower_scratch(lw, d->type, CLEF_SHAPE(d->parts, d->batch, d->gates * d->hidden)) : w;
}

/* The product of the half of the state that this step reads.  Before the first step there is only what was given. */
static void multiply_state(const clef__lowering *lw, const division *d, clef__operand state, clef__operand w, clef__operand sums,
                           int64_t now) {
    if (!d->parts || (now == 0 && (d->back || !(d->a.given & CLEF__HAS_H0)))) return;
    state.offset += now % 2 * d->batch * d->depth;
    clef__gemm_lower(lw, product_of(d, state, w, sums));
}

/* Input of this bit, or any other memory where it is not given; the bits in the order of the inputs. */
static clef__operand optional(const clef__lowering *lw, const division *d, const int *order, int bit, clef__operand instead) {
    int at = 2;
    for (int i = 0; order[i] != bit; i++) at += (d->a.given & order[i]) != 0;
    return d->a.given & bit ? clef__lower_in_dense(lw, at, NULL) : instead;
}

static void begin_launch(const clef__lowering *lw, const division *d) {
    clef__launch_begin(lw, d->back ? "recurrent_back.cl" : "recurrent.cl", d->back ? "recurrent_back" : "recurrent");
    clef__launch_define(lw, "DT", "%s", clef__token(d->dtype));
    clef__launch_define(lw, "IN", "%s", clef__token(d->type));
    clef__launch_define(lw, "CELL", "%d", (int)d->a.cell);
    clef__launch_define(lw, "MR", "%d", (int)d->rows);
    clef__launch_define(lw, "NV", "%d", (int)d->vectors);
    clef__launch_define(lw, "TOGETHER", "%d", (int)d->together);
    clef__launch_define(lw, "W", "%d", (int)d->lanes);
    if (d->parts) clef__launch_define(lw, "GIVEN", "%d", (int)d->parts);
}

static void end_launch(const clef__lowering *lw, const division *d) {
    if (d->parts) {
        clef__launch_end_1d(lw, d->batch * d->all_panels);
        return;
    }
    size_t down = (size_t)clef__ceil_div(d->batch, d->rows_per_item),
           across = (size_t)clef__ceil_div(d->all_panels, d->panels_per_item);
    size_t together =
        clef__lower_profile(lw)->wide_items ? 1 : (size_t)clef__lower_profile(lw)->local; /* the kernel passes over the rest */
    clef__launch_end(lw, (size_t[]){down, across, 1}, (size_t[]){1, together, 1});
}

/* [first][second][columns] as strides of time and batch. */
static int64_t time_stride(const division *d, int64_t columns) { return columns * (d->a.batch_first ? 1 : d->batch); }
static int64_t batch_stride(const division *d, int64_t columns) { return columns * (d->a.batch_first ? d->steps : 1); }

/* clang-format off */
#define SIZES(d)                                                                                                       \
    .B = (d)->batch, .H = (d)->hidden, .all = (d)->steps, .rows = (d)->rows_per_item, .panels = (d)->panels_per_item,  \
    .given = (d)->a.given, .backwards = (d)->a.backwards, .to_panel = (d)->depth * (d)->panel,                         \
    .to_gate = (d)->all_panels * (d)->depth * (d)->panel
/* clang-format on */

static void lower_forward(const clef__lowering *lw, const division *d, int64_t per_launch) {
    static const int order[] = {CLEF__HAS_BIAS, CLEF__HAS_H0, CLEF__HAS_C0, CLEF__HAS_LENGTHS};
    bool lstm = d->a.cell == CLEF__CELL_LSTM;
    int saved_at = lstm ? 3 : 2;
    bool saves = clef__cell_saved(d->a.cell) > 0 && clef__lower_wants(lw, saved_at);
    int64_t gates = clef__cell_gates(d->a.cell), width = d->all_panels * d->panel;
    clef__operand x = clef__lower_in_dense(lw, 0, NULL), w = weights_of(lw, d), sums = sums_of(lw, d, w);
    clef__operand bias = optional(lw, d, order, CLEF__HAS_BIAS, x), h0 = optional(lw, d, order, CLEF__HAS_H0, x);
    clef__operand c0 = optional(lw, d, order, CLEF__HAS_C0, x), lengths = optional(lw, d, order, CLEF__HAS_LENGTHS, x);
    clef__operand y = clef__lower_output(lw, 0, NULL), h = clef__lower_output(lw, 1, NULL);
    clef__operand c = lstm ? clef__lower_output(lw, 2, NULL) : h, saved = saves ? clef__lower_output(lw, saved_at, NULL) : h;
    clef__operand state = clef__lower_scratch(lw, d->type, CLEF_SHAPE(lstm ? 3 : 2, d->batch, width));
    if (d->a.given & CLEF__HAS_H0) {
        clef__operand to = state;
        to.rank = 2;
        to.dim[0] = d->batch;
        to.dim[1] = d->hidden;
        to.stride[0] = width;
        to.stride[1] = 1;
        clef__lower_copy(lw, to, h0);
    }
    for (int64_t begin = 0; begin < d->steps; begin += per_launch) {
        multiply_state(lw, d, state, w, sums, begin);
        begin_launch(lw, d);
        clef__launch_define(lw, "SAVE", "%d", saves);
        /* clang-format off */
        recurrent_args args = {
            .x = x, .w = sums, .bias = bias, .h0 = h0, .c0 = c0, .lengths = lengths, .y = y, .h = h, .c = c, .saved = saved,
            .state = state, SIZES(d), .begin = begin, .stop = clef__smaller(begin + per_launch, d->steps),
            .xt = time_stride(d, gates * d->hidden), .xb = batch_stride(d, gates * d->hidden),
            .yt = time_stride(d, d->hidden), .yb = batch_stride(d, d->hidden),
        };
        /* clang-format on */
        pass_recurrent(lw, &args);
        end_launch(lw, d);
    }
}

static void lower_backward(const clef__lowering *lw, const division *d, int64_t per_launch) {
    static const int order[] = {CLEF__HAS_SAVED, CLEF__HAS_H0, CLEF__HAS_LENGTHS, CLEF__HAS_GY, CLEF__HAS_GH, CLEF__HAS_GC};
    bool third = d->a.cell >= CLEF__CELL_LSTM;
    int64_t width = d->all_panels * d->panel;
    clef__operand y = clef__lower_in_dense(lw, 0, NULL), w = weights_of(lw, d), sums = sums_of(lw, d, w);
    clef__operand saved = optional(lw, d, order, CLEF__HAS_SAVED, y), first = optional(lw, d, order, CLEF__HAS_H0, y);
    clef__operand lengths = optional(lw, d, order, CLEF__HAS_LENGTHS, y), gy = optional(lw, d, order, CLEF__HAS_GY, y);
    clef__operand gh = optional(lw, d, order, CLEF__HAS_GH, y), gc = optional(lw, d, order, CLEF__HAS_GC, y);
    clef__operand dx = clef__lower_output(lw, 0, NULL), dh = clef__lower_output(lw, 1, NULL);
    clef__operand other = third ? clef__lower_output(lw, 2, NULL) : dh;
    bool initial = clef__lower_wants(lw, 1) || (d->a.cell == CLEF__CELL_LSTM && clef__lower_wants(lw, 2));
    clef__operand state = clef__lower_scratch(lw, d->type, CLEF_SHAPE(2 * d->batch, d->depth + width));
    int64_t stop = d->steps + initial;
    for (int64_t begin = 0; begin < stop; begin += per_launch) {
        multiply_state(lw, d, state, w, sums, begin);
        begin_launch(lw, d);
        /* clang-format off */
        recurrent_back_args args = {
            .saved = saved, .y = y, .w = sums, .first = first, .lengths = lengths, .gy = gy, .gh = gh, .gc = gc, .dx = dx,
            .dg = other, .dh = dh, .dc = other, .state = state, SIZES(d), .begin = begin,
            .stop = clef__smaller(begin + per_launch, stop),
            .xt = time_stride(d, d->depth), .xb = batch_stride(d, d->depth),
            .yt = time_stride(d, d->hidden), .yb = batch_stride(d, d->hidden),
        };
        /* clang-format on */
        pass_recurrent_back(lw, &args);
        end_launch(lw, d);
    }
}

static void lower_division(const clef__lowering *lw, const division *d, int64_t per_launch) {
    if (d->back) lower_backward(lw, d, per_launch);
    else lower_forward(lw, d, per_launch);
}
static void lower_sequence(const clef__lowering *lw) {
    division d = divide_batch(lw);
    lower_division(lw, &d, d.steps + 1);
}
static void lower_steps(const clef__lowering *lw) {
    division d = divide_units(lw);
    lower_division(lw, &d, 1);
}
static void lower_products(const clef__lowering *lw) {
    division d = divide_products(lw);
    lower_division(lw, &d, 1);
}

static const clef__strategy sequence = {.name = "sequence", .cost = cost_sequence, .lower = lower_sequence},
                            steps = {.name = "steps", .cost = cost_steps, .lower = lower_steps},
                            products = {
                                .name = "products", .applies = products_apply, .cost = cost_products, .lower = lower_products};
const clef__strategy *const clef__recurrent_strategies[] = {&sequence, &steps, &products, NULL};
const clef__strategy *const clef__recurrent_back_strategies[] = {&sequence, &steps, &products, NULL};
