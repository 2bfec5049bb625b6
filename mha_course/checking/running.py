"""Run a learner's answer safely: whatever it does, the check goes on and knows what happened.

The calls run in a forked process. The system ends it if a call computes too long, and the check ends it if a call does
not come back, so no code of the learner's can hold the check up. What the calls return comes back as plain data;
what they print and draw is passed on, and bounded, as memory is (``limits``).
"""

import contextlib
import copy
import difflib
import gc
import inspect
import multiprocessing
import os
import pickle
import signal
import sys
import sysconfig
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from numbers import Integral, Real
from typing import Any

import numpy
import torch
from torch import Tensor

import mha_course
import mha_lib
from mha_course.checking import limits
from mha_course.checking.wording import Foreign, as_sentence, call_in_words, kind_of, names_of, trimmed
from mha_course.language import Said, tr

SECONDS = 10.0  # of computing that one call may take; time that a busy machine gives to others does not count
PATIENCE = 60.0  # seconds on the clock, for code that waits and does not compute
LARGEST = 1_000_000  # numbers or characters in what a call returns; no exercise asks for a thousandth of it
PART = 1000  # numbers of a tensor that take as long to look at as one part of a list
DEEPEST = 10  # lists within one another
NO_LIMIT = "There is no time limit on this system: interrupt the kernel if a check does not end."
MODULES = {name: name for name in ("math", "itertools", "functools", "random", "copy", "torch", "einops")} | {
    "np": "numpy as np",
    "nn": "torch.nn as nn",
    "F": "torch.nn.functional as F",
    "plt": "matplotlib.pyplot as plt",
}  # name → what is imported for it
# "<string>" is code without a file, for which Python 3.13 quotes what the process began with, if that was `python -c`.
OURS = (*mha_course.__path__, *mha_lib.__path__)
NOT_OWN = ("site-packages", "dist-packages", "<string>", sysconfig.get_path("stdlib"), *OURS)


class AboutAnswerError(Exception):
    """Signal what is to be said of a learner's answer; ``about`` names the part that it is about, "" if unknown."""

    def __init__(self, message: str = "", about: str = "") -> None:
        super().__init__(message)
        self.about = about


class NotYetError(AboutAnswerError):
    """Signal that a learner's answer is not written yet; the message says what is missing."""


class MistakeError(AboutAnswerError):
    """Signal that a learner's answer is wrong; the message says in whole sentences what is wrong."""


@dataclass(frozen=True)
class Outcome:
    """Hold what one call of a function returned, or the error that it raised.

    Attributes:
        value: what was returned, as plain data; None if there was an error.
        error: the kind of an error and the first line of its message.
        line: the learner's line that raised the error; "" if it is not known.
    """

    value: Any = None
    error: tuple[str, str] | None = None
    line: str = ""

    @property
    def error_in_words(self) -> str:
        """The error, without a full stop; "" where there is none."""
        return in_one(self.error or ())

    def raised(self) -> str:
        """Return a clause that says what was raised, and at which line."""
        if line := trimmed(self.line, 60):
            return tr("your code raises {error} at “{line}”", error=self.error_in_words, line=line)
        return tr("your code raises {error}", error=self.error_in_words)


def run_safely(function: Callable, trials: Sequence[tuple]) -> list[Outcome]:
    """Call a learner's function on each tuple of arguments in ``trials``, isolated if possible; return the outcomes.

    Raises:
        NotYetError: it returns None or an ellipsis in every call, as an unfilled stub does.
        MistakeError: it is no function, takes too long, ends its process or changes its arguments in place.
    """
    if not callable(function):
        given = kind_of(function)
        raise MistakeError(tr("Give the function itself, without calling it; this is {given}.", given=given))
    outcomes = in_a_fork(function, trials) if can_fork() else [attempt(function, trial) for trial in trials]
    for reason in outcomes:
        if isinstance(reason, Exception):
            raise reason
    found = [outcome for outcome in outcomes if isinstance(outcome, Outcome)]
    if found and all(outcome.value is None and outcome.error is None for outcome in found):
        if prints(function):
            raise NotYetError(tr("The function returns nothing so far (printing is not returning)."))
        raise NotYetError(tr("The function returns nothing so far."))
    return found


def can_fork() -> bool:
    """Return whether a learner's code can run in a forked process: not on Windows or macOS, nor if there is a GPU.

    Where torch has an accelerator, a forked process cannot compute gradients.
    """
    return hasattr(os, "fork") and sys.platform != "darwin" and not torch.accelerator.is_available()


def in_a_fork(function: Callable, trials: Sequence[tuple]) -> list[Outcome | Exception]:
    """Call a function on each tuple of arguments in a forked process; return the outcomes up to a call that hangs."""
    receiving, sending = multiprocessing.Pipe(duplex=False)
    with warnings.catch_warnings():  # Python 3.12 and newer warn of other threads; this fork needs none of them
        warnings.simplefilter("ignore", DeprecationWarning)
        process = os.fork()
    if process == 0:
        answer_trials(sending, function, trials)
    sending.close()
    try:
        outcomes: list[Outcome | Exception] = []
        for trial in trials:
            outcomes.append(receive(receiving, process, call_in_words(function, trial)))
            if isinstance(outcomes[-1], MistakeError):
                break
        return outcomes
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        receiving.close()


def receive(receiving: Connection, process: int, call: str) -> Outcome | Exception:
    """Return the outcome of one call in a forked process, and show meanwhile what the call prints and draws."""
    deadline = time.monotonic() + PATIENCE
    while receiving.poll(max(0, deadline - time.monotonic())):
        try:
            kind, content = pickle.loads(receiving.recv_bytes())
        except EOFError:
            end = os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)
            if end and (end.si_code, end.si_status) == (os.CLD_KILLED, signal.SIGPROF):  # see answer_trials
                return cut_short(tr("your code ran for more than {seconds} seconds", seconds=f"{SECONDS:g}"), call)
            return cut_short(tr("your code ended the process that it ran in"), call)
        if kind == "outcome":
            return content
        if kind == "picture":
            sys.modules["IPython"].display.display(content, raw=True)
        else:
            getattr(sys, kind).write(content)
    return cut_short(tr("your code did not return within {seconds} seconds", seconds=f"{PATIENCE:g}"), call)


def cut_short(what: str, call: str) -> MistakeError:
    """Return a ``MistakeError`` for a call that was stopped; its message says ``what`` happened in which ``call``."""
    return MistakeError(as_sentence(tr("{what} {call}", what=what, call=call) if call else what))


def answer_trials(sending: Connection, function: Callable, trials: Sequence[tuple]) -> None:
    """Call a function on each tuple of arguments, send the outcomes through a pipe, and end the current process."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is meant for the check, which ends this process
        gc.freeze()  # nothing that the kernel owns is to be finalised here, too
        torch.set_num_threads(1)  # the threads of the kernel are not here
        limits.bind(sending)
        signal.signal(signal.SIGPROF, signal.SIG_DFL)  # which ends the process
        for trial in trials:
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            outcome = attempt(function, trial)
            limits.show_figures()
            sending.send_bytes(pickle.dumps(("outcome", outcome)))
    finally:
        os._exit(0)


def attempt(function: Callable, arguments: tuple) -> Outcome | Exception:
    """Call a learner's function with copies of ``arguments``; return its result or error in an ``Outcome``.

    A ``MistakeError`` is returned, not raised, where it changes a tensor in place.
    """
    given = copy.deepcopy(arguments)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default")  # warnings are shown, whatever filters are set outside
            result = function(*given)
    except (MistakeError, NotYetError) as reason:
        return reason
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        words, line = error_in_words(error), line_of(error)
        if isinstance(error, MemoryError) or "can't allocate memory" in words[1]:
            words = "MemoryError", tr("it asks for more than {count} GB of memory", count=limits.MEMORY // 2**30)
        if isinstance(error, NotImplementedError) and ("NotImplementedError" in line or not words[1]):
            return NotYetError(tr("Write the function first, then run both cells."))
        return Outcome(error=words, line=line)
    for name, before, after in zip(names_of(function, len(arguments)), arguments, given, strict=True):
        if not same(before, after):
            return MistakeError(
                tr(
                    "Your code changes {what} in place, which spoils the caller's tensor even where the result is "
                    "right: work on a new tensor.",
                    what=f"`{name}`" if name else tr("an argument"),
                )
            )
    return Outcome(None if result is ... else PlainCopy().of(result))


class PlainCopy:
    """Copy what a function returned to lists, numbers and tensors that another process can read."""

    def __init__(self) -> None:
        self.room = LARGEST

    def fits(self, count: int) -> bool:
        """Return whether this many more numbers still fit."""
        self.room -= count
        return self.room >= 0

    def of(self, value: Any, depth: int = 0) -> Any:
        """Tensors, numbers, texts, ranges, lists, tuples, sets and dictionaries as they are, named tuples as tuples.

        For anything else, and for what is too large, its kind stands in words; an array keeps its numbers.
        """
        kind = type(value)
        try:
            if (
                value is None
                or value is ...
                or kind in (bool, complex)
                or (kind in (str, Said) and self.fits(len(value)))
            ):
                return value
            if issubclass(kind, Real):
                number = int(value) if issubclass(kind, Integral) else float(value)
                float(number)  # raises if a whole number is too large for a float
                return number
            if issubclass(kind, Tensor) and not value.is_nested and self.fits(value.numel()):
                tensor = value.detach().to("cpu")
                return tensor.clone() if tensor.layout == torch.strided else tensor.to_dense()
            if issubclass(kind, numpy.ndarray):
                numbers = self.of(torch.from_numpy(numpy.array(value)))
                kind_in_words = tr("a NumPy array of shape {shape}", shape=value.shape)
                return Foreign(kind_in_words, numbers if type(numbers) is Tensor else None)
            if issubclass(kind, dict):
                return dict(self.of([*dict.items(value)], depth))
            for plain in (list, tuple, set, frozenset):
                if issubclass(kind, plain) and depth < DEEPEST and self.fits(PART * plain.__len__(value)):
                    return plain(self.of(part, depth + 1) for part in plain.__iter__(value))
            if kind is range and self.fits(PART * len(value)):
                return value
        except BaseException:  # an object of the learner's own making can raise whatever it likes
            pass
        return Foreign(kind_of(value))


def in_one(error: Sequence[str]) -> str:
    """Return an error's type and message as one part of a sentence, without a full stop."""
    return ": ".join(filter(None, error)).rstrip(".")


def error_in_words(error: BaseException) -> tuple[str, str]:
    """Return an exception's type name and the first line of its message, with a suggestion for a misspelt name."""
    try:
        lines = str(error).strip().splitlines()
        meant = name_meant(error)
    except BaseException:  # an error of the learner's own making may have no message that can be read
        lines, meant = [], ""
    return type(error).__name__, trimmed(lines[0], 160) + meant if lines else ""


def name_meant(error: BaseException) -> str:
    """Suggest a name for the undefined one in a NameError or AttributeError, or a missing import; else return ""."""
    name = getattr(error, "name", None)
    if not isinstance(error, NameError | AttributeError) or not name or not error.__traceback__:
        return ""
    if isinstance(error, AttributeError):
        known = {*dir(error.obj)}
    else:
        frame = [*traceback.walk_tb(error.__traceback__)][-1][0]
        known = {*frame.f_locals, *frame.f_globals, *frame.f_builtins}
        if name in MODULES:
            return tr(" (first write: import {module})", module=MODULES[name])
    near = difflib.get_close_matches(name, {other for other in known if not other.startswith("_")}, 1, 0.7)
    return tr(" (did you mean '{name}'?)", name=near[0]) if near else ""


def line_of(error: BaseException) -> str:
    """Return the last line of a learner's own code in the traceback of an error; "" if there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame.line for frame in frames if frame.line and not any(part in frame.filename for part in NOT_OWN)]
    return own[-1] if own else ""


def prints(function: Callable) -> bool:
    """Return whether a function's own code calls ``print``."""
    with contextlib.suppress(BaseException):
        return "print" in inspect.unwrap(function).__code__.co_names
    return False


def same(before: Any, after: Any) -> bool:
    """Return whether an argument is unchanged after a call, compared part by part in lists, tuples and dictionaries.

    Tensors, numbers and texts are read; of any other object only the kind counts.
    """
    try:
        if isinstance(before, Tensor):
            return before.shape == after.shape and bool(((before == after) | (before.isnan() & after.isnan())).all())
        if isinstance(before, dict):
            return isinstance(after, dict) and same([*before.items()], [*after.items()])
        if isinstance(before, list | tuple):
            return isinstance(after, list | tuple) and len(before) == len(after) and all(map(same, before, after))
        plain = isinstance(before, Real | str)
        return before is after or (type(before) is type(after) and (not plain or before == after))
    except BaseException:  # what the learner's own code has put there can no longer be compared
        return False
