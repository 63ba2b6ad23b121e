/* handle.c — slots and their generations; see handle.h. */
#include "graph/handle.h"
#include "runtime/runtime.h"

#include <pthread.h>
#include <string.h>

enum { CHUNK = 1 << CLEF__CHUNK_BITS, CHUNKS = 1 << (CLEF__SLOT_BITS - CLEF__CHUNK_BITS) };

_Atomic(clef__tensor *) clef__chunk_slots[CHUNKS];

/* Contexts of several threads take and return chunks; all else belongs to one context, and so to one thread. */
static pthread_mutex_t chunk_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(uintptr_t) first_generation[CHUNKS]; /* of the present owner's handles, or of the next owner's */
static uint32_t lowest_free;                        /* all chunks below it are taken, or used up */

static uintptr_t handle_of(const clef__tensor *t) {
    return t->generation << CLEF__GENERATION_SHIFT | (uintptr_t)t->slot << CLEF__TAG_BITS | CLEF__TAG;
}

/* ---- chunks ---- */

static bool claim(clef__tensor *slots, uint32_t *number) {
    pthread_mutex_lock(&chunk_lock);
    uint32_t at = lowest_free;
    while (at < CHUNKS && (atomic_load(&clef__chunk_slots[at]) || first_generation[at] > CLEF__LAST_GENERATION)) at++;
    lowest_free = at;
    if (at < CHUNKS) atomic_store_explicit(&clef__chunk_slots[at], slots, memory_order_release);
    pthread_mutex_unlock(&chunk_lock);
    *number = at;
    return at < CHUNKS;
}

/* The next owner begins above every generation that this one used. */
static void give_back(uint32_t number) {
    clef__tensor *slots = atomic_load(&clef__chunk_slots[number]);
    uintptr_t next = first_generation[number];
    for (int i = 0; i < CHUNK; i++) {
        bool lives = atomic_load(&slots[i].handle) != 0;
        if (slots[i].generation + lives > next) next = slots[i].generation + lives;
    }
    pthread_mutex_lock(&chunk_lock);
    atomic_store(&first_generation[number], next);
    atomic_store(&clef__chunk_slots[number], NULL);
    if (number < lowest_free) lowest_free = number;
    pthread_mutex_unlock(&chunk_lock);
    clef__free(slots);
}

/* ---- slots ---- */

static void append_free(clef__slots *slots, clef__tensor *t) {
    t->ended.next_free = NULL;
    if (slots->last_free) slots->last_free->ended.next_free = t;
    else slots->first_free = t;
    slots->last_free = t;
}

static bool add_chunk(clef__slots *slots) {
    if (!clef__grow(&slots->chunk, slots->n, &slots->capacity, sizeof *slots->chunk)) return false;
    clef__tensor *chunk = clef__calloc(CHUNK, sizeof *chunk);
    if (!chunk) return false;
    if (!claim(chunk, &slots->chunk[slots->n])) {
        clef__free(chunk);
        return false;
    }
    uint32_t number = slots->chunk[slots->n++];
    for (uint32_t i = 0; i < CHUNK; i++) {
        chunk[i].slot = number * CHUNK + i;
        chunk[i].generation = first_generation[number];
        append_free(slots, &chunk[i]);
    }
    return true;
}

clef__tensor *clef__slot_take(clef__slots *slots, clef_context *ctx) {
    if (!slots->first_free && !add_chunk(slots)) return NULL;
    clef__tensor *t = slots->first_free;
    slots->first_free = t->ended.next_free;
    if (!slots->first_free) slots->last_free = NULL;
    clef__fetch(slots->first_free, sizeof *t); /* which is long out of all caches */
    memset(&t->ended, 0, sizeof t->ended);
    t->ctx = ctx;
    atomic_store_explicit(&t->handle, handle_of(t), memory_order_relaxed);
    return t;
}

void clef__slot_free(clef__slots *slots, clef__tensor *t, clef__ended ended) {
    atomic_store_explicit(&t->handle, 0, memory_order_relaxed);
    t->generation++;
    t->ended = ended;
    if (t->generation <= CLEF__LAST_GENERATION) append_free(slots, t);
}

void clef__slots_close(clef__slots *slots) {
    for (int i = 0; i < slots->n; i++) give_back(slots->chunk[i]);
    clef__free(slots->chunk);
    *slots = (clef__slots){0};
}

/* ---- handles whose time is over ---- */

const clef__tensor *clef__slot_of_ended(const clef_tensor *handle, bool *present) {
    uintptr_t generation = (uintptr_t)handle >> CLEF__GENERATION_SHIFT;
    const clef__tensor *t = clef__slot_of(handle);
    if (!t || generation < first_generation[t->slot / CHUNK] || generation >= t->generation)
        return NULL; /* another context's; not yet */
    *present = !atomic_load(&t->handle) && generation + 1 == t->generation;
    return t;
}
