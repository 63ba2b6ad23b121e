/* winograd_tile.h — F(TILE×TILE, 3×3) of winograd_fused.cl: what its matrices G, Bᵀ, A make of a line of values.

   A tile has SIDE×SIDE places.  Those of F(4×4, 3×3) stand for the points 0, ±1, ±2 and ∞; its G is three times the usual one, so that no
   third is rounded, and results are brought back by DOWN_TO_SIZE: whole numbers stay exact as long as sums have 24 bits. */
#if TILE == 4
#define SIDE 6
/* G: three taps, six places */
#define FILTER_LINE(h0, h1, h2, h3, h4, h5, g0, g1, g2)                                            \
    V h0 = 0.75f * g0, h5 = 3 * g2, h1##s = -0.5f * (g0 + g2), h1 = h1##s - 0.5f * g1, h2 = h1##s + 0.5f * g1, \
      h3##s = 0.125f * g0 + 0.5f * g2, h3 = h3##s + 0.25f * g1, h4 = h3##s - 0.25f * g1;
/* Bᵀ: six pixels, six places */
#define IMAGE_LINE(e0, e1, e2, e3, e4, e5, d0, d1, d2, d3, d4, d5)                                 \
    V e0 = 4 * d0 - 5 * d2 + d4, e5 = 4 * d1 - 5 * d3 + d5, e1##s = d4 - 4 * d2, e1##t = d3 - 4 * d1, e1 = e1##s + e1##t, \
      e2 = e1##s - e1##t, e3##s = d4 - d2, e3##t = 2 * (d3 - d1), e3 = e3##s + e3##t, e4 = e3##s - e3##t;
/* Aᵀ: six places, four results */
#define RESULT_LINE(t0, t1, t2, t3, m0, m1, m2, m3, m4, m5)                                        \
    V t0##s = m1 + m2, t0##d = m1 - m2, t0##u = m3 + m4, t0##v = m3 - m4, t0 = m0 + t0##s + t0##u, t1 = t0##d + 2 * t0##v, \
      t2 = t0##s + 4 * t0##u, t3 = t0##d + 8 * t0##v + m5;
/* A: four results, six places */
#define GRADIENT_LINE(r0, r1, r2, r3, r4, r5, y0, y1, y2, y3)                                      \
    V r0 = y0, r5 = y3, r1##s = y0 + y2, r1##t = y1 + y3, r1 = r1##s + r1##t, r2 = r1##s - r1##t, r3##s = y0 + 4 * y2, \
      r3##t = 2 * y1 + 8 * y3, r3 = r3##s + r3##t, r4 = r3##s - r3##t;
/* Gᵀ: six places, three taps */
#define TAP_LINE(q0, q1, q2, u0, u1, u2, u3, u4, u5)                                               \
    V q0##s = 0.5f * (u1 + u2), q0##t = u3 + u4, q0 = 0.75f * u0 - q0##s + 0.125f * q0##t,         \
      q1 = 0.5f * (u2 - u1) + 0.25f * (u3 - u4), q2 = 3 * u5 - q0##s + 0.5f * q0##t;
#define FILTERS_DOWN(h, g, j) FILTER_LINE(h##0##j, h##1##j, h##2##j, h##3##j, h##4##j, h##5##j, g##0##j, g##1##j, g##2##j)
#define FILTERS_ACROSS(h, g, i) FILTER_LINE(h##i##0, h##i##1, h##i##2, h##i##3, h##i##4, h##i##5, g##i##0, g##i##1, g##i##2)
#define IMAGE_DOWN(e, d, j)                                                                        \
    IMAGE_LINE(e##0##j, e##1##j, e##2##j, e##3##j, e##4##j, e##5##j, d##0##j, d##1##j, d##2##j, d##3##j, d##4##j, d##5##j)
#define IMAGE_ACROSS(e, d, i)                                                                      \
    IMAGE_LINE(e##i##0, e##i##1, e##i##2, e##i##3, e##i##4, e##i##5, d##i##0, d##i##1, d##i##2, d##i##3, d##i##4, d##i##5)
#define RESULTS_DOWN(t, m, j)                                                                      \
    RESULT_LINE(t##0##j, t##1##j, t##2##j, t##3##j, m##0##j, m##1##j, m##2##j, m##3##j, m##4##j, m##5##j)
#define RESULTS_ACROSS(t, m, i)                                                                    \
    RESULT_LINE(t##i##0, t##i##1, t##i##2, t##i##3, m##i##0, m##i##1, m##i##2, m##i##3, m##i##4, m##i##5)
#define GRADIENT_DOWN(r, y, j)                                                                     \
    GRADIENT_LINE(r##0##j, r##1##j, r##2##j, r##3##j, r##4##j, r##5##j, y##0##j, y##1##j, y##2##j, y##3##j)
#define GRADIENT_ACROSS(r, y, i)                                                                   \
    GRADIENT_LINE(r##i##0, r##i##1, r##i##2, r##i##3, r##i##4, r##i##5, y##i##0, y##i##1, y##i##2, y##i##3)
#define TAPS_DOWN(q, u, j) TAP_LINE(q##0##j, q##1##j, q##2##j, u##0##j, u##1##j, u##2##j, u##3##j, u##4##j, u##5##j)
#define TAPS_ACROSS(q, u, i) TAP_LINE(q##i##0, q##i##1, q##i##2, u##i##0, u##i##1, u##i##2, u##i##3, u##i##4, u##i##5)
/* A ninth, exact where it is a float. */
static V down_to_size(V x) {
    V ninth = x * (1 / 9.0f);
    return fma(fma((V)(-9), ninth, x), (V)(1 / 9.0f), ninth);
}
#define DOWN_TO_SIZE(x) down_to_size(x)
#else
#define SIDE 4
#define DOWN_TO_SIZE(x) (x)
#define FILTER_LINE(h0, h1, h2, h3, g0, g1, g2)                                                    \
    V h0 = g0, h3 = g2, h1##s = 0.5f * (g0 + g2), h1 = h1##s + 0.5f * g1, h2 = h1##s - 0.5f * g1;
#define IMAGE_LINE(e0, e1, e2, e3, d0, d1, d2, d3) V e0 = d0 - d2, e1 = d1 + d2, e2 = d2 - d1, e3 = d1 - d3;
#define RESULT_LINE(t0, t1, m0, m1, m2, m3) V t0 = m0 + m1 + m2, t1 = m1 - m2 - m3;
#define GRADIENT_LINE(r0, r1, r2, r3, y0, y1) V r0 = y0, r1 = y0 + y1, r2 = y0 - y1, r3 = -y1;
#define TAP_LINE(q0, q1, q2, u0, u1, u2, u3)                                                       \
    V q0##s = 0.5f * (u1 + u2), q0 = u0 + q0##s, q1 = 0.5f * (u1 - u2), q2 = u3 + q0##s;
#define FILTERS_DOWN(h, g, j) FILTER_LINE(h##0##j, h##1##j, h##2##j, h##3##j, g##0##j, g##1##j, g##2##j)
#define FILTERS_ACROSS(h, g, i) FILTER_LINE(h##i##0, h##i##1, h##i##2, h##i##3, g##i##0, g##i##1, g##i##2)
#define IMAGE_DOWN(e, d, j) IMAGE_LINE(e##0##j, e##1##j, e##2##j, e##3##j, d##0##j, d##1##j, d##2##j, d##3##j)
#define IMAGE_ACROSS(e, d, i) IMAGE_LINE(e##i##0, e##i##1, e##i##2, e##i##3, d##i##0, d##i##1, d##i##2, d##i##3)
#define RESULTS_DOWN(t, m, j) RESULT_LINE(t##0##j, t##1##j, m##0##j, m##1##j, m##2##j, m##3##j)
#define RESULTS_ACROSS(t, m, i) RESULT_LINE(t##i##0, t##i##1, m##i##0, m##i##1, m##i##2, m##i##3)
#define GRADIENT_DOWN(r, y, j) GRADIENT_LINE(r##0##j, r##1##j, r##2##j, r##3##j, y##0##j, y##1##j)
#define GRADIENT_ACROSS(r, y, i) GRADIENT_LINE(r##i##0, r##i##1, r##i##2, r##i##3, y##i##0, y##i##1)
#define TAPS_DOWN(q, u, j) TAP_LINE(q##0##j, q##1##j, q##2##j, u##0##j, u##1##j, u##2##j, u##3##j)
#define TAPS_ACROSS(q, u, i) TAP_LINE(q##i##0, q##i##1, q##i##2, u##i##0, u##i##1, u##i##2, u##i##3)
#endif
#define PLACES (SIDE * SIDE)
#define ALL ((1 << SIDE) - 1) /* rows or columns of a tile */
/* A list of all lines of a tile, of its places in line i; the same of results. */
#define SIDES(X) CAT(ROWS_, SIDE)(X)
#define LINE_OF(X, i) CAT(COLUMNS_, SIDE)(X, i)
#define TILES(X) CAT(ROWS_, TILE)(X)
#define TILE_LINE(X, i) CAT(COLUMNS_, TILE)(X, i)
