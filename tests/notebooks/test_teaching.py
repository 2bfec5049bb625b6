"""The teaching notes are short and lead somewhere; where learners go wrong is said of the notebooks as they are."""

import re

import pytest
from notebook_tools import NOTEBOOKS, ROOT, make_notebooks

NOTES = ROOT / "notebooks" / "TEACHING.md"
MISTAKES = NOTES.with_name("MISTAKES.md")
TEXT = NOTES.read_text(encoding="utf-8")
MOST_WORDS = 3000
# Blocks of commands, and the tests that run them as they are written.
RUN_BY = {
    "make slides\n": "tests/browser/test_slides.py",
    ".venv/bin/python -m tools.plans --minutes\n": "tests/notebooks/test_lesson_plans.py",
}


def test_a_lecturer_reads_them_in_twenty_minutes():
    assert len(TEXT.split()) <= MOST_WORDS


def test_every_command_is_run_by_a_test():
    """Those of homework by classroom/tests/test_teaching_commands.py."""
    (homework,) = re.findall(r"(?ms)^## Homework, .*?(?=^## )", TEXT)
    blocks = re.findall(r"(?s)```bash\n(.*?)```", TEXT.replace(homework, ""))
    assert sorted(blocks) == sorted(RUN_BY)
    assert all((ROOT / test).exists() for test in RUN_BY.values())


def headings(path):
    """The headings of a notebook's numbered sections: number → heading and those below it, without emphasis."""
    found = {}
    cells = [cell.source for cell in make_notebooks.read(path).cells if cell.cell_type == "markdown"]
    for name in re.findall(r"(?m)^###? (.+)$", "\n\n".join(cells).replace("*", "")):
        number = re.match(r"(\d+)\. ", name)
        if number or not found:
            section = found.setdefault(number and int(number[1]), [])
        section.append(name.lower())
    return found


def sections_named(words):
    """The numbers in "section 4", "sections 2, 3 and 5" and "sections 1 to 4", and what is quoted from headings."""
    lists = re.findall(r"[Ss]ections? (\d+(?:(?:, | and | to )\d+)*)", words)
    return [int(number) for numbers in lists for number in re.findall(r"\d+", numbers)], re.findall("“(.+?)”", words)


def missing(path, words):
    """What the notes name that the notebook does not have: numbers of sections, and headings in these sections."""
    there = headings(path)
    numbers, quoted = sections_named(words)
    yield from (number for number in numbers if number not in there)
    known = [name for number in numbers or there for name in there.get(number, [])]
    yield from (quote for quote in quoted if not any(quote.lower() in name for name in known))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_helps_is_in_the_section_that_is_named(path):
    text = MISTAKES.read_text(encoding="utf-8")
    (part,) = re.findall(rf"(?s)^## \d\d \[[^\]]+\]\({re.escape(path.name)}\)(.*?)(?=^##|\Z)", text, re.MULTILINE)
    helps = re.findall(r"(?m)^\|[^|\n]+\|[^|\n]+\| ([^|\n]+) \|$", part)[1:]
    places = [
        place
        for words in helps
        for place in re.findall(r"[Ss]ections? \d+(?:(?:, | and | to )\d+)*(?:, “.+?”)?", words)
    ]
    assert [(place, what) for place in places for what in missing(path, place)] == []
