"""Every notebook as a learner uses it: in JupyterLab, in a browser, by keyboard."""

import pytest
from turns import by_turns

from tools.lab_page import ROOT, answers, cell_faults, faults_after_reopening

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.xdist_group("jupyterlab")]

# Those that learners open. The solutions are made of the same kinds of cells, and nbval runs them.
NOTEBOOKS = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
# nbval runs every notebook, and other tests every picture in JupyterLab: whole notebooks open in a browser only where
# nothing may be skipped, a quarter of them by turns, but for one of few minutes with text, exercises, outputs of all
# kinds and a live picture.
ALWAYS = "04_transpose_qkv"
IN_TURN = by_turns([name for name in NOTEBOOKS if name != ALWAYS], 4)

DEAD = """
from IPython.display import HTML
HTML('<section class="mha-live"><input type="range"><p class="reading">stays as it is</p></section>')
"""

CLOSED = "from ipywidgets import IntProgress; bar = IntProgress(); display(bar); bar.close()"

HEADS = """
from mha_course import pictures
from mha_course.models import shipped_model
pictures.HeadExplorer(shipped_model("digits"))
"""

# Looks at every frame where the line below the picture stands, and how many images the picture has shown.
WATCH = """
picture => {
    window.seen = { frames: 0, places: new Set(), images: new Set() };
    const look = () => {
        seen.frames += 1;
        seen.places.add(picture.querySelector('.reading').getBoundingClientRect().top);
        seen.images.add(picture.querySelector('.ink').innerHTML);
        if (picture.isConnected) requestAnimationFrame(look);
    };
    look();
}
"""


@pytest.mark.parametrize("name", [ALWAYS, *(pytest.param(name, marks=pytest.mark.long) for name in IN_TURN)])
def test_notebook(name, open_notebook, usual_errors):
    """Everything runs, every control answers, and what was saved is still there when it is opened again."""
    path = f"notebooks/{name}.ipynb"
    notebook = open_notebook(path)
    notebook.run_all()
    assert list(cell_faults(notebook.code_cells())) == []
    assert all(answers(picture) for picture in notebook.live_pictures())
    assert set(notebook.heard.errors) - usual_errors == set()
    notebook.save()
    assert faults_after_reopening(open_notebook, path) == []


@pytest.mark.long
def test_faults_are_seen(open_notebook, lab, usual_errors):
    """The checks above go red on a notebook that deserves it."""
    script = "from IPython.display import Javascript, display; display(Javascript('console.error(\"planted\")'))"
    notebook = open_notebook(lab.write("faulty.ipynb", DEAD, script, "1 / 0"))
    assert "not run: 1 / 0" in cell_faults(notebook.code_cells())
    notebook.run_all()
    (picture,) = notebook.live_pictures()
    assert "planted" in set(notebook.heard.errors) - usual_errors
    assert list(cell_faults(notebook.code_cells())) == ["ZeroDivisionError: division by zero in: 1 / 0"]
    assert not answers(picture)


@pytest.mark.long
def test_a_widget_that_is_not_saved_is_seen(open_notebook, lab):
    notebook = open_notebook(lab.write("closed.ipynb", CLOSED))
    notebook.run_all()
    notebook.save()
    assert faults_after_reopening(open_notebook, "closed.ipynb") == ["Error displaying widget: model not found"]


@pytest.mark.long
def test_the_picture_is_steady(open_notebook, lab):
    """30 moves of a slider: every one is painted, and what stands below never moves."""
    notebook = open_notebook(lab.write("heads.ipynb", HEADS))
    notebook.run_all()
    notebook.panel.locator("section.mha-live").wait_for()
    (picture,) = notebook.live_pictures()
    slider = picture.get_by_role("slider", name="example")
    slider.focus()
    picture.evaluate(WATCH)
    for number in range(1, 31):
        slider.press("ArrowRight")
        notebook.page.wait_for_function("number => seen.images.size > number", arg=number)
    seen = notebook.page.evaluate("({ frames: seen.frames, places: seen.places.size, images: seen.images.size })")
    assert seen["frames"] > 30 and seen["images"] == 31
    assert seen["places"] == 1
