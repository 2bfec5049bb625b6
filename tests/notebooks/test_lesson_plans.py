"""The lesson plans fit their lessons, as the notebooks' cells are counted, and hold what the course is about."""

import subprocess
import sys

import pytest
from nbformat.v4 import new_markdown_cell
from notebook_tools import ROOT, make_notebooks

from tools import lecture, main_line, plans


def spoken_minutes():
    return plans.IN_CLASS * sum(block.minutes for _, spoken in lecture.spoken() for block in spoken)


def test_teaching_shows_the_plans_as_the_cells_give_them():
    """`make notebooks` writes them anew."""
    assert plans.BLOCK.search(plans.NOTES.read_text(encoding="utf-8"))[0] == plans.text()


def test_the_lecture_fits_and_leaves_time_for_questions():
    assert 75 <= spoken_minutes() <= 85 < plans.LECTURE_MINUTES


@pytest.mark.parametrize("session", [plans.LAB, *plans.WEEKS], ids=lambda session: session.in_class[0].number)
def test_a_session_and_its_homework_fit(session):
    assert session.minutes / 2 < plans.together(session.in_class, plans.IN_CLASS) <= session.minutes
    assert plans.together(session.home, plans.ALONE) <= plans.HOME_MINUTES


def test_a_notebook_that_grows_outgrows_its_lesson(monkeypatch):
    """130 words more are a minute more, 1.5 in class, in the section in which they stand."""
    [path] = make_notebooks.NOTEBOOKS.glob("00_*.ipynb")
    longer = make_notebooks.read(path)
    at = next(i for i, cell in enumerate(longer.cells) if "### Causal attention" in cell.source)
    third = plans.WEEKS[2].in_class
    before, next_one = plans.together(third, plans.IN_CLASS), plans.minutes(plans.Part("00", ("6",)))
    shown, numbered = plans.text(), make_notebooks.numbered
    monkeypatch.setattr(
        make_notebooks, "numbered", lambda number: (longer, path.name) if number == "00" else numbered(number)
    )
    longer.cells.insert(at + 1, new_markdown_cell("word " * 1300))
    assert plans.together(third, plans.IN_CLASS) == pytest.approx(before + 15)
    assert plans.minutes(plans.Part("00", ("6",))) == next_one
    assert before + 15 > plans.WEEKS[2].minutes and plans.text() != shown


def test_sections_hold_all_of_a_main_line_and_exercises_their_minutes():
    for path in make_notebooks.of_the_course():
        notebook = make_notebooks.read(path)
        whole = main_line.count(main_line.main_line(notebook)).minutes
        sections = main_line.sections(notebook)
        assert sum(count.minutes for count in sections.values()) == pytest.approx(whole)
        assert "Summary" in sections
    assert main_line.exercises(make_notebooks.numbered("00")[0]) == {1: 10, 2: 30, 3: 10, 4: 5, 5: 15}


def test_the_slides_speak_of_each_block_once_and_of_none_that_is_left_out():
    every = lecture.blocks()
    whole = main_line.count(main_line.main_line(make_notebooks.read(lecture.NOTEBOOK))).minutes
    assert sum(block.minutes for block in every) == pytest.approx(whole, rel=0.01)
    assert sum(len(spoken) for _, spoken in lecture.spoken()) < len(every)
    starts = [lecture.find(slide.begins, every) for slide in lecture.SLIDES]
    assert starts == sorted(set(starts))


@pytest.mark.parametrize(("sessions", "goals"), [((plans.LAB,), plans.LAB_GOALS), (plans.WEEKS, plans.WEEKS_GOALS)])
def test_a_plan_has_the_heart_of_the_course_and_the_exercises_of_its_goals(sessions, goals):
    in_class, at_home = (
        [(part.number, each) for one in sessions for part in getattr(one, where) for each in part.exercises]
        for where in ("in_class", "home")
    )
    heart = [(goal.number, goal.exercise) for goal in (plans.WRITE_THE_LAYER, plans.CLAIM)]
    assert heart == [("00", 2), ("08", 1)]
    assert set(heart) <= set(in_class)
    assert {(goal.number, goal.exercise) for goal in goals} <= {*in_class, *at_home}
    assert len({*in_class, *at_home}) == len([*in_class, *at_home])


def test_the_lectures_goals_are_shown_by_exercises_of_its_notebook():
    asked = main_line.exercises(make_notebooks.numbered("00")[0])
    assert {(goal.number, goal.exercise in asked) for goal in plans.LECTURE_GOALS} == {("00", True)}


def test_a_goal_says_what_the_exercise_says_that_it_shows():
    own = plans.can(plans.Goal("04", 2, "something else"))
    texts = "\n".join(cell.source for cell in make_notebooks.numbered("04")[0].cells)
    assert f"*Shows that you can* {own}." in texts
    assert plans.can(plans.CLAIM) == plans.CLAIM.can
    with pytest.raises(ValueError, match="exercise 1 of 00 does not say what it shows"):
        plans.can(plans.Goal("00", 1))


@pytest.mark.parametrize(
    ("part", "says"),
    [
        (plans.Part("04", ("4", "19")), "04_transpose_qkv.ipynb has no section '19'; it has 1, 2, 3"),
        (plans.Part("04", (), (7,)), "04_transpose_qkv.ipynb has no exercise 7; it has 1, 2, 3"),
    ],
)
def test_a_plan_that_names_what_is_not_there_is_refused(part, says):
    with pytest.raises(ValueError, match=says):
        plans.minutes(part)


def test_a_slide_that_names_what_is_not_there_is_refused():
    with pytest.raises(ValueError, match=r"slide '53: Nothing': 00_start_here\.ipynb has no cell 53"):
        lecture.find("53: Nothing", lecture.blocks())


@pytest.mark.parametrize(
    ("numbers", "says"),
    [("2", "section 2"), ("24", "sections 2 and 4"), ("234", "sections 2 to 4"), ("135", "sections 1, 3 and 5")],
)
def test_numbers_are_said_as_one_says_them(numbers, says):
    assert plans.named("section", numbers) == says


def test_the_minutes_are_printed():
    done = subprocess.run(
        [sys.executable, "-m", "tools.plans", "--minutes"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    lines = done.stdout.splitlines()
    assert "  30.0  Exercise 2" in lines and any("  7. Which heads matter? (" in line for line in lines)
