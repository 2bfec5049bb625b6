"""The sheet of drawn tasks: its answers are those of the account ada; and ten kinds of hand-ins, in real nbgrader."""

import csv

import pytest
from notebook_tools import make_notebooks

from classroom import hand_ins
from classroom.course import ASSIGNMENT, DRAWN_TASKS, NBGRADER, Course
from classroom.hand_ins import drawn, hand_in, unsolved

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


WRITING, RULE, NAME, TEST = 12, 8, 4, 16  # points of the sheet
ALL, GENERAL = WRITING + RULE + NAME + TEST, WRITING + TEST  # what is right for every seed


def none_of(*answers):
    """Answers of an account, without some: a function of an account."""
    return lambda account: (
        lambda cell: unsolved(cell) if cell.metadata.nbgrader.grade_id in answers else drawn(account)(cell)
    )


def for_another(account):
    """Right answers for the seed of a neighbour."""
    return drawn("perfect")


def signed_by_another(notebook):
    """The neighbour's name stands in the hand-in, too."""
    for cell in notebook.cells:
        cell.source = cell.source.replace('ACCOUNT = "ada"', 'ACCOUNT = "perfect"')


def deleted_and_copied(notebook):
    """An answer and its check are deleted, another check too; all that is left stands there twice."""
    hand_ins.cells_deleted(notebook)
    hand_ins.cells_copied(notebook)


KINDS = {  # name of an account → whose answers it hands in, what else is done to the file, and the mark that is due
    "perfect": (drawn, None, ALL),
    "half": (none_of("my-test", "my-fault"), None, WRITING + RULE),
    "damaged": (drawn, deleted_and_copied, ALL - WRITING),
    "empty-first": (none_of("my-weights"), None, ALL - WRITING),
    "copied": (for_another, signed_by_another, GENERAL),
    "wrong-seed": (for_another, None, GENERAL),
    "late-format": (drawn, hand_ins.of_a_later_format, ALL),
    "other-kernel": (drawn, hand_ins.of_another_kernel, ALL),
    "huge-output": (drawn, hand_ins.huge_output, ALL),
    "endless-loop": (drawn, hand_ins.endless_cell, ALL),
}


@pytest.mark.slow
@pytest.mark.xdist_group("nbgrader")
@pytest.mark.skipif(not (NBGRADER / "installed").exists(), reason="nbgrader is not there: make nbgrader")
def test_ten_kinds_of_hand_ins_get_the_marks_that_are_due(tmp_path):
    course = Course(tmp_path, [DRAWN_TASKS])
    for account, (answer, damage, _) in KINDS.items():
        notebook = hand_in(course.released(DRAWN_TASKS.name), DRAWN_TASKS, answer(account))
        if damage:
            damage(notebook)
        course.submit(account, DRAWN_TASKS.name, notebook)
    course.nbgrader("autograde", ASSIGNMENT, fails=None)
    course.nbgrader("generate_feedback", ASSIGNMENT)
    said = course.nbgrader("export", "--exporter=marks.Canvas", f"--assignment={ASSIGNMENT}", "--to=canvas.csv")
    _, _, *lines = csv.reader((course.folder / "canvas.csv").read_text().splitlines())
    marks = {account: float(mark) for *_, account, _, mark in lines}
    assert marks == {account: due for account, (*_, due) in KINDS.items()}, said
    assert len([*course.folder.glob("feedback/*/attention/*.html")]) == len(KINDS)
    for cell in course.released(DRAWN_TASKS.name).cells:  # learners do not see how the seed is checked
        assert "Path.cwd()" not in cell.source and "HIDDEN" not in cell.source
