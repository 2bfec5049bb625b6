"""Which tests run now: what is long in CI alone, and some that are many by turns, as commits are counted."""

import os
import subprocess
from pathlib import Path

LONG = "1" in (os.environ.get("MHA_REQUIRE_ALL"), os.environ.get("MHA_LONG"))
EVERYDAY = os.environ.get("MHA_EVERYDAY") == "1" and not LONG


def commits():
    """The number of commits; None in a copy that git does not know."""
    command = ["git", "-c", "safe.directory=*", "rev-list", "--count", "HEAD"]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True)
    return int(done.stdout) if done.returncode == 0 else None


def by_turns(cases, parts):
    """One of so many parts of the cases, the next one with the next commit; all in ``make nightly`` or without git."""
    number = commits()
    if number is None or os.environ.get("MHA_NIGHTLY") == "1":
        return list(cases)
    return list(cases)[number % parts :: parts]
