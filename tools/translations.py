"""Notebooks and pages in other languages: one gettext catalogue for each and each language, and what is made from it.

    python -m tools.translations update    after the English has changed: bring the catalogues up to date
    python -m tools.translations build     write notebooks/<language>/ from the English and the catalogues
    python -m tools.translations run       the same, and run these notebooks, so that their outputs are in the language
    python -m tools.translations check     count what is stale, missing or damaged; red where a page would be wrong
    python -m tools.translations stale     the English of each stale paragraph, old and new, word by word
    python -m tools.translations terms     paragraphs without a term of the glossary: to be read, not to be obeyed
    python -m tools.translations same NN_name-17                its English means the same: translations are not stale
    python -m tools.translations withdraw 00_start_here         build nothing of it, and remember what was translated

Markdown is translated, and in a notebook's code its comments and texts; what the library says is in the catalogue
``strings`` of each language, from which ``mha_course/messages/<language>.json`` is made. What has no translation, or
one of an earlier English, is shown in English and says so; a page that would be more than a third English is not built.
A catalogue that is withdrawn stands in ``translations/memory/<language>/``: ``update`` takes from there what a new
paragraph says again.
"""

import argparse
import copy
import difflib
import itertools
import json
import os
import re
import sys
import time
from collections import Counter

import nbformat
import polib

from tools import code_messages, first_cell, glossary
from tools.languages import CATALOGUES, LANGUAGES
from tools.messages import damage, messages, translate
from tools.notebooks import NOTEBOOKS, clean_environment, execute, normalise, read
from tools.strings import COURSE, strings

STRINGS = "strings"  # the catalogue of what the library's code says, to which no page belongs
SHOWN = (  # of README: its first screen, the table of notebooks, and what to do when something fails
    re.compile(r"(?ms)\A.*?(?=^## )"),
    re.compile(r"(?ms)^## The notebooks$.*?\n\n(?=^[^#|\n])"),
    re.compile(r"(?ms)^## When something fails$.*?(?=^## )"),
)
BUTTONS = re.compile(r"(?s)<!-- buttons.*?<!-- end of buttons -->\n\n")
LINK = re.compile(r'(\]\(|\b(?:src|srcset|href)=")(?!\w+:|#)([^)\s"#]+)')
ENGLISH_TITLE = re.compile(r"(?m)^\| \d\d \| \[[^\]]+\]\(\.\./[^)]+\)")  # of a notebook, in a row of a translated table
READ_BY = "Read-By"  # names, in a catalogue's head, the native who has read it: until then pages say that none has
CHANGED = {"- ": "[-{}-]", "+ ": "{{+{}+}}", "  ": "{}"}  # a word that is gone, one that is new, one that has stayed
SOFT = ("stale", "missing")  # what makes a page English in places; all else makes it wrong


def home(stem):
    """Where the English of a catalogue stands."""
    pages = {"README": NOTEBOOKS.parent / "README.md", "GLOSSARY": NOTEBOOKS / "GLOSSARY.md"}
    return pages.get(stem, NOTEBOOKS / f"{stem}.ipynb")


def target(stem, language):
    """Where the page in a language stands."""
    return NOTEBOOKS / language / home(stem).name


def catalogues():
    """A notebook's or page's name, or that of the strings, and a language, for all that is translated into any."""
    return itertools.product(sorted({path.stem for path in CATALOGUES.glob("*/*.po")}), LANGUAGES)


def pages():
    """The same for what is a page."""
    return [(stem, language) for stem, language in catalogues() if stem != STRINGS]


def whole(stem, language="en"):
    """The English notebook, or page as a notebook of one text, without its links to other languages.

    ``language`` is the one whose terms the glossary puts first.
    """
    if home(stem).suffix == ".ipynb":
        notebook = read(home(stem))
    else:
        text = glossary.page(language) if stem == "GLOSSARY" else home(stem).read_text(encoding="utf-8")
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text, id=stem)])
    notebook.cells[0].source = first_cell.SWITCHER.sub("", notebook.cells[0].source)
    return notebook


def english(stem, language="en"):
    """What is translated of it: of README some parts, without what ``make notebooks`` writes there."""
    notebook = whole(stem, language)
    if stem == "README":
        text = BUTTONS.sub("", notebook.cells[0].source)
        notebook.cells[0].source = "".join(found[0] for part in SHOWN if (found := part.search(text)))
    return notebook


def wanted(stem):
    """Each message of the English, with the ids of the cells, or the files of the code, that it stands in."""
    if stem == STRINGS:
        return strings()
    found = {}
    for cell in english(stem).cells:
        read = messages if cell.cell_type == "markdown" else code_messages.messages
        for block in dict.fromkeys(read(cell.source)):
            found.setdefault(block, []).append(cell.id)
    return found


def of_code(stem):
    """The messages that are code's, or within code."""
    if stem == STRINGS:
        return set(strings())
    cells = [cell for cell in english(stem).cells if cell.cell_type == "code"]
    return {block for cell in cells for block in code_messages.messages(cell.source)}


def lost(entry, language, code):
    """What a translation has lost: pairs of a kind and of what is wrong; ``code`` are the messages of code."""
    if entry.msgid in code:
        yield from code_messages.damage(entry.msgid, entry.msgstr)
    else:
        yield from damage(entry.msgid, entry.msgstr, LANGUAGES[language]["thousands"], LANGUAGES[language]["slants"])
    for word, better in glossary.never_said(entry.msgstr, language):
        yield "never", f"{word!r} is never said, but {better!r}"
    for term, forms in glossary.lacking(entry.msgid, entry.msgstr, language, held=True):
        yield "term", f"{term!r} is called {forms!r}"


def load(stem, language):
    """A catalogue; an empty one where there is none."""
    path = CATALOGUES / language / f"{stem}.po"
    return polib.pofile(str(path), encoding="utf-8") if path.exists() else polib.POFile()


def kept(stem, language):
    """Where the catalogue of a withdrawn page stands."""
    return CATALOGUES / "memory" / language / f"{stem}.po"


def memory(language):
    """What was translated of pages that are withdrawn: the entries, by the English that was translated."""
    entries = (entry for path in sorted(kept("*", language).parent.glob("*.po")) for entry in polib.pofile(str(path)))
    return {entry.previous_msgid or entry.msgid: entry for entry in entries if entry.msgstr}


def save(catalogue, stem, language, place=None):
    """Write a catalogue in one fixed form, to its place or to another."""
    place = place or CATALOGUES / language / f"{stem}.po"
    catalogue.header = f"{stem} in {LANGUAGES[language]['name']}"
    form = {"Language": language, "Content-Type": "text/plain; charset=UTF-8", "Content-Transfer-Encoding": "8bit"}
    catalogue.metadata = form | {key: text for key, text in catalogue.metadata.items() if key == READ_BY}
    catalogue.wrapwidth = 0  # one paragraph, one line: a difference shows what has changed
    place.parent.mkdir(parents=True, exist_ok=True)
    catalogue.save(str(place), newline="\n")


def update(stem, language):
    """Bring a catalogue to the English of today.

    A paragraph whose English was changed keeps its translation, marked as fuzzy, with the English that was
    translated. What is not needed any more is kept at the end, in case the paragraph comes back. A paragraph without a
    translation gets that of a withdrawn page: as it is, if the English is the same, else marked as fuzzy.
    """
    catalogue, blocks, withdrawn, code = load(stem, language), wanted(stem), memory(language), of_code(stem)
    old = {entry.msgid: entry for entry in catalogue}
    spare = {block: entry for block, entry in old.items() if block not in blocks and entry.msgstr}
    came_back = {entry.previous_msgid: entry for entry in spare.values() if is_stale(entry)}
    catalogue[:] = []
    for block, cells in blocks.items():
        entry = old.get(block) or polib.POEntry(msgid=block)
        entry.occurrences, entry.obsolete = [(cell, "") for cell in cells], False
        if not entry.msgstr and block in came_back:
            entry.msgstr = came_back[block].msgstr
            spare.pop(came_back[block].msgid, None)
        elif not entry.msgstr and block in withdrawn:
            entry.msgstr = withdrawn[block].msgstr
        elif not entry.msgstr:
            for near in difflib.get_close_matches(block, spare if block in code else spare | withdrawn, 1, 0.6):
                former = spare.pop(near, None) or withdrawn[near]
                entry.msgstr, entry.flags = former.msgstr, ["fuzzy"]
                entry.previous_msgid = former.previous_msgid or former.msgid
        catalogue.append(entry)
    for entry in spare.values():
        entry.obsolete, entry.occurrences = True, []
        catalogue.append(entry)
    save(catalogue, stem, language)


def translated(stem, language):
    """What may be shown, by its English: not what is stale or obsolete."""
    return {entry.msgid: entry.msgstr for entry in load(stem, language) if entry.translated() and not is_stale(entry)}


def is_stale(entry):
    """Whether its English is not the one that was translated: the former one must be taken out, too."""
    return entry.fuzzy or bool(entry.previous_msgid)


def left_in_english(stem, language):
    """How many messages have no translation that may be shown, and of how many."""
    blocks = wanted(stem)
    return len(blocks.keys() - translated(stem, language).keys()), len(blocks)


def all_built():
    """For each name the languages that it is built in: those in which at least two thirds are translated."""
    built = {}
    for stem, language in pages():
        missing, total = left_in_english(stem, language)
        built.setdefault(stem, []).extend([language] if 3 * missing <= total else [])
    return built


def switcher(stem, language, built):
    """Links to the page in all languages, from the one in ``language``."""
    places = {"en": home(stem)} | {other: target(stem, other) for other in built[stem]}
    names = {"en": "English"} | {other: said["name"] for other, said in LANGUAGES.items()}
    links = {other: os.path.relpath(place, places[language].parent) for other, place in places.items()}
    shown = (f"**{names[other]}**" if other == language else f"[{names[other]}]({links[other]})" for other in links)
    return " · ".join(shown)


def leads_on(text, stem, language, built):
    """A text from a language's folder whose links lead where they led, or to the same page in the language."""
    pages = {home(other): target(other, language) for other, languages in built.items() if language in languages}

    def there(link):
        place = (home(stem).parent / link[2]).resolve()
        return link[1] + os.path.relpath(pages.get(place, place), NOTEBOOKS / language)

    return LINK.sub(there, text)


def onward(language, built):
    """What a page says of the numbered notebooks that there are in English only; "" where there are none."""
    own = {stem for stem, languages in built.items() if language in languages}
    english = sorted(path.stem[:2] for path in NOTEBOOKS.glob("[0-9][0-9]_*.ipynb") if path.stem not in own)
    return LANGUAGES[language]["onward"].format(first=english[0], last=english[-1]) if english else ""


def build(stem, language, built):
    """A page as a notebook, with the outputs of its own last run; ``built`` is what ``all_built`` gives."""
    out, words, saved = copy.deepcopy(english(stem, language)), translated(stem, language), own_outputs(stem, language)
    for cell in out.cells:
        if cell.cell_type == "markdown":
            text = leads_on(translate(first_cell.SWITCHER.sub("", cell.source), words), stem, language, built)
            cell.source = ENGLISH_TITLE.sub(rf"\g<0>{LANGUAGES[language]['english']}", text)
        else:
            cell.source = code_messages.translate(cell.source, words)
            if first_cell.is_first_cell(cell):
                own = first_cell.SPEAKS.format(language=language)
                cell.source = cell.source.removesuffix(first_cell.SPEAKS.format(language="en")) + own
            cell.outputs, cell.execution_count = saved.get((cell.id, cell.source), ([], None))
    said, (missing, total) = LANGUAGES[language], left_in_english(stem, language)
    notice = said["stays"] if READ_BY in load(stem, language).metadata else said["stays"] + said["machine"]
    notice += said["left"].format(missing=missing, total=total) if missing else ""
    ahead = onward(language, built) if stem != "GLOSSARY" else ""
    put_under_title("\n\n> ".join(filter(None, [switcher(stem, language, built), notice.rstrip(), ahead])), out)
    if ahead and stem != "README":
        text, _, links = out.cells[-1].source.rpartition("\n\n")
        out.cells[-1].source = f"{text}\n\n{ahead}\n\n{links}"
    if stem == "README":
        out.cells[0].source += f"{said['index']}\n\n" if "index" in said else ""
        out.cells[0].source += f"## {said['name']}\n\n"
        for other in [other for other in built if other != stem and language in built[other]]:
            title = english(other).cells[0].source.partition("\n")[0]
            title = translated(other, language).get(title, title).removeprefix("# ")
            out.cells[0].source += f"- [{title}]({target(other, language).name})\n"
        out.cells[0].source += coming(language)
    out.metadata["language"] = said["code"]
    return out


def own_outputs(stem, language):
    """The outputs of a built notebook's cells, by their ids and sources."""
    path = target(stem, language)
    if path.suffix != ".ipynb" or not path.exists():
        return {}
    cells = (cell for cell in read(path).cells if cell.cell_type == "code")
    return {(cell.id, cell.source): (cell.outputs, cell.execution_count) for cell in cells}


def run():
    """Build everything, and run the notebooks in other languages, so that their outputs are in these languages, too."""
    write_all()
    built = all_built()
    for stem, language in pages():
        path = target(stem, language)
        if path.suffix == ".ipynb" and language in built[stem]:
            page, start = build(stem, language, built), time.monotonic()
            execute(page, path.parent, clean_environment())
            normalise(page)
            page.metadata["language"] = LANGUAGES[language]["code"]
            path.write_text(as_text(page, path), encoding="utf-8", newline="\n")
            print(f"{language}/{path.name}  {time.monotonic() - start:.1f} s", flush=True)


def coming(language):
    """What a language's first page says of notebooks that are withdrawn and will be translated anew, or ""."""
    withdrawn = sorted(path.stem for path in kept("*", language).parent.glob("*.po"))
    stems = [stem for stem in withdrawn if home(stem).exists() and not load(stem, language)]
    pages = []
    for stem in stems:
        title = english(stem).cells[0].source.partition("\n")[0].removeprefix("# ")
        pages.append(f"[{title}]({os.path.relpath(home(stem), NOTEBOOKS / language)})")
    listed = LANGUAGES[language]["between"][", "].join(pages)
    return f"\n{LANGUAGES[language]['coming'].format(pages=listed)}\n" if pages else ""


def put_under_title(lines, notebook):
    title, _, body = notebook.cells[0].source.partition("\n")
    notebook.cells[0].source = f"{title}\n\n{lines}\n{body}"


def files():
    """What ``build`` writes: the text of each file by its path, in all languages and in English."""
    found, built = {}, all_built()
    for stem, languages in built.items():
        pages = {target(stem, language): build(stem, language, built) for language in languages}
        pages[home(stem)] = whole(stem)
        if languages:
            put_under_title(switcher(stem, "en", built), pages[home(stem)])
        found |= {path: as_text(page, path) for path, page in pages.items()}
    for stem, language in catalogues():
        if stem == STRINGS:
            found[COURSE / "messages" / f"{language}.json"] = spoken(language)
    return found


def spoken(language):
    """What the library reads of the strings in a language: those that may be shown, and the language's code as ""."""
    words = {"": LANGUAGES[language]["code"]} | LANGUAGES[language]["between"] | translated(STRINGS, language)
    return json.dumps(words, ensure_ascii=False, indent=0) + "\n"


def as_text(page, path):
    """What the file of a page or a notebook holds."""
    return page.cells[0].source if path.suffix == ".md" else nbformat.v4.writes(page) + "\n"


def write_all():
    """Write all files that are made of catalogues, and remove those that are made no more."""
    made = files()
    for path in {target(*each) for each in pages()} - made.keys():
        path.unlink(missing_ok=True)
    for path, text in made.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")


def faults(stem, language):
    """What is wrong with a catalogue: pairs of a kind and a text."""
    entries, code = {entry.msgid: entry for entry in load(stem, language) if not entry.obsolete}, of_code(stem)
    for block, cells in wanted(stem).items():
        entry, where = entries.pop(block, None), f"{cells[0]}: {block[:60]!r}"
        if entry is None:
            yield "unmerged", where
        elif is_stale(entry):
            yield "stale", where
        elif not entry.msgstr:
            yield "missing", where
        else:
            yield from ((kind, f"{where}: {what}") for kind, what in lost(entry, language, code))
    yield from (("unmerged", f"{block[:60]!r} is English no more") for block in entries)


def check():
    """Print what is wrong, catalogue by catalogue; whether a page is wrong, or not built from its catalogue."""
    wrong = []
    for stem, language in catalogues():
        found = list(faults(stem, language))
        counts = Counter(kind for kind, _ in found)
        print(f"{language}/{stem}:", ", ".join(f"{n} {kind}" for kind, n in counts.items()) or "all fresh")
        wrong += [f"{language}: {kind}, {where}" for kind, where in found if kind not in SOFT]
    for path, text in files().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            wrong.append(f"{path.relative_to(NOTEBOOKS.parent)} is not what its catalogue makes")
    if wrong:
        print(*wrong, "Mend what is damaged; for what is unmerged or not built, run: make translations", sep="\n")
    return bool(wrong)


def stale():
    """Print what has changed in the English of each stale paragraph, and its translation, which is to be changed."""
    for stem, language in catalogues():
        for entry in load(stem, language):
            if is_stale(entry) and not entry.obsolete:
                print(f"{language} {entry.occurrences[0][0]}\n  {changes(entry)}\n  {entry.msgstr}\n")


def changes(entry):
    """The English of a stale paragraph, with the words that are gone and those that are new."""
    words = difflib.ndiff((entry.previous_msgid or entry.msgid).split(), entry.msgid.split())
    return " ".join(CHANGED[word[:2]].format(word[2:]) for word in words if word[:2] in CHANGED)


def same(cell):
    """Show how the English of a cell has changed; if it means the same, its translations in all languages are fresh.

    One that would be wrong, since it holds a number that is another now, stays stale.
    """
    entries = [entry for entry in cell_entries(cell) if is_stale(entry[-1])]
    print(*dict.fromkeys(changes(entry) for *_, entry in entries), sep="\n")
    if entries and input("Does it mean the same? [y/N] ").lower() == "y":
        for stem, language, catalogue, entry in entries:
            wrong = [what for _, what in lost(entry, language, of_code(stem))]
            if wrong:
                print(f"{language}: stays stale, for its translation has {'; '.join(wrong)}\n  {entry.msgstr}")
            else:
                entry.flags, entry.previous_msgid = [], None
                save(catalogue, stem, language)
        write_all()


def cell_entries(cell):
    """The translated messages of a cell, each as page, language, catalogue and entry."""
    for stem, language in catalogues():
        catalogue = load(stem, language)
        for entry in catalogue:
            if (cell, "") in entry.occurrences:
                yield stem, language, catalogue, entry


def withdraw(stem):
    """Take a page out of all languages: its catalogues go to the memory, with what they had there before."""
    for language in LANGUAGES:
        catalogue, place = load(stem, language), kept(stem, language)
        known = {entry.msgid for entry in catalogue}
        if place.exists():
            catalogue.extend(entry for entry in polib.pofile(str(place)) if entry.msgid not in known)
        save(catalogue, stem, language, place)
        (CATALOGUES / language / f"{stem}.po").unlink(missing_ok=True)
        target(stem, language).unlink(missing_ok=True)
    home(stem).write_text(as_text(whole(stem), home(stem)), encoding="utf-8", newline="\n")
    write_all()


def terms():
    """Print the translated paragraphs that have none of the glossary's forms for a term of theirs."""
    for stem, language in catalogues():
        for block, other in translated(stem, language).items():
            for term, forms in glossary.lacking(block, other, language):
                print(f"{language} {stem} {term!r}: none of {forms}\n   {block[:150]}\n   {other[:150]}")


def update_all():
    """Bring all catalogues to the English of today; what is translated into one language gets a catalogue in all."""
    for stem, language in catalogues():
        update(stem, language)


VERBS = {"update": update_all, "build": write_all, "run": run, "check": check, "stale": stale, "terms": terms}
VERBS_OF_ONE = {"same": ("cell", same), "withdraw": ("page", withdraw)}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Notebooks and pages in other languages.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    for name, verb in VERBS.items():
        verbs.add_parser(name).set_defaults(run=lambda _, verb=verb: verb())
    for name, (of, verb) in VERBS_OF_ONE.items():
        verbs.add_parser(name).add_argument("one", metavar=of)
        verbs.choices[name].set_defaults(run=lambda asked, verb=verb: verb(asked.one))
    asked = parser.parse_args()
    sys.exit(asked.run(asked))
