"""The main line of a notebook, what is folded behind it, and how long both take to read.

A heading whose cell has the metadata ``jp-MarkdownHeadingCollapsed`` folds: JupyterLab hides what stands under it, up
to the next heading of its depth, and so does the site. The minutes are an estimate: 130 words a minute, 10 s a line of
code, 40 s a prediction, 3 min a live picture; exercises have minutes of their own and are not counted.
"""

import copy
import dataclasses
import re

from tools import notebooks

HEADING = re.compile(r"(#{1,6}) (.*)")
EXERCISE = re.compile(r"(\d+\. )?(Exercises?|Your turn)\b")
# A heading, so that a task's end is seen: the story goes on under another one. Bold in notebooks not yet rewritten.
NUMBERED_EXERCISE = re.compile(r"(?m)^(?:### |\*\*)Exercise (?P<number>\d+) \((?P<minutes>\d+) minutes.*?\)")
LIVE = re.compile(r"pictures\.\w*(Explorer|Stepper|Scrubber|Switches|HandMadeHead)\(")
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


@dataclasses.dataclass
class Count:
    """What a part of a notebook holds, exercises not counted."""

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
    found = Count()
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


def code_lines(source):
    """The lines of a code cell that are neither empty nor a comment alone."""
    return [line for line in source.splitlines() if line.strip() and not line.lstrip().startswith("#")]
