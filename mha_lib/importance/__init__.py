"""How important is a head? Measures, and the exact truth to hold them against."""

from mha_lib.importance.ablation import (
    Scores,
    evaluate,
    evaluate_all,
    head_means,
    head_outputs,
    head_shape,
    substitutes_for,
)
from mha_lib.importance.gates import hard_concrete
from mha_lib.importance.measures import (
    confidence,
    gate_gradient,
    leave_one_out,
    monte_carlo_shapley,
    negative_entropy,
    output_norm,
    path_gradient,
)
from mha_lib.importance.subsets import (
    area,
    best_sets,
    greedy,
    heads_in,
    mean_curve,
    ranks,
    sampled_shapley,
    sets_kept,
    shapley,
    spearman,
    worst_sets,
)

__all__ = [
    "Scores",
    "area",
    "best_sets",
    "confidence",
    "evaluate",
    "evaluate_all",
    "gate_gradient",
    "greedy",
    "hard_concrete",
    "head_means",
    "head_outputs",
    "head_shape",
    "heads_in",
    "leave_one_out",
    "mean_curve",
    "monte_carlo_shapley",
    "negative_entropy",
    "output_norm",
    "path_gradient",
    "ranks",
    "sampled_shapley",
    "sets_kept",
    "shapley",
    "spearman",
    "substitutes_for",
    "worst_sets",
]
