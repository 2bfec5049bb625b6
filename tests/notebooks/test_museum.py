"""The bug museum, notebook 09: its matrix is what it says, and every bug can be mended where it hangs."""

import contextlib
import io
import re

import pytest
from notebook_tools import ROOT, code, make_notebooks, run_cells

from mha_lib.exercises import editable_layer, layer_tests

NOTEBOOK = make_notebooks.read(ROOT / "notebooks" / "09_bug_museum.ipynb")
CODE = code(NOTEBOOK)
NUM_BUGS = 11
BUGS = range(1, NUM_BUGS + 1)
WITHOUT_ANSWER = ("token perturbation", "gradient", "ragged batch")

ZEROS_FOR_PADDING = "torch.softmax(scores.masked_fill(~valid, -1e9), dim=-1) * valid"
REPAIRS = {  # number of the room → source that is replaced, old → new
    1: {
        "X.reshape(batch_size, self.num_heads, number, size // self.num_heads)": (
            "X.reshape(batch_size, number, self.num_heads, size // self.num_heads).transpose(1, 2)"
        ),
        "X.reshape(X.shape[0], X.shape[2], -1)": "X.transpose(1, 2).flatten(2)",
    },
    2: {"torch.softmax(scores * valid, dim=-1)": ZEROS_FOR_PADDING},
    3: {"num_hiddens**-0.5": "(num_hiddens // num_heads) ** -0.5"},
    4: {"X.reshape(": "X.transpose(1, 2).flatten(2).reshape("},
    5: {"valid_lens.repeat(": "valid_lens.repeat_interleave("},
    6: {"Q.unsqueeze(-2) + K.unsqueeze(-3)": "torch.tanh(Q.unsqueeze(-2) + K.unsqueeze(-3))"},
    7: {"dim=2": "dim=-1"},
    8: {"torch.softmax(scores, dim=-1) * valid": ZEROS_FOR_PADDING},
    9: {"torch.softmax(scores.masked_fill(~valid, -math.inf), dim=-1)": ZEROS_FOR_PADDING},
    10: {
        "self.attention_weights = self.dropout(weights)": "self.attention_weights = weights",
        "merge_heads(self.attention_weights @ V)": "merge_heads(self.dropout(weights) @ V)",
    },
    11: {"nn.Dropout()": "nn.Dropout(dropout)"},
}


@pytest.fixture(scope="module")
def museum():
    """What the notebook's cells define, after all of them have run in order; they also print."""
    with contextlib.redirect_stdout(io.StringIO()):
        return run_cells(NOTEBOOK)


def cell_of(name):
    """The one cell that defines a class."""
    (cell,) = [cell for cell in CODE if re.search(rf"(?m)^class {name}\b", cell.source)]
    return cell


def output_of(cell):
    """The text that the committed notebook shows below a cell."""
    return "".join(output.get("text", "") + output.get("data", {}).get("text/plain", "") for output in cell.outputs)


def caught(matrix, test):
    return [room for room, tests in matrix.items() if tests[test]]


def test_the_random_reference_catches_every_bug_and_nothing_else(museum):
    assert caught(museum["matrix"], "random reference") == [f"room {number}" for number in BUGS]


def test_shape_catches_none_and_the_round_trip_one(museum):
    assert caught(museum["matrix"], "shape") == []
    assert caught(museum["matrix"], "round trip") == ["room 4"]


def test_the_last_room_is_clean(museum):
    assert list(museum["matrix"]) == [f"room {number}" for number in range(1, NUM_BUGS + 2)]
    assert not any(museum["matrix"][f"room {NUM_BUGS + 1}"].values())


def test_each_test_but_shape_catches_something(museum):
    assert [len(caught(museum["matrix"], test)) for test in layer_tests.TESTS] == [0, 1, 4, 11, 7, 2, 5]


def test_what_the_summary_says_of_tests_that_need_no_right_answer(museum):
    together = {room for test in WITHOUT_ANSWER for room in caught(museum["matrix"], test)}
    assert len(together) == len(museum["seen"]) == 8
    assert (
        "Without a reference, token perturbation, gradient and a ragged batch catch eight." in NOTEBOOK.cells[-1].source
    )


def test_what_is_said_of_a_reference_on_easy_input(museum):
    plain = [name for name, room in museum["rooms"].items() if not museum["plain_reference"](room)]
    assert plain == ["room 1", "room 3", "room 4", "room 6", "room 7"]


def test_the_matrix_that_is_printed_is_the_one_that_was_found(museum):
    (cell,) = [cell for cell in CODE if "layer_tests.matrix(" in cell.source]
    again = layer_tests.matrix({f"room {number}": museum[f"Room{number}"] for number in range(1, NUM_BUGS + 2)})
    assert museum["matrix"] == again
    assert output_of(cell) == f"Bugs and tests:\n{layer_tests.as_text(again)}\n"


@pytest.mark.parametrize("number", range(1, NUM_BUGS + 2))
def test_a_room_shows_what_the_panel_finds_in_it(museum, number):
    assert output_of(cell_of(f"Room{number}")) == "shape test: passes\n"
    (cell,) = [cell for cell in CODE if cell.source == f"layer_tests.run(Room{number})"]
    assert output_of(cell) == repr(layer_tests.run(museum[f"Room{number}"]))
    assert cell.metadata["jupyter"]["outputs_hidden"]


@pytest.mark.parametrize("number", BUGS)
def test_what_is_to_be_mended_is_the_exhibit(number):
    exhibit, mended = (cell_of(f"{name}{number}").source.split("\n\n") for name in ("Room", "Mended"))
    assert [part.replace("Mended", "Room") for part in mended[:-1]] == exhibit[:-1]
    assert mended[-1] == f"layer_tests.verdict(Mended{number})"
    assert output_of(cell_of(f"Mended{number}")).startswith("… Not yet. Still caught by: ")


@pytest.mark.parametrize("number", range(1, NUM_BUGS + 2))
def test_an_exhibit_is_short(number):
    source = cell_of(f"Room{number}").source.rpartition("\n\n")[0]
    assert len([line for line in source.splitlines() if line.strip()]) <= 10


@pytest.mark.parametrize("number", BUGS)
def test_a_mended_exhibit_is_clean(museum, number):
    source = cell_of(f"Mended{number}").source
    for old, new in REPAIRS[number].items():
        assert source.count(old) == 1
        source = source.replace(old, new)
    namespace = dict(museum)
    exec(compile(source, "mended", "exec"), namespace)
    assert layer_tests.run(namespace[f"Mended{number}"]).caught_by == []
    assert issubclass(namespace[f"Mended{number}"], editable_layer.Layer)


@pytest.mark.parametrize("number", [1, 10])
def test_half_a_repair_is_still_caught(museum, number):
    (old, new), *_ = REPAIRS[number].items()
    namespace = dict(museum)
    exec(compile(cell_of(f"Mended{number}").source.replace(old, new), "half mended", "exec"), namespace)
    assert not layer_tests.verdict(namespace[f"Mended{number}"])


def test_repairs_are_counted(museum):
    assert museum["mended"] == []
    (cell,) = [cell for cell in CODE if "clean so far" in cell.source]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(cell.source, dict(museum) | {"Mended3": editable_layer.Layer})
    assert printed.getvalue() == "clean so far: 1 of 11 [3]\n"


def test_what_is_wrong_is_folded_away_and_says_where_it_was_found():
    folded = [cell.source for cell in NOTEBOOK.cells if cell.source.startswith("<details>")]
    assert len(folded) == NUM_BUGS + 1
    for number, text in enumerate(folded[:-1], start=1):
        assert f"What is wrong in room {number}, and where it was found</summary>" in text
        assert "**Found in**" in text and text.endswith("</details>")
