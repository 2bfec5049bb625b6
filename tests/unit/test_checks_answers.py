"""Every check of an exercise on many answers: right ones, typical mistakes, and wrong ones that it knows no name of."""

import pytest
import test_checks_heads
import test_checks_pooling
import test_checks_scoring
from judged import named, right, unlisted, wrong

ON_TENSORS = test_checks_pooling.EXERCISES + test_checks_scoring.EXERCISES
EXERCISES = [
    *ON_TENSORS,
    *test_checks_heads.EXERCISES,
]


@pytest.mark.parametrize(("check", "answer"), right(EXERCISES))
def test_a_right_answer_passes(check, answer):
    assert check(answer).state == "right", check(answer)


@pytest.mark.parametrize(("answers", "answer", "words"), wrong(EXERCISES))
def test_a_typical_mistake_is_named(answers, answer, words):
    verdict = answers.check(answer)
    assert (verdict.state, named(answers, verdict)) == ("wrong", [words]), verdict


@pytest.mark.parametrize(("answers", "answer"), unlisted(EXERCISES))
def test_another_mistake_is_not_taken_for_a_typical_one(answers, answer):
    verdict = answers.check(answer)
    assert (verdict.state, named(answers, verdict)) == ("wrong", []), verdict


@pytest.mark.parametrize(("answers", "answer", "words"), wrong(ON_TENSORS))
def test_what_is_only_near_a_typical_mistake_is_not_taken_for_it(answers, answer, words):
    verdict = answers.check(lambda *inputs: 1.003 * answer(*inputs) + 0.002)
    assert (verdict.state, named(answers, verdict)) == ("wrong", []), verdict


@pytest.mark.parametrize("answers", EXERCISES, ids=lambda answers: answers.check.__name__)
def test_an_empty_stub_is_no_answer_yet(answers):
    assert answers.check(lambda *inputs: ...).state == answers.check(lambda *inputs: None).state == "not yet"
