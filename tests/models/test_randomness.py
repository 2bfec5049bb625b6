"""A training run is decided by its seed alone, and nothing that makes or loads a model moves the caller's numbers."""

from functools import partial

import pytest
import torch
from torch.nn.utils import parameters_to_vector

from mha_course.models import fit, fit_recurrent, shipped_model, shipped_recurrent, train_on_repeats, train_one_head
from mha_course.models.kept_layer import kept_layer
from mha_course.models.positional import shipped_positional_model, train_positional
from mha_course.models.pretrained import minilm
from mha_course.models.training import seeded

pytestmark = pytest.mark.cpu  # training runs of the library, bit for bit

RUNS = {"one head": train_one_head, "births": partial(train_on_repeats, progress=False)}


def inside(seed, of_generator):
    """Numbers that torch draws inside ``seeded``, or that its generator does, from which the examples come."""
    with seeded(seed) as generator:
        return torch.rand(5, generator=generator if of_generator else None)


TRAINS = {  # seed → numbers that tell two runs apart
    "torch": lambda seed: inside(seed, of_generator=False),
    "generator": lambda seed: inside(seed, of_generator=True),
    "fit": lambda seed: parameters_to_vector(fit("digits", seed, steps=3, progress=False).parameters()),
    "recurrent": lambda seed: parameters_to_vector(fit_recurrent(True, seed, steps=2).parameters()),
    "placed": lambda seed: parameters_to_vector(train_positional("learned", seed, steps=2).parameters()),
} | {name: lambda seed, train=train: train(seed, keep=[3]).maps for name, train in RUNS.items()}
LOADS = {
    "shipped": lambda: shipped_model("digits"),
    "recurrent": lambda: shipped_recurrent(attends=True),
    "placed": lambda: shipped_positional_model("none"),
    "MiniLM": minilm,
    "kept layer": kept_layer,
}


@pytest.mark.parametrize("train", TRAINS.values(), ids=TRAINS)
def test_all_randomness_comes_from_the_seed(train):
    torch.manual_seed(1)
    one = train(5)
    torch.manual_seed(2)
    before = torch.get_rng_state()
    again, other = train(5), train(6)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one, again) and not torch.equal(one, other)


@pytest.mark.parametrize("load", LOADS.values(), ids=LOADS)
def test_a_model_that_is_loaded_leaves_the_callers_random_numbers_as_they_were(load):
    before = torch.get_rng_state()
    try:
        load()
    except ImportError as error:
        pytest.skip(str(error))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("train", RUNS.values(), ids=RUNS)
def test_what_is_kept_does_not_change_the_run(train):
    one, other = train(5, keep=[0, 3]), train(5, keep=[3])
    assert torch.equal(one.maps[1], other.maps[0]) and one.losses[1] == other.losses[0]


@pytest.mark.parametrize("train", RUNS.values(), ids=RUNS)
@pytest.mark.parametrize("keep", [[], [-1, 2], [5, 5], [9, 2]], ids=str)
def test_steps_that_cannot_be_kept_are_named(train, keep):
    with pytest.raises(ValueError, match="keep must hold rising steps from 0 on, got"):
        train(keep=keep)
