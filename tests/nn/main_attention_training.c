/* Twenty steps of training of attention, and of encoders and decoders, step by step the loss that PyTorch has with the same weights, which
   it reads from the file that clef_save wrote by the names that it has for them itself.
   ctest: cost=60 plain */
#include "torch_steps.h"

enum { T = 7, TM = 5, B = 4, WIDTH = 12, HEADS = 3, HIDDEN = 20, KDIM = 8, VDIM = 10 };

static const char script[] = TORCH_READS
    "kind, pre, gelu, causal, lengths, bias = sys.argv[1], *map(int, sys.argv[2:7])\n"
    "T, TM, B, W, H, F, KD, VD = 7, 5, 4, 12, 3, 20, 8, 10\n"
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
    "unseen = torch.ones(T, T, dtype=torch.bool).triu(1) if causal else None\n"
    "pad = lambda t: torch.arange(t)[None] >= torch.tensor([1 + (i * 3) % t for i in range(B)])[:, None] if lengths else None\n"
    "def output(s):\n"
    "    x, memory = value(s, B, T, W), value(s + 3, B, TM, W)\n"
    "    if kind == 'attention': return net(x, x, x, attn_mask=unseen, key_padding_mask=pad(T))[0]\n"
    "    if kind == 'cross': return net(x, memory, memory, key_padding_mask=pad(TM))[0]\n"
    "    if kind == 'widths': return net(x, value(s + 3, B, TM, KD), value(s + 5, B, TM, VD), key_padding_mask=pad(TM))[0]\n"
    "    if 'encoder' in kind: return net(x, unseen, src_key_padding_mask=pad(T))\n"
    "    return net(x, memory, tgt_mask=unseen, tgt_key_padding_mask=pad(T), memory_key_padding_mask=pad(TM))\n" TORCH_STEPS;

typedef struct variant {
    const char *kind;
    int pre, gelu, causal, lengths, bias;
} variant;

static bool is(const variant *v, const char *kind) { return strcmp(v->kind, kind) == 0; }

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

static clef_tensor *output(const void *of, clef_module *net, int s) {
    const variant *v = of;
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

static int compare(const variant *v) {
    char words[80];
    snprintf(words, sizeof words, "%s %d %d %d %d %d", v->kind, v->pre, v->gelu, v->causal, v->lengths, v->bias);
    return torch_compare(make(v), words, output, v);
}

int main(void) {
    static const variant variants[] = {
        {"attention", 0, 0, 0, 0, 1},     {"attention", 0, 0, 1, 1, 0}, {"cross", 0, 0, 0, 1, 1},
        {"widths", 0, 0, 0, 1, 1},        {"widths", 0, 0, 0, 0, 0},    {"encoder_layer", 0, 0, 0, 0, 1},
        {"encoder_layer", 1, 1, 1, 1, 1}, {"encoder", 0, 1, 0, 1, 1},   {"encoder", 1, 0, 1, 0, 0},
        {"decoder_layer", 0, 0, 1, 1, 1}, {"decoder", 1, 1, 1, 1, 1},   {"decoder", 0, 0, 0, 0, 0}};
    int wrong = 0, over = torch_begin(script);
    if (over) return over;
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) wrong += compare(&variants[i]);
    return torch_end(wrong);
}
