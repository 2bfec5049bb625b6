"""Layers and inputs drawn for tests, the right output by loops, and in words where another output differs from it."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from mha_course.checking.comparing import differences, first_difference
from mha_course.checking.running import MistakeError
from mha_course.checking.wording import kind_of
from mha_course.museum.editable_layer import Layer

BATCH_SIZE, NUM_QUERIES, NUM_KEYS, NUM_HEADS, NUM_HIDDENS = 3, 5, 6, 4, 8

Implementation = Callable[..., Any]  # of (num_hiddens, num_heads, dropout)


def build(implementation: Implementation, dropout: float = 0.0, training: bool = False) -> Layer:
    """Make a layer of the class ``implementation`` with random parameters, in training or eval mode."""
    return with_random_parameters(implementation(NUM_HIDDENS, NUM_HEADS, dropout).train(training), std=0.5)


def with_random_parameters(layer: Any, std: float) -> Any:
    """Fill a layer's parameters with normal random numbers of standard deviation ``std``, and return the layer."""
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(std=std)
    return layer


def random_inputs() -> list[Tensor]:
    """Return random queries, keys and values, each of shape (batch, number, num_hiddens)."""
    return [torch.randn(BATCH_SIZE, number, NUM_HIDDENS) for number in (NUM_QUERIES, NUM_KEYS, NUM_KEYS)]


def with_new_token(X: Tensor, example: int, token: int) -> Tensor:
    """Return a copy of ``X`` in which one token of one example is replaced by random numbers."""
    X = X.clone()
    X[example, token] = torch.randn(X.shape[-1])
    return X


def output_of(layer: Layer, *inputs: Tensor) -> Tensor:
    """Return a layer's output for ``inputs``; raise a MistakeError if its shape or dtype is not the queries'."""
    output, queries = layer(*inputs), inputs[0]
    check_shape("the output", output, tuple(queries.shape))
    if output.dtype != queries.dtype:
        raise MistakeError(f"the output must be of {queries.dtype}, as the queries are, got {output.dtype}")
    return output


def check_shape(name: str, got: Any, shape: tuple[int, ...]) -> None:
    """Raise a MistakeError unless ``got`` is a tensor of this shape; the message calls it ``name``."""
    if not isinstance(got, Tensor) or got.shape != shape:
        raise MistakeError(f"{name} must be a tensor of shape {shape}, got {got if got is None else kind_of(got)}")


def matrices_of(layer: Any) -> Sequence[Tensor]:
    """Return a layer's weight matrices W_q, W_k, W_v, W_o, and w_v if its scores are additive."""
    if hasattr(layer, "matrices"):
        return layer.matrices()
    w_v = [layer.w_v] if hasattr(layer, "w_v") else []
    return [*(W.weight for W in (layer.W_q, layer.W_k, layer.W_v, layer.W_o)), *w_v]


@torch.no_grad()
def by_formula(layer: Any, queries: Tensor, keys: Tensor, values: Tensor, valid_lens: Tensor) -> tuple[Tensor, ...]:
    """Compute the right output and weights from a layer's parameters, one example and one head at a time.

    It takes the layer's parameters, shares no code with it, needs no mask and knows no dropout.

    queries, keys, values (batch, number, num_hiddens), valid_lens (batch,) → output (batch, num_queries, num_hiddens)
    and weights (batch, num_heads, num_queries, num_keys). Source: Vaswani et al. 2017, section 3.2.2; d2l 11.5.1.
    """
    output = torch.zeros_like(queries)
    weights = queries.new_zeros(len(queries), layer.num_heads, queries.shape[1], keys.shape[1])
    *W, W_o = matrices_of(layer)[:4]
    w_v = matrices_of(layer)[4:]  # there only if scores are additive
    W_q, W_k, W_v = (matrix.chunk(layer.num_heads) for matrix in W)
    for b, length in enumerate(valid_lens.tolist()):
        heads = []
        for h in range(layer.num_heads):
            q, k, v = queries[b] @ W_q[h].T, keys[b, :length] @ W_k[h].T, values[b, :length] @ W_v[h].T
            scores = torch.tanh(q[:, None] + k) @ w_v[0][h] if w_v else q @ k.T / math.sqrt(q.shape[-1])
            weights[b, h, :, :length] = torch.softmax(scores, dim=-1)
            heads.append(weights[b, h, :, :length] @ v)
        output[b] = torch.cat(heads, dim=-1) @ W_o.T
    return output, weights


def difference(name: str, got: Any, right: Tensor) -> str | None:
    """Return a sentence on the first entry at which ``got`` differs from ``right``; None if they are equal.
    NaN always differs.
    """
    check_shape(name, got, tuple(right.shape))
    place = first_difference(got, right, equal_nan=False)
    if place is None:
        return None
    axes = ("example", "token", "feature") if right.ndim == 3 else ("example", "head", "query", "key")
    where = ", ".join(f"{axis} {i}" for axis, i in zip(axes, place, strict=True))
    return f"{name} is wrong, first at {where}"


def wrong_changes(before: Tensor, after: Tensor, place: tuple[int, ...]) -> str | None:
    """Describe the first output that wrongly changed, or did not change, between ``before`` and ``after``; else None.
    Outputs at ``place`` must change, and no others; at ``()``, none.
    """
    must_change = torch.zeros(before.shape[:2], dtype=torch.bool)
    if place:
        must_change[place] = True
    changed = differences(before, after, equal_nan=False).any(dim=-1)
    wrong = (changed != must_change).nonzero().tolist()
    if not wrong:
        return None
    b, t = wrong[0]
    return f"{'changes' if changed[b, t] else 'does not change'} output {t} of example {b}"
