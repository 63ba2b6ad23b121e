/* recurrent.h — a recurrent layer's steps as one op, and their gradient as another (ops/recurrent.c); the ways to launch them. */
#ifndef CLEF_KERNELS_RECURRENT_H
#define CLEF_KERNELS_RECURRENT_H
#include "plan/lower/lower.h"

typedef enum clef__cell { CLEF__CELL_TANH, CLEF__CELL_RELU, CLEF__CELL_LSTM, CLEF__CELL_GRU } clef__cell; /* CELL in cl/ */

/* Which inputs are there; `given` in cl/. */
enum {
    CLEF__HAS_H0 = 1, /* of the gradient: c0 for an LSTM, h0 for a GRU */
    CLEF__HAS_C0 = 2,
    CLEF__HAS_LENGTHS = 4,
    CLEF__HAS_BIAS = 8,
    CLEF__HAS_GY = 16,
    CLEF__HAS_GH = 32,
    CLEF__HAS_GC = 64,
    CLEF__HAS_SAVED = 128
};

/* Inputs x [t,b,gates·H] (batch_first: [b,t,…]), w [gates·H,H], then those of bias [H], h0, c0 [b,H], lengths [b] that are given.
   Outputs y [t,b,H], h [b,H], of an LSTM c [b,H], of LSTM and GRU what backward needs, [t,b,saved·H].
   Of the gradient: inputs y, w, then those of saved, first, lengths, gy, gh, gc; outputs dx, dh, of an LSTM dc, of a GRU dg like dx. */
typedef struct clef__recurrence {
    int64_t cell, given, backwards, batch_first;
} clef__recurrence;

static inline int64_t clef__cell_gates(int64_t cell) { return cell == CLEF__CELL_LSTM ? 4 : cell == CLEF__CELL_GRU ? 3 : 1; }
static inline int64_t clef__cell_saved(int64_t cell) { return cell == CLEF__CELL_LSTM ? 5 : cell == CLEF__CELL_GRU ? 4 : 0; }

extern const clef__strategy *const clef__recurrent_strategies[];
extern const clef__strategy *const clef__recurrent_back_strategies[];
#endif
