"""Answers by others: the right ones pass, and of the wrong ones it is said what a teacher says, and nothing untrue.

Most were written by someone who had seen the notebooks but not the tables of mistakes.
"""

import pytest
import torch
from answers_by_others import RIGHT, WRONG

from mha_course.checking.exercise import exercise
from mha_course.exercises import COURSE

pytestmark = pytest.mark.usefixtures("in_this_process")

NAMED = 0.85  # of the wrong answers, at least


def ids(answers):
    return [f"{name}-{number}" for number, (name, *_) in enumerate(answers)]


@pytest.mark.parametrize(("name", "answer"), RIGHT, ids=ids(RIGHT))
def test_a_right_answer_passes(name, answer):
    assert COURSE[name](answer), COURSE[name](answer)


@pytest.mark.parametrize(("name", "answer", "words"), WRONG, ids=ids(WRONG))
def test_of_a_wrong_answer_the_mistake_is_named_or_nothing_is_claimed(name, answer, words):
    verdict = COURSE[name](answer)
    assert verdict.state == "wrong" and words in verdict.text, (answer.__doc__, verdict)
    assert words or not verdict.evidence, verdict  # without a name there is only the call that shows it


def test_most_mistakes_are_named():
    assert len(WRONG) >= 72 and sum(bool(words) for *_, words in WRONG) >= NAMED * len(WRONG)


@exercise(
    trials=lambda: [
        (*torch.randn(4, heads * size, heads * size), heads, torch.tensor(order))
        for heads, size, order in ((2, 1, [1, 0]), (3, 2, [2, 0, 1]), (4, 3, [2, 0, 3, 1]))
    ],
    praise="So.",
    idea="Think.",
    begin="Begin.",
    mistakes="W_o.T.unflatten(0, sizes)[order].flatten(0, 1).T -> W_o => W_o has stayed as it was.",
)
def reorder_heads(W_q, W_k, W_v, W_o, num_heads, order):
    sizes = (num_heads, -1)
    rows = [W.unflatten(0, sizes)[order].flatten(0, 1) for W in (W_q, W_k, W_v)]
    return (*rows, W_o.T.unflatten(0, sizes)[order].flatten(0, 1).T)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        (lambda W, given: (W[0], given[1], W[2], W[3]), "part 1 is wrong: this is argument 1"),
        (lambda W, given: (*W[:2], W[2].mT, W[3]), "part 2 is wrong: axes 0 and 1 are exchanged"),
        (lambda W, given: (W[0].flip(0), W[1].flip(0), *W[2:]), "parts 0, 1 are wrong: the numbers are in reverse"),
        (lambda W, given: (W[0][torch.arange(len(W[0])).roll(1) ^ 1], *W[1:]), "along axis 0 the entries are right"),
        (lambda W, given: (W[0][torch.arange(len(W[0])) // 2], *W[1:]), "some occur more than once"),
        (lambda W, given: W[::-1], "The parts are right, but in another order: position 0 holds"),
        (lambda W, given: W[0], "Only the first of the parts"),
    ],
)
def test_of_several_parts_those_that_are_wrong_are_told(parts, words):
    verdict = reorder_heads(lambda *given: parts(reorder_heads.right(*given), given))
    assert verdict.state == "wrong" and words in verdict.text, verdict
