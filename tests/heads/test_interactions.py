"""Natural twins are found, and frozen heads say what they said."""

import copy

import pytest
import torch
from on_device import DEVICE

from mha_course import heads
from mha_course.heads.interactions import frozen_downstream_costs, most_redundant_pair
from mha_course.models import find_task, shipped_model


@pytest.fixture(scope="module")
def case():
    task = find_task("lookups")
    return shipped_model("lookups"), task.held_out[:64].to(DEVICE), task


def without(case, *gone):
    model, batch, task = case
    gates = torch.ones(2, 6)
    for place in gone:
        gates[place] = 0
    return task.accuracy(model, batch, gates)


def test_twins_are_the_pair_that_hides_most(case):
    found = most_redundant_pair(*case)
    whole = without(case)
    hidden = {}
    for one in range(6):
        for other in range(one + 1, 6):
            singles = 2 * whole - without(case, (0, one)) - without(case, (0, other))
            hidden[one, other] = whole - without(case, (0, one), (0, other)) - singles
    assert tuple(found["heads"]) == max(hidden, key=hidden.get)
    one, other = found["heads"]
    assert found["alone"] == pytest.approx([whole - without(case, (0, one)), whole - without(case, (0, other))])
    assert found["together"] == pytest.approx(whole - without(case, (0, one), (0, other)))


def test_later_heads_that_nobody_hears_make_no_difference(case):
    """With the second layer's columns of W_o at 0, free and frozen are the same."""
    model, batch, task = case
    deaf = copy.deepcopy(model)
    deaf.attentions[1].W_o.weight.data.zero_()
    found = frozen_downstream_costs(deaf, batch, task)
    torch.testing.assert_close(found["free"], found["frozen"], rtol=0, atol=1e-6)
    assert found["free"].abs().max() > 0.01


def test_heads_that_are_heard_only_through_later_ones_cost_nothing_when_these_are_frozen(case):
    model, batch, task = case
    found = frozen_downstream_costs(model, batch, task)
    gates = torch.ones(7, 2, 6)
    gates[1:, 0] -= torch.eye(6)
    losses = heads.evaluate(model, batch, task, gates).loss
    torch.testing.assert_close(found["free"], losses[1:] - losses[0], rtol=0, atol=1e-5)
    assert found["free"][2] > 0.3 and found["frozen"][2].abs() < 0.01  # head 2 counts, and later heads pass it on
