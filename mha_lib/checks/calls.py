"""Call a learner's function safely: whatever it does, the check goes on and says what happened."""

import copy
import linecache
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from mha_lib.checks.verdict import MistakeError, NotYetError, describe_error

SECONDS = 5.0
NO_LIMIT = "there is no time limit on this system: interrupt the kernel if this check does not end"


class TooLongError(BaseException):
    """Time is up. Not an ``Exception``, so that a learner's ``except Exception`` does not swallow it."""


def call(function: Callable, *arguments, seconds: float = SECONDS) -> Any:
    """What ``function`` returns for copies of the arguments.

    Raises:
        NotYetError: it returns None or an ellipsis, as an unfilled stub does.
        MistakeError: it is no function, raises, takes too long or changes its arguments in place.
    """
    if function is None or function is ...:
        raise NotYetError("write the function first, then run this cell again.")
    if not callable(function):
        raise MistakeError(f"give the function itself, without calling it; this is {kind_of(function)}.")
    given = copy.deepcopy(arguments)
    try:
        with time_limit(seconds):
            result = function(*given)
    except TooLongError:
        raise MistakeError(f"your code ran for more than {seconds:g} seconds{sizes_of(arguments)}.") from None
    except (Exception, SystemExit) as error:
        if isinstance(error, NotImplementedError):
            raise NotYetError("write the function first, then run this cell again.") from None
        where = where_raised(error)
        raise MistakeError(f"your code raises {describe_error(error)}{where}{sizes_of(arguments)}.") from None
    for number, (before, after) in enumerate(zip(arguments, given, strict=True), start=1):
        if not same(before, after):
            raise MistakeError(f"your code changes its argument number {number} in place: work on a new tensor.")
    if result is None or result is ...:
        raise NotYetError("the function returns nothing so far.")
    return result


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise ``TooLongError`` after some seconds, where the platform and the thread allow it."""
    if not has_time_limit():
        yield
        return

    def stop(signum, frame):
        raise TooLongError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def has_time_limit() -> bool:
    """Whether a call can be cut short here: signals reach the main thread only, and not on Windows."""
    return hasattr(signal, "SIGALRM") and threading.current_thread() is threading.main_thread()


def where_raised(error: BaseException) -> str:
    """The last line of the learner's own code that the error passed through; nothing if its source is not known."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
    own = [frame for frame in frames if is_own(frame.filename)]
    line = own[-1].line or linecache.getline(own[-1].filename, own[-1].lineno) if own else ""
    return f" at “{line.strip()}”" if line else ""


def is_own(filename: str) -> bool:
    """Whether a file is the learner's: a notebook's cell, or a file outside of installed packages and this library."""
    return not any(part in filename for part in ("site-packages", "dist-packages", "mha_lib", "/lib/python"))


def tensor_from(value: Any, shape: tuple[int, ...]) -> Tensor:
    """The value, if it is a tensor of this shape with finite floating-point numbers.

    Raises:
        MistakeError: it is not.
    """
    if not isinstance(value, Tensor):
        raise MistakeError(f"a tensor of shape {tuple(shape)} is needed, your function returns {kind_of(value)}.")
    if tuple(value.shape) != tuple(shape):
        raise MistakeError(f"the shape must be {tuple(shape)}, yours is {tuple(value.shape)}.")
    if not value.is_floating_point():
        raise MistakeError(f"the result must be floating-point numbers, yours are {value.dtype}.")
    if value.isnan().any():
        place = tuple(value.isnan().nonzero()[0].tolist())
        raise MistakeError(f"your result holds NaN, first at {list(place)}.")
    return value.detach()


def kind_of(value: Any) -> str:
    """A value's type in words: "a list", "a tensor of shape (2, 3)"."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def sizes_of(arguments: tuple) -> str:
    """The shapes of tensors among the arguments, to show at which input something happens."""
    shapes = [str(tuple(value.shape)) for value in arguments if isinstance(value, Tensor)]
    return f" (with inputs of shape {', '.join(shapes)})" if shapes else ""


def same(before: Any, after: Any) -> bool:
    """Whether an argument is what it was; what is not a tensor is not looked into."""
    if not isinstance(before, Tensor):
        return True
    return before.shape == after.shape and torch.equal(torch.nan_to_num(before), torch.nan_to_num(after))
