"""What the exercises of 07 take for true: the fair shares, and the importance of heads in the small models."""

import itertools

import pytest
import torch

from mha_lib import heads
from mha_lib.exercises import fair_shares, head_importance, own_importance


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


@pytest.mark.parametrize(
    ("shares", "words"),
    [
        ([40, 20, 20], "in per cent"),
        ([20, 0, 30], "add up to 50.00: they look like per cent"),
        ([0.2, 0.2, 0.4], "not in the order A, B, C"),
        ([0.5, 0.1, 0.2], "in 3 of the orders, as in ABC, BAC, CAB."),  # (0.5, 0, 0.3), (0.2, 0.3, 0.3), (0.8, 0, 0)
        ([0.35, 0.15, 0.3], "in 2 of the orders, as in ABC, BAC."),
    ],
)
def test_shares_that_are_right_in_their_way_are_told_what_they_are(shares, words):
    assert words in fair_shares(shares).text


def test_the_truth_is_the_mean_over_orders():
    model, _, unseen = head_importance.small_models()[1]
    table = heads.evaluate_all(model, unseen, head_importance.TASK).accuracy
    total = torch.zeros(8, dtype=torch.float64)
    for order in list(itertools.permutations(range(8)))[::97]:
        sets = torch.tensor([0, *itertools.accumulate(2**head for head in order)])
        total[list(order)] += table[sets].diff()
    assert heads.spearman(total, head_importance.truths()[1].flatten()) > 0.9


def half_out(model, batch, task):
    """As leave-one-out, but the head only goes half."""
    halves = torch.ones(8, 8).fill_diagonal_(0.5).view(8, *head_importance.SHAPE)
    costs = [task.accuracy(model, batch) - task.accuracy(model, batch, gates) for gates in halves]
    return torch.tensor(costs).view(head_importance.SHAPE)


def with_means(model, batch, task):
    return heads.leave_one_out(model, batch, task, "mean")


def test_a_weak_measure_is_asked_in_whose_company_it_asks_and_told_what_it_is_close_to():
    near, far = own_importance(half_out).text, own_importance(with_means).text
    assert "Its order is nearly that of leave-one-out (rank correlation 0.97)" in near and "nearly" not in far
    assert "In whose company does it ask" in near and "In whose company does it ask" in far
