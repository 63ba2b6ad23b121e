/* Random trainings over two and three devices give the bits that they give on one.

   A program is a net of random blocks with an optimizer, and a few kept tensors beside it, over a few steps.  Where something lies is a
   number, taken modulo the devices in use; so on one device the same program runs with nothing to be brought anywhere.  That is what
   the others must agree with, in all that is read on the way and at the end.  The devices are equal, as bits may depend on the number
   of compute units: one in parts of one unit or, for one program of eight, those of one name (pocl shows as many as it is told).
   One program of eight evaluates after every op, and one is fused.
   CLEF_FUZZ_GRAPHS=n runs n programs, from CLEF_FUZZ_FIRST; CLEF_FUZZ_SEED=n runs and prints one.  With support/delays.c preloaded
   commands begin late, which shows what is not waited for.
   ctest: cost=20 apart plain */
#include "plan/fuzz_support.h"
#include "support/plain.h"
#include <signal.h>
#include <unistd.h>

enum { PROGRAMS = 8, REOPEN = 64, PATIENCE = 300 /* seconds for a program */ };
enum { ROWS = 4, WIDTH = 32, SIDE = 4, CLASSES = 5, SLOTS = 6, LARGE = 300 };
enum { BLOCKS = 4, STEPS = 5, BATCHES = 3, MOST_DEVICES = 3, PLACES = 6 /* a multiple of 2 and 3 */, RESULTS = 600 };

typedef enum kind {
    LINEAR,
    CONV,
    NORM,
    LAYER,
    DROPOUT,
    CHAIN,
    SPLIT,
    SORT,
    APART,
    NUMBERS,
    SINGLE_KINDS,
    PAIR = SINGLE_KINDS
} kind;
static const char *const kind_names[] = {"linear", "conv", "conv and batch norm", "layer norm", "dropout", "chain",
                                         "split",  "sort", "weight elsewhere",    "numbers",    "pair"};

typedef enum clipping { NOTHING, NORM_OF_ALL, VALUES, CLIPPINGS } clipping;

typedef struct block {
    kind kind;
    int place, other; /* other: of a detour, or of what does not lie where the block does */
    int from;         /* an earlier value that is added to what comes out; -1: none */
    bool recomputed, evaluated;
    struct block *part; /* of a pair */
    clef_module *module;
} block;

/* What was read: only equal bytes are of interest. */
typedef struct result {
    char what[40];
    int step;
    uint64_t hash;
    float first;
} result;

typedef struct program {
    uint64_t seed, state;
    bool print;
    clef_context *ctx;
    int devices;
    block block[BLOCKS], part[BLOCKS][2], head;
    int blocks, rule, batches, source;
    clipping clipping;
    clef_module *net;
    clef_optimizer *optimizer;
    clef_tensor *average, *cache, *large; /* kept tensors that change; large: NULL in most programs */
    int average_at, cache_at, large_at;
    clef_tensor *loss[STEPS], *norm[STEPS], *output, *former_output, *gradient, *rows;
    int step, results;
    result result[RESULTS];
} program;

static program p;

/* ---- chance, and failures ---- */

static uint64_t roll(uint64_t n) { return roll_from(&p.state, n); }
static int some_place(void) { return (int)roll(PLACES); }

static void give_up(const char *what) {
    printf("FAILED: seed %llu on %d devices, step %d: %s: %s\n", (unsigned long long)p.seed, p.devices, p.step, what,
           clef_error(p.ctx));
    exit(1);
}
#define NEED(condition) ((condition) ? (void)0 : give_up(#condition))

/* The program that an alarm finds at work hangs. */
static void tell_of_hang(int unused) {
    (void)unused;
    char line[64] = "FAILED: it hangs: seed ";
    size_t n = strlen(line), digits = n;
    for (uint64_t s = p.seed; s; s /= 10) digits++;
    line[digits] = '\n';
    size_t end = digits + 1;
    for (uint64_t s = p.seed; s; s /= 10) line[--digits] = (char)('0' + s % 10);
    if (write(STDOUT_FILENO, line, end) < 0) _exit(2);
    _exit(1);
}

/* ---- results ---- */

static void read_result(clef_tensor *t, const char *what) {
    static unsigned char bytes[LARGE * LARGE * sizeof(float)];
    int64_t n = clef_numel(t);
    size_t size = (size_t)n * clef_dtype_size(clef_tensor_dtype(t));
    NEED(p.results < RESULTS && size <= sizeof bytes);
    NEED(clef_read(t, bytes, size) == CLEF_OK);
    unite_nans(bytes, n, clef_tensor_dtype(t));
    result *r = &p.result[p.results++];
    *r = (result){.step = p.step, .hash = 0xcbf29ce484222325u};
    snprintf(r->what, sizeof r->what, "%s", what);
    if (size >= sizeof r->first) memcpy(&r->first, bytes, sizeof r->first);
    for (size_t i = 0; i < size; i++) r->hash = (r->hash ^ bytes[i]) * 0x100000001b3u;
}

/* ---- places ---- */

static int at(int place) { return place % p.devices; }
/* Multiplied by 1, as its gradient adds up at a node of its own then, also where x lies there already: sums are in the same order. */
static clef_tensor *bring(clef_tensor *x, int place) { return clef_mul_scalar(clef_to_device(x, at(place)), 1); }
static clef_tensor *beside(clef_tensor *like, clef_tensor *x) { return clef_to_device(x, clef_tensor_device(like)); }

static clef_tensor *noise(int place, clef_shape shape, uint64_t salt) {
    static float data[LARGE * LARGE];
    uint64_t state = p.seed * 1000 + salt;
    for (int64_t i = 0; i < clef_shape_numel(shape); i++) data[i] = (float)((double)roll_from(&state, 1 << 24) / (1 << 23) - 1);
    return clef_from_host_on(p.ctx, at(place), shape, CLEF_F32, data);
}

/* ---- blocks: [ROWS,WIDTH] to the same ---- */

/* Pointwise ops here and there, over one value that goes to two devices, and views on their way, one of them transposed. */
static clef_tensor *chain(const block *b, clef_tensor *x) {
    clef_tensor *y = clef_sin(bring(clef_mul_scalar(x, 0.7), b->other));
    y = clef_mul(bring(clef_add_scalar(y, 0.1), b->other + 1), bring(x, b->other + 1));
    y = clef_transpose(bring(clef_transpose(y, 0, 1), b->other + 1), 0, 1);
    clef_tensor *half[] = {bring(clef_slice(y, 0, 0, ROWS / 2, 1), b->other), bring(clef_slice(y, 0, ROWS / 2, ROWS, 1), b->other)};
    return clef_relu(bring(clef_neg(clef_concat(half, 2, 0)), b->place));
}

static clef_tensor *split(const block *b, clef_tensor *x) {
    clef_tensor *half[2];
    NEED(clef_split(x, 1, (int64_t[]){WIDTH / 2, WIDTH / 2}, 2, half) == CLEF_OK);
    clef_tensor *back[] = {bring(clef_square(bring(half[1], b->other)), b->place),
                           bring(clef_tanh(bring(half[0], b->other + 1)), b->place)};
    return clef_concat(back, 2, 1);
}

/* Both outputs of one node, each read on another device. */
static clef_tensor *sort(const block *b, clef_tensor *x) {
    clef_tensor *value, *index;
    NEED(clef_sort(x, 1, b->other % 2, &value, &index) == CLEF_OK);
    clef_tensor *y = clef_mul_scalar(clef_to(bring(index, b->other + 1), CLEF_F32), 0.01);
    return clef_add(bring(clef_mul_scalar(bring(value, b->other), 0.5), b->place), bring(y, b->place));
}

/* A weight that comes from elsewhere, once as it is and once as a view by way of a third device. */
static clef_tensor *apart(const block *b, clef_tensor *x) {
    clef_tensor *w = clef_parameter(clef_module_child(b->module, "inner"), "weight");
    clef_tensor *view = bring(clef_slice(bring(w, b->other + 1), 0, 0, 1, 1), b->place);
    return clef_tanh(clef_mul(clef_linear(x, bring(w, b->place), CLEF_NONE), view));
}

/* A factor and a window that are others in every step. */
static clef_tensor *numbers(const block *b, clef_tensor *x) {
    clef_tensor *start = clef_integer(p.ctx, (7 * p.step + b->other) % (WIDTH / 2 + 1));
    clef_tensor *window = clef_slice_at(x, 1, bring(bring(start, b->other), b->place), WIDTH / 2);
    clef_tensor *factor = bring(clef_scalar(p.ctx, 1 / (1.0 + p.step)), b->other);
    return clef_concat((clef_tensor *[]){clef_mul(window, bring(factor, b->place)), window}, 2, 1);
}

static clef_tensor *forward_block(clef_module *module, clef_tensor *x, void *user) {
    const block *b = user;
    clef_module *inner = b->kind == PAIR ? NULL : clef_module_child(module, "inner");
    switch (b->kind) {
    case LINEAR: return clef_tanh(clef_forward(inner, x));
    case CONV:
    case NORM: return clef_reshape(clef_forward(inner, clef_reshape(x, CLEF_SHAPE(ROWS, 2, SIDE, SIDE))), CLEF_SHAPE(ROWS, WIDTH));
    case CHAIN: return chain(b, x);
    case SPLIT: return split(b, x);
    case SORT: return sort(b, x);
    case APART: return apart(b, x);
    case NUMBERS: return numbers(b, x);
    case PAIR:
        x = clef_forward(b->part[0].module, bring(x, b->part[0].place));
        return bring(clef_forward(b->part[1].module, bring(x, b->part[1].place)), b->place);
    default: return clef_forward(inner, x);
    }
}

static clef_module *inner_of(const block *b) {
    clef_module *conv = NULL;
    if (b->kind == CONV || b->kind == NORM)
        conv = clef_nn_conv2d(p.ctx, 2, 2, 3, &(clef_nn_conv2d_options){.conv.padding = {1, 1}});
    switch (b->kind) {
    case CONV: return clef_sequential(p.ctx, CLEF_LAYERS(conv, clef_nn_relu(p.ctx)));
    case NORM: return clef_sequential(p.ctx, CLEF_LAYERS(conv, clef_nn_batch_norm2d(p.ctx, 2, NULL), clef_nn_relu(p.ctx)));
    case LINEAR: return clef_nn_linear(p.ctx, WIDTH, WIDTH, NULL);
    case LAYER: return clef_nn_layer_norm(p.ctx, CLEF_SHAPE(WIDTH), NULL);
    case DROPOUT: return clef_nn_dropout(p.ctx, 0.3);
    default: return clef_nn_linear(p.ctx, WIDTH, WIDTH, &(clef_nn_options){.no_bias = true});
    }
}

static void print_block(const block *b, const char *name) {
    if (p.print)
        fprintf(stderr, "  %s: %s at %d, other %d, from %d%s%s\n", name, kind_names[b->kind], b->place, b->other, b->from,
                b->recomputed ? ", recomputed" : "", b->evaluated ? ", evaluated" : "");
}

static void make_block(block *b, int kinds, int before, const char *name) {
    b->kind = (kind)roll((uint64_t)kinds);
    if (b->kind > PAIR) b->kind = PAIR;
    b->place = some_place();
    b->other = some_place();
    b->from = roll(3) == 0 ? (int)roll((uint64_t)before + 1) : -1;
    b->recomputed = roll(4) == 0;
    b->evaluated = roll(6) == 0;
    print_block(b, name);
    b->module = clef_module_new(p.ctx, kind_names[b->kind], forward_block, b);
    NEED(b->module);
    clef_recompute(b->module, b->recomputed);
    if (b->kind != PAIR) {
        NEED(clef_module_add(b->module, "inner", inner_of(b)) == CLEF_OK);
        return;
    }
    for (int i = 0; i < 2; i++) {
        make_block(&b->part[i], SINGLE_KINDS, 0, "part");
        NEED(clef_module_add(b->module, i ? "1" : "0", b->part[i].module) == CLEF_OK);
    }
}

/* The parts of a pair, and a weight that is to lie elsewhere, go their own ways. */
static void put_block(const block *b) {
    NEED(clef_module_to(b->module, at(b->kind == APART ? b->other : b->place)) == CLEF_OK);
    for (int i = 0; b->kind == PAIR && i < 2; i++) put_block(&b->part[i]);
}

/* ---- the net ---- */

static clef_tensor *forward_net(clef_module *module, clef_tensor *x, void *unused) {
    (void)module, (void)unused;
    clef_tensor *value[BLOCKS + 1] = {x};
    for (int i = 0; i < p.blocks; i++) {
        const block *b = &p.block[i];
        clef_tensor *y = clef_forward(b->module, bring(value[i], b->place));
        if (b->from >= 0) y = clef_add(y, clef_mul_scalar(bring(value[b->from], b->place), 0.5));
        if (b->evaluated) NEED(clef_eval(y) == CLEF_OK);
        value[i + 1] = y;
    }
    return clef_forward(p.head.module, bring(value[p.blocks], p.head.place));
}

static clef_optimizer *new_optimizer(void) {
    switch (p.rule) {
    case 0: return clef_sgd(p.net, &(clef_sgd_options){.lr = 0.05, .momentum = 0.9, .nesterov = true, .weight_decay = 1e-3});
    case 1: return clef_adam(p.net, &(clef_adam_options){.lr = 0.01, .amsgrad = true});
    case 2: return clef_adamw(p.net, &(clef_adamw_options){.lr = 0.01});
    case 3: return clef_rmsprop(p.net, &(clef_rmsprop_options){.lr = 0.01, .momentum = 0.5});
    default: return clef_sgd(p.net, &(clef_sgd_options){.lr = 0.1});
    }
}

static void put_net(void) {
    for (int i = 0; i < p.blocks; i++) put_block(&p.block[i]);
    NEED(clef_module_to(p.head.module, at(p.head.place)) == CLEF_OK);
}

static void make_net(void) {
    p.net = clef_module_new(p.ctx, "net", forward_net, NULL);
    p.blocks = 1 + (int)roll(BLOCKS);
    for (int i = 0; i < p.blocks; i++) {
        char name[] = {(char)('0' + i), 0};
        p.block[i].part = p.part[i];
        make_block(&p.block[i], SINGLE_KINDS + 2, i, name); /* pairs are twice as frequent as another */
        NEED(clef_module_add(p.net, name, p.block[i].module) == CLEF_OK);
    }
    p.head = (block){.place = some_place(), .module = clef_nn_linear(p.ctx, WIDTH, CLASSES, NULL)};
    NEED(clef_module_add(p.net, "head", p.head.module) == CLEF_OK);
    bool first = roll(2); /* the optimizer before its parameters move */
    if (!first) put_net();
    NEED((p.optimizer = new_optimizer()) != NULL);
    if (roll(2)) NEED(clef_optimizer_group(p.optimizer, "head.bias", 0.5, 0) == CLEF_OK);
    if (first) put_net();
}

static void begin(uint64_t seed, clef_context *ctx, int devices, bool print) {
    p = (program){.seed = seed, .state = seed * 0x2545f4914f6cdd1du, .ctx = ctx, .devices = devices, .print = print};
    clef_seed(ctx, seed);
    p.rule = (int)roll(5);
    p.clipping = (clipping)roll(CLIPPINGS);
    p.batches = 1 + (int)roll(BATCHES);
    p.source = (int)roll(3);
    p.average_at = some_place();
    p.cache_at = some_place();
    p.large_at = some_place();
    if (print)
        fprintf(stderr, "seed %llu: rule %d, clipping %d, %d batches\n", (unsigned long long)seed, p.rule, p.clipping, p.batches);
    make_net();
    p.average = clef_keep(noise(p.average_at, CLEF_SHAPE(WIDTH), 1));
    p.cache = clef_keep(noise(p.cache_at, CLEF_SHAPE(SLOTS, WIDTH), 2));
    if (roll(4) == 0) p.large = clef_keep(noise(p.large_at, CLEF_SHAPE(LARGE, LARGE), 3));
}

/* ---- a step ---- */

static clef_tensor *batch_of(int number) {
    clef_shape shape = CLEF_SHAPE(ROWS, WIDTH);
    clef_tensor *x = p.source == 0
                         ? bring(clef_randn(p.ctx, shape), p.average_at)
                         : noise(p.source == 1 ? p.block[0].place : number, shape, (uint64_t)(100 + 10 * p.step + number));
    clef_tensor *rows = clef_slice_at(p.cache, 0, beside(p.cache, clef_integer(p.ctx, (p.step + number) % (SLOTS - 1))), 2);
    return clef_add(x, beside(x, clef_mean(rows, (int[]){0}, 1, true)));
}

/* The squares of two parameters, wherever these lie, summed somewhere else. */
static clef_tensor *penalty(int place) {
    clef_tensor *sum = NULL;
    for (int i = 0; i < 2; i++) {
        clef_named_tensor t = clef_module_tensor(p.net, i * (clef_module_tensors(p.net) - 1));
        if (t.is_buffer) continue;
        clef_tensor *s = bring(clef_mean(clef_square(bring(t.tensor, p.average_at + i)), NULL, 0, false), place);
        sum = sum ? clef_add(sum, s) : s;
    }
    return clef_mul_scalar(sum, 1e-2 * (1 + p.step));
}

static void one_batch(int number) {
    int64_t label[ROWS];
    for (int i = 0; i < ROWS; i++) label[i] = (i * 3 + p.step + number) % CLASSES;
    clef_tensor *y = clef_forward(p.net, batch_of(number));
    clef_tensor *wanted = clef_from_host_on(p.ctx, at(number), CLEF_SHAPE(ROWS), CLEF_I64, label);
    clef_tensor *loss = clef_cross_entropy(y, beside(y, wanted), NULL);
    loss = clef_mul_scalar(clef_add(loss, penalty(p.head.place)), 1.0 / p.batches);
    NEED(clef_backward(loss) == CLEF_OK);
    p.loss[p.step] = loss;
    p.output = y;
}

static void clip(void) {
    if (p.clipping == NORM_OF_ALL) NEED((p.norm[p.step] = clef_clip_grad_norm(p.net, 0.5)) != NULL);
    if (p.clipping == VALUES) NEED(clef_clip_grad_value(p.net, 0.02) == CLEF_OK);
}

/* Of the old value all rows but one, of which it is known last which; then one row is another, which is known from the start.  It
   happens in place, so the reading must not fall behind. */
static void read_late_change_early(void) {
    clef_tensor *scores = clef_reshape(clef_detach(p.output), CLEF_SHAPE(ROWS * CLASSES));
    clef_tensor *first = bring(clef_argmax(scores, 0, false), p.cache_at);
    p.rows = clef_keep(clef_slice_at(p.cache, 0, first, SLOTS - 1));
    clef_tensor *value = noise(p.average_at, CLEF_SHAPE(1, WIDTH), (uint64_t)(200 + p.step));
    NEED(clef_assign_at(p.cache, 0, clef_integer(p.ctx, 1 + p.step % (SLOTS - 2)), value) == CLEF_OK);
}

/* Assignments from elsewhere, in place and in a window. */
static void change_kept(void) {
    clef_tensor *seen = clef_mean(clef_detach(p.output), NULL, 0, false);
    NEED(clef_assign(p.average, bring(clef_add(clef_mul_scalar(p.average, 0.9), beside(p.average, seen)), p.cache_at)) == CLEF_OK);
    clef_tensor *row = clef_unsqueeze(bring(p.average, p.large_at), 0);
    NEED(clef_assign_at(p.cache, 0, clef_integer(p.ctx, (p.step * 5 + 2) % SLOTS), row) == CLEF_OK);
    if (!p.large) return;
    clef_tensor *there = clef_tanh(clef_mul_scalar(bring(p.large, p.large_at + 1), 1.5));
    NEED(clef_assign(p.large, clef_add(p.large, bring(clef_transpose(there, 0, 1), p.large_at))) == CLEF_OK);
}

/* Nothing that a program must do, and nothing that may change its numbers. */
static void interrupt(void) {
    clef_tensor *some = clef_module_tensor(p.net, (int)roll((uint64_t)clef_module_tensors(p.net))).tensor;
    switch (roll(8)) {
    case 0: read_result(some, "parameter in between"); break;
    case 1: read_result(p.average, "average in between"); break;
    case 2: NEED(clef_eval(p.output) == CLEF_OK); break;
    case 3: NEED(clef_eval_all((clef_tensor *[]){p.cache, p.output, p.average}, 3) == CLEF_OK); break;
    case 4: NEED(clef_synchronize(p.ctx) == CLEF_OK); break;
    case 5: read_result(p.output, "output"); break;
    default: break;
    }
}

/* What an earlier step left: its output, a gradient that was kept, losses and norms. */
static void read_what_was(void) {
    if (p.former_output) read_result(p.former_output, "output of the step before");
    if (p.gradient) read_result(p.gradient, "gradient of the step before");
    if (p.rows) read_result(p.rows, "rows of the step before");
    clef_release(p.gradient);
    clef_release(p.rows);
    p.former_output = p.gradient = p.rows = NULL;
    if (p.step >= 2 && roll(2)) read_result(p.loss[p.step - 2], "loss of two steps before");
    if (p.step >= 3 && p.norm[p.step - 3]) read_result(p.norm[p.step - 3], "norm of three steps before");
}

/* Half-way, in some programs. */
static void move(void) {
    block *b = &p.block[roll((uint64_t)p.blocks)];
    if (roll(2)) return;
    b->place = some_place();
    b->other = some_place();
    put_block(b);
    if (roll(2)) p.head.place = some_place();
    NEED(clef_module_to(p.head.module, at(p.head.place)) == CLEF_OK);
}

static void one_step(void) {
    if (p.step == STEPS / 2) move();
    for (int i = 0; i < p.batches; i++) one_batch(i);
    if (roll(3) == 0) interrupt();
    read_what_was();
    clip();
    clef_tensor *gradient = clef_grad_of(clef_parameter(p.head.module, "bias"));
    if (roll(3) == 0) p.gradient = clef_keep(gradient);
    if (roll(2)) change_kept();
    else if (roll(2)) read_late_change_early();
    if (roll(3) == 0) interrupt();
    if (roll(2)) NEED(clef_eval(p.former_output = p.output) == CLEF_OK);
    clef_set_learning_rate(p.optimizer, 0.05 / (1 + p.step));
    NEED(clef_step(p.optimizer) == CLEF_OK);
    if (roll(4) == 0) read_result(p.loss[p.step], "loss");
}

static void finish(void) {
    for (int i = 0; i < clef_module_tensors(p.net); i++) {
        clef_named_tensor t = clef_module_tensor(p.net, i);
        read_result(t.tensor, t.name);
    }
    for (int i = 0; i < clef_optimizer_tensors(p.optimizer); i++) {
        clef_named_tensor t = clef_optimizer_tensor(p.optimizer, i);
        read_result(t.tensor, t.name);
    }
    clef_tensor *kept[] = {p.average, p.cache, p.large};
    const char *const names[] = {"average", "cache", "large"};
    for (int i = 0; i < 3 && kept[i]; i++) read_result(kept[i], names[i]);
    for (int i = 0; i < 3; i++) clef_release(kept[i]);
    clef_release(p.gradient);
    clef_release(p.rows);
    NEED(!*clef_error(p.ctx));
}

static void run_program(uint64_t seed, clef_context *ctx, int devices, bool print) {
    begin(seed, ctx, devices, print);
    for (; p.step < STEPS; p.step++) one_step();
    finish();
}

/* ---- contexts, of all devices there are: parts of one, whole ones, parts where every op is evaluated ---- */

typedef enum setting { PARTS, WHOLE, EAGER, SETTINGS } setting;
static clef_context *opened[SETTINGS];
static int available[SETTINGS]; /* devices */

/* Parts of one unit; and devices from the first that are called as it is. */
static void count_devices(void) {
    clef_device_info first, info;
    if (!clef_device_get(0, &first)) return;
    int n = 1;
    while (n < MOST_DEVICES && clef_device_get(n, &info) && strcmp(info.name, first.name) == 0) n++;
    available[WHOLE] = n;
    clef_context *part = clef_open(&(clef_options){.device = "0:1"});
    n = !part ? 1 : first.compute_units < MOST_DEVICES ? (int)first.compute_units : MOST_DEVICES;
    available[PARTS] = available[EAGER] = n;
    clef_close(part);
}

static clef_context *open_context(setting s) {
    static const char *const names[][MOST_DEVICES] = {{"0:1", "0:1+1", "0:1+1+1"}, {"0", "0,1", "0,1,2"}};
    const char *device = names[s == WHOLE][available[s] - 1];
    if (!opened[s]) opened[s] = clef_open(&(clef_options){.device = device, .eager = s == EAGER, .no_tuning = true});
    if (!opened[s]) printf("FAILED: %s\n", clef_error(NULL)), exit(1);
    return opened[s];
}

static void close_contexts(void) {
    for (int s = 0; s < SETTINGS; s++) clef_close(opened[s]), opened[s] = NULL;
}

/* ---- programs ---- */

static bool is_same(const program *wanted) {
    for (int i = 0; i < wanted->results && i < p.results; i++) {
        const result *a = &wanted->result[i], *b = &p.result[i];
        if (a->hash == b->hash && strcmp(a->what, b->what) == 0) continue;
        printf("FAILED: seed %llu on %d devices: read %d, %s, step %d, begins with %.9g, not %.9g\n", (unsigned long long)p.seed,
               p.devices, i, a->what, a->step, (double)b->first, (double)a->first);
        return false;
    }
    return wanted->results == p.results;
}

static setting setting_of(uint64_t seed) {
    setting s = seed % 8 == 3 ? WHOLE : seed % 8 == 6 ? EAGER : PARTS;
    return available[s] > 1 ? s : available[WHOLE] > 1 ? WHOLE : PARTS;
}

static int failures_of(uint64_t seed, bool print) {
    static program wanted;
    int failures = 0;
    setting s = setting_of(seed);
    setenv("CLEF_FUSE", seed % 8 ? "0" : "1", 1); /* alone, ops have few kernels, which are compiled once */
    alarm(PATIENCE);
    run_program(seed, open_context(s), 1, print);
    wanted = p;
    for (int devices = 2; devices <= available[s]; devices++) {
        run_program(seed, open_context(s), devices, false);
        failures += !is_same(&wanted);
    }
    alarm(0);
    return failures;
}

int main(void) {
    setenv("POCL_DEVICES", "pthread pthread pthread", 0);
    setenv("POCL_MAX_PTHREAD_COUNT", "3", 0); /* so many units, and parts, on a machine with fewer cores too */
    setenv("CLEF_ROWS", "gemm product", 1);   /* which kernel is cheapest depends on whether a weight lies here already */
    setvbuf(stdout, NULL, _IOLBF, 0);         /* long runs are looked at on their way */
    signal(SIGALRM, tell_of_hang);
    count_devices();
    if (available[WHOLE] == 0) return without_context();
    if (available[WHOLE] < 2 && available[PARTS] < 2) return printf("skipped: no two equal devices here\n"), 77;
    uint64_t only = number_from("CLEF_FUZZ_SEED", 0), from = number_from("CLEF_FUZZ_FIRST", 1);
    uint64_t n = number_from("CLEF_FUZZ_GRAPHS", PROGRAMS);
    int failures = only ? failures_of(only, true) : 0;
    for (uint64_t i = 0; !only && i < n; i++) {
        if (i % REOPEN == REOPEN - 1) close_contexts();
        failures += failures_of(from + i, false);
    }
    close_contexts();
    printf("%llu programs from seed %llu, %d failures\n", (unsigned long long)(only ? 1 : n),
           (unsigned long long)(only ? only : from), failures);
    return failures != 0;
}
