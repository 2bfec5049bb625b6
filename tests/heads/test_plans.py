"""Plans name the heads that go; random ones of the same shape beside them."""

import json
import pickle
import re

import pytest
import torch
from head_models import TASK
from test_found_measures import loader, made, stacked
from test_found_removal import made as grouped

from mha_course import heads
from mha_course.heads.measures import measured


def close(first, second):
    torch.testing.assert_close(first, second, rtol=0, atol=1e-7)  # maps are float32


def test_measures_of_maps_and_outputs_over_batches_are_those_of_all_examples():
    model, batch, found, loss = made()
    for measure in ("entropy", "output_norm", "confidence"):
        close(stacked(getattr(found, measure)(loss, loader(batch))), measured(model, batch, TASK, measure).cpu())


def test_shapley_values_are_those_of_all_sets_and_orders_come_close():
    model, batch, found, loss = made()
    table = heads.evaluate_all(model, batch, TASK, "mean").loss
    exact = found.shapley(loss, loader(batch), by="mean")
    close(stacked(exact).flatten(), heads.shapley(-table).cpu())
    sampled = found.shapley(loss, loader(batch), by="mean", num_orders=300)
    assert (stacked(sampled) - stacked(exact)).abs().max() < 0.15 * stacked(exact).abs().max()
    close(stacked(sampled).sum(), stacked(exact).sum())
    close(stacked(exact.each).mean(dim=-1), stacked(exact))


def test_a_plan_takes_the_least_important_heads_and_prints():
    _, _, found, _ = made()
    first, second = found.layers
    importance = {first: torch.tensor([3.0, 1.0, 5.0]), second: torch.tensor([2.0, 0.0, 0.5])}
    plan = found.plan(importance, remove=3)
    assert plan == {first: [1], second: [1, 2]} and plan.num_heads == 3
    assert (
        found.plan(importance, fraction=0.55)
        == plan
        == json.loads(json.dumps(plan))
        == pickle.loads(pickle.dumps(plan))
    )
    assert found.plan(importance, remove=4) == {first: [0, 1], second: [1, 2]}  # one of each layer stays
    assert found.plan(importance, remove=4, spare=0) == {first: [1], second: [0, 1, 2]}
    assert found.plan(importance, per_layer=1) == {first: [1], second: [1]}
    assert found.plan({second: importance[second]}, remove=1) == {second: [1]}
    assert found.plan(torch.stack([*importance.values()]), remove=3) == plan  # a table
    lines = repr(plan).splitlines()
    assert lines[0].startswith("layer  ") and re.split("  +", lines[2]) == [second, "1, 2", "0"]
    assert lines[-1] == "3 of 6 heads go"
    assert len({str(found.plan({first: torch.zeros(3)}, remove=1, seed=seed)) for seed in range(20)}) == 3


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({}, "give one of remove=, fraction= and per_layer=, got none"),
        ({"remove": 1, "fraction": 0.5}, "give one of .* got remove, fraction"),
        ({"remove": 0}, "remove=0 of 6 heads: there is nothing to remove"),
        ({"fraction": 0.1}, r"fraction=0\.1 of 6 heads: there is nothing to remove"),
        ({"fraction": 1.5}, r"fraction must be above 0 and at most 1, got 1\.5"),
        ({"remove": 5}, "remove=5: 5 heads cannot go from .*, since spare=1 leaves at most 4"),
        ({"per_layer": 3}, "per_layer=3: 3 heads cannot go from blocks.layer 0.attention, since spare=1 leaves at"),
    ],
)  # fmt: skip
def test_what_cannot_go_is_named(asked, why):
    _, _, found, _ = made()
    with pytest.raises(ValueError, match=why):
        found.plan({name: torch.rand(3) for name in found.layers}, **asked)
    with pytest.raises(ValueError, match=r"importance has unknown layers: elsewhere; there are blocks.layer 0"):
        found.plan({"elsewhere": torch.rand(3)}, remove=1)
    with pytest.raises(ValueError, match=r"importance of blocks.layer 0.attention must have shape \(3,\), got \(2,\)"):
        found.plan({"blocks.layer 0.attention": torch.rand(2)}, remove=1)


def test_heads_that_share_keys_go_in_whole_groups():
    _, _, found = grouped()
    importance = {"layers.0": torch.tensor([0.0, 9.0, 2.0, 1.0]), "layers.1": torch.tensor([4.0, 4.0, 8.0, 8.0])}
    plan = found.plan(importance, fraction=0.4)  # three heads; a group of two
    assert plan == {"layers.0": [2, 3]} and "(2, 3)" in repr(plan) and found.plan(importance, remove=2) == plan
    found.remove(plan)
    with pytest.raises(
        ValueError, match=r"remove=3: 3 heads cannot go from .*, since heads go by whole key-value groups"
    ):
        found.plan(importance, remove=3)
    draws = found.fair_draws({"layers.0": [2, 3], "layers.1": [0, 1]}, 30)
    assert {tuple(map(tuple, draw.values())) for draw in draws} == {
        ((0, 1), (0, 1)),
        ((0, 1), (2, 3)),
        ((2, 3), (2, 3)),
    }
    draws = found.fair_draws({"layers.0": [1, 3]}, 40)  # no whole groups
    assert len({tuple(draw["layers.0"]) for draw in draws}) == 5


def test_fair_draws_have_the_plans_shape_and_are_not_the_plan():
    _, _, found, _ = made()
    first, second = found.layers
    draws = found.fair_draws({first: [1], second: [0, 2]}, number=40, seed=1)
    assert len(draws) == 40 and all([len(draw[first]), len(draw[second])] == [1, 2] for draw in draws)
    assert len({str(draw) for draw in draws}) == 8 and {first: [1], second: [0, 2]} not in draws
    assert found.fair_draws({first: [1]}, 5, seed=1) == found.fair_draws({first: [1]}, 5, seed=1)
    with pytest.raises(ValueError, match="plan has no random counterpart"):
        found.fair_draws({first: [0, 1, 2]})
    with pytest.raises(ValueError, match="there is no layer 'elsewhere'"):
        found.fair_draws({"elsewhere": [0]})


def test_a_removal_is_compared_with_random_ones_by_example():
    model, batch, found, loss = made()
    first, second = found.layers
    importance = {first: torch.tensor([3.0, 1.0, 5.0]), second: torch.tensor([2.0, 0.0, 0.5])}
    comparison = found.compare(importance, loss, loader(batch), removals=[1, 3], draws=4, by="mean")
    assert comparison.plans == [{second: [1]}, {first: [1], second: [1, 2]}]
    whole = loss(model, loader(batch, 6)[0])
    with torch.no_grad(), found.ablated(comparison.plans[1], "mean"):
        without = loss(model, loader(batch, 6)[0])
    close(comparison.losses[1], without.double().cpu())
    close(found.rise(comparison.plans[1], loss, loader(batch), by="mean"), (without - whole).detach().double().cpu())
    draws = found.fair_draws(comparison.plans[1], 4)
    each = torch.stack([found.rise(draw, loss, loader(batch), by="mean") for draw in draws])
    close(comparison.random[1] - comparison.whole, each)
    row = comparison.rows()[1]
    assert row["removed"] == 3 and row["loss low"] < row["loss"] < row["loss high"]
    assert row["gain"] == pytest.approx((each.mean(dim=0) - (without - whole).detach().cpu()).mean().item())
    more = (each.mean(dim=1) > (without - whole).mean()).double().mean().item()
    assert row["draws that cost more"] == pytest.approx(more)
    assert len(repr(comparison).splitlines()) == 5 and f"{row['loss']:.3f} (" in repr(comparison)
    (axes,) = comparison.figure().axes
    for line, name in zip(axes.lines, ("random", "loss"), strict=True):
        assert [*line.get_ydata()[1:]] == [row[name] for row in comparison.rows()] and line.get_ydata()[0] < row["loss"]
    of_means = found.compare(importance, lambda model, part: loss(model, part).mean(), loader(batch, [6]), draws=2)
    assert "(" not in repr(of_means).splitlines()[2].split("  ")[1]  # one mean has no interval
