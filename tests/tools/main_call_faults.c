/* The tool and the examples, as whole programs, when an OpenCL call fails: they end by themselves, with exit code 0 where that did not
   matter, or with another and a line on stderr.  Some of the calls; all with CLEF_TEST_ALL=1.
   ctest: cost=20 cached plain */
#include "support/io_files.h"
#include "support/plain.h"
#include <sys/wait.h>

static char dir[512];

/* Runs it with a failure at call n (0: none): its exit code, -1 if it was killed.  *calls: how many there were; *line: the last on
   stderr. */
static int run(const char *program, long n, long *calls, char *line, size_t size) {
    char command[2000], report[600], more[1024];
    snprintf(report, sizeof report, "%s/calls", dir);
    snprintf(command, sizeof command, "cd '%s' && LD_PRELOAD='%s' CLEF_FAULT_CALL=%ld CLEF_FAULT_REPORT='%s' CLEF_COMPILE_THREADS=1 %s 2>&1 >/dev/null",
             dir, CLEF_TEST_CALL_FAULTS, n, report, program);
    FILE *out = popen(command, "r");
    *line = 0;
    while (fgets(more, sizeof more, out)) snprintf(line, size, "%s", more);
    int status = pclose(out);
    FILE *f = fopen(report, "r");
    if (!f || fscanf(f, "%ld", calls) != 1) *calls = 0;
    if (f) fclose(f);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int failed;

static void every_call(const char *program) {
    const char *all = getenv("CLEF_TEST_ALL");
    long calls = 0, step, unused;
    char line[1024];
    EXPECT(run(program, 0, &calls, line, sizeof line) == 0); /* fills the cache of kernels */
    EXPECT(run(program, 0, &calls, line, sizeof line) == 0 && calls > 2);
    for (long n = 1; n <= calls && !io_failures; n += step) {
        step = all && *all == '1' ? 1 : 1 + n / 2;
        int code = run(program, n, &unused, line, sizeof line);
        EXPECT(code >= 0 && code < 126 && (code == 0 || *line));
        failed += code != 0;
        if (io_failures) printf("%s, call %ld of %ld: code %d: %s\n", program, n, calls, code, line);
    }
}

int main(void) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    printf("skipped: sanitizers want to be the first library\n");
    return 77;
#endif
    if (clef_device_count() == 0) return without_context();
    snprintf(dir, sizeof dir, "%s", io_scratch());
    setenv("CLEF_CACHE_DIR", dir, 1);
    every_call("'" CLEF_TEST_TOOL "' train --data digits --model mlp --limit 64 --epochs 1 --quiet");
    every_call("'" CLEF_TEST_TOOL "' devices");
    every_call("'" CLEF_TEST_BUILD "/examples/01_tensors'");
    every_call("'" CLEF_TEST_BUILD "/examples/07_custom'");
    EXPECT(failed > 8);
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    if (system(command)) printf("%s stays\n", dir);
    printf("%d programs failed by one call, %d failures\n", failed, io_failures);
    return io_failures != 0;
}
