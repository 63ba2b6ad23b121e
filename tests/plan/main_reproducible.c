/* Equal programs make equal plans and equal bits: twenty processes, some of them beside busy ones, with no cache of Clef's, print
   their plans (launches with their grids) and what was computed, and all must print the same.
   ctest: cost=30 */
#include "support/plain.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROCESSES = 20, AT_A_TIME = 4, MOST_TEXT = 1 << 16 };

/* ---- one process ---- */

/* A convolution, a product and a narrow one, each with several ways to be computed. */
static clef_tensor *work(clef_context *ctx) {
    clef_tensor *x = clef_randn(ctx, CLEF_SHAPE(4, 8, 12, 12)), *w = clef_randn(ctx, CLEF_SHAPE(16, 8, 3, 3));
    clef_tensor *y = clef_reshape(clef_conv2d(x, w, CLEF_NONE, NULL), CLEF_SHAPE(4, 1600));
    clef_tensor *z = clef_matmul(y, clef_randn(ctx, CLEF_SHAPE(1600, 50)));
    return clef_matmul(z, clef_transpose(clef_randn(ctx, CLEF_SHAPE(3, 50)), 0, 1));
}

static int run_once(void) {
    clef_context *ctx = clef_open(&(clef_options){.seed = 7, .cache_dir = ""});
    if (!ctx) return without_context();
    unsigned char bytes[4 * 3 * sizeof(float)];
    clef_tensor *t = work(ctx);
    if (clef_print_plan(t, CLEF_PLAN_TEXT, stdout) != CLEF_OK || clef_read(t, bytes, sizeof bytes) != CLEF_OK)
        return printf("%s\n", clef_error(ctx)), 1;
    for (size_t i = 0; i < sizeof bytes; i++) printf("%02x", bytes[i]);
    printf("\n");
    clef_close(ctx);
    return 0;
}

/* ---- all of them ---- */

static FILE *start(const char *program) {
    char command[4096];
    snprintf(command, sizeof command, "'%s' once", program);
    return popen(command, "r");
}

/* What a process printed, without its plan's key, which is made of addresses; and its exit code. */
static int collect(FILE *from, char *text) {
    if (!from) return 1;
    size_t n = fread(text, 1, MOST_TEXT - 1, from);
    text[n] = 0;
    char *key = strstr(text, "\nplan ");
    if (key) memset(key + 6, '-', strcspn(key + 6, ":"));
    int status = pclose(from);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static pid_t keep_busy(void) {
    pid_t pid = fork();
    for (volatile unsigned i = 0; pid == 0;) i++;
    return pid;
}

/* Half of the processes have a busy one for each of those that run together. */
static int compare_processes(const char *program) {
    static char first[MOST_TEXT], text[MOST_TEXT];
    int code = collect(start(program), first);
    for (int i = 1; code == 0 && i < PROCESSES; i += AT_A_TIME) {
        FILE *running[AT_A_TIME];
        pid_t busy[AT_A_TIME];
        for (int j = 0; j < AT_A_TIME; j++) busy[j] = i > PROCESSES / 2 ? keep_busy() : 0;
        for (int j = 0; j < AT_A_TIME; j++) running[j] = start(program);
        for (int j = 0; j < AT_A_TIME; j++) {
            code |= collect(running[j], text);
            if (strcmp(first, text) == 0) continue;
            printf("process %d differs:\n%s\nthe first one:\n", i + j, text);
            code = 1;
        }
        for (int j = 0; j < AT_A_TIME; j++)
            if (busy[j] > 0) kill(busy[j], SIGKILL), waitpid(busy[j], NULL, 0);
    }
    if (code) printf("%s", first);
    return code;
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "once") == 0) return run_once();
    setenv("CLEF_CACHE", "0", 1);
    setenv("CLEF_TUNING", "0", 1);
    return compare_processes(argv[0]);
}
