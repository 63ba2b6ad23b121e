/* select.c — which way a node is computed: by the strategies' own cost estimates and rules, unless a tuning result says
   otherwise.

   A result is for a family of kernels (of one emitter, or the strategies of an op), a dtype and a bucket of sizes.  It counts
   only if it was found for the same device and the same kernel text, and every knob in it is one of the family's values. */
#include "plan/lower/lowering.h"
#include "runtime/arithmetic.h"
#include "runtime/sha256.h"

#include <stdio.h>
#include <string.h>

/* ---- families ---- */

/* What is known of a family that was asked for, or of the one made of an op's strategies. */
struct clef__own_family {
    clef__own_family *next;
    const void *of; /* clef__family or clef_op */
    char kernel[17];
    clef__family family;
    clef__knob knob;
};

void clef__families_free(clef__own_family *first) {
    for (clef__own_family *next; first; first = next) {
        next = first->next;
        clef__free(first);
    }
}

static void hash_files(clef__sha256 *s, const char *files) {
    for (int i = 0; !files && clef__embedded_digest_at(i); i++) clef__sha256_add_text(s, clef__embedded_digest_at(i));
    if (files) clef__sha256_add_text(s, clef__embedded_digest("common.h"));
    while (files && *files) {
        char name[64];
        size_t n = strcspn(files, " ");
        snprintf(name, sizeof name, "%.*s", (int)n, files);
        const char *digest = clef__embedded_digest(name);
        clef__sha256_add_text(s, digest ? digest : "");
        files += n + (files[n] == ' ');
    }
}

/* The knobs are part of it: values that mean something else are other kernels. */
static void hash_family(const clef__family *family, const clef__strategy *const *strategies, char text[17]) {
    clef__sha256 s;
    uint8_t digest[32];
    clef__sha256_begin(&s);
    hash_files(&s, family->files);
    for (int i = 0; i < family->n_knobs; i++) {
        clef__sha256_add_text(&s, family->knob[i].name);
        clef__sha256_add(&s, family->knob[i].value, sizeof family->knob[i].value);
    }
    for (; strategies && *strategies; strategies++) clef__sha256_add_text(&s, (*strategies)->name ? (*strategies)->name : "");
    clef__sha256_end(&s, digest);
    for (int i = 0; i < 8; i++) snprintf(text + 2 * i, 3, "%02x", digest[i]);
}

/* op: the family is that of its strategies, one knob whose values count them from 1. */
static void fill_family(clef__own_family *own, const clef__family *family, const clef_op *op) {
    own->of = op ? (const void *)op : family;
    if (family) own->family = *family;
    if (op) {
        own->knob = (clef__knob){.name = "strategy", .compiled = true};
        own->family = (clef__family){.name = op->name, .knob = &own->knob, .n_knobs = 1};
        for (int i = 0; i < CLEF__KNOB_VALUES - 1 && op->strategies[i]; i++) own->knob.value[i] = i + 1;
    }
    hash_family(&own->family, op ? op->strategies : NULL, own->kernel);
}

/* NULL without host memory: then nothing is tuned. */
static const clef__own_family *know(clef__selection *selection, const clef__family *family, const clef_op *op) {
    for (clef__own_family *f = selection->family; f; f = f->next)
        if (f->of == (op ? (const void *)op : family)) return f;
    clef__own_family *own = clef__calloc(1, sizeof *own);
    if (!own) return NULL;
    fill_family(own, family, op);
    own->next = selection->family;
    return selection->family = own;
}

/* ---- keys ---- */

bool clef__same_tuning_key(const clef__tuning_key *a, const clef__tuning_key *b) {
    return a->family == b->family && a->dtype == b->dtype && a->device == b->device && strcmp(a->bucket, b->bucket) == 0;
}

clef__tuned clef__tuning_key_result(const clef__tuning_key *key, const clef__knobs *knobs) {
    clef__tuned t = {
        .family = key->family->name, .kernel = key->kernel, .dtype = clef_dtype_name(key->dtype), .bucket = key->bucket};
    for (int i = 0; knobs && i < key->family->n_knobs; i++)
        if (knobs->value[i]) t.knob[t.n_knobs++] = (clef__tuned_knob){key->family->knob[i].name, knobs->value[i]};
    return t;
}

void clef__knobs_text(const clef__family *family, const clef__knobs *knobs, char *text, size_t size) {
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < family->n_knobs && used < size; i++)
        if (knobs->value[i])
            used += (size_t)snprintf(text + used, size - used, "%s%s=%d", used ? " " : "", family->knob[i].name, knobs->value[i]);
}

/* Three significant bits, upwards: sizes of one bucket differ by less than a quarter; those up to 8 are their own. */
static int64_t rounded(int64_t size) {
    int shift = 0;
    while (size >> shift > 7) shift++;
    int64_t unit = (int64_t)1 << shift;
    return size > 8 && size <= INT64_MAX - unit ? (size + unit - 1) / unit * unit : size;
}

static void add_size(clef__tuning_key *key, int64_t size) {
    size_t used = strlen(key->bucket);
    snprintf(key->bucket + used, sizeof key->bucket - used, "%s%lld", used ? "," : "", (long long)rounded(size));
}

static bool has_value(const clef__knob *knob, int value) {
    for (int i = 0; knob->value[i]; i++)
        if (knob->value[i] == value) return true;
    return false;
}

static bool read_knobs(const clef__family *family, const clef__tuned *t, clef__knobs *knobs) {
    for (int i = 0; i < t->n_knobs; i++) {
        int k = 0;
        while (k < family->n_knobs && strcmp(family->knob[k].name, t->knob[i].name) != 0) k++;
        if (k == family->n_knobs || !has_value(&family->knob[k], t->knob[i].value)) return false;
        knobs->value[k] = t->knob[i].value;
    }
    return true;
}

static clef__knobs from_store(const clef__lowering *lw, const clef__tuning_key *key) {
    clef__knobs knobs = {0};
    clef__tuned wanted = clef__tuning_key_result(key, NULL);
    const clef__tuned *found = clef__tuned_find(clef__device_at(lw->rec->ctx, key->device), &wanted);
    if (!found || read_knobs(key->family, found, &knobs)) return knobs;
    clef__log_line(lw->rec->ctx, CLEF_LOG_WARNING, "tuning: a result for %s %s has a knob that does not exist; it is left aside",
                   key->family->name, key->bucket);
    return (clef__knobs){0};
}

static clef__knobs decide(const clef__lowering *lw, const clef__tuning_key *key) {
    static const clef__knobs none;
    if (lw->rec->selection->note) lw->rec->selection->note(lw->rec->selection->user, lw, key);
    const clef__tuning_override *override = lw->rec->selection->override;
    clef__knobs knobs = override && clef__same_tuning_key(override->key, key) ? override->knobs : from_store(lw, key);
    if (memcmp(&knobs, &none, sizeof knobs) != 0) lw->rec->tuned = true;
    return knobs;
}

clef__knobs clef__lower_knobs(const clef__lowering *lw, const clef__family *family, clef_dtype dtype, const int64_t *size, int n) {
    const clef__own_family *own = clef__tuning_on(lw->rec->ctx) ? know(lw->rec->selection, family, NULL) : NULL;
    if (!own) return (clef__knobs){0};
    clef__tuning_key key = {.family = &own->family, .kernel = own->kernel, .dtype = dtype, .device = lw->device};
    for (int i = 0; i < n; i++) add_size(&key, size[i]);
    return decide(lw, &key);
}

/* ---- strategies ---- */

bool clef__row_applies(const clef__lowering *lw, const clef__strategy *row) {
    return row->lower && (!row->applies || row->applies(lw));
}

static int count_applicable(const clef__lowering *lw, const clef__strategy *const *rows) {
    int n = 0;
    for (; rows && *rows; rows++) n += !(*rows)->on_request && clef__row_applies(lw, *rows);
    return n;
}

static uint64_t hash_attributes(const clef__node *node) {
    return clef__hash(CLEF__HASH_START, node->attributes, node->attribute_bytes);
}

/* The strategy that was measured to be best; NULL where none was, or it does not apply here. */
static const clef__strategy *measured(const clef__lowering *lw) {
    const clef__node *node = lw->node;
    if (!clef__tuning_on(lw->rec->ctx) || count_applicable(lw, node->op->strategies) < 2) return NULL;
    const clef__own_family *own = know(lw->rec->selection, NULL, node->op);
    if (!own) return NULL;
    clef__tuning_key key = {.family = &own->family, .kernel = own->kernel, .dtype = node->out->dtype, .device = lw->device};
    snprintf(key.bucket, sizeof key.bucket, "%016llx", (unsigned long long)hash_attributes(node));
    for (int i = 0; i < node->n_inputs; i++)
        for (int d = 0; d < node->input[i]->shape.rank; d++) add_size(&key, node->input[i]->shape.dim[d]);
    clef__knobs knobs = decide(lw, &key);
    const clef__strategy *s = knobs.value[0] ? node->op->strategies[knobs.value[0] - 1] : NULL;
    return s && clef__row_applies(lw, s) ? s : NULL;
}

double clef__spared_flops(const clef__node *node, const clef__strategy *strategy) {
    double flops = 0, bytes = 0;
    if (!strategy->flops || !node->op->cost) return 0;
    node->op->cost(node, &flops, &bytes);
    return flops - strategy->flops(node);
}

typedef struct choice {
    const clef__strategy *row; /* NULL: none applies */
    double seconds;
    int rows;        /* that there were to choose from, */
    char costs[256]; /* and what they cost */
} choice;

/* preferred: names of rows of which the first goes before all others. */
static choice cheapest(const clef__lowering *lw, const clef__strategy *const *rows, const char *preferred) {
    choice best = {0};
    size_t used = 0;
    for (; rows && *rows; rows++) {
        bool named = (*rows)->lower && clef__has_word(preferred, (*rows)->name);
        if (((*rows)->on_request && !named) || !clef__row_applies(lw, *rows)) continue;
        double cost = (*rows)->cost ? (*rows)->cost(lw) : 0;
        best.rows++;
        if (used < sizeof best.costs)
            used += (size_t)snprintf(best.costs + used, sizeof best.costs - used, " %s=%.3g", (*rows)->name, cost);
        if (!best.row || named || cost < best.seconds) {
            best.row = *rows;
            best.seconds = cost;
        }
        if (named) break;
    }
    return best;
}

const clef__strategy *clef__select_row(const clef__lowering *lw, const clef__strategy *const *rows) {
    choice best = cheapest(lw, rows, lw->rec->selection->preferred);
    if (best.rows > 1)
        clef__log_line(lw->rec->ctx, CLEF_LOG_DEBUG, "%s: %s of%s seconds", lw->node->op->name, best.row->name, best.costs);
    return best.row;
}

double clef__least_seconds(const clef__lowering *lw, const clef__strategy *const *rows) { return cheapest(lw, rows, "").seconds; }

/* The one that was measured, else the cheapest. */
const clef__strategy *clef__select_strategy(const clef__lowering *lw) {
    const clef__strategy *best = measured(lw);
    return best ? best : clef__select_row(lw, lw->node->op->strategies);
}
