/* The loader: what is in its batches, the same for any number of threads; continuing, errors, closing. */
#include "data_context.h"
#include <pthread.h>
#include <time.h>

TestSuite(loader, .init = open_context, .fini = close_context);

/* Everything an epoch gave, in order. */
typedef struct epoch {
    float *x;
    int64_t *y;
    int64_t n, batches;
} epoch;

static void append(epoch *e, const clef_batch *b, int64_t numel) {
    size_t rows = (size_t)b->size * (size_t)numel;
    e->x = realloc(e->x, ((size_t)(e->n * numel) + rows) * sizeof *e->x);
    cr_assert_eq(clef_read(b->x, e->x + e->n * numel, rows * sizeof *e->x), CLEF_OK, "%s", clef_error(ctx));
    e->y = realloc(e->y, (size_t)(e->n + b->size) * sizeof *e->y);
    if (b->y) cr_assert_eq(clef_read(b->y, e->y + e->n, (size_t)b->size * sizeof *e->y), CLEF_OK, "%s", clef_error(ctx));
    cr_assert_eq(b->index, e->batches);
    e->n += b->size;
    e->batches++;
}

/* Reads `most` batches, or to the end of the epoch. */
static epoch read_from(clef_loader *loader, int64_t first, int64_t most) {
    int64_t numel = clef_shape_numel(clef_dataset_item(clef_loader_dataset(loader)));
    epoch e = {.batches = first};
    clef_batch b;
    while (e.batches < first + most && clef_next(loader, &b)) append(&e, &b, numel);
    cr_assert_eq(clef_error_status(ctx), CLEF_OK, "%s", clef_error(ctx));
    return e;
}

static epoch read_epoch(clef_loader *loader) { return read_from(loader, 0, INT64_MAX / 2); }

static void free_epoch(epoch *e) {
    free(e->x);
    free(e->y);
}

static void expect_same(const epoch *a, const epoch *b, int64_t numel) {
    cr_assert_eq(a->n, b->n);
    cr_assert_eq(memcmp(a->y, b->y, (size_t)a->n * sizeof *a->y), 0);
    cr_assert_eq(memcmp(a->x, b->x, (size_t)(a->n * numel) * sizeof *a->x), 0);
}

Test(loader, gives_every_item_once_in_order) {
    clef_dataset *data = clef_digits(ctx, CLEF_TEST);
    clef_loader *loader = clef_loader_open(data, &(clef_loader_options){.batch = 50});
    cr_assert_eq(clef_loader_batches(loader), 8);
    cr_assert_eq(clef_loader_dataset(loader), data);
    for (int round = 0; round < 2; round++) {
        epoch e = read_epoch(loader);
        cr_assert_eq(e.n, 360);
        cr_assert_eq(e.batches, 8);
        for (int i = 0; i < 360; i++) {
            float x[64];
            int64_t y;
            clef_dataset_get(data, i, x, &y);
            cr_assert_eq(e.y[i], y);
            cr_assert_arr_eq(e.x + 64 * i, x, sizeof x);
        }
        free_epoch(&e);
    }
}

Test(loader, shapes_and_dtypes) {
    clef_loader *loader = clef_loader_open(clef_digits(ctx, CLEF_TEST), &(clef_loader_options){.batch = 350});
    clef_batch b;
    cr_assert(clef_next(loader, &b));
    cr_assert(clef_shape_equal(clef_tensor_shape(b.x), CLEF_SHAPE(350, 1, 8, 8)));
    cr_assert(clef_shape_equal(clef_tensor_shape(b.y), CLEF_SHAPE(350)));
    cr_assert(clef_tensor_dtype(b.x) == CLEF_F32 && clef_tensor_dtype(b.y) == CLEF_I64);
    cr_assert(clef_next(loader, &b));
    cr_assert_eq(b.size, 10);
    cr_assert(clef_shape_equal(clef_tensor_shape(b.x), CLEF_SHAPE(10, 1, 8, 8)));
    cr_assert_not(clef_next(loader, &b));
}

Test(loader, last_partial_batch_can_be_dropped) {
    clef_dataset *data = clef_digits(ctx, CLEF_TEST);
    clef_loader *loader = clef_loader_open(data, &(clef_loader_options){.batch = 350, .drop_last = true});
    epoch e = read_epoch(loader);
    cr_assert_eq(e.n, 350);
    free_epoch(&e);
    loader = clef_loader_open(data, &(clef_loader_options){.batch = 500, .drop_last = true});
    cr_assert_eq(clef_loader_batches(loader), 0);
    clef_batch b;
    cr_assert_not(clef_next(loader, &b));
    cr_assert_eq(clef_error_status(ctx), CLEF_OK);
    cr_assert_eq(clef_loader_get(loader).epoch, 1);
    cr_assert_eq(clef_loader_batches(clef_loader_open(data, &(clef_loader_options){.batch = 500})), 1);
    cr_assert_eq(clef_loader_batches(clef_loader_open(data, NULL)), 12);
}

Test(loader, shuffles_as_the_order_says) {
    clef_dataset *data = clef_digits(ctx, CLEF_TEST);
    clef_loader *loader = clef_loader_open(data, &(clef_loader_options){.batch = 64, .shuffle = true, .seed = 3});
    for (uint32_t number = 0; number < 2; number++) {
        int64_t order[360];
        clef__order_shuffled(order, 360, 3, number);
        epoch e = read_epoch(loader);
        cr_assert_eq(e.n, 360);
        for (int i = 0; i < 360; i++) {
            float x[64];
            clef_dataset_get(data, order[i], x, NULL);
            cr_assert_arr_eq(e.x + 64 * i, x, sizeof x);
        }
        free_epoch(&e);
    }
}

static const float mean[1] = {0.3f}, std_[1] = {0.4f};

static clef_loader_options everything(int workers) {
    return (clef_loader_options){
        .batch = 32,
        .shuffle = true,
        .workers = workers,
        .prefetch = 1 + workers % 3,
        .seed = 11,
        .mean = mean,
        .std = std_,
        .augment = {.crop_padding = 1, .flip = true, .rotation = 10, .brightness = 0.2, .contrast = 0.2, .cutout = 2}};
}

Test(loader, batches_do_not_depend_on_threads) {
    clef_dataset *data = clef_digits(ctx, CLEF_TEST);
    for (int augment = 0; augment < 2; augment++) {
        epoch first[2];
        for (int workers = 1; workers <= 4; workers++) {
            clef_loader_options o = everything(workers);
            if (!augment) o.augment = (clef_augment){0};
            clef_loader *loader = clef_loader_open(data, &o);
            for (int number = 0; number < 2; number++) {
                epoch e = read_epoch(loader);
                if (workers == 1) {
                    first[number] = e;
                    continue;
                }
                expect_same(&e, &first[number], 64);
                free_epoch(&e);
            }
            clef_loader_close(loader);
        }
        cr_assert_neq(memcmp(first[0].x, first[1].x, 360 * 64 * sizeof(float)), 0, "the epochs are the same");
        free_epoch(&first[0]);
        free_epoch(&first[1]);
    }
}

Test(loader, continues_exactly) {
    clef_dataset *data = clef_digits(ctx, CLEF_TEST);
    clef_loader_options o = everything(2), other = everything(3);
    clef_loader *a = clef_loader_open(data, &o);
    other.seed = 99;
    epoch whole = read_epoch(a), half = read_from(a, 0, 5);
    clef_loader_state state = clef_loader_get(a);
    cr_assert(state.epoch == 1 && state.batch == 5 && state.seed == 11);
    epoch rest = read_from(a, 5, 1000);
    cr_assert_eq(half.n + rest.n, whole.n);
    clef_loader *b = clef_loader_open(data, &other);
    epoch dropped = read_from(b, 0, 2);
    cr_assert_eq(clef_loader_set(b, state), CLEF_OK);
    epoch again = read_from(b, 5, 1000);
    expect_same(&rest, &again, 64);
    epoch next_a = read_epoch(a), next_b = read_epoch(b);
    expect_same(&next_a, &next_b, 64);
    epoch *all[] = {&whole, &half, &rest, &dropped, &again, &next_a, &next_b};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free_epoch(all[i]);
}

Test(loader, continues_at_the_very_end_of_an_epoch) {
    clef_loader_options o = everything(1);
    clef_loader *loader = clef_loader_open(clef_digits(ctx, CLEF_TEST), &o);
    epoch e = read_from(loader, 0, 12);
    clef_loader_state state = clef_loader_get(loader);
    cr_assert(state.epoch == 0 && state.batch == 12);
    cr_assert_eq(clef_loader_set(loader, state), CLEF_OK);
    clef_batch b;
    cr_assert_not(clef_next(loader, &b));
    state = clef_loader_get(loader);
    cr_assert(state.epoch == 1 && state.batch == 0);
    free_epoch(&e);
    static const clef_loader_state wrong[] = {{-1, 0, 0}, {0, -1, 0}, {0, 13, 0}, {1ll << 32, 0, 0}};
    for (int i = 0; i < 4; i++) {
        cr_assert_eq(clef_loader_set(loader, wrong[i]), CLEF_INVALID);
        expect_error(ctx, CLEF_INVALID, "no place");
    }
}

/* The table of bytes, the long way and the formula agree. */
Test(loader, normalises_per_channel) {
    enum { ITEMS = 6, PLANE = 1024, NUMEL = 3 * PLANE };
    static const float m[3] = {0.5f, 0.25f, 0.1f}, s[3] = {0.2f, 0.3f, 0.4f};
    char dir[256];
    new_folder(dir);
    write_and_free(dir, "test_batch.bin", cifar_file(ITEMS, 0));
    clef_dataset *bytes = clef_cifar10(ctx, dir, CLEF_TEST);
    remove_file(dir, "test_batch.bin");
    rmdir(dir);
    static float x[ITEMS * NUMEL];
    for (int i = 0; i < ITEMS; i++) cr_assert_eq(clef_dataset_get(bytes, i, x + i * NUMEL, NULL), CLEF_OK);
    clef_dataset *floats = clef_dataset_arrays(ctx, x, CLEF_SHAPE(3, 32, 32), (int64_t[]){0, 1, 2, 3, 4, 5}, ITEMS);
    clef_loader_options o = {.batch = 4, .mean = m, .std = s};
    epoch a = read_epoch(clef_loader_open(bytes, &o)), b = read_epoch(clef_loader_open(floats, &o));
    expect_same(&a, &b, NUMEL);
    for (int i = 0; i < ITEMS * NUMEL; i++) {
        int c = i % NUMEL / PLANE;
        cr_assert_float_eq(a.x[i], ((double)x[i] - m[c]) / s[c], 1e-5);
    }
    o.mean = NULL;
    epoch c = read_epoch(clef_loader_open(bytes, &o));
    cr_assert_float_eq(c.x[5], x[5] / 0.2, 1e-5);
    free_epoch(&a);
    free_epoch(&b);
    free_epoch(&c);
}

Test(loader, augments_before_it_normalises) {
    clef_dataset *data = clef_digits(ctx, CLEF_TEST);
    clef_loader_options o = everything(1);
    o.shuffle = false;
    epoch e = read_epoch(clef_loader_open(data, &o));
    for (int i = 0; i < 360; i++) {
        float x[64], scratch[64];
        clef_dataset_get(data, i, x, NULL);
        clef__change change = clef__augment_draw(&o.augment, 11, 0, i, 8, 8);
        clef__augment_apply(&change, 1, 8, 8, x, scratch);
        for (int p = 0; p < 64; p++) cr_assert_float_eq(e.x[i * 64 + p], (x[p] - 0.3f) / 0.4f, 1e-6);
    }
    free_epoch(&e);
}

Test(loader, targets_may_be_floats_or_none) {
    float x[6] = {1, 2, 3, 4, 5, 6}, y[12], got[8];
    for (int i = 0; i < 12; i++) y[i] = (float)i;
    clef_loader *loader =
        clef_loader_open(clef_dataset_pairs(ctx, x, CLEF_SCALAR, y, CLEF_SHAPE(2), 6), &(clef_loader_options){.batch = 4});
    clef_batch b;
    cr_assert(clef_next(loader, &b));
    cr_assert(clef_shape_equal(clef_tensor_shape(b.x), CLEF_SHAPE(4)));
    cr_assert(clef_shape_equal(clef_tensor_shape(b.y), CLEF_SHAPE(4, 2)));
    cr_assert_eq(clef_tensor_dtype(b.y), CLEF_F32);
    cr_assert_eq(clef_read(b.y, got, sizeof got), CLEF_OK);
    cr_assert_arr_eq(got, y, sizeof got);
    loader = clef_loader_open(clef_dataset_arrays(ctx, x, CLEF_SHAPE(2), NULL, 3), NULL);
    cr_assert(clef_next(loader, &b));
    cr_assert(b.x && !b.y && b.size == 3);
}

typedef struct source {
    pthread_mutex_t lock;
    int fails_at, calls, threads_seen;
    pthread_t seen[8];
    bool slow;
} source;

static bool fetch(void *user, int64_t i, float *x, int64_t *y) {
    source *s = user;
    pthread_mutex_lock(&s->lock);
    bool known = false;
    for (int t = 0; t < s->threads_seen; t++) known = known || pthread_equal(s->seen[t], pthread_self());
    if (!known && s->threads_seen < 8) s->seen[s->threads_seen++] = pthread_self();
    s->calls++;
    bool fails = i == s->fails_at;
    pthread_mutex_unlock(&s->lock);
    if (s->slow) nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    x[0] = (float)i, x[1] = -(float)i;
    *y = i % 3;
    return !fails;
}

Test(loader, a_failed_fetch_is_an_error_at_its_batch) {
    for (int workers = 1; workers <= 3; workers++) {
        source s = {.lock = PTHREAD_MUTEX_INITIALIZER, .fails_at = 17};
        clef_dataset *data = clef_dataset_callback(ctx, CLEF_SHAPE(2), 40, 3, fetch, &s);
        clef_loader *loader = clef_loader_open(data, &(clef_loader_options){.batch = 4, .workers = workers, .prefetch = 3});
        clef_batch b;
        int good = 0;
        while (clef_next(loader, &b)) good++;
        cr_assert_eq(good, 4);
        cr_assert(!b.x && !b.y && b.size == 0);
        cr_assert_not(clef_next(loader, &b), "went on with an error in the context");
        expect_error(ctx, CLEF_IO, "item 17 of batch 4");
        s.fails_at = -1;
        for (good = 0; clef_next(loader, &b); good++) cr_assert_eq(b.index, 4 + good);
        cr_assert_eq(good, 6);
        clef_loader_close(loader);
    }
}

static int calls_of(source *s) {
    pthread_mutex_lock(&s->lock);
    int calls = s->calls;
    pthread_mutex_unlock(&s->lock);
    return calls;
}

static void pause_a_while(void) { nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL); }

Test(loader, the_queue_is_bounded) {
    source s = {.lock = PTHREAD_MUTEX_INITIALIZER, .fails_at = -1};
    clef_dataset *data = clef_dataset_callback(ctx, CLEF_SHAPE(2), 4000, 3, fetch, &s);
    clef_loader *loader = clef_loader_open(data, &(clef_loader_options){.batch = 10, .workers = 2, .prefetch = 3});
    clef_batch b;
    cr_assert(clef_next(loader, &b));
    while (calls_of(&s) < 40) pause_a_while(); /* one batch taken, three ahead */
    pause_a_while();
    cr_assert_eq(calls_of(&s), 40, "%d items were fetched", calls_of(&s));
}

Test(loader, continuing_fetches_nothing_twice) {
    source s = {.lock = PTHREAD_MUTEX_INITIALIZER, .fails_at = -1};
    clef_dataset *data = clef_dataset_callback(ctx, CLEF_SHAPE(2), 40, 3, fetch, &s);
    clef_loader *loader = clef_loader_open(data, &(clef_loader_options){.batch = 4, .prefetch = 3});
    cr_assert_eq(clef_loader_set(loader, (clef_loader_state){.epoch = 2, .batch = 7}), CLEF_OK);
    epoch e = read_from(loader, 7, 1000);
    cr_assert_eq(e.x[0], 28);
    cr_assert_eq(s.calls, 12);
    free_epoch(&e);
}

Test(loader, several_threads_work) {
    source s = {.lock = PTHREAD_MUTEX_INITIALIZER, .fails_at = -1, .slow = true};
    clef_dataset *data = clef_dataset_callback(ctx, CLEF_SHAPE(2), 60, 3, fetch, &s);
    clef_loader *loader = clef_loader_open(data, &(clef_loader_options){.batch = 5, .workers = 3});
    epoch e = read_epoch(loader);
    for (int i = 0; i < 60; i++) cr_assert(e.x[2 * i] == (float)i && e.y[i] == i % 3);
    cr_assert_eq(s.threads_seen, 3);
    free_epoch(&e);
}

Test(loader, closes_in_the_middle) {
    clef_dataset *data = clef_digits(ctx, CLEF_TRAIN);
    for (int taken = 0; taken < 6; taken++) {
        clef_loader_options o = everything(1 + taken % 4);
        clef_loader *loader = clef_loader_open(data, &o);
        clef_batch b;
        for (int i = 0; i < taken; i++) cr_assert(clef_next(loader, &b));
        if (taken % 2) clef_loader_close(loader); /* the others are closed with the context */
    }
}

Test(loader, wrong_options_are_told) {
    clef_dataset *digits = clef_digits(ctx, CLEF_TEST);
    clef_dataset *flat = clef_dataset_arrays(ctx, (float[4]){0}, CLEF_SHAPE(2), NULL, 2);
    static const float zero[1] = {0};
    const struct {
        clef_dataset *data;
        clef_loader_options o;
        const char *part;
    } cases[] = {{digits, {.batch = -1}, "batch is"},           {digits, {.workers = 1000}, "workers 0 to"},
                 {digits, {.prefetch = -3}, "prefetch"},        {digits, {.std = zero}, "std"},
                 {digits, {.augment = {.shift = -1}}, "shift"}, {flat, {.augment = {.flip = true}}, "[c,h,w]"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_assert_null(clef_loader_open(cases[i].data, &cases[i].o));
        expect_error(ctx, CLEF_INVALID, cases[i].part);
    }
}
