"""The quiz bank is of the notebooks' predictions, and each misconception in it is met where its source says."""

import re

import pytest
from notebook_tools import NOTEBOOKS, ROOT, make_notebooks

from mha_course.checking import quiz_bank
from mha_course.checking.edits import rows_of
from mha_course.language import use
from mha_course.museum.bugs import FOUND
from mha_course.museum.wrong_attention import MISTAKES

SOURCES = {  # notebook → its text
    path.stem[:2]: "\n\n".join(cell.source for cell in make_notebooks.read(path).cells) for path in NOTEBOOKS
}
ASKED = [name for text in SOURCES.values() for name in re.findall(r'exercises\.predict\("(.+?)"\)', text)]
OWN = {"08 heads that replace each other", "08 will it hold", "06 six maps"}  # of a learner's own model; of a picture
ITEMS = pytest.mark.parametrize("name", quiz_bank.bank())


def test_every_prediction_has_answers_unless_it_is_about_an_own_model_or_a_picture():
    assert [*quiz_bank.bank()] == [name for name in ASKED if name not in OWN]


@ITEMS
def test_four_answers_differ_and_are_short_enough_for_a_line(name):
    item, offered = quiz_bank.bank()[name], quiz_bank.choices(name)
    assert len(item.wrong) == 3 and sorted(offered) == sorted([item.right, *item.wrong]) and len({*offered}) == 4
    assert max(map(len, offered)) <= 80 and item.question.endswith("?") and len(item.question) <= 260
    assert offered == quiz_bank.choices(name)


def test_the_right_answer_is_at_no_fixed_place():
    places = [quiz_bank.choices(name).index(item.right) for name, item in quiz_bank.bank().items()]
    assert min(places.count(place) for place in range(4)) >= len(places) // 8
    lengths = [len(item.right) == max(map(len, [item.right, *item.wrong])) for item in quiz_bank.bank().values()]
    assert sum(lengths) < len(lengths) / 2  # nor is it the longest


@pytest.fixture(scope="module")
def known():
    """What can be a source: questions, rooms, rows of the table of mistakes, sections."""
    questions = re.findall(r"(?m)^### (\d+)\. ", (ROOT / "notebooks" / "QUESTIONS.md").read_text(encoding="utf-8"))
    sections = [
        f"{number}, section {section}"
        for number, text in SOURCES.items()
        for section in re.findall(r"(?m)^## (\d+)\. ", text)
    ]
    return {*(f"QUESTIONS {number}" for number in questions), *(f"museum {room}" for room in FOUND), *sections}


@ITEMS
def test_a_misconception_is_met_where_its_source_says(known, name):
    rows = [text for text, _ in rows_of(MISTAKES)]
    for source in quiz_bank.bank()[name].wrong.values():
        beginning = source.removeprefix("mistakes: ")
        assert source in known or (beginning != source and any(text.startswith(beginning) for text in rows)), source


def test_a_prediction_offers_its_answers_in_english_alone(monkeypatch, tmp_path):
    from mha_course.checking.prediction import Prediction

    monkeypatch.setenv("HOME", str(tmp_path))
    given = []
    field = Prediction("03 one matrix").asking(given.append)
    assert [*field.options] == quiz_bank.choices("03 one matrix") and "Choose" in field.placeholder
    field.value = field.options[2]
    field.value = "my own words"
    assert given == [field.options[2], "my own words"]
    assert not Prediction("no such").asking(given.append).options
    try:
        use("vi")
        field = Prediction("03 one matrix").asking(given.append)
    finally:
        use("en")
    assert not field.options and "Choose" not in field.placeholder
