"""A rule of attention with a number, both drawn by a seed: a learner writes the weights."""

import dataclasses
import functools
import random
from collections.abc import Callable
from types import EllipsisType
from typing import NamedTuple

import torch
from torch import Tensor

from mha_course.checking.exercise import FunctionExercise
from mha_course.checking.verdict import Page, Verdict
from mha_lib.attention.pooling import softmax_of_allowed


class Rule(NamedTuple):
    """A rule: what is asked for, with {number}; the numbers that can be drawn; the weights; its source."""

    text: str
    numbers: tuple[float, ...]
    weights: Callable[..., Tensor]
    source: str


def parts_of(Q: Tensor, K: Tensor, valid_lens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the scores (b, h, n, n), which keys are valid (b, 1, 1, n), and how far keys are before queries (n, n)."""
    n = torch.arange(K.shape[2])
    return Q @ K.mT / Q.shape[-1] ** 0.5, (n < valid_lens[:, None])[:, None, None], n[:, None] - n


def plain(Q: Tensor, K: Tensor, valid_lens: Tensor) -> Tensor:
    scores, valid, _ = parts_of(Q, K, valid_lens)
    return softmax_of_allowed(scores, valid.expand(scores.shape))


def window(Q: Tensor, K: Tensor, valid_lens: Tensor, number: float) -> Tensor:
    scores, valid, back = parts_of(Q, K, valid_lens)
    return softmax_of_allowed(scores, valid & (back.abs() < number))


def soft_cap(Q: Tensor, K: Tensor, valid_lens: Tensor, number: float) -> Tensor:
    scores, valid, _ = parts_of(Q, K, valid_lens)
    return softmax_of_allowed(number * torch.tanh(scores / number), valid.expand(scores.shape))


def distance(Q: Tensor, K: Tensor, valid_lens: Tensor, number: float) -> Tensor:
    scores, valid, back = parts_of(Q, K, valid_lens)
    return softmax_of_allowed(scores - number * back.abs(), valid.expand(scores.shape))


def sink(Q: Tensor, K: Tensor, valid_lens: Tensor, number: float) -> Tensor:
    scores, valid, _ = parts_of(Q, K, valid_lens)
    scores = scores.masked_fill(~valid, -torch.inf)
    return torch.cat([scores, torch.full_like(scores[..., :1], number)], dim=-1).softmax(dim=-1)[..., :-1]


RULES = {
    "window": Rule(
        "A query attends to keys that are fewer than {number} positions away from its own, on both sides.",
        (2, 3, 4),
        window,
        "Beltagy, Peters, Cohan 2020, section 3.1",
    ),
    "soft cap": Rule(
        "Before the softmax, each score s becomes {number} · tanh(s / {number}).",
        (2, 3, 4, 5),
        soft_cap,
        "Gemma Team 2024, Gemma 2, section 2",
    ),
    "distance": Rule(
        "Before the softmax, each score is lowered by {number} for every position between query and key.",
        (0.25, 0.5, 1, 2),
        distance,
        "Press, Smith, Lewis 2022, section 3",
    ),
    "sink": Rule(
        "Every query has one more key, which has no value: its score is always {number}. Return the weights of the "
        "other keys; a row then sums to less than 1.",
        (0, 1, 2, 3),
        sink,
        "OpenAI 2025, model card of gpt-oss",
    ),
}
TASK = (
    "Q and K have the shape (b, h, n, p); p differs from call to call. Keys from an example's valid length on get no "
    "weight, and a row in which no key is left is 0. Return the weights (b, h, n, n)."
)


def drawn_rule(seed: int) -> Page:
    """Return the task of a seed in words: a rule that changes the weights of attention.

    >>> print(str(drawn_rule(3)).splitlines()[0])
    Before the softmax, each score is lowered by 1 for every position between query and key.
    """
    name, number = rule_of(seed)
    rule = RULES[name]
    return Page(f"{rule.text.format(number=number)}\n{TASK}\nSource: {rule.source}.")


def rule_of(seed: int) -> tuple[str, float]:
    """Return the name of the rule that a seed draws, and its number."""
    draw = random.Random(f"rule {seed}")
    name = draw.choice(list(RULES))
    return name, draw.choice(RULES[name].numbers)


def check_weights(my_weights: Callable | EllipsisType | None, seed: int | None = None) -> Verdict:
    """Check a function of Q, K and ``valid_lens`` that returns attention weights by the rule of a seed; without a seed,
    those of scaled dot-product attention.
    """
    every = {
        f"{name}, with the number {number}": functools.partial(rule.weights, number=number)
        for name, rule in RULES.items()
        for number in rule.numbers
    }
    right = plain if seed is None else every.pop("{}, with the number {}".format(*rule_of(seed)))
    mistakes = [(f"These are weights of another rule: {name}.", program) for name, program in every.items()]
    check = FunctionExercise(
        functools.wraps(plain)(lambda Q, K, valid_lens: right(Q, K, valid_lens)),
        trials=lambda: {"where all keys are valid": [trial([6, 6])], "with padding": [trial([5, 2]), trial([1, 4, 6])]},
        praise="The weights are right with all lengths.",
        idea="",
        begin="",
        mistakes=(),
        programs=mistakes if right is plain else [*mistakes, ("These are weights without the rule.", plain)],
    )
    return dataclasses.replace(check(my_weights), next_step="")


def trial(lengths: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Return random queries and keys with these valid lengths; scores go beyond 5, and sizes differ."""
    h, n, p = len(lengths) + 1, max(lengths), 2 * len(lengths) + 1
    Q, K = 3 * torch.randn(len(lengths), h, n, p), torch.randn(len(lengths), h, n, p)
    return Q, K, torch.tensor(lengths)
