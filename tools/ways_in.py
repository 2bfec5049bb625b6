"""Three ways into the course, and how long each takes: a table for README and for the site, counted from the cells.

python -m tools.ways_in     write the table into README; `make notebooks` does
"""

import re
from pathlib import Path

from tools import main_line, notebooks

README = Path(__file__).resolve().parents[1] / "README.md"
BLOCK = re.compile(r"(?<=<!-- ways in: written by make notebooks -->\n).*?(?=<!-- end of ways in -->)", re.DOTALL)
ALL = tuple(path.stem[:2] for path in sorted(notebooks.NOTEBOOKS.glob("[0-9][0-9]_*.ipynb")))
# The way, the numbers of its notebooks, and what it gives.
WAYS = (
    ("Three sittings", ("00",), "the formula, a layer that you write and run in a real model, and which heads can go"),
    (
        "A weekend",
        ("00", "02", "04", "06", "08", "10"),
        "also scores and masks, reshapes, trained heads, pruning, tests",
    ),
    ("Everything", ALL, "all notebooks, with what is folded"),
)


def read(number):
    """The notebook with this number, and the name of its file."""
    (path,) = notebooks.NOTEBOOKS.glob(f"{number}_*.ipynb")
    return notebooks.read(path), path.name


def minutes(numbers, folded=False):
    """How long it takes to read and run these notebooks, without what is folded or with it, and their exercises."""
    found = [read(number)[0] for number in numbers]
    reading = sum(main_line.count(each if folded else main_line.main_line(each)).minutes for each in found)
    return reading, sum(main_line.exercise_minutes(each) for each in found)


def said(minutes):
    """A time as one says it: to ten minutes, or to an hour."""
    return f"{round(minutes, -1):.0f} minutes" if minutes < 180 else f"{minutes / 60:.0f} hours"


def table(folder):
    """The table in Markdown; ``folder`` stands before the names of notebooks in its links."""
    lines = ["| way | notebooks | what it gives | reading and running | exercises |", "|---|---|---|---|---|"]
    for way, numbers, gives in WAYS:
        links = "00 to " + numbers[-1] if numbers == ALL else ", ".join(f"[{n}]({folder}{read(n)[1]})" for n in numbers)
        reading, solving = minutes(numbers, folded=numbers == ALL)
        lines.append(f"| **{way}** | {links} | {gives} | {said(reading)} | {said(solving) if solving else '–'} |")
    return "\n".join(lines) + "\n"


def write():
    """Put the table into README, in the place of an earlier one."""
    text = README.read_text(encoding="utf-8")
    README.write_text(BLOCK.sub(lambda _: table("notebooks/"), text), encoding="utf-8")


if __name__ == "__main__":
    write()
