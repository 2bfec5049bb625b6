"""Checks of the exercises: each says whether an answer is right and, if not, which mistake it looks like."""

from mha_lib.checks.heads import operation_count, parameter_count, previous_token, sum_over_heads
from mha_lib.checks.pooling import effective_number, gaussian_pooling, leave_hour_out, local_line, triangle
from mha_lib.checks.pruning import fair_shares, honest_gain, order_of_cuts, own_importance
from mha_lib.checks.reading import evenness, head_roles, heard, reach
from mha_lib.checks.reshapes import lengths_for_heads, origin, split_fused, transpose_output, transpose_qkv
from mha_lib.checks.scoring import (
    additive_attention,
    distance_weights,
    masked_softmax_1d,
    masked_softmax_2d,
    scaled_scores,
)

__all__ = [
    "additive_attention",
    "distance_weights",
    "effective_number",
    "evenness",
    "fair_shares",
    "gaussian_pooling",
    "head_roles",
    "heard",
    "honest_gain",
    "leave_hour_out",
    "lengths_for_heads",
    "local_line",
    "masked_softmax_1d",
    "masked_softmax_2d",
    "operation_count",
    "order_of_cuts",
    "origin",
    "own_importance",
    "parameter_count",
    "previous_token",
    "reach",
    "scaled_scores",
    "split_fused",
    "sum_over_heads",
    "transpose_output",
    "transpose_qkv",
    "triangle",
]
