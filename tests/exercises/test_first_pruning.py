"""Which head covers for another: a wrong answer is shown the costs from which the right one can be worked out."""

import itertools
import re

import numpy
import pytest
import torch

from mha_course import exercises

pytestmark = pytest.mark.usefixtures("in_this_process")
COST = re.compile(r"cost\((\[[\d, ]+\])\) = (-?\d+\.\d+)")


def test_the_costs_of_the_counterexample_suffice_to_find_the_right_head():
    verdict = exercises.covering_head(lambda cost, head, others: min(others, key=lambda one: cost([head, one])))
    costs = {heads: float(number) for heads, number in COST.findall(repr(verdict))}
    _, head, others = verdict.inputs
    more = {other: costs[f"[{head}, {other}]"] - costs[f"[{other}]"] for other in others}
    assert verdict.state == "wrong" and max(more, key=more.get) == verdict.expected != verdict.got
    assert len(costs) == 2 * len(others)


@pytest.mark.parametrize("own", [True, False])
def test_a_difference_in_place_of_the_head_is_named(own):
    def covering_head(cost, head, others):
        return max(cost([head, other]) - cost([other]) - own * cost([head]) for other in others)

    verdict = exercises.covering_head(covering_head)
    assert verdict.text == "This is the largest difference. Return the head, not its difference."


def test_an_index_in_place_of_the_head_is_named():
    def covering_head(cost, head, others):
        more = [cost([head, other]) - cost([other]) for other in others]
        return more.index(max(more))

    assert "index" in exercises.covering_head(covering_head).text


@pytest.mark.parametrize("at_first", [None, "the first", 0])
def test_a_search_that_starts_at_0_is_refused(at_first):
    def covering_head(cost, head, others):
        most, found = 0, others[0] if at_first == "the first" else at_first
        for other in others:
            if cost([head, other]) - cost([other]) > most:
                most, found = cost([head, other]) - cost([other]), other
        return found

    verdict = exercises.covering_head(covering_head)
    assert verdict.state == "wrong" and verdict.text.startswith("The search starts at 0"), verdict


# The four of all 792 choices that are good enough, and of the 396 with three heads of layer 1 or more.
PASSING = [[(0, removed), (1, 0), (1, 1), (1, 2), (1, last)] for removed in (0, 4) for last in (3, 5)]
ONE_OF_EACH_PAIR = map(list, itertools.product((1, 3), (0, 5), (2, 6), (4, 7)))
IN_ANY_FORM = [{0, 1, 2, 4}, frozenset({0, 1, 2, 4}), (4, 2, 1, 0), torch.tensor([0, 1, 2, 4]),
               numpy.array([4, 0, 1, 2]), [torch.tensor(0), 1, numpy.int64(2), 4.0]]  # fmt: skip
RIGHT = {exercises.five_heads: PASSING, exercises.four_heads: [*ONE_OF_EACH_PAIR, *IN_ANY_FORM]}


@pytest.mark.parametrize(("ask", "choice"), [(ask, choice) for ask, choices in RIGHT.items() for choice in choices])
def test_a_choice_that_is_good_enough_passes_in_any_form(ask, choice):
    verdict = ask(choice)
    assert verdict and "still right" in verdict.text, verdict


@pytest.mark.parametrize(
    ("removed", "told"),
    [
        ([(0, 0), (0, 4)], {"keep one of them"}),
        ([(0, 0), (0, 5)], {"keep head 5"}),
        ([(0, 4), (0, 5)], {"keep head 5"}),
        ([(0, 0), (1, 3)], set()),
    ],
)
def test_a_choice_is_told_nothing_that_a_good_one_contradicts(removed, told):
    text = exercises.five_heads([*removed, (1, 0), (1, 4), (1, 5)]).text
    assert {words for words in ("keep one of them", "keep head 5", "keep head 0") if words in text} == told


@pytest.mark.parametrize(
    ("four", "told"),
    [
        ([1, 3, 2, 4], [r"1 and 3: only 0\.\d\d of “one before”"]),
        ([7, 5, 0, 4], [r"0 and 5: only 0\.1\d of “one after”", r"4 and 7: only 0\.1\d of “two after”"]),
    ],
)
def test_a_pair_that_is_gone_is_named_with_what_is_left_of_its_neighbour(four, told):
    verdict = exercises.four_heads(four)
    assert verdict.state == "wrong" and verdict.text.count("Both heads of a pair are removed") == len(told)
    assert all(re.search(words, verdict.text) for words in told) and "Leave-one-out" not in verdict.text


@pytest.mark.parametrize("four", [(3, 2, 1, 0), range(4)])
def test_the_choice_of_leave_one_out_is_recognised(four):
    text = exercises.four_heads(four).text
    assert "Leave-one-out removes these four" in text and "Both heads of a pair are removed, 1 and 3" in text


@pytest.mark.parametrize(
    ("answer", "state", "told"),
    [
        (4, "wrong", "A list of four heads is needed"),
        ("0124", "wrong", "A list of four heads is needed; this is a str."),
        ([0, 1, 2], "wrong", "Four heads are needed; this answer has the length 3."),
        ({0, 1, 2}, "wrong", "Four heads are needed; this answer has the length 3."),
        ([0, 1, 2, 4, 4], "wrong", "Four heads are needed; this answer has the length 5."),
        ([0, 1, 2, 2], "wrong", "Four different heads are needed; this answer holds head 2 more than once."),
        (torch.tensor([4, 1, 0, 4]), "wrong", "this answer holds head 4 more than once."),
        ([0, 1, 2, 8], "wrong", "each a whole number from 0 to 7; this answer holds 8."),
        (range(5, 9), "wrong", "each a whole number from 0 to 7; this answer holds 8."),
        ([0, 1, 2, -1], "wrong", "each a whole number from 0 to 7; this answer holds -1."),
        ([0, 1, 2, 4.5], "wrong", "each a whole number from 0 to 7; this answer holds 4.5."),
        ([True, 2, 4, 7], "wrong", "each a whole number from 0 to 7; this answer holds a bool."),
        ([(0, 1), 2, 3, 4], "wrong", "each a whole number from 0 to 7; this answer holds a tuple of 2."),
        ([0, 1, ..., 4], "not yet", "Put a head in the place of each"),
    ],
)
def test_what_is_no_choice_of_four_heads_is_told_so(answer, state, told):
    verdict = exercises.four_heads(answer)
    assert verdict.state == state and told in verdict.text
