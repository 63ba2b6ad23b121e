"""Writes norms.def: batch, layer, RMS and group norm with all their gradients, computed by PyTorch (2.13) in double precision.

    python3 norms.py > norms.def

The inputs are `number` of tests/kernels/main_norm_modes.c.  The gradient is that of the sum of g * y."""
import torch
from torch.nn.functional import batch_norm, group_norm, layer_norm, rms_norm

torch.set_default_dtype(torch.float64)


def numbers(shape, salt, low=0.0):
    count = torch.Size(shape).numel()
    values = torch.tensor([((i * 37 + salt * 11) % 61 - 30) / 8 for i in range(count)]).reshape(shape)
    return values.abs() + low if low else values


def text(values):
    return "NUMBERS(" + ", ".join(f"{v:.9g}" for v in values.detach().flatten().tolist()) + ")"


def gradients(y, x, weight, bias, shape):
    y.backward(numbers(shape, 5))
    return [y, x.grad, weight.grad, bias.grad]


def row(name, head, tensors):
    print(f"{name}({head},\n     " + ",\n     ".join(text(t) for t in tensors) + ");")


print("/* Made by norms.py with PyTorch %s; see there. */" % torch.__version__.split("+")[0])
print("/* shape, training, affine; y, dx, dweight, dbias, running mean and variance after it */")
for shape in ([4, 3], [1, 3, 4], [2, 3, 2, 2], [2, 2, 1, 2, 3]):
    for training in (1, 0):
        for affine in (1, 0):
            c = shape[1]
            x = numbers(shape, 1).requires_grad_()
            weight = (numbers([c], 2) if affine else torch.ones(c)).requires_grad_()
            bias = (numbers([c], 3) if affine else torch.zeros(c)).requires_grad_()
            mean, var = numbers([c], 4), numbers([c], 6, 0.5)
            y = batch_norm(x, mean, var, weight, bias, bool(training), 0.1, 1e-5)
            shape_text = "CLEF_SHAPE(" + ", ".join(map(str, shape)) + ")"
            row("BATCH", f"{shape_text}, {training}, {affine}", gradients(y, x, weight, bias, shape) + [mean, var])
print("/* shape, dimensions, affine; y, dx, dweight, dbias */")
for shape, dims in (([5, 3], 1), ([2, 3, 4], 2), ([3, 1, 4], 1), ([2, 3], 2)):
    for affine in (1, 0):
        last = shape[-dims:]
        x = numbers(shape, 1).requires_grad_()
        weight = (numbers(last, 2) if affine else torch.ones(last)).requires_grad_()
        bias = (numbers(last, 3) if affine else torch.zeros(last)).requires_grad_()
        y = layer_norm(x, last, weight, bias, 1e-5)
        shape_text = "CLEF_SHAPE(" + ", ".join(map(str, shape)) + ")"
        row("LAYER", f"{shape_text}, {dims}, {affine}", gradients(y, x, weight, bias, shape))
print("/* shape, dimensions, affine; y, dx, dweight */")
for shape, dims in (([5, 3], 1), ([2, 3, 4], 2)):
    for affine in (1, 0):
        last = shape[-dims:]
        x = numbers(shape, 1).requires_grad_()
        weight = (numbers(last, 2) if affine else torch.ones(last)).requires_grad_()
        y = rms_norm(x, last, weight, 1e-5)
        shape_text = "CLEF_SHAPE(" + ", ".join(map(str, shape)) + ")"
        row("RMS", f"{shape_text}, {dims}, {affine}", gradients(y, x, weight, x, shape)[:3])
print("/* shape, groups, affine; y, dx, dweight, dbias */")
for shape, groups in (([3, 4], 2), ([2, 6, 4], 3), ([2, 4, 2, 3], 4), ([1, 3, 5], 1)):
    for affine in (1, 0):
        c = shape[1]
        x = numbers(shape, 1).requires_grad_()
        weight = (numbers([c], 2) if affine else torch.ones(c)).requires_grad_()
        bias = (numbers([c], 3) if affine else torch.zeros(c)).requires_grad_()
        y = group_norm(x, groups, weight, bias, 1e-5)
        shape_text = "CLEF_SHAPE(" + ", ".join(map(str, shape)) + ")"
        row("GROUP", f"{shape_text}, {groups}, {affine}", gradients(y, x, weight, bias, shape))
