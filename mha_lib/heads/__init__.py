"""What a head does, what it is worth by every measure and in truth, and how to take it out."""

from mha_lib.heads.ablation import (
    Scores,
    evaluate,
    evaluate_all,
    head_means,
    head_outputs,
    head_shape,
    losses_without_each,
    saying,
    substitutes_for,
)
from mha_lib.heads.any_model import FoundHeads, of
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
from mha_lib.heads.measures import (
    completeness_residual,
    confidence,
    gate_gradient,
    leave_one_out,
    monte_carlo_shapley,
    negative_entropy,
    output_norm,
    path_gradient,
)
from mha_lib.heads.removal import best_heads, plan_from, prune, prune_attention, select_heads
from mha_lib.heads.seeds import sweep
from mha_lib.heads.statistics import entropy, mean_distance, strongest_inside, weight_on_self, weight_on_token
