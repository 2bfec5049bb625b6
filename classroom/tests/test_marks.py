"""Marks leave nbgrader in the formats that Canvas and Moodle import, and who has none is named."""

import csv

import pytest
from in_nbgrader import IN_NBGRADER

from classroom.course import ASSIGNMENT, Course

pytestmark = IN_NBGRADER

# What their own tests import: canvas-lms, spec/lib/gradebook_importer_spec.rb, "User lookup", and
# moodle, grade/import/csv/tests/load_data_test.php, `$oktext`.
CANVAS = """\
Student,ID,SIS User ID,SIS Login ID,Section,Assignment 1
    Points Possible,,,,,10
"Able, Anne",7,,anne,,8.0
Bunce,,,bobby,,5.5
"""
MOODLE = """\
First name,Surname,ID number,Email address,Assignment: Assignment for grape group
Anne,Able,7,student7@example.com,8.0
,Bunce,,student5@example.com,5.5
"""
GRADEBOOK = """
import os
from nbgrader.api import Gradebook
with Gradebook("sqlite:///gradebook.db") as book:
    people = {
        "anne": dict(first_name="Anne", last_name="Able", email="student7@example.com", lms_user_id="7"),
        "bobby": dict(last_name="Bunce", email="student5@example.com"),
        "carol": {}, "dan": {}, "eve": {},
    }
    points = {"anne": 8, "bobby": 6, "carol": None, "dan": 3}
    book.add_assignment("late")
    book.add_assignment("other")
    book.add_notebook("one", "late")
    book.add_grade_cell("cell", "one", "late", max_score=10, cell_type="code")
    for name, known in people.items():
        book.add_student(name, **known)
        if name in points:
            book.add_submission("late", name)
            grade = book.find_grade("cell", "one", "late", name)
            grade.auto_score, grade.needs_manual_grade = points[name], points[name] is None
            if name != "dan":
                os.makedirs(f"autograded/{name}/late")
    book.find_submission("late", "bobby").notebooks[0].late_submission_penalty = 0.5
    book.db.commit()
"""


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """Five learners: two have marks, one waits for a hand, one could not be graded, one handed in nothing."""
    course = Course(tmp_path_factory.mktemp("marks"), ["04_transpose_qkv.ipynb"])
    course.run("-c", GRADEBOOK)
    return course


def export(course, exporter, *options, fails=False):
    said = course.nbgrader("export", f"--exporter=marks.{exporter}", "--to=marks.csv", *options, fails=fails)
    return said, (course.folder / "marks.csv")


def rows(text):
    return list(csv.reader(text.splitlines()))


@pytest.mark.parametrize(
    ("exporter", "column", "example"),
    [("Canvas", "Assignment 1", CANVAS), ("Moodle", "Assignment: Assignment for grape group", MOODLE)],
)
def test_a_file_is_what_the_gradebook_imports(course, exporter, column, example):
    said, file = export(course, exporter, "--assignment=late", f"--Marks.column={column}")
    assert rows(file.read_text(encoding="utf-8")) == rows(example.replace(",10\n", ",10.0\n"))
    assert "carol is left out: an answer waits to be marked by hand" in said
    assert "dan is left out: not graded; nbgrader autograde late --student=dan says why" in said
    assert "eve is left out: nothing was handed in" in said
    assert "anne" not in said and "bobby" not in said


def test_a_column_is_named_by_the_assignment_where_nobody_says_how(course):
    for exporter, column in (("Canvas", "late"), ("Moodle", "Assignment: late")):
        _, file = export(course, exporter, "--assignment=late", "--student=anne")
        head, *_, line = rows(file.read_text(encoding="utf-8"))
        assert (head[-1], line[-1]) == (column, "8.0")


def test_moodle_is_not_given_a_learner_it_cannot_find(course):
    course.run("-c", GRADEBOOK.split("    people")[0] + "    book.update_or_create_student('bobby', email=None)")
    said, file = export(course, "Moodle", "--assignment=late")
    assert "bobby is left out: no e-mail address" in said
    assert [row[0] for row in rows(file.read_text(encoding="utf-8"))] == ["First name", "Anne"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "marks need one assignment, --assignment=attention; got []"),
        (["--assignment=lost"], f"there is no assignment 'lost'; there are {[ASSIGNMENT, 'late', 'other']}"),
    ],
)
def test_an_assignment_must_be_named(course, options, message):
    said, _ = export(course, "Canvas", *options, fails=True)
    assert message in said
