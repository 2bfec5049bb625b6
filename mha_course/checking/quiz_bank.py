"""Answers to choose from for the notebooks' predictions: the right one, and three misconceptions with their sources."""

import csv
import functools
import random
from pathlib import Path
from typing import NamedTuple


class Item(NamedTuple):
    """A prediction as a question with four answers.

    Attributes:
        question: which can be understood without the notebook.
        right: the right answer.
        wrong: answer → where the misconception is met: "QUESTIONS 7", "museum 3" (a room), "mistakes: …" (how a row of
            ``MISTAKES`` in museum/wrong_attention.py begins), or "00, section 2", whose text answers it.
    """

    question: str
    right: str
    wrong: dict[str, str]


@functools.cache
def bank() -> dict[str, Item]:
    """Return the items by the names of their predictions, in the notebooks' order."""
    with Path(__file__).with_name("choices.csv").open(encoding="utf-8", newline="") as file:
        _, *rows = csv.reader(file)
    return {name: Item(question, right, dict(zip(wrong[::2], wrong[1::2], strict=True)))
            for name, question, right, *wrong in rows}  # fmt: skip


def choices(name: str) -> list[str]:
    """Return the four answers of a prediction in an order of its own; empty where the bank has none.

    >>> len(choices("03 one matrix"))
    4
    """
    if name not in bank():
        return []
    item = bank()[name]
    return random.Random(name).sample([item.right, *item.wrong], 4)
