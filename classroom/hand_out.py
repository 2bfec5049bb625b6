"""Notebooks go out to a class as a repository, and a new edition is merged into what learners wrote, by nbgitpuller."""

import shutil
import subprocess
from pathlib import Path

import nbformat

from classroom.students import FIRST, ClassError, Student

ROOT = Path(__file__).resolve().parents[1]
AUTHOR = ["-c", "user.name=instructor", "-c", "user.email=instructor@example.org"]
NEW_TEXT, OWN_CODE = "This sentence is new.", "my_own = 'kept'"


def make_repository(place: Path) -> str:
    """A repository of the notebooks in ``place``, as an instructor makes it; its address."""
    shutil.copytree(ROOT / "notebooks", place, ignore=shutil.ignore_patterns(".ipynb_checkpoints"))
    git(place, "init", "--quiet", "--initial-branch=main")
    commit(place)
    return place.as_uri()


def git(place: Path, *arguments: str) -> None:
    subprocess.run(["git", *AUTHOR, *arguments], cwd=place, check=True, capture_output=True)


def commit(place: Path) -> None:
    git(place, "add", "--all")
    git(place, "commit", "--quiet", "--message", "An edition")


def new_edition(place: Path) -> None:
    """The instructor changes a text of a notebook, gives it a cell and adds another notebook."""
    notebook = nbformat.read(place / FIRST, as_version=4)
    notebook.cells[0].source += f"\n\n{NEW_TEXT}"
    notebook.cells.append(nbformat.v4.new_markdown_cell("A new cell.", id="a-new-cell"))
    nbformat.write(notebook, place / FIRST)
    shutil.copy(place / FIRST, place / "12_new.ipynb")
    commit(place)


def update(hub: str, names: list[str], place: Path) -> list[str]:
    """Students change a notebook, an edition comes, and they pull it: the lines of a table."""
    students = [Student(hub, name) for name in names]
    for student in students:
        student.log_in()
        notebook = student.ask("GET", f"api/contents/notebooks/{FIRST}").json()["content"]
        stub = next(cell for cell in notebook["cells"] if "your code here" in cell["source"])
        stub["source"] = OWN_CODE
        student.ask("PUT", f"api/contents/notebooks/{FIRST}", json={"type": "notebook", "content": notebook})
    new_edition(place)
    lines = ["| student | own cell kept | new text, new cell, new notebook |", "|---|---|---|"]
    for student in students:
        student.get_notebooks()
        notebook = student.ask("GET", f"api/contents/notebooks/{FIRST}").json()["content"]
        sources = [cell["source"] for cell in notebook["cells"]]
        kept = OWN_CODE in sources
        new = NEW_TEXT in sources[0] and "A new cell." in sources
        student.ask("GET", "api/contents/notebooks/12_new.ipynb")
        if not (kept and new):
            raise ClassError(f"{student.name}: own cell kept: {kept}; new edition there: {new}")
        lines.append(f"| {student.name} | yes | yes |")
    return lines
