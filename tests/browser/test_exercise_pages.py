"""An exercise on a page of its own, in Chromium, from disk and without a network."""

import json
import time

import pytest
from picture_cases import NEXT_FRAME, violations

from mha_course import exercises
from tools.lab_page import PATIENCE, Heard

pytestmark = [pytest.mark.browser, pytest.mark.quarter]
HEAD = "def transpose_qkv(X, num_heads):\n"
SMALL = """() => [...document.querySelectorAll('a, button, summary, textarea')]
    .filter((node) => node.checkVisibility()).map((node) => [node.textContent, node.getBoundingClientRect()])
    .filter(([, box]) => box.width < 24 || box.height < 24).map(([words]) => words)"""


@pytest.fixture(scope="module")
def written(browser, tmp_path_factory):
    """A page on a small phone whose keyboard is open, in the dark, offline; and what it tells of errors."""
    page = browser.new_context(offline=True, viewport={"width": 360, "height": 450}, color_scheme="dark").new_page()
    heard = Heard(page)
    page.goto(exercises.page("transpose_qkv", tmp_path_factory.mktemp("pages")).as_uri())
    wait(page, "ready")
    yield page, heard
    page.close()


def wait(page, what):
    """Return what the page says of itself; Playwright's own waiting needs eval, which the page's policy forbids."""
    deadline = time.monotonic() + PATIENCE
    while not (said := page.evaluate(f"() => document.body.dataset.{what}")):
        assert time.monotonic() < deadline, f"the page never said {what}"
        time.sleep(0.02)
    return json.loads(said)


def verdict_on(page, source):
    page.evaluate("source => put(source)", source)
    page.get_by_role("button", name="Check").click()
    return wait(page, "verdict")


def test_answers_are_checked_and_help_comes_in_steps(written):
    page, heard = written
    wrong = verdict_on(page, HEAD + "    return X.reshape(X.shape[0] * num_heads, X.shape[1], -1)\n")
    assert wrong["state"] == "wrong" and wrong["text"].startswith("Head 0 holds all parts of token 0")
    said = page.locator("#said")
    assert said.inner_text().startswith("✗ Not right. Head 0 holds")
    assert said.get_attribute("role") == "status" and said.get_attribute("aria-busy") == "false"
    box = page.locator("#verdict").bounding_box()
    assert 0 <= box["y"] and box["y"] + box["height"] <= 450  # nobody has to look for it
    assert not page.get_by_role("button", name="A worked answer").is_visible()
    page.get_by_role("button", name="Hint").click()
    assert page.locator("#hints").inner_text().startswith("The idea: ")
    assert verdict_on(page, page.evaluate("() => SHOWN.solution"))["state"] == "right"
    page.get_by_role("button", name="A worked answer").click()
    assert "transpose(1, 2)" in page.locator("#worked").inner_text()
    assert page.evaluate("() => document.activeElement.id") == "worked"
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 360
    assert page.evaluate(SMALL) == []
    assert violations(page, "main", preload=False) == []
    assert heard.errors == []


def test_an_editor_is_left_by_the_keyboard_and_keeps_what_was_written(written):
    page, _ = written
    page.evaluate("source => put(source)", HEAD + "    return X + Y  # mine\n")
    page.get_by_role("textbox", name="Your code").focus()
    assert page.get_by_role("textbox", name="Your code").get_attribute("aria-describedby") == "keys"
    page.evaluate("() => { document.body.dataset.verdict = ''; }")
    page.keyboard.press("Control+Enter")
    assert "NameError" in wait(page, "verdict")["text"]
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.id") == "check"
    page.reload()
    wait(page, "ready")
    page.get_by_role("button", name="Plain text box").click()
    assert page.get_by_role("textbox", name="Your code").input_value().endswith("# mine\n")


def test_the_section_of_the_core_is_above_with_its_live_picture(written):
    page, _ = written
    page.get_by_role("button", name="reshape (4, 3, 2)").click()
    page.evaluate(NEXT_FRAME)
    assert "4 matrices" in page.locator("section.mha-live .looks").inner_text()
    page.get_by_role("link", name="To the exercise").click()
    assert page.evaluate("() => document.activeElement.id") == "exercise"


def test_start_again_can_be_taken_back(written):
    page, _ = written
    page.evaluate("source => put(source)", HEAD + "    return X  # mine\n")
    again = page.get_by_role("button", name="Start again")
    again.click()
    assert page.evaluate("() => text === SHOWN.start && kept() === SHOWN.start")
    again.click()
    assert page.evaluate("() => text").endswith("# mine\n")


def test_code_reaches_no_network_and_is_ended(written, monkeypatch):
    page, heard = written
    verdict_on(page, HEAD + "    import js\n    return js.fetch('http://127.0.0.1:9/')\n")
    assert [url for url in heard.requests if url.startswith("http")] == []
    printed = verdict_on(page, HEAD + "    for i in range(1000): print(i)\n    return X\n")
    assert printed["state"] == "wrong" and page.get_by_role("log").inner_text().strip().endswith("more lines")
    page.evaluate("() => { LIMIT.seconds = 0.5; }")
    ended = verdict_on(page, HEAD + "    while True: pass\n")
    assert ended["text"] == "Your code ran for more than 0.5 seconds."
    assert verdict_on(page, page.evaluate("() => SHOWN.solution"))["state"] == "right"
