"""A test call of a layer, as the tuple of arguments of ``formula``: what is changed in it, and what programs give."""

import functools
import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from mha_course.checking.comparing import CLOSE
from mha_course.museum.wrong_attention import attention


def formula(queries, keys, values, allowed, W_q, W_k, W_v, W_o, num_heads, given, attention=attention):
    """Compute multi-head attention with these arguments by ``attention``, the right function or one with a mistake."""
    given = dict(given)
    after = given.pop("after", None)  # what a variant does with the output
    output = attention(queries, keys, values, allowed, W_q, W_k, W_v, W_o, num_heads, **given)
    return after(output) if after else output


def changed(trial: tuple, changes: Iterable[Callable[[tuple], tuple]]) -> tuple:
    """Return a test call with these changes made one after the other."""
    return functools.reduce(lambda before, change: change(before), changes, trial)


def within(before: float, behind: float, trial: tuple) -> tuple:
    """Return a test call in which a query sees so many keys before and behind its own; the last query's is the last."""
    queries, keys, values, allowed, *others = trial
    steps = torch.arange(keys.shape[1] - queries.shape[1], keys.shape[1])[:, None] - torch.arange(keys.shape[1])
    return queries, keys, values, allowed & (steps <= before) & (steps >= -behind), *others


causal = functools.partial(within, math.inf, 0)  # later keys are masked for each query


def transposed(trial: tuple) -> tuple:
    """Return a test call with each weight matrix transposed."""
    return *trial[:4], *(W.T for W in trial[4:8]), *trial[8:]


def with_given(trial: tuple, **more: Any) -> tuple:
    """Return a test call with other named arguments of ``attention``, or another ``after``."""
    return *trial[:9], {**trial[9], **more}


def weights_of(trial: tuple) -> Tensor:
    """Return the right attention weights of a test call, (batch, heads, queries, keys)."""
    return formula(*with_given(trial, after=None, only_weights=True))


def before_output(output: Tensor, trial: tuple) -> Tensor:
    """Return the heads' outputs of which ``W_o`` makes ``output``, (batch, q, d) -> (batch, heads, q, head size)."""
    W_o, num_heads, given = trial[7:]
    heads = (output.double() - given["b_o"]) @ torch.linalg.pinv(W_o.double()).T
    return heads.unflatten(-1, (num_heads, -1)).transpose(1, 2)


def is_stable(trial: tuple) -> bool:
    """Return whether the formula's output does not depend on last bits of its inputs, as it can with large scores.

    Where it does, a right layer that adds up in another order, or on another processor, gives another output.
    """
    generator = torch.Generator().manual_seed(0)

    def wide(X: Any, error: float) -> Any:
        if not isinstance(X, Tensor) or not X.is_floating_point():
            return X
        return X.double() * (1 + error * (2 * torch.rand(X.shape, generator=generator) - 1))

    def output(error: float) -> Tensor:
        given = {name: wide(X, error) for name, X in trial[-1].items()}
        return formula(*[*(wide(X, error) for X in trial[:-1]), given])

    return torch.allclose(output(1e-6), output(0.0), rtol=CLOSE["rtol"] / 2, atol=CLOSE["atol"] / 2, equal_nan=True)


def output_of(program: Callable, trial: tuple) -> Tensor | None:
    """Return what a program of this library gives; None if it raises: a mistake does not work with every call."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return program(*trial)
        except Exception:
            return None


def close(got: Tensor | None, output: Tensor | None, allowed: Tensor | None = None) -> bool:
    """Return whether a program gave a layer's output, up to digits that are lost in sums. Of a query that has no key in
    ``allowed`` any output will do.
    """
    if got is None or output is None or output.shape != got.shape:
        return False
    if allowed is not None and not (seen := allowed.any(-1)[:, 0, :, None]).all():
        got, output = got.masked_fill(~seen, 0), output.masked_fill(~seen, 0)
    size = got.detach().nan_to_num(0, 0, 0).abs().max().clamp(min=1).item()
    return torch.allclose(output.double(), got.double(), CLOSE["rtol"], CLOSE["atol"] * size, equal_nan=True)


class Hook:
    """Change the examples of several test calls, each by a function of its own, or not where there is none; the same
    again is remembered, since most mistakes leave queries, keys and values as they are.
    """

    def __init__(self, functions: list[Callable | None]) -> None:
        self.functions = functions
        self.seen: Sequence[Tensor] = ()
        self.found: list[Tensor] = []

    def __call__(self, *X: Tensor) -> Any:
        if not self.seen or not all(map(torch.equal, self.seen, X)):
            parts = zip(*(x.chunk(len(self.functions)) for x in X), strict=True)
            found = [part if of is None else of(*part) for of, part in zip(self.functions, parts, strict=True)]
            found = [[part] if isinstance(part, Tensor) else part for part in found]
            self.seen, self.found = X, [torch.cat(x) for x in zip(*found, strict=True)]
        return self.found if len(X) > 1 else self.found[0]


def together(trials: list[tuple]) -> tuple:
    """Return test calls of one layer as one, whose examples are those of all: a program is called once for all."""
    X = [torch.cat(part) for part in list(zip(*trials, strict=True))[:3]]
    shape = len(trials[0][0]), 1, X[0].shape[1], X[1].shape[1]
    hooks = {name: Hook([trial[9].get(name) for trial in trials]) for name in ("turn", "bias", "after")}
    allowed = torch.cat([trial[3].expand(shape) for trial in trials])
    return (*X, allowed, *trials[0][4:9], trials[0][9] | hooks)
