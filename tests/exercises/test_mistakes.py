"""Every exercise, by its own table: each mistake is named as itself; none is shadowed, no two behave alike."""

import inspect

import pytest
from right_answers import RIGHT

from mha_course.checking.comparing import Result, alike, outcome_of
from mha_course.checking.exercise import FunctionExercise
from mha_course.exercises import COURSE

pytestmark = pytest.mark.usefixtures("in_this_process")

OF_FUNCTIONS = [exercise for exercise in COURSE.values() if isinstance(exercise, FunctionExercise)]
MISTAKES = [
    pytest.param(exercise, text, wrong, id=f"{exercise.__name__}-{number}")
    for exercise in OF_FUNCTIONS
    for number, (text, wrong) in enumerate(exercise.mistakes[: len(exercise.mistakes) - len(exercise.programs)])
]
SHARED = [
    pytest.param(exercise, text, wrong, id=f"{exercise.__name__}-{number}")
    for exercise in OF_FUNCTIONS
    for number, (text, wrong) in enumerate(exercise.programs)
]


@pytest.mark.parametrize("exercise", COURSE.values(), ids=lambda exercise: exercise.__name__)
def test_the_worked_answer_passes(exercise):
    takes = inspect.signature(exercise).parameters
    asks_for_itself = isinstance(exercise, FunctionExercise) or {"function", "Layer"} & set(takes)
    right = exercise.right if asks_for_itself else exercise.right()
    verdict = exercise(*right) if isinstance(right, tuple) else exercise(right)
    assert verdict, verdict


@pytest.mark.parametrize(("exercise", "text", "wrong"), MISTAKES)
def test_a_mistake_is_named_and_one_that_always_raises_says_so(exercise, text, wrong):
    verdict = exercise(wrong)
    assert (verdict.state, verdict.text) == ("wrong", text)
    stages = exercise.trials()
    first = next(iter(stages.values())) if isinstance(stages, dict) else stages
    if all(outcome_of(wrong, trial).error for trial in first):  # an edit that breaks the program by accident is useless
        assert "error" in text


@pytest.mark.quarter  # hundreds of programs, of which most say the same of an exercise's check
@pytest.mark.parametrize(("exercise", "text", "wrong"), SHARED)
def test_a_shared_mistake_is_named_as_itself_or_as_one_that_gives_the_same_or_makes_no_difference(
    exercise, text, wrong
):
    verdict = exercise(wrong)
    if verdict or verdict.text == text or verdict.inputs is None:
        return
    trial, named = verdict.inputs, [program for said, program in exercise.mistakes if said == verdict.text]
    got = outcome_of(wrong, trial)
    same = [alike(Result(trial, outcome_of(p, trial), None), Result(trial, got, None)) for p in named]
    assert got.error or any(same), verdict


@pytest.mark.parametrize(("name", "answer"), [(name, answer) for name, answers in RIGHT.items() for answer in answers])
def test_a_right_answer_in_another_style_passes(name, answer):
    assert COURSE[name](answer), COURSE[name](answer)


def moved(value):
    """All numbers off by a little."""
    return tuple(map(moved, value)) if isinstance(value, tuple) else 1.013 * value + 0.002


@pytest.mark.parametrize("exercise", OF_FUNCTIONS, ids=lambda exercise: exercise.__name__)
def test_what_is_only_near_a_mistake_is_not_taken_for_it(exercise):
    for text, wrong in exercise.mistakes[:3]:
        verdict = exercise(lambda *arguments, wrong=wrong: moved(wrong(*arguments)))
        assert verdict.state == "wrong" and (text not in verdict.text or "Your code raises" in verdict.evidence)
