"""The teaching notes speak of the notebooks as they are: their sections, their minutes, their exercises."""

import re
from urllib.parse import unquote

import pytest
from notebook_checks import EXERCISE, prose
from notebook_tools import NOTEBOOKS, ROOT, make_notebooks

from tools.main_line import main_line

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
    assert told.get("Exercises", 0) == sum(int(found["minutes"]) for found in EXERCISE.finditer(text))


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
