"""What a layer's attention weights are made of, read from its output: for layers that no row of a table explains."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mha_course.language import listed, tr
from mha_course.museum.layer_calls import before_output, formula
from mha_course.museum.variants import BY_PAIR, BY_STEP, OF_EACH, SINK, TIMES, UNSCALED, Words, in_words

MULTIPLES = (
    "Its weights are not those of softmax(QKᵀ / √d), and they do not sum to 1. W_v, W_o and the heads are right: "
    "values that are all equal come out as multiples of what they should be."
)
GATE = "This is a gate: each feature of the heads' outputs is multiplied by a number between 0 and 1."


def outputs_of_heads(trial: tuple, output: Tensor) -> Tensor:
    """Return the heads' outputs, (batch, heads, queries, head size), of which ``W_o`` makes a layer's output."""
    W_o, num_heads, given = trial[7:10]
    if after := given.get("after"):
        output = output - after(torch.zeros_like(output))  # a residual
    return before_output(output, W_o, num_heads, given["b_o"])


def of_equal_values(trial: tuple, output: Tensor) -> str:
    """Return what is told by values that are all equal, where they do not come out as the formula has them: as
    multiples, head by head, if weights do not sum to 1; feature by feature, if there is a gate; or "".
    """
    own, right = outputs_of_heads(trial, output), outputs_of_heads(trial, formula(*trial))
    ratios = (own * right).sum(-1, keepdim=True) / right.square().sum(-1, keepdim=True)
    if torch.allclose(own, ratios * right, atol=1e-3, rtol=1e-3):
        return tr(MULTIPLES) if ratios.abs().amax((0, 2, 3)).min() > 1e-3 else ""
    clear = right.abs() > 0.1 * right.abs().max()
    gates = (own / right)[clear][right[clear].argsort()]
    is_activation = bool((gates.diff() > -0.02).all())  # a function of the output itself, such as GELU or SiLU
    return tr(GATE) if gates.min() > -0.02 and gates.max() < 1.02 and gates.std() > 0.15 and not is_activation else ""


def in_parts(calls: list[tuple[tuple, tuple]], output: Tensor) -> str:
    """Return a sentence that says which scores, times which factor and with which bias, the weights of a layer are the
    softmax of; "" if none fits.

    ``calls`` are pairs of the words for scores, and a call changed so that it has these; ``output`` is what all gave.
    """
    if not calls:
        return ""
    heads: list[Tensor] = []
    scores: list[Tensor] = []
    for _, trial in calls:
        given = trial[9]
        formula(*(*trial[:9], {**given, "turn": noting(heads, given.get("turn")), "bias": noting(scores)}))
    weights = outputs_of_heads(calls[0][1], output) @ torch.linalg.pinv(heads[2].double())
    for (words, trial), of_words in zip(calls, scores, strict=True):
        parts = fitted(weights, of_words.double(), trial[3], len(trial[7]) // trial[8])
        if made := listed(map(in_words, (*words, *(parts or ())))) if parts is not None else "":
            return tr("Its weights are those of softmax(QKᵀ / √d), with {words}.", words=made)
    return ""


def noting(found: list[Tensor], change: Callable | None = None) -> Callable:
    """Return a function that changes tensors by ``change``, if there is one, and adds the results to ``found``."""

    def note(*parts: Tensor) -> Any:
        parts = change(*parts) if change else parts
        found.extend(parts)
        return parts if len(parts) > 1 else parts[0]

    return note


def fitted(weights: Tensor, scores: Tensor, allowed: Tensor, head_size: int) -> tuple[Words, ...] | None:
    """Return words for the factor of each head, the bias of each two positions and the sink that make ``weights`` of
    ``scores``, (batch, heads, queries, keys); None if none do.
    """
    seen = allowed.expand_as(weights)
    if not (weights[seen] > 0).all():
        return None

    def centred(X: Tensor) -> Tensor:
        """Take off what is the same for all keys of a query, on which no softmax depends."""
        X = X.masked_fill(~seen, 0)
        return (X - X.sum(-1, keepdim=True) / seen.sum(-1, keepdim=True)).masked_fill(~seen, 0)

    logs, own = centred(weights.clamp(min=1e-30).log()), centred(scores)
    of_logs, of_own = logs - logs.mean(0), own - own.mean(0)  # without what is the same in all examples, such as a bias
    factor = (of_logs * of_own).sum((0, 2, 3), keepdim=True) / of_own.square().sum((0, 2, 3), keepdim=True)
    if (of_logs - factor * of_own).square().sum() > 1e-5 * of_logs.square().sum():
        return None
    bias, numbers = (logs - factor * own).mean(0), factor.flatten()
    parts: tuple[Words, ...] = ()
    if numbers.std() > 0.01 * numbers.abs().max():
        parts = ((OF_EACH,),)
    elif abs(numbers.mean() - 1) > 0.01:
        is_root = abs(numbers.mean() - math.sqrt(head_size)) < 0.01
        parts = ((UNSCALED,),) if is_root else ((TIMES, f"{numbers.mean():.3g}"),)
    if bias.abs().max() > 0.02:
        steps, both = bias.diff(dim=-1), (seen[0, :, :, 1:] & seen[0, :, :, :-1]).expand(len(bias), -1, -1)
        unlike = (steps[:, 1:, 1:] - steps[:, :-1, :-1])[both[:, 1:, 1:] & both[:, :-1, :-1]]
        return *parts, (BY_STEP if unlike.abs().max() < 0.1 * steps.abs().max() else BY_PAIR,)
    if not torch.allclose(sums := weights.sum(-1), sums.new_ones(()), atol=1e-3):
        more = (factor * scores).exp().masked_fill(~seen, 0).sum(-1) * (1 / sums - 1)
        is_sink = more.min() > 0 and (more.amax((0, 2)) < 1.02 * more.amin((0, 2))).all()
        return (*parts, (SINK,)) if is_sink else None
    return parts
