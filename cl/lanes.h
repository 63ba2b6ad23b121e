/* lanes.h — what kernels that work along rows share: vectors V of W lanes of the computing type A (both theirs), joined to one
   number; loops of vectors and of what is left behind them; rows that a work-group shares. */

/* The dtype in which many elements of another are joined. */
#define WIDE_f32 f32
#define WIDE_f16 f32
#define WIDE_bf16 f32
#define WIDE_f64 f64
#define WIDE_i32 i64
#define WIDE_i64 i64
#define WIDE_u8 i64
#define WIDE_bool i64

/* DEFINE_FOLD(name, JOIN): A name(V v) joins halves with halves, in a fixed order. */
#define FOLD_1(JOIN, v) return v;
#define FOLD_2(JOIN, v) return JOIN(v.x, v.y);
#define FOLD_4(JOIN, v) VEC(A, 2) v2 = JOIN(v.lo, v.hi); FOLD_2(JOIN, v2)
#define FOLD_8(JOIN, v) VEC(A, 4) v4 = JOIN(v.lo, v.hi); FOLD_4(JOIN, v4)
#define FOLD_16(JOIN, v) VEC(A, 8) v8 = JOIN(v.lo, v.hi); FOLD_8(JOIN, v8)
#define DEFINE_FOLD(name, JOIN) static A name(V v) { CAT(FOLD_, W)(JOIN, v) }
#define PLUS(a, b) ((a) + (b))
/* NaN wins over every number. */
#define LARGER(a, x) ((((x) > (a)) | ((x) != (x))) ? (x) : (a))

/* ---- rows of a team ----
   TEAM: the work-items of a work-group, 64 or 256, all on one row; or 1, where each has rows of its own.  Members take elements side
   by side (W is 1), so what a member reads begins at MEMBER and goes on by PACE.  OF_TEAM(name, v) joins what each found, in a
   fixed order, and gives it to all: every member must come there.  With SUBGROUP: within sub-groups by shuffle.h, and only what each
   of these found in local memory; else all of it. */
#ifndef TEAM
#define TEAM 1
#endif
#define PACE (W * TEAM)
#if TEAM > 1
#include "shuffle.h"
#define MEMBER ((long)get_local_id(0))
#define FIRST_ROW ((long)get_group_id(0) * per)
#ifndef ROWS_SIZE
#define ROWS_SIZE GROUP_OF /* or what a file has in its place */
#endif
#define ROWS_KERNEL(name, LIST) KERNEL_WITH(ROWS_SIZE(TEAM) IN_SUBGROUPS, name, LIST)
#define TEAM_CELLS __local A team_cells[TEAM];
#ifdef SUBGROUP
/* Joins what lies distances of SUBGROUP / 2 to `least` apart, the lower lane's value first; the first `least` lanes of a sub-group then
   have all of it.  (What others have counts no more: they may have been the upper of a pair.) */
#ifdef SWAP
#define JOIN_SUBGROUP(JOIN, least)                                                               \
    for (int distance = SUBGROUP / 2; distance >= least; distance /= 2) {                        \
        A above = SWAP(v, distance);                                                             \
        v = JOIN(v, above);                                                                      \
    }
#else
#define JOIN_SUBGROUP(JOIN, least)                                                               \
    cells[member] = v;                                                                           \
    barrier(CLK_LOCAL_MEM_FENCE);                                                                \
    for (int apart = member % SUBGROUP == 0 ? SUBGROUP / 2 : 0; apart >= least; apart /= 2)      \
        for (int i = member; i < member + apart; i++) {                                          \
            A low = cells[i], above = cells[i + apart];                                          \
            cells[i] = JOIN(low, above);                                                         \
        }                                                                                        \
    barrier(CLK_LOCAL_MEM_FENCE);                                                                \
    v = cells[member];                                                                           \
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
#define DEFINE_TEAM_FOLD(name, JOIN)                                                             \
    static A OF_PART(name##_of_team)(__local A *cells, A v) {                                             \
        int member = (int)get_local_id(0);                                                       \
        JOIN_SUBGROUP(JOIN, 1)                                                                   \
        if (member % SUBGROUP == 0) cells[member / SUBGROUP] = v;                                \
        barrier(CLK_LOCAL_MEM_FENCE);                                                            \
        v = cells[0];                                                                            \
        for (int i = 1; i < TEAM / SUBGROUP; i++) v = JOIN(v, cells[i]);                         \
        barrier(CLK_LOCAL_MEM_FENCE); /* before the next use of the cells */                     \
        return v;                                                                                \
    }
#else
#define TEAM_ROOT (TEAM == 64 ? 8 : 16) /* the first so many join TEAM / TEAM_ROOT cells each, then all join theirs */
#define DEFINE_TEAM_FOLD(name, JOIN)                                                             \
    static A OF_PART(name##_of_team)(__local A *cells, A v) {                                             \
        int member = (int)get_local_id(0);                                                       \
        cells[member] = v;                                                                       \
        barrier(CLK_LOCAL_MEM_FENCE);                                                            \
        if (member < TEAM_ROOT) {                                                                \
            for (int i = member + TEAM_ROOT; i < TEAM; i += TEAM_ROOT) v = JOIN(v, cells[i]);    \
            cells[member] = v;                                                                   \
        }                                                                                        \
        barrier(CLK_LOCAL_MEM_FENCE);                                                            \
        v = cells[0];                                                                            \
        for (int i = 1; i < TEAM_ROOT; i++) v = JOIN(v, cells[i]);                               \
        barrier(CLK_LOCAL_MEM_FENCE); /* before the next use of the cells */                     \
        return v;                                                                                \
    }
#endif
#define OF_TEAM(name, v) OF_PART(name##_of_team)(team_cells, v)
#define TEAM_PARAMETER , __local A *team_cells /* of a function that calls OF_TEAM */
#define TEAM_ARGUMENT , team_cells
#else
#define MEMBER 0L
#define FIRST_ROW ((long)get_global_id(0) * per)
#define ROWS_KERNEL KERNEL
#define TEAM_CELLS
#define DEFINE_TEAM_FOLD(name, JOIN)
#define OF_TEAM(name, v) (v)
#define TEAM_PARAMETER
#define TEAM_ARGUMENT
#endif
#define LEADS (MEMBER == 0) /* who stores what there is once of a row */

/* HELD: so many elements of a row, 4, 8, 16 or 32, a member of a team holds in variables, so that a row comes from memory once and is looked
   at as often as wanted; 0: rows of any length, read again.  EACH_HELD(X): X(k) for each of them, element PLACE(k) where it HAS(k).  By names, as
   rusticl loses what is written into unrolled private arrays. */
#ifndef HELD
#define HELD 0
#endif
#if HELD
#define PLACE(k) (MEMBER + (k) * TEAM)
#define HAS(k) (PLACE(k) < n)
#define HELD_FROM(X, a, b, c, d) X(a) X(b) X(c) X(d)
#define HELD_4(X) HELD_FROM(X, 0, 1, 2, 3)
#define HELD_8(X) HELD_4(X) HELD_FROM(X, 4, 5, 6, 7)
#define HELD_16(X) HELD_8(X) HELD_FROM(X, 8, 9, 10, 11) HELD_FROM(X, 12, 13, 14, 15)
#define HELD_32(X) HELD_16(X) HELD_FROM(X, 16, 17, 18, 19) HELD_FROM(X, 20, 21, 22, 23) HELD_FROM(X, 24, 25, 26, 27) HELD_FROM(X, 28, 29, 30, 31)
#define EACH_HELD(X) CAT(HELD_, HELD)(X)
#endif

/* ---- columns of a team ----
   A team may share `across` columns of [n, inner] (a power of two, at most TEAM): so many members stand side by side, one column each,
   and the others below them; line r is for those in row r modulo DOWN(across).  OF_COLUMN(name, across, v) joins what the members of
   each column found, in a fixed order, and gives it to all of them: every member must come there.  With SUBGROUP as rows: what a
   sub-group has of a column by shuffles, the rest in local memory. */
#define DOWN(across) (TEAM / (across))
#if TEAM > 1
#ifdef SUBGROUP
#define DEFINE_COLUMN_FOLD(name, JOIN)                                                           \
    static A OF_PART(name##_of_column)(__local A *cells, int across, A v) {                               \
        int member = (int)get_local_id(0), column = member & (across - 1);                       \
        int filled = across < SUBGROUP ? TEAM / SUBGROUP * across : TEAM;                        \
        JOIN_SUBGROUP(JOIN, across)                                                              \
        if (member % SUBGROUP < across) cells[across < SUBGROUP ? member / SUBGROUP * across + column : member] = v; \
        barrier(CLK_LOCAL_MEM_FENCE);                                                            \
        v = cells[column];                                                                       \
        for (int i = column + across; i < filled; i += across) v = JOIN(v, cells[i]);            \
        barrier(CLK_LOCAL_MEM_FENCE); /* before the next use of the cells */                     \
        return v;                                                                                \
    }
#else
#define DEFINE_COLUMN_FOLD(name, JOIN)                                                           \
    static A OF_PART(name##_of_column)(__local A *cells, int across, A v) {                               \
        int member = (int)get_local_id(0);                                                       \
        cells[member] = v;                                                                       \
        for (int left = TEAM / 2; left >= across; left /= 2) {                                   \
            barrier(CLK_LOCAL_MEM_FENCE);                                                        \
            if (member < left) {                                                                 \
                A below = cells[member + left];                                                  \
                v = JOIN(v, below);                                                              \
                cells[member] = v;                                                               \
            }                                                                                    \
        }                                                                                        \
        barrier(CLK_LOCAL_MEM_FENCE);                                                            \
        v = cells[member % across];                                                              \
        barrier(CLK_LOCAL_MEM_FENCE); /* before the next use of the cells */                     \
        return v;                                                                                \
    }
#endif
#define OF_COLUMN(name, across, v) OF_PART(name##_of_column)(team_cells, across, v)
#endif

/* body(lanes, i) for begin ≤ i < end: W elements at a time, then one; of a team's member, its own.  These are not to be made vectors: in
   pocl 3.1 the first member then says for all whether elements are left behind the vectors, and members that have none write
   beyond the row. */
#if TEAM > 1
#define ALONG(i, begin, end, body)                                                               \
    _Pragma("clang loop vectorize(disable)") for (long i = (begin) + MEMBER; i < (end); i += TEAM) body(1, i)
#else
#define ALONG(i, begin, end, body)                                                               \
    {                                                                                            \
        long i = begin;                                                                          \
        for (; i + W <= end; i += W) body(W, i)                                                  \
        for (; i < end; i++) body(1, i)                                                          \
    }
#endif

/* A number that the host handed over as two floats, as one is too coarse for f64. */
#define REAL(v) ((A)v + (A)v##_rest)
