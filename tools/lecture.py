"""The lecture: the slides that are made of notebook 00, in order, and the question to ask at each.

A slide begins at a block of the notebook and speaks of all up to where the next one begins. It shows some of it. All of
it goes into the speaker's notes, and its minutes are counted. A block is named by its cell's number, and within a text
by its first letters.
"""

import re
from typing import NamedTuple

from tools import main_line, notebooks

NOTEBOOK = next(notebooks.NOTEBOOKS.glob("00_*.ipynb"))


class Slide(NamedTuple):
    """A slide: where it begins, what it shows, and what to ask.

    Attributes:
        begins: a block, as "53: ## 2." (its cell, and how it begins) or "58" (a cell of code, or a text's first block).
        shows: blocks of text as above; a cell of code shows its output, or with "code " before it its source.
        ask: the question; where the notebook asks for a prediction, that is asked, too.
    """

    begins: str
    shows: tuple[str, ...]
    ask: str = ""


class Block(NamedTuple):
    """A paragraph, a heading, a table, a list, a formula or a cell of code, and the minutes that it takes."""

    cell: notebooks.nbformat.NotebookNode
    text: str
    minutes: float


# A slide that shows nothing is not shown: what it speaks of is left out.
SLIDES = (
    Slide("185", ()),
    Slide("41", ("41",), "To which word does she belong? How do you know?"),
    Slide("301", ()),
    Slide("301: ## 1.", ("301: A model", "301: | vector"), "Who compares what with what?"),
    Slide("301: We build", ("150",), "Why is every other row of one colour?"),
    Slide("151: In a heat", ("151: In a heat", "151: | key of"), "What would be the output if queen were not female?"),
    Slide("151: ### The formula", ("151: $$", "151: | part"), "Which two sizes may differ, which two may not?"),
    Slide("151: ### Why", ("151: Assume", "151: $$\\operatorname{Var}", "151: So dot"), "What if p is 1,000?"),
    Slide("151: ### Padding", ()),
    Slide(
        "51: ### Attention",
        ("51: A token's", "code 153", "153"),
        "The dog bit the man: who bit?",
    ),
    Slide("53: ## 2.", ("53: For each", "53: **Predict"), "Hands up: with one head? With two?"),
    Slide("55", ("55", "56: One head", "421: **Each head"), "Which columns differ?"),
    Slide("56: Here", ("420",), "Which number do I change, to ask for the subject alone?"),
    Slide("421", ("58",), "Which matrices do two heads share?"),
    Slide(
        "421: ## 3.",
        ("421: Let", "421: $$\\mathbf H", "421: The outputs", "421: $$\\operatorname{M"),
        "What is p?",
    ),
    Slide("192", ()),
    Slide(
        "190: ### One",
        ("190: With the", "190: $$\\mathbf X", "190: So one"),
        "Does a head read a part of a token?",
    ),
    Slide("190: ### The output", ("190: Cut", "190: $$[\\,", "190: Each head adds"), "What is left if head 2 gives 0?"),
    Slide("190: ### More", ("190: The three",), "Twice as many heads: how many parameters?"),
    Slide("190: ### How", ("188",), "Two heads for four neighbours: how many letters will be right?"),
    Slide("189: ## 4.", ("189: One product", "189: **Step", "65"), "Which axis is cut?"),
    Slide("66", ("66", "66: **Step", "67"), "Why not stop here?"),
    Slide("158", ("158: **Step", "code 159"), "Which of the three steps moves a number?"),
    Slide("72", ("73",), "Where is 1201, and in which matrix?"),
    Slide("194: ### A", ("194: (2, 5", "78", "195: It gets"), "Both have the right shape: which test would see it?"),
    Slide("80", ()),
    Slide("230", ("231", "232: **Predict"), "What does the layer not know, that we know?"),
    Slide("305", ("306", "307: In these"), "Would you call this understanding?"),
    Slide("307: ### Causal", ()),
    Slide("97", ()),
    Slide("101", ("97: Now", "102"), "Both have as many parameters: what makes the difference?"),
    Slide("114", ("206",), "What happens to a masked column?"),
    Slide("204", ()),
    Slide("204: *Dive", ("204: We need", "196"), "Which two heads could stand in for one another?"),
    Slide(
        "403: ### Switch",
        ("403: `head_mask", "205: Judged", "205: **Predict"),
        "What follows, if one costs nothing?",
    ),
    Slide("124", ("125", "126: Without"), "What question does leave-one-out answer?"),
    Slide("126: Try", ("418",), "Find a pair that costs nothing."),
    Slide("419: ### Ex", ()),
    Slide("178: ### The book", ("178: 1. **Choose",), "Which of these five have you seen left out in a paper?"),
    Slide("178: ### Back", ()),
    Slide("413", ("413: - Attention",), "Write the layer tonight: exercise 2."),
    Slide("202", ()),
)


def blocks():
    """All blocks of the notebook's main line, in order; an exercise takes minutes of its own, none here."""
    found = []
    for cell, part, in_exercise in main_line.parts(main_line.main_line(notebooks.read(NOTEBOOK))):
        texts = re.split(r"\n\n+", part.strip()) if cell.cell_type == "markdown" else [part]
        for text in texts:
            count = main_line.Count()
            count.add(cell, text)
            found.append(Block(cell, text, 0 if in_exercise else count.minutes))
    return found


def is_text(block):
    """Whether a block is one of text."""
    return block.cell.cell_type == "markdown"


def find(name, among):
    """The index of the block that a name means.

    Raises:
        ValueError: there is none.
    """
    number, _, words = name.removeprefix("code ").partition(": ")
    for index, block in enumerate(among):
        if block.cell.id == f"{NOTEBOOK.stem}-{number}" and block.text.startswith(words):
            return index
    raise ValueError(f"slide {name!r}: {NOTEBOOK.name} has no cell {number} with a block that begins with {words!r}")


def spoken():
    """Every slide that is shown with the blocks that it speaks of, the main line's in order."""
    every = blocks()
    starts = [find(slide.begins, every) for slide in SLIDES]
    stops = [*starts[1:], len(every)]
    return [(slide, every[start:stop]) for slide, start, stop in zip(SLIDES, starts, stops, strict=True) if slide.shows]


def section(slide):
    """The heading of the section in which a slide begins; before the first section, that one's."""
    every = blocks()
    headings = [(index, block.text[3:]) for index, block in enumerate(every) if block.text.startswith("## ")]
    start = find(slide.begins, every)
    return next((text for index, text in reversed(headings) if index <= start), headings[0][1])
