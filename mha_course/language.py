"""The language in which the library speaks to a learner: English, or that of a catalogue in ``messages/``.

    language.use("vi")

or the environment variable ``MHA_LANGUAGE`` chooses it. A page that there is in several languages does so in its first
cell; all other notebooks speak the language that was chosen last, which is kept where predictions are. A sentence is
one message, with names in braces where numbers and words are put in; one that a catalogue lacks is English.
"""

import functools
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mha_course import kept_work

MESSAGES = Path(__file__).with_name("messages")
ENGLISH = "en"
KEPT_AS = "language"  # in the learner's progress
# Full-width signs bring their own space; beside Han and kana, quotation marks need none.
CLOSED_UP = re.compile(
    r" (?=[，。；：、（）「」])|(?<=[，。；：、（）「」]) |(?<=[\u3040-\u9fff]) (?=“)|(?<=”) (?=[\u3040-\u9fff])"
)
_chosen = ""


class Said(str):
    """Hold a translated text as a ``str``, with its English original in the attribute ``english``.

    Attributes:
        english: the same in English.
    """

    english: str

    def __new__(cls, text: str, english: str | None = None) -> "Said":
        said = super().__new__(cls, text)
        said.english = text if english is None else english
        return said


def use(language: str) -> None:
    """Choose the language of all messages by its code, such as "en" or "vi", in this notebook and in those run later.

    Raises:
        ValueError: there is no catalogue of this language.
    """
    global _chosen
    if language not in (known := [ENGLISH, *sorted(path.stem for path in MESSAGES.glob("*.json"))]):
        raise ValueError(f"language must be one of {', '.join(known)}, got {language!r}")
    _chosen = language
    if _last_choice() != language:
        kept_work.keep(KEPT_AS, {"text": language})
        _last_choice.cache_clear()


def chosen() -> str:
    """Return the code of the language in use: "en" if none was chosen or the chosen one has no translations.

    ``use`` in this kernel goes before ``MHA_LANGUAGE``, and that before what was chosen in another notebook.
    """
    code = _chosen or os.environ.get("MHA_LANGUAGE") or _last_choice()
    return code if catalogue(code) else ENGLISH


@functools.cache
def _last_choice() -> str:
    """What ``use`` has kept, read once: many messages ask for it."""
    return kept_work.kept().get(KEPT_AS, {}).get("text", "")


@functools.cache
def catalogue(language: str) -> dict[str, str]:
    """Return a language's translations as a dictionary from English to translated messages; empty if it has none."""
    path = MESSAGES / f"{language}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def tr(message: str, *parts: Any, **named: Any) -> str:
    """Translate an English message into the chosen language, and fill in its ``{}`` fields as ``str.format`` does."""
    words = catalogue(chosen())
    said = words.get(message, message) if message else ""
    if parts or named:
        own = [english(part) for part in parts], {name: english(part) for name, part in named.items()}
        return Said(CLOSED_UP.sub("", said.format(*parts, **named)), message.format(*own[0], **own[1]))
    return message if isinstance(message, Said) else Said(said, message)


def english(text: Any) -> Any:
    """Return the English original of a translated text (``Said``); return anything else unchanged."""
    return text.english if isinstance(text, Said) else text


def sentences(parts: Iterable[str]) -> str:
    """Join sentences with the space that the chosen language puts between them, leaving out empty ones."""
    return listed(filter(None, parts), " ")


def listed(parts: Iterable[str], between: str = ", ") -> str:
    """Join texts with the separator ``between``, translated into the chosen language."""
    parts = list(parts)
    return Said(tr(between).join(parts), between.join(map(english, parts)))


def words_in(text: str) -> dict[str, str]:
    """Return, as a dictionary, the translations of all English messages that a program's source ``text`` contains."""
    words = catalogue(chosen())
    return {each: words[each] for each in words if each and json.dumps(each, ensure_ascii=False) in text}


def lang_code() -> str:
    """Return the chosen language's code as the ``lang`` attribute of HTML writes it, such as "zh-Hans"."""
    return catalogue(chosen()).get("", chosen())


def lang() -> str:
    """Return the HTML attribute ``lang="…"`` for the chosen language, with a leading space; "" for English."""
    return "" if chosen() == ENGLISH else f' lang="{lang_code()}"'
