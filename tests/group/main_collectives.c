/* Random programs of collective operations on 1 to 5 ranks, against an oracle that holds the numbers of all ranks.

   All ranks create the same operations, but each reads what it likes when it likes, so that its plans are cut elsewhere.  Numbers are small and
   whole, so every sum is exact.  Then the gradients: of a sum of all outputs, each times a number, against that sum for one input after the
   other set to one.   CLEF_GROUP_CASES: how many programs;  CLEF_GROUP_FIRST: the first one's seed.
   ctest: cost=60 apart plain */
#include "ranks.h"

enum { MOST = 96, STEPS = 14, POOL = 24 };

typedef enum kind { REDUCE, GATHER, SCATTER, BROADCAST, EXCHANGE, RING, ADD, SCALE, SWAP, KINDS } kind;
static const char *const kind_name[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all",
                                        "ring",       "add",        "scale",          "swap"};

/* A value on all ranks. */
typedef struct shadow {
    clef_shape shape;
    clef_dtype dtype;
    double at[MOST_RANKS][MOST];
} shadow;

typedef struct step {
    kind kind;
    int a, b, dim, root;
    clef_group_reduction reduction;
} step;

/* ---- the oracle ---- */

static int64_t numel(clef_shape s) { return clef_shape_numel(s); }

/* Elements before, of and behind a dimension. */
static void around(clef_shape s, int dim, int64_t *outer, int64_t *n, int64_t *inner) {
    *outer = *inner = 1;
    *n = s.dim[dim];
    for (int d = 0; d < s.rank; d++) *(d < dim ? outer : inner) *= d == dim ? 1 : s.dim[d];
}

static double reduce(clef_group_reduction r, double a, double b) {
    switch (r) {
    case CLEF_GROUP_PRODUCT: return a * b;
    case CLEF_GROUP_MIN: return a < b ? a : b;
    case CLEF_GROUP_MAX: return a > b ? a : b;
    default: return a + b;
    }
}

static double reduced(const shadow *x, int ranks, clef_group_reduction r, int64_t i) {
    double y = x->at[0][i];
    for (int k = 1; k < ranks; k++) y = reduce(r, y, x->at[k][i]);
    return r == CLEF_GROUP_MEAN ? y / ranks : y;
}

/* Where element i of part `part` of a dimension cut into `parts` lies in the whole. */
static int64_t in_whole(clef_shape whole, int dim, int parts, int part, int64_t i) {
    int64_t outer, n, inner;
    around(whole, dim, &outer, &n, &inner);
    int64_t cut = n / parts;
    return ((i / (cut * inner)) * n + part * cut) * inner + i % (cut * inner);
}

static void shadow_step(const step *s, int ranks, const shadow *a, const shadow *b, shadow *y) {
    *y = (shadow){.shape = a->shape, .dtype = a->dtype};
    if (s->kind == GATHER) y->shape.dim[s->dim] *= ranks;
    if (s->kind == SCATTER) y->shape.dim[s->dim] /= ranks;
    if (s->kind == SWAP) y->shape = (clef_shape){2, {a->shape.dim[1], a->shape.dim[0]}};
    int64_t n = numel(y->shape), part = numel(a->shape) / ranks;
    for (int r = 0; r < ranks; r++) {
        for (int64_t i = 0; i < n && s->kind != GATHER && s->kind != EXCHANGE; i++) switch (s->kind) {
            case REDUCE: y->at[r][i] = reduced(a, ranks, s->reduction, i); break;
            case SCATTER: y->at[r][i] = reduced(a, ranks, s->reduction, in_whole(a->shape, s->dim, ranks, r, i)); break;
            case BROADCAST: y->at[r][i] = a->at[s->root][i]; break;
            case RING: y->at[r][i] = a->at[(r + ranks - 1) % ranks][i]; break;
            case ADD: y->at[r][i] = a->at[r][i] + b->at[r][i]; break;
            case SCALE: y->at[r][i] = -a->at[r][i]; break;
            default: y->at[r][i] = a->at[r][i % y->shape.dim[1] * a->shape.dim[1] + i / y->shape.dim[1]]; break;
            }
        for (int from = 0; from < ranks; from++) {
            for (int64_t i = 0; s->kind == GATHER && i < numel(a->shape); i++)
                y->at[r][in_whole(y->shape, s->dim, ranks, from, i)] = a->at[from][i];
            for (int64_t i = 0; s->kind == EXCHANGE && i < part; i++)
                y->at[r][in_whole(y->shape, s->dim, ranks, from, i)] = a->at[from][in_whole(a->shape, s->dim, ranks, r, i)];
        }
    }
}

/* ---- the library ---- */

static clef_tensor *ring(clef_context *ctx, clef_group *all, clef_tensor *x) {
    int n = clef_group_size(all), r = clef_group_rank(all);
    if (n == 1) return clef_copy(x);
    clef_send(x, all, (r + 1) % n);
    return clef_recv(ctx, all, (r + n - 1) % n, clef_tensor_shape(x), clef_tensor_dtype(x));
}

static clef_tensor *real_step(const step *s, clef_context *ctx, clef_group *all, clef_tensor *a, clef_tensor *b) {
    switch (s->kind) {
    case REDUCE: return clef_all_reduce(a, all, s->reduction);
    case GATHER: return clef_all_gather(a, all, s->dim);
    case SCATTER: return clef_reduce_scatter(a, all, s->dim, s->reduction);
    case BROADCAST: return clef_broadcast(a, all, s->root);
    case EXCHANGE: return clef_all_to_all(a, all, s->dim);
    case RING: return ring(ctx, all, a);
    case ADD: return clef_add(a, b);
    case SCALE: return clef_neg(a);
    default: return clef_transpose(a, 0, 1);
    }
}

/* ---- random programs ---- */

typedef struct program {
    uint64_t seed;
    int ranks;
    clef_dtype dtype;
    shadow pool[POOL];
    step step[STEPS];
    int n;
} program;

static bool is_float(clef_dtype d) { return d == CLEF_F32 || d == CLEF_F16 || d == CLEF_BF16 || d == CLEF_F64; }

/* Small enough that every dtype holds it exactly. */
static bool exact(const program *p, const shadow *y) {
    double most = p->dtype == CLEF_BF16 ? 128 : p->dtype == CLEF_F16 ? 1024 : 1 << 20;
    for (int r = 0; r < p->ranks; r++)
        for (int64_t i = 0; i < numel(y->shape); i++)
            if (y->at[r][i] > most || y->at[r][i] < -most || y->at[r][i] * 4 != (int)(y->at[r][i] * 4)) return false;
    return true;
}

static bool possible(const program *p, const step *s, const shadow *a, const shadow *b) {
    if (s->kind == GATHER && numel(a->shape) * p->ranks > MOST) return false;
    if ((s->kind == SCATTER || s->kind == EXCHANGE) && a->shape.dim[s->dim] % p->ranks) return false;
    if (s->kind == ADD && !clef_shape_equal(a->shape, b->shape)) return false;
    if (s->kind == SWAP && a->shape.rank != 2) return false;
    bool mean = (s->kind == REDUCE || s->kind == SCATTER) && s->reduction == CLEF_GROUP_MEAN;
    return !mean || (is_float(p->dtype) && (p->ranks & (p->ranks - 1)) == 0 && p->dtype != CLEF_BF16);
}

static void make_first(program *p, uint64_t *random) {
    shadow *x = &p->pool[0];
    *x = (shadow){.shape = {.rank = 1 + random_below(random, 3)}, .dtype = p->dtype};
    for (int d = 0; d < x->shape.rank; d++) x->shape.dim[d] = 1 + random_below(random, 3);
    int wide = random_below(random, x->shape.rank);
    if (random_below(random, 4)) x->shape.dim[wide] *= p->ranks;
    if (random_below(random, 12) == 0) x->shape.dim[0] = 0;
    while (numel(x->shape) > MOST) x->shape.dim[x->shape.rank - 1] = 1, x->shape.rank--;
    for (int r = 0; r < p->ranks; r++)
        for (int64_t i = 0; i < numel(x->shape); i++) x->at[r][i] = random_below(random, 7) - 3;
}

static void make_program(program *p, uint64_t seed) {
    static const clef_dtype dtypes[] = {CLEF_F32, CLEF_F32, CLEF_F16, CLEF_BF16, CLEF_I32, CLEF_I64};
    uint64_t random = seed;
    *p = (program){.seed = seed, .ranks = 1 + random_below(&random, 5)};
    p->dtype = dtypes[random_below(&random, 6)];
    make_first(p, &random);
    for (int tries = 0; tries < 200 && p->n < STEPS; tries++) {
        step s = {
            .kind = (kind)random_below(&random, KINDS), .a = random_below(&random, p->n + 1), .b = random_below(&random, p->n + 1)};
        const shadow *a = &p->pool[s.a], *b = &p->pool[s.b];
        s.dim = random_below(&random, a->shape.rank);
        s.root = random_below(&random, p->ranks);
        s.reduction = (clef_group_reduction)random_below(&random, 5);
        if (!possible(p, &s, a, b)) continue;
        shadow_step(&s, p->ranks, a, b, &p->pool[p->n + 1]);
        if (exact(p, &p->pool[p->n + 1])) p->step[p->n++] = s;
    }
}

/* ---- on each rank ---- */

static clef_tensor *upload(clef_context *ctx, const shadow *x, int rank) {
    float host[MOST];
    for (int i = 0; i < MOST; i++) host[i] = (float)x->at[rank][i];
    return clef_to(clef_from_host(ctx, x->shape, CLEF_F32, host), x->dtype);
}

static void expect(clef_context *ctx, const program *p, int i, clef_tensor *y, int rank) {
    const shadow *want = &p->pool[i];
    float got[MOST] = {0};
    if (!y || !clef_shape_equal(clef_tensor_shape(y), want->shape)) {
        COMPLAIN("seed %llu, rank %d of %d, value %d: no such result; %s", (unsigned long long)p->seed, rank, p->ranks, i,
                 clef_error(ctx));
        return;
    }
    clef_tensor *wide = clef_to(y, CLEF_F32);
    if (numel(want->shape) && clef_read(wide, got, (size_t)numel(want->shape) * sizeof *got) != CLEF_OK)
        COMPLAIN("seed %llu, rank %d: %s", (unsigned long long)p->seed, rank, clef_error(ctx));
    for (int64_t k = 0; k < numel(want->shape); k++)
        if (got[k] != (float)want->at[rank][k]) {
            COMPLAIN("seed %llu, rank %d of %d, value %d (%s), element %d: %g, not %g", (unsigned long long)p->seed, rank, p->ranks,
                     i, i ? kind_name[p->step[i - 1].kind] : "input", (int)k, (double)got[k], want->at[rank][k]);
            return;
        }
}

static clef_status run_program(clef_context *ctx, clef_group *all, void *user) {
    const program *p = user;
    int rank = clef_group_rank(all);
    uint64_t own = p->seed * 31 + (uint64_t)rank; /* what this rank reads */
    clef_tensor *value[POOL];
    clef_set_grad_enabled(ctx, false);
    value[0] = upload(ctx, &p->pool[0], rank);
    for (int i = 0; i < p->n; i++) {
        value[i + 1] = real_step(&p->step[i], ctx, all, value[p->step[i].a], value[p->step[i].b]);
        if (random_below(&own, 4) == 0) {
            int k = random_below(&own, i + 2);
            expect(ctx, p, k, value[k], rank);
        }
    }
    int reads = random_below(&own, p->n + 2); /* some ranks read nothing */
    for (int i = p->n + 1 - reads; i <= p->n; i++) expect(ctx, p, i, value[i], rank);
    clef_end_step(ctx);
    clef_synchronize(ctx);
    return clef_error_status(ctx);
}

/* ---- gradients ---- */

/* d (sum over ranks of w·y) / dx, by one input at a time, as everything is linear. */
static void oracle_gradient(const program *p, const shadow *w, shadow *dx) {
    static shadow pool[POOL];
    *dx = p->pool[0];
    for (int s = 0; s < p->ranks; s++)
        for (int64_t i = 0; i < numel(dx->shape); i++) {
            pool[0] = (shadow){.shape = dx->shape};
            pool[0].at[s][i] = 1;
            for (int k = 0; k < p->n; k++)
                shadow_step(&p->step[k], p->ranks, &pool[p->step[k].a], &pool[p->step[k].b], &pool[k + 1]);
            double sum = 0;
            for (int r = 0; r < p->ranks; r++)
                for (int64_t k = 0; k < numel(w->shape); k++) sum += pool[p->n].at[r][k] * w->at[r][k];
            dx->at[s][i] = sum;
        }
}

typedef struct gradient_case {
    program p;
    shadow w, dx;
} gradient_case;

static clef_status run_gradient(clef_context *ctx, clef_group *all, void *user) {
    const gradient_case *c = user;
    int rank = clef_group_rank(all);
    clef_tensor *value[POOL];
    value[0] = clef_require_grad(clef_keep(upload(ctx, &c->p.pool[0], rank)), true);
    for (int i = 0; i < c->p.n; i++)
        value[i + 1] = real_step(&c->p.step[i], ctx, all, value[c->p.step[i].a], value[c->p.step[i].b]);
    clef_tensor *loss = clef_sum(clef_mul(value[c->p.n], upload(ctx, &c->w, rank)), NULL, 0, false);
    clef_backward(loss);
    program as = {.seed = c->p.seed, .ranks = c->p.ranks};
    as.pool[0] = c->dx;
    clef_tensor *grad = clef_grad_of(value[0]);
    if (!grad) grad = clef_zeros_like(value[0]);
    expect(ctx, &as, 0, grad, rank);
    clef_end_step(ctx);
    return clef_error_status(ctx);
}

static bool is_linear(const step *s) {
    bool reduces = s->kind == REDUCE || s->kind == SCATTER;
    return s->kind != RING && (!reduces || s->reduction == CLEF_GROUP_SUM || s->reduction == CLEF_GROUP_MEAN);
}

/* The linear steps of a program, each on the result of the one before. */
static bool make_gradient(gradient_case *c, uint64_t seed) {
    uint64_t random = seed;
    make_program(&c->p, seed);
    int n = 0;
    for (int i = 0; i < c->p.n && n < 5; i++) {
        step s = c->p.step[i];
        s.a = s.b = n;
        if (!is_linear(&s) || s.dim >= c->p.pool[n].shape.rank || !possible(&c->p, &s, &c->p.pool[n], &c->p.pool[n])) continue;
        shadow_step(&s, c->p.ranks, &c->p.pool[n], &c->p.pool[n], &c->p.pool[n + 1]);
        c->p.step[n++] = s;
    }
    c->p.n = n;
    c->p.dtype = c->p.pool[0].dtype = CLEF_F32;
    c->w = c->p.pool[n];
    c->w.dtype = CLEF_F32;
    for (int r = 0; r < c->p.ranks; r++)
        for (int64_t i = 0; i < numel(c->w.shape); i++) c->w.at[r][i] = random_below(&random, 5) - 2;
    oracle_gradient(&c->p, &c->w, &c->dx);
    return n > 0 && numel(c->dx.shape) > 0;
}

static void run(clef_rank_fn fn, void *user, const program *p) {
    char devices[2 * MOST_RANKS];
    clef_status status = clef_run_ranks(ranks_on_one(p->ranks, devices), fn, user);
    if (status != CLEF_OK)
        COMPLAIN("seed %llu on %d ranks: %s: %s", (unsigned long long)p->seed, p->ranks, clef_status_name(status),
                 clef_error(NULL));
}

int main(void) {
    int code;
    if (!have_device(&code)) return code;
    long cases = cases_from_env("CLEF_GROUP_CASES", 40), first = number_from_env("CLEF_GROUP_FIRST", 1);
    static gradient_case c;
    for (long i = 0; i < cases && !complaints; i++) {
        make_program(&c.p, (uint64_t)(first + i));
        run(run_program, &c.p, &c.p);
        if (make_gradient(&c, (uint64_t)(first + i))) run(run_gradient, &c, &c.p);
    }
    return complaints != 0;
}
