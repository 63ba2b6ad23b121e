/* clef devices --plan: shares that are a whole batch, a slow device that gets little or nothing of it, and a line that clef train takes.
   ctest: cost=20 plain */
#include "tools/tool_support.h"

TestSuite(plan, .init = enter_workplace, .fini = leave_workplace);

#define SLOW "LD_PRELOAD='" CLEF_TEST_BUILD "/tests/slow_device.so' CLEF_TEST_SLOW=1=50"

/* The number behind "key": in line `at` of the text. */
static double number_in_line(const char *text, int at, const char *key) {
    for (; at > 0; at--) text = strchr(text, '\n') + 1;
    char line[2048];
    snprintf(line, sizeof line, "%.*s", (int)strcspn(text, "\n"), text);
    return number_of(line, key);
}

static void shares_are_whole(const char *environment, const char *devices, int ranks, int batch, double *share) {
    char command[128];
    snprintf(command, sizeof command, "devices --plan mlp --devices %s --batch %d --json --quiet", devices, batch);
    const said *s = clef(environment, command);
    cr_assert(s->code == 0 && lines(s->out) == ranks + 1 && !*s->err, "%d: %s%s", s->code, s->out, s->err);
    double sum = 0, slowest = 0;
    for (int r = 0; r < ranks; r++) {
        double seconds = number_in_line(s->out, r, "seconds");
        sum += share[r] = number_in_line(s->out, r, "share");
        slowest = seconds > slowest ? seconds : slowest;
        cr_expect(number_in_line(s->out, r, "rank") == r && number_in_line(s->out, r, "seconds_alone") > 0, "%s", s->out);
        cr_expect((seconds > 0) == (share[r] > 0), "%s", s->out);
    }
    cr_expect_eq(sum, batch, "%s", s->out);
    cr_expect_eq(number_in_line(s->out, ranks, "seconds_computing"), slowest, "%s", s->out);
    double seconds = number_in_line(s->out, ranks, "seconds"), speed = number_in_line(s->out, ranks, "items_per_second");
    cr_expect(seconds > 0 && speed * seconds > batch * 0.999 && speed * seconds < batch * 1.001, "%s", s->out);
}

Test(plan, shares_are_a_whole_batch) {
    double share[3];
    shares_are_whole("", "0", 1, 32, share);
    shares_are_whole("", "0,0", 2, 32, share);
    shares_are_whole("", "0,0,0", 3, 5, share);
    shares_are_whole("", "0,0,0", 3, 1, share); /* two have nothing */
}

/* 50 times as slow: no load of the machine makes up for that. */
Test(plan, a_slow_device_gets_less) {
    double share[3];
    shares_are_whole(SLOW, "0/2", 2, 64, share);
    cr_expect(share[1] < share[0] / 2, "%g and %g", share[0], share[1]);
}

Test(plan, the_line_that_it_prints_runs) {
    char line[512];
    const said *s = clef("", "devices --plan mlp --devices 0,0");
    cr_assert_eq(s->code, 0, "%s", s->err);
    cr_expect(strstr(s->out, "mlp, batch 32") && strstr(s->out, "together:"), "%s", s->out);
    const char *train = strstr(s->out, "clef train "); /* not there where one has no share */
    if (!train) return;
    snprintf(line, sizeof line, "%.*s --limit 64 --epochs 1 --quiet", (int)strcspn(train, "\n") - 5, train + 5);
    s = clef("", line);
    cr_expect_eq(s->code, 0, "%s: %s", line, s->err);
}

static void refused(const char *arguments, int code, const char *line) {
    const said *s = clef("", arguments);
    cr_expect(s->code == code && lines(s->err) == 1 && strstr(s->err, line), "%s: %d, %s", arguments, s->code, s->err);
}

Test(plan, what_does_not_fit_is_one_line) {
    refused("devices --plan alexnet", 2, "--plan wants mlp|lenet|cnn|resnet18");
    refused("devices --batch 4", 2, "belong to --plan");
    refused("devices --devices 0,0", 2, "belong to --plan");
    refused("devices --plan mlp --probe", 2, "two commands");
    refused("devices --plan mlp --devices 0,9", 2, "\"9\"");
    refused("devices --plan mlp --devices 0,0 --device 0", 2, "give one of them");
    const said *s = clef("OCL_ICD_VENDORS=/dev/null/none", "devices --plan mlp");
    cr_expect(s->code == 77 && lines(s->err) == 1, "%d: %s", s->code, s->err);
}
