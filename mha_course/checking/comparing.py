"""Hold what an answer gives against what the right one gives, and against what typical mistakes give."""

import copy
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from mha_course.checking.running import Outcome, error_in_words
from mha_course.checking.wording import Foreign, kind_of, two_numbers
from mha_course.language import listed, tr

CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@dataclass(frozen=True)
class Result:
    """Hold one test call of a learner's answer: its arguments, what it returned, and the right result."""

    trial: tuple
    got: Outcome
    right: Any
    part: int | None = None

    def by(self, program: Callable) -> "Result":
        """Return the same call, or the same part of it, with what a program of this library gives."""
        told = outcome_of(program, self.trial)
        return replace(self, got=told if self.part is None or told.error else Outcome(told.value[self.part]))

    @cached_property
    def expected(self) -> Tensor:
        """The right numbers."""
        numbers = as_tensor(self.right)
        assert numbers is not None, self.right  # every right answer is in numbers
        return numbers

    @cached_property
    def numbers(self) -> Tensor | None:
        """The answer's numbers, if it gives any in the form that is asked for."""
        value = self.got.value if isinstance(self.right, Tensor) else as_tensor(self.got.value)
        return value if type(value) is Tensor and not value.is_complex() else None

    @cached_property
    def is_packed_otherwise(self) -> bool:
        """Whether the right numbers come in another form than the one asked for: in a list, say, not in a tensor."""
        right = self.expected
        if self.numbers is not None and self.numbers.shape == right.shape:
            return False
        shapes = [right.shape, (1,), (1, 1)] if is_number(self.right) else [right.shape]
        found = [unpacked(self.got.value, tuple(shape)) for shape in shapes]
        return any(X is not None and first_difference(X.view(right.shape), right) is None for X in found)

    @cached_property
    def is_right_but_coarse(self) -> bool:
        """Whether the right numbers come in half precision, and are off by no more than that explains."""
        X, right = self.numbers, self.expected
        if X is None or X.dtype not in (torch.float16, torch.bfloat16) or X.shape != right.shape:
            return False
        return torch.allclose(plain(X), plain(right), rtol=0.03, atol=0.03 * plain(right).abs().max().item())

    def problem(self, in_words: Callable[[float, float], tuple[str, str]] = two_numbers) -> str | None:
        """Return what is wrong with it, as far as one can see; None if nothing is."""
        got, right = self.numbers, self.expected
        if self.got.error:
            return self.got.raised()
        if got is None or (got.dim() != right.dim() and not isinstance(self.right, Tensor)):
            return tr("{needed}, your function returns {given}", needed=needed(self.right), given=given(self.got.value))
        if got.shape != right.shape:
            return tr("the shape must be {right}, yours is {own}", right=tuple(right.shape), own=tuple(got.shape))
        if (position := first_difference(got, right)) is not None:
            yours, other = in_words(got[tuple(position)].item(), right[tuple(position)].item())
            if not position:
                return tr("the result is {own} instead of {right}", own=yours, right=other)
            return tr("position {at} holds {own} instead of {right}", at=position, own=yours, right=other)
        if isinstance(self.right, Tensor) and right.is_floating_point() > got.is_floating_point():
            return tr("the result must be floating-point numbers, yours are {kind}", kind=got.dtype)
        if right.dtype == torch.bool and got.dtype != torch.bool:  # as a mask, 1.0 is not True
            return tr("the result must be bool, yours is {kind}", kind=got.dtype)
        return None


def as_tensor(value: Any) -> Tensor | None:
    """Convert a number, a tensor, or a list of numbers or of equally shaped tensors to one tensor; else return None."""
    if type(value) is Tensor:
        return value
    if type(value) is Foreign:
        return value.numbers
    if is_number(value):
        return torch.tensor(value, dtype=None if isinstance(value, int) and abs(value) < 2**62 else torch.float64)
    if isinstance(value, list | tuple) and value:
        if all(is_number(x) or (type(x) is Tensor and x.dim() == 0 and not x.is_complex()) for x in value):
            return torch.tensor([float(x) for x in value], dtype=torch.float64)
        if all(type(X) is Tensor for X in value) and len({(X.shape, X.dtype) for X in value}) == 1:
            return torch.stack(list(value))
    return None


def unpacked(value: Any, shape: tuple[int, ...]) -> Tensor | None:
    """Convert nested lists, dicts or arrays of numbers to one tensor of this ``shape``; None if that is impossible."""
    value = value.numbers if type(value) is Foreign else list(value.values()) if isinstance(value, dict) else value
    if isinstance(value, list | tuple):
        parts = [unpacked(part, shape[1:]) for part in value] if shape[:1] == (len(value),) else []
        found = [part for part in parts if part is not None]
        return torch.stack(found) if found and len(found) == len(value) else None
    X = as_tensor(value)
    return plain(X) if X is not None and X.shape == shape and not X.is_complex() else None


def is_number(value: Any) -> bool:
    """Return whether a value is a real number, which True and False are not."""
    return isinstance(value, Real) and not isinstance(value, bool)


def needed(right: Any) -> str:
    """Describe in words the type and shape of ``right``, the right result, such as "one number is needed"."""
    if isinstance(right, Tensor):
        return tr("{kind} is needed", kind=kind_of(right))
    if is_number(right):
        return tr("one number is needed")
    if is_number(right[0]):
        return tr("{count} numbers are needed", count=len(right))
    return tr("{count} matrices of shape {shape} are needed", count=len(right), shape=tuple(right[0].shape))


def given(value: Any) -> str:
    """Describe in words the type of ``value``, which a function returned, such as "a list of 12 numbers"."""
    if not isinstance(value, list | tuple) or not value:
        return kind_of(value)
    if all(map(is_number, value)):
        return tr("{kind} number" if len(value) == 1 else "{kind} numbers", kind=kind_of(value))
    parts = sorted({kind_of(part) for part in value})
    words = {"kind": kind_of(value), "parts": listed(parts[:3])}
    if len(parts) > 3:
        return tr("{kind} that holds {parts} and more", **words)
    if len(parts) == 1 < len(value):
        return tr("{kind}, each {parts}", **words)
    return tr("{kind} that holds {parts}", **words)


def equal(first: Tensor | None, second: Tensor) -> bool:
    """Return whether two tensors have the same shape and, up to rounding, the same values."""
    return first is not None and first.shape == second.shape and first_difference(first, second) is None


def first_difference(got: Tensor, right: Tensor, equal_nan: bool = True) -> list[int] | None:
    """Return the first index at which two tensors of one shape differ by more than rounding; None if they do not."""
    positions = differences(got, right, equal_nan).nonzero()
    return positions[0].tolist() if len(positions) else None


def differences(got: Tensor, right: Tensor, equal_nan: bool = True) -> Tensor:
    """Return a bool mask that is True where two tensors of one shape differ by more than rounding."""
    return torch.isclose(plain(got), plain(right), equal_nan=equal_nan, **CLOSE).logical_not()


def plain(tensor: Tensor) -> Tensor:
    """Convert a tensor to float64 on the CPU, detached from the graph."""
    return tensor.detach().to("cpu", torch.float64)


def outcome_of(program: Callable, trial: tuple) -> Outcome:
    """Call ``program`` with a copy of the arguments in ``trial``; return its result or its error."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return Outcome(program(*copy.deepcopy(trial)))
    except Exception as error:
        return Outcome(error=error_in_words(error))


def explains(program: Callable, results: Sequence[Result]) -> bool:
    """Return whether ``program``, a mistake, returns what the answer did in every test call, and is wrong in some.

    One equal result would be no evidence, and a program that is right in all these calls does not explain what is wrong
    with right numbers in a wrong form.
    """
    return all(alike(result.by(program), result) for result in results) and any(
        result.by(program).problem() for result in results
    )


def alike(first: Result, second: Result) -> bool:
    """Return whether two calls returned the same numbers or raised the same error."""
    if first.got.error or second.got.error:
        return first.got.error == second.got.error
    if first.got.value is None or second.got.value is None:
        return first.got.value is second.got.value
    one, other = as_tensor(first.got.value), as_tensor(second.got.value)
    return other is not None and not other.is_complex() and equal(one, other)
