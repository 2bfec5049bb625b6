"""The bug museum, notebook 10: its matrix is what the text claims, and every bug can be repaired in its room."""

import contextlib
import inspect
import io
import re

import pytest
import torch
from notebook_tools import ROOT, code, make_notebooks, output_of, run_cells

from mha_course.exercises import check_layer
from mha_course.models import find_task, shipped_model
from mha_course.museum import bugs, decoding_layer, decoding_tests, editable_layer, layer_tests

pytestmark = pytest.mark.xdist_group("museum")  # one process runs the notebook, once

NOTEBOOK = make_notebooks.read(ROOT / "notebooks" / "10_bug_museum.ipynb")
CODE = code(NOTEBOOK)
ROOMS, CLEAN, WITH_CACHE = range(1, 18), 12, range(13, 18)
BUGS = [number for number in ROOMS if number != CLEAN]
PANEL = {number: decoding_tests.TESTS if number in WITH_CACHE else layer_tests.TESTS for number in ROOMS}
ZEROS_FOR_PADDING = "torch.softmax(scores.masked_fill(~valid, -1e9), dim=-1) * valid"
REPAIRS = {  # number of the room → source that is replaced, old → new
    1: {"torch.softmax(scores * valid, dim=-1)": ZEROS_FOR_PADDING},
    2: {"torch.softmax(scores, dim=-1) * valid": ZEROS_FOR_PADDING},
    3: {"num_hiddens**-0.5": "(num_hiddens // num_heads) ** -0.5"},
    4: {
        "Q @ K.transpose(-2, -1)": "Q @ K.transpose(-2, -1) * Q.shape[-1] ** -0.5",
        " * (self.W_q.out_features // self.num_heads) ** -0.5": "",
    },
    5: {"dim=2": "dim=-1"},
    6: {"torch.softmax(scores.masked_fill(~valid, -math.inf), dim=-1)": ZEROS_FOR_PADDING},
    7: {
        "X.reshape(batch_size, self.num_heads, number, size // self.num_heads)": (
            "X.reshape(batch_size, number, self.num_heads, size // self.num_heads).transpose(1, 2)"
        ),
        "X.reshape(X.shape[0], X.shape[2], -1)": "X.transpose(1, 2).flatten(2)",
    },
    8: {"X.reshape(": "X.transpose(1, 2).flatten(2).reshape("},
    9: {"valid_lens.repeat(": "valid_lens.repeat_interleave("},
    10: {
        "(queries @ W.T).unflatten(-1, (-1, 3))": "(queries @ W.T).chunk(3, dim=-1)",
        "packed.unbind(-1)": "packed",
    },
    11: {"if self.valid is None or self.valid.shape != shape:": "if True:"},
    13: {
        "torch.arange(num_old, num_old + num_new)": "torch.arange(num_old + num_new)",
        "        real = torch.nn.functional.pad(real, (num_old, 0), value=True)\n": "",
    },
    14: {"places.to(X.dtype)": "places"},
    15: {
        "        K = self.rotate(K, torch.arange(K.shape[2]))\n": "",
        "        if self.cache:": "        K = self.rotate(K, places)\n        if self.cache:",
    },
    16: {"X[:len(rows)]": "X[rows]"},
    17: {
        "        for X in self.cache:\n            X[:, :, kept:] = 0": (
            "        self.cache = tuple(X[:, :, :kept] for X in self.cache)"
        ),
    },
}


@pytest.fixture(scope="module", autouse=True)
def each_class_once():
    """The tests run here, and once on each class: they find the same each time, as ``test_layer_tests`` shows."""
    reports, run = {}, layer_tests.run

    def once(implementation, tests=layer_tests.TESTS):
        if (key := (implementation, id(tests))) not in reports:
            reports[key] = run(implementation, tests)
        return reports[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mha_course.checking.running.can_fork", lambda: False)
        patch.setattr(layer_tests, "run", once)
        yield


@pytest.fixture(scope="module")
def museum(each_class_once):
    """What the notebook's cells define, after all of them have run in order; they also print."""
    with contextlib.redirect_stdout(io.StringIO()):
        return run_cells(NOTEBOOK)


def cell_of(name):
    """The one cell that defines a class."""
    (cell,) = [cell for cell in CODE if re.search(rf"(?m)^class {name}\b", cell.source)]
    return cell


def defined(museum, source, name):
    """The class that the source defines among the museum's names."""
    namespace = dict(museum)
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(source, name, "exec"), namespace)
    return namespace[name]


@pytest.mark.parametrize("number", ROOMS)
def test_a_room_shows_nothing_of_what_the_panel_finds_in_it_until_one_has_guessed(museum, number):
    assert output_of(cell_of(f"Room{number}")) == "shape test: passes\nYour prediction: …"
    (cell,) = [cell for cell in CODE if cell.source.startswith(f"bugs.reveal({number}, ")]
    assert output_of(cell).endswith(repr(layer_tests.run(museum[f"Room{number}"], PANEL[number])))
    (output,) = cell.outputs
    assert output.data["text/html"].startswith("<details><summary>The answer</summary>")
    assert cell_of(f"Room{number}").source.endswith(f"\nbugs.guess({number})")
    source = cell_of(f"Room{number}").source.rpartition("\n\n")[0]
    assert len([line for line in source.splitlines() if line.strip()]) <= 10


@pytest.mark.parametrize("number", BUGS)
def test_what_is_to_be_repaired_is_the_exhibit_and_it_can_be_repaired(museum, number):
    exhibit, mended = (cell_of(f"{name}{number}") for name in ("Room", "Repaired"))
    parts = [cell.source.split("\n\n") for cell in (exhibit, mended)]
    assert [part.replace("Repaired", "Room") for part in parts[1][:-1]] == parts[0][:-1]
    assert output_of(mended) == f"… Not yet. {bugs.SAME}"
    source = mended.source
    for old, new in REPAIRS[number].items():
        assert source.count(old) == 1
        source = source.replace(old, new)
    repaired = defined(museum, source, f"Repaired{number}")
    assert layer_tests.run(repaired, PANEL[number]).caught_by == []
    assert issubclass(repaired, decoding_layer.DecodingLayer if number in WITH_CACHE else editable_layer.Layer)
    assert bugs.check_fix(museum[f"Room{number}"], repaired, PANEL[number])


def test_the_ways_to_hand_over_a_layer_are_those_of_the_docstring():
    (text,) = [cell.source for cell in NOTEBOOK.cells if "six more ways to hand over a layer" in cell.source]
    recipes = [" ".join(code.split()) for code in re.findall(r"(?m)^\| [^|]+ \| `(.+)` \|$", text)]
    told = " ".join(line for line in inspect.getdoc(check_layer).splitlines() if not line.lstrip().startswith("#"))
    assert len(recipes) == 6 and all(recipe in " ".join(told.split()) for recipe in recipes)


def test_what_gets_past_the_panel_is_wrong(museum):
    (folded,) = [cell.source for cell in NOTEBOOK.cells if "<summary>Two bugs that pass<" in cell.source]
    looks = {"size": 10}, {"num_tokens": 60}
    for source, look in zip(re.findall(r"(?s)```python\n(.*?)```", folded), looks, strict=True):
        smuggled = defined(museum, source, "Smuggled")
        assert layer_tests.verdict(smuggled)
        assert museum["night_watch"](smuggled) == "right" and museum["night_watch"](smuggled, **look) == "WRONG"


def test_what_is_wrong_is_folded_away_and_a_table_says_where_it_was_found():
    folded = [cell.source for cell in NOTEBOOK.cells if cell.source.startswith("<details><summary>What is wrong")]
    for number, text in zip(ROOMS, folded, strict=True):
        assert f"What is wrong in room {number}<" in text and text.endswith("</details>")
    (table,) = [cell.source for cell in NOTEBOOK.cells if cell.source.startswith("| room | found in |")]
    assert [int(number) for number in re.findall(r"(?m)^\| (\d+) \| \[", table)] == BUGS


def test_the_first_two_layers_cannot_be_told_apart_by_what_the_caption_says(museum):
    for layer, right in ((museum["right"], True), (museum["wrong"], False)):
        weights = layer.attention_weights[0]
        assert torch.allclose(weights.sum(-1), torch.ones(4, 6)) and not weights[..., 4:].any()
        assert (layer_tests.run(type(layer)).caught_by == []) is right


def test_the_split_of_room_7_leaves_a_trained_model_little_more_than_no_head_does():
    task, model = find_task("lookups"), shipped_model("lookups")
    without = task.accuracy(model, head_mask=torch.zeros(2, 6))
    for layer in model.attentions:
        h, W_q, W_k, W_v, W_o = layer.num_heads, layer.W_q, layer.W_k, layer.W_v, layer.W_o

        def in_pieces(X, *_, h=h, maps=(W_q, W_k, W_v), W_o=W_o):
            Q, K, V = (W(X).reshape(len(X), h, X.shape[1], -1) for W in maps)
            heads = torch.softmax(Q @ K.mT / Q.shape[-1] ** 0.5, dim=-1) @ V
            return W_o(heads.transpose(1, 2).flatten(2))

        layer.forward = in_pieces
    text = "\n".join(cell.source for cell in NOTEBOOK.cells)
    assert f"lowers the accuracy to {task.accuracy(model):.3f}, little more than the {without:.3f} without" in text
