"""Reads what Clef wrote into a directory and writes files for Clef to read.  See main_interop.c.

Exit code: 0 good, 1 a check failed, 77 a module is missing (without safetensors all checks are made with the reader and
writer below, which follow the format's text).  Where PyTorch is there it makes the model that Clef opens and confirms the
reference; else NumPy does."""
import json
import os
import struct
import sys

try:
    import numpy as np
except ImportError:
    print("skipped: python3 has no module numpy")
    sys.exit(77)
try:
    from safetensors import safe_open
    from safetensors.numpy import load_file, save_file
    official = True
except ImportError:
    official = False
try:
    import torch
except ImportError:
    torch = None

NAMES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "U8": "u1", "BOOL": "?", "BF16": "<u2"}


def own_header(path):
    with open(path, "rb") as f:
        raw = f.read()
    (size,) = struct.unpack("<Q", raw[:8])
    return json.loads(raw[8 : 8 + size].decode("utf-8")), raw[8 + size :]


def own_load(path):
    header, data = own_header(path)
    header.pop("__metadata__", None)
    return {
        name: np.frombuffer(data[t["data_offsets"][0] : t["data_offsets"][1]], NAMES[t["dtype"]]).reshape(t["shape"])
        for name, t in header.items()
    }


def own_save(tensors, path, metadata):
    header, data = {"__metadata__": metadata}, b""
    for name, a in tensors.items():
        kind = next(k for k, v in NAMES.items() if np.dtype(v) == a.dtype and k != "BF16")
        raw = np.ascontiguousarray(a).tobytes()
        header[name] = {"dtype": kind, "shape": list(a.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


load = load_file if official else own_load
save = save_file if official else own_save


def check(good, what):
    if not good:
        print("interop.py: wrong:", what)
        sys.exit(1)


def pattern(dtype, shape):
    """The numbers 0, 1, … in which both sides agree, folded to what the dtype holds."""
    n = np.arange(int(np.prod(shape)))
    if np.dtype(dtype) == np.bool_:
        return (n % 3 == 0).reshape(shape)
    if np.dtype(dtype).kind == "f":
        return (n * 0.5 - 3).astype(dtype).reshape(shape)
    return (n % 200).astype(dtype).reshape(shape)


# Names and shapes as PyTorch gives them to Sequential(Conv2d(1, 6, 5), ReLU(), MaxPool2d(2), Conv2d(6, 16, 5), ReLU(),
# MaxPool2d(2), Flatten(), Linear(256, 120), ReLU(), Linear(120, 84), ReLU(), Linear(84, 10)).
CONVOLUTIONS = {"0": (6, 1, 5, 5), "3": (16, 6, 5, 5)}
LINEARS = {"7": (120, 256), "9": (84, 120), "11": (10, 84)}
LENET = {**CONVOLUTIONS, **LINEARS}


def products(x, w, b):
    """x·wᵀ + b, one product after another, as a plain loop in C adds them up."""
    y = np.zeros(x.shape[:-1] + (len(w),), x.dtype)
    for k in range(x.shape[-1]):
        y += x[..., k, None] * w[:, k]
    return y + b


def lenet(w, x, dtype):
    """The logits, with every product and sum in dtype."""
    w = {k: v.astype(dtype) for k, v in w.items()}
    x = x.astype(dtype)
    for k, shape in CONVOLUTIONS.items():
        windows = np.lib.stride_tricks.sliding_window_view(x, shape[2:], axis=(2, 3)).transpose(0, 2, 3, 1, 4, 5)
        windows = windows.reshape(windows.shape[:3] + (-1,))
        x = np.maximum(products(windows, w[k + ".weight"].reshape(shape[0], -1), w[k + ".bias"]), 0)
        n, height, width, c = x.shape
        x = x.reshape(n, height // 2, 2, width // 2, 2, c).max(axis=(2, 4)).transpose(0, 3, 1, 2)
    x = x.reshape(len(x), -1)
    for k in LINEARS:
        x = products(x if k == "7" else np.maximum(x, 0), w[k + ".weight"], w[k + ".bias"])
    assert x.dtype == dtype
    return x


def torch_lenet():
    layers = [torch.nn.Conv2d(1, 6, 5), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Conv2d(6, 16, 5), torch.nn.ReLU(),
              torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.Linear(256, 120), torch.nn.ReLU(),
              torch.nn.Linear(120, 84), torch.nn.ReLU(), torch.nn.Linear(84, 10)]
    return torch.nn.Sequential(*layers)


def logits_of(w, x):
    """In double precision, and how far a plain run in single precision is from that."""
    exact, plain = lenet(w, x, np.float64), lenet(w, x, np.float32)
    if torch:
        net = torch_lenet().double()
        net.load_state_dict({k: torch.from_numpy(v.copy()) for k, v in w.items()})
        with torch.no_grad():
            theirs = net(torch.from_numpy(x).double()).numpy()
        check(np.abs(theirs - exact).max() <= 1e-12 * np.abs(exact).max(), "PyTorch's logits in double precision")
    return exact, np.abs(plain - exact).max()


def read_all(d):
    types = {"f32": "f4", "f16": "f2", "i32": "i4", "i64": "i8", "u8": "u1", "bool": "?"}
    tensors = load(os.path.join(d, "clef.safetensors"))
    check(set(tensors) == set(types) | {"scalar", 'odd "name"\n'}, "names %r" % sorted(tensors))
    for name, dtype in types.items():
        expected = pattern(dtype, (3, 4, 5))
        a = np.load(os.path.join(d, "clef_%s.npy" % name))
        for got in (tensors[name], a):
            check(got.dtype == expected.dtype and got.shape == expected.shape and (got == expected).all(), name)
    check(tensors["scalar"].shape == () and tensors["scalar"] == 1, "scalar")
    metadata = own_header(os.path.join(d, "clef.safetensors"))[0]["__metadata__"]
    check(metadata == {"format": "pt", 'k"\\\n': "\U0001f642 \x01"}, "metadata %r" % metadata)
    if official:
        with safe_open(os.path.join(d, "clef.safetensors"), framework="numpy") as f:
            check(f.metadata() == metadata, "metadata by the library")
        own = own_load(os.path.join(d, "clef.safetensors"))
        check(all((own[k] == tensors[k]).all() for k in own), "both readers agree")
        with safe_open(os.path.join(d, "last.ckpt"), framework="numpy") as f:
            check(f.metadata()["clef.checkpoint"] == "2" and len(f.metadata()["clef.crc32c"]) == 8 and "model.0.weight" in f.keys(), "a checkpoint")
            check(float.fromhex(f.metadata()["metric"]) == 0.1, "the metric")


def logits(d):
    x = np.load(os.path.join(d, "x.npy"))
    w = load(os.path.join(d, "lenet.safetensors"))
    shapes = {k + ".weight": s for k, s in LENET.items()}
    shapes.update({k + ".bias": s[:1] for k, s in LENET.items()})
    check({k: v.shape for k, v in w.items()} == shapes, "LeNet's parameters: %r" % {k: v.shape for k, v in w.items()})
    exact, plain = logits_of(w, x)
    off = np.abs(np.load(os.path.join(d, "logits.npy")) - exact).max()
    print("interop.py: Clef's LeNet: logits off by %.2g, a plain run by %.2g" % (off, plain))
    check(off <= 2 * plain, "logits of Clef's LeNet")
    if torch:
        torch.manual_seed(1)
        w = {k: v.numpy() for k, v in torch_lenet().state_dict().items()}
    else:  # PyTorch's own initial values: uniform, by the number of inputs
        rng = np.random.default_rng(1)
        bound = {k: 1 / np.sqrt(np.prod(s[1:])) for k, s in LENET.items()}
        w = {k: rng.uniform(-1, 1, s).astype(np.float32) * np.float32(bound[k.split(".")[0]]) for k, s in shapes.items()}
    save(w, os.path.join(d, "py_lenet.safetensors"), {"format": "pt"})
    exact, plain = logits_of(w, x)
    np.save(os.path.join(d, "py_logits.npy"), exact)
    np.save(os.path.join(d, "py_plain.npy"), np.float64(plain))


def write_all(d):
    path = lambda name: os.path.join(d, name)
    a = {n: pattern(t, (3, 4, 5)) for n, t in {"f32": "f4", "i64": "i8", "u8": "u1", "bool": "?", "f16": "f2", "i32": "i4"}.items()}
    save(a, path("py.safetensors"), {"é": '"\n'})
    np.save(path("py_fortran.npy"), np.asfortranarray(pattern("f4", (3, 4, 5))))
    np.save(path("py_big.npy"), pattern(">i4", (3, 4, 5)))
    np.save(path("py_both.npy"), np.asfortranarray(pattern(">f2", (3, 4, 5))))
    with open(path("py_v2.npy"), "wb") as f:
        np.lib.format.write_array(f, pattern("<i8", (3, 4, 5)), version=(2, 0))
    with open(path("py_v3.npy"), "wb") as f:
        np.lib.format.write_array(f, pattern("?", (3, 4, 5)), version=(3, 0))
    np.save(path("py_scalar.npy"), np.float32(1.0))


read_all(sys.argv[1])
logits(sys.argv[1])
write_all(sys.argv[1])
if not official:
    print("skipped: python3 has no module safetensors (pip install safetensors): a reader of our own was used instead")
    sys.exit(77)
