"""The models that ship are as good as is written beside them. (That training gives such models: test_claims_07.)"""

from pathlib import Path

import pytest
import torch
from torch.nn.utils import parameters_to_vector

import mha_course
from mha_course.models.heads_needed import SEEDS, heads_needed
from mha_course.models.neighbours import fit_neighbours, held_out_rows
from mha_course.models.shipped import filled, shipped_figures, shipped_model
from mha_lib.models.tasks import TASKS, find_task


def parameters(model):
    return parameters_to_vector(model.parameters()).detach()


@pytest.mark.parametrize("name", TASKS)
def test_a_shipped_model_is_as_good_as_its_figures_say(name):
    task, model, figures = find_task(name), shipped_model(name), shipped_figures(name)
    assert not model.training
    assert figures["parameters"] == len(parameters(model))
    assert (figures["seed"], figures["steps"]) == (0, task.steps)
    assert task.accuracy(model) == pytest.approx(figures["accuracy"], abs=0.003)
    assert task.exact_match(model) == pytest.approx(figures["exact_match"], abs=0.003)


def test_a_task_does_as_well_as_its_name():
    assert torch.equal(parameters(shipped_model(find_task("dates"))), parameters(shipped_model("dates")))


def test_a_changed_model_changes_no_later_one():
    first = shipped_model("digits")
    before = parameters(first)
    with torch.no_grad():
        first.output.weight.zero_()
    assert torch.equal(parameters(shipped_model("digits")), before)


def test_all_weights_take_less_than_950_kb():
    files = (Path(mha_course.__file__).with_name("models") / "weights").iterdir()
    assert 500_000 < sum(file.stat().st_size for file in files) < 950_000


@pytest.mark.cpu
def test_what_is_kept_of_models_with_many_heads_is_what_a_model_gives():
    kept = heads_needed()[2, 3]
    model = fit_neighbours(3, 2, seed=SEEDS[0])
    letters, truth = held_out_rows(2)
    for valid in (0, 5, 12):
        with torch.no_grad():
            answers = model(letters, torch.full((len(letters),), valid)).argmax(dim=-1)
        weights = model.attention.attention_weights
        torch.testing.assert_close(kept.weights(valid), weights[0], atol=0.02, rtol=0)
        assert (kept.answers[valid] == answers[0]).double().mean() > 0.9
        right = (answers == truth).all(dim=-1).double().mean().item()
        assert kept.accuracy[0, valid].item() == pytest.approx(right, abs=0.02)
    own = [
        weights[:, head, query, (query - shift) % 12].mean()
        for head in range(3)
        for shift in (1, -1)
        for query in range(12)
    ]
    means = torch.stack(own).reshape(3, 2, 12).mean(dim=-1)
    torch.testing.assert_close(kept.on_message, means, atol=0.02, rtol=0)


def test_weights_that_do_not_fit_are_named():
    model = torch.nn.Linear(3, 2)
    weights = {"weight": torch.zeros(2, 4), "scale": torch.zeros(1)}
    with pytest.raises(ValueError, match=r"weights of digits do not fit its model, in 3 places: .*\(2, 4\).*\(2, 3\)"):
        filled(model, weights, "digits")
    assert filled(model, dict(model.state_dict()), "digits") is model
