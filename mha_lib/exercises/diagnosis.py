"""What can be said of a wrong result by one who knows no exercise: how it differs from the right one, in every call."""

import itertools
import re
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from mha_lib.exercises.naming import Result, as_tensor, first_difference, plain

ERRORS = {  # how torch puts it → what it means
    r"size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\)": "two tensors meet along an axis on which "
    "one has {0} entries and the other {1}. Which axes should meet there, and does one need a new axis of length 1?",
    r"mat1 and mat2 shapes cannot be multiplied \((\S+) and (\S+)\)|Expected size for first two dimensions": "in a "
    "matrix product the last axis of the first must be as long as the last but one of the second. Is one of the two "
    "to be transposed, or in the wrong order?",
    r"view size is not compatible": "a view reads the numbers in the order in which they lie in memory. Once axes "
    "have changed places another order is wanted, and the numbers must be copied into it.",
    r"shape '(.+)' is invalid for input of size (\d+)": "{1} numbers do not fill the shape {0}. Which two sizes "
    "multiply to the axis that is cut?",
    r"Dimension out of range": "an axis is asked for that this tensor does not have. How many axes are left there?",
    r"takes \d+ positional argument|missing \d+ required positional": "the function does not take the arguments that "
    "it is called with; compare its first line with the exercise.",
    r"only (tensors|one element tensors|integer tensors)|can only convert": "a tensor of many numbers stands where one "
    "number is needed.",
}
FORMS: list[tuple[str, Callable[[Tensor], Tensor]]] = [
    ("Every number has the wrong sign.", lambda right: -right),
    ("This is 1 minus what is asked for.", lambda right: 1 - right),
    ("This is 1 divided by what is asked for.", lambda right: 1 / right),
    ("This is the square of what is asked for.", lambda right: right.square()),
    ("This is the root of what is asked for.", lambda right: right.sqrt()),
    ("This is the exponential of what is asked for.", lambda right: right.exp()),
    ("This is the logarithm of what is asked for.", lambda right: right.log()),
    ("These are absolute values: the signs are lost.", lambda right: right.abs()),
    ("Numbers below 0 have become 0.", lambda right: right.clamp(min=0)),
    ("A softmax over the last axis too many was taken of the right numbers.", lambda right: right.softmax(-1)),
]


def diagnose(results: Sequence[Result]) -> str | None:
    """One sentence that is true of every call, or None."""
    errors = [result.got.error for result in results if result.got.error]
    if errors:
        return meaning_of(errors[0][1])
    wrong = [result for result in results if result.problem()]
    if any(isinstance(result.got.value, list | tuple) and isinstance(result.right, Tensor) for result in wrong):
        return of_several_parts(results)
    if any(result.numbers is None for result in results):
        return None
    if not all(result.has_right_shape for result in results):
        return of_shape(results)
    if all(result.place is None for result in results):
        return None
    pairs = [(plain(result.numbers), plain(result.expected)) for result in results]
    return of_gaps(pairs) or of_argument(results) or of_numbers(pairs) or of_places(pairs) or of_calls(results)


def meaning_of(message: str) -> str | None:
    """What an error of torch or Python usually means."""
    for pattern, meaning in ERRORS.items():
        if found := re.search(pattern, message):
            return f"An error is raised: {meaning.format(*found.groups())}"
    return None


def of_several_parts(results: Sequence[Result]) -> str | None:
    """A tuple or list was returned where one thing is asked for."""
    for number in range(min(len(result.got.value) for result in results if isinstance(result.got.value, list | tuple))):
        parts = [as_tensor(result.got.value[number]) for result in results]
        if all(part is not None and equal(part, result.expected) for part, result in zip(parts, results, strict=True)):
            return f"Several things are returned; part {number}, counted from 0, is right, and it alone is asked for."
    return None


def of_shape(results: Sequence[Result]) -> str | None:
    """The shape is wrong, in a way that leaves the right numbers to be seen."""
    axes = range(results[0].expected.dim())
    forms = [(f"Axes {i} and {j} have changed places.", swapped(i, j)) for i, j in itertools.combinations(axes, 2)]
    for axis in axes:
        forms += [
            (f"Axis {axis} is summed away; it should stay.", lambda right, axis=axis: right.sum(axis)),
            (f"Axis {axis} is averaged away; it should stay.", lambda right, axis=axis: right.mean(axis)),
            (f"Only the first entry along axis {axis} is left.", lambda right, axis=axis: right.select(axis, 0)),
        ]
    forms.append(("All numbers are right, but the axes are cut or joined otherwise.", None))
    for text, form in forms:
        if all(fits(result.numbers, result.expected, form) for result in results):
            return text
    return None


def fits(got: Tensor, right: Tensor, form: Callable[[Tensor], Tensor] | None) -> bool:
    """Whether one tensor is a form of another; without a form, whether it has the same numbers in the same order."""
    if form is None:
        return got.numel() == right.numel() and equal(got.flatten(), right.flatten())
    return equal(got, form(plain(right)))


def of_gaps(pairs: Sequence[tuple[Tensor, Tensor]]) -> str | None:
    """NaN or infinity where there should be a number."""
    if not any(got.isnan().any() or got.isinf().any() for got, _ in pairs):
        return None
    where = "throughout" if all(got.isnan().all() for got, _ in pairs) else "in some places"
    return f"The result holds NaN or infinity {where}: is 0 divided by 0, or do powers or logarithms overflow?"


def of_argument(results: Sequence[Result]) -> str | None:
    """An argument was given back."""
    for number in range(len(results[0].trial)):
        arguments = [as_tensor(result.trial[number]) for result in results]
        if all(X is not None and equal(X, result.numbers) for X, result in zip(arguments, results, strict=True)):
            return f"This is argument {number}, counted from 0, as it was given."
    return None


def of_numbers(pairs: Sequence[tuple[Tensor, Tensor]]) -> str | None:
    """Every number is off in one and the same way."""
    for text, form in FORMS:
        if all(equal(got, form(right)) for got, right in pairs):
            return text
    factors = [ratio(got, right) for got, right in pairs]
    if all(factor is not None for factor in factors):
        if max(factors) - min(factors) < 1e-3 * abs(max(factors)):
            return f"Every number is {factors[0]:.4g} times what it should be."
        listed = ", ".join(f"{factor:.3g}" for factor in factors)
        return f"Within a call all numbers are off by one factor, but it changes from call to call ({listed})."
    shifts = [got - right for got, right in pairs]
    if all((shift - shift.flatten()[0]).abs().max() < 1e-4 * (1 + shift.abs().max()) for shift in shifts):
        listed = ", ".join(f"{shift.flatten()[0]:.3g}" for shift in shifts)
        return f"Within a call the same number is added to every place ({listed})."
    if all(got.numel() > 1 and equal(got, got.flatten()[0].expand_as(got)) for got, _ in pairs):
        return "All numbers of the result are the same, whatever goes in."
    return None


def of_places(pairs: Sequence[tuple[Tensor, Tensor]]) -> str | None:
    """The right numbers in other places, or sums that run along another axis."""
    for axis in range(pairs[0][1].dim()):
        for text, form in (
            ("in reverse order", lambda X, axis=axis: X.flip(axis)),
            ("one place too far on", lambda X, axis=axis: X.roll(1, axis)),
            ("one place too far back", lambda X, axis=axis: X.roll(-1, axis)),
        ):
            if all(equal(got, form(right)) for got, right in pairs):
                return f"The numbers are right, but stand {text} along axis {axis}."
    if all(equal(got.flatten().sort().values, right.flatten().sort().values) for got, right in pairs):
        return "All numbers are right, but they stand in other places."
    for axis in range(pairs[0][1].dim()):
        if all(sums_to_one(right, -1) and not sums_to_one(got, -1) and sums_to_one(got, axis) for got, right in pairs):
            return f"Sums along axis {axis} are 1; along the last axis they should be. Over what do you normalise?"
    if all(sums_to_one(right, -1) and not sums_to_one(got, -1) for got, right in pairs):
        return f"Rows should sum to 1; the first of yours sums to {pairs[0][0].flatten(0, -2)[0].sum():.3g}."
    if all(right.dim() > 1 and all(equal(row, got[0]) for row in got) for got, right in pairs):
        return "All examples or rows get the same result; only the first axis of what goes in tells them apart."
    if all(len(right) > 1 and equal(got[0], right[0]) for got, right in pairs if right.dim()):
        return "The first entry along axis 0 is right, others are not: is something of the first used for all?"
    return None


def of_calls(results: Sequence[Result]) -> str | None:
    """Some calls come out right."""
    right = [result for result in results if result.problem() is None]
    if not right:
        return None
    return f"{len(right)} of {len(results)} calls come out right: what is different about the others?"


def swapped(i: int, j: int) -> Callable[[Tensor], Tensor]:
    return lambda X: X.transpose(i, j)


def equal(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors have one shape and one content, up to rounding."""
    return first.shape == second.shape and first_difference(first, second) is None


def ratio(got: Tensor, right: Tensor) -> float | None:
    """The one factor between two tensors, if there is one."""
    if not right.abs().max() > 0:
        return None
    factor = (got * right).sum() / right.square().sum()
    return factor.item() if factor.abs() > 1e-6 and equal(got, factor * right) else None


def sums_to_one(X: Tensor, axis: int) -> bool:
    """Whether all sums along an axis are 1, of numbers that are not negative."""
    return X.dim() > 1 and X.min() >= 0 and bool(torch.isclose(X.sum(axis), X.new_ones(()), atol=1e-4).all())
