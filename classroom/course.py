"""A course of nbgrader in a folder, for tests and trials: an assignment is made, handed in and graded.

nbgrader has an environment of its own, made by ``make nbgrader``, whose kernel is this one, where mha_course is.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

from tools import notebooks as make_notebooks

ROOT = Path(__file__).resolve().parents[1]
NBGRADER = ROOT / ".venv-nbgrader"
SOLUTIONS = ROOT / "notebooks" / "solutions"
DRAWN_TASKS = Path(__file__).with_name("sheets") / "drawn_tasks.ipynb"
SETTINGS = Path(__file__).with_name("settings")
ASSIGNMENT = "attention"
GRADES = f"""
import json
from nbgrader.api import Gradebook
with Gradebook("sqlite:///gradebook.db") as book:
    grades = [
        (submission.student.id, notebook.name, grade.name, grade.auto_score, grade.max_score, grade.needs_manual_grade)
        for submission in book.assignment_submissions("{ASSIGNMENT}")
        for notebook in submission.notebooks
        for grade in notebook.grades
    ]
print(json.dumps(grades))
"""


def of_an_instructor(home):
    """The variables of a shell that knows of no kernel, no make and no settings of Jupyter but those under ``home``."""
    private = ("JUPYTER", "MAKE", "MFLAGS")
    return {name: value for name, value in os.environ.items() if not name.startswith(private)} | {"HOME": str(home)}


class Course:
    """An instructor's course in ``folder``, with nbgrader's settings of this project and one assignment released.

    Args:
        folder: an empty folder.
        notebooks: names of notebooks of solutions that make the assignment, or ``DRAWN_TASKS``.
    """

    def __init__(self, folder, notebooks):
        self.folder = folder
        (folder / "source" / ASSIGNMENT).mkdir(parents=True)
        for name in notebooks:
            shutil.copy(SOLUTIONS / name, folder / "source" / ASSIGNMENT)
        for settings in SETTINGS.glob("*.py"):
            shutil.copy(settings, folder)
        self.nbgrader("generate_assignment", ASSIGNMENT)

    def nbgrader(self, *arguments, fails=False, **variables):
        """Run nbgrader in the course; what it says. ``fails``: whether it must end with an error; None: it may."""
        return self.run("-m", "nbgrader", *arguments, fails=fails, **variables).stderr

    def run(self, *arguments, fails=False, **variables):
        """Run the Python that has nbgrader; ``variables`` are added to its environment."""
        path = f"{NBGRADER / 'bin'}{os.pathsep}{os.environ['PATH']}"  # nbgrader starts alembic by its name
        env = of_an_instructor(self.folder) | {"PATH": path} | variables
        done = subprocess.run(["python", *arguments], cwd=self.folder, env=env, capture_output=True, text=True)
        assert fails in (None, bool(done.returncode)), done.stdout + done.stderr
        return done

    def released(self, name):
        """A notebook as learners get it."""
        return make_notebooks.read(self.folder / "release" / ASSIGNMENT / name)

    def submit(self, learner, name, notebook):
        """Put what a learner hands in where nbgrader looks for it."""
        folder = self.folder / "submitted" / learner / ASSIGNMENT
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(notebook), encoding="utf-8")

    def grades(self):
        """All grades: lines of learner, notebook, graded cell, points, of how many, whether a hand must mark it."""
        return json.loads(self.run("-c", GRADES).stdout)
