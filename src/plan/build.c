/* build.c — makes a plan: runs the passes, lowers every group, gives memory and kernels, notes what replays must set. */
#include "plan/plan.h"

#include <pthread.h>
#include <string.h>

/* ---- pointwise groups ---- */

static int add_operand(clef__lowering *l, clef__pointwise *p, int *items, int item) {
    int constant = clef__constant_behind(l->g, item), known = constant >= 0 ? constant : item;
    for (int i = 0; i < p->n_operands; i++)
        if (items[i] == known) return i;
    clef__pw_operand *operand = &p->operand[p->n_operands];
    items[p->n_operands] = known;
    *operand = (clef__pw_operand){.dtype = l->g->item[item].node->dtype, .item = known};
    if (constant >= 0) {
        operand->constant = true;
        operand->dtype = l->g->item[constant].node->dtype;
    } else {
        operand->x = clef__broadcast_operand(clef__item_operand(l, item), p->shape);
    }
    return p->n_operands++;
}

static int step_of(const clef__group *group, int item) {
    for (int i = 0; i < group->n_members; i++)
        if (group->member[i] == item) return CLEF__PW_OPERANDS + i;
    return -1;
}

void clef__add_steps(clef__lowering *l, const clef__group *group, clef__pointwise *p, int *inner_uses) {
    int items[CLEF__PW_OPERANDS];
    for (int m = 0; m < group->n_members; m++) {
        const clef__node *node = l->g->item[group->member[m]].node;
        clef__pw_step *step = &p->step[p->n_steps++];
        *step = (clef__pw_step){.op = node->op, .dtype = node->dtype, .n_inputs = node->n_inputs};
        for (int j = 0; j < node->n_inputs; j++) {
            int input = clef__item_of(l->g, node->input[j]), from = step_of(group, input);
            step->input[j] = from >= 0 ? from : add_operand(l, p, items, input);
            if (step->input[j] >= CLEF__PW_OPERANDS) inner_uses[step->input[j] - CLEF__PW_OPERANDS]++;
        }
    }
}

/* The memory order of the results: of what this plan made (a kernel chose it, and leaves that are updated take it over for
   the steps to come; row-major is what one takes that does not care, so that comes second, and sums over the result do not
   depend on the order of the operands), else of a leaf that may be overwritten, else of the first operand that is whole and dense. */
static const int *choose_order(const clef__lowering *l, const clef__pointwise *p, int *order) {
    int found = -1, best = -1;
    for (int i = 0; !l->failed && i < p->n_operands; i++) {
        const clef__pw_operand *x = &p->operand[i];
        if (x->constant || !clef__memory_order(&x->x, order)) continue;
        const clef__value *value = &l->plan->value[x->x.value];
        int rank = value->home == CLEF__LEAF_VALUE ? value->donatable : clef__lower_is_dense(&x->x, NULL) ? 2 : 3;
        if (rank <= best) continue;
        best = rank;
        found = i;
    }
    return found >= 0 && clef__memory_order(&p->operand[found].x, order) ? order : NULL;
}

void clef__lower_group(clef__lowering *l, const clef__group *group) {
    const clef__node *node = l->g->item[group->member[0]].node;
    clef__pointwise p = {.shape = node->shape};
    l->node = node;
    l->device = node->device;
    int inner_uses[CLEF__PW_STEPS] = {0};
    clef__add_steps(l, group, &p, inner_uses);
    int order_memory[CLEF_MAX_RANK];
    const int *order = choose_order(l, &p, order_memory);
    const char *label = node->op->name;
    for (int m = 0; m < group->n_members && !l->failed; m++) {
        int item = group->member[m];
        if (!l->g->item[item].output && inner_uses[m] == l->g->item[item].uses) continue; /* nobody else wants it */
        l->node = l->g->item[item].node;
        l->item = item;
        p.store[p.n_stores].from = CLEF__PW_OPERANDS + m;
        p.store[p.n_stores++].to = clef__lower_out(l, order);
        label = l->node->op->name;
    }
    if (p.n_stores && clef_shape_numel(p.shape) > 0) clef__lower_pointwise(l, &p, label);
}

/* ---- everything else ---- */

static void lower_copy(clef__lowering *l) {
    if (clef_shape_numel(l->node->shape) == 0) {
        clef__lower_out(l, NULL);
        return;
    }
    clef__operand from = clef__lower_in(l, 0);
    clef__lower_copy(l, clef__lower_out(l, NULL), from);
}

static void lower_transfer(clef__lowering *l) {
    int to = l->node->device;
    l->device = l->node->input[0]->device;
    clef__operand from = clef__lower_in_dense(l, 0, NULL);
    l->device = to;
    clef__operand x = clef__lower_out(l, NULL);
    clef__launch_begin(l, NULL, "transfer");
    clef__launch_tensor(l, x, true);
    clef__launch_tensor(l, from, false);
    if (l->failed) return;
    l->open->kind = CLEF__LAUNCH_COPY;
    clef__launch_end(l, (size_t[3]){1, 1, 1}, (size_t[3]){1, 1, 1});
}

/* Members of the group on one side of its kernel, which is the first or the last of them. */
static clef__group beside(const clef__group *group, bool behind) {
    clef__group rest = {.member = group->member + behind, .n_members = group->n_members - 1};
    if ((group->member[0] == group->kernel) != behind) rest.n_members = 0;
    return rest;
}

/* The members behind the kernel: in its store already, or by a launch of their own. */
static void lower_following(clef__lowering *l, const clef__group *following, int kernel) {
    if (l->following) {
        clef__lower_group(l, following);
        return;
    }
    clef__item *last = &l->g->item[following->member[following->n_members - 1]];
    last->operand = l->g->item[kernel].operand;
    last->placed = true;
}

static void lower_kernel(clef__lowering *l, const clef__group *group) {
    if (clef_shape_numel(l->node->shape) == 0) {
        clef__lower_out(l, NULL);
        return;
    }
    clef__group preceding = beside(group, false), following = beside(group, true);
    l->tuned = false;
    l->following = following.n_members ? &group->following : NULL;
    l->preceding = preceding.n_members ? &preceding : NULL;
    const clef__strategy *strategy = clef__select_strategy(l);
    if (strategy) {
        l->plan->spared_flops += clef__spared_flops(l->node, strategy);
        strategy->lower(l);
        l->tuned = false;
        l->preceding = NULL;
        clef__free(l->computed);
        l->computed = NULL;
        if (following.n_members) lower_following(l, &following, group->kernel);
    } else {
        clef__fail(l->ctx, CLEF_UNSUPPORTED, "%s: no way to compute %s %s on this device", l->node->op->name,
                   clef_dtype_name(l->node->dtype), clef__shape_text(l->node->shape));
        l->failed = true;
    }
}

static void lower_all(clef__lowering *l, const clef__grouping *gr) {
    for (int i = 0; i < gr->n_order && !l->failed; i++) {
        const clef__group *group = &gr->group[gr->order[i]];
        if (group->kernel < 0) {
            clef__lower_group(l, group);
            continue;
        }
        l->item = group->kernel;
        l->node = l->g->item[l->item].node;
        l->device = l->node->device;
        if (l->node->op->kind == CLEF__TRANSFER) lower_transfer(l);
        else if (l->node->op->kind == CLEF__COPY) lower_copy(l);
        else lower_kernel(l, group);
    }
}

/* ---- results ---- */

/* A constant that outlives the plan lies in memory whole, so that later steps see the layout of every other step. */
static void place_constant(clef__lowering *l, int item) {
    l->item = item;
    l->node = l->g->item[item].node;
    l->device = l->node->device;
    clef__pointwise p = {.shape = l->node->shape, .n_operands = 1, .n_stores = 1};
    p.operand[0] = (clef__pw_operand){.constant = true, .item = item, .dtype = l->node->dtype};
    p.store[0].to = clef__lower_out(l, NULL);
    clef__lower_pointwise(l, &p, "constant");
}

static void note_results(clef__lowering *l) {
    clef__plan *plan = l->plan;
    plan->result = clef__calloc((size_t)l->g->n + 1, sizeof *plan->result);
    if (!plan->result) clef__lower_fail(l);
    for (int i = 0; i < l->g->n && !l->failed; i++) {
        const clef__item *item = &l->g->item[i];
        if (item->leaf || !item->output) continue;
        int same = clef__item_of(l->g, item->node);
        if (l->g->item[same].node->op->kind == CLEF__CONSTANT) place_constant(l, same);
        l->device = item->node->device;
        clef__operand x = clef__item_operand(l, same);
        if (l->failed) return;
        clef__value *value = &plan->value[x.value];
        if (value->home == CLEF__ARENA_VALUE) value->home = CLEF__OUTPUT_VALUE;
        if (value->home == CLEF__LEAF_VALUE) value->donatable = false; /* the result is a view of it */
        clef__result *result = &plan->result[plan->n_results++];
        *result = (clef__result){.item = i, .value = x.value, .layout = {.offset = x.offset}};
        memcpy(result->layout.stride, x.stride, sizeof x.stride);
    }
}

/* ---- kernels ---- */

/* What is not compiled yet, once each. */
typedef struct compiling {
    clef_context *ctx;
    clef__launch **launch; /* the first with its code */
    int n, next, done;
    pthread_mutex_t lock;
} compiling;

/* False without host memory. */
static bool list_codes(compiling *c, const clef__plan *plan) {
    c->launch = clef__alloc(((size_t)plan->n_launches + 1) * sizeof *c->launch);
    for (int i = 0; c->launch && i < plan->n_launches; i++) {
        clef__code *code = plan->launch[i].code;
        if (!code || code->program || code->listed) continue;
        code->listed = true;
        c->launch[c->n++] = &plan->launch[i];
    }
    for (int i = 0; i < c->n; i++) c->launch[i]->code->listed = false;
    return c->launch != NULL;
}

static void *compile_some(void *user) {
    compiling *c = user;
    for (;;) {
        pthread_mutex_lock(&c->lock);
        int i = c->next++;
        pthread_mutex_unlock(&c->lock);
        if (i >= c->n) return NULL;
        const clef__launch *launch = c->launch[i];
        clef__code_compile(clef__device_at(c->ctx, launch->device), launch->code, launch->name);
        pthread_mutex_lock(&c->lock);
        clef__report_compile(c->ctx, ++c->done, c->n);
        pthread_mutex_unlock(&c->lock);
    }
}

/* Does the environment not say otherwise? */
static bool unless(const char *variable, const char *off) {
    const char *value = clef__env(variable);
    return !value || strcmp(value, off) != 0;
}

/* Each size is replaced by one that divides it, so the range keeps dividing into groups.  Kernels that ask for a certain size
   have it as their largest, or were not chosen. */
void clef__fit_group(size_t local[3], size_t most) {
    while (local[0] * local[1] * local[2] > most) {
        size_t *largest = local;
        for (int i = 1; i < 3; i++)
            if (local[i] > *largest) largest = &local[i];
        if (*largest == 1) return;
        *largest = *largest % 2 ? 1 : *largest / 2;
    }
}

/* What the plan generated for a device, together. */
static void compile_generated(const compiling *c, int device) {
    clef__code **all = clef__alloc(((size_t)c->n + 1) * sizeof *all);
    int n = 0;
    for (int i = 0; all && i < c->n; i++) {
        const clef__launch *launch = c->launch[i];
        if (launch->device == device && !launch->file && strcmp(launch->code->options, n ? all[0]->options : launch->code->options) == 0)
            all[n++] = launch->code;
    }
    if (n) clef__codes_join(clef__device_at(c->ctx, device), all, n, "pointwise");
    clef__free(all);
}

/* Compiles with a few threads.  CLEF_JOIN=0 is for programs of many contexts and plans, which have single kernels in common rather than
   sets of them; CLEF_COMPILE_THREADS=1 for drivers that do not stand several (Oclgrind). */
static clef_status compile_codes(clef_context *ctx, const clef__plan *plan) {
    compiling c = {.ctx = ctx, .lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t second;
    if (!list_codes(&c, plan)) return clef__fail(ctx, CLEF_MEMORY, "plan: no host memory");
    for (int d = 0; c.n > 1 && unless("CLEF_JOIN", "0") && d < clef__device_count(ctx); d++) compile_generated(&c, d);
    bool two = c.n > 1 && unless("CLEF_COMPILE_THREADS", "1") && pthread_create(&second, NULL, compile_some, &c) == 0;
    compile_some(&c);
    if (two) pthread_join(second, NULL);
    clef__free(c.launch);
    return CLEF_OK;
}

static clef_status make_kernel(clef_context *ctx, clef__launch *launch) {
    clef__program *program = launch->code->program;
    if (program) launch->kernel = clef__kernel_of(clef__device_at(ctx, launch->device), program, launch->name);
    if (!launch->kernel) {
        clef_status status = clef_error_status(ctx);
        return status != CLEF_OK ? status : clef__fail(ctx, CLEF_BUILD, "plan: kernel %s could not be made", launch->name);
    }
    clef__fit_group(launch->local, clef__kernel_max_group(launch->kernel));
    return CLEF_OK;
}

static clef_status make_kernels(clef_context *ctx, clef__plan *plan) {
    clef_status status = compile_codes(ctx, plan);
    for (int i = 0; status == CLEF_OK && i < plan->n_launches; i++)
        if (plan->launch[i].kind == CLEF__LAUNCH_KERNEL) status = make_kernel(ctx, &plan->launch[i]);
    return status;
}

/* ---- arguments ---- */

static bool changes(const clef__plan *plan, const clef__arg *arg) {
    switch (arg->kind) {
    case CLEF__ARG_TENSOR: return plan->value[arg->value].home != CLEF__ARENA_VALUE;
    case CLEF__ARG_DYNAMIC: return true;
    case CLEF__ARG_CONSTANT: return arg->item >= 0;
    default: return false;
    }
}

static bool in_arena(const clef__plan *plan, const clef__arg *arg) {
    return arg->kind == CLEF__ARG_TENSOR && plan->value[arg->value].home == CLEF__ARENA_VALUE && !plan->value[arg->value].own;
}

/* In debug mode no value lies in an arena. */
static clef_status get_exact_buffers(clef_context *ctx, clef__plan *plan) {
    for (int v = 0; clef__debug_memory(ctx) && v < plan->n_values; v++) {
        clef__value *value = &plan->value[v];
        if (value->home != CLEF__ARENA_VALUE || value->first < 0) continue;
        value->in_place_of = -1;
        value->own = clef__buffer_new(clef__device_at(ctx, value->device), value->bytes);
        if (!value->own) return clef_error_status(ctx);
    }
    return CLEF_OK;
}

/* Sets what never changes, and lists the rest. */
static clef_status set_arguments(clef_context *ctx, clef__plan *plan) {
    size_t n = 1;
    for (int i = 0; i < plan->n_launches; i++) n += (size_t)plan->launch[i].n_args;
    plan->bind = clef__alloc(n * sizeof *plan->bind);
    plan->arena_bind = clef__alloc(n * sizeof *plan->arena_bind);
    if (!plan->bind || !plan->arena_bind) return clef__fail(ctx, CLEF_MEMORY, "plan: no host memory");
    clef_status status = CLEF_OK;
    for (int i = 0; i < plan->n_launches; i++)
        for (int a = 0; status == CLEF_OK && a < plan->launch[i].n_args; a++) {
            const clef__arg *arg = &plan->launch[i].arg[a];
            if (plan->launch[i].kind != CLEF__LAUNCH_KERNEL) continue;
            if (changes(plan, arg)) plan->bind[plan->n_binds++] = (clef__bind){.launch = i, .arg = a};
            else if (in_arena(plan, arg)) plan->arena_bind[plan->n_arena_binds++] = (clef__bind){.launch = i, .arg = a};
            else status = clef__plan_set(plan, NULL, i, a);
        }
    return status;
}

/* ---- the whole ---- */

static clef_status keep_key(clef_context *ctx, clef__plan *plan, const clef__graph_view *g) {
    plan->key = clef__alloc(((size_t)g->key_words + 1) * sizeof *plan->key);
    if (!plan->key) return clef__fail(ctx, CLEF_MEMORY, "plan: no host memory");
    memcpy(plan->key, g->key, (size_t)g->key_words * sizeof *plan->key);
    plan->key_words = g->key_words;
    plan->hash = g->hash;
    plan->n_items = g->n;
    return CLEF_OK;
}

static bool fusing(void) { return unless("CLEF_FUSE", "0"); }

static clef_status lower_graph(clef_context *ctx, clef__graph_view *g, clef__plan *plan) {
    clef__grouping gr = {0};
    clef__lowering l = {.ctx = ctx, .g = g, .plan = plan};
    clef_status status = clef__simplify(g);
    if (status == CLEF_OK) status = clef__fuse(g, fusing(), &gr);
    if (status != CLEF_OK) clef__fail(ctx, status, "plan: no host memory");
    if (status == CLEF_OK) {
        lower_all(&l, &gr);
        if (!l.failed) note_results(&l);
        if (!l.failed && fusing()) clef__bundle(&l);
        if (l.failed) status = clef_error_status(ctx) != CLEF_OK ? clef_error_status(ctx)
                                                                 : clef__fail(ctx, CLEF_INVALID, "plan: a view does not fit");
    }
    clef__free(l.defines);
    clef__free(l.text);
    clef__grouping_free(&gr);
    return status;
}

clef__plan *clef__plan_build(clef_context *ctx, clef__graph_view *g) {
    clef__plan *plan = clef__calloc(1, sizeof *plan);
    if (!plan) {
        clef__fail(ctx, CLEF_MEMORY, "plan: no host memory");
        return NULL;
    }
    clef_status status = keep_key(ctx, plan, g);
    if (status == CLEF_OK) status = lower_graph(ctx, g, plan);
    if (status == CLEF_OK) status = clef__plan_memory(plan, ctx);
    if (status == CLEF_OK) return plan;
    clef__plan_free(plan);
    return NULL;
}

clef_status clef__plan_ready(clef_context *ctx, clef__plan *plan) {
    clef_status status = get_exact_buffers(ctx, plan);
    if (status == CLEF_OK) status = make_kernels(ctx, plan);
    return status == CLEF_OK ? set_arguments(ctx, plan) : status;
}

void clef__launch_free(clef__launch *launch) {
    clef__kernel_free(launch->kernel);
    clef__free(launch->arg);
    clef__free(launch->product);
}

/* The newest kernel first: pocl looks for one that is released among all that its program made after it. */
void clef__plan_free(clef__plan *plan) {
    for (int i = plan->n_launches - 1; i >= 0; i--) clef__launch_free(&plan->launch[i]);
    for (int v = 0; v < plan->n_values; v++) clef__buffer_release(plan->value[v].own);
    clef__free(plan->value);
    clef__free(plan->launch);
    clef__free(plan->bind);
    clef__free(plan->arena_bind);
    clef__free(plan->result);
    clef__free(plan->prepacked);
    clef__free(plan->prepacked_bind);
    clef__free(plan->key);
    clef__free(plan);
}
