"""The ways through the course: their times are counted, notebooks lead on along them, none needs what it leaves out."""

import re

import pytest
from nbformat.v4 import new_markdown_cell, new_notebook
from notebook_tools import NOTEBOOKS, ROOT, make_notebooks

from tools import main_line, ways_in

SHORT = [way for way in ways_in.WAYS if way is not ways_in.EVERYTHING]
# Names that a reader meets in one notebook, or in a folded part of it; whoever uses one elsewhere has to explain it.
TERMS = {
    "01": ("Gaussian kernel", "boxcar", "Nadaraya"),
    "02": ("additive attention", "bilinear", "stuck"),
    "03": ("hungry cats",),
    "05": ("look-ups", "norm before", "norm after"),
    "06": ("rollout", "held-out sentences"),
    "07": ("Shapley", "path gradient", "twins", "cancelling pair", "leave-one-out"),
    "09": ("rotary",),
    "11": ("induction head",),
    "folded": ("without a valid key", "boxcar", "interleaved", "self-repair", "fused attention"),
}


def needs(text, explained, way, number):
    """What a text refers to that a way leaves out: earlier notebooks that it is not on, and terms not ``explained``.

    What stands in parentheses may be skipped, and needs nothing; links on to later notebooks are no need either.
    """
    text = re.sub(r"(?m)^\[←.*$", "", re.sub(r"\]\(([^)\s]*)\)", r"]<\1>", text))
    text = re.sub(r"\([^()]*\)", "", text)
    named = re.findall(r"[Nn]otebooks? \[?(\d\d)\b|<(\d\d)_\w+\.ipynb", text)
    yield from sorted({a or b for a, b in named if (a or b) not in way.numbers and (a or b) < number})
    for of, terms in TERMS.items():
        if of not in way.numbers:
            yield from (term for term in terms if term.lower() in text.lower() and term.lower() not in explained)


def explained_in(text):
    """The terms that a text prints in bold, or names in a heading, in lower case, in one string."""
    return " · ".join(re.findall(r"(?m)(?:\*\*|^#+ )([^*\n]+)", text)).lower()


def text_of(number):
    cells = main_line.main_line(make_notebooks.numbered(number)[0]).cells
    return "\n\n".join(cell.source for cell in cells[:-1] if cell.cell_type == "markdown")


@pytest.mark.parametrize("way", SHORT, ids=lambda way: way.name)
def test_no_main_line_needs_what_its_way_leaves_out(way, subtests):
    explained = ""
    for number in way.numbers:
        text = text_of(number)
        explained += explained_in(text)
        with subtests.test(number):
            assert list(needs(text, explained, way, number)) == []


def test_the_ways_are_shown_with_their_minutes_as_the_cells_give_them():
    """`make notebooks` writes them anew."""
    for path, folder in ways_in.SHOWN.items():
        assert ways_in.BLOCK.search(path.read_text(encoding="utf-8"))[0] == ways_in.table(folder)
        for found in re.findall(r"\]\((.*?)\)", ways_in.table(folder)):
            assert (path.parent / found).exists()
    assert ways_in.table("") in make_notebooks.numbered("00")[0].cells[-1].source
    assert ways_in.EVERYTHING.numbers == tuple(path.stem[:2] for path in NOTEBOOKS)
    assert "{ways}" in (ROOT / "tools" / "site" / "index.md").read_text(encoding="utf-8")


def test_every_notebook_is_on_a_way_and_leads_on_along_each():
    for number in ways_in.ALL:
        last = make_notebooks.numbered(number)[0].cells[-1].source
        assert last.endswith(f"\n\n{ways_in.last_line(number)}")
    for way in ways_in.WAYS:
        for number, after in zip(way.numbers, way.numbers[1:], strict=False):
            named = re.findall(r"((?:\*[^*]+\*(?:, )?)+): \[[^\]]+\]\((\d\d)", ways_in.last_line(number))
            assert [to for names, to in named if f"*{way.name}*" in names] == [after]
        assert f"*{way.name}* ends here" in ways_in.last_line(way.numbers[-1])


def test_only_everything_counts_what_is_folded(monkeypatch):
    cells = [new_markdown_cell("word " * 260), new_markdown_cell("## Deeper: x\n\n" + "word " * 130)]
    cells[1].metadata[make_notebooks.FOLDS] = True
    cells.append(new_markdown_cell("## Exercises\n\n### Exercise 1 (7 minutes, write, easy)"))
    monkeypatch.setattr(make_notebooks, "numbered", lambda number: (new_notebook(cells=cells), f"{number}_x.ipynb"))
    assert ways_in.minutes(ways_in.THREE_SITTINGS) == (2, 7)
    assert ways_in.minutes(ways_in.EVERYTHING) == (3 * len(ways_in.ALL), 7 * len(ways_in.ALL))
