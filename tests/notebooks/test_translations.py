"""Pages in other languages: made of catalogues, never of a sentence that is gone; what a translation loses is red."""

import ast
import math
import os
import re
import subprocess
import sys
from collections import Counter

import nbformat
import notebook_checks as checks
import pytest
import torch.nn as nn
from fontTools.ttLib import TTFont
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from notebook_tools import ROOT, TRANSLATED, make_notebooks

from mha_course import exercises, pictures
from mha_course import language as spoken_language
from mha_course.checking.verdict import Verdict
from mha_course.checking.wording import as_sentence
from mha_course.exercises import whole_layer
from mha_course.language import tr
from mha_course.models.kept_layer import SENTENCES
from tools import code_messages, first_cell, fonts, glossary, main_line, translations
from tools.languages import CATALOGUES, LANGUAGES
from tools.messages import KEEP, damage

MAX_BYTES = 1_250_000  # 00 and what the library says of it take about 200,000 in each language, the glossary 100,000
STEM = "04_sample"
LONG = (
    "There are 12 heads in the layer, and each of them has a projection of its own, so that the sum over all the heads "
    "is the same as one large matrix."
)
TEXTS = [
    "# A sample\n\n**Goal:** translate a few words.\n\nThe formula is $QK^T$, in code `Q @ K.T`.",
    f"## 1. Heads\n\nThey are counted from 0.\n\n{LONG}",
    "- an item of a list\n- another one, with the number 0.84\n\n| head | weight |\n|---|---|\n| first | 0.5 |",
    "## Summary\n\nThe largest weight belongs to the third head.\n\nA picture shows the weights of the other nine.",
]
every_language = pytest.mark.parametrize("language", LANGUAGES)


def test_catalogues_are_small():
    """`make lint` checks that pages are what they make, and that nothing is damaged."""
    assert sum(path.stat().st_size for path in CATALOGUES.rglob("*") if path.is_file()) <= MAX_BYTES


def test_a_translated_notebook_is_no_notebook_of_its_own():
    """It is made from its English, and run by a verb of its own."""
    assert not set(TRANSLATED) & set(make_notebooks.all_notebooks())


class WithoutTexts(ast.NodeTransformer):
    """Code with all its texts emptied, those between the fields of f-strings too."""

    def visit_Constant(self, node):
        return ast.Constant("") if isinstance(node.value, str) else node

    def visit_JoinedStr(self, node):
        self.generic_visit(node)
        node.values = [part for part in node.values if isinstance(part, ast.FormattedValue)]
        node.values.sort(key=ast.dump)
        return node


def computing(notebook):
    """What the cells of a notebook compute, and which they are, without what is said of it."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code" and not first_cell.is_first_cell(cell)]
    trees = [ast.dump(WithoutTexts().visit(ast.parse(cell.source))) for cell in code]
    return [(cell.id, cell.cell_type, cell.metadata) for cell in notebook.cells], trees


def test_a_notebook_computes_what_the_english_does_and_its_links_lead_somewhere(subtests):
    for path in TRANSLATED:
        with subtests.test(f"{path.parent.name}/{path.stem}"):
            notebook, english = make_notebooks.read(path), make_notebooks.read(ROOT / "notebooks" / path.name)
            assert computing(notebook) == computing(english)
            shown = [[len(cell.get("outputs", [])) for cell in each.cells] for each in (notebook, english)]
            assert shown[0] == shown[1], "run: python -m tools.translations run"
            assert list(checks.links_resolve(notebook, path)) == []


OF_THE_SENTENCES = "|".join([*SENTENCES, "the waiter thanked the queen", "is not None"])
QUOTED = re.compile(rf"(?i){OF_THE_SENTENCES}|`[^`]*`|\w+(-\w+)+|Run All Above Selected Cell")
ENGLISH_WORDS = re.compile(r"\b(the|of|is|are|was|with|and|for|that|which|this|not|from|has|have|its|one|all)\b")


def english_in(text):
    """What is English in a text of another language: runs of three words and more of which one is a small word."""
    runs = re.findall(r"[A-Za-z’'-]+(?:[ ,]+[A-Za-z’'-]+){2,}", QUOTED.sub(" ", text))
    return [run for run in runs if ENGLISH_WORDS.search(run.lower())]


def seen_in(notebook):
    """What a learner reads in a notebook, cell by cell: texts, code's comments and texts, outputs, alt texts."""
    for cell in notebook.cells:
        yield cell.id, KEEP.sub(" ", cell.source) if cell.cell_type == "markdown" else ""
        if cell.cell_type == "code" and not first_cell.is_first_cell(cell):
            yield cell.id, " · ".join(code_messages.messages(cell.source))
        for output in cell.get("outputs", []):
            text = output.get("text", "") or " ".join(output.get("data", {}).values())
            alts = " · ".join(re.findall(r'alt="([^"]*)"', text))
            yield cell.id, f"{alts} · {re.sub('<style>.*?</style>|<[^>]*>', ' ', text)}"


def test_no_english_sentence_is_left_in_a_notebook_of_another_language(subtests):
    for path in TRANSLATED:
        with subtests.test(f"{path.parent.name}/{path.stem}"):
            left = [(cell, run) for cell, text in seen_in(make_notebooks.read(path)) for run in english_in(text)]
            assert left == []


@pytest.fixture
def spoken(monkeypatch):
    """A language of three messages."""
    words = {
        "the shape must be {right}, yours is {own}": "{own} statt {right}",
        "{sentence}.": "{sentence}!",
        "✗ Not right.": "✗ Falsch.",
        " ": "",
    }
    monkeypatch.setattr(spoken_language, "catalogue", lambda code: words if code == "de" else {})
    monkeypatch.setattr(spoken_language, "chosen", lambda: "de")


def test_a_message_is_said_whole_and_knows_its_english(spoken):
    shape = tr("the shape must be {right}, yours is {own}", right=(2, 3), own=(3, 2))
    assert shape == "(3, 2) statt (2, 3)" and shape.english == "the shape must be (2, 3), yours is (3, 2)"
    missing = "Every number has the wrong sign."
    both = spoken_language.sentences([as_sentence(shape), missing])
    assert both == f"(3, 2) statt (2, 3)!{missing}"
    assert both.english == f"The shape must be (2, 3), yours is (3, 2). {missing}"
    assert repr(Verdict("wrong", both)) == f"✗ Falsch.{both}"


def test_a_language_without_a_catalogue_is_refused_by_name():
    with pytest.raises(ValueError, match=r"language must be one of en, .*got 'xx'"):
        spoken_language.use("xx")


@pytest.fixture
def speaking(monkeypatch):
    """Choose a language for a moment: ``speaking("zh")``."""
    return lambda code: monkeypatch.setattr(spoken_language, "_chosen", code)


def wrong_qkv(X, num_heads):
    return X.reshape(X.shape[0] * num_heads, X.shape[1], -1)


class WithoutScale(whole_layer.CompleteAttention):
    def forward(self, queries, keys, values, valid_lens=None, head_mask=None):
        return super().forward(queries * math.sqrt(self.W_q.out_features // self.num_heads), keys, values, valid_lens)


@every_language
def test_a_wrong_answer_is_told_in_the_language_with_its_step(language, speaking):
    speaking(language)
    wrong = exercises.transpose_qkv(wrong_qkv)
    layer = exercises.layer_by_formula(WithoutScale)
    assert layer.text.startswith(tr("Step {step}: {text}", step=4, text=""))
    for verdict in (wrong, layer, exercises.layer_by_formula(nn.Module)):
        assert not verdict and english_in(repr(verdict)) == [], verdict
        assert f'lang="{LANGUAGES[language]["code"]}"' in verdict._repr_html_()
    assert "{" not in repr(wrong) + repr(layer) and not re.search(r"zh-Hans|\b(vi|ja)\b", repr(wrong))


@every_language
def test_a_live_picture_gets_the_words_that_its_module_says(language, speaking):
    assert "messages" not in pictures.TransposeStepper().data
    speaking(language)
    picture = pictures.TransposeStepper()
    said = spoken_language.catalogue(language)
    assert picture.data["messages"]["features a head"] == said["features a head"]
    assert "The weights that it reports are averaged over the heads." not in picture.data["messages"]
    assert english_in(f"{picture!r} {picture.still().caption}") == []


@pytest.mark.parametrize("language", fonts.FACES)
def test_the_fonts_of_pictures_have_all_letters_of_the_catalogues(language):
    with TTFont(fonts.FOLDER / f"{language}.otf") as font:
        known = font.getBestCmap()
    assert [letter for letter in fonts.letters(language) if "\u2e80" <= letter and ord(letter) not in known] == []


CELL = """\
names = ["one head", "W_q", "she"]  # one for each model
for name in names:
    print(f"{name}: both letters right for {len(name):.1f}")
    print(f"{name}: {len(name)}")  # (b, n)
task = find_task("lookups")  # (b, h, n)
"""


def test_messages_of_code_are_its_comments_and_texts_and_no_names():
    sentence = "{name}: both letters right for {len(name):.1f}"
    told = ["one for each model", "one head", "she", "{name}: {len(name)}", sentence]
    assert sorted(code_messages.messages(CELL)) == sorted(told)
    words = {"one head": '1 "頭"', told[-1]: "{len(name):.1f} … {name}", "one for each model": "一つずつ"}
    other = code_messages.translate(CELL, words)
    assert 'f"{len(name):.1f} … {name}"' in other and "# 一つずつ" in other
    namespace = {"find_task": str}
    exec(other, namespace)
    assert namespace["names"] == ['1 "頭"', "W_q", "she"]
    assert [kind for kind, _ in code_messages.damage(told[-1], "{name}: 1")] == ["fields"]


def say(block, language):
    """A translation of a message that loses nothing."""
    return f"{block} [{language}]"


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A small notebook, translated into all languages, and what changes its cells: ``course(change)``."""
    monkeypatch.setattr(translations, "NOTEBOOKS", tmp_path / "notebooks")
    monkeypatch.setattr(translations, "CATALOGUES", tmp_path / "translations")
    monkeypatch.setattr(glossary, "lacking", lambda *_, **__: [])  # what ``say`` says has no language's words
    path = tmp_path / "notebooks" / f"{STEM}.ipynb"
    path.parent.mkdir()
    notebook = new_notebook(cells=[new_markdown_cell(text) for text in TEXTS])
    notebook.cells.insert(2, new_code_cell("heads = 12"))
    make_notebooks.set_ids(notebook.cells, STEM)
    path.write_text(nbformat.v4.writes(notebook), encoding="utf-8")
    for language in LANGUAGES:
        translations.update(STEM, language)
        catalogue = translations.load(STEM, language)
        for entry in catalogue:
            entry.msgstr = say(entry.msgid, language)
        translations.save(catalogue, STEM, language)

    def change(edit):
        notebook = make_notebooks.read(path)
        edit(notebook.cells)
        path.write_text(nbformat.v4.writes(notebook), encoding="utf-8")

    return change


@pytest.fixture
def paragraph(course):
    """A long paragraph with a number in it, the number of its cell, and what rewrites it: ``rewrite(old, new)``."""

    def rewrite(old, new):
        course(lambda cells: cells[1].update(source=cells[1].source.replace(old, new)))

    return LONG, 1, rewrite


def kinds(language):
    return Counter(kind for kind, _ in translations.faults(STEM, language))


def shown(language):
    """The texts that a reader sees."""
    page = translations.build(STEM, language, translations.all_built())
    return [cell.source for cell in page.cells if cell.cell_type == "markdown"]


REWRITTEN = "Nothing of what stood here before is left, so no earlier sentence can help whoever translates it."
EDITS = {  # how a paragraph changes, and what is then said of its translation
    "slip of the pen": (lambda block: block.replace(" the ", " teh ", 1), "stale"),
    "changed number": (lambda block: re.sub(r" \d+ ", " 97 ", block, count=1), "stale"),
    "rewritten paragraph": (lambda block: REWRITTEN, "missing"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_changed_paragraph_is_english_until_it_is_translated(paragraph, edit, language="ja"):
    (old, _, rewrite), (change, kind) = paragraph, EDITS[edit]
    catalogue = translations.CATALOGUES / language / f"{STEM}.po"
    before, texts, saved = kinds(language), shown(language), catalogue.read_bytes()
    translation, new = translations.translated(STEM, language)[old], change(old)
    rewrite(old, new)
    for found in ({"unmerged": 2}, {kind: 1}):
        assert kinds(language) - before == Counter(found)
        _, changed = (text for text, earlier in zip(shown(language), texts, strict=True) if text != earlier)
        assert f"[EN] {new}" in changed and translation not in changed
        translations.update(STEM, language)
    rewrite(new, old)
    translations.update(STEM, language)
    assert catalogue.read_bytes() == saved


def shown_as_stale(paragraph, change):
    """The small notebook with one paragraph changed, in all languages; the new paragraph and its cell."""
    old, number, rewrite = paragraph
    rewrite(old, change(old))
    for language in LANGUAGES:
        translations.update(STEM, language)
    return change(old), make_notebooks.read(translations.home(STEM)).cells[number].id


def answer(monkeypatch, word):
    monkeypatch.setattr("builtins.input", lambda question: word)


def test_a_paragraph_that_means_the_same_is_fresh_in_all_languages(paragraph, monkeypatch, capsys):
    new, cell = shown_as_stale(paragraph, EDITS["slip of the pen"][0])
    answer(monkeypatch, "")
    for show, shown in ((translations.stale, len(LANGUAGES)), (lambda: translations.same(cell), 1)):
        show()
        told = capsys.readouterr().out
        assert "[-the-] {+teh+}" in told and told.count("{+") == shown
    assert [kinds(language)["stale"] for language in LANGUAGES] == [1, 1, 1]
    answer(monkeypatch, "y")
    translations.same(cell)
    for language in LANGUAGES:
        assert kinds(language) == Counter()
        assert translations.translated(STEM, language)[new] == say(paragraph[0], language)
        assert say(paragraph[0], language) in translations.target(STEM, language).read_text(encoding="utf-8")


def test_a_paragraph_with_another_number_does_not_mean_the_same(paragraph, monkeypatch, capsys):
    _, cell = shown_as_stale(paragraph, EDITS["changed number"][0])
    answer(monkeypatch, "y")
    translations.same(cell)
    assert [kinds(language)["stale"] for language in LANGUAGES] == [1, 1, 1]
    assert "vi: stays stale, for its translation has lost ['97']" in capsys.readouterr().out


def test_of_a_withdrawn_page_nothing_is_built_and_its_words_are_remembered(paragraph):
    old, _, rewrite = paragraph
    translations.write_all()
    english, pages = translations.home(STEM), [translations.target(STEM, language) for language in LANGUAGES]
    translations.withdraw(STEM)
    assert not any(page.exists() for page in pages) and list(translations.catalogues()) == []
    assert "vi/" not in english.read_text(encoding="utf-8") and english.name in translations.coming("vi")

    new = EDITS["slip of the pen"][0](old)
    rewrite(old, f"{new}\n\n{REWRITTEN}")
    translations.save(translations.load(STEM, "vi"), STEM, "vi")  # an empty catalogue, as for a new notebook
    for language in LANGUAGES:
        translations.update(STEM, language)
        assert kinds(language) == {"stale": 1, "missing": 1}
    translations.withdraw(STEM)
    assert translations.memory("vi")[old].msgstr == say(old, "vi")


def test_a_moved_cell_is_translated_in_its_new_place_and_a_deleted_one_is_gone(course, paragraph, language="zh"):
    (old, number, _), before, texts = paragraph, kinds(language), shown(language)
    translation = translations.translated(STEM, language)[old]
    course(lambda cells: cells.append(cells.pop(number)))
    translations.update(STEM, language)
    assert kinds(language) == before
    assert translation in shown(language)[-1] and sorted(shown(language)) == sorted(texts)
    course(lambda cells: cells.pop())
    assert set(kinds(language)) - set(before) == {"unmerged"}
    for _ in range(2):
        assert translation not in "\n".join(shown(language))
        translations.update(STEM, language)
    assert kinds(language) == before


def test_a_page_more_than_a_third_english_is_not_built_and_nothing_leads_to_it(course):
    translations.write_all()
    page = translations.target(STEM, "ja")
    assert page.exists() and "ja/" in translations.home(STEM).read_text(encoding="utf-8")
    catalogue = translations.load(STEM, "ja")
    for entry in catalogue[: len(catalogue) // 3 + 2]:
        entry.msgstr = ""
    translations.save(catalogue, STEM, "ja")
    translations.write_all()
    rest = [translations.home(STEM), *(translations.target(STEM, language) for language in ("vi", "zh"))]
    assert not page.exists() and not any(f"ja/{page.name}" in path.read_text(encoding="utf-8") for path in rest)


def test_the_mark_of_the_machine_goes_when_a_native_has_read_it(course):
    mark = LANGUAGES["vi"]["machine"].strip()
    assert mark in shown("vi")[0] and mark not in "\n".join(shown("vi")[1:])
    catalogue = translations.load(STEM, "vi")
    catalogue.metadata[translations.READ_BY] = "Nguyễn Văn A, 2027-01-01"
    translations.save(catalogue, STEM, "vi")
    translations.update(STEM, "vi")
    assert mark not in shown("vi")[0] and LANGUAGES["vi"]["stays"].strip() in shown("vi")[0]


ENGLISH = "## The **3** heads of $W_q$: see [`split`](a.ipynb), <br> and 0.84"
DAMAGED = {  # a translation of it, and what is wrong with that
    "## **3** đầu của $W_q$: xem [`split`](a.ipynb), <br> và 0.84": [],
    "## **3** đầu: xem [`split`](a.ipynb), <br> và 0.84": ["markup"],
    "## **3** đầu của $W_k$: xem [`split`](a.ipynb), <br> và 0.84": ["markup"],
    "## **3** đầu của $W_q$: xem [split](a.ipynb), <br> và 0.84": ["markup"],
    "## **3** đầu của $W_q$: xem [`split`](b.ipynb), <br> và 0.84": ["markup"],
    "## **3** đầu của $W_q$: xem [`split`](a.ipynb) và 0.84": ["markup"],
    "## **3** đầu của $W_q$: xem [`split`](a.ipynb), <br> và 0,84": ["numbers"],
    "## **Ba** đầu của $W_q$: xem [`split`](a.ipynb), <br> và 0.84": ["numbers"],
    "**3** đầu của $W_q$: xem [`split`](a.ipynb), <br> và 0.84": ["marks"],
    "## 3 đầu của $W_q$: xem [`split`](a.ipynb), <br> và 0.84": ["marks"],
    "## **3** đầu của $W_q$: xem [`split`](a.ipynb), <br> | và 0.84": ["marks"],
    "## **3个头（**见 $W_q$ [`split`](a.ipynb), <br> 0.84": ["emphasis"],
    "## **3**个头（见 $W_q$ [`split`](a.ipynb), <br> 0.84": [],
}


@pytest.mark.parametrize("other", DAMAGED)
def test_damage_is_named(other):
    assert [kind for kind, _ in damage(ENGLISH, other)] == DAMAGED[other]


@pytest.mark.parametrize(("other", "found"), [("16\u00a0384", []), ("16,384", ["numbers"]), ("16.384", ["numbers"])])
def test_where_a_comma_begins_the_decimals_none_stands_between_thousands(other, found):
    assert [kind for kind, _ in damage("16,384 and 0.46", f"{other} và 0.46", thousands="\u00a0")] == found
    assert list(damage("heads 0,1 and 2,34 of 1,000,000", "đầu 0,1 và 2,34 trong 1\u00a0000\u00a0000", "\u00a0")) == []
    assert list(damage("$13{,}149$ passes", r"$13\,149$ lượt", "\u00a0")) == []
    assert [kind for kind, _ in damage("$13{,}149$ passes", "$13{,}149$ lượt", "\u00a0")] == ["markup"]


def test_damage_is_red(course, capsys):
    translations.write_all()
    assert not translations.check()
    catalogue = translations.load(STEM, "zh")
    entry = next(entry for entry in catalogue if "$" in entry.msgstr)
    entry.msgstr = entry.msgstr.replace("$", "")
    translations.save(catalogue, STEM, "zh")
    capsys.readouterr()
    assert translations.check()
    told = capsys.readouterr().out
    assert f"zh: markup, {entry.occurrences[0][0]}" in told
    assert f"zh/{STEM}.ipynb is not what its catalogue makes" in told


def test_terms_of_the_glossary_are_looked_for():
    english = "Attention weights are no attention: a weighted average."
    found = [term for term, _ in glossary.lacking(english, "Trọng số chú ý không phải là chú ý", "vi")]
    assert found == ["weighted average"]
    found = [term for term, _ in glossary.lacking(english, "", "vi")]
    assert found == ["attention weights", "weighted average", "attention"]


SHOWN = [row for row in glossary.rows() if row["part"]]


@pytest.mark.parametrize("row", SHOWN, ids=[row["en"] for row in SHOWN])
def test_a_term_stands_in_all_languages_and_leads_to_a_section_that_there_is(row):
    assert row["meaning"] and all(row[language] and "†" not in row[language] for language in LANGUAGES)
    number, section, name = re.fullmatch(r"\[(\d\d)(?:, section (\d+))?\]\((.*)\)", row["where"]).groups()
    assert name.startswith(number)
    text = "\n".join(cell.source for cell in make_notebooks.read(ROOT / "notebooks" / name).cells)
    assert section is None or re.search(rf"(?m)^## {section}\. ", text)


@every_language
def test_the_glossary_begins_with_the_language_of_its_page(language):
    text = (ROOT / "notebooks" / language / "GLOSSARY.md").read_text(encoding="utf-8")
    lines = re.findall(r"(?m)^\*\*.*<span.*$", text)
    assert len(lines) == len(SHOWN)
    for line in lines:
        assert line.startswith(f'**<span lang="{LANGUAGES[language]["code"]}">') and line.count(" · ") == len(LANGUAGES)


CHOOSES = 'from mha_course import language\nlanguage.use("vi")'
SPEAKS = 'from mha_course.language import tr\nprint(tr("The answer"))'


def spoken_in_a_home(home, code, **others):
    """What a Python of its own prints, whose learner's home is ``home``."""
    env = os.environ | {"HOME": str(home), "MHA_PROGRESS": "", "MHA_SOLUTIONS": ""} | others
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_last_language_is_spoken_in_other_notebooks_and_kept_only_where_predictions_are(tmp_path):
    spoken_in_a_home(tmp_path, CHOOSES, MHA_PROGRESS="off")
    assert list(tmp_path.iterdir()) == [] and spoken_in_a_home(tmp_path, SPEAKS) == "The answer"
    spoken_in_a_home(tmp_path, CHOOSES)
    (kept,) = (path for path in tmp_path.rglob("*") if path.is_file())
    assert kept == tmp_path / ".cache" / "mha_lib" / "progress.json"
    assert spoken_in_a_home(tmp_path, SPEAKS) == spoken_language.catalogue("vi")["The answer"]
    assert spoken_in_a_home(tmp_path, SPEAKS, MHA_LANGUAGE="ja") == spoken_language.catalogue("ja")["The answer"]
    assert spoken_in_a_home(tmp_path, SPEAKS, MHA_PROGRESS="off") == "The answer"


@every_language
def test_a_page_says_what_comes_in_english(language):
    path = ROOT / "notebooks" / language / "00_start_here.ipynb"
    texts = [cell.source for cell in make_notebooks.read(path).cells if cell.cell_type == "markdown"]
    ahead = translations.onward(language, translations.all_built())
    assert ahead in texts[0] and ahead in texts[-1]
    rows = re.findall(r"(?m)^\| \d\d \| \[.*?\]\(\.\./.*?\)(.*?) \|", texts[-1])
    assert len(rows) == 12 and set(rows) == {LANGUAGES[language]["english"]}


def test_every_term_of_the_glossary_is_used_by_a_main_line():
    paths = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
    cells = [cell for path in paths for cell in main_line.main_line(make_notebooks.read(path)).cells]
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown").lower()
    assert len(SHOWN) > 100
    assert [row["en"] for row in SHOWN if not re.search(rf"\b(?:{row['en'].lower()})s?\b", text)] == []
