/* Several processes that keep tuning results in one directory at the same time: each result of each must be there at the end,
   and no reader may meet a damaged line.  A plain program, so that it also runs under sanitizers. */
#include "runtime_support.h"

enum { WRITERS = 4, RESULTS = 25 };

static void open_words(clef__device *d, const char *dir, memory_log *log) {
    *d = (clef__device){.profile = {.name = "cpu"}};
    d->ctx = clef__context_new(&(clef_options){.cache_dir = dir, .log = remember, .log_user = log});
    d->info = (clef_device_info){.platform = "p", .platform_version = "1", .name = "d", .driver = "1", .compute_units = 1};
}

static clef__tuned result_of(int writer, int i, char bucket[32]) {
    snprintf(bucket, 32, "%d,%d", writer, i);
    return (clef__tuned){
        .family = "gemm", .kernel = "k", .dtype = "f32", .bucket = bucket, .n_knobs = 1, .knob = {{"rows", 1 + i}}};
}

/* Returns how much went wrong. */
static int write_all(const char *dir, int writer) {
    static memory_log log;
    clef__device d;
    int wrong = 0;
    open_words(&d, dir, &log);
    for (int i = 0; i < RESULTS; i++) {
        char bucket[32];
        clef__tuned t = result_of(writer, i, bucket);
        wrong += clef__tuned_keep(&d, &t, 1) != CLEF_OK;
    }
    clef_close(d.ctx);
    return wrong + log.count[CLEF_LOG_WARNING];
}

static int count_found(const char *dir, memory_log *log) {
    clef__device d;
    int found = 0;
    open_words(&d, dir, log);
    for (int w = 0; w < WRITERS; w++)
        for (int i = 0; i < RESULTS; i++) {
            char bucket[32];
            clef__tuned choice = result_of(w, i, bucket);
            const clef__tuned *t = clef__tuned_find(&d, &choice);
            found += t && t->n_knobs == 1 && t->knob[0].value == 1 + i;
        }
    clef_close(d.ctx);
    return found;
}

int main(void) {
    memory_log log = {0};
    const char *dir = temporary_dir();
    int wrong = 0;
    unsetenv("CLEF_CACHE");
    unsetenv("CLEF_TUNING");
    for (int w = 0; w < WRITERS; w++) {
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) _exit(write_all(dir, w) != 0);
        wrong += child < 0;
    }
    for (int i = 0; i < 50; i++) count_found(dir, &log); /* while they write */
    for (int w = 0; w < WRITERS; w++) {
        int status = 1;
        wait(&status);
        wrong += status != 0;
    }
    int found = count_found(dir, &log);
    printf("%d of %d results found, %d writers failed, %d warnings\n", found, WRITERS * RESULTS, wrong,
           log.count[CLEF_LOG_WARNING]);
    remove_dir(dir);
    return found != WRITERS * RESULTS || wrong || log.count[CLEF_LOG_WARNING];
}
