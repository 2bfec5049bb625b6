"""Call a learner's function safely: whatever it does, the check goes on and says what happened.

The calls run in a forked process, which is ended from outside if it takes too long, so that no code of the learner's
can hold the check up. What they return comes back as plain data, what they print is passed on.
"""

import copy
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
from pathlib import Path
from types import EllipsisType
from typing import Any

import torch
from torch import Tensor

from mha_lib.checks.inputs import in_words, name_of_argument
from mha_lib.checks.verdict import MistakeError, NotYetError, can_fork, describe_error, trimmed

SECONDS = 5.0
LONGEST_LINE = 60  # characters of a learner's line that a message quotes
NOT_OWN = ("site-packages", "dist-packages", sysconfig.get_path("stdlib"), str(Path(__file__).parents[1]))


@dataclass(frozen=True)
class Foreign:
    """Stands for an object that is no plain data, and says what kind of object it is."""

    kind: str


def call(function: Callable, *arguments) -> Any:
    """What ``function`` returns for copies of the arguments, see ``call_all``."""
    return call_all(function, [arguments])[0]


def call_all(function: Callable, trials: Sequence[tuple], *, seconds: float | None = None) -> list[Any]:
    """What ``function`` returns for copies of the arguments of each trial, as plain data.

    Args:
        seconds: how long each call may take, ``SECONDS`` by default.

    Raises:
        NotYetError: it returns None or an ellipsis, as an unfilled stub does.
        MistakeError: it is no function, raises, takes too long or changes its arguments in place.
    """
    if not callable(function):
        raise MistakeError(f"give the function itself, without calling it; this is {kind_of(function)}.")
    if can_fork():
        outcomes = in_a_fork(function, trials, SECONDS if seconds is None else seconds)
    else:
        outcomes = [attempt(function, trial) for trial in trials]
    for outcome in outcomes:
        if isinstance(outcome, NotYetError | MistakeError):
            raise outcome
    return outcomes


def in_a_fork(function: Callable, trials: Sequence[tuple], seconds: float) -> list[Any]:
    """What ``attempt`` says of each trial; the list ends with the first call that does not come back."""
    receiving, sending = multiprocessing.Pipe(duplex=False)
    with warnings.catch_warnings():  # Python 3.12 and newer warn of other threads; this fork needs none of them
        warnings.simplefilter("ignore", DeprecationWarning)
        process = os.fork()
    if process == 0:
        answer_trials(sending, function, trials)
    sending.close()
    try:
        return receive(receiving, function, trials, seconds)
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        receiving.close()


def receive(receiving: Connection, function: Callable, trials: Sequence[tuple], seconds: float) -> list[Any]:
    """Collect what the forked process sends, and print what it prints."""
    outcomes = []
    deadline = time.monotonic() + seconds
    while len(outcomes) < len(trials):
        where = at(function, trials[len(outcomes)])
        if not receiving.poll(max(0, deadline - time.monotonic())):
            return [*outcomes, MistakeError(f"your code ran for more than {seconds:g} seconds{where}.")]
        try:
            kind, content = pickle.loads(receiving.recv_bytes())
        except EOFError:
            return [*outcomes, MistakeError(f"your code ended the process that it ran in{where}.")]
        if kind == "outcome":
            outcomes.append(content)
            deadline = time.monotonic() + seconds
        else:
            getattr(sys, kind).write(content)
    return outcomes


def answer_trials(sending: Connection, function: Callable, trials: Sequence[tuple]) -> None:
    """The forked process: send what ``attempt`` says of each trial, then end without a trace."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever interrupts the kernel means the check, which ends this
        gc.freeze()  # nothing that the kernel owns is to be finalised here, too
        torch.set_num_threads(1)  # the threads of the kernel are not here
        sys.stdout, sys.stderr = Passed(sending, "stdout"), Passed(sending, "stderr")
        for trial in trials:
            sending.send_bytes(pickle.dumps(("outcome", attempt(function, trial))))
    finally:
        os._exit(0)


class Passed:
    """A stream whose text is printed by the process at the other end of the pipe."""

    def __init__(self, sending: Connection, name: str) -> None:
        self.sending, self.name = sending, name

    def write(self, text: str) -> int:
        self.sending.send_bytes(pickle.dumps((self.name, str(text))))
        return len(text)

    def flush(self) -> None:
        """Nothing is held back."""


def attempt(function: Callable, arguments: tuple) -> Any:
    """What a function returns for copies of the arguments, as plain data; or the reason why nothing is returned."""
    given = copy.deepcopy(arguments)
    try:
        result = function(*given)
    except (MistakeError, NotYetError) as reason:
        return reason
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return what_is_raised(error, function, arguments)
    for number, (before, after) in enumerate(zip(arguments, given, strict=True)):
        if not same(before, after):
            name = name_of_argument(function, number, len(arguments))
            return MistakeError(
                f"your code changes {name} in place, which spoils the caller's tensor even where the result is right: "
                "work on a new tensor."
            )
    if result is None or result is ...:
        return NotYetError(f"the function returns nothing so far{' (printing is not returning)' * prints(function)}.")
    return plain_data(result)


def what_is_raised(error: BaseException, function: Callable, arguments: tuple) -> NotYetError | MistakeError:
    """An error of the learner's code, in words."""
    line = line_of(error)
    if is_not_written(error, line):
        return NotYetError("write the function first, then run both cells.")
    place = f" at “{trimmed(line, LONGEST_LINE)}”" if line else ""
    return MistakeError(f"your code raises {describe_error(error)}{place}{at(function, arguments)}.")


def plain_data(value: Any) -> Any:
    """A value of tensors, numbers, texts, lists, tuples and dictionaries as it is, all else by its kind."""
    try:
        if issubclass(type(value), Tensor):
            tensor = value.detach().to("cpu")
            return tensor.clone() if tensor.layout == torch.strided else tensor.to_dense()
        if type(value) in (list, tuple):
            return type(value)(map(plain_data, value))
        if type(value) is dict:
            return {plain_data(key): plain_data(content) for key, content in value.items()}
        if type(value) in (str, bool, int, float, complex, type(None), EllipsisType):
            return value
        if issubclass(type(value), Real):
            return int(value) if issubclass(type(value), Integral) else float(value)
    except BaseException:  # an object of the learner's own making can raise whatever it likes
        pass
    return Foreign(named(type(value).__name__))


def line_of(error: BaseException) -> str:
    """The last line of the learner's own code that the error passed through; "" if it is not known."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.line for frame in frames if frame.line and is_own(frame.filename)]
    return lines[-1] if lines else ""


def is_own(filename: str) -> bool:
    """Whether a file is the learner's: a notebook's cell, or a file outside of installed packages and this library."""
    return not any(part in filename for part in NOT_OWN)


def is_not_written(error: BaseException, line: str) -> bool:
    """Whether an error says that the function has yet to be written; torch raises the same kind for other reasons."""
    return isinstance(error, NotImplementedError) and ("NotImplementedError" in line or not str(error))


def tensor_from(value: Any, shape: tuple[int, ...], floating: bool = True) -> Tensor:
    """The value, if it is a tensor of this shape with finite numbers, which are floating-point if so asked.

    Raises:
        MistakeError: it is not.
    """
    if not isinstance(value, Tensor):
        raise MistakeError(f"a tensor of shape {tuple(shape)} is needed, your function returns {kind_of(value)}.")
    if tuple(value.shape) != tuple(shape):
        raise MistakeError(f"the shape must be {tuple(shape)}, yours is {tuple(value.shape)}.")
    if value.is_complex() or (floating and not value.is_floating_point()):
        raise MistakeError(
            f"the result must be {'floating-point' if floating else 'real'} numbers, yours are {value.dtype}."
        )
    if not value.isfinite().all():
        place = value.isfinite().logical_not().nonzero()[0].tolist()
        number = "NaN" if value[tuple(place)].isnan() else f"{value[tuple(place)].item():g}"
        raise MistakeError(f"your result holds {number}{f', first at {place}' if place else ''}.")
    return value.detach()


def kind_of(value: Any) -> str:
    """A value's type in words: "a list", "a tensor of shape (2, 3)"."""
    if type(value) is Foreign:
        return value.kind
    if issubclass(type(value), Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return named(type(value).__name__)


def named(kind: str) -> str:
    """A kind of object with its article."""
    return f"{'an' if kind[:1].lower() in [*'aeiou'] else 'a'} {kind}"


def at(function: Callable, arguments: tuple) -> str:
    """In brackets, at which arguments something happens."""
    return f" ({words})" if (words := in_words(function, arguments)) else ""


def prints(function: Callable) -> bool:
    """Whether a function's own code calls ``print``."""
    return "print" in getattr(getattr(inspect.unwrap(function), "__code__", None), "co_names", ())


def same(before: Any, after: Any) -> bool:
    """Whether an argument, or each part of a list, a tuple or a dictionary, is what it was.

    Only tensors are looked at.
    """
    if isinstance(before, Tensor):
        return before.shape == after.shape and bool(((before == after) | (before.isnan() & after.isnan())).all())
    if isinstance(before, dict):
        return before.keys() == after.keys() and all(same(before[key], after[key]) for key in before)
    if isinstance(before, list | tuple):
        return len(before) == len(after) and all(map(same, before, after))
    return True
