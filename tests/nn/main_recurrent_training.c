/* Twenty steps of training of each recurrent layer and cell, step by step the loss that PyTorch has with the same weights, which it reads
   from the file that clef_save wrote by the names that it has for them itself.
   ctest: cost=60 plain */
#include "torch_steps.h"
#include <stdlib.h>

enum { T = 7, B = 5, IN = 6, HIDDEN = 9 };

static const char script[] =
    TORCH_READS "kind, layers, ways, first, lengths, proj = sys.argv[1], *map(int, sys.argv[2:7])\n"
                "T, B, IN, H = 7, 5, 6, 9\n"
                "cell = kind.endswith('_cell')\n"
                "name = {'rnn': 'RNN', 'lstm': 'LSTM', 'gru': 'GRU'}[kind.split('_')[0]] + ('Cell' if cell else '')\n"
                "net = getattr(nn, name)(IN, H) if cell else getattr(nn, name)(IN, H, layers, bidirectional=ways == 2, "
                "batch_first=bool(first), **({'proj_size': proj} if proj else {}))\n"
                "def output(s):\n"
                "    if cell:\n"
                "        y = net(value(s, B, IN)); return y[0] + y[1] if 'lstm' in kind else y\n"
                "    x = value(s, B, T, IN) if first else value(s, T, B, IN)\n"
                "    if not lengths: return net(x)[0]\n"
                "    p = nn.utils.rnn.pack_padded_sequence(x, [1 + (i * 3) % T for i in range(B)], bool(first), False)\n"
                "    return nn.utils.rnn.pad_packed_sequence(net(p)[0], bool(first), total_length=T)[0]\n" TORCH_STEPS;

typedef struct variant {
    const char *kind;
    int layers, ways, batch_first, lengths, projection;
} variant;

static clef_module *make(const variant *v) {
    clef_nn_recurrent_options o = {.recurrent = {.layers = v->layers, .bidirectional = v->ways == 2, .batch_first = v->batch_first},
                                   .projection = v->projection};
    if (strcmp(v->kind, "rnn") == 0) return clef_nn_rnn(ctx, IN, HIDDEN, &o);
    if (strcmp(v->kind, "lstm") == 0) return clef_nn_lstm(ctx, IN, HIDDEN, &o);
    if (strcmp(v->kind, "gru") == 0) return clef_nn_gru(ctx, IN, HIDDEN, &o);
    if (strcmp(v->kind, "rnn_cell") == 0) return clef_nn_rnn_cell(ctx, IN, HIDDEN, NULL);
    if (strcmp(v->kind, "lstm_cell") == 0) return clef_nn_lstm_cell(ctx, IN, HIDDEN, NULL);
    return clef_nn_gru_cell(ctx, IN, HIDDEN, NULL);
}

static clef_tensor *output(const void *of, clef_module *net, int s) {
    const variant *v = of;
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

static int compare(const variant *v) {
    char words[80];
    snprintf(words, sizeof words, "%s %d %d %d %d %d", v->kind, v->layers, v->ways, v->batch_first, v->lengths, v->projection);
    return torch_compare(make(v), words, output, v);
}

int main(void) {
    static const variant variants[] = {{"rnn", 1, 1, 0, 0, 0},       {"lstm", 1, 1, 0, 0, 0},    {"gru", 1, 1, 0, 0, 0},
                                       {"lstm", 2, 2, 1, 1, 0},      {"gru", 2, 2, 0, 1, 0},     {"rnn", 2, 2, 1, 1, 0},
                                       {"lstm", 1, 1, 0, 0, 4},      {"lstm", 2, 2, 1, 1, 5},    {"rnn_cell", 1, 1, 0, 0, 0},
                                       {"lstm_cell", 1, 1, 0, 0, 0}, {"gru_cell", 1, 1, 0, 0, 0}};
    int wrong = 0, over = torch_begin(script);
    if (over) return over;
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) wrong += compare(&variants[i]);
    return torch_end(wrong);
}
