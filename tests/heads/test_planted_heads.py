"""Planted heads change nothing, and cost what they are made to cost: here in models with random weights.

How much they cost trained models stands in mha_course/heads/results/heads.json, which test_claims_07.py reads.
"""

import pytest
import torch
from head_models import TASK, encoder, encoder_decoder, examples

from mha_course.heads.ablation import ablation_values, evaluate, head_grid
from mha_course.heads.measures import measured
from mha_course.heads.planted_heads import plant_heads


@pytest.fixture(scope="module", params=range(2))
def planted(request):
    """A model in float64, where rounding hides nothing, and the same model with planted heads."""
    model = encoder(seed=request.param)
    batch = examples(model, number=40)
    return model, batch, plant_heads(model, batch, TASK)


def score(planted, gone, ablation="zero"):
    """Outputs without some heads."""
    _, batch, found = planted
    gates = torch.ones(1, *head_grid(found.model))
    for place in gone:
        gates[0][place] = 0
    return evaluate(found.model, batch, TASK, gates, ablation_values(found.model, batch, ablation)).loss.item()


def test_planting_changes_nothing(planted):
    model, batch, found = planted
    with torch.no_grad():
        before, after = (one(batch.inputs, batch.valid_lens) for one in (model, found.model))
    torch.testing.assert_close(after, before, rtol=0, atol=1e-10)
    assert (head_grid(found.model), head_grid(model)) == ((2, 6), (2, 3))
    places = [*found.twins, *found.cancelling, found.dead, found.constant, found.unheard]
    assert len(set(places)) == 7 and sorted(head for _, head in set(places) - {found.twins[0]}) == [3, 3, 4, 4, 5, 5]


def test_twins_are_the_head_that_costs_most(planted):
    model, batch, found = planted
    costs = measured(model, batch, TASK, "leave_one_out", "accuracy")
    original = found.twins[0]
    assert costs[original] == costs.max()
    gates = torch.ones(2, 3)
    gates[original] = 0
    without_both = score(planted, found.twins)
    assert without_both == pytest.approx(evaluate(model, batch, TASK, gates[None]).loss.item())
    gates[original] = 0.5
    half = evaluate(model, batch, TASK, gates[None]).loss.item()
    assert [score(planted, [twin]) for twin in found.twins] == pytest.approx([half, half])


def test_neither_of_the_cancelling_pair_can_go_but_both_can(planted):
    _, _, found = planted
    whole = score(planted, [])
    assert score(planted, found.cancelling) == pytest.approx(whole, abs=1e-10)
    assert min(abs(score(planted, [one]) - whole) for one in found.cancelling) > 1e-3


def test_dead_and_unheard_heads_can_go(planted):
    _, batch, found = planted
    whole = score(planted, [])
    assert score(planted, [found.dead]) == pytest.approx(whole, abs=1e-12)
    assert score(planted, [found.unheard]) == pytest.approx(whole, abs=1e-10)
    norms = measured(found.model, batch, TASK, "output_norm")
    assert norms[found.dead] == 0
    assert norms[found.unheard] > 1
    sure = measured(found.model, batch, TASK, "confidence")
    assert sure[found.dead] > sure[found.dead[0], 0]  # the head that it copies


def test_the_constant_head_can_go_only_if_its_mean_stays(planted):
    _, _, found = planted
    whole = score(planted, [])
    assert abs(score(planted, [found.constant]) - whole) > 1e-3
    assert score(planted, [found.constant], "mean") == pytest.approx(whole, abs=1e-10)


def test_the_seed_decides_what_is_planted():
    model = encoder()
    batch = examples(model)
    one, same, other = (plant_heads(model, batch, TASK, seed).model.state_dict() for seed in (0, 0, 1))
    name = "blocks.layer 0.attention.W_o.weight"
    assert torch.equal(one[name], same[name]) and not torch.equal(one[name], other[name])


def test_a_model_of_three_blocks():
    model = encoder_decoder()
    with pytest.raises(ValueError, match="model must have two blocks, got 3: encoder, decoder, cross"):
        plant_heads(model, examples(model), TASK)
