"""The ways through the course: which notebooks each takes, how long it is, and where each notebook's last links lead.

    python -m tools.ways_in     write the table where it is shown, and the last line of every notebook; `make notebooks`
                                does

The minutes are counted from the cells.
"""

import re
from pathlib import Path
from typing import NamedTuple

from tools import main_line, notebooks
from tools.languages import LANGUAGES

ROOT = Path(__file__).resolve().parents[1]
ALL = tuple(path.stem[:2] for path in notebooks.of_the_course())
# Where the table stands between two comments, and what leads from there to the notebooks. 00 and the site have it, too.
SHOWN = {ROOT / "README.md": "notebooks/"}
BLOCK = re.compile(r"(?<=<!-- ways in: written by make notebooks -->\n).*?(?=<!-- end of ways in -->)", re.DOTALL)
TABLE = re.compile(r"(?m)^\| way \|.*\n(?:\|.*\n)+")
LAST_LINE = re.compile(r"(?m)^(?:\[←|Next:|\*).*\Z")


class Way(NamedTuple):
    """A way: the numbers of its notebooks, in order, and what it gives."""

    name: str
    numbers: tuple[str, ...]
    gives: str


THREE_SITTINGS = Way(
    "Three sittings",
    ("00",),
    "the formula, a layer that you write and run in a real model, and which heads can go",
)
PRUNE = Way(
    "Measure and prune",
    ("00", "05", "06", "07", "08"),
    "also PyTorch's own layer, what trained heads do, measures of importance, and a model of your own with fewer heads",
)
BUILD = Way(
    "Build today's layer",
    ("00", "02", "04", "09", "10", "12"),
    "also scores and masks, reshapes, positions, caches and shared keys, and which test catches which bug",
)
EVERYTHING = Way("Everything", ALL, "all notebooks, with what is folded")
WAYS = (THREE_SITTINGS, PRUNE, BUILD, EVERYTHING)


def minutes(way):
    """How long it takes to read and run a way's notebooks, and their exercises; what is folded only for everything."""
    found = [notebooks.numbered(number)[0] for number in way.numbers]
    parts = found if way is EVERYTHING else map(main_line.main_line, found)
    return sum(main_line.count(part).minutes for part in parts), sum(map(main_line.exercise_minutes, found))


def said(minutes):
    """A time as one says it: to ten minutes, or to an hour."""
    return f"{round(minutes, -1):.0f} minutes" if minutes < 180 else f"{minutes / 60:.0f} hours"


def table(folder):
    """The table in Markdown; ``folder`` stands before the names of notebooks in its links."""
    lines = ["| way | notebooks | what it gives | reading and running | exercises |", "|---|---|---|---|---|"]
    for way in WAYS:
        links = ", ".join(f"[{number}]({folder}{notebooks.numbered(number)[1]})" for number in way.numbers)
        if way is EVERYTHING:
            links = f"00 to {ALL[-1]}"
        lines.append(f"| **{way.name}** | {links} | {way.gives} | {' | '.join(map(said, minutes(way)))} |")
    return "\n".join(lines) + "\n"


def last_line(number):
    """The links at a notebook's end: back to the one before it, on along each way that it is on, and home."""
    onward, ends = {}, []
    for way in WAYS:
        if way.numbers[-1] == number:
            ends.append(f"*{way.name}* ends here")
        elif number in way.numbers:
            onward.setdefault(way.numbers[way.numbers.index(number) + 1], []).append(f"*{way.name}*")
    back = [f"[← {title(ALL[ALL.index(number) - 1])}"] if number != ALL[0] else []
    on = [f"{', '.join(names)}: [{title(after).replace('](', ' →](')}" for after, names in onward.items()]
    return " · ".join([*back, *ends, *on, *([f"Home: {', '.join(homes())}"] if number != ALL[0] else [])])


def homes():
    """Links to the first notebook in English, and in each language that has it: a notebook cannot know its reader's."""
    _, first = notebooks.numbered(ALL[0])
    names = {code: said["name"] for code, said in LANGUAGES.items() if (notebooks.NOTEBOOKS / code / first).exists()}
    return [f"[English]({first})", *(f"[{name}]({code}/{first})" for code, name in names.items())]


def title(number):
    """A notebook's number and short title as the rest of a link, after its bracket."""
    notebook, name = notebooks.numbered(number)
    short = notebook.cells[0].source.splitlines()[0].removeprefix("# ").partition(":")[0]
    return f"{number} {short}]({name})"


def with_table(pattern, text, folder):
    """A text with the table in the place of an earlier one."""
    return pattern.sub(lambda _: table(folder), text)


def with_last_line(number):
    """A notebook that leads on as it should, and with the table if it shows it; and its path."""
    notebook, name = notebooks.numbered(number)
    last = notebook.cells[-1]
    last.source = LAST_LINE.sub(lambda _: last_line(number), with_table(TABLE, last.source, ""))
    return notebook, notebooks.NOTEBOOKS / name


def write():
    """Put the table and the last lines where earlier ones are."""
    for path, folder in SHOWN.items():
        path.write_text(with_table(BLOCK, path.read_text(encoding="utf-8"), folder), encoding="utf-8")
    for notebook, path in map(with_last_line, ALL):
        path.write_text(notebooks.nbformat.v4.writes(notebook) + "\n", encoding="utf-8", newline="\n")


if __name__ == "__main__":
    write()
