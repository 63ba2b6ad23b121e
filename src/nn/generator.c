/* generator.c — a language model asked token by token, its keys and values in a cache of fixed capacity.

   Sequences of a batch stand in columns of the cache so that all end in the same one; a shorter one starts further right.  Tokens are read in
   blocks: of a power of two, the last one filled up with tokens that nobody sees, as what follows is written over them. */
#include "generator.h"
#include "nn/module.h"
#include <string.h>

enum { LARGEST_BLOCK = 512 };

/* ---- making ---- */
static void free_host_memory(clef_generator *g) {
    clef__free(g->past.key);
    clef__free(g->past.value);
    clef__free(g->text);
    clef__free(g->start);
    clef__free(g->logits);
    clef__free(g->candidate);
    clef__free(g->block);
    clef__free(g->found);
    clef__free(g);
}

static void free_generator(clef_generator *g) {
    for (int64_t i = 0; i < g->past.n; i++) {
        clef_release(g->past.key[i]);
        clef_release(g->past.value[i]);
    }
    clef_release(g->past.start);
    free_host_memory(g);
}

void clef_generator_close(clef_generator *g) {
    if (!g) return;
    clef__nn *nn = clef__nn_of(g->ctx);
    for (clef_generator **p = &nn->generators; *p; p = &(*p)->next)
        if (*p == g) {
            *p = g->next;
            break;
        }
    free_generator(g);
}

/* The tensors go with the graph room. */
void clef__free_generators(clef__nn *nn) {
    for (clef_generator *g = nn->generators, *next; g; g = next) {
        next = g->next;
        free_host_memory(g);
    }
}

static bool is_recurrent(const clef_generator *g) { return g->sizes.heads == 0; }

static clef_tensor *there(const clef_generator *g, clef_tensor *t) { return t ? clef_to_device(t, g->device) : NULL; }

static bool make_cache(clef_generator *g) {
    clef_shape shape = is_recurrent(g) ? CLEF_SHAPE(g->batch, g->sizes.layers, g->sizes.width)
                                       : CLEF_SHAPE(g->batch, g->sizes.kv_heads, g->capacity, g->sizes.head_width);
    for (int64_t i = 0; i < g->past.n; i++) {
        g->past.key[i] = clef_keep(there(g, clef_zeros(g->ctx, shape, CLEF_F32)));
        g->past.value[i] = clef_keep(there(g, clef_zeros(g->ctx, shape, CLEF_F32)));
        if (!g->past.key[i] || !g->past.value[i]) return false;
    }
    return true;
}

static bool make_host_memory(clef_generator *g) {
    size_t cells = (size_t)(g->batch * g->capacity);
    g->past.n = is_recurrent(g) ? 1 : g->sizes.layers;
    g->past.key = clef__calloc((size_t)g->past.n, sizeof *g->past.key);
    g->past.value = clef__calloc((size_t)g->past.n, sizeof *g->past.value);
    g->text = clef__calloc(cells, sizeof *g->text);
    g->start = clef__calloc((size_t)g->batch, sizeof *g->start);
    g->logits = clef__calloc((size_t)(g->batch * g->sizes.vocabulary), sizeof *g->logits);
    g->candidate = clef__calloc((size_t)g->sizes.vocabulary, sizeof *g->candidate);
    g->block = clef__calloc((size_t)(g->batch * LARGEST_BLOCK), sizeof *g->block);
    return g->past.key && g->past.value && g->text && g->start && g->logits && g->candidate && g->block;
}

clef_generator *clef_generator_new(clef_module *net, const clef_generator_options *options) {
    if (!net) return NULL;
    clef_context *ctx = clef_module_context(net);
    clef_generator_options o = options ? *options : (clef_generator_options){0};
    clef_language_sizes sizes = clef_language_sizes_of(net);
    if (!sizes.vocabulary)
        return clef__fail(ctx, CLEF_INVALID, "generator: the %s is no language model; clef_nn_gpt makes one",
                          clef_module_type(net)),
               NULL;
    if (!o.batch) o.batch = 1;
    if (!o.capacity) o.capacity = sizes.context;
    if (o.batch < 1 || o.batch > 65536 || o.capacity < 2 || o.capacity > sizes.context)
        return clef__fail(ctx, CLEF_INVALID,
                          "generator: batch %lld, capacity %lld; the capacity is 2 to the model's context of %lld",
                          (long long)o.batch, (long long)o.capacity, (long long)sizes.context),
               NULL;
    int device = clef__module_device(net);
    if (device < 0)
        return clef__fail(ctx, CLEF_UNSUPPORTED, "generator: the %s lies on several devices; clef_module_to brings it to one",
                          clef_module_type(net)),
               NULL;
    clef__nn *nn = clef__nn_of(ctx);
    clef_generator *g = nn ? clef__calloc(1, sizeof *g) : NULL;
    if (g)
        *g = (clef_generator){
            .ctx = ctx, .net = net, .sizes = sizes, .device = device, .batch = o.batch, .capacity = o.capacity, .slide = o.slide};
    if (g) g->past.capacity = o.capacity;
    if (!g || !make_host_memory(g)) {
        if (g) free_host_memory(g);
        return clef__fail(ctx, CLEF_MEMORY, "generator: no host memory for %lld tokens", (long long)(o.batch * o.capacity)), NULL;
    }
    if (!make_cache(g)) return free_generator(g), NULL;
    g->next = nn->generators;
    return nn->generators = g;
}

/* ---- reading tokens ---- */
/* A recurrent net's state has no room for tokens that do not count: its blocks are filled, and none begins before a sequence and ends in it. */
static int64_t next_block(const clef_generator *g, int64_t length) {
    int64_t wanted = length - g->length, room = g->capacity - g->length, size = 1;
    for (int64_t i = 0; i < g->batch && is_recurrent(g); i++)
        if (g->start[i] > g->length) wanted = clef__smaller(wanted, g->start[i] - g->length);
    if (is_recurrent(g)) room = wanted;
    while (size < wanted && size < LARGEST_BLOCK) size *= 2;
    while (size > room) size /= 2;
    return size;
}

/* Reads the next n columns of text, as one block of `size`. */
static clef_status read_block(clef_generator *g, int64_t n, int64_t size) {
    for (int64_t i = 0; i < g->batch; i++)
        for (int64_t c = 0; c < size; c++) g->block[i * size + c] = c < n ? g->text[i * g->capacity + g->length + c] : 0;
    clef_tensor *tokens = clef_from_host_on(g->ctx, g->device, CLEF_SHAPE(g->batch, size), CLEF_I64, g->block);
    g->past.position = there(g, clef_integer(g->ctx, g->length));
    g->past.row = there(g, clef_integer(g->ctx, n - 1));
    clef_tensor *logits = tokens && g->past.position && g->past.row ? clef__language_next(g->net, tokens, &g->past) : NULL;
    if (logits) logits = clef_to(logits, CLEF_F32);
    if (!logits) return clef_error_status(g->ctx);
    clef_status status = clef_eval(logits);
    if (!status) status = clef_end_step(g->ctx); /* while the device works */
    if (!status) status = clef_read(logits, g->logits, (size_t)(g->batch * g->sizes.vocabulary) * sizeof *g->logits);
    if (!status) g->length += n;
    return status;
}

/* Reads the columns of text up to `length`. */
static clef_status read_text(clef_generator *g, int64_t length) {
    bool inference = clef__nn_inference(g->ctx, true), grad = clef_set_grad_enabled(g->ctx, false);
    clef_status status = CLEF_OK;
    while (!status && g->length < length) {
        int64_t size = next_block(g, length);
        status = read_block(g, clef__smaller(size, length - g->length), size);
    }
    clef_set_grad_enabled(g->ctx, grad);
    clef__nn_inference(g->ctx, inference);
    g->ready = !status;
    return status;
}

/* Where each sequence starts, for the device; none where all start in column 0. */
static clef_status set_start(clef_generator *g) {
    clef_release(g->past.start);
    g->past.start = NULL;
    bool even = true;
    for (int64_t i = 0; i < g->batch; i++) even = even && g->start[i] == 0;
    if (even) return CLEF_OK;
    g->past.start = clef_keep(clef_from_host_on(g->ctx, g->device, CLEF_SHAPE(g->batch), CLEF_I64, g->start));
    return g->past.start ? CLEF_OK : clef_error_status(g->ctx);
}

/* Drops the first columns, and reads what is left again. */
static clef_status slide(clef_generator *g) {
    int64_t drop = g->length - g->capacity / 2, left = g->length - drop;
    g->ready = false; /* until it is read */
    for (int64_t i = 0; i < g->batch; i++) {
        memmove(g->text + i * g->capacity, g->text + i * g->capacity + drop, (size_t)left * sizeof *g->text);
        g->start[i] = g->start[i] > drop ? g->start[i] - drop : 0;
    }
    g->length = 0;
    clef_status status = set_start(g);
    return status ? status : read_text(g, left);
}

static clef_status check_token(const clef_generator *g, int64_t token) {
    if (token >= 0 && token < g->sizes.vocabulary) return CLEF_OK;
    return clef__fail(g->ctx, CLEF_INVALID, "generator: token %lld is not within 0 … %lld", (long long)token,
                      (long long)g->sizes.vocabulary - 1);
}

static clef_status check_prompt(const clef_generator *g, const int64_t *prompt, int64_t length) {
    if (!prompt || length < 1)
        return clef__fail(g->ctx, CLEF_INVALID, "generator: a prompt is empty; it needs a token to begin with");
    if (length > g->capacity && !g->slide)
        return clef__fail(g->ctx, CLEF_STATE,
                          "generator: a prompt of %lld tokens, but a capacity of %lld; .slide drops the first ones",
                          (long long)length, (long long)g->capacity);
    for (int64_t i = 0; i < length; i++)
        if (check_token(g, prompt[i])) return CLEF_INVALID;
    return CLEF_OK;
}

clef_status clef_generator_prompt(clef_generator *g, const int64_t *const *prompt, const int64_t *length) {
    if (!g) return CLEF_INVALID;
    if (!prompt || !length) return clef__fail(g->ctx, CLEF_INVALID, "generator: prompt or length is NULL");
    int64_t longest = 0;
    for (int64_t i = 0; i < g->batch; i++) {
        clef_status status = check_prompt(g, prompt[i], length[i]);
        if (status) return status;
        longest = clef__larger(longest, clef__smaller(length[i], g->capacity));
    }
    g->ready = false; /* until it is read */
    for (int64_t i = 0; i < g->batch; i++) {
        int64_t n = clef__smaller(length[i], longest);
        g->start[i] = longest - n;
        memset(g->text + i * g->capacity, 0, (size_t)g->start[i] * sizeof *g->text);
        memcpy(g->text + i * g->capacity + g->start[i], prompt[i] + length[i] - n, (size_t)n * sizeof *g->text);
    }
    g->length = 0;
    g->tokens = longest;
    clef_status status = set_start(g);
    return status ? status : read_text(g, longest);
}

static clef_status not_ready(const clef_generator *g) {
    return clef__fail(g->ctx, CLEF_STATE,
                      "generator: it has read nothing yet, or the last reading failed; clef_generator_prompt begins");
}

clef_status clef_generator_feed(clef_generator *g, const int64_t *token) {
    if (!g) return CLEF_INVALID;
    if (!token) return clef__fail(g->ctx, CLEF_INVALID, "generator: token is NULL");
    if (!g->ready) return not_ready(g);
    for (int64_t i = 0; i < g->batch; i++)
        if (check_token(g, token[i])) return CLEF_INVALID;
    if (g->length == g->capacity) {
        if (!g->slide)
            return clef__fail(g->ctx, CLEF_STATE, "generator: its %lld tokens are full; .slide drops the first ones",
                              (long long)g->capacity);
        clef_status status = slide(g);
        if (status) return status;
    }
    for (int64_t i = 0; i < g->batch; i++) g->text[i * g->capacity + g->length] = token[i];
    g->tokens++;
    return read_text(g, g->length + 1);
}

const float *clef_generator_logits(const clef_generator *g) { return g && g->ready ? g->logits : NULL; }
int64_t clef_generator_length(const clef_generator *g) { return g ? g->length : 0; }

/* ---- one sequence in another's place ---- */
static clef_status reorder_host(clef_generator *g, const int64_t *from) {
    size_t row = (size_t)g->capacity * sizeof *g->text, scores = (size_t)g->sizes.vocabulary * sizeof *g->logits;
    int64_t *text = clef__calloc((size_t)g->batch, row), *start = clef__calloc((size_t)g->batch, sizeof *start);
    float *logits = clef__calloc((size_t)g->batch, scores);
    bool room = text && start && logits;
    for (int64_t i = 0; room && i < g->batch; i++) {
        memcpy(text + i * g->capacity, g->text + from[i] * g->capacity, row);
        memcpy(logits + i * g->sizes.vocabulary, g->logits + from[i] * g->sizes.vocabulary, scores);
        start[i] = g->start[from[i]];
    }
    clef__free(room ? (void *)g->text : text);
    clef__free(room ? (void *)g->start : start);
    clef__free(room ? (void *)g->logits : logits);
    if (!room) return clef__fail(g->ctx, CLEF_MEMORY, "generator: no memory to reorder %lld sequences", (long long)g->batch);
    g->text = text, g->start = start, g->logits = logits;
    return set_start(g);
}

clef_status clef_generator_reorder(clef_generator *g, const int64_t *from) {
    if (!g) return CLEF_INVALID;
    if (!g->ready) return not_ready(g);
    bool same = true;
    for (int64_t i = 0; i < g->batch; i++) {
        if (!from || from[i] < 0 || from[i] >= g->batch)
            return clef__fail(g->ctx, CLEF_INVALID, "generator: from[%lld] is no sequence of the batch of %lld", (long long)i,
                              (long long)g->batch);
        same = same && from[i] == i;
    }
    if (same) return CLEF_OK;
    clef_tensor *index = clef_from_host_on(g->ctx, g->device, CLEF_SHAPE(g->batch), CLEF_I64, from);
    if (!index) return clef_error_status(g->ctx);
    clef_status status = CLEF_OK;
    g->ready = false; /* until all of it is in order */
    for (int64_t i = 0; i < g->past.n && !status; i++) {
        status = clef_assign(g->past.key[i], clef_index_select(g->past.key[i], 0, index));
        if (!status) status = clef_assign(g->past.value[i], clef_index_select(g->past.value[i], 0, index));
    }
    if (!status) status = clef_end_step(g->ctx);
    if (!status) status = reorder_host(g, from);
    g->ready = !status;
    return status;
}
