"""The heads of the course's own models: ablated in any combination, removed; all sets of heads; what long runs found.

What ``mha_lib.heads`` offers for any model is here, too.
"""

from typing import TYPE_CHECKING

from mha_course.heads.ablation import (
    Evaluation,
    ablation_values,
    evaluate,
    evaluate_all,
    head_grid,
    losses_without_each,
    patch_heads,
)
from mha_course.heads.coalitions import (
    area_under_curve,
    best_sets,
    greedy,
    mean_ranks,
    pruning_curve,
    random_pruning_curve,
    shapley,
    spearman,
    top_k_sets,
    worst_sets,
)
from mha_course.heads.intervals import mean_and_ci95, num_prunable
from mha_course.heads.kept_results import load_results
from mha_course.heads.old_measures import behind
from mha_course.heads.planted_heads import Planted, plant_heads
from mha_course.heads.removal import prune, prune_attention, select_heads
from mha_course.heads.seeds import sweep, table
from mha_lib.heads import (
    FoundHeads,
    Removal,
    entropy,
    load_pruned,
    mean_distance,
    of,
    ranks,
    save_pruned,
    set_members,
    top1_hit_rate,
    weight_on_self,
    weight_on_token,
)

__all__ = [
    "Evaluation", "FoundHeads", "Planted", "Removal", "ablation_values", "area_under_curve", "best_sets", "entropy",
    "evaluate", "evaluate_all", "greedy", "head_grid", "load_pruned", "load_results", "losses_without_each",
    "mean_and_ci95", "mean_distance", "mean_ranks", "num_prunable", "of", "patch_heads", "plant_heads", "prune",
    "prune_attention", "pruning_curve", "random_pruning_curve", "ranks", "save_pruned", "select_heads", "set_members",
    "shapley", "spearman", "sweep", "table", "top1_hit_rate", "top_k_sets", "weight_on_self", "weight_on_token",
    "worst_sets",
]  # fmt: skip

if not TYPE_CHECKING:  # measures by their names of before
    __getattr__ = behind(__name__)


def __dir__() -> list[str]:
    return __all__
