/* source.c — data sets and models by the names the tool knows them by. */
#include "tool.h"
#include <string.h>

struct source_kind {
    source defaults;
    bool has_dir;
    clef_dataset *(*open)(clef_context *ctx, const char *dir, clef_split_name split);
};

static clef_dataset *open_digits(clef_context *ctx, const char *dir, clef_split_name split) {
    (void)dir;
    return clef_digits(ctx, split);
}

/* Means and deviations of the training pixels, scaled to [0,1]. */
static const float digits_mean[] = {0.3053f}, digits_std[] = {0.3760f};
static const float mnist_mean[] = {0.1307f}, mnist_std[] = {0.3081f};
static const float cifar10_mean[] = {0.4914f, 0.4822f, 0.4465f}, cifar10_std[] = {0.2470f, 0.2435f, 0.2616f};

/* clang-format off */
static const struct source_kind kinds[] = {
    {{.name = "digits", .mean = digits_mean, .std = digits_std, .model = "cnn", .epochs = 20, .batch = 32,
      .item = {3, {1, 8, 8}}, .classes = 10, .adam_lr = 3e-3, .augment = {.shift = 1, .rotation = 10}}, false, open_digits},
    {{.name = "mnist", .mean = mnist_mean, .std = mnist_std, .model = "lenet", .epochs = 2, .batch = 100,
      .item = {3, {1, 28, 28}}, .classes = 10, .adam_lr = 1e-3, .augment = {.shift = 2, .rotation = 10}}, true, clef_mnist},
    {{.name = "cifar10", .mean = cifar10_mean, .std = cifar10_std, .model = "cnn", .epochs = 3, .batch = 50,
      .item = {3, {3, 32, 32}}, .classes = 10, .adam_lr = 1e-3, .augment = {.crop_padding = 4, .flip = true}}, true, clef_cifar10},
};
/* clang-format on */

static bool refuse_data(const char *verb_name, const char *data, const char *wanted) {
    char name[64], names[128] = "";
    snprintf(name, sizeof name, "%.*s", (int)strcspn(data, ":"), data);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) strcat(strcat(names, "|"), kinds[i].defaults.name);
    tool_usage(verb_name, "--data wants %s, not \"%s\"%s", wanted, data, args_hint(name, names));
    return false;
}

static bool parse_images(const char *data, source *out) {
    const char *colon = strchr(data, ':');
    size_t length = colon ? (size_t)(colon - data) : strlen(data);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const struct source_kind *k = &kinds[i];
        if (strlen(k->defaults.name) != length || strncmp(k->defaults.name, data, length)) continue;
        if (colon && (!k->has_dir || !colon[1])) break;
        *out = k->defaults;
        out->dir = colon ? colon + 1 : NULL;
        out->kind = k;
        return true;
    }
    return false;
}

bool source_parse(const char *verb_name, const char *data, source *out) {
    return parse_images(data, out) || refuse_data(verb_name, data, DATA_META);
}

bool source_parse_any(const char *verb_name, const char *data, source *out) {
    if (parse_images(data, out)) return true;
    if (strncmp(data, "text:", 5) != 0 || !data[5]) return refuse_data(verb_name, data, DATA_META " | " TEXT_META);
    *out = (source){.name = "text", .model = "gpt", .epochs = 1, .batch = 12, .adam_lr = 1e-3, .dir = data + 5, .text = true};
    return true;
}

clef_dataset *source_open(const source *s, clef_context *ctx, clef_split_name split, int64_t limit) {
    clef_text_options windows = s->windows;
    windows.split = split;
    if (split == CLEF_TEST) windows.windows = 0; /* these follow each other */
    clef_dataset *data = s->text ? clef_text(ctx, s->dir, &windows) : s->kind->open(ctx, s->dir, split);
    return data && limit > 0 && limit < clef_dataset_size(data) ? clef_dataset_take(data, limit) : data;
}

/* The largest divisor of n from 32 to 250, or 100: a last batch of another size would need kernels of its own. */
static int64_t even_batch(int64_t n) {
    if (n <= 250) return n;
    for (int64_t batch = 250; batch >= 32; batch--)
        if (n % batch == 0) return batch;
    return 100;
}

clef_loader *source_test_loader(const source *s, clef_dataset *data, int64_t batch, int64_t threads, clef_group *group, int parts) {
    if (!data) return NULL;
    if (batch == 0) batch = even_batch(clef_dataset_size(data));
    clef_loader_options options = {
        .batch = batch, .workers = (int)threads, .mean = s->mean, .std = s->std, .group = group, .parts = parts};
    return clef_loader_open(data, &options);
}

static const char *const resnet18_blocks[] = {"layer1.0", "layer1.1", "layer2.0", "layer2.1", "layer3.0",
                                              "layer3.1", "layer4.0", "layer4.1", NULL};
static const struct model_kind {
    const char *name, *data;
    clef_module *(*make)(clef_context *ctx, clef_shape input, int64_t classes);
    const char *const *blocks; /* that can recompute what they hold, ended by NULL */
} models[] = {{"mlp", "digits", clef_model_mlp, NULL},
              {"lenet", "mnist", clef_model_lenet, NULL},
              {"cnn", "digits", clef_model_cnn, NULL},
              {"resnet18", "cifar10", clef_model_resnet18, resnet18_blocks}};

static const struct model_kind *find_model(const char *model) {
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (!strcmp(models[i].name, model)) return &models[i];
    return NULL;
}

clef_module *model_make(const char *model, clef_context *ctx, clef_shape item, int64_t classes) {
    const struct model_kind *k = find_model(model);
    return k ? k->make(ctx, item, classes) : NULL;
}

const char *model_data(const char *model) {
    const struct model_kind *k = find_model(model);
    return k ? k->data : NULL;
}

bool model_recompute(const char *model, clef_module *net) {
    const struct model_kind *k = find_model(model);
    for (int i = 0; k && k->blocks && k->blocks[i]; i++) clef_recompute(clef_module_child(net, k->blocks[i]), true);
    return k && k->blocks;
}
