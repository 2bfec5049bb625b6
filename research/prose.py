"""English prose that is at hand without a network, for measuring a language model.

Some of it is this project's own. The rest is from the descriptions of data sets in scikit-learn 1.9.1 (BSD-3-Clause,
descriptions_licence.txt); some of these are old and often quoted, so that a language model may know them by heart.
"""

import ast
import re
from pathlib import Path


def own_prose() -> list[str]:
    """Eleven paragraphs of these notebooks, as they once were, so that what is measured on them stays the same."""
    return _lines("own_prose")


def descriptions() -> list[str]:
    """The prose of eleven descriptions of data sets, a line each: whole sentences without tables, code and lists."""
    return _lines("descriptions")


def calibration_prose() -> list[str]:
    """Paragraphs of the notebooks as they were when SmolLM2's heads were measured."""
    return _lines("calibration_prose")


def fresh_texts() -> list[tuple[str, str]]:
    """Kind and text, six of each kind: fiction, descriptions of packages, docstrings. No measure sees them."""
    return [(kind, text) for kind, text in (line.split("\t") for line in _lines("fresh_texts"))]


def of_docstrings(source: str) -> str:
    """The whole sentences of a module's docstrings."""
    nodes = ast.walk(ast.parse(source))
    documented = (node for node in nodes if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef))
    paragraphs = "\n\n".join(ast.get_docstring(node) or "" for node in documented).split("\n\n")
    return " ".join(filter(is_prose, (" ".join(part.split()) for part in paragraphs)))


def is_prose(paragraph: str) -> bool:
    """Whether a paragraph of a docstring is whole sentences, and long enough."""
    is_sentence = re.match(r"[A-Z]", paragraph) and paragraph.endswith(".")
    return bool(is_sentence and len(paragraph.split()) >= 12 and not re.search(r">>>|::|==|\|", paragraph))


def _lines(name: str) -> list[str]:
    return Path(__file__).with_name(f"{name}.txt").read_text(encoding="utf-8").splitlines()
