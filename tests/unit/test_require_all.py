"""With MHA_REQUIRE_ALL=1 every skip is red; an expected failure and a pass stay what they are."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

CONFTEST = Path(__file__).parents[1] / "conftest.py"
SAMPLE = """
import pytest

def test_skips(): pytest.skip("no browser")

@pytest.mark.skip(reason="no browser")
def test_is_skipped(): pass

@pytest.mark.xfail(reason="known")
def test_xfails(): assert False

def test_passes(): pass
"""
SKIPPED_MODULE = "import pytest\npytest.importorskip('no_such_module')\n"


def run_sample(folder, source, **variables):
    shutil.copy(CONFTEST, folder)
    (folder / "pytest.ini").write_text("[pytest]")
    (folder / "test_sample.py").write_text(source)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    return subprocess.run(command, cwd=folder, env=os.environ | variables, capture_output=True, text=True)


def test_skipped_tests_fail(tmp_path):
    result = run_sample(tmp_path, SAMPLE, MHA_REQUIRE_ALL="1")
    assert "1 failed, 1 passed, 1 xfailed, 1 error" in result.stdout
    assert result.stdout.count("MHA_REQUIRE_ALL=1 allows no skip. Skipped: no browser") >= 2


def test_a_skipped_module_fails(tmp_path):
    result = run_sample(tmp_path, SKIPPED_MODULE, MHA_REQUIRE_ALL="1")
    assert result.returncode != 0
    assert "MHA_REQUIRE_ALL=1 allows no skip" in result.stdout


def test_without_the_variable_a_skip_is_a_skip(tmp_path):
    result = run_sample(tmp_path, SAMPLE, MHA_REQUIRE_ALL="")
    assert result.returncode == 0
    assert "1 passed, 2 skipped, 1 xfailed" in result.stdout


def test_without_real_models_their_tests_alone_may_be_skipped(tmp_path):
    source = SAMPLE.replace('pytest.skip("no browser")', 'pytest.skip("not installed. Run `make real-models`")')
    result = run_sample(tmp_path, source, MHA_REQUIRE_ALL="1", MHA_WITHOUT_REAL_MODELS="1")
    assert "1 passed, 1 skipped, 1 xfailed, 1 error" in result.stdout
    result = run_sample(tmp_path, source, MHA_REQUIRE_ALL="1", MHA_WITHOUT_REAL_MODELS="")
    assert "1 failed, 1 passed, 1 xfailed, 1 error" in result.stdout
