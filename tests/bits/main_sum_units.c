/* Graphs whose sums are partitioned by the number of compute units: with clef_options.sum_units they have the same bits on a device of 1, 3 and
   8 units, without it they have not (else this test would see nothing).  Each number of units is a process of its own, as drivers and Clef ask a
   device once. ctest: cost=10 plain */
#include "support/stated_units.h"
#include "support/plain.h"
#include "runtime/sha256.h"
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HASH = 32 };

static void add(clef__sha256 *sha, clef_tensor *t) {
    size_t bytes = (size_t)clef_numel(t) * sizeof(float);
    float *data = calloc(1, bytes + 1);
    if (clef_read(t, data, bytes) == CLEF_OK) clef__sha256_add(sha, data, bytes);
    free(data);
}

static void products(clef_context *ctx, clef__sha256 *sha) {
    static const int64_t size[][3] = {{4, 4096, 8}, {64, 20000, 16}, {3, 50000, 3}, {1, 30000, 40}};
    for (int i = 0; i < 4; i++)
        add(sha,
            clef_matmul(clef_randn(ctx, CLEF_SHAPE(size[i][0], size[i][1])), clef_randn(ctx, CLEF_SHAPE(size[i][1], size[i][2]))));
    clef_tensor *t = clef_randn(ctx, CLEF_SHAPE(60, 7000));
    add(sha, clef_matmul(clef_transpose(t, 0, 1), clef_slice(t, 1, 0, 12, 1)));
}

static void reductions(clef_context *ctx, clef__sha256 *sha) {
    clef_tensor *x = clef_randn(ctx, CLEF_SHAPE(300, 7, 900));
    add(sha, clef_sum(x, NULL, 0, false));
    for (int d = 0; d < 3; d++) add(sha, clef_sum(x, &d, 1, false));
    add(sha, clef_softmax(clef_randn(ctx, CLEF_SHAPE(50000, 3)), 0));
    add(sha, clef_norm(x, 2, NULL, 0, false));
}

static void images(clef_context *ctx, clef__sha256 *sha) {
    for (int channels = 1; channels <= 24; channels *= 4) {
        clef_module *net = clef_sequential(
            ctx, CLEF_LAYERS(clef_nn_conv2d(ctx, channels, 16, 3, NULL), clef_nn_batch_norm2d(ctx, 16, NULL), clef_nn_relu(ctx),
                             clef_nn_conv2d(ctx, 16, 16, 3, &(clef_nn_conv2d_options){.conv.groups = 16}),
                             clef_nn_conv2d(ctx, 16, 8, 3, NULL)));
        clef_tensor *y = clef_forward(net, clef_randn(ctx, CLEF_SHAPE(6, channels, 24, 24)));
        clef_backward(clef_mean(clef_square(y), NULL, 0, false));
        for (int i = 0; i < clef_module_tensors(net); i++)
            if (!clef_module_tensor(net, i).is_buffer) add(sha, clef_grad_of(clef_module_tensor(net, i).tensor));
    }
}

/* Writes the hash, as a process. */
static int compute(int units, int sum_units, int to) {
    stated_units = (cl_uint)units;
    clef_context *ctx = clef_open(&(clef_options){.sum_units = sum_units, .no_tuning = true});
    if (!ctx) return without_context();
    clef__sha256 sha;
    uint8_t hash[HASH];
    clef__sha256_begin(&sha);
    products(ctx, &sha), reductions(ctx, &sha), images(ctx, &sha);
    clef__sha256_end(&sha, hash);
    clef_status status = clef_error_status(ctx);
    if (status) printf("FAILED: %s\n", clef_error(ctx));
    clef_close(ctx);
    return status != CLEF_OK || write(to, hash, HASH) != HASH;
}

static int run(int units, int sum_units, uint8_t hash[HASH]) {
    int ends[2], code = 1;
    if (pipe(ends)) return 1;
    pid_t child = fork();
    if (child == 0) exit(compute(units, sum_units, ends[1]));
    close(ends[1]);
    if (child > 0 && waitpid(child, &code, 0) == child) code = WIFEXITED(code) ? WEXITSTATUS(code) : 1;
    if (code == 0 && read(ends[0], hash, HASH) != HASH) code = 1;
    close(ends[0]);
    return code;
}

int main(void) {
    static const int units[] = {1, 3, 8};
    uint8_t own[3][HASH], same[3][HASH];
    for (int i = 0; i < 3; i++) {
        int code = run(units[i], 0, own[i]);
        if (!code) code = run(units[i], 4, same[i]);
        if (code) return code;
    }
    bool differ = memcmp(own[0], own[2], HASH) != 0, equal = !memcmp(same[0], same[1], HASH) && !memcmp(same[0], same[2], HASH);
    if (!differ) printf("FAILED: 1 and 8 compute units give the same bits; nothing was tested\n");
    if (!equal) printf("FAILED: sum_units 4 has other bits on other numbers of units\n");
    return !differ || !equal;
}
