/* moving.cl — a window whose place is a number that may change from step to step: read out of a tensor, or written into one.

   Elements are moved as they are, so their size is all that counts.
   DT: u8, bf16, i32 or i64 (of 1, 2, 4 and 8 bytes).  IT: i32 or i64 (of the number in memory).  HOST: 1: the number is an argument.
   W: lanes of a vector along a row, or 1, where elements may lie apart. */
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
#if HOST
#define START long number
#define NUMBER number
#else
#define START __global const MEMORY(IT) *number, long number_at
#define NUMBER (long)number[number_at]
#endif
#define OUTER(d) long n##d, long from##d, long to##d
#define STEP_OUT(d) i = row % n##d; row /= n##d; x += i * from##d; y += i * to##d;

/* to[row, c] = from[row, c] in a window of rows of `columns` elements.  `from` begins NUMBER · from_step further on, `to` NUMBER ·
   to_step; a number outside 0 … most counts as the nearest within.  A unit is one of `blocks` blocks of a row. */
__kernel void move_window(__global const MEMORY(DT) *from, long from_at, __global MEMORY(DT) *to, long to_at, START, long most,
                          long from_step, long to_step, OUTER(0), OUTER(1), OUTER(2), OUTER(3), OUTER(4), OUTER(5), OUTER(6),
                          long columns, long from_column, long to_column, long block, long blocks, long per, long units) {
    long u = (long)get_global_id(0) * per, last = min(units, u + per), start = clamp(NUMBER, 0L, most);
    long from_start = from_at + start * from_step, to_start = to_at + start * to_step;
    for (; u < last; u++) {
        long row = u / blocks, c = u % blocks * block, end = min(columns, c + block), x = from_start, y = to_start, i;
        STEP_OUT(6) STEP_OUT(5) STEP_OUT(4) STEP_OUT(3) STEP_OUT(2) STEP_OUT(1) STEP_OUT(0)
#if W > 1
        for (; c + W <= end; c += W) CAT(VSTORE_, W)(CAT(VLOAD_, W)(from + x + c), to + y + c);
#endif
        for (; c < end; c++) to[y + c * to_column] = from[x + c * from_column];
    }
}
