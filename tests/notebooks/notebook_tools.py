"""What the tests of the notebooks share."""

import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
REPORTS = sorted((ROOT / "notebooks").glob("report_*.ipynb"))
SOLUTIONS = sorted((ROOT / "notebooks" / "solutions").glob("*.ipynb"))


def load(name):
    """A module behind ``make notebooks``, whose folder no import can name."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # one of them imports the other
    spec.loader.exec_module(module)
    return module


stubs = load("stubs")
first_cell = load("first_cell")
make_notebooks = load("notebooks")


def code(notebook):
    """The code cells, but for the one that installs."""
    return [cell for cell in notebook.cells if cell.cell_type == "code" and not first_cell.is_first_cell(cell)]


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
