"""Measures by their names before ``heads.of(model)`` had them, so that notebooks saved before still run.

This file goes with the next release.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from mha_lib.heads import ranks


def leave_one_out(model, batch, task, ablation="zero", score="accuracy", kept=None) -> Tensor:
    return _measured("leave_one_out", model, batch, task, score=score, kept=kept, by=ablation)


def gate_gradient(model, batch, task, normalise=False, kept=None, signed=False) -> Tensor:
    table = _measured("gate_gradient", model, batch, task, kept=kept, signed=signed)
    return torch.nn.functional.normalize(table, dim=1) if normalise else table


def integrated_gradients(model, batch, task, steps=20, kept=None, signed=True) -> Tensor:
    return _measured("integrated_gradients", model, batch, task, kept=kept, signed=signed, steps=steps)


def monte_carlo_shapley(model, batch, task, num_orders=50, score="accuracy", seed=0) -> Tensor:
    return _measured("shapley", model, batch, task, score=score, num_orders=num_orders, seed=seed)


def confidence(model, batch, task, leave_out: Sequence[int] = ()) -> Tensor:
    return _measured("confidence", model, batch, task, ignore=leave_out)


def negative_entropy(model, batch, task) -> Tensor:
    return _measured("entropy", model, batch, task)


def output_norm(model, batch, task) -> Tensor:
    return _measured("output_norm", model, batch, task)


def completeness_residual(attributions, model, batch, task) -> float:
    from mha_course.heads import evaluate, head_grid

    shape = head_grid(model)
    without, whole = evaluate(model, batch, task, torch.stack([torch.zeros(shape), torch.ones(shape)])).loss
    return (without - whole - attributions.sum()).item()


def least_heads(model, importance, number, seed=0) -> dict[str, list[int]]:
    if not 0 <= number <= importance.numel():
        raise ValueError(f"number must be between 0 and {importance.numel()}, got {number}")
    gone = ranks(importance, seed) > importance.numel() - number
    return {name: row.nonzero().flatten().tolist() for name, row in zip(model.blocks, gone, strict=True)}


def head_outputs(model, batch) -> list[Tensor]:
    return [*_found("outputs", model, batch).values()]


OLD = (
    leave_one_out, gate_gradient, integrated_gradients, monte_carlo_shapley, confidence, negative_entropy, output_norm,
    completeness_residual, least_heads, head_outputs,
)  # fmt: skip


def behind(module: str) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for a module of this room that finds the old names."""
    old = {function.__name__: function for function in OLD}

    def __getattr__(name: str) -> Any:
        if name not in old:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return old[name]

    return __getattr__


def _measured(name: str, model, batch, task, **options: Any) -> Tensor:
    from mha_course.heads.measures import measured  # which finds the old names here

    _warn(name)
    return measured(model, batch, task, name, **options)


def _found(name: str, model, batch) -> dict[str, Tensor]:
    from mha_course.heads.ablation import found_in

    _warn(name)
    return getattr(found_in(model, batch), name)()


def _warn(name: str) -> None:
    told = f"write `heads.of(model, batch.inputs).{name}`: it is a method now. The old name goes with the next release."
    warnings.warn(told, FutureWarning, stacklevel=4)
