"""Follow a tensor through reshapes: its shape at every step, and where every single number goes."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from mha_lib.attention import arguments, merge_heads, split_heads

TOKENS = ("batch", "tokens", "num_hiddens")
SPLIT = ("batch", "tokens", "heads", "features")
BY_HEAD = ("batch", "heads", "tokens", "features")
FOLDED = ("batch * heads", "tokens", "features")


@dataclass(frozen=True)
class Step:
    """One step of a trace: what was done, the names of the axes afterwards, and the tensor."""

    operation: str
    axes: tuple[str, ...]
    tensor: Tensor


@dataclass
class ShapeTrace:
    """A record of what every step does to a shape; ``print`` shows it as a table.

    >>> trace = ShapeTrace()
    >>> X = trace.record("start", torch.zeros(2, 4, 6), ("batch", "tokens", "num_hiddens"))
    >>> X = trace.record("flatten", X.flatten(0, 1), ("batch * tokens", "num_hiddens"))
    >>> print(trace)
    start    (2, 4, 6)  batch, tokens, num_hiddens
    flatten  (8, 6)     batch * tokens, num_hiddens
    """

    steps: list[Step] = field(default_factory=list)

    def record(self, operation: str, X: Tensor, axes: tuple[str, ...]) -> Tensor:
        """Note a step and hand its tensor on.

        Raises:
            ValueError: ``axes`` does not name every axis of ``X``.
        """
        if len(axes) != X.dim():
            raise ValueError(f"axes must name the {X.dim()} axes of shape {tuple(X.shape)}, got {axes}")
        self.steps.append(Step(operation, axes, X))
        return X

    def __str__(self) -> str:
        rows = [(step.operation, str(tuple(step.tensor.shape)), ", ".join(step.axes)) for step in self.steps]
        widths = [max((len(row[column]) for row in rows), default=0) for column in range(2)]
        return "\n".join(f"{name:<{widths[0]}}  {shape:<{widths[1]}}  {axes}" for name, shape, axes in rows)


def trace_transpose_qkv(X: Tensor, num_heads: int) -> ShapeTrace:
    """``transpose_qkv`` in its three moves: split the features, swap two axes, fold the heads into the batch.

    X is (batch, tokens, num_hiddens); ``num_heads`` divides num_hiddens. Source: d2l 11.5.2.
    """
    trace = ShapeTrace()
    trace.record("start", X, TOKENS)
    by_head = split_heads(X, num_heads)
    trace.record("reshape", by_head.transpose(1, 2), SPLIT)
    trace.record("permute", by_head, BY_HEAD)
    trace.record("reshape", by_head.flatten(end_dim=1), FOLDED)
    return trace


def trace_transpose_output(X: Tensor, num_heads: int) -> ShapeTrace:
    """``transpose_output`` in its three moves, the way back.

    X is (batch * heads, tokens, features); ``num_heads`` divides the first axis. Source: d2l 11.5.2.
    """
    trace = ShapeTrace()
    trace.record("start", X, FOLDED)
    by_head = X.reshape(X.shape[0] // num_heads, num_heads, *X.shape[1:])
    trace.record("reshape", by_head, BY_HEAD)
    trace.record("permute", by_head.transpose(1, 2), SPLIT)
    trace.record("reshape", merge_heads(by_head), TOKENS)
    return trace


class CopyCounter(TorchDispatchMode):
    """Counts the tensors that torch copies while it is entered, also those that ``reshape`` and ``@`` copy unasked."""

    def __init__(self):
        super().__init__()
        self.copies = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.copies += operation.overloadpacket in (torch.ops.aten.clone, torch.ops.aten.copy_)
        return operation(*args, **(kwargs or {}))


def count_copies(function: Callable, *args: Any) -> int:
    """How many tensors ``function(*args)`` copies to another place in memory.

    >>> count_copies(lambda X: X.transpose(0, 1), torch.zeros(2, 3))
    0
    >>> count_copies(lambda X: X.transpose(0, 1).reshape(6), torch.zeros(2, 3))
    1
    """
    with CopyCounter() as counter:
        function(*args)
    return counter.copies


def tagged_tokens(batch_size: int, num_tokens: int, num_heads: int, head_size: int) -> Tensor:
    """Tokens in which every number is its own address: 213 is example 0, token 2, head 1, feature 3.

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
    """(example, token, head, feature) of a number made by ``tagged_tokens``."""
    return tag // 1000, tag // 100 % 10, tag // 10 % 10, tag % 10


def spell_out(tag: int) -> str:
    """What the digits of a number made by ``tagged_tokens`` mean, in words."""
    example, token, head, feature = read_tag(tag)
    return f"{tag:04d} = example {example}, token {token}, head {head}, feature {feature}"
