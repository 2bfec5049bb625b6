"""``make notebooks`` brings a notebook into its fixed form and leaves one alone that fails."""

import json
import os
import subprocess
import sys

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from notebook_tools import ROOT, first_cell, make_notebooks

from mha_course.exercises import COURSE

PRINTS = "print(1); display({'text/plain': 'x'}, raw=True, metadata={'width': 2}); print(3)"
WIDGET = "import ipywidgets; ipywidgets.IntProgress()"
WIDGET_WITH_PICTURE = """
class Picture(ipywidgets.VBox):
    def _repr_mimebundle_(self, **kwargs):
        return super()._repr_mimebundle_(**kwargs) | {"text/html": "<img alt='a'>", "text/plain": "a"}
Picture()
"""
TIME = "import time\nprint(time.perf_counter())"
WHERE = "import os, sys\n[os.getcwd(), sys.prefix, os.environ['OMP_NUM_THREADS']]"
FAILURES = {
    "{}['key']": "KeyError",
    "import sys; print('late', file=sys.stderr)": "writes to stderr\nlate",
    "import os; os._exit(1)": "died",
}


def write(path, *sources):
    """A notebook as an older editor leaves it: without cell ids, with metadata of its own, nothing run."""
    notebook = new_notebook(cells=[new_markdown_cell("# Sample"), *map(new_code_cell, sources)])
    notebook.metadata = {"widgets": {}, "colab": {}, "language_info": {"name": "python", "version": "3.9.1"}}
    for cell in notebook.cells:
        cell.metadata = {
            "tags": ["raises-exception", *["timed"] * (cell.source == TIME)],
            "scrolled": True,
            "execution": {"shell.execute_reply": "2024"},
        }
        cell.metadata[make_notebooks.FOLDS] = True
        del cell["id"]
    notebook.nbformat_minor = 4
    nbformat.write(notebook, path)
    return path


def make(*paths, **environment):
    command = [sys.executable, "-m", "tools.notebooks", *paths]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=os.environ | environment)


@pytest.mark.slow
def test_saves_the_fixed_form_and_a_second_run_changes_no_byte(tmp_path):
    """In the notebook's own folder, on this interpreter, with one thread; an expected error keeps no frames."""
    other_kernel = tmp_path / "jupyter" / "kernels" / "python3" / "kernel.json"
    other_kernel.parent.mkdir(parents=True)
    other_kernel.write_text('{"argv": ["false"], "display_name": "Python 3", "language": "python"}')
    path = write(tmp_path / "sample.ipynb", PRINTS, WIDGET, WIDGET_WITH_PICTURE, "{}['key']", WHERE, TIME)
    done = make(path, JUPYTER_PATH=str(tmp_path / "jupyter"), OMP_NUM_THREADS="2")
    assert done.returncode == 0, done.stderr
    saved, notebook = path.read_bytes(), json.loads(path.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert notebook["metadata"] == make_notebooks.NOTEBOOK_METADATA
    first = notebook["cells"].pop(1)
    assert "mha_lib" in "".join(first["source"]) and first["outputs"] == []
    assert [cell["metadata"] for cell in notebook["cells"]] == [
        {"tags": ["raises-exception"], make_notebooks.FOLDS: True}
    ] * 6 + [{"tags": ["raises-exception", "timed"], make_notebooks.FOLDS: True}]
    assert sorted(cell["id"] for cell in [first, *notebook["cells"]]) == [f"sample-0{number}" for number in range(1, 9)]
    prints, widget, picture, error, where, _ = (cell["outputs"] for cell in notebook["cells"][1:])
    assert prints[0]["text"] == ["1\n", "3\n"] and prints[1]["metadata"] == {}
    assert widget == []
    assert picture[0]["data"] == {"text/html": ["<img alt='a'>"], "text/plain": ["a"]}
    assert error[0]["traceback"] == ["KeyError: 'key'"]
    assert eval("".join(where[0]["data"]["text/plain"])) == [str(tmp_path), sys.prefix, "1"]
    assert make(path).returncode == 0
    assert path.read_bytes() == saved


def test_the_first_cell_is_written_once_and_installs_the_book_where_it_is_used():
    notebook = new_notebook(cells=[new_markdown_cell("# Sample"), new_code_cell("import d2l")])
    for sources in (
        ("git+https://example.org/old", "git+https://example.org/old#x"),
        ("file:///a.whl", "file:///b.whl"),
    ):
        first_cell.write_first_cell(notebook, sources)
    assert [first_cell.is_first_cell(cell) for cell in notebook.cells] == [False, True, False]
    assert '"mha-lib @ file:///a.whl" "mha-course[notebooks] @ file:///b.whl"' in notebook.cells[1].source
    assert "--quiet matplotlib-inline pandas requests scipy\n" in notebook.cells[1].source
    assert "--no-deps d2l==1.0.3" in notebook.cells[1].source and "example.org" not in notebook.cells[1].source


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["x", "y"], ["s-01", "s-02"]),
        (["s-02", "s-01"], ["s-02", "s-01"]),
        (["s-01", "new", "s-03"], ["s-01", "s-04", "s-03"]),
        (["s-07", "s-07", "s-07"], ["s-07", "s-08", "s-09"]),
        (["t-01", "s-1", "s-001x", "s-100"], ["s-101", "s-102", "s-103", "s-100"]),
    ],
)
def test_ids_are_given_once(before, after):
    cells = [new_markdown_cell("", id=cell_id) for cell_id in before]
    make_notebooks.set_ids(cells, "s")
    assert [cell.id for cell in cells] == after


@pytest.mark.long
def test_a_failed_notebook_stays_as_it_was(tmp_path):
    bad = [write(tmp_path / f"bad{number}.ipynb", "1", source) for number, source in enumerate(FAILURES)]
    for path in bad:
        path.write_text(path.read_text().replace("raises-exception", "unexpected"))
    before = [path.read_bytes() for path in bad]
    done = make(*bad, write(tmp_path / "good.ipynb", "1"))
    assert done.returncode == 1 and "good.ipynb" in done.stdout
    for number, message in enumerate(FAILURES.values()):
        told = done.stderr.partition(f"bad{number}.ipynb: cell 3 (bad{number}-04)")[2].partition("bad")[0]
        assert message in told
    assert [path.read_bytes() for path in bad] == before


def test_what_a_learner_predicted_and_tried_stays_out(tmp_path, monkeypatch):
    monkeypatch.delenv("MHA_PROGRESS")
    monkeypatch.setenv("HOME", str(tmp_path))
    kept = json.dumps({"prediction x": {"text": "mine"}, "gaussian_pooling": {"tries": 1, "solved": True}})
    progress = tmp_path / ".cache" / "mha_lib" / "progress.json"
    progress.parent.mkdir(parents=True)
    progress.write_text(kept)
    calls = (
        "exercises.predict('x')",
        "exercises.gaussian_pooling(exercises.gaussian_pooling.right)",
        "exercises.progress()",
    )
    path = write(tmp_path / "asked.ipynb", "from mha_course import exercises\n" + calls[0], *calls[1:])
    make_notebooks.rebuild(path)
    shown = json.dumps(nbformat.read(path, as_version=4))
    assert "Your prediction" in shown and "mine" not in shown and f"1 of {len(COURSE)} exercises solved" in shown
    assert progress.read_text() == kept
