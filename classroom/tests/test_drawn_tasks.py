"""The sheet of drawn tasks: its answers are those of the account ada; and ten kinds of hand-ins, in real nbgrader."""

import pytest
from notebook_tools import make_notebooks

from classroom.course import DRAWN_TASKS, NBGRADER, Course
from classroom.damaged_hand_ins import KINDS, marks_of

CELLS = {cell.id: cell for cell in make_notebooks.read(DRAWN_TASKS).cells}


def run(account="ada"):
    """Run all code cells in order; {graded cell: its points, or 0 where it raises an AssertionError}."""
    names, found = {}, {}
    for cell in CELLS.values():
        if cell.cell_type != "code":
            continue
        *before, last = cell.source.replace('"ada"', repr(account)).rsplit("\n", 1)
        marks = cell.metadata.get("nbgrader", {})
        lines = [line for line in "\n".join(before).split("\n") if "Path.cwd()" not in line]
        try:
            exec("\n".join(lines), names)
            if last == "points.total":
                found[marks.grade_id] = names["points"].total
            else:
                exec(last, names)
                found |= {marks.grade_id: marks.points} if marks.get("grade") else {}
        except AssertionError:
            found[marks.grade_id] = 0
    return found


def test_the_answers_get_all_points():
    of = {c.metadata.nbgrader.grade_id: c.metadata.nbgrader.points for c in CELLS.values() if "grade" in
          c.metadata.get("nbgrader", {}) and c.metadata.nbgrader.grade}  # fmt: skip
    assert run() == of and sum(of.values()) == 40


def test_answers_of_another_seed_get_what_is_general():
    """The weights without a rule, and the test, are right for every seed; rule and fault's name are not."""
    assert run("bob") == {"my-weights-check": 12, "my-ruled-weights-check": 0, "my-fault-check": 0, "my-test-check": 16}


@pytest.mark.slow
@pytest.mark.xdist_group("nbgrader")
@pytest.mark.skipif(not (NBGRADER / "installed").exists(), reason="nbgrader is not there: make nbgrader")
def test_ten_kinds_of_hand_ins_get_the_marks_that_are_due(tmp_path):
    course = Course(tmp_path, [DRAWN_TASKS])
    assert marks_of(course) == {account: kind.due for account, kind in KINDS.items()}
    assert len([*course.folder.glob("feedback/*/attention/*.html")]) == len(KINDS)
    for cell in course.released(DRAWN_TASKS.name).cells:  # learners do not see how the seed is checked
        assert "Path.cwd()" not in cell.source and "HIDDEN" not in cell.source
