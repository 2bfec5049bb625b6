"""Thirty notebooks are handed in, ten of them damaged: ``python -m classroom.damaged_hand_ins`` (make bench-damaged).

Two learners have each of the five damages of hand_ins.py; the others have right answers, wrong ones or none. One
command grades them all, under the settings that an instructor copies, and another writes their marks for Canvas. Ends
with 1 where somebody has neither a mark nor a line that says why. Thirty are written to results/.
"""

import argparse
import csv
import os
import re
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from classroom.course import ASSIGNMENT, NBGRADER, SOLUTIONS, Course
from classroom.hand_ins import DAMAGES, hand_in, solved, unsolved, wrong

REPORT = Path(__file__).resolve().parent / "results" / "damaged_hand_ins.md"
NOTEBOOK = "04_transpose_qkv.ipynb"
FULL = 30
PAGE = """# Damaged hand-ins

`make bench-damaged` wrote this: {number} learners hand in 04, {damaged} of them damaged, and `nbgrader autograde`
grades all of them at once under [nbgrader_config.py](../settings/nbgrader_config.py). It took
{minutes:.0f} minutes with a load average of {load:.0f} on {cores} cores.

**{marked} of {number} have a mark in the file for Canvas, {told} are left out with a reason, {silent} without one.**

| handed in | learners | points |
|---|---|---|
{lines}
"""


def kinds(number: int) -> dict[str, tuple]:
    """Each learner's answers and damage: every third notebook is damaged, and before that had right answers."""
    whole = [(answer, None) for answer in (solved, wrong, unsolved)]
    return {
        f"learner{learner:02d}": (solved, DAMAGES[learner // 3 % 5]) if learner % 3 == 2 else whole[learner % 4 % 3]
        for learner in range(number)
    }


def main() -> bool:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--learners", type=int, default=FULL, help="how many; fewer than thirty write no report")
    learners = kinds(parser.parse_args().learners)
    if not (NBGRADER / "installed").exists():
        sys.exit("nbgrader is not there: make nbgrader")
    with tempfile.TemporaryDirectory() as place:
        course = Course(Path(place), [NOTEBOOK])
        for learner, (answer, damage) in learners.items():
            notebook = hand_in(course.released(NOTEBOOK), SOLUTIONS / NOTEBOOK, answer)
            if damage:
                damage(notebook)
            course.submit(learner, NOTEBOOK, notebook)
        start = time.monotonic()
        course.nbgrader("autograde", ASSIGNMENT, fails=None)
        minutes = (time.monotonic() - start) / 60
        said = course.nbgrader("export", "--exporter=marks.Canvas", f"--assignment={ASSIGNMENT}", "--to=marks.csv")
        _, points_possible, *lines = csv.reader((course.folder / "marks.csv").read_text().splitlines())
    results = {learner: f"{float(mark):g} of {float(points_possible[-1]):g}" for *_, learner, _, mark in lines}
    told = dict(re.findall(r"(learner\d+) is left out: (.*)", said))
    counts = Counter(
        (name(*kind), results.get(learner) or told.get(learner, "NOTHING")) for learner, kind in learners.items()
    )
    silent = learners.keys() - results.keys() - told.keys()
    page = PAGE.format(
        number=len(learners),
        damaged=sum(damage is not None for _, damage in learners.values()),
        minutes=minutes,
        load=os.getloadavg()[0],
        cores=os.cpu_count(),
        marked=len(results),
        told=len(told),
        silent=len(silent),
        lines="\n".join(f"| {kind} | {count} | {result} |" for (kind, result), count in sorted(counts.items())),
    )
    print(page)
    if len(learners) >= FULL:
        REPORT.write_text(page, encoding="utf-8")
    return bool(silent)


def name(answer, damage) -> str:
    """What a learner handed in, in words."""
    return f"{answer.__name__}, {damage.__name__.replace('_', ' ')}" if damage else answer.__name__


if __name__ == "__main__":
    sys.exit(main())
