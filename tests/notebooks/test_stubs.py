"""The story's stub cells are the solutions, stripped, and every way to break this is seen."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from notebook_checks import is_stub
from notebook_tools import NOTEBOOKS, ROOT, SOLUTIONS, make_notebooks

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


def cell(source, cell_id="01_sample-02", **nbgrader):
    return new_code_cell(source, id=cell_id, metadata={"nbgrader": nbgrader} if nbgrader else {})


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_stubs_of_the_story_are_its_solutions_stripped(path):
    """All of them, and no others."""
    open_ones = {cell.id: cell.source for cell in make_notebooks.read(path).cells if is_stub(cell)}
    solutions = ROOT / "notebooks" / "solutions" / path.name
    made = stubs.stubs_from(make_notebooks.read(solutions)) if solutions in SOLUTIONS else {}
    assert list(open_ones.items()) == list(made.items())


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("    ### BEGIN SOLUTION\n", "", "01_sample-02: '### END SOLUTION' where '### BEGIN SOLUTION' is due"),
        ("    ### END SOLUTION\n", "", "01_sample-02: '### BEGIN SOLUTION' where '### END SOLUTION' is due"),
        ("answer = 4\n### END SOLUTION", "answer = 4", "01_sample-02: '### BEGIN SOLUTION' without '### END SOLUTION'"),
        ("    ### BEGIN SOLUTION", "    # BEGIN SOLUTION", "'# BEGIN SOLUTION' where '### BEGIN SOLUTION' is due"),
    ],
)
def test_markers_without_a_partner_are_named(old, new, message):
    with pytest.raises(stubs.StubError) as error:
        stubs.stub_from(cell(SOLUTION.replace(old, new, 1)))
    assert message in str(error.value)


def test_a_solution_for_nbgrader_needs_a_marker():
    unmarked = new_notebook(cells=[cell("answer = 4", solution=True, grade=False)])
    with pytest.raises(stubs.StubError, match="01_sample-02: a solution cell without a line '### BEGIN SOLUTION'"):
        stubs.stubs_from(unmarked)


def test_an_answer_in_words_gives_way_to_a_line():
    words = new_markdown_cell("Because.", id="01_sample-02", metadata={"nbgrader": {"solution": True, "grade": True}})
    story = new_notebook(cells=[new_markdown_cell("old", id="01_sample-02"), new_markdown_cell("2", id="01_sample-03")])
    stubs.write_stubs(story, new_notebook(cells=[words]))
    assert [cell.source for cell in story.cells] == [stubs.WRITTEN_PLACEHOLDER, "2"]
    with pytest.raises(stubs.StubError, match=r"01_sample-02: .*the story has no markdown cell of this id"):
        stubs.write_stubs(new_notebook(cells=[cell("old")]), new_notebook(cells=[words]))


def test_an_answer_in_words_stands_below_where_the_story_has_a_heading_for_it():
    words = new_markdown_cell("Because.", id="01_sample-02", metadata={"nbgrader": {"solution": True, "grade": True}})
    for below, then in ((f"{stubs.MODEL_ANSWER}\n\nold", f"{stubs.MODEL_ANSWER}\n\nBecause."), ("## On", "## On")):
        cells = [new_markdown_cell("old", id="01_sample-02"), new_markdown_cell(below, id="01_sample-03")]
        story = new_notebook(cells=cells)
        stubs.write_stubs(story, new_notebook(cells=[words]))
        assert [cell.source for cell in story.cells] == [stubs.WRITTEN_PLACEHOLDER, then]


RIGHT = """\
def twice(X):
    Y = X + X  # (n,) + (n,) -> (n,)

    return Y
"""


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


def test_solutions_are_what_the_library_shows_as_worked_answers(subtests):
    for path in SOLUTIONS:
        notebook = make_notebooks.read(path)
        before = [cell.source for cell in notebook.cells]
        make_notebooks.fill_stubs(notebook, path)
        with subtests.test(path.stem):
            assert [cell.source for cell in notebook.cells] == before


@pytest.fixture
def pair(tmp_path):
    """A story and its solutions, where ``make notebooks`` finds them."""
    story, solutions = tmp_path / "01_sample.ipynb", tmp_path / "solutions" / "01_sample.ipynb"
    solutions.parent.mkdir()
    nbformat.write(new_notebook(cells=[cell("1 + 1", "01_sample-01"), cell("old"), cell("2", "01_sample-03")]), story)
    nbformat.write(new_notebook(cells=[cell(SOLUTION, solution=True, grade=False)]), solutions)
    return story, solutions


def test_a_stub_is_written_into_the_cell_of_its_solution_and_nowhere_else(pair):
    story = make_notebooks.read(pair[0])
    make_notebooks.fill_stubs(story, pair[0])
    assert [cell.source for cell in story.cells] == ["1 + 1", STUB, "2"]


@pytest.mark.parametrize("number", [0, 1], ids=["story", "solutions"])
def test_a_solution_without_a_place_in_the_story_is_named(pair, number):
    """Whichever of the two is made; a text cell is no place."""
    story = make_notebooks.read(pair[0])
    story.cells[1] = new_markdown_cell("text", id="01_sample-02")
    nbformat.write(story, pair[0])
    with pytest.raises(stubs.StubError, match="01_sample-02: a solution cell, but the story has no code cell of this"):
        make_notebooks.fill_stubs(make_notebooks.read(pair[number]), pair[number])
