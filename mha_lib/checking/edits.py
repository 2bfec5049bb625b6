"""Typical mistakes as edits of the right answer's source, and programs made of them.

Each line of a table of mistakes is a row: "what stands in the right answer → what stands there instead ⇒ what is said
of it". A line that is indented further continues the row. "∅" is nothing, "…" what stood there before. ";" stands
between edits made together, "∨" between ways to make one mistake; a way without an arrow replaces what the last one
did.

The words before "|" are a symptom, which the result has where this mistake is the only one. The rest is a question
about the step, or says what the program does; where two mistakes meet, only the rest is said.
"""

import ast
import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Any

Edits = dict[str, str]  # what stands in the right answer → what stands there instead


def rows_of(table: str) -> Iterator[tuple[str, Edits]]:
    """What is said of a mistake, and the edits that make it, for each way to make it."""
    for row in re.split(r"\n(?! )", inspect.cleandoc(table)):
        ways, _, text = " ".join(row.split()).partition(" ⇒ ")
        old = ""
        for way in ways.split(" ∨ "):
            edits = {}
            for edit in way.split(" ; "):
                before, arrow, after = edit.rpartition(" → ")
                old = before.strip() if arrow else old
                edits[old] = after.strip().replace("∅", "").replace("…", old)
            yield text, edits


def said_of_one(text: str) -> str:
    """All that is said of a mistake that is the only one."""
    return text.replace(" | ", " ")


def said_of_two(texts: Sequence[str]) -> str:
    """What is said of mistakes that meet: nothing that only holds for one alone."""
    steps = dict.fromkeys(text.rpartition(" | ")[2] for text in texts)
    return f"Two things at once. {' And: '.join(steps)}"


def with_edits(right: Callable, *ways: Edits) -> Callable:
    """The right answer with the edits of one mistake made in its source, then those of another.

    Raises:
        ValueError: what one of them is to replace does not stand there exactly once.
    """
    source = re.sub(r"  # .*", "", source_of_answer(right))
    for edits in ways:
        counts = {old: source.count(old) for old in edits}
        if set(counts.values()) != {1}:
            raise ValueError(f"{right.__name__}: each must stand there once, but this is how often: {counts}")
        source = edited(source, edits)
    namespace: dict[str, Any] = {}
    exec(compile(source, f"<{right.__name__} with a mistake>", "exec"), right.__globals__, namespace)
    return namespace[right.__name__]


def edited(source: str, edits: Edits) -> str:
    """A source with all edits made at once, so that none of them meets what another has put there."""
    return re.sub("|".join(map(re.escape, edits)), lambda found: edits[found[0]], source)


@functools.cache
def source_of_answer(right: Callable) -> str:
    """The source of a function or class as it was written, without decorators and docstring."""
    source = textwrap.dedent(inspect.getsource(right))
    (tree,) = ast.parse(source).body
    assert isinstance(tree, ast.FunctionDef | ast.ClassDef), source
    lines = source.splitlines()
    head = lines[tree.lineno - 1 : tree.body[0].lineno - 1]
    return "\n".join([*head, *lines[tree.body[bool(ast.get_docstring(tree))].lineno - 1 :]]) + "\n"
