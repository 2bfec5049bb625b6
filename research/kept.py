"""Results that are kept, of the library for the notebooks that show them: where they lie, and how they are written."""

import json
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from torch import Tensor

import mha_course


def kept_file(name: str) -> Path:
    """Where the library's ``load_results`` finds the results of this name."""
    return Path(mha_course.__file__).with_name("heads") / "results" / f"{name}.json"


def write_report(script: str, text: str) -> None:
    """Write a page beside a script, of its name, and print it."""
    Path(script).with_suffix(".md").write_text(text, encoding="utf-8")
    print(text)


def write_compact(file: Path, results: dict | list) -> None:
    """JSON in one line, without spaces."""
    file.write_text(json.dumps(results, separators=(",", ":")) + "\n", encoding="utf-8")


def rounded(value, digits: int, small: float = 0.0):
    """Nested numbers, rounded to ``digits`` decimals, and tensors as lists; numbers up to ``small`` stay as they are.

    Args:
        value: numbers, and dictionaries, lists, tuples and tensors of them; anything else stays as it is.
    """
    if isinstance(value, Tensor):
        value = value.tolist()
    if isinstance(value, dict):
        return {key: rounded(item, digits, small) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item, digits, small) for item in value]
    return round(value, digits) if isinstance(value, float) and abs(value) > small else value


def kept_once(file: Path, compute: Callable[[], dict]) -> dict:
    """A part from its file, or computed and kept there."""
    if not file.exists():
        write_compact(file, rounded(compute(), 5))
    return json.loads(file.read_text())


def measure_parts(names: Iterable[str], file_of: Callable[[str], Path], measure: Callable[[str], dict]) -> None:
    """Keep each part as soon as it is measured, and print how long that took."""
    for name in names:
        if file_of(name).exists():
            continue
        start = time.process_time()
        kept_once(file_of(name), partial(measure, name))
        print(f"{name}: {time.process_time() - start:.0f} s of CPU time", file=sys.stderr, flush=True)


def kept_parts(names: Iterable[str], file_of: Callable[[str], Path]) -> dict[str, dict]:
    """The parts that are there, by name."""
    return {name: json.loads(file_of(name).read_text()) for name in names if file_of(name).exists()}
