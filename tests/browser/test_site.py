"""The site that ``make site`` has made: every page lives without a kernel and without a network, on a phone too."""

import ast
import inspect
import itertools
import pkgutil
import re
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import pytest
from picture_cases import NEXT_FRAME, violations

from tools.lab_page import ROOT, Heard
from tools.languages import LANGUAGES
from tools.main_line import folded_parts
from tools.notebooks import read

SITE = ROOT / "build" / "site"
STORIES = [path.stem for path in sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))]
# One page of each language, another one in each.
OF_LANGUAGES = [
    f"{language}/{pages[-number % len(pages)].replace('README', 'index')}"
    for number, language in enumerate(LANGUAGES, start=1)
    if (pages := sorted(path.stem for path in (ROOT / "notebooks" / language).glob("*.*")))
]
MAX_BYTES = 25_500_000  # 24.9 million, of them 0.7 the Ring's film, weights and pages
SIZES = {"light": 1440, "dark": 390}
# Our own, where furo's and Sphinx's markup is theirs to mend.
OURS = ".mha-live, figure, details"

pytestmark = [pytest.mark.browser, pytest.mark.quarter]


@pytest.fixture(autouse=True)
def site():
    if not (SITE / "index.html").exists():
        pytest.skip("there is no site: run `make site`")


class Links(HTMLParser):
    """What a page refers to, and the names that it gives to its parts."""

    def __init__(self, path):
        super().__init__()
        self.targets, self.names = [], set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.targets += [attributes[name] for name in ("href", "src") if attributes.get(name)]
        self.names.add(attributes.get("id"))


def test_every_link_leads_somewhere_and_nothing_is_fetched_from_elsewhere():
    pages = {path: Links(path) for path in SITE.rglob("*.html")}
    assert {f"{stem}.html" for stem in STORIES} < {path.name for path in pages}
    for path, page in pages.items():
        for target in page.targets:
            parts = urlsplit(target)
            if parts.scheme:
                continue
            there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            assert there.is_file(), f"{path.name} refers to {target}"
            if parts.fragment and there in pages:
                assert unquote(parts.fragment) in pages[there].names, f"{path.name} refers to {target}"


def used_in(notebook):
    """The functions and classes of the library that a notebook's code imports or reaches through a module."""
    cells = [cell.source for cell in read(notebook).cells if cell.cell_type == "code"]
    tree, names = ast.parse(re.sub(r"^( *)%.*", r"\1pass", "\n".join(cells), flags=re.MULTILINE)), {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("mha_"):
            for alias in node.names:
                names[alias.asname or alias.name] = pkgutil.resolve_name(f"{node.module}.{alias.name}")
    reached = [
        getattr(names[node.value.id], node.attr, None)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names
    ]
    found = [*names.values(), *reached]
    return {
        one for one in found if (inspect.isfunction(one) or inspect.isclass(one)) and one.__module__.startswith("mha_")
    }


def test_the_library_has_an_entry_for_all_that_notebooks_use():
    """And their code leads there."""
    names = set().union(*(Links(path).names for path in (SITE / "library").glob("*.html")))
    entries = {name.rpartition(".")[2] for name in names if name and name.startswith("mha_")}
    for stem in STORIES:
        missing = {one.__name__ for one in used_in(ROOT / "notebooks" / f"{stem}.ipynb")} - entries
        assert missing == set(), stem
        page = (SITE / f"{stem}.html").read_text(encoding="utf-8")
        assert re.search(r'<a class="sphinx-codeautolink-a" href="library/', page), stem


def test_the_search_finds_functions(browser):
    page = browser.new_page()
    page.goto(f"{(SITE / 'search.html').as_uri()}?q=split_heads")
    found = page.locator("#search-results li a")
    found.nth(1).wait_for()  # the museum's layer has a method of this name
    there = [one.get_attribute("href") for one in found.all()[:2]]
    assert any(link.endswith("library/attention.html#mha_lib.attention.split_heads") for link in there), there
    page.close()


# Two words of a page in each language; in Chinese and Japanese without a space, as one writes them there.
SEARCHED = {"vi": "chú ý đa đầu", "zh": "多头注意力", "ja": "マルチヘッドアテンション"}


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_search_finds_words_of_every_language(browser, language):
    page = browser.new_page()
    page.goto(f"{(SITE / 'search.html').as_uri()}?q={SEARCHED[language]}")
    page.locator("#search-results li a").first.wait_for()
    found = page.locator("#search-results li a").evaluate_all("links => links.map(link => link.getAttribute('href'))")
    pages = list((ROOT / "notebooks" / language).glob("*.*"))
    assert any(link.startswith(f"{language}/") for link in found) is bool(pages)
    page.close()


@pytest.mark.parametrize("language", LANGUAGES)
def test_pages_in_every_language_say_so_and_lead_to_the_others(language):
    for path in sorted((ROOT / "notebooks" / language).glob("*.*")):
        name = "index" if path.stem == "README" else path.stem
        text = (SITE / language / f"{name}.html").read_text(encoding="utf-8")
        assert re.search(rf'<html[^>]* lang="{LANGUAGES[language]["code"]}"', text)
        others = {f"../{other}/{name}.html" for other in LANGUAGES if other != language}
        assert set(Links(SITE / language / f"{name}.html").targets) >= others | {f"../{name}.html"}
        assert f'"{language}/{name}.html"' in (SITE / f"{name}.html").read_text(encoding="utf-8")


def test_every_picture_lives_alone_on_a_page(browser):
    """It takes most of a projector's screen and fits into nine tenths of its height, and the front page names it."""
    named = Links(SITE / "index.html").targets
    pages = sorted((SITE / "alone").glob("*.html"))
    assert len({path.stem.rpartition("-")[0] for path in pages}) >= 8
    page = browser.new_page()
    heard = Heard(page)
    for path in pages:
        page.goto(path.as_uri())
        page.locator("section.mha-live").wait_for()
        for width, height in ((1920, 1080), (1366, 768), (1280, 720)):
            page.set_viewport_size({"width": width, "height": height})
            page.evaluate(NEXT_FRAME)
            box = page.locator("section.mha-live").bounding_box()
            assert box["width"] <= page.evaluate("document.documentElement.scrollWidth") <= width
            most = max(box["width"] / width, box["height"] / height)
            assert most > 0.75 and box["height"] <= 0.9 * height, (path.name, width)
        assert f"alone/{path.name}" in named
    assert heard.errors == []
    page.close()


def test_what_is_shared_says_what_it_is():
    """A description of each notebook's own, an image, a sign; and an address that the site lacks leads to its start."""
    descriptions = set()
    for name in ("index", *STORIES, *OF_LANGUAGES):
        path = SITE / f"{name}.html"
        text = path.read_text(encoding="utf-8")
        name, content = (rf'(?:^|\s)(?:{names})="(.*?)"' for names in ("property|name", "content"))
        tags = [tag for tag in re.findall(r"<meta ([^>]*)>", text) if "content=" in tag]
        said = {re.search(name, tag)[1]: re.search(content, tag)[1] for tag in tags}
        assert said["description"] == said["og:description"] and len(said["description"]) >= 30
        assert len(said["og:title"]) >= 3 and (path.parent / said["og:image"]).is_file()
        assert any(target.endswith("_static/favicon.svg") for target in Links(path).targets)
        descriptions.add(said["description"])
    assert len(descriptions) > len(STORIES)
    assert {"index.html", "search.html"} <= set(Links(SITE / "404.html").targets)


def to_its_end(page):
    """What stands before the end of an element ``details`` that was begun before; others may stand in it."""
    depth = 1
    for found in re.finditer("<(/?)details", page):
        depth += -1 if found[1] else 1
        if depth == 0:
            return page[: found.start()]


@pytest.mark.parametrize("stem", STORIES)
def test_what_is_deeper_is_folded_and_nothing_else(stem):
    """Under its heading, up to the next one of its depth."""
    notebook, page = read(ROOT / "notebooks" / f"{stem}.ipynb"), (SITE / f"{stem}.html").read_text(encoding="utf-8")
    parts = [to_its_end(part) for part in page.split('<details class="deeper">')[1:]]
    assert len(parts) == len(folded_parts(notebook))
    for part, folded in zip(parts, folded_parts(notebook), strict=True):
        headings = [line for cell in folded.cells for line in re.findall(r"(?m)^#+ ", cell.source)]
        assert len(re.findall(r"<h\d", part)) == len(headings) - 1
        assert part.count('<div class="cell_input') == sum(cell.cell_type == "code" for cell in folded.cells)


def test_it_is_small_and_folds_what_one_should_think_of_first():
    assert sum(path.stat().st_size for path in SITE.rglob("*") if path.is_file()) <= MAX_BYTES
    solutions = list((SITE / "solutions").glob("[0-9]*.html"))
    assert solutions and all("<details" in path.read_text(encoding="utf-8") for path in solutions)
    assert "%pip" not in "".join((SITE / f"{stem}.html").read_text(encoding="utf-8") for stem in STORIES)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stem", "scheme"),
    [
        *itertools.product(["index", *STORIES], ["light"]),
        *(pytest.param(page, "dark", marks=pytest.mark.long) for page in ("index", *STORIES, *OF_LANGUAGES)),
    ],
)
def test_a_page_lives_on_its_own(browser, stem, scheme):
    page = browser.new_page(viewport={"width": SIZES[scheme], "height": 900}, color_scheme=scheme)
    heard = Heard(page)
    page.goto((SITE / f"{stem}.html").as_uri())
    kept = page.locator("script[data-mha-state]").count()
    page.wait_for_function("count => document.querySelectorAll('.mha-live').length === count", arg=kept)
    assert kept or stem != "index"
    assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[scheme]
    assert not kept or violations(page, OURS, preload=False) == []
    assert heard.errors == []
    assert [url for url in heard.requests if re.match("https?:", url)] == []
    page.close()
