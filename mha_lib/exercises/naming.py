"""Hold what an answer gives against what the right one gives, and against what typical mistakes give."""

import copy
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from mha_lib.exercises.running import Outcome, error_in_words
from mha_lib.exercises.wording import kind_of, trimmed, two_numbers

CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@dataclass(frozen=True)
class Result:
    """One call: what came of it, and what the right answer gives."""

    trial: tuple
    got: Outcome
    right: Any

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

    def problem(self, in_words: Callable[[float, float], tuple[str, str]] = two_numbers) -> str | None:
        """What is wrong with it, as far as one can see; None if nothing is."""
        got, right = self.numbers, self.expected
        if self.got.error:
            line = f" at “{trimmed(self.got.line, 60)}”" if self.got.line else ""
            return f"your code raises {': '.join(filter(None, self.got.error))}{line}"
        if got is None or (got.dim() != right.dim() and not isinstance(self.right, Tensor)):
            return f"{needed(self.right)} needed, your function returns {given(self.got.value)}"
        if got.shape != right.shape:
            return f"the shape must be {tuple(right.shape)}, yours is {tuple(got.shape)}"
        if (place := first_difference(got, right)) is not None:
            yours, other = in_words(got[tuple(place)].item(), right[tuple(place)].item())
            return f"{f'place {place} holds' if place else 'the result is'} {yours} instead of {other}"
        if isinstance(self.right, Tensor) and right.is_floating_point() > got.is_floating_point():
            return f"the result must be floating-point numbers, yours are {got.dtype}"
        return None


def as_tensor(value: Any) -> Tensor | None:
    """A number, or a list or tuple of numbers or of tensors of one shape, as one tensor; a tensor as it is."""
    if type(value) is Tensor:
        return value
    if is_number(value):
        return torch.tensor(value, dtype=None if isinstance(value, int) and abs(value) < 2**62 else torch.float64)
    if isinstance(value, list | tuple) and value:
        if all(map(is_number, value)):
            return torch.tensor(value, dtype=torch.float64)
        if all(type(part) is Tensor for part in value) and len({(part.shape, part.dtype) for part in value}) == 1:
            return torch.stack(list(value))
    return None


def is_number(value: Any) -> bool:
    """Whether a value is a plain number, which True and False are not."""
    return isinstance(value, Real) and not isinstance(value, bool)


def needed(right: Any) -> str:
    """What is asked for: "a tensor of shape (2, 3) is", "one number is", "3 matrices of shape (6, 4) are"."""
    if isinstance(right, Tensor):
        return f"{kind_of(right)} is"
    if is_number(right):
        return "one number is"
    return f"{len(right)} {'numbers' if is_number(right[0]) else f'matrices of shape {tuple(right[0].shape)}'} are"


def given(value: Any) -> str:
    """What came instead: "a str", "a list of 3 that holds a str", "a tuple of 2"."""
    parts = sorted({kind_of(part) for part in value}) if isinstance(value, list | tuple) else []
    return f"{kind_of(value)} that holds {', '.join(parts)}" if parts else kind_of(value)


def first_difference(got: Tensor, right: Tensor) -> list[int] | None:
    """The first place where two tensors of one shape differ by more than rounding; NaN equals NaN."""
    places = torch.isclose(plain(got), plain(right), equal_nan=True, **CLOSE).logical_not().nonzero()
    return places[0].tolist() if len(places) else None


def plain(tensor: Tensor) -> Tensor:
    """A tensor's numbers, whatever their type and device, as double precision on the CPU."""
    return tensor.detach().to("cpu", torch.float64)


def outcome_of(program: Callable, trial: tuple) -> Outcome:
    """What a program of this library gives for a trial, an error included; what it warns of is nobody's business."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return Outcome(program(*copy.deepcopy(trial)))
    except Exception as error:
        return Outcome(error=error_in_words(error))


def imitates(program: Callable, results: Sequence[Result]) -> bool:
    """Whether a program gives what the answer gave, in every call: one equal result would be no evidence."""
    return all(alike(outcome_of(program, result.trial), result.got) for result in results)


def alike(first: Outcome, second: Outcome) -> bool:
    """Whether two calls came to the same numbers, or to the same error."""
    if first.error or second.error:
        return first.error == second.error
    one, other = as_tensor(first.value), as_tensor(second.value)
    if one is None or other is None or one.shape != other.shape or other.is_complex():
        return False
    return first_difference(one, other) is None
