"""The sentences of mha_lib.checking that pages/verdict.py says, read from the library's source and tables."""

import ast
import inspect
import re
from pathlib import Path

from mha_lib.checking import comparing, diagnosis, exercise, running, wording
from mha_lib.exercises import transposing

VERDICT = Path(__file__).with_name("verdict.py")
ROOMS = (comparing, diagnosis, exercise, running, wording)
KEY = re.compile(r'\bsay\(\s*"([^"]+)"|, "((?:times what|is added)[^"]*)"')


def words():
    """The sentences that the verdict says, by the words it knows them by; and the tables it goes through."""
    text = VERDICT.read_text(encoding="utf-8")
    known = {template for module in ROOMS for template in templates(module)}
    keys = {first or second for first, second in KEY.findall(text)}
    errors = [[alternatives(pattern), meaning] for pattern, meaning in diagnosis.ERRORS.items()]
    tables = {name: list(getattr(diagnosis, name)) for name in ("FORMS", "ALONG_AN_AXIS", "OF_PARTS", "PROPERTIES")}
    lists = {**tables, "ERRORS": errors, "DIGITS": transposing.DIGITS}
    return {"sentences": {key: the_one(key, known) for key in sorted(keys)}, "lists": lists}


def templates(module):
    """All texts in a module's code, with {} where values go."""
    nodes = [*ast.walk(ast.parse(inspect.getsource(module)))]
    joined = [node for node in nodes if isinstance(node, ast.JoinedStr)]
    inner = {id(part) for node in joined for part in node.values}
    inner |= {id(node.value) for node in nodes if isinstance(node, ast.Expr)}  # docstrings
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            yield node.value
    for node in joined:
        yield "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)


def the_one(key, known):
    """The one template that has these words.

    Raises:
        ValueError: there is none, or more than one.
    """
    found = [template for template in known if key in template]
    if len(found) != 1:
        raise ValueError(f"one sentence of mha_lib.checking must have the words {key!r}; got {found}")
    return found[0]


def alternatives(pattern):
    """A pattern cut at each | outside brackets, since MicroPython reads none there."""
    parts, depth = [""], 0
    for sign in pattern:
        depth += (sign == "(") - (sign == ")")
        if sign == "|" and not depth:
            parts.append("")
        else:
            parts[-1] += sign
    return parts
