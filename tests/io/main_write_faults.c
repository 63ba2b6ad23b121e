/* Whatever Clef writes, each step of it may fail (a full disk, a bad one), and writes may be short: then there is one line,
   the old file or the new one, and no temporary.  Every step with CLEF_TEST_ALL=1, else some of the many of a training run.
   ctest: cost=20 cached plain */
#include "support/file_faults.c"
#include "support/io_files.h"
#include "support/plain.h"
#include "io/io_internal.h"

static char dir[600];
static clef_context *ctx;
static clef_module *net;
static clef_optimizer *optimizer;
static clef_loader *loader;
static int lines; /* in the log, of warnings and errors */
static char last[1024];

static void listen(void *user, clef_log_level level, const char *line) {
    (void)user;
    if (level != CLEF_LOG_WARNING && level != CLEF_LOG_ERROR) return;
    lines++;
    snprintf(last, sizeof last, "%s", line);
}

static bool open_all(void) {
    ctx = clef_open(&(clef_options){.cache_dir = io_path(dir, "cache"), .log = listen});
    if (!ctx) return false;
    net = clef_sequential(ctx, CLEF_LAYERS(clef_nn_flatten(ctx), clef_nn_linear(ctx, 64, 10, NULL)));
    optimizer = clef_sgd(net, &(clef_sgd_options){.lr = 0.01, .momentum = 0.9});
    loader = clef_loader_open(clef_dataset_take(clef_digits(ctx, CLEF_TRAIN), 32), &(clef_loader_options){.batch = 16});
    return net && optimizer && loader;
}

/* ---- what is written ---- */
static clef_status save_weights(void) { return clef_save(net, io_path(dir, "net.safetensors")); }
static clef_status save_checkpoint(void) {
    return clef_checkpoint_save(ctx, io_path(dir, "one.ckpt"), &(clef_checkpoint){.module = net, .optimizer = optimizer});
}
static clef_status save_array(void) { return clef_npy_write(clef_module_tensor(net, 0).tensor, io_path(dir, "w.npy")); }
static clef_status export_results(void) {
    int n;
    return clef__tuning_export(ctx, io_path(dir, "tuning.jsonl"), &n);
}

static void keep_a_result(void) {
    const clef__tuned t = {.family = "f", .kernel = "k", .dtype = "f32", .bucket = "b", .n_knobs = 1, .knob = {{"rows", 8}}};
    EXPECT(clef__tuned_keep(clef__device_at(ctx, 0), &t, 1) == CLEF_OK);
}

/* ---- judging ---- */
static bool is_temporary(const char *name) {
    size_t n = strlen(name);
    return strncmp(name, ".new-", 5) == 0 || (n > 4 && strcmp(name + n - 4, ".tmp") == 0);
}

static int temporaries(const char *path) {
    int n = 0;
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) n += is_temporary(e->d_name);
    if (d) closedir(d);
    return n;
}

static bool same(io_bytes a, io_bytes b) { return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0); }

static bool one_line(const char *line) { return *line && !strchr(line, '\n'); }

/* `write_it` replaces one file: each of its steps fails once, with either error. */
static void replace(const char *name, clef_status (*write_it)(void)) {
    const char *path = io_path(dir, name);
    EXPECT(write_it() == CLEF_OK);
    io_bytes new = io_slurp(path);
    for (int error = 0; error < 2; error++)
        for (long n = 1, struck = 1; struck && io_failures == 0; n++) {
            io_spit(path, "old", 3);
            file_faults_begin(dir, n, error ? EIO : ENOSPC, n % 2);
            clef_status status = write_it();
            struck = file_faults.struck;
            file_faults_end();
            io_bytes now = io_slurp(path), old = {(uint8_t *)"old", 3};
            EXPECT(status == (struck ? CLEF_IO : CLEF_OK));
            EXPECT(!struck || (one_line(clef_error(ctx)) && strstr(clef_error(ctx), strerror(error ? EIO : ENOSPC))));
            EXPECT(same(now, new) || (struck && same(now, old)));
            EXPECT(temporaries(dir) == 0);
            EXPECT(struck || n > 4); /* they were seen at all */
            if (io_failures) printf("%s: step %ld, %s: %s\n", name, n, strerror(error ? EIO : ENOSPC), clef_error(ctx));
            clef_clear_error(ctx);
            free(now.data);
        }
    file_faults_begin(dir, 0, 0, false);
    file_faults.short_ones = true;
    EXPECT(write_it() == CLEF_OK);
    file_faults_end();
    io_bytes now = io_slurp(path);
    EXPECT(same(now, new));
    free(now.data);
    free(new.data);
}

/* ---- a training run: checkpoints and CSV ---- */
static clef_status train(int epochs) {
    return clef_fit(net,
                    &(clef_fit_options){.train = loader,
                                        .optimizer = optimizer,
                                        .epochs = epochs,
                                        .resume = true,
                                        .keep = 1,
                                        .checkpoint_dir = io_path(dir, "run"),
                                        .csv = io_path(dir, "run/log.csv")},
                    NULL);
}

static bool is_whole(const char *name) {
    char path[1024];
    snprintf(path, sizeof path, "%s/run/%s", dir, name);
    clef__report report = {0};
    clef__reader reader;
    clef_checkpoint seen = {0};
    if (access(path, F_OK) != 0) return true;
    if (clef__reader_open(&reader, path, &report) == CLEF_OK) clef__checkpoint_examine(&reader, &seen, &seen, &report);
    clef__reader_close(&reader);
    if (report.status) printf("%s %s\n", path, report.text);
    return report.status == CLEF_OK;
}

static int rows(void) {
    io_bytes csv = io_slurp(io_path(dir, "run/log.csv"));
    int n = 0;
    for (size_t i = 0; i < csv.size; i++) n += csv.data[i] == '\n';
    free(csv.data);
    return n - 1;
}

static void train_failing(void) {
    const char *all = getenv("CLEF_TEST_ALL");
    int epochs = 1;
    EXPECT(train(epochs) == CLEF_OK);
    for (long n = 1, struck = 1; struck && io_failures == 0; n += all && *all == '1' ? 1 : 1 + n / 6) {
        int before = rows();
        file_faults_begin(dir, n, ENOSPC, false);
        clef_status status = train(epochs + 1);
        struck = file_faults.struck;
        file_faults_end();
        EXPECT(status == (struck ? CLEF_IO : CLEF_OK) && (!struck || one_line(clef_error(ctx))));
        clef_clear_error(ctx);
        EXPECT(is_whole("last.ckpt") && is_whole("best.ckpt") && temporaries(io_path(dir, "run")) == 0);
        EXPECT(rows() >= before); /* lines of epochs before are not lost */
        if (struck) EXPECT(train(epochs + 1) == CLEF_OK);
        EXPECT(rows() >= before && rows() <= epochs + 1); /* the line that failed is missing, the epoch's weights are not */
        if (io_failures) printf("training: step %ld: %s\n", n, clef_error(ctx));
        epochs++;
    }
}

/* ---- the cache: never an error, one warning ---- */
static void cache_failing(void) {
    static const char source[] = "__kernel void f%d(__global int *x) { x[0] = %d; }";
    for (int n = 1; n <= 8 && io_failures == 0; n++) {
        clef_context *own = clef_open(&(clef_options){.cache_dir = io_path(dir, "cache"), .log = listen});
        clef__device *device = clef__device_at(own, 0);
        char text[128], name[16];
        snprintf(text, sizeof text, source, n, n);
        snprintf(name, sizeof name, "f%d", n);
        lines = 0;
        file_faults_begin(io_path(dir, "cache"), n, n % 2 ? ENOSPC : EIO, n == 2);
        clef__kernel *k = clef__kernel_new(device, text, "", name);
        bool struck = file_faults.struck > 0;
        file_faults_end();
        EXPECT(k && clef_error_status(own) == CLEF_OK && lines == struck &&
               (!struck || strstr(last, "an entry could not be written")));
        EXPECT(temporaries(io_path(dir, "cache")) == 0);
        EXPECT(struck || n > 4);
        clef__kernel_free(k);
        clef_close(own);
    }
}

int main(void) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    printf("skipped: sanitizers watch the same calls\n");
    return 77;
#endif
    snprintf(dir, sizeof dir, "%s", io_scratch());
    mkdir(io_path(dir, "cache"), 0700);
    setenv("CLEF_CACHE", "force", 1);
    if (!open_all()) return without_context();
    replace("net.safetensors", save_weights);
    replace("one.ckpt", save_checkpoint);
    replace("w.npy", save_array);
    keep_a_result();
    replace("tuning.jsonl", export_results);
    train_failing();
    cache_failing();
    clef_close(ctx);
    io_remove_tree(dir);
    printf("write faults: %d failures\n", io_failures);
    return io_failures != 0;
}
