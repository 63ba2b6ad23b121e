/* order.c — Philox 4x32-10 on the host and the order of an epoch.
   Every number is a function of (key, counter) alone, so order and augmentation never depend on threads or
   history. */
#include "data/data_internal.h"

/* Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3 (SC 2011). */
void clef__philox(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4]) {
    uint32_t k0 = key[0], k1 = key[1];
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/* A sequence of 64-bit numbers: counter = (block, epoch, purpose), two numbers from each block. */
typedef struct stream {
    uint32_t key[2], epoch;
    uint64_t block;
    uint32_t word[4];
    int left;
} stream;

static uint64_t next64(stream *s) {
    if (s->left == 0) {
        clef__philox(s->key, (uint32_t[4]){(uint32_t)s->block, (uint32_t)(s->block >> 32), s->epoch, CLEF__DRAW_ORDER}, s->word);
        s->block++;
        s->left = 4;
    }
    s->left -= 2;
    return (uint64_t)s->word[2 - s->left] | (uint64_t)s->word[3 - s->left] << 32;
}

/* Uniform on 0 … bound-1 without bias: the low bits of each number until they fall below bound. */
static uint64_t below(stream *s, uint64_t bound, uint64_t mask) {
    uint64_t value;
    do value = next64(s) & mask;
    while (value >= bound);
    return value;
}

void clef__order_shuffled(int64_t *order, int64_t n, uint64_t seed, uint32_t epoch) {
    stream s = {.key = {(uint32_t)seed, (uint32_t)(seed >> 32)}, .epoch = epoch};
    uint64_t mask = 0;
    while (mask < (uint64_t)n) mask = mask << 1 | 1;
    for (int64_t i = 0; i < n; i++) order[i] = i;
    for (int64_t i = n - 1; i > 0; i--) {
        while ((mask >> 1) >= (uint64_t)i) mask >>= 1; /* the smallest 2^k - 1 that holds i */
        int64_t j = (int64_t)below(&s, (uint64_t)i + 1, mask);
        int64_t was = order[i];
        order[i] = order[j];
        order[j] = was;
    }
}
