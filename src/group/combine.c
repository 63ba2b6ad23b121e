/* combine.c — numbers of several ranks made into one, as a balanced binary tree over the ranks.

   The tree is walked for a block of elements at a time, which stays in the cache.  Blocks are always joined whole, with zeros behind the last
   elements: the loops have a constant length, and an element's bits cannot depend on where in an array it lies. */
#include "group/group.h"
#include "runtime/half.h"
#include <math.h>
#include <string.h>

enum { BLOCK = 512 };

/* ---- two numbers ---- */
#define SUM(a, b) ((a) + (b))
#define PRODUCT(a, b) ((a) * (b))
#define LESS(a, b) ((a) < (b) ? (a) : (b))
#define MORE(a, b) ((a) < (b) ? (b) : (a))
/* NaN first; of two equal numbers, zeros, the sign decides. */
#define FLOAT_MIN(a, b) ((a) < (b) || isnan(a) ? (a) : (b) < (a) || isnan(b) || signbit(b) ? (b) : (a))
#define FLOAT_MAX(a, b) ((a) > (b) || isnan(a) ? (a) : (b) > (a) || isnan(b) || !signbit(b) ? (b) : (a))

/* ---- two blocks ---- */
/* TYPE in memory is taken as AS, in which overflow is defined. */
#define JOIN(name, type, as, with)                                               \
    static void name(void *restrict to_block, const void *restrict from_block) { \
        type *to = to_block;                                                     \
        const type *from = from_block;                                           \
        for (int i = 0; i < BLOCK; i++) {                                        \
            as a = (as)to[i], b = (as)from[i];                                   \
            to[i] = (type)with(a, b);                                            \
        }                                                                        \
    }
#define JOINS(type, as, min, max)           \
    JOIN(sum_##type, type, as, SUM)         \
    JOIN(product_##type, type, as, PRODUCT) \
    JOIN(min_##type, type, type, min)       \
    JOIN(max_##type, type, type, max)

JOINS(float, float, FLOAT_MIN, FLOAT_MAX)
JOINS(double, double, FLOAT_MIN, FLOAT_MAX)
JOINS(int32_t, uint32_t, LESS, MORE)
JOINS(int64_t, uint64_t, LESS, MORE)

/* ---- blocks of half types, as floats ---- */
static void widen_f16(float *to, const void *from, int n) {
    for (int i = 0; i < n; i++) to[i] = (float)clef__from_f16(((const uint16_t *)from)[i]);
}

static void widen_bf16(float *to, const void *from, int n) {
    for (int i = 0; i < n; i++) to[i] = (float)clef__from_bf16(((const uint16_t *)from)[i]);
}

static void narrow_f16(void *to, const float *from, int n) {
    for (int i = 0; i < n; i++) ((uint16_t *)to)[i] = clef__to_f16((double)from[i]);
}

static void narrow_bf16(void *to, const float *from, int n) {
    for (int i = 0; i < n; i++) ((uint16_t *)to)[i] = clef__to_bf16((double)from[i]);
}

/* ---- the tree ---- */
typedef void join_fn(void *restrict to, const void *restrict from);

typedef struct kind {
    join_fn *join[4]; /* sum, product, min, max */
    size_t bytes;     /* of an element while it is combined */
    void (*widen)(float *to, const void *from, int n);
    void (*narrow)(void *to, const float *from, int n);
} kind;

#define JOINED(type) .join = {sum_##type, product_##type, min_##type, max_##type}, .bytes = sizeof(type)
static const kind kinds[CLEF_DTYPE_COUNT] = {
    [CLEF_F32] = {JOINED(float)},
    [CLEF_F64] = {JOINED(double)},
    [CLEF_I32] = {JOINED(int32_t)},
    [CLEF_I64] = {JOINED(int64_t)},
    [CLEF_F16] = {JOINED(float), .widen = widen_f16, .narrow = narrow_f16},
    [CLEF_BF16] = {JOINED(float), .widen = widen_bf16, .narrow = narrow_bf16},
};

typedef union block {
    float f32[BLOCK];
    double f64[BLOCK];
    unsigned char bytes[BLOCK * sizeof(double)];
} block;

typedef struct work {
    const kind *kind;
    const double *weight; /* of the leaves, or NULL */
    join_fn *join;
    size_t stored; /* bytes of an element in memory */
    int64_t at;    /* where the block begins, */
    int n;         /* and how many of its elements there are */
} work;

static void weigh(block *b, double weight, bool wide) {
    if (wide)
        for (int i = 0; i < BLOCK; i++) b->f64[i] *= weight;
    else
        for (int i = 0; i < BLOCK; i++) b->f32[i] *= (float)weight;
}

/* A leaf's block as it is in memory: where it lies if that will do, else a copy. */
static const void *plain_leaf(const work *w, block *room, const void *in) {
    const unsigned char *from = (const unsigned char *)in + (size_t)w->at * w->stored;
    if (w->n == BLOCK && !w->kind->widen) return from;
    if (w->kind->widen) w->kind->widen(room->f32, from, w->n);
    else memcpy(room->bytes, from, (size_t)w->n * w->stored);
    memset(room->bytes + (size_t)w->n * w->kind->bytes, 0, (size_t)(BLOCK - w->n) * w->kind->bytes);
    return room;
}

static const void *leaf(const work *w, block *room, const void *const *in, int i) {
    double weight = w->weight ? w->weight[i] : 1;
    if (weight == 0) return memset(room, 0, BLOCK * w->kind->bytes);
    const void *from = plain_leaf(w, room, in[i]);
    if (weight == 1) return from;
    if (from != room) memcpy(room, from, BLOCK * w->kind->bytes);
    weigh(room, weight, w->kind->bytes == sizeof(double));
    return room;
}

/* Of n leaves from `first` on, into *to, which may be memory of none of them. */
static void tree(const work *w, block *to, const void *const *in, int first, int n) {
    if (n == 1) {
        const void *from = leaf(w, to, in, first);
        if (from != to) memcpy(to, from, BLOCK * w->kind->bytes);
        return;
    }
    int left = 1;
    while (left * 2 < n) left *= 2;
    block beside;
    tree(w, to, in, first, left);
    if (n - left == 1) {
        w->join(to, leaf(w, &beside, in, first + left));
        return;
    }
    tree(w, &beside, in, first + left, n - left);
    w->join(to, &beside);
}

static void divide(block *b, clef_dtype dtype, int by) {
    if (dtype == CLEF_F64)
        for (int i = 0; i < BLOCK; i++) b->f64[i] /= by;
    else
        for (int i = 0; i < BLOCK; i++) b->f32[i] /= (float)by;
}

static join_fn *join_of(const kind *k, clef_group_reduction reduction) {
    switch (reduction) {
    case CLEF_GROUP_PRODUCT: return k->join[1];
    case CLEF_GROUP_MIN: return k->join[2];
    case CLEF_GROUP_MAX: return k->join[3];
    default: return k->join[0];
    }
}

void clef__combine(void *out, const void *const *in, const double *weight, int n, int64_t elements, clef_dtype dtype,
                   clef_group_reduction reduction, int of) {
    const kind *k = &kinds[dtype];
    work w = {.kind = k, .weight = weight, .join = join_of(k, reduction), .stored = clef_dtype_size(dtype)};
    for (; w.at < elements; w.at += BLOCK) {
        block b;
        w.n = elements - w.at < BLOCK ? (int)(elements - w.at) : BLOCK;
        tree(&w, &b, in, 0, n);
        if (reduction == CLEF_GROUP_MEAN) divide(&b, dtype, of);
        unsigned char *to = (unsigned char *)out + (size_t)w.at * w.stored;
        if (k->narrow) k->narrow(to, b.f32, w.n);
        else memcpy(to, b.bytes, (size_t)w.n * w.stored);
    }
}
