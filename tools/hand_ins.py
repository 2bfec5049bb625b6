"""What learners hand in to nbgrader: the released notebook with right answers, wrong ones or none."""

import ast

from tools import notebooks as make_notebooks
from tools import stubs


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
    """What a learner hands in to nbgrader: the released notebook with answers. With wrong ones, its checks are changed.

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
