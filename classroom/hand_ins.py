"""What learners hand in to nbgrader: the released notebook with right answers, wrong ones or none, whole or damaged."""

import ast
import copy

from nbformat.v4 import new_code_cell, new_output

from mha_course.exercises import seed_of
from mha_course.exercises.drawn_rule import rule_of
from mha_course.museum.drawn_layer import layer_fault_of
from tools import notebooks as make_notebooks
from tools import stubs


def unsolved(solution):
    """What a learner leaves who does nothing; ``solution`` is a cell of a notebook of solutions."""
    return stubs.stub_from(solution)


def solved(solution):
    """The right answer, without the markers around it."""
    return "\n".join(line for line in solution.source.split("\n") if line.strip() not in (stubs.BEGIN, stubs.END))


def drawn(account):
    """Right answers of an account to the drawn tasks: a function of a cell of their solutions, as ``solved`` is."""
    (name, number), fault = rule_of(seed_of(account)), layer_fault_of(seed_of(account))
    answers = {
        "my-ruled-weights": "from mha_course.exercises.drawn_rule import RULES\n\n\n"
        "def my_ruled_weights(Q, K, valid_lens):\n"
        f"    return RULES[{name!r}].weights(Q, K, valid_lens, {number})",
        "my-fault": f"my_fault = {fault!r}",
    }
    return lambda cell: answers.get(cell.metadata.nbgrader.grade_id, solved(cell))


def wrong(solution):
    """A stub, and after it a wrong answer: every name that the cell defines means another function; or other words."""
    if stubs.is_written(solution):
        return "It is so."
    names = [name for statement in ast.parse(stubs.stub_from(solution)).body for name in defined(statement)]
    return "\n".join([stubs.stub_from(solution), *(f"{name} = lambda *_, **__: 0.25" for name in names)])


def defined(statement):
    """The names that a statement defines or assigns."""
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement]
    return [getattr(target, "name", getattr(target, "id", None)) for target in targets]


def hand_in(released, path, answer):
    """What a learner hands in to nbgrader: the released notebook with answers. With wrong ones, its checks are changed.

    Args:
        released: the notebook as nbgrader made it for learners.
        path: the notebook of solutions.
        answer: ``unsolved``, ``solved`` or ``wrong``.
    """
    solutions = make_notebooks.read(path)
    answers = {cell.id: answer(cell) for cell in solutions.cells if cell.id in stubs.stubs_from(solutions)}
    for cell in released.cells:
        cell.source = answers.get(cell.id, cell.source)
        if answer is wrong and cell.cell_type == "code" and cell.metadata.get("nbgrader", {}).get("grade"):
            cell.source = "print('✓ Right')"
    return released


def cells_deleted(notebook):
    """The first answer with its check, and the second check: the points of the first are lost."""
    first, check, _, second_check, *_ = of_nbgrader(notebook)
    notebook.cells = [cell for cell in notebook.cells if cell not in (first, check, second_check)]


def cells_copied(notebook):
    """Every answer and every check stands there twice: nothing is lost."""
    copied = of_nbgrader(notebook)
    notebook.cells = [part for cell in notebook.cells for part in ([cell, again(cell)] if cell in copied else [cell])]


def cells_split(notebook):
    """The first answer and all checks are split before their last line: the points of the first are lost."""
    first, *others = of_nbgrader(notebook)
    to_split = [first, *(cell for cell in others if cell.metadata.nbgrader.grade)]
    notebook.cells = [part for cell in notebook.cells for part in (split(cell) if cell in to_split else [cell])]


def outputs_cleared(notebook):
    """Nothing was run, or everything was cleared: nothing is lost."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None


def endless_cell(notebook):
    """A cell of the learner's own, after the first check, never ends: nothing is lost but time."""
    place = notebook.cells.index(of_nbgrader(notebook)[1]) + 1
    notebook.cells.insert(place, new_code_cell("while True:\n    pass"))


def of_a_later_format(notebook):
    """The file says that a later Jupyter wrote it, and has entries that today's does not know: nothing is lost."""
    notebook.nbformat_minor = 9
    for cell in notebook.cells:
        cell["later"] = {"entry": 1}


def of_another_kernel(notebook):
    """The file names a kernel that the grading machine has not: nothing is lost."""
    notebook.metadata.kernelspec = {"name": "my-conda-env", "display_name": "mine", "language": "python"}


def huge_output(notebook):
    """A cell of the learner's own prints a million lines, and the file holds them: nothing is lost."""
    cell = new_code_cell("for number in range(10**6):\n    print('line', number)")
    text = "".join(f"line {number}\n" for number in range(10**6))
    cell.outputs = [new_output("stream", name="stdout", text=text)]
    notebook.cells.insert(3, cell)


DAMAGES = (cells_deleted, cells_copied, cells_split, outputs_cleared, endless_cell)


def of_nbgrader(notebook):
    """The answers and their checks, in order."""
    return [cell for cell in notebook.cells if "nbgrader" in cell.metadata]


def again(cell):
    """A copy of a cell, with all that nbgrader has written on it, as JupyterLab makes it."""
    other = copy.deepcopy(cell)
    other.id = f"{cell.id}-again"
    return other


def split(cell):
    """The two halves of a cell, as JupyterLab splits it: both keep what nbgrader has written on the whole."""
    first, second = cell, again(cell)
    *lines, last = cell.source.split("\n")
    first.source, second.source = "\n".join(lines), last
    return [first, second]
