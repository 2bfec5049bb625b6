"""The language in which the library speaks to a learner: English, or that of a catalogue in ``messages/``.

    language.use("vi")

or the environment variable ``MHA_LANGUAGE`` chooses it; a notebook in a language does so in its first cell. A sentence
is one message, with names in braces where numbers and words are put in; one that a catalogue lacks is English.
"""

import functools
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

MESSAGES = Path(__file__).with_name("messages")
ENGLISH = "en"
_chosen = ""


class Said(str):
    """A text in the chosen language that knows what it is in English.

    Attributes:
        english: the same in English.
    """

    english: str

    def __new__(cls, text: str, english: str | None = None) -> "Said":
        said = super().__new__(cls, text)
        said.english = text if english is None else english
        return said


def use(language: str) -> None:
    """Choose a language by its code: "en", or that of a catalogue.

    Raises:
        ValueError: there is no catalogue of this language.
    """
    global _chosen
    if language not in (known := [ENGLISH, *sorted(path.stem for path in MESSAGES.glob("*.json"))]):
        raise ValueError(f"language must be one of {', '.join(known)}, got {language!r}")
    _chosen = language


def chosen() -> str:
    """Return the code of the chosen language; one that has no catalogue stays English."""
    code = _chosen or os.environ.get("MHA_LANGUAGE", "")
    return code if catalogue(code) else ENGLISH


@functools.cache
def catalogue(language: str) -> dict[str, str]:
    """Return all messages of a language: the English, and what is said instead."""
    path = MESSAGES / f"{language}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def tr(message: str, *parts: Any, **named: Any) -> str:
    """Return a message in the chosen language, with what its braces name put in."""
    words = catalogue(chosen())
    said = words.get(message, message) if message else ""
    if parts or named:
        own = [english(part) for part in parts], {name: english(part) for name, part in named.items()}
        return Said(said.format(*parts, **named), message.format(*own[0], **own[1]))
    return message if isinstance(message, Said) else Said(said, message)


def english(text: Any) -> Any:
    """Return what a text says in English; anything else as it is."""
    return text.english if isinstance(text, Said) else text


def sentences(parts: Iterable[str]) -> str:
    """Return sentences as one text, with the space between them that the language has; empty ones are left out."""
    return listed(filter(None, parts), " ")


def listed(parts: Iterable[str], between: str = ", ") -> str:
    """Return parts of a sentence with what stands between them in the language."""
    parts = list(parts)
    return Said(tr(between).join(parts), between.join(map(english, parts)))


def words_in(text: str) -> dict[str, str]:
    """Return those messages in the chosen language that a program's text holds; none in English."""
    words = catalogue(chosen())
    return {each: words[each] for each in words if each and json.dumps(each, ensure_ascii=False) in text}


def lang_code() -> str:
    """Return the chosen language as HTML has it."""
    return catalogue(chosen()).get("", chosen())


def lang() -> str:
    """Return the HTML attribute of a text in the chosen language, with a space in front; "" in English."""
    return "" if chosen() == ENGLISH else f' lang="{lang_code()}"'
