"""Checks of the exercises: each says whether an answer is right and, if not, which mistake it looks like."""

from mha_lib.checks.heads import operation_count, parameter_count, previous_token, sum_over_heads
from mha_lib.checks.pooling import effective_number, gaussian_pooling, leave_hour_out, local_line, triangle
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
    "gaussian_pooling",
    "leave_hour_out",
    "local_line",
    "masked_softmax_1d",
    "masked_softmax_2d",
    "operation_count",
    "parameter_count",
    "previous_token",
    "scaled_scores",
    "sum_over_heads",
    "triangle",
]
