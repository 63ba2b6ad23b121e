/* What the command says to wrong words, missing devices and missing data: one line and the right exit code. */
#include "tools/tool_support.h"

TestSuite(usage, .init = enter_workplace, .fini = leave_workplace);

static void refused(const char *environment, const char *arguments, int code, const char *says) {
    const said *s = clef(environment, arguments);
    cr_expect_eq(s->code, code, "clef %s: exit code %d, %s", arguments, s->code, s->err);
    cr_expect_eq(lines(s->err), 1, "clef %s: %s", arguments, s->err);
    cr_expect(strstr(s->err, says), "clef %s: %s", arguments, s->err);
    cr_expect_str_eq(s->out, "", "clef %s", arguments);
}

Test(usage, wrong_words) {
    refused("", "dance", 2, "unknown verb \"dance\"");
    refused("", "train --epoch 3", 2, "unknown option --epoch");
    refused("", "train --epochs", 2, "missing");
    refused("", "train --epochs many", 2, "--epochs wants a whole number");
    refused("", "train --epochs 0", 2, "--epochs wants");
    refused("", "train --lr fast", 2, "--lr wants a number");
    refused("", "train --lr=-1", 2, "--lr wants a number");
    refused("", "train --model vgg", 2, "mlp|lenet|cnn|resnet18");
    refused("", "train --model ''", 2, "mlp|lenet|cnn|resnet18");
    refused("", "train --data faces", 2, "digits | mnist");
    refused("", "train --data digits:dir", 2, "digits | mnist");
    refused("", "train --json=yes", 2, "no value");
    refused("", "train now", 2, "surplus word");
    refused("", "train --resume", 2, "--checkpoint");
    refused("", "train --model lenet --recompute", 2, "resnet18");
    refused("", "train --optimizer adam --momentum 0.9", 2, "--momentum");
    refused("", "train --momentum 0.9", 2, "--momentum"); /* digits: adam by default */
    refused("", "train --milestones 1,2", 2, "--milestones belongs");
    refused("", "train --schedule multistep --milestones 3,2", 2, "ascending");
    refused("", "train --schedule multistep --milestones 3,", 2, "ascending");
    refused("", "train --schedule plateau --warmup 5", 2, "--warmup");
    refused("", "train --devices 0,0 --device 0", 2, "--device is one device");
    refused("", "train --shares 1:1", 2, "--shares needs several devices");
    refused("", "train --devices 0,0 --shares 3:1 --rebalance-every 9", 2, "--rebalance-every belongs to --shares auto");
    refused("", "train --devices 0,0 --parts 2 --shares auto", 2, "--parts are equally large");
    refused("", "train --devices 0,0 --shares automatic", 2, "--shares wants auto, or");
    refused("", "train --parts 3", 2, "power of two");
    refused("", "train --parts 0", 2, "--parts");
    refused("", "train --parts 4 --devices 0,0 --shares 1:1", 2, "--parts are equally large");
    refused("", "train --sum-units 2", 2, "--sum-units belongs to --parts");
    refused("", "train --data text", 2, "text:FILE");
    refused("", "train --data text:", 2, "text:FILE");
    refused("", "train --data text:f --model mlp", 2, "--model gpt, llama or lstm");
    refused("", "train --data mnist --model gpt", 2, "want --data text:FILE");
    refused("", "train --layers 3", 2, "belong to --data text:FILE");
    refused("", "train --data text:f --kv-heads 2", 2, "--kv-heads belongs to --model llama");
    refused("", "train --data text:f --dropout 1", 2, "--dropout wants");
    refused("", "train --data text:f --model llama --no-bias", 2, "--no-bias and --activation belong to --model gpt");
    refused("", "train --data text:f --activation relu", 2, "--activation wants gelu|gelu_tanh");
    refused("", "train --data text:f --augment", 2, "--augment is for images");
    refused("", "train --data text:f --beta2 1", 2, "--beta2 wants");
    refused("", "train --optimizer sgd --beta2 0.9", 2, "--beta2 belongs");
    refused("", "train --schedule step --min-lr 1e-5", 2, "--min-lr belongs");
    refused("", "train --lr 1e-3 --min-lr 1e-2", 2, "--min-lr wants");
    refused("", "train --zero 1", 2, "--zero needs several devices");
    refused("", "train --timeout 5", 2, "--timeout needs several devices");
    refused("", "train --zero 3 --devices 0,0", 2, "--zero wants 1|2");
    refused("", "train --devices 0,0 --shares 3:0", 2, "--shares wants");
    refused("", "train --devices 0,0 --shares 3:1:", 2, "--shares wants");
    refused("", "eval --weights w --top-k 0", 2, "--top-k wants");
    refused("", "cache burn", 2, "show|verify|clear");
    refused("", "eval", 2, "--weights");
}

/* Of the five verbs that multiply, and of no other. */
Test(usage, precision_of_products) {
    static const char *const verbs[] = {"train", "eval", "bench", "tune", "generate"};
    char arguments[64];
    for (int i = 0; i < 5; i++) {
        snprintf(arguments, sizeof arguments, "%s --matmul-precision higher", verbs[i]);
        refused("", arguments, 2, "--matmul-precision wants highest|high, not \"higher\"; did you mean high");
        snprintf(arguments, sizeof arguments, "%s --matmul-precision", verbs[i]);
        refused("", arguments, 2, "a value is missing");
        snprintf(arguments, sizeof arguments, "%s --help", verbs[i]);
        cr_expect(strstr(clef("", arguments)->out, "--matmul-precision highest|high"), "%s", verbs[i]);
    }
    refused("", "devices --matmul-precision high", 2, "unknown option --matmul-precision");
    refused("", "cache --matmul-precision high", 2, "unknown option --matmul-precision");
    refused("CLEF_MATMUL_PRECISION=exact", "bench copy", 2, "CLEF_MATMUL_PRECISION is \"exact\"; it is highest or high");
    refused("CLEF_MATMUL_PRECISION=exact", "train --devices 0,0", 2, "CLEF_MATMUL_PRECISION is \"exact\"; it is highest or high");
}

/* Verbs, options, choices and data sets. */
Test(usage, did_you_mean) {
    refused("", "trian", 2, "unknown verb \"trian\"; did you mean train?");
    refused("", "train --epoch 3", 2, "unknown option --epoch; did you mean --epochs?");
    refused("", "train --check=dir", 2, "unknown option --check=dir; did you mean --checkpoint?");
    refused("", "train -epochs 3", 2, "unknown option -epochs; did you mean --epochs?");
    refused("", "train --model resnet", 2, "not \"resnet\"; did you mean resnet18?");
    refused("", "train --optimizer adma", 2, "did you mean adam?");
    refused("", "train --schedule cosin", 2, "did you mean cosine?");
    refused("", "train --data minst:here", 2, "not \"minst:here\"; did you mean mnist?");
    refused("", "cache shwo", 2, "not \"shwo\"; did you mean show?");
    refused("", "bench gem", 2, "not \"gem\"; did you mean gemm?");
    cr_expect_null(strstr(clef("", "dance")->err, "mean"));
}

Test(usage, help_and_version) {
    const said *s = clef("", "");
    cr_expect_eq(s->code, 2);
    s = clef("", "--help");
    cr_expect_eq(s->code, 0);
    cr_expect(strstr(s->out, "train") && strstr(s->out, "cache") && !*s->err);
    s = clef("", "train --help");
    cr_expect_eq(s->code, 0);
    cr_expect(strstr(s->out, "--checkpoint-every N") && strstr(s->out, "--seed S") && !*s->err);
    s = clef("", "--version");
    cr_expect_eq(s->code, 0);
    cr_expect(strstr(s->out, "clef 0.") && strstr(s->out, "components:"));
}

Test(usage, unknown_device) {
    refused("", "train --device nonesuch", 2, "nonesuch");
    refused("CLEF_DEVICE=99", "bench", 2, "99");
    refused("", "train --devices nonesuch,0", 2, "nonesuch");
    refused("", "train --devices 0,,0", 2, "empty part");
    refused("", "train --devices 0,0,0 --parts 4", 2, "--parts 4 cannot be divided among 3 devices");
    refused("", "train --devices 0,0 --shares 3:1:1", 2, "--shares is for 3 devices, and there are 2");
}

Test(usage, no_opencl) {
    refused("OCL_ICD_VENDORS=/dev/null/none", "devices", 77, "");
    refused("OCL_ICD_VENDORS=/dev/null/none", "train --json", 77, "");
    refused("OCL_ICD_VENDORS=/dev/null/none", "train --devices 0,1", 77, "");
    refused("OCL_ICD_VENDORS=/dev/null/none", "bench", 77, "");
    cr_expect_eq(clef("OCL_ICD_VENDORS=/dev/null/none", "--version")->code, 0);
}

Test(usage, missing_files) {
    refused("", "train --quiet --data mnist:/dev/null/none", 1, "/dev/null/none");
    refused("env -u CLEF_DATA", "train --quiet --data cifar10", 1, "CLEF_DATA");
    refused("", "eval --weights /dev/null/none.safetensors", 1, "/dev/null/none.safetensors");
}

/* Before the work is done that would be lost: 1e9 epochs would not end within the test's time. */
Test(usage, results_that_cannot_be_written) {
    refused("", "train --json --epochs 1000000000 --out /dev/null/none/w.safetensors", 1, "--out: cannot write /dev/null/none/w");
    refused("", "train --json --epochs 1000000000 --out .", 1, "--out: cannot write .");
    refused("", "train --json --epochs 1000000000 --csv /dev/null/none/log", 1, "--csv: cannot write");
    refused("", "train --json --epochs 1000000000 --checkpoint /dev/null/none/a", 1,
            "--checkpoint: cannot write /dev/null/none/a:");
    cr_expect_eq(clef("", "train --quiet --model mlp --epochs 1 --limit 64 --checkpoint new/a --out w")->code, 0);
}

Test(usage, stdout_that_cannot_be_written_is_a_failure) {
    char command[512];
    snprintf(command, sizeof command, "'%s' --help >/dev/full 2>/dev/null", CLEF_TEST_TOOL);
    if (access("/dev/full", W_OK)) cr_skip("no /dev/full");
    cr_expect_eq(WEXITSTATUS(system(command)), 1);
}
