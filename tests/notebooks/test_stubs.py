"""The story's stub cells are the solutions, stripped, and every way to break this is seen."""

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from notebook_tools import NOTEBOOKS, SOLUTIONS, make_notebooks

from tools import stubs

SOLUTION = """\
import torch


def double(X):
    '''Twice the numbers.'''
    ### BEGIN SOLUTION
    Y = X + X

    return Y
    ### END SOLUTION


answer = ...
### BEGIN SOLUTION
answer = 4
### END SOLUTION"""
STUB = """\
import torch


def double(X):
    '''Twice the numbers.'''
    ...  # your code here


answer = ...
...  # your code here"""
RIGHT = """\
def twice(X):
    Y = X + X  # (n,) + (n,) -> (n,)

    return Y
"""


def cell(source, cell_id="01_sample-02", **nbgrader):
    return new_code_cell(source, id=cell_id, metadata={"nbgrader": nbgrader} if nbgrader else {})


def text(source, cell_id="01_sample-02", **nbgrader):
    return new_markdown_cell(source, id=cell_id, metadata={"nbgrader": nbgrader} if nbgrader else {})


@pytest.mark.parametrize("path", [*NOTEBOOKS, *SOLUTIONS], ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_storys_stubs_are_its_solutions_stripped_and_these_are_the_librarys_worked_answers(path):
    notebook = make_notebooks.read(path)
    before = [cell.source for cell in notebook.cells]
    make_notebooks.fill_stubs(notebook, path)
    assert [cell.source for cell in notebook.cells] == before


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (SOLUTION.replace("    ### BEGIN SOLUTION\n", "", 1), "'### END SOLUTION' where '### BEGIN SOLUTION' is due"),
        (SOLUTION.replace("    ### END SOLUTION\n", "", 1), "'### BEGIN SOLUTION' where '### END SOLUTION' is due"),
        (SOLUTION.removesuffix("\n### END SOLUTION"), "'### BEGIN SOLUTION' without '### END SOLUTION'"),
        (SOLUTION.replace("### B", "# B"), "'# BEGIN SOLUTION' where '### BEGIN SOLUTION' is due"),
        ("answer = 4", "a solution cell without a line '### BEGIN SOLUTION'"),
    ],
)
def test_markers_without_a_partner_are_named(source, message):
    with pytest.raises(stubs.StubError, match=f"01_sample-02: {message}"):
        stubs.stubs_from(new_notebook(cells=[cell(source, solution=True, grade=False)]))


@pytest.mark.parametrize(
    ("solution", "stub", "below", "then"),
    [
        (cell(SOLUTION, solution=True), STUB, "## On", "## On"),
        (text("Because.", solution=True), stubs.WRITTEN_PLACEHOLDER, "## On", "## On"),
        (
            text("Because.", solution=True),
            stubs.WRITTEN_PLACEHOLDER,
            f"{stubs.MODEL_ANSWER}\n\nold",
            f"{stubs.MODEL_ANSWER}\n\nBecause.",
        ),
    ],
)
def test_a_stub_is_written_into_the_cell_of_its_solution_and_an_answer_in_words_below(solution, stub, below, then):
    here = {"code": cell, "markdown": text}
    asked = here.pop(solution.cell_type)("old")
    story = new_notebook(cells=[cell("1 + 1", "01_sample-01"), asked, text(below, "01_sample-03")])
    stubs.write_stubs(story, new_notebook(cells=[solution]))
    assert [cell.source for cell in story.cells] == ["1 + 1", stub, then]
    (other,) = here.values()  # a cell of the other kind is no place
    with pytest.raises(stubs.StubError, match=f"02: .*the story has no {solution.cell_type} cell of this id"):
        stubs.write_stubs(new_notebook(cells=[other("old")]), new_notebook(cells=[solution]))


def test_the_librarys_right_answer_is_written_into_the_solution():
    by_hand = cell("answer = ...\n### BEGIN SOLUTION\nanswer = 4\n### END SOLUTION", "01_sample-03")
    worked = cell(SOLUTION.partition("\n\n\n")[2].partition("\n\n\n")[0], solution=True, grade_id="twice-it")
    notebook = new_notebook(cells=[by_hand, worked])
    stub, before = stubs.stub_from(worked), by_hand.source
    stubs.write_worked_answers(notebook, {"twice_it": RIGHT})
    assert by_hand.source == before and stubs.stub_from(worked) == stub
    assert "    ### BEGIN SOLUTION\n    Y = X + X  # (n,) + (n,) -> (n,)\n\n    return Y\n" in worked.source
    for right, said in (({}, "no exercise of the name 'twice_it'"), ({"twice_it": "def f(Y): 1"}, "takes Y, not X")):
        with pytest.raises(stubs.StubError, match=f"01_sample-02: .*{said}"):
            stubs.write_worked_answers(notebook, right)
