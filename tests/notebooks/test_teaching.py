"""The teaching notes speak of the notebooks as they are: their sections, their minutes, their exercises."""

import re
from urllib.parse import unquote

import pytest
from notebook_checks import prose
from notebook_tools import NOTEBOOKS, ROOT, make_notebooks

from tools.main_line import exercise_minutes, main_line

NOTES = ROOT / "notebooks" / "TEACHING.md"
TEXT = NOTES.read_text(encoding="utf-8")
NOT_TIMED = {"Exercises", "Sources"}


def text_of(path):
    """The text of a notebook's main line."""
    return "\n\n".join(prose(cell) for cell in main_line(make_notebooks.read(path)).cells)


def minutes_of_sections(path):
    """What the notes say of a notebook: name of a section → minutes."""
    (part,) = re.findall(rf"(?s)^### \d\d \[[^\]]+\]\({re.escape(path.name)}\)(.*?)(?=^##|\Z)", TEXT, re.MULTILINE)
    return {name: int(minutes) for name, minutes in re.findall(r"(?m)^\| ([^|]+) \| (\d+) \|$", part)}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_sections_and_minutes_are_those_of_the_notebook(path):
    text, told = text_of(path), minutes_of_sections(path)
    story = {name: minutes for name, minutes in told.items() if name not in NOT_TIMED}
    assert list(story) == [name for name in re.findall(r"(?m)^## (.+)$", text) if name not in NOT_TIMED]
    (total,) = re.findall(r"\*\*Time:\*\* about (\d+) minutes", text)
    assert sum(story.values()) == int(total)
    assert re.search(rf"(?m)^### .*{re.escape(path.name)}\): {total} minutes$", TEXT)
    assert told.get("Exercises", 0) == exercise_minutes(make_notebooks.read(path))


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


def notebook(number):
    (path,) = (path for path in NOTEBOOKS if path.name.startswith(number))
    return path


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_helps_is_in_the_section_that_is_named(path):
    (part,) = re.findall(rf"(?s)^### \d\d \[[^\]]+\]\({re.escape(path.name)}\)(.*?)(?=^##|\Z)", TEXT, re.MULTILINE)
    helps = re.findall(r"(?m)^\|[^|\n]+\|[^|\n]+\| ([^|\n]+) \|$", part)[1:]
    places = [
        place
        for words in helps
        for place in re.findall(r"[Ss]ections? \d+(?:(?:, | and | to )\d+)*(?:, “.+?”)?", words)
    ]
    assert [(place, what) for place in places for what in missing(path, place)] == []


@pytest.mark.parametrize("length", [45, 90])
def test_a_plan_names_sections_by_number_and_heading(length):
    """A number alone would not tell that a section has moved: a single one stands with a heading of it."""
    (plan,) = re.findall(rf"(?s)^### {length} minutes:.*?(?=^##)", TEXT, re.MULTILINE)
    places = re.findall(r"(?m)^\| \d+ \| (\d\d), ([^|]+) \|", plan)
    assert len(places) > 4
    assert [(number, what) for number, words in places for what in missing(notebook(number), words)] == []
    for number, words in places:
        numbers, quoted = sections_named(words)
        assert len(numbers) != 1 or quoted, f"{number}, {words} names no heading"


@pytest.mark.parametrize("length", [45, 90])
def test_a_lesson_plan_fills_its_time(length):
    (plan,) = re.findall(rf"(?s)^### {length} minutes:.*?(?=^##)", TEXT, re.MULTILINE)
    assert sum(map(int, re.findall(r"(?m)^\| (\d+) \|", plan))) == length


def test_two_weeks_are_ten_sessions():
    (plan,) = re.findall(r"(?s)^### Two weeks.*?(?=^## )", TEXT, re.MULTILINE)
    assert re.findall(r"(?m)^\| (\d+) \|", plan) == [str(session) for session in range(1, 11)]


def test_links_lead_to_files():
    links = re.findall(r"\]\((?!https?:)([^)]+)\)", TEXT)
    assert len(links) > len(NOTEBOOKS)
    assert [link for link in links if not (NOTES.parent / unquote(link)).exists()] == []
