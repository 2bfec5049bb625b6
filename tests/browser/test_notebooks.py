"""Every notebook as a learner uses it: in JupyterLab, in a browser, by keyboard."""

import pytest
from lab_page import (
    ROOT,
    accessibility_faults,
    cell_faults,
    changes,
    faults_after_reopening,
    keyboard_faults,
    picture,
    press,
)

pytestmark = [pytest.mark.browser, pytest.mark.slow]

NOTEBOOKS = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "notebooks").glob("**/*.ipynb")
    if ".ipynb_checkpoints" not in path.parts
)

FAULTY = """
from ipywidgets import IntSlider
from mha_lib.widgets.explorer import Explorer
from mha_lib.widgets.sheet import Sheet
Explorer("", {"number": IntSlider()}, lambda number: (Sheet(50, 50), ""))
"""

CLOSED = "from ipywidgets import IntProgress; bar = IntProgress(); display(bar); bar.close()"

HEADS = """
import torch
from mha_lib import widgets
scores = 3 * torch.randn(40, 16, 20, 20, generator=torch.Generator().manual_seed(0))
widgets.head_explorer([torch.softmax(scores, dim=-1)])
"""

# Looks at every frame whether the picture is there, and where the text below it stands.
WATCH = """
explorer => {
    window.seen = { frames: 0, missing: 0, places: new Set(), pictures: new Set() };
    const look = () => {
        const image = explorer.querySelector('img');
        seen.frames += 1;
        if (!image?.complete || !image.naturalWidth) seen.missing += 1;
        else seen.pictures.add(image.src);
        seen.places.add(explorer.querySelector('[role=status]')?.getBoundingClientRect().top);
        window.watching = requestAnimationFrame(look);
    };
    look();
}
"""


@pytest.mark.parametrize("path", NOTEBOOKS)
def test_notebook(path, open_notebook, lab, usual_errors):
    """Everything runs, every control answers, and what was saved is still there when it is opened again."""
    notebook = open_notebook(path)
    notebook.run_all()
    assert list(cell_faults(notebook.code_cells())) == []
    for explorer in notebook.explorers():
        assert list(accessibility_faults(notebook.page, explorer)) == []
        assert list(keyboard_faults(explorer)) == []
    assert set(notebook.console_errors) - usual_errors == set()
    notebook.save()
    notebook.page.close()
    lab.end_kernels()
    assert faults_after_reopening(open_notebook(path)) == []


def test_faults_are_seen(open_notebook, lab, usual_errors):
    """The checks above go red on a notebook that deserves it."""
    script = "from IPython.display import Javascript, display; display(Javascript('console.error(\"planted\")'))"
    notebook = open_notebook(lab.write("faulty.ipynb", FAULTY, script, "1 / 0", "print('never')"))
    notebook.run_all()
    (explorer,) = notebook.explorers()
    assert "planted" in set(notebook.console_errors) - usual_errors
    assert list(cell_faults(notebook.code_cells())) == [
        "ZeroDivisionError: division by zero in: 1 / 0",
        "not run: print('never')",
    ]
    nameless = {"slider without a name", "textbox without a name", "image without a name"}
    assert set(accessibility_faults(notebook.page, explorer)) == nameless
    assert [fault.split(" from ")[0] for fault in keyboard_faults(explorer, patience=2)] == ["no new picture"]


def test_a_widget_that_is_not_saved_is_seen(open_notebook, lab):
    notebook = open_notebook(lab.write("closed.ipynb", CLOSED))
    notebook.run_all()
    notebook.save()
    notebook.page.close()
    assert faults_after_reopening(open_notebook("closed.ipynb")) == ["Error displaying widget: model not found"]


def test_the_picture_is_steady(open_notebook, lab):
    """30 moves of a slider: no frame without a picture, and what stands below never moves."""
    notebook = open_notebook(lab.write("heads.ipynb", HEADS))
    notebook.run_all()
    (explorer,) = notebook.explorers()
    slider = explorer.get_by_role("slider", name="example")
    slider.focus()
    explorer.evaluate(WATCH)
    for _ in range(30):
        before = picture(explorer)
        press(slider, "ArrowRight")
        assert changes(explorer, before)
    seen = notebook.page.evaluate("({...seen, places: seen.places.size, pictures: seen.pictures.size})")
    assert seen["frames"] > 1 and seen["pictures"] > 1
    assert seen["missing"] == 0
    assert seen["places"] == 1
