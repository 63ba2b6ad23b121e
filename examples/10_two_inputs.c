/* 10_two_inputs.c — a module with two inputs and two outputs, and a dataset of whole numbers, floats and two targets.
   An item is six words and a time of day.  The first output is the sum of what the words are worth, times the time of day; the
   second tells whether three words or more are of one kind.  Both depend on what the embedding learns of each word. */
#include <clef.h>
#include <stdio.h>
#include <stdlib.h>

enum { ITEMS = 512, WORDS = 6, VOCABULARY = 8, WIDTH = 3 };

static clef_status two_heads(clef_module *module, clef_tensor *const *in, int n, clef_tensor **out, int m, void *user) {
    (void)n, (void)m, (void)user;
    clef_tensor *words = clef_sum(clef_forward(clef_module_child(module, "words"), in[0]), (int[]){1}, 1, false);
    clef_tensor *both = clef_concat((clef_tensor *[]){words, in[1]}, 2, 1);
    clef_tensor *hidden = clef_relu(clef_forward(clef_module_child(module, "hidden"), both));
    out[0] = clef_forward(clef_module_child(module, "amount"), hidden);
    out[1] = clef_forward(clef_module_child(module, "kind"), hidden);
    return CLEF_OK;
}

static clef_tensor *both_losses(clef_tensor *const *out, int n_outputs, clef_tensor *const *target, int n_targets, void *user) {
    (void)n_outputs, (void)n_targets, (void)user;
    return clef_add(clef_mse_loss(out[0], target[0], NULL), clef_cross_entropy(out[1], target[1], NULL));
}

int main(int argc, char **argv) {
    static int64_t words[ITEMS][WORDS];
    static float times[ITEMS], amount[ITEMS];
    static uint8_t kind[ITEMS];
    unsigned state = 1;
    for (int i = 0; i < ITEMS; i++) {
        int of_kind = 0;
        times[i] = (float)(i % 24) / 24;
        for (int k = 0; k < WORDS; k++) {
            int64_t word = words[i][k] = (state = state * 1664525u + 1013904223u) >> 29;
            amount[i] += times[i] * ((float)(word * 3 % VOCABULARY) / 4 - 1);
            of_kind += word == 1 || word == 4 || word == 6;
        }
        kind[i] = of_kind >= 3;
    }
    clef_context *ctx = clef_open(&(clef_options){.seed = 5});
    if (!ctx) return fprintf(stderr, "skipped: %s\n", clef_error(NULL)), 77;
    clef_field fields[] = {{.name = "words", .shape = CLEF_SHAPE(WORDS), .dtype = CLEF_I64, .data = words},
                           {.name = "time", .shape = CLEF_SHAPE(1), .dtype = CLEF_F32, .data = times},
                           {.name = "amount", .shape = CLEF_SHAPE(1), .dtype = CLEF_F32, .data = amount, .target = true},
                           {.name = "kind", .shape = CLEF_SCALAR, .dtype = CLEF_U8, .data = kind, .target = true}};
    clef_loader *data = clef_loader_open(clef_dataset_fields(ctx, fields, 4, ITEMS), &(clef_loader_options){.shuffle = true});
    clef_module *net = clef_module_new_call(ctx, "two_heads", two_heads, 2, 2, NULL);
    clef_module_add(net, "words", clef_nn_embedding(ctx, VOCABULARY, WIDTH));
    clef_module_add(net, "hidden", clef_nn_linear(ctx, WIDTH + 1, 64, NULL));
    clef_module_add(net, "amount", clef_nn_linear(ctx, 64, 1, NULL));
    clef_module_add(net, "kind", clef_nn_linear(ctx, 64, 2, NULL));
    clef_optimizer *adam = clef_adam(net, &(clef_adam_options){.lr = 5e-3});
    clef_fit_options options = {
        .train = data, .optimizer = adam, .loss_call = both_losses, .epochs = argc > 1 ? atoi(argv[1]) : 40, .bar = stderr};
    const clef_history *history;
    double loss = clef_fit(net, &options, &history) ? 1 : history->epoch[history->n - 1].loss;
    if (clef_error_status(ctx)) fprintf(stderr, "%s\n", clef_error(ctx));
    printf("sum of both losses: %.5f\n", loss);
    return clef_close(ctx), !(loss < 0.02);
}
