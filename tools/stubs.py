"""One source for exercises: the library's right answers are written into the cells of notebooks/solutions/, and the
story's stub cells are made from these.

A solution cell holds regions between the lines ``### BEGIN SOLUTION`` and ``### END SOLUTION``. The story's cell with
the same id is the solution cell with a placeholder in the place of each region, as nbgrader would make it. An answer in
words, which is marked by hand, is a text cell, and all of it gives way to a line.
"""

import ast
import re
from itertools import pairwise

BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"
PLACEHOLDER = "...  # your code here"
WRITTEN_PLACEHOLDER = "*Your answer, in the place of this line.*"
MODEL_ANSWER = "#### Deeper: a model answer"


class StubError(Exception):
    """A solution cell that gives no stub, or whose stub has no place in the story; the message names the cell."""


def is_solution(cell):
    """Whether a cell is meant to be a solution: it says so to nbgrader, or holds a marker."""
    marked = re.search("(BEGIN|END) SOLUTION", cell.source)
    return cell.cell_type == "code" and bool(marked or cell.metadata.get("nbgrader", {}).get("solution"))


def is_written(cell):
    """Whether a cell is an answer in words."""
    return cell.cell_type == "markdown" and cell.metadata.get("nbgrader", {}).get("solution", False)


def stub_from(cell):
    """The source of a solution cell with the placeholder, indented as the marker is, for each region.

    Raises:
        StubError: the cell has no region, or one without beginning or end.
    """
    if is_written(cell):
        return WRITTEN_PLACEHOLDER
    lines, inside, regions = [], False, 0
    for line in cell.source.split("\n"):
        marker, due = line.strip(), END if inside else BEGIN
        if marker != due and re.search("(BEGIN|END) SOLUTION", line):
            raise StubError(f"{cell.id}: '{marker}' where '{due}' is due")
        if marker == BEGIN:
            lines.append(line.replace(BEGIN, PLACEHOLDER))
            inside, regions = True, regions + 1
        elif marker == END:
            inside = False
        elif not inside:
            lines.append(line)
    if inside:
        raise StubError(f"{cell.id}: '{BEGIN}' without '{END}'")
    if not regions:
        raise StubError(f"{cell.id}: a solution cell without a line '{BEGIN}'")
    return "\n".join(lines)


def write_worked_answers(solutions, right_answers):
    """Put what the library's right answer does into every solution cell that writes a function or a class.

    The cell's id for nbgrader says which exercise it is. An answer that is neither stays as it was written.

    Args:
        right_answers: the source of a function or class for each exercise, by the exercise's name.

    Raises:
        StubError: there is no such exercise, or its functions take other arguments than the cell's.
    """
    for cell in filter(is_solution, solutions.cells):
        if not cell.source.startswith(("def ", "class ")):
            continue
        name = cell.metadata.get("nbgrader", {}).get("grade_id", "").replace("-", "_")
        if name not in right_answers:
            raise StubError(f"{cell.id}: there is no exercise of the name {name!r}, which nbgrader's grade_id gives")
        stub = stub_from(cell)
        for asked, right in zip(*map(functions_of, (stub, right_answers[name])), strict=True):
            if ast.dump(asked.args) != ast.dump(right.args):
                raise StubError(f"{cell.id}: {name} takes {ast.unparse(right.args)}, not {ast.unparse(asked.args)}")
            given = len(asked.body) - 1 - bool(ast.get_docstring(asked))  # statements before the placeholder
            body = right_answers[name].split("\n")[right.body[given].lineno - 1 : right.end_lineno]
            indent = " " * asked.body[-1].col_offset
            region = [indent + BEGIN, *body, indent + END]
            stub = stub.replace(indent + PLACEHOLDER, "\n".join(region), 1)
        cell.source = stub


def functions_of(source):
    """The function that a source defines, or the methods of the class that it defines."""
    node = ast.parse(source).body[0]
    return [node] if isinstance(node, ast.FunctionDef) else [n for n in node.body if isinstance(n, ast.FunctionDef)]


def stubs_from(solutions):
    """The stub of every solution cell in a notebook of solutions, by cell id."""
    return {cell.id: stub_from(cell) for cell in solutions.cells if is_solution(cell) or is_written(cell)}


def write_stubs(story, solutions):
    """Put every stub in its place, and an answer in words below it where the story has a heading for it.

    Raises:
        StubError: a solution gives no stub, or the story has no cell of its kind and id.
    """
    kinds = {cell.id: cell.cell_type for cell in solutions.cells}
    places = {cell.id: cell for cell in story.cells if cell.cell_type == kinds.get(cell.id)}
    for cell_id, stub in stubs_from(solutions).items():
        if cell_id not in places:
            raise StubError(f"{cell_id}: a solution cell, but the story has no {kinds[cell_id]} cell of this id")
        places[cell_id].source = stub
    words = {cell.id: cell.source for cell in solutions.cells if is_written(cell)}
    for cell, below in pairwise(story.cells):
        if cell.id in words and below.source.startswith(MODEL_ANSWER):
            below.source = f"{MODEL_ANSWER}\n\n{words[cell.id]}"
