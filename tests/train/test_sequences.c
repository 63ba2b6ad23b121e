/* Sequences of classes through loss, fit and evaluate, against sums on the host in double precision; contexts are as long as there are
   classes, so that a loss which took the wrong dimension for classes would fit all the same, and be seen.
   ctest: plain together */
#include "support/device.h"

static clef_context *ctx;
static void open_ctx(void) { ctx = open_seeded(3); }
static void close_ctx(void) { close_clean(ctx); }
TestSuite(sequences, .init = open_ctx, .fini = close_ctx);

/* -log softmax(x)[y] */
static double loss_of(const float *x, int64_t n, int64_t y) {
    double most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, (double)x[i]);
    for (int64_t i = 0; i < n; i++) sum += exp((double)x[i] - most);
    return most + log(sum) - (double)x[y];
}

Test(sequences, losses_take_classes_last) {
    enum { B = 3, T = 5, C = 5 };
    int64_t target[B * T];
    for (int i = 0; i < B * T; i++) target[i] = i == 7 ? -100 : i * 3 % C;
    clef_loss_options o = {.classes_last = true, .has_ignore_index = true, .ignore_index = -100, .reduction = CLEF_REDUCE_NONE};
    clef_tensor *x = clef_keep(noise_tensor(ctx, CLEF_SHAPE(B, T, C), 1)),
                *y = clef_from_host(ctx, CLEF_SHAPE(B, T), CLEF_I64, target);
    clef_tensor *other = clef_copy(clef_permute(x, (int[]){0, 2, 1}));
    clef_loss_options plain = o;
    plain.classes_last = false;
    clef_require_grad(x, true);
    float *host = values(x), *each = values(clef_cross_entropy(x, y, &o)), *same = values(clef_cross_entropy(other, y, &plain)),
          *nll = values(clef_nll_loss(clef_log_softmax(x, 2), y, &o));
    for (int i = 0; i < B * T; i++) {
        double want = target[i] < 0 ? 0 : loss_of(host + i * C, C, target[i]);
        cr_expect_float_eq(each[i], want, 1e-5);
        cr_expect_float_eq(nll[i], want, 1e-5);
        cr_expect_eq(each[i], same[i]);
    }
    o.reduction = CLEF_REDUCE_SUM;
    cr_assert_eq(clef_backward(clef_cross_entropy(x, y, &o)), CLEF_OK, "%s", clef_error(ctx));
    float *grad = values(clef_grad_of(x));
    for (int i = 0; i < B * T; i++)
        for (int c = 0; c < C; c++) {
            double p = exp(-loss_of(host + i * C, C, c)), want = target[i] < 0 ? 0 : p - (c == target[i]);
            cr_expect_float_eq(grad[i * C + c], want, 1e-5);
        }
    clef_tensor *q = clef_softmax(noise_tensor(ctx, CLEF_SHAPE(B, T, C), 2), 2);
    clef_loss_options mean = {.classes_last = true};
    double sum = 0;
    float *share = values(q);
    for (int i = 0; i < B * T; i++)
        for (int c = 0; c < C; c++) sum += (double)share[i * C + c] * loss_of(host + i * C, C, c);
    cr_expect_float_eq(clef_item(clef_cross_entropy(x, q, &mean)), sum / (B * T), 1e-5);
    free(host), free(each), free(same), free(nll), free(grad), free(share);
    clef_release(x);
}

/* Of [b,t,c] as a product gives them, and seen as [b·t,c]; losses and slopes. */
static clef_plan_size size_of_step(clef_tensor *x, clef_tensor *w, clef_tensor *y, bool as_rows) {
    clef_plan_size size = {0};
    clef_loss_options o = {.classes_last = !as_rows};
    clef_shape shape = clef_tensor_shape(x);
    int64_t rows = shape.dim[0] * shape.dim[1], classes = clef_tensor_shape(w).dim[1];
    clef_set_dry_run(ctx, true);
    clef_tensor *logits = clef_matmul(x, w), *grad = NULL;
    if (as_rows) logits = clef_reshape(logits, CLEF_SHAPE(rows, classes)), y = clef_reshape(y, CLEF_SHAPE(rows));
    clef_tensor *loss = clef_cross_entropy(logits, y, &o);
    cr_expect_eq(clef_grad(loss, CLEF_NONE, &w, 1, false, &grad), CLEF_OK, "%s", clef_error(ctx));
    cr_expect_eq(clef_eval_all((clef_tensor *[]){loss, grad}, 2), CLEF_OK, "%s", clef_error(ctx));
    cr_expect_eq(clef_plan_memory(ctx, &size), CLEF_OK);
    clef_set_dry_run(ctx, false);
    return size;
}

/* Classes that are last lie where the loss wants them: nothing is permuted in memory. */
Test(sequences, losses_of_classes_last_copy_nothing) {
    static const int64_t classes[] = {65, 1000};
    for (int i = 0; i < 2; i++) {
        clef_tensor *x = clef_keep(noise_tensor(ctx, CLEF_SHAPE(4, 48, 24), 1)),
                    *w = clef_require_grad(clef_keep(noise_tensor(ctx, CLEF_SHAPE(24, classes[i]), 2)), true),
                    *y = clef_keep(clef_randint(ctx, 0, classes[i], CLEF_SHAPE(4, 48)));
        cr_assert_eq(clef_eval_all((clef_tensor *[]){x, w, y}, 3), CLEF_OK);
        clef_plan_size last = size_of_step(x, w, y, false), rows = size_of_step(x, w, y, true);
        cr_expect_gt(rows.launches, 1);
        cr_expect_eq(last.launches, rows.launches);
        cr_expect_leq(last.temporary_bytes, rows.temporary_bytes);
        cr_expect_leq(last.result_bytes, rows.result_bytes);
        clef_release(x), clef_release(w), clef_release(y);
    }
}

/* ---- a table of bigrams: logits of the next class are a row for each class ---- */
enum { C = 6, T = 6, ITEMS = 21 };
static int64_t words[ITEMS * T], next[ITEMS * T];

static clef_dataset *sequences(void) {
    for (int i = 0; i < ITEMS * T; i++) {
        words[i] = i * i % C;
        next[i] = i % 11 == 3 || i >= (ITEMS - 1) * T + 1 ? CLEF_NO_TARGET : (words[i] * 2 + i % 2) % C;
    }
    clef_field fields[] = {{.name = "words", .shape = CLEF_SHAPE(T), .dtype = CLEF_I64, .data = words},
                           {.name = "next", .shape = CLEF_SHAPE(T), .dtype = CLEF_I64, .data = next, .target = true, .classes = C}};
    return clef_dataset_fields(ctx, fields, 2, ITEMS);
}

typedef struct score {
    double loss, accuracy, top;
    int64_t answers, confusion[C * C];
} score;

static score score_by_hand(const float *table, int top) {
    score s = {0};
    for (int i = 0; i < ITEMS * T; i++) {
        if (next[i] < 0) continue;
        const float *x = table + words[i] * C;
        int above = 0, guess = 0;
        for (int c = 0; c < C; c++) above += x[c] > x[next[i]], guess = x[c] > x[guess] ? c : guess;
        s.answers++;
        s.loss += loss_of(x, C, next[i]);
        s.accuracy += guess == next[i];
        s.top += above < top;
        s.confusion[next[i] * C + guess]++;
    }
    s.loss /= (double)s.answers, s.accuracy /= (double)s.answers, s.top /= (double)s.answers;
    return s;
}

Test(sequences, are_evaluated_over_the_targets_that_count) {
    clef_dataset *data = sequences();
    cr_assert(data, "%s", clef_error(ctx));
    cr_expect_eq(clef_dataset_classes(data), C);
    clef_module *net = clef_nn_embedding(ctx, C, C);
    float *table = values(clef_module_tensor(net, 0).tensor);
    score want = score_by_hand(table, 2);
    for (int64_t batch = 1; batch <= ITEMS + 1; batch += 5) {
        clef_loader *loader = clef_loader_open(data, &(clef_loader_options){.batch = batch});
        clef_evaluation_result r;
        cr_assert_eq(clef_evaluate_top_k(net, loader, NULL, NULL, 2, &r), CLEF_OK, "%s", clef_error(ctx));
        cr_expect(r.items == ITEMS && r.answers == want.answers && r.classes == C);
        cr_expect_float_eq(r.loss, want.loss, 1e-6);
        cr_expect_float_eq(r.perplexity, exp(want.loss), 1e-5);
        cr_expect_float_eq(r.accuracy, want.accuracy, 1e-12);
        cr_expect_float_eq(r.top_k_accuracy, want.top, 1e-12);
        cr_expect_arr_eq(r.confusion, want.confusion, sizeof want.confusion);
        clef_loss_options o = {.classes_last = true, .has_ignore_index = true, .ignore_index = CLEF_NO_TARGET};
        cr_assert_eq(clef_evaluate(net, loader, clef_cross_entropy, &o, &r), CLEF_OK, "%s",
                     clef_error(ctx)); /* a function of one's own */
        cr_expect(isfinite(r.loss) && isnan(r.perplexity));
        cr_expect_float_eq(r.accuracy, want.accuracy, 1e-12);
    }
    free(table);
}

static clef_tensor *equal_logits(clef_module *module, clef_tensor *x, void *user) {
    (void)user;
    return clef_zeros(clef_module_context(module), CLEF_SHAPE(clef_tensor_shape(x).dim[0], T, C), CLEF_F32);
}

Test(sequences, equal_logits_rank_by_their_class) {
    clef_loader *loader = clef_loader_open(sequences(), NULL);
    clef_evaluation_result r;
    cr_assert_eq(clef_evaluate_top_k(clef_module_new(ctx, "equal", equal_logits, NULL), loader, NULL, NULL, 2, &r), CLEF_OK);
    int64_t first = 0, two = 0;
    for (int i = 0; i < ITEMS * T; i++) first += next[i] == 0, two += next[i] == 0 || next[i] == 1;
    cr_expect_float_eq(r.accuracy, (double)first / (double)r.answers, 1e-12);
    cr_expect_float_eq(r.top_k_accuracy, (double)two / (double)r.answers, 1e-12);
    cr_expect_float_eq(r.perplexity, C, 1e-4);
}

Test(sequences, are_learned_by_fit) {
    clef_module *net = clef_nn_embedding(ctx, C, C);
    clef_loader_options o = {.batch = ITEMS};
    clef_loader *train = clef_loader_open(sequences(), &o), *test = clef_loader_open(sequences(), &o);
    float *table = values(clef_module_tensor(net, 0).tensor);
    clef_optimizer *sgd = clef_sgd(net, &(clef_sgd_options){.lr = 4});
    const clef_history *h;
    cr_assert_eq(clef_fit(net, &(clef_fit_options){.train = train, .test = test, .optimizer = sgd, .epochs = 3}, &h), CLEF_OK, "%s",
                 clef_error(ctx));
    for (int epoch = 0; epoch < 3; epoch++) { /* gradient descent by hand */
        score before = score_by_hand(table, 1);
        double grad[C * C] = {0};
        for (int i = 0; i < ITEMS * T; i++)
            for (int c = 0; c < C && next[i] >= 0; c++)
                grad[words[i] * C + c] += exp(-loss_of(table + words[i] * C, C, c)) - (c == next[i]);
        for (int k = 0; k < C * C; k++) table[k] -= (float)(4 * grad[k] / (double)before.answers);
        score after = score_by_hand(table, 1);
        cr_expect_float_eq(h->epoch[epoch].loss, before.loss, 1e-5);
        cr_expect_float_eq(h->epoch[epoch].accuracy, before.accuracy, 1e-6);
        cr_expect_float_eq(h->epoch[epoch].test_loss, after.loss, 1e-5);
        cr_expect_float_eq(h->epoch[epoch].test_accuracy, after.accuracy, 1e-12);
    }
    free(table);
}

Test(sequences, with_a_label_that_is_no_class_say_which) {
    clef_field fields[] = {{.name = "words", .shape = CLEF_SHAPE(T), .dtype = CLEF_I64, .data = words},
                           {.name = "next", .shape = CLEF_SHAPE(T), .dtype = CLEF_I64, .data = next, .target = true, .classes = C}};
    sequences();
    next[5 * T + 2] = -3;
    clef_loader *loader = clef_loader_open(clef_dataset_fields(ctx, fields, 2, ITEMS), NULL);
    clef_module *net = clef_nn_embedding(ctx, C, C);
    clef_evaluation_result r;
    cr_expect_eq(clef_evaluate(net, loader, NULL, NULL, &r), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "label -3 of item 5 is no class of the module's 6 outputs");
    clef_loader_state stands = clef_loader_get(loader); /* as if it had not been gone through */
    cr_expect(stands.epoch == 0 && stands.batch == 0);
    clef_optimizer *sgd = clef_sgd(net, &(clef_sgd_options){.lr = 1});
    cr_expect_eq(clef_fit(net, &(clef_fit_options){.train = loader, .optimizer = sgd}, NULL), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "label -3 of its item 5");
    next[5 * T + 2] = C;
    cr_expect(!clef_dataset_fields(ctx, fields, 2, ITEMS));
    expect_error(ctx, CLEF_INVALID, "has a class that is not below its classes");
}
