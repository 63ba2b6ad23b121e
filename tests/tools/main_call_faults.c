/* The tool and the examples, as whole programs, when an OpenCL call fails: they end by themselves, with exit code 0 where that did
   not matter, or with another and a line on stderr.  Some of the calls; all with CLEF_TEST_ALL=1. ctest: cost=20 cached plain */
#include "support/io_files.h"
#include "support/plain.h"
#include "support/programs.h"

static char dir[512];

/* What it says on stderr with a failure at call n (0: none).  *calls: how many there were. */
static answer run(const char *program, long n, long *calls) {
    char command[2000], report[600];
    snprintf(report, sizeof report, "%s/calls", dir);
    snprintf(command, sizeof command,
             "cd '%s' && LD_PRELOAD='%s' CLEF_FAULT_CALL=%ld CLEF_FAULT_REPORT='%s' CLEF_COMPILE_THREADS=1 %s 2>&1 >/dev/null", dir,
             CLEF_TEST_CALL_FAULTS, n, report, program);
    answer a = answer_of(command);
    FILE *f = fopen(report, "r");
    if (!f || fscanf(f, "%ld", calls) != 1) *calls = 0;
    if (f) fclose(f);
    return a;
}

static int failed;

static void every_call(const char *program) {
    const char *all = getenv("CLEF_TEST_ALL");
    long calls = 0, step, unused;
    EXPECT(run(program, 0, &calls).code == 0); /* fills the cache of kernels */
    EXPECT(run(program, 0, &calls).code == 0 && calls > 2);
    for (long n = 1; n <= calls && !io_failures; n += step) {
        step = all && *all == '1' ? 1 : 1 + n / 2;
        answer a = run(program, n, &unused);
        EXPECT(a.code >= 0 && a.code < 126 && (a.code == 0 || a.lines > 0));
        failed += a.code != 0;
        if (io_failures) printf("%s, call %ld of %ld: code %d: %s\n", program, n, calls, a.code, a.last);
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
    io_remove_tree(dir);
    printf("%d programs failed by one call, %d failures\n", failed, io_failures);
    return io_failures != 0;
}
