"""The part of the core that a page of an exercise shows above its editor."""

from tools import page_section


def test_a_page_shows_the_core_as_it_is_today():
    saved = page_section.TARGET.read_text(encoding="utf-8")
    assert saved == page_section.section(), "run python -m tools.page_section"
    assert saved.count("<pre>(2, ") == 3 and "(2, 3, 5, 2) -&gt; (6, 5, 2)" in saved
