"""What an order of heads is worth beside fair chance: with its sign and without, and against chance of its own shape.

Chance has three forms here. A *random* order knows nothing. *The layers alone* is a guess that knows which block
matters, and nothing else. An order that is *shuffled in its blocks* cuts as many heads of each block as a measure does,
at every size: what a measure is worth beyond that, it owes to telling heads of one block apart.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from mha_course.heads.coalitions import area_under_curve, permute_within_blocks, pruning_curve, spearman, top_k_sets
from mha_course.heads.intervals import num_prunable

__all__ = ["beside_chance", "mean_worth"]

SIGNED, OF_EACH, OF_MEAN = "signed", "absolute, each example", "absolute, the mean"
SHAPED_DRAWS = 100


def beside_chance(table: Tensor, importance: Tensor, fair: Tensor) -> dict[str, float]:
    """Return figures that compare pruning by ``importance`` with random pruning, and with Shapley values ``fair``."""
    own = mean_worth(table, [importance])
    shuffled = [permute_within_blocks(importance, seed) for seed in range(SHAPED_DRAWS)]
    areas = torch.tensor([area_under_curve(pruning_curve(table, order)) for order in shuffled])
    return own | {
        "spearman": spearman(importance, fair),
        "shaped_area": areas.mean().item(),
        "shaped_ahead": (areas > own["area"] + 1e-9).double().mean().item(),
    }


def mean_worth(table: Tensor, importances: Sequence[Tensor], draws: int = 20) -> dict[str, float]:
    """Rank heads by each of ``importances``; return the mean area under the pruning curve and mean prunable heads.

    ``table`` holds the accuracy with every subset of the heads. Ties in an importance are broken at random, ``draws``
    times.
    """
    curves = [pruning_curve(table, importance) for importance in importances]
    numbers = [num_prunable(table[top_k_sets(importance, draw)]) for importance in importances for draw in range(draws)]
    return {
        "area": torch.tensor([area_under_curve(curve) for curve in curves]).mean().item(),
        "num_prunable": sum(numbers) / len(numbers),
    }
