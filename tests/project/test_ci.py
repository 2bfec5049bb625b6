"""A stage of continuous integration that fails or hangs ends the run, is named, and leaves no process behind."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

RUN = Path(__file__).parents[2] / ".ci" / "run"
MAKE = """#!/usr/bin/env bash
echo "made $*"
[ "$*" != "$FAILS" ] || exit 1
[ "$*" != "$HANGS" ] || { sleep 6543 & echo $! > hanging; wait; }
"""


@pytest.fixture
def run(tmp_path):
    """Runs a copy of the script with a ``make`` that only says what it is asked for; a minute has one second."""
    (tmp_path / ".ci").mkdir()
    (tmp_path / "bin").mkdir()
    shutil.copy(RUN, tmp_path / ".ci")
    for name in ("chromium", "firefox-esr", "WebKitWebDriver", "java", "xvfb-run", "make"):
        (tmp_path / "bin" / name).write_text(MAKE)
        (tmp_path / "bin" / name).chmod(0o755)

    def run(limits=("15", "80"), **asked):
        script = tmp_path / ".ci" / "run"
        script.write_text(RUN.read_text().replace("stage 15", f"stage {limits[0]}").replace("=85 ", f"={limits[1]} "))
        env = os.environ | {
            "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
            "MHA_CI_MINUTE": "1",
            "FAILS": "",
            "HANGS": "",
        }
        return subprocess.run([script], env=env | asked, capture_output=True, text=True, timeout=60)

    return run


def test_all_stages_pass(run):
    done = run()
    assert done.returncode == 0 and "FAILED" not in done.stdout and "RAN OVER" not in done.stdout
    stages = "nbgrader site test test-research test-classroom test-browsers wheel test-book-pins test-elsewhere"
    for stage in stages.split():
        assert f"made {stage}\n" in done.stdout or f"made {stage} " in done.stdout


def test_the_first_failure_ends_the_run(run):
    done = run(FAILS="site")
    assert done.returncode == 1 and "make site            FAILED" in done.stdout and "made test" not in done.stdout


def test_real_models_that_cannot_be_installed_are_reported(run):
    done = run(FAILS="real-models")
    assert done.returncode == 0 and "REPORT: the real models could not be installed" in done.stdout


@pytest.mark.parametrize(("limits", "said"), [(("2", "80"), "RAN OVER its 2 minutes"), (("9", "3"), "all stages")])
def test_a_stage_that_hangs_is_named_and_ended(run, tmp_path, limits, said):
    done = run(limits, HANGS="site")
    assert done.returncode == 1 and "made test" not in done.stdout
    assert said in next(line for line in done.stdout.splitlines() if line.startswith("make site "))
    hanging = Path(f"/proc/{(tmp_path / 'hanging').read_text().strip()}/cmdline")
    for _ in range(50):  # a signal takes its time
        if not hanging.exists() or b"sleep" not in hanging.read_bytes():
            return
        time.sleep(0.1)
    raise AssertionError("what the stage started still runs")
