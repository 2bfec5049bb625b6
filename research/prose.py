"""English prose that is at hand without a network, for measuring a language model.

Some of it is this project's own. The rest are descriptions of data sets, which come with scikit-learn (BSD-3-Clause);
some of these are old and often quoted, so that a language model may know them by heart.
"""

import re
from importlib.resources import files
from pathlib import Path

NOT_PROSE = r"::|>>>|\|  |:Number|=====|-----|http|\*\*|^`"  # tables, code and lists among the descriptions
FEWEST_WORDS, FEWEST_LETTERS = 12, 300  # in a paragraph that counts as prose; in a description that is used


def own_prose() -> list[str]:
    """Eleven paragraphs of these notebooks, as they once were, so that what is measured on them stays the same."""
    return Path(__file__).with_name("own_prose.txt").read_text(encoding="utf-8").splitlines()


def descriptions() -> list[str]:
    """The prose of each of scikit-learn's descriptions of data sets that has enough of it, in alphabetical order.

    Raises:
        ImportError: scikit-learn is not installed.
    """
    try:
        folder = files("sklearn.datasets.descr")
    except ImportError as error:
        raise ImportError(
            "the descriptions come with scikit-learn, which is not installed: python -m pip install scikit-learn"
        ) from error
    texts = [file.read_text() for file in sorted(folder.iterdir(), key=lambda file: file.name) if ".rst" in file.name]
    prose = [" ".join(filter(_is_prose, (" ".join(part.split()) for part in text.split("\n\n")))) for text in texts]
    return [text for text in prose if len(text) >= FEWEST_LETTERS]


def _is_prose(paragraph: str) -> bool:
    is_sentence = re.match(r"[A-Z`]", paragraph) and paragraph.endswith(".")
    return bool(is_sentence and len(paragraph.split()) >= FEWEST_WORDS and not re.search(NOT_PROSE, paragraph))
