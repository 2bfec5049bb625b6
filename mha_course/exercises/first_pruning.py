"""The exercises on trained heads: which head covers for another, which four of eight can go (00), which five (07)."""

import functools
import itertools
from typing import Any

import torch

from mha_course.checking.comparing import is_number, plain
from mha_course.checking.exercise import exercise, judged
from mha_course.checking.running import MistakeError, NotYetError
from mha_course.checking.wording import Foreign, kind_of
from mha_course.language import sentences, tr
from mha_course.models import find_task, shipped_model
from mha_course.models.ring_lab import NUM_HEADS, right_without, ring_lab

BEST = 0.913  # accuracy without the best five heads, of all 792 sets, on the test set of notebook 07
ENOUGH = 0.905
PAIRS = {  # of the ring's laboratory: neighbour → the two heads that attend to it
    "one before": (1, 3),
    "one after": (0, 5),
    "two before": (2, 6),
    "two after": (4, 7),
}
FIRST_BY_NUMBER = {0, 1, 2, 3}  # what leave-one-out removes, as all its costs are 0
FOUR_ENOUGH = 0.99
SHAPE = (2, 6)
ALL_HEADS = [(layer, head) for layer in range(SHAPE[0]) for head in range(SHAPE[1])]


class Cost:
    """Hold random costs of removing each head and each pair of heads; called with a list of heads, return their sum.

    The costs of pairs are uniform between twice ``lowest`` and twice ``lowest`` + 1: with -2, removing a second head
    always costs less than nothing.
    """

    def __init__(self, num_heads: int, lowest: float = -0.3) -> None:
        single, pairs = torch.rand(num_heads), torch.rand(num_heads, num_heads) + lowest
        self.single, self.pairs = single.tolist(), (pairs + pairs.T).tolist()

    def __call__(self, heads: Any) -> float:
        if not isinstance(heads, list | tuple):
            raise TypeError(f"cost takes a list of heads, got {heads!r}")
        pairs = itertools.combinations(heads, 2)
        return sum(self.single[head] for head in heads) + sum(self.pairs[a][b] for a, b in pairs)

    def __repr__(self) -> str:
        return "cost"


def costs_in_words(cost: Cost, head: int, others: list[int]) -> str:
    """Return as text the cost of removing each of ``others`` alone, and of removing it together with ``head``."""
    asked = [*([other] for other in others), *([head, other] for other in others)]
    return f"{', '.join(f'cost({heads}) = {cost(heads):.2f}' for heads in asked)}."


def others_than(head: int, num_heads: int) -> list[int]:
    """Return the head numbers from 0 to ``num_heads`` − 1 without ``head``."""
    return [other for other in range(num_heads) if other != head]


@exercise(
    trials=lambda: (
        [
            (Cost(num_heads), head, others_than(head, num_heads))
            for num_heads, head in ((3, 0), (4, 3), (5, 2), (6, 1), (7, 4), (8, 0))
        ]
        + [(Cost(6, lowest=-2), 0, others_than(0, 6))]
    ),
    known=costs_in_words,
    praise="A head covers for another if its removal costs more after the other is removed.",
    idea="Remove each of the others twice: together with `head`, and alone. Compare the differences of the two costs.",
    begin="Begin with `cost([head, other]) - cost([other])` for one of the others.",
    mistakes="""
    - cost([other]) -> _ => This head has the largest cost together with `head`. Subtract what it costs alone.
    cost([head, other]) - cost([other]) -> cost([other]) || - cost([other]) => The heads are compared by what each costs
        alone. Compare with its cost when `head` is removed, too.
    max( -> min( => This is the head with the smallest difference. Return the one with the largest.
    cost([head, other]) - cost([other]) -> cost([head, other]) + cost([other]) => The head's own cost is added instead
        of subtracted.
    max(others, key=lambda other: cost([head, other]) - cost([other])) -> max(cost([head, other]) - cost([other]) for
        other in others) || max(cost([head, other]) - cost([other]) - cost([head]) for other in others) => This is the
        largest difference. Return the head, not its difference.
    return max(others, key=lambda other: cost([head, other]) - cost([other])) -> return others.index(max(others,
        key=lambda other: cost([head, other]) - cost([other]))) => This is the index of the head in `others`. Return the
        head itself.
    max(others, key=lambda other: cost([head, other]) - cost([other])) -> max((other for other in others if
        cost([head, other]) > cost([other])), key=lambda other: cost([head, other]) - cost([other]), default=None) ||
        max((other for other in others if cost([head, other]) > cost([other])), key=lambda other: cost([head, other]) -
        cost([other]), default=others[0]) || max((other for other in others if cost([head, other]) > cost([other])),
        key=lambda other: cost([head, other]) - cost([other]), default=0) => The search starts at 0, but all differences
        may be negative. Start it at −∞, or with the first of `others`.
    """,
)
def covering_head(cost, head, others):
    """Return the one of ``others`` whose removal becomes most expensive when ``head`` is removed as well.

    cost(heads) → the loss of accuracy without the heads in a list; head, a head; others, a list of heads → one of them.
    Source: the interaction of two players; M. Grabisch, M. Roubens, 1999.
    """
    return max(others, key=lambda other: cost([head, other]) - cost([other]))


def one_of_each_pair():
    return [0, 1, 2, 4]


@judged(
    right=one_of_each_pair,
    idea="Every neighbour needs one of the two heads that attend to it.",
    begin="Begin with one head, and measure the others again with this head removed.",
)
def four_heads(answer: list) -> str:
    """Check four heads that a learner would remove from the ring's laboratory, by its accuracy without them.

    answer: four heads, whole numbers from 0 to 7. At least 0.99 of the answers on other rows must stay right.
    """
    chosen = four_from(answer)
    right = right_without(ring_lab(), sorted(chosen))
    told = [tr("{share} of the answers are still right.", share=f"{right.mean():.3f}")]
    if right.mean() >= FOUR_ENOUGH:
        return told[0]
    for share, (neighbour, pair) in zip(right.tolist(), PAIRS.items(), strict=True):
        if chosen.issuperset(pair):
            words = {"a": pair[0], "b": pair[1], "neighbour": tr(neighbour), "share": f"{share:.2f}"}
            told.append(
                tr(
                    "Both heads of a pair are removed, {a} and {b}: only {share} of “{neighbour}” is still right.",
                    **words,
                )
            )
    if chosen == FIRST_BY_NUMBER:
        told.append(
            tr("Leave-one-out removes these four, because all its costs are 0. Measure again after each removal.")
        )
    raise MistakeError(sentences([*told, tr("At least {share} is needed.", share=FOUR_ENOUGH)]))


def four_from(answer: Any) -> set[int]:
    """Convert a learner's answer, a collection or tensor of numbers, to a set of four heads.

    Raises:
        MistakeError: it is no collection, or its heads are not four different whole numbers from 0 to 7.
        NotYetError: it holds an ellipsis.
    """
    given = answer.numbers if isinstance(answer, Foreign) else answer
    given = given.tolist() if isinstance(given, torch.Tensor) else given
    if not isinstance(given, list | tuple | set | frozenset | range):
        raise MistakeError(tr("A list of four heads is needed; this is {given}.", given=kind_of(answer)))
    heads = [head.item() if isinstance(head, torch.Tensor) and head.dim() == 0 else head for head in given]
    if any(head is ... for head in heads):
        raise NotYetError(tr("Put a head in the place of each `...`."))
    for head in heads:
        if not is_number(head) or head not in range(NUM_HEADS):
            found = head if is_number(head) else kind_of(head)
            told = "Four heads are needed, each a whole number from 0 to 7; this answer holds {found}."
            raise MistakeError(tr(told, found=found))
    if len(heads) != 4:
        raise MistakeError(tr("Four heads are needed; this answer has the length {length}.", length=len(heads)))
    if twice := [head for head in heads if heads.count(head) > 1]:
        told = "Four different heads are needed; this answer holds head {head} more than once."
        raise MistakeError(tr(told, head=int(twice[0])))
    return set(map(int, heads))


@functools.cache
def accuracy_without(heads: tuple) -> float:
    """Return the test accuracy of the look-ups' trained model when ``heads``, pairs (layer, head), are masked."""
    task, mask = find_task("lookups"), torch.ones(SHAPE)
    for layer, head in heads:
        mask[layer, head] = 0
    return task.accuracy(shipped_model("lookups"), task.held_out[128:256], head_mask=mask)


def found_by_greedy_search():
    return [(0, 0), (1, 0), (1, 1), (1, 2), (1, 3)]


@judged(
    right=found_by_greedy_search,
    idea="Heads cover for each other, so measure again after each removal, as greedy search does.",
    begin="Begin with the cost of each head on the calibration set, when all others are on.",
)
def five_heads(answer: list) -> str:
    """Check five heads, pairs (layer, head), that a learner would remove from a model, by its accuracy without them.

    answer: five pairs (layer, head). At least 0.905 of the answers on the test set must stay right.
    """
    chosen = heads_from(answer)
    got = accuracy_without(tuple(sorted(chosen)))
    words = {"share": f"{got:.3f}", "best": BEST}
    told = [
        tr("{share} of the answers on the test set are still right; without the best five heads it is {best}.", **words)
    ]
    if got >= ENOUGH:
        return told[0]
    if {(0, 0), (0, 4)} <= chosen:
        told.append(tr("Heads 0 and 4 of layer 0 cover for each other: keep one of them."))
    if (0, 5) in chosen:
        told.append(tr("Head 0 of layer 0 covers for head 5 only in part: keep head 5."))
    if all(layer == 1 for layer, _ in chosen):
        told.append(
            tr("All five are in layer 1. Each of its heads costs little alone, but together they answer `count < 5`.")
        )
    raise MistakeError(sentences([*told, tr("At least {share} is needed.", share=ENOUGH)]))


def heads_from(answer: Any) -> set[tuple[int, int]]:
    """Convert a learner's answer to a set of five (layer, head) pairs, or raise a ``MistakeError``."""
    answer = plain(answer).tolist() if isinstance(answer, torch.Tensor) else answer
    if not isinstance(answer, list | tuple | set):
        raise MistakeError(tr("A list of five pairs (layer, head) is needed; this is {given}.", given=kind_of(answer)))
    if any(pair is ... for pair in answer):
        raise NotYetError(tr("Put a pair (layer, head) in the place of each `...`."))
    pairs = [tuple(pair) for pair in answer if isinstance(pair, list | tuple)]
    if len(pairs) != len(answer) or not all(pair in ALL_HEADS for pair in pairs):
        raise MistakeError(tr("Five pairs (layer, head) are needed: layer 0 or 1, head 0 to 5, such as (0, 4)."))
    if len(pairs) != 5 or len(set(pairs)) != 5:
        raise MistakeError(tr("Five different heads are needed; these are {count}.", count=len(set(pairs))))
    return set(pairs)
