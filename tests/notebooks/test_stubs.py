"""The story's stub cells are the solutions, stripped, and every way to break this is seen."""

import copy

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from notebook_tools import NOTEBOOKS, ROOT, SOLUTIONS, code, make_notebooks, stubs
from test_make_notebooks import make, saved

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


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_every_stub_of_the_story_is_its_solution_stripped(path):
    story = {cell.id: cell for cell in make_notebooks.read(path.parents[1] / path.name).cells}
    made = stubs.stubs_from(make_notebooks.read(path))
    assert made
    assert made == {cell_id: story[cell_id].source for cell_id in made}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_stub_of_the_story_has_a_solution(path):
    open_ones = [cell.id for cell in code(make_notebooks.read(path)) if stubs.PLACEHOLDER in cell.source]
    solutions = ROOT / "notebooks" / "solutions" / path.name
    assert open_ones == (list(stubs.stubs_from(make_notebooks.read(solutions))) if solutions.exists() else [])


def test_a_stub_has_the_placeholder_in_the_place_of_each_region():
    assert stubs.stub_from(cell(SOLUTION)) == STUB


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("    ### BEGIN SOLUTION\n", "", "01_sample-02: '### END SOLUTION' where '### BEGIN SOLUTION' is due"),
        ("    ### END SOLUTION\n", "", "01_sample-02: '### BEGIN SOLUTION' where '### END SOLUTION' is due"),
        ("answer = 4\n### END SOLUTION", "answer = 4", "01_sample-02: '### BEGIN SOLUTION' without '### END SOLUTION'"),
        ("    ### BEGIN", "    # BEGIN", "'# BEGIN SOLUTION' where '### BEGIN SOLUTION' is due"),
        ("    ### BEGIN SOLUTION", "    ### BEGIN SOLUTION now", "'### BEGIN SOLUTION now' where"),
        ("    return Y\n    ### END", "    return Y  ### END", "'return Y  ### END SOLUTION' where"),
    ],
)
def test_a_marker_out_of_balance_is_told(old, new, message):
    assert old in SOLUTION
    with pytest.raises(stubs.StubError) as error:
        stubs.stub_from(cell(SOLUTION.replace(old, new, 1)))
    assert message in str(error.value)


def test_what_says_that_it_is_a_solution_needs_markers():
    unmarked = new_notebook(
        cells=[cell("answer = 4", solution=True, grade=False), cell("1", "01_sample-03", solution=False)]
    )
    with pytest.raises(stubs.StubError, match="01_sample-02: a solution cell without a line '### BEGIN SOLUTION'"):
        stubs.stubs_from(unmarked)


def test_only_code_cells_are_solutions():
    text = new_markdown_cell("Write between ### BEGIN SOLUTION and the end.")
    notebook = new_notebook(cells=[text, cell("1"), cell(SOLUTION, "01_sample-09")])
    assert stubs.stubs_from(notebook) == {"01_sample-09": STUB}


@pytest.fixture
def pair(tmp_path):
    """A story and its solutions, where make finds them."""
    story = new_notebook(cells=[cell("1 + 1", "01_sample-01"), cell("old", "01_sample-02"), cell("2", "01_sample-03")])
    graded = cell("assert double(answer) == 8", "01_sample-04", grade=True, points=2)
    solutions = new_notebook(cells=[cell(SOLUTION, solution=True, grade=False), graded])
    paths = tmp_path / "01_sample.ipynb", tmp_path / "solutions" / "01_sample.ipynb"
    paths[1].parent.mkdir()
    nbformat.write(story, paths[0])
    nbformat.write(solutions, paths[1])
    return paths


def test_make_writes_the_stub_runs_it_and_changes_nothing_else(pair):
    before = saved(pair[0])["cells"]
    done = make(*pair)
    assert done.returncode == 0, done.stderr
    story, solutions = (saved(path)["cells"] for path in pair)
    assert "".join(story[1]["source"]) == STUB and story[1]["execution_count"] == 2
    assert [cell["source"] for cell in story[::2]] == [cell["source"] for cell in before[::2]]
    assert "".join(solutions[0]["source"]) == SOLUTION and solutions[0]["execution_count"] == 1
    assert [cell["metadata"] for cell in solutions] == [
        {"nbgrader": {"grade": False, "solution": True}},
        {"nbgrader": {"grade": True, "points": 2}},
    ]
    first = [path.read_bytes() for path in pair]
    assert make(*pair).returncode == 0
    assert [path.read_bytes() for path in pair] == first


def no_place(notebook):
    notebook.cells[0].id = "01_sample-07"


def no_end(notebook):
    notebook.cells[0].source = SOLUTION.removesuffix("### END SOLUTION")


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (no_place, "01_sample-07: a solution cell, but the story has no code cell of this id"),
        (no_end, "01_sample-02: '### BEGIN SOLUTION' without '### END SOLUTION'"),
    ],
)
def test_make_names_the_cell_and_leaves_both_files_alone(pair, fault, message):
    solutions = make_notebooks.read(pair[1])
    fault(solutions)
    nbformat.write(solutions, pair[1])
    before = [path.read_bytes() for path in pair]
    done = make(*pair)
    assert done.returncode == 1
    assert done.stderr.count(message) == 2 and "01_sample.ipynb: " in done.stderr
    assert [path.read_bytes() for path in pair] == before


def test_a_solution_has_no_place_in_a_text_cell(pair):
    story, solutions = map(make_notebooks.read, pair)
    changed = copy.deepcopy(story)
    changed.cells[1] = new_markdown_cell("text", id="01_sample-02")
    stubs.write_stubs(story, solutions)
    with pytest.raises(stubs.StubError, match="01_sample-02"):
        stubs.write_stubs(changed, solutions)
