"""What is kept of a learner's work between sittings, in the user's cache: tries, what is solved, what was predicted.

It stays in the learner's home, also where a class shares one folder of trained models, ``MHA_CACHE``. While tests run,
or where an instructor has switched worked answers off, nothing is written.
"""

import contextlib
import json
import os
import tempfile
from pathlib import Path

this_sitting: dict[str, dict] = {}


def solutions_are_off() -> bool:
    """Whether an instructor has said that worked answers are not to be shown: ``MHA_SOLUTIONS=off``."""
    return os.environ.get("MHA_SOLUTIONS", "").lower() == "off"


def kept() -> dict[str, dict]:
    """Name of an exercise → tries and whether it is solved; name of a prediction → what was typed."""
    found = {}
    if _is_written():
        with contextlib.suppress(OSError, ValueError):
            found = json.loads(_path().read_text(encoding="utf-8"))
    return (found if isinstance(found, dict) else {}) | this_sitting


def keep(name: str, content: dict) -> None:
    """Keep something under a name; where it cannot be written, it lasts as long as the kernel."""
    this_sitting[name] = content
    if _is_written():
        with contextlib.suppress(OSError):
            _path().parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=_path().parent, delete=False, encoding="utf-8") as file:
                json.dump(kept(), file)
            os.replace(file.name, _path())


def record(name: str, state: str) -> None:
    """Count a try at an exercise; a stub is none."""
    if state != "not yet":
        before = kept().get(name, {"tries": 0, "solved": False})
        keep(name, {"tries": before["tries"] + 1, "solved": before["solved"] or state == "right"})


def _is_written() -> bool:
    return not solutions_are_off() and "PYTEST_VERSION" not in os.environ


def _path() -> Path:
    return Path.home() / ".cache" / "mha_lib" / "progress.json"
