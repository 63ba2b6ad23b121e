"""PyTorch's side of bench/compare.py; the protocol stands in bench/bench_clef.c.

Channels-last is used for convolutions and convolutional nets where it is the faster of the two on this machine, which is
found once per case: a peer runs at its best."""
import gzip
import os
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
CUDA = os.environ.get("CLEF_TORCH_DEVICE") == "cuda"  # else the CPU
if CUDA:
    torch.set_default_device("cuda")
    torch.backends.cudnn.allow_tf32 = False  # f32 means f32
DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16}


def wait():
    if CUDA:
        torch.cuda.synchronize()


def parse(line):
    words = line.split()
    case = dict(word.split("=", 1) for word in words[1:])
    return words[0], {k: int(v) if v.lstrip("-").isdigit() else v for k, v in case.items()}


def copies(shapes):
    total = sum(4 * torch.Size(s).numel() for s in shapes)
    n = max(1, min(16, -(-(128 << 20) // total)))
    return [[torch.randn(s) for s in shapes] for _ in range(n)]


def time_calls(run, inputs, calls):
    with torch.no_grad():
        for i in range(2):
            run(*inputs[i % len(inputs)])
        wait()
        begin = time.perf_counter()
        for i in range(calls):
            result = run(*inputs[i % len(inputs)])  # held while the next is made, as Clef holds its
        wait()
        return (time.perf_counter() - begin) / calls


def gemm(c):
    m, n, k, ta, tb = c["m"], c["n"], c["k"], c.get("ta", 0), c.get("tb", 0)
    inputs = copies([(k, m) if ta else (m, k), (n, k) if tb else (k, n)])
    return time_calls(lambda a, b: torch.mm(a.t() if ta else a, b.t() if tb else b), inputs, c["calls"])


def conv(c):
    stride, pad, groups, direction = c.get("stride", 1), c.get("pad", 0), c.get("groups", 1), c.get("dir", "forward")
    oh, ow = (c["h"] + 2 * pad - c["kh"]) // stride + 1, (c["w"] + 2 * pad - c["kw"]) // stride + 1
    shapes = [(c["n"], c["c"], c["h"], c["w"]), (c["o"], c["c"] // groups, c["kh"], c["kw"]), (c["n"], c["o"], oh, ow)]

    def run(x, w, g):
        if direction == "forward":
            return F.conv2d(x, w, None, stride, pad, 1, groups)
        mask = [direction == "data", direction == "weight", False]
        return torch.ops.aten.convolution_backward(g, x, w, None, [stride] * 2, [pad] * 2, [1, 1], False, [0, 0], groups, mask)

    inputs = copies(shapes)
    best = time_calls(run, inputs, c["calls"])
    if c.get("nchw"):
        return best
    last = [[t.contiguous(memory_format=torch.channels_last) for t in copy] for copy in inputs]
    return min(best, time_calls(run, last, c["calls"]))


def pointwise(c):
    def run(x, row, column):
        y = x
        for i in range(c["ops"]):
            y = [lambda: y + row, lambda: y * column, lambda: torch.relu(y), lambda: y - x][i % 4]()
        return y

    return time_calls(run, copies([(c["rows"], c["columns"]), (c["columns"],), (c["rows"], 1)]), c["calls"])


# Those that PyTorch has by another name, or in nn.functional, or with parameters (0.5, or -0.5 and 0.5).
UNARY = {"gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "clamp": lambda x: torch.clamp(x, -0.5, 0.5),
         "threshold": lambda x: F.threshold(x, -0.5, 0.5), "hardshrink": lambda x: F.hardshrink(x, 0.5),
         "softshrink": lambda x: F.softshrink(x, 0.5), "leaky_relu": lambda x: F.leaky_relu(x, 0.5), "elu": lambda x: F.elu(x, 0.5),
         "celu": lambda x: F.celu(x, 0.5)}


def unary(c):
    run = UNARY.get(c["op"]) or getattr(torch, c["op"], None) or getattr(F, c["op"])
    return time_calls(run, copies([(c["rows"], c["columns"])]), c["calls"])


def reduce(c):
    op, dim = c.get("op", "sum"), c.get("dim", 1)
    run = {"sum": lambda x: x.sum(dim), "max": lambda x: x.amax(dim), "softmax": lambda x: torch.softmax(x, dim)}[op]
    return time_calls(run, copies([(c["rows"], c["columns"])]), c["calls"])


def ops(c):
    """Single operations; what x, y, row, column, places and lines are stands in bench/suite_ops.h."""
    rows, columns = c["rows"], c["columns"]
    dense = lambda x: x.clone(memory_format=torch.contiguous_format)
    run = {"add": lambda x, y, row, column, places, lines: x + y, "add_row": lambda x, y, row, column, places, lines: x + row,
           "add_column": lambda x, y, row, column, places, lines: x + column, "add_outer": lambda x, y, row, column, places, lines: row + column,
           "square": lambda x, *_: x.pow(2), "cube": lambda x, *_: x.pow(3), "pow": lambda x, y, *_: x.abs().pow(y),
           "to_f16": lambda x, *_: x.to(torch.float16), "to_bf16": lambda x, *_: x.to(torch.bfloat16), "sum": lambda x, *_: x.sum(),
           "std": lambda x, *_: x.std(), "prod": lambda x, *_: x.prod(1), "max": lambda x, *_: x.amax(1), "argmax": lambda x, *_: x.argmax(1),
           "argmax_first": lambda x, *_: x.argmax(0), "transpose": lambda x, *_: dense(x.t()),
           "permute": lambda x, *_: dense(x.view(4, rows // 4, 16, columns // 16).permute(0, 2, 1, 3)), "flip": lambda x, *_: x.flip(1),
           "repeat_interleave": lambda x, y, row, *_: row.repeat_interleave(512, 0),
           "gather": lambda x, y, row, column, places, lines: x.gather(1, places),
           "index_select": lambda x, y, row, column, places, lines: x.index_select(0, lines),
           "index_add": lambda x, y, row, column, places, lines: x.index_add(0, lines, y),
           "scatter_add": lambda x, y, row, column, places, lines: x.scatter_add(1, places, y), "cumsum": lambda x, *_: x.cumsum(1),
           "cumsum_first": lambda x, *_: x.cumsum(0), "cumprod": lambda x, *_: x.cumprod(1), "topk": lambda x, *_: x.topk(10, 1, sorted=False),
           "adaptive_avg_pool": lambda x, *_: F.adaptive_avg_pool2d(x.view(rows // 64, columns // 16, 32, 32), 7),
           "randn": lambda x, *_: torch.randn_like(x), "rand": lambda x, *_: torch.rand_like(x)}[c["op"]]
    inputs = copies([(rows, columns), (rows, columns), (columns,), (rows, 1)])
    for copy in inputs:
        copy += [torch.randint(0, columns, (rows, columns)), torch.randint(0, rows, (rows,))]
    return time_calls(run, inputs, c["calls"])


def norm(c):
    if c.get("op", "layer") == "layer":
        shapes = [(c["rows"], c["columns"]), (c["columns"],), (c["columns"],)]
        return time_calls(lambda x, w, b: F.layer_norm(x, w.shape, w, b), copies(shapes), c["calls"])
    shapes = [(c["rows"], c["columns"], c["side"], c["side"]), (c["columns"],), (c["columns"],)]
    return time_calls(lambda x, w, b: F.batch_norm(x, w.clone(), w.clone().abs(), w, b, True), copies(shapes), c["calls"])


def attention(c):
    b, h, t, d = c["b"], c["h"], c["t"], c["d"]
    keys, both = c.get("keys", t), c.get("dir", "forward") == "both"
    causal = bool(c["causal"]) and t > 1  # PyTorch counts its causal places from the first key; one query sees all

    def run(q, k, v, g):
        with torch.set_grad_enabled(both):
            for x in (q, k, v):
                x.requires_grad_(both)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
            return torch.autograd.grad(y, (q, k, v), g) if both else y

    return time_calls(run, copies([(b, h, t, d), (b, h, keys, d), (b, h, keys, d), (b, h, t, d)]), c["calls"])


def recurrent(c):
    kind = {"lstm": nn.LSTM, "gru": nn.GRU, "vanilla": nn.RNN}[c["cell"]]
    return kind(c["in"], c["hidden"], c.get("layers", 1), batch_first=bool(c.get("first", 0)))


def rnn(c):
    """A sequence through the layers: forward, or with the gradients of x and all weights."""
    key = ("rnn", *(v for k, v in sorted(c.items()) if k != "calls"))
    if key not in models:
        models.clear()
        outer = (c["batch"], c["steps"]) if c.get("first", 0) else (c["steps"], c["batch"])
        models[key] = (recurrent(c), torch.randn(*outer, c["in"]), torch.randn(*outer, c["hidden"]))
    net, x, g = models[key]

    def both():
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            torch.autograd.grad(net(leaf)[0], [leaf, *net.parameters()], g)

    return time_calls(both if c.get("dir") == "both" else lambda: net(x), [()], c["calls"])


class Residual(nn.Module):
    def __init__(self, inside, outside, stride):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(inside, outside, 3, stride, 1, bias=False), nn.BatchNorm2d(outside), nn.ReLU(),
                                  nn.Conv2d(outside, outside, 3, 1, 1, bias=False), nn.BatchNorm2d(outside))
        plain = stride == 1 and inside == outside
        self.shortcut = nn.Identity() if plain else nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False),
                                                                  nn.BatchNorm2d(outside))

    def forward(self, x):
        return torch.relu(self.body(x) + self.shortcut(x))


def resnet18(c):
    layers = [nn.Conv2d(c, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    width = 64
    for stage, outside in enumerate([64, 128, 256, 512]):
        for block in range(2):
            layers.append(Residual(width, outside, 2 if stage and not block else 1))
            width = outside
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def lenet(c, side):
    after = ((side - 4) // 2 - 4) // 2
    return nn.Sequential(nn.Conv2d(c, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                         nn.Linear(16 * after * after, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))


def cnn(c, side):
    after = ((side - 2) // 2 - 2) // 2
    return nn.Sequential(nn.Conv2d(c, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                         nn.Linear(64 * after * after, 10))


def mlp(inside, widths):
    layers = [nn.Flatten()]
    for width in widths:
        layers += [nn.Linear(inside, width), nn.ReLU()]
        inside = width
    return nn.Sequential(*layers, nn.Linear(inside, 10))


def make_model(name, c, side):
    return {"lenet": lambda: lenet(c, side), "cnn": lambda: cnn(c, side), "resnet18": lambda: resnet18(c),
            "mlp": lambda: mlp(c * side * side, [256, 128]), "mlp3": lambda: mlp(c * side * side, [1024, 1024])}[name]()


models = {}


def steps(state, calls):
    net, opt, x, y = state
    for i in range(calls):
        opt.zero_grad(set_to_none=True)
        F.cross_entropy(net(x[i % 4]), y).backward()
        opt.step()


def timed_steps(state, calls, steps=steps):
    wait()
    begin = time.perf_counter()
    steps(state, calls)
    wait()
    return (time.perf_counter() - begin) / calls


def train(c):
    key = (c["model"], c["batch"])
    if key not in models:
        models.clear()
        tried = []
        for layout in (torch.contiguous_format, torch.channels_last):
            net = make_model(c["model"], c.get("c", 1), c.get("side", 28)).to(memory_format=layout)
            x = [torch.randn(c["batch"], c.get("c", 1), c.get("side", 28), c.get("side", 28)).to(memory_format=layout) for _ in range(4)]
            opt = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
            state = (net, opt, x, torch.arange(c["batch"]) % 10)
            steps(state, 2)
            tried.append((timed_steps(state, max(2, c["calls"] // 2)), state))
        models[key] = min(tried, key=lambda t: t[0])[1]
    return timed_steps(models[key], c["calls"])


def times_of_answers(net, x, calls, pause=0):
    seconds = []
    for i in range(calls):
        if pause:
            time.sleep(pause)
        begin = time.perf_counter()
        net(x[i % 4]).cpu().numpy()
        seconds.append(time.perf_counter() - begin)
    return seconds


def answers(net, x, calls):
    return sum(times_of_answers(net, x, calls)) / calls


def best_for_inference(c):
    """The best of both layouts, as it is and traced, frozen and with its weights packed for oneDNN; and its inputs."""
    key = ("infer", c["model"], c["batch"])
    if key not in models:
        models.clear()
        tried = []
        for layout in (torch.contiguous_format, torch.channels_last):
            net = make_model(c["model"], c.get("c", 1), c.get("side", 28)).eval().to(memory_format=layout)
            x = [torch.randn(c["batch"], c.get("c", 1), c.get("side", 28), c.get("side", 28)).to(memory_format=layout) for _ in range(4)]
            for form in (net,) if CUDA else (net, torch.jit.optimize_for_inference(torch.jit.trace(net, x[0]))):
                answers(form, x, 4)
                tried.append((answers(form, x, max(8, c["calls"] // 2)), (form, x)))
        models[key] = min(tried, key=lambda t: t[0])[1]
    return models[key]


@torch.inference_mode()
def infer(c):
    return answers(*best_for_inference(c), c["calls"])


@torch.inference_mode()
def idle(c):
    """The percentile p of answers that are asked for 10 ms apart."""
    return sorted(times_of_answers(*best_for_inference(c), c["calls"], 0.01))[(c["calls"] - 1) * c["p"] // 100]


def mnist(name, header):
    with gzip.open(os.path.join(os.environ["CLEF_DATA"], "mnist", name), "rb") as f:
        return torch.frombuffer(bytearray(f.read()[header:]), dtype=torch.uint8)


epochs = {}


def epoch(c):
    """One epoch of LeNet on MNIST: images already floats in memory, shuffled by index, which is faster than a DataLoader."""
    if not epochs:
        x = mnist("train-images-idx3-ubyte.gz", 16).view(-1, 1, 28, 28).float() / 255
        net = lenet(1, 28)
        epochs["state"] = (net, torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9), x, mnist("train-labels-idx1-ubyte.gz", 8).long())
    net, opt, x, y = epochs["state"]
    begin = time.perf_counter()
    for batch in torch.randperm(len(x)).split(100)[:c["batches"]]:
        opt.zero_grad(set_to_none=True)
        F.cross_entropy(net(x[batch]), y[batch]).backward()
        opt.step()
    return time.perf_counter() - begin


class Block(nn.Module):
    """Of GPT-2, without biases; with a cache of keys and values while `at` is the place of one token."""

    def __init__(self, width, heads, context):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width, bias=False), nn.LayerNorm(width, bias=False)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)
        self.heads, self.cache = heads, torch.zeros(2, 1, heads, context, width // heads)

    def forward(self, x, at=None):
        b, t, width = x.shape
        q, k, v = (part.view(b, t, self.heads, -1).transpose(1, 2) for part in self.c_attn(self.ln_1(x)).split(width, 2))
        if at is not None:
            self.cache[0, :, :, at], self.cache[1, :, :, at] = k[:, :, 0], v[:, :, 0]
            k, v = self.cache[0, :, :, :at + 1], self.cache[1, :, :, :at + 1]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=at is None)
        x = x + self.c_proj(y.transpose(1, 2).reshape(b, t, width))
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(c["vocabulary"], c["width"]), nn.Embedding(c["context"], c["width"])
        self.h = nn.ModuleList(Block(c["width"], c["heads"], c["context"]) for _ in range(c["layers"]))
        self.ln_f = nn.LayerNorm(c["width"], bias=False)
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, at=None):
        x = self.wte(tokens) + (self.wpe.weight[:tokens.shape[1]] if at is None else self.wpe.weight[at])
        for block in self.h:
            x = block(x, at)
        return F.linear(self.ln_f(x), self.wte.weight)


def lm_steps(state, calls):
    net, run, opt, x, y = state
    for i in range(calls):
        opt.zero_grad(set_to_none=True)
        F.cross_entropy(run(x[i % 4]).flatten(0, 1), y[i % 4].flatten()).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()


def lm_training(c):
    """The best of eager and compiled (where a compiler for it is here)."""
    net, tried = Gpt(c), []
    x, y = ([torch.randint(c["vocabulary"], (c["batch"], c["context"])) for _ in range(4)] for _ in range(2))
    for run in (net, torch.compile(net)):
        state = (net, run, torch.optim.AdamW(net.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1, fused=True), x, y)
        try:
            lm_steps(state, 3)
            tried.append((timed_steps(state, 3, lm_steps), state))
        except Exception as error:
            print("not compiled:", str(error).splitlines()[0], file=sys.stderr)
    return min(tried, key=lambda t: t[0])[1]


@torch.inference_mode()
def lm_decode(net, c, calls):
    begin, token, context = time.perf_counter(), torch.tensor([[1]]), c["context"]
    for i in range(calls):
        token = net(token, (net.at + i) % context)[:, -1].argmax(-1, keepdim=True)
        token.item()
    net.at = (net.at + calls) % context
    return (time.perf_counter() - begin) / calls


def lm(c):
    key = ("lm", *(v for k, v in sorted(c.items()) if k != "calls"))
    train = c["part"] == "train"
    if key not in models:
        models.clear()
        models[key] = lm_training(c) if train else Gpt(c).eval()
        if not train:
            models[key].at = 0
            lm_decode(models[key], c, 4)
    return timed_steps(models[key], c["calls"], lm_steps) if train else lm_decode(models[key], c, c["calls"])


SUITES = {"epoch": epoch, "lm": lm, "gemm": gemm, "conv": conv, "pointwise": pointwise, "unary": unary, "reduce": reduce, "ops": ops, "norm": norm,
          "attention": attention, "rnn": rnn, "train": train, "infer": infer, "idle": idle}


def main():
    print(f"ready torch {torch.__version__} | {torch.get_num_threads()} threads", flush=True)
    for line in sys.stdin:
        suite, case = parse(line)
        if suite not in SUITES:
            print("skip not measured here", flush=True)
            continue
        torch.set_default_dtype(DTYPES.get(case.get("dtype"), torch.float32))
        try:
            print(f"seconds {SUITES[suite](case):.9g}", flush=True)
        except RuntimeError as error:
            print(f"skip {str(error).splitlines()[0]}", flush=True)


main()
