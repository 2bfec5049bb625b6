"""``make notebooks`` brings a notebook into its fixed form and leaves one alone that fails."""

import json
import os
import shutil
import subprocess
import sys

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from notebook_tools import ROOT, make_notebooks

COMMAND = ROOT / "tools" / "notebooks.py"
PRINTS = "print(1); display({'text/plain': 'x'}, raw=True, metadata={'width': 2}); print(3)"
PROGRESS_BAR = "import ipywidgets; ipywidgets.IntProgress()"
WIDGET_WITH_PICTURE = """
import ipywidgets
class Picture(ipywidgets.VBox):
    def _repr_mimebundle_(self, **kwargs):
        return super()._repr_mimebundle_(**kwargs) | {"text/html": "<img alt='a'>", "text/plain": "a"}
Picture()
"""


def write(path, *sources, tags=()):
    """A notebook as an older editor leaves it: without cell ids, with metadata of its own, nothing run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    notebook = new_notebook(cells=[new_markdown_cell("# Sample"), *map(new_code_cell, sources)])
    notebook.metadata = {"widgets": {}, "colab": {}, "language_info": {"name": "python", "version": "3.9.1"}}
    for cell in notebook.cells:
        cell.metadata = {"tags": list(tags), "scrolled": True, "execution": {"shell.execute_reply": "2024"}}
        del cell["id"]
    notebook.nbformat_minor = 4
    nbformat.write(notebook, path)
    return path


def make(*paths, command=COMMAND, **environment):
    arguments = [sys.executable, command, *paths]
    return subprocess.run(arguments, capture_output=True, text=True, env=os.environ | environment)


def saved(path):
    return json.loads(path.read_text(encoding="utf-8"))


def test_saves_the_fixed_form(tmp_path):
    path = write(tmp_path / "sample.ipynb", PRINTS, PROGRESS_BAR, WIDGET_WITH_PICTURE)
    done = make(path)
    assert done.returncode == 0, done.stderr
    assert "sample.ipynb" in done.stdout and " s\n" in done.stdout
    notebook = saved(path)
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert notebook["metadata"] == make_notebooks.NOTEBOOK_METADATA
    assert [cell["metadata"] for cell in notebook["cells"]] == [{"tags": []}] * 4
    assert [cell["id"] for cell in notebook["cells"]] == [f"sample-{number:02d}" for number in (1, 2, 3, 4)]
    prints, progress_bar, picture = (cell["outputs"] for cell in notebook["cells"][1:])
    assert prints[0]["text"] == ["1\n", "3\n"] and prints[1]["metadata"] == {}
    assert progress_bar == []
    assert picture[0]["data"] == {"text/html": ["<img alt='a'>"], "text/plain": ["a"]}
    assert path.read_bytes().endswith(b"}\n")


def test_a_second_run_changes_no_byte(tmp_path):
    path = write(tmp_path / "sample.ipynb", "print(1)", WIDGET_WITH_PICTURE, "{'b': 1, 'a': 'é'}")
    assert make(path).returncode == 0
    first = path.read_bytes()
    assert make(path).returncode == 0
    assert path.read_bytes() == first


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["x", "y"], ["s-01", "s-02"]),
        (["s-02", "s-01"], ["s-02", "s-01"]),
        (["s-01", "new", "s-03"], ["s-01", "s-04", "s-03"]),
        (["s-07", "s-07", "s-07"], ["s-07", "s-08", "s-09"]),
        (["t-01", "s-1", "s-001x", "s-100"], ["s-101", "s-102", "s-103", "s-100"]),
        ([None, "s-01"], ["s-02", "s-01"]),
    ],
)
def test_ids_are_given_once(before, after):
    cells = [new_markdown_cell("") for _ in before]
    for cell, cell_id in zip(cells, before, strict=True):
        cell.id = cell_id
        if cell_id is None:
            del cell["id"]
    make_notebooks.set_ids(cells, "s")
    assert [cell.id for cell in cells] == after


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{}['key']", "KeyError"),
        ("import sys; print('late', file=sys.stderr)", "writes to stderr\nlate"),
        ("import os; os._exit(1)", "died"),
    ],
)
def test_a_failed_notebook_stays_as_it_was(tmp_path, source, message):
    bad, good = write(tmp_path / "bad.ipynb", "1", source), write(tmp_path / "good.ipynb", "1")
    before = bad.read_bytes()
    done = make(bad, good)
    assert done.returncode == 1
    assert "bad.ipynb: cell 2 (bad-03)" in done.stderr and message in done.stderr
    assert bad.read_bytes() == before
    assert "good.ipynb" in done.stdout


def test_an_expected_error_keeps_no_frames(tmp_path):
    path = write(tmp_path / "sample.ipynb", "{}['key']", tags=["raises-exception"])
    assert make(path).returncode == 0
    assert saved(path)["cells"][1]["outputs"][0]["traceback"] == ["KeyError: 'key'"]


def test_runs_in_its_own_folder_on_this_interpreter_with_one_thread(tmp_path):
    other_kernel = tmp_path / "jupyter" / "kernels" / "python3" / "kernel.json"
    other_kernel.parent.mkdir(parents=True)
    other_kernel.write_text('{"argv": ["false"], "display_name": "Python 3", "language": "python"}')
    source = "import os, sys\n[os.getcwd(), sys.prefix, os.environ['OMP_NUM_THREADS']]"
    path = write(tmp_path / "sample.ipynb", source)
    done = make(path, JUPYTER_PATH=str(tmp_path / "jupyter"), OMP_NUM_THREADS="2")
    assert done.returncode == 0, done.stderr
    shown = "".join(saved(path)["cells"][1]["outputs"][0]["data"]["text/plain"])
    assert eval(shown) == [str(tmp_path), sys.prefix, "1"]


def test_without_arguments_it_makes_every_notebook(tmp_path):
    command = tmp_path / "tools" / "notebooks.py"
    shutil.copytree(COMMAND.parent, command.parent)
    write(tmp_path / "notebooks" / "00_first.ipynb", "1")
    write(tmp_path / "notebooks" / "solutions" / "00_first.ipynb", "1")
    write(tmp_path / "notebooks" / ".ipynb_checkpoints" / "00_first-checkpoint.ipynb", "1")
    done = make(command=command)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 2 and "checkpoint" not in done.stdout
