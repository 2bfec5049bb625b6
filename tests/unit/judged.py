"""Answers to exercises, sorted by what a check must say of them, as parameters of tests."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pytest

from mha_lib.checks.verdict import Verdict


@dataclass(frozen=True)
class Answers:
    """Answers to one exercise.

    Attributes:
        right: different ways to the right result.
        wrong: typical mistakes, each under words that its message holds and no other message of this check does.
        unlisted: wrong in a way that the check does not know by name.
    """

    check: Callable[..., Verdict]
    right: list[Callable]
    wrong: dict[str, Callable]
    unlisted: list[Callable]


def right(exercises: Iterable[Answers]) -> list:
    """Parameters (check, answer)."""
    return [
        pytest.param(answers.check, answer, id=f"{answers.check.__name__}-{number}")
        for answers in exercises
        for number, answer in enumerate(answers.right)
    ]


def wrong(exercises: Iterable[Answers]) -> list:
    """Parameters (answers, answer, words)."""
    return [
        pytest.param(answers, answer, words, id=f"{answers.check.__name__}-{words}")
        for answers in exercises
        for words, answer in answers.wrong.items()
    ]


def unlisted(exercises: Iterable[Answers]) -> list:
    """Parameters (answers, answer)."""
    return [
        pytest.param(answers, answer, id=f"{answers.check.__name__}-{number}")
        for answers in exercises
        for number, answer in enumerate(answers.unlisted)
    ]


def named(answers: Answers, verdict: Verdict) -> list[str]:
    """The mistakes that a verdict names; a line of the answer that it quotes may hold the words by chance."""
    own_words = re.sub("“.*?”", "", verdict.text)
    return [words for words in answers.wrong if words in own_words]
