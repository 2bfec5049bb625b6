"""English prose that is at hand without a network, for measuring a language model.

Some of it is this project's own. The rest is from the descriptions of data sets in scikit-learn 1.9.1 (BSD-3-Clause,
descriptions_licence.txt); some of these are old and often quoted, so that a language model may know them by heart.
"""

from pathlib import Path


def own_prose() -> list[str]:
    """Eleven paragraphs of these notebooks, as they once were, so that what is measured on them stays the same."""
    return _lines("own_prose")


def descriptions() -> list[str]:
    """The prose of eleven descriptions of data sets, a line each: whole sentences without tables, code and lists."""
    return _lines("descriptions")


def _lines(name: str) -> list[str]:
    return Path(__file__).with_name(f"{name}.txt").read_text(encoding="utf-8").splitlines()
