"""The tensor of the pages beside torch: random chains of operations give the same numbers, shapes and refusals."""

import random

import pytest
import tensor
import torch


def factors(r, n):
    """Sizes that multiply to n, or nearly so."""
    sizes = []
    for _ in range(r.randint(1, 3)):
        sizes.append(r.choice([d for d in range(1, n + 1) if n % d == 0] or [1]))
        n //= sizes[-1]
    sizes.append(n)
    r.shuffle(sizes)
    if r.random() < 0.25:
        sizes[r.randrange(len(sizes))] = -1
    return [size + (r.random() < 0.05) for size in sizes]


def index(r, shape):
    """A key of whole numbers, slices, None, ... and at most one list, now and then out of range."""
    key = []
    for n in shape[: r.randint(1, len(shape) or 1)] or [1]:
        own = [slice(None), slice(1, None), slice(None, -1), slice(None, None, 2), None, r.randint(-n - 1, n - 1 or 1)]
        own += [...] * (... not in key) + [[0, n - 1]] * (not any(isinstance(part, list) for part in key))
        key.append(r.choice(own))
    return tuple(key)


def step(r, X):
    """An operation with random arguments: its name, and a function of torch or its stand-in, and the tensor."""
    n, shape = X.dim(), list(X.shape)
    axis, other = (r.randint(-max(n, 1), max(n, 1) - (r.random() > 0.05)) for _ in range(2))
    keep, order, sizes = r.random() < 0.5, r.sample(range(n), n), factors(r, X.numel())
    key, part = index(r, shape), factors(r, shape[axis] if -n <= axis < n else 1)
    steps = {
        "reshape": lambda t, X: X.reshape(sizes),
        "view": lambda t, X: X.view(*sizes),
        "permute": lambda t, X: X.permute(order),
        "transpose": lambda t, X: X.transpose(axis, other),
        "unflatten": lambda t, X: X.unflatten(axis, part),
        "flatten": lambda t, X: X.flatten(axis, other),
        "product": lambda t, X: X @ X.mT * 0.3,
        "bmm": lambda t, X: t.bmm(X, X.transpose(1, 2)) * 0.3,
        "by a matrix": lambda t, X: X @ (t.arange(6).reshape(3, 2).float() / 7 - 0.5),
        "softmax": lambda t, X: X.softmax(axis) * 3,
        "masked_fill": lambda t, X: X.masked_fill(X > 0.3, -1e9),
        "index": lambda t, X: X[key],
        "sum": lambda t, X: X.sum(dim=axis, keepdim=keep),
        "mean": lambda t, X: X.mean(axis, keepdim=keep),
        "amax": lambda t, X: X.amax(axis, keepdim=keep),
        "swapped": lambda t, X: X + X.transpose(-1, 0),
        "broadcast": lambda t, X: 1 - X * X[..., :1],
        "by a row": lambda t, X: X / (t.arange(3) + 1),
        "where": lambda t, X: t.where(X > 0, X, X.mT),
        "repeat": lambda t, X: X.repeat([2] + [1] * (n - keep)),
        "cat": lambda t, X: t.cat([X, X * 2], dim=axis),
        "stack": lambda t, X: t.stack([X, -X], dim=axis),
        "repeat_interleave": lambda t, X: X.repeat_interleave(2, dim=axis),
        "expand": lambda t, X: X[None].expand(2, *[-1] * n),
        "chunk": lambda t, X: X.chunk(2, dim=axis)[-1],
        "flip": lambda t, X: X.flip(axis),
        "in place": lambda t, X: X.clone().mul_(2).add_(X[..., :1]).clamp_(min=-2),
    }
    name = r.choice([*steps])
    return name, steps[name]


def tried(function, *given):
    try:
        return function(*given)
    except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError) as error:
        return error


def same(X, Y):
    """Whether two tensors, or two errors, are the same; of errors the kind."""
    if not isinstance(X, torch.Tensor) or not isinstance(Y, tensor.Tensor):
        return type(X) is type(Y)
    numbers = torch.tensor(Y.tolist(), dtype=torch.float64).reshape(Y.shape)
    return X.shape == Y.shape and torch.allclose(numbers, X.double(), rtol=1e-4, atol=1e-5, equal_nan=True)


def chains(count, seed):
    """How many steps these chains of operations have, and those in which the tensor differs from torch."""
    r, steps, differing = random.Random(seed), 0, []
    for chain in range(count):
        torch.manual_seed(chain)
        X = torch.randn([r.choice([1, 2, 3, 4, 6]) for _ in range(r.randint(2, 4))])
        Y = tensor.tensor(X.tolist())
        for _ in range(r.randint(3, 8)):
            if X.numel() > 600 or not 0 < X.dim() <= 6:
                break
            name, function = step(r, X)
            a, b = tried(function, torch, X), tried(function, tensor.torch, Y)
            steps += 1
            if not same(a, b):
                differing.append(f"{name}: torch {a!r:.120}, here {b!r:.120}")
                break
            X, Y = (a, b) if isinstance(a, torch.Tensor) else (X, Y)
    return steps, differing


def test_random_chains_give_what_torch_gives():
    """``python -m pages.tests.test_tensor`` tries 2,000 others."""
    steps, differing = chains(200, seed=0)
    assert steps > 900 and len(differing) <= 0.001 * steps, differing  # those that differ are of empty tensors


@pytest.mark.parametrize("there", ["X.scatter", "X.grad", "tensor.torch.linalg", "tensor.nn.MultiheadAttention"])
def test_what_it_lacks_it_names(there):
    with pytest.raises(AttributeError, match="in a notebook you have all of torch"):
        eval(there, {"X": tensor.torch.zeros(2), "tensor": tensor})


if __name__ == "__main__":
    STEPS, DIFFERING = chains(2000, seed=1)
    print(f"{STEPS} steps, {len(DIFFERING)} differ", *DIFFERING, sep="\n")
