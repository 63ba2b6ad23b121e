"""make.py: writes the tables of this folder with mpmath (numbers) and PyTorch (what the field does at NaN, infinities and corners).

    python make.py [unary binary whole]      needs mpmath and torch; the tests need only the tables, which are committed
"""
import itertools, os, sys
import mpmath, torch
import torch.nn.functional as F

mp = mpmath.mp
mp.prec = 4200
here = os.path.dirname(os.path.abspath(__file__))
NAN, INF = float("nan"), float("inf")

# Small and large ones beside each other, as they share vectors.
SIZES = [2.0**-100, 2.0**24, 2.0**-7, 2.0**100, 0.5, 1000.0, 0.0, 1.0, 2.0**900, 2.0, 3.0, 2.0**-20, 6.0, 10.0, 30.0]
POINTS = [s * x for x in SIZES for s in (1.0, -1.0)] + [INF, -INF, NAN]

one, half, pi = mp.mpf(1), mp.mpf(1) / 2, mp.pi
exp, expm1, log, log1p, tanh, erf, erfc, sqrt = mp.exp, mp.expm1, mp.log, mp.log1p, mp.tanh, mp.erf, mp.erfc, mp.sqrt
softplus = lambda x: x + log1p(exp(-x)) if x > 0 else log1p(exp(x))
sigmoid = lambda x: 1 / (1 + exp(-x)) if x > -1e9 else exp(x)
phi = lambda x: erfc(-x / sqrt(2)) / 2 if abs(x) < 1e4 else (one if x > 0 else mp.mpf(0))
gelu_v = lambda x: 2 * sqrt(2 / pi) * (x + mp.mpf("0.044715") * x**3)
alpha, scale = mp.mpf("1.6732632423543772848170429916717"), mp.mpf("1.0507009873554804934193349852946")
relu6 = lambda x: min(max(x, 0), 6)
# name: (by mpmath, by PyTorch)
UNARY = {
    "neg": (lambda x: -x, torch.neg), "abs": (abs, torch.abs), "sign": (mp.sign, torch.sign), "square": (lambda x: x * x, torch.square),
    "reciprocal": (lambda x: 1 / x, torch.reciprocal), "sqrt": (sqrt, torch.sqrt), "rsqrt": (lambda x: 1 / sqrt(x), torch.rsqrt),
    "exp": (exp, torch.exp), "exp2": (lambda x: exp(x * log(2)), torch.exp2), "expm1": (expm1, torch.expm1), "log": (log, torch.log),
    "log2": (lambda x: log(x) / log(2), torch.log2), "log10": (lambda x: log(x) / log(10), torch.log10), "log1p": (log1p, torch.log1p),
    "sin": (mp.sin, torch.sin), "cos": (mp.cos, torch.cos), "tan": (mp.tan, torch.tan), "asin": (mp.asin, torch.asin),
    "acos": (mp.acos, torch.acos), "atan": (mp.atan, torch.atan), "sinh": (mp.sinh, torch.sinh), "cosh": (mp.cosh, torch.cosh),
    "tanh": (tanh, torch.tanh), "asinh": (mp.asinh, torch.asinh), "acosh": (mp.acosh, torch.acosh), "atanh": (mp.atanh, torch.atanh),
    "erf": (lambda x: erf(x) if abs(x) < 1e4 else mp.sign(x), torch.erf), "erfc": (lambda x: 2 * phi(-x * sqrt(2)), torch.erfc),
    "sigmoid": (sigmoid, torch.sigmoid), "logsigmoid": (lambda x: -softplus(-x), F.logsigmoid), "relu": (lambda x: max(x, 0), F.relu),
    "relu6": (relu6, F.relu6), "selu": (lambda x: scale * (x if x > 0 else alpha * expm1(x)), F.selu),
    "gelu": (lambda x: x * phi(x), F.gelu), "gelu_tanh": (lambda x: x * sigmoid(gelu_v(x)), lambda x: F.gelu(x, approximate="tanh")),
    "silu": (lambda x: x * sigmoid(x), F.silu), "softplus": (softplus, F.softplus), "softsign": (lambda x: x / (1 + abs(x)), F.softsign),
    "mish": (lambda x: x * tanh(softplus(x)), F.mish), "hardswish": (lambda x: x * relu6(x + 3) / 6, F.hardswish),
    "hardsigmoid": (lambda x: relu6(x + 3) / 6, F.hardsigmoid),
    "leaky_relu": (lambda x: x if x > 0 else x / 8, lambda x: F.leaky_relu(x, 0.125)),
    "elu": (lambda x: x if x > 0 else 3 * expm1(x) / 4, lambda x: F.elu(x, 0.75)),
    "celu": (lambda x: x if x > 0 else 3 * expm1(x * 2 / 3) / 2, lambda x: F.celu(x, 1.5)),
    "hardshrink": (lambda x: x if abs(x) > half else 0 * one, lambda x: F.hardshrink(x, 0.5)),
    "softshrink": (lambda x: mp.sign(x) * max(abs(x) - half, 0), lambda x: F.softshrink(x, 0.5)),
    "clamp": (lambda x: min(max(x, -1), 2), lambda x: torch.clamp(x, -1, 2)),
    "threshold": (lambda x: x if x > 1 else 3 * one, lambda x: F.threshold(x, 1, 3)),
    "floor": (mp.floor, torch.floor), "ceil": (mp.ceil, torch.ceil), "round": (mp.nint, torch.round),
    "trunc": (lambda x: mp.floor(x) if x > 0 else mp.ceil(x), torch.trunc),
    "isnan": (lambda x: 0, torch.isnan), "isinf": (lambda x: 0, torch.isinf), "isfinite": (lambda x: 1, torch.isfinite),
    "logical_not": (lambda x: x == 0, torch.logical_not),
}
STEPS = {"sign", "floor", "ceil", "round", "trunc"}
# Where Clef differs from PyTorch: NaN stays NaN, and limits where PyTorch multiplies 0 by infinity.
OTHERWISE = {("sign", "nan"): NAN, ("gelu_tanh'", "inf"): 1.0, ("mish'", "inf"): 1.0, ("softsign'", "inf"): 0.0, ("softsign'", "-inf"): 0.0}


def number(v):
    """The nearest double; NaN outside the domain."""
    if isinstance(v, mpmath.mpc):
        v = v.real if v.imag == 0 else mp.nan
    try:
        return float(v)
    except OverflowError:
        return INF if v > 0 else -INF


def guarded(f, *x):
    try:
        return number(f(*x))
    except (ZeroDivisionError, ValueError):
        return NAN


def text(v):
    if v is None:
        return "ANYTHING"
    if v != v:
        return "NAN"
    if v in (INF, -INF):
        return "INFINITY" if v > 0 else "-INFINITY"
    return "%.17g" % v if float("%.9g" % v) != v else "%.9g" % v


def row(macro, name, values):
    out, line = [], "%s(%s" % (macro, name)
    for v in values:
        v = v if isinstance(v, str) else text(v)
        if len(line) + len(v) > 126:
            out.append(line + ",")
            line = "   " + v
        else:
            line += ", " + v
    return "\n".join(out + [line + ")"]) + "\n"


def field(f, points):
    """PyTorch's value and slope in f64, of whole vectors."""
    x = torch.tensor(points, dtype=torch.float64).repeat(8, 1).requires_grad_()
    y = f(x)
    slope = torch.autograd.grad(y.sum(), x)[0][0].tolist() if y.requires_grad else [0.0] * len(points)
    return y.double()[0].tolist(), slope


def smooth(f, x):
    """Are the slopes on both sides the same?"""
    h = mp.mpf(2) ** -1200
    left, right = (f(x) - f(x - h)) / h, (f(x + h) - f(x)) / h
    return abs(left - right) <= mp.mpf(2) ** -200 * (1 + abs(left))


def twice_smooth(f, x):
    h = mp.mpf(2) ** -1200
    left, right = ((f(x + 2 * k) - 2 * f(x + k) + f(x)) / h**2 for k in (-h, h))
    return abs(left - right) <= mp.mpf(2) ** -200 * (1 + abs(left))


def unary(name, f, torch_f):
    y, d, dd = [], [], []
    field_y, field_d = field(torch_f, POINTS)
    for i, x in enumerate(POINTS):
        v, s, c = field_y[i], field_d[i], None
        if x == x and v != v:
            s = None
        if abs(x) < INF:
            z = mp.mpf(x)
            v = guarded(f, z) if x or abs(v) < INF else v
            if v != v:
                s = None  # outside the domain
            else:
                try:
                    if name in STEPS:
                        s = c = 0.0
                    elif abs(v) < INF and smooth(f, z):
                        exact = guarded(lambda z: mp.diff(f, z), z)
                        if abs(exact - s) > 1e-9 * abs(exact) + 1e-15:
                            print("%s'(%g): %g, PyTorch has %g" % (name, x, exact, s))
                        s, c = exact, guarded(lambda z: mp.diff(f, z, 2), z) if twice_smooth(f, z) else None
                        c = c if c is not None and abs(c) < INF else None
                except (ZeroDivisionError, ValueError):
                    pass
        v, s = OTHERWISE.get((name, "%g" % x), v), OTHERWISE.get((name + "'", "%g" % x), s)
        y.append(v), d.append(s), dd.append(c)
    return row("VALUES", name, y) + row("SLOPES", name, d) + row("CURVATURES", name, dd)


HEAD = "/* %s — %s; written by make.py. */\n"
wanted = sys.argv[1:] or ["unary", "binary", "whole"]
if "unary" in wanted:
    out = open(here + "/unary.def", "w")
    out.write(HEAD % ("unary.def", "values, slopes and curvatures of the rows of cl/unary.def at POINTS;\n   ANYTHING: outside the domain, or no "
                      "such derivative"))
    out.write(row("POINTS", "x", [v.hex() if abs(v) < INF else text(v) for v in POINTS]))
    for name, (f, torch_f) in UNARY.items():
        out.write(unary(name, f, torch_f))

# ---- two operands ----
SPECIAL = [0.0, 1.0, -1.5, 3.0, -4.0, 2.0**-70, 2.0**90, 1e10, INF, -INF, NAN]
BINARY = {"div": torch.div, "floor_divide": torch.floor_divide, "trunc_divide": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
          "remainder": torch.remainder, "fmod": torch.fmod, "pow": torch.pow, "maximum": torch.maximum, "minimum": torch.minimum,
          "atan2": torch.atan2}
pairs = list(itertools.product(SPECIAL, SPECIAL))


def binary(name, f):
    a, b = (torch.tensor(v, dtype=torch.float64).repeat(8, 1).requires_grad_() for v in zip(*pairs))
    y = f(a, b)
    d = [[0.0] * len(pairs)] * 2
    if not name.endswith("divide"):
        d = [v[0].tolist() for v in torch.autograd.grad(y.sum(), (a, b))]
    if name == "atan2":  # PyTorch has 0 times infinity at the origin and at infinity
        d = [[0.0 if a == b == 0 or INF in (abs(a), abs(b)) and a == a and b == b else v for v, (a, b) in zip(values, pairs)] for values in d]
    if name == "pow":  # whose sign hangs on an exponent less 1 that f32 does not have
        d[0] = [None if a < 0 and abs(b) > 2**24 else v for v, (a, b) in zip(d[0], pairs)]
    return row("VALUES2", name, y[0].tolist()) + row("SLOPES_A", name, d[0]) + row("SLOPES_B", name, d[1])


if "binary" in wanted:
    out = open(here + "/binary.def", "w")
    out.write(HEAD % ("binary.def", "values and slopes of rows of cl/binary.def at PAIRS_A, PAIRS_B"))
    out.write(row("PAIRS_A", "a", [v[0] for v in pairs]) + row("PAIRS_B", "b", [v[1] for v in pairs]))
    for name, f in BINARY.items():
        out.write(binary(name, f))

# ---- whole numbers ----
BITS = {"i32": 32, "i64": 64, "u8": 8}


def wrap(v, kind):
    v &= 2 ** BITS[kind] - 1
    return v if kind == "u8" or v < 2 ** (BITS[kind] - 1) else v - 2 ** BITS[kind]


def power(a, b):
    if b < 0:
        return {1: 1, -1: -1 if b & 1 else 1}.get(a, 0)
    return pow(a, b, 2**64)


def truncated(a, b):
    return 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


WHOLE = {"floor_divide": lambda a, b: a // b if b else 0, "trunc_divide": truncated, "remainder": lambda a, b: a % b if b else 0,
         "fmod": lambda a, b: a - b * truncated(a, b) if b else 0, "pow": power}


def whole(kind):
    least, most = (0, 255) if kind == "u8" else (-2 ** (BITS[kind] - 1), 2 ** (BITS[kind] - 1) - 1)
    a = [0, 1, 2, 7, 10, most, least, most - 1, 130] + ([-1, -7, -10, 16777217, least + 1] if least else [])
    b = [0, 1, 2, 3, 5, most, least] + ([-1, -2, -3, -5, 16777216] if least else [])
    cells = list(itertools.product(dict.fromkeys(a), dict.fromkeys(b)))
    literal = lambda v: "INT64_MIN" if v == -2**63 else "%d" % v
    out = row("WHOLE_A", kind, [literal(a) for a, b in cells]) + row("WHOLE_B", kind, [literal(b) for a, b in cells])
    for name, f in WHOLE.items():
        out += row("WHOLE", "%s, %s" % (name, kind), [literal(wrap(f(a, b), kind)) for a, b in cells])
    return out


CASTS = [0.0, 0.99, -0.99, 255.5, 256.0, -1.0, -300.75, 65537.0, 2.0**31 - 128, 2.0**31, -(2.0**31), -(2.0**31) - 256, 2.0**32 + 512, 1e10, 1e20,
         -1e20, 2.0**63, -(2.0**63), 2.0**100, INF, -INF, NAN]


def cast(x, kind):
    if kind == "u8":
        return int(x) & 255 if abs(x) < INF else 0
    most = 2 ** (BITS[kind] - 1) - 1
    return 0 if x != x else most if x >= most else -most - 1 if x <= -most - 1 else int(x)


if "whole" in wanted:
    out = open(here + "/whole.def", "w")
    out.write(HEAD % ("whole.def", "arithmetic of whole numbers, and what floats become in them"))
    for kind in BITS:
        out.write(whole(kind))
    out.write(row("CAST_FROM", "x", CASTS))
    for kind in BITS:
        out.write(row("CAST_TO", kind, ["INT64_MIN" if v == -2**63 else "%d" % v for v in (cast(x, kind) for x in CASTS)]))
