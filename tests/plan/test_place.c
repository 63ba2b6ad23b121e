/* Where values lie in an arena, on plain structs: no device, no context. */
#include "plan/run/run.h"

#include <criterion/criterion.h>
#include <stdlib.h>

enum { ALIGNMENT = 128, FEW = 60, MANY = 20000 };

static bool together(const clef__block *a, const clef__block *b) { return a->first <= b->last && b->first <= a->last; }
static size_t end_of(const clef__block *b) { return b->offset + b->bytes; }

/* ---- an independent checker: every pair, every offset that could be lower ---- */

static bool is_free(const clef__block *b, const clef__block *other, int n, size_t offset) {
    for (int i = 0; i < n; i++)
        if (together(b, &other[i]) && offset < end_of(&other[i]) && other[i].offset < offset + b->bytes) return false;
    return true;
}

static int larger_first(const void *a, const void *b) {
    const clef__block *x = a, *y = b;
    return x->bytes < y->bytes ? 1 : x->bytes > y->bytes ? -1 : 0;
}

/* The lowest offset of a block that clears those before it is 0 or where one of these ends. */
static size_t lowest(const clef__block *block, int at) {
    size_t best = is_free(&block[at], block, at, 0) ? 0 : SIZE_MAX;
    for (int i = 0; i < at; i++) {
        size_t offset = (end_of(&block[i]) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        if (offset < best && is_free(&block[at], block, at, offset)) best = offset;
    }
    return best;
}

/* Of blocks that stand in the order in which they are placed. */
static void check(const clef__block *block, int n, size_t total) {
    for (int i = 0; i < n; i++) {
        cr_assert_eq(block[i].offset % ALIGNMENT, 0);
        cr_assert_leq(end_of(&block[i]), total);
        cr_assert(is_free(&block[i], block, i, block[i].offset), "block %d shares memory with one before", i);
        cr_assert_eq(block[i].offset, lowest(block, i), "block %d", i);
    }
    cr_assert_geq(total, clef__place_lower_bound(block, n));
}

static void place_and_check(clef__block *block, int n) {
    qsort(block, (size_t)n, sizeof *block, larger_first);
    check(block, n, clef__place(block, n, ALIGNMENT, NULL));
}

static int any(int n) { return rand() % n; }

Test(place, blocks_alive_together_never_overlap_and_lie_as_low_as_they_can) {
    srand(2);
    for (int round = 0; round < 600; round++) {
        clef__block b[FEW];
        int n = 1 + any(FEW), times = 1 + any(100), most = round % 3 ? 5000 : 4 * ALIGNMENT, longest = round % 2 ? 12 : times;
        for (int i = 0; i < n; i++) {
            int first = any(times);
            b[i] = (clef__block){.bytes = (size_t)any(most), .first = first, .last = first + any(longest)};
        }
        place_and_check(b, n);
    }
}

Test(place, lives_within_each_other) { /* forward and backward */
    clef__block b[FEW];
    for (int i = 0; i < FEW; i++) b[i] = (clef__block){.bytes = (size_t)(1 + any(9)) * 1000, .first = i, .last = 2 * FEW - i};
    place_and_check(b, FEW);
}

Test(place, a_chain_needs_two_blocks) {
    clef__block b[10];
    for (int i = 0; i < 10; i++) b[i] = (clef__block){.bytes = 1024, .first = i, .last = i + 1};
    cr_assert_eq(clef__place(b, 10, ALIGNMENT, NULL), 2048);
    cr_assert_eq(clef__place_lower_bound(b, 10), 2048);
}

Test(place, nothing_needs_nothing) { cr_assert_eq(clef__place(NULL, 0, ALIGNMENT, NULL), 0); }

Test(place, what_no_address_reaches_has_no_place) {
    clef__block b[2] = {{.bytes = SIZE_MAX, .last = 1}, {.bytes = 1, .last = 1}};
    cr_assert_eq(clef__place(b, 2, ALIGNMENT, NULL), SIZE_MAX);
    for (int i = 0; i < 2; i++) b[i].bytes = SIZE_MAX / 2;
    cr_assert_eq(clef__place(b, 2, ALIGNMENT, NULL), SIZE_MAX);
}

/* ---- a graph of ten thousands of values must not stop the program ---- */

static clef__block layer(int i, int n) {
    return (clef__block){.bytes = (size_t)(1 + i % 7) << 10, .first = i, .last = i % 4 ? i + 1 + i % 3 : 2 * n - i};
}
static clef__block saved(int i, int n) { return (clef__block){.bytes = 4096, .first = i, .last = 2 * n - i}; }
static clef__block saved_of_any_size(int i, int n) {
    return (clef__block){.bytes = (size_t)any(500000), .first = i, .last = 2 * n - i};
}
static clef__block brief(int i, int n) {
    (void)n;
    return (clef__block){.bytes = (size_t)any(500000), .first = i, .last = i + any(12)};
}
static clef__block mixed(int i, int n) {
    return (clef__block){.bytes = (size_t)any(5000), .first = i, .last = any(10) ? i + 1 + any(4) : i + any(n)};
}

static uint64_t steps_for(clef__block (*make)(int i, int n), int n) {
    clef__block *b = calloc((size_t)n, sizeof *b);
    for (int i = 0; i < n; i++) b[i] = make(i, n);
    uint64_t steps;
    size_t total = clef__place(b, n, ALIGNMENT, &steps), bound = clef__place_lower_bound(b, n);
    cr_expect(total >= bound && total < bound + bound / 10, "%zu bytes where %zu are alive at once", total, bound);
    free(b);
    return steps;
}

Test(place, steps_grow_with_the_blocks_and_hardly_faster) {
    clef__block (*const graph[])(int, int) = {layer, saved, saved_of_any_size, brief, mixed};
    srand(3);
    for (size_t i = 0; i < sizeof graph / sizeof *graph; i++) {
        uint64_t some = steps_for(graph[i], MANY / 4), all = steps_for(graph[i], MANY);
        cr_expect_lt(all, 1000u * MANY, "graph %zu: %lu steps", i, (unsigned long)all);
        cr_expect_lt(all, 10 * some, "graph %zu: %lu steps for a quarter, %lu for all", i, (unsigned long)some, (unsigned long)all);
    }
}
