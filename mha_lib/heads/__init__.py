"""What a head does, what it is worth by every measure and in truth, and how to take it out."""

from typing import TYPE_CHECKING

from mha_lib import old_names
from mha_lib.heads.ablation import (
    Evaluation,
    ablation_values,
    evaluate,
    evaluate_all,
    head_grid,
    head_means,
    head_outputs,
    losses_without_each,
    patch_heads,
)
from mha_lib.heads.any_model import FoundHeads, of
from mha_lib.heads.coalitions import (
    area_under_curve,
    best_sets,
    greedy,
    mean_ranks,
    permute_within_layers,
    pruning_curve,
    random_pruning_curve,
    ranks,
    sampled_shapley,
    set_members,
    shapley,
    spearman,
    top_k_sets,
    worst_sets,
)
from mha_lib.heads.found_removal import Removal
from mha_lib.heads.intervals import mean_and_ci95, num_prunable
from mha_lib.heads.measures import (
    completeness_residual,
    confidence,
    gate_gradient,
    integrated_gradients,
    leave_one_out,
    monte_carlo_shapley,
    negative_entropy,
    output_norm,
)
from mha_lib.heads.removal import least_heads, plan_from, prune, prune_attention, select_heads
from mha_lib.heads.saving import load_pruned, save_pruned
from mha_lib.heads.statistics import entropy, mean_distance, top1_hit_rate, weight_on_self, weight_on_token

__all__ = [
    "Evaluation", "FoundHeads", "Removal", "ablation_values", "area_under_curve", "best_sets",
    "completeness_residual", "confidence", "entropy", "evaluate", "evaluate_all", "gate_gradient", "greedy",
    "head_grid", "head_means", "head_outputs", "integrated_gradients", "least_heads", "leave_one_out",
    "load_pruned", "losses_without_each", "mean_and_ci95", "mean_distance", "mean_ranks", "monte_carlo_shapley",
    "negative_entropy", "num_prunable", "of", "output_norm", "patch_heads", "permute_within_layers", "plan_from",
    "prune", "prune_attention", "pruning_curve", "random_pruning_curve", "ranks", "sampled_shapley", "save_pruned",
    "select_heads", "set_members", "shapley", "spearman", "top1_hit_rate", "top_k_sets", "weight_on_self",
    "weight_on_token", "worst_sets",
]  # fmt: skip

if not TYPE_CHECKING:  # names that have left this room are found until the next release
    __getattr__ = old_names.behind(__name__)


def __dir__() -> list[str]:
    return __all__
