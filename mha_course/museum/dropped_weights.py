"""How dropout acts on attention weights, read from the factors by which it multiplies them."""

import math

import torch
from torch import Tensor

from mha_course.language import tr


def dropped_otherwise(factors: Tensor, sure: Tensor, rate: float) -> str:
    """Return a sentence on dropout that does not act on each attention weight alone at this ``rate``; "" if it does.

    factors, by which weights are multiplied in training, and sure, whether a weight is large enough to tell them, are
    (batch, heads, queries, keys).
    """
    kept = factors.abs() > 0.02
    factor = factors[kept & sure].median()  # NaN where none is kept
    if not torch.allclose(factors[kept & sure], factor, rtol=0.02):
        return tr(
            "Dropout does not act on each weight alone: some are neither dropped nor multiplied by what all others are."
        )
    acts = "Dropout acts on the weights: {how}."
    share, due = 1 - kept[sure].double().mean().item(), 1 / (1 - rate)
    for axis, name in enumerate(("examples", "heads", "queries", "keys")):
        both = sure & sure.roll(1, axis)
        by_chance = share**2 + (1 - share) ** 2
        same = (kept == kept.roll(1, axis))[both].double()
        if factors.shape[axis] > 1 and len(same) > 100 and same.mean() > (1 + by_chance) / 2:
            return tr(acts, how=tr("those of different {axis} are dropped together", axis=tr(name)))
    if abs(share - rate) > 5 * math.sqrt(rate * (1 - rate) / sure.sum().item()):
        words = {"share": f"{share:.0%}", "rate": f"{rate:.0%}"}
        return tr(acts, how=tr("{share} of them are dropped where {rate} is asked for", **words))
    if abs(factor - due) > 0.01:
        words = {"own": f"{factor:.3f}", "right": f"{due:.3f}"}
        return tr(acts, how=tr("those that are kept are multiplied by {own} instead of {right}", **words))
    return ""
