/* pairs.c — see pairs.h: open addressing, at most half full. */
#include "text/pairs.h"

static uint64_t key_of(int32_t left, int32_t right) {
    return ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) + 1;
} /* 0: empty */

static clef__pair *slot_of(const clef__pairs *pairs, uint64_t key) {
    uint64_t hash = key * 0x9E3779B97F4A7C15u;
    size_t at = (size_t)(hash ^ hash >> 32) & (pairs->slots - 1);
    while (pairs->slot[at].key && pairs->slot[at].key != key) at = (at + 1) & (pairs->slots - 1);
    return &pairs->slot[at];
}

int32_t *clef__pairs_find(const clef__pairs *pairs, int32_t left, int32_t right) {
    clef__pair *slot = pairs->slots ? slot_of(pairs, key_of(left, right)) : NULL;
    return slot && slot->key ? &slot->value : NULL;
}

static bool grow(clef__pairs *pairs) {
    clef__pairs larger = {.slots = pairs->slots ? pairs->slots * 2 : 256, .n = pairs->n};
    larger.slot = clef__calloc(larger.slots, sizeof *larger.slot);
    if (!larger.slot) return false;
    for (size_t i = 0; i < pairs->slots; i++)
        if (pairs->slot[i].key) *slot_of(&larger, pairs->slot[i].key) = pairs->slot[i];
    clef__free(pairs->slot);
    *pairs = larger;
    return true;
}

int32_t *clef__pairs_put(clef__pairs *pairs, int32_t left, int32_t right) {
    if ((pairs->n + 1) * 2 > pairs->slots && !grow(pairs)) return NULL;
    clef__pair *slot = slot_of(pairs, key_of(left, right));
    if (!slot->key) {
        *slot = (clef__pair){.key = key_of(left, right), .value = -1};
        pairs->n++;
    }
    return &slot->value;
}

void clef__pairs_free(clef__pairs *pairs) {
    clef__free(pairs->slot);
    *pairs = (clef__pairs){0};
}
