"""Calls, kinds of objects and numbers in words. Nothing here runs code of the learner's."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from torch import Tensor

from mha_course.language import Said, english, tr

FEW = 12  # whole numbers in a tensor that a message writes out
SHORT = 40  # characters of any other argument that a message writes out
MOST = 2  # arguments of a call that a message names


@dataclass(frozen=True)
class Foreign:
    """Describe by its type a returned value that cannot be copied as plain data, or that is too large to copy.

    Attributes:
        kind: "a NumPy array of shape (2, 3)".
        numbers: an array's numbers; None for anything else.
    """

    kind: str
    numbers: Tensor | None = None


def call_in_words(function: Callable, arguments: tuple) -> str:
    """Describe a call by at most two of its arguments, such as "with sigma = 2.0 and hours of shape (5,)".

    Plain values come first, then small tensors, then shapes; what would be long is left out.
    """
    names = names_of(function, len(arguments))
    pairs = sorted(zip(names, arguments, strict=True), key=lambda pair: isinstance(pair[1], Tensor) + is_large(pair[1]))
    shown = filter(None, itertools.starmap(argument_in_words, pairs))
    one, other = [*itertools.islice(shown, MOST), "", ""][:MOST]
    return tr("with {one} and {other}", one=one, other=other) if other else tr("with {one}", one=one) if one else ""


def is_large(value: Any) -> bool:
    """Return whether ``value`` is a float tensor or a large one, of which messages give only the shape."""
    return isinstance(value, Tensor) and (value.is_floating_point() or value.numel() > FEW)


def argument_in_words(name: str, value: Any) -> str:
    """Describe an argument by its name and its value, or by its name and shape if it is a large tensor."""
    if is_large(value):
        shape = tuple(value.shape)
        return tr("{name} of shape {shape}", name=name, shape=shape) if name else kind_of(value)
    if isinstance(value, Tensor):
        return f"{name or tr('the numbers')} {value.tolist()}"
    if type(value) not in (bool, int, float, str, list, tuple):
        return ""
    written = f"{name} = {value!r}" if name else repr(value)
    return written if len(written) <= SHORT else ""


def names_of(function: Callable, count: int) -> list[str]:
    """Return the names of a function's first ``count`` parameters; "" for each one that has none."""
    code = function.__code__ if type(function) is FunctionType else None
    names = list(code.co_varnames[: code.co_argcount]) if code else []
    return (names + [""] * count)[:count]


def kind_of(value: Any) -> str:
    """Describe the type of a value in words, such as "a list of 3" or "a tensor of shape (2, 3)"."""
    if type(value) is Foreign:
        return value.kind
    if value is None:
        return "None"
    if type(value) is Tensor and not (value.is_meta or value.is_nested):
        shape = tuple(value.shape)
        if value.is_complex():
            return tr("a tensor of complex numbers of shape {shape}", shape=shape)
        return tr("a tensor of shape {shape}", shape=shape)
    name = trimmed(type(value).__name__, SHORT)
    kind = tr("an {kind}", kind=name) if name[:1].lower() in [*"aeiou"] else tr("a {kind}", kind=name)
    if type(value) in (list, tuple, dict):
        return tr("{kind} of {count}", kind=kind, count=f"{len(value):,}")
    return kind


def as_sentence(words: str) -> str:
    """Return ``words`` with a capital first letter and a full stop."""
    own = english(words)
    return tr("{sentence}.", sentence=Said(words[0].upper() + words[1:], own[0].upper() + own[1:]))


def trimmed(text: str, length: int) -> str:
    """Return a text shortened to at most ``length`` characters, with an ellipsis at the end if it was cut."""
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


def two_numbers(got: float, right: float) -> tuple[str, str]:
    """Format two different numbers with just enough digits, at least three, that the texts differ."""
    if all(abs(number) < 1e9 and number == int(number) for number in (got, right)):
        return f"{got:.0f}", f"{right:.0f}"
    written = [(f"{got:.{digits}g}", f"{right:.{digits}g}") for digits in range(3, 17)]
    return next((texts for texts in written if texts[0] != texts[1]), written[-1])
