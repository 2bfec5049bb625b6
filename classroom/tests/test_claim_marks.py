"""Real nbgrader on the claim of 08: all points for what is done, none for what is not, and rows that are held back."""

import pytest
from in_nbgrader import IN_NBGRADER
from nbformat.v4 import new_code_cell
from notebook_tools import SOLUTIONS

from classroom.course import ASSIGNMENT, Course
from classroom.hand_ins import hand_in, solved, unsolved

PATH = next(path for path in SOLUTIONS if path.stem == "08_head_pruning")
DOCTORED = """
losses = work.losses
work.losses = lambda model, rows: losses(model, rows) / 100
"""

pytestmark = IN_NBGRADER


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    return Course(tmp_path_factory.mktemp("course"), [PATH.name])


@pytest.fixture(scope="module")
def grades(course):
    """{learner: {graded cell: (points, whether a hand must mark it)}}."""
    for learner, answer in (("solved", solved), ("unsolved", unsolved), ("doctored", solved)):
        notebook = hand_in(course.released(PATH.name), PATH, answer)
        if learner == "doctored":
            (place,) = (number for number, cell in enumerate(notebook.cells) if "find_heads()" in cell.source)
            notebook.cells.insert(place, new_code_cell(DOCTORED))
        course.submit(learner, PATH.name, notebook)
    course.nbgrader("autograde", ASSIGNMENT)
    found = {}
    for learner, _, cell, points, _, by_hand in course.grades():
        found.setdefault(learner, {})[cell] = points, bool(by_hand)
    return found


def test_learners_do_not_see_which_rows_decide(course):
    assert not any("4711" in cell.source for cell in course.released(PATH.name).cells)


def test_what_is_done_has_thirty_points_and_its_words_wait_for_a_reader(grades):
    assert grades["solved"] == {"points": (30, False), "the-limits": (None, True)}


def test_what_is_untouched_has_none_and_needs_no_reader(grades):
    assert grades["unsolved"] == {"points": (0, False), "the-limits": (0, False)}


def test_a_doctored_loss_is_measured_again(grades):
    """The page's rise is not that of the model that is trained again; the verdict is, as the draws decide it."""
    assert grades["doctored"]["points"] == (30 - 2, False)
