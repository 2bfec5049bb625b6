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


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_formulas_are_in_one_notation(path):
    cells = [cell for cell in make_notebooks.read(path).cells if cell.cell_type == "markdown"]
    texts = {cell.id: cell.source for cell in cells if cell.id != NAMES_ELSEWHERE}
    assert [
        (name, what) for name, text in texts.items() for what in OTHERWISE if re.search(OTHERWISE[what], text)
    ] == []
