"""Three lesson plans: a lecture, a lab and two weeks. Their minutes are counted from the notebooks.

python -m tools.plans              write the plans into TEACHING.md; `make notebooks` does
python -m tools.plans --minutes    print the minutes of every section and exercise, to make a plan of your own
"""

import argparse
import re
from typing import NamedTuple

from tools import lecture, main_line, notebooks

NOTES = notebooks.NOTEBOOKS / "TEACHING.md"
BLOCK = re.compile(r"(?<=<!-- plans: written by make notebooks -->\n).*?(?=<!-- end of plans -->)", re.DOTALL)
# The notebooks' minutes are those of an engineer. Beginners need more: in class, where they can ask, and alone.
IN_CLASS, ALONE = 1.5, 2


class Part(NamedTuple):
    """What is taken of one notebook.

    Attributes:
        number: the notebook's.
        sections: their numbers, or their headings where they have none.
        exercises: their numbers.
        how: what the class does.
    """

    number: str
    sections: tuple[str, ...] = ()
    exercises: tuple[int, ...] = ()
    how: str = ""


class Session(NamedTuple):
    """What is done in class, of how many minutes, and at home."""

    minutes: int
    in_class: tuple[Part, ...]
    home: tuple[Part, ...] = ()


class Goal(NamedTuple):
    """An exercise that shows what learners can do, and what that is where the notebook does not say it."""

    number: str
    exercise: int
    can: str = ""


LECTURE_MINUTES, HOME_MINUTES = 90, 120
WRITE_THE_LAYER = Goal("00", 2, "write multi-head attention as a PyTorch module, and run it in a real model")
CLAIM = Goal("08", 1, "state a claim about heads that a measurement can refute")
TEST_CODE = Goal("08", 2, "write the test that finds a fault in code that measures")
LIMITS = Goal("08", 3, "say what a result does not show")
LECTURE_GOALS = (
    Goal("00", 1, "take a tensor apart into heads, and join them again"),
    Goal("00", 3, "find the head that covers for another one"),
)
LAB_GOALS = (WRITE_THE_LAYER, CLAIM, TEST_CODE, LIMITS)
LAB = Session(
    120,
    (
        Part("00", (), (2,), "*write the layer*, in pairs: one types, one predicts aloud"),
        Part("00", ("5",), (), "the pair's own class runs a layer of MiniLM"),
        Part(
            "08",
            ("1", "2"),
            (1,),
            "*your model, one claim*: a seed for each pair; collect each claim's hash",
        ),
        Part("08", ("4", "5", "6"), (), "measure, predict, open the test rows once; read the verdicts aloud"),
    ),
    (Part("08", ("3", "7", "8"), (2, 3)),),
)
WEEKS_GOALS = (
    WRITE_THE_LAYER,
    *(Goal(*each) for each in (("02", 3), ("03", 1), ("04", 2), ("05", 3), ("06", 4), ("07", 2))),
    *(CLAIM, TEST_CODE, LIMITS),
    Goal("10", 1),
)
RUN_FIRST = "choose *Run All Above* first, for the functions of 3 and 6; then vote: which test fails?"
WEEKS = (
    Session(60, (Part("00", ("1", "2", "3")),), (Part("01", ("1", "2", "3", "4", "5"), (1, 2)),)),
    Session(
        60,
        (Part("00", ("4",), (1,)), Part("04", ("4", "7"), (), RUN_FIRST)),
        (Part("02", ("One query, step by step", "1", "2", "3", "4", "5"), (3,)),),
    ),
    Session(
        60,
        (Part("00", ("5",), (2,), "*write the layer*"),),
        (Part("00", ("6",)), Part("04", ("1", "2"), (1, 2)), Part("02", (), (1,))),
    ),
    Session(60, (Part("03", ("1", "2")),), (Part("03", ("3", "4", "5"), (1, 3)),)),
    Session(60, (Part("05", ("2", "3", "4", "5")),), (Part("05", ("1", "6", "7"), (1, 3)),)),
    Session(60, (Part("06", ("1", "2", "5")),), (Part("06", ("3", "4", "7", "8"), (3, 4)),)),
    Session(60, (Part("00", ("7",), (3,)),), (Part("07", ("1", "2", "3"), (1,)),)),
    Session(60, (Part("07", ("4", "5"), (4,)),), (Part("07", ("6", "7", "8"), (2, 3)), Part("10", ("1",)))),
    Session(
        60,
        (Part("08", ("1", "2", "4", "5", "6"), (1,), "*your model, one claim*"),),
        (Part("08", ("3", "7", "8"), (2, 3)),),
    ),
    Session(
        60,
        (Part("10", ("2", "5"), (), "one room a pair; then the pages of 08, all seeds side by side"),),
        (Part("10", ("3", "6", "7"), (1,)), Part("00", (), (5,))),
    ),
)
SHOWS = re.compile(r"### Exercise (\d+) .*\n\n\*Shows that you can\* (.+?)\.(?:\s|$)")


def minutes(part):
    """How long a part takes an engineer: the minutes of its sections, counted, and of its exercises, as they say.

    Raises:
        ValueError: the notebook has no such section or exercise.
    """
    notebook, name = notebooks.numbered(part.number)
    there = {heading.partition(". ")[0]: count.minutes for heading, count in main_line.sections(notebook).items()}
    asked = main_line.exercises(notebook)
    for kind, wanted, known in (("section", part.sections, there), ("exercise", part.exercises, asked)):
        for each in wanted:
            if each not in known:
                raise ValueError(f"{name} has no {kind} {each!r}; it has {', '.join(map(str, known))}")
    return sum(there[each] for each in part.sections) + sum(asked[each] for each in part.exercises)


def together(parts, factor):
    """The minutes of parts for beginners."""
    return factor * sum(map(minutes, parts))


def named(kind, numbers):
    """Sections or exercises as one says them; three or more in a row as "1 to 4"."""
    *before, last = map(str, numbers)
    if not before:
        return f"{kind} {last}"
    in_a_row = list(map(int, numbers)) == list(range(int(before[0]), int(last) + 1))
    said = f"{before[0]} to {last}" if in_a_row and len(before) > 1 else f"{', '.join(before)} and {last}"
    return f"{kind}s {said}"


def link(number):
    """A link to the notebook with this number, from beside it."""
    return f"[{number}]({notebooks.numbered(number)[1]})"


def said(part):
    """What a part takes, with a link."""
    numbers = [each for each in part.sections if each.isdigit()]
    takes = [f"“{each}”" for each in part.sections if not each.isdigit()]
    takes += [named(kind, each) for kind, each in (("section", numbers), ("exercise", part.exercises)) if each]
    how = f": {part.how}" if part.how else ""
    return f"{link(part.number)}, {', '.join(takes)}{how}"


def table(head, rows):
    """A table in Markdown."""
    lines = [f"| {' | '.join(map(str, row))} |" for row in (head, *rows)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]])


def can(goal):
    """What an exercise shows that learners can do: by its own second line, or as the goal says.

    Raises:
        ValueError: neither says it.
    """
    texts = "\n\n".join(
        cell.source for cell in notebooks.numbered(goal.number)[0].cells if cell.cell_type == "markdown"
    )
    by_itself = {int(number): words for number, words in SHOWS.findall(texts)}
    if goal.exercise not in by_itself and not goal.can:
        raise ValueError(f"exercise {goal.exercise} of {goal.number} does not say what it shows, and the goal must")
    return by_itself.get(goal.exercise, goal.can)


def goals(known):
    """What learners can do afterwards, and the exercise that shows it."""
    rows = [(can(goal), f"{link(goal.number)}, exercise {goal.exercise}") for goal in known]
    return table(("afterwards learners can", "shown by"), rows)


def lecture_rows():
    """The lecture by its notebook's sections: from which minute, the minutes, the section, and how many slides."""
    found, minute = [], 0.0
    for slide, blocks in lecture.spoken():
        section = lecture.section(slide)
        length = IN_CLASS * sum(block.minutes for block in blocks)
        if not found or found[-1][2] != section:
            found.append([minute, 0.0, section, 0])
        found[-1][1] += length
        found[-1][3] += 1
        minute += length
    return found


def text():
    """The three plans in Markdown."""
    taught = lecture_rows()
    rows = [(round(minute), round(length), section, slides) for minute, length, section, slides in taught]
    spoken = sum(length for _, length, _, _ in taught)
    lab = [(round(together([part], IN_CLASS)), said(part)) for part in LAB.in_class]
    weeks = [
        (
            number,
            "; ".join(map(said, session.in_class)),
            round(together(session.in_class, IN_CLASS)),
            "; ".join(map(said, session.home)),
            round(together(session.home, ALONE)),
        )
        for number, session in enumerate(WEEKS, start=1)
    ]
    return "\n\n".join(
        (
            f"### A lecture of {LECTURE_MINUTES} minutes",
            goals(LECTURE_GOALS),
            table(("from minute", "minutes", "section of 00", "slides"), rows),
            f"Together {spoken:.0f} minutes (rows are rounded), "
            f"so {LECTURE_MINUTES - spoken:.0f} are left for questions.",
            f"### A lab of {LAB.minutes} minutes, after the lecture",
            goals(LAB_GOALS),
            table(("minutes", "what"), lab),
            f"Together {together(LAB.in_class, IN_CLASS):.0f} minutes. "
            f"At home, {together(LAB.home, ALONE):.0f} minutes: {'; '.join(map(said, LAB.home))}.",
            f"### Two weeks: {len(WEEKS)} sessions of {WEEKS[0].minutes} minutes, with homework",
            goals(WEEKS_GOALS),
            table(("session", "in class", "minutes", "homework", "minutes"), weeks),
            "",
        )
    )


def write():
    """Put the plans in the place of earlier ones."""
    NOTES.write_text(BLOCK.sub(lambda _: text(), NOTES.read_text(encoding="utf-8")), encoding="utf-8")


def print_minutes():
    """Print every section and exercise with its minutes, and what is folded in each notebook."""
    for path in notebooks.of_the_course():
        notebook = notebooks.read(path)
        print(path.name)
        for heading, count in main_line.sections(notebook).items():
            print(f"{count.minutes:6.1f}  {heading} ({count.words} words)")
        folded = [main_line.count(part) for part in main_line.folded_parts(notebook)]
        print(f"{sum(part.minutes for part in folded):6.1f}  folded ({sum(part.words for part in folded)} words)")
        for number, length in main_line.exercises(notebook).items():
            print(f"{length:6.1f}  Exercise {number}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write the lesson plans into TEACHING.md.")
    parser.add_argument("--minutes", action="store_true", help="print the minutes of sections and exercises instead")
    print_minutes() if parser.parse_args().minutes else write()
