"""One notation from 00 to 12: tokens are rows, so matrices stand to the right of them; letters are those of 00."""

import re

import pytest
from notebook_tools import NOTEBOOKS, make_notebooks

NAMES_ELSEWHERE = "00_start_here-96"  # which has other notations beside ours
W = r"\\mathbf W(?:_\w|_\{\w+\})?(?:\^\{\(\w\)\})?"
GAP = r"[\s\\,!]*"
OTHERWISE = {
    "a matrix stands to the left of a vector or of the tokens": rf"{W}{GAP}\\mathbf [a-zXHQKV]\b",
    "W_q and W_k are multiplied as if tokens were columns": rf"\\mathbf W_q\^\\top{GAP}\\mathbf W_k",
    "W_o stands to the left of W_v": rf"\\mathbf W_o(?:\^\{{\(\w\)\}})?{GAP}\\mathbf W_v",
    "W_q, W_k or W_v has p rows and d columns": r"\\mathbf W_[qkv]\s*\\in\s*\\mathbb R\^\{p\s*\\times\s*d\}",
    "W_o has d rows": r"\\mathbf W_o(?:\^\{\(\w\)\})?\s*\\in\s*\\mathbb R\^\{d\s*\\times\s*h?\s*p\}",
    "scores are divided by the root of d, not of p": r"(?<!1/)(?:\\sqrt\s*\{?\s*d\b|√d\b)",
}


def faults(text):
    """What a text's formulas say otherwise than 00 does."""
    return [what for what, pattern in OTHERWISE.items() if re.search(pattern, text)]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_formulas_are_in_one_notation(path):
    cells = [
        cell for cell in make_notebooks.read(path).cells if cell.cell_type == "markdown" and cell.id != NAMES_ELSEWHERE
    ]
    found = [(cell.id, faults(cell.source)) for cell in cells if faults(cell.source)]
    assert found == []


@pytest.mark.parametrize(
    ("formula", "right"),
    [
        (r"$\mathbf X\mathbf W_q$", True),
        (r"$\mathbf W_q\,\mathbf x$", False),
        (r"$\mathbf x\mathbf W_q$, then $\mathbf k$", True),
        (r"$\mathbf W_q^\top \mathbf W_k$", False),
        (r"$\mathbf W_v^{(i)} \mathbf W_o^{(i)}$", True),
        (r"$\mathbf W_o^{(i)} \mathbf W_v^{(i)}$", False),
        (r"$\mathbf W_q \in \mathbb R^{d \times p}$", True),
        (r"$\mathbf W_q \in \mathbb R^{p \times d}$", False),
        (r"$\mathbf W_o \in \mathbb R^{d \times hp}$", False),
        (r"$\mathbf q^\top\mathbf k/\sqrt p$", True),
        (r"$\mathbf q^\top\mathbf k/\sqrt d$", False),
        ("nn.Linear draws up to 1/√d", True),
        ("the root √d", False),
    ],
)
def test_another_notation_is_seen(formula, right):
    assert (faults(formula) == []) is right
