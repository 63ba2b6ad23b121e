/* transpose.h — W vectors of W lanes transposed in registers: TRANSPOSE(a, b) of variables a0 … and b0 … of the type VEC(S, W); the
   result is in TURNED(a, b, i).  Each round laces the vectors i and i + W/2 into neighbours. */
#include "registers.h"

#define LACED(f, t, i, j, x, y) LACE(W, t##x, t##y, f##i, f##j)
#define ROUND_2(f, t) LACED(f, t, 0, 1, 0, 1)
#define ROUND_4(f, t) LACED(f, t, 0, 2, 0, 1) LACED(f, t, 1, 3, 2, 3)
#define ROUND_8(f, t) LACED(f, t, 0, 4, 0, 1) LACED(f, t, 1, 5, 2, 3) LACED(f, t, 2, 6, 4, 5) LACED(f, t, 3, 7, 6, 7)
#define ROUND_16(f, t)                                                                                 \
    LACED(f, t, 0, 8, 0, 1) LACED(f, t, 1, 9, 2, 3) LACED(f, t, 2, 10, 4, 5) LACED(f, t, 3, 11, 6, 7)      \
    LACED(f, t, 4, 12, 8, 9) LACED(f, t, 5, 13, 10, 11) LACED(f, t, 6, 14, 12, 13) LACED(f, t, 7, 15, 14, 15)
#define TRANSPOSE_1(a, b)
#define TRANSPOSE_2(a, b) ROUND_2(a, b)
#define TRANSPOSE_4(a, b) ROUND_4(a, b) ROUND_4(b, a)
#define TRANSPOSE_8(a, b) ROUND_8(a, b) ROUND_8(b, a) ROUND_8(a, b)
#define TRANSPOSE_16(a, b) ROUND_16(a, b) ROUND_16(b, a) ROUND_16(a, b) ROUND_16(b, a)
#define TRANSPOSE(a, b) CAT(TRANSPOSE_, W)(a, b)
#define TURNED_1(a, b) a
#define TURNED_2(a, b) b
#define TURNED_4(a, b) a
#define TURNED_8(a, b) b
#define TURNED_16(a, b) a
#define TURNED(a, b) CAT(TURNED_, W)(a, b)
#define LINES(X) CAT(ROWS_, W)(X)
