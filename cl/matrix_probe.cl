/* matrix_probe.cl — one product of a matrix unit by itself, from rows of A, columns of B and rows of C, all dense: for whoever wants
   to know whether the unit does what matrix_unit.h says.  IN: f16 or bf16. */
#include "common.h"
#define TILES_M 1
#define TILES_N 1
#include "matrix_unit.h"

__kernel __attribute__((reqd_work_group_size(LANES, 1, 1)))
void matrix_probe(__global const uint *a, __global const uint *b, __global float *c) {
    __local uint exchange[EXCHANGE(TILES_M, TILES_N)];
    int lane = (int)get_local_id(0);
#define A_PAIR(i) a[FRAGMENT_A_ROW(lane, i) * 8 + FRAGMENT_A_DEPTH(lane, i) / 2]
#define B_PAIR(i) b[FRAGMENT_B_COLUMN(lane) * 8 + FRAGMENT_B_DEPTH(lane, i) / 2]
#define C_AT(i) c[FRAGMENT_C_ROW(lane, i) * 8 + FRAGMENT_C_COLUMN(lane, i)]
    uint4 rows = (uint4)(A_PAIR(0), A_PAIR(1), A_PAIR(2), A_PAIR(3));
    uint2 columns = (uint2)(B_PAIR(0), B_PAIR(1));
    float4 sum = (float4)(C_AT(0), C_AT(1), C_AT(2), C_AT(3));
    SHOW_A(0, rows)
    SHOW_B(0, columns)
    MEET()
    MULTIPLY_FRAGMENTS(sum, 0, rows, 0, columns)
    C_AT(0) = sum.s0;
    C_AT(1) = sum.s1;
    C_AT(2) = sum.s2;
    C_AT(3) = sum.s3;
}
