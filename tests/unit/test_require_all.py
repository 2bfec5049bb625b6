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


def test_a_skip_fails_where_everything_is_required(tmp_path):
    shutil.copy(Path(__file__).parents[1] / "conftest.py", tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]")
    (tmp_path / "test_sample.py").write_text(SAMPLE)
    (tmp_path / "test_whole_file.py").write_text("import pytest\npytest.importorskip('no_such_module')\n")
    reports = []
    for required in ("1", ""):
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--continue-on-collection-errors"]
        env = os.environ | {"MHA_REQUIRE_ALL": required}
        reports.append(subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True).stdout)
    assert "1 failed, 1 passed, 1 xfailed, 1 error" in reports[0]
    assert "MHA_REQUIRE_ALL=1 allows no skip. Skipped: no browser" in reports[0]
    assert "1 passed, 2 skipped, 1 xfailed" in reports[1]
