"""The page of terms in all languages, and translated paragraphs that lack one: both from translations/glossary.csv.

A row has a term in English and in each language, where "/" parts the forms that may stand for it (the first is shown);
then the part of the page, what the term means, where that is explained, a note on the choice, and words that are never
said instead, as "vi: word/word; zh: word". Rows without a part are only looked for.
"""

import csv
import re
from itertools import groupby

from tools.languages import CATALOGUES, LANGUAGES


def rows():
    """The rows as dictionaries."""
    return list(csv.DictReader((CATALOGUES / "glossary.csv").read_text(encoding="utf-8").splitlines()))


def shown(row, language):
    """A term as the page has it, marked with its language."""
    form = re.split("[/|]", row[language])[0]
    return f'<span lang="{LANGUAGES[language]["code"]}">{form}</span>' if language in LANGUAGES else form


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


def never_said(other, language):
    """The words in a translation that its language never has here, each with what is said instead."""
    for row in rows():
        for own in (row["never"] or "").split(";"):
            where, _, words = own.strip().partition(": ")
            yield from ((word, row[language]) for word in words.split("/") if where == language and word in other)


def lacking(english, other, language):
    """The terms in an English paragraph, longest first, for which its translation has none of the glossary's forms."""
    left = english.lower()
    for row in sorted(rows(), key=lambda row: -len(row["en"])):  # "attention weight" before "attention"
        found = re.search(rf"\b(?:{row['en']})s?\b", left)
        if found:
            left = left.replace(found[0], " ")
            if not any(form.lower() in other.lower() for form in row[language].split("/")):
                yield found[0], row[language]
