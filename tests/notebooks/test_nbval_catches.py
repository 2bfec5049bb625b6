"""nbval goes red on notebooks 03 and 04 where mha_lib has a planted bug, or a saved output was edited."""

import os
import re
import shutil
import subprocess
import sys

import nbformat
import pytest
from notebook_checks import is_compared, saved_outputs
from notebook_tools import NOTEBOOKS, ROOT, make_notebooks, run_nbval

pytestmark = pytest.mark.slow

# What stands in mha_lib/attention.py, and the bug that takes its place.
WRONG_RESHAPE = {
    "X.reshape(batch_size, number, num_heads, size // num_heads).transpose(1, 2)": (
        "X.reshape(batch_size, num_heads, number, size // num_heads)"
    ),
}
REPEAT_FOR_REPEAT_INTERLEAVE = {
    "else valid.unsqueeze(1)": "else valid.repeat(scores.shape[1], 1, 1).unflatten(0, scores.shape[:2])",
    "valid_keys(valid_lens, keys.shape[-2]).unsqueeze(1)": (
        "valid_keys(valid_lens, keys.shape[-2]).repeat(keys.shape[1], 1, 1).unflatten(0, keys.shape[:2])"
    ),
}


@pytest.fixture
def copy(tmp_path):
    """A folder with a copy of mha_lib and, beside it, of notebooks 03 and 04."""
    shutil.copytree(ROOT / "mha_lib", tmp_path / "mha_lib", ignore=shutil.ignore_patterns("__pycache__"))
    for path in NOTEBOOKS:
        if path.name.startswith(("03", "04")):
            shutil.copy(path, tmp_path)
    return tmp_path


def red_cells(copy):
    """Names of the cells at which nbval fails, as ``03.ipynb::Cell 0``."""
    done = run_nbval(*sorted(copy.glob("*.ipynb")), PYTHONPATH=str(copy))
    assert done.returncode in (0, 1), done.stdout
    return re.findall(r"(?m)^FAILED (.+?::Cell \d+)", done.stdout)


def plant(copy, bug):
    path = copy / "mha_lib" / "attention.py"
    source = path.read_text(encoding="utf-8")
    for right, wrong in bug.items():
        assert source.count(right) == 1, f"mha_lib/attention.py has no single place to break: {right}"
        source = source.replace(right, wrong)
    path.write_text(source, encoding="utf-8")


def test_nothing_is_red_without_a_bug(copy):
    where = "import mha_lib; print(mha_lib.__file__)"
    env = os.environ | {"PYTHONPATH": str(copy)}
    found = subprocess.run([sys.executable, "-c", where], env=env, cwd=copy, capture_output=True, text=True)
    assert found.stdout.strip() == str(copy / "mha_lib" / "__init__.py"), found.stderr
    assert red_cells(copy) == []


@pytest.mark.parametrize("bug", [WRONG_RESHAPE, REPEAT_FOR_REPEAT_INTERLEAVE], ids=["reshape", "repeat"])
def test_a_bug_in_the_layer_is_red_in_both_notebooks(copy, bug):
    plant(copy, bug)
    assert {cell[:2] for cell in red_cells(copy)} == {"03", "04"}


def test_one_edited_shape_is_red(copy):
    (path,) = copy.glob("04*.ipynb")
    notebook = make_notebooks.read(path)
    cell, output = next(
        (cell, output)
        for cell, output in saved_outputs(notebook)
        if is_compared(cell) and "(2, 5, 4, 20)" in output.get("text", "")
    )
    output.text = output.text.replace("(2, 5, 4, 20)", "(2, 4, 5, 20)")
    nbformat.write(notebook, path)
    assert red_cells(copy) == [f"{path.name}::Cell {cell.execution_count - 1}"]
