/* softmax_teams.cl — softmax and log-softmax of x [outer, n, inner] over n, and their gradients, for devices that read in one go what
   work-items side by side ask for, and wait long for it.

   A team (lanes.h) shares `strip` columns of one (outer, split): each member goes down its lines of one column, eight under way at a
   time, the team joins what its members found, and each goes down its lines again with the results; what was read lies in a cache.
   Softmax of columns too few to keep a device busy goes in three launches: parts, whole, results.
   Knobs: DT: f32 f16 bf16 f64.  AT: f32 or f64, in which DT is computed.  LOG: 1 for the logarithm.  TEAM: lanes.h.
   Checked with: LOG=1; TEAM=256; LOG=1 TEAM=256. */
#ifndef DT
#define DT f32
#endif
#ifndef AT
#define AT CAT(WIDE_, DT)
#endif
#ifndef TEAM
#define TEAM 64
#endif
#ifndef W
#define W 1 /* members stand side by side */
#endif
#define CALLS_MATH
#include "common.h"
#define IN_PLACE
#include "args.h"
#include "softmax_teams.args"

#define A COMPUTE(DT)
#include "lanes.h"
#include "softmax.h"

DEFINE_COLUMN_FOLD(max, LARGER)
DEFINE_COLUMN_FOLD(sum, PLUS)

/* ---- where a member stands ---- */

/* Declares for a team, which takes one unit of a cut: its row, split and first column; the member's column c and its first line, the
   lines from there on, `down` apart, that it takes, and how far apart these lie.  A member without a column takes no line. */
#define PLACE                                                                                    \
    const long u = (long)get_group_id(0), strips = (inner + strip - 1) / strip, part = u / strips, first = (u - part * strips) * strip; \
    const long row = part / splits, from = (part - row * splits) * chunk, count = min(chunk, n - from); \
    const int across = (int)strip, c = (int)MEMBER % across, line = (int)MEMBER / across, down = DOWN(across); \
    const long pace = down * inner, at = (row * n + from + line) * inner + first + c; \
    const bool has_column = c < inner - first;                                                   \
    const long lines = has_column ? (count - line + down - 1) / down : 0;
#define LEADS_COLUMN (line == 0 && has_column) /* who stores what there is once of a column */
/* Where that lies in [outer, inner], and what there is once of a column and a split in [outer, splits, inner]. */
#define COLUMN_AT (row * inner + first + c)
#define PART_AT (part * inner + first + c)

/* Lines i to i + 7 of a member's: as many as there are, up to i + last; STEP(k): how far on line i + k, or the last one, lies. */
#define EIGHT(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define LAST ((int)min(8L, lines - i) - 1)
#define STEP(k) ((i + min(k, last)) * pace)

/* ---- the passes over a member's lines ---- */

typedef struct { A top, sum; } joined;

/* The maximum, and the sum of exponentials about it.  A NaN need not win in the first, as it reaches the second. */
#define LOAD_LINE(k) A v##k = LOAD(DT, 1, x, STEP(k));
#define DROP_LINE(k) v##k = k > last ? (A)(-INFINITY) : v##k;
#define RAISE(k) top = fmax(top, v##k);
#define ADD_LINE(k) more += EXP(1, v##k - about);
static joined join_lines(__global const MEMORY(DT) *x, long lines, long pace) {
    A top = -INFINITY, sum = 0;
    for (long i = 0; i < lines; i += 8) {
        const int last = LAST;
        A before = top, more = 0;
        EIGHT(LOAD_LINE)
        EIGHT(DROP_LINE)
        EIGHT(RAISE)
        A about = ABOUT(top);
        EIGHT(ADD_LINE)
        sum = fma(sum, EXP(1, before - about), more);
    }
    joined found = {top, sum};
    return found;
}

/* y may lie where x does, so every load comes before a store. */
#define PUT_LINE(k)                                                                              \
    if (k <= last) STORE(DT, 1, y, STEP(k), RESULT(1, v##k - about, scale));
static void put_lines(__global const MEMORY(DT) *x, __global MEMORY(DT) *y, long lines, long pace, A about, A scale) {
    for (long i = 0; i < lines; i += 8) {
        const int last = LAST;
        EIGHT(LOAD_LINE)
        EIGHT(PUT_LINE)
    }
}

#define LOAD_BOTH(k) A g##k = LOAD(DT, 1, g, STEP(k)), y##k = LOAD(DT, 1, y, STEP(k));
#define ADD_PART(k) more += k > last ? (A)0 : PART(g##k, y##k);
static A sum_parts(__global const MEMORY(DT) *y, __global const MEMORY(DT) *g, long lines, long pace) {
    A sum = 0;
    for (long i = 0; i < lines; i += 8) {
        const int last = LAST;
        A more = 0;
        EIGHT(LOAD_BOTH)
        EIGHT(ADD_PART)
        sum += more;
    }
    return sum;
}

#define PUT_SLOPE(k)                                                                             \
    if (k <= last) STORE(DT, 1, dx, STEP(k), SLOPE(1, g##k, y##k, s));
static void put_slopes(__global const MEMORY(DT) *y, __global const MEMORY(DT) *g, __global MEMORY(DT) *dx, long lines, long pace, A s) {
    for (long i = 0; i < lines; i += 8) {
        const int last = LAST;
        EIGHT(LOAD_BOTH)
        EIGHT(PUT_SLOPE)
    }
}

/* ---- kernels ---- */

/* Declares the maximum of a column and its sum about that, of what the members found. */
#define JOIN_MEMBERS(found)                                                                      \
    A top = OF_COLUMN(max, across, found.top), about = ABOUT(top);                               \
    A sum = OF_COLUMN(sum, across, found.sum * EXP(1, found.top - about));

ROWS_KERNEL(team_softmax, TEAM_SOFTMAX_ARGS) {
    UNPACK(TEAM_SOFTMAX_ARGS)
    TEAM_CELLS
    PLACE
    joined found = join_lines(x_base + x_offset + at, lines, pace);
    JOIN_MEMBERS(found)
    put_lines(x_base + x_offset + at, y_base + y_offset + at, lines, pace, about, SCALE(sum));
}

/* Maximum and sum of every split, [outer, splits, inner]. */
ROWS_KERNEL(team_parts, TEAM_PARTS_ARGS) {
    UNPACK(TEAM_PARTS_ARGS)
    TEAM_CELLS
    PLACE
    joined found = join_lines(x_base + x_offset + at, lines, pace);
    JOIN_MEMBERS(found)
    if (LEADS_COLUMN) {
        STORE(AT, 1, top_base, top_offset + PART_AT, top);
        STORE(AT, 1, sum_base, sum_offset + PART_AT, sum);
    }
}

/* Those of whole columns, [outer, inner]; there are n splits.  In place of the sum: what scales the results. */
ROWS_KERNEL(team_whole, TEAM_WHOLE_ARGS) {
    UNPACK(TEAM_WHOLE_ARGS)
    TEAM_CELLS
    PLACE
    __global const MEMORY(AT) *tops = top_base + top_offset + at, *sums = sum_base + sum_offset + at;
    joined found = {-INFINITY, 0};
    for (long i = 0; i < lines; i++) {
        A v = LOAD(AT, 1, tops, i * pace);
        found.top = fmax(found.top, v);
    }
    A own = ABOUT(found.top);
    for (long i = 0; i < lines; i++) found.sum += LOAD(AT, 1, sums, i * pace) * EXP(1, LOAD(AT, 1, tops, i * pace) - own);
    JOIN_MEMBERS(found)
    if (LEADS_COLUMN) {
        STORE(AT, 1, about_base, about_offset + COLUMN_AT, about);
        STORE(AT, 1, scale_base, scale_offset + COLUMN_AT, SCALE(sum));
    }
}

ROWS_KERNEL(team_results, TEAM_RESULTS_ARGS) {
    UNPACK(TEAM_RESULTS_ARGS)
    PLACE
    if (has_column)
        put_lines(x_base + x_offset + at, y_base + y_offset + at, lines, pace, LOAD(AT, 1, about_base, about_offset + COLUMN_AT),
                  LOAD(AT, 1, scale_base, scale_offset + COLUMN_AT));
}

ROWS_KERNEL(team_slope, TEAM_SLOPE_ARGS) {
    UNPACK(TEAM_SLOPE_ARGS)
    TEAM_CELLS
    PLACE
    A s = OF_COLUMN(sum, across, sum_parts(y_base + y_offset + at, g_base + g_offset + at, lines, pace));
    put_slopes(y_base + y_offset + at, g_base + g_offset + at, dx_base + dx_offset + at, lines, pace, s);
}
