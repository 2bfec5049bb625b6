"""With MHA_REQUIRE_ALL=1 every skip is red; an expected failure and a pass stay what they are."""

from pathlib import Path

import pytest

pytest_plugins = "pytester"
CONFTEST = (Path(__file__).parents[2] / "conftest.py").read_text()
SAMPLE = """
import pytest

def test_skips(): pytest.skip("no browser")

@pytest.mark.xfail(reason="known")
def test_xfails(): assert False

def test_passes(): pass

def test_model(): pytest.skip("not installed. Run `make real-models`")
"""


@pytest.mark.parametrize(
    ("required", "without_real_models", "expected"),
    [
        ("1", "", {"failed": 2, "passed": 1, "xfailed": 1, "errors": 1}),
        ("1", "1", {"failed": 1, "passed": 1, "skipped": 1, "xfailed": 1, "errors": 1}),
        ("", "", {"passed": 1, "skipped": 3, "xfailed": 1}),
    ],
)
def test_what_a_skip_counts_as(pytester, monkeypatch, required, without_real_models, expected):
    """Where everything is required, a failure: all but real models, if the registry lacks them."""
    monkeypatch.setenv("MHA_REQUIRE_ALL", required)
    monkeypatch.setenv("MHA_WITHOUT_REAL_MODELS", without_real_models)
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_sample=SAMPLE, test_file="import pytest\npytest.importorskip('no_such_module')\n")
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "--continue-on-collection-errors")
    assert result.parseoutcomes() == expected
    if required:
        result.stdout.fnmatch_lines("*MHA_REQUIRE_ALL=1 allows no skip. Skipped: no browser*")
