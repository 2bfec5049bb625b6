"""What a check says of an answer."""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch


class NotYetError(Exception):
    """There is no answer yet."""


class MistakeError(Exception):
    """The answer is wrong; the message says in what way."""


@dataclass(frozen=True)
class Verdict:
    """True if the answer is right; as text, the one line that a learner reads.

    ``state`` is "right", "wrong" or "not yet".
    """

    state: str
    text: str

    def __bool__(self) -> bool:
        return self.state == "right"

    def __repr__(self) -> str:
        sign = {"right": "✓ Right", "wrong": "✗ Not right", "not yet": "… Not yet"}[self.state]
        return f"{sign}: {self.text}"


def check(examine: Callable[..., str]) -> Callable[..., Verdict]:
    """Make a check of a function that returns what to say of a right answer, and raises at a wrong one.

    The check draws from a random generator of its own, always the same numbers, and never raises.
    """

    @functools.wraps(examine)
    def checked(*answers) -> Verdict:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            try:
                return Verdict("right", examine(*answers))
            except NotYetError as reason:
                return Verdict("not yet", one_line(reason))
            except MistakeError as reason:
                return Verdict("wrong", one_line(reason))
            except Exception as surprise:
                return Verdict("wrong", f"this check cannot make sense of it ({describe_error(surprise)}).")

    checked.__annotations__ = {**examine.__annotations__, "return": Verdict}
    return checked


def describe_error(error: BaseException) -> str:
    """The kind of an error and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def one_line(reason: Exception) -> str:
    """A message without line breaks."""
    return " ".join(str(reason).split())
