"""What the exercises of 06 take for true: the fair shares, and the importance of heads in the small models."""

import itertools

import pytest
import torch

from mha_lib import heads
from mha_lib.exercises import fair_shares, head_importance


def test_the_shares_are_those_of_the_library():
    table = torch.zeros(8, dtype=torch.float64)
    for names, value in head_importance.GAME.items():
        table[sum(2 ** "ABC".index(name) for name in names)] = value
    assert head_importance.worked_shares() == pytest.approx(heads.shapley(table).tolist())


def test_shares_in_single_orders_are_what_heads_add():
    def worth(heads):
        return head_importance.GAME["".join(sorted(heads))]

    for order in map("".join, itertools.permutations("ABC")):
        gains = {name: worth(order[: i + 1]) - worth(order[:i]) for i, name in enumerate(order)}
        assert "in a single order" in fair_shares([gains[name] for name in "ABC"]).text


def test_the_truth_is_the_mean_over_orders():
    model, _, unseen = head_importance.small_models()[1]
    table = heads.evaluate_all(model, unseen, head_importance.TASK).accuracy
    total = torch.zeros(8, dtype=torch.float64)
    for order in list(itertools.permutations(range(8)))[::97]:
        sets = torch.tensor([0, *itertools.accumulate(2**head for head in order)])
        total[list(order)] += table[sets].diff()
    assert heads.spearman(total, head_importance.truths()[1].flatten()) > 0.9
