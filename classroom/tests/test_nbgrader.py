"""Real nbgrader: it makes the story's stubs from the solutions, and gives right answers all points, wrong ones none.

It has an environment of its own, made by ``make nbgrader``; the notebooks run on this one, where mha_course is.
"""

import re

import pytest
from in_nbgrader import IN_NBGRADER
from notebook_tools import SOLUTIONS, make_notebooks

from classroom.course import ASSIGNMENT, Course
from classroom.hand_ins import DAMAGES, hand_in, of_nbgrader, solved, unsolved, wrong
from tools import stubs

DAMAGED = next(path for path in SOLUTIONS if path.stem == "04_transpose_qkv")
WRITTEN = {  # what is marked by hand, and the points that a reader gives to a good answer
    "slope-of-attention": ("01_attention_pooling", 3),
    "no-linear-layer": ("03_multi_head_attention", 4),
    "explain-a-map": ("06_heads_at_work", 3),
    "the-limits": ("08_head_pruning", 12),
    "one-layer-lacks": ("11_heads_being_born", 2),
    "plain-or-absorbed": ("12_serving", 2),
}
LOST = {"cells_deleted": {"transpose-qkv-check"}, "cells_split": {"transpose-qkv-check"}}
BY_HAND = f"""
from nbgrader.api import Gradebook
with Gradebook("sqlite:///gradebook.db") as book:
    for cell, (notebook, points) in {WRITTEN}.items():
        grade = book.find_grade(cell, notebook, "attention", "solved")
        grade.manual_score, grade.needs_manual_grade = points, False
    book.db.commit()
"""

pytestmark = IN_NBGRADER


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A course for which the learners' notebooks are made."""
    return Course(tmp_path_factory.mktemp("course"), [path.name for path in SOLUTIONS])


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_nbgrader_makes_the_storys_stubs(course, path):
    story = {cell.id: cell.source for cell in make_notebooks.read(path.parents[1] / path.name).cells}
    made = [cell for cell in course.released(path.name).cells if cell.metadata.get("nbgrader", {}).get("solution")]
    assert [cell.id for cell in made] == list(stubs.stubs_from(make_notebooks.read(path)))
    assert [cell.source for cell in made] == [story[cell.id] for cell in made]


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_learners_are_not_told_why(course, path):
    kept = [cell.id for cell in make_notebooks.read(path).cells if "reason" not in cell.metadata.get("tags", [])]
    assert [cell.id for cell in course.released(path.name).cells] == kept


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_a_sheet_is_headed_exercises_and_links_to_nothing_that_learners_do_not_get(course, path):
    texts = [cell.source for cell in course.released(path.name).cells if cell.cell_type == "markdown"]
    assert texts[0].startswith("# Exercises: ") and "answer that passes" not in texts[0]
    assert [text for text in texts if re.search(r"\]\((?!https?:)", text)] == []


@pytest.fixture(scope="module")
def grades(course):
    """The points of all learners, None where a hand must give them: {learner: {graded cell: (points, of)}}."""
    for path in SOLUTIONS:
        submit(course, "solved", path, solved)
        submit(course, "wrong", path, wrong)
    submit(course, "unsolved", SOLUTIONS[0], unsolved)
    first = next(iter(stubs.stubs_from(make_notebooks.read(SOLUTIONS[0]))))
    submit(course, "all but the first", SOLUTIONS[0], lambda cell: (unsolved if cell.id == first else solved)(cell))
    for damage in DAMAGES:
        submit(course, damage.__name__, DAMAGED, solved, damage)
    submit(course, "no_notebook", DAMAGED, lambda solution: solution.source, lambda notebook: notebook.pop("cells"))
    said = course.nbgrader("autograde", ASSIGNMENT, "--Execute.timeout=120", fails=True)
    assert re.findall("error processing assignment '.*' for student '(.*)'", said) == ["no_notebook"]
    found = {}
    for learner, notebook, cell, points, of, by_hand in course.grades():
        found.setdefault(learner, {})[notebook, cell] = None if by_hand else points, of
    return found


def submit(course, learner, path, answer, damage=None):
    """Hand in a notebook with answers, and damaged, if anything damages it."""
    notebook = hand_in(course.released(path.name), path, answer)
    if damage:
        damage(notebook)
    course.submit(learner, path.name, notebook)


def graded(path):
    """The graded cells of a notebook of solutions, and the points of each."""
    cells = of_nbgrader(make_notebooks.read(path))
    return {(path.stem, cell.metadata.nbgrader.grade_id): cell.metadata.nbgrader.get("points") for cell in cells}


def test_solutions_get_all_points_and_words_wait_for_a_reader(grades):
    points = {cell: points for path in SOLUTIONS for cell, points in graded(path).items() if points}
    assert {cell for _, cell in points} >= WRITTEN.keys()
    assert grades["solved"] == {cell: (None if cell[1] in WRITTEN else of, of) for cell, of in points.items()}


def test_wrong_answers_get_none(grades):
    expected = {cell: (None if cell[1] in WRITTEN else 0, of) for cell, (_, of) in grades["solved"].items()}
    assert grades["wrong"] == expected


def test_stubs_get_none(grades):
    """Of one notebook: that every stub is told "Not yet" is seen in all of them as they are saved."""
    points = {cell: points for cell, (_, points) in grades["solved"].items() if cell[0] == SOLUTIONS[0].stem}
    assert points
    assert {cell: grades["unsolved"][cell] for cell in points} == {cell: (0, of) for cell, of in points.items()}


def test_an_empty_first_answer_costs_its_own_points_alone(grades):
    solved_ones = {cell: points for cell, points in grades["solved"].items() if cell[0] == SOLUTIONS[0].stem}
    lost = {cell for cell, (points, of) in solved_ones.items() if grades["all but the first"][cell] != (points, of)}
    assert lost == {(SOLUTIONS[0].stem, "transpose-output-check")}


def test_words_that_nobody_wrote_get_none(grades):
    """Whoever hands in the first notebook alone has answered nothing elsewhere, and no hand is needed."""
    found = [grades["unsolved"][cell] for cell in grades["solved"] if cell[1] in WRITTEN]
    assert len(found) == len(WRITTEN) and {points for points, _ in found} == {0}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_notebook_gets_the_points_of_what_is_left(grades, damage):
    points = {cell: points for cell, points in graded(DAMAGED).items() if points}
    lost = LOST.get(damage.__name__, set())
    found = {cell: grades[damage.__name__][cell] for cell in points}
    assert found == {cell: (0 if cell[1] in lost else of, of) for cell, of in points.items()}


def test_a_mark_given_by_hand_reaches_the_gradebook(course, grades):
    """With it, a learner has a mark; one whose words wait has none yet, nor has one whose file was no notebook."""
    course.run("-c", BY_HAND)
    said = course.nbgrader("export", "--exporter=marks.Canvas", f"--assignment={ASSIGNMENT}", "--to=marks.csv")
    lines = (course.folder / "marks.csv").read_text(encoding="utf-8").splitlines()
    marks = {line.split(",")[3]: float(line.split(",")[-1]) for line in lines[2:]}
    assert marks["solved"] == sum(of for _, of in grades["solved"].values()) - 4
    assert marks.keys() == grades.keys() - {"wrong", "no_notebook"}  # "all but the first" has no words to wait for
    assert "wrong is left out: an answer waits to be marked by hand" in said
    assert "no_notebook is left out: not graded" in said
