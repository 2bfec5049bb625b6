"""A progress bar is seen while the work goes on and is gone afterwards: in a notebook, on a terminal, in a log."""

import ast
import io
import os
import re
import sys
from contextlib import nullcontext
from pathlib import Path

import nbformat
import pytest

from mha_lib.heads.progress_bar import progress_bar
from tools import notebooks as make_notebooks

ROOT = Path(__file__).resolve().parents[2]

RECORD = """
shown = []

def record(message):
    shown.append(message["content"]["data"].get("text/html"))
    return message

get_ipython().display_pub.register_hook(record)
"""
WORK = f"""
import runpy

progress_bar = runpy.run_path({str(ROOT / "mha_lib/heads/progress_bar.py")!r})["progress_bar"]  # alone: without torch
done = []
try:
    done += progress_bar((1 / number for number in (2, 1, 1, 0)), 4, "<counting>")
except ZeroDivisionError:
    pass
"""


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_all_items_come_through_in_order(capsys):
    assert list(progress_bar("abc", 3, "letters")) == ["a", "b", "c"]
    assert list(progress_bar([], 0, "nothing")) == []


def test_a_log_gets_the_label_once(capsys):
    list(progress_bar(range(500), 500, "counting"))
    assert capsys.readouterr() == ("", "counting\n")


@pytest.mark.parametrize("fails", [False, True])
def test_a_terminal_shows_a_percentage_and_is_left_empty(monkeypatch, fails):
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with pytest.raises(ZeroDivisionError) if fails else nullcontext():
        list(progress_bar((1 / (199 - number * fails) for number in range(200)), 200, "counting"))
    *shown, last = terminal.getvalue().split("\r")[1:]
    assert shown == [f"counting: {percent:3d} %" for percent in range(100)]
    assert last == "\x1b[K"


@pytest.mark.slow
def test_a_notebook_shows_a_bar_and_keeps_nothing(tmp_path):
    """Also where the work fails. What is shown on the way is recorded; what is left is what nbclient would save."""
    pytest.importorskip("ipykernel")
    sources = [RECORD, WORK, "shown"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    make_notebooks.execute(notebook, tmp_path, env=dict(os.environ))
    _, work, recorded = notebook.cells
    first, *bars, last = ast.literal_eval(recorded.outputs[0].data["text/plain"])
    assert re.findall(r'value="(\d+)" max="4"', "".join(bars)) == ["0", "1", "2"]
    assert all("&lt;counting&gt;" in bar for bar in bars)
    assert (first, last) == (None, "") and [output.data for output in work.outputs] == [{"text/html": ""}]
    make_notebooks.normalise(notebook)
    assert work.outputs == []
