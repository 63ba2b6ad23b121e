/* 05_lenet.c — LeNet on MNIST from first to last: train, evaluate, save, load into a second network, predict, draw.
       CLEF_DATA=… 05_lenet [IMAGES] [EPOCHS]      (60000 2: about 98.6 %) */
#include <clef.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIDE = 28, PIXELS = SIDE * SIDE, SHOWN = 3 };
static const char file[] = "lenet.safetensors";

/* Two rows of pixels per line of text. */
static void draw(const float *image) {
    for (int y = 0; y < SIDE; y += 2) {
        for (int x = 0; x < SIDE; x++) {
            float ink = (image[y * SIDE + x] + image[(y + 1) * SIDE + x]) / 2;
            putchar(" .:-=+*#%@"[(int)(ink * 9.99f)]);
        }
        putchar('\n');
    }
}

static void predict(clef_context *ctx, clef_module *net, clef_dataset *test) {
    for (int i = 0; i < SHOWN; i++) {
        float image[PIXELS], scaled[PIXELS];
        int64_t truth = -1, guess = -1;
        clef_dataset_get(test, i, image, &truth);
        for (int p = 0; p < PIXELS; p++) scaled[p] = (image[p] - 0.1307f) / 0.3081f;
        for (CLEF_NO_GRAD(ctx)) {
            clef_tensor *x = clef_from_host(ctx, CLEF_SHAPE(1, 1, SIDE, SIDE), CLEF_F32, scaled);
            clef_read(clef_argmax(clef_forward(net, x), 1, false), &guess, sizeof guess);
        }
        draw(image);
        printf("this is a %lld; the network says %lld\n", (long long)truth, (long long)guess);
    }
}

int main(int argc, char **argv) {
    clef_context *ctx = clef_open(&(clef_options){.seed = 1});
    if (!ctx) return fprintf(stderr, "skipped: %s\n", clef_error(NULL)), 77;
    clef_dataset *train = clef_mnist(ctx, NULL, CLEF_TRAIN), *test = clef_mnist(ctx, NULL, CLEF_TEST);
    if (!train || !test) return fprintf(stderr, "skipped: %s\n", clef_error(ctx)), clef_close(ctx), 77;

    static const float mean[] = {0.1307f}, std[] = {0.3081f};
    train = clef_dataset_take(train, argc > 1 ? atoll(argv[1]) : 10000);
    clef_module *net = clef_model_lenet(ctx, CLEF_SHAPE(1, SIDE, SIDE), 10);
    clef_optimizer *sgd = clef_sgd(net, &(clef_sgd_options){.lr = 0.05, .momentum = 0.9});
    clef_loader *batches = clef_loader_open(train, &(clef_loader_options){.batch = 100, .shuffle = true, .mean = mean, .std = std});
    clef_loader *tests = clef_loader_open(test, &(clef_loader_options){.batch = 250, .mean = mean, .std = std});
    int64_t epochs = argc > 2 ? atoll(argv[2]) : 1;
    clef_schedule *cosine = clef_schedule_new(
        sgd, &(clef_schedule_options){.kind = CLEF_SCHEDULE_COSINE, .total = epochs * clef_loader_batches(batches)});
    clef_fit(net,
             &(clef_fit_options){.train = batches,
                                 .test = tests,
                                 .optimizer = sgd,
                                 .epochs = epochs,
                                 .bar = stderr,
                                 .schedule = cosine,
                                 .schedule_per_step = true},
             NULL);
    clef_save(net, file);

    clef_module *copy = clef_model_lenet(ctx, CLEF_SHAPE(1, SIDE, SIDE), 10);
    clef_evaluation_result before = {0}, after = {0};
    clef_load(copy, file);
    clef_evaluate(net, tests, NULL, NULL, &before);
    clef_evaluate(copy, tests, NULL, NULL, &after);
    printf("accuracy %.2f %%, of the loaded copy %.2f %%\n", 100 * before.accuracy, 100 * after.accuracy);
    clef_set_training(copy, false);
    predict(ctx, copy, test);

    int failed = clef_error_status(ctx) || before.accuracy < 0.8 || after.accuracy != before.accuracy;
    if (clef_error_status(ctx)) fprintf(stderr, "%s\n", clef_error(ctx));
    clef_close(ctx);
    return failed;
}
