/* Whole networks on small devices: a training step of LeNet and of a residual net gives what it gives without limits.  Each
   device is met by a process of its own, as drivers read their limits once.
   ctest: labels=slow cost=40 plain */
#include "support/persona.h"
#include "support/plain.h"
#include <clef.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

/* Environment of a child, or a persona that it plays. */
typedef struct small_device {
    const char *name, *environment;
    persona persona;
} small_device;

static const small_device devices[] = {
    {.name = "no limits", .environment = ""},
    {.name = "work-groups of 64", .environment = "POCL_MAX_WORK_GROUP_SIZE=64"},
    {.name = "work-groups of 1", .environment = "POCL_MAX_WORK_GROUP_SIZE=1"},
    {.name = "1 GB of memory", .environment = "POCL_MEMORY_LIMIT=1"},
    {.name = "profile gpu", .environment = "CLEF_PROFILE=gpu"},
    {.name = "profile minimal", .environment = "CLEF_PROFILE=minimal"},
    {"a GPU with work-groups of 64", "", {"", CL_DEVICE_TYPE_GPU, 64, 32768, 1 << 30, 1, false, false, NULL, NULL, ""}},
    {"a GPU with work-groups of 1", "", {"", CL_DEVICE_TYPE_GPU, 1, 32768, 1 << 30, 1, false, false, NULL, NULL, ""}},
    {"a GPU with 16 KB of local memory", "", {"", CL_DEVICE_TYPE_GPU, 256, 16384, 64 << 20, 1, false, false, NULL, NULL, ""}},
};
enum { DEVICES = sizeof devices / sizeof devices[0], RESULTS = 4, BATCH = 4 };
static const char *const result_name[RESULTS] = {"loss", "loss after the step", "norm of the update", "weight"};

/* ---- the child ---- */
static clef_module *residual_net(clef_context *ctx) {
    clef_nn_conv2d_options same = {.conv.padding = {1, 1}, .no_bias = true}, half = same, skip = {.no_bias = true};
    half.conv.stride[0] = half.conv.stride[1] = skip.conv.stride[0] = skip.conv.stride[1] = 2;
    clef_module *body = clef_sequential(ctx, CLEF_LAYERS(clef_nn_conv2d(ctx, 8, 16, 3, &half), clef_nn_batch_norm2d(ctx, 16, NULL),
                                                         clef_nn_relu(ctx), clef_nn_conv2d(ctx, 16, 16, 3, &same),
                                                         clef_nn_batch_norm2d(ctx, 16, NULL)));
    clef_module *shortcut =
        clef_sequential(ctx, CLEF_LAYERS(clef_nn_conv2d(ctx, 8, 16, 1, &skip), clef_nn_batch_norm2d(ctx, 16, NULL)));
    return clef_sequential(ctx, CLEF_LAYERS(clef_nn_conv2d(ctx, 3, 8, 3, &same), clef_nn_batch_norm2d(ctx, 8, NULL),
                                            clef_nn_relu(ctx), clef_nn_residual(ctx, body, shortcut, true),
                                            clef_nn_global_avg_pool2d(ctx), clef_nn_linear(ctx, 16, 10, NULL)));
}

static clef_tensor *images(clef_context *ctx, clef_shape shape) {
    static float pixels[BATCH * 3 * 16 * 16];
    for (int64_t i = 0; i < clef_shape_numel(shape); i++) pixels[i] = (float)(i * 7919 % 1009) / 1009 - 0.5f;
    return clef_keep(clef_from_host(ctx, shape, CLEF_F32, pixels));
}

/* All trained elements in one array that the caller frees. */
static float *weights(clef_module *net, int64_t *n) {
    float *all = malloc((size_t)clef_parameter_count(net) * sizeof *all);
    *n = 0;
    for (int i = 0; i < clef_module_tensors(net); i++) {
        clef_named_tensor t = clef_module_tensor(net, i);
        if (t.is_buffer) continue;
        clef_read(t.tensor, all + *n, (size_t)clef_numel(t.tensor) * sizeof *all);
        *n += clef_numel(t.tensor);
    }
    return all;
}

static double loss_of(clef_module *net, clef_tensor *x, clef_tensor *y, clef_optimizer *optimizer) {
    clef_tensor *loss = clef_cross_entropy(clef_forward(net, x), y, NULL);
    clef_backward(loss);
    clef_step(optimizer);
    return clef_item(loss);
}

static void train(clef_context *ctx, clef_module *net, clef_shape input, double result[RESULTS]) {
    static const int64_t label[BATCH] = {3, 1, 4, 1};
    clef_tensor *x = images(ctx, input), *y = clef_keep(clef_from_host(ctx, CLEF_SHAPE(BATCH), CLEF_I64, label));
    clef_optimizer *optimizer = clef_sgd(net, &(clef_sgd_options){.lr = 0.1, .momentum = 0.9});
    if (!optimizer) return;
    int64_t n;
    float *before = weights(net, &n);
    result[0] = loss_of(net, x, y, optimizer);
    float *after = weights(net, &n);
    result[1] = loss_of(net, x, y, optimizer);
    for (int64_t i = 0; i < n; i++) result[2] += ((double)after[i] - (double)before[i]) * ((double)after[i] - (double)before[i]);
    result[2] = sqrt(result[2]);
    result[3] = (double)after[n / 2];
    free(before), free(after);
}

static int child(int device) {
    played = devices[device].persona.name ? &devices[device].persona : NULL;
    clef_context *ctx = clef_open(&(clef_options){.seed = 6});
    if (!ctx) return without_context();
    double result[2][RESULTS] = {{0}};
    train(ctx, clef_model_lenet(ctx, CLEF_SHAPE(1, 16, 16), 10), CLEF_SHAPE(BATCH, 1, 16, 16), result[0]);
    train(ctx, residual_net(ctx), CLEF_SHAPE(BATCH, 3, 8, 8), result[1]);
    int bad = clef_error_status(ctx) != CLEF_OK;
    for (int i = 0; i < 2 * RESULTS && !bad; i++) printf("%.17g ", result[i / RESULTS][i % RESULTS]);
    printf("%s\n", clef_error(ctx));
    clef_close(ctx);
    return bad;
}

/* ---- the parent ---- */
static int visit(const char *program, int device, double result[2 * RESULTS]) {
    char command[4096], line[1024] = "";
    snprintf(command, sizeof command, "%s '%s' %d", devices[device].environment, program, device);
    FILE *pipe = popen(command, "r");
    if (!pipe) return 1;
    if (!fgets(line, sizeof line, pipe)) line[0] = 0;
    int status = pclose(pipe);
    if (status) {
        int absent = device == 0 && WIFEXITED(status) && WEXITSTATUS(status) == 77;
        if (absent) return printf("%s", line), 77;
        return printf("FAILED: %s: %s", devices[device].name, line[0] ? line : "no answer\n"), 1;
    }
    char *at = line;
    for (int i = 0; i < 2 * RESULTS; i++) result[i] = strtod(at, &at);
    return 0;
}

static int compare(const char *name, const double *have, const double *want) {
    double worst = 0;
    int at = 0;
    for (int i = 0; i < 2 * RESULTS; i++) {
        double off = fabs(have[i] - want[i]) / fabs(want[i]);
        if (!(off <= worst)) worst = off, at = i;
    }
    int bad = !(worst <= 1e-5);
    printf("%s%s: at most %.1e off (%s: %s, %.9g)\n", bad ? "FAILED: " : "", name, worst, at < RESULTS ? "LeNet" : "residual net",
           result_name[at % RESULTS], have[at]);
    return bad;
}

int main(int argc, char **argv) {
    if (argc > 1) return child(atoi(argv[1]));
    double want[2 * RESULTS], have[2 * RESULTS];
    int failed = 0, first = visit(argv[0], 0, want);
    if (first) return first;
    for (int i = 1; i < DEVICES; i++) {
        int status = visit(argv[0], i, have);
        failed += status ? 1 : compare(devices[i].name, have, want);
        fflush(stdout);
    }
    return failed != 0;
}
