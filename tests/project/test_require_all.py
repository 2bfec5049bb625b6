"""With MHA_REQUIRE_ALL=1 every skip is red; an expected failure and a pass stay what they are."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

SAMPLE = """
import pytest

def test_skips(): pytest.skip("no browser")

@pytest.mark.xfail(reason="known")
def test_xfails(): assert False

def test_passes(): pass
"""


def run_samples(folder, required, without_real_models=""):
    """What pytest says of SAMPLE, of a file that needs a package and of a test that needs a real model."""
    shutil.copy(Path(__file__).parents[1] / "conftest.py", folder)
    (folder / "pytest.ini").write_text("[pytest]")
    (folder / "test_sample.py").write_text(SAMPLE)
    (folder / "test_whole_file.py").write_text("import pytest\npytest.importorskip('no_such_module')\n")
    real_model = 'import pytest\ndef test_model(): pytest.skip("not installed. Run `make real-models`")\n'
    (folder / "test_real_model.py").write_text(real_model)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--continue-on-collection-errors"]
    env = os.environ | {"MHA_REQUIRE_ALL": required, "MHA_WITHOUT_REAL_MODELS": without_real_models}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True).stdout


def test_a_skip_fails_where_everything_is_required(tmp_path):
    report = run_samples(tmp_path, required="1")
    assert "2 failed, 1 passed, 1 xfailed, 1 error" in report
    assert "MHA_REQUIRE_ALL=1 allows no skip. Skipped: no browser" in report


def test_a_skip_is_a_skip_elsewhere(tmp_path):
    assert "1 passed, 3 skipped, 1 xfailed" in run_samples(tmp_path, required="")


def test_where_the_registry_lacks_the_real_models_only_their_tests_are_skipped(tmp_path):
    report = run_samples(tmp_path, required="1", without_real_models="1")
    assert "1 failed, 1 passed, 1 skipped, 1 xfailed, 1 error" in report
