"""The page of terms in all languages, and translated paragraphs that lack one: both from translations/glossary.csv.

A row has a term in English and in each language, where "/" parts the forms that may stand for it (the first is shown);
then the part of the page, what the term means, where that is explained, a note on the choice, words that are never said
instead, as patterns ("vi: word/word; zh: word"), and in the same form the word of that language's *Dive into Deep
Learning* where it is another. ``held`` names the languages in which a translation with the term must have one of its
forms; in the others, the term may be said in other ways. Rows without a part are only looked for.
"""

import csv
import functools
import re
from itertools import groupby

from tools.code_messages import FIELD
from tools.languages import CATALOGUES, LANGUAGES
from tools.messages import KEEP


@functools.cache
def rows():
    """The rows as dictionaries."""
    return list(csv.DictReader((CATALOGUES / "glossary.csv").read_text(encoding="utf-8").splitlines()))


def shown(row, language):
    """A term as the page has it, marked with its language, and behind it d2l's where that is another."""
    form, own = re.split("[/|]", row[language])[0], dict(by_language(row["d2l"]))
    if language not in LANGUAGES:
        return form
    marks = f'<span lang="{LANGUAGES[language]["code"]}">'
    return f"{marks}{form}</span>" + (f" (d2l: {marks}{own[language]}</span>)" if language in own else "")


def page(language="en"):
    """The page in English, but for the terms, of which those of ``language`` come first."""
    entries, parts = [row for row in rows() if row["part"]], []
    order = [language, *(other for other in ("en", *LANGUAGES) if other != language)]
    for part, group in groupby(entries, key=lambda row: row["part"]):
        parts.append(f"## {part}")
        for row in group:
            first, *others = (shown(row, each) for each in order)
            parts += [" · ".join([f"**{first}**", *others]), f"{row['meaning']} {row['where']}"]
    notes = [f"- **{shown(row, 'en')}**: {row['note']}" for row in entries if row["note"]]
    text = (CATALOGUES / "glossary.md").read_text(encoding="utf-8")
    return text.format(terms="\n\n".join(parts), notes="\n".join(notes))


def by_language(cell):
    """The pairs of a language and its words that a cell has."""
    return [own.strip().split(": ", 1) for own in cell.split(";") if own.strip()]


def never_said(other, language):
    """The words in a translation that its language never has here, each with what is said instead."""
    for row in rows():
        patterns = [
            each for where, words in by_language(row["never"]) if where == language for each in words.split("/")
        ]
        yield from ((found[0], row[language]) for each in patterns if (found := re.search(each, other)))


def lacking(english, other, language, held=False):
    """The terms in an English paragraph, longest first, for which its translation has none of the glossary's forms.

    With ``held``, only those that the language must have.
    """
    left = KEEP.sub(" ", FIELD.sub(" ", english)).lower()
    for row in sorted(rows(), key=lambda row: -len(row["en"])):  # "attention weight" before "attention"
        found, forms = re.search(rf"\b(?:{row['en'].lower()})s?\b", left), row[language].lower().split("/")
        if found:
            left = left.replace(found[0], " ")
            is_asked = not held or language in row["held"].split()
            if is_asked and not any(form in other.lower() for form in forms):
                yield found[0], row[language]
