/* digits.c — the embedded UCI handwritten digits and their fixed split.

   The split is stratified and spread: with n items of a class of which t are for the test, the r-th (in file
   order) is one when floor((r+1)t/n) > floor(rt/n).  Test sizes per class are n·360/1797 by largest remainder, 360
   in all. */
#include "data/data_internal.h"

enum { DIGITS = 1797, DIGITS_TEST = 360, DIGITS_PIXELS = 64 };
static const char table[DIGITS][DIGITS_PIXELS + 2] = {
/* class, pixels, NUL */
#include "data/digits.inc"
};

static int class_of(int i) { return table[i][0] - '0'; }

/* How many of each class go to the test. */
static void test_quota(int quota[10], int total[10]) {
    int given = 0;
    for (int c = 0; c < 10; c++) total[c] = 0;
    for (int i = 0; i < DIGITS; i++) total[class_of(i)]++;
    for (int c = 0; c < 10; c++) given += quota[c] = total[c] * DIGITS_TEST / DIGITS;
    for (; given < DIGITS_TEST; given++) { /* to the class that was rounded down most */
        int best = 0;
        for (int c = 1; c < 10; c++)
            if (total[c] * DIGITS_TEST - quota[c] * DIGITS > total[best] * DIGITS_TEST - quota[best] * DIGITS) best = c;
        quota[best]++;
    }
}

static bool make_records(void *user, clef__blob *blob) {
    clef_split_name split = *(const clef_split_name *)user;
    int quota[10], total[10], rank[10] = {0};
    size_t count = split == CLEF_TEST ? DIGITS_TEST : DIGITS - DIGITS_TEST;
    *blob = (clef__blob){clef__alloc(count * (DIGITS_PIXELS + 1)), count * (DIGITS_PIXELS + 1)};
    uint8_t *records = blob->bytes;
    if (!records) return false;
    test_quota(quota, total);
    for (int i = 0; i < DIGITS; i++) {
        int c = class_of(i), r = rank[c]++;
        bool test = (r + 1) * quota[c] / total[c] > r * quota[c] / total[c];
        if (test != (split == CLEF_TEST)) continue;
        *records++ = (uint8_t)c;
        for (int p = 0; p < DIGITS_PIXELS; p++) *records++ = (uint8_t)(table[i][1 + p] - 'A');
    }
    return true;
}

clef_dataset *clef_digits(clef_context *ctx, clef_split_name split) {
    if (!ctx || !clef__is_split(ctx, "digits", split)) return NULL;
    int64_t count = split == CLEF_TEST ? DIGITS_TEST : DIGITS - DIGITS_TEST;
    clef_dataset *data = clef__dataset_new(ctx, "digits", CLEF__BYTES, CLEF_SHAPE(1, 8, 8), count, 10);
    if (!data) return NULL;
    data->memory[0] = clef__store(split == CLEF_TEST ? "digits, test" : "digits, train", make_records, &split);
    if (!data->memory[0]) {
        data->size = 0;
        clef__fail(ctx, CLEF_MEMORY, "digits: no memory for %lld images", (long long)count);
        return NULL;
    }
    data->labels = clef__stored_blob(data->memory[0])->bytes;
    data->pixels = data->labels + 1;
    data->label_stride = data->pixel_stride = DIGITS_PIXELS + 1;
    data->scale = 1.0f / 16.0f;
    return data;
}
