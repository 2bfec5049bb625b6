"""Real nbgrader: it makes the story's stubs from the solutions, and gives right answers all points, wrong ones none.

It has an environment of its own, made by ``make nbgrader``; the notebooks run on this one, where mha_lib is.
"""

import json
import os
import shutil
import subprocess
import sys

import pytest
from notebook_tools import ROOT, SOLUTIONS, make_notebooks

from tools import stubs
from tools.hand_ins import hand_in, solved, unsolved, wrong

NBGRADER = ROOT / ".venv-nbgrader"
KERNEL = {"argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"], "language": "python"}
GRADES = """
import json
from nbgrader.api import Gradebook
with Gradebook("sqlite:///gradebook.db") as book:
    grades = [
        (submission.student.id, notebook.name, grade.name, grade.auto_score, grade.max_score)
        for submission in book.assignment_submissions("attention")
        for notebook in submission.notebooks
        for grade in notebook.grades
    ]
print(json.dumps(grades))
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("nbgrader"),
    pytest.mark.skipif(not (NBGRADER / "installed").exists(), reason="nbgrader is not there: make nbgrader"),
]


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """The folder of a course for which the learners' notebooks are made."""
    folder = tmp_path_factory.mktemp("course")
    kernel = folder / "jupyter" / "kernels" / "python3" / "kernel.json"
    kernel.parent.mkdir(parents=True)
    kernel.write_text(json.dumps(KERNEL | {"display_name": "Python 3"}))
    shutil.copytree(ROOT / "notebooks" / "solutions", folder / "source" / "attention")
    (folder / "source" / "attention" / "nbgrader_config.py").rename(folder / "nbgrader_config.py")
    run(folder, "-m", "nbgrader", "generate_assignment", "attention")
    return folder


def run(course, *arguments):
    """Run the Python that has nbgrader, in a home of its own; what it prints."""
    env = os.environ | {
        "HOME": str(course),
        "JUPYTER_PATH": str(course / "jupyter"),
        "PATH": f"{NBGRADER / 'bin'}{os.pathsep}{os.environ['PATH']}",  # nbgrader starts alembic by its name
    }
    done = subprocess.run(["python", *arguments], cwd=course, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def released(course, name):
    return make_notebooks.read(course / "release" / "attention" / name)


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_nbgrader_makes_the_storys_stubs(course, path):
    story = {cell.id: cell.source for cell in make_notebooks.read(path.parents[1] / path.name).cells}
    made = [cell for cell in released(course, path.name).cells if cell.metadata.get("nbgrader", {}).get("solution")]
    assert [cell.id for cell in made] == list(stubs.stubs_from(make_notebooks.read(path)))
    assert [cell.source for cell in made] == [story[cell.id] for cell in made]


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_learners_are_not_told_why(course, path):
    kept = [cell.id for cell in make_notebooks.read(path).cells if "reason" not in cell.metadata.get("tags", [])]
    assert [cell.id for cell in released(course, path.name).cells] == kept


@pytest.fixture(scope="module")
def grades(course):
    """The points of three learners, and those there were to win: {learner: {graded cell: (points, of)}}."""
    for path in SOLUTIONS:
        submit(course, solved, path)
        submit(course, wrong, path)
    submit(course, unsolved, SOLUTIONS[0])
    run(course, "-m", "nbgrader", "autograde", "attention")
    found = {}
    for learner, notebook, cell, points, of in json.loads(run(course, "-c", GRADES)):
        found.setdefault(learner, {})[notebook, cell] = points, of
    return found


def submit(course, answer, path):
    """Put what a learner hands in where nbgrader looks for it."""
    folder = course / "submitted" / answer.__name__ / "attention"
    folder.mkdir(parents=True, exist_ok=True)
    handed_in = hand_in(released(course, path.name), path, answer)
    (folder / path.name).write_text(json.dumps(handed_in), encoding="utf-8")


def test_solutions_get_all_points(grades):
    graded = {
        (path.stem, cell.metadata.nbgrader.grade_id): cell.metadata.nbgrader.points
        for path in SOLUTIONS
        for cell in make_notebooks.read(path).cells
        if cell.metadata.get("nbgrader", {}).get("grade")
    }
    assert graded
    assert grades["solved"] == {cell: (points, points) for cell, points in graded.items()}


def test_wrong_answers_get_none(grades):
    assert grades["wrong"] == {cell: (0, points) for cell, (_, points) in grades["solved"].items()}


def test_stubs_get_none(grades):
    """Of one notebook: that every stub is told "Not yet" is seen in all of them as they are saved."""
    points = {cell: points for cell, (_, points) in grades["solved"].items() if cell[0] == SOLUTIONS[0].stem}
    assert points
    assert {cell: grades["unsolved"][cell] for cell in points} == {cell: (0, of) for cell, of in points.items()}
