/* The pool, transfers, staging. */
#include "runtime_support.h"
#include <criterion/criterion.h>

static clef_context *ctx;
static clef__device *device;

static void open_it(bool debug) {
    ctx = clef_open(&(clef_options){.cache_dir = "", .debug_memory = debug});
    if (!ctx) cr_skip_test("%s", clef_error(NULL));
    device = clef__device_at(ctx, 0);
}

static void setup(void) { open_it(false); }

static void teardown(void) { clef_close(ctx); }

TestSuite(memory, .init = setup, .fini = teardown);
TestSuite(transfer, .init = setup, .fini = teardown);

Test(memory, figures) {
    clef__buffer *a = clef__buffer_new(device, 1000), *b = clef__buffer_new(device, 5000);
    clef_memory_info m = clef_memory(ctx);
    cr_assert_eq(m.buffers, 2u);
    cr_assert_eq(m.used, clef__buffer_size(a) + clef__buffer_size(b));
    cr_assert_geq(clef__buffer_size(a), 1000u);
    cr_assert_leq(clef__buffer_size(b), 5000u / 8 * 9 + 128);
    clef__buffer_retain(a);
    cr_assert_eq(clef__buffer_refs(a), 2);
    clef__buffer_release(a);
    cr_assert_eq(clef_memory(ctx).buffers, 2u);
    clef__buffer_release(a);
    clef__buffer_release(b);
    clef__buffer_release(NULL);
    clef_memory_info after = clef_memory(ctx);
    cr_assert_eq(after.used, 0u);
    cr_assert_eq(after.buffers, 0u);
    cr_assert_eq(after.peak, m.used);
    cr_assert_eq(after.cached, m.used);
    clef_memory_reset_peak(ctx);
    cr_assert_eq(clef_memory(ctx).peak, 0u);
    cr_assert_eq(clef__pool_trim(device), after.cached);
    cr_assert_eq(clef_memory(ctx).cached, 0u);
}

Test(memory, buffers_come_back) {
    clef__buffer *a = clef__buffer_new(device, 1 << 20);
    void *memory = clef__buffer_mem(a);
    clef__buffer_release(a);
    clef__buffer *b = clef__buffer_new(device, (1 << 20) - 1000); /* the same class */
    cr_assert_eq(clef__buffer_mem(b), memory);
    clef__buffer *c = clef__buffer_new(device, 1 << 20);
    cr_assert_neq(clef__buffer_mem(c), memory);
    clef__buffer_release(b);
    clef__buffer_release(c);
}

static void expect_whole(size_t bytes) {
    unsigned char *want = malloc(bytes), *have = malloc(bytes);
    clef__buffer *other = clef__buffer_new(device, bytes), *b = clef__buffer_new(device, bytes);
    cr_assert(want && have && other && b, "%zu bytes: %s", bytes, clef_error(ctx));
    for (size_t i = 0; i < bytes; i++) want[i] = (unsigned char)(i * 7 + i / 251);
    memset(have, 0xee, bytes);
    cr_assert(clef__buffer_write(b, 0, want, bytes) == CLEF_OK && clef__buffer_write(other, 0, have, bytes) == CLEF_OK);
    cr_assert(clef__buffer_read(b, 0, have, bytes) == CLEF_OK);
    cr_assert(memcmp(have, want, bytes) == 0, "%zu bytes do not come back", bytes);
    clef__buffer_release(other);
    cr_assert(clef__buffer_copy(b, bytes / 2, b, 0, bytes / 2) == CLEF_OK &&
              clef__buffer_read(b, bytes / 2, have, bytes / 2) == CLEF_OK);
    cr_assert(memcmp(have, want, bytes / 2) == 0, "half of %zu bytes does not come back", bytes);
    clef__buffer_release(b);
    free(want), free(have);
}

/* Around a large page, where memory may be our own (pages.c): every byte, to the last of a size class. */
Test(memory, large_buffers_hold_every_byte) {
    static const size_t sizes[] = {(2 << 20) - 256, 2 << 20, (2 << 20) + (1 << 18), 4 << 20, (4 << 20) + (1 << 19), 9 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) expect_whole(sizes[i]);
}

static long mapped_pages(void) {
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%ld", &pages) != 1) pages = 0;
    if (f) fclose(f);
    return pages;
}

/* What the driver lets go of goes back to the system, also when the program held it longer than the context. */
Test(memory, large_buffers_go_back) {
    enum { BYTES = 64 << 20, TIMES = 40 };
    static const unsigned char last[128] = {1};
    if (!device->large_pages) cr_skip_test("this device's driver takes no memory of ours");
    clef__buffer *held = clef__buffer_new(device, BYTES);
    cl_mem memory = clef__buffer_mem(held);
    clef__buffer_pin(held);
    cr_assert(clRetainMemObject(memory) == CL_SUCCESS);
    clef__buffer_release(held);
    long before = mapped_pages();
    for (int i = 0; i < TIMES; i++) {
        clef__buffer *b = clef__buffer_new(device, BYTES);
        cr_assert(clef__buffer_write(b, BYTES - sizeof last, last, sizeof last) == CLEF_OK && clef__finish(device) == CLEF_OK);
        clef__buffer_release(b);
        clef__pool_trim(device);
    }
    cr_assert(mapped_pages() - before < 2 * BYTES / 4096, "%ld pages more", mapped_pages() - before);
    cr_assert(clEnqueueFillBuffer(clef__queue(device), memory, &(unsigned char){3}, 1, 0, BYTES, 0, NULL, NULL) == CL_SUCCESS);
    cr_assert(clFinish(device->compute) == CL_SUCCESS && clReleaseMemObject(memory) == CL_SUCCESS);
}

/* Every size gets at least what it asked for and at most an eighth (or 127 bytes) more, in multiples of 128. */
Test(memory, classes) {
    for (size_t n = 1; n < 100000; n += n < 3000 ? 1 : 997) {
        clef__buffer *b = clef__buffer_new(device, n);
        cr_assert_not_null(b);
        size_t size = clef__buffer_size(b);
        cr_assert(size >= n && size <= (n + 127) / 128 * 128 + n / 8, "%zu gave %zu", n, size);
        cr_assert_eq(size % 128, 0u, "%zu gave %zu", n, size);
        clef__buffer_release(b);
    }
}

/* With stages that the driver has pinned: every byte, and writes from memory that changes at once, more of it than may fly. */
Test(stages, pinned) {
    setenv("CLEF_PINNED", "1", 1);
    setup();
    static const size_t sizes[] = {1, 4095, 1 << 16, (1 << 16) + 1, 1 << 20, (1 << 24) - 3, (1 << 25) + 5, (3 << 24) + 77};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) expect_whole(sizes[i]);
    cr_assert(device->staging.pins && device->staging.idle && device->staging.idle->pinned, "nothing is pinned");
    enum { BYTES = 1 << 25, TIMES = 12 };
    unsigned char *bytes = malloc(BYTES);
    clef__buffer *b[TIMES];
    for (int i = 0; i < TIMES; i++) {
        cr_assert(b[i] = clef__buffer_new(device, BYTES));
        memset(bytes, i + 1, BYTES);
        cr_assert_eq(clef__buffer_write(b[i], 0, bytes, BYTES), CLEF_OK);
    }
    for (int i = 0; i < TIMES; i++) {
        cr_assert_eq(clef__buffer_read(b[i], 0, bytes, BYTES), CLEF_OK);
        for (int at = 0; at < BYTES; at++) cr_assert(bytes[at] == i + 1, "write %d, byte %d: %d", i, at, bytes[at]);
        clef__buffer_release(b[i]);
    }
    free(bytes);
    teardown();
}

static bool all_are(const unsigned char *bytes, size_t n, int value) {
    for (size_t i = 0; i < n; i++)
        if (bytes[i] != (unsigned char)value) return false;
    return true;
}

/* What fills a new buffer goes beside the compute queue: not before the last that was queued for its memory, which others had, has run,
   and before all that is queued behind it. */
Test(stages, filled_beside_kernels) {
    enum { BYTES = 48 << 20, TIMES = 6 };
    setenv("CLEF_PINNED", "1", 1);
    setup();
    if (!clef__queues_meet(device)) cr_skip_test("queues of this device do not wait for each other, or clef-probe is missing");
    static const size_t sizes[] = {BYTES, 3 << 20, (1 << 16) + 1, 1 << 16};
    unsigned char *bytes = malloc(BYTES);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        clef__buffer *busy = clef__buffer_new(device, BYTES), *kept[TIMES];
        uint64_t memory = 0;
        for (int i = 0; i < TIMES; i++) {
            clef__buffer *b = clef__buffer_new(device, sizes[s]);
            cr_assert(b && busy && (kept[i] = clef__buffer_new(device, sizes[s])));
            if (i) cr_assert_eq(clef__buffer_id(b), memory, "the memory of the one before is used again");
            memory = clef__buffer_id(b);
            memset(bytes, i + 1, sizes[s]);
            cr_assert_eq(clef__buffer_fill(b, bytes, sizes[s]), CLEF_OK);
            memset(bytes, 0, sizes[s]);
            cr_assert(clEnqueueFillBuffer(clef__queue(device), busy->memory, &(unsigned char){3}, 1, 0, BYTES, 0, NULL, NULL) ==
                      CL_SUCCESS);
            cr_assert_eq(clef__buffer_copy(kept[i], 0, b, 0, sizes[s]), CLEF_OK);
            clef__buffer_release(b);
        }
        for (int i = 0; i < TIMES; i++) {
            cr_assert_eq(clef__buffer_read(kept[i], 0, bytes, sizes[s]), CLEF_OK);
            cr_assert(all_are(bytes, sizes[s], i + 1), "%zu bytes, %d", sizes[s], i);
            clef__buffer_release(kept[i]);
        }
        clef__buffer_release(busy);
    }
    cr_assert_not_null(device->beside);
    free(bytes);
    teardown();
}

/* Large writes into a buffer, wherever they begin. */
Test(stages, pinned_at_an_offset) {
    enum { BYTES = 1 << 25, AT = 12345 };
    setenv("CLEF_PINNED", "1", 1);
    setup();
    unsigned char *bytes = malloc(BYTES + 2 * AT);
    clef__buffer *b = clef__buffer_new(device, BYTES + 2 * AT);
    cr_assert(bytes && b);
    memset(bytes, 7, BYTES + 2 * AT);
    cr_assert_eq(clef__buffer_write(b, 0, bytes, BYTES + 2 * AT), CLEF_OK);
    for (int i = 0; i < BYTES; i++) bytes[i] = (unsigned char)(i * 5 + i / 253);
    cr_assert_eq(clef__buffer_write(b, AT, bytes, BYTES), CLEF_OK);
    cr_assert_eq(clef__buffer_read(b, 0, bytes, BYTES + 2 * AT), CLEF_OK);
    for (int i = 0; i < BYTES + 2 * AT; i++) {
        int at = i - AT, want = at < 0 || at >= BYTES ? 7 : (unsigned char)(at * 5 + at / 253);
        cr_assert(bytes[i] == want, "byte %d: %d, not %d", i, bytes[i], want);
    }
    clef__buffer_release(b);
    free(bytes);
    teardown();
}

Test(stages, are_plain_where_one_says_so) {
    static const struct {
        const char *word;
        bool pins;
    } way[] = {{"0", false}, {"1", true}};
    for (int i = 0; i < 2; i++) {
        setenv("CLEF_PINNED", way[i].word, 1);
        setup();
        expect_whole(1 << 20);
        cr_assert(device->staging.asked && device->staging.pins == way[i].pins);
        teardown();
    }
    setenv("CLEF_PINNED", "", 1); /* as if it were not set */
    setup();
    expect_whole(1 << 20);
    cr_assert_eq(device->staging.pins, !clef__has_memory_of_host(device));
    teardown();
}

/* What the host computes in itself needs no copy of the driver's. */
Test(stages, of_cpus_are_plain) {
    unsetenv("CLEF_PINNED");
    setup();
    expect_whole(1 << 20);
    if (clef__has_memory_of_host(device)) cr_assert(device->staging.asked && !device->staging.pins);
    teardown();
}

Test(memory, limits) {
    uint64_t limit = clef__device_info(device)->max_alloc_bytes;
    cr_assert_null(clef__buffer_new(device, (size_t)limit + 1));
    cr_assert_eq(clef_error_status(ctx), CLEF_MEMORY);
    cr_assert_not_null(strstr(clef_error(ctx), "smaller batch"));
    clef_clear_error(ctx);
    cr_assert_null(clef__buffer_new(device, SIZE_MAX));
    cr_assert_eq(clef_error_status(ctx), CLEF_MEMORY);
    clef_clear_error(ctx);
    cr_assert_null(clef__buffer_new(device, 0));
    cr_assert_eq(clef_error_status(ctx), CLEF_MEMORY);
    clef_clear_error(ctx);
    /* right at the limit the class would be larger than allowed: the request itself is made */
    clef__buffer *b = clef__buffer_new(device, (size_t)limit);
    if (b) cr_assert_eq(clef__buffer_size(b), (size_t)limit);
    else cr_assert_eq(clef_error_status(ctx), CLEF_MEMORY);
    clef__buffer_release(b);
}

/* What is cached is given back before an allocation fails. */
Test(memory, cache_is_bounded) {
    for (size_t n = 1 << 20; n < (40u << 20); n += 1 << 20) {
        clef__buffer *b = clef__buffer_new(device, n);
        cr_assert_not_null(b, "%s", clef_error(ctx));
        clef__buffer_release(b);
    }
    clef_memory_info m = clef_memory(ctx);
    cr_assert_leq(m.cached, (64u << 20) + 2 * m.peak);
}

Test(memory, forgotten_buffers_go_with_the_context) {
    for (int i = 0; i < 10; i++) cr_assert_not_null(clef__buffer_new(device, 1000 + (size_t)i));
}

Test(memory_debug, exact_sizes) {
    setenv("CLEF_DEBUG", "memory", 1);
    open_it(false);
    clef__buffer *a = clef__buffer_new(device, 1001);
    cr_assert_eq(clef__buffer_size(a), 1001u);
    clef__buffer_release(a);
    cr_assert_eq(clef_memory(ctx).cached, 0u);
    cr_assert_eq(clef_memory(ctx).peak, 1001u);
    clef_close(ctx);
}

/* ---- transfers ---- */
static unsigned char pattern(size_t i, unsigned seed) { return (unsigned char)((i * 2654435761u + seed * 40503u) >> 7); }

/* Host bytes may be overwritten as soon as a write returns, whatever its size. */
Test(transfer, host_bytes_are_staged) {
    static const size_t sizes[] = {1, 63, 64, 65, 1000, 65535, 65536, 65537, 262144, 262145, 1 << 20, 3 << 20, 33 << 20};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        size_t n = sizes[s];
        unsigned char *host = malloc(n);
        clef__buffer *b = clef__buffer_new(device, n + 7);
        for (int repeat = 0; repeat < 3; repeat++) {
            for (size_t i = 0; i < n; i++) host[i] = pattern(i, (unsigned)repeat);
            cr_assert_eq(clef__buffer_write(b, 7, host, n), CLEF_OK, "%s", clef_error(ctx));
            memset(host, 0xee, n);
            cr_assert_eq(clef__buffer_read(b, 7, host, n), CLEF_OK);
            for (size_t i = 0; i < n; i++) cr_assert_eq(host[i], pattern(i, (unsigned)repeat), "%zu bytes, byte %zu", n, i);
        }
        clef__buffer_release(b);
        free(host);
    }
}

/* Thousands of writes of mixed sizes without one wait: stages are reused only when the queue has passed them. */
Test(transfer, many_writes) {
    enum { N = 3000, SLOT = 4096 };
    unsigned char *host = malloc(SLOT), *back = malloc((size_t)N * SLOT);
    clef__buffer *b = clef__buffer_new(device, (size_t)N * SLOT);
    for (size_t k = 0; k < N; k++) {
        for (size_t i = 0; i < SLOT; i++) host[i] = pattern(i, (unsigned)k);
        cr_assert_eq(clef__buffer_write(b, k * SLOT, host, SLOT - k % 100), CLEF_OK);
    }
    cr_assert_eq(clef__buffer_read(b, 0, back, (size_t)N * SLOT), CLEF_OK);
    for (size_t k = 0; k < N; k++)
        for (size_t i = 0; i < SLOT - k % 100; i++)
            cr_assert_eq(back[k * SLOT + i], pattern(i, (unsigned)k), "write %zu byte %zu", k, i);
    clef__buffer_release(b);
    free(host);
    free(back);
}

Test(transfer, ranges_are_checked) {
    clef__buffer *b = clef__buffer_new(device, 128);
    char host[256] = {0};
    cr_assert_eq(clef__buffer_write(b, 100, host, 29), CLEF_INVALID);
    cr_assert_eq(clef__buffer_read(b, 129, host, 1), CLEF_INVALID);
    cr_assert_eq(clef__buffer_read(b, SIZE_MAX, host, 2), CLEF_INVALID);
    cr_assert_eq(clef__buffer_write(b, 128, host, 0), CLEF_OK);
    cr_assert_eq(clef__buffer_copy(b, 0, b, 100, 40), CLEF_INVALID);
    clef__buffer_release(b);
}

Test(transfer, copies) {
    float x[64], y[64] = {0};
    for (int i = 0; i < 64; i++) x[i] = (float)i;
    clef__buffer *a = clef__buffer_new(device, sizeof x), *b = clef__buffer_new(device, sizeof x);
    clef__buffer_write(a, 0, x, sizeof x);
    clef__buffer_write(b, 0, y, sizeof y);
    cr_assert_eq(clef__buffer_copy(b, 8 * sizeof(float), a, 4 * sizeof(float), 16 * sizeof(float)), CLEF_OK);
    clef__buffer_read(b, 0, y, sizeof y);
    for (int i = 0; i < 64; i++) cr_assert_eq(y[i], i >= 8 && i < 24 ? (float)(i - 4) : 0.f);
    clef__buffer_release(a);
    clef__buffer_release(b);
}

/* From device to device, larger than one hop. */
Test(devices, copies_between) {
    setenv("POCL_DEVICES", "pthread basic", 1);
    unsetenv("CLEF_DEVICE");
    if (clef_device_count() < 2) cr_skip_test("one device only");
    ctx = clef_open(&(clef_options){.device = "0,1", .cache_dir = ""});
    size_t n = (9u << 20) + 13;
    unsigned char *host = malloc(n);
    for (size_t i = 0; i < n; i++) host[i] = pattern(i, 1);
    clef__buffer *a = clef__buffer_new(clef__device_at(ctx, 0), n), *b = clef__buffer_new(clef__device_at(ctx, 1), n);
    cr_assert_eq(clef__buffer_device(b), clef__device_at(ctx, 1));
    clef__buffer_write(a, 0, host, n);
    cr_assert_eq(clef__buffer_copy(b, 0, a, 0, n), CLEF_OK);
    memset(host, 0, n);
    clef__buffer_read(b, 0, host, n);
    for (size_t i = 0; i < n; i++) cr_assert_eq(host[i], pattern(i, 1));
    clef__buffer_release(a);
    clef__buffer_release(b);
    free(host);
    clef_close(ctx);
}
