"""What the tests of the notebooks share."""

import ast
from pathlib import Path

import first_cell
import notebooks as make_notebooks
import stubs

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
REPORTS = sorted((ROOT / "notebooks").glob("report_*.ipynb"))
SOLUTIONS = sorted((ROOT / "notebooks" / "solutions").glob("*.ipynb"))


def code(notebook):
    """The code cells, but for the one that installs."""
    return [cell for cell in notebook.cells if cell.cell_type == "code" and not first_cell.is_first_cell(cell)]


def text_of(*names):
    """What text cells of notebooks say, one after the other, in one string.

    Args:
        names: the notebooks' files, without folder and ending.
    """
    notebooks = [make_notebooks.read(ROOT / "notebooks" / f"{name}.ipynb") for name in names]
    return " ".join(cell.source for each in notebooks for cell in each.cells if cell.cell_type == "markdown")


def run_cells(notebook):
    """Everything that a notebook's cells define, after all of them have run in order, here and now."""
    namespace = {"__name__": "notebook"}
    for cell in code(notebook):
        exec(compile(cell.source, cell.id, "exec"), namespace)
    return namespace


def told(stem, before="## Exercises"):
    """Everything that a notebook defines before a heading, after these cells have run in order, here and now."""
    notebook = make_notebooks.read(ROOT / "notebooks" / f"{stem}.ipynb")
    end = next(number for number, cell in enumerate(notebook.cells) if before in cell.source)
    notebook.cells = notebook.cells[:end]
    return run_cells(notebook)


def unsolved(solution):
    """What a learner leaves who does nothing; ``solution`` is a cell of a notebook of solutions."""
    return stubs.stub_from(solution)


def solved(solution):
    """The right answer."""
    return solution.source


def wrong(solution):
    """A stub, and after it a wrong answer: every name that the cell defines means another function."""
    names = [name for statement in ast.parse(stubs.stub_from(solution)).body for name in defined(statement)]
    return "\n".join([stubs.stub_from(solution), *(f"{name} = lambda *_, **__: 0.25" for name in names)])


def defined(statement):
    """The names that a statement defines or assigns."""
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement]
    return [getattr(target, "name", getattr(target, "id", None)) for target in targets]


def hand_in(released, path, answer):
    """What a learner hands in to nbgrader: the released notebook with answers; beside wrong ones, checks are tampered.

    Args:
        released: the notebook as nbgrader made it for learners.
        path: the notebook of solutions.
        answer: ``unsolved``, ``solved`` or ``wrong``.
    """
    answers = {cell.id: answer(cell) for cell in make_notebooks.read(path).cells if stubs.is_solution(cell)}
    for cell in released.cells:
        cell.source = answers.get(cell.id, cell.source)
        if answer is wrong and cell.metadata.get("nbgrader", {}).get("grade"):
            cell.source = "print('✓ Right')"
    return released
