"""Writes ops.def: ops with their gradients and second gradients, computed by PyTorch (2.13) in double precision.

    python3 ops.py > ops.def

The inputs a and b and the index i are those of tests/kernels/test_torch_ops.c; so is the gradient of y, and what the second gradient
begins with."""
import torch
from torch.nn import functional as F

torch.set_default_dtype(torch.float64)


def numbers(shape, salt, whole=False):
    """Sixteenths; or whole numbers, of which many are equal and some 0."""
    count = torch.Size(shape).numel()
    return torch.tensor([((i * 37 + salt * 11) % 7 - 3.0) if whole else ((i * 37 + salt * 11) % 61 - 30) / 16
                         for i in range(count)]).reshape(shape)


def indices(shape, top):
    return torch.tensor([(i * i * 5 + 3) % top for i in range(torch.Size(shape).numel())]).reshape(shape)


def text(values):
    return "NUMBERS(" + ", ".join(f"{v:.9g}" for v in values.detach().flatten().tolist()) + ")"


def shape_text(shape):
    return f"CLEF_SHAPE({', '.join(map(str, shape))})"


def options(fields):
    return "&(clef_loss_options){" + fields + "}"


# the expression in C, the same in Python, whole numbers?, the shapes of a and b, the index's shape and what its numbers are below
ROWS = [
    ("clef_std(a, NULL, 0, false, 1)", lambda a, b, i: torch.std(a), 0, (2, 3), (1,)),
    ("clef_std(a, (int[]){1}, 1, true, 0)", lambda a, b, i: torch.std(a, 1, correction=0, keepdim=True), 0, (2, 3, 2), (1,)),
    ("clef_std(a, (int[]){-1, 0}, 2, false, 2)", lambda a, b, i: torch.std(a, (-1, 0), correction=2), 0, (3, 2, 2), (1,)),
    ("clef_cumprod(a, 0)", lambda a, b, i: torch.cumprod(a, 0), 0, (5,), (1,)),
    ("clef_cumprod(a, 1)", lambda a, b, i: torch.cumprod(a, 1), 1, (3, 9), (1,)),
    ("clef_cumprod(a, -2)", lambda a, b, i: torch.cumprod(a, -2), 1, (2, 7, 2), (1,)),
    ("clef_index_add(a, 0, i, b)", lambda a, b, i: torch.index_add(a, 0, i, b), 0, (3, 2), (5, 2), (5,), 3),
    ("clef_index_add(a, -1, i, b)", lambda a, b, i: torch.index_add(a, -1, i, b), 0, (2, 4), (2, 3), (3,), 4),
    ("clef_cosine_similarity(a, b, 1, 1e-8)", lambda a, b, i: F.cosine_similarity(a, b, 1), 0, (3, 4), (3, 4)),
    ("clef_cosine_similarity(a, b, -2, 1e-8)", lambda a, b, i: F.cosine_similarity(a, b, -2), 0, (2, 3, 1), (3, 2)),
    ("clef_prelu(a, b)", lambda a, b, i: F.prelu(a, b), 1, (2, 3, 2), (3,)),
    ("clef_conv1d(a, b, CLEF_NONE, &(clef_conv1d_options){.stride = 2, .padding = 1})",
     lambda a, b, i: F.conv1d(a, b, None, 2, 1), 0, (2, 2, 5), (1, 2, 3)),
    ("clef_upsample_nearest2d(a, 2, 1)", lambda a, b, i: F.interpolate(a, scale_factor=(2, 1)), 0, (1, 2, 2, 3), (1,)),
    ("clef_kl_div(a, clef_softmax(b, 1), NULL)", lambda a, b, i: F.kl_div(a, b.softmax(1)), 0, (2, 3), (2, 3)),
    (f"clef_kl_div(a, b, {options('.log_target = true, .reduction = CLEF_REDUCE_SUM')})",
     lambda a, b, i: F.kl_div(a, b, reduction="sum", log_target=True), 0, (2, 3), (2, 3)),
    (f"clef_bce_with_logits(a, clef_sigmoid(a), {options('.pos_weight = clef_detach(b), .reduction = CLEF_REDUCE_NONE')})",
     lambda a, b, i: F.binary_cross_entropy_with_logits(a, a.sigmoid(), reduction="none", pos_weight=b.detach()), 0, (2, 3), (3,)),
]


def scatter_reduce(a, dim, i, b, name, own):
    """PyTorch shares the gradient with an equal number of a that does not count, so here it is put out of the way."""
    if not own and name in ("amax", "amin"):
        return torch.scatter_reduce(a.scatter(dim, i, -99 if name == "amax" else 99), dim, i, b, name)
    return torch.scatter_reduce(a, dim, i, b, name, include_self=own)


for reduction, name in (("SUM", "sum"), ("MEAN", "mean"), ("MAX", "amax"), ("MIN", "amin")):
    for own, dim, a, b, top in ((True, 1, (2, 3, 2), (2, 5, 2), 3), (False, 0, (4,), (9,), 4), (False, 0, (3, 3), (4, 2), 2)):
        ROWS.append((f"clef_scatter_reduce(a, {dim}, i, b, CLEF_SCATTER_{reduction}, {str(own).lower()})",
                     lambda a, b, i, dim=dim, name=name, own=own: scatter_reduce(a, dim, i, b, name, own), 1, a, b, b, top))

print("/* Made by ops.py with PyTorch %s; see there. */" % torch.__version__.split("+")[0])
print("/* the op, whole numbers, shapes of a and b; of i, and what i is below; y, da, db, da of the sum of da * c */")
for c, f, whole, shape_a, shape_b, *index in ROWS:
    index = index or [(1,), 1]
    a, b = numbers(shape_a, 1, whole).requires_grad_(), numbers(shape_b, 2, whole).requires_grad_()
    y = f(a, b, indices(*index))
    da, db = torch.autograd.grad(y, (a, b), numbers(y.shape, 5), create_graph=True, allow_unused=True)
    second = torch.autograd.grad((da * numbers(shape_a, 4)).sum(), a, allow_unused=True)[0] if da.requires_grad else None
    tensors = [y, da] + [torch.zeros(s) if t is None else t for t, s in ((db, shape_b), (second, shape_a))]
    print(f"OP(({c}), {whole}, {shape_text(shape_a)}, {shape_text(shape_b)}, {shape_text(index[0])}, {index[1]},\n   "
          + ",\n   ".join(text(t) for t in tensors) + ")")
