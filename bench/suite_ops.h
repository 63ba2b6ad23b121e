/* suite_ops.h — single operations of bench_clef.c: those whose time is memory, indices and order rather than multiply-adds.

   x and y are [rows, columns], row is [columns], column [rows, 1], places [rows, columns] with numbers below `columns`, lines [rows] with
   numbers below `rows`. */
#ifndef CLEF_BENCH_SUITE_OPS_H
#define CLEF_BENCH_SUITE_OPS_H
#include "job.h"

enum { OPS_X, OPS_Y, OPS_ROW, OPS_COLUMN, OPS_PLACES, OPS_LINES };

static clef_tensor *halves_turned(clef_tensor *x) {
    clef_shape shape = clef_tensor_shape(x);
    clef_tensor *four = clef_reshape(x, CLEF_SHAPE(4, shape.dim[0] / 4, 16, shape.dim[1] / 16));
    return clef_copy(clef_permute(four, (int[]){0, 2, 1, 3}));
}

static clef_tensor *largest_of(clef_tensor *x, int k) {
    clef_tensor *values = NULL, *indices = NULL;
    if (clef_topk(x, k, 1, true, &values, &indices) != CLEF_OK) return NULL;
    clef_eval_all((clef_tensor *[]){values, indices}, 2);
    return values;
}

static clef_tensor *pooled_to(clef_tensor *x, int side) {
    clef_shape shape = clef_tensor_shape(x);
    return clef_adaptive_avg_pool2d(clef_reshape(x, CLEF_SHAPE(shape.dim[0] / 64, shape.dim[1] / 16, 32, 32)), side, side);
}

static clef_tensor *run_ops(const job *j, clef_tensor *const *in) {
    char op[24] = "";
    clef_tensor *x = in[OPS_X], *y = in[OPS_Y], *row = in[OPS_ROW], *column = in[OPS_COLUMN], *places = in[OPS_PLACES],
                *lines = in[OPS_LINES];
    int first = 0, last = 1;
    word(j->line, "op", op, sizeof op);
#define OP(name, value) \
    if (strcmp(op, #name) == 0) return value;
    OP(add, clef_add(x, y))
    OP(add_row, clef_add(x, row))
    OP(add_column, clef_add(x, column))
    OP(add_outer, clef_add(row, column))
    OP(square, clef_pow_scalar(x, 2))
    OP(cube, clef_pow_scalar(x, 3))
    OP(pow, clef_pow(clef_abs(x), y))
    OP(to_f16, clef_to(x, CLEF_F16))
    OP(to_bf16, clef_to(x, CLEF_BF16))
    OP(sum, clef_sum(x, NULL, 0, false))
    OP(std, clef_std(x, NULL, 0, false, 1))
    OP(prod, clef_prod(x, &last, 1, false))
    OP(max, clef_max(x, &last, 1, false))
    OP(argmax, clef_argmax(x, last, false))
    OP(argmax_first, clef_argmax(x, first, false))
    OP(transpose, clef_copy(clef_transpose(x, 0, 1)))
    OP(permute, halves_turned(x))
    OP(flip, clef_copy(clef_flip(x, 1)))
    OP(repeat_interleave, clef_repeat_interleave(row, 512, 0))
    OP(gather, clef_gather(x, last, places))
    OP(index_select, clef_index_select(x, first, lines))
    OP(index_add, clef_index_add(x, first, lines, y))
    OP(scatter_add, clef_scatter_add(x, last, places, y))
    OP(cumsum, clef_cumsum(x, last))
    OP(cumsum_first, clef_cumsum(x, first))
    OP(cumprod, clef_cumprod(x, last))
    OP(topk, largest_of(x, 10))
    OP(adaptive_avg_pool, pooled_to(x, 7))
    OP(randn, clef_randn_like(x))
    OP(rand, clef_rand_like(x))
#undef OP
    return NULL;
}

static void ops(const char *line) {
    int64_t rows = (int64_t)number(line, "rows", 1), columns = (int64_t)number(line, "columns", 1);
    job j = {.line = line, .run = run_ops};
    clef_shape shape[] = {CLEF_SHAPE(rows, columns), CLEF_SHAPE(rows, columns), CLEF_SHAPE(columns), CLEF_SHAPE(rows, 1)};
    make_inputs(&j, 4, shape);
    for (int c = 0; c < j.copies; c++) {
        j.input[c][OPS_PLACES] = clef_keep(clef_randint(ctx, 0, columns, CLEF_SHAPE(rows, columns)));
        j.input[c][OPS_LINES] = clef_keep(clef_randint(ctx, 0, rows, CLEF_SHAPE(rows)));
    }
    j.n_inputs = 6;
    clef_end_step(ctx);
    answer(&j);
}
#endif
