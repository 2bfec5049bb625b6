"""The same layer elsewhere: what is told is what was found. The notebooks themselves run by `make test-elsewhere`."""

import json
import math
import re

import numpy as np
import pytest

from tools import elsewhere, notebooks

RESULTS = json.loads(elsewhere.RESULTS.read_text())
golden_vectors = elsewhere.sys.modules["golden_vectors"]


def right(case, dtype):
    return case["output"], case["attention_weights"]


def test_the_page_shows_what_was_found():
    page = (elsewhere.FOLDER / "README.md").read_text()
    assert elsewhere.with_tables(page, RESULTS) == page
    assert list(RESULTS) == list(elsewhere.PORTS)


@pytest.mark.parametrize("port", elsewhere.PORTS)
def test_the_layer_is_the_same_and_both_planted_bugs_are_caught(port):
    ours = [entry for entry in RESULTS[port] if "this layer" in entry.get("layer", "")]
    assert [entry["dtype"] for entry in ours] == (["float64"] if port == "kotlin" else ["float32", "float64"])
    for entry in ours:
        assert len(entry["found"]) == 10 and {*elsewhere.in_table(entry)["found"].values()} == {"ok"}
    assert [entry["caught"] for entry in RESULTS[port] if "bug" in entry] == [8, 9]


@pytest.mark.parametrize("port", elsewhere.PORTS)
def test_a_notebook_is_saved_with_what_it_prints(port):
    notebook = notebooks.read(elsewhere.FOLDER / f"{port}.ipynb")
    printed = "".join(output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", []))
    assert "caught by 8 of 10 cases" in printed and "ok" in printed
    before = [None, *notebook.cells]
    assert notebook.cells[0].source.startswith("# Multi-head attention in ")
    for previous, cell in zip(before, notebook.cells, strict=False):
        hidden = cell.metadata.get("jupyter", {}).get("outputs_hidden")
        assert cell.cell_type == "markdown" or previous.cell_type == "markdown" or hidden, cell.id


def test_right_numbers_are_called_ok_and_wrong_ones_are_not(capsys):
    golden_vectors.compare("right", right, ["float64"])
    assert capsys.readouterr().out.count("ok") == 10

    def wrong(case, dtype):
        if "head_mask" in case:
            raise NotImplementedError("no gates")
        weights = case["attention_weights"]
        shape = case["output"][:, :1] if "valid_lens" not in case else case["output"] + 3e-6
        return shape, np.where(weights == 0, np.nan, weights) if case["num_heads"] == 1 else None

    golden_vectors.compare("wrong", wrong)
    words = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()[1:])
    assert words["all_keys"] == f"{'off by inf':<22}off by inf" and words["one_head"] == words["all_keys"]
    assert words["everything"] == f"{'no gates':<22}no gates"
    assert words["lengths"] == f"{'ok':<22}as float32"
    assert golden_vectors.difference(np.array([math.nan]), np.zeros(1)) == math.inf


def test_what_a_case_cannot_be_asked_is_not_counted_as_passed(capsys):
    def cannot(case, dtype):
        raise NotImplementedError("nothing")

    golden_vectors.caught("a bug", cannot)
    assert "caught by 10 of 10 cases; it passes none" in capsys.readouterr().out


@pytest.fixture
def main(monkeypatch, capsys):
    """Runs the tool on words, with what ``run`` says of a port: whether it is red, and what it prints."""

    def main(run, *words):
        monkeypatch.setattr(elsewhere, "install", lambda port: True)
        monkeypatch.setattr(elsewhere, "run", run)
        monkeypatch.setattr(elsewhere.sys, "argv", ["elsewhere", *words])
        return elsewhere.main(), capsys.readouterr().out

    return main


def test_packages_that_cannot_be_installed_are_reported_and_skipped(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(elsewhere, "ROOT", tmp_path)
    monkeypatch.setattr(elsewhere.shutil, "which", lambda name: name)
    monkeypatch.setattr(elsewhere.subprocess, "call", lambda command: 1)
    monkeypatch.setattr(elsewhere.sys, "argv", ["elsewhere", "--test", "jax"])
    assert not elsewhere.main()
    assert "REPORT: jax is skipped" in capsys.readouterr().out


@pytest.mark.parametrize(("program", "remedy"), [("java", "needs Java"), (elsewhere.PYTHON, "BOOK_PYTHON=")])
def test_a_machine_without_java_or_without_the_python_of_the_pins_is_told_so(program, remedy, monkeypatch, capsys):
    monkeypatch.setattr(elsewhere.shutil, "which", lambda name: None if name == program else name)
    assert not elsewhere.install("kotlin")
    told = capsys.readouterr().out
    assert f"There is no {program} here" in told and remedy in told


def test_a_cell_that_fails_and_other_numbers_are_red_and_the_other_notebooks_are_still_run(main):
    text = (elsewhere.FOLDER / "keras.ipynb").read_text()
    other = [entry | {"off": entry["off"] + 1} if "off" in entry else entry for entry in RESULTS["keras"]]

    def run(port):
        if port == "jax":
            raise notebooks.NotebookError("cell 3 failed")
        return text, RESULTS["keras"]

    assert main(run, "--test", "jax", "keras") == (True, "jax: cell 3 failed\nkeras: as committed\n")
    assert main(run, "--test", "keras") == (False, "keras: as committed\n")
    assert main(lambda port: (text, other), "--test", "keras") == (True, "keras: NOT as committed\n")


def test_last_digits_of_another_machine_change_no_file(main, monkeypatch, tmp_path):
    folder, results = tmp_path / "elsewhere", tmp_path / "elsewhere.json"
    folder.mkdir()
    results.write_text(elsewhere.RESULTS.read_text())
    for name in ("mxnet.ipynb", "README.md"):
        (folder / name).write_text((elsewhere.FOLDER / name).read_text())
    before = {path: path.read_text() for path in [results, *folder.iterdir()]}
    text, digits = before[folder / "mxnet.ipynb"], json.loads(before[results])["mxnet"]
    digits[0]["found"]["lengths"] *= 1.5
    monkeypatch.setattr(elsewhere, "FOLDER", folder)
    monkeypatch.setattr(elsewhere, "RESULTS", results)
    assert main(lambda port: (text, digits), "mxnet") == (False, "mxnet: written\n")
    assert before == {path: path.read_text() for path in before}
    digits[0]["found"]["lengths"] = 3.0
    assert main(lambda port: (text, digits), "mxnet") == (False, "mxnet: written\n")
    assert "off by 3.0" in (folder / "README.md").read_text()
    assert json.loads(results.read_text())["mxnet"][0]["found"]["lengths"] == 3.0


def test_the_page_of_the_golden_vectors_lists_every_file():
    page = (elsewhere.ROOT / "golden" / "README.md").read_text()
    listed = re.findall(r"(?m)^\| `(\w+\.npz)` \|", page)
    assert sorted(listed) == sorted(file.name for file in golden_vectors.GOLDEN.glob("*.npz"))
