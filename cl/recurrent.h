/* recurrent.h — what recurrent.cl and recurrent_back.cl share: the product of a tile, vectors at the end of a row, activations.

   The file defines GATES, and with it a tile: MR items of the batch by NV vectors of W lanes, U for each of TOGETHER gates.  The other
   gates' products follow, so that all gates of a unit meet in one work-item.

   Where the products are GIVEN, by a launch before this one, w is what they are: [GIVEN][B][GATES·H], the parts of each sum.  Then a
   work-item takes one panel of one item, and neighbours neighbouring panels, so that they read and write side by side. */
#ifndef GIVEN
#define GIVEN 0
#endif
#ifndef TOGETHER
#define TOGETHER GATES
#endif
#ifndef NV
#define NV TOGETHER
#endif
#define U (NV / TOGETHER)
#define S COMPUTE(IN)
#define V VEC(S, W)
#define T V
#define ELEMENT S
#define I VEC(MASK_OF(S), W)
#define MASK_OF(s) CAT(MASK_, s)

#define DEFINE_ENDS(dt, n) DEFINE_GATHER(dt, n) DEFINE_GATHER_SOME(dt, n) DEFINE_SCATTER_SOME(dt, n)
DEFINE_ENDS(DT, W)
#define IS_HALF_f32 0
#define IS_HALF_f64 0
#define IS_HALF_f16 1
#define IS_HALF_bf16 1
#if CAT(IS_HALF_, DT) /* storage is not what is computed in */
DEFINE_ENDS(IN, W)
#endif
/* `lanes` elements from p[i] on: a vector, or what is left of the row. */
#define TAKE(dt, p, i) (lanes == W ? LOAD(dt, W, p, i) : OF_PART(CAT(gather_some_, dt))((p) + (i), 1, lanes))
#define PUT(dt, p, i, v)                                                                               \
    {                                                                                                  \
        V value_put = v;                                                                               \
        if (lanes == W) STORE(dt, W, p, i, value_put);                                                 \
        else OF_PART(CAT(scatter_some_, dt))((p) + (i), 1, lanes, value_put);                                   \
    }

#define FMA(x, y, z) CAT(FMA_, IN)(x, y, z)
#if GIVEN
#define PART_OF_ITEMS ((int)(get_global_id(0) / (size_t)all_panels))
#define PART_OF_PANELS ((int)(get_global_id(0) % (size_t)all_panels))
static V add_parts(__global const S *part, long apart, int lanes) {
    V sum = TAKE(IN, part, 0);
    for (int i = 1; i < GIVEN; i++) sum += TAKE(IN, part, i * apart);
    return sum;
}
#define SUM(g)                                                                                         \
    (depth > 0 ? add_parts(w_base + w_offset + (long)row * (GATES * H) + (g) * H + column, (long)B * (GATES * H), lanes) : (V)(0))
#else
#define PART_OF_ITEMS ((int)get_global_id(0))
#define PART_OF_PANELS ((int)get_global_id(1))
/* Weights that no cache holds come in time if they are asked for so many bytes before.  Of several gates at once the device does so by itself. */
#define AHEAD 8192
/* sums[row][gate][u] = Σ_k a[row][k] · b[gate][k][u] of TOGETHER gates; rows beyond `left` repeat the last one. */
static void multiply(__global const S *a, long apart, int left, __global const S *b, long to_gate, int K, S *sums) {
#define ADDRESS(i) __global const S *a##i = a + min(i, left - 1) * apart;
#define START(i, j) V c##i##_##j = (V)(0);
#define START_ROW(i) COLUMNS(START, i)
    ROWS(ADDRESS)
    ROWS(START_ROW)
#define FETCH(k, j)                                                                                    \
    V b##j = LOAD(IN, W, b, (j / U) * to_gate + (k) * (U * W) + (j % U) * W);                          \
    if (TOGETHER == 1 && j * W * sizeof(S) % 64 == 0) PREFETCH_READ(b + (k) * (U * W) + j * W + AHEAD / sizeof(S));
#define MULTIPLY(i, j) c##i##_##j = FMA((V)(x), b##j, c##i##_##j);
#define STEP_ROW(i)                                                                                    \
    {                                                                                                  \
        S x = a##i[at];                                                                                \
        COLUMNS(MULTIPLY, i)                                                                           \
    }
#define STEP(k)                                                                                        \
    {                                                                                                  \
        long at = k;                                                                                   \
        COLUMNS(FETCH, at)                                                                             \
        ROWS(STEP_ROW)                                                                                 \
    }
    long k = 0;
    PLAIN_LOOP
    for (; k + 2 <= K; k += 2) {
        STEP(k)
        STEP(k + 1)
    }
    if (k < K) STEP(k)
#define SPILL(i, j) CAT(VSTORE_, W)(c##i##_##j, sums + (i * NV + j) * W);
#define SPILL_ROW(i) COLUMNS(SPILL, i)
    ROWS(SPILL_ROW)
}
#define SUM(g) CAT(VLOAD_, W)(sums + ((((g) / TOGETHER * MR + i) * TOGETHER + (g) % TOGETHER) * U + u) * W)
#endif

#define LET_SIGMOID(y, x)                                                                              \
    const V y##_of = x;                                                                                \
    LET(SIGMOID, y, y##_of)
#define LET_TANGENT(y, x)                                                                              \
    const V y##_of = x;                                                                                \
    LET(TANH, y, y##_of)

/* In which time a row is at a step; from its own length on it is beyond its end, and every time is its own. */
static int time_of(int at, int length, int backwards) { return at < length && backwards ? length - 1 - at : at; }

/* Vector `at` of a tile's sums: `lanes` units, from `column` on, of an item at a step.  There are none where a panel is wider than what is
   left of the units. */
#define LET_PLACE(of_step)                                                                             \
    const int i = at / U, u = at % U, row = first + i, column = panel * wide + u * W, lanes = min(W, H - column), step_at = of_step; \
    const int length = given & HAS_LENGTHS ? min(max(lengths_base[lengths_offset + row], 0), all) : all; \
    const long time = time_of(step_at, length, backwards);

/* Products with x, and what was saved of them, come from memory: they are asked for before the product with the state, unless the cache has
   to hold so many rows of weights in between. */
#define LEAVES_CACHED(rows) ((rows) * U * W * (int)sizeof(S) <= 131072)
