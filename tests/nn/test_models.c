/* The models of the tool: parameters, names, output shapes, the sizes they adapt to; the summary. */
#include "support/device.h"

static clef_context *ctx;

static void open_context(void) { ctx = open_seeded(3); }
static void close_context(void) { clef_close(ctx); }
TestSuite(models, .init = open_context, .fini = close_context);

typedef clef_module *model(clef_context *, clef_shape, int64_t);

static void expect_model(model *make, clef_shape input, int64_t parameters) {
    clef_module *m = make(ctx, input, 10);
    cr_assert(m, "%s", clef_error(ctx));
    cr_expect_eq(clef_parameter_count(m), parameters, "%lld parameters instead of %lld", (long long)clef_parameter_count(m),
                 (long long)parameters);
    clef_shape batch = {.rank = 4, .dim = {2, input.dim[0], input.dim[1], input.dim[2]}};
    for (CLEF_NO_GRAD(ctx)) expect_shape(clef_forward(m, clef_zeros(ctx, batch, CLEF_F32)), CLEF_SHAPE(2, 10));
}

Test(models, parameters_and_outputs) {
    expect_model(clef_model_mlp, CLEF_SHAPE(1, 8, 8), 64 * 256 + 256 + 256 * 128 + 128 + 1290);
    expect_model(clef_model_lenet, CLEF_SHAPE(1, 28, 28), 44426);
    expect_model(clef_model_lenet, CLEF_SHAPE(1, 16, 16), 156 + 2416 + 16 * 120 + 120 + 10164 + 850);
    expect_model(clef_model_lenet, CLEF_SHAPE(1, 8, 8), 156 + 2416 + 64 * 120 + 120 + 10164 + 850);
    expect_model(clef_model_lenet, CLEF_SHAPE(3, 4, 4), 456 + 2416 + 16 * 120 + 120 + 10164 + 850);
    expect_model(clef_model_cnn, CLEF_SHAPE(3, 32, 32), 896 + 18496 + 2304 * 10 + 10);
    expect_model(clef_model_cnn, CLEF_SHAPE(1, 28, 28), 320 + 18496 + 1600 * 10 + 10);
    expect_model(clef_model_cnn, CLEF_SHAPE(1, 10, 10), 320 + 18496 + 64 * 10 + 10);
    expect_model(clef_model_cnn, CLEF_SHAPE(1, 8, 8), 320 + 18496 + 256 * 10 + 10);
    expect_model(clef_model_resnet18, CLEF_SHAPE(3, 32, 32), 11173962);
}

Test(models, too_small) {
    cr_expect_null(clef_model_lenet(ctx, CLEF_SHAPE(1, 3, 8), 10));
    expect_error(ctx, CLEF_INVALID, "model_lenet: an input of [1,3,8] and 10 classes");
    cr_expect_null(clef_model_cnn(ctx, CLEF_SHAPE(8, 8), 10));
    expect_error(ctx, CLEF_INVALID, "model_cnn: an input of [8,8]");
    cr_expect_null(clef_model_resnet18(ctx, CLEF_SHAPE(3, 32, 32), 0));
    expect_error(ctx, CLEF_INVALID, "0 classes");
}

Test(models, sequential_names) {
    clef_module *m = clef_model_lenet(ctx, CLEF_SHAPE(1, 28, 28), 10);
    static const char *const name[] = {"0.weight", "0.bias",   "3.weight", "3.bias",    "7.weight",
                                       "7.bias",   "9.weight", "9.bias",   "11.weight", "11.bias"};
    cr_assert_eq(clef_module_tensors(m), 10);
    for (int i = 0; i < 10; i++) cr_expect_str_eq(clef_module_tensor(m, i).name, name[i]);
}

/* torchvision: 62 parameters and 60 buffers. */
Test(models, resnet_names) {
    clef_module *m = clef_model_resnet18(ctx, CLEF_SHAPE(3, 32, 32), 10);
    cr_assert_eq(clef_module_tensors(m), 122);
    const struct {
        int at;
        const char *name;
    } row[] = {{0, "conv1.weight"},
               {1, "bn1.weight"},
               {2, "bn1.bias"},
               {3, "bn1.running_mean"},
               {4, "bn1.running_var"},
               {5, "bn1.num_batches_tracked"},
               {6, "layer1.0.conv1.weight"},
               {7, "layer1.0.bn1.weight"},
               {12, "layer1.0.conv2.weight"},
               {18, "layer1.1.conv1.weight"},
               {42, "layer2.0.downsample.0.weight"},
               {43, "layer2.0.downsample.1.weight"},
               {120, "fc.weight"},
               {121, "fc.bias"}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        cr_expect_str_eq(clef_module_tensor(m, row[i].at).name, row[i].name, "%d: %s", row[i].at,
                         clef_module_tensor(m, row[i].at).name);
    expect_shape(clef_parameter(m, "layer4.0.downsample.0.weight"), CLEF_SHAPE(512, 256, 1, 1));
}

/* The line of a summary that begins with `layer` holds all of these. */
static void expect_line(const char *text, const char *layer, const char *const *part, int n) {
    size_t length = strlen(layer);
    const char *line = text;
    while (line && (strncmp(line, layer, length) || line[length] != ' ')) {
        line = strchr(line, '\n');
        if (line) line++;
    }
    cr_assert(line && *line, "no line for %s in\n%s", layer, text);
    char copy[256];
    snprintf(copy, sizeof copy, "%.*s", (int)strcspn(line, "\n"), line);
    for (int i = 0; i < n; i++) cr_expect(strstr(copy, part[i]), "\"%s\" does not say %s", copy, part[i]);
}
#define EXPECT_LINE(text, layer, ...) \
    expect_line(text, layer, (const char *const[]){__VA_ARGS__}, (int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)))

Test(models, summary_of_lenet) {
    clef_module *m = clef_model_lenet(ctx, CLEF_SHAPE(1, 28, 28), 10);
    clef_random_state before = clef_random_get(ctx);
    uint64_t launches = clef_counters_get(ctx).launches;
    char text[4096], start[17];
    int length = clef_summary(m, CLEF_SHAPE(1, 1, 28, 28), text, sizeof text);
    cr_assert_eq(length, (int)strlen(text), "%s", clef_error(ctx));
    EXPECT_LINE(text, "0", "conv2d", "[1,6,24,24]", " 156 ", " 86,400 ", "13.5 KiB");
    EXPECT_LINE(text, "3", "conv2d", "[1,16,8,8]", " 2,416 ", " 153,600 ", "4.0 KiB");
    EXPECT_LINE(text, "6", "flatten", "[1,256]", " 0 B");
    EXPECT_LINE(text, "7", "linear", "[1,120]", " 30,840 ", " 30,720 ", "480 B");
    EXPECT_LINE(text, "11", "linear", "[1,10]", " 850 ", " 840 ");
    cr_expect(strstr(text, "44,426 parameters, 281,640 MACs"), "%s", text);
    cr_expect(strstr(text, "parameters 173.5 KiB, gradients 173.5 KiB, buffers 0 B"), "%s", text);
    cr_expect_eq(clef_summary(m, CLEF_SHAPE(1, 1, 28, 28), NULL, 0), length);
    cr_expect_eq(clef_summary(m, CLEF_SHAPE(1, 1, 28, 28), start, sizeof start), length);
    cr_expect_eq(strncmp(start, text, 16), 0);
    cr_expect_eq(start[16], 0);
    cr_expect(clef_is_training(m));
    cr_expect_eq(clef_random_get(ctx).offset, before.offset);
    if (!getenv("CLEF_EAGER")) cr_expect_eq(clef_counters_get(ctx).launches, launches, "a summary must compute nothing");
    cr_expect_eq(clef_summary(m, CLEF_SHAPE(1, 3, 28, 28), text, sizeof text), -1);
    cr_expect_neq(clef_error_status(ctx), CLEF_OK);
}

Test(models, summary_of_resnet18) {
    clef_module *m = clef_model_resnet18(ctx, CLEF_SHAPE(3, 32, 32), 10);
    clef_set_training(clef_module_child(m, "layer1"), false);
    static char text[16384];
    cr_assert(clef_summary(m, CLEF_SHAPE(1, 3, 32, 32), text, sizeof text) > 0, "%s", clef_error(ctx));
    EXPECT_LINE(text, "layer2.0.downsample.0", "conv2d", "[1,128,16,16]", " 8,192 ", " 2,097,152 ");
    EXPECT_LINE(text, "fc", "linear", " 5,130 ", " 5,120 ");
    cr_expect(strstr(text, "11,173,962 parameters, 555,422,720 MACs"), "%s", text);
    cr_expect(clef_is_training(m) && !clef_is_training(clef_module_child(m, "layer1.0")), "modes must stay");
    clef_end_step(ctx);
    cr_expect_eq(clef_item(clef_parameter(m, "bn1.num_batches_tracked")), 0, "statistics must stay");
}

Test(models, summary_of_embedding) {
    clef_module *m = clef_sequential(ctx, CLEF_LAYERS(clef_nn_embedding(ctx, 11, 6), clef_nn_linear(ctx, 6, 2, NULL)));
    char text[2048];
    cr_assert(clef_summary(m, CLEF_SHAPE(3, 5), text, sizeof text) > 0, "%s", clef_error(ctx));
    EXPECT_LINE(text, "0", "embedding", "[3,5,6]", " 66 ");
    EXPECT_LINE(text, "1", "linear", "[3,5,2]", " 14 ", " 180 ");
}

/* Its mean is made with dimensions of 1, and is seen without them. */
Test(models, summary_of_views) {
    clef_module *m = clef_sequential(ctx, CLEF_LAYERS(clef_nn_conv2d(ctx, 1, 6, 3, NULL), clef_nn_global_avg_pool2d(ctx),
                                                      clef_nn_flatten(ctx), clef_nn_linear(ctx, 6, 2, NULL)));
    char text[2048];
    cr_assert(clef_summary(m, CLEF_SHAPE(3, 1, 8, 8), text, sizeof text) > 0, "%s", clef_error(ctx));
    EXPECT_LINE(text, "1", "global_avg_pool2d", "[3,6]", " 72 B");
    EXPECT_LINE(text, "2", "flatten", "[3,6]", " 0 B");
    EXPECT_LINE(text, "3", "linear", "[3,2]", " 24 B");
    cr_expect(strstr(text, "layer outputs 2.6 KiB"), "%s", text); /* 3·6·6·6·4 + 72 + 24 bytes */
}
