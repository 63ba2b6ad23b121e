"""Reads what Clef wrote into a directory and writes files for Clef to read.  See main_interop.c.

Exit code: 0 good, 1 a check failed, 77 a module is missing (without safetensors all checks are made with the reader and
writer below, which follow the format's text)."""
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


def lenet(w, x):
    """PyTorch's layers in float64: conv, relu, pool, conv, relu, pool, three linear."""
    w = {k: v.astype(np.float64) for k, v in w.items()}
    convs = sorted((k for k in w if w[k].ndim == 4), key=lambda k: w[k].shape[0])
    linears = sorted((k for k in w if w[k].ndim == 2), key=lambda k: -w[k].shape[0])
    x = x.astype(np.float64)
    for k in convs:
        x = np.lib.stride_tricks.sliding_window_view(x, w[k].shape[2:], axis=(2, 3))
        x = np.einsum("ncyxij,ocij->noyx", x, w[k]) + w[k.replace("weight", "bias")][None, :, None, None]
        x = np.maximum(x, 0)
        n, c, h, v = x.shape
        x = x.reshape(n, c, h // 2, 2, v // 2, 2).max(axis=(3, 5))
    x = x.reshape(len(x), -1)
    for i, k in enumerate(linears):
        x = x @ w[k].T + w[k.replace("weight", "bias")]
        x = np.maximum(x, 0) if i + 1 < len(linears) else x
    return x


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
            check(f.metadata()["clef.checkpoint"] == "1" and "model.0.weight" in f.keys(), "a checkpoint")
            check(float.fromhex(f.metadata()["metric"]) == 0.1, "the metric")


def logits(d):
    x = np.load(os.path.join(d, "x.npy"))
    w = load(os.path.join(d, "lenet.safetensors"))
    check(len(w) == 10 and sum(v.size for v in w.values()) == 44426, "LeNet's parameters")
    mine, theirs = lenet(w, x), np.load(os.path.join(d, "logits.npy"))
    check(np.abs(mine - theirs).max() <= 1e-5 * max(1, np.abs(mine).max()), "logits differ by %g" % np.abs(mine - theirs).max())
    rng = np.random.default_rng(1)
    w = {k: (rng.standard_normal(v.shape) * (0.05 if v.ndim > 1 else 0.1)).astype(np.float32) for k, v in w.items()}
    save(w, os.path.join(d, "py_lenet.safetensors"), {"format": "pt"})
    np.save(os.path.join(d, "py_logits.npy"), lenet(w, x))


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
    print("python3 has no module safetensors (pip install safetensors): its own reader was used instead")
    sys.exit(77)
