"""Measures with other signs, beside chance of their own shape, against counts by hand."""

import json

import pytest
import torch
from scipy import stats

from mha_course.heads import controls
from mha_course.heads.ablation import evaluate, evaluate_all
from mha_course.heads.coalitions import pruning_curve, shapley
from mha_course.heads.intervals import num_prunable
from mha_course.heads.measures import measured
from mha_course.models.tasks import find_task
from mha_course.models.training import trained
from research import league, signs

pytestmark = pytest.mark.cpu  # models are trained and kept by the library

LOSS = "leave one out, zero, loss"
FEW = {name: league.MEASURES[name] for name in ("gate gradient", "output norm", LOSS)}


@pytest.fixture(scope="module")
def found():
    return signs.controls(0, "lookups", num_examples=4, measures=FEW, steps=30)


@pytest.fixture(scope="module")
def cut():
    """The same model, with examples for measures and the table of the others."""
    task = find_task("lookups")
    model = trained(task, 0, 30, progress=False)
    return model, task.held_out[:4], task, evaluate_all(model, task.held_out[4:8], task).accuracy


def test_everything_is_there_and_can_be_kept(found):
    assert json.loads(json.dumps(found)) == found
    assert set(found["orders"]) == {"oracle", "greedy", "the layers alone", "random", "output norm",
                                    "gate gradient, taken again", f"{LOSS}, taken again"}  # fmt: skip
    assert {name: len(forms) for name, forms in found["forms"].items()} == {
        "gate gradient": 3, "path gradient": 3, LOSS: 2, "Shapley, exact": 2,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("form", "importance"),
    [
        (controls.SIGNED, lambda *of: measured(*of, "gate_gradient")),
        (controls.OF_EACH, lambda *of: measured(*of, "gate_gradient", signed=False)),
        (controls.OF_MEAN, lambda *of: measured(*of, "gate_gradient").abs()),
    ],
)
def test_a_form_is_cut_counted_and_compared_as_it_says(found, cut, form, importance):
    *model, table = cut
    order, row = importance(*model), found["forms"]["gate gradient"][form]
    curve = pruning_curve(table, order)
    assert (row["area"], row["num_prunable"]) == pytest.approx((curve.mean().item(), num_prunable(curve)))
    fair = shapley(evaluate_all(*model).accuracy)
    fair = fair if form == controls.SIGNED else fair.abs()
    assert row["spearman"] == pytest.approx(stats.spearmanr(order.flatten(), fair).statistic)
    assert found["negatives"]["gate gradient"] == (measured(*model, "gate_gradient") < 0).sum()


def test_chance_of_the_same_shape_cuts_as_many_heads_of_each_block(found, cut):
    *model, table = cut
    order = measured(*model, "leave_one_out")
    sizes = (order.flatten().argsort(descending=True) // 6).tolist()  # the block that each place belongs to
    areas = []
    for draw in range(300):  # the same heads of each block in another order
        heads = [(6 * block + torch.randperm(6, generator=torch.Generator().manual_seed(2 * draw + block))).tolist()
                 for block in range(2)]  # fmt: skip
        kept, curve = 0, [table[0]]
        for block in sizes:
            kept += 2 ** heads[block].pop()
            curve.append(table[kept])
        areas.append(torch.stack(curve).mean().item())
    row = found["forms"][LOSS][controls.SIGNED]
    spread = torch.tensor(areas).std().item()
    assert row["shaped_area"] == pytest.approx(sum(areas) / len(areas), abs=spread / 2)
    assert row["shaped_ahead"] == pytest.approx(sum(area > row["area"] for area in areas) / len(areas), abs=0.15)


def test_what_the_paths_add_up_to_stands_beside_what_is_due(found, cut):
    model, seen, task, _ = cut
    none, whole = evaluate(model, seen, task, torch.stack([torch.zeros(2, 6), torch.ones(2, 6)])).loss
    assert found["path_sums"]["due"] == pytest.approx((none - whole).item(), abs=1e-4)
    for steps in (20, 40):
        assert found["path_sums"][str(steps)] == pytest.approx(
            measured(model, seen, task, "integrated_gradients", steps=steps).sum().item()
        )
