"""Ten kinds of hand-ins and the mark that a person would give to each: ``python -m classroom.damaged_hand_ins`` (make
bench-damaged).

The sheet is the drawn tasks. One command grades all, under the settings that an instructor copies, and another writes
the marks for Canvas. Ends with 1 where a mark is not the one that is due. The table is written to results/.
"""

import csv
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from classroom import hand_ins
from classroom.course import ASSIGNMENT, DRAWN_TASKS, NBGRADER, Course
from classroom.hand_ins import drawn, hand_in, unsolved

REPORT = Path(__file__).resolve().parent / "results" / "damaged_hand_ins.md"
WRITING, RULE, NAME, TEST = 12, 8, 4, 16  # points of the sheet
GENERAL = WRITING + TEST  # what is right for every seed
PAGE = """# Damaged hand-ins

`make bench-damaged` wrote this: ten learners hand in the [drawn tasks](../sheets/drawn_tasks.ipynb), and `nbgrader
autograde` grades all of them at once under [nbgrader_config.py](../settings/nbgrader_config.py). It took {minutes:.0f}
minutes with a load average of {load:.0f} on {cores} cores.

**{right} of {number} have the mark that a person would give.**

| handed in | due | mark |
|---|---|---|
{lines}
"""


class Kind(NamedTuple):
    """A kind of hand-in: whose account answers, what else is done to it, and the mark that is due."""

    answer: Callable
    damage: Callable
    due: int


def whole(notebook):
    """Do nothing to a hand-in."""


def none_of(*answers):
    """Answers of an account, without some: a function of an account."""
    return lambda account: (
        lambda cell: unsolved(cell) if cell.metadata.nbgrader.grade_id in answers else drawn(account)(cell)
    )


def for_another(account):
    """Right answers for the seed of a neighbour."""
    return drawn("perfect")


def signed_by_another(notebook):
    """The neighbour's name stands in the hand-in, too."""
    for cell in notebook.cells:
        cell.source = cell.source.replace('ACCOUNT = "ada"', 'ACCOUNT = "perfect"')


def deleted_and_copied(notebook):
    """An answer and its check are deleted, another check too; all that is left stands there twice."""
    hand_ins.cells_deleted(notebook)
    hand_ins.cells_copied(notebook)


KINDS = {  # name of an account → what it hands in
    "perfect": Kind(drawn, whole, WRITING + RULE + NAME + TEST),
    "half": Kind(none_of("my-test", "my-fault"), whole, WRITING + RULE),
    "damaged": Kind(drawn, deleted_and_copied, RULE + NAME + TEST),
    "empty-first": Kind(none_of("my-weights"), whole, RULE + NAME + TEST),
    "copied": Kind(for_another, signed_by_another, GENERAL),
    "wrong-seed": Kind(for_another, whole, GENERAL),
    "late-format": Kind(drawn, hand_ins.of_a_later_format, WRITING + RULE + NAME + TEST),
    "other-kernel": Kind(drawn, hand_ins.of_another_kernel, WRITING + RULE + NAME + TEST),
    "huge-output": Kind(drawn, hand_ins.huge_output, WRITING + RULE + NAME + TEST),
    "endless-loop": Kind(drawn, hand_ins.endless_cell, WRITING + RULE + NAME + TEST),
}


def marks_of(course: Course) -> dict[str, float | str]:
    """Hand in a notebook of each kind, grade all, and return what the file for Canvas says, or why it says nothing."""
    for account, kind in KINDS.items():
        notebook = hand_in(course.released(DRAWN_TASKS.name), DRAWN_TASKS, kind.answer(account))
        kind.damage(notebook)
        course.submit(account, DRAWN_TASKS.name, notebook)
    course.nbgrader("autograde", ASSIGNMENT, fails=None)
    course.nbgrader("generate_feedback", ASSIGNMENT)
    said = course.nbgrader("export", "--exporter=marks.Canvas", f"--assignment={ASSIGNMENT}", "--to=canvas.csv")
    _, _, *lines = csv.reader((course.folder / "canvas.csv").read_text().splitlines())
    left_out = dict(re.findall(r"(\S+) is left out: (.*)", said))
    return left_out | {account: float(mark) for *_, account, _, mark in lines}


def main() -> bool:
    if not (NBGRADER / "installed").exists():
        sys.exit("nbgrader is not there: make nbgrader")
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        marks = marks_of(Course(Path(place), [DRAWN_TASKS]))
    right = [account for account, kind in KINDS.items() if marks[account] == kind.due]
    page = PAGE.format(
        number=len(KINDS),
        minutes=(time.monotonic() - start) / 60,
        load=os.getloadavg()[0],
        cores=os.cpu_count(),
        right=len(right),
        lines="\n".join(
            f"| {account.replace('-', ' ')} | {kind.due} | {str(marks[account]).removesuffix('.0')} |"
            for account, kind in KINDS.items()
        ),
    )
    print(page)
    REPORT.write_text(page, encoding="utf-8")
    return len(right) < len(KINDS)


if __name__ == "__main__":
    sys.exit(main())
