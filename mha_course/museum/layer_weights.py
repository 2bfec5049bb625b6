"""What a layer's attention weights are made of, read from its output: a factor, a bias, a sink, a gate, angles."""

import itertools
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from mha_course.language import tr
from mha_course.museum.layer_trials import before_output, formula, together, with_given
from mha_course.museum.rotary_positions import PAIRS, SHARES, Words
from mha_course.museum.variants import ANGLES, BY_PAIR, BY_STEP, GATED, OF_EACH, SINK
from mha_course.museum.wrong_attention import back
from mha_lib.attention import split_heads

MULTIPLES = (
    "Values that are all equal come out of each head as multiples of what they should be: its weights do not sum to 1, "
    "or a number multiplies its values or its output, as a norm or a gate does."
)
GATE = "This is a gate: each feature of the heads' outputs is multiplied by a number between 0 and 1."
NULL = "There is one more key and value, which no token has: part of each query's weight goes to them."
NEAR = torch.arange(3)[:, None]  # steps of which angles are compared
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


class Reading(NamedTuple):
    """What weights are made of: the number of a test call, the size of heads, words for what else, and the factor of
    scores, NaN where each head has one of its own; and pairs of features and their angles of a step, if they are turned
    by unknown ones.
    """

    number: int
    size: int
    words: tuple[Words, ...]
    factor: float
    pairs: str = ""
    angles: tuple[float, ...] = ()


def reading(trials: list[tuple], turned: list[bool], output: Tensor) -> Reading | None:
    """Return what the weights of a layer with this output are made of: one of some test calls that differ in queries
    and keys, perhaps with unknown angles if it is not ``turned`` already; None if they are made of none.
    """
    *_, values, allowed, _, _, W_v, W_o, num_heads, given = trials[0]
    if W_o.shape[1] > len(W_o):  # the heads' outputs cannot be told from what W_o makes of them
        return None
    V = split_heads(values @ W_v.T + given["b_v"], num_heads)
    weights = outputs_of_heads(trials[0], output) @ torch.linalg.pinv(V.double())
    seen = allowed.expand_as(weights)
    sure = seen & ((weights > SURE) | ~seen).all(-1, keepdim=True)  # rows with all weights
    if sure.sum((0, 2, 3)).min() < seen[:, 0].sum() / 8:
        return None
    Q, K, scores = (X.chunk(len(trials)) for X in parts_of(together(trials)))
    still = [number for number, of in enumerate(turned) if not of]
    found = itertools.chain(
        ((number, by_factor(scores[number], weights, seen, sure)) for number in still),
        ((number, by_turns(Q[number], K[number], weights, seen, sure)) for number in still),
        ((number, by_factor(scores[number], weights, seen, sure)) for number, of in enumerate(turned) if of),
    )
    return next((Reading(number, Q[0].shape[-1], *read) for number, read in found if read), None)


def parts_of(trial: tuple) -> list[Tensor]:
    """Return the queries, keys and scores of each head in a test call, the scores without a bias."""
    found: list[Tensor] = []

    def turn(*X: Tensor) -> Any:
        X = trial[9]["turn"](*X)
        found.extend(X[:2])
        return X

    def bias(scores: Tensor) -> Tensor:
        found.append(scores)
        return scores

    formula(*with_given(trial, turn=turn, bias=bias, after=None))
    return [X.double() for X in found]


def centred(X: Tensor, sure: Tensor) -> Tensor:
    """Take off what is the same for all ``sure`` keys of a query, on which no softmax depends."""
    X = X.masked_fill(~sure, 0)
    return (X - X.sum(-1, keepdim=True) / sure.sum(-1, keepdim=True)).masked_fill(~sure, 0)


def in_pairs(X: Tensor, size: int, halves: bool) -> Tensor:
    """Return pairs of features as complex numbers: of the first ``size`` ones of one half with the other, or of
    neighbours; then of neighbours.
    """
    first, rest = X[..., :size], X[..., size:].unflatten(-1, (-1, 2))
    first = first.unflatten(-1, (2, -1)).mT if halves else first.unflatten(-1, (-1, 2))
    return torch.view_as_complex(torch.cat([first, rest], dim=-2).contiguous())


def by_turns(Q: Tensor, K: Tensor, weights: Tensor, seen: Tensor, sure: Tensor) -> tuple[Any, ...] | None:
    """Return what is told of the angles by which heads' queries and keys, (batch, heads, number, head size), are
    turned to make ``weights``, as ``Reading`` has it; None if none do. For each step between two positions, a score is
    a sum of products of pairs of features, times a cosine and a sine that are fitted.
    """
    logs, number, size = centred(weights.clamp(min=1e-30).log(), sure), K.shape[2], Q.shape[3]
    steps = F.one_hot(back(seen) + number - 1, 2 * number - 1).double()  # (q, k, steps)
    shares = dict.fromkeys((int(share * size) + up) // 2 * 2 for share in SHARES.values() for up in (0, 1))
    for pairs, first in [("neighbours", size), *(("halves", share) for share in shares)]:
        q, k = (in_pairs(X, first, PAIRS[pairs]) for X in (Q, K))
        products = torch.view_as_real((q.unsqueeze(-2).conj() * k.unsqueeze(-3)) / math.sqrt(size))
        columns = centred(torch.einsum("bhqkpc,qks->spcbhqk", products, steps), sure).flatten(3).flatten(0, 2).T
        fitted = torch.linalg.lstsq(columns, logs.flatten(), driver="gelsd").solution
        if (columns @ fitted - logs.flatten()).square().sum() > 1e-6 * logs.square().sum():
            continue
        turns = torch.view_as_complex(fitted.view(-1, size // 2, 2))
        scores = torch.einsum("bhqkpc,qks,spc->bhqk", products, steps, torch.view_as_real(turns))
        turns = turns[number - 1 : number + 2]  # of 0, 1 and 2 steps
        factor, angles = turns.abs().mean().item(), turns[1].angle()
        if torch.allclose(turns, factor * (turns[1] / factor) ** NEAR, atol=0.02 * factor):
            words = (ANGLES, pairs, ", ".join(f"{round(angle, 3) + 0:g}" for angle in angles.tolist()))
            return (words, *beside(weights, scores, seen)), factor, pairs, angles.tolist()
    return None


def beside(weights: Tensor, scores: Tensor, seen: Tensor) -> tuple[Words, ...]:
    """Return words for what keeps ``weights`` that are made of ``scores`` from being their softmax, if anything: a
    sink, or numbers that multiply a head's output.
    """
    if torch.allclose(sums := weights.sum(-1), sums.new_ones(()), atol=1e-3):
        return ()
    more = scores.exp().masked_fill(~seen, 0).sum(-1) * (1 / sums - 1)
    is_sink = more.min() > 0 and (more.amax((0, 2)) < 1.02 * more.amin((0, 2))).all()
    return ((SINK if is_sink else GATED,),)


def by_factor(scores: Tensor, weights: Tensor, seen: Tensor, sure: Tensor) -> tuple[tuple[Words, ...], float] | None:
    """Return words for the bias of each two positions and the sink that make ``weights`` of ``scores`` times a factor,
    (batch, heads, queries, keys), and the factor; None if none do.
    """

    def average(X: Tensor) -> Tensor:
        """Average over the examples."""
        return X.sum(0) / sure.sum(0).clamp(min=1)

    logs, own = centred(weights.clamp(min=1e-30).log(), sure), centred(scores, sure)
    # without what is the same in all examples, such as a bias
    of_logs, of_own = ((X - average(X)).masked_fill(~sure, 0) for X in (logs, own))
    factor = (of_logs * of_own).sum((0, 2, 3), keepdim=True) / of_own.square().sum((0, 2, 3), keepdim=True)
    if not (of_logs - factor * of_own).square().sum() <= 1e-6 * of_logs.square().sum():
        return None
    bias, one = average(logs - factor * own), factor.mean().item()
    parts: tuple[Words, ...] = ()
    if factor.std() > 0.01 * factor.abs().max():
        parts, one = ((OF_EACH,),), math.nan
    if bias.abs().max() > 0.02:
        steps, both = bias.diff(dim=-1), (seen[0, :, :, 1:] & seen[0, :, :, :-1]).expand(len(bias), -1, -1)
        unlike = (steps[:, 1:, 1:] - steps[:, :-1, :-1])[both[:, 1:, 1:] & both[:, :-1, :-1]]
        return (*parts, (BY_STEP if unlike.abs().max() < 0.1 * steps.abs().max() else BY_PAIR,)), one
    return (*parts, *beside(weights, factor * scores, seen)), one
