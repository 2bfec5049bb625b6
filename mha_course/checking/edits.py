"""Typical mistakes as edits of the right answer's source, and programs made of them.

Each line of a table of mistakes is a row: "what stands in the right answer -> what stands there instead => what is said
of it". A line that is indented further continues the row. "_" is nothing, "$" what stood there before. ";" stands
between edits made together, "||" between ways to make one mistake; a way without an arrow replaces what the last one
did.
"""

import ast
import functools
import inspect
import random
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

Edits = dict[str, str]  # what stands in the right answer → what stands there instead
MOST_STATEMENTS = 256  # that do nothing


def rows_of(table: str) -> Iterator[tuple[str, Edits]]:
    """Parse a table of typical mistakes; yield each mistake's message and the source edits that produce it.

    Raises:
        ValueError: a row lacks "->" or "=>", with what it says.
    """
    for row in re.split(r"\n(?! )", inspect.cleandoc(table)):
        ways, arrow, text = " ".join(row.split()).partition(" => ")
        if " => " in text:
            raise ValueError(f"two rows in one, the second is not at the left: {text!r}")
        if not arrow or " -> " not in ways.split(" || ")[0]:
            raise ValueError(f'a row must read "old -> new => what is said", got {row!r}')
        old = ""
        for way in ways.split(" || "):
            edits = {}
            for edit in way.split(" ; "):
                before, arrow, after = edit.rpartition(" -> ")
                old, after = before.strip() if arrow else old, after.strip()
                edits[old] = "" if after == "_" else after.replace("$", old)
            yield text, edits


def mistakes_of(right: Callable, table: str) -> Iterator[tuple[str, Callable]]:
    """Yield a pair (message, copy of the function ``right`` with the mistake) for each way of each row of a table.

    Raises:
        ValueError: a row does not fit ``right``; the error says which row, and what is wrong with it.
    """
    for text, edits in rows_of(table):
        try:
            yield text, with_edits(right, edits)
        except ValueError as error:
            raise ValueError(f'the row "… => {text}": {error}') from None


def with_edits(right: Callable, edits: Edits) -> Callable:
    """Return a copy of the function ``right`` with the text replacements ``edits`` made in its source code.

    Raises:
        ValueError: what one of them is to replace does not stand there exactly once, or what comes of it is no Python.
    """
    source = re.sub(r"  # .*", "", source_of_answer(right))
    if wrong := [f"{old!r} stands there {source.count(old)} times" for old in edits if source.count(old) != 1]:
        raise ValueError(f"{right.__name__}: what is replaced must stand there once; {', '.join(wrong)}")
    source = re.sub("|".join(map(re.escape, edits)), lambda found: edits[found[0]], source)
    namespace: dict[str, Any] = {}
    try:
        exec(compile(source, f"<{right.__name__} with a mistake>", "exec"), right.__globals__, namespace)
    except SyntaxError as error:
        raise ValueError(f"{right.__name__}: {edits} makes no Python: {error}") from None
    return namespace[right.__name__]


def idle(statement: str) -> str:
    """Return a statement that does nothing, so many times that the length of a code says nothing about its edits."""
    return f"{statement}; " * random.SystemRandom().randint(1, MOST_STATEMENTS)


@functools.cache
def source_of_answer(right: Callable) -> str:
    """Return the source code of a function or class, without its decorators and docstring."""
    source = textwrap.dedent(inspect.getsource(right))
    (tree,) = ast.parse(source).body
    assert isinstance(tree, ast.FunctionDef | ast.ClassDef), source
    lines = source.splitlines()
    head = lines[tree.lineno - 1 : tree.body[0].lineno - 1]
    return "\n".join([*head, *lines[tree.body[bool(ast.get_docstring(tree))].lineno - 1 :]]) + "\n"
