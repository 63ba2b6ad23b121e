/* Twenty steps of training of attention, and of encoders and decoders, step by step the loss that PyTorch has with the same weights, which
   it reads from the file that clef_save wrote by the names that it has for them itself.
   ctest: cost=60 plain */
#include "support/plain.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 20, T = 7, TM = 5, B = 4, WIDTH = 12, HEADS = 3, HIDDEN = 20, KDIM = 8, VDIM = 10 };

static const char script[] =
    "import sys, json, numpy as np, torch, torch.nn as nn\n"
    "kind, pre, gelu, causal, lengths, bias, path = sys.argv[1], *map(int, sys.argv[2:7]), sys.argv[7]\n"
    "raw = open(path, 'rb').read()\n"
    "n = int.from_bytes(raw[:8], 'little'); head = json.loads(raw[8:8 + n]); head.pop('__metadata__', None)\n"
    "get = lambda d: torch.from_numpy(np.frombuffer(raw[8 + n + d['data_offsets'][0]:8 + n + d['data_offsets'][1]],\n"
    "                                               dtype=np.float32).reshape(d['shape']).copy())\n"
    "T, TM, B, W, H, F, KD, VD = 7, 5, 4, 12, 3, 20, 8, 10\n"
    "torch.set_num_threads(1); torch.set_default_dtype(torch.float64)\n"
    "o = dict(dim_feedforward=F, dropout=0.0, activation='gelu' if gelu else 'relu', batch_first=True, norm_first=bool(pre), "
    "bias=bool(bias))\n"
    "make = {'attention': lambda: nn.MultiheadAttention(W, H, batch_first=True, bias=bool(bias)),\n"
    "        'cross': lambda: nn.MultiheadAttention(W, H, batch_first=True, bias=bool(bias)),\n"
    "        'widths': lambda: nn.MultiheadAttention(W, H, batch_first=True, bias=bool(bias), kdim=KD, vdim=VD),\n"
    "        'encoder_layer': lambda: nn.TransformerEncoderLayer(W, H, **o),\n"
    "        'decoder_layer': lambda: nn.TransformerDecoderLayer(W, H, **o),\n"
    "        'encoder': lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(W, H, **o), 2, nn.LayerNorm(W, bias=bool(bias)),\n"
    "                                                 enable_nested_tensor=False),\n"
    "        'decoder': lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(W, H, **o), 2, nn.LayerNorm(W, "
    "bias=bool(bias)))}\n"
    "net = make[kind]()\n"
    "net.load_state_dict({k: get(d).double() for k, d in head.items()})\n"
    "value = lambda salt, *s: torch.tensor([((i * 37 + salt * 11) % 61 - 30) / 32 for i in range(int(np.prod(s)))]).reshape(s)\n"
    "unseen = torch.ones(T, T, dtype=torch.bool).triu(1) if causal else None\n"
    "pad = lambda t: torch.arange(t)[None] >= torch.tensor([1 + (i * 3) % t for i in range(B)])[:, None] if lengths else None\n"
    "opt = torch.optim.SGD(net.parameters(), lr=0.1)\n"
    "for s in range(20):\n"
    "    opt.zero_grad()\n"
    "    x, memory = value(s, B, T, W), value(s + 3, B, TM, W)\n"
    "    if kind == 'attention': y = net(x, x, x, attn_mask=unseen, key_padding_mask=pad(T))[0]\n"
    "    elif kind == 'cross': y = net(x, memory, memory, key_padding_mask=pad(TM))[0]\n"
    "    elif kind == 'widths': y = net(x, value(s + 3, B, TM, KD), value(s + 5, B, TM, VD), key_padding_mask=pad(TM))[0]\n"
    "    elif 'encoder' in kind: y = net(x, unseen, src_key_padding_mask=pad(T))\n"
    "    else: y = net(x, memory, tgt_mask=unseen, tgt_key_padding_mask=pad(T), memory_key_padding_mask=pad(TM))\n"
    "    loss = ((y - value(s + 7, *y.shape)) ** 2).mean()\n"
    "    loss.backward(); opt.step(); print('%.12g' % loss.item())\n";

static clef_context *ctx;

typedef struct variant {
    const char *kind;
    int pre, gelu, causal, lengths, bias;
} variant;

static bool is(const variant *v, const char *kind) { return strcmp(v->kind, kind) == 0; }

static clef_tensor *values(clef_shape shape, int salt) {
    static float data[4096];
    for (int64_t i = 0; i < clef_shape_numel(shape); i++) data[i] = (float)((i * 37 + salt * 11) % 61 - 30) / 32;
    return clef_from_host(ctx, shape, CLEF_F32, data);
}

static clef_tensor *lengths_of(const variant *v, int t) {
    int64_t n[B];
    for (int i = 0; i < B; i++) n[i] = 1 + i * 3 % t;
    return v->lengths ? clef_from_host(ctx, CLEF_SHAPE(B), CLEF_I64, n) : CLEF_NONE;
}

static clef_module *make(const variant *v) {
    clef_nn_attention_options a = {.causal = v->causal, .no_bias = !v->bias};
    if (is(v, "widths")) a.kdim = KDIM, a.vdim = VDIM;
    clef_nn_transformer_options o = {.layers = 2,
                                     .hidden = HIDDEN,
                                     .pre_norm = v->pre,
                                     .gelu = v->gelu,
                                     .causal = v->causal,
                                     .no_bias = !v->bias,
                                     .final_norm = true};
    if (is(v, "encoder_layer")) return clef_nn_encoder_layer(ctx, WIDTH, HEADS, &o);
    if (is(v, "decoder_layer")) return clef_nn_decoder_layer(ctx, WIDTH, HEADS, &o);
    if (is(v, "encoder")) return clef_nn_encoder(ctx, WIDTH, HEADS, &o);
    if (is(v, "decoder")) return clef_nn_decoder(ctx, WIDTH, HEADS, &o);
    return clef_nn_attention(ctx, WIDTH, HEADS, &a);
}

static clef_tensor *output(const variant *v, clef_module *net, int s) {
    clef_tensor *x = values(CLEF_SHAPE(B, T, WIDTH), s), *memory = values(CLEF_SHAPE(B, TM, WIDTH), s + 3), *y = NULL;
    clef_tensor *of_x = lengths_of(v, T), *of_memory = lengths_of(v, TM);
    if (is(v, "attention")) clef_call(net, (clef_tensor *[]){x, CLEF_NONE, CLEF_NONE, CLEF_NONE, of_x}, 5, &y, 1);
    else if (is(v, "cross")) clef_call(net, (clef_tensor *[]){x, memory, CLEF_NONE, CLEF_NONE, of_memory}, 5, &y, 1);
    else if (is(v, "widths")) {
        clef_tensor *k = values(CLEF_SHAPE(B, TM, KDIM), s + 3), *value = values(CLEF_SHAPE(B, TM, VDIM), s + 5);
        clef_call(net, (clef_tensor *[]){x, k, value, CLEF_NONE, of_memory}, 5, &y, 1);
    } else if (strstr(v->kind, "encoder") && !v->lengths) y = clef_forward(net, x);
    else if (strstr(v->kind, "encoder")) clef_call(net, (clef_tensor *[]){x, CLEF_NONE, of_x}, 3, &y, 1);
    else clef_call(net, (clef_tensor *[]){x, memory, CLEF_NONE, of_x, CLEF_NONE, of_memory}, 6, &y, 1);
    return y;
}

static int compare(const variant *v, const char *python, const char *path) {
    char line[512];
    int wrong = 0;
    clef_module *net = make(v);
    if (!net || clef_save(net, path) != CLEF_OK) return fprintf(stderr, "%s: %s\n", v->kind, clef_error(ctx)), 1;
    snprintf(line, sizeof line, "%s %s.py %s %d %d %d %d %d %s", python, path, v->kind, v->pre, v->gelu, v->causal, v->lengths,
             v->bias, path);
    FILE *torch = popen(line, "r");
    clef_optimizer *sgd = clef_sgd(net, &(clef_sgd_options){.lr = 0.1f});
    for (int s = 0; s < STEPS; s++) {
        clef_tensor *y = output(v, net, s), *target = y ? values(clef_tensor_shape(y), s + 7) : NULL;
        clef_tensor *loss = clef_mse_loss(y, target, NULL);
        clef_backward(loss);
        clef_step(sgd);
        double have = clef_item(loss), want = torch && fgets(line, sizeof line, torch) ? atof(line) : NAN;
        if (fabs(have - want) <= 1e-5 * fabs(want)) continue;
        fprintf(stderr, "%s, pre-norm %d, gelu %d, causal %d, lengths %d, bias %d, step %d: %.9g, not %.9g %s\n", v->kind, v->pre,
                v->gelu, v->causal, v->lengths, v->bias, s, have, want, clef_error(ctx));
        wrong++;
        break;
    }
    if (torch) pclose(torch);
    return wrong;
}

int main(void) {
    static const variant variants[] = {
        {"attention", 0, 0, 0, 0, 1},     {"attention", 0, 0, 1, 1, 0}, {"cross", 0, 0, 0, 1, 1},
        {"widths", 0, 0, 0, 1, 1},        {"widths", 0, 0, 0, 0, 0},    {"encoder_layer", 0, 0, 0, 0, 1},
        {"encoder_layer", 1, 1, 1, 1, 1}, {"encoder", 0, 1, 0, 1, 1},   {"encoder", 1, 0, 1, 0, 0},
        {"decoder_layer", 0, 0, 1, 1, 1}, {"decoder", 1, 1, 1, 1, 1},   {"decoder", 0, 0, 0, 0, 0}};
    const char *python = getenv("CLEF_PYTHON");
    char check[512], path[] = "/tmp/clef_attention_XXXXXX", file[64];
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
