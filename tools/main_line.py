"""The main line of a notebook, what is folded behind it, and how long both take to read.

    python -m tools.main_line                                  every notebook of the course, a line each
    python -m tools.main_line notebooks/05_*.ipynb             only these
    python -m tools.main_line --sentences notebooks/05_*.ipynb and the sentences with a private word

A heading whose cell has the metadata ``jp-MarkdownHeadingCollapsed`` folds: JupyterLab hides what stands under it, up
to the next heading of its depth, and so does the site. The minutes are an estimate: 130 words a minute, 10 s a line of
code, 40 s a prediction, 3 min a live picture; exercises have minutes of their own and are not counted.
"""

import argparse
import copy
import dataclasses
import re
from pathlib import Path
from statistics import median

from tools import notebooks

HEADING = re.compile(r"(#{1,6}) (.*)")
EXERCISE = re.compile(r"(\d+\. )?(Exercises?|Your turn)\b")
# A heading, so that a task's end is seen: the story goes on under another one. Bold in notebooks not yet rewritten.
NUMBERED_EXERCISE = re.compile(r"(?m)^(?:### |\*\*)Exercise (?P<number>\d+) \((?P<minutes>\d+) minutes.*?\)")
LIVE = re.compile(r"pictures\.\w*(Explorer|Stepper|Scrubber|Switches|HandMadeHead)\(")
WIDE = 88
# What is no prose in a text, and what stands for it.
NO_PROSE = {
    r"(?s)```.*?```": " ",
    r"(?m)^\|.*$": " ",
    r"(?m)^#+ .*$": " ",
    r"<[^>]+>": " ",
    r"!?\[([^\]]*)\]\([^)]*\)": r"\1",
    r"(?s)\$\$.*?\$\$": " X. ",
    r"\$[^$]*\$": "X",
    r"[*_`]": "",
}
# Words that this project uses in a sense of its own, where the field has a term: a list to look through, no law.
PRIVATE = re.compile(
    r"""\b(says?|said|hears?|heard|unheard|tells?|told|listens?|nobody|nothing|none|stands?|stood|lies|places?|placed|
    even(ly)?\ look|looks?\ evenly|lone|read-?outs?|single\ costs?|taken\ again|company|own\ shape|judged|of\ ours|
    of\ its\ own|of\ (their|your|my)\ own|in\ the\ place\ of|(does|do)\ as\ well|goes\ on\ with|by\ heart|whoever|
    misled|everybody|yardstick|league|oracle|mends?|put\ to\ zero|asks?\ for|way\ back|look(s|ed)?\ at|shortcut|
    strangers?|share\ right)\b""",
    re.IGNORECASE | re.VERBOSE,
)


@dataclasses.dataclass
class Count:
    """What a part of a notebook holds, exercises not counted but for their cells."""

    cells: int = 0
    words: int = 0
    lines: int = 0  # of code
    predictions: int = 0
    pictures: int = 0  # live ones

    @property
    def minutes(self):
        """How long it takes to read and run it."""
        return self.words / 130 + self.lines / 6 + self.predictions * 2 / 3 + self.pictures * 3

    def add(self, cell, text):
        """Count a cell's text, or a part of it."""
        if cell.cell_type == "markdown":
            self.words += words(text)
            self.predictions += text.count("**Predict")
        else:
            self.lines += len(code_lines(text))
            self.pictures += len(LIVE.findall(text))


def is_folded(notebook):
    """For every cell whether it stands under a heading that folds, or is one."""
    depth, found = None, []
    for cell in notebook.cells:
        heading = cell.cell_type == "markdown" and HEADING.match(cell.source)
        if heading and (depth is None or len(heading[1]) <= depth):
            depth = len(heading[1]) if cell.metadata.get(notebooks.FOLDS) else None
        found.append(depth is not None)
    return found


def main_line(notebook):
    """A copy of the notebook without what is folded."""
    short = copy.deepcopy(notebook)
    short.cells = [cell for cell, folded in zip(short.cells, is_folded(notebook), strict=True) if not folded]
    return short


def folded_parts(notebook):
    """What is folded, part by part, each as a notebook of the same cells, the heading's first."""
    found = []
    for cell, folded in zip(notebook.cells, is_folded(notebook), strict=True):
        if folded and cell.metadata.get(notebooks.FOLDS):
            found.append(notebooks.nbformat.from_dict({**notebook, "cells": []}))
        if folded:
            found[-1].cells.append(cell)
    return found


def parts(notebook):
    """Every cell, a text in parts that begin with a heading: the cell, the text, and whether it is in an exercise."""
    depth = None
    for cell in notebook.cells:
        texts = re.split(r"(?m)^(?=#{1,6} )", cell.source) if cell.cell_type == "markdown" else [cell.source]
        for text in filter(str.strip, texts):
            heading = cell.cell_type == "markdown" and HEADING.match(text)
            if heading and (depth is None or len(heading[1]) <= depth):
                depth = len(heading[1]) if EXERCISE.match(heading[2]) else None
            yield cell, text, depth is not None


def count(notebook):
    """What a notebook holds, folded or not."""
    found = Count(cells=len(notebook.cells))
    for cell, text, in_exercise in parts(notebook):
        if not in_exercise:
            found.add(cell, text)
    return found


def sections(notebook):
    """What each section of a main line holds, by its heading; what stands before the first one counts with it."""
    found, ahead = {}, Count()
    for cell, text, in_exercise in parts(main_line(notebook)):
        if cell.cell_type == "markdown" and text.startswith("## "):
            found[text.partition("\n")[0].removeprefix("## ")] = ahead
            ahead = Count()
        if not in_exercise:
            (list(found.values())[-1] if found else ahead).add(cell, text)
    return found


def exercises(notebook):
    """The minutes of a notebook's exercises, as their headings say, by number."""
    texts = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    every = [found for text in texts for found in NUMBERED_EXERCISE.finditer(text)]
    return {int(found["number"]): int(found["minutes"]) for found in every}


def exercise_minutes(notebook):
    """How long a notebook's exercises take."""
    return sum(exercises(notebook).values())


def words(text):
    """How many words of prose a text has."""
    return len(re.findall(r"[^\W_][\w'’-]*", prose(text)))


def prose(text):
    """A text without headings, tables, code and tags; a formula is one letter."""
    for pattern, instead in NO_PROSE.items():
        text = re.sub(pattern, instead, text)
    return text


def sentences(notebook):
    """The sentences of a notebook's texts, without its exercises."""
    texts = [text for cell, text, in_exercise in parts(notebook) if cell.cell_type == "markdown" and not in_exercise]
    ends = r"(?<=[.!?])[\s\"”)]+(?=[A-Z0-9\"“(])|\n\s*\n"
    found = [" ".join(part.split()) for text in texts for part in re.split(ends, prose(text))]
    return [sentence for sentence in found if len(sentence.split()) > 2]


def code_lines(source):
    """The lines of a code cell that are neither empty nor a comment alone."""
    return [line for line in source.splitlines() if line.strip() and not line.lstrip().startswith("#")]


def report(path):
    """What the table says of a notebook: by column."""
    notebook = notebooks.read(path)
    main, folded = count(main_line(notebook)), [count(part) for part in folded_parts(notebook)]
    asked = sum(words(text) for cell, text, yes in parts(notebook) if yes and cell.cell_type == "markdown")
    sizes = [code_lines(cell.source) for cell in notebook.cells if cell.cell_type == "code"]
    said = sentences(notebook)
    return {
        "notebook": path.stem[:26],
        "cells": main.cells,
        "folded cells": sum(part.cells for part in folded),
        "words": main.words,
        "folded words": sum(part.words for part in folded),
        "exercises": asked,
        "code": main.lines,
        "median": median(map(len, sizes)) if sizes else 0,
        "most": max(map(len, sizes), default=0),
        f"> {WIDE}": sum(len(line) > WIDE for lines in sizes for line in lines),
        "predict": main.predictions,
        "minutes": round(main.minutes),
        "private": f"{sum(bool(PRIVATE.search(sentence)) for sentence in said) / max(1, len(said)):.0%}",
    }


def main():
    parser = argparse.ArgumentParser(description="Count words and minutes of main lines, and what is folded.")
    parser.add_argument("paths", nargs="*", type=Path, help="default: the notebooks of the course")
    parser.add_argument("--sentences", action="store_true", help="print the sentences with a private word")
    asked = parser.parse_args()
    paths = asked.paths or sorted(notebooks.NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))
    rows = [report(path) for path in paths]
    widths = [max(len(name), *(len(str(row[name])) for row in rows)) for name in rows[0]]
    for path, cells in zip([None, *paths], [list(rows[0]), *(row.values() for row in rows)], strict=True):
        print("  ".join(f"{cell!s:>{width}}" for cell, width in zip(cells, widths, strict=True)))
        if path and asked.sentences:
            print(*(f"      {each}" for each in sentences(notebooks.read(path)) if PRIVATE.search(each)), sep="\n")
    totals = [f"{name} {sum(row[name] for row in rows)}" for name in ("words", "folded words", "code", "minutes")]
    print("together:", ", ".join(totals))


if __name__ == "__main__":
    main()
