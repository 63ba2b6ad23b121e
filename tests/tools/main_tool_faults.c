/* clef train on a disk where some write fails: exit code 0 with a warning (cache, trace) or 1, one line on stderr, files that are
   whole, and no temporary.  Some of the writes; all with CLEF_TEST_ALL=1.
   ctest: cost=15 cached plain */
#include "support/io_files.h"
#include "support/plain.h"
#include "io/io_internal.h"
#include <errno.h>
#include <sys/wait.h>

static char dir[512];

static int temporaries(const char *path) {
    int n = 0;
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) n += strncmp(e->d_name, ".new-", 5) == 0 || strstr(e->d_name, ".tmp") != NULL;
    if (d) closedir(d);
    return n;
}

/* Runs the tool with a failure at write n (0: none; short_ones: short writes instead); its exit code, -1 if it was killed. */
static int train(long n, bool short_ones, char *line, size_t size, int *lines) {
    char command[4000], more[1024];
    snprintf(command, sizeof command,
             "rm -rf '%s'/* && LD_PRELOAD='%s' CLEF_FAULT_DIR='%s' CLEF_FAULT_N=%ld CLEF_FAULT_ERRNO=%d %s CLEF_CACHE=force CLEF_CACHE_DIR='%s/cache' "
             "CLEF_TRACE='%s/trace.json' '%s' train --data digits --model mlp --limit 64 --epochs 1 --checkpoint '%s/run' "
             "--out '%s/net.safetensors' --csv '%s/log.csv' --quiet 2>&1 >/dev/null",
             dir, CLEF_TEST_FILE_FAULTS, dir, n, n % 2 ? ENOSPC : EIO, short_ones ? "CLEF_FAULT_SHORT=1" : "", dir, dir, CLEF_TEST_TOOL, dir,
             dir, dir);
    FILE *out = popen(command, "r");
    *line = 0;
    for (*lines = 0; fgets(more, sizeof more, out); ++*lines)
        if (*lines == 0) snprintf(line, size, "%s", more);
    int status = pclose(out);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
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

static void expect_all_well(long n, int code, const char *line, int lines) {
    EXPECT(code == 0 || code == 1);
    EXPECT(lines <= 1 && (code == 0 || lines == 1) && (lines == 0 || strncmp(line, "clef train: ", 12) == 0));
    EXPECT(code == 1 || lines == 0 || strstr(line, "warning: ") != NULL);
    EXPECT(is_whole("net.safetensors") && is_whole("run/last.ckpt") && is_whole("run/best.ckpt"));
    EXPECT(temporaries(dir) + temporaries(io_path(dir, "run")) + temporaries(io_path(dir, "cache")) == 0);
    if (io_failures) printf("write %ld: code %d, %d lines: %s\n", n, code, lines, line);
}

int main(void) {
    char line[1024];
    int lines;
    const char *all = getenv("CLEF_TEST_ALL");
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    printf("skipped: sanitizers want to be the first library\n");
    return 77;
#endif
    if (clef_device_count() == 0) return without_context();
    snprintf(dir, sizeof dir, "%s", io_scratch());
    EXPECT(train(0, false, line, sizeof line, &lines) == 0 && lines == 0);
    EXPECT(train(0, true, line, sizeof line, &lines) == 0 && lines == 0);
    int failed = 0;
    for (long n = 1; n < 260 && !io_failures; n += all && *all == '1' ? 1 : 1 + n / 2) {
        int code = train(n, false, line, sizeof line, &lines);
        expect_all_well(n, code, line, lines);
        failed += lines > 0;
    }
    EXPECT(failed > 4);
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    if (system(command)) printf("%s stays\n", dir);
    printf("tool: %d runs with a failing write, %d failures\n", failed, io_failures);
    return io_failures != 0;
}
