"""A progress bar is seen while the work goes on and is gone afterwards: in a notebook, on a terminal, in a log."""

import importlib
import io
import os
import sys
from pathlib import Path

import nbformat
import pytest

from mha_lib.progress import progress_bar

ROOT = Path(__file__).resolve().parents[2]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_all_items_come_through_in_order(capsys):
    assert list(progress_bar("abc", 3, "letters")) == ["a", "b", "c"]
    assert list(progress_bar([], 0, "nothing")) == []


def test_a_log_gets_the_label_once(capsys):
    list(progress_bar(range(500), 500, "counting"))
    assert capsys.readouterr() == ("", "counting\n")


def test_a_terminal_shows_a_percentage_and_is_left_empty(monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    list(progress_bar(range(200), 200, "counting"))
    *shown, last = terminal.getvalue().split("\r")[1:]
    assert shown == [f"counting: {percent:3d} %" for percent in range(100)]
    assert last == "\x1b[K"


def test_a_terminal_is_left_empty_when_the_work_fails(monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with pytest.raises(ZeroDivisionError):
        list(progress_bar((1 / number for number in (1, 0)), 2, "dividing"))
    assert terminal.getvalue().endswith("\r\x1b[K")


@pytest.mark.slow
def test_a_notebook_shows_a_widget_and_keeps_nothing(tmp_path, monkeypatch):
    pytest.importorskip("ipywidgets")
    monkeypatch.syspath_prepend(ROOT / ".ci")
    ci = importlib.import_module("notebooks")
    source = """
import ipywidgets
from mha_lib.progress import progress_bar

bars = []

class Watched(ipywidgets.IntProgress):
    def __init__(self, **settings):
        super().__init__(**settings)
        bars.append(self)

ipywidgets.IntProgress = Watched
assert [bars[0].value for _ in progress_bar(range(4), 4, "counting")] == [0, 1, 2, 3]
assert bars[0].comm is None, "the bar is still open"
"""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    ci.execute(notebook, tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, timeout=120)
    (cell,) = notebook.cells
    assert [ci.WIDGET_VIEW in output.get("data", {}) for output in cell.outputs] == [True]
    ci.normalise(notebook)
    assert cell.outputs == []
