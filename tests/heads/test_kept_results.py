"""Kept results are what the commands that make them wrote."""

import pytest
import torch

from benchmarks import pruning_speed
from mha_course.heads import coalitions, kept_results
from mha_course.heads.controls import OF_EACH, SIGNED
from mha_course.heads.intervals import num_prunable


def test_the_speeds_are_those_of_the_cuts_that_the_benchmark_makes():
    kept = [(row["shape"], row["kept"]) for row in kept_results.load_results("pruning_speed")]
    assert kept == [(str(cell), num_kept) for cell, num_kept in pruning_speed.CUTS]


def test_unknown_results_are_refused():
    names = "heads, pruning_speed, births, packing, head_writes, places, sinks, real_heads, next_word, fresh_texts, "
    with pytest.raises(ValueError, match=f"name must be one of {names}streaming, repair, writing_speed, got 'speed'"):
        kept_results.load_results("speed")


@pytest.mark.parametrize("task", ["lookups", "dates"])
def test_columns_of_small_models_are_those_of_the_same_models_however_they_were_measured(task):
    models = kept_results.SmallModelResults(task)
    for order in ("gate gradient", "path gradient", "leave one out, zero, loss", "output norm", "Shapley, exact"):
        controlled = [
            result["forms"][order][OF_EACH if order == "gate gradient" else SIGNED]
            if order in result["forms"]
            else result["orders"][order]
            for result in models.controlled
        ]
        areas = [result["orders"][order]["area"] for result in models.compared]
        assert models.column(order).tolist() == pytest.approx(areas)
        assert areas == pytest.approx([row["area"] for row in controlled], abs=2e-4)  # another run, the same models
        curves = torch.tensor([result["orders"][order]["curve"] for result in models.compared])
        if order != "leave one out, zero, loss":  # kept curves are rounded
            assert models.column(order, "num_prunable").tolist() == [num_prunable(curve) for curve in curves]
    signed = [result["forms"]["gate gradient"][SIGNED]["area"] for result in models.controlled]
    assert models.column("gate gradient", form=SIGNED).tolist() == pytest.approx(signed)
    assert "the layers alone" in models.orders and len(models.column("the layers alone")) == 30


@pytest.mark.cpu
def test_losses_of_cuts_stand_above_the_whole_model_text_by_text():
    cuts = kept_results.LanguageModelResults()
    order, kind = f"gate gradient | {OF_EACH}", "free"
    expected = torch.tensor(cuts.real["cuts"][order]["54"]) - torch.tensor(cuts.real["of all"]["all"])
    torch.testing.assert_close(cuts.lost(order, 54), expected)
    draws = torch.tensor([draw["54"] for draw in cuts.real["chance"][kind]]) - torch.tensor(cuts.real["of all"]["all"])
    torch.testing.assert_close(cuts.drawn(kind, 54), draws.mean(dim=1))
    torch.testing.assert_close(cuts.drawn(cuts.real["chance"][kind], 54), draws.mean(dim=1))
    threshold = draws.mean(dim=1).sort().values[6:8].mean()  # between two draws
    cuts.real["cuts"]["between"] = {"54": (cuts.whole + threshold).tolist()}
    assert cuts.better(kind, "between", 54) == 7
    assert coalitions.ranks(torch.tensor(cuts.real["costs on prose"]["mean"])).max() == 270
