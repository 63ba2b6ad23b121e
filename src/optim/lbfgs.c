/* lbfgs.c — L-BFGS: steps along a direction that the last changes of the gradient make out of it, of all parameters as one flat vector.

     y_k = g_{k+1} - g_k        s_k = t·d_k, the step that was taken        ρ_k = 1/(y_k·s_k)
     d = -H·g by the two-loop recursion over the pairs, from the newest to the oldest and back, H_0 = (y·s)/(y·y) of the newest

   Liu and Nocedal, "On the limited memory BFGS method for large scale optimization", 1989.  The host decides, so every evaluation is
   waited for; the vectors stay on the device.  Temporaries of an evaluation end with it: the program's own live on. */
#include "graph/graph.h"
#include "ops/ops.h"
#include "optim/line_search.h"
#include "optim/optimizer.h"
#include <limits.h>
#include <string.h>

typedef struct pair {
    clef_tensor *s, *y; /* kept */
    double rho;
} pair;

struct clef_lbfgs {
    clef_context *ctx;
    clef_lbfgs_options o; /* defaults filled in */
    clef_tensor **parameter;
    int n;
    clef_dtype dtype;
    clef_tensor *x;          /* where the line begins; kept, as all flat vectors are */
    clef_tensor *d, *former; /* the last direction, and the gradient where it began; NULL: there was none */
    double t, scale;         /* the last step along it, and H_0 */
    pair *pair;              /* the oldest first */
    int pairs, capacity;
    clef_lbfgs_state state;
    bool steps; /* its closure may run */
    clef_lbfgs *next;
};

void clef__lbfgs_free(clef_lbfgs *first) {
    for (clef_lbfgs *o = first, *next; o; o = next) {
        next = o->next;
        clef__free(o->parameter);
        clef__free(o->pair);
        clef__free(o);
    }
}

/* ---- making ---- */
static bool is_trainable(clef_named_tensor t) {
    return !t.is_buffer && clef__is_float(clef_tensor_dtype(t.tensor)) && clef_numel(t.tensor) > 0;
}

static bool has(const clef_lbfgs *o, const clef_tensor *t) {
    for (int i = 0; i < o->n; i++)
        if (o->parameter[i] == t) return true;
    return false;
}

static void list_parameters(clef_lbfgs *o, const clef_module *module) {
    o->dtype = CLEF_F32;
    for (int i = 0; i < clef_module_tensors(module); i++) {
        clef_named_tensor t = clef_module_tensor(module, i);
        if (!is_trainable(t) || has(o, t.tensor)) continue;
        o->parameter[o->n++] = t.tensor;
        if (clef_tensor_dtype(t.tensor) == CLEF_F64) o->dtype = CLEF_F64;
    }
}

/* A search needs evaluations of its own, or a step of one iteration would try one length, and mostly not move. */
static int default_evaluations(const clef_lbfgs_options *o) {
    int least = o->strong_wolfe ? 25 : 1, some = o->max_iter < INT_MAX / 5 * 4 ? o->max_iter + o->max_iter / 4 : INT_MAX;
    return some > least ? some : least;
}

static clef_lbfgs_options defaults(const clef_lbfgs_options *options) {
    clef_lbfgs_options o = options ? *options : (clef_lbfgs_options){0};
    o.lr = clef__or(o.lr, 1);
    o.tolerance_grad = clef__or(o.tolerance_grad, 1e-7);
    o.tolerance_change = clef__or(o.tolerance_change, 1e-9);
    if (o.max_iter == 0) o.max_iter = 20;
    if (o.max_eval == 0 && o.max_iter > 0) o.max_eval = default_evaluations(&o);
    if (o.history == 0) o.history = 100;
    return o;
}

clef_lbfgs *clef_lbfgs_new(clef_module *module, const clef_lbfgs_options *options) {
    clef_lbfgs_options o = defaults(options);
    const clef__checked checked[] = {{"lr", o.lr},
                                     {"tolerance_grad", o.tolerance_grad},
                                     {"tolerance_change", o.tolerance_change},
                                     {"max_iter", o.max_iter},
                                     {"max_eval", o.max_eval},
                                     {"history", o.history}};
    if (!clef__check_options(module, "lbfgs", checked, 6)) return NULL;
    clef_context *ctx = clef_module_context(module);
    clef__optim *room = clef__optim_state(ctx);
    if (!room) return NULL;
    int n = clef_module_tensors(module);
    clef_lbfgs *l = clef__calloc(1, sizeof *l);
    if (l) {
        *l = (clef_lbfgs){.ctx = ctx, .o = o, .scale = 1, .next = room->lbfgs};
        room->lbfgs = l;
        l->parameter = clef__calloc((size_t)n + 1, sizeof *l->parameter);
    }
    if (!l || !l->parameter) {
        clef__fail(ctx, CLEF_MEMORY, "lbfgs: no memory for the optimizer");
        return NULL;
    }
    list_parameters(l, module);
    if (l->n > 0) return l;
    clef__fail(ctx, CLEF_INVALID, "lbfgs: the %s has no floating parameter to train; add its layers and parameters first",
               clef_module_type(module));
    return NULL;
}

/* ---- flat vectors, without recording ---- */
static void hold(clef_tensor **held, clef_tensor *t) {
    clef_tensor *former = *held;
    *held = clef_keep(t);
    clef__release_now(former);
}

static clef_tensor *number(const clef_lbfgs *o, double value) { return clef__number(o->ctx, o->dtype, value); }
static clef_tensor *scaled(const clef_lbfgs *o, clef_tensor *x, double by) { return clef_mul(x, number(o, by)); }
static clef_tensor *dot(clef_tensor *x, clef_tensor *y) { return clef_sum(clef_mul(x, y), NULL, 0, false); }
static clef_tensor *largest(clef_tensor *x) { return clef_max(clef_abs(x), NULL, 0, false); }

/* All parameters, or their gradients: zeros where there is none. */
static clef_tensor *gather(const clef_lbfgs *o, bool gradients) {
    clef_tensor **t = clef__calloc((size_t)o->n, sizeof *t), *flat = NULL;
    int device = clef_tensor_device(o->parameter[0]);
    if (!t) return clef__refuse(o->ctx, "lbfgs", CLEF_MEMORY, "no memory for %d tensors", o->n);
    for (int i = 0; i < o->n; i++) {
        clef_tensor *p = o->parameter[i], *value = gradients ? clef_grad_of(p) : p;
        if (!value) value = clef_zeros_like(p);
        t[i] = clef_to_device(clef_to(clef_reshape(value, CLEF_SHAPE(clef_numel(p))), o->dtype), device);
    }
    flat = o->n > 1 ? clef_concat(t, o->n, 0) : clef_copy(t[0]);
    clef__free(t);
    return flat;
}

/* The parameters become x + t·d. */
static clef_status move(const clef_lbfgs *o, double t) {
    clef_tensor *x = t == 0 ? o->x : clef_add(o->x, scaled(o, o->d, t));
    clef_status status = x ? CLEF_OK : clef_error_status(o->ctx);
    int64_t at = 0;
    for (int i = 0; i < o->n && !status; i++) {
        int64_t n = clef_numel(o->parameter[i]);
        clef_tensor *value = clef_reshape(clef_slice(x, 0, at, at + n, 1), clef_tensor_shape(o->parameter[i]));
        status = value ? clef_assign(o->parameter[i], value) : clef_error_status(o->ctx);
        at += n;
    }
    return status;
}

/* d = -H·g. */
static clef_tensor *direction(const clef_lbfgs *o, clef_tensor *g) {
    clef_tensor **alpha = clef__calloc((size_t)o->pairs + 1, sizeof *alpha), *d = clef_neg(g);
    if (!alpha) return clef__refuse(o->ctx, "lbfgs", CLEF_MEMORY, "no memory for %d numbers", o->pairs);
    for (int i = o->pairs - 1; i >= 0; i--) {
        alpha[i] = scaled(o, dot(o->pair[i].s, d), o->pair[i].rho);
        d = clef_sub(d, clef_mul(o->pair[i].y, alpha[i]));
    }
    d = scaled(o, d, o->scale);
    for (int i = 0; i < o->pairs; i++) {
        clef_tensor *beta = scaled(o, dot(o->pair[i].y, d), o->pair[i].rho);
        d = clef_add(d, clef_mul(o->pair[i].s, clef_sub(alpha[i], beta)));
    }
    clef__free(alpha);
    return d;
}

/* ---- evaluations ---- */
typedef struct run {
    clef_lbfgs *o;
    clef_closure_fn closure;
    void *user;
} run;

static void clear_gradients(const clef_lbfgs *o) {
    for (int i = 0; i < o->n; i++) clef_set_grad(o->parameter[i], CLEF_NONE);
}

static clef_tensor *loss_and_gradients(const run *r) {
    clef_context *ctx = r->o->ctx;
    clear_gradients(r->o);
    bool was = clef_set_grad_enabled(ctx, true);
    clef_tensor *loss = r->closure(r->user);
    clef_status status = loss ? clef_backward(loss) : CLEF_INVALID;
    clef_set_grad_enabled(ctx, was);
    if (!loss && !clef_error_status(ctx)) clef__fail(ctx, CLEF_INVALID, "lbfgs_step: the closure gave no loss");
    return status ? NULL : loss;
}

static clef_status read_point(const run *r, double t, clef__line_point *p) {
    clef_lbfgs *o = r->o;
    clef_tensor *loss = loss_and_gradients(r), *g = loss ? gather(o, true) : NULL;
    clef_tensor *all[] = {loss, g, largest(g), dot(g, o->d ? o->d : g)};
    clef_status status = all[3] ? clef_eval_all(all, 4) : clef_error_status(o->ctx);
    if (status) return status;
    *p = (clef__line_point){t, clef_item(loss), clef_item(all[3]), clef_item(all[2]), g};
    if (!isfinite(p->loss) || !isfinite(p->steepest)) p->loss = INFINITY;
    o->state.evaluations++;
    return clef_error_status(o->ctx);
}

static clef_status evaluate(void *user, double t, clef__line_point *point) {
    const run *r = user;
    uint64_t made = clef__handles_made(r->o->ctx);
    int wanted = clef__results_wanted(r->o->ctx);
    clef__line_point p = {0};
    clef_status status = move(r->o, t);
    if (!status) status = read_point(r, t, &p);
    if (!status) clef__hold_point(point, &p);
    clear_gradients(r->o);
    clef__want_first(r->o->ctx, wanted); /* what the step's end need not compute holds no memory until then */
    clef__drop_since(r->o->ctx, made);
    return status;
}

/* ---- one iteration ---- */

/* The oldest makes room for it. */
static clef_status add_pair(clef_lbfgs *o, pair new) {
    if (o->pairs == o->o.history) {
        clef__release_now(o->pair[0].s);
        clef__release_now(o->pair[0].y);
        memmove(o->pair, o->pair + 1, (size_t)--o->pairs * sizeof *o->pair);
    }
    if (!clef__grow(&o->pair, o->pairs, &o->capacity, sizeof *o->pair))
        return clef__fail(o->ctx, CLEF_MEMORY, "lbfgs_step: no memory for %d pairs", o->pairs + 1);
    clef_keep(new.s);
    clef_keep(new.y);
    o->pair[o->pairs++] = new;
    return CLEF_OK;
}

/* What the last step says of the curvature, unless rounding or a line that curves the other way leaves nothing to say. */
static clef_status learn_pair(clef_lbfgs *o, clef_tensor *g) {
    static const double least = 1e-10;
    uint64_t made = clef__handles_made(o->ctx);
    clef_tensor *y = clef_sub(g, o->former), *s = scaled(o, o->d, o->t);
    clef_tensor *all[] = {y, s, dot(y, s), dot(y, y)};
    clef_status status = all[2] && all[3] ? clef_eval_all(all, 4) : clef_error_status(o->ctx);
    double ys = status ? 0 : clef_item(all[2]), yy = status ? 0 : clef_item(all[3]);
    if (ys > least && isfinite(ys) && isfinite(yy)) {
        status = add_pair(o, (pair){s, y, 1 / ys});
        o->scale = ys / yy;
    }
    clef__drop_since(o->ctx, made);
    return status;
}

typedef struct facts {
    double slope, longest, sum; /* g·d, the largest |element| of d, Σ |g| */
} facts;

static clef_status check_facts(const clef_lbfgs *o, const facts *f) {
    if (isfinite(f->slope) && isfinite(f->longest) && isfinite(f->sum)) return CLEF_OK;
    return clef__fail(o->ctx, CLEF_INVALID,
                      "lbfgs_step: sums of products of the gradient's elements are too large for %s; multiply the loss by a small "
                      "number, or make the parameters f64",
                      clef_dtype_name(o->dtype));
}

static clef_status find_direction(clef_lbfgs *o, clef_tensor *g, facts *f) {
    uint64_t made = clef__handles_made(o->ctx);
    clef_tensor *d = direction(o, g);
    clef_tensor *all[] = {d, dot(g, d), largest(d), clef_sum(clef_abs(g), NULL, 0, false)};
    clef_status status = all[1] && all[2] && all[3] ? clef_eval_all(all, 4) : clef_error_status(o->ctx);
    if (!status) {
        *f = (facts){clef_item(all[1]), clef_item(all[2]), clef_item(all[3])};
        status = check_facts(o, f);
    }
    if (!status) hold(&o->d, d);
    clef__drop_since(o->ctx, made);
    return status;
}

/* The line's point at t is where the next one begins. */
static clef_status accept(clef_lbfgs *o) {
    uint64_t made = clef__handles_made(o->ctx);
    clef_tensor *x = clef_add(o->x, scaled(o, o->d, o->t));
    clef_status status = x ? clef_eval(x) : clef_error_status(o->ctx);
    if (!status) hold(&o->x, x);
    if (!status) status = move(o, 0);
    clef__drop_since(o->ctx, made);
    return status;
}

/* A step of the length that was set.  What it leads to is not asked for where nothing follows. */
static clef_status fixed_step(const run *r, bool last, clef__line_point *now) {
    clef_status status = last ? CLEF_OK : evaluate((void *)r, r->o->t, now);
    if (!status && !isfinite(now->loss))
        status =
            clef__fail(r->o->ctx, CLEF_INVALID,
                       "lbfgs_step: the loss or its gradient is not finite after a step; the parameters are those from before; "
                       "try strong_wolfe or a lower lr (now %g)",
                       r->o->o.lr);
    return status ? status : accept(r->o);
}

static clef_status search_step(const run *r, const facts *f, int64_t most, clef__line_point *now) {
    clef_lbfgs *o = r->o;
    clef__line_point start = *now;
    start.t = 0;
    start.slope = f->slope;
    clef__line line = {evaluate, (void *)r, f->longest, o->o.tolerance_change, most, 0};
    clef__line_point best = {0};
    clef_status status = clef__strong_wolfe(&line, &start, o->t, &best);
    if (!status) {
        o->t = best.t;
        clef__hold_point(now, &best);
        status = accept(o);
    }
    clef__hold_point(&best, &(clef__line_point){0});
    return status;
}

static clef_status iterate(const run *r, int iteration, int64_t evaluations, clef__line_point *now, bool *ends) {
    clef_lbfgs *o = r->o;
    facts f = {0};
    bool first = !o->d;
    clef_status status = first ? CLEF_OK : learn_pair(o, now->gradient);
    o->state.iterations++;
    if (!status) status = find_direction(o, now->gradient, &f);
    if (status) return status;
    hold(&o->former, now->gradient);
    double before = now->loss;
    o->t = first ? fmin(1, 1 / f.sum) * o->o.lr : o->o.lr;
    *ends = f.slope > -o->o.tolerance_change;
    if (*ends) return CLEF_OK;
    bool last = iteration == o->o.max_iter;
    status = o->o.strong_wolfe ? search_step(r, &f, o->o.max_eval - evaluations, now) : fixed_step(r, last, now);
    *ends = last || now->steepest <= o->o.tolerance_grad || f.longest * o->t <= o->o.tolerance_change ||
            fabs(now->loss - before) < o->o.tolerance_change;
    return status;
}

/* ---- the step ---- */

/* The vectors lie where the first parameter does, which may have been moved. */
static clef_status follow_parameters(const clef_lbfgs *o) {
    int device = clef_tensor_device(o->parameter[0]);
    clef_status status = o->d ? clef__move(o->ctx, (clef_tensor *[]){o->d, o->former}, 2, device) : CLEF_OK;
    for (int i = 0; i < o->pairs && !status; i++)
        status = clef__move(o->ctx, (clef_tensor *[]){o->pair[i].s, o->pair[i].y}, 2, device);
    return status;
}

static clef_status begin(const run *r, clef__line_point *now) {
    clef_lbfgs *o = r->o;
    uint64_t made = clef__handles_made(o->ctx);
    clef_tensor *x = gather(o, false);
    clef_status status = x ? clef_eval(x) : clef_error_status(o->ctx);
    if (!status) hold(&o->x, x);
    clef__drop_since(o->ctx, made);
    if (!status) status = follow_parameters(o);
    if (!status) status = evaluate((void *)r, 0, now);
    if (!status && !isfinite(now->loss))
        status =
            clef__fail(o->ctx, CLEF_INVALID,
                       "lbfgs_step: the loss or its gradient is not finite where the step begins, so nothing was moved; look at "
                       "the parameters and the data");
    return status;
}

static clef_status minimize(const run *r, double *loss, clef__line_point *now) {
    clef_lbfgs *o = r->o;
    int64_t before = o->state.evaluations;
    clef_status status = begin(r, now);
    if (status) return status;
    if (loss) *loss = now->loss;
    bool ends = now->steepest <= o->o.tolerance_grad;
    for (int i = 1; !status && !ends && i <= o->o.max_iter; i++) {
        status = iterate(r, i, o->state.evaluations - before, now, &ends);
        ends |= o->state.evaluations - before >= o->o.max_eval;
    }
    if (!status) o->state.loss = now->loss;
    else hold(&o->d, NULL), hold(&o->former, NULL); /* no step was taken along it */
    return status;
}

/* The parameters are where the last line began. */
static clef_status put_back(const clef_lbfgs *o) {
    uint64_t made = clef__handles_made(o->ctx);
    clef_status placed = o->x ? move(o, 0) : CLEF_OK, computed = clef_eval_all(o->parameter, o->n);
    clef__drop_since(o->ctx, made);
    return placed ? placed : computed;
}

static clef_status check_usable(const clef_lbfgs *o) {
    if (o->steps)
        return clef__fail(o->ctx, CLEF_STATE, "lbfgs_step: its closure calls it again; let the closure give the loss alone");
    for (int i = 0; i < o->n; i++)
        if (clef__has_average(o->ctx, o->parameter[i])) return clef__refuse_averages(o->ctx, "lbfgs_step");
    return CLEF_OK;
}

/* After a failure the parameters are where the last step that was taken led. */
clef_status clef_lbfgs_step(clef_lbfgs *lbfgs, clef_closure_fn closure, void *user, double *loss) {
    clef_lbfgs *o = lbfgs;
    if (!o) return CLEF_INVALID;
    if (!closure) return clef__fail(o->ctx, CLEF_INVALID, "lbfgs_step: the closure is NULL; give a function that returns the loss");
    if (clef_error_status(o->ctx)) return clef_error_status(o->ctx);
    clef_status usable = check_usable(o);
    if (usable) return usable;
    o->steps = true;
    run r = {o, closure, user};
    clef__line_point now = {0};
    bool was = clef_set_grad_enabled(o->ctx, false);
    clef_status status = minimize(&r, loss, &now);
    clef_status placed = put_back(o);
    clef_set_grad_enabled(o->ctx, was);
    clef__hold_point(&now, &(clef__line_point){0});
    hold(&o->x, NULL);
    o->steps = false;
    return status ? status : placed;
}

clef_lbfgs_state clef_lbfgs_get(const clef_lbfgs *lbfgs) { return lbfgs ? lbfgs->state : (clef_lbfgs_state){0}; }
