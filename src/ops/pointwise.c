/* pointwise.c — cl/unary.def, cl/binary.def and cl/ternary.def as op descriptors, public functions and gradients.

   A row is a struct that begins with its forward op, so the gradient finds everything from y's node.  The backward op of a
   unary row is a node of its own kind: linear in g, with a gradient from the row's `second`. */
#include "ops/ops.h"
#include <string.h>

typedef enum domain { NUMBER, FLOAT, ROUND, FLOAT_TEST, NUMBER_TEST, COMPARE, LOGIC, CHOOSE } domain;

static bool is(const char *text, const char *word) { return strcmp(text, word) == 0; }

/* ---- unary ---- */

typedef struct unary_row {
    clef_op op, backward, second;
    domain domain;
} unary_row;

/* Applies a derivative of the row to the tensors its parameters name. */
static clef_tensor *apply_named(const clef_op *op, clef_tensor *x, clef_tensor *y, clef_tensor *g, clef_tensor *const *pq) {
    clef_tensor *input[5];
    int n = 0;
    for (const char *c = op->params; *c; c++)
        input[n++] = *c == 'x' ? x : *c == 'y' ? y : *c == 'g' ? g : *c == 'p' ? pq[0] : pq[1];
    return clef__apply(op, input, n, NULL, 0);
}

static void unary_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                           clef_tensor **dx) {
    (void)wanted;
    const unary_row *row = (const unary_row *)clef__node_of(y[0])->op;
    if (!is(row->backward.text, "ZERO")) dx[0] = apply_named(&row->backward, x[0], y[0], g[0], x + 1);
}

/* y = backward(x or y, g, …): linear in g, so the same op serves g; `second` serves the other. */
static void backward_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                              clef_tensor **dx) {
    const clef_op *op = clef__node_of(y[0])->op;
    const unary_row *row = (const unary_row *)((const char *)op - offsetof(unary_row, backward));
    clef_tensor *input[5];
    for (int i = 0; op->params[i]; i++) {
        char letter = op->params[i];
        if (!wanted[i]) continue;
        memcpy(input, x, strlen(op->params) * sizeof *input);
        if (letter == 'g') {
            input[i] = g[0];
            dx[i] = clef__apply(op, input, clef__node_of(y[0])->n_inputs, NULL, 0);
        } else if (is(row->second.text, "NONE")) {
            clef__refuse(clef_tensor_context(y[0]), row->op.name, CLEF_UNSUPPORTED,
                         "has no second derivative here; write it with other functions");
        } else if (!is(row->second.text, "ZERO")) {
            dx[i] = clef_mul(g[0], clef__apply(&row->second, input, clef__node_of(y[0])->n_inputs, NULL, 0));
        }
    }
}

static void second_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                            clef_tensor **dx) {
    const clef_op *op = clef__node_of(y[0])->op;
    const unary_row *row = (const unary_row *)((const char *)op - offsetof(unary_row, second));
    clef_tensor *input[5];
    for (int i = 0; op->params[i]; i++) {
        if (!wanted[i]) continue;
        memcpy(input, x, strlen(op->params) * sizeof *input);
        input[i] = g[0];
        if (op->params[i] == 'g') dx[i] = clef__apply(op, input, clef__node_of(y[0])->n_inputs, NULL, 0);
        else
            clef__refuse(clef_tensor_context(y[0]), row->op.name, CLEF_UNSUPPORTED,
                         "has no third derivative here; write it with other functions");
    }
}

#define DERIVATIVE(name_, params_, text_, gradient_) \
    { .name = #name_, .kind = CLEF__POINTWISE, .params = params_, .text = text_, .store = STORE_OF(name_), .gradient = gradient_ }
#define UNARY_ROW(name_, domain_, letters, forward_, params_, backward_, second_)         \
    static const unary_row unary_##name_ = {                                              \
        .op = {.name = #name_,                                                            \
               .kind = CLEF__POINTWISE,                                                   \
               .params = letters,                                                         \
               .text = #forward_,                                                         \
               .store = STORE_OF(name_),                                                  \
               .gradient = unary_gradient,                                                \
               .boolean = (domain_) == FLOAT_TEST || (domain_) == NUMBER_TEST},           \
        .backward = DERIVATIVE(name_##_backward, params_, #backward_, backward_gradient), \
        .second = DERIVATIVE(name_##_second, params_, #second_, second_gradient),         \
        .domain = domain_,                                                                \
    };
#define UNARY(name, domain, forward, params, backward, second, doc) UNARY_ROW(name, domain, "x", forward, params, backward, second)
#define UNARY_P(name, domain, forward, params, backward, second, doc) \
    UNARY_ROW(name, domain, "xp", forward, params, backward, second)
#define UNARY_PP(name, domain, forward, params, backward, second, doc) \
    UNARY_ROW(name, domain, "xpq", forward, params, backward, second)
#include "../../cl/unary.def"

/* x in a dtype the domain accepts, beside numbers that are fractions or not. */
static clef_tensor *into_domain(domain wants, clef_tensor *x, bool fraction) {
    if (!x) return NULL;
    clef_dtype dtype = clef_tensor_dtype(x);
    if (wants == FLOAT || wants == FLOAT_TEST || fraction) return clef__to_float(x);
    return wants == NUMBER && dtype == CLEF_BOOL ? clef_to(x, CLEF_I32) : x;
}

static clef_tensor *unary(const unary_row *row, clef_tensor *x, const double *number, int n) {
    if (!CLEF__GIVEN(row->op.name, "x", x)) return NULL;
    bool fraction = false;
    for (int i = 0; i < n; i++) fraction |= clef__is_fraction(number[i]);
    if (row->domain == ROUND && !clef__is_float(clef_tensor_dtype(x))) return x;
    clef_tensor *input[3] = {into_domain(row->domain, x, fraction)};
    if (!input[0]) return NULL;
    for (int i = 0; i < n; i++) input[1 + i] = clef__number(clef_tensor_context(x), clef_tensor_dtype(input[0]), number[i]);
    return clef__apply(&row->op, input, 1 + n, NULL, 0);
}

#define UNARY(name, ...) \
    clef_tensor *clef_##name(clef_tensor *x) { return unary(&unary_##name, x, NULL, 0); }
#define UNARY_P(name, ...) \
    clef_tensor *clef_##name(clef_tensor *x, double p) { return unary(&unary_##name, x, &p, 1); }
#define UNARY_PP(name, ...) \
    clef_tensor *clef_##name(clef_tensor *x, double p, double q) { return unary(&unary_##name, x, (double[]){p, q}, 2); }
#include "../../cl/unary.def"

/* ---- binary and ternary ---- */

/* One input's gradient as an expression; a broadcast input's is summed afterwards. */
typedef clef_tensor *derivative(clef_tensor *a, clef_tensor *b, clef_tensor *c, clef_tensor *y, clef_tensor *g);
typedef struct many_row {
    clef_op op;
    derivative *d[3];
    domain domain;
} many_row;

static void many_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                          clef_tensor **dx) {
    const many_row *row = (const many_row *)clef__node_of(y[0])->op;
    int n = clef__node_of(y[0])->n_inputs;
    for (int i = 0; i < n; i++)
        if (wanted[i]) dx[i] = clef__sum_to(row->d[i](x[0], x[1], n > 2 ? x[2] : NULL, y[0], g[0]), clef_tensor_shape(x[i]));
}

/* The part of max(a, b)'s gradient that goes to a: 1, 1/2 where they are equal, or 0. */
static clef_tensor *share(clef_tensor *a, clef_tensor *b) {
    clef_dtype dtype = clef_tensor_dtype(a);
    clef_tensor *more = clef_to(clef_logical_not(clef_lt(a, b)), dtype), *equal = clef_to(clef_eq(a, b), dtype);
    return clef_sub(more, clef_mul_scalar(equal, 0.5));
}

/* d a^b / da = b·a^(b-1), which is 0 for b = 0 also where a = 0. */
static clef_tensor *power_da(clef_tensor *a, clef_tensor *b, clef_tensor *g) {
    clef_tensor *slope = clef_mul(b, clef_pow(a, clef_sub_scalar(b, 1)));
    return clef_mul(g, clef_where(clef_eq_scalar(b, 0), clef__number(clef_tensor_context(a), clef_tensor_dtype(slope), 0), slope));
}

/* d a^b / db = y·log a, which is 0 where a = 0 and b ≥ 0. */
static clef_tensor *power_db(clef_tensor *a, clef_tensor *b, clef_tensor *y, clef_tensor *g) {
    clef_tensor *flat = clef_logical_and(clef_eq_scalar(a, 0), clef_ge_scalar(b, 0));
    clef_tensor *slope = clef_mul(y, clef_log(a));
    return clef_mul(g, clef_where(flat, clef__number(clef_tensor_context(a), clef_tensor_dtype(y), 0), slope));
}

/* g·p/(p² + q²), 0 where both are 0 or one is infinite.  Beside the larger of the two no square overflows or vanishes, and as
   the quotient is the same beside any number, no gradient goes through that one. */
static clef_tensor *angle_slope(clef_tensor *p, clef_tensor *q, clef_tensor *g) {
    clef_context *ctx = clef_tensor_context(p);
    clef_tensor *zero = clef__number(ctx, clef_tensor_dtype(p), 0), *one = clef__number(ctx, clef_tensor_dtype(p), 1);
    bool was = clef_set_grad_enabled(ctx, false);
    clef_tensor *larger = clef_maximum(clef_abs(p), clef_abs(q));
    clef_tensor *flat = clef_logical_or(clef_eq_scalar(larger, 0), clef_isinf(larger));
    clef_tensor *scale = clef_where(flat, one, larger);
    clef_set_grad_enabled(ctx, was);
    clef_tensor *u = clef_div(p, scale), *v = clef_div(q, scale);
    clef_tensor *squares = clef_where(flat, one, clef_add(clef_square(u), clef_square(v)));
    return clef_mul(g, clef_where(flat, zero, clef_div(clef_div(u, squares), scale)));
}

static clef_tensor *zero_like(clef_tensor *x) { return clef__number(clef_tensor_context(x), clef_tensor_dtype(x), 0); }

static bool choose_infer(clef__call *call) {
    call->out->dtype = call->input[1]->dtype;
    call->out->shape = call->input[0]->shape;
    for (int i = 1; i < 3; i++)
        if (!clef__broadcast(call->out->shape, call->input[i]->shape, &call->out->shape))
            return clef__infer_fail(call, CLEF_SHAPE, "shapes %s, %s and %s do not broadcast",
                                    clef__shape_text(call->input[0]->shape), clef__shape_text(call->input[1]->shape),
                                    clef__shape_text(call->input[2]->shape));
    return true;
}

#define ZERO NULL
#define GRADIENT_OF(name, letter, expression)                                                                              \
    static clef_tensor *name##_d##letter(clef_tensor *a, clef_tensor *b, clef_tensor *c, clef_tensor *y, clef_tensor *g) { \
        (void)a, (void)b, (void)c, (void)y, (void)g;                                                                       \
        return expression;                                                                                                 \
    }
#define BINARY(name_, domain_, forward, da, db, doc)                   \
    GRADIENT_OF(name_, a, da)                                          \
    GRADIENT_OF(name_, b, db)                                          \
    static const many_row many_##name_ = {                             \
        .op = {.name = #name_,                                         \
               .kind = CLEF__POINTWISE,                                \
               .params = "ab",                                         \
               .text = #forward,                                       \
               .store = STORE_OF(name_),                               \
               .gradient = many_gradient,                              \
               .boolean = (domain_) == COMPARE || (domain_) == LOGIC}, \
        .d = {name_##_da, name_##_db},                                 \
        .domain = domain_,                                             \
    };
#include "../../cl/binary.def"
#define TERNARY(name_, domain_, forward, da, db, dc, doc)           \
    GRADIENT_OF(name_, a, da)                                       \
    GRADIENT_OF(name_, b, db)                                       \
    GRADIENT_OF(name_, c, dc)                                       \
    static const many_row many_##name_ = {                          \
        .op = {.name = #name_,                                      \
               .kind = CLEF__POINTWISE,                             \
               .params = "abc",                                     \
               .text = #forward,                                    \
               .gradient = many_gradient,                           \
               .infer = (domain_) == CHOOSE ? choose_infer : NULL}, \
        .d = {name_##_da, name_##_db, name_##_dc},                  \
        .domain = domain_,                                          \
    };
#include "../../cl/ternary.def"

static clef_dtype common_dtype(domain wants, clef_dtype dtype) {
    if (wants == LOGIC) return CLEF_BOOL;
    if (wants == FLOAT && !clef__is_float(dtype)) return CLEF_F32;
    return wants == NUMBER && dtype == CLEF_BOOL ? CLEF_I32 : dtype;
}

/* The addition of equal shapes is the graph's own; where one is broadcast its gradient is a sum, which only ops know. */
static const clef_op *op_of(const many_row *row, const clef_tensor *a, const clef_tensor *b) {
    bool core = row == &many_add && clef_shape_equal(clef_tensor_shape(a), clef_tensor_shape(b));
    return core ? &clef__op_add : &row->op;
}

static clef_tensor *binary(const many_row *row, clef_tensor *a, clef_tensor *b) {
    if (!CLEF__GIVEN(row->op.name, "a b", a, b)) return NULL;
    clef_dtype dtype = common_dtype(row->domain, clef__promote(clef_tensor_dtype(a), clef_tensor_dtype(b)));
    return clef__apply(op_of(row, a, b), (clef_tensor *[]){clef_to(a, dtype), clef_to(b, dtype)}, 2, NULL, 0);
}

/* A number takes the tensor's dtype, unless that is whole and the number is not. */
static clef_tensor *binary_number(const many_row *row, clef_tensor *a, double b) {
    if (!CLEF__GIVEN(row->op.name, "a", a)) return NULL;
    clef_dtype dtype = clef_tensor_dtype(a);
    if (row->domain == LOGIC) b = b != 0;
    else if (clef__is_fraction(b) && !clef__is_float(dtype)) dtype = CLEF_F32;
    else if (dtype == CLEF_BOOL || dtype == CLEF_U8) dtype = b >= 0 && b <= 255 && dtype == CLEF_U8 ? CLEF_U8 : CLEF_I32;
    dtype = common_dtype(row->domain, dtype);
    return clef__apply(&row->op, (clef_tensor *[]){clef_to(a, dtype), clef__number(clef_tensor_context(a), dtype, b)}, 2, NULL, 0);
}

static clef_tensor *ternary(const many_row *row, clef_tensor *a, clef_tensor *b, clef_tensor *c) {
    if (!CLEF__GIVEN(row->op.name, "a b c", a, b, c)) return NULL;
    clef_dtype dtype = clef__promote(clef_tensor_dtype(b), clef_tensor_dtype(c));
    if (row->domain != CHOOSE) dtype = common_dtype(row->domain, clef__promote(dtype, clef_tensor_dtype(a)));
    clef_dtype first = row->domain == CHOOSE ? CLEF_BOOL : dtype;
    return clef__apply(&row->op, (clef_tensor *[]){clef_to(a, first), clef_to(b, dtype), clef_to(c, dtype)}, 3, NULL, 0);
}

#define BINARY(name, ...)                                                                           \
    clef_tensor *clef_##name(clef_tensor *a, clef_tensor *b) { return binary(&many_##name, a, b); } \
    clef_tensor *clef_##name##_scalar(clef_tensor *a, double b) { return binary_number(&many_##name, a, b); }
#include "../../cl/binary.def"
#define TERNARY(name, ...) \
    clef_tensor *clef_##name(clef_tensor *a, clef_tensor *b, clef_tensor *c) { return ternary(&many_##name, a, b, c); }
#include "../../cl/ternary.def"
