"""Training is reproducible, leaves the process as it was, and what is kept is noticed when it is wrong."""

import copy
import pickle
import shutil

import pytest
import torch
from torch.nn.utils import parameters_to_vector

from mha_course.models import training
from mha_course.models.tasks import Digits, find_task
from mha_course.models.training import fit, trained
from mha_course.models.transformer import Encoder, PatchEmbedding

pytestmark = pytest.mark.cpu  # training runs of the library, bit for bit, and their files


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


class Wide(Digits):
    """A task with the name of another, and a model of its own."""

    def model(self):
        return Encoder(PatchEmbedding(4, 16, num_hiddens=24), num_hiddens=24, num_outputs=10, num_heads=3)


def with_learning_rate(task, learning_rate):
    changed = copy.copy(task)
    changed.learning_rate = learning_rate
    return changed


@pytest.mark.parametrize(
    "task", [with_learning_rate(find_task("digits"), 1e-9), Wide()], ids=["learning rate", "model"]
)
def test_a_task_that_is_not_the_librarys_is_trained_as_it_is_and_not_kept(cache, task):
    short()
    model = trained(task, 0, 3, progress=False)
    assert torch.equal(parameters(model), parameters(fit(task, 0, 3, progress=False)))
    assert not torch.equal(parameters(model), parameters(short()))
    assert len(list(cache.iterdir())) == 1


def test_a_copy_of_a_task_shares_its_kept_model(monkeypatch):
    task = find_task("digits")
    assert len(task.held_out) == 360  # a copy has its data, too
    model = short()
    forbid_training(monkeypatch)
    assert torch.equal(parameters(trained(pickle.loads(pickle.dumps(task)), 0, 3)), parameters(model))


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


@pytest.fixture
def library(tmp_path):
    """A copy of both packages' code, whose files a test may change."""
    for package in training.PACKAGES:
        ignored = shutil.ignore_patterns("weights", "results", "fonts", "sentences")
        shutil.copytree(training.HOME / package, tmp_path / package, ignore=ignored)
    return tmp_path


def edit(file, old, new):
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new, 1), encoding="utf-8")


@pytest.mark.parametrize(
    "source, old, new",
    [
        ("mha_lib/attention/multi_head.py", "num_heads: int", "num_heads: float"),
        ("mha_lib/attention/pooling.py", "return", "return 2 *"),
        ("mha_course/models/transformer.py", "num_layers: int = 2", "num_layers: int = 3"),
        ("mha_course/models/tasks.py", "learning_rate = 6e-3", "learning_rate = 5e-3"),
        ("mha_course/models/training.py", "betas=(0.9, 0.98)", "betas=(0.9, 0.99)"),
    ],
)
def test_a_changed_number_anywhere_in_what_is_trained_gives_another_key(library, source, old, new):
    edit(library / source, old, new)
    assert training.code_key(library) != training.code_key()


def test_comments_docstrings_and_files_that_no_training_uses_leave_the_key_as_it_is(library):
    for file in [*library.glob("*/attention/*.py"), *library.glob("*/models/*.py")]:
        edit(file, '"""', '"""In other words: ')
        with file.open("a", encoding="utf-8") as end:
            end.write("\n# a comment\n")
    edit(library / "mha_course" / "models" / "smollm2.py", "576", "575")
    assert training.code_key(library) == training.code_key()


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
    task, model = with_learning_rate(find_task("digits"), 1e-4), fit("digits", 0, steps=3, progress=False)
    before = parameters(model)
    tuned = training.finetune(model, task, 0, steps=1, progress=False)
    assert tuned is model and not model.training
    assert 0 < (parameters(model) - before).abs().max() < 1e-4
