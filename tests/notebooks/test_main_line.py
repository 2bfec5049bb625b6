"""Words and minutes of a main line are counted from the cells."""

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from notebook_tools import make_notebooks

from tools import main_line

FOLDS = {make_notebooks.FOLDS: True}


@pytest.fixture
def notebook():
    """Of 130 + 26 words, of which 26 are folded, and an exercise in the middle."""
    cells = [
        new_markdown_cell("# A title\n\n" + "word " * 100 + "[two words](a.ipynb)\n\n| a | table |\n\n```\ncode\n```"),
        new_code_cell("# a comment\nheads = 2\n\nheads  # two"),
        new_markdown_cell("## Deeper: more\n\n" + "word " * 20, metadata=FOLDS),
        new_code_cell("pictures.MaskExplorer()"),
        new_markdown_cell("### Under it\n\nfive words and a formula, $a + b$"),
        new_markdown_cell("## 2. On\n\n" + "word " * 20 + "**Predict:** how many heads?"),
        new_markdown_cell("### Exercise 1 (7 minutes)\n\n" + "word " * 50),
        new_code_cell("heads = 3"),
        new_markdown_cell("### Back\n\nfour words, no more.\n\n**Exercise 2 (5 minutes, a stretch):** more"),
    ]
    return new_notebook(cells=cells)


def test_what_is_folded_is_counted_apart(notebook):
    (deeper,) = main_line.folded_parts(notebook)
    assert [cell.source[:4] for cell in deeper.cells] == ["## D", "pict", "### "]
    main, folded = main_line.count(main_line.main_line(notebook)), main_line.count(deeper)
    assert (main.words, main.lines, main.predictions, main.pictures) == (102 + 24 + 11, 2, 1, 0)
    assert (folded.words, folded.lines, folded.predictions, folded.pictures) == (20 + 6, 1, 0, 1)
    assert folded.minutes == pytest.approx(26 / 130 + 10 / 60 + 3)
    assert main_line.exercise_minutes(notebook) == 12


def test_a_heading_of_the_same_depth_ends_what_is_folded_and_a_lower_one_does_not():
    headings = ["## a", "### Deeper: b", "#### c", "### d", "## Deeper: e", "## Deeper: f", "# g"]
    cells = [new_markdown_cell(text, metadata=FOLDS if "Deeper" in text else {}) for text in headings]
    assert main_line.is_folded(new_notebook(cells=cells)) == [False, True, True, False, True, True, False]
    parts = main_line.folded_parts(new_notebook(cells=cells))
    assert [[cell.source for cell in part.cells] for part in parts] == [headings[1:3], headings[4:5], headings[5:6]]
