/* What the command promises on real data: accuracies after a few epochs, and the same numbers each time.  Times are printed
   and decide nothing.
   ctest: labels=slow,data serial */
#include <stdio.h>
#include <stdlib.h>
#define MUST(condition) ((condition) ? (void)0 : (perror(#condition), exit(1)))
#include "tools/tool_support.h"
#include <time.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 }; /* a few images then: the point is that nothing is wrong on the way */
#else
enum { SANITIZED = 0 };
#endif

#define MNIST "train --quiet --data mnist --model lenet --epochs 2 --batch 100 --optimizer sgd --momentum 0.9 --lr 0.05 --json"
#define CIFAR "train --quiet --data cifar10 --model cnn --epochs 3 --json"
#define RESNET "train --quiet --data cifar10 --model resnet18 --limit 64 --epochs 1 --json"

static int failed;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static const said *train(const char *arguments) {
    char line[512];
    snprintf(line, sizeof line, "%s%s", arguments, SANITIZED ? " --limit 32 --epochs 1" : "");
    double begun = now();
    const said *s = clef("", line);
    printf("%.1f s, exit %d, test accuracy %.4f: clef %s\n", now() - begun, s->code, number_of(s->out, "test_accuracy"), line);
    if (s->code) printf("FAILED: %s", s->err), failed++;
    fflush(stdout);
    return s;
}

static void expect_accuracy(double accuracy, double least) {
    if (SANITIZED || accuracy >= least) return;
    printf("FAILED: %.4f is below %.2f\n", accuracy, least);
    failed++;
}

/* The text of every loss and accuracy, one after another: that which may not differ between two runs. */
static void results(const char *out, char *text, size_t size) {
    static const char *const key[] = {"\"loss\":", "\"accuracy\":", "\"test_loss\":", "\"test_accuracy\":"};
    size_t used = 0;
    text[0] = 0;
    for (int k = 0; k < 4; k++)
        for (const char *p = out; (p = strstr(p, key[k])) && used + 64 < size;) {
            p += strlen(key[k]);
            p += strspn(p, " ");
            int n = (int)strcspn(p, ",}\n");
            used += (size_t)snprintf(text + used, size - used, "%.*s ", n < 60 ? n : 60, p);
        }
}

static void mnist(void) {
    static char first[4096], second[4096];
    const said *s = train(MNIST);
    results(s->out, first, sizeof first);
    expect_accuracy(number_of(s->out, "test_accuracy"), 0.98);
    results(train(MNIST)->out, second, sizeof second);
    if (first[0] && !strcmp(first, second)) return;
    printf("FAILED: two runs of the same command gave\n  %s\n  %s\n", first, second);
    failed++;
}

static void cifar(void) {
    expect_accuracy(number_of(train(CIFAR)->out, "test_accuracy"), 0.50);
    train(RESNET);
}

/* Is there a data set of this name?  Says so if not. */
static int have(const char *name) {
    char path[4096];
    const char *data = getenv("CLEF_DATA");
    snprintf(path, sizeof path, "%s/%s", data ? data : "", name);
    if (data && *data && access(path, R_OK) == 0) return 1;
    printf("skipped: %s/%s is not there (CLEF_DATA: a folder with mnist/ and cifar10/)\n", data && *data ? data : "$CLEF_DATA",
           name);
    return 0;
}

int main(void) {
    int some = have("mnist"), other = have("cifar10");
    if (!some && !other) return 77;
    enter_workplace();
    if (clef("", "devices")->code || !strstr(clef("", "devices --json")->out, "default")) {
        printf("skipped: no OpenCL device (Debian: pocl-opencl-icd)\n");
        leave_workplace();
        return 77;
    }
    if (some) mnist();
    if (other) cifar();
    leave_workplace();
    return failed ? 1 : some && other ? 0 : 77;
}
