/* codegen.c — the text of a pointwise kernel from a list of operands, steps and stores.

   The iteration space is partitioned into rows along one inner dimension.  A work-item takes blocks (a stretch of one row each); in
   a block every operand is loaded W elements at a time — splat where its inner stride is 0, one vector where it is 1, gathered
   otherwise —, all steps are computed, all results are stored.  All loads of a vector come before its stores, so a result may
   lie where an operand with the same layout lay.  Equal structures give equal text, hence one kernel; a plan's kernels are compiled
   as one program (clef__codes_join), for which each has a NAME and functions of its own (NAMED).

   A space that is one row in which every operand is contiguous or splat is a segment.  Its text says once which numbers and
   tensors a segment has, and EACH_SEGMENT how many segments a launch covers: one, unless bundle.c puts several launches into one.
   A work-item looks up to which segment its block belongs, in positions that count every segment as whole blocks.

   On a GPU a work-item has one block of one vector, and no loop: compilers would compute the pointers of all segments before it, and
   hold them in registers. */
#include "graph/core.h"
#include "plan/lower/space.h"
#include "runtime/text.h"

#include <string.h>

/* ---- types ---- */

static const char *compute_type(clef_dtype dtype) {
    switch (dtype) {
    case CLEF_F64: return "double";
    case CLEF_I64: return "long";
    case CLEF_I32:
    case CLEF_U8:
    case CLEF_BOOL: return "int";
    default: return "float";
    }
}

static const char *mask_type(const char *compute) {
    return strcmp(compute, "double") == 0 || strcmp(compute, "long") == 0 ? "long" : "int";
}

typedef struct writer {
    clef__text text;
    const clef__pointwise *p;
    const clef__space *s;
    int width;
    const char *suffix;               /* "16", or "" for scalars */
    int tensor_of[CLEF__PW_OPERANDS]; /* operand → index in the space, -1 for constants */
    int first_store;
    bool segment;
} writer;

static void set_width(writer *w, int width) {
    w->width = width;
    w->suffix = width == 16 ? "16" : width == 8 ? "8" : width == 4 ? "4" : "";
}

static clef_dtype input_dtype(const writer *w, int input) {
    return input < CLEF__PW_OPERANDS ? w->p->operand[input].dtype : w->p->step[input - CLEF__PW_OPERANDS].dtype;
}

/* A text that begins with RETURN_ is a macro that makes a function's whole body; else it is an expression. */
static bool is_body(const clef_op *op) { return strncmp(op->text, "RETURN_", 7) == 0; }

static bool is_cast(const clef_op *op) { return op == &clef__op_cast; }

/* The type in which a step computes: its result's, or for truth values that of what is compared. */
static const char *step_type(const writer *w, const clef__pw_step *step) {
    return compute_type(step->op->boolean ? input_dtype(w, step->input[0]) : step->dtype);
}

/* ---- pieces of text ---- */

/* One function for each step that is no cast; equal text of equal types shares the earlier one's number. */
static int function_of(const writer *w, int i) {
    for (int j = 0; j < i; j++) {
        const clef__pw_step *a = &w->p->step[j], *b = &w->p->step[i];
        bool same = strcmp(a->op->text, b->op->text) == 0 && strcmp(a->op->params, b->op->params) == 0 &&
                    a->op->boolean == b->op->boolean && strcmp(step_type(w, a), step_type(w, b)) == 0;
        for (int k = 0; same && k < b->n_inputs; k++)
            same = strcmp(compute_type(input_dtype(w, a->input[k])), compute_type(input_dtype(w, b->input[k]))) == 0;
        if (same) return j;
    }
    return i;
}

static void write_functions(writer *w) {
    for (int i = 0; i < w->p->n_steps; i++) {
        const clef__pw_step *step = &w->p->step[i];
        if (is_cast(step->op) || function_of(w, i) != i) continue;
        const char *type = step_type(w, step), *mask = mask_type(type);
        clef__text_add(&w->text,
                       "#undef T\n#undef ELEMENT\n#undef I\n#undef CONVERT_I\n#define T %s%s\n#define ELEMENT %s\n"
                       "#define I %s%s\n#define CONVERT_I convert_%s%s\n",
                       type, w->suffix, type, mask, w->suffix, mask, w->suffix);
        clef__text_add(&w->text, "%s%s NAMED(_f%d)(", step->op->boolean ? "int" : type, w->suffix, i);
        for (int k = 0; k < step->n_inputs; k++)
            clef__text_add(&w->text, "%s%s%s %c", k ? ", " : "", compute_type(input_dtype(w, step->input[k])), w->suffix,
                           step->op->params[k]);
        clef__text_add(&w->text, is_body(step->op) ? ") { %s }\n" : ") { return %s; }\n", step->op->text);
    }
}

/* OF_PART(gather_f32)(p, stride, n), OF_PART(scatter_f32)(p, stride, n, v) and those of some lanes for the dtypes in use. */
static void write_gathers(writer *w) {
    bool gather[CLEF_DTYPE_COUNT] = {0}, scatter[CLEF_DTYPE_COUNT] = {0};
    for (int i = 0; i < w->s->n; i++) *(i < w->first_store ? &gather[w->s->x[i]->dtype] : &scatter[w->s->x[i]->dtype]) = true;
    for (int d = 0; d < CLEF_DTYPE_COUNT; d++) {
        const char *name = clef_dtype_name((clef_dtype)d);
        if (gather[d])
            clef__text_add(&w->text,
                           "#ifndef GATHERS_%s\n#define GATHERS_%s\nDEFINE_GATHER(%s, %d)\nDEFINE_GATHER_SOME(%s, %d)\n#endif\n",
                           name, name, name, w->width, name, w->width);
        if (scatter[d])
            clef__text_add(
                &w->text, "#ifndef SCATTERS_%s\n#define SCATTERS_%s\nDEFINE_SCATTER(%s, %d)\nDEFINE_SCATTER_SOME(%s, %d)\n#endif\n",
                name, name, name, w->width, name, w->width);
    }
}

static void write_tensor_type(writer *w, int i) {
    clef__text_add(&w->text, "__global %sMEMORY(%s) *", i < w->first_store ? "const " : "", clef_dtype_name(w->s->x[i]->dtype));
}

/* suffix: what names that belong to a segment end in. */
static void write_constants(writer *w, const char *suffix) {
    for (int i = 0; i < w->p->n_operands; i++)
        if (w->p->operand[i].constant) clef__text_add(&w->text, " N(%s, k%d%s)", compute_type(w->p->operand[i].dtype), i, suffix);
}

/* What a segment adds to the numbers and to the pointers, and how it is chosen: by the position that its first element has. */
static void write_segment(writer *w) {
    clef__text_append(&w->text, "#ifndef EACH_SEGMENT\n#define EACH_SEGMENT(X) X(0)\n#endif\n"
                                "#define N(type, name) type name;\n#define FIELDS(s) N(long, first##s) N(long, n##s)");
    write_constants(w, "_##s");
    for (int i = 0; i < w->s->n; i++) clef__text_add(&w->text, " N(long, o%d_##s)", i);
    clef__text_append(&w->text, "\n#define POINTERS(s)");
    for (int i = 0; i < w->s->n; i++) {
        clef__text_append(&w->text, ", ");
        write_tensor_type(w, i);
        clef__text_add(&w->text, "p%d_##s", i);
    }
    clef__text_append(&w->text, "\n#define CHOOSE(s) if (at >= v.first##s) { begin = at - v.first##s; columns = v.n##s;");
    for (int i = 0; i < w->p->n_operands; i++)
        if (w->p->operand[i].constant) clef__text_add(&w->text, " k%d = v.k%d_##s;", i, i);
    for (int i = 0; i < w->s->n; i++) clef__text_add(&w->text, " q%d = p%d_##s + v.o%d_##s;", i, i, i);
    clef__text_append(&w->text, " } else\n");
}

/* NUMBERS: N(type, name) for every number that a kernel of rows has. */
static void write_numbers(writer *w) {
    int outer = w->s->rank - 1;
    clef__text_append(&w->text, "#define NUMBERS PARTITION N(long, blocks_per_row) N(long, columns)");
    for (int d = 0; d < outer; d++) clef__text_add(&w->text, " N(long, d%d)", d);
    write_constants(w, "");
    for (int i = 0; i < w->s->n; i++) {
        clef__text_add(&w->text, " N(long, o%d)", i);
        for (int d = 0; d < outer; d++) clef__text_add(&w->text, " N(long, s%d_%d)", i, d);
        if (clef__space_access(w->s, i) == CLEF__GATHER) clef__text_add(&w->text, " N(long, s%d)", i);
    }
    clef__text_append(&w->text, "\n#define N(type, name) type name;\n");
}

/* The numbers are one argument, a struct, as in cl/args.h; its name is v. */
static void write_signature(writer *w) {
    clef__text_append(&w->text, "#define PARTITION N(long, blocks) N(long, per_item) N(long, block)\n");
    if (w->segment) write_segment(w);
    else write_numbers(w);
    clef__text_add(
        &w->text,
        "typedef struct NAMED(_numbers) { %s long end; } NAMED(_numbers);\nENTRY() void NAME(PLACE_OF_ITEM NAMED(_numbers) v",
        w->segment ? "PARTITION EACH_SEGMENT(FIELDS)" : "NUMBERS");
    if (w->segment) clef__text_append(&w->text, " EACH_SEGMENT(POINTERS)");
    for (int i = 0; i < w->s->n && !w->segment; i++) {
        clef__text_append(&w->text, ",\n    ");
        write_tensor_type(w, i);
        clef__text_add(&w->text, "p%d", i);
    }
    clef__text_add(&w->text, ") {\n#undef N\n#define N(type, name) const type name = v.name;\n    %s\n#undef N\n",
                   w->segment ? "PARTITION" : "NUMBERS");
}

/* The row's coordinates, and every tensor's pointer to its beginning. */
static void write_row(writer *w) {
    if (w->segment) {
        clef__text_append(&w->text, "        const long at = b * block;\n        long begin, columns;\n");
        for (int i = 0; i < w->p->n_operands; i++)
            if (w->p->operand[i].constant) clef__text_add(&w->text, "        %s k%d;\n", compute_type(w->p->operand[i].dtype), i);
        for (int i = 0; i < w->s->n; i++) {
            clef__text_append(&w->text, "        ");
            write_tensor_type(w, i);
            clef__text_add(&w->text, "q%d;\n", i);
        }
        clef__text_append(&w->text,
                          "        EACH_SEGMENT(CHOOSE) continue;\n        const long end = min(begin + block, columns);\n");
        return;
    }
    int outer = w->s->rank - 1;
    clef__text_append(
        &w->text,
        "        long row = b / blocks_per_row, begin = (b % blocks_per_row) * block, end = min(begin + block, columns);\n");
    for (int d = outer - 1; d >= 0; d--) {
        clef__text_add(&w->text, d ? "        long i%d = row %% d%d; row /= d%d;\n" : "        long i%d = row;\n", d, d, d);
    }
    for (int i = 0; i < w->s->n; i++) {
        clef__text_append(&w->text, "        ");
        write_tensor_type(w, i);
        clef__text_add(&w->text, "q%d = p%d + o%d", i, i, i);
        for (int d = 0; d < outer; d++) clef__text_add(&w->text, " + i%d * s%d_%d", d, i, d);
        clef__text_append(&w->text, ";\n");
    }
}

static void write_splats(writer *w) {
    for (int i = 0; i < w->p->n_operands; i++) {
        const clef__pw_operand *x = &w->p->operand[i];
        const char *type = compute_type(x->dtype);
        if (x->constant)
            clef__text_add(&w->text, "        const %s%s a%d = (%s%s)(k%d);\n", type, w->suffix, i, type, w->suffix, i);
        else if (clef__space_access(w->s, w->tensor_of[i]) == CLEF__SPLAT)
            clef__text_add(&w->text, "        const %s%s a%d = (%s%s)(LOAD(%s, 1, q%d, 0));\n", type, w->suffix, i, type, w->suffix,
                           clef_dtype_name(x->dtype), w->tensor_of[i]);
    }
}

static void write_name(writer *w, int input) {
    if (input < CLEF__PW_OPERANDS) clef__text_add(&w->text, "a%d", input);
    else clef__text_add(&w->text, "t%d", input - CLEF__PW_OPERANDS);
}

/* From floats to whole numbers the language leaves what lies outside their range to the device: i32 and i64 saturate, u8 keeps
   the low 8 bits, NaN is 0. */
static void write_saturated(writer *w, const clef__pw_step *step, const char *type) {
    bool byte = step->dtype == CLEF_U8;
    clef__text_add(&w->text, "convert_%s%s_sat(OR_ZERO(%s%s, ", compute_type(step->dtype), w->suffix, type, w->suffix);
    if (byte) clef__text_add(&w->text, "LOW_BYTE(%s%s, ", type, w->suffix);
    write_name(w, step->input[0]);
    clef__text_append(&w->text, byte ? ")))" : "))");
}

static void write_cast(writer *w, const clef__pw_step *step) {
    clef_dtype from = input_dtype(w, step->input[0]);
    const char *type = compute_type(from);
    if (step->dtype != CLEF_BOOL && clef__is_float(from) && !clef__is_float(step->dtype)) {
        write_saturated(w, step, type);
        return;
    }
    if (step->dtype == CLEF_BOOL) /* before the conversion, which would make 0.5 a zero */
        clef__text_add(&w->text, "convert_int%s((%s%s)(0) != ", w->suffix, type, w->suffix);
    else clef__text_add(&w->text, "convert_%s%s(", compute_type(step->dtype), w->suffix);
    write_name(w, step->input[0]);
    clef__text_append(&w->text, ")");
}

static void write_call(writer *w, int i) {
    const clef__pw_step *step = &w->p->step[i];
    clef__text_add(&w->text, "NAMED(_f%d)(", function_of(w, i));
    for (int k = 0; k < step->n_inputs; k++) {
        if (k) clef__text_append(&w->text, ", ");
        write_name(w, step->input[k]);
    }
    clef__text_append(&w->text, ")");
}

/* Around a value of the computing type: what the dtype can hold of it.  Values keep to that even while they are in registers,
   so that fusing changes nothing.  A truth value's 1 is a number that compilers cannot know: of a constant they make a masked load, and
   one whose mask is empty takes a hundred times as long on some CPUs while nothing else has touched the page of the constant. */
static void open_kept(writer *w, clef_dtype dtype) {
    if (dtype == CLEF_F16 || dtype == CLEF_BF16) clef__text_add(&w->text, "ROUND_%s(%d, ", clef_dtype_name(dtype), w->width);
    else if (dtype == CLEF_U8) clef__text_append(&w->text, "255 & (");
    else if (dtype == CLEF_BOOL) clef__text_append(&w->text, "one & ((");
    else clef__text_append(&w->text, "(");
}

static void close_kept(writer *w, clef_dtype dtype) { clef__text_append(&w->text, dtype == CLEF_BOOL ? ") != 0)" : ")"); }

static void write_steps(writer *w) {
    for (int i = 0; i < w->p->n_steps; i++) {
        const clef__pw_step *step = &w->p->step[i];
        clef__text_add(&w->text, "            const %s%s t%d = ", compute_type(step->dtype), w->suffix, i);
        open_kept(w, step->dtype);
        if (is_cast(step->op)) write_cast(w, step);
        else write_call(w, i);
        close_kept(w, step->dtype);
        clef__text_append(&w->text, ";\n");
    }
}

/* The lanes of a vector from the last to the first. */
static const char *backwards(int width) {
    return width == 16 ? ".sfedcba9876543210" : width == 8 ? ".s76543210" : width == 4 ? ".s3210" : "";
}

/* Loads, steps, stores of W elements, or of the n < W at a row's end. */
static void write_body(writer *w, bool whole) {
    for (int i = 0; i < w->p->n_operands; i++) {
        if (w->p->operand[i].constant) continue;
        int t = w->tensor_of[i];
        clef__access a = clef__space_access(w->s, t);
        const char *name = clef_dtype_name(w->p->operand[i].dtype), *type = compute_type(w->p->operand[i].dtype);
        if (a == CLEF__SPLAT) continue;
        clef__text_add(&w->text, "            const %s%s a%d = ", type, w->suffix, i);
        if (a == CLEF__VECTOR && whole) clef__text_add(&w->text, "LOAD(%s, %d, q%d, c);\n", name, w->width, t);
        else if (a == CLEF__VECTOR) clef__text_add(&w->text, "OF_PART(gather_some_%s)(q%d + c, 1, end - c);\n", name, t);
        else if (a == CLEF__REVERSED && whole)
            clef__text_add(&w->text, "LOAD(%s, %d, q%d, 1 - W - c)%s;\n", name, w->width, t, backwards(w->width));
        else if (a == CLEF__REVERSED) clef__text_add(&w->text, "OF_PART(gather_some_%s)(q%d - c, -1, end - c);\n", name, t);
        else
            clef__text_add(&w->text, "OF_PART(gather%s_%s)(q%d + c * s%d, s%d, %s);\n", whole ? "" : "_some", name, t, t, t,
                           whole ? "W" : "end - c");
    }
    write_steps(w);
    for (int i = 0; i < w->p->n_stores; i++) {
        int t = w->first_store + i;
        const char *name = clef_dtype_name(w->s->x[t]->dtype);
        bool vector = clef__space_access(w->s, t) == CLEF__VECTOR;
        if (vector && whole) clef__text_add(&w->text, "            STORE(%s, %d, q%d, c, ", name, w->width, t);
        else if (vector) clef__text_add(&w->text, "            OF_PART(scatter_some_%s)(q%d + c, 1, end - c, ", name, t);
        else
            clef__text_add(&w->text, "            OF_PART(scatter%s_%s)(q%d + c * s%d, s%d, %s, ", whole ? "" : "_some", name, t, t,
                           t, whole ? "W" : "end - c");
        write_name(w, w->p->store[i].from);
        clef__text_append(&w->text, ");\n");
    }
}

char *clef__pointwise_source(const clef__pointwise *p, const clef__space *s, int width, bool single) {
    writer w = {.p = p, .s = s, .segment = clef__space_is_segment(s)};
    set_width(&w, width);
    for (int i = 0; i < p->n_operands; i++) w.tensor_of[i] = p->operand[i].constant ? -1 : w.first_store++;
    clef__text_add(&w.text, "\n#ifndef NAME\n#define NAME pointwise\n#endif\n#define W %d\n", width);
    write_gathers(&w);
    write_functions(&w);
    write_signature(&w);
    clef__text_append(&w.text, "    long b = get_global_id(0) * per_item;\n    const long stop = min(b + per_item, blocks);\n"
                               "    const int one = per_item > 0;\n");
    clef__text_append(&w.text, single ? "    if (b < stop) do {\n" : "    for (; b < stop; ++b) {\n");
    write_row(&w);
    write_splats(&w);
    clef__text_append(&w.text, "        long c = begin;\n");
    clef__text_append(&w.text, single ? "        if (c + W <= end) {\n" : "        for (; c + W <= end; c += W) {\n");
    write_body(&w, true);
    clef__text_append(&w.text, "        }\n");
    if (width > 1) {
        clef__text_append(&w.text, single ? "        else if (c < end) {\n" : "        if (c < end) {\n");
        write_body(&w, false);
        clef__text_append(&w.text, "        }\n");
    }
    clef__text_append(&w.text, single ? "    } while (0);\n" : "    }\n");
    clef__text_append(&w.text, "}\n#undef W\n#undef PARTITION\n");
    clef__text_append(&w.text,
                      w.segment ? "#undef EACH_SEGMENT\n#undef FIELDS\n#undef POINTERS\n#undef CHOOSE\n" : "#undef NUMBERS\n");
    return w.text.data;
}

/* ---- transpositions: copies of squares in registers ---- */

/* One element of each of `width` vectors f becomes a vector t, in rounds that lace the halves of two vectors (cl/transpose.h); the
   name of what has the result. */
static char write_square(clef__text *text, int width) {
    char from = 'f', to = 't';
    for (int round = 1; round < width; round *= 2) {
        for (int i = 0; i < width / 2; i++)
            clef__text_add(text, "                LACE(%d, %c%d, %c%d, %c%d, %c%d)\n", width, to, 2 * i, to, 2 * i + 1, from, i,
                           from, i + width / 2);
        char was = from;
        from = to, to = was;
    }
    return from;
}

/* Numbers of a launch: how lines and columns lie, then the other dimensions. */
static void write_transposing_numbers(clef__text *text, int outer) {
    clef__text_append(
        text, "#define NUMBERS N(long, blocks) N(long, per_item) N(long, span) N(long, spans) N(long, tiles) N(long, lines) "
              "N(long, columns) N(long, apart) N(long, pace)");
    for (int d = 0; d < outer; d++) clef__text_add(text, " N(long, d%d) N(long, from%d) N(long, to%d)", d, d, d);
    clef__text_append(text, " N(long, o0) N(long, o1)\n#define N(type, name) type name;\n");
}

/* Elements are moved as they are, so their size is all that counts.  A block is `squares` * W columns of `span` lines; what is left of
   either goes one by one. */
char *clef__transposing_source(const clef__space *s, int width, int squares) {
    static const char *const raw[] = {[1] = "uchar", [2] = "ushort", [4] = "uint", [8] = "ulong"};
    clef__text text = {0};
    int outer = s->rank - 2;
    const char *name = clef_dtype_name(s->x[0]->dtype), *type = raw[clef_dtype_size(s->x[0]->dtype)];
    clef__text_add(&text, "\n#ifndef NAME\n#define NAME pointwise\n#endif\n#define W %d\n#define SQUARES %d\n", width, squares);
    write_transposing_numbers(&text, outer);
    clef__text_add(
        &text,
        "typedef struct NAMED(_numbers) { NUMBERS long end; } NAMED(_numbers);\n"
        "ENTRY() void NAME(PLACE_OF_ITEM NAMED(_numbers) v, __global const MEMORY(%s) *p0, __global MEMORY(%s) *p1) {\n"
        "#undef N\n#define N(type, name) const type name = v.name;\n    NUMBERS\n#undef N\n"
        "    long b = get_global_id(0) * per_item;\n    const long stop = min(b + per_item, blocks);\n"
        "    for (; b < stop; ++b) {\n"
        "        long rest = b / spans, l = b %% spans * span, end = min(l + span, lines), c = rest %% tiles * (SQUARES * W);\n"
        "        rest /= tiles;\n        long from = o0 + c * apart, to = o1 + c;\n",
        name, name);
    for (int d = outer - 1; d >= 0; d--)
        clef__text_add(&text, "        from += rest %% d%d * from%d, to += rest %% d%d * to%d, rest /= d%d;\n", d, d, d, d, d);
    clef__text_add(
        &text,
        "        __global const %s *x = (__global const %s *)p0 + from;\n        __global %s *y = (__global %s *)p1 + to;\n"
        "        const long width = min((long)SQUARES * W, columns - c);\n"
        "        for (; l + W <= end; l += W) {\n            long k = 0;\n"
        "            PLAIN_LOOP for (; k + W <= width; k += W) {\n                VEC(%s, W)",
        type, type, type, type, type);
    for (int i = 0; i < width; i++)
        clef__text_add(&text, "%s f%d = CAT(VLOAD_, W)(x + (k + %d) * apart + l), t%d", i ? "," : "", i, i, i);
    clef__text_append(&text, ";\n");
    char result = write_square(&text, width);
    for (int i = 0; i < width; i++)
        clef__text_add(&text, "                CAT(VSTORE_, W)(%c%d, y + (l + %d) * pace + k);\n", result, i, i);
    clef__text_append(&text, "            }\n            PLAIN_LOOP for (; k < width; k++)\n"
                             "                PLAIN_LOOP for (long i = l; i < l + W; i++) y[i * pace + k] = x[k * apart + i];\n"
                             "        }\n        for (; l < end; l++)\n"
                             "            PLAIN_LOOP for (long i = 0; i < width; i++) y[l * pace + i] = x[i * apart + l];\n"
                             "    }\n}\n#undef W\n#undef SQUARES\n#undef NUMBERS\n");
    return text.data;
}

/* ---- a function of an index, for kernels that read what it computes ---- */

static void write_inputs(writer *w) {
    clef__text_append(&w->text, "#define INPUTS ");
    for (int i = 0; i < w->p->n_operands; i++) {
        const clef__pw_operand *x = &w->p->operand[i];
        if (i) clef__text_append(&w->text, ", ");
        if (x->constant) clef__text_add(&w->text, "%s k%d", compute_type(x->dtype), i);
        else clef__text_add(&w->text, "__global const MEMORY(%s) *p%d, long o%d", clef_dtype_name(x->dtype), i, i);
        if (x->each) clef__text_add(&w->text, ", uint each%d", i);
        if (x->period) clef__text_add(&w->text, ", uint period%d", i);
    }
    clef__text_append(&w->text, "\n#define PASSED ");
    for (int i = 0; i < w->p->n_operands; i++) {
        clef__text_add(&w->text, w->p->operand[i].constant ? "%sk%d" : "%sp%d, o%d", i ? ", " : "", i, i);
        if (w->p->operand[i].each) clef__text_add(&w->text, ", each%d", i);
        if (w->p->operand[i].period) clef__text_add(&w->text, ", period%d", i);
    }
    clef__text_append(&w->text, "\n");
}

/* An operand at index `at`; one that repeats has its index in 32 bits, in which a division is faster. */
static void write_read(writer *w, const clef__pw_operand *x, int i) {
    const char *name = clef_dtype_name(x->dtype), *type = compute_type(x->dtype);
    if (x->single) clef__text_add(&w->text, "(%s%s)(LOAD(%s, 1, p%d, o%d", type, w->suffix, name, i, i);
    else if (x->each) clef__text_add(&w->text, "(%s%s)(LOAD(%s, 1, p%d, o%d + (uint)at / each%d", type, w->suffix, name, i, i, i);
    else clef__text_add(&w->text, "(LOAD(%s, %d, p%d, o%d + %sat", name, w->width, i, i, x->period ? "(uint)" : "");
    if (x->period) clef__text_add(&w->text, " %% period%d", i);
    clef__text_append(&w->text, "));\n");
}

static void write_value(writer *w, int width) {
    const clef__pw_step *last = &w->p->step[w->p->n_steps - 1];
    set_width(w, width);
    clef__text_add(&w->text, "#undef NAME\n#define NAME OF_PART(value_%d)\n#undef W\n#define W %d\n", width, width);
    write_functions(w);
    clef__text_add(&w->text, "%s%s NAME(INPUTS, long at) {\n", compute_type(last->dtype), w->suffix);
    for (int i = 0; i < w->p->n_operands; i++) {
        const clef__pw_operand *x = &w->p->operand[i];
        const char *type = compute_type(x->dtype);
        clef__text_add(&w->text, "            const %s%s a%d = ", type, w->suffix, i);
        if (x->constant) clef__text_add(&w->text, "(%s%s)(k%d);\n", type, w->suffix, i);
        else write_read(w, x, i);
    }
    clef__text_append(&w->text, "            const int one = 1;\n");
    write_steps(w);
    clef__text_add(&w->text, "            return t%d;\n}\n", w->p->n_steps - 1);
}

char *clef__value_source(const clef__pointwise *p, int width) {
    writer w = {.p = p};
    clef__text_append(&w.text, "\n");
    write_inputs(&w);
    write_value(&w, 1);
    if (width > 1) write_value(&w, width);
    clef__text_append(&w.text, "#undef NAME\n#undef T\n#undef ELEMENT\n#undef I\n#undef CONVERT_I\n#define VALUE(n, i) "
                               "OF_PART(CAT(value_, n))(PASSED, i)\n");
    return w.text.data;
}
