"""Orders beside random baselines, against counts by hand."""

import pytest
import torch

from mha_course.heads import controls


def test_what_can_go_by_chance_is_counted_order_by_order():
    table = torch.zeros(8)
    table[[7, 6]] = 1.0  # head 0 can go, and no other
    worth = controls.mean_worth(table, [torch.zeros(3)], draws=2000)
    assert worth["num_prunable"] == pytest.approx(1 / 3, abs=0.05)  # of the mean curve it would be none
    assert worth["area"] == pytest.approx((1 + 1 / 3) / 4)
