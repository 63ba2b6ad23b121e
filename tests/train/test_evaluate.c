/* Evaluation against numbers counted by hand: the "network" hands its input on, so the logits are known.
   ctest: plain */
#include "train/train_support.h"
#include <criterion/criterion.h>
#include <math.h>

enum { N = 23, C = 7 };
static float logits[N * C];
static int64_t truth[N];

static clef_tensor *hand_on(clef_module *module, clef_tensor *x, void *user) {
    (void)module;
    (void)user;
    return clef_mul_scalar(x, 1);
}

static void make_data(void) {
    uint32_t state = 12345;
    for (int i = 0; i < N * C; i++) {
        state = state * 1664525u + 1013904223u;
        logits[i] = (float)(state >> 20) / 1000;
    }
    for (int i = 0; i < N; i++) truth[i] = (i * 5) % C;
}

static int rank_of_truth(int i) {
    int above = 0;
    for (int c = 0; c < C; c++) above += logits[i * C + c] > logits[i * C + truth[i]];
    return above;
}

static clef_evaluation_result evaluate(clef_context **ctx, clef_dataset **data) {
    clef_evaluation_result result;
    make_data();
    *ctx = clef_open(NULL);
    cr_assert(*ctx, "%s", clef_error(NULL));
    *data = clef_dataset_arrays(*ctx, logits, CLEF_SHAPE(C), truth, N);
    clef_loader *loader = clef_loader_open(*data, &(clef_loader_options){.batch = 10});
    clef_module *net = clef_module_new(*ctx, "hand_on", hand_on, NULL);
    cr_assert_eq(clef_evaluate(net, loader, NULL, NULL, &result), CLEF_OK, "%s", clef_error(*ctx));
    return result;
}

Test(evaluate, counts_right_answers) {
    clef_context *ctx;
    clef_dataset *data;
    clef_evaluation_result r = evaluate(&ctx, &data);
    int right = 0, top5 = 0;
    double loss = 0;
    for (int i = 0; i < N; i++) {
        double sum = 0;
        for (int c = 0; c < C; c++) sum += exp((double)logits[i * C + c]);
        loss += log(sum) - (double)logits[i * C + truth[i]];
        right += rank_of_truth(i) == 0;
        top5 += rank_of_truth(i) < 5;
    }
    cr_assert_eq(r.items, N);
    cr_assert_eq(r.classes, C);
    cr_assert_float_eq(r.loss, loss / N, 1e-5);
    cr_assert_float_eq(r.accuracy, (double)right / N, 1e-12);
    cr_assert_eq(r.top_k, 5);
    cr_assert_float_eq(r.top_k_accuracy, (double)top5 / N, 1e-12);
    clef_close(ctx);
}

Test(evaluate, fills_the_confusion_matrix) {
    clef_context *ctx;
    clef_dataset *data;
    clef_evaluation_result r = evaluate(&ctx, &data);
    int64_t expected[C][C] = {{0}};
    for (int i = 0; i < N; i++) {
        int guess = 0;
        for (int c = 1; c < C; c++) guess = logits[i * C + c] > logits[i * C + guess] ? c : guess;
        expected[truth[i]][guess]++;
    }
    for (int row = 0; row < C; row++) {
        int64_t in_row = 0, in_column = 0;
        for (int c = 0; c < C; c++) {
            cr_assert_eq(r.confusion[row * C + c], expected[row][c]);
            in_row += expected[row][c];
            in_column += expected[c][row];
        }
        cr_assert_float_eq(r.recall[row], in_row ? (double)expected[row][row] / (double)in_row : 0, 1e-12);
        cr_assert_float_eq(r.precision[row], in_column ? (double)expected[row][row] / (double)in_column : 0, 1e-12);
    }
    clef_close(ctx);
}

Test(evaluate, draws_the_confusion_matrix) {
    clef_context *ctx;
    clef_dataset *data;
    clef_evaluation_result r = evaluate(&ctx, &data);
    char dir[64], path[128], text[4096], small[10];
    int length = clef_confusion_text(&r, data, text, sizeof text), lines = 0;
    cr_assert(length > 0 && (size_t)length < sizeof text);
    cr_assert_eq((size_t)length, strlen(text));
    for (char *p = text; *p; p++) lines += *p == '\n';
    cr_assert_eq(lines, C + 1);
    cr_assert_eq(clef_confusion_text(&r, data, small, sizeof small), length);
    cr_assert_eq(strlen(small), sizeof small - 1);
    cr_assert(fresh_directory(dir));
    snprintf(path, sizeof path, "%s/confusion.svg", dir);
    cr_assert_eq(clef_confusion_svg(ctx, &r, data, path), CLEF_OK, "%s", clef_error(ctx));
    FILE *file = fopen(path, "r");
    cr_assert(file && fgets(text, sizeof text, file));
    cr_assert(!strncmp(text, "<svg ", 5));
    fclose(file);
    cr_assert_eq(clef_confusion_svg(ctx, &r, data, "/dev/null/none/x.svg"), CLEF_IO);
    cr_assert(strstr(clef_error(ctx), "/dev/null/none/x.svg"));
    remove_directory(dir);
    clef_close(ctx);
}

Test(evaluate, leaves_the_module_as_it_was_and_repeats_itself) {
    rig r = rig_open((rig_options){.dropout = true});
    clef_evaluation_result a, b;
    clef_set_training(r.net, true);
    cr_assert_eq(clef_evaluate(r.net, r.train, NULL, NULL, &a), CLEF_OK, "%s", clef_error(r.ctx));
    cr_assert(clef_is_training(r.net) && clef_grad_enabled(r.ctx));
    cr_assert_eq(clef_evaluate(r.net, r.train, NULL, NULL, &b), CLEF_OK);
    cr_assert_eq(a.loss, b.loss);
    cr_assert_eq(a.accuracy, b.accuracy);
    clef_close(r.ctx);
}

/* In training, evaluating the same loader changes nothing of what comes next: neither the place nor the order of the next epochs. */
Test(evaluate, a_training_loader_goes_on_where_it_was) {
    rig r = rig_open((rig_options){0});
    clef_evaluation_result result;
    clef_batch b;
    float first[2][32 * 64];
    for (int asked = 0; asked < 2; asked++) {
        cr_assert_eq(clef_loader_set(r.train, (clef_loader_state){.seed = 5}), CLEF_OK);
        while (clef_next(r.train, &b)) continue;
        if (asked) cr_assert_eq(clef_evaluate(r.net, r.train, NULL, NULL, &result), CLEF_OK, "%s", clef_error(r.ctx));
        cr_expect(clef_loader_get(r.train).epoch == 1 && clef_loader_get(r.train).batch == 0);
        cr_assert(clef_next(r.train, &b) && clef_next(r.train, &b));
        if (asked) cr_assert_eq(clef_evaluate(r.net, r.train, NULL, NULL, &result), CLEF_OK, "%s", clef_error(r.ctx));
        cr_assert(clef_next(r.train, &b));
        cr_assert_eq(clef_read(b.x, first[asked], sizeof first[asked]), CLEF_OK);
    }
    cr_expect_arr_eq(first[0], first[1], sizeof first[0]);
    clef_close(r.ctx);
}

Test(evaluate, any_k_may_be_asked_for) {
    clef_context *ctx;
    clef_dataset *data;
    evaluate(&ctx, &data);
    clef_loader *loader = clef_loader_open(data, &(clef_loader_options){.batch = 10});
    clef_module *net = clef_module_new(ctx, "hand_on", hand_on, NULL);
    for (int k = 1; k <= C; k++) {
        clef_evaluation_result r;
        int within = 0;
        for (int i = 0; i < N; i++) within += rank_of_truth(i) < k;
        cr_assert_eq(clef_evaluate_top_k(net, loader, NULL, NULL, k, &r), CLEF_OK, "%s", clef_error(ctx));
        cr_assert_eq(r.top_k, k);
        cr_assert_float_eq(r.top_k_accuracy, (double)within / N, 1e-12);
    }
    cr_assert_eq(clef_evaluate_top_k(net, loader, NULL, NULL, -1, &(clef_evaluation_result){0}), CLEF_INVALID);
    cr_assert(strstr(clef_error(ctx), "top_k is -1"));
    clef_close(ctx);
}
