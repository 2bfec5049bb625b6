"""Arguments of a learner's function in words, by the names that the learner gave them."""

import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor

FEW = 12  # whole numbers in a tensor that a message writes out
SHORT = 40  # characters of any other argument that a message writes out
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth")
POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def in_words(function: Callable, arguments: tuple) -> str:
    """Which call it is: "for (6, 3, 5, False)", "with hours of shape (5,) and sigma = 2.0".

    What would be long is left out; "" if that is all.
    """
    names = names_of(function, len(arguments))
    shown = [(name, value) for name, value in zip(names, arguments, strict=True) if is_shown(value)]
    if not shown:
        return ""
    if not any(isinstance(value, Tensor) for _, value in shown):
        written = ", ".join(repr(value) for _, value in shown)
        return f"for ({written})" if len(shown) > 1 else f"for {written}"
    *most, last = [argument_in_words(name, value) for name, value in shown]
    return f"with {', '.join(most)} and {last}" if most else f"with {last}"


def name_of_argument(function: Callable, number: int, count: int) -> str:
    """One of ``count`` arguments, counted from 0: "`scores`", or "its first argument" where it has no name."""
    return f"`{name}`" if (name := names_of(function, count)[number]) else f"its {ORDINALS[number]} argument"


def names_of(function: Callable, count: int) -> list[str]:
    """The names that a function gives to its first ``count`` arguments; "" for those without."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except Exception:  # some built-in functions have no signature, and an object can raise whatever it likes
        parameters = ()
    names = [parameter.name for parameter in parameters if parameter.kind in POSITIONAL]
    return (names + [""] * count)[:count]


def is_shown(value: Any) -> bool:
    """Whether an argument has room in a message."""
    return isinstance(value, Tensor) or len(repr(value)) <= SHORT


def argument_in_words(name: str, value: Any) -> str:
    """An argument with its name: a few whole numbers and what is no tensor as they are, else the shape."""
    if not isinstance(value, Tensor):
        return f"{name} = {value!r}" if name else repr(value)
    if not value.is_floating_point() and value.numel() <= FEW:
        return f"{name or 'the numbers'} {value.tolist()}"
    return f"{name or 'a tensor'} of shape {tuple(value.shape)}"
