"""Writes layers.def: layers of torch.nn in training with all their gradients, computed by PyTorch (2.13) in double precision.

    python3 layers.py > layers.def

x, the parameters and the gradient of y are `number` of tests/nn/test_torch_layers.c, with a salt each."""
import torch
from torch import nn

torch.set_default_dtype(torch.float64)


def numbers(shape, salt):
    count = torch.Size(shape).numel()
    return torch.tensor([((i * 37 + salt * 11) % 61 - 30) / 16 for i in range(count)]).reshape(shape)


def text(values):
    return "NUMBERS(" + ", ".join(f"{v:.9g}" for v in values.detach().flatten().tolist()) + ")"


LAYERS = [
    ("clef_nn_conv_transpose2d(ctx, 2, 3, 2, NULL)", nn.ConvTranspose2d(2, 3, 2), (1, 2, 2, 3)),
    ("clef_nn_conv_transpose2d(ctx, 4, 2, 3, &(clef_nn_conv_transpose2d_options){.conv = {.stride = {2, 3}, .padding = {1, 0}, "
     ".output_padding = {1, 2}, .dilation = {2, 1}, .groups = 2}, .no_bias = true, .kernel_w = 2})",
     nn.ConvTranspose2d(4, 2, (3, 2), (2, 3), (1, 0), (1, 2), 2, False, (2, 1)), (2, 4, 2, 1)),
    ("clef_nn_conv1d(ctx, 2, 3, 3, NULL)", nn.Conv1d(2, 3, 3), (2, 2, 5)),
    ("clef_nn_conv1d(ctx, 4, 2, 2, &(clef_nn_conv1d_options){.conv = {.stride = 2, .padding = 1, .dilation = 3, .groups = 2}, "
     ".no_bias = true})", nn.Conv1d(4, 2, 2, 2, 1, 3, 2, False), (1, 4, 6)),
    ("clef_nn_conv1d(ctx, 1, 2, 3, &(clef_nn_conv1d_options){.conv = {.same = true, .dilation = 2}})",
     nn.Conv1d(1, 2, 3, padding="same", dilation=2), (2, 1, 5)),
    ("clef_nn_batch_norm1d(ctx, 3, NULL)", nn.BatchNorm1d(3), (4, 3)),
    ("clef_nn_batch_norm1d(ctx, 2, &(clef_nn_norm_options){.eps = 0.5, .momentum = 0.25})", nn.BatchNorm1d(2, 0.5, 0.25), (2, 2, 3)),
    ("clef_nn_instance_norm2d(ctx, 2, NULL)", nn.InstanceNorm2d(2), (2, 2, 2, 2)),
    ("clef_nn_instance_norm2d(ctx, 2, &(clef_nn_instance_norm_options){.eps = 0.25, .affine = true})",
     nn.InstanceNorm2d(2, 0.25, affine=True), (1, 2, 3, 2)),
    ("clef_nn_prelu(ctx, 1, 0.25)", nn.PReLU(), (5,)),
    ("clef_nn_prelu(ctx, 3, 0.25)", nn.PReLU(3), (2, 3, 2)),
    ("clef_nn_upsample_nearest2d(ctx, 2)", nn.Upsample(scale_factor=2), (1, 2, 2, 1)),
    ("clef_nn_activation_with(ctx, \"leaky_relu\", clef_leaky_relu, 0.125)", nn.LeakyReLU(0.125), (5,)),
    ("clef_nn_activation_with_two(ctx, \"hardtanh\", clef_clamp, -0.7, 1.3)", nn.Hardtanh(-0.7, 1.3), (6,)),
]

print("/* Made by layers.py with PyTorch %s; see there. */" % torch.__version__.split("+")[0])
print("/* the layer, x's shape; y, dx, then dp of each parameter one after the other; the running statistics after it */")
for make, layer, shape in LAYERS:
    x = numbers(shape, 1).requires_grad_()
    parameters = list(layer.parameters())
    with torch.no_grad():
        for i, p in enumerate(parameters):
            p.copy_(numbers(p.shape, 2 + i))
    y = layer(x)
    y.backward(numbers(y.shape, 5))
    empty = torch.zeros(0)
    slopes = torch.cat([p.grad.flatten() for p in parameters] or [empty])
    running = torch.cat([b for b in layer.buffers() if b.dim()] or [empty])
    # NUMBERS() of nothing is no C: a number that nobody looks at ends each list
    rows = ",\n      ".join(text(torch.cat([t.flatten(), torch.ones(1)])) for t in (y, x.grad, slopes, running))
    print(f"LAYER(({make}), CLEF_SHAPE({', '.join(map(str, shape))}),\n      {rows})")
