"""Which head covers for another: a wrong answer is shown the costs from which the right one can be worked out."""

import re

import pytest

from mha_lib import exercises

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
