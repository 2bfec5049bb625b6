"""Training is reproducible, leaves the process as it was, and what is kept is noticed when it is wrong."""

import shutil

import pytest
import torch
from torch.nn.utils import parameters_to_vector

from mha_lib.models import training
from mha_lib.models.tasks import find_task
from mha_lib.models.training import fit, trained


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MHA_CACHE", str(tmp_path / "models"))
    return tmp_path / "models"


def parameters(model):
    return parameters_to_vector(model.parameters()).detach()


def short(seed=0, steps=3):
    return trained("digits", seed, steps=steps, progress=False)


def forbid_training(monkeypatch):
    def fail(*args, **kwargs):
        raise AssertionError("trained again")

    monkeypatch.setattr(training, "fit", fail)


def test_the_number_of_threads_changes_no_bit_and_is_not_changed():
    threads = torch.get_num_threads()
    try:
        models = []
        for number in (1, 2):
            torch.set_num_threads(number)
            models.append(parameters(fit("lookups", 0, steps=3, progress=False)))
            assert torch.get_num_threads() == number
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(*models)


def test_the_second_time_the_model_comes_from_the_cache(cache, monkeypatch):
    first = short()
    assert len(list(cache.iterdir())) == 1
    forbid_training(monkeypatch)
    second = short()
    assert torch.equal(parameters(first), parameters(second)) and not second.training


def test_seeds_and_steps_are_kept_apart(cache):
    models = [short(0), short(1), short(0, steps=4)]
    assert len(list(cache.iterdir())) == 3
    assert not torch.equal(parameters(models[0]), parameters(models[1]))
    assert not torch.equal(parameters(models[0]), parameters(models[2]))


def flipped(content, place):
    """The same bytes with one bit changed."""
    return content[:place] + bytes([content[place] ^ 1]) + content[place:][1:]


@pytest.mark.parametrize(
    "damage",
    [lambda content: flipped(content, 5), lambda content: flipped(content, 200),
     lambda content: flipped(content, -5), lambda content: content[:1000]],
    ids=["start", "middle", "end", "cut short"],
)  # fmt: skip
def test_a_damaged_file_is_noticed_and_made_anew(cache, capfd, damage):
    first = short()
    (file,) = cache.iterdir()
    file.write_bytes(damage(file.read_bytes()))
    second = trained("digits", 0, steps=3)
    assert "the kept model is damaged" in capfd.readouterr().err
    assert torch.equal(parameters(first), parameters(second))


def test_a_model_of_other_code_is_not_used(monkeypatch, capfd):
    short()
    monkeypatch.setattr(training, "code_key", lambda: "other")
    trained("digits", 0, steps=3)
    assert "the kept model came from other code" in capfd.readouterr().err


@pytest.mark.parametrize(
    "source", ["attention/pooling.py", "models/transformer.py", "models/tasks.py", "models/training.py"]
)
def test_the_key_changes_with_every_source(tmp_path, source):
    copy = shutil.copytree(training.PACKAGE, tmp_path / "mha_lib")
    assert training.code_key(copy) == training.code_key()
    with (copy / source).open("a") as file:
        file.write("#")
    assert training.code_key(copy) != training.code_key()


def test_a_write_that_fails_leaves_the_kept_model_whole(cache, monkeypatch):
    first = short()
    (file,) = cache.iterdir()

    def full(*args):
        raise OSError("no space left")

    monkeypatch.setattr(training.os, "replace", full)
    with pytest.raises(OSError, match="no space left"):
        training.save_state({}, file)
    monkeypatch.undo()
    monkeypatch.setenv("MHA_CACHE", str(cache))
    forbid_training(monkeypatch)
    assert torch.equal(parameters(short()), parameters(first))


def test_a_folder_that_cannot_be_written_costs_the_cache_not_the_model(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("MHA_CACHE", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match=r"the trained model is not kept .*MHA_CACHE"):
        model = short()
    assert torch.equal(parameters(model), parameters(fit("digits", 0, steps=3, progress=False)))


def test_tuning_goes_on_from_where_the_model_stands():
    task, model = find_task("digits"), fit("digits", 0, steps=3, progress=False)
    before = parameters(model)
    tuned = training.tune(model, task, 0, steps=1, learning_rate=1e-4, progress=False)
    assert tuned is model and not model.training
    assert 0 < (parameters(model) - before).abs().max() < 1e-4
