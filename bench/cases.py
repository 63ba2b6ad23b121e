"""The cases of bench/compare.py: (name, line of the protocol, floating-point operations, bytes that must move)."""
import csv
import os
import re

MOST_FLOPS, MOST_BYTES = 2e9, 512e6
RNN_FLOPS = 30e9  # of all steps of a sequence
left_out = {}  # suite: (cases of DeepBench's lists that were beyond these limits, all of them)


def gemm_case(m, n, k, ta=0, tb=0):
    name = f"{m}x{n}x{k} {'T' if ta else 'N'}{'T' if tb else 'N'}"
    return name, f"gemm m={m} n={n} k={k} ta={ta} tb={tb}", 2.0 * m * n * k, 4.0 * (m * k + k * n + m * n)


def gemm(quick):
    squares = [128, 512, 1024] if quick else [128, 256, 384, 512, 768, 1024, 1536, 2048]
    cases = [gemm_case(n, n, n) for n in squares]
    cases += [gemm_case(512, 512, 512, ta, tb) for ta, tb in ((0, 1), (1, 0), (1, 1))]
    cases += within_limits("gemm", deepbench_gemm())
    return cases[:12] if quick else cases


def deepbench_gemm():
    return [gemm_case(*(int(row[key]) for key in ("m", "n", "k", "a_transposed", "b_transposed"))) for row in shapes("deepbench_gemm.csv")]


def within_limits(suite, listed, most_flops=MOST_FLOPS):
    """Those of DeepBench's cases, each once, that are small enough; how many are not goes to left_out."""
    listed = {case[0]: case for case in listed}
    small = [case for case in listed.values() if case[2] <= most_flops and case[3] <= MOST_BYTES]
    if listed:
        left_out[suite] = (len(listed) - len(small), len(listed), most_flops)
    return small


def conv_case(name, n, c, h, w, o, kh, kw, stride=1, pad=0, groups=1, direction="forward"):
    oh, ow = (h + 2 * pad - kh) // stride + 1, (w + 2 * pad - kw) // stride + 1
    flops = 2.0 * n * o * oh * ow * (c // groups) * kh * kw
    moved = 4.0 * (n * c * h * w + o * (c // groups) * kh * kw + n * o * oh * ow)
    line = f"conv n={n} c={c} h={h} w={w} o={o} kh={kh} kw={kw} stride={stride} pad={pad} groups={groups} dir={direction}"
    return f"{name} n{n} {direction}", line, flops, moved


NETS = [  # name, c, side, o, kernel, stride, pad, groups
    ("lenet1", 1, 28, 6, 5, 1, 0, 1), ("lenet2", 6, 12, 16, 5, 1, 0, 1), ("cnn1", 3, 32, 32, 3, 1, 0, 1), ("cnn2", 32, 15, 64, 3, 1, 0, 1),
    ("resnet-stem", 3, 224, 64, 7, 2, 3, 1), ("resnet-56", 64, 56, 64, 3, 1, 1, 1), ("resnet-56-1x1", 64, 56, 256, 1, 1, 0, 1),
    ("resnet-28", 128, 28, 128, 3, 1, 1, 1), ("resnet-28-s2", 128, 56, 128, 3, 2, 1, 1), ("resnet-14", 256, 14, 256, 3, 1, 1, 1),
    ("resnet-7", 512, 7, 512, 3, 1, 1, 1), ("resnet-7-1x1", 512, 7, 2048, 1, 1, 0, 1), ("vgg-1", 3, 224, 64, 3, 1, 1, 1),
    ("vgg-112", 64, 112, 128, 3, 1, 1, 1), ("mobile-dw-112", 32, 112, 32, 3, 1, 1, 32), ("mobile-dw-14", 384, 14, 384, 3, 1, 1, 384),
    ("mobile-1x1-14", 384, 14, 96, 1, 1, 0, 1)]


def conv(quick):
    cases = []
    for name, c, side, o, kernel, stride, pad, groups in NETS:
        for n in (8,) if quick else (1, 8):
            for direction in ("forward", "data", "weight"):
                case = conv_case(name, n, c, side, side, o, kernel, kernel, stride, pad, groups, direction)
                if case[2] <= 4 * MOST_FLOPS and case[3] <= MOST_BYTES:
                    cases.append(case)
    return cases if quick else cases + within_limits("conv", deepbench_conv())


def deepbench_conv():
    """DeepBench's training convolutions with square strides and paddings, at batch 1 or 2."""
    cases = []
    for row in shapes("deepbench_conv.csv"):
        v = {key: int(value) for key, value in row.items() if key != "set"}
        if v["pad_w"] != v["pad_h"] or v["stride_w"] != v["stride_h"]:
            continue
        for direction in ("forward", "data", "weight"):
            cases.append(conv_case(f"deepbench {v['c']}x{v['h']}x{v['w']}-{v['k']} {v['r']}x{v['s']}", min(v["n"], 2), v["c"], v["h"], v["w"],
                                   v["k"], v["r"], v["s"], v["stride_w"], v["pad_w"], 1, direction))
    return cases


def pointwise(quick):
    cases = []
    for rows, columns in ((4096, 4096),) if quick else ((256, 256), (1024, 1024), (4096, 4096)):
        for ops in (1, 2, 4, 8):
            cases.append((f"{ops} ops [{rows},{columns}]", f"pointwise rows={rows} columns={columns} ops={ops}", float(ops * rows * columns),
                          8.0 * rows * columns))
    return cases


def unary(quick):
    """Every row of the table of functions; every fourth in the quick form."""
    with open(os.path.join(os.path.dirname(__file__), "..", "cl", "unary.def")) as f:
        rows = re.findall(r"^(UNARY\w*)\((\w+), (\w+)", f.read(), re.MULTILINE)
    size = 2048 * 2048
    return [(f"{name} [2048,2048]", f"unary op={name} rows=2048 columns=2048", float(size), (5.0 if "TEST" in domain else 8.0) * size)
            for _, name, domain in rows[:: 4 if quick else 1]]


def reduce(quick):
    cases = []
    for rows, columns in ((4096, 4096),) if quick else ((256, 256), (1024, 1024), (4096, 4096)):
        for op in ("sum", "max", "softmax"):
            for dim in (0, 1):
                moved = 8.0 if op == "softmax" else 4.0
                cases.append((f"{op} dim {dim} [{rows},{columns}]", f"reduce op={op} rows={rows} columns={columns} dim={dim}",
                              float(rows * columns), moved * rows * columns))
    return cases


# name: bytes moved for each element of [rows, columns]
OPS = {"add": 12, "add_row": 8, "add_column": 8, "add_outer": 4, "square": 8, "cube": 8, "pow": 12, "to_f16": 6, "to_bf16": 6, "sum": 4, "std": 4,
       "prod": 4, "max": 4, "argmax": 4, "argmax_first": 4, "transpose": 8, "permute": 8, "flip": 8, "repeat_interleave": 1, "gather": 16,
       "index_select": 8, "index_add": 12, "scatter_add": 20, "cumsum": 8, "cumsum_first": 8, "cumprod": 8, "topk": 4, "adaptive_avg_pool": 4,
       "randn": 4, "rand": 4}


def ops(quick):
    """Single operations that a suite of their own family does not have."""
    return [(f"{op} [{side},{side}]", f"ops op={op} rows={side} columns={side}", float(side * side), float(moved * side * side))
            for side in ((2048,) if quick else (256, 1024, 2048)) for op, moved in OPS.items()]


def norm(quick):
    cases = [(f"layer_norm [{rows},{columns}]", f"norm op=layer rows={rows} columns={columns}", 8.0 * rows * columns, 8.0 * rows * columns)
             for rows, columns in ((256, 256), (2048, 768), (4096, 4096))]
    cases += [(f"batch_norm [{n},{c},{s},{s}]", f"norm op=batch rows={n} columns={c} side={s}", 8.0 * n * c * s * s, 8.0 * n * c * s * s)
              for n, c, s in ((8, 64, 14), (32, 64, 32), (32, 128, 56))]
    return cases


def attention(quick):
    """Self-attention, forward and with its gradients; and one query beside many keys, as when text is made."""
    cases = []
    for t, b, h in ((64, 8, 8), (256, 2, 8), (1024, 1, 8), (4096, 1, 2)):
        for d in (64,) if quick else (32, 64, 128):
            for causal in (0, 1):
                for direction, products in (("forward", 2), ("both", 7)):
                    flops = 2.0 * products * b * h * t * t * d / (2 if causal else 1)
                    name = f"[{b},{h},{t},{d}]{' causal' if causal else ''} {direction}"
                    cases.append((name, f"attention b={b} h={h} t={t} d={d} causal={causal} dir={direction}", flops, 16.0 * b * h * t * d))
    cases += [(f"[1,8,1,64] beside {keys} keys", f"attention b=1 h=8 t=1 keys={keys} d=64 causal=1", 4.0 * 8 * keys * 64, 8.0 * 8 * keys * 64)
              for keys in (256, 4096)]
    return cases


def rnn_case(name, cell, hidden, batch, steps, inside, layers=1, batch_first=0, direction="forward"):
    """Layers over a whole sequence; backward is of everything: x, weights and biases."""
    gates, work = {"vanilla": 1, "lstm": 4, "gru": 3}[cell], 3 if direction == "both" else 1
    per_step = sum(gates * hidden * ((hidden if layer else inside) + hidden) for layer in range(layers))
    line = f"rnn cell={cell} hidden={hidden} batch={batch} steps={steps} in={inside} layers={layers} first={batch_first} dir={direction}"
    moved = 4.0 * work * (per_step + batch * steps * (inside + layers * hidden))
    return f"{name} {direction}", line, 2.0 * work * batch * steps * per_step, moved


def rnn(quick):
    """DeepBench's LSTMs and GRUs, those of its training set with backward too; and long sequences."""
    listed = []
    for row in shapes("deepbench_rnn.csv"):
        cell, hidden, batch, steps = row["cell"], *(int(row[key]) for key in ("hidden", "batch", "time_steps"))
        for direction in ("forward", "both") if row["set"] == "training_set" else ("forward",):
            listed.append(rnn_case(f"{cell} h{hidden} b{batch} t{steps}", cell, hidden, batch, steps, hidden, direction=direction))
    small = within_limits("rnn", [case for case in listed if not case[0].startswith("vanilla")], RNN_FLOPS)
    long = rnn_case("lstm h256 b8 t2000 2 layers", "lstm", 256, 8, 2000, 256, 2, 1)
    return [long] + (small[:: max(1, len(small) // 8)] if quick else small)


def lm(quick):
    """Steps of GPTs (nanoGPT's setting for CPUs, GPT-2's smallest model), and single tokens by their saved keys and values."""
    cases = []
    for name, layers, heads, width, vocabulary, batch in (("nanoGPT step", 4, 4, 128, 65, 12), ("GPT-2 step", 12, 12, 768, 50257, 4)):
        line = f"lm part=train layers={layers} heads={heads} width={width} vocabulary={vocabulary} batch={batch} context=64"
        weights = 12 * layers * width * width + width * vocabulary
        flops = 6.0 * batch * 64 * (weights + layers * 64 * width)  # attention: causal, two products of t²·width/2
        cases.append((f"{name} b{batch} t64", line, flops, 0.0))
    weights = 12 * 8 * 512 * 512 + 512 * 8192
    for dtype, size in (("f32", 4), ("bf16", 2)):
        line = "lm part=decode layers=8 heads=8 width=512 vocabulary=8192 context=256" + ("" if dtype == "f32" else f" dtype={dtype}")
        cases.append((f"token, 8 layers 512 {dtype}", line, 2.0 * weights, float(size * weights)))
    return cases


def train(quick):
    cases = [("mlp b100", "train model=mlp batch=100 c=1 side=28"), ("lenet b100", "train model=lenet batch=100 c=1 side=28"),
             ("cnn b64", "train model=cnn batch=64 c=3 side=32"), ("mlp3 b1024", "train model=mlp3 batch=1024 c=1 side=28"),
             ("resnet18 b32", "train model=resnet18 batch=32 c=3 side=32")]
    if os.environ.get("CLEF_DATA"):
        cases.append(("lenet, an epoch of MNIST", f"epoch batches={60 if quick else 600}"))
    return [(name, line, 0.0, 0.0) for name, line in cases]


def infer(quick):
    """Answers of a model whose weights stay, one batch at a time."""
    models = (("mlp", 1, 28), ("lenet", 1, 28), ("cnn", 3, 32), ("resnet18", 3, 32))
    return [(f"{model} b{batch}", f"infer model={model} batch={batch} c={c} side={side}", 0.0, 0.0)
            for model, c, side in models for batch in (1, 32)]


def idle(quick):
    """One image at a time with 10 ms of idleness before each: the median, and what one in a hundred takes."""
    models = (("mlp", 1, 28), ("lenet", 1, 28), ("cnn", 3, 32)) + (() if quick else (("resnet18", 3, 32),))
    return [(f"{model} b1, p{p}", f"idle model={model} batch=1 c={c} side={side} p={p}", 0.0, 0.0)
            for model, c, side in models for p in (50, 99)]


def host(quick):
    """Seconds of the calling thread per launch: of a replay alone, and of everything it does for a step."""
    return [(f"{model}, {part}", f"host model={model} part={part} batch=4 c={c} side={side}", 0.0, 0.0)
            for model, c, side in (("lenet", 1, 28), ("resnet18", 3, 32)) for part in ("replay", "step")]


def shapes(file):
    folder = os.environ.get("CLEF_SHAPES")
    path = folder and os.path.join(folder, file)
    if not path or not os.path.exists(path):
        return []
    with open(path, newline="") as f:
        lines = [line for line in f if not line.startswith("#")]
    return list(csv.DictReader(lines))


SUITES = {"gemm": gemm, "conv": conv, "pointwise": pointwise, "unary": unary, "reduce": reduce, "ops": ops, "norm": norm, "attention": attention,
          "rnn": rnn, "lm": lm, "train": train, "infer": infer, "idle": idle, "host": host}
