/* fma_chains.h — a device's multiply-add peak, as clef bench and bench_clef measure it: chains of multiply-adds for each vector of x.

   A unit takes up one or two in a cycle and has the result some cycles later, so it takes about a dozen independent chains to keep it
   busy.  All add the same number: one of each chain's own would be loaded from memory in every round.  They go on together, a link of each
   in every round of a loop: in one long expression compilers put the links of a chain side by side again, and a CPU, which looks some
   hundred instructions ahead, waits for each. */
#ifndef CLEF_TOOLS_FMA_CHAINS_H
#define CLEF_TOOLS_FMA_CHAINS_H
#include "clef.h"
#include <stdio.h>
#include <string.h>

enum { FMA_CHAINS = 12, FMA_ROUNDS = 1024, FMA_MOST_LANES = 16 };

static inline bool fma_chains_infer(clef_kernel_call *call) {
    int64_t lanes = (int64_t)call->option[0];
    call->output[0] = call->input[0];
    call->size[0] = (int64_t)call->option[1];
    call->items = clef_shape_numel(call->input[0]) / lanes;
    return true;
}

static inline const clef_kernel_op *fma_chains_op(int lanes, bool fused) {
    static struct {
        clef_kernel_op op;
        char name[24], functions[96], body[2048];
    } made[2][FMA_MOST_LANES + 1];
    char vector[8] = "", *end = made[fused][lanes].body;
    clef_kernel_op *op = &made[fused][lanes].op;
    if (op->name) return op;
    if (lanes > 1) snprintf(vector, sizeof vector, "%d", lanes);
    snprintf(made[fused][lanes].name, sizeof made[fused][lanes].name, "%s_chains_%d", fused ? "fma" : "multiply_add", lanes);
    snprintf(made[fused][lanes].functions, sizeof made[fused][lanes].functions,
             "typedef float%s lanes;\ntypedef union { lanes all; float one[%d]; } either;\n", vector, lanes);
    end += sprintf(
        end,
        "either v; for (int l = 0; l < %d; l++) v.one[l] = GET(x, i * %d + l); lanes factor = v.all, addend = (lanes)(0.01f);\n",
        lanes, lanes);
    for (int c = 0; c < FMA_CHAINS; c++) end += sprintf(end, "lanes c%d = factor + %d.0f;\n", c, c);
    end += sprintf(end, "for (long r = 0; r < rounds; r++) {\n");
    for (int c = 0; c < FMA_CHAINS; c++)
        end += sprintf(end, fused ? "c%d = fma(c%d, factor, addend);\n" : "c%d = c%d * factor + addend;\n", c, c);
    end += sprintf(end, "}\nv.all = c0");
    for (int c = 1; c < FMA_CHAINS; c++) end += sprintf(end, " + c%d", c);
    sprintf(end, ";\nfor (int l = 0; l < %d; l++) PUT(y, i * %d + l, v.one[l]);", lanes, lanes);
    *op = (clef_kernel_op){.name = made[fused][lanes].name,
                           .inputs = "x",
                           .outputs = "y",
                           .sizes = "rounds",
                           .functions = made[fused][lanes].functions,
                           .body = made[fused][lanes].body,
                           .infer = fma_chains_infer};
    return op;
}

/* 2 · FMA_CHAINS · rounds FLOPs for each number of x, whose count FMA_MOST_LANES divides; in vectors as wide as a CPU's registers.  Not
   every compiler makes one instruction of the plain expression; but fma() is emulated, at great length, on devices that have none. */
static inline clef_tensor *fma_chains(clef_tensor *x, bool fused, int rounds) {
    clef_device_info info;
    clef_context_device(clef_tensor_context(x), 0, &info);
    bool wide = strcmp(info.type, "cpu") == 0 && info.vector_width <= FMA_MOST_LANES && info.vector_width >= 4;
    int lanes = wide ? (int)info.vector_width : 1;
    clef_tensor *y = NULL;
    clef_kernel(fma_chains_op(lanes, fused), &x, 1, (const double[]){lanes, rounds}, 2, &y, 1);
    return y;
}
#endif
