"""Opening a notebook in JupyterLab changes no byte of its file; what is typed is kept, though nobody saved it."""

import json

import pytest

from tools.lab_page import ROOT, WIDGET_VIEW

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.xdist_group("jupyterlab")]

NAME = "notebooks/04_transpose_qkv.ipynb"
CHANGED = "jupyterapp.shell.currentWidget.context.model.dirty"
ANSWER = "origin_of_tag = 'typed, and not saved'"
TYPE = f"""
const cell = jupyterapp.shell.currentWidget.content.model.cells.get(4);
cell.sharedModel.setSource({json.dumps(ANSWER)});
"""


@pytest.fixture
def original(lab):
    """The notebook as it is committed; the lab's copy is put back behind the test."""
    committed = (ROOT / NAME).read_bytes()
    (lab.folder / NAME).write_bytes(committed)
    yield committed
    (lab.folder / NAME).write_bytes(committed)


def wait_until_saved(notebook):
    """Return when JupyterLab has saved the notebook by itself."""
    notebook.page.wait_for_function(CHANGED)
    notebook.page.wait_for_function(f"!{CHANGED}")


def test_opening_changes_nothing(open_notebook, lab, original):
    """The kernel makes JupyterLab note its version: the notebook counts as changed, and is saved."""
    wait_until_saved(open_notebook(NAME))
    assert (lab.folder / NAME).read_bytes() == original


@pytest.mark.long
def test_what_is_typed_is_kept_without_saving(open_notebook, lab, original):
    notebook = open_notebook(NAME)
    wait_until_saved(notebook)
    notebook.do(TYPE)
    wait_until_saved(notebook)
    assert ANSWER in [cell["source"] for cell in open_notebook(NAME).cells()]


def test_pictures_are_kept(open_notebook, lab):
    """Where there are widgets, they are saved with all that the reader set."""
    name = lab.write("saved_picture.ipynb", "import ipywidgets\nipywidgets.IntSlider(value=3)")
    notebook = open_notebook(name)
    notebook.run_all()
    notebook.save()
    saved = json.loads((lab.folder / name).read_text())
    (state,) = saved["metadata"]["widgets"].values()
    (view,) = [output["data"][WIDGET_VIEW] for output in saved["cells"][0]["outputs"]]
    assert state["state"][view["model_id"]]["state"]["value"] == 3
