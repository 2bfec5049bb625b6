"""What the tests of the notebooks share."""

import ast
import importlib.util
import sys
from pathlib import Path

from IPython.core.inputtransformer2 import TransformerManager
from nbformat.v4 import new_code_cell

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


def cell_definitions(path, names):
    """The functions and classes that a notebook's cells define, made without running anything else in it.

    The notebook's imports and these definitions run in order, up to the last definition: what the notebook
    imports further down cannot stand in for what it defines. Of several definitions of one name the last
    counts.

    Args:
        path: the notebook.
        names: what to define; a function that calls other functions of the notebook needs those named too.

    Returns:
        A dict from name to object, each as it was right after its own definition.

    Raises:
        ValueError: no cell defines one of the names at its top level.
    """
    statements = [statement for cell in make_notebooks.read(path).cells for statement in parse(cell)]
    wanted = [statement for statement in statements if getattr(statement, "name", None) in names]
    missing = set(names) - {statement.name for statement in wanted}
    if missing:
        raise ValueError(f"{Path(path).name} defines no {', '.join(sorted(missing))}")
    namespace, defined = {"__name__": Path(path).stem}, {}
    for statement in statements[: statements.index(wanted[-1]) + 1]:
        if statement in wanted or isinstance(statement, ast.Import | ast.ImportFrom):
            exec(compile(ast.Module([statement], type_ignores=[]), Path(path).name, "exec"), namespace)
        if statement in wanted:
            defined[statement.name] = namespace[statement.name]
    return defined


def parse(cell):
    """The statements of a cell; none for a text cell."""
    if cell.cell_type != "code":
        return []
    return ast.parse(TransformerManager().transform_cell(cell.source)).body


def unsolved(solution):
    """What a learner leaves who does nothing; ``solution`` is a cell of a notebook of solutions."""
    return stubs.stub_from(solution)


def solved(solution):
    """The right answer."""
    return solution.source


def wrong(solution):
    """A stub, and after it a wrong answer: every name that the cell defines means another function."""
    names = [name for statement in parse(new_code_cell(stubs.stub_from(solution))) for name in defined(statement)]
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
