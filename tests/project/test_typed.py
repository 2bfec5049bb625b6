"""A type checker knows what a call of the layer gives, and the type of the model whose heads were found."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("typed.py")


@pytest.mark.slow
def test_mypy_marks_what_is_wrong_in_a_script_and_nothing_else():
    command = [sys.executable, "-m", "mypy", "--config-file=", "--strict", "--cache-dir=build/mypy", str(SCRIPT)]
    said = subprocess.run(command, capture_output=True, text=True, cwd=SCRIPT.parents[2]).stdout
    marked = {int(line) for line in re.findall(r"^tests/project/typed\.py:(\d+): error", said, re.MULTILINE)}
    lines = SCRIPT.read_text(encoding="utf-8").splitlines()
    assert marked == {number for number, line in enumerate(lines, 1) if "# WRONG" in line}, said
