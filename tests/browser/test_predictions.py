"""A prediction in JupyterLab offers its answers, and takes one's own words by keyboard."""

import pytest

from mha_course.checking.quiz_bank import choices

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.long, pytest.mark.xdist_group("jupyterlab")]

NAME = "03 one matrix"


def test_answers_are_offered_and_words_are_taken(open_notebook, lab):
    cell = f'from mha_course import exercises\n\nexercises.predict("{NAME}")'
    notebook = open_notebook(lab.write("predictions.ipynb", cell))
    notebook.run_all()
    field = notebook.page.locator(".mha-prediction input")
    offered = notebook.page.locator(".mha-prediction option")
    assert offered.evaluate_all("options => options.map(one => one.value)") == choices(NAME)
    field.focus()
    notebook.page.keyboard.type("all of them")
    notebook.page.keyboard.press("Enter")
    notebook.page.get_by_text("You predicted: all of them").wait_for()
