"""Markdown in pieces that can be translated one by one, and what a translation of a piece may not lose.

A message is a paragraph, a heading, an item of a list or a row of a table.
"""

import re
from collections import Counter

from markdown_it import MarkdownIt

FENCE = re.compile(r"^\s*(```|~~~|\$\$)")
STARTS = re.compile(r"#{1,6} |[-*] |\d+\. |\|")  # a line that is a message of its own
CODE = re.compile(r"(?ms)^\s*(```|~~~).*?^\s*\1")
FORMULA = re.compile(r"(?s)\$\$.+?\$\$|\$[^$\n]+\$")
KEEP = re.compile(rf"`[^`\n]+`|{FORMULA.pattern[4:]}|\]\([^)]+\)|https?://[^\s)>]+|<[a-zA-Z/][^>]*>", re.S)
MARKS = re.compile(r"\*\*|(?<!\*)\*(?!\*)|(?<!\\)\||^#+ |^[-*] |^\d+\. ", re.M)
ITALIC = re.compile(r"(?<!\*)\*(?! )([^*\n]+?)(?<! )\*(?!\*)")
HAN = re.compile(r"[\u3040-\u9fff]")
NUMBER = re.compile(r"\d+(?:[.,\u00a0]\d+)*")
THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
LEAD = re.compile(r"(?:#{1,6} |[-*] |\d+\. |\| ?|(?:<[^>]+>)+)?")  # what makes a heading, an item, a row or a tag
MARKDOWN = MarkdownIt()
TERM = re.compile(r"\*\*[^*]+\*\* · .*<span lang=")  # a line of the glossary, which has all languages


def blocks(text):
    """A text in pairs of a block and the gap behind it; joined, they are the text."""
    groups, fence, after_gap = [""], None, False
    for line in text.splitlines(keepends=True):
        opened = FENCE.match(line)
        if fence is None and opened and not (opened[1] == "$$" and line.count("$$") == 2):
            fence = opened[1]
        elif fence and fence in line:
            fence = None
        gap = fence is None and not line.strip()
        if (after_gap and not gap) or (fence is None and STARTS.match(line)):
            groups.append("")
        groups[-1] += line
        after_gap = gap
    return [re.fullmatch(r"(?s)(.*?)((?:\n[ \t]*)*)", group).groups() for group in groups]


def is_message(block):
    """Whether anything in it is words that a translator should read."""
    return not TERM.match(block) and any(map(str.isalpha, KEEP.sub("", CODE.sub("", block))))


def messages(text):
    """The messages of a text, in order."""
    return [block for block, _ in blocks(text) if is_message(block)]


def translate(text, words):
    """A text with its messages as ``words`` has them; what it lacks stays English, with a mark that says so."""
    return "".join(
        (words.get(block) or marked(block) if is_message(block) else block) + gap for block, gap in blocks(text)
    )


def marked(block):
    """A message that stays English."""
    lead = LEAD.match(block)[0]
    return f"{lead}[EN] {block[len(lead) :]}"


def damage(english, other, thousands=",", slants=True):
    """What a translation has lost, and marks that are new in it: pairs of a kind and of what is wrong.

    A translation may name a code twice, or say a number where the English has a word.

    Args:
        thousands: what stands between the thousands of a number in the translation.
        slants: whether its letters have italics; else what is italic in English may be emphasised in another way.
    """
    english = THOUSANDS.sub(thousands, english)
    if thousands != ",":
        english = english.replace("{,}", r"\,")  # in a formula, a thin space
    italics = Counter() if slants else Counter({"*": 1000})
    for kind, pattern, bare in (("markup", KEEP, False), ("marks", MARKS, True), ("numbers", NUMBER, True)):
        a, b = (Counter(pattern.findall(KEEP.sub("", text) if bare else text)) for text in (english, other))
        new = {"markup": [mark for mark in b if mark not in a], "marks": list((b - a).elements()), "numbers": []}[kind]
        new = [mark for mark in new if mark not in italics]
        if a - b - italics or new:
            yield kind, f"lost {list((a - b).elements())}, new {new}"
    if not slants:
        slanted = [part for part in ITALIC.findall(KEEP.sub("", other)) if HAN.search(part)]
        yield from (("italics", f"Han and kana do not slant: {part}") for part in slanted)
    if asterisks(other) > asterisks(english):
        yield "emphasis", "a reader would see asterisks: a sign stands before the end of the bold, a letter behind it"


def asterisks(text):
    """How many asterisks a reader sees, since Markdown does not take them for the end of bold or italic."""
    (line,) = MARKDOWN.parseInline(FORMULA.sub("$$", text))
    return sum(token.content.count("*") for token in line.children if token.type == "text")
