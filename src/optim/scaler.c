/* scaler.c — a dynamic factor for losses, so that gradients of half types neither vanish nor overflow.

     scale·growth after `interval` updates in a row with finite gradients, scale·backoff after one without

   Micikevicius et al., "Mixed precision training", 2018.  The host decides whether a step is taken, as what is skipped must not count as an
   update of Adam's. */
#include "graph/graph.h"
#include "ops/ops.h"
#include "optim/optimizer.h"

struct clef_grad_scaler {
    clef_context *ctx;
    clef_grad_scaler_options o; /* defaults filled in */
    clef_grad_scaler_state state;
    bool skipped; /* a step since the last update */
    clef_grad_scaler *next;
};

void clef__scaler_free(clef_grad_scaler *first) {
    for (clef_grad_scaler *s = first, *next; s; s = next) {
        next = s->next;
        clef__free(s);
    }
}

static bool is_positive(double x) { return isfinite(x) && x > 0; }

clef_grad_scaler *clef_grad_scaler_new(clef_context *ctx, const clef_grad_scaler_options *options) {
    if (!ctx) return NULL;
    clef_grad_scaler_options o = options ? *options : (clef_grad_scaler_options){0};
    o.scale = o.scale != 0 ? o.scale : 65536;
    o.growth = o.growth != 0 ? o.growth : 2;
    o.backoff = o.backoff != 0 ? o.backoff : 0.5;
    o.interval = o.interval != 0 ? o.interval : 2000;
    if (!clef__is_scale(o.scale) || !is_positive(o.growth) || o.growth < 1 || !is_positive(o.backoff) || o.backoff > 1 ||
        o.interval < 1) {
        clef__fail(
            ctx, CLEF_INVALID,
            "grad_scaler: scale %g, growth %g, backoff %g, interval %lld; scale must be from 2^-126 to 2^126, growth at least 1, "
            "backoff from 0 to 1 and interval at least 1",
            o.scale, o.growth, o.backoff, (long long)o.interval);
        return NULL;
    }
    clef__optim *room = clef__optim_state(ctx);
    clef_grad_scaler *s = room ? clef__calloc(1, sizeof *s) : NULL;
    if (!s) {
        clef__fail(ctx, CLEF_MEMORY, "grad_scaler: no memory for it");
        return NULL;
    }
    *s = (clef_grad_scaler){.ctx = ctx, .o = o, .state.scale = o.scale, .next = room->scalers};
    room->scalers = s;
    return s;
}

static clef_tensor *times(clef_tensor *t, double by) {
    clef_dtype dtype = clef_tensor_dtype(t) == CLEF_F64 ? CLEF_F64 : CLEF_F32;
    return t ? clef_mul(clef_to(t, dtype), clef__number(clef_tensor_context(t), dtype, by)) : NULL;
}

clef_tensor *clef_grad_scaler_scale(clef_grad_scaler *scaler, clef_tensor *loss) {
    return scaler && loss ? times(loss, scaler->state.scale) : NULL;
}

clef_tensor *clef_grad_scaler_clip_norm(clef_grad_scaler *scaler, clef_module *module, double max_norm) {
    if (!scaler || !module) return NULL;
    clef_tensor *norm = clef_clip_grad_norm(module, max_norm * scaler->state.scale), *own = NULL;
    for (CLEF_NO_GRAD(scaler->ctx)) own = norm ? times(norm, 1 / scaler->state.scale) : NULL;
    return own;
}

/* ---- the step ---- */

/* 1 where all of the gradient is finite, else 0, on the device where all are brought together. */
static clef_tensor *is_finite(clef_tensor *g, int device) {
    clef_tensor *largest = clef_max(clef_abs(g), NULL, 0, false); /* NaN where there is one */
    return clef_to_device(clef_to(clef_reshape(clef_isfinite(largest), CLEF_SHAPE(1)), CLEF_F32), device);
}

static clef_status read_finite(const clef_optimizer *opt, clef_tensor **t, bool *finite) {
    int n = 0, device = clef_tensor_device(opt->slot[0].parameter);
    for (int i = 0; i < opt->n; i++) {
        clef_tensor *p = opt->slot[i].parameter, *g = clef_numel(p) ? clef_grad_of(p) : NULL;
        if (g) t[n++] = is_finite(g, device);
    }
    *finite = true;
    if (clef_error_status(opt->ctx) || n == 0) return clef_error_status(opt->ctx);
    *finite = clef_item(clef_min(clef_concat(t, n, 0), NULL, 0, false)) == 1;
    return clef_error_status(opt->ctx);
}

static clef_status find_finite(const clef_optimizer *opt, bool *finite) {
    clef_tensor **t = clef__calloc((size_t)opt->n, sizeof *t);
    if (!t) return clef__fail(opt->ctx, CLEF_MEMORY, "grad_scaler_step: no memory for %d gradients", opt->n);
    clef_status status = CLEF_OK;
    for (CLEF_NO_GRAD(opt->ctx)) status = read_finite(opt, t, finite);
    clef__free(t);
    return status;
}

clef_status clef_grad_scaler_step(clef_grad_scaler *scaler, clef_optimizer *opt) {
    if (!scaler || !opt) return CLEF_INVALID;
    if (opt->ctx != scaler->ctx)
        return clef__fail(opt->ctx, CLEF_INVALID, "grad_scaler_step: scaler and optimizer belong to different contexts");
    bool finite = false;
    clef_status status = find_finite(opt, &finite);
    if (status) return status;
    if (finite) return clef__step_scaled(opt, 1 / scaler->state.scale);
    scaler->skipped = true;
    return clef__skip_step(opt);
}

clef_context *clef__scaler_context(const clef_grad_scaler *scaler) { return scaler->ctx; }

bool clef__scaler_skipped(const clef_grad_scaler *scaler) { return scaler->skipped; }

void clef_grad_scaler_update(clef_grad_scaler *scaler) {
    if (!scaler) return;
    clef_grad_scaler_state *s = &scaler->state;
    double wanted = s->scale;
    s->good = scaler->skipped ? 0 : s->good + 1;
    if (scaler->skipped) wanted *= scaler->o.backoff;
    else if (s->good >= scaler->o.interval) wanted *= scaler->o.growth, s->good = 0;
    if (clef__is_scale(wanted)) s->scale = wanted;
    scaler->skipped = false;
}

clef_grad_scaler_state clef_grad_scaler_get(const clef_grad_scaler *scaler) {
    return scaler ? scaler->state : (clef_grad_scaler_state){0};
}

void clef_grad_scaler_set(clef_grad_scaler *scaler, clef_grad_scaler_state state) {
    if (!scaler) return;
    if (clef__is_scale(state.scale) && state.good >= 0) scaler->state = state;
    else
        clef__fail(scaler->ctx, CLEF_INVALID,
                   "grad_scaler_set: scale is %g and good %lld; scale must be from 2^-126 to 2^126, and good at least 0",
                   state.scale, (long long)state.good);
}
