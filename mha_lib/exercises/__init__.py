"""Exercises: each checks an answer and names the mistake; with hints, worked answers and a record of what is solved."""

from mha_lib.exercises.attention_pooling import (
    effective_number,
    gaussian_pooling,
    leave_hour_out,
    local_line,
    triangle,
)
from mha_lib.exercises.exercise import Exercise
from mha_lib.exercises.help_in_steps import COURSE, hint, progress, solution
from mha_lib.exercises.prediction import predict

__all__ = [
    "effective_number",
    "gaussian_pooling",
    "hint",
    "leave_hour_out",
    "local_line",
    "predict",
    "progress",
    "solution",
    "triangle",
]
COURSE.update((name, thing) for name, thing in list(globals().items()) if isinstance(thing, Exercise))
