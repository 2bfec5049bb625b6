"""Answers that are numbers, or several tensors at once, in the one form that ``compare`` takes: a tensor."""

import functools
from collections.abc import Callable
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from mha_lib.checks.calls import kind_of
from mha_lib.checks.verdict import MistakeError

NUMERALS = ("no", "one", "two", "three", "four", "five", "six", "seven")


class InTensors:
    """A function with what it returns made a tensor where that is possible."""

    def __init__(self, function: Callable) -> None:
        functools.update_wrapper(self, function)
        self.function = function

    def __call__(self, *arguments) -> Any:
        return to_tensor(self.function(*arguments))


def in_tensors(function: Any) -> Any:
    """The same function, with what it returns made a tensor where that is possible; what is no function as it is."""
    return InTensors(function) if callable(function) else function


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


def require_parts(value: Any, right: Tensor) -> None:
    """Do nothing if a learner's answer has as many parts as the right one, of the same shape.

    Raises:
        MistakeError: it has not; the message speaks of numbers and matrices, as the exercise does.
    """
    if not isinstance(value, Tensor) or value.shape != right.shape:
        raise MistakeError(f"{needed_parts(right)} needed, {given_parts(value)}.")


def needed_parts(right: Tensor) -> str:
    """What is asked for: "one whole number is", "three matrices of shape (6, 4) are"."""
    whole = "" if right.is_floating_point() else "whole "
    if right.dim() == 0:
        return f"one {whole}number is"
    count = NUMERALS[len(right)] if len(right) < len(NUMERALS) else len(right)
    what = f"{whole}numbers" if right.dim() == 1 else f"matrices of shape {tuple(right.shape[1:])}"
    return f"{count} {what} are"


def given_parts(value: Any) -> str:
    """What came instead: "yours is a str", "yours are 2 of shape (9, 4)"."""
    if isinstance(value, Tensor) and value.dim() == 3:
        return f"yours are {len(value)} of shape {tuple(value.shape[1:])}"
    if isinstance(value, Tensor) and value.dim() == 1:
        return f"yours are {len(value)}"
    if isinstance(value, list | tuple) and value and all(isinstance(part, Tensor) for part in value):
        return f"yours have the shapes {', '.join(str(tuple(part.shape)) for part in value)}"
    if isinstance(value, list | tuple) and value and not all(map(is_number, value)):
        stranger = next(part for part in value if not is_number(part))
        return f"yours holds {kind_of(stranger)}"
    return "yours is one number" if isinstance(value, Tensor) and value.dim() == 0 else f"yours is {kind_of(value)}"
