"""nbgitpuller brings a new edition to a learner, and what the learner wrote stays.

It is the program behind the address that a server of the class's hub opens (classroom/jupyterhub_config.py).
"""

import json
import os
import random
import subprocess

import nbformat
import pytest
from nbformat.v4 import new_code_cell
from notebook_tools import ROOT, code, make_notebooks

from classroom.course import NBGRADER
from tools import stubs

NAME = "03_multi_head_attention.ipynb"
AUTHOR = {f"GIT_{who}_{what}": "an@instructor" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (NBGRADER / "installed").exists(), reason="nbgitpuller is not there: make nbgrader"),
]


@pytest.fixture
def edition():
    """A notebook of the course."""
    return make_notebooks.read(ROOT / "notebooks" / NAME)


@pytest.fixture
def handed_out(tmp_path, edition):
    """An instructor's repository and a learner's copy of it: the two folders."""
    repository, home = tmp_path / "repository", tmp_path / "home"
    repository.mkdir()
    run("git", "init", "--quiet", "--initial-branch=main", cwd=repository)
    (repository / "words.txt").write_text("the instructor's")
    publish(repository, edition)
    pull(repository, home)
    return repository, home


def run(*command, cwd):
    done = subprocess.run(command, cwd=cwd, env=os.environ | AUTHOR, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def save(notebook, path):
    """As JupyterLab saves it."""
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def publish(repository, notebook):
    save(notebook, repository / NAME)
    run("git", "add", "--all", cwd=repository)
    run("git", "commit", "--quiet", "--message", "An edition", cwd=repository)


def pull(repository, home):
    run(NBGRADER / "bin" / "gitpuller", repository.as_uri(), "main", home, cwd=repository)


def run_all(notebook):
    """Every cell has another number and another output than in the edition."""
    for number, cell in enumerate(code(notebook), start=7):
        cell.execution_count = number
        cell.outputs = [{"output_type": "stream", "name": "stdout", "text": [f"run as number {number}\n"]}]


def test_a_new_edition_comes_and_answers_stay(handed_out, edition):
    repository, home = handed_out
    mine = make_notebooks.read(home / NAME)
    run_all(mine)
    answers = [cell for cell in mine.cells if stubs.PLACEHOLDER in cell.source]
    for cell in answers:
        cell.source = f"answer = {cell.id!r}"
    save(mine, home / NAME)
    (home / "notes.txt").write_text("mine")
    (home / "words.txt").unlink()

    edition.cells[0].source += "\n\nA new sentence."
    stub = next(cell for cell in edition.cells if cell.id == answers[0].id)
    stub.source = "# The instructor has changed the stub, too."
    publish(repository, edition)
    (repository / "12_new.ipynb").write_text((repository / NAME).read_text(encoding="utf-8"), encoding="utf-8")
    publish(repository, edition)
    pull(repository, home)

    merged = {cell.id: cell.source for cell in make_notebooks.read(home / NAME).cells}
    assert answers and {cell.id: merged[cell.id] for cell in answers} == {cell.id: cell.source for cell in answers}
    assert merged[edition.cells[0].id].endswith("A new sentence.")
    assert (home / "12_new.ipynb").exists() and (home / "notes.txt").read_text() == "mine"
    assert (home / "words.txt").exists()


@pytest.mark.parametrize("seed", range(5))
def test_whatever_both_change_no_line_of_the_learner_is_lost(handed_out, edition, seed):
    """Both change cells at random, some of them the same, and add some; the notebook can be read as before."""
    repository, home = handed_out
    mine, draw = make_notebooks.read(home / NAME), random.Random(seed)
    run_all(mine)
    for notebook, whose in ((mine, "learner"), (edition, "instructor")):
        for number, cell in enumerate(draw.sample(code(notebook), 10)):
            cell.source += f"\n# {number} of the {whose}"
        for place in draw.sample(range(1, len(notebook.cells)), 3):
            notebook.cells.insert(place, new_code_cell(f"# {place} added by the {whose}", id=f"{whose}-{place}"))
    save(mine, home / NAME)
    publish(repository, edition)
    pull(repository, home)

    merged = make_notebooks.read(home / NAME)
    nbformat.validate(merged)
    lines = [line for cell in merged.cells for line in cell.source.split("\n")]
    assert {line for line in lines if "learner" in line} == {
        line for cell in mine.cells for line in cell.source.split("\n") if "learner" in line
    }
    assert any("instructor" in line for line in lines)
