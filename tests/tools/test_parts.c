/* clef train with --parts and --zero: files of the same bytes from one device, several, halves of one, and resumed by another number of them.
   ctest: cost=30 plain */
#include "tools/tool_support.h"

#define RUN "train --quiet --data digits --model lenet --limit 160 --batch 24 --parts 4 --json "

TestSuite(parts, .init = enter_workplace, .fini = leave_workplace);

static bool same_files(const char *a, const char *b) {
    char command[256];
    snprintf(command, sizeof command, "cmp -s '%s/%s' '%s/%s'", workplace, a, workplace, b);
    return system(command) == 0;
}

static const said *run(const char *what, const char *options) {
    char command[512];
    snprintf(command, sizeof command, RUN "%s", options);
    const said *s = clef("", command);
    cr_assert_eq(s->code, 0, "%s: %s", what, s->err);
    cr_expect_str_eq(s->err, "", "%s", what);
    return s;
}

/* Batches of 24 and a last one that is left out; clipping and augmentation make all numbers depend on all. */
Test(parts, any_number_of_devices_gives_the_same_bytes) {
    static const char *const devices[] = {"0,0", "0,0,0,0"};
    static const char *const more[] = {"", "--zero 1", "--zero 2"};
    const char *base = "--epochs 2 --clip-norm 0.7 --augment --optimizer adamw ";
    char options[256];
    snprintf(options, sizeof options, "%s --out one.safetensors", base);
    const said *s = run("one device", options);
    double loss = number_of(s->out, "loss"), test_loss = number_of(s->out, "test_loss");
    cr_expect_eq(number_of(s->out, "parts"), 4);
    for (int d = 0; d < 2; d++)
        for (int m = 0; m < 3; m++) {
            snprintf(options, sizeof options, "%s --devices %s %s --out many.safetensors", base, devices[d], more[m]);
            s = run(options, options);
            cr_expect(same_files("one.safetensors", "many.safetensors"), "%s", options);
            cr_expect(number_of(s->out, "loss") == loss && number_of(s->out, "test_loss") == test_loss, "%s: %s", options, s->out);
            cr_expect_eq(number_of(s->out, "ranks"), d ? 4 : 2);
            if (m) cr_expect_eq(number_of(s->out, "zero"), m);
        }
    if (clef("", "train --quiet --limit 32 --epochs 1 --model mlp --device 0/2")->code) return; /* the device does not divide */
    snprintf(options, sizeof options, "%s --devices 0/2#0,0/2#1 --out many.safetensors", base);
    run(options, options);
    cr_expect(same_files("one.safetensors", "many.safetensors"), "halves of a device");
}

/* And another number of parts is another run. */
Test(parts, a_run_is_resumed_exactly_by_any_number) {
    static const char *const devices[] = {"", "--devices 0,0", "--devices 0,0,0,0"};
    char options[256];
    run("whole", "--epochs 3 --schedule plateau --out whole.safetensors");
    for (int i = 0; i < 3; i++) {
        snprintf(options, sizeof options, "--epochs 1 --schedule plateau %s --checkpoint c%d", devices[i], i);
        run("begun", options);
        snprintf(options, sizeof options, "--epochs 3 --schedule plateau %s --checkpoint c%d --resume --out resumed.safetensors",
                 devices[(i + 1) % 3], i);
        const said *s = run("resumed", options);
        cr_expect_eq(number_of(s->out, "resumed_at"), 6, "%s", s->out);
        cr_expect(same_files("whole.safetensors", "resumed.safetensors"), "begun on %s, resumed: %s", devices[i], options);
    }
    const said *s =
        clef("", "train --quiet --data digits --model lenet --limit 160 --batch 24 --parts 2 --epochs 3 --schedule plateau "
                 "--checkpoint c0 --resume");
    cr_expect(s->code == 1 && lines(s->err) == 1 && strstr(s->err, "parts=4"), "%d: %s", s->code, s->err);
}
