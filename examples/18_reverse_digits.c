/* 18_reverse_digits.c — sequence to sequence with attention: an encoder reads digits, a decoder writes them in reverse.  In training it is
   shown the answer so far; then it writes by itself, digit by digit. */
#include <clef.h>
#include <stdio.h>

enum { DIGITS = 6, BATCH = 64, START = 10, SYMBOLS = 11, WIDTH = 32, HEADS = 4, ROUNDS = 400 };

/* Digits, the same in reverse, and what the decoder is shown: START, then the answer but for its last digit. */
static void sequences(int64_t *digits, int64_t *reverse, int64_t *shown) {
    static unsigned state = 1;
    for (int i = 0; i < BATCH * DIGITS; i++) digits[i] = ((state = state * 1664525u + 1013904223u) >> 16) % 10;
    for (int i = 0; i < BATCH * DIGITS; i++) {
        int b = i / DIGITS, t = i % DIGITS;
        reverse[i] = digits[b * DIGITS + DIGITS - 1 - t];
        shown[i] = t ? digits[b * DIGITS + DIGITS - t] : START;
    }
}

static clef_tensor *tokens(clef_context *ctx, const int64_t *of) {
    return clef_from_host(ctx, CLEF_SHAPE(BATCH, DIGITS), CLEF_I64, of);
}

/* Logits [BATCH,DIGITS,SYMBOLS]; the layers are the net's children, in order. */
static clef_tensor *logits(clef_module *net, const int64_t *digits, const int64_t *shown) {
    clef_context *ctx = clef_module_context(net);
    clef_module *embed = clef_module_child(net, "0"), *decoder = clef_module_child(net, "2");
    clef_tensor *place = clef_forward(clef_module_child(net, "3"), clef_arange(ctx, 0, DIGITS, 1, CLEF_I64)), *y = NULL;
    clef_tensor *question = clef_add(clef_forward(embed, tokens(ctx, digits)), place),
                *answer = clef_add(clef_forward(embed, tokens(ctx, shown)), place);
    clef_call(decoder, (clef_tensor *[]){answer, clef_forward(clef_module_child(net, "1"), question)}, 2, &y, 1);
    return clef_forward(clef_module_child(net, "4"), y);
}

int main(void) {
    static int64_t digits[BATCH * DIGITS], reverse[BATCH * DIGITS], shown[BATCH * DIGITS], best[BATCH * DIGITS], right;
    clef_context *ctx = clef_open(&(clef_options){.seed = 1});
    if (!ctx) return fprintf(stderr, "skipped: %s\n", clef_error(NULL)), 77;
    clef_nn_transformer_options layers = {.layers = 1, .hidden = 64}, masked = {.layers = 1, .hidden = 64, .causal = true};
    clef_module *net =
        clef_sequential(ctx, CLEF_LAYERS(clef_nn_embedding(ctx, SYMBOLS, WIDTH), clef_nn_encoder(ctx, WIDTH, HEADS, &layers),
                                         clef_nn_decoder(ctx, WIDTH, HEADS, &masked), clef_nn_embedding(ctx, DIGITS, WIDTH),
                                         clef_nn_linear(ctx, WIDTH, SYMBOLS, NULL))); /* for its parameters */
    clef_optimizer *adam = clef_adam(net, &(clef_adam_options){.lr = 3e-3f});
    clef_loss_options classes_last = {.classes_last = true};
    for (int i = 0; i < ROUNDS; i++) {
        sequences(digits, reverse, shown);
        clef_backward(clef_cross_entropy(logits(net, digits, shown), tokens(ctx, reverse), &classes_last));
        clef_step(adam);
    }
    sequences(digits, reverse, shown);
    for (int t = 0; t < DIGITS; t++) {
        clef_read(clef_argmax(logits(net, digits, shown), 2, false), best, sizeof best);
        for (int b = 0; b < BATCH; b++) right += best[b * DIGITS + t] == reverse[b * DIGITS + t];
        for (int b = 0; b < BATCH && t + 1 < DIGITS; b++) shown[b * DIGITS + t + 1] = best[b * DIGITS + t];
    }
    if (clef_error_status(ctx)) fprintf(stderr, "%s\n", clef_error(ctx));
    printf("%d of %d digits are right\n", (int)right, BATCH * DIGITS);
    return clef_close(ctx), right < 9 * BATCH * DIGITS / 10;
}
