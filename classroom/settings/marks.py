"""Marks for the gradebooks of Canvas and Moodle, as files that these import. In the folder of your course:

    nbgrader export --exporter=marks.Canvas --assignment=attention --to=canvas.csv --Marks.column="Attention (4711)"
    nbgrader export --exporter=marks.Moodle --assignment=attention --to=moodle.csv

The column is named as in the file that your gradebook exports; without a name it is the assignment's. Learners go by
what nbgrader knows of them: `nbgrader db student add ada --first-name=Ada --last-name=Love --email=ada@example.org
--lms-user-id=17`, or `nbgrader db student import` for a whole class. Whoever has no mark is left out and named.

The formats: https://docs.moodle.org/en/Grade_import, and for Canvas what its importer reads,
https://github.com/instructure/canvas-lms/blob/master/lib/gradebook_importer.rb.
"""

import csv
import os

from nbgrader.api import MissingEntry
from nbgrader.plugins import ExportPlugin
from traitlets import Unicode


class Marks(ExportPlugin):
    """The marks of one assignment, a line for each learner who has one; which columns, a gradebook's own class says."""

    column = Unicode("", help="name of the marks' column in the gradebook").tag(config=True)

    def export(self, gradebook):
        if len(self.assignment) != 1:
            self.parent.fail(f"marks need one assignment, --assignment=attention; got {list(self.assignment)}")
        try:
            assignment = gradebook.find_assignment(self.assignment[0])
        except MissingEntry:
            known = [one.name for one in gradebook.assignments]
            self.parent.fail(f"there is no assignment {self.assignment[0]!r}; there are {known}")
        lines = self.head(assignment)
        for student in sorted(gradebook.students, key=lambda student: student.id):
            if self.student and student.id not in map(str, self.student):
                continue
            try:
                lines.append(self.line(student, self.mark(gradebook, assignment, student)))
            except MissingEntry as reason:
                self.log.warning("%s is left out: %s", student.id, reason)
        with open(self.to or f"{assignment.name}.csv", "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(lines)

    def mark(self, gradebook, assignment, student):
        """Points less what is taken off for being late; where there are none, MissingEntry says why."""
        try:
            submission = gradebook.find_submission(assignment.name, student.id)
        except MissingEntry:
            raise MissingEntry("nothing was handed in") from None
        course = self.parent.coursedir
        if not os.path.isdir(course.format_path(course.autograded_directory, student.id, assignment.name)):
            raise MissingEntry(f"not graded; nbgrader autograde {assignment.name} --student={student.id} says why")
        if submission.needs_manual_grade:
            raise MissingEntry("an answer waits to be marked by hand")
        return max(0, submission.score - submission.late_submission_penalty)


class Canvas(Marks):
    """Canvas finds a learner by ID (lms_user_id), then by SIS Login ID (the account at nbgrader), then by name."""

    def head(self, assignment):
        column = self.column or assignment.name
        return [
            ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", column],
            ["    Points Possible", "", "", "", "", assignment.max_score],
        ]

    def line(self, student, mark):
        name = ", ".join(filter(None, [student.last_name, student.first_name]))
        return [name, student.lms_user_id, "", student.id, "", mark]


class Moodle(Marks):
    """Moodle asks which column tells learners apart: map "Email address" to it, which every learner here has."""

    def head(self, assignment):
        column = self.column or f"Assignment: {assignment.name}"
        return [["First name", "Surname", "ID number", "Email address", column]]

    def line(self, student, mark):
        if not student.email:
            raise MissingEntry(f"no e-mail address; nbgrader db student add {student.id} --email=... gives one")
        return [student.first_name, student.last_name, student.lms_user_id, student.email, mark]
