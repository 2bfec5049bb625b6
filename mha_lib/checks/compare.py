"""Hold a learner's function against a reference, and against what it would give with a typical mistake."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mha_lib.checks.answers import InTensors, require_parts
from mha_lib.checks.calls import call_all, tensor_from
from mha_lib.checks.inputs import in_words
from mha_lib.checks.verdict import MistakeError
from mha_lib.heads.coalitions import spearman

SEEN = "{example}, place {place} holds {got} instead of {right}: "  # how a slip begins that leaves the shape right
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@dataclass(frozen=True)
class Slip:
    """A typical mistake.

    Attributes:
        text: what it is, to the learner, without the right code. May hold ``{example}``, the smallest inputs that
            show it in words ("with scores of shape (2, 3)"); ``{place}``, the first wrong number's place there; and
            ``{got}`` and ``{right}``.
        imitation: computes, from the same arguments, what an answer with this mistake gives. Of another shape than
            the reference's, or NaN, if this is what the mistake gives.
    """

    text: str
    imitation: Callable[..., Tensor]


def compare(
    function: Callable, reference: Callable[..., Tensor], trials: Sequence[tuple], slips: Sequence[Slip]
) -> None:
    """Do nothing if the function gives what the reference gives for all trials.

    A slip is named only if its imitation gives what the function gave in every trial: equal results in many random
    trials are evidence, a single one would be none.

    Args:
        trials: arguments of calls, the smallest ones first. Tensors in them should be random, with sizes that differ.

    Raises:
        NotYetError: there is no function yet.
        MistakeError: with the slip's text; or, where no slip fits, what is wrong at the first trial that shows it.
    """
    first_failure = None
    results = []
    for trial, got in zip(trials, call_all(function, trials), strict=True):
        right = reference(*trial)
        results.append((trial, got, right))
        try:
            if isinstance(function, InTensors):
                require_parts(got, right)
            got = tensor_from(got, right.shape, floating=right.is_floating_point())
            if (place := first_difference(got, right)) is not None:
                where = f"place {place} holds" if place else "the result is"
                wrong, needed = numbers_at(place, got, right)
                raise MistakeError(f"{in_words(function, trial)}, {where} {wrong} instead of {needed}.")
        except MistakeError as mistake:
            first_failure = first_failure or mistake
    if first_failure is None:
        return
    for slip in slips:
        if all(imitates(slip, trial, got) for trial, got, _ in results):
            raise MistakeError(fill(slip, function, results))
    raise first_failure


def imitates(slip: Slip, trial: tuple, got: object) -> bool:
    """Whether a result is what this mistake gives."""
    expected = slip.imitation(*trial)
    comparable = isinstance(got, Tensor) and got.shape == expected.shape and not got.is_complex()
    return comparable and first_difference(got, expected) is None


def first_difference(got: Tensor, right: Tensor) -> list[int] | None:
    """The first place where two tensors of one shape differ by more than rounding; NaN equals NaN."""
    places = torch.isclose(plain(got), plain(right), equal_nan=True, **CLOSE).logical_not().nonzero()
    return places[0].tolist() if len(places) else None


def plain(tensor: Tensor) -> Tensor:
    """A tensor's numbers, whatever their type and device, as double precision on the CPU."""
    return tensor.detach().to("cpu", torch.float64)


def numbers_at(place: list[int], got: Tensor, right: Tensor) -> tuple[str, str]:
    """Two numbers that differ: whole ones in full, others in as few digits, but at least three, as show it."""
    pair = got[tuple(place)].item(), right[tuple(place)].item()
    if all(abs(number) < 1e9 and number == int(number) for number in pair):
        return f"{pair[0]:.0f}", f"{pair[1]:.0f}"
    written = [tuple(f"{number:.{digits}g}" for number in pair) for digits in range(3, 17)]
    return next((texts for texts in written if texts[0] != texts[1]), written[-1])


def fill(slip: Slip, function: Callable, results: Sequence[tuple[tuple, Tensor, Tensor]]) -> str:
    """The slip's text with the smallest example that shows it, of (trial, got, right)."""
    for trial, got, right in results:
        if got.shape != right.shape:
            seen = {"place": "", "got": tuple(got.shape), "right": tuple(right.shape)}
        elif (place := first_difference(got, right)) is not None:
            wrong, needed = numbers_at(place, got, right)
            seen = {"place": place, "got": wrong, "right": needed}
        else:
            continue
        return slip.text.format(example=in_words(function, trial), **seen)
    raise AssertionError("a slip was found where nothing is wrong")


def same_order(first: Tensor, second: Tensor) -> bool:
    """Whether two measures put heads in one order; of up to ten heads, no other order correlates as well."""
    return spearman(first, second) > 0.999
