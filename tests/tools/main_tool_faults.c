/* clef train on a disk where some write fails: exit code 0 with a warning (cache, trace) or 1, one line on stderr, files that are
   whole, and no temporary.  Some of the writes; all with CLEF_TEST_ALL=1.
   ctest: cost=15 cached plain */
#include "support/io_files.h"
#include "support/plain.h"
#include "support/programs.h"
#include "io/io_internal.h"
#include <errno.h>

static char dir[512];

static int temporaries(const char *path) {
    int n = 0;
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) n += strncmp(e->d_name, ".new-", 5) == 0 || strstr(e->d_name, ".tmp") != NULL;
    if (d) closedir(d);
    return n;
}

/* What the tool says on stderr with a failure at write n (0: none; short_ones: short writes instead). */
static answer train(long n, bool short_ones) {
    char command[4000];
    snprintf(command, sizeof command,
             "rm -rf '%s'/* && LD_PRELOAD='%s' CLEF_FAULT_DIR='%s' CLEF_FAULT_N=%ld CLEF_FAULT_ERRNO=%d %s CLEF_CACHE=force "
             "CLEF_CACHE_DIR='%s/cache' "
             "CLEF_TRACE='%s/trace.json' '%s' train --data digits --model mlp --limit 64 --epochs 1 --checkpoint '%s/run' "
             "--out '%s/net.safetensors' --csv '%s/log.csv' --quiet 2>&1 >/dev/null",
             dir, CLEF_TEST_FILE_FAULTS, dir, n, n % 2 ? ENOSPC : EIO, short_ones ? "CLEF_FAULT_SHORT=1" : "", dir, dir,
             CLEF_TEST_TOOL, dir, dir, dir);
    return answer_of(command);
}

static bool is_whole(const char *name) {
    const char *path = io_path(dir, name);
    clef__report report = {0};
    clef__reader reader;
    clef__st_index index = {0};
    if (access(path, F_OK) != 0) return true;
    if (clef__reader_open(&reader, path, &report) == CLEF_OK && clef__st_parse(&reader, &index, &report) == CLEF_OK)
        clef__st_verify(&reader, &index, NULL, &report);
    clef__st_free(&index);
    clef__reader_close(&reader);
    return report.status == CLEF_OK;
}

static void expect_all_well(long n, answer a) {
    EXPECT(a.code == 0 || a.code == 1);
    EXPECT(a.lines <= 1 && (a.code == 0 || a.lines == 1) && (a.lines == 0 || strncmp(a.first, "clef train: ", 12) == 0));
    EXPECT(a.code == 1 || a.lines == 0 || strstr(a.first, "warning: ") != NULL);
    EXPECT(is_whole("net.safetensors") && is_whole("run/last.ckpt") && is_whole("run/best.ckpt"));
    EXPECT(temporaries(dir) + temporaries(io_path(dir, "run")) + temporaries(io_path(dir, "cache")) == 0);
    if (io_failures) printf("write %ld: code %d, %d lines: %s\n", n, a.code, a.lines, a.first);
}

int main(void) {
    const char *all = getenv("CLEF_TEST_ALL");
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    printf("skipped: sanitizers want to be the first library\n");
    return 77;
#endif
    if (clef_device_count() == 0) return without_context();
    snprintf(dir, sizeof dir, "%s", io_scratch());
    for (int short_ones = 0; short_ones < 2; short_ones++) {
        answer a = train(0, short_ones);
        EXPECT(a.code == 0 && a.lines == 0);
    }
    int failed = 0;
    for (long n = 1; n < 260 && !io_failures; n += all && *all == '1' ? 1 : 1 + n / 2) {
        answer a = train(n, false);
        expect_all_well(n, a);
        failed += a.lines > 0;
    }
    EXPECT(failed > 4);
    io_remove_tree(dir);
    printf("tool: %d runs with a failing write, %d failures\n", failed, io_failures);
    return io_failures != 0;
}
