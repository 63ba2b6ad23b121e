"""autocast.py: writes autocast.def, what PyTorch gives under autocast for inputs of f16 and of f32, and how two nets train under it.

    python autocast.py      needs torch and numpy, no GPU; the tests need only the table, which is committed

Dtypes are those of torch.autocast("cuda", torch.float16) on tensors without memory.  Of some functions a PyTorch that was built without CUDA
does not know the result: LISTED has them by torch's own list (ATen/autocast_mode.h).  OWN are functions that PyTorch has not, or has by
another name, and that choose, move or count: they give what they are given.
"""
import os
import numpy as np
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode

here = os.path.dirname(os.path.abspath(__file__))
SHORT = {torch.float16: "F16", torch.float32: "F32", torch.bool: "BOOL", torch.int64: "I64"}

one = lambda *names: {n: (lambda x, n=n: (getattr(torch, n, None) or getattr(F, n))(x)) for n in names}
two = lambda *names: {n: (lambda x, n=n: getattr(torch, n)(x, x)) for n in names}
CALLS = {
    **one(*"""neg abs sign square reciprocal sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh
        acosh atanh erf erfc sigmoid logsigmoid relu relu6 selu gelu silu softplus softsign mish hardswish hardsigmoid leaky_relu elu celu
        hardshrink softshrink floor ceil round trunc isnan isinf isfinite logical_not""".split()),
    **two(*"add sub mul div floor_divide remainder fmod pow maximum minimum atan2 eq ne lt le gt ge logical_and logical_or logical_xor".split()),
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "clamp": lambda x: x.clamp(0, 1), "threshold": lambda x: F.threshold(x, 0, 1),
    "trunc_divide": lambda x: torch.div(x, x, rounding_mode="trunc"), "where": lambda x: torch.where(x > 0, x, x),
    "lerp": lambda x: torch.lerp(x, x, x),
    "sum": lambda x: x.sum(0), "mean": lambda x: x.mean(0), "max": lambda x: x.amax(0), "min": lambda x: x.amin(0), "prod": lambda x: x.prod(0),
    "var": lambda x: x.var(0), "std": lambda x: x.std(0), "logsumexp": lambda x: x.logsumexp(0), "norm": lambda x: x.norm(),
    "cosine_similarity": lambda x: F.cosine_similarity(x, x), "argmax": lambda x: x.argmax(0), "argmin": lambda x: x.argmin(0),
    "reshape": lambda x: x.reshape(2, -1), "flatten": lambda x: x.flatten(), "squeeze": lambda x: x.squeeze(0),
    "unsqueeze": lambda x: x.unsqueeze(0), "transpose": lambda x: x.T, "permute": lambda x: x.permute(1, 0), "expand": lambda x: x.expand(2, 4, 4),
    "slice": lambda x: x.narrow(0, 0, 2), "flip": lambda x: x.flip(0), "concat": lambda x: torch.cat([x, x]), "stack": lambda x: torch.stack([x, x]),
    "split": lambda x: x.chunk(2)[0], "pad": lambda x: F.pad(x, (1, 1)), "gather": lambda x: x.gather(0, at(4, 4)),
    "scatter_reduce": lambda x: x.scatter_reduce(0, at(4, 4), x, "amax"), "index_add": lambda x: x.index_add(0, at(4), x),
    "embedding": lambda x: F.embedding(at(3), x), "cumsum": lambda x: x.cumsum(0), "cumprod": lambda x: x.cumprod(0),
    "sort": lambda x: x.sort(0)[0], "argsort": lambda x: x.argsort(0), "topk": lambda x: x.topk(2)[0], "tril": lambda x: x.tril(),
    "triu": lambda x: x.triu(), "masked_fill": lambda x: x.masked_fill(x > 0, 0), "index_select": lambda x: x.index_select(0, at(3)),
    "scatter": lambda x: x.scatter(0, at(4, 4), x), "scatter_value": lambda x: x.scatter(0, at(4, 4), 1.0), "repeat": lambda x: x.repeat(2, 2),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 0), "matmul": lambda x: x @ x, "linear": lambda x: F.linear(x, x),
    "softmax": lambda x: x.softmax(0), "log_softmax": lambda x: x.log_softmax(0), "layer_norm": lambda x: F.layer_norm(x, (4,)),
    "rms_norm": lambda x: F.rms_norm(x, (4,)), "group_norm": lambda x: F.group_norm(x, 2), "dropout": lambda x: F.dropout(x),
    "cross_entropy": lambda x: F.cross_entropy(x, at(4)), "nll_loss": lambda x: F.nll_loss(x, at(4)), "mse_loss": lambda x: F.mse_loss(x, x),
    "l1_loss": lambda x: F.l1_loss(x, x), "huber_loss": lambda x: F.huber_loss(x, x), "kl_div": lambda x: F.kl_div(x, x),
    "bce_with_logits": lambda x: F.binary_cross_entropy_with_logits(x, x),
}
LOW, FULL, KEPT = ("F16", "F16"), ("F32", "F32"), ("F16", "F32")
LISTED = {n: LOW for n in "conv2d conv1d conv_transpose2d attention rnn lstm gru prelu".split()}
LISTED.update({"upsample_nearest2d": FULL, "instance_norm": FULL})  # PyTorch's instance norm is a batch norm; here it is a group norm
# scatter_add is among those that take the widest type: PyTorch makes that f32 at least, which changes no number of a sum that is f32 inside.
OWN = {n: KEPT for n in """max_pool2d avg_pool2d adaptive_avg_pool2d global_avg_pool2d batch_norm scatter_add slice_at slice_update where_scalar
    rotary reorder_gates custom""".split()}

at = lambda *shape: torch.zeros(shape, dtype=torch.long, device="cuda")


def dtypes():
    rows = {**LISTED, **OWN}
    torch.set_autocast_enabled("cuda", True)
    torch.set_autocast_dtype("cuda", torch.float16)
    with FakeTensorMode(allow_non_fake_inputs=True):
        for name, call in CALLS.items():
            rows[name] = tuple(SHORT[call(torch.empty(4, 4, device="cuda", dtype=d)).dtype] for d in (torch.float16, torch.float32))
    torch.set_autocast_enabled("cuda", False)
    return rows


# ---- training: on the CPU, whose lists differ where that changes little ----
def noise(shape, salt):
    """As in tests/support/device.h."""
    i = np.arange(int(np.prod(shape)), dtype=np.uint64)
    with np.errstate(over="ignore"):
        x = (i + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(salt) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return torch.tensor(((x >> np.uint64(40)).astype(np.float64) / (1 << 23) - 1).astype(np.float32).reshape(shape))


def cnn(p):
    h = F.max_pool2d(F.relu(F.conv2d(noise((16, 1, 8, 8), 90), p[0], p[1], padding=1)), 2)
    return F.linear(h.flatten(1), p[2], p[3])


def transformer(p):
    x = noise((16, 6, 16), 91)
    h = F.layer_norm(x, (16,))
    q, k, v = F.linear(h, p[0]).reshape(16, 6, 3, 2, 8).permute(2, 0, 3, 1, 4)
    a = F.scaled_dot_product_attention(q, k, v).permute(0, 2, 1, 3).reshape(16, 6, 16)
    x = x + F.linear(a, p[1])
    x = x + F.linear(F.gelu(F.linear(F.layer_norm(x, (16,)), p[2])), p[3])
    return F.linear(x.mean(1), p[4])


NETS = {"cnn": (cnn, [(4, 1, 3, 3), (4,), (10, 64), (10,)], 0.3),
        "transformer": (transformer, [(48, 16), (16, 16), (32, 16), (16, 32), (10, 16)], 0.2)}
STEPS = 24


def losses(name, dtype):
    net, shapes, lr = NETS[name]
    p = [(noise(s, 10 + i) * 0.3).requires_grad_() for i, s in enumerate(shapes)]
    y = torch.arange(16) * 7 % 10
    opt = torch.optim.SGD(p, lr)
    scaler = torch.amp.GradScaler("cpu", enabled=dtype == torch.float16)
    out = []
    for _ in range(STEPS):
        opt.zero_grad()
        with torch.autocast("cpu", dtype=dtype, enabled=dtype != torch.float32):
            loss = F.cross_entropy(net(p), y)
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
        out.append(loss.item())
    return out


def main():
    with open(os.path.join(here, "autocast.def"), "w") as out:
        out.write("/* autocast.def — what PyTorch gives under autocast to f16 for f16 and for f32, and losses of nets that it trains under autocast on a\n"
                  "   CPU; written by autocast.py. */\n")
        for name, (half, single) in sorted(dtypes().items()):
            out.write(f"AUTOCAST({name}, {half}, {single})\n")
        for name in NETS:
            for dtype, short in ((torch.float32, "F32"), (torch.float16, "F16"), (torch.bfloat16, "BF16")):
                row = ", ".join(f"{v:.7g}" for v in losses(name, dtype))
                out.write(f"LOSSES({name}, {short}, {row})\n")
        out.write("#undef AUTOCAST\n#undef LOSSES\n")


main()
