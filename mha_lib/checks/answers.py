"""Answers that are numbers, or several tensors at once, in the one form that ``compare`` takes: a tensor."""

import functools
from numbers import Real
from typing import Any

import torch
from torch import Tensor


def in_tensors(function: Any) -> Any:
    """The same function, with what it returns made a tensor where that is possible; what is no function as it is."""
    if not callable(function):
        return function

    @functools.wraps(function)
    def answer(*arguments):
        return to_tensor(function(*arguments))

    return answer


def to_tensor(value: Any) -> Any:
    """A number, or a list or tuple of numbers or of tensors of one shape, as one tensor; all else as it is."""
    if is_number(value):
        return torch.tensor(value)
    if isinstance(value, list | tuple) and value:
        if all(map(is_number, value)):
            return torch.tensor(value)
        if all(isinstance(part, Tensor) for part in value) and len({part.shape for part in value}) == 1:
            return torch.stack(list(value))
    return value


def is_number(value: Any) -> bool:
    """Whether a value is a plain number, which True and False are not."""
    return isinstance(value, Real) and not isinstance(value, bool)
