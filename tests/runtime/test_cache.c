/* The disk cache: entries, what is refused, who may own it, its size, and that broken entries never
   reach the driver. */
#include "runtime_support.h"
#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>

static const char *dir;
static clef_context *ctx; /* without a device: the cache alone */
static memory_log heard;

static clef_context *open_cache(void) {
    heard = (memory_log){0};
    return clef__context_new(&(clef_options){.cache_dir = dir, .log = remember, .log_user = &heard});
}

static void setup(void) {
    unsetenv("CLEF_CACHE");
    unsetenv("CLEF_CACHE_MAX_MB");
    dir = temporary_dir();
    cr_assert_not_null(dir);
    ctx = open_cache();
}

static void teardown(void) {
    clef_close(ctx);
    remove_dir(dir);
}

TestSuite(cache, .init = setup, .fini = teardown);

static const uint8_t some_key[32] = {1, 2, 3, 250, 251, 252};

static const char *path_of(const uint8_t key[32]) {
    static char path[512];
    int n = snprintf(path, sizeof path, "%s/", dir);
    for (int i = 0; i < 32; i++) n += snprintf(path + n, sizeof path - (size_t)n, "%02x", key[i]);
    snprintf(path + n, sizeof path - (size_t)n, ".bin");
    return path;
}

static void put_file(const char *path, const void *bytes, size_t n, mode_t mode) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    cr_assert_geq(fd, 0);
    cr_assert_eq(write(fd, bytes, n), (ssize_t)n);
    fchmod(fd, mode);
    close(fd);
}

static size_t get_file(const char *path, unsigned char *bytes, size_t room) {
    FILE *file = fopen(path, "rb");
    size_t n = file ? fread(bytes, 1, room, file) : 0;
    if (file) fclose(file);
    return n;
}

/* Does the cache hand out `want` for some_key? */
static bool loads(const char *want) {
    clef__entry entry;
    unsigned char *bytes = clef__cache_load(ctx, some_key, &entry);
    bool same = bytes && entry.size == strlen(want) && memcmp(entry.payload, want, entry.size) == 0;
    clef__free(bytes);
    return same;
}

Test(cache, round_trip) {
    cr_assert_not(loads("hello"));
    clef__cache_store(ctx, some_key, CLEF__ENTRY_BINARY, "hello", 5);
    cr_assert(loads("hello"));
    clef__cache_store(ctx, some_key, CLEF__ENTRY_BINARY, "again", 5);
    cr_assert(loads("again"));
    struct stat st;
    cr_assert_eq(stat(path_of(some_key), &st), 0);
    cr_assert_eq(st.st_mode & 0777, 0600u);
    cr_assert_eq(heard.count[CLEF_LOG_WARNING], 0);
    clef__cache_evict(ctx, some_key);
    cr_assert_not(loads("again"));
}

/* Every bit of an entry flipped, every length cut, bytes added: refused, and the entry is gone. */
Test(cache, damaged_entries) {
    static unsigned char good[600], bad[700];
    char text[400];
    memset(text, 'q', sizeof text);
    clef__cache_store(ctx, some_key, CLEF__ENTRY_BINARY, text, sizeof text);
    char path[512];
    snprintf(path, sizeof path, "%s", path_of(some_key));
    size_t n = get_file(path, good, sizeof good);
    clef__entry entry;
    cr_assert_eq(n, sizeof text + CLEF__ENTRY_HEADER);
    cr_assert(clef__entry_check(good, n, some_key, &entry));
    for (size_t bit = 0; bit < 8 * n; bit++) {
        memcpy(bad, good, n);
        bad[bit / 8] ^= (unsigned char)(1u << bit % 8);
        cr_assert_not(clef__entry_check(bad, n, some_key, &entry), "bit %zu", bit);
        cr_assert_not(clef__entry_check(bad, n, NULL, &entry), "bit %zu, any key", bit);
    }
    for (size_t at = 0; at < n; at++) { /* the same through files, a byte each */
        memcpy(bad, good, n);
        bad[at] ^= 0x40;
        put_file(path, bad, n, 0600);
        cr_assert_null(clef__cache_load(ctx, some_key, &entry), "byte %zu", at);
        cr_assert_neq(access(path, F_OK), 0);
    }
    for (size_t cut = 0; cut < n; cut++) {
        cr_assert_not(clef__entry_check(good, cut, some_key, &entry), "%zu bytes", cut);
        put_file(path, good, cut, 0600);
        cr_assert_null(clef__cache_load(ctx, some_key, &entry), "%zu bytes", cut);
        cr_assert_neq(access(path, F_OK), 0);
    }
    memcpy(bad, good, n);
    for (size_t more = 1; more < 100; more++) cr_assert_not(clef__entry_check(bad, n + more, some_key, &entry));
    cr_assert_gt(heard.count[CLEF_LOG_WARNING], 0);
}

/* An entry copied under another's name is whole, and still refused. */
Test(cache, entry_of_another_key) {
    unsigned char bytes[600];
    uint8_t other[32] = {9};
    clef__entry entry;
    clef__cache_store(ctx, some_key, CLEF__ENTRY_BINARY, "hello", 5);
    size_t n = get_file(path_of(some_key), bytes, sizeof bytes);
    put_file(path_of(other), bytes, n, 0600);
    cr_assert_null(clef__cache_load(ctx, other, &entry));
    cr_assert(loads("hello"));
}

Test(cache, links_and_other_things) {
    char path[512], real[600];
    snprintf(path, sizeof path, "%s", path_of(some_key));
    snprintf(real, sizeof real, "%s/elsewhere", dir);
    clef__cache_store(ctx, some_key, CLEF__ENTRY_BINARY, "hello", 5);
    rename(path, real);
    cr_assert_eq(symlink(real, path), 0);
    cr_assert_not(loads("hello"));
    cr_assert_eq(access(real, F_OK), 0); /* the link went, not what it points to */
    struct stat st;
    cr_assert_neq(lstat(path, &st), 0);
    cr_assert_eq(mkfifo(path, 0600), 0); /* must not hold us up */
    cr_assert_not(loads("hello"));
    mkdir(path, 0700);
    cr_assert_not(loads("hello"));
    rmdir(path);
    rename(real, path);
    cr_assert(loads("hello"));
}

Test(cache, modes) {
    char path[512];
    unsigned char bytes[600];
    snprintf(path, sizeof path, "%s", path_of(some_key));
    clef__cache_store(ctx, some_key, CLEF__ENTRY_BINARY, "hello", 5);
    size_t n = get_file(path, bytes, sizeof bytes);
    static const mode_t wrong[] = {0620, 0602, 0666, 0777};
    for (int i = 0; i < 4; i++) {
        put_file(path, bytes, n, wrong[i]);
        cr_assert_not(loads("hello"), "mode %o", wrong[i]);
    }
    put_file(path, bytes, n, 0644); /* others may read it */
    cr_assert(loads("hello"));
}

Test(cache, owner) {
    if (geteuid() != 0) cr_skip_test("only root can make a file of somebody else");
    clef__cache_store(ctx, some_key, CLEF__ENTRY_BINARY, "hello", 5);
    cr_assert_eq(chown(path_of(some_key), 1234, 1234), 0);
    cr_assert_not(loads("hello"));
    clef_close(ctx);
    cr_assert_eq(chown(dir, 1234, 1234), 0);
    ctx = open_cache();
    cr_assert_eq(ctx->cache.dir, -1);
    cr_assert_not_null(strstr(heard.all, "must belong to this user"), "%s", heard.all);
    cr_assert_eq(chown(dir, 0, 0), 0);
}

Test(cache, directory_of_others) {
    clef_close(ctx);
    chmod(dir, 0777);
    ctx = open_cache();
    cr_assert_eq(ctx->cache.dir, -1);
    cr_assert_eq(clef_error_status(ctx), CLEF_OK);
    clef__cache_store(ctx, some_key, CLEF__ENTRY_BINARY, "hello", 5); /* nothing happens */
    cr_assert_not(loads("hello"));
    clef_cache_info info;
    cr_assert_eq(clef_cache_inspect(dir, false, &info), CLEF_IO);
    cr_assert_eq(clef_cache_clear(dir, NULL), CLEF_IO);
    clef_close(ctx);
    chmod(dir, 0700);
    char link[300];
    snprintf(link, sizeof link, "%s-link", dir);
    cr_assert_eq(symlink(dir, link), 0);
    const char *real = dir;
    dir = link;
    ctx = open_cache();
    cr_assert_eq(ctx->cache.dir, -1);
    unlink(link);
    dir = real;
}

Test(cache, unusable_directories_are_no_error) {
    static const char *const wrong[] = {"", "/proc/nonexistent/cache", "/dev/null", "/dev/null/cache"};
    for (int i = 0; i < 4; i++) {
        clef_context *c = clef__context_new(&(clef_options){.cache_dir = wrong[i]});
        cr_assert_not_null(c);
        cr_assert_eq(c->cache.dir, -1, "%s", wrong[i]);
        cr_assert_eq(clef_error_status(c), CLEF_OK);
        clef_close(c);
    }
}

/* $CLEF_CACHE_DIR, then $XDG_CACHE_HOME/clef, then ~/.cache/clef, made with mode 0700. */
Test(cache, where_it_is) {
    char want[400];
    struct stat st;
    clef_cache_info info;
    setenv("HOME", dir, 1);
    unsetenv("XDG_CACHE_HOME");
    unsetenv("CLEF_CACHE_DIR");
    clef_cache_inspect(NULL, false, &info);
    snprintf(want, sizeof want, "%s/.cache/clef", dir);
    cr_assert_str_eq(info.dir, want);
    clef_close(clef__context_new(&(clef_options){.cache_dir = NULL}));
    cr_assert_eq(stat(want, &st), 0);
    cr_assert_eq(st.st_mode & 0777, 0700u);
    snprintf(want, sizeof want, "%s/xdg", dir);
    setenv("XDG_CACHE_HOME", want, 1);
    clef_cache_inspect(NULL, false, &info);
    strcat(want, "/clef");
    cr_assert_str_eq(info.dir, want);
    setenv("XDG_CACHE_HOME", "relative", 1); /* its specification says: ignore it */
    clef_cache_inspect(NULL, false, &info);
    snprintf(want, sizeof want, "%s/.cache/clef", dir);
    cr_assert_str_eq(info.dir, want);
    snprintf(want, sizeof want, "%s/named", dir);
    setenv("CLEF_CACHE_DIR", want, 1);
    clef_cache_inspect(NULL, false, &info);
    cr_assert_str_eq(info.dir, want);
    setenv("CLEF_CACHE", "0", 1);
    clef_context *c = clef__context_new(&(clef_options){.cache_dir = NULL});
    cr_assert_eq(c->cache.dir, -1);
    clef_close(c);
}

Test(cache, inspect_and_clear) {
    clef_cache_info info;
    uint64_t removed;
    for (uint8_t i = 0; i < 10; i++) {
        uint8_t key[32] = {i};
        clef__cache_store(ctx, key, i < 3 ? CLEF__ENTRY_FAILURE : CLEF__ENTRY_BINARY, "hello", 5);
    }
    put_file(path_of((uint8_t[32]){4}), "damaged", 7, 0600);
    char other[400];
    snprintf(other, sizeof other, "%s/notes.txt", dir);
    put_file(other, "x", 1, 0600);
    cr_assert_eq(clef_cache_inspect(dir, true, &info), CLEF_OK);
    cr_assert_eq(info.entries, 10u);
    cr_assert_eq(info.bytes, 9 * (5u + CLEF__ENTRY_HEADER) + 7);
    cr_assert_eq(info.damaged, 1u);
    cr_assert_eq(info.negative, 3u);
    cr_assert_eq(clef_cache_clear(dir, &removed), CLEF_OK);
    cr_assert_eq(removed, 10u);
    cr_assert_eq(access(other, F_OK), 0); /* what is not ours stays */
    cr_assert_eq(clef_cache_inspect(dir, true, &info), CLEF_OK);
    cr_assert_eq(info.entries, 0u);
    cr_assert_eq(clef_cache_inspect("/proc/none/cache", true, &info), CLEF_OK);
    cr_assert_eq(clef_cache_inspect(dir, true, NULL), CLEF_INVALID);
}

/* What a killed writer left goes when the cache is opened next; what a living one holds stays. */
Test(cache, leftovers) {
    char left[400], held[400];
    clef_close(ctx);
    snprintf(left, sizeof left, "%s/.new-1-1-1", dir);
    snprintf(held, sizeof held, "%s/.new-1-1-2", dir);
    put_file(left, "x", 1, 0600);
    put_file(held, "x", 1, 0600);
    int fd = open(held, O_RDWR);
    cr_assert_eq(flock(fd, LOCK_EX), 0);
    ctx = open_cache();
    cr_expect_neq(access(left, F_OK), 0);
    cr_expect_eq(access(held, F_OK), 0);
    close(fd);
}

/* Over the limit the longest unused go first. */
Test(cache, size_limit) {
    static char payload[200 << 10];
    clef_close(ctx);
    setenv("CLEF_CACHE_MAX_MB", "2", 1);
    ctx = open_cache();
    clef__entry entry;
    for (uint8_t i = 0; i < 30; i++) {
        uint8_t key[32] = {i}, first[32] = {0};
        clef__cache_store(ctx, key, CLEF__ENTRY_BINARY, payload, sizeof payload);
        struct timespec made[2] = {{2000000 + i, 0}, {2000000 + i, 0}};
        utimensat(AT_FDCWD, path_of(key), made, 0);
        clef__free(clef__cache_load(ctx, first, &entry)); /* in use all the time */
    }
    clef_cache_info info;
    clef_cache_inspect(dir, true, &info);
    cr_assert_leq(info.bytes, 2u << 20);
    cr_assert_geq(info.entries, 5u);
    cr_assert_eq(info.damaged, 0u);
    cr_assert_eq(access(path_of((uint8_t[32]){0}), F_OK), 0);
    cr_assert_neq(access(path_of((uint8_t[32]){1}), F_OK), 0);
    cr_assert_eq(access(path_of((uint8_t[32]){29}), F_OK), 0);
    static char huge[(1 << 20) + 1];
    clef__cache_store(ctx, some_key, CLEF__ENTRY_BINARY, huge, sizeof huge); /* more than half of the limit */
    cr_assert_neq(access(path_of(some_key), F_OK), 0);
}

/* ---- with a device ---- */
static clef_context *open_device(const char *mode) {
    heard = (memory_log){0};
    setenv("CLEF_CACHE", mode, 1);
    clef_context *c = clef_open(&(clef_options){.cache_dir = dir, .log = remember, .log_user = &heard});
    if (!c) cr_skip_test("%s", clef_error(NULL));
    return c;
}

static uint64_t entries(void) {
    clef_cache_info info;
    clef_cache_inspect(dir, true, &info);
    cr_assert_eq(info.damaged, 0u);
    return info.entries;
}

Test(cache, programs) {
    static const char *const modes[] = {"force", "1"}; /* always; unless the driver keeps what it compiled itself */
    for (int i = 0; i < 2; i++) {
        clef_cache_clear(dir, NULL);
        clef_context *c = open_device(modes[i]);
        unsigned saved = i == 0 || !clef__driver_of(&clef__device_at(c, 0)->info).caches;
        cr_assert(add_works(clef__device_at(c, 0), add_source));
        cr_assert_eq(clef_counters_get(c).kernels_built, 1u);
        cr_assert_eq(entries(), saved);
        clef_close(c);
        cr_assert_eq(entries(), saved);
        c = open_device("1");
        cr_assert(add_works(clef__device_at(c, 0), add_source));
        cr_assert_eq(clef_counters_get(c).kernels_built, 1 - saved);
        cr_assert_eq(clef_counters_get(c).kernels_from_cache, saved);
        clef_close(c);
        cr_assert_eq(entries(), saved);
        c = open_device("0");
        cr_assert(add_works(clef__device_at(c, 0), add_source));
        cr_assert_eq(clef_counters_get(c).kernels_built, 1u);
        clef_close(c);
    }
}

Test(cache, failed_builds_are_remembered) {
    static const char broken[] = "__kernel void f(__global int *x) { x[0] = nonesuch; }";
    clef_cache_info info;
    for (int i = 0; i < 2; i++) {
        clef_context *c = open_device("1");
        cr_assert_null(clef__kernel_new(clef__device_at(c, 0), broken, "", "f"));
        cr_assert_eq(clef_error_status(c), CLEF_BUILD);
        cr_assert_not_null(strstr(clef_build_log(c), "nonesuch"));
        clef_close(c);
        clef_cache_inspect(dir, true, &info);
        cr_assert_eq(info.negative, 1u);
    }
}

static char entry_path[600];
static const char *only_entry(void) {
    DIR *list = opendir(dir);
    for (struct dirent *d; (d = readdir(list));)
        if (strstr(d->d_name, ".bin")) snprintf(entry_path, sizeof entry_path, "%s/%s", dir, d->d_name);
    closedir(list);
    return entry_path;
}

/* A real program's entry, damaged in many places: rebuilt each time, the same result, a whole entry again. */
Test(cache, damaged_programs) {
    static unsigned char good[1 << 20], bad[1 << 20];
    clef_context *c = open_device("force");
    cr_assert(add_works(clef__device_at(c, 0), add_source));
    clef_close(c);
    size_t n = get_file(only_entry(), good, sizeof good);
    cr_assert_gt(n, (size_t)CLEF__ENTRY_HEADER);
    for (int i = 0; i < 24; i++) {
        size_t at = i < 6 ? (size_t)(i * 16) : (n - 1) * (size_t)(i - 6) / 17, length = n;
        memcpy(bad, good, n);
        if (i % 4 == 3) length = at;
        else bad[at] ^= (unsigned char)(1 << i % 8);
        put_file(entry_path, bad, length, 0600);
        c = open_device("force");
        cr_assert(add_works(clef__device_at(c, 0), add_source), "%s", clef_error(c));
        cr_assert_eq(clef_counters_get(c).kernels_from_cache, 0u, "damage %d", i);
        cr_assert_eq(clef_counters_get(c).kernels_built, 1u);
        cr_assert_not_null(strstr(heard.all, "damaged"));
        clef_close(c);
        cr_assert_eq(entries(), 1u);
    }
}

static void load_rubbish(void) {
    static const unsigned char rubbish[16] = {0};
    const unsigned char *at = rubbish;
    const size_t size = sizeof rubbish;
    const clef__found *list;
    if (clef__devices(&list) == 0) return;
    cl_context context = clCreateContext(NULL, 1, &list[0].id, NULL, NULL, NULL);
    clCreateProgramWithBinary(context, 1, &list[0].id, &size, &at, NULL, NULL);
}

/* A whole entry whose payload the driver cannot use (as after a driver's silent change): rebuilt
   once, and replaced. */
Test(cache, refused_by_the_driver) {
    unsigned char bytes[CLEF__ENTRY_HEADER + 16];
    uint8_t key[32];
    if (!survives(load_rubbish)) cr_skip_test("the driver crashes on a binary it does not know");
    clef_context *c = open_device("force");
    char all[sizeof c->device[0]->options + 1];
    snprintf(all, sizeof all, "%s ", c->device[0]->options);
    clef__cache_key(&c->device[0]->info, add_source, all, key);
    memset(bytes + CLEF__ENTRY_HEADER, 0, 16);
    clef__entry_header(bytes, CLEF__ENTRY_BINARY, key, bytes + CLEF__ENTRY_HEADER, 16);
    put_file(path_of(key), bytes, sizeof bytes, 0600);
    cr_assert(add_works(clef__device_at(c, 0), add_source), "%s", clef_error(c));
    cr_assert_eq(clef_counters_get(c).kernels_built, 1u);
    cr_assert_not_null(strstr(heard.all, "refused"), "%s", heard.all);
    cr_assert_eq(clef_error_status(c), CLEF_OK);
    clef_close(c);
    c = open_device("force");
    cr_assert(add_works(clef__device_at(c, 0), add_source));
    cr_assert_eq(clef_counters_get(c).kernels_from_cache, 1u);
    clef_close(c);
}
