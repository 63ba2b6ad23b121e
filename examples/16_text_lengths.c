/* 16_text_lengths.c — a classifier of word sequences of different lengths: is there more praise than blame?  A GRU in both directions reads
   each text as far as it goes; its last states of both directions decide. */
#include <clef.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 12, BATCH = 64, WORDS = 20, WIDTH = 8, HIDDEN = 16 };

/* Words below 5 praise, those below 10 blame, the others say nothing; behind a text's end there is noise. */
static void texts(unsigned *state, int64_t *words, int64_t *length, int64_t *good) {
    for (int b = 0; b < BATCH; b++) {
        int sum = 0;
        length[b] = 1 + ((*state = *state * 1664525u + 1013904223u) >> 16) % MOST;
        for (int t = 0; t < MOST; t++) {
            int64_t word = words[b * MOST + t] = ((*state = *state * 1664525u + 1013904223u) >> 16) % WORDS;
            if (t < length[b]) sum += word < 5 ? 1 : word < 10 ? -1 : 0;
        }
        good[b] = sum > 0;
    }
}

int main(int argc, char **argv) {
    static int64_t words[BATCH * MOST], length[BATCH], good[BATCH];
    int rounds = argc > 1 ? atoi(argv[1]) : 300;
    unsigned state = 1;
    double loss = 1;
    clef_context *ctx = clef_open(&(clef_options){.seed = 2});
    if (!ctx) return fprintf(stderr, "skipped: %s\n", clef_error(NULL)), 77;
    clef_module *embed = clef_nn_embedding(ctx, WORDS, WIDTH), *head = clef_nn_linear(ctx, 2 * HIDDEN, 2, NULL);
    clef_module *gru =
        clef_nn_gru(ctx, WIDTH, HIDDEN, &(clef_nn_recurrent_options){.recurrent = {.bidirectional = true, .batch_first = true}});
    clef_module *net = clef_sequential(ctx, CLEF_LAYERS(embed, gru, head)); /* for its parameters; below each is called by itself */
    clef_optimizer *adam = clef_adam(net, &(clef_adam_options){.lr = 1e-2f});
    for (int i = 0; i < rounds; i++) {
        texts(&state, words, length, good);
        clef_tensor *x = clef_forward(embed, clef_from_host(ctx, CLEF_SHAPE(BATCH, MOST), CLEF_I64, words)), *out[2];
        clef_call(gru, (clef_tensor *[]){x, CLEF_NONE, clef_from_host(ctx, CLEF_SHAPE(BATCH), CLEF_I64, length)}, 3, out, 2);
        clef_tensor *last = clef_reshape(clef_transpose(out[1], 0, 1), CLEF_SHAPE(BATCH, 2 * HIDDEN));
        clef_tensor *error =
            clef_cross_entropy(clef_forward(head, last), clef_from_host(ctx, CLEF_SHAPE(BATCH), CLEF_I64, good), NULL);
        clef_backward(error);
        clef_step(adam);
        if (i + 1 == rounds) loss = clef_item(error);
    }
    if (clef_error_status(ctx)) fprintf(stderr, "%s\n", clef_error(ctx));
    printf("cross-entropy of the last batch: %.5f\n", loss);
    return clef_close(ctx), !(loss < 0.25);
}
