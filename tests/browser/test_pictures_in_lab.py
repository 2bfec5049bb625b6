"""A live picture in JupyterLab: with its kernel, beside another view of it, after a restart, saved and opened again."""

import nbformat
import pytest
from picture_cases import NEXT_FRAME

from tools.lab_page import cell_faults

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.xdist_group("jupyterlab")]

SETUP = """
import torch, ipywidgets
from mha_course import pictures
from mha_course.models.tasks import find_task
torch.manual_seed(0)
model = find_task("digits").model().eval()
"""
SHOW = "explorer = pictures.HeadExplorer(model, example=3)\nexplorer"


@pytest.fixture
def notebook(open_notebook, lab, request):
    """``notebook(*cells)`` opens a new notebook with these cells and runs them all."""

    def notebook(*cells):
        opened = open_notebook(lab.write(f"{request.node.name}.ipynb", SETUP, *cells))
        opened.run_all()
        assert list(cell_faults(opened.code_cells())) == []
        return opened

    return notebook


def sections(notebook, count=1):
    """The live pictures of a notebook, in view and in order."""
    found = notebook.panel.locator("section.mha-live")
    notebook.page.wait_for_function(f"document.querySelectorAll('section.mha-live').length >= {count}")
    found.first.scroll_into_view_if_needed()
    return [found.nth(i) for i in range(count)]


def run_cell(notebook, number, times=1):
    """Run one cell, counted from 0, again and again, and wait for the end of each run."""
    notebook.do(
        f"jupyterapp.shell.currentWidget.content.activeCellIndex = {number};"
        f"for (let i = 0; i < {times}; i++) await jupyterapp.commands.execute('notebook:run-cell')"
    )


def output_of(notebook, number):
    """The text that a cell has shown."""
    (output,) = notebook.code_cells()[number]["outputs"]
    return "".join(output["data"]["text/plain"])


def test_python_and_both_views_agree(notebook):
    opened = notebook(SHOW, "explorer", "explorer.query, explorer.gates[1][2]", "explorer.query = 9")
    first, second = sections(opened, 2)
    first.get_by_role("button", name="patch row 1, column 3").click()
    first.get_by_role("switch", name="layer 1, head 2").press("Space")
    second.locator("[aria-checked=false]").wait_for()
    while output_of(opened, 3) != "(8, 0.0)":  # the kernel hears of one choice after the other
        run_cell(opened, 3)
    run_cell(opened, 4)
    for view in (first, second):
        view.locator("[aria-pressed=true][aria-label='patch row 2, column 0']").wait_for()


def test_plain_widgets_drive_a_picture(notebook):
    opened = notebook(
        SHOW + ";",
        "slider = ipywidgets.IntSlider(max=16, description='who looks')\n"
        "ipywidgets.link((slider, 'value'), (explorer, 'query'))\n"
        "ipywidgets.VBox([slider, explorer])",
    )
    opened.page.wait_for_function("document.querySelectorAll('section.mha-live').length >= 1")
    view = opened.panel.locator(".widget-vbox section.mha-live")
    opened.panel.locator(".noUi-handle").press("ArrowRight")
    view.locator("[aria-pressed=true][aria-label='patch row 0, column 0']").wait_for()


@pytest.mark.long
def test_it_keeps_to_itself(notebook, lab, usual_errors):
    """No key reaches the lab, no error its console, no request another host."""
    opened = notebook(SHOW)
    (view,) = sections(opened)
    view.get_by_role("switch").first.focus()
    for _ in range(2):
        opened.page.keyboard.press("d")
    view.get_by_role("button", name="break it").click()
    opened.page.evaluate(NEXT_FRAME)
    assert len(opened.code_cells()) == 2, "two times d deletes a cell"
    assert set(opened.heard.errors) - usual_errors == set()
    assert [url for url in opened.heard.requests if not url.startswith((lab.address, "blob:", "data:"))] == []


@pytest.mark.long
def test_it_lives_without_its_kernel(notebook, open_notebook, lab):
    """After a restart; and saved, in a page that is loaded anew."""
    opened = notebook(SHOW)
    (view,) = sections(opened)
    opened.save()
    opened.do("await jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()")
    view.get_by_role("switch", name="layer 0, head 0").click()
    view.get_by_text("layer 0, head 0 (off)").first.wait_for()
    (path,) = lab.folder.glob("test_it_lives_without_its_kernel*.ipynb")
    saved = nbformat.read(path, 4)
    (output,) = saved.cells[1].outputs
    assert "<img alt=" in output.data["text/html"], "for GitHub, nbconvert and printouts"
    opened.page.goto("about:blank")
    (view,) = sections(open_notebook(path.name))
    view.get_by_role("switch", name="layer 0, head 0").click()
    view.get_by_text("layer 0, head 0 (off)").first.wait_for()
    assert view.evaluate(MARK) == [True, "none"], "a red mark of a broken link would say that it does not work"


MARK = """
section => [
    section.parentElement.classList.contains('jupyter-widgets-disconnected'),
    getComputedStyle(section.parentElement, '::before').display,
]
"""


# Whether the drawing that a picture laid out is as wide as what it belongs to.
LAID_OUT = """
() => [['.arcs', '.words'], ['.threads', '.lanes']].map(([drawing, field]) => {
    const section = document.querySelector(`section.mha-live:has(${drawing})`);
    const width = section?.querySelector(drawing).viewBox.baseVal.width;
    return width > 0 && width === section.querySelector(field).clientWidth;
})
"""


# Of every picture that measures its box while it is painted: what it places by that.
PLACED = """
() => ['.arcs', '.threads', '.chart', '.column-names', '.travel'].map(
    name => document.querySelector(`section.mha-live ${name}`).outerHTML
)
"""


@pytest.mark.long
def test_after_a_change_of_theme_lines_are_drawn_as_before(notebook):
    opened = notebook(
        "pictures.SentenceExplorer()",
        "pictures.DotProductStepper()",
        "pictures.KernelExplorer(torch.arange(5.0), torch.rand(5))",
        "pictures.TrainingScrubber(torch.full((2, 3, 4, 4), 0.25), [0, 10])",
        "pictures.TransposeStepper()",
    )
    sections(opened, 5)
    before = opened.page.evaluate(PLACED)
    for theme in ("JupyterLab Dark", "JupyterLab Light"):
        opened.do(f"await jupyterapp.commands.execute('apputils:change-theme', {{ theme: '{theme}' }})")
        opened.page.wait_for_function(f"document.body.dataset.jpThemeName === '{theme}'")
        opened.page.evaluate(NEXT_FRAME)
        assert opened.page.evaluate(LAID_OUT) == [True, True], theme
        assert opened.page.evaluate(PLACED) == before, theme


@pytest.mark.long
def test_running_a_cell_again_leaves_nothing_behind(notebook):
    show = "stepper = pictures.TransposeStepper()\nstepper"
    opened = notebook(show, "from ipywidgets.widgets import widget\nlen(widget._instances)")
    before = output_of(opened, 2)
    run_cell(opened, 1, times=8)  # what one leaves behind is seen in the number
    run_cell(opened, 2)
    assert output_of(opened, 2) == before


SMALL = """
from types import SimpleNamespace
from mha_course.models import smollm2
smollm2.NUM_HIDDENS, smollm2.FFN_NUM_HIDDENS, smollm2.VOCAB_SIZE = 36, 8, 60
words = SimpleNamespace(
    encode=lambda text: SimpleNamespace(ids=[int(word) for word in text.split()]),
    decode=lambda ids, **_: " ".join(map(str, ids)))
model = smollm2.SmolLM2(words).eval()
for parameter in model.parameters():
    torch.nn.init.normal_(parameter.data, std=0.3)
"""


@pytest.mark.long
def test_python_answers_about_a_text_of_ones_own_and_every_view_hears_its_own_answer(notebook):
    show = "explorer = pictures.NextWordExplorer(model)\nexplorer"
    opened = notebook(SMALL, show, "explorer.text, len(explorer.cut)", "explorer")
    first, second = sections(opened, 2)
    box = first.get_by_role("textbox", name="a text of your own")
    box.fill("7 31 7 2 50")
    box.press("Enter")
    for view in (first, second):
        view.get_by_role("button", name="31").wait_for()
    assert first.locator(".slot b").text_content() != "?"
    for head in (3, 200):
        first.locator(".head-cell").nth(head).click()
    for view in (first, second):  # the second asks for itself
        view.get_by_text("2 heads cut").first.wait_for()
    assert first.locator("[aria-label*='without it']").count() == 0
    first.get_by_role("button", name="what does each head cost alone?").click()
    first.locator(".head-cell[aria-label*='without it']").nth(269).wait_for()
    while output_of(opened, 3) != "('7 31 7 2 50', 2)":
        run_cell(opened, 3)
    box.fill("1 " * 41)
    box.press("Enter")
    first.get_by_text("text must have from 1 to 40 tokens, got 41").wait_for()
