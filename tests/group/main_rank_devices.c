/* Which device each rank gets: entries of lists, and what the machine has; and the line of a failure around a transport.
   ctest: labels=threads */
#include "clef.h"
#include "clef/transport.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int wrong;

static void expect(const char *devices, int i, int n, const char *wanted) {
    char device[256] = "untouched";
    clef_clear_error(NULL);
    clef_status status = clef_rank_device(devices, i, n, device, sizeof device);
    if (status == CLEF_OK && strcmp(device, wanted) == 0) return;
    printf("FAILED: rank %d of %d, \"%s\": \"%s\" instead of \"%s\" (%s)\n", i, n, devices ? devices : "(NULL)", device, wanted,
           clef_error(NULL));
    wrong++;
}

static void expect_line(const char *devices, int i, int n, const char *wanted) {
    char device[256];
    clef_clear_error(NULL);
    clef_status status = clef_rank_device(devices, i, n, device, sizeof device);
    if (status == CLEF_INVALID && strstr(clef_error(NULL), wanted)) return;
    printf("FAILED: rank %d of %d, \"%s\": %s, \"%s\" instead of \"%s\"\n", i, n, devices, clef_status_name(status),
           clef_error(NULL), wanted);
    wrong++;
}

static void lists(void) {
    expect("0", 3, 4, "0");
    expect("0,1", 0, 4, "0");
    expect("0,1", 3, 4, "1");
    expect(" gpu , cpu", 1, 2, "cpu");
    expect("0/2", 1, 2, "0/2#1");
    expect("0/2", 2, 3, "0/2#0");
    expect("1,0:1+3", 2, 3, "0:1+3#1");
    expect("0/2#1", 0, 1, "0/2#1");
    expect("some/name", 0, 1, "some/name");
    expect_line("0,,1", 0, 1, "empty part");
    expect_line("0,", 0, 1, "empty part");
    expect_line("0/300", 0, 1, "more than 256 ranks");
    expect_line("0", 2, 2, "2 of 2");
    expect_line("0", -1, 2, "-1 of 2");
    expect_line("0", 0, 0, "0 of 0");
    setenv("CLEF_DEVICE", "0,cpu", 1);
    expect(NULL, 1, 2, "cpu");
    expect("0", 1, 2, "0");
    unsetenv("CLEF_DEVICE");
}

/* The best device's neighbours of the same platform and type, or its parts. */
static void machine(void) {
    clef_device_info best, info;
    clef_context *ctx = clef_open(NULL);
    if (!ctx) return;
    clef_context_device(ctx, 0, &best);
    clef_close(ctx);
    int alike = 0, first = -1;
    for (int d = 0; clef_device_get(d, &info); d++)
        if (!strcmp(info.platform, best.platform) && !strcmp(info.type, best.type) && ++alike == 1) first = d;
    char wanted[64];
    snprintf(wanted, sizeof wanted, "%d", alike == 1 ? best.index : first);
    expect(NULL, 0, 1, wanted);
    if (alike > 1) return;
    setenv("CLEF_THREADS", "1", 1);
    expect(NULL, 1, 2, wanted);
    unsetenv("CLEF_THREADS");
    expect(NULL, 1000000, 1000001, wanted); /* not so many units */
    if (!strcmp(best.type, "cpu") && best.compute_units >= 2) snprintf(wanted, sizeof wanted, "%d/2#1", best.index);
    expect(NULL, 1, 2, wanted);
}

static void lines(void) {
    clef_clear_error(NULL);
    if (clef_transport_error(CLEF_OK, "nothing") != CLEF_OK || *clef_error(NULL)) wrong++, printf("FAILED: no error is one\n");
    if (clef_transport_error(CLEF_IO, "the wire is cut") != CLEF_IO || strcmp(clef_error(NULL), "the wire is cut"))
        wrong++, printf("FAILED: \"%s\"\n", clef_error(NULL));
}

int main(void) {
    unsetenv("CLEF_DEVICE");
    unsetenv("CLEF_THREADS");
    lists();
    machine();
    lines();
    printf("devices of ranks: %s\n", wrong ? "FAILED" : "as expected");
    return wrong != 0;
}
