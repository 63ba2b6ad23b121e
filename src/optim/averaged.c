/* averaged.c — averages of a module's parameters over the steps of a training run.

     a_1 = p_1        a_n = p_n - (p_n - a_{n-1})·keep, with keep = decay, or (n - 1)/n where all count the same

   In this form the first average is p, and parameters that rest stay their own average, to the bit.  Each update is evaluated by itself: what
   else a program computes then changes no bit of it. */
#include "graph/graph.h"
#include "ops/ops.h"
#include "optim/optimizer.h"
#include <string.h>

typedef struct average {
    clef_tensor *parameter; /* the module's own */
    clef_tensor *value;
    clef_tensor *aside; /* the parameter's own value while it has the average; NULL: it has its own */
    char *name;
} average;

struct clef_averaged {
    clef_context *ctx;
    clef_averaged_options o;
    average *average;
    int n;
    int64_t updates;
    bool used;
    clef_averaged *next;
};

void clef__averaged_free(clef_averaged *first) {
    for (clef_averaged *a = first, *next; a; a = next) {
        next = a->next;
        for (int i = 0; i < a->n; i++) clef__free(a->average[i].name);
        clef__free(a->average);
        clef__free(a);
    }
}

/* ---- making ---- */
static bool is_averaged(const clef_averaged_options *o, clef_named_tensor t) {
    return clef__is_float(clef_tensor_dtype(t.tensor)) && (!t.is_buffer || o->buffers);
}

static bool has(const clef_averaged *a, const clef_tensor *t) {
    for (int i = 0; i < a->n; i++)
        if (a->average[i].parameter == t) return true;
    return false;
}

static clef_dtype dtype_of(const clef_tensor *t) { return clef_tensor_dtype(t) == CLEF_F64 ? CLEF_F64 : CLEF_F32; }

static bool add_average(clef_averaged *a, clef_named_tensor t) {
    average *v = &a->average[a->n];
    *v = (average){.parameter = t.tensor, .name = clef__strdup(t.name)};
    if (v->name) a->n++;
    else return false;
    v->value = clef__own(clef_copy(clef_to(clef_detach(t.tensor), dtype_of(t.tensor))));
    return v->value != NULL;
}

static clef_status compute(const clef_averaged *a, bool parameters) {
    clef_tensor **t = clef__calloc((size_t)a->n, sizeof *t);
    if (!t) return clef__fail(a->ctx, CLEF_MEMORY, "averaged: no memory for %d tensors", a->n);
    for (int i = 0; i < a->n; i++) t[i] = parameters ? a->average[i].parameter : a->average[i].value;
    clef_status status = clef_eval_all(t, a->n);
    clef__free(t);
    return status;
}

static bool fill(clef_averaged *a, const clef_module *module, int n) {
    a->average = clef__calloc((size_t)n, sizeof *a->average);
    for (int i = 0; a->average && i < n; i++) {
        clef_named_tensor t = clef_module_tensor(module, i);
        if (is_averaged(&a->o, t) && !has(a, t.tensor) && !add_average(a, t)) return false;
    }
    return a->average != NULL;
}

static clef_averaged *make(clef_module *module, clef_averaged_options o, int n) {
    clef_context *ctx = clef_module_context(module);
    clef__optim *room = clef__optim_state(ctx);
    if (!room) return NULL;
    clef_averaged *a = clef__calloc(1, sizeof *a);
    if (a) {
        *a = (clef_averaged){.ctx = ctx, .o = o, .next = room->averaged};
        room->averaged = a;
    }
    if (!a || !fill(a, module, n)) {
        clef__fail(ctx, CLEF_MEMORY, "averaged: no memory for averages of %d tensors", n);
        return NULL;
    }
    return compute(a, false) == CLEF_OK ? a : NULL;
}

static bool averages_narrow(const clef_averaged_options *o, const clef_module *module) {
    for (int i = 0; i < clef_module_tensors(module); i++) {
        clef_named_tensor t = clef_module_tensor(module, i);
        if (is_averaged(o, t) && dtype_of(t.tensor) == CLEF_F32) return true;
    }
    return false;
}

clef_averaged *clef_averaged_new(clef_module *module, const clef_averaged_options *options) {
    clef_averaged_options o = options ? *options : (clef_averaged_options){0};
    if (!module) return NULL;
    clef_context *ctx = clef_module_context(module);
    int n = 0;
    for (int i = 0; i < clef_module_tensors(module); i++) n += is_averaged(&o, clef_module_tensor(module, i));
    if (!(o.decay >= 0 && o.decay < 1))
        clef__fail(ctx, CLEF_INVALID, "averaged: decay is %g; it must be at least 0 and below 1", o.decay);
    else if ((float)o.decay == 1 && averages_narrow(&o, module))
        clef__fail(ctx, CLEF_INVALID,
                   "averaged: decay is 1 - %g, which is 1 in f32: averages would never change; take at most 1 - 6e-8", 1 - o.decay);
    else if (n == 0)
        clef__fail(ctx, CLEF_INVALID, "averaged: the %s has no floating parameter to average", clef_module_type(module));
    else {
        clef_averaged *a = NULL;
        for (CLEF_NO_GRAD(ctx)) a = make(module, o, n);
        return a;
    }
    return NULL;
}

/* ---- who has averages ---- */
bool clef__has_average(clef_context *ctx, const clef_tensor *parameter) {
    const clef__optim *room = clef__optim_state(ctx);
    for (const clef_averaged *a = room ? room->averaged : NULL; a; a = a->next)
        if (a->used && has(a, parameter)) return true;
    return false;
}

bool clef__averaged_in_use(const clef_averaged *averaged) {
    for (int i = 0; i < averaged->n; i++)
        if (clef__has_average(averaged->ctx, averaged->average[i].parameter)) return true;
    return false;
}

clef_status clef__refuse_averages(clef_context *ctx, const char *op) {
    return clef__fail(
        ctx, CLEF_STATE,
        "%s: the module has the averaged weights; give it back its own first, with clef_averaged_use(averaged, false)", op);
}

/* ---- updates ---- */

/* A parameter may have been moved since the last one. */
static clef_status update_one(const average *v, double keep, clef_tensor *gate) {
    clef_context *ctx = clef_tensor_context(v->parameter);
    clef_dtype dtype = clef_tensor_dtype(v->value);
    int device = clef_tensor_device(v->parameter);
    clef_status status = clef__move(ctx, &(clef_tensor *){v->value}, 1, device);
    clef_tensor *p = clef_to(v->parameter, dtype);
    clef_tensor *next = clef_sub(p, clef_mul(clef_sub(p, v->value), clef__number(ctx, dtype, keep)));
    if (gate) next = clef_where(clef_to_device(gate, device), next, v->value);
    if (!status && !next) status = clef_error_status(ctx);
    return status ? status : clef_assign(v->value, next);
}

clef_status clef__averaged_update_if(clef_averaged *a, clef_tensor *gate) {
    if (clef__averaged_in_use(a)) return clef__refuse_averages(a->ctx, "averaged_update");
    clef_status status = clef_error_status(a->ctx);
    double keep = a->updates == 0 ? 0 : a->o.decay > 0 ? a->o.decay : (double)a->updates / (double)(a->updates + 1);
    uint64_t made = clef__handles_made(a->ctx);
    for (CLEF_NO_GRAD(a->ctx))
        for (int i = 0; i < a->n && !status; i++) status = update_one(&a->average[i], keep, gate);
    if (!status) status = compute(a, false);
    clef__drop_since(a->ctx, made);
    if (!status) a->updates++;
    return status;
}

clef_status clef_averaged_update(clef_averaged *averaged) {
    return averaged ? clef__averaged_update_if(averaged, NULL) : CLEF_INVALID;
}

/* ---- use ---- */
static clef_status take_average(average *v) {
    v->aside = clef_keep(clef_copy(clef_detach(v->parameter)));
    return v->aside ? clef_assign(v->parameter, v->value) : clef_error_status(clef_tensor_context(v->parameter));
}

static clef_status give_back(clef_averaged *a) {
    clef_status status = CLEF_OK;
    for (int i = 0; i < a->n; i++) {
        average *v = &a->average[i];
        clef_status given = v->aside ? clef_assign(v->parameter, v->aside) : CLEF_OK;
        if (!status) status = given;
        clef__release_now(v->aside);
        v->aside = NULL;
    }
    a->used = false;
    return status;
}

/* What fails on the way goes all the way back. */
static clef_status take_averages(clef_averaged *a) {
    clef_status status = clef_error_status(a->ctx);
    for (int i = 0; i < a->n && !status; i++) status = take_average(&a->average[i]);
    if (!status) status = compute(a, true);
    a->used = true;
    if (status) give_back(a);
    return status;
}

clef_status clef_averaged_use(clef_averaged *averaged, bool use) {
    clef_averaged *a = averaged;
    if (!a) return CLEF_INVALID;
    if (a->used == use) return clef_error_status(a->ctx);
    if (use && clef__averaged_in_use(a)) return clef__refuse_averages(a->ctx, "averaged_use");
    clef_status status = CLEF_OK;
    uint64_t made = clef__handles_made(a->ctx);
    for (CLEF_NO_GRAD(a->ctx)) {
        status = use ? take_averages(a) : give_back(a);
        if (!use && !status) status = compute(a, true);
    }
    clef__drop_since(a->ctx, made);
    return status;
}

/* ---- asking, state ---- */
int64_t clef_averaged_updates(const clef_averaged *averaged) { return averaged ? averaged->updates : 0; }
void clef_averaged_set(clef_averaged *averaged, int64_t updates) {
    if (averaged) averaged->updates = updates;
}
int clef_averaged_tensors(const clef_averaged *averaged) { return averaged ? averaged->n : 0; }
clef_named_tensor clef_averaged_tensor(const clef_averaged *averaged, int i) {
    if (i < 0 || i >= clef_averaged_tensors(averaged)) return (clef_named_tensor){0};
    return (clef_named_tensor){.name = averaged->average[i].name, .tensor = averaged->average[i].value, .is_buffer = true};
}
clef_context *clef_averaged_context(const clef_averaged *averaged) { return averaged ? averaged->ctx : NULL; }
bool clef__averaged_has(const clef_averaged *averaged, const clef_tensor *parameter) { return has(averaged, parameter); }
