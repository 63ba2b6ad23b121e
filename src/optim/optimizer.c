/* optimizer.c — slots, the step, groups and state shared by every rule.

   Invariants: parameters and states keep their handles and only change value; a slot's states are f32 unless the parameter
   is f64; a parameter under two names has one slot. */
#include "optim/optimizer.h"
#include "ops/ops.h"
#include "runtime/guess.h"
#include "runtime/text.h"
#include <math.h>
#include <string.h>

/* ---- life ---- */
static void free_optimizer(clef_optimizer *o) {
    for (int i = 0; i < o->n; i++) {
        clef__free(o->slot[i].name);
        for (int j = 0; j < o->n_states; j++) clef__free(o->slot[i].state_name[j]);
    }
    clef__free(o->slot);
    clef__free(o->options);
    clef__free(o);
}

static void close_room(clef_context *ctx, void *state) {
    (void)ctx;
    clef__optim *room = state;
    for (clef_optimizer *o = room->optimizers, *next; o; o = next) {
        next = o->next;
        free_optimizer(o);
    }
    clef__averaged_free(room->averaged);
    clef__lbfgs_free(room->lbfgs);
    clef__scaler_free(room->scalers);
    for (clef_schedule *s = room->schedules, *next; s; s = next) {
        next = s->next;
        clef__free((void *)s->o.milestones);
        clef__free(s);
    }
    clef__free(room);
}

clef__optim *clef__optim_state(clef_context *ctx) {
    return clef__make_room_state(ctx, CLEF__ROOM_OPTIM, sizeof(clef__optim), close_room);
}

bool clef__check_options(clef_module *module, const char *rule, const clef__checked *option, int n) {
    if (!module) return false;
    for (int i = 0; i < n; i++) {
        if (isfinite(option[i].value) && option[i].value >= 0) continue;
        clef__fail(clef_module_context(module), CLEF_INVALID, "%s: %s is %g; it must be a number ≥ 0", rule, option[i].name,
                   option[i].value);
        return false;
    }
    return true;
}

/* ---- slots ---- */
bool clef__optimizer_has(const clef_optimizer *o, const clef_tensor *t) {
    for (int i = 0; i < o->n; i++)
        if (o->slot[i].parameter == t) return true;
    return false;
}

static bool is_elsewhere(const clef_tensor *t) { return clef__get(t)->elsewhere; }

static bool add_state(clef_optimizer *o, clef__slot *slot, int j, const clef__rule_setup *setup) {
    clef_dtype dtype = clef_tensor_dtype(slot->parameter) == CLEF_F64 ? CLEF_F64 : CLEF_F32;
    slot->state_name[j] = clef__asprintf("%s.%s", slot->name, setup->state[j]);
    int device = clef_tensor_device(slot->parameter);
    clef_shape shape = o->zero ? CLEF_SHAPE(clef__shard_size(setup->group, slot->parameter)) : clef_tensor_shape(slot->parameter);
    slot->state[j] = clef__own(clef__constant(o->ctx, shape, dtype, device, clef__held(dtype, setup->initial)));
    if (slot->state[j]) clef__get(slot->state[j])->elsewhere = is_elsewhere(slot->parameter);
    return slot->state_name[j] && slot->state[j];
}

static bool add_slot(clef_optimizer *o, clef_named_tensor t, const clef__rule_setup *setup) {
    clef__slot *slot = &o->slot[o->n++];
    *slot = (clef__slot){.parameter = t.tensor, .lr_scale = 1, .weight_decay = setup->weight_decay};
    slot->name = clef__strdup(t.name);
    if (!slot->name) return false;
    for (int j = 0; j < o->n_states; j++)
        if (!add_state(o, slot, j, setup)) return false;
    return true;
}

static bool is_trainable(clef_named_tensor t) { return !t.is_buffer && clef__is_float(clef_tensor_dtype(t.tensor)); }

static bool has_parameter(const clef_module *module) {
    for (int i = 0; i < clef_module_tensors(module); i++)
        if (is_trainable(clef_module_tensor(module, i))) return true;
    return false;
}

static bool add_slots(clef_optimizer *o, const clef_module *module, const clef__rule_setup *setup) {
    int n = clef_module_tensors(module);
    o->slot = clef__calloc(n ? (size_t)n : 1, sizeof *o->slot);
    if (!o->slot) return false;
    for (int i = 0; i < n; i++) {
        clef_named_tensor t = clef_module_tensor(module, i);
        if (is_trainable(t) && !clef__optimizer_has(o, t.tensor) && !add_slot(o, t, setup)) return false;
    }
    o->counts = clef__own(clef_zeros(o->ctx, CLEF_SHAPE(o->n), CLEF_I64));
    return o->counts != NULL;
}

/* Initial weights and states are computed at once, so that the first step's plan is already every step's. */
static clef_status materialize(const clef_optimizer *o) {
    size_t most = 1 + (size_t)o->n * (size_t)(1 + o->n_states);
    clef_tensor **t = clef__calloc(most, sizeof *t);
    if (!t) return clef__fail(o->ctx, CLEF_MEMORY, "%s: no memory for %zu tensors", o->rule->name, most);
    int n = 0;
    t[n++] = o->counts;
    for (int i = 0; i < o->n; i++) {
        if (is_elsewhere(o->slot[i].parameter)) continue;
        t[n++] = o->slot[i].parameter;
        for (int j = 0; j < o->n_states; j++) t[n++] = o->slot[i].state[j];
    }
    clef_status status = clef_eval_all(t, n);
    clef__free(t);
    return status;
}

static int count_states(const clef__rule_setup *setup) {
    int n = 0;
    while (n < CLEF__MAX_STATES && setup->state[n]) n++;
    return n;
}

clef_optimizer *clef__optimizer_new(clef_module *module, const clef__rule_setup *setup) {
    clef_context *ctx = clef_module_context(module);
    clef__optim *room = clef__optim_state(ctx);
    if (!room) return NULL;
    if (!has_parameter(module)) {
        clef__fail(ctx, CLEF_INVALID,
                   "%s: the %s has no floating parameter to train; add its layers and parameters before the "
                   "optimizer is made",
                   setup->rule->name, clef_module_type(module));
        return NULL;
    }
    if (setup->zero < 0 || setup->zero > 2) {
        clef__fail(ctx, CLEF_INVALID, "%s: there is no zero %d; 1 cuts states over the ranks of the group, 2 gradients, too",
                   setup->rule->name, setup->zero);
        return NULL;
    }
    clef_optimizer *o = clef__calloc(1, sizeof *o);
    if (o) {
        *o =
            (clef_optimizer){.ctx = ctx, .rule = setup->rule, .lr = setup->lr, .initial = setup->initial, .next = room->optimizers};
        room->optimizers = o;
        o->n_states = count_states(setup);
        o->zero = clef_group_size(setup->group) > 1 ? setup->zero : 0;
        o->options = clef__alloc(setup->options_bytes);
    }
    if (!o || !o->options || !add_slots(o, module, setup)) {
        clef__fail(ctx, CLEF_MEMORY, "%s: no memory for the optimizer", setup->rule->name);
        return NULL;
    }
    memcpy(o->options, setup->options, setup->options_bytes);
    return materialize(o) == CLEF_OK && clef__average_over(o, setup->group) ? o : NULL;
}

/* What may have been meant: a whole name or what is behind one of its dots. */
static clef_status refuse_suffix(const clef_optimizer *o, const char *suffix) {
    clef__guess guess = {.word = suffix};
    for (int i = 0; i < o->n; i++)
        for (const char *name = o->slot[i].name; name; name = strchr(name, '.'), name = name ? name + 1 : NULL)
            clef__guess_offer(&guess, name);
    return clef__fail(o->ctx, CLEF_INVALID, "optimizer_group: no parameter's name ends in \"%s\"%s", suffix,
                      clef__guess_hint(&guess));
}

clef_status clef_optimizer_group(clef_optimizer *opt, const char *suffix, double lr_scale, double weight_decay) {
    if (!opt) return CLEF_INVALID;
    if (!suffix || !(lr_scale >= 0 && isfinite(lr_scale)) || !(weight_decay >= 0 && isfinite(weight_decay)))
        return clef__fail(opt->ctx, CLEF_INVALID,
                          "optimizer_group: a suffix, and lr_scale (%g) and weight_decay (%g) ≥ 0 "
                          "and finite, are needed",
                          lr_scale, weight_decay);
    int found = 0;
    for (int i = 0; i < opt->n; i++) {
        if (!clef__ends_with(opt->slot[i].name, suffix)) continue;
        opt->slot[i].lr_scale = lr_scale;
        opt->slot[i].weight_decay = weight_decay;
        found++;
    }
    return found ? CLEF_OK : refuse_suffix(opt, suffix);
}

/* ---- update counts between slots and tensor ---- */
static clef_status move_counts(clef_optimizer *o, bool to_tensor) {
    if (o->n == 0) return CLEF_OK;
    size_t bytes = (size_t)o->n * sizeof(int64_t);
    int64_t *count = clef__alloc(bytes);
    if (!count) return clef__fail(o->ctx, CLEF_MEMORY, "%s: no memory for %d counts", o->rule->name, o->n);
    for (int i = 0; i < o->n; i++) count[i] = o->slot[i].count;
    clef_status status = to_tensor ? clef_write(o->counts, count, bytes) : clef_read(o->counts, count, bytes);
    for (int i = 0; !status && i < o->n; i++) o->slot[i].count = count[i];
    clef__free(count);
    return status;
}

static clef_status fetch_counts(clef_optimizer *o) {
    clef_status status = o->stale ? move_counts(o, false) : CLEF_OK;
    o->stale = false;
    return status;
}

static clef_status publish_counts(clef_optimizer *o) {
    if (o->stale || !o->dirty) return CLEF_OK;
    clef_status status = move_counts(o, true);
    o->dirty = false;
    return status;
}

/* ---- the step ---- */
/* Slots with equal numbers share the nodes that carry them. */
typedef struct numbers {
    bool valid;
    double lr_scale, weight_decay;
    int64_t count;
    clef_dtype dtype;
    clef_tensor *number[CLEF__MAX_NUMBERS], *unscale;
} numbers;

static void refresh_numbers(const clef_optimizer *o, const clef__slot *s, clef_dtype dtype, numbers *n) {
    if (n->valid && n->lr_scale == s->lr_scale && n->weight_decay == s->weight_decay && n->count == s->count && n->dtype == dtype)
        return;
    double value[CLEF__MAX_NUMBERS] = {0};
    clef__moment moment = {o->options, o->lr * s->lr_scale, s->weight_decay, s->count};
    o->rule->numbers(&moment, value);
    *n = (numbers){.valid = true, .lr_scale = s->lr_scale, .weight_decay = s->weight_decay, .count = s->count, .dtype = dtype};
    for (int i = 0; i < o->rule->n_numbers; i++) n->number[i] = clef__number(o->ctx, dtype, value[i]);
    if (o->unscale != 0) n->unscale = clef__number(o->ctx, dtype, o->unscale);
}

/* A parameter may have been moved since the last step. */
static clef_status follow(const clef_optimizer *o, const clef__slot *s) {
    return clef__move(o->ctx, s->state, o->n_states, clef_tensor_device(s->parameter));
}

static void expect_slot(const clef_optimizer *o, const clef__slot *s, bool elsewhere) {
    clef__get(s->parameter)->elsewhere = elsewhere;
    for (int j = 0; j < o->n_states; j++) clef__get(s->state[j])->elsewhere = elsewhere;
}

/* Of a parameter that another rank updates states hold no memory, whatever they held before. */
static clef_status leave_slot(const clef_optimizer *o, const clef__slot *s) {
    if (!is_elsewhere(s->parameter)) return CLEF_OK;
    expect_slot(o, s, true);
    for (int j = 0; j < o->n_states; j++) {
        clef__tensor *t = clef__get(s->state[j]);
        if (!clef__computed(t->out)) continue;
        clef_dtype dtype = t->out->dtype;
        clef_tensor *first = clef__constant(o->ctx, t->out->shape, dtype, t->out->device, clef__held(dtype, o->initial));
        if (!first) return CLEF_MEMORY;
        clef__tensor_set(t, clef__output_of(first));
        clef__tensor_drop(first);
    }
    return CLEF_OK;
}

/* What a step makes of a value, behind a gate; NULL: there is none. */
static clef_tensor *passed(clef_tensor *gate, clef_tensor *updated, clef_tensor *value) {
    return gate && updated ? clef_where(gate, updated, clef_to(value, clef_tensor_dtype(updated))) : updated;
}

static clef_status update_slot(clef_optimizer *o, clef__slot *s, numbers *n) {
    clef_tensor *g = o->zero ? clef__own_gradient(o, s->parameter) : clef_grad_of(s->parameter);
    if (!g) return leave_slot(o, s);
    expect_slot(o, s, false);
    clef_tensor *own = o->zero ? clef__own_shard(o->group, s->parameter) : s->parameter;
    clef_dtype dtype = clef_tensor_dtype(s->parameter) == CLEF_F64 ? CLEF_F64 : CLEF_F32;
    clef_status status = follow(o, s);
    if (status) return status;
    s->count++;
    refresh_numbers(o, s, dtype, n);
    clef__update u = {.options = o->options, .p = clef_to(own, dtype), .g = clef_to(g, dtype), .decays = s->weight_decay != 0};
    if (n->unscale) u.g = clef_mul(u.g, n->unscale);
    memcpy(u.state, s->state, sizeof u.state);
    memcpy(u.number, n->number, sizeof u.number);
    clef_tensor *gate = o->gate ? clef_to_device(o->gate, clef_tensor_device(own)) : NULL;
    if (o->gate && !gate) return clef_error_status(o->ctx);
    clef_tensor *p = passed(gate, o->rule->update(&u), own);
    if (o->zero) p = s->updated = clef_to(p, clef_tensor_dtype(s->parameter));
    status = !p ? CLEF_INVALID : o->zero ? CLEF_OK : clef_assign(s->parameter, p);
    for (int j = 0; !status && j < o->n_states; j++) {
        clef_tensor *state = passed(gate, u.state[j], s->state[j]);
        status = state ? clef_assign(s->state[j], state) : CLEF_INVALID;
    }
    return status;
}

static clef_status update_all(clef_optimizer *o) {
    numbers n = {0};
    clef_status status = fetch_counts(o);
    for (int i = 0; !status && i < o->n; i++) status = clef__average_gradient(o->slot[i].parameter);
    bool was = clef_set_grad_enabled(o->ctx, false);
    for (int i = 0; !status && i < o->n; i++) status = update_slot(o, &o->slot[i], &n);
    if (!status && o->zero) status = clef__gather_parameters(o);
    for (int i = 0; i < o->n; i++) o->slot[i].updated = NULL;
    clef_set_grad_enabled(o->ctx, was);
    o->steps++;
    o->dirty = true;
    return status;
}

static void for_each_value(clef_optimizer *o, void (*visit)(clef_tensor *t)) {
    for (int i = 0; i < o->n; i++) {
        visit(o->slot[i].parameter);
        for (int j = 0; j < o->n_states; j++) visit(o->slot[i].state[j]);
    }
}

clef_status clef__step_if(clef_optimizer *opt, clef_tensor *gate) {
    opt->gate = gate;
    clef_status status = clef_step(opt);
    opt->gate = NULL;
    return status;
}

clef_status clef__step_scaled(clef_optimizer *opt, double factor) {
    opt->unscale = factor;
    clef_status status = clef_step(opt);
    opt->unscale = 0;
    return status;
}

static void clear_gradients(clef_optimizer *o) {
    for (int i = 0; i < o->n; i++) clef_set_grad(o->slot[i].parameter, CLEF_NONE);
    clef__end_averaging(o);
}

clef_status clef__skip_step(clef_optimizer *opt) {
    clear_gradients(opt);
    clef_status ended = clef_end_step(opt->ctx), sticky = clef_error_status(opt->ctx);
    return ended ? ended : sticky;
}

static bool has_averages(const clef_optimizer *o) {
    for (int i = 0; i < o->n; i++)
        if (clef__has_average(o->ctx, o->slot[i].parameter)) return true;
    return false;
}

/* An update that needs a lost device will never be computed.  What it would have replaced may lie on another. */
clef_status clef_step(clef_optimizer *opt) {
    if (!opt) return CLEF_INVALID;
    if (has_averages(opt)) return clef__refuse_averages(opt->ctx, "step");
    for_each_value(opt, clef__remember);
    clef_status status = update_all(opt);
    clear_gradients(opt);
    clef_status ended = clef_end_step(opt->ctx), sticky = clef_error_status(opt->ctx);
    if (ended == CLEF_LOST) for_each_value(opt, clef__go_back);
    for_each_value(opt, clef__forget);
    return status ? status : ended ? ended : sticky;
}

/* ---- asking, state ---- */
double clef_learning_rate(const clef_optimizer *opt) { return opt ? opt->lr : NAN; }
void clef_set_learning_rate(clef_optimizer *opt, double lr) {
    if (opt) opt->lr = lr;
}
int64_t clef_optimizer_steps(const clef_optimizer *opt) { return opt ? opt->steps : 0; }
clef_context *clef_optimizer_context(const clef_optimizer *opt) { return opt ? opt->ctx : NULL; }

int clef_optimizer_tensors(const clef_optimizer *opt) { return opt ? 1 + opt->n * opt->n_states : 0; }

/* Bringing the counts up to date changes no value the caller can see, hence through a const handle. */
clef_named_tensor clef_optimizer_tensor(const clef_optimizer *opt, int i) {
    if (i < 0 || i >= clef_optimizer_tensors(opt)) return (clef_named_tensor){0};
    if (publish_counts((clef_optimizer *)opt)) return (clef_named_tensor){0};
    if (i == 0) return (clef_named_tensor){.name = "step", .tensor = opt->counts, .is_buffer = true};
    int s = (i - 1) / opt->n_states, j = (i - 1) % opt->n_states;
    return (clef_named_tensor){.name = opt->slot[s].state_name[j], .tensor = opt->slot[s].state[j], .is_buffer = true};
}

clef_optimizer_state clef_optimizer_get(const clef_optimizer *opt) {
    if (!opt) return (clef_optimizer_state){0};
    publish_counts((clef_optimizer *)opt);
    return (clef_optimizer_state){.steps = opt->steps, .lr = opt->lr};
}

void clef_optimizer_set(clef_optimizer *opt, clef_optimizer_state state) {
    if (!opt) return;
    opt->steps = state.steps;
    opt->lr = state.lr;
    opt->stale = true;
    opt->dirty = false;
}
