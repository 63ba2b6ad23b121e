/* pointwise.c — cl/unary.def, cl/binary.def and cl/ternary.def as op descriptors, public functions and gradients.

   A row is a struct that begins with its forward op, so the gradient finds everything from y's node.  The backward op of a
   unary row is a node of its own kind: linear in g, with a gradient from the row's `second`; so is that one, with a gradient from the
   row's `third`, which is an expression of other ops, so that all further derivatives are theirs. */
#include "ops/ops.h"
#include <string.h>

typedef enum domain { NUMBER, FLOAT, ROUND, FLOAT_TEST, NUMBER_TEST, COMPARE, LOGIC, CHOOSE } domain;

static bool is(const char *text, const char *word) { return strcmp(text, word) == 0; }

/* ---- the third derivatives of cl/unary.def, what they have in common ----
   Each is a sum of products whose factors stay finite where an exponential among them has become 0, so that neither it nor one of its own
   derivatives is 0 times infinity. */

typedef struct unary_row unary_row;

/* f'(x), whose own derivatives are f'' and so on. */
static clef_tensor *slope(const unary_row *row, clef_tensor *x);

/* g·r³·(a + b·r²): of functions whose first derivative is r = ±1/√(±1 ± x²), in terms of r alone, as x² would overflow. */
static clef_tensor *root_third(clef_tensor *r, clef_tensor *g, double a, double b) {
    clef_tensor *square = clef_square(r);
    return clef_mul(clef_mul(g, clef_mul(r, square)), clef_add_scalar(clef_mul_scalar(square, b), a));
}

/* g·u²·(a + b·u): of functions whose first derivative is u = 1/(1 ± x²). */
static clef_tensor *quotient_third(clef_tensor *u, clef_tensor *g, double a, double b) {
    return clef_mul(clef_mul(g, clef_square(u)), clef_add_scalar(clef_mul_scalar(u, b), a));
}

/* erf' = d = 2/√π·e^(-x²), erf'' = -2x·d, erf''' = -2(d + x·erf'') */
static clef_tensor *erf_third(clef_tensor *d, clef_tensor *x, clef_tensor *g, clef_tensor *s) {
    return clef_mul_scalar(clef_add(clef_mul(g, d), clef_mul(x, s)), -2);
}

/* With the normal PDF φ: gelu'' = φ·(2 - x²), gelu''' = -x·(gelu'' + 2φ) */
static clef_tensor *gelu_third(clef_tensor *x, clef_tensor *g, clef_tensor *s) {
    clef_tensor *twice = clef_mul_scalar(clef_exp(clef_mul_scalar(clef_square(x), -0.5)), 0.79788456080286536);
    return clef_neg(clef_mul(x, clef_add(s, clef_mul(g, twice))));
}

/* b = sigmoid'(x) = sigmoid(x)·sigmoid(-x), with b' = -b·t and t' = 2b for t = tanh(x/2). */
static clef_tensor *sigmoid_slope(clef_tensor *x) { return clef_mul(clef_sigmoid(x), clef_sigmoid(clef_neg(x))); }
static clef_tensor *tanh_of_half(clef_tensor *x) { return clef_tanh(clef_mul_scalar(x, 0.5)); }

/* softplus'' = b and logsigmoid'' = -b */
static clef_tensor *softplus_third(clef_tensor *x, clef_tensor *s) { return clef_neg(clef_mul(s, tanh_of_half(x))); }

/* silu'' = b·(2 - x·t), silu''' = -(t·silu'' + b·(t + 2x·b)) */
static clef_tensor *silu_third(clef_tensor *x, clef_tensor *g, clef_tensor *s) {
    clef_tensor *b = sigmoid_slope(x), *t = tanh_of_half(x);
    clef_tensor *rest = clef_add(t, clef_mul_scalar(clef_mul(x, b), 2));
    return clef_neg(clef_add(clef_mul(t, s), clef_mul(clef_mul(g, b), rest)));
}

/* With b and t of v(x) = 2√(2/π)·x·(1 + c·x²), of which v''' is a number:
   b·(3(v'' - t·v'²) + x·(v''' - 3t·v'·v'' + (t² - 2b)·v'³)), where b has become 0 long before 32. */
static clef_tensor *gelu_tanh_third(clef_tensor *x, clef_tensor *g) {
    const double rate = 1.5957691216057308, cubic = 0.044715;
    clef_tensor *z = clef_clamp(x, -32, 32), *square = clef_square(z);
    clef_tensor *v = clef_mul_scalar(clef_mul(z, clef_add_scalar(clef_mul_scalar(square, cubic), 1)), rate);
    clef_tensor *v1 = clef_mul_scalar(clef_add_scalar(clef_mul_scalar(square, 3 * cubic), 1), rate);
    clef_tensor *v2 = clef_mul_scalar(z, 6 * cubic * rate), *b = sigmoid_slope(v), *t = tanh_of_half(v);
    clef_tensor *beside_x = clef_mul(clef_sub(clef_square(t), clef_mul_scalar(b, 2)), clef_square(v1));
    beside_x = clef_mul(clef_sub(beside_x, clef_mul_scalar(clef_mul(t, v2), 3)), v1);
    beside_x = clef_add_scalar(beside_x, 6 * cubic * rate);
    clef_tensor *others = clef_mul_scalar(clef_sub(v2, clef_mul(t, clef_square(v1))), 3);
    return clef_mul(clef_mul(g, b), clef_add(others, clef_mul(z, beside_x)));
}

/* softsign'' = -2·sign(x)/(1 + |x|)³ */
static clef_tensor *softsign_third(clef_tensor *x, clef_tensor *s) {
    return clef_mul_scalar(clef_mul(clef_sign(x), clef_div(s, clef_add_scalar(clef_abs(x), 1))), -3);
}

/* With m = sigmoid(x), t = tanh(softplus(x)), u = 1 - t², t' = u·m and k = 1 - m - 2t·m:
   mish'' = u·m·(2 + x·k), mish''' = u·m·(3k + x·(k² + k')). */
static clef_tensor *mish_third(clef_tensor *x, clef_tensor *g) {
    clef_tensor *plus = clef_softplus(x), *m = clef_sigmoid(x), *less = clef_sigmoid(clef_neg(x)), *t = clef_tanh(plus);
    clef_tensor *u = clef_mul_scalar(sigmoid_slope(clef_mul_scalar(plus, 2)), 4);
    clef_tensor *k = clef_sub(less, clef_mul_scalar(clef_mul(t, m), 2));
    clef_tensor *k1 =
        clef_mul(m, clef_add(clef_mul(less, clef_add_scalar(clef_mul_scalar(t, 2), 1)), clef_mul_scalar(clef_mul(u, m), 2)));
    clef_tensor *factor = clef_mul(g, clef_mul(u, m));
    return clef_add(clef_mul_scalar(clef_mul(factor, k), 3), clef_mul(clef_mul(factor, x), clef_sub(clef_square(k), k1)));
}

/* ---- unary ---- */

/* The derivative of a row's second by the x or y that it reads; NULL: zero. */
typedef clef_tensor *third_derivative(const unary_row *row, clef_tensor *x, clef_tensor *g, clef_tensor *p, clef_tensor *s);

#define ZERO NULL
#define UNARY(name, domain, forward, params, backward, second, third, doc)                                                \
    static clef_tensor *name##_d3(const unary_row *row, clef_tensor *x, clef_tensor *g, clef_tensor *p, clef_tensor *s) { \
        clef_tensor *y = x;                                                                                               \
        (void)row, (void)y, (void)g, (void)p, (void)s;                                                                    \
        return third;                                                                                                     \
    }
#include "../../cl/unary.def"
#undef ZERO

struct unary_row {
    clef_op op, backward, second;
    third_derivative *third;
    domain domain;
};

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

static clef_tensor *slope(const unary_row *row, clef_tensor *x) {
    return apply_named(&row->backward, x, NULL, clef__number(clef_tensor_context(x), clef_tensor_dtype(x), 1), NULL);
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
        } else if (!is(row->second.text, "ZERO")) {
            dx[i] = clef_mul(g[0], clef__apply(&row->second, input, clef__node_of(y[0])->n_inputs, NULL, 0));
        }
    }
}

/* y = second(x or y, g, …): linear in g, so the same op serves g.  What serves the other has factors of more range than the result has:
   halves become f32 on the way. */
static void second_gradient(clef_tensor *const *x, clef_tensor *const *y, clef_tensor *const *g, const bool *wanted,
                            clef_tensor **dx) {
    const clef_op *op = clef__node_of(y[0])->op;
    const unary_row *row = (const unary_row *)((const char *)op - offsetof(unary_row, second));
    int n = clef__node_of(y[0])->n_inputs;
    if (wanted[0]) {
        clef_tensor *third =
            row->third(row, clef__to_wide(x[0]), clef__to_wide(x[1]), n > 2 ? clef__to_wide(x[2]) : NULL, clef__to_wide(y[0]));
        if (third) dx[0] = clef_to(clef_mul(clef__to_wide(g[0]), third), clef_tensor_dtype(x[0]));
    }
    if (wanted[1]) {
        clef_tensor *input[5] = {x[0], g[0]};
        memcpy(input + 2, x + 2, (size_t)(n - 2) * sizeof *input);
        dx[1] = clef__apply(op, input, n, NULL, 0);
    }
}

#define DERIVATIVE(name_, params_, text_, gradient_) \
    { .name = #name_, .kind = CLEF__POINTWISE, .params = params_, .text = text_, .store = STORE_OF(name_), .gradient = gradient_ }
#define UNARY_ROW(name_, domain_, precision_, letters, forward_, params_, backward_, second_) \
    static const unary_row unary_##name_ = {                                                  \
        .op = {.name = #name_,                                                                \
               .precision = precision_,                                                       \
               .kind = CLEF__POINTWISE,                                                       \
               .params = letters,                                                             \
               .text = #forward_,                                                             \
               .store = STORE_OF(name_),                                                      \
               .gradient = unary_gradient,                                                    \
               .boolean = (domain_) == FLOAT_TEST || (domain_) == NUMBER_TEST},               \
        .backward = DERIVATIVE(name_##_backward, params_, #backward_, backward_gradient),     \
        .second = DERIVATIVE(name_##_second, params_, #second_, second_gradient),             \
        .third = name_##_d3,                                                                  \
        .domain = domain_,                                                                    \
    };
#define UNARY(name, domain, forward, params, backward, second, third, doc) \
    UNARY_ROW(name, domain, CLEF__AS_GIVEN, "x", forward, params, backward, second)
#define UNARY_FULL(name, domain, forward, params, backward, second, third, doc) \
    UNARY_ROW(name, domain, CLEF__FULL_PRECISION, "x", forward, params, backward, second)
#define UNARY_P(name, domain, forward, params, backward, second, third, doc) \
    UNARY_ROW(name, domain, CLEF__AS_GIVEN, "xp", forward, params, backward, second)
#define UNARY_PP(name, domain, forward, params, backward, second, third, doc) \
    UNARY_ROW(name, domain, CLEF__AS_GIVEN, "xpq", forward, params, backward, second)
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
    clef_tensor *input[3] = {clef__autocast(into_domain(row->domain, x, fraction), row->op.precision)};
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

static clef_tensor *zero_like(clef_tensor *x) { return clef__number(clef_tensor_context(x), clef_tensor_dtype(x), 0); }

/* The part of max(a, b)'s gradient that goes to a: 1, 1/2 where they are equal, or 0. */
static clef_tensor *share(clef_tensor *a, clef_tensor *b) {
    clef_dtype dtype = clef_tensor_dtype(a);
    clef_tensor *more = clef_to(clef_logical_not(clef_lt(a, b)), dtype), *equal = clef_to(clef_eq(a, b), dtype);
    return clef_sub(more, clef_mul_scalar(equal, 0.5));
}

/* d a^b / da = b·a^(b-1), which is 0 for b = 0 also where a = 0: there the power is one that has finite derivatives. */
static clef_tensor *power_da(clef_tensor *a, clef_tensor *b, clef_tensor *g) {
    clef_tensor *flat = clef_eq_scalar(b, 0), *zero = zero_like(b);
    clef_tensor *power = clef_pow(a, clef_where(flat, zero, clef_sub_scalar(b, 1)));
    return clef_mul(g, clef_mul(clef_where(flat, zero, b), power));
}

/* d a^b / db = y·log a, which is 0 where a = 0 and b ≥ 0: there the logarithm is that of 1. */
static clef_tensor *power_db(clef_tensor *a, clef_tensor *b, clef_tensor *y, clef_tensor *g) {
    clef_tensor *flat = clef_logical_and(clef_eq_scalar(a, 0), clef_ge_scalar(b, 0));
    clef_tensor *one = clef__number(clef_tensor_context(a), clef_tensor_dtype(a), 1);
    return clef_mul(g, clef_mul(y, clef_log(clef_where(flat, one, a))));
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
#define BINARY_ROW(name_, domain_, precision_, forward, da, db)        \
    GRADIENT_OF(name_, a, da)                                          \
    GRADIENT_OF(name_, b, db)                                          \
    static const many_row many_##name_ = {                             \
        .op = {.name = #name_,                                         \
               .precision = precision_,                                \
               .kind = CLEF__POINTWISE,                                \
               .params = "ab",                                         \
               .text = #forward,                                       \
               .store = STORE_OF(name_),                               \
               .gradient = many_gradient,                              \
               .boolean = (domain_) == COMPARE || (domain_) == LOGIC}, \
        .d = {name_##_da, name_##_db},                                 \
        .domain = domain_,                                             \
    };
#define BINARY(name, domain, forward, da, db, doc) BINARY_ROW(name, domain, CLEF__AS_GIVEN, forward, da, db)
#define BINARY_FULL(name, domain, forward, da, db, doc) BINARY_ROW(name, domain, CLEF__FULL_PRECISION, forward, da, db)
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
    if (!CLEF__GIVEN(row->op.name, "a", a) || !(a = clef__autocast(a, row->op.precision))) return NULL;
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
