"""The page of questions: each answered in two sentences, with links to texts that stand where it says they do."""

import re

import pytest
from notebook_tools import ROOT, make_notebooks

from tools.main_line import NUMBERED_EXERCISE

TEXT = (ROOT / "notebooks" / "QUESTIONS.md").read_text(encoding="utf-8")
ENTRIES = re.findall(r"(?ms)^### (\d+)\. ([^\n]+)\n\n(.*?)\n(?=\[)(.*?)(?=^##|\Z)", TEXT)
LINK = r"\[(?:(\d\d), )?(section|exercise|room) (\d+)\]\((\w+\.ipynb)#cell-id=([\w-]+)\)"


def test_there_are_40_in_order():
    assert [int(number) for number, *_ in ENTRIES] == list(range(1, 41))


@pytest.mark.parametrize(("number", "question", "answer", "links"), ENTRIES, ids=[entry[0] for entry in ENTRIES])
def test_an_answer_has_two_sentences_and_its_links_lead_where_they_say(number, question, answer, links):
    assert question.endswith(("?", ".")) and "?" in question
    assert len(re.findall(r"[.?](?=\s|$)", answer)) == 2
    found = re.findall(LINK, links)
    assert found and len(found) == links.count("](")
    for notebook, kind, where, path, cell in found:
        cells = make_notebooks.read(ROOT / "notebooks" / path).cells
        (place,) = (i for i, each in enumerate(cells) if each.id == cell and each.cell_type == "markdown")
        assert path.startswith(notebook) and any(each.cell_type == "code" for each in cells[place:])
        before = "\n".join(each.source for each in cells[:place] if each.cell_type == "markdown")
        mark = {"section": r"(?m)^## (\d+)\.", "exercise": NUMBERED_EXERCISE, "room": r"(?m)^### Room (\d+)"}
        left, here = ([found[1] for found in re.finditer(mark[kind], text)] for text in (before, cells[place].source))
        started = [] if re.match(mark[kind], cells[place].source) else left[-1:]
        assert where in started + here, f"{cell} is not in {kind} {where}"
