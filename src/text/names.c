/* names.c — tokens as byte strings, found by number and, through a hash table with open addressing, by their bytes. */
#include "runtime/arithmetic.h"
#include "text/text_internal.h"
#include <string.h>

void clef__tokens_free(clef__tokens *tokens) {
    clef__free(tokens->token);
    clef__free(tokens->bytes);
    clef__free(tokens->slot);
    *tokens = (clef__tokens){0};
}

/* Upper bits are mixed into the lower ones, which are all that is used. */
static size_t hash_bytes(const uint8_t *bytes, size_t size) {
    uint64_t hash = clef__hash(CLEF__HASH_START, bytes, size);
    return (size_t)(hash ^ hash >> 32);
}

/* The slot of these bytes, or the empty one where they would be. */
static size_t slot_of(const clef__tokens *tokens, const uint8_t *bytes, size_t size) {
    size_t at = hash_bytes(bytes, size) & (tokens->slots - 1);
    for (int32_t id; (id = tokens->slot[at]) != 0; at = (at + 1) & (tokens->slots - 1)) {
        const clef__token *t = &tokens->token[id - 1];
        if (t->size == size && memcmp(tokens->bytes + t->at, bytes, size) == 0) break;
    }
    return at;
}

int32_t clef__tokens_find(const clef__tokens *tokens, const void *bytes, size_t size) {
    return tokens->slots && size ? tokens->slot[slot_of(tokens, bytes, size)] - 1 : -1;
}

static void fill_slots(clef__tokens *tokens) {
    for (int32_t id = 0; id < tokens->n; id++) {
        const clef__token *t = &tokens->token[id];
        size_t at = t->size ? slot_of(tokens, tokens->bytes + t->at, t->size) : 0;
        if (t->size && !tokens->slot[at]) tokens->slot[at] = id + 1;
    }
}

/* At most half of the slots are taken. */
static bool make_slots(clef__tokens *tokens, int32_t n) {
    if ((size_t)n * 2 < tokens->slots) return true;
    size_t slots = tokens->slots ? tokens->slots * 2 : 1024;
    while (slots <= (size_t)n * 2) slots *= 2;
    int32_t *slot = clef__calloc(slots, sizeof *slot);
    if (!slot) return false;
    clef__free(tokens->slot);
    tokens->slot = slot;
    tokens->slots = slots;
    fill_slots(tokens);
    return true;
}

static bool make_room(clef__tokens *tokens, int32_t n, size_t size) {
    if (n > tokens->capacity) {
        int32_t capacity = n > tokens->capacity * 2 ? n : tokens->capacity * 2;
        clef__token *grown = clef__realloc(tokens->token, (size_t)capacity * sizeof *grown);
        if (!grown) return false;
        memset(grown + tokens->capacity, 0, (size_t)(capacity - tokens->capacity) * sizeof *grown);
        tokens->token = grown;
        tokens->capacity = capacity;
    }
    if (tokens->room - tokens->used < size) {
        size_t room = tokens->room * 2 > tokens->used + size ? tokens->room * 2 : tokens->used + size + 1024;
        uint8_t *grown = clef__realloc(tokens->bytes, room);
        if (!grown) return false;
        tokens->bytes = grown;
        tokens->room = room;
    }
    return make_slots(tokens, n);
}

bool clef__tokens_put(clef__tokens *tokens, int32_t id, const void *bytes, size_t size) {
    if (id < 0 || id >= CLEF__TOKENS_MOST || size == 0 || size > UINT32_MAX / 2) return false;
    int32_t n = id < tokens->n ? tokens->n : id + 1;
    if (!make_room(tokens, n, size)) return false;
    clef__token *t = &tokens->token[id];
    *t = (clef__token){.at = tokens->used, .size = (uint32_t)size};
    memcpy(tokens->bytes + t->at, bytes, size);
    tokens->used += size;
    tokens->n = n;
    size_t at = slot_of(tokens, bytes, size);
    if (!tokens->slot[at]) tokens->slot[at] = id + 1;
    return true;
}
