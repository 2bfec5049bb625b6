"""The slides that `make slides` makes can be read from the last row: nothing is small, cut off or to be scrolled."""

import re
import subprocess

import pytest

from tools import lecture, notebooks
from tools.lab_page import ROOT, Heard

NOTES = (ROOT / "notebooks" / "TEACHING.md").read_text(encoding="utf-8")
SIZE = {"width": 1280, "height": 720}
SMALLEST = 18  # pixels of a letter
LETTERS_OF_IMAGES = 10  # pixels of the smallest letter of a heat map, before it is enlarged
# Of each text that one sees: how large its letters are on the screen, and where it is. Letters of a cell are in an SVG.
TEXTS = """() => {
  const slide = document.querySelector(".slide.now"), found = [];
  const enlarged = (element) => element ? Number(getComputedStyle(element).zoom) * enlarged(element.parentElement) : 1;
  const walker = document.createTreeWalker(slide, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode, element = text.parentElement, range = document.createRange();
    if (!text.textContent.trim() || element.closest("aside, script, style, option, .spoken, title, desc")) continue;
    if (!element.checkVisibility({ visibilityProperty: true })) continue;
    range.selectNodeContents(text);
    const { left, top, right, bottom } = range.getBoundingClientRect(), svg = element.closest("svg");
    const { a, b } = svg ? element.getScreenCTM() : {};
    const size = parseFloat(getComputedStyle(element).fontSize) * (svg ? Math.hypot(a, b) : enlarged(element));
    found.push({ text: text.textContent.trim().slice(0, 40), size, left, top, right, bottom });
  }
  return found;
}"""
SHOWN = """() => {
  const shown = document.querySelector(".slide.now .shown");
  const scrolled = shown.scrollHeight - shown.clientHeight;
  return [scrolled, [...shown.querySelectorAll("img")].map((image) => Number(image.style.zoom))];
}"""

pytestmark = [pytest.mark.browser, pytest.mark.long]


@pytest.fixture(scope="module")
def deck(browser):
    """The page that the teaching notes' first command makes, on a projector's screen, without a network."""
    command = re.search(r"(?s)```bash\n(make slides\n)```", NOTES)[1]
    subprocess.run(["bash", "-ec", command], cwd=ROOT, check=True)
    page = browser.new_context(viewport=SIZE, offline=True).new_page()
    heard = Heard(page)
    page.goto((ROOT / "build" / "slides" / "index.html").as_uri())
    page.locator(".slide.now").wait_for()
    yield page, heard
    page.close()


def test_no_letter_is_small_and_nothing_is_cut_off_or_scrolled(deck, subtests):
    page, heard = deck
    page.evaluate("location.hash = '#1'")
    total = len(lecture.spoken())
    for number in range(1, total + 1):
        with subtests.test(number):
            assert page.locator(".slide.now > footer").inner_text() == str(number)
            texts = page.evaluate(TEXTS)
            assert len(texts) > 1
            small = [(one["text"], one["size"]) for one in texts if one["size"] < SMALLEST - 0.1]
            assert small == []
            outside = [
                one["text"]
                for one in texts
                if min(one["left"], one["top"]) < 0 or one["right"] > SIZE["width"] or one["bottom"] > SIZE["height"]
            ]
            assert outside == []
            scrolled, enlarged = page.evaluate(SHOWN)
            assert scrolled <= 0
            assert all(zoom * LETTERS_OF_IMAGES >= SMALLEST for zoom in enlarged)
        page.keyboard.press("PageDown")
    page.keyboard.press("PageDown")
    assert page.locator(".slide.now > footer").inner_text() == str(total)
    assert heard.errors == []
    assert all(address.startswith(("file:", "data:", "blob:")) for address in heard.requests)


def test_a_live_picture_moves_and_keeps_its_keys(deck):
    page, _ = deck
    page.evaluate("location.hash = '#1'")
    picture = page.locator(".slide.now .mha-live")
    before = picture.inner_text()
    picture.locator(".word").nth(2).click()
    assert picture.inner_text() != before
    page.keyboard.press("ArrowRight")
    assert page.locator(".slide.now > footer").inner_text() == "1"
    page.keyboard.press("PageDown")
    assert page.locator(".slide.now > footer").inner_text() == "2"


def test_the_notes_tell_the_minute_and_the_question_of_the_slide(deck):
    page, _ = deck
    page.evaluate("location.hash = '#1'")
    page.locator(".slide.now > footer").click()  # in a picture, keys are the picture's
    with page.expect_popup() as opened:
        page.keyboard.press("n")
    minutes = []
    for slide, _ in lecture.spoken():
        told = opened.value.locator("body").inner_text()
        minutes.append(int(re.search(r"Minute (\d+)", told)[1]))
        assert "Ask:" in told and re.sub(r"\W", "", slide.ask) in re.sub(r"\W", "", told)
        page.keyboard.press("PageDown")
    assert minutes == sorted(minutes) and minutes[0] == 0 and minutes[-1] < 90
    opened.value.close()


def test_what_slides_say_is_the_notebooks_own(deck):
    """No prose of a slide is written anywhere but in notebook 00."""
    page, _ = deck
    cells = notebooks.read(lecture.NOTEBOOK).cells
    bare = re.sub(r"\W", "", re.sub(r"\]\([^)]*\)", "", "".join(cell.source for cell in cells)))
    paragraphs = page.locator(".shown > :is(p, li):not(:has(math))").all_text_contents()
    assert len(paragraphs) > 20
    assert [text for text in paragraphs if re.sub(r"\W", "", text) not in bare] == []
