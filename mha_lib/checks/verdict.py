"""What a check says of an answer."""

import functools
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass

import torch

NO_LIMIT = "There is no time limit on this system: interrupt the kernel if a check does not end."
LONGEST = 160  # characters of an error's message that a learner is shown


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

    The check always draws the same numbers, leaves the learner's random state as it was, and never raises.
    An answer that is still None or an ellipsis is not examined.
    """

    @functools.wraps(examine)
    def checked(*answers, **options) -> Verdict:
        if any(answer is None or answer is ... for answer in answers):
            return Verdict("not yet", "put your answer in the place of the dots, then run both cells.")
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)  # torch.manual_seed would seed the accelerators too
            try:
                return judged("right", examine(*answers, **options))
            except NotYetError as reason:
                return Verdict("not yet", one_line(reason))
            except MistakeError as reason:
                return judged("wrong", one_line(reason))
            except KeyboardInterrupt:
                raise
            except BaseException as surprise:
                return judged("wrong", f"this check cannot make sense of it ({describe_error(surprise)}).")

    checked.__annotations__ = {**examine.__annotations__, "return": Verdict}
    return checked


def judged(state: str, text: str) -> Verdict:
    """A verdict on an answer that was run; where nothing could have cut it short, it says so."""
    return Verdict(state, text if can_fork() else f"{text} ({NO_LIMIT})")


def can_fork() -> bool:
    """Whether answers can run in a forked process: not on Windows, nor on macOS, whose libraries may not survive it.

    Where torch has an accelerator, a forked process cannot compute gradients.
    """
    return hasattr(os, "fork") and sys.platform != "darwin" and not torch.accelerator.is_available()


def describe_error(error: BaseException) -> str:
    """The kind of an error and the first line of its message."""
    try:
        lines = str(error).strip().splitlines()
    except Exception:  # an error of the learner's own making may have no message that can be read
        lines = []
    return f"{type(error).__name__}: {trimmed(lines[0], LONGEST)}" if lines else type(error).__name__


def trimmed(text: str, length: int) -> str:
    """At most so many characters of a text."""
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


def one_line(reason: Exception) -> str:
    """A message without line breaks."""
    return " ".join(str(reason).split())
