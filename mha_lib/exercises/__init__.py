"""Exercises: each checks an answer and names the mistake; with hints, worked answers and a record of what is solved."""

from mha_lib.exercises import (
    attention_pooling,
    head_importance,
    multi_head_attention,
    reading_heads,
    scoring_functions,
    transposing,
)
from mha_lib.exercises.attention_pooling import (
    effective_number,
    gaussian_pooling,
    leave_hour_out,
    local_line,
    triangle,
)
from mha_lib.exercises.exercise import Exercise
from mha_lib.exercises.head_importance import fair_shares, honest_gain, order_of_cuts, own_importance
from mha_lib.exercises.help_in_steps import COURSE, hint, progress, solution
from mha_lib.exercises.multi_head_attention import operation_count, parameter_count, previous_token, sum_over_heads
from mha_lib.exercises.prediction import predict
from mha_lib.exercises.reading_heads import evenness, head_roles, heard, reach
from mha_lib.exercises.scoring_functions import (
    additive_attention,
    distance_weights,
    masked_softmax_1d,
    masked_softmax_2d,
    scaled_scores,
)
from mha_lib.exercises.transposing import (
    lengths_for_heads,
    origin,
    split_fused,
    transpose_output,
    transpose_qkv,
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
    "hint",
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
    "predict",
    "previous_token",
    "progress",
    "reach",
    "scaled_scores",
    "solution",
    "split_fused",
    "sum_over_heads",
    "transpose_output",
    "transpose_qkv",
    "triangle",
]

SUBJECTS = (
    attention_pooling,
    scoring_functions,
    multi_head_attention,
    transposing,
    reading_heads,
    head_importance,
)
COURSE.update((e.__name__, e) for subject in SUBJECTS for e in vars(subject).values() if isinstance(e, Exercise))
