"""What a layer's attention weights are made of, read from its output: a factor, a bias, a sink, a gate."""

import math

import torch
from torch import Tensor

from mha_course.language import tr
from mha_course.museum.layer_trials import before_output, formula, together, with_given
from mha_course.museum.variants import BY_PAIR, BY_STEP, OF_EACH, SINK, Words
from mha_lib.attention import split_heads

MULTIPLES = (
    "Its weights are not those of softmax(QKᵀ / √d), and they do not sum to 1. W_v, W_o and the heads are right: "
    "values that are all equal come out as multiples of what they should be."
)
GATE = "This is a gate: each feature of the heads' outputs is multiplied by a number between 0 and 1."
NULL = "There is one more key and value, which no token has: part of each query's weight goes to them."
SURE = 1e-3  # a weight below has few digits that are true


def outputs_of_heads(trial: tuple, output: Tensor) -> Tensor:
    """Return the heads' outputs, (batch, heads, queries, head size), made of a layer's output less a residual."""
    after = trial[9].get("after")
    return before_output(output - after(torch.zeros_like(output)) if after else output, trial)


def of_equal_values(trial: tuple, output: Tensor) -> str:
    """Return what is told by values that are all equal, where they do not come out as the formula has them: as
    multiples, head by head, if weights do not sum to 1; drawn to one point, if there is one more key; feature by
    feature, if there is a gate; or "".
    """
    own, right = outputs_of_heads(trial, output), outputs_of_heads(trial, formula(*trial))
    ratios = (own * right).sum(-1, keepdim=True) / right.square().sum(-1, keepdim=True)
    if torch.allclose(own, ratios * right, atol=1e-3, rtol=1e-3):
        return tr(MULTIPLES) if ratios.abs().amax((0, 2, 3)).min() > 1e-3 else ""
    moves, values = ((X.transpose(0, 1).flatten(1, 2)[..., None]) for X in (own - right, right))  # head by head
    lengths = moves.norm(dim=2, keepdim=True)
    steps = moves / lengths.clamp(min=1e-12)
    across = (torch.eye(steps.shape[2]) - steps @ steps.mT) * (lengths > 0.01 * lengths.max())  # what is clear
    to_point = (torch.linalg.pinv(across.sum(1)) @ (across @ values).sum(1))[:, None] - values
    shares = (moves * to_point).sum((2, 3)) / to_point.square().sum((2, 3))  # of the way to one point
    is_between = shares.min() > -0.01 and shares.max() < 1.01
    if is_between and (across @ to_point).abs().max() < 1e-3 * values.abs().max():
        return tr(NULL)
    clear = right.abs() > 0.1 * right.abs().max()
    gates = (own / right)[clear][right[clear].argsort()]
    is_activation = bool((gates.diff() > -0.02).all())  # a function of the output itself, such as GELU or SiLU
    return tr(GATE) if gates.min() > -0.02 and gates.max() < 1.02 and gates.std() > 0.15 and not is_activation else ""


def reading(trials: list[tuple], output: Tensor) -> tuple[int, tuple[Words, ...], float] | None:
    """Return of which test call, of some that differ in queries and keys, the weights of a layer with this output are
    made: its number, words for what else they are made of, and the factor of its scores, NaN where each head has one of
    its own; None if they are made of none.
    """
    *_, values, allowed, _, _, W_v, _, num_heads, given = trials[0]
    V = split_heads(values @ W_v.T + given["b_v"], num_heads)
    weights = outputs_of_heads(trials[0], output) @ torch.linalg.pinv(V.double())
    seen = allowed.expand_as(weights)
    for number, scores in enumerate(scores_of(together(trials)).chunk(len(trials))):
        if found := by_factor(weights, scores, seen):
            return number, *found
    return None


def scores_of(trial: tuple) -> Tensor:
    """Return the scores of each head in a test call, without a bias."""
    found: list[Tensor] = []

    def note(scores: Tensor) -> Tensor:
        found.append(scores.double())
        return scores

    formula(*with_given(trial, bias=note, after=None))
    return found[0]


def by_factor(weights: Tensor, scores: Tensor, seen: Tensor) -> tuple[tuple[Words, ...], float] | None:
    """Return words for the bias of each two positions and the sink that make ``weights`` of ``scores`` times a factor,
    (batch, heads, queries, keys), and the factor; None if none do.
    """

    sure = seen & ((weights > SURE) | ~seen).all(-1, keepdim=True)  # rows of which all weights are

    def centred(X: Tensor) -> Tensor:
        """Take off what is the same for all keys of a query, on which no softmax depends."""
        X = X.masked_fill(~sure, 0)
        return (X - X.sum(-1, keepdim=True) / sure.sum(-1, keepdim=True)).masked_fill(~sure, 0)

    def average(X: Tensor) -> Tensor:
        """Average over the examples."""
        return X.sum(0) / sure.sum(0).clamp(min=1)

    logs, own = centred(weights.clamp(min=1e-30).log()), centred(scores)
    # without what is the same in all examples, such as a bias
    of_logs, of_own = ((X - average(X)).masked_fill(~sure, 0) for X in (logs, own))
    factor = (of_logs * of_own).sum((0, 2, 3), keepdim=True) / of_own.square().sum((0, 2, 3), keepdim=True)
    if not (of_logs - factor * of_own).square().sum() <= 1e-6 * of_logs.square().sum() or sure.sum() < seen.sum() / 8:
        return None
    bias, one = average(logs - factor * own), factor.mean().item()
    parts: tuple[Words, ...] = ()
    if factor.std() > 0.01 * factor.abs().max():
        parts, one = ((OF_EACH,),), math.nan
    if bias.abs().max() > 0.02:
        steps, both = bias.diff(dim=-1), (seen[0, :, :, 1:] & seen[0, :, :, :-1]).expand(len(bias), -1, -1)
        unlike = (steps[:, 1:, 1:] - steps[:, :-1, :-1])[both[:, 1:, 1:] & both[:, :-1, :-1]]
        return (*parts, (BY_STEP if unlike.abs().max() < 0.1 * steps.abs().max() else BY_PAIR,)), one
    if not torch.allclose(sums := weights.sum(-1), sums.new_ones(()), atol=1e-3):
        more = (factor * scores).exp().masked_fill(~seen, 0).sum(-1) * (1 / sums - 1)
        is_sink = more.min() > 0 and (more.amax((0, 2)) < 1.02 * more.amin((0, 2))).all()
        return ((*parts, (SINK,)), one) if is_sink else None
    return parts, one
