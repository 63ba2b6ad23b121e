/* torch_steps.h — twenty steps of training, step by step beside the loss that PyTorch has with the same weights, which it reads from the
   file that clef_save wrote by the names that it has for them itself.

   A script begins with TORCH_READS: `weights` by name, the words of the variant in sys.argv[1:-1], numbers as values() below by
   `value(salt, sizes…)`; it ends with TORCH_STEPS, for which it defines `net` and `output(s)`. */
#ifndef CLEF_TESTS_TORCH_STEPS_H
#define CLEF_TESTS_TORCH_STEPS_H
#include "support/plain.h"
#include "support/python.h"
#include <math.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 20 };

#define TORCH_READS                                                                                                    \
    "import sys, json, numpy as np, torch, torch.nn as nn\n"                                                           \
    "raw = open(sys.argv[-1], 'rb').read()\n"                                                                          \
    "n = int.from_bytes(raw[:8], 'little'); head = json.loads(raw[8:8 + n]); head.pop('__metadata__', None)\n"         \
    "get = lambda d: torch.from_numpy(np.frombuffer(raw[8 + n + d['data_offsets'][0]:8 + n + d['data_offsets'][1]],\n" \
    "                                               dtype=np.float32).reshape(d['shape']).copy())\n"                   \
    "weights = {k: get(d).double() for k, d in head.items()}\n"                                                        \
    "torch.set_num_threads(1); torch.set_default_dtype(torch.float64)\n"                                               \
    "value = lambda salt, *s: torch.tensor([((i * 37 + salt * 11) % 61 - 30) / 32 for i in range(int(np.prod(s)))]).reshape(s)\n"
#define TORCH_STEPS                                           \
    "net.load_state_dict(weights)\n"                          \
    "opt = torch.optim.SGD(net.parameters(), lr=0.1)\n"       \
    "for s in range(20):\n"                                   \
    "    opt.zero_grad()\n"                                   \
    "    y = output(s)\n"                                     \
    "    loss = ((y - value(s + 7, *y.shape)) ** 2).mean()\n" \
    "    loss.backward(); opt.step(); print('%.12g' % loss.item())\n"

static clef_context *ctx;

static clef_tensor *values(clef_shape shape, int salt) {
    static float data[4096];
    for (int64_t i = 0; i < clef_shape_numel(shape); i++) data[i] = (float)((i * 37 + salt * 11) % 61 - 30) / 32;
    return clef_from_host(ctx, shape, CLEF_F32, data);
}

/* Where the script and the weights lie. */
static char torch_script[] = "/tmp/clef_torch_XXXXXX", torch_weights[40];

/* Does the net go as PyTorch's, told by these words?  output: of step s. */
static int torch_compare(clef_module *net, const char *words, clef_tensor *(*output)(const void *variant, clef_module *net, int s),
                         const void *variant) {
    char line[512];
    int wrong = 0;
    if (!net || clef_save(net, torch_weights) != CLEF_OK) return fprintf(stderr, "%s: %s\n", words, clef_error(ctx)), 1;
    snprintf(line, sizeof line, "'%s' %s %s %s", python_name(), torch_script, words, torch_weights);
    FILE *torch = popen(line, "r");
    clef_optimizer *sgd = clef_sgd(net, &(clef_sgd_options){.lr = 0.1f});
    for (int s = 0; s < STEPS && !wrong; s++) {
        clef_tensor *y = output(variant, net, s), *target = y ? values(clef_tensor_shape(y), s + 7) : NULL;
        clef_tensor *loss = clef_mse_loss(y, target, NULL);
        clef_backward(loss);
        clef_step(sgd);
        double have = clef_item(loss), want = torch && fgets(line, sizeof line, torch) ? atof(line) : NAN;
        wrong = !(fabs(have - want) <= 1e-5 * fabs(want));
        if (wrong) fprintf(stderr, "%s, step %d: %.9g, not %.9g %s\n", words, s, have, want, clef_error(ctx));
    }
    if (torch) pclose(torch);
    return wrong;
}

/* Opens ctx and writes the script; 0, or what the program ends with. */
static int torch_begin(const char *script) {
    char check[512];
    snprintf(check, sizeof check, "'%s' -c 'import torch, numpy' 2>/dev/null", python_name());
    if (system(check) != 0) return printf("skipped: %s (CLEF_PYTHON) has no PyTorch\n", python_name()), 77;
    ctx = clef_open(&(clef_options){.seed = 3});
    if (!ctx) return without_context();
    int file = mkstemp(torch_script);
    size_t size = strlen(script);
    snprintf(torch_weights, sizeof torch_weights, "%s.weights", torch_script);
    bool written = file >= 0 && write(file, script, size) == (ssize_t)size && close(file) == 0;
    return written ? 0 : (printf("FAILED: no file in /tmp\n"), 1);
}

static int torch_end(int wrong) {
    unlink(torch_script), unlink(torch_weights);
    clef_close(ctx);
    return wrong != 0;
}
#endif
