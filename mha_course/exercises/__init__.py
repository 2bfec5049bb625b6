"""Exercises: each checks an answer and names the mistake; with hints, worked answers and a record of what is solved.

An exercise goes by its name, as in ``exercises.every_map(every_map)``; the modules of the subjects hold them.
"""

from mha_course.checking.exercise import Exercise
from mha_course.checking.help_in_steps import COURSE, hint, progress, solution
from mha_course.checking.points import seed_of
from mha_course.checking.prediction import answer, predict
from mha_course.exercises import (
    attention_pooling,
    finding_faults,
    first_pruning,
    head_importance,
    heads_being_born,
    masks_and_positions,
    multi_head_attention,
    own_evidence,
    own_heat_map,
    own_layer_test,
    reading_heads,
    real_heads,
    scoring_functions,
    torch_layer,
    transposing,
    whole_layer,
    writing_text,
)
from mha_course.exercises.drawn_rule import check_weights, drawn_rule
from mha_course.exercises.on_a_page import page
from mha_course.exercises.whole_layer import complete_layer, my_layer
from mha_course.museum.drawn_layer import (
    LAYER_FAULTS,
    check_layer_fault,
    check_layer_test,
    drawn_layer,
    layer_test_points,
)
from mha_course.museum.layer_check import assert_layer, check_layer

SUBJECTS = (
    whole_layer, first_pruning, attention_pooling, scoring_functions, multi_head_attention, transposing, torch_layer,
    finding_faults, own_heat_map, own_evidence, reading_heads, head_importance, real_heads, masks_and_positions,
    own_layer_test, heads_being_born, writing_text,
)  # fmt: skip
COURSE.update((e.__name__, e) for subject in SUBJECTS for e in vars(subject).values() if isinstance(e, Exercise))
globals().update(COURSE)
__all__ = [
    "LAYER_FAULTS", "answer", "assert_layer", "check_layer", "check_layer_fault", "check_layer_test", "check_weights",
    "complete_layer", "drawn_layer", "drawn_rule", "hint", "layer_test_points", "my_layer", "page", "predict",
    "progress", "seed_of", "solution", *COURSE,
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__
