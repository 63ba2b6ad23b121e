/* Twenty steps of training of each recurrent layer and cell, step by step the loss that PyTorch has with the same weights, which it reads
   from the file that clef_save wrote by the names that it has for them itself.
   ctest: cost=60 plain */
#include "support/plain.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 20, T = 7, B = 5, IN = 6, HIDDEN = 9 };

static const char script[] =
    "import sys, json, numpy as np, torch\n"
    "kind, layers, ways, first, lengths, path = sys.argv[1], *map(int, sys.argv[2:6]), sys.argv[6]\n"
    "raw = open(path, 'rb').read()\n"
    "n = int.from_bytes(raw[:8], 'little'); head = json.loads(raw[8:8 + n]); head.pop('__metadata__', None)\n"
    "get = lambda d: torch.from_numpy(np.frombuffer(raw[8 + n + d['data_offsets'][0]:8 + n + d['data_offsets'][1]],\n"
    "                                               dtype=np.float32).reshape(d['shape']).copy())\n"
    "T, B, IN, H = 7, 5, 6, 9\n"
    "torch.set_num_threads(1); torch.set_default_dtype(torch.float64)\n"
    "cell = kind.endswith('_cell')\n"
    "name = {'rnn': 'RNN', 'lstm': 'LSTM', 'gru': 'GRU'}[kind.split('_')[0]] + ('Cell' if cell else '')\n"
    "net = getattr(torch.nn, name)(IN, H) if cell else getattr(torch.nn, name)(IN, H, layers, bidirectional=ways == 2, "
    "batch_first=bool(first))\n"
    "net.load_state_dict({k: get(d).double() for k, d in head.items()})\n"
    "value = lambda n, salt: torch.tensor([((i * 37 + salt * 11) % 61 - 30) / 32 for i in range(n)])\n"
    "opt = torch.optim.SGD(net.parameters(), lr=0.1)\n"
    "for s in range(20):\n"
    "    opt.zero_grad()\n"
    "    if cell:\n"
    "        y = net(value(B * IN, s).reshape(B, IN)); y = y[0] + y[1] if 'lstm' in kind else y\n"
    "    else:\n"
    "        x = value(T * B * IN, s).reshape((B, T, IN) if first else (T, B, IN))\n"
    "        if lengths:\n"
    "            p = torch.nn.utils.rnn.pack_padded_sequence(x, [1 + (i * 3) % T for i in range(B)], bool(first), False)\n"
    "            y = torch.nn.utils.rnn.pad_packed_sequence(net(p)[0], bool(first), total_length=T)[0]\n"
    "        else: y = net(x)[0]\n"
    "    loss = ((y - value(y.numel(), s + 7).reshape(y.shape)) ** 2).mean()\n"
    "    loss.backward(); opt.step(); print('%.12g' % loss.item())\n";

static clef_context *ctx;

typedef struct variant {
    const char *kind;
    int layers, ways, batch_first, lengths;
} variant;

static clef_tensor *values(clef_shape shape, int salt) {
    static float data[4096];
    for (int64_t i = 0; i < clef_shape_numel(shape); i++) data[i] = (float)((i * 37 + salt * 11) % 61 - 30) / 32;
    return clef_from_host(ctx, shape, CLEF_F32, data);
}

static clef_module *make(const variant *v) {
    clef_nn_recurrent_options o = {.layers = v->layers, .bidirectional = v->ways == 2, .batch_first = v->batch_first};
    if (strcmp(v->kind, "rnn") == 0) return clef_nn_rnn(ctx, IN, HIDDEN, &o);
    if (strcmp(v->kind, "lstm") == 0) return clef_nn_lstm(ctx, IN, HIDDEN, &o);
    if (strcmp(v->kind, "gru") == 0) return clef_nn_gru(ctx, IN, HIDDEN, &o);
    if (strcmp(v->kind, "rnn_cell") == 0) return clef_nn_rnn_cell(ctx, IN, HIDDEN, NULL);
    if (strcmp(v->kind, "lstm_cell") == 0) return clef_nn_lstm_cell(ctx, IN, HIDDEN, NULL);
    return clef_nn_gru_cell(ctx, IN, HIDDEN, NULL);
}

static clef_tensor *output(const variant *v, clef_module *net, int s) {
    bool lstm = strncmp(v->kind, "lstm", 4) == 0;
    clef_tensor *y[3];
    if (strstr(v->kind, "_cell")) {
        clef_tensor *x = values(CLEF_SHAPE(B, IN), s);
        if (!lstm) return clef_forward(net, x);
        return clef_call(net, &x, 1, y, 2) == CLEF_OK ? clef_add(y[0], y[1]) : NULL;
    }
    clef_tensor *x = values(v->batch_first ? CLEF_SHAPE(B, T, IN) : CLEF_SHAPE(T, B, IN), s);
    if (!v->lengths) return clef_forward(net, x);
    int64_t n[B];
    for (int i = 0; i < B; i++) n[i] = 1 + i * 3 % T;
    clef_tensor *in[] = {x, CLEF_NONE, CLEF_NONE, CLEF_NONE};
    in[lstm ? 3 : 2] = clef_from_host(ctx, CLEF_SHAPE(B), CLEF_I64, n);
    return clef_call(net, in, lstm ? 4 : 3, y, lstm ? 3 : 2) == CLEF_OK ? y[0] : NULL;
}

static int compare(const variant *v, const char *python, const char *path) {
    char line[512];
    int wrong = 0;
    clef_module *net = make(v);
    if (!net || clef_save(net, path) != CLEF_OK) return fprintf(stderr, "%s: %s\n", v->kind, clef_error(ctx)), 1;
    snprintf(line, sizeof line, "%s %s.py %s %d %d %d %d %s", python, path, v->kind, v->layers, v->ways, v->batch_first, v->lengths,
             path);
    FILE *torch = popen(line, "r");
    clef_optimizer *sgd = clef_sgd(net, &(clef_sgd_options){.lr = 0.1f});
    for (int s = 0; s < STEPS; s++) {
        clef_tensor *y = output(v, net, s), *target = y ? values(clef_tensor_shape(y), s + 7) : NULL;
        clef_tensor *loss = clef_mse_loss(y, target, NULL);
        clef_backward(loss);
        clef_step(sgd);
        double have = clef_item(loss), want = torch && fgets(line, sizeof line, torch) ? atof(line) : NAN;
        if (fabs(have - want) <= 1e-5 * fabs(want)) continue;
        fprintf(stderr, "%s, %d layers, %d ways, batch first %d, lengths %d, step %d: %.9g, not %.9g %s\n", v->kind, v->layers,
                v->ways, v->batch_first, v->lengths, s, have, want, clef_error(ctx));
        wrong++;
        break;
    }
    if (torch) pclose(torch);
    return wrong;
}

int main(void) {
    static const variant variants[] = {{"rnn", 1, 1, 0, 0},      {"lstm", 1, 1, 0, 0},      {"gru", 1, 1, 0, 0},
                                       {"lstm", 2, 2, 1, 1},     {"gru", 2, 2, 0, 1},       {"rnn", 2, 2, 1, 1},
                                       {"rnn_cell", 1, 1, 0, 0}, {"lstm_cell", 1, 1, 0, 0}, {"gru_cell", 1, 1, 0, 0}};
    const char *python = getenv("CLEF_PYTHON");
    char check[512], path[] = "/tmp/clef_recurrent_XXXXXX", file[64];
    if (!python) return printf("skipped: CLEF_PYTHON names no Python with PyTorch\n"), 77;
    snprintf(check, sizeof check, "%s -c 'import torch, numpy' 2>/dev/null", python);
    if (system(check) != 0) return printf("skipped: %s has no PyTorch\n", python), 77;
    ctx = clef_open(&(clef_options){.seed = 3});
    if (!ctx) return without_context();
    int fd = mkstemp(path), wrong = 0;
    snprintf(file, sizeof file, "%s.py", path);
    FILE *f = fopen(file, "w");
    if (fd < 0 || !f || fputs(script, f) < 0 || fclose(f) != 0) return printf("FAILED: no file in /tmp\n"), 1;
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) wrong += compare(&variants[i], python, path);
    close(fd), unlink(path), unlink(file);
    clef_close(ctx);
    return wrong != 0;
}
