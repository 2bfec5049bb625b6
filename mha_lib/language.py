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
    """Hold a text in the chosen language together with its English original.

    Attributes:
        english: the same in English.
    """

    english: str

    def __new__(cls, text: str, english: str | None = None) -> "Said":
        said = super().__new__(cls, text)
        said.english = text if english is None else english
        return said


def use(language: str) -> None:
    """Choose the language of all messages by its code, such as "en" or "vi".

    Raises:
        ValueError: there is no catalogue of this language.
    """
    global _chosen
    if language not in (known := [ENGLISH, *sorted(path.stem for path in MESSAGES.glob("*.json"))]):
        raise ValueError(f"language must be one of {', '.join(known)}, got {language!r}")
    _chosen = language


def chosen() -> str:
    """Return the code of the language in which messages are shown; "en" if it has no translations."""
    code = _chosen or os.environ.get("MHA_LANGUAGE", "")
    return code if catalogue(code) else ENGLISH


@functools.cache
def catalogue(language: str) -> dict[str, str]:
    """Load the translations into a language: a dict from each English message to its translation."""
    path = MESSAGES / f"{language}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def tr(message: str, *parts: Any, **named: Any) -> str:
    """Translate a message to the chosen language, and fill in its placeholders in braces."""
    words = catalogue(chosen())
    said = words.get(message, message) if message else ""
    if parts or named:
        own = [english(part) for part in parts], {name: english(part) for name, part in named.items()}
        return Said(said.format(*parts, **named), message.format(*own[0], **own[1]))
    return message if isinstance(message, Said) else Said(said, message)


def english(text: Any) -> Any:
    """Return the English original of a translated text; return anything else as it is."""
    return text.english if isinstance(text, Said) else text


def sentences(parts: Iterable[str]) -> str:
    """Join sentences to one text, with the space that the chosen language puts between them; leave out empty ones."""
    return listed(filter(None, parts), " ")


def listed(parts: Iterable[str], between: str = ", ") -> str:
    """Join parts of a sentence with the separator ``between``, translated to the chosen language."""
    parts = list(parts)
    return Said(tr(between).join(parts), between.join(map(english, parts)))


def words_in(text: str) -> dict[str, str]:
    """Return the translations of all messages that occur as strings in a program's text; empty in English."""
    words = catalogue(chosen())
    return {each: words[each] for each in words if each and json.dumps(each, ensure_ascii=False) in text}


def lang_code() -> str:
    """Return the chosen language's code for the HTML attribute ``lang``."""
    return catalogue(chosen()).get("", chosen())


def lang() -> str:
    """Return the HTML attribute ``lang`` of the chosen language, with a space in front; "" in English."""
    return "" if chosen() == ENGLISH else f' lang="{lang_code()}"'
