"""Follow numbers through the reshapes around heads: where each of them goes, and what is copied."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from mha_lib.attention import arguments, split_heads

__all__ = ["count_copies", "tagged_tokens", "trace_heads"]

AXES = ("batch", "tokens", "heads", "features")
RIGHT = (0, 2, 1, 3)  # heads before tokens


@dataclass(frozen=True)
class Step:
    """Hold one step of ``trace_heads``: the operation, the names of the axes after it, and the resulting tensor."""

    operation: str
    axes: tuple[str, ...]
    tensor: Tensor


def trace_heads(X: Tensor, num_heads: int, axes: tuple[int, ...] = RIGHT) -> list[Step]:
    """Return the tensor after each reshape and permute by which ``X`` is split into heads and put together again.
    The order ``axes`` for ``permute`` can be another than the right one, (0, 2, 1, 3).

    >>> [step.operation for step in trace_heads(tagged_tokens(1, 2, 2, 2), num_heads=2)][:3]
    ['start', 'reshape', 'permute']

    For learners who want to see what a wrong order of axes does, and that a round trip does not show it.

    Args:
        X: (batch, tokens, num_hiddens).
        num_heads: divides num_hiddens.
        axes: an order of the four axes, as ``permute`` takes it.

    Source: d2l 11.5.2.
    """
    tokens, folded = ("batch", "tokens", "num_hiddens"), ("batch * heads", "tokens", "features")
    split = split_heads(X, num_heads).transpose(1, 2)  # (batch, tokens, heads, features)
    turned, names = split.permute(axes), tuple(AXES[axis] for axis in axes)
    by_head = turned.reshape(X.shape[0] * num_heads, X.shape[1], -1)  # (batch * heads, tokens, features)
    back = by_head.reshape(turned.shape).permute(*(axes.index(axis) for axis in range(4)))
    return [
        Step("start", tokens, X),
        Step("reshape", AXES, split),
        Step("permute", names, turned),
        Step("reshape", folded, by_head),
        Step("back: reshape", names, by_head.reshape(turned.shape)),
        Step("back: permute", AXES, back),
        Step("back: reshape", tokens, back.reshape(X.shape)),
    ]


class CopyCounter(TorchDispatchMode):
    """Count the tensor copies that torch makes inside this context manager, also those made by ``reshape`` or ``@``."""

    def __init__(self):
        super().__init__()
        self.copies = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.copies += operation.overloadpacket in (torch.ops.aten.clone, torch.ops.aten.copy_)
        return operation(*args, **(kwargs or {}))


def count_copies(function: Callable, *args: Any) -> int:
    """Return how many times torch copies a tensor while it runs ``function(*args)``.

    >>> count_copies(lambda X: X.transpose(0, 1), torch.zeros(2, 3))
    0
    >>> count_copies(lambda X: X.transpose(0, 1).reshape(6), torch.zeros(2, 3))
    1
    """
    with CopyCounter() as counter:
        function(*args)
    return counter.copies


def tagged_tokens(batch_size: int, num_tokens: int, num_heads: int, head_size: int) -> Tensor:
    """Return integer tokens in which each number spells its index: 213 is example 0, token 2, head 1, feature 3.

    >>> tagged_tokens(1, 2, 2, 2)
    tensor([[[  0,   1,  10,  11],
             [100, 101, 110, 111]]])

    They are integers, (batch_size, num_tokens, num_heads * head_size).

    Raises:
        ValueError: a size is below 1 or above 10, for which one digit is not enough.
    """
    sizes = {"batch_size": batch_size, "num_tokens": num_tokens, "num_heads": num_heads, "head_size": head_size}
    for name, size in sizes.items():
        arguments.check_size(name, size)
        if size > 10:
            raise ValueError(f"{name} must be at most 10, so that one digit can tell it, got {size}")
    digits = torch.meshgrid(*(torch.arange(size) for size in sizes.values()), indexing="ij")
    return sum(10**place * digit for place, digit in zip((3, 2, 1, 0), digits, strict=True)).flatten(start_dim=2)


def read_tag(tag: int) -> tuple[int, int, int, int]:
    """Split a number made by ``tagged_tokens`` into its digits: (example, token, head, feature)."""
    return tag // 1000, tag // 100 % 10, tag // 10 % 10, tag % 10
