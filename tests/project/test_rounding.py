"""What depends on the last bit is found: tools.rounding, on notebooks that hold a tie."""

import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from tools import rounding

ROOT = Path(__file__).resolve().parents[2]
SHARES = "import torch; from mha_course.rounding import first_largest; shares = torch.ones(1, 30).softmax(dim=1)"

pytestmark = pytest.mark.slow


def try_cells(folder, *cells):
    """The report of tools.rounding on a notebook of these cells, pairs of a source and what it has printed."""
    cells = [
        new_code_cell(source, outputs=[new_output("stream", text=text)] if text else [], execution_count=number)
        for number, (source, text) in enumerate(cells, start=1)
    ]
    nbformat.write(new_notebook(cells=cells), folder / "sample.ipynb")
    command = [sys.executable, "-m", "tools.rounding", folder / "sample.ipynb"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT)
    return done.returncode, done.stdout


@pytest.mark.long
def test_a_tie_that_the_last_bit_decides_is_red_and_a_rounded_one_is_not(tmp_path):
    status, report = try_cells(
        tmp_path,
        (SHARES, ""),
        ("print(int(shares.argmax()))", "0\n"),
        ("print(first_largest(shares))", "0\n"),
        ("print(bool((shares == torch.ones(1, 30).softmax(dim=1)).all()))", "True\n"),
        ("print(sum(torch.ones(1, 7, 5).sum(dim=1)[0].tolist()))", "35.0\n"),
    )
    assert status == 1 and "sample.ipynb, rising: differs" in report
    assert [f"FAILED sample.ipynb::Cell {number}" in report for number in range(5)] == [False, True, *[False] * 3]


def test_three_turns_try_every_notebook_with_one_noise():
    whole = {(path, rounding.KINDS[0]) for path in rounding.everything()}
    turns = [rounding.runs_of(1, third) for third in range(3)]
    assert sum(map(len, turns)) == len(whole) and set().union(*turns) == whole
    assert max(map(len, turns)) - min(map(len, turns)) <= 1
    assert set(rounding.runs_of(3)) == {(path, kind) for path, _ in whole for kind in rounding.KINDS}
