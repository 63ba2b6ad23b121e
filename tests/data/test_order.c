/* Random numbers and the order of an epoch, without a device. */
#include "data_support.h"
#include <criterion/criterion.h>
#include <math.h>

/* Known answers published with Random123, the paper's own code. */
Test(philox, known_answers) {
    static const uint32_t cases[3][10] = {
        {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        {~0u, ~0u, ~0u, ~0u, ~0u, ~0u, 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}};
    for (int i = 0; i < 3; i++) {
        uint32_t out[4];
        clef__philox(cases[i] + 4, cases[i], out);
        cr_assert_arr_eq(out, cases[i] + 6, sizeof out, "case %d", i);
    }
}

static bool is_permutation(const int64_t *order, int64_t n) {
    bool *seen = calloc((size_t)n, 1);
    bool ok = true;
    for (int64_t i = 0; i < n; i++) {
        ok = ok && order[i] >= 0 && order[i] < n && !seen[order[i]];
        if (ok) seen[order[i]] = true;
    }
    free(seen);
    return ok;
}

Test(order, is_a_permutation_of_every_size) {
    int64_t order[1100];
    for (int64_t n = 1; n <= 1100; n += n < 20 ? 1 : 97) {
        clef__order_shuffled(order, n, 5, 2);
        cr_assert(is_permutation(order, n), "n = %lld", (long long)n);
    }
}

/* Computed apart from this code: resuming from a checkpoint of an earlier release needs the same order. */
Test(order, stays_what_it_is) {
    int64_t order[10];
    static const int64_t expected[10] = {7, 8, 4, 5, 9, 3, 0, 1, 6, 2};
    clef__order_shuffled(order, 10, 1, 0);
    cr_assert_arr_eq(order, expected, sizeof order);
}

Test(order, differs_by_seed_and_epoch_and_repeats) {
    int64_t a[256], b[256];
    clef__order_shuffled(a, 256, 1, 0);
    clef__order_shuffled(b, 256, 1, 0);
    cr_assert_arr_eq(a, b, sizeof a);
    static const uint64_t seeds[] = {2, 1, 1ull << 40 | 1};
    static const uint32_t epochs[] = {0, 1, 0};
    for (int i = 0; i < 3; i++) {
        clef__order_shuffled(b, 256, seeds[i], epochs[i]);
        cr_assert_arr_neq(a, b, sizeof a);
    }
}

/* Every item at every place equally often: chi-square of 6 x 6 counts with 25 degrees of freedom. */
Test(order, has_no_favourites) {
    enum { N = 6, RUNS = 12000 };
    int count[N][N] = {{0}};
    for (uint32_t epoch = 0; epoch < RUNS; epoch++) {
        int64_t order[N];
        clef__order_shuffled(order, N, 9, epoch);
        for (int i = 0; i < N; i++) count[i][order[i]]++;
    }
    double chi = 0, expected = (double)RUNS / N;
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) chi += (count[i][j] - expected) * (count[i][j] - expected) / expected;
    cr_assert_lt(chi, 52.6, "chi-square %g: p < 0.001", chi);
}
