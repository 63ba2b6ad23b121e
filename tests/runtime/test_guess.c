/* "Did you mean": slips are found, other words are not. */
#include <clef.h>
#include <criterion/criterion.h>
#include <string.h>

static const char *const words[] = {
    "train",           "eval", "bench", "tune", "cache", "devices", "checkpoint", "checkpoint-every", "0.weight",
    "features.0.bias", NULL,   ""};

static void expect(const char *word, const char *meant) {
    const char *got = clef_closest(word, words, sizeof words / sizeof *words);
    cr_expect(got == meant || (got && meant && !strcmp(got, meant)), "%s: %s, not %s", word ? word : "NULL", got ? got : "none",
              meant ? meant : "none");
}

Test(guess, slips) {
    expect("trian", "train"); /* swapped */
    expect("tran", "train");  /* left out */
    expect("benchh", "bench");
    expect("cavhe", "cache");
    expect("device", "devices");
    expect("0.wieght", "0.weight");
}

Test(guess, parts_of_words) {
    expect("check", "checkpoint");
    const char *const nets[] = {"lenet", "resnet18"};
    cr_expect_str_eq(clef_closest("resnet", nets, 2), "resnet18", "among equally near ones what begins so");
    expect("weight", "0.weight");
    expect("0.bias", "features.0.bias");
    expect("model.0.weight", "0.weight");
}

Test(guess, other_words) {
    char longest[400];
    memset(longest, 'a', sizeof longest);
    longest[sizeof longest - 1] = 0;
    expect("dance", NULL);
    expect("x", NULL);
    expect("", NULL);
    expect(NULL, NULL);
    expect(longest, NULL);
    cr_expect_null(clef_closest("train", NULL, 3));
    cr_expect_null(clef_closest("train", words, 0));
    cr_expect_str_eq(clef_closest("train", words, 1), "train");
}
