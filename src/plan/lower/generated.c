/* generated.c — launches of generated kernels, of one iteration space or of several segments: how the work is partitioned, and the
   arguments. */
#include "plan/lower/space.h"
#include "runtime/arithmetic.h"
#include "runtime/text.h"

enum { STEP_WORK = 4 /* exp, say, beside one load */, BUNDLED_WORK = 16 /* an update of a few steps */ };

typedef struct partition {
    int64_t block, per_row, blocks, per_item, items;
} partition;

/* Partitions rows into blocks: on a CPU a few long ones per unit, on a GPU one vector each.  work: of an element, in plain ones. */
static partition partition_rows(const clef__lowering *lw, int64_t rows, int64_t columns, int work) {
    const clef__profile *profile = clef__lower_profile(lw);
    partition c = {.block = profile->vector, .per_item = 1};
    if (profile->wide_items) {
        bool pays = clef__lower_pays(lw, (double)rows * (double)columns * work);
        int64_t wanted = pays ? clef__lower_items(lw, rows * columns, 4096) : 1;
        int64_t in_row = clef__ceil_div(wanted, rows);
        c.block = clef__ceil_div(columns, in_row);
        c.block = clef__round_up(c.block, profile->vector);
        int64_t total = rows * clef__ceil_div(columns, c.block);
        c.per_item = clef__ceil_div(total, wanted);
    }
    c.per_row = clef__ceil_div(columns, c.block);
    c.blocks = rows * c.per_row;
    c.items = clef__ceil_div(c.blocks, c.per_item);
    return c;
}

/* A store may take over an operand's memory if that operand is read in the same layout everywhere in this kernel. */
static void note_candidates(const clef__lowering *lw, const clef__pointwise *p) {
    for (int i = 0; i < p->n_stores; i++) {
        const clef__operand *to = &p->store[i].to;
        clef__value *value = &lw->rec->plan->value[to->value];
        if (to->offset != 0 || value->n_candidates) continue;
        for (int j = 0; j < p->n_operands && value->n_candidates < 4; j++) {
            const clef__operand *x = &p->operand[j].x;
            if (p->operand[j].constant || x->value == to->value) continue;
            bool fits = true;
            for (int k = 0; k < p->n_operands; k++) {
                const clef__operand *y = &p->operand[k].x;
                if (p->operand[k].constant || y->value != x->value) continue;
                fits &= y->offset == 0 && clef_dtype_size(y->dtype) == clef_dtype_size(to->dtype) &&
                        clef__same_strides(p->shape, y->stride, to->stride);
            }
            if (fits) value->candidate[value->n_candidates++] = x->value;
        }
    }
}

static void launch_constants(const clef__lowering *lw, const clef__pointwise *p) {
    for (int i = 0; i < p->n_operands; i++)
        if (p->operand[i].constant) clef__launch_constant(lw, p->operand[i].captured, p->operand[i].number, p->operand[i].dtype);
}

static void launch_segment(const clef__lowering *lw, const clef__pointwise *p, const clef__space *s) {
    if (lw->rec->failed) return;
    lw->rec->open->covers = 1;
    clef__launch_long(lw, 0);
    clef__launch_long(lw, s->dim[0]);
    launch_constants(lw, p);
    for (int i = 0; i < s->n; i++) clef__launch_tensor(lw, *s->x[i], i >= s->n - p->n_stores);
}

static void launch_rows(const clef__lowering *lw, const clef__pointwise *p, const clef__space *s, const partition *c) {
    clef__launch_long(lw, c->per_row);
    clef__launch_long(lw, s->dim[s->rank - 1]);
    for (int d = 0; d < s->rank - 1; d++) clef__launch_long(lw, s->dim[d]);
    launch_constants(lw, p);
    for (int i = 0; i < s->n; i++) {
        clef__launch_tensor(lw, *s->x[i], i >= s->n - p->n_stores);
        for (int d = 0; d < s->rank - 1; d++) clef__launch_long(lw, s->stride[i][d]);
        if (clef__space_access(s, i) == CLEF__GATHER) clef__launch_long(lw, s->stride[i][s->rank - 1]);
    }
}

static void launch_partition(const clef__lowering *lw, const partition *c) {
    clef__launch_long(lw, c->blocks);
    clef__launch_long(lw, c->per_item);
    clef__launch_long(lw, c->block);
}

/* Lanes of the squares of a transposition: those of the elements' size in the registers that vectors of floats fill. */
static int square_width(const clef__lowering *lw, const clef__space *s) {
    int vector = clef__lower_profile(lw)->vector;
    if (!clef__lower_profile(lw)->wide_items) return 1;
    return clef_dtype_size(s->x[0]->dtype) == 8 ? vector / 2 : vector;
}

/* Squares side by side.  Where lines of either side are a multiple of 1 KiB apart, a column of them falls into few sets of a cache, which
   keep no line until the next column comes: then several columns are moved at once.  Elsewhere fewer streams are faster. */
static int squares_of(const clef__space *s, int line) {
    enum { TOGETHER = 1024, SEVERAL = 4 };
    int64_t size = (int64_t)clef_dtype_size(s->x[0]->dtype), apart = s->stride[0][s->rank - 1] * size,
            pace = s->stride[1][line] * size;
    return apart % TOGETHER == 0 || pace % TOGETHER == 0 ? SEVERAL : 1;
}

/* Copies in squares of W lines, dimension `line` of the space, and W columns: work-items go down some of them side by side. */
static void lower_transposition(const clef__lowering *lw, const clef__space *s, int line, int width, const char *label) {
    int inner = s->rank - 1, squares = squares_of(s, line);
    int64_t lines = s->dim[line], columns = s->dim[inner], others = 1;
    for (int d = 0; d < inner; d++) others *= d == line ? 1 : s->dim[d];
    int64_t all = others * lines * columns, tiles = clef__ceil_div(columns, squares * width), rows = others * tiles;
    int64_t items = clef__lower_pays(lw, 2 * (double)all) ? clef__lower_items(lw, all, 4096) : 1;
    int64_t span = clef__round_up(clef__ceil_div(lines, clef__ceil_div(items, rows)), width), spans = clef__ceil_div(lines, span);
    int64_t blocks = rows * spans, per_item = clef__ceil_div(blocks, items);
    clef__launch_begin(lw, NULL, CLEF__GENERATED);
    if (lw->rec->failed) return;
    clef__launch_name(lw, label, false);
    clef__launch_text(lw, clef__transposing_source(s, width, squares));
    clef__launch_longs(
        lw, (int64_t[]){blocks, per_item, span, spans, tiles, lines, columns, s->stride[0][inner], s->stride[1][line]}, 9);
    for (int d = 0; d < inner; d++)
        if (d != line) clef__launch_longs(lw, (int64_t[]){s->dim[d], s->stride[0][d], s->stride[1][d]}, 3);
    clef__launch_tensor(lw, *s->x[0], false);
    clef__launch_tensor(lw, *s->x[1], true);
    clef__launch_end_1d(lw, clef__ceil_div(blocks, per_item));
}

void clef__lower_pointwise(const clef__lowering *lw, const clef__pointwise *p, const char *label) {
    if (lw->rec->failed || clef_shape_numel(p->shape) == 0) return;
    int width = clef__lower_profile(lw)->vector;
    clef__space s;
    clef__space_make(&s, p, width);
    int square = square_width(lw, &s), line = clef__space_transposes(&s, p, square);
    if (line >= 0) {
        lower_transposition(lw, &s, line, square, label);
        return;
    }
    int64_t rows = 1;
    for (int d = 0; d < s.rank - 1; d++) rows *= s.dim[d];
    partition c = partition_rows(lw, rows, s.dim[s.rank - 1], s.n + STEP_WORK * p->n_steps);
    note_candidates(lw, p);
    clef__launch_begin(lw, NULL, CLEF__GENERATED);
    if (lw->rec->failed) return;
    clef__launch_name(lw, label, false);
    clef__launch_text(lw, clef__pointwise_source(p, &s, width, !clef__lower_profile(lw)->wide_items));
    launch_partition(lw, &c);
    if (clef__space_is_segment(&s)) launch_segment(lw, p, &s);
    else launch_rows(lw, p, &s, &c);
    clef__launch_end_1d(lw, c.items);
}

/* ---- several segments in one launch ---- */

/* The source of a launch that covers `count` segments. */
static char *bundle_source(const char *source, int count) {
    clef__text text = {0};
    clef__text_append(&text, "\n#define EACH_SEGMENT(X)");
    for (int i = 0; i < count; i++) clef__text_add(&text, " X(%d)", i);
    clef__text_append(&text, source);
    return text.data;
}

/* Where blocks are as of one tensor as large as all, and work-items as many. */
static partition partition_segments(const clef__lowering *lw, const int64_t *columns, int n) {
    int64_t total = 0;
    for (int i = 0; i < n; i++) total += columns[i];
    partition c = partition_rows(lw, 1, total, BUNDLED_WORK);
    int64_t blocks = 0;
    for (int i = 0; i < n; i++) blocks += clef__ceil_div(columns[i], c.block);
    if (clef__lower_profile(lw)->wide_items) c.per_item = clef__ceil_div(blocks, c.items);
    c.blocks = blocks;
    c.items = clef__ceil_div(blocks, c.per_item);
    return c;
}

/* Segment i of the open launch: that of another, or an empty one, for which its memory stands in. */
static void launch_member(const clef__lowering *lw, const clef__launch *from, int64_t position, bool empty) {
    clef__launch_long(lw, position);
    clef__launch_long(lw, empty ? 0 : from->arg[CLEF__PW_COLUMNS].number);
    for (int a = CLEF__PW_COLUMNS + 1; a < from->n_args; a++) {
        clef__arg arg = from->arg[a];
        if (empty && arg.kind == CLEF__ARG_CONSTANT) arg.captured = -1;
        if (empty) arg.bytes = 0;
        clef__launch_arg(lw, arg);
    }
}

/* The last member's segment lies at position 0, so nothing behind it is ever chosen. */
void clef__lower_bundle(clef__recorder *rec, const int *launch, int n, int count) {
    int64_t columns[CLEF__PW_SEGMENTS];
    clef__launch first = rec->plan->launch[launch[0]]; /* by value, as the array may move */
    for (int i = 0; i < n; i++) columns[i] = rec->plan->launch[launch[i]].arg[CLEF__PW_COLUMNS].number;
    clef__lowering view = {.rec = rec, .captured = -1, .device = first.device}, *lw = &view;
    partition c = partition_segments(lw, columns, n);
    clef__launch_begin(lw, NULL, CLEF__GENERATED);
    if (rec->failed) return;
    clef__launch_name(lw, first.label, false);
    rec->open->covers = n;
    rec->text = bundle_source(first.code->text, count);
    if (!rec->text) clef__record_fail(rec);
    launch_partition(lw, &c);
    int64_t position = c.blocks * c.block;
    for (int i = 0; i < count; i++) {
        position -= i < n ? clef__round_up(columns[i], c.block) : 0;
        launch_member(lw, &rec->plan->launch[launch[i < n ? i : n - 1]], position, i >= n);
    }
    clef__launch_end_1d(lw, c.items);
}
