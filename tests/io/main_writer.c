/* Whole-file replacement without a device: what is left after failures, kills and races. */
#include "io/io_internal.h"
#include "support/io_files.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

enum { TENSORS = 24, ELEMENTS = 4096, KILLS = 250, WRITERS = 4 };

/* ---- files of one generation: every element and one metadata entry say which ---- */
static clef_status generation_source(void *user, int i, void *out, size_t bytes, clef__report *report) {
    (void)report;
    for (size_t e = 0; e < bytes / 4; e++) ((int32_t *)out)[e] = *(const int *)user * TENSORS + i;
    return CLEF_OK;
}

static clef_status write_generation(const char *path, int generation, clef__report *report) {
    char names[TENSORS][32];
    clef__st_item items[TENSORS];
    for (int i = 0; i < TENSORS; i++) {
        snprintf(names[i], sizeof names[i], "layer%d", i);
        items[i] = (clef__st_item){names[i], CLEF_SHAPE(ELEMENTS / 64, 64), CLEF_I32};
    }
    clef__number text = clef__decimal(generation);
    const char *metadata[] = {"generation", text.text, NULL};
    return clef__st_write(path, items, TENSORS, metadata, generation_source, &generation, report);
}

/* The generation of a whole and consistent file; -1 and a failure otherwise. */
static int read_generation(const char *path) {
    clef__report report = {0};
    clef__reader reader;
    clef__st_index index = {0};
    int64_t generation = -1;
    static int32_t values[ELEMENTS];
    bool good = clef__reader_open(&reader, path, &report) == CLEF_OK && clef__st_parse(&reader, &index, &report) == CLEF_OK &&
                index.n == TENSORS && clef__parse_decimal(clef__st_metadata(&index, "generation"), &generation);
    for (int i = 0; good && i < TENSORS; i++) {
        good = clef__st_read(&reader, &index, &index.tensor[i], values, &report) == CLEF_OK;
        for (int e = 0; good && e < ELEMENTS; e++) good = values[e] == generation * TENSORS + i;
    }
    if (!good) fprintf(stderr, "%s: generation %lld: %s\n", path, (long long)generation, report.text);
    EXPECT(good);
    clef__st_free(&index);
    clef__reader_close(&reader);
    return good ? (int)generation : -1;
}

/* ---- kills ---- */
static void pause_for(double time) {
    struct timespec t = {(time_t)time, (long)(1e9 * (time - (double)(time_t)time))};
    nanosleep(&t, NULL);
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A child replaces one file again and again and is killed at a random moment. */
static void killed_writers(const char *dir) {
    const char *path = io_path(dir, "killed.safetensors");
    clef__report report = {0};
    int last = 0, moved = 0;
    double start = seconds();
    for (; last < 5; last++) EXPECT(write_generation(path, last + 1, &report) == CLEF_OK);
    double longest = 3 * (seconds() - start) / last; /* about three files */
    if (longest > 0.2) longest = 0.2;
    unsigned random = 12345;
    for (int k = 0; k < KILLS && io_failures == 0; k++) {
        pid_t child = fork();
        if (child == 0)
            for (int generation = last + 1;; generation++) {
                clef__report mine = {0};
                if (write_generation(path, generation, &mine) != CLEF_OK) _exit(1);
            }
        random = random * 1103515245u + 12345u;
        pause_for(longest * (double)(random >> 8) / 0x1p24);
        kill(child, SIGKILL);
        int status;
        waitpid(child, &status, 0);
        EXPECT(WIFSIGNALED(status));
        int now = read_generation(path);
        EXPECT(now >= last);
        moved += now > last;
        last = now;
    }
    printf("writer: %d kills, %d of them after new files, %d files in all\n", KILLS, moved, last);
    EXPECT(moved > 0);
    EXPECT(write_generation(path, last + 1, &report) == CLEF_OK); /* sweeps up what the killed left */
    EXPECT(io_count(dir) == 1);
    unlink(path);
}

/* ---- several at once ---- */
static void racing_writers(const char *dir) {
    const char *path = io_path(dir, "race.safetensors");
    pid_t children[WRITERS];
    clef__report report = {0};
    EXPECT(write_generation(path, 0, &report) == CLEF_OK);
    for (int w = 0; w < WRITERS; w++) {
        children[w] = fork();
        if (children[w] != 0) continue;
        for (int i = 0; i < 40; i++) {
            clef__report mine = {0};
            if (write_generation(path, 1000 * w + i, &mine) != CLEF_OK) fprintf(stderr, "%s\n", mine.text), _exit(1);
        }
        _exit(0);
    }
    for (int i = 0; i < 40; i++) EXPECT(read_generation(path) >= 0);
    for (int w = 0; w < WRITERS; w++) {
        int status;
        waitpid(children[w], &status, 0);
        EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    EXPECT(read_generation(path) % 1000 == 39 && io_count(dir) == 1);
    unlink(path);
}

/* ---- failures ---- */
/* A full disk, played by a limit on file sizes: the n-th byte cannot be written. */
static void full_disk(const char *dir) {
    const char *path = io_path(dir, "full.safetensors");
    clef__report report = {0};
    EXPECT(write_generation(path, 7, &report) == CLEF_OK);
    static const rlim_t limits[] = {0, 1, 8, 1000, 20000, 100000, 393215};
    struct rlimit old, limit;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        report = (clef__report){0};
        limit = (struct rlimit){limits[i], old.rlim_max};
        setrlimit(RLIMIT_FSIZE, &limit);
        clef_status status = write_generation(path, 8, &report);
        setrlimit(RLIMIT_FSIZE, &old);
        EXPECT(status == CLEF_IO && strstr(report.text, "the old file is as it was") && strstr(report.text, "cannot be written"));
        EXPECT(io_count(dir) == 1 && read_generation(path) == 7);
    }
    unlink(path);
    limit = (struct rlimit){100, old.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
    report = (clef__report){0};
    EXPECT(write_generation(path, 8, &report) == CLEF_IO && strstr(report.text, "nothing was left behind"));
    setrlimit(RLIMIT_FSIZE, &old);
    EXPECT(io_count(dir) == 0);
}

static void expect_refused(const char *path, clef_status status, const char *said) {
    clef__report report = {0};
    EXPECT(write_generation(path, 1, &report) == status);
    if (!strstr(report.text, said)) EXPECT(!"the right words"), fprintf(stderr, "  %s\n", report.text);
}

/* Root may write anywhere, so a child becomes somebody else. */
static void locked_directory(const char *dir) {
    const char *path = io_path(dir, "locked");
    clef__report report = {0};
    EXPECT(write_generation(path, 3, &report) == CLEF_OK);
    chmod(dir, 0555);
    chmod(path, 0666);
    pid_t child = fork();
    if (child == 0) {
        if (geteuid() == 0 && setuid(65534) != 0) _exit(77);
        io_failures = 0;
        expect_refused(path, CLEF_IO, "Permission denied");
        EXPECT(read_generation(path) == 3);
        _exit(io_failures != 0);
    }
    int status;
    waitpid(child, &status, 0);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) % 77 == 0);
    chmod(dir, 0700);
    unlink(path);
}

static void refusals(const char *dir) {
    expect_refused(NULL, CLEF_INVALID, "no path");
    expect_refused("", CLEF_INVALID, "no path");
    expect_refused(io_path(dir, ""), CLEF_INVALID, "is a directory");
    expect_refused(dir, CLEF_IO, "not a regular file");
    expect_refused("/dev/null", CLEF_IO, "not a regular file");
    expect_refused(io_path(dir, "none/x"), CLEF_IO, "No such file");
    locked_directory(dir);
    EXPECT(io_count(dir) == 0);
    clef__reader reader;
    clef__report report = {0};
    EXPECT(clef__reader_open(&reader, dir, &report) == CLEF_IO && strstr(report.text, "is a directory"));
    report = (clef__report){0};
    EXPECT(clef__reader_open(&reader, "/dev/null", &report) == CLEF_IO && strstr(report.text, "a device or pipe"));
    report = (clef__report){0};
    mkfifo(io_path(dir, "pipe"), 0600);
    EXPECT(clef__reader_open(&reader, io_path(dir, "pipe"), &report) == CLEF_IO); /* and does not wait */
    unlink(io_path(dir, "pipe"));
    report = (clef__report){0};
    EXPECT(clef__reader_open(&reader, io_path(dir, "none"), &report) == CLEF_IO && strstr(report.text, "No such file"));
}

static clef_status failing_source(void *user, int i, void *out, size_t bytes, clef__report *report) {
    (void)user;
    (void)report;
    memset(out, 0, bytes);
    return i == 3 ? CLEF_LOST : CLEF_OK;
}

static void refuse_items(const char *path, const clef__st_item *items, int n, const char *const *metadata, clef_status status,
                         const char *said) {
    clef__report report = {0};
    EXPECT(clef__st_write(path, items, n, metadata, failing_source, NULL, &report) == status);
    if (!strstr(report.text, said)) EXPECT(!"the right words"), fprintf(stderr, "  %s\n", report.text);
}

static void bad_items(const char *dir) {
    const char *path = io_path(dir, "bad.safetensors");
    clef__report report = {0};
    EXPECT(write_generation(path, 5, &report) == CLEF_OK);
    clef__st_item a[4] = {{"a", CLEF_SHAPE(2), CLEF_F32},
                          {"b", CLEF_SHAPE(2), CLEF_F32},
                          {"a", CLEF_SHAPE(1), CLEF_U8},
                          {"d", CLEF_SHAPE(2), CLEF_F32}};
    refuse_items(path, a, 4, NULL, CLEF_INVALID, "\"a\" is given twice");
    a[2].name = "\xff";
    refuse_items(path, a, 4, NULL, CLEF_INVALID, "is not UTF-8");
    a[2].name = "__metadata__";
    refuse_items(path, a, 4, NULL, CLEF_INVALID, "__metadata__");
    a[2].name = NULL;
    refuse_items(path, a, 4, NULL, CLEF_INVALID, "has no name");
    a[2].name = "c";
    refuse_items(path, a, 4, NULL, CLEF_LOST, "tensor \"d\" could not be read");
    const char *twice[] = {"k", "1", "k", "2", NULL}, *open[] = {"k", NULL, NULL}, *bytes[] = {"k", "\x80", NULL};
    refuse_items(path, a, 2, twice, CLEF_INVALID, "\"k\" is given twice");
    refuse_items(path, a, 2, open, CLEF_INVALID, "has no value");
    refuse_items(path, a, 2, bytes, CLEF_INVALID, "not UTF-8");
    a[1].shape = CLEF_SHAPE(INT64_C(1) << 40, INT64_C(1) << 40);
    refuse_items(path, a, 2, NULL, CLEF_SHAPE, "too large");
    EXPECT(read_generation(path) == 5 && io_count(dir) == 1);
    unlink(path);
}

/* ---- what a replacement keeps ---- */
static void modes_and_links(const char *dir) {
    const char *path = io_path(dir, "real.safetensors"), *link = io_path(dir, "link.safetensors");
    clef__report report = {0};
    struct stat st;
    umask(022);
    EXPECT(write_generation(path, 1, &report) == CLEF_OK && stat(path, &st) == 0 && (st.st_mode & 0777) == 0644);
    chmod(path, 0600);
    EXPECT(write_generation(path, 2, &report) == CLEF_OK && stat(path, &st) == 0 && (st.st_mode & 0777) == 0600);
    EXPECT(symlink("real.safetensors", link) == 0);
    EXPECT(write_generation(link, 3, &report) == CLEF_OK && lstat(link, &st) == 0 && S_ISLNK(st.st_mode));
    EXPECT(read_generation(path) == 3 && io_count(dir) == 2);
    /* Only what a dead writer of this very target left is swept up. */
    static const char *const kept[] = {"real.safetensors.tmp", "real.safetensors.1-.tmp", "real.safetensors.1-2.tmp2",
                                       "real.safetensor.1-2.tmp", "real.safetensors.a-2.tmp"};
    for (int i = 0; i < 5; i++) io_spit(io_path(dir, kept[i]), "x", 1);
    io_spit(io_path(dir, "real.safetensors.123-4.tmp"), "x", 1);
    EXPECT(write_generation(path, 4, &report) == CLEF_OK && io_count(dir) == 7);
    EXPECT(access(io_path(dir, "real.safetensors.123-4.tmp"), F_OK) != 0);
    for (int i = 0; i < 5; i++) unlink(io_path(dir, kept[i]));
    unlink(link);
    unlink(path);
    /* A writer that is alive keeps its temporary. */
    clef__writer slow;
    EXPECT(clef__writer_open(&slow, path, &report) == CLEF_OK && clef__writer_put(&slow, "old", 3) == CLEF_OK);
    EXPECT(write_generation(path, 5, &report) == CLEF_OK && io_count(dir) == 2);
    EXPECT(clef__writer_commit(&slow) == CLEF_OK && io_count(dir) == 1);
    io_bytes bytes = io_slurp(path);
    EXPECT(bytes.size == 3 && memcmp(bytes.data, "old", 3) == 0);
    free(bytes.data);
    unlink(path);
}

/* The bytes themselves, against the format's text. */
static clef_status counting_source(void *user, int i, void *out, size_t bytes, clef__report *report) {
    (void)user;
    (void)report;
    memset(out, i + 1, bytes);
    return CLEF_OK;
}

static void layout(const char *dir) {
    const char *path = io_path(dir, "layout.safetensors");
    const clef__st_item items[] = {{"u\"8", CLEF_SHAPE(3), CLEF_U8},
                                   {"f", CLEF_SHAPE(1, 2), CLEF_F32},
                                   {"h", CLEF_SCALAR, CLEF_BF16},
                                   {"e", CLEF_SHAPE(0, 7), CLEF_I64},
                                   {"d", CLEF_SHAPE(1), CLEF_F64}};
    const char *metadata[] = {"a\\", "line\nbreak\x01 \xc3\xa9", "", "", NULL};
    static const char expected[] = "{\"__metadata__\":{\"a\\\\\":\"line\\u000abreak\\u0001 \xc3\xa9\",\"\":\"\"},"
                                   "\"e\":{\"dtype\":\"I64\",\"shape\":[0,7],\"data_offsets\":[0,0]},"
                                   "\"d\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,8]},"
                                   "\"f\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[8,16]},"
                                   "\"h\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[16,18]},"
                                   "\"u\\\"8\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[18,21]}}";
    static const uint8_t data[] = {5, 5, 5, 5, 5, 5, 5, 5, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 1, 1, 1};
    clef__report report = {0};
    EXPECT(clef__st_write(path, items, 5, metadata, counting_source, NULL, &report) == CLEF_OK);
    io_bytes file = io_slurp(path);
    size_t header = file.size - 8 - sizeof data, text = sizeof expected - 1;
    EXPECT(header % 8 == 0 && header >= text && header < text + 8);
    EXPECT(file.data[0] == (header & 0xFF) && file.data[1] == header >> 8 && file.data[2] == 0 && file.data[7] == 0);
    EXPECT(memcmp(file.data + 8, expected, text) == 0);
    for (size_t i = 8 + text; i < 8 + header; i++) EXPECT(file.data[i] == ' ');
    EXPECT(memcmp(file.data + 8 + header, data, sizeof data) == 0);
    free(file.data);
    /* And without anything. */
    EXPECT(clef__st_write(path, NULL, 0, NULL, counting_source, NULL, &report) == CLEF_OK);
    file = io_slurp(path);
    EXPECT(file.size == 16 && memcmp(file.data, "\x08\0\0\0\0\0\0\0{}      ", 16) == 0);
    free(file.data);
    unlink(path);
}

/* ---- memory: the n-th allocation fails, then all after it, for every n until nothing fails ---- */
static struct {
    int left;
    bool for_ever, failed;
} shortage;

static bool short_of_memory(void) {
    bool fail = shortage.left == 0 || (shortage.left < 0 && shortage.for_ever);
    shortage.left -= shortage.left >= 0;
    shortage.failed |= fail;
    return fail;
}
static void *scarce(void *user, size_t bytes) { return (void)user, short_of_memory() ? NULL : malloc(bytes); }
static void *scarce_again(void *user, void *old, size_t bytes) {
    return (void)user, short_of_memory() ? NULL : realloc(old, bytes);
}
static void release(void *user, void *old) { (void)user, free(old); }

static void read_everything(const char *path, clef__report *report) {
    clef__reader reader;
    clef__st_index index;
    if (clef__reader_open(&reader, path, report) == CLEF_OK && clef__st_parse(&reader, &index, report) == CLEF_OK) {
        EXPECT(index.n == TENSORS && index.pairs == 1);
        clef__st_free(&index);
    }
    clef__reader_close(&reader);
}

static void out_of_memory(const char *dir) {
    const char *path = io_path(dir, "memory.safetensors");
    clef__report report = {0};
    EXPECT(write_generation(path, 1, &report) == CLEF_OK);
    clef_set_allocator(&(clef_allocator){scarce, scarce_again, release, NULL});
    int runs = 0;
    for (int mode = 0; mode < 4; mode++) {
        bool writing = mode & 1;
        for (int n = 0;; n++, runs++) {
            shortage.left = n, shortage.for_ever = mode & 2, shortage.failed = false;
            report = (clef__report){0};
            if (writing) write_generation(path, 1, &report);
            else read_everything(path, &report);
            bool failed = shortage.failed;
            shortage.left = INT32_MAX;
            EXPECT(report.status == CLEF_OK || (failed && (report.status == CLEF_MEMORY || report.status == CLEF_IO)));
            EXPECT(io_count(dir) == 1);
            if (!failed) break;
        }
    }
    clef_set_allocator(NULL);
    EXPECT(read_generation(path) == 1);
    EXPECT(runs > 20);
    unlink(path);
}

int main(void) {
    char dir[512];
    snprintf(dir, sizeof dir, "%s", io_scratch());
    refusals(dir);
    bad_items(dir);
    layout(dir);
    modes_and_links(dir);
    out_of_memory(dir);
    full_disk(dir);
    racing_writers(dir);
    killed_writers(dir);
    io_remove(dir);
    printf("writer: %d failures\n", io_failures);
    return io_failures != 0;
}
