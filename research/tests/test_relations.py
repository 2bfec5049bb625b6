"""Agreement is asked for within each block, and exact references add up."""

import pytest
import torch

from mha_course import heads
from mha_course.models import find_task, shipped_model
from research.relations import MEASURES, agreement_within, exact_references, interaction_report


def test_agreement_is_asked_for_in_each_block_alone():
    reference = torch.tensor([[10.0, 11, 12], [1, 2, 3]])
    measure = torch.tensor([[1.0, 2, 3], [30, 20, 10]])
    assert agreement_within({"one": measure}, reference) == {"one": [pytest.approx(1), pytest.approx(-1)]}


def test_each_reference_adds_up_to_its_own_score():
    """What all heads add to the accuracy, or take from the loss, where absent ones are replaced in that way."""
    task = find_task("lookups")
    model, batch = shipped_model("lookups"), task.held_out[:16]
    none_and_all = torch.stack([torch.zeros(2, 6), torch.ones(2, 6)])
    references = exact_references(model, batch, task)
    for ablation in ("zero", "mean", "resample"):
        scores = heads.evaluate(model, batch, task, none_and_all, heads.ablation_values(model, batch, ablation))
        for score, (without, whole) in (("accuracy", scores.accuracy), ("loss", -scores.loss)):
            assert references[f"{score}, {ablation}"].sum().item() == pytest.approx((whole - without).item(), abs=1e-6)
    assert len(references) == 6


@pytest.mark.cpu
@pytest.mark.slow
def test_relations_hold_all_of_it(tmp_path, monkeypatch):
    monkeypatch.setenv("MHA_CACHE", str(tmp_path))
    found = interaction_report(0, num_examples=16, steps=30)
    assert found["seed"] == 0 and set(found["across"]) == set(found["within"]) == set(MEASURES)
    assert len(found["references"]) == 5 and all(-1 <= value <= 1 for value in found["references"].values())
    assert all(len(rows) == 2 for rows in found["within"].values()) and len(found["later"]["frozen"]) == 6
