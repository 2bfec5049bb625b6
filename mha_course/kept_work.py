"""What is kept of a learner's work between sittings, in the user's cache: tries, solutions, predictions, a language.

It stays in the learner's home, also where a class shares one folder of trained models, ``MHA_CACHE``. With
``MHA_PROGRESS=off`` in the environment, or where an instructor has switched worked answers off, nothing is read there
or written, and everything lasts only as long as the kernel.
"""

import contextlib
import json
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

FORM = {"tries": int, "solved": bool, "text": str}  # what an entry may hold
this_sitting: dict[str, dict] = {}


def solutions_are_off() -> bool:
    """Return whether worked solutions are switched off by the environment variable ``MHA_SOLUTIONS=off``."""
    return os.environ.get("MHA_SOLUTIONS", "").lower() == "off"


def kept() -> dict[str, dict]:
    """Return the learner's stored progress by name: tries and success in each exercise, the text of each prediction."""
    return (_sound(_read()) if _is_written() else {}) | this_sitting


def keep(name: str, content: dict) -> None:
    """Store ``content`` under ``name`` in the learner's progress file, or only in memory if it cannot be written."""
    this_sitting[name] = content
    if _is_written():
        with contextlib.suppress(OSError, RuntimeError):  # no room, no right to write, or no home
            _write(kept())


def record(name: str, state: str) -> None:
    """Store one more try at the exercise called ``name``, and whether it is solved (``state`` is "right").
    The state "not yet", of an unfinished stub, does not count as a try.
    """
    if state != "not yet":
        before = kept().get(name, {})
        keep(name, {"tries": before.get("tries", 0) + 1, "solved": before.get("solved", False) or state == "right"})


def _is_written() -> bool:
    return not solutions_are_off() and os.environ.get("MHA_PROGRESS", "").lower() != "off"


def _read() -> Any:
    """What the file holds; None if it cannot be read."""
    with contextlib.suppress(OSError, ValueError, RuntimeError):
        return json.loads(_path().read_text(encoding="utf-8"))
    return None


def _sound(found: Any) -> dict[str, dict]:
    """What of the found entries has the form that this file gives them."""
    entries = [entry for entry in found.items() if isinstance(entry[1], dict)] if isinstance(found, dict) else []
    sound = {
        name: {key: what for key, what in content.items() if type(what) is FORM.get(key)} for name, content in entries
    }
    return {name: content for name, content in sound.items() if content}


def _write(work: dict[str, dict]) -> None:
    """Replace the file in one step; one that cannot be read may still be worth something and is set aside."""
    path = _path()
    path.parent.mkdir(parents=True, exist_ok=True)
    is_damaged = path.exists() and not isinstance(_read(), dict)
    if is_damaged:
        os.replace(path, path.with_suffix(".damaged"))
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
        json.dump(work, file)
    os.replace(file.name, path)
    if is_damaged:
        warnings.warn(f"{path} could not be read; it is now {path.with_suffix('.damaged').name}", stacklevel=5)


def _path() -> Path:
    return Path.home() / ".cache" / "mha_lib" / "progress.json"
