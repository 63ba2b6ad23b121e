"""Writes pinn.def: the loss of a small physics-informed net for u'' + u = 0, u(0) = 0, u'(0) = 1, and its gradient by all parameters,
computed by PyTorch in double precision.

    python3 pinn.py > pinn.def

The net is 1 → 7 → 5 → 1 with tanh; test_orders.c makes the same parameters with `part`."""
import torch

torch.set_default_dtype(torch.float64)


def part(shape, salt):
    count = torch.Size(shape).numel()
    return torch.tensor([((i * 37 + salt * 11) % 61 - 30) / 32 for i in range(count)]).reshape(shape).requires_grad_()


parameters = [part(shape, 1 + i) for i, shape in enumerate(([7, 1], [7], [5, 7], [5], [1, 5], [1]))]


def slope(y, x):
    return torch.autograd.grad(y.sum(), x, create_graph=True)[0]


x = (torch.arange(9.0) / 4).reshape(9, 1).requires_grad_()
w = parameters
u = torch.tanh(torch.tanh(x @ w[0].T + w[1]) @ w[2].T + w[3]) @ w[4].T + w[5]
du = slope(u, x)
residual = slope(du, x) + u
loss = (residual**2).mean() + u[0, 0] ** 2 + (du[0, 0] - 1) ** 2
loss.backward()
print("/* Made by pinn.py with PyTorch %s; see there. */" % torch.__version__.split("+")[0])
print("LOSS(%.17g)" % loss.item())
print("/* by w and b of each layer */")
for p in parameters:
    print("GRADIENT(" + ",\n         ".join("%.17g" % v for v in p.grad.flatten().tolist()) + ")")
