/* moving.cl — a window whose place is a number that may change from step to step: read out of a tensor, or written into one.

   Elements are moved as they are, so their size is all that counts.
   DT: u8, bf16, i32 or i64 (of 1, 2, 4 and 8 bytes).  IT: i32 or i64 (of the number in memory).  HOST: 1: the number is an argument.
   W: lanes of a vector along a row, or 1, where elements may lie apart.
   Checked with: HOST=1; W=1. */
#ifndef DT
#define DT i32
#endif
#ifndef IT
#define IT i64
#endif
#ifndef HOST
#define HOST 0
#endif
#ifndef W
#define W 1
#endif
#include "common.h"
#define IN_PLACE
#include "args.h"
#include "moving.args"
/* The number, and sizes and strides of the seven dimensions around a row. */
#if HOST
#define PARAMETER_START(name, none)
#define NUMBERS_START(N, name, none) N(long, name)
#define NUMBER number
#else
#define PARAMETER_START(name, none) PARAMETER_READ(name, IT)
#define NUMBERS_START(N, name, none) N(long, name##_offset)
#define NUMBER (long)number_base[number_offset]
#endif
#define DIMENSION(N, d) N(long, n##d) N(long, from##d) N(long, to##d)
#define PARAMETER_OUTER(name, none)
#define NUMBERS_OUTER(N, name, none)                                                                         \
    DIMENSION(N, 0) DIMENSION(N, 1) DIMENSION(N, 2) DIMENSION(N, 3) DIMENSION(N, 4) DIMENSION(N, 5) DIMENSION(N, 6)
#define STEP_OUT(d) i = row % n##d; row /= n##d; x += i * from##d; y += i * to##d;

/* to[row, c] = from[row, c] in a window of rows of `columns` elements.  `from` begins NUMBER · from_step further on, `to` NUMBER ·
   to_step; a number outside 0 … most counts as the nearest within.  A unit is one of `blocks` blocks of a row. */
KERNEL(move_window, MOVE_WINDOW_ARGS) {
    UNPACK(MOVE_WINDOW_ARGS)
    long u = (long)get_global_id(0) * per, last = min(units, u + per), start = clamp(NUMBER, 0L, most);
    long from_start = from_offset + start * from_step, to_start = to_offset + start * to_step;
    for (; u < last; u++) {
        long row = u / blocks, c = u % blocks * block, end = min(columns, c + block), x = from_start, y = to_start, i;
        STEP_OUT(6) STEP_OUT(5) STEP_OUT(4) STEP_OUT(3) STEP_OUT(2) STEP_OUT(1) STEP_OUT(0)
#if W > 1
        for (; c + W <= end; c += W) CAT(VSTORE_, W)(CAT(VLOAD_, W)(from_base + x + c), to_base + y + c);
#endif
        for (; c < end; c++) to_base[y + c * to_column] = from_base[x + c * from_column];
    }
}
