"""Call a learner's function safely: whatever it does, the check goes on and says what happened."""

import copy
import inspect
import signal
import sysconfig
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from mha_lib.checks.inputs import in_words, name_of_argument
from mha_lib.checks.verdict import MistakeError, NotYetError, describe_error, trimmed

SECONDS = 5.0
LONGEST_LINE = 60  # characters of a learner's line that a message quotes
NOT_OWN = ("site-packages", "dist-packages", sysconfig.get_path("stdlib"), str(Path(__file__).parents[1]))
NO_LIMIT = "there is no time limit on this system: interrupt the kernel if this check does not end"


class TooLongError(BaseException):
    """Time is up. Not an ``Exception``, so that a learner's ``except Exception`` does not swallow it."""


def call(function: Callable, *arguments, seconds: float = SECONDS) -> Any:
    """What ``function`` returns for copies of the arguments.

    Raises:
        NotYetError: it returns None or an ellipsis, as an unfilled stub does.
        MistakeError: it is no function, raises, takes too long or changes its arguments in place.
    """
    if not callable(function):
        raise MistakeError(f"give the function itself, without calling it; this is {kind_of(function)}.")
    given = copy.deepcopy(arguments)
    try:
        with time_limit(seconds):
            result = function(*given)
    except KeyboardInterrupt:
        raise
    except TooLongError:
        raise MistakeError(f"your code ran for more than {seconds:g} seconds{at(function, arguments)}.") from None
    except BaseException as error:
        line = line_of(error)
        if is_not_written(error, line):
            raise NotYetError("write the function first, then run both cells.") from None
        place = f" at “{trimmed(line, LONGEST_LINE)}”" if line else ""
        raise MistakeError(f"your code raises {describe_error(error)}{place}{at(function, arguments)}.") from None
    for number, (before, after) in enumerate(zip(arguments, given, strict=True)):
        if not same(before, after):
            name = name_of_argument(function, number, len(arguments))
            raise MistakeError(
                f"your code changes {name} in place, which spoils the caller's tensor even where the result is right: "
                "work on a new tensor."
            )
    if result is None or result is ...:
        raise NotYetError(f"the function returns nothing so far{' (printing is not returning)' * prints(function)}.")
    return result


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise ``TooLongError`` after some seconds, where the platform and the thread allow it."""
    if not has_time_limit():
        yield
        return

    late = False

    def stop(signum, frame):
        nonlocal late
        late = True
        raise TooLongError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    if late:  # a bare "except:" of the learner's has caught it
        raise TooLongError


def has_time_limit() -> bool:
    """Whether a call can be cut short here: signals reach the main thread only, and not on Windows."""
    return hasattr(signal, "SIGALRM") and threading.current_thread() is threading.main_thread()


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
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in [*'aeiou'] else 'a'} {name}"


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
