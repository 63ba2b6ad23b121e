/* handle.h — tensors as programs hold them: numbers in a pointer's clothes.

   A clef_tensor * points nowhere.  Its low bits are a tag that neither a pointer nor CLEF_NONE has; above them are the number of a
   slot and the slot's generation.  The slot holds the tensor (clef__tensor) while it lives.  Freeing the tensor raises the
   generation, so a handle that outlived its tensor is found out by one comparison, whatever the slot holds by then.  A slot whose
   generations are used up is never used again.

   Slots come in chunks, which belong to one context at a time.  A context's chunks grow to the most tensors that it had at once and
   are reused first in, first out, so that a freed slot tells what it held for as long as possible.  They are freed with the
   context; the next owner of a chunk's number goes on with higher generations.

   A tensor is one output of a node (graph.h). */
#ifndef CLEF_HANDLE_H
#define CLEF_HANDLE_H
#include "clef/base.h"
#include <stdatomic.h>

typedef struct clef__tensor clef__tensor;
typedef struct clef__node clef__node;
typedef struct clef__output clef__output;
typedef struct clef__averaging clef__averaging; /* graph.h */

/* What is known of a tensor that was freed, until its slot is used again. */
typedef struct clef__ended {
    const char *op; /* what made its value */
    clef_shape shape;
    uint64_t step; /* the last one in which it could be used */
    bool released; /* by clef_release, or with its owner; else its time was over */
    clef__tensor *next_free;
} clef__ended;

struct clef__tensor {
    _Atomic(uintptr_t) handle; /* its own while it lives, else 0 */
    uintptr_t generation;      /* of the present tensor, or of the slot's next */
    uint32_t slot;             /* its own number */
    clef_context *ctx;
    union {
        struct {
            clef__output *out; /* its value */
            clef__tensor *grad;
            clef__output *before;         /* the value to come back to (dry.c), or NULL */
            int keeps;                    /* clef_keep minus clef_release */
            bool elsewhere;               /* another rank's to compute: the end of a step leaves it pending */
            bool owned;                   /* something in the library holds it as well: a parameter its gradient, a module … */
            bool requires_grad, weighted; /* weighted: its gradient is this rank's part of an average (averaging.c) */
            clef__averaging *averaging;   /* of its gradients over ranks, or NULL */
            void *cut_over; /* a parameter that is this rank's part of one: the clef_group whose ranks have the others; else NULL */
            clef__averaging *sharded;      /* whose averages are cut: `grad` is this rank's part alone; else NULL */
            double factor, next_factor;    /* what makes the gradient that part; once backward has left its own */
            uint64_t until;                /* the last step in which it is a temporary; 0: it is none */
            uint64_t number;               /* of the handles that its context made, from 1 */
            clef__tensor *previous, *next; /* in the context's list of temporaries or of kept tensors */
        };
        clef__ended ended;
    };
};

/* The slots of one context. */
typedef struct clef__slots {
    uint32_t *chunk; /* numbers of its chunks */
    int n, capacity;
    clef__tensor *first_free, *last_free;
} clef__slots;

enum {
    CLEF__TAG = 0xb,
    CLEF__TAG_BITS = 4,
    CLEF__CHUNK_BITS = 8, /* 2^8 slots in a chunk */
    CLEF__SLOT_BITS = sizeof(uintptr_t) < 8 ? 16 : 26,
    CLEF__GENERATION_SHIFT = CLEF__TAG_BITS + CLEF__SLOT_BITS
};
#define CLEF__LAST_GENERATION (UINTPTR_MAX >> CLEF__GENERATION_SHIFT)

/* Where the slots of each chunk are: NULL while no context has it. */
extern _Atomic(clef__tensor *) clef__chunk_slots[1 << (CLEF__SLOT_BITS - CLEF__CHUNK_BITS)];

/* Is it a handle at all, of whatever time? */
static inline bool clef__is_handle(const clef_tensor *handle) {
    return ((uintptr_t)handle & ((1 << CLEF__TAG_BITS) - 1)) == CLEF__TAG;
}
/* The slot that a handle names, whatever it holds by now; NULL where no context has its chunk, or it is no handle. */
static inline clef__tensor *clef__slot_of(const clef_tensor *handle) {
    uintptr_t slot = (uintptr_t)handle >> CLEF__TAG_BITS & (((uintptr_t)1 << CLEF__SLOT_BITS) - 1);
    if (!clef__is_handle(handle)) return NULL;
    clef__tensor *chunk = atomic_load_explicit(&clef__chunk_slots[slot >> CLEF__CHUNK_BITS], memory_order_acquire);
    return chunk ? chunk + (slot & ((1 << CLEF__CHUNK_BITS) - 1)) : NULL;
}
/* The tensor of a handle; NULL if there is none (any more), and for NULL. */
static inline clef__tensor *clef__get(const clef_tensor *handle) {
    clef__tensor *t = clef__slot_of(handle);
    return t && atomic_load_explicit(&t->handle, memory_order_relaxed) == (uintptr_t)handle ? t : NULL;
}
/* The handle of a tensor; NULL for NULL. */
static inline clef_tensor *clef__handle(const clef__tensor *t) {
    return t ? (clef_tensor *)atomic_load_explicit(&t->handle, memory_order_relaxed) : NULL;
}

/* Has the processor fetch what is needed soon, while it does other work; NULL is allowed. */
static inline void clef__fetch(const void *at, size_t bytes) {
#ifdef __GNUC__
    for (size_t i = 0; at && i < bytes; i += 64) __builtin_prefetch((const char *)at + i, 1);
#else
    (void)at, (void)bytes;
#endif
}

/* A free slot under a new handle, all zero but for `ctx`; NULL when out of host memory. */
clef__tensor *clef__slot_take(clef__slots *slots, clef_context *ctx);
/* Ends the handle; the slot keeps what `ended` says of it. */
void clef__slot_free(clef__slots *slots, clef__tensor *t, clef__ended ended);
/* Ends all handles of a context. */
void clef__slots_close(clef__slots *slots);
/* The slot of a handle that clef__get does not know, if its context is open: `ended` then means something if *present, else the
   slot has been used again.  NULL: no context has such a handle. */
const clef__tensor *clef__slot_of_ended(const clef_tensor *handle, bool *present);
#endif
