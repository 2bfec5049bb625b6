"""What a head does, what it is worth by every measure and in truth, and how to take it out."""

from mha_lib.heads.ablation import (
    Scores,
    evaluate,
    evaluate_all,
    head_means,
    head_outputs,
    head_shape,
    losses_without_each,
    substitutes_for,
)
from mha_lib.heads.coalitions import (
    area,
    best_sets,
    greedy,
    heads_in,
    mean_curve,
    mean_ranks,
    pruning_curve,
    ranks,
    sampled_shapley,
    sets_kept,
    shapley,
    spearman,
    worst_sets,
)
from mha_lib.heads.intervals import interval, removable
from mha_lib.heads.kept_results import load_results
from mha_lib.heads.known_heads import Planted, plant
from mha_lib.heads.league import compare, planted_controls, summarise, sweep
from mha_lib.heads.learned_gates import hard_concrete
from mha_lib.heads.measures import (
    confidence,
    gate_gradient,
    leave_one_out,
    monte_carlo_shapley,
    negative_entropy,
    output_norm,
    path_gradient,
)
from mha_lib.heads.removal import best_heads, plan_from, prune, prune_attention, select_heads
from mha_lib.heads.statistics import entropy, mean_distance, strongest_inside, weight_on_self, weight_on_token

__all__ = [
    "Planted",
    "Scores",
    "area",
    "best_heads",
    "best_sets",
    "compare",
    "confidence",
    "entropy",
    "evaluate",
    "evaluate_all",
    "gate_gradient",
    "greedy",
    "hard_concrete",
    "head_means",
    "head_outputs",
    "head_shape",
    "heads_in",
    "interval",
    "leave_one_out",
    "load_results",
    "losses_without_each",
    "mean_curve",
    "mean_distance",
    "mean_ranks",
    "monte_carlo_shapley",
    "negative_entropy",
    "output_norm",
    "path_gradient",
    "plan_from",
    "plant",
    "planted_controls",
    "prune",
    "prune_attention",
    "pruning_curve",
    "ranks",
    "removable",
    "sampled_shapley",
    "select_heads",
    "sets_kept",
    "shapley",
    "spearman",
    "strongest_inside",
    "substitutes_for",
    "summarise",
    "sweep",
    "weight_on_self",
    "weight_on_token",
    "worst_sets",
]
