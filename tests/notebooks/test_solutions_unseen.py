"""No text of the exercises that learners read holds a line of a solution."""

import ast
import re

import pytest
from notebook_tools import ROOT, SOLUTIONS, make_notebooks

from mha_course.exercises import COURSE
from tools import stubs


def is_code(text):
    """Whether a text is code and nothing else, as a part of an edit is; sentences are none."""
    try:
        return bool(ast.parse(text))
    except SyntaxError:
        return False


CONSTANTS = [
    node.value
    for path in sorted((ROOT / "mha_course" / "exercises").glob("*.py"))
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    if isinstance(node, ast.Constant) and isinstance(node.value, str)
]
SAID = [text for exercise in COURSE.values() for text, _ in getattr(exercise, "edits", [])]
# Tables of mistakes hold code, too; what is said of a mistake is the part that learners read.
TEXTS = SAID + [text for text in CONSTANTS if " => " not in text and " -> " not in text and not is_code(text)]
BEGINS_EVERY_MODULE = "super().__init__()"  # which a message may ask for
SHORTEST = 12  # characters; what is shorter is no solution yet


def code_lines(cell):
    """What the region of a solution computes, line by line, without the name it goes by and without comments."""
    region = set(cell.source.split("\n")) - set(stubs.stub_from(cell).split("\n")) - {stubs.BEGIN, stubs.END}
    code = [re.sub(r"^(return|[\w, ]+ [-+*/@]?=(?!=)) |  # .*", "", line.strip()) for line in region]
    markers_or_names = rf".*({stubs.BEGIN}|{stubs.END}).*|[\w., ]+"  # `self.num_heads` is a name, too
    solved = [line for line in code if line != BEGINS_EVERY_MODULE and len(line) >= SHORTEST]
    return [line for line in solved if not re.fullmatch(markers_or_names, line)]


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_no_text_holds_a_line_of_a_solution(path):
    cells = [cell for cell in make_notebooks.read(path).cells if stubs.is_solution(cell)]
    lines = [line for cell in cells for line in code_lines(cell)]
    assert lines
    assert [line for line in lines if any(line in text for text in TEXTS)] == []
