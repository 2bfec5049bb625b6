"""What the README says is there, and its code runs."""

import json
import re
import tomllib
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import distributed
import pytest
import torch

import mha_lib
from mha_course import heads, models
from mha_course.models import load_transformers
from tools import library_pages, readme_picture

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
LAYER, SWEEP, ANY_MODEL, RECIPE, TRAINER, JUDGE, LIVE = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


def test_the_code_of_the_readme_runs_and_its_comments_are_right():
    torch.manual_seed(0)
    namespace = {}
    exec(LAYER, namespace)
    layer, Y = namespace["layer"], namespace["Y"]
    assert Y.shape == (2, 10, 64) and layer.attention_weights.shape == (2, 4, 10, 10)
    assert layer.attention_weights[1, :, :, 6:].eq(0).all() and layer.attention_weights[0].gt(0).all()
    removed = Y - namespace["without_head_2"]
    assert removed.abs().max() > 1e-3
    heads = torch.linalg.lstsq(layer.W_o.weight, namespace["without_head_2"].reshape(-1, 64).T).solution
    assert heads[32:48].abs().max() < 1e-3


def test_the_line_that_draws_its_maps_saves_every_head(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"mha_lib": mha_lib}
    exec(LAYER, namespace)
    [line] = re.findall(r"`(mha_lib\.heatmaps\(.*?)`", README)
    exec(line, namespace)
    assert (tmp_path / "heads.pdf").read_bytes().startswith(b"%PDF")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert '`pip install ".[plots]"`' in README and project["optional-dependencies"]["plots"] == ["matplotlib"]


def test_the_heads_of_a_model_of_torchs_are_found(capsys):
    torch.manual_seed(0)
    namespace = {}
    exec(ANY_MODEL, namespace)
    found, model, example = namespace["found"], namespace["model"], namespace["example"]
    assert capsys.readouterr().out == f"{found}\n" and list(found.layers) == [f"layers.{n}.self_attn" for n in (0, 1)]
    assert namespace["weights"].shape == (2, 4, 10, 10)
    assert (model(example) - namespace["without_head_2"]).abs().max() > 1e-3


@pytest.mark.transformers
@pytest.mark.skipif(find_spec("transformers") is None, reason="transformers is not installed")
@pytest.mark.filterwarnings("ignore")  # what transformers says about its own future
def test_the_recipe_removes_heads_that_matter_less_than_random_ones(tmp_path, monkeypatch, capsys):
    assert len(RECIPE.splitlines()) <= 60
    load_transformers()
    monkeypatch.chdir(tmp_path)
    namespace = {}
    exec(RECIPE, namespace)
    small, again, ids, mask = (namespace[name] for name in ("small", "again", "ids", "mask"))
    inputs = dict(input_ids=ids, attention_mask=mask)
    with torch.no_grad():
        assert torch.equal(small(**inputs).logits, again(**inputs).logits)
        right = (again(**inputs).logits.argmax(dim=-1) == namespace["test"][:][2]).float().mean()
    assert right > 0.9 and sum(map(len, namespace["removal"].plan.values())) == 4
    printed = capsys.readouterr().out
    assert "random − ours" in printed and "4 of 8 heads go" in printed and "times as fast" in printed
    row = next(line for line in printed.splitlines() if line.startswith("4  "))
    ours, of_random_heads, gain = map(float, re.findall(r"(-?\d+\.\d+) \(", row))
    assert ours < of_random_heads and gain > 0, row
    if find_spec("accelerate") is None:
        return
    exec(TRAINER, namespace)
    assert namespace["fewer"].plan == namespace["removal"].plan and namespace["fewer"].plan.num_heads == 4
    with torch.no_grad():
        right = (namespace["small"](**inputs).logits.argmax(dim=-1) == namespace["test"][:][2]).float().mean()
    assert right > 0.9
    model, found, fewer = namespace["model"].eval(), namespace["found"], namespace["FewerHeads"](namespace["found"], 1)
    whole = model(**inputs).logits
    fewer.on_epoch_begin()
    first, without = fewer.plan, model(**inputs).logits
    fewer.on_epoch_end()
    with found.ablated(first):
        assert torch.equal(model(**inputs).logits, without) and not torch.equal(without, whole)
    assert torch.equal(model(**inputs).logits, whole)
    fewer.on_epoch_begin()
    model(**inputs)
    fewer.on_epoch_end()
    assert fewer.plan.num_heads == 2 and all({*off} <= {*fewer.plan[name]} for name, off in first.items())


def test_the_recipe_is_a_page_of_the_site_too(tmp_path):
    library_pages.write(tmp_path / "library")
    page = (tmp_path / "library" / "recipe.md").read_text(encoding="utf-8")
    assert re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL) == [RECIPE, TRAINER]
    assert "\nrecipe\n" in (tmp_path / "library" / "index.md").read_text(encoding="utf-8")


def test_torchs_layer_is_handed_to_the_judge_of_layers(capsys):
    namespace = {}
    exec(JUDGE, namespace)
    said = capsys.readouterr().out
    assert namespace["verdict"] and "The layer computes attention to keys and values, with biases." in said, said


def test_each_snippet_says_what_must_be_installed_for_it():
    snippets = LAYER, SWEEP, ANY_MODEL, RECIPE, TRAINER, JUDGE, LIVE
    asked = [snippet.splitlines()[0].removeprefix("# pip install ") for snippet in snippets]
    small_torch = " --extra-index-url https://download.pytorch.org/whl/cpu"
    needed = (".", ". ./mha_course distributed", ".", ". transformers", ". transformers accelerate", ". ./mha_course")
    needed += ('. "./mha_course[notebooks]"',)
    assert asked == [each + small_torch for each in needed]
    course = tomllib.loads((ROOT / "mha_course" / "pyproject.toml").read_text())["project"]
    assert "distributed" not in str(course["dependencies"]) and "anywidget" in str(course["optional-dependencies"])


def test_the_three_lines_send_every_seed_to_the_cluster(monkeypatch):
    class Client:
        def __init__(self, address):
            assert address == "tcp://scheduler:8786"

        def get_executor(self):
            return ThreadPoolExecutor()

    monkeypatch.setattr(distributed, "Client", Client)
    lookups = models.find_task("lookups")
    brief = [models.trained(lookups, seed, 2, progress=False) for seed in (0, 1)]
    monkeypatch.setattr(models, "trained", lambda task, seed: brief[seed])
    monkeypatch.setattr(type(lookups), "held_out", lookups.held_out[:8])
    namespace = {}
    exec(SWEEP.replace("range(500)", "range(2)"), namespace)
    for found, model in zip(namespace["results"], brief, strict=True):
        expected = heads.of(model, lookups.held_out.inputs).leave_one_out(lookups.loss_on(lookups.held_out))
        assert torch.equal(found.table, expected.table)


def test_the_live_picture_obeys_python_and_becomes_a_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {}
    exec(LIVE, namespace)
    assert namespace["explorer"].gates == [[1] * 6, [0] * 6]
    assert "<script" in (tmp_path / "heads.html").read_text(encoding="utf-8")


def test_the_map_names_every_notebook_with_its_minutes():
    rows = re.findall(r"^\| \d\d \| \[.*?\]\((notebooks/.*?)\) \| .* \| (\d+) \|$", README, flags=re.MULTILINE)
    notebooks = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "notebooks").glob("[0-9]*.ipynb"))
    assert sorted(path for path, _ in rows) == notebooks
    for path, minutes in rows:
        assert f"about {minutes} minutes" in (ROOT / path).read_text()


def test_every_make_command_of_the_readme_exists():
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    commands = re.findall(r"make ([a-z-]+)", "\n".join(re.findall(r"`[^`]+`|```.*?```", README, flags=re.DOTALL)))
    assert len(set(commands)) >= 6
    assert set(commands) <= set(targets)


def test_each_distribution_has_a_readme_and_a_licence_of_its_own():
    [example] = re.findall(r"```python\n(.*?)```", (ROOT / "mha_lib" / "README.md").read_text(), flags=re.DOTALL)
    assert example in LAYER
    assert (ROOT / "mha_course" / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()


def test_the_images_say_what_the_pictures_say_today():
    """If not: .venv/bin/python -m tools.readme_picture."""
    assert json.loads(readme_picture.WORDS.read_text(encoding="utf-8")) == readme_picture.words()
    films = list(readme_picture.FOLDER.glob("*.webp"))
    assert len(films) == 2 and all(film.stat().st_size <= readme_picture.MOST_BYTES for film in films)
