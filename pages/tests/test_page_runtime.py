"""The page without an exercise: made of today's sources, by cuts that match."""

import pytest

from pages import runtime


def test_the_page_is_made_of_todays_sources():
    assert runtime.made_of() in runtime.PAGE.read_text(encoding="utf-8"), "run make page-runtime"


def test_a_cut_that_does_not_match_is_refused():
    module = "".join([*runtime.CUTS, runtime.BEGIN, "node's command line", runtime.END])
    assert runtime.as_script(module).count("node's") == 0
    for old in runtime.CUTS:
        with pytest.raises(ValueError, match="each cut must match once"):
            runtime.as_script(module.replace(old, ""))


def test_a_pinned_package_has_its_hash():
    lock = (runtime.HERE / "package-lock.json").read_text(encoding="utf-8")
    assert lock.count('"node_modules/') == lock.count('"integrity"')
