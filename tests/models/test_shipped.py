"""The models that ship are as good as is written beside them. (That training gives such models: test_claims_07.)"""

from pathlib import Path

import pytest
import torch
from torch.nn.utils import parameters_to_vector

import mha_course
from mha_course.models.heads_needed import SEEDS, accuracy, accuracy_by_seed, trained_neighbours
from mha_course.models.neighbours import fit_neighbours, held_out_rows
from mha_course.models.shipped import filled, shipped_figures, shipped_model
from mha_course.models.tasks import TASKS, find_task


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


def test_all_weights_take_less_than_1020_kb():
    files = (Path(mha_course.__file__).with_name("models") / "weights").iterdir()
    assert 500_000 < sum(file.stat().st_size for file in files) < 1_020_000


@pytest.mark.cpu
def test_a_shipped_model_of_neighbours_is_the_one_that_training_gives():
    model, letters = fit_neighbours(2, num_messages=4, seed=SEEDS[0]), held_out_rows(4)
    kept = trained_neighbours(2)
    with torch.no_grad():
        agree = (model(letters[0]).argmax(dim=-1) == kept(letters[0]).argmax(dim=-1)).double().mean()
    assert agree > 0.95 and not kept.training
    assert accuracy(kept, *letters) == pytest.approx(accuracy_by_seed()[2][0].item(), abs=0.01)
    with pytest.raises(ValueError, match=r"num_heads must be one of \[1, 2, 3, 4, 6, 8, 12\], got 5"):
        trained_neighbours(5)


def test_gates_and_lengths_reach_the_answer_of_a_model_of_neighbours():
    model, (letters, truth) = trained_neighbours(4), held_out_rows(4)
    gates = torch.tensor([1.0, 0, 1, 1])
    with torch.no_grad():
        named = model(letters, torch.full((len(letters),), 9), gates).argmax(dim=-1)
    assert accuracy(model, letters, truth, 9, gates) == (named == truth).all(dim=-1).double().mean().item() < 0.3
    assert accuracy(model, letters, truth) == 1


def test_weights_that_do_not_fit_are_named():
    model = torch.nn.Linear(3, 2)
    weights = {"weight": torch.zeros(2, 4), "scale": torch.zeros(1)}
    with pytest.raises(ValueError, match=r"weights of digits do not fit its model, in 3 places: .*\(2, 4\).*\(2, 3\)"):
        filled(model, weights, "digits")
    assert filled(model, dict(model.state_dict()), "digits") is model
