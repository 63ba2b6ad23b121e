"""Writes lbfgs.def: what PyTorch's (2.13) torch.optim.LBFGS makes of two functions in double precision, step by step.

    python3 lbfgs.py > lbfgs.def

Functions and start are those of tests/optim/test_lbfgs.c: Rosenbrock's of three numbers, and a net of 2-3-1 with tanh, whose parameters
and data are `number` of i.  A max_eval of 0 is left out: Clef's own default then gives a search at least 25 evaluations."""
import torch

torch.set_default_dtype(torch.float64)


def number(i):
    return ((i * 37) % 61 - 30) / 40


def numbers(first, *shape):
    count = torch.Size(shape).numel()
    return torch.tensor([number(first + i) for i in range(count)]).reshape(shape)


def rosenbrock():
    x = torch.tensor([-1.2, 1.0, 0.5]).requires_grad_()
    return [x], lambda: (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def net():
    p = [numbers(0, 3, 2), numbers(6, 3), numbers(9, 1, 3), numbers(12, 1)]
    x, y = numbers(100, 6, 2), numbers(200, 6, 1)
    for t in p:
        t.requires_grad_()
    return p, lambda: ((torch.tanh(x @ p[0].T + p[1]) @ p[2].T + p[3] - y) ** 2).mean()


print("/* Made by lbfgs.py with PyTorch %s; see there. */" % torch.__version__.split("+")[0])
print("/* function, lr, max_iter, max_eval, history, strong_wolfe, steps; then for each step the loss before it, iterations and evaluations so")
print("   far, and the parameters */")
for function, lr, max_iter, max_eval, history, wolfe, steps in (
    (rosenbrock, 1, 1, 25, 100, 1, 12),
    (rosenbrock, 1, 1, 0, 100, 1, 4),
    (rosenbrock, 1, 2, 0, 100, 1, 4),
    (rosenbrock, 1e-3, 4, 0, 100, 0, 2),
    (rosenbrock, 1, 20, 25, 100, 1, 3),
    (rosenbrock, 0.5, 4, 25, 2, 1, 4),
    (rosenbrock, 1e-3, 3, 3, 100, 0, 4),
    (net, 1, 1, 25, 100, 1, 10),
    (net, 0.7, 5, 6, 3, 0, 3),
):
    parameters, loss = function()
    optimizer = torch.optim.LBFGS(
        parameters, lr=lr, max_iter=max_iter, max_eval=max_eval or (25 if wolfe else None), history_size=history, line_search_fn="strong_wolfe" if wolfe else None
    )

    def closure():
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    print(f"RUN({function.__name__}, {lr}, {max_iter}, {max_eval}, {history}, {wolfe}, {steps})")
    for _ in range(steps):
        before = optimizer.step(closure).item()
        state = optimizer.state[parameters[0]]
        flat = torch.cat([p.detach().flatten() for p in parameters]).tolist()
        print(f"STEP({before:.15g}, {state['n_iter']}, {state['func_evals']}, " + ", ".join(f"{v:.15g}" for v in flat) + ")")
