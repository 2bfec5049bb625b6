"""What can be said of a wrong result without knowing the exercise: how it differs from the right one in every call."""

import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import starmap

import torch
from torch import Tensor

from mha_course.checking.comparing import Result, as_tensor, equal, plain
from mha_course.checking.running import Outcome
from mha_course.language import Said, english, listed, tr

ERRORS = {  # how torch or Python puts it → what it means
    r"size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\)": "the shapes of two tensors do not fit: "
    "along an axis, one has {0} entries and the other {1}. Print both shapes; one may need a new axis of length 1.",
    r"shapes cannot be multiplied|Expected size for first two dimensions": "in a matrix product, the last axis of the "
    "first tensor must be as long as the last but one of the second. Print both shapes; one may have to be transposed.",
    r"view size is not compatible": "`view` cannot change the order of the numbers in memory, which is needed after a "
    "`transpose` or `permute`. Use `reshape`.",
    r"shape '(.+)' is invalid for input of size (\d+)": "{1} numbers do not fill the shape {0}. Check which axis is "
    "divided, and into how many parts.",
    r"tuple of ints,? ?(but|not)|must be int, not float|slice indices must be|'float' object cannot": "a size must be "
    "a whole number. Divide by `//` instead of `/`.",
    r"Dimension out of range": "the code names an axis that this tensor does not have. Print its shape.",
    r"only one element tensors|only integer tensors|ambiguous": "a tensor of many numbers is used where one number is "
    "needed.",
}
FORMS: dict[str, Callable[[Tensor], Tensor]] = {  # what is said → what was made of the right numbers
    "Every number has the wrong sign.": torch.neg,
    "This is 1 minus what is asked for.": lambda right: 1 - right,
    "This is 1 divided by what is asked for.": torch.reciprocal,
    "This is the square of what is asked for.": torch.square,
    "This is the root of what is asked for.": torch.sqrt,
    "This is the exponential of what is asked for.": torch.exp,
    "This is the logarithm of what is asked for.": torch.log,
    "The signs are lost: these are absolute values.": torch.abs,
    "Numbers below 0 have become 0.": torch.relu,
}
ALONG_AN_AXIS: dict[str, Callable[..., Tensor]] = {
    "Axis {} of the right result is summed away.": torch.sum,
    "Axis {} of the right result is averaged away.": torch.mean,
    "Only the first entry along axis {} is left.": partial(torch.select, index=0),
    "A softmax along axis {} was taken of the right numbers.": torch.softmax,
    "The numbers are in reverse order along axis {}.": lambda right, dim: right.flip(dim),
    "The numbers are one position too far on along axis {}.": lambda right, dim: right.roll(1, dim),
    "The numbers are one position too far back along axis {}.": lambda right, dim: right.roll(-1, dim),
}
OF_PARTS: dict[str, Callable[[Tensor], Tensor]] = {  # the same, where several numbers or tensors are asked for
    "Only the first of the parts that are asked for is returned.": lambda right: right[0],
    "The parts that are asked for are added up.": lambda right: right.sum(dim=0),
}


def one_change(results: Sequence[Result]) -> Iterator[str]:
    """Yield a sentence for each simple change (sign, factor, …) that turns the right results into the given ones."""
    pairs = comparable(results)
    if not pairs:
        return
    for number in range(len(results[0].trial)):
        if all(equal(as_tensor(result.trial[number]), got) for result, (got, _) in zip(results, pairs, strict=True)):
            yield tr("This is argument {number}, counted from 0, as it was given.", number=number)
    for text, form in forms(pairs[0][1].dim(), several=isinstance(results[0].right, list | tuple)):
        if all(equal(got, form(right)) for got, right in pairs):
            yield text
    if all(equal(got.flatten(), right.flatten()) for got, right in pairs):
        yield tr("All numbers are right, but the axes are split or merged in another way.")
    for found, told in (
        (ratio, lambda number: tr("Every number is {} times what it should be.", number)),
        (shift, lambda number: tr("To every number {} is added.", number)),
    ):
        numbers = torch.tensor([found(*pair) for pair in pairs])
        if numbers.max() - numbers.min() < 1e-3 * numbers.abs().max():
            yield told(f"{numbers[0]:.4g}")
    if len(pairs) > 1 and len(torch.cat([got.flatten() for got, _ in pairs]).unique()) == 1:
        yield tr("All numbers of the result are the same, in every call that was tried.")
    if all(len(got.unique()) == 1 < right.numel() and got.shape == right.shape for got, right in pairs):
        yield tr("Within a call all numbers of the result are the same.")


def traces(results: Sequence[Result]) -> Iterator[str]:
    """Yield sentences on how a learner's wrong results differ from the right ones, the most certain first."""
    parts = [result.got.value for result in results if isinstance(result.got.value, list | tuple)]
    for number in range(min(map(len, parts)) if len(parts) == len(results) else 0):
        if all(equal(as_tensor(part[number]), result.expected) for part, result in zip(parts, results, strict=True)):
            told = "Several things are returned. Part {number}, counted from 0, is right; it alone is asked for."
            yield tr(told, number=number)
    pairs = comparable(results)
    if isinstance(results[0].right, list | tuple):
        yield from rearranged(pairs, 0, tr("The parts"))
        yield from of_parts(results)
    else:
        yield from marks(pairs)


def random_results(results: Sequence[Result]) -> Iterator[str]:
    """Yield a sentence if two calls of a learner's function with the same arguments returned different numbers."""
    for one, other in itertools.combinations(results, 2):
        first, second = one.numbers, other.numbers
        if one.trial is other.trial and first is not None and second is not None and not equal(first, second):
            yield tr(
                "Two calls with equal arguments give different results. Some number is random, for example a parameter "
                "that is not copied."
            )


def boundary(results: Sequence[Result], names: Sequence[str], stages: Sequence[str]) -> Iterator[str]:
    """Yield a sentence that says in which test calls a learner's function is right and in which it is wrong.
    The calls differ in their group of test cases (``stages``) or in one argument (``names``).

    An argument tells them apart if it is True or False, or a whole number that is larger, or smaller, in all wrong
    calls; and if it is the only one that does.
    """
    told = []
    for number, name in enumerate(names):
        seen = {(one.problem() is None, one.trial[number]) for one in results if isinstance(one.trial[number], int)}
        good, bad = (sorted(value for is_right, value in seen if is_right == asked) for asked in (True, False))
        if good and bad and len(results) > 2 and (good[-1] < bad[0] or bad[-1] < good[0]):
            right, wrong = (listed(map(str, some), " or ") for some in (good, bad))
            told.append(
                tr("Right with {name} = {right}; wrong with {name} = {wrong}.", name=name, right=right, wrong=wrong)
            )
    if len(stages) > 1 and all(stages):
        yield tr("Right {stages}, but not {stage}.", stages=listed(map(tr, stages[:-1])), stage=tr(stages[-1]))
    yield from told if len(told) == 1 else []


def of_parts(results: Sequence[Result]) -> Iterator[str]:
    """Yield a sentence that says which parts of a result made of several tensors are wrong, and how."""
    count = len(results[0].right)
    told: dict[str, list[str]] = {}  # what is said → of which parts
    if any(not isinstance(result.got.value, list | tuple) or len(result.got.value) != count for result in results):
        return
    for number in range(count):
        part = [Result(one.trial, Outcome(one.got.value[number]), one.right[number]) for one in results]
        if any(result.problem() for result in part):
            text = next(itertools.chain(one_change(part), marks(comparable(part))), "")
            told.setdefault(text, []).append(str(number))
    if told and "" not in told:
        yield tr("Counted from 0, {parts}", parts=listed(starmap(wrong_parts, told.items()), " And "))


def wrong_parts(text: str, numbers: list[str]) -> str:
    """Return a clause such as "part 1 is wrong: the signs are lost", from part ``numbers`` and a mistake, ``text``."""
    own = english(text)
    how = Said(text[0].lower() + text[1:], f"{own[0].lower()}{own[1:]}".replace(", counted from 0", ""))
    if len(numbers) == 1:
        return tr("part {numbers} is wrong: {how}", numbers=numbers[0], how=how)
    return tr("parts {numbers} are wrong: {how}", numbers=listed(numbers), how=how)


def marks(pairs: Sequence[tuple[Tensor, Tensor]]) -> Iterator[str]:
    """Yield sentences on what all wrong tensors in ``pairs`` (given, right) have in common, such as NaN.
    Nothing is yielded if a shape is wrong.
    """
    if not pairs or any(got.shape != right.shape for got, right in pairs):
        return
    if any(not got.isfinite().all() for got, _ in pairs):
        yield tr("The result holds NaN or infinity. Check for a division by 0, a product of 0 and ∞, and overflow.")
        return
    for found, what in ((ratio, tr("factor")), (shift, tr("number that is added"))):
        numbers = [found(*pair) for pair in pairs]
        if all(map(math.isfinite, numbers)) and all(right.numel() > 1 for _, right in pairs):
            words = {"what": what, "numbers": ", ".join(f"{number:.3g}" for number in numbers)}
            told = "Within a call all numbers are off by one {what}, which changes from call to call: {numbers}."
            yield tr(told, **words)
    for axis in range(pairs[0][1].dim()):
        yield from rearranged(pairs, axis, tr("Along axis {axis} the entries", axis=axis))
    for text, holds in PROPERTIES.items():
        if all(got.dim() and holds(got, right) for got, right in pairs):
            yield tr(text)


def rearranged(pairs: Sequence[tuple[Tensor, Tensor]], axis: int, what: str) -> Iterator[str]:
    """Yield a sentence if the given tensors hold the right entries along an axis, but in another order."""
    moved, twice, one_for_all = [], False, True
    for got, right in pairs:
        if got.shape != right.shape or not right.numel():
            return
        rows, wanted = (X.movedim(axis, 0).reshape(X.shape[axis], -1) for X in (got, right))
        same = torch.cdist(rows, wanted, p=math.inf) < 1e-5  # (n, m), (n, m) -> (n, n)
        if not same.any(dim=1).all():
            return
        one_for_all &= equal(rows, rows[:1].expand_as(rows))
        twice |= not torch.equal(same.sum(dim=1), (same.float() @ same.float().T > 0).sum(dim=1))
        moved += [(position, row.float().argmax()) for position, row in enumerate(same) if not row[position]]
    if moved and not one_for_all and not (twice and pairs[0][1].dim() == 1):  # single numbers may be equal by chance
        words = {"what": what, "at": moved[0][0], "right": moved[0][1]}
        if twice:
            told = (
                "{what} are right, but some occur more than once: position {at} holds what belongs at position {right}."
            )
        else:
            told = "{what} are right, but in another order: position {at} holds what belongs at position {right}."
        yield tr(told, **words)


def meanings(message: str) -> Iterator[str]:
    """Yield explanations in plain words of an error message of Python or torch."""
    for pattern, meaning in ERRORS.items():
        if found := re.search(pattern, message):
            yield tr("An error is raised: {meaning}", meaning=tr(meaning, *found.groups()))


def comparable(results: Sequence[Result]) -> list[tuple[Tensor, Tensor]]:
    """Return a pair (given tensor, right tensor) for each call; an empty list if some call returned no numbers.
    The list is also empty if all pairs are equal, so that only dtypes differ.
    """
    pairs = [(plain(result.numbers), plain(result.expected)) for result in results if result.numbers is not None]
    return [] if len(pairs) < len(results) or all(equal(*pair) for pair in pairs) else pairs


def forms(count: int, several: bool) -> Iterator[tuple[str, Callable[[Tensor], Tensor]]]:
    """Yield functions that change a right result (sign, transpose, sum, …), each with words for the change."""
    yield from ((tr(text), form) for text, form in FORMS.items())
    if several:
        yield from ((tr(text), form) for text, form in OF_PARTS.items())
        return
    for i, j in itertools.combinations(range(count), 2):
        yield tr("Axes {i} and {j} are exchanged.", i=i, j=j), partial(torch.transpose, dim0=i, dim1=j)
    for axis, (text, form) in itertools.product(range(count), ALONG_AN_AXIS.items()):
        yield tr(text, axis), partial(form, dim=axis)


def ratio(got: Tensor, right: Tensor) -> float:
    """Return the constant factor by which ``got`` differs from ``right``; NaN if there is none."""
    if got.shape != right.shape or not right.abs().sum() > 0:
        return math.nan
    factor = (got * right).sum() / right.square().sum()
    return factor.item() if factor.abs() > 1e-6 and equal(got, factor * right) else math.nan


def shift(got: Tensor, right: Tensor) -> float:
    """Return the constant that must be added to ``right`` to give ``got``; NaN if there is none."""
    same_shape = got.shape == right.shape
    return (got - right).mean().item() if same_shape and equal(got, right + (got - right).mean()) else math.nan


def sum_to_one(X: Tensor, axis: int) -> bool:
    """Return whether ``X``, a tensor of two or more axes, is non-negative and sums to 1 along ``axis``."""
    return X.dim() > 1 and bool(X.min() >= 0) and equal(X.sum(axis), torch.ones_like(X.sum(axis)))


PROPERTIES: dict[str, Callable[[Tensor, Tensor], bool]] = {  # what is said → whether it is true of a wrong result
    "All numbers are right, but they are at other positions.": (
        lambda got, right: equal(got.flatten().sort().values, right.flatten().sort().values)
    ),
    "Rows must sum to 1, but columns do. Check the axis along which you normalise.": (
        lambda got, right: sum_to_one(right, -1) and not sum_to_one(got, -1) and sum_to_one(got, -2)
    ),
    "Rows must sum to 1. Check the axis along which you normalise, and what is done afterwards.": (
        lambda got, right: sum_to_one(right, -1) and not sum_to_one(got, -1)
    ),
    "The result is the same for every entry along axis 0. Check that your code uses what tells them apart.": (
        lambda got, right: len(got) > 1 and all(equal(row, got[0]) for row in got)
    ),
    "The first entry along axis 0 is right, others are not.": (
        lambda got, right: right.dim() > 1 and len(got) > 1 and equal(got[0], right[0])
    ),
}
