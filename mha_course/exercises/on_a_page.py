"""Exercises on a page of their own: written and checked in a browser, without Python on the machine.

The page without an exercise is data of this package, made by ``make page-runtime``. Here, an exercise is put into it.
"""

import base64
import gzip
import html
import inspect
import json
import math
import re
from importlib import resources
from pathlib import Path
from typing import Any

from torch import Tensor

from mha_course.checking.comparing import Result, outcome_of
from mha_course.checking.edits import source_of_answer
from mha_course.checking.exercise import FunctionExercise, used_by
from mha_course.checking.help_in_steps import NEEDED_TRIES, find
from mha_course.exercises.layer_on_a_page import layer_data
from mha_course.exercises.transposing import tags_in_words
from mha_course.exercises.whole_layer import layer_by_formula
from mha_course.models.training import seeded

PAGES = ("transpose_qkv", "transpose_output", "layer_by_formula", "masked_weights", "sum_over_heads")  # that have one
MASKED_SOFTMAX = """
def masked_softmax(scores, valid_lens=None):
    if valid_lens is None:
        return scores.softmax(-1)
    shapes = (scores.shape[0],), (scores.shape[0], scores.shape[-2])
    if valid_lens.shape not in shapes:
        raise ValueError(f"valid_lens must have shape {shapes[0]} or {shapes[1]}, got {valid_lens.shape}")
    low, high, k = valid_lens.min().item(), valid_lens.max().item(), scores.shape[-1]
    if low < 0 or high > k:
        raise ValueError(f"valid_lens must lie between 0 and the number of keys, {k}; got {low} to {high}")
    lengths = valid_lens.reshape([len(valid_lens)] + [1] * (scores.dim() - 3) + [-1, 1])
    valid = torch.arange(k) < lengths
    return scores.masked_fill(~valid, torch.finfo().min).softmax(-1) * valid
"""  # as it is there for lengths; the library's own also takes other masks


def page(name: str, folder: str | Path = ".") -> Path:
    """Write an HTML file in which one solves the exercise ``name`` in a browser, offline, and return its path.

    A missing folder is made.

    Raises:
        ValueError: the exercise has no page, with the names of those that have one.
    """
    find(name)
    if name not in PAGES:
        raise ValueError(f"the exercise {name!r} has no page; those that have one: {', '.join(PAGES)}")
    path = Path(folder) / f"{name}.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page_of(name), encoding="utf-8", newline="\n")
    return path.resolve()


def all_pages(folder: str | Path) -> list[Path]:
    """Write the HTML files of all exercises that have one into ``folder``, and return their paths."""
    return [page(name, folder) for name in PAGES]


def page_of(name: str) -> str:
    """Return the HTML text of the page on which one solves the exercise ``name`` in a browser."""
    folder = resources.files("mha_course") / "exercises"
    empty, around = (folder / "page.html").read_text(encoding="utf-8"), folder / f"around_{name}.html"
    data = data_of(find(name))
    keys = ("doc", "hints", "solution", "start", "tries", "unchecked")
    shown = {key: data.pop(key) for key in keys} | {"name": name}
    named = [f"`{helper}`" for helper in re.findall(r"def (\w+)", data["helpers"])]
    helpers = f", and notebook 00's {', '.join(named)}" * bool(named)
    shown["unchecked"] = f" {shown['unchecked']} are not checked on this page." * bool(shown["unchecked"])
    shown["doc"] = "\n\n".join(" ".join(part.split()) for part in shown["doc"].split("\n\n"))
    shown["doc"] += f"\n\nAt hand are `torch`, `nn`, `F` and `math`{helpers}.{shown['unchecked']}"
    parts = {"@@NAME@@": html.escape(data["name"]), "@@SHOWN@@": as_json(shown), "@@DATA@@": packed(as_json(data))}
    parts["@@AROUND@@"] = around.read_text(encoding="utf-8") if around.is_file() else ""
    for mark, text in parts.items():
        empty = empty.replace(mark, text)
    return empty


def as_json(data: object) -> str:
    """Return ``data`` as JSON text that can be embedded in an HTML script element, with ``<`` escaped."""
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")


def packed(text: str) -> str:
    """Compress ``text`` with gzip, and return it as base64 text."""
    return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


def data_of(exercise: Any) -> dict[str, Any]:
    """Return an exercise's task, calls, right results, mistakes and hints in a dict for an HTML page."""
    if exercise is not layer_by_formula:
        return exercise_data(exercise)
    data = layer_data(encoded)
    return {**data, "helpers": MASKED_SOFTMAX + data["helpers"], "tries": NEEDED_TRIES}


def exercise_data(exercise: Any) -> dict[str, Any]:
    """Return what an HTML page needs to check an exercise: test inputs, right results, results of known mistakes."""
    assert isinstance(exercise, FunctionExercise), exercise
    with seeded(0):
        drawn = exercise.trials()
    stages = drawn if isinstance(drawn, dict) else {"": drawn}
    trials = [trial for trials in stages.values() for trial in trials]
    rights = [exercise.right(*trial) for trial in trials]
    calls = iter([{"trial": list(map(encoded, t)), "right": encoded(r)} for t, r in zip(trials, rights, strict=True)])
    names = list(inspect.signature(exercise.right).parameters)
    return {
        "name": exercise.__name__,
        "names": names,
        "used": [name for name in names if name in used_by(exercise.right)],
        "doc": inspect.getdoc(exercise),
        "praise": exercise.praise,
        "hints": exercise.hints,
        "solution": exercise.solution,
        "start": f"def {exercise.__name__}({', '.join(names)}):\n    # your code\n    ...\n",
        "tries": NEEDED_TRIES,
        "unchecked": "Gradients" * ("gradient" in (inspect.getdoc(exercise) or "")),
        "tags": exercise.numbers_in_words is tags_in_words,
        "helpers": MASKED_SOFTMAX if "masked_softmax" in source_of_answer(exercise.right) else "",
        "stages": [[where, [next(calls) for _ in trials]] for where, trials in stages.items()],
        "mistakes": list(mistakes_of(exercise.mistakes, trials, rights)),
    }


def mistakes_of(mistakes: list, trials: list[tuple], rights: list) -> list[dict[str, Any]]:
    """Return what each known wrong answer gives on each test input and where it is wrong, without duplicates."""
    rows: dict[str, dict[str, Any]] = {}
    for text, program in mistakes:
        results = [Result(t, outcome_of(program, t), right) for t, right in zip(trials, rights, strict=True)]
        row = {"wrong": [int(one.problem() is not None) for one in results], "of": [outcome(one) for one in results]}
        rows.setdefault(json.dumps(row), {"text": text, **row})
    return [*rows.values()]


def outcome(result: Result) -> dict[str, Any]:
    """Return one result of a wrong answer as a dictionary for JSON: a value, an error, or {} if JSON cannot hold it."""
    if result.got.error:
        return {"e": list(result.got.error)}
    try:
        return {"r": encoded(result.got.value)}
    except TypeError:
        return {}


def encoded(value: Any) -> Any:
    """Convert a tensor, number, text or list to a form that JSON can hold, with nine digits for each float.

    Raises:
        TypeError: the value is neither a tensor nor a number, a text, a list or a tuple.
    """
    if type(value) is Tensor:
        numbers = [number(x) for x in value.detach().flatten().tolist()]
        return {"t": str(value.dtype).removeprefix("torch."), "s": list(value.shape), "v": numbers}
    if isinstance(value, float):
        return {"f": number(value)}
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, list | tuple):
        return {"u": isinstance(value, tuple), "l": [encoded(part) for part in value]}
    raise TypeError(f"a value must be a tensor, a number, a text, a list or a tuple; got {type(value).__name__}")


def number(x: float) -> float | str:
    """Round a number to nine significant digits, and return infinities and NaN, which JSON lacks, as text."""
    return x if isinstance(x, int) else float(f"{x:.9g}") if math.isfinite(x) else str(x)
