"""Layers of any class in a model's blocks: how they are called, gated and seen.

A layer of a learner's own needs a ``forward(queries, keys, values, valid_lens=None)`` that returns the output. Its
heads are switched off by its own ``head_mask``, or, if ``forward`` takes none, on their way to ``W_o``. A TypeError
names what a layer lacks for what is asked of it.
"""

import copy
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor, nn

from mha_lib.attention import MultiHeadAttention

MAPS = ("W_q", "W_k", "W_v", "W_o")
Model = TypeVar("Model", bound=nn.Module)


def attend(
    layer: nn.Module, queries: Tensor, context: Tensor, valid_lens: Tensor | None = None, gates: Tensor | None = None
) -> Tensor:
    """Return the output of an attention layer for ``queries``, with ``context`` as its keys and values.
    Each head's output is multiplied by its gate.

    Args:
        gates: (num_heads,) or (batch, num_heads). A layer of a learner's own gets the gates of each example in a call
            of its own: it needs to know only (num_heads,).

    Raises:
        TypeError: ``forward`` does not take or return what is needed; the message says what.
    """
    if isinstance(layer, MultiHeadAttention):
        return layer(queries, context, context, valid_lens, gates)
    parameters = inspect.signature(layer.forward).parameters
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters.values()):
        return layer(queries, context, context, valid_lens, gates)
    _check_forward(layer, list(parameters), valid_lens is not None)
    given = (queries, context, context) if valid_lens is None else (queries, context, context, valid_lens)
    if gates is None or not gates.shape[-1]:
        return _output_of(layer, given)
    if "head_mask" not in parameters:
        with heads_before_output(layer, lambda heads: heads * gates[..., None, None].to(heads.dtype)):
            return _output_of(layer, given)
    if gates.dim() == 1:
        return _output_of(layer, given, head_mask=gates)
    examples = zip(gates, *(X.split(1) for X in given), strict=True)
    return torch.cat([_output_of(layer, example, head_mask=own) for own, *example in examples])


def _check_forward(layer: nn.Module, names: list[str], with_lengths: bool) -> None:
    """Refuse a ``forward`` that takes no three sequences, or no lengths where some are given."""
    name = type(layer).__name__
    if len([given for given in names if given != "head_mask"]) < 3:
        raise TypeError(f"{name}.forward must take queries, keys and values, got ({', '.join(names)})")
    if with_lengths and (len(names) < 4 or "mask" in names[3]):
        raise TypeError(
            f"{name}.forward must take valid_lens, the number of valid keys, as its fourth argument, "
            f"got ({', '.join(names)})"
        )


def _output_of(layer: nn.Module, given, **gates: Tensor) -> Tensor:
    output = layer(*given, **gates)
    if not isinstance(output, Tensor):
        raise TypeError(
            f"{type(layer).__name__}.forward must return the output alone, (batch, num_queries, num_hiddens), "
            f"got {type(output).__name__}; keep the weights in self.attention_weights"
        )
    return output


def num_heads_of(layer: nn.Module) -> int:
    """Return a layer's number of attention heads, which is its attribute ``num_heads``.

    Raises:
        TypeError: it does not say so.
    """
    number = getattr(layer, "num_heads", None)
    if not isinstance(number, int):
        raise TypeError(f"{type(layer).__name__} must have num_heads: store it in __init__, self.num_heads = num_heads")
    return number


def weights_of(layer: nn.Module) -> Tensor:
    """Return the attention weights of the layer's last call, detached: (batch, num_heads, num_queries, num_keys).

    Raises:
        TypeError: the layer keeps none.
    """
    weights = getattr(layer, "attention_weights", None)
    if not isinstance(weights, Tensor):
        raise TypeError(
            f"{type(layer).__name__} must keep its weights in forward: self.attention_weights = …, of shape "
            "(batch, num_heads, num_queries, num_keys)"
        )
    return (weights.unflatten(0, (-1, num_heads_of(layer))) if weights.dim() == 3 else weights).detach()


def linear_maps(layer: nn.Module, names: tuple[str, ...]) -> list[nn.Linear]:
    """Return the attributes of a layer that have these names, such as ``W_o``, each of which must be an ``nn.Linear``.

    Raises:
        TypeError: one is not there, or is no ``nn.Linear``.
    """
    found = [getattr(layer, name, None) for name in names]
    maps = [linear for linear in found if isinstance(linear, nn.Linear)]
    if len(maps) < len(names):
        lacking = [name for name, linear in zip(names, found, strict=True) if not isinstance(linear, nn.Linear)]
        there = [name for name, _ in layer.named_children()]
        raise TypeError(
            f"{type(layer).__name__} must have {', '.join(names)} as nn.Linear; "
            f"missing: {', '.join(lacking)}; there are: {', '.join(there) or 'no layers'}"
        )
    return maps


@contextmanager
def heads_before_output(layer: nn.Module, observer: Callable[[Tensor], Tensor | None]) -> Iterator[None]:
    """Call ``observer`` with the head outputs that enter ``W_o`` in each forward pass inside the context.
    They have the shape (batch, num_heads, n, head_size).

    What the observer returns takes their place; if it returns None, they stay.

    Raises:
        TypeError: the layer has no ``W_o`` or no ``num_heads``, or does not call ``W_o`` with all heads side by side.
    """
    (W_o,) = linear_maps(layer, ("W_o",))
    name, num_heads, calls = type(layer).__name__, num_heads_of(layer), []

    def before(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor] | None:
        calls.append(W_o)
        if inputs[0].dim() != 3:
            raise TypeError(
                f"{name} must call W_o with the heads side by side, (batch, num_queries, num_heads · head_size), "
                f"got {tuple(inputs[0].shape)}"
            )
        heads = inputs[0].unflatten(-1, (num_heads, -1)).transpose(1, 2)  # (b, n, h · d) -> (b, h, n, d)
        changed = observer(heads)
        return None if changed is None else (changed.transpose(1, 2).flatten(start_dim=2),)

    with W_o.register_forward_pre_hook(before):
        yield
    if not calls:
        raise TypeError(
            f"{name} must call W_o as a layer, self.W_o(heads), for its heads to be seen on their way there"
        )


def copied(model: Model) -> Model:
    """Return a deep copy of a model; attention weights stored in its layers are detached from the graph."""
    kept = [value for module in model.modules() for value in vars(module).values() if isinstance(value, Tensor)]
    return copy.deepcopy(model, {id(tensor): tensor.detach() for tensor in kept if not tensor.is_leaf})
