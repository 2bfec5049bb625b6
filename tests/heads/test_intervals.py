"""Intervals cover what they should, and a curve says how many heads can go."""

import pytest
import torch

from mha_course.heads import controls, mean_and_ci95, num_prunable
from mha_course.heads.intervals import quantile


@pytest.mark.parametrize(("freedom", "table"), [(3, 3.182), (7, 2.365), (15, 2.131), (29, 2.045)])
def test_quantiles_are_those_of_the_tables(freedom, table):
    assert quantile(freedom) == pytest.approx(table, rel=0.01)


def test_an_interval_covers_the_mean_in_95_of_100_samples():
    samples = 3 + 2 * torch.randn(2000, 6, generator=torch.Generator().manual_seed(0))
    covered = [low < 3 < high for _, low, high in map(mean_and_ci95, samples)]
    assert 0.93 < sum(covered) / len(covered) < 0.97


def test_too_few_values_are_refused():
    with pytest.raises(ValueError, match=r"four numbers or more in one row, got shape \(3,\)"):
        mean_and_ci95(torch.ones(3))


def test_heads_can_go_until_a_point_is_lost():
    curve = torch.tensor([0.1, 0.995, 0.7, 0.99, 0.985, 0.99])  # with one head it would do again, but not with two
    assert num_prunable(curve) == 2
    assert num_prunable(curve, points=0.4) == 0
    assert num_prunable(curve, points=30) == 4
    assert num_prunable(torch.ones(4)) == 3


def test_what_can_go_by_chance_is_counted_order_by_order():
    table = torch.zeros(8)
    table[[7, 6]] = 1.0  # head 0 can go, and no other
    worth = controls.mean_worth(table, [torch.zeros(3)], draws=2000)
    assert worth["num_prunable"] == pytest.approx(1 / 3, abs=0.05)  # of the mean curve it would be none
    assert worth["area"] == pytest.approx((1 + 1 / 3) / 4)
