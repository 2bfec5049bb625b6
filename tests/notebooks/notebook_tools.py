"""What the tests of the notebooks share."""

from pathlib import Path

import pytest
from turns import LONG

from tools import first_cell
from tools import notebooks as make_notebooks
from tools.languages import LANGUAGES

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
REPORTS = sorted((ROOT / "notebooks").glob("report_*.ipynb"))
SOLUTIONS = sorted((ROOT / "notebooks" / "solutions").glob("*.ipynb"))
TRANSLATED = [path for language in LANGUAGES for path in sorted((ROOT / "notebooks" / language).glob("*.ipynb"))]


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


def output_of(cell):
    """The text that the committed notebook shows below a cell; a text cell shows none."""
    return "".join(map(text_of_output, cell.get("outputs", [])))


def text_of_output(output):
    """What nbval compares of an output, pictures aside."""
    return output.get("text", "") + output.get("data", {}).get("text/plain", "")


def run_cells(notebook):
    """Everything that a notebook's cells define, after all of them have run in order, here and now: in CI alone."""
    if not LONG:
        pytest.skip("long: it runs a notebook's cells once more: MHA_LONG=1 runs it")
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
