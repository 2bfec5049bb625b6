"""The verdict of a page is the kernel's: on right answers, on every listed mistake, on other wrong ones."""

import ast
import base64
import functools
import gzip
import inspect
import json
import linecache
import math
import re
import subprocess
import sysconfig
from pathlib import Path

import cases
import pytest
import torch
import verdict

from mha_lib import exercises, masked_softmax
from mha_lib.checking import running
from mha_lib.checking.edits import rows_of, source_of_answer
from mha_lib.exercises import on_a_page
from pages import export, runtime


@pytest.fixture(autouse=True)
def here(monkeypatch):
    """Answers run in this process, and no record is kept."""
    monkeypatch.setattr(running, "can_fork", lambda: False)
    monkeypatch.setattr("mha_lib.checking.kept_work.record", lambda *_: None)


@functools.cache
def data_of(name):
    verdict.use(export.words())
    return json.loads(on_a_page.as_json(on_a_page.exercise_data(exercises.COURSE[name])))


@pytest.fixture(params=on_a_page.PAGES)
def pair(request):
    """An exercise, and the check of its page."""
    return exercises.COURSE[request.param], verdict.Checker(data_of(request.param))


def by_kernel(exercise, source):
    """What the kernel says of an answer."""
    file = f"<answer {hash(source)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    names = {"torch": torch, "F": torch.nn.functional, "math": math, "masked_softmax": masked_softmax}
    exec(compile(source, file, "exec"), names)
    return exercise(names[exercise.__name__])


def listed_mistakes(exercise):
    """The sources of the mistakes that stand in an exercise's table, as edits of the right answer."""
    decorator = ast.parse(inspect.getsource(exercise.right)).body[0].decorator_list[0]
    [table] = [keyword.value for keyword in decorator.keywords if keyword.arg == "mistakes"]
    tables = eval(compile(ast.Expression(table), "table", "eval"), exercise.right.__globals__)
    right = re.sub("  # .*", "", source_of_answer(exercise.right))
    for _, edits in (row for table in ([tables] if isinstance(tables, str) else tables) for row in rows_of(table)):
        yield re.sub("|".join(map(re.escape, edits)), lambda found, edits=edits: edits[found[0]], right)


def differing(exercise, checker, sources):
    """Of which answers the page says another class of verdict than the kernel, and of which another name."""
    states, texts = [], []
    for source in sources:
        kernel, own = by_kernel(exercise, source), checker.check(source)
        both = source, kernel, own
        states += [both] * (kernel.state != own["state"])
        texts += [both] * ((kernel.text, kernel.evidence) != (own["text"], own["evidence"]))
    return states, texts


def test_right_answers_in_six_styles(pair):
    exercise, checker = pair
    sources = cases.right_answers(exercise)
    assert [checker.check(source)["state"] for source in sources] == ["right"] * 6
    assert differing(exercise, checker, sources) == ([], [])


def test_every_listed_mistake_has_its_name(pair):
    exercise, checker = pair
    assert differing(exercise, checker, listed_mistakes(exercise)) == ([], [])


def test_mistakes_that_are_programs_have_their_names(pair, monkeypatch):
    exercise, checker = pair
    given = iter(())
    monkeypatch.setattr(checker, "namespace", lambda: {exercise.__name__: lambda *_: next(given)})
    for row in checker.data["mistakes"]:
        if any(row["wrong"]) and all("r" in told for told in row["of"]):
            given = iter([verdict.decoded(told["r"]) for told in row["of"]])
            assert checker.check("")["text"] == row["text"]


def test_other_wrong_answers(pair):
    exercise, checker = pair
    others = cases.other_answers(exercise.solution)[::2]
    states, texts = differing(exercise, checker, others)
    assert states == []
    assert len(texts) <= 0.1 * len(others), texts


def test_micropython_says_the_same(tmp_path):
    """As the page holds it; of errors that are Python's own, it has words of its own."""
    page = runtime.PAGE.read_text(encoding="utf-8")
    for name, part in re.findall('"(runtime|wasm|tensor.py|verdict.py|words.json)": "(.*)"', page):
        (tmp_path / name).write_bytes(gzip.decompress(base64.b64decode(part)))
    asked, said = [], []
    for name in on_a_page.PAGES:
        exercise, checker = exercises.COURSE[name], verdict.Checker(data_of(name))
        wrong = [*listed_mistakes(exercise), *cases.other_answers(exercise.solution)]
        sources = cases.right_answers(exercise) + wrong[::7]
        asked.append((checker.data, sources))
        said += map(checker.check, sources)
    (tmp_path / "cases.json").write_text(json.dumps(asked), encoding="utf-8")
    deno = Path(sysconfig.get_path("scripts")) / "deno"
    command = [deno, "run", "--allow-read", Path(__file__).with_name("answers.mjs"), tmp_path]
    heard = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert [one["state"] for one in heard] == [one["state"] for one in said]
    other = [(a, b) for a, b in zip(heard, said, strict=True) if a != b and "Error" not in a["text"] + a["evidence"]]
    assert other == []


def test_an_exercise_without_a_page_is_refused(tmp_path):
    with pytest.raises(ValueError, match="'two_heads' has no page; those that have one: transpose_qkv"):
        exercises.page("two_heads", tmp_path)


def test_a_page_is_written_with_its_exercise(tmp_path):
    text = exercises.page("transpose_qkv", tmp_path).read_text(encoding="utf-8")
    assert text.count("<h1>Write <code>transpose_qkv</code></h1>") == 1 and len(text) < 700_000
    assert re.findall("@@[A-Z]+@@", text) == []
