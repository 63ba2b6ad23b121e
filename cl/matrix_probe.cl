/* matrix_probe.cl — one product of a matrix unit by itself, from rows of A, columns of B and rows of C, all dense: for whoever wants
   to know whether the unit does what matrix_unit.h says.  IN: f16, bf16 or f32. */
#include "common.h"
#define TILES_M 1
#define TILES_N 4
#include "matrix_unit.h"
#include "copies.h"
enum { ROW = 3 * RUN, ACROSS = 24 }; /* elements from one row in local memory to the next, along k and across */

__kernel __attribute__((reqd_work_group_size(LANES, 1, 1)))
void matrix_probe(__global const RAW *a_bits, __global const RAW *b_bits, __global float *c) {
    __local uint exchange[EXCHANGE(TILES_M, TILES_N)];
    int lane = (int)get_local_id(0);
#define C_AT(i) c[FRAGMENT_C_ROW(lane, i) * 8 + FRAGMENT_C_COLUMN(lane, i)]
    /* Of local memory, A along k and across. */
    __local uint4 straight[16 * ROW / RUN], crossed[UNIT_DEPTH * ACROSS / RUN], columns_b[8 * ROW / RUN];
    __local RAW *a_cells = (__local RAW *)straight, *across = (__local RAW *)crossed, *b_cells = (__local RAW *)columns_b;
    for (int i = lane; i < 16 * UNIT_DEPTH; i += LANES)
        a_cells[i / UNIT_DEPTH * ROW + i % UNIT_DEPTH] = across[i % UNIT_DEPTH * ACROSS + i / UNIT_DEPTH] = a_bits[i];
    /* Half of the work-items copy B, the others zeros to where there are none. */
    __local uint4 cleared[LANES / 2];
    bool has = lane < LANES / 2;
    if (!has) cleared[lane - LANES / 2] = (uint4)(1);
    barrier(CLK_LOCAL_MEM_FENCE);
    __local RAW *to = has ? b_cells + lane / 2 * ROW + lane % 2 * RUN : (__local RAW *)(cleared + (lane - LANES / 2));
    COPY(to, b_bits + lane % 16 * RUN, has, true)
    END_COPIES()
    AWAIT_COPIES(0)
#if IN_WORD == 2
    int across_at = (lane / 16 * 8 + lane % 8) * ACROSS + lane / 8 % 2 * 8;
#else
    int across_at = lane % 4 * ACROSS + lane / 4;
#endif
    int a_at = (lane / 8 % 2 * 8 + lane % 8) * ROW + lane / 16 * RUN, b_at = lane % 8 * ROW + lane / 8 % 2 * RUN;
    NAME_BLOCKS(0, a_at)
    NAME_BLOCKS(1, across_at)
    NAME_BLOCKS(2, b_at)
    barrier(CLK_LOCAL_MEM_FENCE);
    uint4 rows = LOAD_BLOCKS(0, 1, a_cells, a_at, 0, 0), again = LOAD_BLOCKS(1, 0, across, across_at, 8, 4 * ACROSS),
          both = LOAD_BLOCKS(2, 1, b_cells, b_at, 0, 0);
    uint2 columns = both.lo;
    float4 sum = (float4)(C_AT(0), C_AT(1), C_AT(2), C_AT(3));
    SHOW_A(0, rows)
    SHOW_B(0, columns)
    MEET()
    MULTIPLY_FRAGMENTS(sum, 0, rows, 0, columns)
    if (any(cleared[lane % (LANES / 2)] != (uint4)(0)) || any(rows != again) || both.s0 != both.s2 || both.s1 != both.s3) sum = (float4)(NAN);
    C_AT(0) = sum.s0;
    C_AT(1) = sum.s1;
    C_AT(2) = sum.s2;
    C_AT(3) = sum.s3;
}
